"""How well the pace finds what an endpoint bears: endpoints as pure logic, and the real engine driven against them.

`endpoints.py` has the profiles, `drive.py` plays batches in virtual time, `report.py` measures and holds the gates,
`plot.py` draws. `python -m bench.profiles` does all of it; the scenarios `profile-*` and the tests do parts.
"""

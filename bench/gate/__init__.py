"""The gate: `python -m bench.gate --base REV --head REV` says whether judging became slower or hungrier between them.

This checkout's registry measures both revisions of `rewardcore`, each installed in an environment of its own; what is
not ours, and the simulated endpoint (`rewardcore/testing`), is the same for both, so that what differs is ours. The
process that compares imports nothing that it compares: it starts children and reads what they say. Four tiers:

- exact: counts, digests, virtual time, predicted memory. Any worsening fails, unless a commit explains the figure.
- instructions: of the client, a sample, counted by valgrind. Two per cent fail.
- paired: what only a real clock shows, in alternating pairs. Fails when two rounds agree.
- history: steps in the series that asv has kept. Advice; it decides nothing.

A line `Explains: SCENARIO METRIC: why` in a commit's message excuses that figure; a scenario may be a pattern, and what
is neither better nor worse, such as a digest, needs its metric alone. Figures of the pace (`profile-*`, `refused-*`)
are excused by two points at most: 0.02 of a share of the requests, 2 % of what base has of anything else.

A metric passes, fails, or is inconclusive. What was not measured is inconclusive, and never passes.
"""

"""Trainers: what each of them calls, and how each masks a sample that was not judged. The only place that knows them.

Each file is imported by its own trainer, and brings it along: verl.py, trl.py. They see the public names and `rewards`.
"""

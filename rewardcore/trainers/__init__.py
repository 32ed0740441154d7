"""Trainers: what each of them calls, and how each masks a sample that was not judged. The only place that knows them.

Each file is for one trainer: trl.py, which imports nothing of it, and verl.py. They see the public names and `rewards`.
"""

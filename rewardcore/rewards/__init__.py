"""Rewards: verdicts, rules and lengths become the numbers that a trainer asks for. Where a failure is a number is told
by each trainer's own adapter (`rewardcore.trainers`), never here.

`configuration.py` reads every configuration, `judges.py` keeps one judge for each.
"""

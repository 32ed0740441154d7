"""Rejection sampling: ask a model each problem several times, and see how near its best answer comes to the truth.

A row becomes a problem (problems.py), its rollouts go through the judges' engine (rollouts.py, sampling.py)
to a server (servers.py), each text gives a number or none (answers.py), together they are a result (results.py), and
all results a report (figures.py, report.py, plots.py, comparison.py). plan.py is what may be said, run.py the whole
of it. Called by the command line and by users; calls judges, files and serving.
"""

from .comparison import Outcome, lines_of
from .figures import Figures
from .plan import Checkpoint, Plan
from .run import reject_sample
from .sampling import Stopped
from .servers import Address, at, started

__all__ = [
    "Address",
    "Checkpoint",
    "Figures",
    "Outcome",
    "Plan",
    "Stopped",
    "at",
    "lines_of",
    "reject_sample",
    "started",
]

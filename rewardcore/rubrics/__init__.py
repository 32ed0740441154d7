"""Rubrics: how a sample becomes chat messages, and how a reply's text becomes a score.

A rubric is any object with `messages(sample)` and `parse(text)` (rubric.py). `TemplateRubric` is ours (template.py),
and `load` reads one from a TOML file; transcript.py shows conversations; QUALITY and its siblings come with the package
(built_in.py); parsing.py reads scores. Called by every judge; it calls nobody but the words.

A score rises with what is asked: under `MONITOR` 1.0 means that the response games the task (`higher_is = "worse"`).
"""

from .built_in import ANSWER, BY_NAME, CORRECTNESS, MONITOR, QUALITY, QUESTION, SOLUTION
from .rubric import Message, Rubric
from .template import TemplateRubric, load, named

__all__ = [
    "ANSWER",
    "BY_NAME",
    "CORRECTNESS",
    "MONITOR",
    "QUALITY",
    "QUESTION",
    "SOLUTION",
    "Message",
    "Rubric",
    "TemplateRubric",
    "load",
    "named",
]

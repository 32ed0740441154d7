"""One judge per process and configuration, however often a trainer imports, pickles or calls us; closed at exit.

A judge outlives a fork by itself, so a trainer's forked workers share nothing but the configuration.
"""

from __future__ import annotations

import threading
from typing import Any

from ..http.endpoint import Endpoint
from ..judge import Judge, open_judge
from ..rubrics import QUALITY, Rubric
from ..rubrics import named as named_rubric

_judges: dict[object, Judge] = {}
_opening = threading.Lock()


def shared_judge(endpoint: Endpoint, rubric: Rubric | str = QUALITY, mode: str = "asyncio", **options: Any) -> Judge:
    """The judge of this configuration, opened when it is first asked for. It is everybody's: nobody closes it.

    A rubric is known by its value where it is a template, and else by itself: make one, and hand over the same.
    """
    rubric = named_rubric(rubric) if isinstance(rubric, str) else rubric
    key = (repr(endpoint), tuple(sorted((endpoint.headers or {}).items())), _known(rubric), mode, _known(options))
    with _opening:
        judge = _judges.get(key)
        if judge is None or judge.closed:
            judge = _judges[key] = open_judge(mode, endpoint, rubric=rubric, **options)
        return judge


def _known(value: object) -> object:
    """What stands for a value in the key: itself where it can, else which object it is."""
    if isinstance(value, dict):
        return tuple((name, _known(value[name])) for name in sorted(value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value

"""One judge per process and configuration, however often a trainer imports, pickles or calls us; closed at exit.

`JudgeConfig` is what every reward that asks a judge is configured with. Whoever judges keeps a configuration, never a
judge, and so can be pickled. A judge outlives a fork by itself, so a trainer's forked workers share nothing else.
Whoever can be shut down says who it is when it asks, and a judge is closed with the last of those who hold it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from weakref import WeakSet

from ..arguments import check_seconds, check_whole
from ..failures import ConfigurationError, NotJudged
from ..forks import at_fork
from ..http.endpoint import Endpoint
from ..judge import Judge, open_judge
from ..rubrics import QUALITY, Rubric
from ..rubrics import named as named_rubric
from ..verdict import Verdict


class _Everybody:
    """Who holds the judges of those that are never shut down."""


_EVERYBODY = _Everybody()
_judges: dict[object, Judge] = {}
_holders: dict[object, WeakSet[Any]] = {}
_opening = threading.Lock()
#: What can only be meant as the name of a variable, and so may be shown.
_NAME_OF_A_KEY = re.compile(r"[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)")


@dataclass(frozen=True)
class JudgeConfig:
    """Where and how a reward's judge is asked. `api_key` is the name of the variable that holds the key, or the key.
    `api_endpoint=None` is OPENAI_BASE_URL. Both variables are read where the judge is opened, on whatever node.

    `cache` is True for one in memory, or the path of a SQLite file that every process shares.
    """

    api_key: str = field(default="OPENAI_API_KEY", repr=False)
    model_name: str = "deepseek-v3"
    api_endpoint: str | None = None
    use_async_io: bool = True
    max_concurrent_requests: int | Literal["auto"] = 10
    cache: bool | str = True
    deadline: float = 300.0

    def __post_init__(self) -> None:
        check_bounds(self.max_concurrent_requests, self.deadline, "max_concurrent_requests", "deadline")

    def endpoint(self) -> Endpoint:
        """Raises a ConfigurationError that names what is missing or wrong; nothing is opened."""
        url, key = (self.api_endpoint or os.environ.get("OPENAI_BASE_URL", "")).strip(), self.api_key.strip()
        if not url:
            raise ConfigurationError(
                "the judge needs api_endpoint, such as http://127.0.0.1:8000/v1: set OPENAI_BASE_URL"
            )
        if not self.model_name.strip():
            raise ConfigurationError("model_name must name the model that judges, as the endpoint serves it")
        try:
            endpoint = Endpoint(url.rstrip("/").removesuffix("/chat/completions"), self.model_name, api_key_env=None)
        except ConfigurationError as error:
            raise ConfigurationError(f"api_endpoint, or OPENAI_BASE_URL: {error}") from None
        if os.environ.get(key, "").strip():
            endpoint = replace(endpoint, api_key_env=key)
            endpoint.api_key()  # one that no header can carry is told now
            return endpoint
        if _NAME_OF_A_KEY.fullmatch(key) or not key:
            raise ConfigurationError(f"{key or 'OPENAI_API_KEY'} is not set: it must hold the judge's API key")
        if not (key.isascii() and key.isprintable()):
            raise ConfigurationError("api_key holds characters that no header can carry; give it again")
        return replace(endpoint, headers={"Authorization": f"Bearer {key}"})

    def judge(self, rubric: Rubric | str, holder: object = _EVERYBODY) -> Judge:
        """The judge of this configuration, opened when it is first asked for."""
        return shared_judge(
            self.endpoint(),
            rubric,
            "asyncio" if self.use_async_io else "sync",
            holder,
            max_concurrent=self.max_concurrent_requests,
            cache=self.cache or None,
            deadline=self.deadline,
        )


def check_bounds(limit: object, deadline: object, limit_name: str, deadline_name: str) -> None:
    """What `open_judge` would say when the first batch is there, said at once and by the names that were given."""
    check_whole(limit_name, limit, "auto")
    check_seconds(deadline_name, deadline)


def scores_of(verdicts: Mapping[int, Verdict], total: int) -> dict[int, float]:
    """The scores by their places in a batch of so many; raises NotJudged where there is none, with all of those."""
    scores = {place: verdict.score for place, verdict in verdicts.items() if verdict.score is not None}
    if len(scores) < len(verdicts):
        raise NotJudged({place: verdicts[place] for place in sorted(verdicts) if place not in scores}, total)
    return scores


def as_rubric(given: Rubric | str) -> Rubric:
    """A rubric, as a configuration may name it."""
    return named_rubric(given) if isinstance(given, str) else given


def reward_of(score: float, rubric: Rubric) -> float:
    """A reward rises with what is wanted: 1 − score under a rubric whose `higher_is` is "worse"."""
    return 1.0 - score if getattr(rubric, "higher_is", "better") == "worse" else score


def shared_judge(
    endpoint: Endpoint,
    rubric: Rubric | str = QUALITY,
    mode: str = "asyncio",
    holder: object = _EVERYBODY,
    **options: Any,
) -> Judge:
    """The judge of this configuration, opened when it is first asked for. It is everybody's: nobody closes it, but for
    `release` where every holder has let go of it.

    A rubric is known by its value where it is a template, and else by itself: make one, and hand over the same.
    """
    rubric = as_rubric(rubric)
    key = _key(endpoint, rubric, mode, options)
    with _opening:
        judge = _judges.get(key)
        if judge is None or judge.closed:
            judge = _judges[key] = open_judge(mode, endpoint, rubric=rubric, **options)
        _holders.setdefault(key, WeakSet()).add(holder)
        return judge


def release(holder: object) -> None:
    """Close the judges that nobody else holds; whoever asks next opens another."""
    closed = []
    with _opening:
        for key, holders in list(_holders.items()):
            if holder in holders:
                holders.discard(holder)
                if not holders:
                    del _holders[key]
                    closed.append(_judges.pop(key))
    for judge in closed:
        judge.close()


def _forget_the_parents_lock() -> None:
    """After a fork: another thread of the parent's may have held it, and is not here to let it go."""
    global _opening
    _opening = threading.Lock()


at_fork(after_in_child=_forget_the_parents_lock)


def _key(endpoint: Endpoint, rubric: Rubric, mode: str, options: dict[str, Any]) -> object:
    headers = tuple(sorted((endpoint.headers or {}).items()))
    return repr(endpoint), headers, _known(rubric), mode, _known(options)


def _known(value: object) -> object:
    """What stands for a value in the key: itself where it can, else which object it is."""
    if isinstance(value, dict):
        return tuple((name, _known(value[name])) for name in sorted(value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value

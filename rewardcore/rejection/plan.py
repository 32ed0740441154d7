"""What is asked of each checkpoint, and how: checked when it is made, before anything is read or started.

`Plan.configuration` is what makes two runs the same: a run goes on only where all of it is equal. How fast and where it
is asked is no part of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..arguments import check, check_kind, check_whole, is_number
from ..failures import ConfigurationError
from ..http.endpoint import Endpoint
from ..http.settings import Settings
from ..serving.launch import file_name

#: So many rollouts may a problem have: the number of a draw has room for them, and for 2 ** 43 rows.
MOST_ROLLOUTS = 2**20
#: What has a field of its own, since it is a part of what people are told.
_FIELDS_OF_THEIR_OWN = ("temperature", "top_p", "max_tokens")


@dataclass(frozen=True)
class Checkpoint:
    """A model under test: the name that requests use, and where it lies; `path` is "" where nobody says."""

    name: str
    path: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigurationError(f"model_name must be a name such as policy-step-200, not {self.name!r}")
        if not isinstance(self.path, str | os.PathLike):
            raise ConfigurationError(f'model_path must be a directory or a hub\'s name, or "", not {self.path!r:.40}')
        place = Path(os.path.expanduser(self.path))
        object.__setattr__(self, "path", str(place.resolve() if self.path and place.exists() else self.path))

    @property
    def directory(self) -> str:
        """Its name as that of a folder."""
        return file_name(self.name)


@dataclass(frozen=True)
class Plan:
    """How every problem is asked: `num_rollout` times, those of `concurrency` problems at once.

    `prompt_suffix` follows the problem on a line of its own. `deadline` is each rollout's, in seconds from when it
    stands in line. A rollout whose failures are its own is tried again `max_retries` times; outages are waited out.
    `cache` is a SQLite file of replies, so that not even the rollouts of an unfinished problem are paid twice.
    """

    num_rollout: int = 16
    temperature: float = 1.0
    max_retries: int = 10
    concurrency: int = 8
    max_data: int | None = None
    top_p: float | None = None
    max_tokens: int | None = 4096
    system: str = ""
    prompt_suffix: str = ""
    extra_body: Mapping[str, Any] | None = None
    deadline: float = 3600.0
    cache: str | os.PathLike[str] | None = None
    skip_bad_rows: bool = False
    resume: bool = True

    def __post_init__(self) -> None:
        check_whole("num_rollout", self.num_rollout, most=MOST_ROLLOUTS)
        check_whole("concurrency", self.concurrency)
        check_whole("max_data", self.max_data, None)
        for name in ("system", "prompt_suffix"):
            check(name, value := getattr(self, name), "a text", isinstance(value, str))
        is_share = self.top_p is None or (is_number(self.top_p) and 0.0 < self.top_p <= 1.0)
        check("top_p", self.top_p, "above 0 and at most 1", is_share)
        check_kind("extra_body", self.extra_body, "a mapping", Mapping)
        for name in _FIELDS_OF_THEIR_OWN:
            if name in (self.extra_body or {}):
                raise ConfigurationError(f"extra_body must not set {name!r}: there is {name} for it")
        # What an endpoint or a judge refuses is refused now, not when a server has been started.
        endpoint = self.asking(Endpoint("http://127.0.0.1/v1", "any"))
        Settings(endpoint, cache=self.cache, deadline=self.deadline, max_retries=self.max_retries)

    @property
    def max_concurrent(self) -> int:
        return self.concurrency * self.num_rollout

    def asking(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint, with the sampling parameters of this plan."""
        body = dict(self.extra_body or {}) | ({} if self.top_p is None else {"top_p": self.top_p})
        return replace(endpoint, temperature=self.temperature, max_tokens=self.max_tokens, extra_body=body or None)

    def configuration(self, checkpoint: Checkpoint, data: str) -> dict[str, Any]:
        """`data` is the fingerprint of the rows."""
        names = ("num_rollout", "temperature", "top_p", "max_tokens", "system", "prompt_suffix", "extra_body")
        return {
            "model_name": checkpoint.name,
            "model_path": checkpoint.path,
            "data": data,
            **{name: getattr(self, name) for name in names},
        }

"""TRL: a reward function for GRPOTrainer, RLOOTrainer and the asynchronous trainer's spawned worker.

What was not judged is None, which TRL masks: no part in its group's baseline, and no advantage. But TRL masks a
completion only where *every* reward function gives None: next to another function, None counts as 0.0 in their sum. So
what is added to the judge's reward, rules and other judges, goes into `beside`: masked with it, and computed while the
judge works. `judging_ahead` (ahead.py) lets it work while the trainer computes log-probabilities, too. Nothing here
imports TRL.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import PurePath
from statistics import fmean
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from ..calls import Pending
from ..failures import ConfigurationError
from ..http.endpoint import Endpoint, not_an_endpoint
from ..judge import Judge
from ..notices import say
from ..rewards.images import sendable
from ..rewards.judges import as_rubric, reward_of, shared_judge
from ..rewards.rules import finite
from ..rubrics import QUALITY, Rubric
from ..sample import Sample
from ..verdict import Verdict
from .ahead import Begun, judging_ahead
from .figures import figures_of, short

__all__ = ["AsynchronousRewardFunction", "RewardFunction", "figures_of", "judging_ahead", "reward_function"]

#: What TRL hands over beside the dataset's columns.
_NO_COLUMNS = {"completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
_SHOWN = re.compile(r"\{([A-Za-z_]+(?:\.[\w-]+)?)\}")

Rule = Callable[..., Any]


def reward_function(
    endpoint: Endpoint,
    rubric: Rubric | str = QUALITY,
    *,
    asynchronous: bool = False,
    name: str | None = None,
    ground_truth: str | None = "ground_truth",
    data_source: str | None = "data_source",
    extra: Iterable[str] = (),
    beside: Iterable[Rule] = (),
    mode: str = "asyncio",
    **options: Any,
) -> RewardFunction:
    """What to put into `reward_funcs`: the judge's score as the reward, None where there is none.

    A reward rises with what is wanted: under a rubric whose `higher_is` is "worse", such as MONITOR, it is 1 - score.

    - `asynchronous`: TRL awaits such functions together, and calls the others one after another.
    - `name`: what TRL's and our metrics are logged under, another for each function; the rubric's by default.
    - `ground_truth`, `data_source`: the dataset's columns, None for none. They may be absent under their default names
      unless the rubric's template shows them.
    - `extra`: columns that the rubric finds in `sample.extra`, beside those that its template shows.
    - `beside`: other reward functions, whose rewards are added. From a rule, None means that it does not apply, as TRL
      has it; from another `reward_function`, that the completion is masked.
    - `mode` and `options` are `open_judge`'s, checked now. Each process of the trainer opens a judge of its own, so
      `max_concurrent` is for each of them.
    """
    rubric = as_rubric(rubric)
    if not isinstance(endpoint, Endpoint):
        raise not_an_endpoint(endpoint)
    if isinstance(extra, str):
        raise ConfigurationError(f"extra must be a list of columns, as in [{extra!r}]")
    columns = [*(extra or ())]
    if not all(isinstance(column, str) for column in [*columns, ground_truth or "", data_source or ""]):
        raise ConfigurationError("ground_truth, data_source and extra must be names of the dataset's columns")
    if asynchronous and mode == "sync":
        raise ConfigurationError(
            'asynchronous needs mode "asyncio" or "process": "sync" works only while it is waited for'
        )
    rules = () if callable(beside) else tuple(beside or ())
    if callable(beside) or not all(map(callable, rules)):
        raise ConfigurationError("beside must be a list of reward functions, as in [is_short]")
    for rule in rules:
        is_awaited = inspect.iscoroutinefunction(rule) or inspect.iscoroutinefunction(type(rule).__call__)
        if is_awaited and not asynchronous:
            raise ConfigurationError(f"beside holds the coroutine function {_name(rule)}: give asynchronous=True")
    shown = set(_SHOWN.findall(getattr(rubric, "template", "")))
    more = sorted(each.removeprefix("extra.") for each in shown if each.startswith("extra."))
    function = (AsynchronousRewardFunction if asynchronous else RewardFunction)(
        endpoint=endpoint,
        rubric=rubric,
        mode=mode,
        options=options,
        name=name or _name(rubric),
        ground_truth=ground_truth,
        data_source=data_source,
        extra=tuple(dict.fromkeys([*columns, *more])),
        needed=frozenset(shown & {"ground_truth", "data_source"}),
        beside=rules,
    )
    function.judge_here()
    return function


@dataclass(frozen=True, eq=False)
class RewardFunction:
    """What TRL calls. It holds nothing but its configuration, so it can be pickled; `reward_function` makes one."""

    endpoint: Endpoint
    rubric: Rubric
    mode: str
    options: Mapping[str, Any]
    name: str
    ground_truth: str | None
    data_source: str | None
    extra: tuple[str, ...]
    needed: frozenset[str]
    beside: tuple[Rule, ...]

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **given: Any) -> Any:
        """One reward per completion, in order; None where it was not judged."""
        with self._asked(prompts, completions, given) as (samples, pending):
            added = [rule(prompts=prompts, completions=completions, **given) for rule in self.beside]
            started = time.perf_counter()
            verdicts = _verdicts(samples, pending.result())
            return self._rewards(verdicts, added, given, time.perf_counter() - started)

    def begin(self, prompts: Sequence[Any], completions: Sequence[Any], **given: Any) -> None:
        """Judging starts now, and the call with the very same completions collects it: see `judging_ahead`.

        What is wrong with the dataset is told by that call.
        """
        for rule in self.beside:
            if isinstance(rule, RewardFunction):
                rule.begin(prompts, completions, **given)
        if (forgotten := _begun.pop(self, None)) is not None:
            forgotten.give_up()
        with suppress(ConfigurationError):
            _begun[self] = self._begin(prompts, completions, given)

    def judge_here(self) -> Judge:
        """This process's judge of this configuration."""
        return shared_judge(self.endpoint, self.rubric, self.mode, **self.options)

    @contextmanager
    def _asked(
        self, prompts: Sequence[Any], completions: Sequence[Any], given: Mapping[str, Any]
    ) -> Iterator[tuple[list[Sample | ConfigurationError], Pending]]:
        """Judging goes on meanwhile; whatever else goes wrong ends it."""
        begun = _begun.pop(self, None)
        if begun is None or not begun.is_of(completions):
            if begun is not None:
                begun.give_up()
            begun = self._begin(prompts, completions, given)
        try:
            yield begun.samples, begun.pending
        except BaseException:
            begun.pending.cancel()
            raise

    def _begin(self, prompts: Sequence[Any], completions: Sequence[Any], given: Mapping[str, Any]) -> Begun:
        samples = self._samples(prompts, completions, given)
        pending = self.judge_here().submit(each for each in samples if isinstance(each, Sample))
        return Begun(completions, samples, pending, os.getpid())

    def _samples(
        self, prompts: Sequence[Any], completions: Sequence[Any], given: Mapping[str, Any]
    ) -> list[Sample | ConfigurationError]:
        """What the dataset brought raises where it is wrong; what the model wrote only costs its own sample."""
        size, columns = len(prompts), {name: given[name] for name in given if name not in _NO_COLUMNS}
        truths = self._column("ground_truth", self.ground_truth, columns, size)
        sources = self._column("data_source", self.data_source, columns, size)
        extras = {name: self._column("extra", name, columns, size) for name in self.extra}
        samples: list[Sample | ConfigurationError] = []
        for index, completion in enumerate(_whole("completions", completions, size)):
            extra = {name: values[index] for name, values in extras.items()} or None
            sample = Sample(sendable(prompts[index]), "", truths[index], sources[index] or "", extra)
            try:
                samples.append(replace(sample, response=sendable(completion)))
            except ConfigurationError as error:
                samples.append(error)
        return samples

    def _column(self, field: str, name: str | None, columns: Mapping[str, Sequence[Any]], size: int) -> Sequence[Any]:
        if name is None or (name == field and name not in columns and name not in self.needed):
            return [None] * size
        if name not in columns:
            raise ConfigurationError(
                f"{self.name} wants the column {name!r} for {field}, and the dataset has none; beside the prompt it "
                f"has {', '.join(sorted(columns)) or 'nothing'}. Add it, or name another with {field}="
            )
        return _whole(f"the column {name!r}", columns[name], size)

    def _rewards(
        self,
        verdicts: Sequence[Verdict],
        added: Sequence[Sequence[float | None]],
        given: Mapping[str, Any],
        waited: float,
    ) -> list[float | None]:
        added = [_applied(rule, values, len(verdicts)) for rule, values in zip(self.beside, added, strict=True)]
        self._log(verdicts, added, given, waited)
        parts = zip(*added, strict=True) if added else [()] * len(verdicts)
        return [self._reward(verdict, values) for verdict, values in zip(verdicts, parts, strict=True)]

    def _reward(self, verdict: Verdict, added: Sequence[float | None]) -> float | None:
        judges = [isinstance(rule, RewardFunction) for rule in self.beside]
        if verdict.score is None or any(value is None for value in compress(added, judges)):
            return None
        return reward_of(verdict.score, self.rubric) + sum(value or 0.0 for value in added)

    def _log(
        self,
        verdicts: Sequence[Verdict],
        added: Sequence[Sequence[float | None]],
        given: Mapping[str, Any],
        waited: float,
    ) -> None:
        figures = figures_of(verdicts) | {"waited": waited}
        for rule, values in zip(self.beside, added, strict=True):
            if applied := [value for value in values if value is not None]:
                figures[f"beside/{_name(rule)}"] = fmean(applied)
        if log_metric := given.get("log_metric"):
            for name, figure in figures.items():
                log_metric(f"{self.name}/{name}", figure)
        if log_extra := given.get("log_extra"):
            log_extra(f"{self.name}/verdict", [short(each.error or each.status) for each in verdicts])
            log_extra(f"{self.name}/text", [short(each.text) for each in verdicts])
        if verdicts and "score" not in figures:
            say(
                logging.WARNING,
                "%s: none of %d completions was judged, so this batch teaches nothing; the first: %s",
                self.name,
                len(verdicts),
                short(verdicts[0].error or ""),
            )
        trainer = getattr(given.get("log_metric"), "__self__", None)
        others = [_name(each) for each in getattr(trainer, "reward_funcs", ()) if each is not self]
        if others and any(each.score is None for each in verdicts) and self not in _told:
            _told.add(self)
            say(
                logging.WARNING,
                "%s: what was not judged counts as 0.0 beside %s in reward_funcs; it is masked where they are given to "
                "reward_function, as beside=[…]",
                self.name,
                " and ".join(others),
            )


class AsynchronousRewardFunction(RewardFunction):
    """The same for `asynchronous=True`: TRL sees the coroutine function in `__call__`, and awaits it."""

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **given: Any) -> list[float | None]:
        async def values_of(rule: Rule) -> Sequence[float | None]:
            values = rule(prompts=prompts, completions=completions, **given)
            return await values if inspect.isawaitable(values) else values  # type: ignore[no-any-return]

        with self._asked(prompts, completions, given) as (samples, pending):
            added = await asyncio.gather(*map(values_of, self.beside))
            started = time.perf_counter()
            verdicts = _verdicts(samples, await pending)
            return self._rewards(verdicts, added, given, time.perf_counter() - started)


#: Begun before it was asked for. Not in the function itself, which holds nothing that cannot be pickled.
_begun: WeakKeyDictionary[RewardFunction, Begun] = WeakKeyDictionary()
#: Those of which it was told, once, that TRL unmasks what they could not judge.
_told: WeakSet[RewardFunction] = WeakSet()


def _verdicts(samples: Sequence[Sample | ConfigurationError], judged: Sequence[Verdict]) -> list[Verdict]:
    following = iter(judged)
    return [
        next(following) if isinstance(each, Sample) else Verdict("failed", error=f"{type(each).__name__}: {each}")
        for each in samples
    ]


def _whole(name: str, values: Sequence[Any], size: int) -> Sequence[Any]:
    if not hasattr(values, "__len__") or isinstance(values, str):
        raise ConfigurationError(f"{name}: a {type(values).__name__} for {size} prompts; there must be a list")
    if len(values) != size:
        raise ConfigurationError(f"{name}: {len(values)} values for {size} prompts; there must be one for each")
    return values


def _applied(rule: Rule, values: Sequence[Any], size: int) -> list[float | None]:
    """None where a rule does not apply, of which TRL itself makes NaN; what is infinite would move every advantage."""
    name = _name(rule)
    return [
        None if value is None or value != value else finite(value, f"{name} must return")
        for value in _whole(name, values, size)
    ]


def _name(named: Any) -> str:
    """A rule's name, or a rubric's: that of a TOML file is its path."""
    name = getattr(named, "__name__", None) or getattr(named, "name", None) or type(named).__name__
    return PurePath(name).stem if name.endswith(".toml") else str(name)

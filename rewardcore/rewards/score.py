"""`compute_score`, the function that a trainer calls: the task score by rule, plus the monitor's part.

The monitor says true or false of a response. What either adds is known before it is asked, and it is only asked where
they differ:

| | the monitor says false | true |
|---|---|---|
| TRAIN_WITH_MONITOR is not true | 0 | 0 |
| task score 0 or less: there is no reward to be had by gaming | 0 | 0 |
| task score above 0: taken at its word, it caught the response | 0 | MONITOR_CORRECT_REWARD |
| MONITOR_TRUTH_KEY=name, and extra_info[name] is true | MONITOR_WRONG_REWARD | MONITOR_CORRECT_REWARD |
| … is false | MONITOR_CORRECT_REWARD | MONITOR_WRONG_REWARD |

"Correct" and "wrong" are said of the monitor. With labels, −1 and +1 train a policy to slip past it; without, whether
it is wrong is not known, and nothing is ever earned by gaming. A failed judgement is no number: `compute_score` raises
`NotJudged` when all are judged, since verl puts each float of a list into a tensor without a mask; `scores` has None in
that place, for trainers that mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Literal, NamedTuple, overload

from ..arguments import check_kind
from ..failures import ConfigurationError
from ..rubrics import Rubric
from ..sample import Sample
from ..verdict import Verdict
from .configuration import read, unknown, variable
from .judges import JudgeConfig, as_rubric, check_bounds, scores_of
from .rules import finite, task_score
from .samples import sample_of

_TRUTH = {"true": True, "false": False, "1": True, "0": False}
#: What verl adds to a call on its own account, beside the user's `reward_kwargs`.
_TRAINERS_OWN = ("reward_router_address", "reward_model_tokenizer")


@dataclass(frozen=True)
class MonitorConfig:
    """The monitor's part. Every field is a keyword argument of `compute_score`, or its variable in upper case.

    `monitor_cache` is true, false, or the path of a SQLite file that all worker processes share. `monitor_rubric` is a
    rubric, its name or a TOML file. The key is in OPENAI_API_KEY and nowhere else.
    """

    train_with_monitor: bool = variable(False, "TRAIN_WITH_MONITOR")
    openai_base_url: str = variable("https://api.openai.com/v1", "OPENAI_BASE_URL")
    monitor_model_name: str | None = variable(None, "MONITOR_MODEL_NAME")
    monitor_cache: bool | str = variable(True, "MONITOR_CACHE")
    monitor_correct_reward: float = variable(-1.0, "MONITOR_CORRECT_REWARD")
    monitor_wrong_reward: float = variable(1.0, "MONITOR_WRONG_REWARD")
    monitor_max_concurrent: int | Literal["auto"] = variable(60, "MONITOR_MAX_CONCURRENT")
    monitor_truth_key: str | None = variable(None, "MONITOR_TRUTH_KEY")
    monitor_rubric: Rubric | str = variable("monitor", "MONITOR_RUBRIC")
    monitor_deadline: float = variable(300.0, "MONITOR_DEADLINE")

    def __post_init__(self) -> None:
        finite(self.monitor_correct_reward, "MONITOR_CORRECT_REWARD must be")
        finite(self.monitor_wrong_reward, "MONITOR_WRONG_REWARD must be")
        names = "MONITOR_MAX_CONCURRENT", "MONITOR_DEADLINE"
        check_bounds(self.monitor_max_concurrent, self.monitor_deadline, *names)

    def judged_by(self) -> JudgeConfig:
        if not self.monitor_model_name:
            raise ConfigurationError("MONITOR_MODEL_NAME is not set: it must name the model that monitors")
        return JudgeConfig(
            model_name=self.monitor_model_name,
            api_endpoint=self.openai_base_url,
            max_concurrent_requests=self.monitor_max_concurrent,
            cache=self.monitor_cache,
            deadline=self.monitor_deadline,
        )


class Row(NamedTuple):
    """One response to score. The prompt that a monitor is shown is `extra["prompt"]`, or "question", or none."""

    response: str
    ground_truth: Any = None
    data_source: str = ""
    extra: Mapping[str, Any] | None = None


class Score(NamedTuple):
    """What became of one row; `total` is None where the monitor was asked and gave no verdict."""

    task: float
    monitor: float | None
    verdict: Verdict | None = None

    @property
    def total(self) -> float | None:
        return None if self.monitor is None else self.task + self.monitor


def monitor_parts(task: float, extra: Mapping[str, Any], config: MonitorConfig) -> tuple[float, float]:
    """What a false and a true of the monitor add to a response: the table above."""
    if not config.train_with_monitor:
        return 0.0, 0.0
    right, wrong = config.monitor_correct_reward, config.monitor_wrong_reward
    key = config.monitor_truth_key
    if key is None:
        return 0.0, right if task > 0 else 0.0
    label = _TRUTH.get(str(extra.get(key)).lower())
    if label is None:
        raise ConfigurationError(f"MONITOR_TRUTH_KEY names {key!r}, and extra_info has no true or false there")
    return (wrong, right) if label else (right, wrong)


class _Plan:
    """Everything but the asking: what is known of the rows, which of them are asked about, and what comes of it."""

    def __init__(self, rows: Iterable[Row], given: MonitorConfig | Mapping[str, Any] | None) -> None:
        config = read(MonitorConfig, given)
        self.samples: list[Sample] = []
        if config.train_with_monitor:  # whatever is missing is told before any work is done
            self.judge_config, self.rubric = config.judged_by(), _monitor(config)
            self.judge_config.endpoint()
        self._tasks: list[float] = []
        self._parts: list[tuple[float, float]] = []
        for row in rows:
            task = task_score(row.data_source, row.response, row.ground_truth, row.extra)
            parts = monitor_parts(task, row.extra or {}, config)
            self._tasks.append(task)
            self._parts.append(parts)
            if parts[0] != parts[1]:
                self.samples.append(_sample(row))

    def settled(self, verdicts: Sequence[Verdict]) -> list[Score]:
        arrived = iter(verdicts)
        found = []
        for task, (low, high) in zip(self._tasks, self._parts, strict=True):
            verdict = next(arrived) if low != high else None
            share = verdict.score if verdict else 0.0
            found.append(Score(task, None if share is None else low + share * (high - low), verdict))
        return found


def scores(rows: Iterable[Row], config: MonitorConfig | Mapping[str, Any] | None = None) -> list[Score]:
    """One for each row, in order. Every judge call goes out at once, and none in vain."""
    plan = _Plan(rows, config)
    if not plan.samples:
        return plan.settled([])
    try:
        return plan.settled(plan.judge_config.judge(plan.rubric).judge(plan.samples))
    except TimeoutError:  # verl's compute_score_timeout, of which verl would make a 0.0
        late = "TimeoutError: the trainer waited no longer (compute_score_timeout); a reply on its way is still cached"
        return plan.settled([Verdict("timeout", error=late)] * len(plan.samples))


async def ascores(rows: Iterable[Row], config: MonitorConfig | Mapping[str, Any] | None = None) -> list[Score]:
    """`scores`, inside a running loop."""
    plan = _Plan(rows, config)
    if not plan.samples:
        return plan.settled([])
    return plan.settled(await plan.judge_config.judge(plan.rubric).ajudge(plan.samples))


def totals(found: Sequence[Score]) -> list[float]:
    """The numbers; raises NotJudged where one of them is none."""
    scores_of({place: score.verdict for place, score in enumerate(found) if score.verdict}, len(found))
    return [score.total for score in found if score.total is not None]


@overload
def compute_score(
    response: str, ground_truth: Any, dataset_name: str = "", extra_info: Mapping[str, Any] | None = None, **fields: Any
) -> float: ...


@overload
def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **fields: Any,
) -> float: ...


@overload
def compute_score(
    *,
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None] | None = None,
    **fields: Any,
) -> list[float]: ...


def compute_score(*arguments: Any, **keywords: Any) -> float | list[float]:
    """(response, ground_truth, dataset_name, extra_info), verl's keywords for one, or verl's keywords for a batch.

    Any other keyword is a field of `MonitorConfig`, as verl's `reward_kwargs` gives them.
    """
    rows, is_one, fields = read_call(arguments, keywords)
    found = totals(scores(rows, fields))
    return found[0] if is_one else found


async def acompute_score(*arguments: Any, **keywords: Any) -> float | list[float]:
    """`compute_score`, inside a running loop."""
    rows, is_one, fields = read_call(arguments, keywords)
    found = totals(await ascores(rows, fields))
    return found[0] if is_one else found


_ONE = ("response", "ground_truth", "dataset_name", "extra_info")
_VERL = ("solution_str", "ground_truth", "data_source", "extra_info")
_MANY = ("solution_strs", "ground_truths", "data_sources", "extra_infos")
_KNOWN = list(dict.fromkeys([*_ONE, *_VERL, *_MANY, *(each.name for each in dataclass_fields(MonitorConfig))]))


def read_call(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[list[Row], bool, dict[str, Any]]:
    """What is scored, in whichever convention; whether it is a single one; and what is left, the configuration."""
    if len(arguments) > len(_ONE):
        raise ConfigurationError(f"compute_score takes ({', '.join(_ONE)}), not {len(arguments)} arguments by place")
    by_place = dict(zip(_ONE, arguments, strict=False))
    by_name = {name: value for name, value in keywords.items() if name not in _TRAINERS_OWN}
    for name in by_name:
        if name in by_place:
            raise ConfigurationError(f"compute_score was given {name} twice, by place and by name")
        if name not in _KNOWN:
            raise unknown(name, _KNOWN, "argument of compute_score")
    given = by_place | by_name
    names = next((names for names in (_MANY, _VERL) if names[0] in given), _ONE)
    values = [given.pop(name, None) for name in names]
    if values[0] is None or (mixed := [name for name in {*_ONE, *_VERL, *_MANY} if name in given]):
        what = f"also {', '.join(sorted(mixed))}" if values[0] is not None else f"no {names[0]}"
        raise ConfigurationError(
            f"compute_score takes ({', '.join(_ONE)}), or {', '.join(_VERL)} by name, or {', '.join(_MANY)} by name;"
            f" it was given {what}"
        )
    if names is not _MANY:
        return [_row(*values)], True, given
    there = {name: _listed(column, name) for name, column in zip(names, values, strict=True) if column is not None}
    count = len(there[names[0]])
    columns = [there.get(name, [None] * count) for name in names]
    if any(len(column) != count for column in columns):
        lengths = ", ".join(f"{len(column)} {name}" for name, column in zip(names, columns, strict=True))
        raise ConfigurationError(f"compute_score needs as many of each, not {lengths}")
    return [_row(*row) for row in zip(*columns, strict=True)], False, given


def _row(response: Any, ground_truth: Any, data_source: Any, extra: Any) -> Row:
    if not isinstance(response, str):
        raise ConfigurationError(f"the response must be a text, not {type(response).__name__}")
    check_kind("the data source", data_source, "a text", str)
    check_kind("extra_info", extra, "a mapping or None", Mapping)
    return Row(response, ground_truth, data_source or "", extra)


def _listed(column: Any, name: str) -> list[Any]:
    """A list or an array. A text is none, though it could be taken apart."""
    if isinstance(column, str | bytes | Mapping) or not isinstance(column, Iterable):
        raise ConfigurationError(f"{name} must be a list with one for each response, not {type(column).__name__}")
    return list(column)


def _sample(row: Row) -> Sample:
    extra = row.extra or {}
    prompt = next((extra[name] for name in ("prompt", "question") if extra.get(name) is not None), "")
    return sample_of(prompt, row.response, row.ground_truth, row.data_source, row.extra)


def _monitor(config: MonitorConfig) -> Rubric:
    rubric = as_rubric(config.monitor_rubric)
    if config.monitor_truth_key is None and getattr(rubric, "higher_is", "worse") != "worse":
        raise ConfigurationError(
            "MONITOR_RUBRIC scores what is good high, so MONITOR_CORRECT_REWARD would go to good responses: give one"
            ' with higher_is = "worse", or the truth with MONITOR_TRUTH_KEY'
        )
    return rubric

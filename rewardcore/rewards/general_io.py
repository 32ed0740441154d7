"""`GeneralIORewardManager`: a model that writes questions (`"gen"`) and answers them (`"pred"`), judged by a model.

gen: the last `<question>` is judged, and solved `n_samples` times by the actor; reward = ½ judge + ½ (1 − mean solver
score). pred: reward = judge score. Everything there is to judge in a call is one batch of one judge, whatever rubric
each sample needs. A response without a question earned its 0, and is not judged; a failed judgement raises `NotJudged`,
but for some of several draws, whose mean is taken over the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from ..arguments import check_choice, check_whole
from ..failures import ConfigurationError, Failure, Unparsed, needs_extra
from ..judge import open_judge
from ..local.generation import BatchedGeneration
from ..local.generator import Generator
from ..rubrics import ANSWER, QUESTION, SOLUTION, Message, TemplateRubric
from ..rubrics.parsing import last_tag
from ..sample import Sample
from ..verdict import Verdict
from .batch import BatchRow, reward_tensor, rows_of, scores_in, show
from .configuration import read
from .judges import JudgeConfig, scores_of
from .samples import as_text, sample_of

AllScores = dict[str, list[float]]


@dataclass(frozen=True)
class GeneralIOConfig(JudgeConfig):
    """What `GeneralIORewardManager` reads; with `use_self_judge` the actor judges, and no endpoint is needed.

    `max_prompt_tokens` is the rollout's `prompt_length`: a longer prompt fails, where verl would cut off the rubric.
    """

    max_concurrent_requests: int | Literal["auto"] = 60
    use_self_judge: bool = False
    self_judge_batch_size: int | Literal["auto"] | None = 8
    max_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("self_judge_batch_size", self.self_judge_batch_size, "auto", None)


@dataclass(frozen=True)
class _EachByItsOwn:
    """One rubric for samples of several: a sample names its own in `data_source`. All of them score alike."""

    def messages(self, sample: Sample) -> list[Message]:
        return _RUBRICS[sample.data_source].messages(sample)

    def parse(self, text: str) -> float:
        return QUESTION.parse(text)


_RUBRICS: dict[str, TemplateRubric] = {rubric.name: rubric for rubric in (QUESTION, ANSWER, SOLUTION)}
_EVALUATION = _EachByItsOwn()


class GeneralIORewardManager:
    """Called with (data, problem_type, rollout_actor_wg, n_samples); any other keyword is of `GeneralIOConfig`.

    `rollout_actor_wg` is a verl worker group or agent loop manager, or any generator.
    """

    def __init__(self, tokenizer: Any, num_examine: int = 0, reward_fn_key: str = "data_source", **fields: Any) -> None:
        self.tokenizer = tokenizer
        self.num_examine = num_examine
        self.reward_fn_key = reward_fn_key
        self.config = read(GeneralIOConfig, fields)
        if not self.config.use_self_judge:
            self.config.endpoint()  # what is missing is told now, not after the first rollout

    def __call__(
        self, data: Any, problem_type: str, rollout_actor_wg: Any = None, n_samples: int = 1
    ) -> tuple[Any, AllScores, list[dict[str, Any]]]:
        """The reward tensor; every score, in batch order; the questions that were asked, with who asked them."""
        check_choice("problem_type", problem_type, "gen", "pred")
        if rollout_actor_wg is None and (problem_type == "gen" or self.config.use_self_judge):
            raise ConfigurationError(f'rollout_actor_wg is needed: in "{problem_type}" the actor solves or judges')
        check_whole("n_samples", n_samples)
        if (scored := scores_in(data)) is not None:
            return scored[0], {}, []
        rows = rows_of(data, self.tokenizer, self.reward_fn_key)
        questions: dict[int, str] = {}
        if problem_type == "gen":
            questions = {place: found for place, row in enumerate(rows) if (found := question_in(row.response))}
            all_scores = self._generated(rows, questions, rollout_actor_wg, n_samples)
            rewards = all_scores["combined_score"]
        else:
            all_scores = self._predicted(rows, rollout_actor_wg)
            rewards = all_scores["accuracy"]
        show(rows, all_scores, self.num_examine)
        valid = [
            {"question": question, "generation": rows[place].response, "uid": rows[place].columns.get("uid")}
            for place, question in questions.items()
        ]
        return reward_tensor(data, rewards), all_scores, valid

    def _generated(self, rows: Sequence[BatchRow], questions: dict[int, str], actor: Any, n_samples: int) -> AllScores:
        asked = [place for place in questions for _ in range(n_samples)]
        solutions = list(zip(asked, self._solved([questions[place] for place in asked], actor), strict=True))
        samples = [sample_of(rows[place].prompt, it, None, QUESTION.name) for place, it in questions.items()]
        samples += [Sample(questions[place], it, None, SOLUTION.name) for place, it in solutions if isinstance(it, str)]
        verdicts = iter(self._evaluated(samples, actor))
        judged = {place: next(verdicts) for place in questions}
        draws: dict[int, list[Verdict]] = {place: [] for place in questions}
        for place, it in solutions:
            draws[place].append(next(verdicts) if isinstance(it, str) else Verdict("failed", error=f"{it.kind}: {it}"))
        for place, own in draws.items():
            if all(draw.score is None for draw in own) and judged[place].score is not None:
                judged[place] = own[0]  # never solved: as little a reward as with no verdict on the question itself
        solver = {place: [draw.score for draw in own if draw.score is not None] for place, own in draws.items()}
        return generated_scores(scores_of(judged, len(rows)), solver, len(rows))

    def _predicted(self, rows: Sequence[BatchRow], actor: Any) -> AllScores:
        places = [place for place, row in enumerate(rows) if row.length]  # an empty response has no place for a reward
        verdicts = dict(zip(places, self._evaluated([_answer(rows[place]) for place in places], actor), strict=True))
        scores = scores_of(verdicts, len(rows))
        return {"accuracy": [scores.get(place, 0.0) for place in range(len(rows))]}

    def _evaluated(self, samples: list[Sample], actor: Any) -> list[Verdict]:
        """All of them at once, by the actor or by the endpoint's judge."""
        if not samples:
            return []
        if not self.config.use_self_judge:
            return self.config.judge(_EVALUATION).judge(samples)
        # Opened for this call alone: the actor is the caller's, and may be another in the next.
        batch_size = self.config.self_judge_batch_size
        with open_judge("self", self._generator(actor), rubric=_EVALUATION, batch_size=batch_size) as judge:
            return judge.judge(samples)

    def _solved(self, questions: list[str], actor: Any) -> list[str | Failure]:
        """One batch for the rollout, which makes its own; a question that no actor can take fails alone."""
        if not questions:
            return []
        generator = self._generator(actor, do_sample=True)
        return BatchedGeneration(generator, None).run([[{"role": "user", "content": _SOLVE + it}] for it in questions])

    def _generator(self, actor: Any, do_sample: bool = False) -> Generator:
        if not hasattr(actor, "generate_sequences"):
            if not hasattr(actor, "generate"):
                raise ConfigurationError(
                    "rollout_actor_wg must be a worker group or an agent loop manager of verl's, or have"
                    f" generate(conversations), as TorchGenerator has; {type(actor).__name__} has not"
                )
            generator: Generator = actor
            return generator
        with needs_extra("verl", "rollout_actor_wg"):
            from ..local.verl_generator import VerlActorGenerator
        return VerlActorGenerator(actor, self.tokenizer, self.config.max_prompt_tokens, do_sample)


_SOLVE = "Solve this problem. Show your steps, and end with your answer.\n\n"


def generated_scores(judged: Mapping[int, float], solver: Mapping[int, Sequence[float]], total: int) -> AllScores:
    """By place. A row without a question is worth nothing, and as easy as can be."""
    quality = [judged.get(place, 0.0) for place in range(total)]
    solved = [fmean(solver.get(place, [1.0])) for place in range(total)]
    difficulty = [1.0 - score for score in solved]
    return {
        "llm_judge_score": quality,
        "difficulty_score": difficulty,
        "combined_score": [0.5 * one + 0.5 * other for one, other in zip(quality, difficulty, strict=True)],
        "solver_avg_scores": solved,
    }


def question_in(response: str) -> str | None:
    """The inside of the last `<question>…</question>`, where there is one."""
    try:
        return last_tag(response, "question").strip() or None
    except Unparsed:
        return None


def _answer(row: BatchRow) -> Sample:
    """With a ground truth it is measured against that, and else as a solution."""
    question = next(
        (found for name in ("problem", "question") for found in (row.columns.get(name), row.extra.get(name)) if found),
        row.prompt,
    )
    truth = as_text(row.ground_truth)
    return sample_of(question, row.response, truth, (ANSWER if truth else SOLUTION).name)

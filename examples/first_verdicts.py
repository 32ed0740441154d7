"""Samples in, verdicts out, in input order: texts and conversations, and one sample that cannot be judged."""

from __future__ import annotations

import rewardcore as rc
from examples import a_judge_model

SAMPLES = [
    rc.Sample("What is 6 × 7?", "6 × 7 = 42.", ground_truth="42"),
    rc.Sample("What is 6 × 7?", "It is 41.", ground_truth="42"),
    rc.Sample(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 6 × 7?"}],
        [{"role": "assistant", "content": "42"}],
        ground_truth="42",
    ),
    rc.Sample("What is 6 × 7?", "It depends."),  # the rubric shows a ground truth, and here is none
]


def main() -> None:
    with a_judge_model() as endpoint, rc.open_judge("asyncio", endpoint, rubric=rc.rubrics.CORRECTNESS) as judge:
        print(judge.check(), end="\n\n")
        for sample, verdict in zip(SAMPLES, judge.judge(SAMPLES, progress=True), strict=True):
            outcome = f"{verdict.score:.2f}" if verdict.status == "ok" else f"no score: {verdict.error}"
            print(f"{sample.response!s:.40}  →  {verdict.status}, {outcome}")
        print(
            f"\n{judge.stats.requests} requests, {judge.stats.completion_tokens} tokens, failed: {judge.stats.failed}"
        )


if __name__ == "__main__":
    main()

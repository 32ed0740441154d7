"""A local model as the judge: any object with `generate(conversations)`; TorchGenerator and VllmGenerator are ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import rewardcore as rc


class Pretend:
    """In its place: rc.TorchGenerator("path/to/model", device="cuda")."""

    def generate(self, conversations: Sequence[Sequence[Mapping[str, object]]]) -> list[str]:
        return [f"It has {len(talk)} messages. <answer>false</answer>" for talk in conversations]


def main() -> None:
    samples = [rc.Sample("Sort the list.", f"def sort(a): return sorted(a)  # {number}") for number in range(20)]
    with rc.open_judge("self", Pretend(), rubric=rc.rubrics.MONITOR, batch_size=8) as judge:
        verdicts = judge.judge(samples)
    print(f"{sum(verdict.score or 0.0 for verdict in verdicts):.0f} of {len(verdicts)} game the task", end="; ")
    print(f"1.0 is {rc.rubrics.MONITOR.higher_is}; {judge.stats.requests} calls of the model")


if __name__ == "__main__":
    main()

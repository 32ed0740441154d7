"""Rubrics of your own: a TOML file for most, a Python object where the score needs more than a number in a tag."""

from __future__ import annotations

from pathlib import Path

import rewardcore as rc
from examples import a_judge_model


class ShortAndRight:
    """The judge's score, less a tenth for each ten words: `parse` sees the sample, too."""

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        return rc.rubrics.CORRECTNESS.messages(sample)

    def parse(self, text: str, sample: rc.Sample) -> float:
        words = len(str(sample.response).split())
        return rc.rubrics.CORRECTNESS.parse(text) - 0.01 * words


def main() -> None:
    sample = rc.Sample(
        "Where is my parcel?", "It left us on Monday; sorry for the delay!", "On its way", extra={"customer": "Ms Li"}
    )
    polite = rc.rubrics.load(Path(__file__).with_name("polite.toml"))
    with a_judge_model() as endpoint:
        for name, rubric in (("polite", polite), ("short and right", ShortAndRight())):
            with rc.open_judge("sync", endpoint, rubric=rubric) as judge:
                (verdict,) = judge.judge([sample])
            print(f"{name}: {verdict.status}, {verdict.score}")
    try:
        rc.rubrics.TemplateRubric("misspelt", "Is {respnse} good? <score>X</score>")
    except rc.ConfigurationError as error:
        print(f"and a mistake: {error}")


if __name__ == "__main__":
    main()

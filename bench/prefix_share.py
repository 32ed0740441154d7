"""How much of what stands before a response is the same for all responses to one prompt: exact, and without a server.

vLLM, SGLang and hosted endpoints serve a prefix that they have seen from their cache. Counted in the pieces into which
GPT-2's tokeniser cuts a text before it merges bytes, so that no model's vocabulary is needed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile

from bench.records import Record, record
from bench.scenarios import Scenario, groups_of
from rewardcore import Sample, rubrics
from rewardcore.rubrics import TemplateRubric

#: Of the tokens before the response, the least that a group must share.
SHARED = 0.97
TITLE = "prefix share: 32 prompts × 8 responses, of the tokens before the response"
_PIECE = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def measure(scenario: Scenario) -> float:
    return share(rubrics.BY_NAME[scenario.id.removeprefix("prefix-")], groups_of(scenario))


def share(rubric: TemplateRubric, groups: list[list[Sample]]) -> float:
    """Over all groups: the longest common prefix, over everything before the response."""
    shared = ideal = 0
    for group in groups:
        texts = ["\n".join(str(message["content"]) for message in rubric.messages(sample)) for sample in group]
        begins = texts[0].index(str(group[0].response))
        before = sum(piece.end() <= begins for piece in _PIECE.finditer(texts[0]))
        common = takewhile(lambda pieces: len({*pieces}) == 1, zip(*map(_PIECE.findall, texts), strict=False))
        shared += min(before, sum(1 for _ in common))
        ideal += before
    return shared / ideal


def token_first(rubric: TemplateRubric) -> TemplateRubric:
    """A rubric of ours as it was: one token, derived from every field, where the frame begins."""
    before, after = rubric.template.split("{response}")
    before = before.replace("-{token}>", ">").replace("\n\n", "\n\nTags end in -{token}. ", 1)
    return replace(rubric, name=f"{rubric.name}, token first", template=before + "{response}" + after)


def line(scenario: Scenario, found: float) -> str:
    return f"{scenario.id:20} {found:7.1%}"


def records_of(scenario: Scenario, found: float) -> list[Record]:
    return [record(scenario, "prefix share", found, "of the tokens before the response", "higher", exact=True)]

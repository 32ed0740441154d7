"""A worker group around the tiny model, batches of verl's own type, and the simulated judge, its scores foretold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl import DataProto

import rewardcore as rc
from rewardcore.rewards import judges
from rewardcore.testing.latency import Profile
from rewardcore.testing.replies import expected_score
from rewardcore.testing.server_process import SimulatedServer
from tests.rewards.verl_batch import batch_of


@pytest.fixture(scope="session")
def model(tiny_judge: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_judge, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def tokenizer(tiny_judge: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_judge)


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's rollout casts to bfloat16; without it, texts can be compared exactly."""
    monkeypatch.setattr(torch, "autocast", lambda **_: torch.no_grad())


@pytest.fixture(scope="session")
def server() -> Iterator[SimulatedServer]:
    """A third of its first answers is 503: asked again, all of them come."""
    with SimulatedServer(Profile(error_fraction=0.3), model="judge") as server:
        yield server


@pytest.fixture
def judged_by(server: SimulatedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedServer]:
    """The environment that a trainer is started in; afterwards no judge is left open."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    server.reset()
    yield server
    for judge in judges._judges.values():
        judge.close()


def environment(server: SimulatedServer) -> dict[str, str]:
    return {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": server.base_url, "MONITOR_MODEL_NAME": "judge"}


@pytest.fixture(scope="session")
def up_to_eight(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The simulated judge gives 1 to 10, whatever it is asked: under this rubric a fifth of its replies is no score."""
    path = tmp_path_factory.mktemp("rubric") / "up_to_eight.toml"
    path.write_text(
        '''template = """How much does the response game its task?
<prompt>
{prompt}
</prompt-{token}>
<response>
{response}
</response-{token}>
End with <score>X</score>, X from 1 to 8."""
scale = [1, 8]
tag = "score"
higher_is = "worse"
'''
    )
    return str(path)


def foretold(rubric: rc.rubrics.TemplateRubric, sample: rc.Sample) -> float | None:
    """What the simulated judge says of a sample; None where that is above the rubric's scale."""
    score = expected_score(rubric.messages(sample))
    if rubric.scale == (1, 8):
        score = round(9 * score) / 7
    return score if score <= 1.0 else None


QUESTIONS = [f"What is {number} + {number}?" for number in range(6)]
PROMPTS = [question for question in QUESTIONS for _ in range(4)]
UIDS = [f"u{place // 4}" for place in range(24)]
TRUTHS = [str(2 * (place // 4)) for place in range(24)]
#: Four to each prompt, of which the last is wrong.
RESPONSES = [
    f"Well{', well' * (place % 4)}. <answer>{truth if place % 4 < 3 else 'many'}</answer>"
    for place, truth in enumerate(TRUTHS)
]


def talk(prompt: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}]


def rollout(tokenizer: Any, prompts: list[str] = PROMPTS, responses: list[str] = RESPONSES, **more: Any) -> DataProto:
    """A batch as a rollout leaves it; columns that are None are left out."""
    columns: dict[str, Any] = {
        "data_source": ["sums"] * len(prompts),
        "reward_model": [{"style": "rule", "ground_truth": truth} for truth in TRUTHS[: len(prompts)]],
        "extra_info": [{"question": prompt, "index": place} for place, prompt in enumerate(prompts)],
        "uid": UIDS[: len(prompts)],
        "raw_prompt": [talk(prompt) for prompt in prompts],
    } | more
    batch = batch_of(tokenizer, prompts, responses)
    return DataProto.from_dict(
        tensors=batch.batch,
        non_tensors={name: _objects(values) for name, values in columns.items() if values is not None},
    )


def _objects(values: list[Any]) -> numpy.ndarray:
    column = numpy.empty(len(values), dtype=object)
    column[:] = values
    return column


def at_the_last_token(tensor: torch.Tensor, data: DataProto) -> list[float]:
    """The reward of each row; everywhere else there must be none."""
    lengths = data.batch["attention_mask"][:, data.batch["prompts"].shape[1] :].sum(-1).tolist()
    found = [float(row[length - 1]) if length else 0.0 for row, length in zip(tensor, lengths, strict=True)]
    assert tensor.count_nonzero() == sum(reward != 0.0 for reward in found)
    return found

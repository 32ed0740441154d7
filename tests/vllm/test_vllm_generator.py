import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import rewardcore as rc
from rewardcore.failures import ConfigurationError
from rewardcore.local import vllm_generator
from rewardcore.local.generator import Conversation
from rewardcore.local.torch_generator import TorchGenerator
from rewardcore.local.vllm_generator import VllmGenerator

OPTIONS = {"dtype": "float32", "max_model_len": 512, "enforce_eager": True}


@pytest.fixture(scope="module")
def generator(tiny_judge: Path) -> Iterator[VllmGenerator]:
    """One engine for every test here; the last one closes it."""
    generator = VllmGenerator(tiny_judge, max_new_tokens=48, **OPTIONS)
    yield generator
    generator.close()


def samples(count: int) -> list[rc.Sample]:
    return [rc.Sample(f"What is {number} times two?", "It is " + "more " * number) for number in range(count)]


def conversations(count: int) -> list[Conversation]:
    return [rc.rubrics.QUALITY.messages(sample) for sample in samples(count)]


def test_vllm_and_transformers_give_the_same_greedy_texts(tiny_judge: Path, generator: VllmGenerator) -> None:
    talks = conversations(8)
    assert generator.generate(talks) == TorchGenerator(tiny_judge, device="cpu", max_new_tokens=48).generate(talks)
    assert generator.generate([]) == []


@pytest.mark.parametrize(("batch_size", "calls"), [(8, 13), (None, 1), ("auto", 1)])
def test_a_hundred_samples_are_judged_in_batches_or_in_one_continuous_call(
    generator: VllmGenerator, batch_size: int | None, calls: int
) -> None:
    with rc.open_judge("self", generator, batch_size=batch_size) as judge:
        verdicts = judge.judge(samples(100))
        assert judge.stats.requests == calls
    assert [verdict.status for verdict in verdicts] == ["ok"] * 100


def test_an_over_long_prompt_fails_with_its_length_and_never_reaches_the_engine(generator: VllmGenerator) -> None:
    with rc.open_judge("self", generator) as judge:
        short, long = judge.judge([rc.Sample("a prompt", "short"), rc.Sample("a prompt", "long " * 1000)])
        assert judge.stats.requests == 1
    assert short.status == "ok"
    assert "tokens and the model takes 464 beside the reply" in str(long.error)


def test_where_the_whole_context_does_not_fit_the_memory_the_engine_starts_with_what_does(tiny_judge: Path) -> None:
    """Of the model's 1024 tokens, 512: five blocks of 128, of which vLLM keeps one."""
    small = VllmGenerator(tiny_judge, max_new_tokens=48, dtype="float32", enforce_eager=True, num_gpu_blocks_override=5)
    try:
        assert small.max_prompt_tokens == 512 - 48
        assert len(small.generate(conversations(2))) == 2
    finally:
        small.close()


def test_where_not_even_the_reply_fits_the_engine_is_stopped_and_that_is_said(
    tiny_judge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MagicMock()
    engine.llm_engine.vllm_config.model_config.max_model_len = 128
    monkeypatch.setattr(vllm_generator, "LLM", lambda **_: engine)
    with pytest.raises(ConfigurationError, match=r"room for 128 tokens at once, and max_new_tokens=200 .* more memory"):
        VllmGenerator(tiny_judge, max_new_tokens=200)
    engine.llm_engine.engine_core.shutdown.assert_called_once()


def test_draws_are_seeded_however_they_are_scheduled(
    tiny_judge: Path, generator: VllmGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two generators over one engine, whose own state is another each time: its prefix cache, its requests so far."""
    monkeypatch.setattr(vllm_generator, "LLM", lambda **_: generator._engine)
    draws = []
    for _ in range(2):
        drawing = VllmGenerator(tiny_judge, max_new_tokens=48, temperature=2.0, seed=5, **OPTIONS)
        draws.append([drawing.generate(conversations(16)) for _ in range(2)])
    assert draws[0] == draws[1]
    assert draws[0][0] != draws[0][1], "repeats are draws of their own"


def test_a_missing_model_and_a_reply_longer_than_the_context_are_refused_at_once(tiny_judge: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing is downloaded here"):
        VllmGenerator("some-org/some-model")
    with pytest.raises(ConfigurationError, match="max_new_tokens=512 does not fit the model's context of 512"):
        VllmGenerator(tiny_judge, max_new_tokens=512, max_model_len=512)


def test_closing_leaves_no_engine_behind(generator: VllmGenerator) -> None:
    """Last, since it closes the engine of all tests here."""
    engines = {child.pid for child in multiprocessing.active_children()}
    assert engines
    generator.close()
    generator.close()
    assert engines.isdisjoint({child.pid for child in multiprocessing.active_children()})
    with pytest.raises(ConfigurationError, match="closed"):
        generator.generate(conversations(1))

"""A judge whose model somebody trains: no second copy, and everything as it was when the verdicts are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import rewardcore as rc
from rewardcore.failures import ConfigurationError
from rewardcore.local.torch_generator import TorchGenerator

SAMPLES = [rc.Sample("Why is the sky blue?", "short waves scatter more " * (number + 1)) for number in range(6)]


@pytest.fixture(scope="module")
def tokenizer(tiny_judge: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_judge)


@pytest.fixture
def policy(tiny_judge: Path) -> LlamaForCausalLM:
    """As a trainer has it: training, checkpointing without a cache, one part frozen, settings of its own."""
    model = LlamaForCausalLM.from_pretrained(tiny_judge, attention_dropout=0.5).train()
    model.model.norm.eval()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    model.config.use_cache = False
    model.generation_config.repetition_penalty = 9.0
    return model


def judge_with(model: Any, tokenizer: Any, **options: Any) -> list[str | None]:
    generator = TorchGenerator(model=model, tokenizer=tokenizer, max_new_tokens=40, **options)
    with rc.open_judge("self", generator, batch_size=4) as judge:
        return [verdict.text for verdict in judge.judge(SAMPLES)]


def state(model: Any) -> tuple[Any, ...]:
    modules = [(name, each.training, len(each._forward_hooks)) for name, each in model.named_modules()]
    checkpointing = [getattr(each, "gradient_checkpointing", None) for each in model.modules()]
    weights = [(name, id(each), each.requires_grad, each._version) for name, each in model.named_parameters()]
    settings = model.config.to_dict(), id(model.generation_config), model.generation_config.to_dict()
    return modules, checkpointing, weights, settings


def train_one_step(model: Any) -> None:
    tokens = torch.arange(20).reshape(2, 10)
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()


def test_the_policy_judges_as_a_model_of_its_own_would_and_is_given_back_as_it_was(
    policy: Any, tokenizer: Any, tiny_judge: Path
) -> None:
    own = TorchGenerator(tiny_judge, device="cpu", dtype="float32", max_new_tokens=40)
    with rc.open_judge("self", own, batch_size=4) as judge:
        expected = [verdict.text for verdict in judge.judge(SAMPLES)]
    before = state(policy)
    assert judge_with(policy, tokenizer) == expected
    assert state(policy) == before


def test_it_is_given_back_when_generating_fails_too(policy: Any, tokenizer: Any) -> None:
    handle = policy.lm_head.register_forward_pre_hook(lambda *_: 1 / 0)
    before = state(policy)
    assert judge_with(policy, tokenizer) == [""] * len(SAMPLES)
    assert state(policy) == before
    handle.remove()
    train_one_step(policy)


def test_the_judge_is_the_policy_of_that_moment(policy: Any, tokenizer: Any) -> None:
    first = judge_with(policy, tokenizer)
    assert judge_with(policy, tokenizer) == first
    train_one_step(policy)
    assert judge_with(policy, tokenizer) != first


def test_training_goes_on_after_judging_also_where_layers_keep_what_they_computed(tokenizer: Any) -> None:
    """Dynamic rotary embeddings grow with the longest text: made while judging, they are used in training."""
    scaling = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0, "original_max_position_embeddings": 32}
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32, rope_parameters=scaling, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config).train()
    generator = TorchGenerator(model=model, tokenizer=tokenizer, max_new_tokens=8)
    generator.max_prompt_tokens = None
    generator.generate([[{"role": "user", "content": "short waves scatter more " * 9}]])
    assert not any(buffer.is_inference() for buffer in model.buffers())
    tokens = torch.arange(80).reshape(1, 80)
    model(input_ids=tokens, labels=tokens).loss.backward()


def test_closing_leaves_the_model_to_whom_it_belongs(policy: Any, tokenizer: Any) -> None:
    generator = TorchGenerator(model=policy, tokenizer=tokenizer, max_new_tokens=4)
    assert generator.model is policy
    generator.close()
    assert next(policy.parameters()).numel()
    with pytest.raises(ConfigurationError, match="closed"):
        generator.generate([[{"role": "user", "content": "x"}]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"takes a model's directory, or model= and tokenizer="),
        ({"model": "policy"}, r"model= needs its tokenizer=, as in trainer\.processing_class"),
        ({"model": torch.nn.Linear(1, 1)}, r"Linear has no generate; unwrap it first, as in trainer\.accelerator"),
        ({"model": "policy", "tokenizer": "its", "device": "cuda"}, "stays as and where it is; leave out device"),
        ({"model": "policy", "tokenizer": "its", "model_path": ".", "dtype": "float16"}, "leave out model_path, dtype"),
    ],
)
def test_what_does_not_go_together_is_said(policy: Any, tokenizer: Any, options: dict[str, Any], message: str) -> None:
    places = {"policy": policy, "its": tokenizer}
    with pytest.raises(ConfigurationError, match=message):
        TorchGenerator(**{name: places.get(value, value) for name, value in options.items()})

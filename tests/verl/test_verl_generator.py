from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

import rewardcore as rc
from rewardcore.failures import ConfigurationError
from rewardcore.local.generator import Conversation
from rewardcore.local.torch_generator import TorchGenerator
from rewardcore.local.verl_generator import VerlActorGenerator
from tests.verl.worker_group import WorkerGroup


def samples(count: int) -> list[rc.Sample]:
    return [rc.Sample(f"What is {number} times two?", "It is " + "more " * number) for number in range(count)]


def conversations(count: int) -> list[Conversation]:
    return [rc.rubrics.QUALITY.messages(sample) for sample in samples(count)]


@pytest.mark.parametrize(("count", "world_size", "sent"), [(8, 4, 8), (7, 4, 8), (1, 4, 4), (5, 1, 5), (3, 8, 8)])
def test_batches_are_padded_to_the_world_size_and_unpadded_again(
    tiny_judge: Path, model: Any, tokenizer: Any, count: int, world_size: int, sent: int
) -> None:
    workers = WorkerGroup(model, world_size)
    texts = VerlActorGenerator(workers, tokenizer).generate(conversations(count))
    assert [len(batch) for batch in workers.batches] == [sent]
    assert texts == TorchGenerator(tiny_judge, device="cpu", max_new_tokens=48).generate(conversations(count))


def test_workers_find_tokens_and_agent_loops_find_messages(model: Any, tokenizer: Any) -> None:
    workers = WorkerGroup(model, 1)
    VerlActorGenerator(workers, tokenizer).generate(conversations(2))
    (batch,) = workers.batches
    assert set(batch.batch.keys()) == {"input_ids", "attention_mask", "position_ids"}
    assert list(batch.non_tensor_batch["raw_prompt"]) == conversations(2)
    assert batch.meta_info["do_sample"] is False
    for row in range(2):
        padding = int((batch.batch["attention_mask"][row] == 0).sum())
        assert batch.batch["position_ids"][row, padding:].tolist() == list(
            range(len(batch.batch[row]["input_ids"]) - padding)
        )


@pytest.mark.parametrize("do_sample", [False, True])
def test_a_judge_is_greedy_and_a_solver_may_sample(model: Any, tokenizer: Any, do_sample: bool) -> None:
    workers = WorkerGroup(model, 1)
    VerlActorGenerator(workers, tokenizer, do_sample=do_sample).generate(conversations(2))
    (batch,) = workers.batches
    assert batch.meta_info["do_sample"] is do_sample
    assert batch.non_tensor_batch["__do_sample__"].tolist() == [do_sample] * 2


def test_the_policy_judges_its_own_samples(model: Any, tokenizer: Any) -> None:
    workers = WorkerGroup(model, 4)
    generator = VerlActorGenerator(workers, tokenizer, max_prompt_tokens=512)
    with rc.open_judge("self", generator, batch_size=6) as judge:
        verdicts = judge.judge([*samples(9), rc.Sample("a prompt", "long " * 1000)])
        assert judge.stats.requests == 2
    assert [verdict.status for verdict in verdicts] == ["ok"] * 9 + ["failed"]
    assert "tokens and the model takes 512" in str(verdicts[-1].error)
    assert [len(batch) for batch in workers.batches] == [8, 4]


def test_an_agent_loop_manager_is_padded_to_its_number_of_workers(model: Any, tokenizer: Any) -> None:
    workers = WorkerGroup(model, 3)

    class AgentLoopManager:
        agent_loop_workers = (object(),) * 3
        generate_sequences = workers.generate_sequences

    assert len(VerlActorGenerator(AgentLoopManager(), tokenizer).generate(conversations(4))) == 4
    assert [len(batch) for batch in workers.batches] == [6]


def test_a_worker_group_that_hides_its_size_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigurationError, match="object has neither"):
        VerlActorGenerator(object(), tokenizer)


def test_a_tokenizer_without_a_chat_template_is_refused(tiny_judge: Path, model: Any) -> None:
    bare = AutoTokenizer.from_pretrained(tiny_judge)
    bare.chat_template = None
    with pytest.raises(ConfigurationError, match="the tokenizer given to VerlActorGenerator has no chat template"):
        VerlActorGenerator(WorkerGroup(model, 1), bare)

"""TRL's own trainers, two steps on the CPU: what was not judged moves nothing, the run ends, and the log tells."""

import asyncio
import importlib
import math
import pickle
from types import SimpleNamespace

import pytest
from accelerate import PartialState
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from bench import trl_steps
from rewardcore.trainers import trl
from tests.trl.conftest import COMPLETIONS, PROMPTS, TRUTHS, UP_TO_EIGHT, called, is_even

ROWS = [
    {"prompt": [{"role": "user", "content": f"What is {number} + {number}?"}], "ground_truth": str(2 * number)}
    for number in range(8)
]


class Watched:
    """Keeps, for each step, what TRL would show of it: rewards, advantages and our columns."""

    def log(self, logs, start_time=None):
        super().log(logs, start_time)
        rewards, extra = self._logs["rewards"]["up_to_eight"], self._logs["extra"]
        verdicts, texts = extra["up_to_eight/verdict"], extra["up_to_eight/text"]
        self.steps = [
            *getattr(self, "steps", []),
            list(zip(rewards, self._logs["advantages"], verdicts, texts, strict=True)),
        ]


class WatchedGRPO(Watched, GRPOTrainer):
    pass


class WatchedRLOO(Watched, RLOOTrainer):
    pass


TRAINERS = pytest.mark.parametrize(("trainer_class", "config"), [(WatchedGRPO, GRPOConfig), (WatchedRLOO, RLOOConfig)])


@pytest.fixture
def train(tiny_judge, tmp_path):
    def with_functions(trainer_class, config, *functions, **arguments):
        trainer = trainer_class(
            model=str(tiny_judge),
            reward_funcs=list(functions),
            train_dataset=Dataset.from_list(ROWS),
            args=config(
                output_dir=str(tmp_path),
                max_steps=2,
                per_device_train_batch_size=16,
                num_generations=4,
                max_completion_length=48,
                use_cpu=True,
                bf16=False,
                logging_steps=1,
                report_to="none",
                save_strategy="no",
                **arguments,
            ),
        )
        trainer.train()
        assert trainer.state.global_step == 2
        return trainer

    return with_functions


@pytest.mark.parametrize("asynchronous", [False, True])
@TRAINERS
def test_a_training_run_masks_what_was_not_judged(make, train, trainer_class, config, asynchronous):
    trainer = train(trainer_class, config, make(UP_TO_EIGHT, asynchronous=asynchronous))
    for rows, logged in zip(trainer.steps[:2], trainer.state.log_history[:2], strict=True):
        assert len(rows) == 16
        for reward, advantage, verdict, text in rows:
            assert (
                verdict == "ok" if not math.isnan(reward) else (advantage == 0.0 and verdict.startswith("Unparsed: "))
            )
            assert text.endswith("</score>")
        for first in range(0, 16, 4):  # the others of its group have a baseline without it
            assert sum(advantage for _, advantage, _, _ in rows[first : first + 4]) == pytest.approx(0.0, abs=1e-4)
        lost = sum(math.isnan(reward) for reward, *_ in rows) / 16
        assert 0.0 < lost < 1.0
        assert any(advantage for _, advantage, _, _ in rows)
        assert logged["up_to_eight/judged"] == pytest.approx(1.0 - lost)
        assert logged["up_to_eight/not_judged/unparsed"] == pytest.approx(lost)
        assert logged["up_to_eight/score"] == pytest.approx(logged["rewards/up_to_eight/mean"], abs=1e-6)
        assert logged["up_to_eight/completion_tokens"] > 0
        assert logged["up_to_eight/latency_p90"] > 0
        assert math.isfinite(logged["loss"])


@TRAINERS
def test_a_rule_in_trls_own_list_unmasks_what_was_not_judged_and_one_beside_the_judge_does_not(
    make, train, trainer_class, config, caplog
):
    def advantages_of_the_lost(*functions):
        caplog.clear()
        rows = train(trainer_class, config, *functions).steps[0]
        return [advantage for reward, advantage, *_ in rows if math.isnan(reward)]

    warning = "up_to_eight: what was not judged counts as 0.0 beside is_even in reward_funcs"
    assert any(advantages_of_the_lost(make(UP_TO_EIGHT), is_even))
    assert caplog.text.count(warning) == 1
    assert not any(advantages_of_the_lost(make(UP_TO_EIGHT, beside=[is_even])))
    assert warning not in caplog.text


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_asynchronous_trainers_worker_masks_it_too(make, asynchronous, monkeypatch):
    """Its scoring alone: the worker around it needs a vLLM server. It hands over no functions to log with."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    worker = importlib.import_module("trl.experimental.async_grpo.async_rollout_worker")
    PartialState(cpu=True)  # the worker's logger wants one
    function = pickle.loads(pickle.dumps(make(UP_TO_EIGHT, asynchronous=asynchronous)))
    loop = SimpleNamespace(reward_funcs=[function], reward_func_names=["judge"], _env_reward_types=[])
    loop._provides_rollout_reward = False
    group = worker.RolloutGroup(
        prompts=PROMPTS,
        reward_kwargs={"ground_truth": TRUTHS},
        completions=COMPLETIONS,
        completions_ids=[[1]] * 12,
        completions_sequences=[[worker.TrainingSequence([1, 1], [0, 1], [0.0, 0.0], None)]] * 12,
        tool_call_counts=[0] * 12,
        tool_failure_counts=[0] * 12,
        model_version=0,
        group_id=0,
        env_rewards=[],
        rollout_rewards=[],
    )
    scored = asyncio.run(worker._AsyncRolloutLoop._score_group(loop, group))
    rewards = called(function, ground_truth=TRUTHS)
    assert [sample.metrics["reward"] for sample in scored] == [
        pytest.approx(reward if reward is not None else math.nan, nan_ok=True) for reward in rewards
    ]
    assert {sample.advantage for sample, reward in zip(scored, rewards, strict=True) if reward is None} == {0.0}


@pytest.mark.parametrize("asynchronous", [False, True])
@TRAINERS
def test_judging_begins_before_the_log_probabilities_and_rewards_are_the_same(
    make, train, trainer_class, config, asynchronous, monkeypatch
):
    """With a reference policy (beta) both trainers compute log-probabilities between generation and rewards."""
    function = make(UP_TO_EIGHT, asynchronous=asynchronous, cache=None)
    begun = []
    compute = trainer_class._get_per_token_logps_and_entropies

    def watched(self, *given, **named):
        begun.append(function in trl._begun)
        return compute(self, *given, **named)

    monkeypatch.setattr(trainer_class, "_get_per_token_logps_and_entropies", watched)

    def rewards_of(kind):
        begun.clear()
        trainer = train(kind, config, function, beta=0.1, seed=7)
        assert all("up_to_eight/waited" in logged for logged in trainer.state.log_history[:2])
        return [[reward for reward, *_ in step] for step in trainer.steps[:2]]

    as_trl_asks = rewards_of(trainer_class)
    assert not any(begun)
    sent = function.judge_here().stats.requests - function.judge_here().stats.retried
    ahead = rewards_of(trl.judging_ahead(trainer_class))
    assert begun[0]
    assert sum(begun) >= 2  # once a step at least; the loss is computed after the rewards were collected
    assert ahead == [pytest.approx(step, nan_ok=True) for step in as_trl_asks]
    assert function.judge_here().stats.requests - function.judge_here().stats.retried == 2 * sent


def test_the_benchmark_of_steps_says_what_was_gained():
    waits = trl_steps.measure(16, rounds=1, latency=0.05)
    assert waits.steps == 3
    assert waits.asked >= 0.04  # a judgement takes as long, and nobody was told before
    assert waits.log_probabilities > 0.0
    assert "s gained a step, of" in trl_steps.line_of(waits)

"""verl's reward loop: our function and our manager in its own workers, under a local Ray, and what a failure costs."""

import asyncio
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
import ray
import verl
from hydra import compose, initialize_config_module
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.experimental.reward_loop import RewardLoopManager
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.reward import load_reward_manager

import rewardcore as rc
from rewardcore.rewards import NotJudged
from rewardcore.testing.server_process import SimulatedServer
from rewardcore.trainers.verl import compute_score
from tests.verl.conftest import (
    PROMPTS,
    RESPONSES,
    TRUTHS,
    UIDS,
    at_the_last_token,
    environment,
    foretold,
    rollout,
    talk,
)

FUNCTION = ["reward.custom_reward_function.path=pkg://rewardcore.trainers.verl"]
MANAGER = [
    "reward.reward_manager.source=importlib",
    "reward.reward_manager.name=JudgeRewardManager",
    "reward.reward_manager.module.path=pkg://rewardcore.trainers.verl",
    "+reward.reward_kwargs.model_name=judge",
]
IS_RIGHT = [place % 4 < 3 for place in range(24)]


def configured(*overrides: str) -> Any:
    """verl's own configuration, as its command line composes it."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", list(overrides))


def monitor_of(rubric: str) -> list[str]:
    kwargs = "+reward.custom_reward_function.reward_kwargs"
    return [*FUNCTION, f"{kwargs}.train_with_monitor=true", f"{kwargs}.monitor_rubric={rubric}"]


def scores_of_the_judge(prompts: list[Any], path: str) -> list[float | None]:
    rubric = rc.rubrics.load(path)
    return [foretold(rubric, rc.Sample(*each)) for each in zip(prompts, RESPONSES, strict=True)]


def wanted_of(kind: str, path: str) -> list[float | None]:
    """The reward of each response: with the function alone, with the manager alone, with both."""
    judged = scores_of_the_judge(PROMPTS if kind == "function" else [talk(prompt) for prompt in PROMPTS], path)
    if kind == "manager":
        return [None if score is None else 1.0 - score for score in judged]
    of_function = [
        0.0 if not right else None if score is None else 1.0 - score
        for right, score in zip(IS_RIGHT, judged, strict=True)
    ]
    if kind == "function":
        return of_function
    return [
        None if task is None else task + (1.0 - (score or 0.0)) * (task > 0)
        for task, score in zip(of_function, judged, strict=True)
    ]


def overrides_of(kind: str, path: str) -> list[str]:
    manager = [*MANAGER, f"+reward.reward_kwargs.rubric={path}"]
    return {"function": monitor_of(path), "manager": manager, "both": monitor_of(path) + manager}[kind]


@pytest.fixture(scope="module", params=["function", "both"])
def loop(
    request: pytest.FixtureRequest, server: SimulatedServer, up_to_eight: str, tiny_judge: Path
) -> Iterator[SimpleNamespace]:
    """verl's manager with two worker processes, that find the judge in their environment."""
    overrides = overrides_of(request.param, up_to_eight)
    config = configured(*overrides, "reward.num_workers=2", f"actor_rollout_ref.model.path={tiny_judge}")
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": environment(server)})
    try:
        wanted = wanted_of(request.param, up_to_eight)
        assert 4 < wanted.count(None) < 16
        yield SimpleNamespace(manager=RewardLoopManager(config), wanted=wanted, config=config, kind=request.param)
    finally:
        ray.shutdown()


def test_a_batch_is_scored_in_verls_own_workers(loop: SimpleNamespace, tokenizer: Any) -> None:
    places = [place for place, reward in enumerate(loop.wanted) if reward is not None]
    data = rollout(tokenizer)[places]
    found = loop.manager.compute_rm_score(data)
    rewards = [loop.wanted[place] for place in places]
    assert at_the_last_token(found.batch["rm_scores"], data) == pytest.approx(rewards)
    keys = found.meta_info["reward_extra_keys"]
    assert keys == ["score", "task_score", "monitor_reward", "monitored"] + (
        ["function_score", "judge_reward", "judged"] if loop.kind == "both" else []
    )
    info = {key: found.non_tensor_batch[key].tolist() for key in keys}
    assert info["score"] == pytest.approx(rewards)
    assert info["task_score"] == [float(IS_RIGHT[place]) for place in places]
    assert all(type(value) is float and math.isfinite(value) for values in info.values() for value in values)
    with pytest.raises(NotJudged, match="1 of 1 not judged"):
        loop.manager.compute_rm_score(rollout(tokenizer))
    # In a validation, verl knows that there should have been four to each prompt.
    uids = [UIDS[place] for place in places]
    figures = process_validation_metrics(
        ["sums"] * len(places),
        uids,
        {"reward": rewards, **info},
        expected_acc_counts={("sums", uid): 4 for uid in UIDS},
    )
    assert set(figures["sums"]) == {"reward", *keys}  # an `acc` would be there with a 0 for each that was not judged


async def test_a_failed_judgement_costs_its_own_trajectory_and_no_other(
    loop: SimpleNamespace, tokenizer: Any, agent_loop: Callable[..., Any]
) -> None:
    """Six prompts, four responses each, through verl's own agent loop: what was not judged is not in its queue."""
    worker, queue = agent_loop(loop.config, loop.manager.reward_loop_worker_handles)
    responses = {f"u{first // 4}": RESPONSES[first : first + 4] for first in range(0, 24, 4)}
    worker.rolled_out = lambda uid, session: tokenizer.encode(responses[uid][session])
    await asyncio.gather(
        *(
            worker._run_prompt(
                {
                    "uid": UIDS[place],
                    "raw_prompt": talk(PROMPTS[place]),
                    "data_source": "sums",
                    "reward_model": {"ground_truth": TRUTHS[place]},
                    "extra_info": {"question": PROMPTS[place]},
                    "global_steps": 1,
                    "__rollout_n__": 4,
                },
                {},
                {"validate": False},
            )
            for place in range(0, 24, 4)
        )
    )
    kept = {f"{UIDS[place]}_{place % 4}_0": reward for place, reward in enumerate(loop.wanted) if reward is not None}
    assert {key: float(fields["rm_scores"][-1]) for key, fields in queue.rows.items()} == pytest.approx(kept)
    assert queue.statuses == {
        uid: "failure" if None in loop.wanted[4 * number : 4 * number + 4] else "finished"
        for number, uid in enumerate(responses)
    }


@pytest.fixture
def agent_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """verl's own agent loop worker, which scores and files what was rolled out, but for the model that rolls out.

    Its queue is a package of its own, and played by two dictionaries here.
    """
    queue = ModuleType("transfer_queue")
    queue.statuses, queue.rows = {}, {}

    async def async_kv_put(key: str, partition_id: str, tag: dict[str, str]) -> None:
        queue.statuses[key] = tag["status"]

    async def async_kv_batch_put(keys: list[str], fields: Any, tags: list[Any], partition_id: str) -> None:
        queue.rows |= dict(zip(keys, fields, strict=True))

    queue.async_kv_put, queue.async_kv_batch_put = async_kv_put, async_kv_batch_put
    monkeypatch.setitem(sys.modules, "transfer_queue", queue)
    path = Path(verl.__file__).parent / "trainer" / "ppo" / "v1" / "agent_loop_tq.py"
    spec = importlib.util.spec_from_file_location("agent_loop_tq", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Worker(module.AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[name-defined,misc]
        def __init__(self, config: Any, workers: list[Any]) -> None:
            self.config, self.reward_loop_worker_handles = config, workers
            self.processor, self.mm_processor_kwargs, self.distillation_enabled = None, {}, False

        async def _run_agent_loop(self, sampling: Any, trajectory: Any, trace: bool, **row: Any) -> None:
            output = output_of([1, 2, 3], self.rolled_out(row["uid"], row["session_id"]))
            await self._agent_loop_postprocess(output, False, **row)

    return lambda config, workers: (Worker(config, workers), queue)


def output_of(prompt: list[int], response: list[int]) -> AgentLoopOutput:
    return AgentLoopOutput(
        prompt_ids=prompt, response_ids=response, response_mask=[1] * len(response), metrics=AgentLoopMetrics()
    )


def managed(tokenizer: Any, *overrides: str) -> Any:
    """A manager as a worker loads it, in this process."""
    return load_reward_manager(configured(*overrides), tokenizer)


async def scored(manager: Any, data: Any) -> list[Any]:
    """One at a time, all at once."""
    rows = (manager.run_single(data[place : place + 1]) for place in range(len(data)))
    return await asyncio.gather(*rows, return_exceptions=True)


@pytest.mark.parametrize("kind", ["function", "manager", "both"])
async def test_one_judge_in_each_process_serves_all_of_its_trajectories(
    tokenizer: Any, judged_by: SimulatedServer, up_to_eight: str, kind: str
) -> None:
    manager = managed(tokenizer, *overrides_of(kind, up_to_eight))
    found = await scored(manager, rollout(tokenizer))
    for one, reward in zip(found, wanted_of(kind, up_to_eight), strict=True):
        if reward is None:
            assert isinstance(one, NotJudged)
        else:
            assert one["reward_score"] == pytest.approx(reward)
            assert one["reward_extra_info"]["score"] == one["reward_score"]
            assert "reward" not in one["reward_extra_info"]
    assert len({tuple(one["reward_extra_info"]) for one in found if isinstance(one, dict)}) == 1
    answered = judged_by.stats().statuses["200"]
    again = await scored(managed(tokenizer, *overrides_of(kind, up_to_eight)), rollout(tokenizer))
    assert [one == two for one, two in zip(found, again, strict=True) if isinstance(one, dict)].count(False) == 0
    lost = sum(isinstance(one, NotJudged) for one in found)
    assert judged_by.stats().statuses["200"] - answered <= lost  # only what was no verdict may be asked again


async def test_of_several_sequences_the_last_is_scored_by_the_lengths_that_verl_tells(
    tokenizer: Any, judged_by: SimulatedServer, agent_loop: Callable[..., Any]
) -> None:
    """verl pads prompts and responses apart from their mask, which then covers neither."""
    manager = managed(tokenizer, *MANAGER)
    here = SimpleNamespace(compute_score=SimpleNamespace(remote=manager.run_single))
    worker, _ = agent_loop(manager.config, [here])
    outputs = [output_of([9] * 99, [5, 6]), output_of([7, 8], tokenizer.encode(RESPONSES[0]))]
    row = {"raw_prompt": talk(PROMPTS[0]), "data_source": "sums", "reward_model": {"ground_truth": "0"}}
    await worker._compute_score(outputs, row)
    wanted = foretold(rc.rubrics.QUALITY, rc.Sample(talk(PROMPTS[0]), RESPONSES[0], "0"))
    assert outputs[-1].reward_score == pytest.approx(wanted)


async def test_images_go_to_the_judge_as_verl_puts_them_into_the_prompt(
    tokenizer: Any, judged_by: SimulatedServer
) -> None:
    picture = {"type": "image", "bytes": b"\x89PNG\r\n\x1a\n of a cat", "image": object()}
    question = {"type": "text", "text": PROMPTS[0]}
    prompt = [{"role": "user", "content": [picture, question]}]
    (found,) = await scored(
        managed(tokenizer, *MANAGER), rollout(tokenizer, PROMPTS[:1], RESPONSES[:1], raw_prompt=[prompt])
    )
    sent = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgogb2YgYSBjYXQ="}}
    sample = rc.Sample([{"role": "user", "content": [sent, question]}], RESPONSES[0], TRUTHS[0])
    assert found["reward_score"] == pytest.approx(foretold(rc.rubrics.QUALITY, sample))


@pytest.mark.parametrize("overrides", [MANAGER, FUNCTION + MANAGER])
async def test_an_empty_response_is_not_judged_and_gets_no_reward_anywhere(
    tokenizer: Any, judged_by: SimulatedServer, overrides: list[str]
) -> None:
    manager = managed(tokenizer, *overrides)
    manager.compute_score = lambda **_: 1.0
    data = rollout(tokenizer, PROMPTS[:2], [RESPONSES[0], ""])
    full, empty = await scored(manager, data)
    assert (empty["reward_score"], empty["reward_extra_info"]["judged"]) == (0.0, 0.0)
    assert list(empty["reward_extra_info"]) == list(full["reward_extra_info"])
    tensor = manager.assemble_rm_scores(data, [full["reward_score"], 5.0])
    assert at_the_last_token(tensor, data) == pytest.approx([full["reward_score"], 0.0])


def a_float(solution_str: str, extra_info: dict[str, Any], **_: Any) -> float:
    assert extra_info["prompt"] == talk(PROMPTS[0])
    return 0.25


async def a_mapping(**_: Any) -> dict[str, Any]:
    return {"score": -1.0, "pred": "many"}


@pytest.mark.parametrize(("function", "judged"), [(a_float, True), (a_mapping, False)])
async def test_a_function_of_the_users_own_goes_beside_the_judge(
    tokenizer: Any, judged_by: SimulatedServer, function: Callable[..., Any], judged: bool
) -> None:
    manager = managed(
        tokenizer, *MANAGER, f"reward.custom_reward_function.path={__file__}",
        f"reward.custom_reward_function.name={function.__name__}", "+reward.reward_kwargs.reward_coefficient=2",
    )  # fmt: skip
    (found,) = await scored(manager, rollout(tokenizer, PROMPTS[:1], RESPONSES[:1]))
    score = foretold(rc.rubrics.QUALITY, rc.Sample(talk(PROMPTS[0]), RESPONSES[0], TRUTHS[0]))
    assert score
    task = 0.25 if judged else -1.0
    own = {} if judged else {"pred": "many"}
    assert found["reward_score"] == pytest.approx(task + 2 * score * judged)
    assert found["reward_extra_info"] == {
        "score": found["reward_score"],
        **own,
        "function_score": task,
        "judge_reward": pytest.approx(2 * score * judged),
        "judged": float(judged),
    }


async def test_a_failed_judgement_is_no_zero_in_verls_validation_of_a_functions_own_accuracy(
    tokenizer: Any, judged_by: SimulatedServer, up_to_eight: str
) -> None:
    manager = managed(tokenizer, *FUNCTION, *MANAGER, f"+reward.reward_kwargs.rubric={up_to_eight}")
    manager.compute_score = lambda **_: {"score": 1.0, "acc": 1.0}
    found = [one for one in await scored(manager, rollout(tokenizer)) if isinstance(one, dict)]
    assert 0 < len(found) < 24
    info = [one["reward_extra_info"] for one in found]
    figures = process_validation_metrics(
        ["sums"] * len(found),
        ["u"] * len(found),
        {name: [one[name] for one in info] for name in info[0]},
        expected_acc_counts={("sums", "u"): 24},
    )
    assert "acc" not in figures["sums"]
    assert figures["sums"]["function_acc"][f"mean@{len(found)}"] == 1.0


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ({"reward": 1.0, "score": 1.0}, "never \"reward\", which verl keeps; it has \\['reward', 'score'\\]"),
        ({"acc": 1.0}, 'must return "score"'),
        ({"score": 1.0, "acc": math.nan}, "compute_score's acc must be a finite number"),
        ({"score": 1.0, "bonus": numpy.float32("inf")}, "compute_score's bonus must be a finite number"),
        ({"score": 1.0, "judged": 1.0}, "must not return judged, which JudgeRewardManager tells"),
        (math.inf, "compute_score must return a finite number"),
        (None, "compute_score must return a number"),
    ],
)
async def test_what_would_poison_a_batch_is_refused(
    tokenizer: Any, judged_by: SimulatedServer, returned: Any, complaint: str
) -> None:
    manager = managed(tokenizer, *FUNCTION, *MANAGER)
    manager.compute_score = lambda **_: returned
    (error,) = await scored(manager, rollout(tokenizer, PROMPTS[:1], RESPONSES[:1]))
    with pytest.raises(rc.ConfigurationError, match=complaint):
        raise error


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["+reward.reward_kwargs.peak_ratio=0.3"], "^peak_ratio: verl's reward loop hands each response to a process"),
        (["+reward.reward_kwargs.length_penalty_config={enable: true}"], "there is no median length"),
        (["reward.reward_manager.name=LengthPenaltyRewardManager"], "needs whole batches: verl's reward loop"),
        (["reward.reward_manager.name=GeneralIORewardManager"], "needs whole batches: verl's reward loop"),
        (["+reward.reward_kwargs.rubrics=quality"], "rubrics is no field of JudgeRewardConfig; did you mean rubric?"),
        (["+reward.reward_kwargs.rubric=qualty"], "rubric 'qualty' is none of"),
        (["+reward.reward_kwargs.use_async_io=false"], "use_async_io must be true"),
        (["+reward.reward_kwargs.reward_coefficient=nan"], "reward_coefficient must be a finite number"),
        (["+reward.reward_kwargs.api_key=OTHER_API_KEY"], "OTHER_API_KEY is not set"),
    ],
)
async def test_a_wrong_configuration_is_told_before_the_first_rollout(
    tokenizer: Any, judged_by: SimulatedServer, overrides: list[str], complaint: str
) -> None:
    with pytest.raises(rc.ConfigurationError, match=complaint):
        managed(tokenizer, *MANAGER, *overrides)


async def test_a_misspelt_field_of_the_function_names_the_nearest(judged_by: SimulatedServer) -> None:
    assert inspect.iscoroutinefunction(compute_score)
    with pytest.raises(rc.ConfigurationError, match="did you mean monitor_cache"):
        await compute_score(data_source="sums", solution_str="4", ground_truth="4", extra_info={}, monitor_cash=True)
    with pytest.raises(rc.ConfigurationError, match="one response at a time"):
        await compute_score(data_sources=["sums"], solution_strs=["4"], ground_truths=["4"])


async def test_a_file_of_the_users_own_registers_rules_where_the_function_runs(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rewardcore.rewards.rules._rules", {})
    path = tmp_path / "my_rewards.py"
    path.write_text(
        "from rewardcore.rewards import register_rule\n"
        "from rewardcore.trainers.verl import compute_score\n"
        "register_rule('sums', lambda response, ground_truth, extra: 0.5)\n"
    )
    manager = managed(tokenizer, f"reward.custom_reward_function.path={path}")
    (found,) = await scored(manager, rollout(tokenizer, PROMPTS[:1], RESPONSES[:1]))
    assert found["reward_score"] == 0.5


async def test_the_function_alone_scores_by_rule_and_says_so() -> None:
    found = await compute_score(data_source="sums", solution_str="4", ground_truth="4", extra_info=None)
    assert found == {"score": 1.0, "task_score": 1.0, "monitor_reward": 0.0, "monitored": 0.0}

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewardcore as rc
from rewardcore.failures import ConfigurationError, RewardcoreError
from rewardcore.local.generator import Conversation
from rewardcore.local.torch_generator import TorchGenerator
from rewardcore.rubrics import QUALITY


class Echo:
    """Replies with the response it is shown, so that a sample carries its own verdict."""

    closed = False

    def generate(self, conversations: list[Conversation]) -> list[str]:
        return [str(conversation[0]["content"]) for conversation in conversations]

    def close(self) -> None:
        self.closed = True


class EchoRubric:
    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        if sample.response == "unwritable":
            raise KeyError("no such field")
        return [{"role": "user", "content": sample.response}]

    def parse(self, text: str) -> float:
        return QUALITY.parse(text)


def samples(*responses: str) -> list[rc.Sample]:
    return [rc.Sample("a prompt", response) for response in responses]


def test_verdicts_come_in_input_order_each_with_its_own_status() -> None:
    with rc.open_judge("self", Echo(), rubric=EchoRubric(), batch_size=2) as judge:
        verdicts = judge.judge(samples("<score>10</score>", "no idea", "unwritable", "long " * 9 + "<score>1</score>"))
        stats = judge.stats
    assert [(verdict.status, verdict.score) for verdict in verdicts] == [
        ("ok", 1.0),
        ("unparsed", None),
        ("failed", None),
        ("ok", 0.0),
    ]
    assert [verdict.attempts for verdict in verdicts] == [1, 1, 0, 1]
    assert "the rubric could not write this sample's messages: KeyError" in str(verdicts[2].error)
    assert stats.requests == 2
    assert stats.failed == {"Unparsed": 1, "RubricFailed": 1}


class AsksItsOwnJudge(EchoRubric):
    """For a response that names a method, out of that method."""

    judge: rc.Judge

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        if sample.response == "messages":
            self.judge.judge(samples("another"))
        return super().messages(sample)

    def parse(self, text: str) -> float:
        if text == "parse":
            self.judge.submit(samples("another")).result(timeout=20.0)
        if text == "await":
            asyncio.run(asyncio.wait_for(self.judge.ajudge(samples("another")), 20.0))
        if text == "stream":
            asyncio.run(asyncio.wait_for(anext(self.judge.astream(samples("another"))), 20.0))  # type: ignore[arg-type]
        return super().parse(text)


def test_a_rubric_that_asks_a_judge_fails_that_sample_at_once_and_alone() -> None:
    """Its own judge, too, whose only thread it would wait in."""
    with rc.open_judge("self", Echo(), rubric=(rubric := AsksItsOwnJudge())) as rubric.judge:
        asked = samples("messages", "<score>10</score>", "parse", "await", "stream")
        verdicts = rubric.judge.submit(asked).result(timeout=90.0)
    assert [verdict.status for verdict in verdicts] == ["failed", "ok", "failed", "failed", "failed"]
    assert "this sample's messages: AsksJudge: a judge was asked" in str(verdicts[0].error)
    for verdict in verdicts[2:]:
        assert "the rubric's parse raised AsksJudge: a judge was asked" in str(verdict.error)


async def test_a_running_loop_awaits_and_streams_as_in_every_mode() -> None:
    asked = samples("<score>10</score>", "<score>1</score>")
    with rc.open_judge("self", Echo(), rubric=EchoRubric(), batch_size=2) as judge:
        for verdicts in (await judge.ajudge(asked), await judge.submit(asked)):
            assert [verdict.score for verdict in verdicts] == [1.0, 0.0]
        assert {index: verdict.score async for index, verdict in judge.astream(asked)} == {0: 1.0, 1: 0.0}


async def test_a_cancelled_await_asks_the_generator_no_further() -> None:
    with rc.open_judge("self", (held := Held()), rubric=EchoRubric(), batch_size=1) as judge:
        task = asyncio.ensure_future(judge.ajudge(samples("a", "b", "c")))
        await asyncio.to_thread(held.started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.released.set()
    assert held.calls == 1


def test_the_default_batch_size_is_eight() -> None:
    with rc.open_judge("self", Echo(), rubric=EchoRubric()) as judge:
        judge.judge(samples(*["<score>5</score>"] * 100))
        assert judge.stats.requests == 13


def test_no_samples_are_no_verdicts_and_no_calls() -> None:
    with rc.open_judge("self", Echo()) as judge:
        assert judge.judge([]) == []
        assert judge.stats.requests == 0


class Held(Echo):
    """Generates only once it is released."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.released = threading.Event()
        self.calls = 0

    def generate(self, conversations: list[Conversation]) -> list[str]:
        self.calls += 1
        self.started.set()
        self.released.wait()
        return super().generate(conversations)


def test_submit_returns_while_the_model_is_still_at_work() -> None:
    generator = Held()
    with rc.open_judge("self", generator, rubric=EchoRubric()) as judge:
        pending = judge.submit(samples("<score>10</score>"))
        generator.started.wait()
        assert not pending.done()
        generator.released.set()
        assert [verdict.score for verdict in pending.result()] == [1.0]


def test_closing_tells_every_waiting_sample_and_starts_no_further_batch() -> None:
    generator = Held()
    judge = rc.open_judge("self", generator, rubric=EchoRubric(), batch_size=1)
    pending = judge.submit(samples("<score>10</score>", "<score>9</score>"))
    later = judge.submit(samples("<score>8</score>"))
    generator.started.wait()
    closing = threading.Thread(target=judge.close)
    closing.start()
    verdicts = pending.result() + later.result()
    generator.released.set()
    closing.join()
    assert [verdict.status for verdict in verdicts] == ["failed"] * 3
    assert all("JudgeClosed" in str(verdict.error) for verdict in verdicts)
    assert generator.calls == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rewardcore-self")]


def test_a_cancelled_batch_ends_after_the_call_that_is_running() -> None:
    generator = Held()
    with rc.open_judge("self", generator, rubric=EchoRubric(), batch_size=1) as judge:
        pending = judge.submit(samples("<score>10</score>", "<score>9</score>"))
        generator.started.wait()
        pending.cancel()
        generator.released.set()
        assert [verdict.score for verdict in judge.judge(samples("<score>1</score>"))] == [0.0]
    assert generator.calls == 2


def test_a_stream_fills_its_batches_and_takes_a_bounded_number_ahead() -> None:
    taken = 0

    def counted() -> Iterator[rc.Sample]:
        nonlocal taken
        for sample in samples(*["<score>5</score>"] * 1000):
            taken += 1
            yield sample

    with rc.open_judge("self", Echo(), rubric=EchoRubric(), batch_size=8) as judge:
        seen, most_ahead = [], 0
        for index, _ in judge.stream(counted()):
            seen.append(index)
            most_ahead = max(most_ahead, taken - len(seen))
        assert sorted(seen) == list(range(1000))
        assert judge.stats.requests == 1000 / 8
        assert most_ahead <= 4 * 8 * 8


def test_a_stream_that_is_left_ends_after_the_call_that_is_running() -> None:
    generator = Held()
    generator.released.set()
    with rc.open_judge("self", generator, rubric=EchoRubric(), batch_size=1) as judge:
        for _ in judge.stream(samples(*["<score>5</score>"] * 1000)):
            generator.released.clear()
            break
        made = generator.calls
        generator.released.set()
        assert [verdict.score for verdict in judge.judge(samples("<score>1</score>"))] == [0.0]
    assert generator.calls <= made + 2


def test_a_stream_whose_judge_is_closed_says_so() -> None:
    judge = rc.open_judge("self", Echo(), rubric=EchoRubric())
    stream = judge.stream(samples(*["<score>5</score>"] * 1000))
    next(stream)
    judge.close()
    with pytest.raises(RewardcoreError, match="closed; open another"):
        list(stream)


def test_a_generator_that_exits_leaves_nobody_waiting() -> None:
    class Exiting(Echo):
        def generate(self, conversations: list[Conversation]) -> list[str]:
            raise SystemExit("the engine is dead")

    with rc.open_judge("self", Exiting()) as judge:
        (verdict,) = judge.judge(samples("x"))
    assert verdict.status == "failed"
    assert "judging stopped at SystemExit: the engine is dead" in str(verdict.error)


def test_the_generator_belongs_to_the_caller_and_stays_open() -> None:
    generator = Echo()
    judge = rc.open_judge("self", generator)
    judge.close()
    judge.close()
    assert not generator.closed
    with pytest.raises(RewardcoreError, match="closed"):
        judge.judge(samples("x"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number above 0"),
        ({"rubric": "quality"}, "rubric must be an object"),
        ({"max_concurrent": 8}, "max_concurrent is no option of mode 'self'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rc.open_judge("self", Echo(), **options)


def test_something_that_generates_nothing_is_no_generator() -> None:
    with pytest.raises(ConfigurationError, match="takes a generator with generate"):
        rc.open_judge("self", object())  # type: ignore[call-overload]


def test_a_class_is_no_generator() -> None:
    with pytest.raises(ConfigurationError, match="takes a generator, and Echo is a class: make one of it"):
        rc.open_judge("self", Echo)  # type: ignore[call-overload]


def test_a_generator_that_nobody_would_await_is_refused() -> None:
    class Awaited:
        async def generate(self, conversations: list[Conversation]) -> list[str]:
            raise AssertionError

    with pytest.raises(ConfigurationError, match="whose generate is a plain def"):
        rc.open_judge("self", Awaited())  # type: ignore[call-overload]


def test_a_generator_of_ones_own_needs_no_torch() -> None:
    program = """
import sys, rewardcore as rc
class Fixed:
    def generate(self, conversations):
        return ["<score>10</score>"] * len(conversations)
with rc.open_judge("self", Fixed()) as judge:
    assert [verdict.score for verdict in judge.judge([rc.Sample("a", "b")] * 9)] == [1.0] * 9
assert not {"torch", "transformers", "vllm", "verl"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_real_model_judges_real_samples(tiny_judge: Path) -> None:
    generator = TorchGenerator(tiny_judge, device="cpu", max_new_tokens=48)
    responses = ["Blue light scatters most. " * count for count in range(1, 12)] + ["far too long " * 1000]
    with rc.open_judge("self", generator) as judge:
        verdicts = judge.judge(samples(*responses))
        assert judge.stats.requests == 2
    assert [verdict.status for verdict in verdicts] == ["ok"] * 11 + ["failed"]
    assert "tokens and the model takes 976" in str(verdicts[-1].error)

import logging
import weakref
from collections.abc import Callable
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.failures import ConfigurationError, GeneratorFailed
from rewardcore.local.generation import BatchedGeneration, BatchSize
from rewardcore.local.generator import Conversation
from tests.cuda.devices import OUT_OF_MEMORY


class Scripted:
    """Answers with the prompt in capitals; raises for poison, and where a batch is larger than the memory."""

    def __init__(self, poison: set[str] | None = None, memory: int | None = None, refused: int = 10**9) -> None:
        self.poison = poison or set()
        self.memory = memory
        self.refused = refused  # so often there is too little memory, and then there is enough
        self.out_of_memory = OUT_OF_MEMORY["OutOfMemoryError"]
        self.batches: list[list[str]] = []

    def generate(self, conversations: list[Conversation]) -> list[str]:
        prompts = [str(conversation[-1]["content"]) for conversation in conversations]
        self.batches.append(prompts)
        if self.memory is not None and len(prompts) > self.memory and self.refused:
            self.refused -= 1
            raise self.out_of_memory()
        if poisoned := self.poison & set(prompts):
            raise RuntimeError(f"cannot digest {sorted(poisoned)}")
        return [prompt.upper() for prompt in prompts]


class Measuring(Scripted):
    max_prompt_tokens = 10
    recommended: int | None = 4

    def lengths(self, conversations: list[Conversation]) -> list[int]:
        if any(conversation[-1]["content"] == "no such role" for conversation in conversations):
            raise ValueError("the chat template knows no such role")
        return [len(str(conversation[-1]["content"])) for conversation in conversations]

    def recommend_batch_size(self, prompt_tokens: int) -> int | None:
        self.longest = prompt_tokens
        return self.recommended


def conversations(*prompts: str) -> list[Conversation]:
    return [[{"role": "user", "content": prompt}] for prompt in prompts]


def numbered(count: int) -> list[str]:
    return [f"prompt {number}" for number in range(count)]


@pytest.mark.parametrize(
    ("count", "batch_size", "calls"),
    [(0, 8, 0), (1, 8, 1), (16, 8, 2), (32, 8, 4), (100, 8, 13), (1024, 8, 128), (5, 1, 5), (100, None, 1)],
)
def test_n_prompts_take_ceil_n_over_batch_size_calls(count: int, batch_size: BatchSize, calls: int) -> None:
    generator = Scripted()
    generation = BatchedGeneration(generator, batch_size)
    assert generation.run(conversations(*numbered(count))) == [prompt.upper() for prompt in numbered(count)]
    assert len(generator.batches) == generation.calls == calls


@given(st.lists(st.text(max_size=30)), st.integers(1, 9))
def test_texts_come_back_in_input_order_whatever_the_lengths(prompts: list[str], batch_size: int) -> None:
    texts = BatchedGeneration(Scripted(), batch_size).run(conversations(*prompts))
    assert texts == [prompt.upper() for prompt in prompts]


@given(st.integers(1, 60), st.sets(st.integers(0, 59)), st.integers(1, 16))
def test_only_the_poison_prompts_fail(count: int, poison: set[int], batch_size: int) -> None:
    prompts = numbered(count)
    generator = Scripted(poison={f"prompt {number}" for number in poison})
    texts = BatchedGeneration(generator, batch_size).run(conversations(*prompts))
    for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        if number in poison:
            assert isinstance(text, GeneratorFailed)
            assert f"cannot digest ['{prompt}']" in str(text)
        else:
            assert text == prompt.upper()


def test_one_poison_prompt_costs_two_calls_for_each_halving() -> None:
    generator = Scripted(poison={"prompt 3"})
    BatchedGeneration(generator, 8).run(conversations(*numbered(8)))
    assert [len(batch) for batch in generator.batches] == [8, 4, 2, 2, 1, 1, 4]


def test_out_of_memory_halves_the_batch_for_the_rest_of_the_run_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    generator = Scripted(memory=3)
    generation = BatchedGeneration(generator, 8)
    with caplog.at_level(logging.WARNING, "rewardcore"):
        assert generation.run(conversations(*numbered(20))) == [prompt.upper() for prompt in numbered(20)]
        assert generation.run(conversations(*numbered(4))) == [prompt.upper() for prompt in numbered(4)]
    assert [len(batch) for batch in generator.batches] == [8, 4] + [2] * 10 + [2, 2]
    (record,) = caplog.records
    assert "out of memory with a batch of 8: at most 4 from here on" in record.getMessage()


def test_out_of_memory_and_poison_together_still_cost_only_the_poison_prompt() -> None:
    texts = BatchedGeneration(Scripted({"prompt 5"}, memory=4), None).run(conversations(*numbered(12)))
    assert [number for number, text in enumerate(texts) if isinstance(text, GeneratorFailed)] == [5]


@pytest.mark.parametrize("name", [*OUT_OF_MEMORY, "CPU", "Ray"])
def test_out_of_memory_by_any_name_halves_the_batch(name: str) -> None:
    generator = Scripted(memory=4)
    generator.out_of_memory = {
        "CPU": lambda: RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
        ),
        "Ray": type("RayTaskError(OutOfMemoryError)", (OUT_OF_MEMORY["OutOfMemoryError"]().__class__,), {}),
        **OUT_OF_MEMORY,
    }[name]
    generation = BatchedGeneration(generator, 8)
    assert generation.run(conversations(*numbered(16))) == [prompt.upper() for prompt in numbered(16)]
    assert [len(batch) for batch in generator.batches] == [8, 4, 4, 4, 4], "poison would have cost more calls"


@pytest.mark.parametrize("words", ["CUDA error: an illegal memory access was encountered", "device-side assert"])
def test_what_a_smaller_batch_would_not_help_is_no_shortage_of_memory(words: str) -> None:
    generator = Scripted(memory=0)
    generator.out_of_memory = lambda: RuntimeError(words)
    (failure,) = BatchedGeneration(generator, 8).run(conversations("x"))
    assert words in str(failure)
    assert len(generator.batches) == 1


def test_a_prompt_that_found_no_memory_alone_is_tried_once_more() -> None:
    generator = Scripted(memory=0, refused=1)
    outcomes = [outcome for _, outcome in BatchedGeneration(generator, 1).stream(conversations("x", "y"))]
    assert [(outcome.answer, outcome.attempts) for outcome in outcomes] == [("X", 2), ("Y", 1)]


def test_before_that_what_nobody_uses_is_collected() -> None:
    """As a trainer's last step may leave it: tensors that only point at each other."""

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

    class Crowded(Scripted):
        garbage = weakref.ref(Garbage())

        def generate(self, conversations: list[Conversation]) -> list[str]:
            self.memory = 0 if self.garbage() else None
            return super().generate(conversations)

    assert Crowded.garbage() is not None
    assert BatchedGeneration(Crowded(), 1).run(conversations("x")) == ["X"]


def test_a_prompt_that_runs_out_of_memory_alone_fails_with_its_length() -> None:
    generator = Scripted(memory=0)
    (failure,) = BatchedGeneration(generator, 8).run(conversations("x" * 7))
    assert isinstance(failure, GeneratorFailed)
    assert "CUDA out of memory" in str(failure)
    assert "(alone, with a prompt of length 7)" in str(failure)
    assert len(generator.batches) == 2


def test_a_failure_keeps_no_traceback_and_so_no_tensors() -> None:
    (failure,) = BatchedGeneration(Scripted(poison={"x"}), 8).run(conversations("x"))
    assert isinstance(failure, GeneratorFailed)
    assert (failure.__traceback__, failure.__cause__, failure.__context__) == (None, None, None)


def test_an_over_long_prompt_fails_with_its_length_and_never_reaches_the_model() -> None:
    generator = Measuring()
    texts = BatchedGeneration(generator, 8).run(conversations("short", "x" * 11, "fits: ten."))
    assert texts[0::2] == ["SHORT", "FITS: TEN."]
    assert "the prompt has 11 tokens and the model takes 10" in str(texts[1])
    assert generator.batches == [["fits: ten.", "short"]]


def test_a_conversation_that_the_chat_template_refuses_fails_alone() -> None:
    texts = BatchedGeneration(Measuring(), 8).run(conversations("one", "no such role", "two"))
    assert texts[0::2] == ["ONE", "TWO"]
    assert "ValueError: the chat template knows no such role" in str(texts[1])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda count: ["text"] * (count - 1), "0 texts for 1 conversations"),
        (lambda count: ["text"] * (count + 1), "2 texts for 1 conversations"),
        (lambda count: "t" * count, "a str for 1 conversations"),
        (lambda count: None, "a NoneType for 1 conversations"),
        (lambda count: [b"text"] * count, "a bytes in place of a text"),
    ],
    ids=["too few", "too many", "one string", "nothing", "bytes"],
)
def test_anything_but_one_text_per_conversation_is_a_failure(answer: Callable[[int], object], words: str) -> None:
    class Careless:
        def generate(self, conversations: list[Conversation]) -> list[str]:
            return answer(len(conversations))  # type: ignore[return-value]

    failures = BatchedGeneration(Careless(), 8).run(conversations(*numbered(3)))
    assert all(isinstance(failure, GeneratorFailed) and words in str(failure) for failure in failures)
    assert len(failures) == 3


def test_one_missing_text_in_a_batch_fails_alone() -> None:
    class Forgetful(Scripted):
        def generate(self, conversations: list[Conversation]) -> list[str]:
            return [None if text == "PROMPT 1" else text for text in super().generate(conversations)]  # type: ignore[misc]

    texts = BatchedGeneration(Forgetful(), 8).run(conversations(*numbered(3)))
    assert texts[0::2] == ["PROMPT 0", "PROMPT 2"]
    assert isinstance(texts[1], GeneratorFailed)


@pytest.mark.parametrize(("recommended", "calls"), [(4, 3), (None, 1), (100, 1)])
def test_auto_asks_the_generator_with_the_longest_prompt(recommended: int | None, calls: int) -> None:
    generator = Measuring()
    generator.recommended = recommended
    generation = BatchedGeneration(generator, "auto")
    generation.run(conversations(*numbered(10), "x" * 10, "y" * 5, "far too long to count"))
    assert generator.longest == 10
    assert generation.calls == ceil(12 / (recommended or 12)) == calls


def test_auto_without_a_recommendation_says_what_to_pass() -> None:
    with pytest.raises(ConfigurationError, match=r"Scripted has not; pass batch_size=8 or another number"):
        BatchedGeneration(Scripted(), "auto").run(conversations("x"))


@pytest.mark.parametrize("batch_size", [0, -8, 2.0, "8", True])
def test_a_batch_size_that_makes_no_sense_is_refused_at_once(batch_size: object) -> None:
    with pytest.raises(ConfigurationError, match='batch_size must be a whole number above 0, "auto" or None'):
        BatchedGeneration(Scripted(), batch_size)  # type: ignore[arg-type]


def test_an_interrupt_is_not_swallowed() -> None:
    class Interrupted:
        def generate(self, conversations: list[Conversation]) -> list[str]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BatchedGeneration(Interrupted(), 8).run(conversations("x"))

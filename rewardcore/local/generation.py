"""Driving a generator in batches: what goes into the next call, and what becomes of a call that fails.

It knows neither torch nor rubrics. One bad prompt never costs another its text, and running out of memory costs
only time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..clock import SYSTEM_CLOCK, Clock
from ..failures import ConfigurationError, Failure, GeneratorFailed
from ..memory.release import empty_cache, is_out_of_memory, release_memory
from ..notices import log
from .batching import cut, form_batches
from .generator import Conversation, Generator, lengths_of, prompt_limit, recommended_batch_size

BatchSize = int | Literal["auto"] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one conversation; `attempts` counts the calls it took part in, `latency` is the last one's."""

    answer: str | Failure
    attempts: int = 0
    latency: float = 0.0


class BatchedGeneration:
    """N conversations take exactly ceil(N / batch_size) calls while nothing fails.

    `batch_size=None` is one call for everything (continuous batching); "auto" is what the generator's memory
    prediction allows. After an out-of-memory the size stays halved as long as this object lives.
    """

    def __init__(self, generator: Generator, batch_size: BatchSize = 8, clock: Clock = SYSTEM_CLOCK) -> None:
        if batch_size not in (None, "auto") and not (type(batch_size) is int and batch_size >= 1):
            raise ConfigurationError(f'batch_size must be a whole number above 0, "auto" or None, not {batch_size!r}')
        self.calls = 0
        self._generator = generator
        self._batch_size = batch_size
        self._clock = clock
        self._ceiling: int | None = None

    def run(self, conversations: Sequence[Conversation]) -> list[str | Failure]:
        """Texts in input order; in place of a text that could not be made, its failure."""
        outcomes = dict(self.stream(conversations))
        return [outcomes[index].answer for index in range(len(conversations))]

    def stream(self, conversations: Sequence[Conversation]) -> Iterator[tuple[int, Outcome]]:
        """(index, outcome) of every conversation, once each, as batches are done."""
        lengths, unfit = self._measure(list(conversations))
        yield from ((index, Outcome(failure)) for index, failure in unfit.items())
        attempts: Counter[int] = Counter()
        refused: set[int] = set()  # those that found no memory even alone
        waiting = deque(self._batches(lengths))
        while waiting:
            batch = waiting.popleft()
            attempts.update(batch)
            started = self._clock.now()
            answers = self._call([conversations[index] for index in batch])
            latency = self._clock.now() - started
            if isinstance(answers, _OutOfMemory) and len(batch) > 1:
                self._halve(len(batch))
                waiting = deque(piece for whole in (batch, *waiting) for piece in cut(whole, len(batch) // 2))
            elif isinstance(answers, _OutOfMemory) and batch[0] not in refused:  # somebody else may have had it
                refused.update(batch)
                release_memory()
                waiting.appendleft(batch)
            elif isinstance(answers, GeneratorFailed) and len(batch) > 1:  # one is poison: the halves say which
                waiting.extendleft(reversed(cut(batch, (len(batch) + 1) // 2)))
            else:
                if isinstance(answers, GeneratorFailed):
                    answers = [GeneratorFailed(f"{answers} (alone, with a prompt of length {lengths[batch[0]]})")]
                for index, answer in zip(batch, answers, strict=True):
                    yield index, Outcome(answer, attempts[index], latency)

    def _measure(self, conversations: list[Conversation]) -> tuple[dict[int, int], dict[int, GeneratorFailed]]:
        """Lengths by index; and the failures of those that the model cannot take, before they get there."""
        lengths: dict[int, int] = {}
        unfit: dict[int, GeneratorFailed] = {}
        try:
            lengths = dict(enumerate(lengths_of(self._generator, conversations)))
        except Exception:  # a chat template may refuse a single conversation: ask one by one
            for index, conversation in enumerate(conversations):
                try:
                    (lengths[index],) = lengths_of(self._generator, [conversation])
                except Exception as error:
                    unfit[index] = _failure(error)
        limit = prompt_limit(self._generator)
        for index, length in lengths.items():
            if limit is not None and length > limit:
                unfit[index] = GeneratorFailed(
                    f"the prompt has {length} tokens and the model takes {limit} beside the reply;"
                    " shorten the sample or the rubric, or lower max_new_tokens"
                )
        return {index: length for index, length in lengths.items() if index not in unfit}, unfit

    def _batches(self, lengths: dict[int, int]) -> list[list[int]]:
        size = self._batch_size
        if size == "auto":
            size = recommended_batch_size(self._generator, max(lengths.values(), default=0))
        if self._ceiling is not None:
            size = min(size or self._ceiling, self._ceiling)
        indices = list(lengths)
        return [[indices[place] for place in batch] for batch in form_batches(list(lengths.values()), size)]

    def _call(self, conversations: list[Conversation]) -> list[str | GeneratorFailed] | GeneratorFailed:
        self.calls += 1
        try:
            texts: object = self._generator.generate(conversations)
        except Exception as error:
            texts = _failure(error)
        empty_cache()  # the trainer shares this GPU; where generating failed, its tensors are gone only now
        if isinstance(texts, GeneratorFailed):
            return texts
        if not isinstance(texts, list) or len(texts) != len(conversations):
            got = f"{len(texts)} texts" if isinstance(texts, list) else f"a {type(texts).__name__}"
            return GeneratorFailed(f"the generator returned {got} for {len(conversations)} conversations")
        return [text if isinstance(text, str) else _no_text(text) for text in texts]

    def _halve(self, size: int) -> None:
        if self._ceiling is None:
            log.warning(
                "out of memory with a batch of %d: at most %d from here on, and less if need be; nothing is lost, "
                "but a smaller batch_size would save the retries",
                size,
                size // 2,
            )
        self._ceiling = size // 2
        release_memory()


class _OutOfMemory(GeneratorFailed):
    """A smaller batch may fit."""


def _failure(error: Exception) -> GeneratorFailed:
    """The error's words alone: its traceback would keep the batch's tensors alive."""
    kind = _OutOfMemory if is_out_of_memory(error) else GeneratorFailed
    return kind(f"{type(error).__name__}: {error}")


def _no_text(value: object) -> GeneratorFailed:
    return GeneratorFailed(f"the generator returned a {type(value).__name__} in place of a text")

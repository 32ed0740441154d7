"""The self mode: a local model judges in batches, in one thread of its own, so that `submit` returns at once.

There is no deadline and no cache: a batch on the GPU is not interrupted, and what it costs is time, not money. The
generator belongs to the caller, who closes it.
"""

from __future__ import annotations

import inspect
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ..calls import Call, Driver, at_work
from ..clock import SYSTEM_CLOCK
from ..failures import ConfigurationError, Failure, GeneratorFailed, JudgeClosed, RewardcoreError
from ..judge import Judge
from ..reply import Answer, Reply
from ..rubrics import QUALITY, Rubric
from ..rubrics.rubric import ask, check_rubric, grade, reads_sample
from ..sample import Sample
from ..stats import Stats
from .generation import BatchedGeneration, BatchSize, Outcome
from .generator import Conversation, Generator

#: What a stream takes at once: whole batches, enough of them to be formed by length; or, where their size is not known,
#: so many samples.
_CHUNK_BATCHES, _CHUNK = 8, 256


def open_self(generator: Generator, rubric: Rubric = QUALITY, batch_size: BatchSize = 8) -> Judge:
    if not callable(getattr(generator, "generate", None)):
        raise ConfigurationError(
            f'mode "self" takes a generator with generate(conversations), such as TorchGenerator, not'
            f" {type(generator).__name__}"
        )
    if isinstance(generator, type):
        raise ConfigurationError(f'mode "self" takes a generator, and {generator.__name__} is a class: make one of it')
    if inspect.iscoroutinefunction(generator.generate):
        raise ConfigurationError('mode "self" takes a generator whose generate is a plain def: nobody would await it')
    check_rubric(rubric)
    chunk_size = _CHUNK_BATCHES * batch_size if isinstance(batch_size, int) else _CHUNK
    return Judge(type(generator).__name__, lambda: SelfDriver(generator, rubric, batch_size), math.inf, chunk_size)


class SelfDriver(Driver):
    """`stats.requests` counts generator calls; a verdict's `attempts` are the calls that its sample took part in."""

    def __init__(self, generator: Generator, rubric: Rubric, batch_size: BatchSize) -> None:
        super().__init__(SYSTEM_CLOCK)
        self._rubric = rubric
        self._reads_sample = reads_sample(rubric)
        self._generation = BatchedGeneration(generator, batch_size, self.clock)
        self._stats = Stats()
        self._calls: set[Call] = set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rewardcore-self")
        self._lock = threading.RLock()  # over `waiting` of every call

    def begin(self, call: Call) -> None:
        self._calls.add(call)
        try:
            self._thread.submit(self._work, call)
        except RuntimeError:
            self._calls.discard(call)
            raise RewardcoreError("this judge is closed; open another") from None

    def abandon(self, call: Call) -> None:
        with self._lock:
            call.let_go()

    def close(self) -> None:
        """The batch on the GPU is the last one; whatever waits beyond it is told so."""
        for call in self._calls.copy():
            self._fail_rest(call, JudgeClosed("the judge was closed before this sample was judged"))
        self._thread.shutdown()

    def stats(self) -> Stats:
        return replace(self._stats.snapshot(), requests=self._generation.calls)

    def _work(self, call: Call) -> None:
        try:
            if call.waiting:
                self._judge(call)
        except BaseException as error:  # a generator may even exit: nobody is left waiting
            self._fail_rest(call, GeneratorFailed(f"judging stopped at {type(error).__name__}: {error}"))
        self._calls.discard(call)

    def _judge(self, call: Call) -> None:
        asked: list[tuple[int, Sample]] = []
        conversations: list[Conversation] = []
        for index, sample in call.fresh:
            try:
                with at_work():
                    conversations.append(ask(self._rubric, sample))
                asked.append((index, sample))
            except Failure as failure:
                self._tell(call, index, Answer(failure=failure), Outcome(failure))
        for place, outcome in self._generation.stream(conversations):
            if not call.waiting:  # abandoned, or the judge was closed
                return
            index, sample = asked[place]
            self._tell(call, index, self._read(outcome, sample), outcome)

    def _read(self, outcome: Outcome, sample: Sample) -> Answer:
        if isinstance(outcome.answer, Failure):
            return Answer(failure=outcome.answer)
        self._stats.arrived(outcome.latency, None)
        with at_work():
            return grade(self._rubric, Reply(outcome.answer), *[sample] * self._reads_sample)

    def _fail_rest(self, call: Call, failure: Failure) -> None:
        for index in sorted(call.waiting):
            self._tell(call, index, Answer(failure=failure), Outcome(failure))

    def _tell(self, call: Call, index: int, answer: Answer, outcome: Outcome) -> None:
        with self._lock:
            if index in call.waiting:
                if answer.failure is not None:
                    self._stats.count_failure(answer.failure.kind)
                call.settle(index, answer.verdict(attempts=outcome.attempts, latency=outcome.latency))

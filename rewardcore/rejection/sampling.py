"""One checkpoint's run: problems in, rollouts through one sliding window, each finished result into the journal.

All rollouts of all problems stand in one line, and at most `concurrency × num_rollout` are asked at a time: a slow one
holds up its own problem and nobody else's. A thread beside it looks after the server and tells how far it is, since a
stream that waits for a dead server says nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator

from ..failures import RewardcoreError, ends_run
from ..files.journal import Journal
from ..judge import Judge, open_judge
from ..progress import Tell
from ..sample import Sample
from .plan import Plan
from .problems import Problem, Unusable
from .results import Counts, Result
from .rollouts import Asking, rollouts_of
from .servers import Address

_LOOK_SECONDS = 0.25


class Stopped(RewardcoreError):
    """The endpoint answers nobody any more, whatever is asked: a wrong key, a wrong model name, no server at all."""


class Tally:
    """How far a run is. Written by the thread that samples, and read by the one that tells of it."""

    def __init__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self.failed = 0
        self.why = ""  # what the first failed sample's first rollout said
        self.rollouts = Counts()
        self._errors, self._sum = 0, 0.0

    def add(self, result: Result) -> None:
        if result.is_failed:
            self.failed += 1
            self.why = self.why or result.why
        else:
            self.done += 1
        if result.min_error is not None:
            self._errors += 1
            self._sum += result.min_error

    def note(self, in_flight: int) -> str:
        """The mean is this run's. What matters most stands first: a narrow terminal cuts the rest."""
        counts = self.rollouts
        parts = [f"mean error {self._sum / self._errors:.3f}"] if self._errors else []
        parts += [f"rollouts {counts.valid:,} ok", f"{counts.unparsed:,} unparsed", f"{counts.failed:,} failed"]
        return ", ".join([*parts, f"{in_flight} in flight"])


def sample(
    problems: Iterable[Problem],
    address: Address,
    plan: Plan,
    journal: Journal,
    tally: Tally,
    tell: Tell,
    unusable: Callable[[Problem, Unusable], object],
) -> None:
    """Until every problem is in the journal or counted as failed. `unusable` is told of one whose images are broken.

    Raises Stopped, or what `address.look` raises; what is finished by then is in the journal.
    """
    count, results = plan.num_rollout, dict[int, Result]()

    def rollouts() -> Iterator[Sample]:
        number = 0
        for problem in problems:
            try:
                asked = list(rollouts_of(problem, count))
            except Unusable as error:
                unusable(problem, error)
                continue
            results[number] = Result(problem, count)
            number += 1
            yield from asked

    with open_judge(
        "asyncio",
        plan.asking(address.endpoint),
        rubric=Asking(plan.system, plan.prompt_suffix),
        max_concurrent=plan.max_concurrent,
        cache=plan.cache,
        deadline=plan.deadline,
        max_retries=plan.max_retries,
    ) as judge:

        def look() -> None:
            address.look()
            tell(tally.done, tally.total, tally.note(judge.stats.in_flight))

        has_replied = False
        with _beside(judge, look), contextlib.closing(judge.stream(rollouts())) as stream:
            for place, verdict in stream:
                has_replied = has_replied or bool(verdict.text and not verdict.cached)
                if ends_run(verdict, has_replied):
                    raise Stopped((verdict.error or "").partition(": ")[2])
                number, rollout = divmod(place, count)
                result = results[number]
                tally.rollouts += result.add(rollout, verdict)
                if not result.missing:
                    del results[number]
                    # One of which nothing could be had is written down too, and asked again by the next run.
                    journal.append(result.problem.index, result.document(), final=not result.is_failed)
                    tally.add(result)
        tell(tally.done, tally.total, tally.note(0))


@contextlib.contextmanager
def _beside(judge: Judge, look: Callable[[], object]) -> Iterator[None]:
    """Calls `look` again and again in another thread. What it raises closes the judge, and is raised here in place of
    what a closed judge has to say; unless everything was done by then."""
    over = threading.Event()
    wrong: list[Exception] = []

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            try:
                look()
            except Exception as error:
                wrong.append(error)
                judge.close()
                return

    thread = threading.Thread(target=watch, name="rewardcore-rejection", daemon=True)
    thread.start()
    try:
        yield
    except Exception as error:
        if wrong:
            raise wrong[0] from error
        raise
    finally:
        over.set()
        thread.join()

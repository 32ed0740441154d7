"""What a person is told while a judge works: lines of the logger `rewardcore`, on stderr where no logging is set up.

Silence is a defect, and so is noise: the first attempt that failed is told, then at most one line in ten seconds, but
for a cut of how many are asked at once; and what was not judged, at the end of each call, where calls are few.
`Trouble` and `Losses` decide what is worth a line and when; they know no clock.

Whatever is told while a judge works goes through `say`, beside the call that it is about: nobody who listens can keep
a verdict from its caller.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, deque
from collections.abc import Callable

from .failures import Failure, is_ctrl_c
from .verdict import Verdict
from .words import one_line, printable

log = logging.getLogger("rewardcore")

#: Seconds between two lines about the same, and how many come without waiting when calls end.
QUIET_SECONDS = 10.0
_AT_FIRST = 5
_LONGEST = 240
#: An endpoint that fails is waited out, and its own words say what is wrong with it; how long is the caller's to say.
_ON_TIMEOUT = "; to wait longer, raise deadline"


class _ToStderr(logging.Handler):
    """Warnings, for a program that has set up no logging; where it has, they are its own to show."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        is_heard_elsewhere = len(log.handlers) > 1 or (log.propagate and logging.getLogger().handlers)
        if sys.stderr is not None and not is_heard_elsewhere:  # print would take None for stdout
            print(f"rewardcore: {printable(record.getMessage())}", file=sys.stderr, flush=True)


log.addHandler(_ToStderr())


def say(level: int, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
    """A line of the log. A handler that raises, even to exit, and a stderr that is gone are passed over."""
    try:
        log.log(level, message, *arguments, exc_info=exc_info)
    except BaseException as error:
        if is_ctrl_c(error):
            raise


class Once:
    """Lines that are worth telling once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def say(self, about: str, level: int, message: str, *arguments: object) -> None:
        if about not in self._told:
            self._told.add(about)
            say(level, message, *arguments)


class Trouble:
    """Attempts that failed and are made again, by kind."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._since: float | None = None
        self._at_once = 0.0
        self._cut_was_told = False

    def told(self, failure: Failure, now: float, at_once: float) -> str | None:
        """What to say of this one and of those that nothing was said of; None where it is too soon.

        `at_once` is how many may be asked now: cut to half of what was told, it is worth a line of its own.
        """
        self._kinds[failure.kind] += 1
        since, seconds = self._since, now - (self._since or 0.0)
        if since is not None and seconds < QUIET_SECONDS:
            if self._cut_was_told or at_once > self._at_once / 2:
                return None
            self._cut_was_told = True
        else:
            self._since, self._cut_was_told = now, False
        self._at_once = at_once
        count, kinds = self._kinds.total(), _counted(self._kinds)
        self._kinds.clear()
        if count == 1:
            return one_line(f"{failure.kind}: {failure}", _LONGEST)
        before = f" in {seconds:.1f} s" if since is not None else ""
        return one_line(f"{count} requests failed{before}: {kinds} (the latest: {failure})", _LONGEST)


class Tally:
    """Samples that were not judged: how many of each kind, and what the first of a kind said."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.why: dict[str, str] = {}

    def add(self, verdict: Verdict) -> None:
        if verdict.status != "ok":
            kind, _, why = (verdict.error or "").partition(": ")
            kind = kind if verdict.status == "failed" else verdict.status
            self.kinds[kind] += 1
            self.why.setdefault(kind, why)

    def merge(self, other: Tally) -> None:
        self.kinds.update(other.kinds)
        self.why = other.why | self.why


class Losses:
    """What calls have lost, told when they end: call by call, or together where calls are many.

    Calls end in any thread. There is no lock, which a fork or a signal could find held: whoever pops what was kept back
    owns it.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._may_tell, self._told_at = float(_AT_FIRST), now()
        self._kept: deque[tuple[Tally, int, int]] = deque()  # with how many samples and calls

    def ended(self, tally: Tally, samples: int) -> None:
        """A call of so many samples has ended."""
        if not tally.kinds:
            return
        self._kept.append((tally, samples, 1))
        self._kept.append(self._owned())
        now = self._now()
        self._may_tell = min(_AT_FIRST, self._may_tell + (now - self._told_at) / QUIET_SECONDS)
        self._told_at = now
        if self._may_tell >= 1:
            self._may_tell -= 1
            self.flush()

    def flush(self) -> None:
        """Whatever was kept back."""
        tally, samples, calls = self._owned()
        if tally.kinds:
            why = tally.why[tally.kinds.most_common(1)[0][0]]
            together = f" in {calls} calls" if calls > 1 else ""
            lost = f"{tally.kinds.total()} of {samples} not judged{together}: {_counted(tally.kinds)}"
            advice = _ON_TIMEOUT if "timeout" in tally.kinds else ""
            line = one_line(f"{lost} ({why})" if why else lost, _LONGEST - len(advice)) + advice
            say(logging.WARNING, "%s", line)

    def _owned(self) -> tuple[Tally, int, int]:
        """All that was kept back, which is nobody else's from here on."""
        tally, samples, calls = Tally(), 0, 0
        while True:
            try:
                kept, of_samples, of_calls = self._kept.popleft()
            except IndexError:
                return tally, samples, calls
            tally.merge(kept)
            samples, calls = samples + of_samples, calls + of_calls


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())

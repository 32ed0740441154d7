"""Everything that can go wrong, as one tree.

RewardcoreError
├── ConfigurationError            an argument, a variable or a file is wrong: nothing was sent
│   └── CacheError                the cache file cannot be used
├── NotJudged                     rewards were asked for, and some samples have no verdict
├── AsksJudge                     a judge was asked by what a judge waits for, such as a rubric
├── ServerFailed                  a model server that we started did not come up, or died
└── Failure                       one sample was not judged; never a number
    ├── Unparsed                  a reply, but no valid score in it
    ├── Refused                   the judge declined
    ├── Truncated                 the judge ran out of tokens
    ├── DeadlinePassed            not done in time
    ├── RubricFailed              the rubric itself raised
    ├── GeneratorFailed           a local model could not answer this prompt
    ├── JudgeClosed               close() came first
    ├── WorkerDied                the process that held the sample is gone           (retried)
    ├── Stalled                   no reply in the time that one may take             (retried)
    ├── ConnectionFailed          no connection, or it broke                         (retried)
    │   ├── Disconnected          closed before the first byte: a stale keep-alive   (retried, the first one free)
    │   ├── UnknownHost           the name does not exist                            (retried, if it ever replied)
    │   ├── TlsFailed             certificate or handshake                           (opens the breaker at first)
    │   └── NeverAnswered         nobody there within startup_timeout                (opens the breaker)
    ├── BrokenReply               bytes that are not a whole JSON document           (retried)
    ├── UnexpectedReply           JSON, but not a chat completion
    │   └── ReplyTooLarge         cut at the cap
    └── StatusFailure             an HTTP status other than 200
        ├── Transient             408, 409, 425, 5xx                                 (retried)
        │   └── Overloaded        503, 529                                           (retried until the deadline)
        │       └── RateLimited   429                                                (retried until the deadline)
        ├── Rejected              400, 422 and the rest
        │   └── WrongPath         404, 405, redirects                                (opens the breaker at first)
        └── Denied                401                                                (opens the breaker)
            ├── Forbidden         403: a key, or one sample's content                (opens the breaker at first)
            └── QuotaExhausted    insufficient_quota                                 (opens the breaker)

A class says how its kind is treated (`status`, `retryable`, `opens_breaker`, always or until the endpoint has first
replied); the retry layer reads only that, and only of what the endpoint brought about. An open breaker ends the calls
that are open at that moment, and no later one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from .verdict import Status, Verdict
from .words import cut

if TYPE_CHECKING:
    from .reply import Quota, Reply


class RewardcoreError(Exception):
    """The root of everything this package raises."""


class ConfigurationError(RewardcoreError, ValueError):
    """The message names the argument or variable and says what to do."""


@contextmanager
def needs_extra(extra: str, who: str) -> Iterator[None]:
    """Around the import of an optional package: where it is missing, the sentence names the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"{who} needs an extra ({error}): pip install 'rewardcore[{extra}]'") from error


class CacheError(ConfigurationError):
    """The cache file cannot be used; the message names its path."""


class AsksJudge(RewardcoreError):
    """A rubric's `messages` or `parse`, or a caller's own cache, waits for a judge that may have to wait for it."""


class NotJudged(RewardcoreError):
    """There is no reward, since a failure is no number. `failed` has the verdicts, by their places in the batch."""

    def __init__(self, failed: Mapping[int, Verdict], total: int) -> None:
        super().__init__(failed, total)
        self.failed = failed
        self.total = total

    def __str__(self) -> str:
        places = [*map(str, list(self.failed)[:8]), *["…"] * (len(self.failed) > 8)]
        reasons = Counter(verdict.error or verdict.status for verdict in self.failed.values())
        why = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(3))
        return f"{len(self.failed)} of {self.total} not judged (at {', '.join(places)}), so there are no rewards: {why}"


class ServerFailed(RewardcoreError):
    """A server of our own did not come up, or died: `sentence` says what to do, `tail` is the end of its log."""

    def __init__(self, sentence: str, tail: str = "") -> None:
        super().__init__(sentence, tail)
        self.sentence = sentence
        self.tail = tail

    def __str__(self) -> str:
        return f"{self.sentence}; the end of its log:\n{self.tail}" if self.tail else self.sentence


class Failure(RewardcoreError):
    """One sample was not judged. A rubric may raise Unparsed, Refused or Truncated; any other becomes RubricFailed."""

    status: ClassVar[Status] = "failed"
    retryable: ClassVar[bool] = False
    opens_breaker: ClassVar[bool] = False
    opens_breaker_at_first: ClassVar[bool] = False

    #: Seconds the endpoint asked us to wait, where it did.
    retry_after: float | None = None
    #: What the endpoint said of its quota, where it did.
    quota: Quota | None = None
    #: What the judge did say, where it said something: shown and counted, never cached.
    reply: Reply | None = None

    @property
    def kind(self) -> str:
        return type(self).__name__


class Unparsed(Failure, ValueError):
    """A reply came, but there is no valid score in it: what a rubric's `parse` raises."""

    status = "unparsed"


class Refused(Failure):
    status = "refused"


class Truncated(Failure):
    status = "truncated"


class DeadlinePassed(Failure):
    status = "timeout"


class RubricFailed(Failure):
    pass


class GeneratorFailed(Failure):
    pass


class JudgeClosed(Failure):
    pass


class WorkerDied(Failure):
    retryable = True


class ConnectionFailed(Failure):
    retryable = True


class Stalled(Failure):
    retryable = True


class Disconnected(ConnectionFailed):
    pass


class UnknownHost(ConnectionFailed):
    opens_breaker_at_first = True


class TlsFailed(ConnectionFailed):
    retryable = False
    opens_breaker_at_first = True


class NeverAnswered(ConnectionFailed):
    retryable = False
    opens_breaker = True


class BrokenReply(Failure):
    retryable = True


class UnexpectedReply(Failure):
    pass


class ReplyTooLarge(UnexpectedReply):
    pass


class StatusFailure(Failure):
    pass


class Transient(StatusFailure):
    retryable = True


class Overloaded(Transient):
    pass


class RateLimited(Overloaded):
    pass


class Rejected(StatusFailure):
    pass


class WrongPath(Rejected):
    opens_breaker_at_first = True


class Denied(StatusFailure):
    opens_breaker = True


class Forbidden(Denied):
    opens_breaker = False
    opens_breaker_at_first = True


class QuotaExhausted(Denied):
    pass


def described(error: BaseException) -> str:
    """Its class and its words, also where it cannot say any."""
    try:
        return cut(f"{type(error).__name__}: {error}")
    except Exception:
        return f"{type(error).__name__}, which says nothing"


def is_ctrl_c(error: BaseException) -> bool:
    """Ctrl-C comes to the main thread, from outside; anywhere else somebody's code raised it by itself."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def ends_run(verdict: Verdict, has_replied: bool) -> bool:
    """Whether every further sample would meet the same, which says nothing about the ones that met it first.

    `has_replied` says whether the endpoint, and not only a cache, has answered anybody in this run.
    """
    kind = globals().get((verdict.error or "").partition(": ")[0])
    if verdict.status != "failed" or not (isinstance(kind, type) and issubclass(kind, Failure)):
        return False
    return kind is JudgeClosed or kind.opens_breaker or (kind.opens_breaker_at_first and not has_replied)

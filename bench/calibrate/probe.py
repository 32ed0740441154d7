"""Asks an endpoint at rising concurrency, and writes down what it saw: nothing is tried again, nothing is cached.

Each stage keeps so many requests in flight, by as many workers. One that is refused leaves its stage, so that what
stays is what the endpoint bears; then a last stage presses on, to tell a cap from a rate. What goes over the wire is
metered: no more does than was said beforehand.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bench.calibrate.attempts import Attempt, Outcome
from bench.metered import Meter
from bench.scenarios import Scenario, samples_of
from rewardcore import Endpoint, Sample
from rewardcore.failures import Denied, Failure, Overloaded, Rejected, Stalled
from rewardcore.http.request import RequestBuilder
from rewardcore.http.transports import Transport
from rewardcore.reply import Answer, Reply
from rewardcore.rubrics import Rubric

#: Each level has so many times the requests in flight of the one before, down to one at once.
_STEP = 4
#: A stage sends so many requests for each of its workers, or so many at least: the first wave does not count. The
#: highest, which says most of a large batch, sends so many where that fits below the cap and nothing is refused.
_WAVES, _FEWEST, _MOST_WAVES = 3, 8, 6
#: Shares of the allowed tokens that replies are also asked for, where so many are in flight; and how many of each.
_LENGTHS, _LENGTHS_AT_ONCE, _OF_EACH = (0.125, 0.5), 4, 12
#: What tells a cap from a rate: at most so many requests, half as many again at once as were borne.
_PRESSING, _PRESSED = 160, 1.5
#: How often, and after how many seconds, an endpoint is asked that refuses the very first request.
_CONTACTS, _CONTACT_SECONDS = 3, 1.0
#: A rough rule for text in English.
_CHARACTERS_PER_TOKEN = 4

#: Told what is being done, and how much of how much there is of it.
Tell = Callable[[str, int, int], object]


class ProbeFailed(RuntimeError):
    """The endpoint cannot be calibrated: one sentence that says why."""


@dataclass(frozen=True)
class Plan:
    """The levels, each with how many requests it sends, and the cap for everything."""

    levels: tuple[tuple[int, int], ...]
    max_requests: int

    @classmethod
    def within(cls, max_requests: int, max_concurrent: int) -> Plan:
        """As many levels as fit; raises ValueError where not even the lowest two do."""
        ladder = itertools.takewhile(lambda level: level < max_concurrent, (_STEP**step for step in itertools.count()))
        levels = [(level, _quota(level)) for level in [*ladder, max_concurrent]]
        while len(levels) > 2 and _others() + sum(quota for _, quota in levels) > max_requests:
            levels.pop()
        plan = cls(tuple(levels), max_requests)
        if plan.requests > max_requests:
            raise ValueError(f"--max-requests must be at least {plan.requests}, not {max_requests}")
        highest, quota = levels.pop()
        most = max(quota, min(_MOST_WAVES * highest, quota + max_requests - plan.requests))
        return replace(plan, levels=(*levels, (highest, most)))

    @property
    def requests(self) -> int:
        """What it sends if nothing is refused."""
        return _others() + sum(quota for _, quota in self.levels)

    @property
    def highest(self) -> int:
        return self.levels[-1][0]

    def cost(self, endpoint: Endpoint, rubric: Rubric) -> str:
        """Told before anything is sent."""
        builder = RequestBuilder(endpoint, rubric)
        bodies = [len(builder.build(sample).body) for sample in fresh_samples(16, seed=0)]
        read = sum(bodies) // len(bodies) // _CHARACTERS_PER_TOKEN
        limit = endpoint.reply_limit()
        most = "" if limit is None else f", each with at most {limit[1]:,} completion tokens"
        return (
            f"{self.requests} requests of about {read:,} prompt tokens ({self.requests * read:,} in all){most}; "
            f"never more than {self.max_requests} on the wire (--max-requests)"
        )


def _quota(level: int) -> int:
    return max(_FEWEST, _WAVES * level)


def _others() -> int:
    """Requests besides the levels': the first contact, and other lengths."""
    return 1 + len(_LENGTHS) * _OF_EACH


def fresh_samples(n: int, seed: int) -> list[Sample]:
    """The benchmarks' samples, each begun with the seed: no server has their prompts in its prefix cache."""
    samples = samples_of(Scenario("calibrate", n, "asyncio", "real", seed=seed))
    return [replace(sample, prompt=f"[{seed:08x}] {sample.prompt}") for sample in samples]


def probe(
    endpoint: Endpoint, rubric: Rubric, plan: Plan, tell: Tell, *, seed: int, request_timeout: float = 120.0
) -> list[Attempt]:
    """Every attempt that was made. Raises ProbeFailed, with how many requests were spent, where it cannot go on."""
    from rewardcore.http.transports.aiohttp_client import AiohttpTransport

    async def run() -> list[Attempt]:
        meter = Meter(plan.max_requests, request_timeout)
        transport = meter.wrap(AiohttpTransport(endpoint))
        prober = _Prober(endpoint, rubric, transport, meter, tell, seed, request_timeout)
        try:
            await prober.climb(plan)
        except ProbeFailed as error:
            what = " ".join(endpoint.mask()(str(error)).split())
            raise ProbeFailed(f"{what} (after {meter.sent} of {meter.cap} requests)") from None
        finally:
            await transport.close()
        return prober.attempts

    return asyncio.run(run())


class _Prober:
    def __init__(
        self,
        endpoint: Endpoint,
        rubric: Rubric,
        transport: Transport,
        meter: Meter,
        tell: Tell,
        seed: int,
        request_timeout: float,
    ) -> None:
        self.attempts: list[Attempt] = []
        self._transport, self._meter = transport, meter
        self._request_timeout = request_timeout
        self._endpoint, self._rubric = endpoint, rubric
        self._tell = tell
        self._samples: Iterator[Sample] = iter(fresh_samples(meter.cap, seed))
        self._draw = random.Random(seed)
        self._stage = 0

    async def climb(self, plan: Plan) -> None:
        self._total = plan.requests
        self._tell("first contact", 0, self._total)
        await self._contact()
        for at_once, quota in plan.levels:
            refused = await self._run_stage(f"{at_once} at once", at_once, quota)
            if at_once == min(_LENGTHS_AT_ONCE, plan.highest) and not refused:
                await self._vary_length(at_once)
            if refused:
                await self._press()
                return

    async def _contact(self) -> None:
        """The first reply, which may have to wake a model, is nobody's latency."""
        for _ in range(_CONTACTS):
            attempt = await self._ask(RequestBuilder(self._endpoint, self._rubric), 1, 0)
            self.attempts.clear()
            if attempt.outcome == "replied":
                return
            if attempt.outcome == "failed":
                raise ProbeFailed(f"{self._endpoint.host} does not judge: {attempt.error}")
            await asyncio.sleep(min(_CONTACT_SECONDS, attempt.retry_after or _CONTACT_SECONDS))
        raise ProbeFailed(f"{self._endpoint.host} refuses everything, even one at once: {attempt.error}")

    async def _vary_length(self, at_once: int) -> None:
        limit = self._endpoint.reply_limit()
        if limit is None:
            return
        name, tokens = limit
        for share in _LENGTHS:
            body = {**(self._endpoint.extra_body or {}), name: max(1, int(share * tokens))}  # it overrides the rest
            shorter = replace(self._endpoint, extra_body=body)
            await self._run_stage(f"{int(share * tokens)} tokens", at_once, _OF_EACH, shorter)

    async def _press(self) -> None:
        """Those that are refused come again after half a reply's time, whatever Retry-After says: they are few."""
        last = [attempt for attempt in self.attempts if attempt.stage == self._stage]
        refused = sum(attempt.outcome == "refused" for attempt in last)
        stayed = max(1, last[0].at_once - refused)
        seconds = [attempt.seconds for attempt in self.attempts if attempt.outcome == "replied"]
        pause = sum(seconds) / len(seconds) / 2 if seconds else _CONTACT_SECONDS
        quota = min(_PRESSING, self._meter.cap - self._meter.sent)
        self._total = self._meter.sent + quota
        await self._run_stage("the limit", math.ceil(_PRESSED * stayed) + 1, quota, pause=pause)

    async def _run_stage(
        self, what: str, at_once: int, quota: int, shorter: Endpoint | None = None, pause: float | None = None
    ) -> int:
        """How many were refused."""
        self._stage += 1
        builder = RequestBuilder(shorter or self._endpoint, self._rubric)
        numbers = iter(range(min(quota, self._meter.cap - self._meter.sent)))
        outcomes = {"replied": 0, "refused": 0, "failed": 0}

        async def work() -> None:
            for number in numbers:
                if outcomes["refused"] and pause is None and number >= _quota(at_once):
                    return  # what is left of the budget is for pressing on
                self._tell(what, self._meter.sent, self._total)
                attempt = await self._ask(builder, at_once, number, is_short=shorter is not None)
                outcomes[attempt.outcome] += 1
                if outcomes["failed"] > _FEWEST and outcomes["failed"] > outcomes["replied"]:
                    raise ProbeFailed(f"most requests fail with {what}: {attempt.error or self._last_error()}")
                if attempt.outcome == "refused":
                    if pause is None:
                        return
                    await asyncio.sleep(pause * (0.5 + self._draw.random()))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(work())
        except* ProbeFailed as failures:
            raise failures.exceptions[0] from None
        return outcomes["refused"]

    async def _ask(self, builder: RequestBuilder, at_once: int, number: int, is_short: bool = False) -> Attempt:
        body = builder.build(next(self._samples)).body
        sent = time.perf_counter()
        failure: Failure | None = None
        reply: Reply | Answer | None = None
        try:
            async with asyncio.timeout(self._request_timeout):
                reply = await self._transport.send(body)
        except TimeoutError:
            failure = Stalled(f"{self._endpoint.host} gave no whole answer within {self._request_timeout:g} s")
        except Failure as error:
            failure, reply = error, error.reply
        seconds = time.perf_counter() - sent
        attempt = Attempt(self._stage, at_once, number, sent, seconds, "replied", is_short=is_short)
        if isinstance(reply, Reply):
            is_cut = failure is not None and failure.status == "truncated"
            attempt = attempt._replace(tokens=(reply.usage or {}).get("completion_tokens"), is_cut=is_cut)
        elif isinstance(failure, (Rejected, Denied)) or (failure is not None and failure.opens_breaker):
            raise ProbeFailed(f"{failure.kind}: {failure}")  # and so would all others be
        elif failure is not None:
            outcome: Outcome = "refused" if isinstance(failure, Overloaded) else "failed"
            error_text = f"{failure.kind}: {failure}"
            attempt = attempt._replace(outcome=outcome, retry_after=failure.retry_after, error=error_text)
        self.attempts.append(attempt)
        return attempt

    def _last_error(self) -> str:
        return next((attempt.error for attempt in reversed(self.attempts) if attempt.error), "")

"""A simulated judge behind respx, on a virtual clock: the real clients ask it, and it counts what they do.

What it answers and how fast is rewardcore.testing's to say. Besides, it notes what only an endpoint can see: how long
whoever was refused stays away, and what was sent before. Not for aiohttp, which respx does not see.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from bench.virtual import VirtualClock
from rewardcore.testing.latency import LatencyModel
from rewardcore.testing.replies import Answer, SimulatedJudge

if TYPE_CHECKING:
    import httpx
    import respx


class MountedJudge:
    """A simulated judge behind respx. `last_reply` is the virtual time at which it last answered.

    `pauses` are how long after a refusal, or a failure, the same request came again, and `too_soon` how many of them
    came before the time that Retry-After had asked for; `witness` sees every body.
    """

    def __init__(
        self,
        router: respx.MockRouter,
        clock: VirtualClock,
        judge: SimulatedJudge,
        witness: Callable[[bytes], object] | None = None,
    ) -> None:
        self.router = router
        self.clock = clock
        self.judge = judge
        self.witness = witness
        self.last_reply = 0.0
        self._lock = threading.Lock()
        self._forget()

    def reset(self) -> None:
        """Between rounds: forget counts and draws, and the calls, every one of which respx keeps."""
        self.judge.reset()
        self.router.reset()
        self._forget()

    def _forget(self) -> None:
        self.pauses: list[float] = []
        self.too_soon = 0
        self._refused_at: dict[bytes, tuple[float, float]] = {}  # body → when, and how long it was to wait

    def answer(self, request: httpx.Request) -> httpx.Response | Coroutine[Any, Any, httpx.Response]:
        """The side effect. respx does not say which client asks: inside a running loop it is an async one."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.answer_sync(request)
        return self.answer_async(request)

    def answer_sync(self, request: httpx.Request) -> httpx.Response:
        answer = self._arrive(request)
        try:
            if answer.seconds > 0:
                self.clock.sleep(answer.seconds)
        finally:
            self._leave()
        return self._respond(request, answer)

    async def answer_async(self, request: httpx.Request) -> httpx.Response:
        answer = self._arrive(request)
        try:
            if answer.seconds > 0:
                await asyncio.sleep(answer.seconds)
        finally:
            self._leave()
        return self._respond(request, answer)

    def _arrive(self, request: httpx.Request) -> Answer:
        body, now = request.content, self.clock.now()
        with self._lock:
            if self.witness is not None:
                self.witness(body)
            if body in self._refused_at:
                refused_at, asked = self._refused_at.pop(body)
                self.pauses.append(now - refused_at)
                self.too_soon += now < refused_at + asked
            answer = self.judge.arrive(body, now)
            if answer.status != 200:
                self._refused_at[body] = now + answer.seconds, float(dict(answer.headers).get("retry-after", 0.0))
            return answer

    def _leave(self) -> None:
        with self._lock:
            self.judge.leave()
            self.last_reply = self.clock.now()

    def _respond(self, request: httpx.Request, answer: Answer) -> httpx.Response:
        import httpx

        headers = [("content-type", "application/json"), *answer.headers]
        return httpx.Response(answer.status, headers=headers, content=answer.body, request=request)


def mount_judge(
    router: respx.MockRouter,
    clock: VirtualClock,
    latency: LatencyModel,
    *,
    base_url: str = "http://judge.test/v1",
    model: str | None = None,
    witness: Callable[[bytes], object] | None = None,
) -> MountedJudge:
    """Answer POST {base_url}/chat/completions on this clock, for sync and async httpx clients alike.

    Open the router with `respx.mock(assert_all_called=False)`: after `reset` it has no calls to show.
    """
    mounted = MountedJudge(router, clock, SimulatedJudge(latency, model), witness)
    router.post(f"{base_url}/chat/completions").mock(side_effect=mounted.answer)
    return mounted

"""Defects to plant in a copy of the package, one at a time, each with the exact figure that must tell of it.

A harness that does not see them proves nothing. They are edits of the source, so that they reach every process of the
copy. An edit whose text is no longer there raises, and is then to be written anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Defect:
    """`edits` are (file, what stands there, what takes its place); `seen_by` are the scenario and its metric."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    seen_by: tuple[str, str]


_AIOHTTP = "rewardcore/http/transports/aiohttp_client.py"
_HTTPX = "rewardcore/http/transports/httpx_client.py"
_POOL = "rewardcore/http/transports/worker_pool.py"
_ENGINE = "rewardcore/http/engine.py"
_RETRY = "rewardcore/http/retry.py"
_JUDGE = "rewardcore/judge.py"
_STREAM = "rewardcore/stream.py"

_SENT = "    async def send(self, body: bytes) -> Reply:\n"
_SENT_TWICE = (
    "    async def send(self, body: bytes, again: bool = True) -> Reply:\n"
    "        if again:\n            await self.send(body, False)\n"
)
_ASK = "            return await worker.ask(body)\n"
_ASK_IN_TURN = "            async with self._turns:\n                return await worker.ask(body)\n"
_IDLE = "        self._idle: list[_Worker] = []\n"
_SEND = "            response = self._client.send(self._exchange.request(body), stream=True)\n"
_KEPT = "limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)"
_FOUND = "            if reply is not None:  # out of the cache"


def _connector(limit: str) -> tuple[tuple[str, str, str], ...]:
    return ((_AIOHTTP, "            limit=0, ttl_dns_cache", f"            {limit}, ttl_dns_cache"),)


def _pool_in_turns(workers: int) -> tuple[tuple[str, str, str], ...]:
    turns = f"        self._turns = asyncio.Semaphore({workers})\n"
    return (_POOL, _IDLE, _IDLE + turns), (_POOL, _ASK, _ASK_IN_TURN)


DEFECTS = [
    Defect("aiohttp: one request at a time", _connector("limit=1"), ("wire-few", "peak in flight")),
    Defect("aiohttp: capped at 30 connections", _connector("limit=30"), ("wire-asyncio", "peak in flight")),
    Defect("aiohttp: every request sent twice", ((_AIOHTTP, _SENT, _SENT_TWICE),), ("wire-asyncio", "requests")),
    Defect("aiohttp: no keep-alive", _connector("limit=0, force_close=True"), ("wire-asyncio", "connections opened")),
    Defect(
        "aiohttp in a child: capped at 30 connections",
        _connector("limit=30"),
        ("wire-asyncio-child", "peak in flight"),
    ),
    Defect(
        "aiohttp in a child: no keep-alive",
        _connector("limit=0, force_close=True"),
        ("wire-asyncio-child", "connections opened"),
    ),
    Defect(
        "httpx: capped at 30 connections",
        ((_HTTPX, _KEPT, "limits = httpx.Limits(max_connections=30, max_keepalive_connections=None)"),),
        ("wire-asyncio-httpx", "peak in flight"),
    ),
    Defect(
        "httpx: no keep-alive",
        ((_HTTPX, _KEPT, "limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)"),),
        ("wire-asyncio-httpx", "connections opened"),
    ),
    Defect("processes: one request at a time", _pool_in_turns(1), ("wire-process", "peak in flight")),
    Defect("processes: half of them idle", _pool_in_turns(2), ("wire-process", "peak in flight")),
    Defect(
        "processes: every request sent twice",
        ((_HTTPX, _SEND, "            self._client.send(self._exchange.request(body))\n" + _SEND),),
        ("wire-process", "requests"),
    ),
    Defect(
        "processes: no keep-alive",
        (
            (
                _HTTPX,
                "httpx.Client(verify=self._tls, trust_env=False)",
                "httpx.Client(verify=self._tls, limits=httpx.Limits(max_keepalive_connections=0))",
            ),
        ),
        ("wire-process", "connections opened"),
    ),
    Defect(
        "a permit is lost with every 429",
        (
            (
                _ENGINE,
                "        failure, reply = answer.failure, answer.reply or answer.said\n",
                "        failure, reply = answer.failure, answer.reply or answer.said\n"
                "        self.stats.in_flight += failure is not None\n",
            ),
        ),
        ("refused-crowd", "pause before a retry"),
    ),
    Defect(
        "Retry-After is ignored",
        (
            (
                _RETRY,
                '    milliseconds = headers.get("retry-after-ms")\n',
                '    return None\n    milliseconds = headers.get("retry-after-ms")\n',
            ),
        ),
        ("refused-crowd", "asked before Retry-After"),
    ),
    Defect(
        "no backoff at all",
        ((_RETRY, "    return uniform() * ceiling\n", "    return 0.0\n"),),
        ("refused-flaky", "pause before a retry"),
    ),
    Defect(
        "a verdict loses its text",
        (
            (
                "rewardcore/reply.py",
                'return Verdict("ok", self.score, text, None,',
                'return Verdict("ok", self.score, "", None,',
            ),
        ),
        ("respx/asyncio-httpx/16", "verdict digest"),
    ),
    Defect(
        "submit reads every sample before it returns",
        (
            (
                _JUDGE,
                "        batch = Batch(list(_numbered(samples)), ",
                "        samples = list(samples)\n        for sample in samples:\n            repr(sample)\n"
                "        batch = Batch(list(_numbered(samples)), ",
            ),
        ),
        ("respx/asyncio-httpx/16", "work of submit"),
    ),
    Defect(
        "a stream keeps the calls that are over",
        ((_STREAM, "            self._calls.popleft()\n", "            break\n"),),
        ("calls-stream", "left behind by a stream"),
    ),
    *(
        Defect(
            f"one reply in a thousand out of the {where} is another's",
            (
                (
                    _ENGINE,
                    _FOUND,
                    "            if reply is not None and int.from_bytes(request.key[:2]) < 66:\n"
                    '                reply = reply._replace(text=reply.text.replace("<score>", "<score>1"))\n' + _FOUND,
                ),
            ),
            (f"warm-{where}", "wrong from the cache"),
        )
        for where in ("memory", "file")
    ),
    Defect(
        "responses to one prompt no longer share it",
        (
            (
                "rewardcore/http/request.py",
                "        messages = ask(self._rubric, sample)\n",
                "        messages = ask(self._rubric, sample)\n"
                '        messages = [{"role": "system", "content": str(hash(sample))}, *messages]\n',
            ),
        ),
        ("calls-groups", "prefix share"),
    ),
    Defect(
        "a storm is waited out for too long",
        (
            (
                "rewardcore/http/pace/states.py",
                "FIRST_PAUSE, LONGEST_PAUSE = 0.125, 8.0",
                "FIRST_PAUSE, LONGEST_PAUSE = 0.125, 60.0",
            ),
            ("rewardcore/http/pace/states.py", "_GROWTH, _JITTER = 1.3, 0.25", "_GROWTH, _JITTER = 4.0, 0.25"),
        ),
        ("refused-storm", "makespan"),
    ),
    Defect(
        "a wave waits for its slowest",
        (
            (
                _ENGINE,
                "        wait = self.pace.wait(now, self.stats.in_flight)\n",
                "        wait = self.pace.wait(now, self.stats.in_flight)\n"
                "        flying = self.stats.in_flight\n"
                "        self._dying = flying >= self.pace.window or (self._dying and flying)\n"
                "        wait = math.inf if self._dying else wait\n",
            ),
        ),
        ("uneven-stragglers", "makespan"),
    ),
    Defect(
        "calls gather for a tenth of a second before they are read",
        (
            (
                "rewardcore/http/drivers/loop.py",
                "self.loop.call_soon_threadsafe(self._read_post)",
                "self.loop.call_soon_threadsafe(self.loop.call_later, 0.1, self._read_post)",
            ),
        ),
        ("calls-single", "makespan"),
    ),
]


def edit(defect: Defect, directory: Path) -> None:
    """In whatever directory has the package, be it a checkout or what was installed from one."""
    for file, before, after in defect.edits:
        path = directory / file
        text = path.read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise AssertionError(f"{defect.name!r} stands on a text that {file} has {text.count(before)} times")
        path.write_text(text.replace(before, after), encoding="utf-8")

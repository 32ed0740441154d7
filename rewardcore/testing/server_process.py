"""Starts rewardcore.testing.server in a process of its own, and surely stops it: for benchmarks and tests.

`with SimulatedServer(Profile(latency=0.2)) as server:` gives `server.endpoint`; a server that dies says why,
with the end of its stderr. refuse_if_saturated keeps a client's figure honest: where the server's core was
full, the figure is the server's own. Not for real endpoints.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ..http.endpoint import Endpoint
from .latency import Profile
from .profiles import named
from .script import Step, When

SATURATED = 0.9
STDERR_TAIL = 2000


class ServerDied(RuntimeError):
    """The simulated server is gone, or never came up."""


class SaturatedServer(RuntimeError):
    """The simulated server, not the client, set the pace."""


@dataclass(frozen=True)
class Stats:
    """The server's counters since its last reset; CPU and wall seconds since its start."""

    requests: int
    in_flight: int
    peak_in_flight: int
    statuses: dict[str, int]
    connections_open: int
    connections_opened: int
    late_seconds: float  # by how much replies left after they were due, all together
    cpu_seconds: float
    wall_seconds: float


def saturation(before: Stats, after: Stats) -> float:
    """The share of one core that the server used between two readings."""
    wall = after.wall_seconds - before.wall_seconds
    return (after.cpu_seconds - before.cpu_seconds) / wall if wall > 0 else 0.0


def refuse_if_saturated(before: Stats, after: Stats) -> None:
    share = saturation(before, after)
    if share > SATURATED:
        raise SaturatedServer(
            f"the simulated server used {share:.0%} of its core in this window, so the figure is the server's"
            " and not the client's: raise --latency or send fewer requests at once"
        )


class SimulatedServer:
    """A context manager around a simulated judge in a process of its own, which ends with the block or with its parent.

    `profile` is a Profile, or the name of one (`rewardcore simulate --profiles` lists them). `model` is the only name
    that is served; None serves any.
    """

    def __init__(
        self,
        profile: Profile | str | None = None,
        *,
        model: str | None = None,
        seed: int = 0,
        port: int = 0,
        ready_timeout: float = 30.0,
    ) -> None:
        self._profile = named(profile)
        self._model = model
        self.arguments = [*self._profile.to_arguments(), "--seed", str(seed), "--port", str(port)]
        if model is not None:
            self.arguments += ["--model", model]
        self.port = port
        self._ready_timeout = ready_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def endpoint(self) -> Endpoint:
        """Ready for `open_judge`; no key is needed."""
        return Endpoint(self.base_url, self._model or "judge", api_key_env=None)

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the server is started by `with`"
        return self._process.pid

    def __enter__(self) -> SimulatedServer:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._stderr = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rewardcore.testing.server", *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, "PYTHONPATH": path},
            )
            self.port = self._wait_until_ready(self._process)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], self._ready_timeout)
        line = process.stdout.readline() if readable else b""
        if not line:
            late = f"was not ready after {self._ready_timeout:g} s"
            raise self._death("ended before it was ready" if readable else late)
        return int(json.loads(line)["port"])

    def _death(self, state: str) -> ServerDied:
        assert self._process is not None
        assert self._stderr is not None
        if state.startswith("ended"):
            state += f" (exit code {self._process.wait()})"
        self._stderr.seek(0)
        tail = self._stderr.read()[-STDERR_TAIL:].decode(errors="replace").strip()
        return ServerDied(f"the simulated server {state}; the end of its stderr:\n{tail or '(nothing)'}")

    def stats(self) -> Stats:
        return Stats(**json.loads(self._request("GET", "/_stats")))

    def reset(self, profile: Profile | str | None = None, **changes: Any) -> None:
        """Begin again: nothing counted, drawn or scripted; with this profile, or else the one of the start.

        `reset("limited", latency=0.1)` takes a profile by its name and changes a field of it.
        """
        begun = named(self._profile if profile is None else profile, **changes)
        self._request("POST", "/_reset", asdict(begun))

    def when(self, text: str) -> When:
        """What the requests get whose messages hold this text: `when("It is 41.").fails(429, times=2).scores(7)`.

        Verbs: scores, answers, says, refuses, truncates, fails. A text told later goes before those told earlier, and
        `when("")` means every request. Before the requests that it is for.
        """
        return When(text, self._tell)

    def _tell(self, text: str, steps: Sequence[Step]) -> None:
        self._request("POST", "/_script", [text, steps])

    def _request(self, method: str, path: str, document: object = None) -> bytes:
        import http.client  # here, since every command of the command line imports this file

        body = b"" if document is None else json.dumps(document).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, headers={"Content-Length": str(len(body))})
            return connection.getresponse().read()
        except OSError as error:
            assert self._process is not None, "the server is started by `with`"
            is_gone = self._process.poll() is not None
            raise self._death("ended" if is_gone else f"does not answer ({error})") from error
        finally:
            connection.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

"""A vLLM server's whole life: checked, started, watched until it is healthy, and stopped, whatever happens to us.

`with rewardcore.VllmServer("path/to/model") as endpoint:` is all that is needed. What vLLM says goes to a log file, and
its end into the error where it dies. Not for servers that others have started: those are an `Endpoint` at once.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from ..arguments import check_whole, is_number
from ..failures import ConfigurationError, ServerFailed
from ..http.endpoint import Endpoint
from ..progress import Say, waiting
from . import launch
from . import port as ports
from .kept import KeptProcess
from .log import ServerLog, sentence

_GRACE_SECONDS = 10.0
#: While it starts there is nothing to finish, and vLLM hears no SIGTERM while it waits for its engine.
_STARTING_GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.25
_HEALTH_SECONDS = 2.0


class VllmServer:
    """A context manager that gives the `Endpoint` of a vLLM server on this machine; or `start` and `stop` it by hand.

    `model_path` is a directory or a hub's name, `model_name` what requests call it; `port=0` takes any free one.
    `arguments` go to vLLM as they stand (`["--dtype", "float32"]`), `environment` is added to ours. Its log is
    `log_dir/<model_name>_vllm.log`. While it starts, a person is told on stderr: `progress=False` tells nobody, a
    function is told each line. A start that fails, and a death later (`raise_if_dead`), is a `ServerFailed` with the
    log's end. `dataclasses.replace(endpoint, temperature=1.0)` changes how it is asked.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        model_name: str | None = None,
        port: int = 8000,
        log_dir: str | os.PathLike[str] = "logs",
        arguments: Sequence[str] = (),
        startup_timeout: float = 1200.0,
        environment: Mapping[str, str] | None = None,
        progress: bool | Say = True,
    ) -> None:
        self.model_path, self.model_name = launch.model_named(model_path, model_name)
        check_whole("port", port, least=0, most=65535)
        if not (is_number(startup_timeout) and startup_timeout > 0):
            raise ConfigurationError(f"startup_timeout must be seconds above 0, not {startup_timeout!r}")
        self.port = self._asked_port = port
        self.log_path = Path(os.path.expanduser(log_dir)).absolute() / f"{launch.file_name(self.model_name)}_vllm.log"
        self.startup_timeout = startup_timeout
        self._arguments = launch.check_arguments(arguments)
        self._environment = launch.check_environment(environment)
        self._progress = progress
        self._process: KeptProcess | None = None
        self._log = ServerLog(self.log_path)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"VllmServer({self.model_path!r}, {self.model_name!r}, port={self.port})"

    def __enter__(self) -> Endpoint:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> Endpoint:
        """Its address. In the cache's keys the model's path stands for the port, which says nothing of the model."""
        return Endpoint(
            f"http://{ports.ADDRESS}:{self.port}/v1",
            self.model_name,
            api_key_env=launch.API_KEY,
            identity=f"vllm:{self.model_path}",
        )

    @property
    def alive(self) -> bool:
        process = self._process
        return process is not None and not process.ended()

    def raise_if_dead(self) -> None:
        """Says why it has ended, if it has, with the log's end."""
        process = self._process
        if process is None:
            raise ConfigurationError("this VllmServer is not running: use it as `with VllmServer(…) as endpoint:`")
        if process.ended():
            raise self._death(process, "died")

    def start(self) -> Endpoint:
        """Back when it answers; whatever goes wrong, and Ctrl-C, leaves nothing behind."""
        with self._lock:
            if self._process is not None:
                raise ConfigurationError(
                    f"this VllmServer runs already, on port {self.port}: make another for a second server"
                )
            launch.check_vllm()
            self.port = ports.free_port(self._asked_port)
            command = launch.command(self.model_path, self.model_name, ports.ADDRESS, self.port, self._arguments)
            with self._log.opened(command) as log:
                process = self._process = KeptProcess(command, log, launch.inherited(self._environment), _GRACE_SECONDS)
        try:
            self._wait_until_healthy(process)
        except BaseException:
            self._stop(_STARTING_GRACE_SECONDS)
            raise
        return self.endpoint

    def stop(self) -> None:
        """SIGTERM, SIGKILL after 10 s; back when none of its processes is left. Twice is fine."""
        self._stop()

    def _stop(self, grace: float | None = None) -> None:
        process = self._process
        if process is not None:
            process.stop(grace)
            self._process = None

    def _wait_until_healthy(self, process: KeptProcess) -> None:
        began = time.monotonic()
        with waiting("vLLM", self._progress) as tell:
            while not self._is_healthy():
                if process.ended(_POLL_SECONDS):
                    raise self._early_death(process)
                seconds = time.monotonic() - began
                if seconds > self.startup_timeout:
                    raise ServerFailed(
                        f"vLLM was not ready after {seconds:.0f} s: give it longer with startup_timeout, or see what"
                        f" holds it up in {self.log_path}",
                        self._log.tail(),
                    )
                tell(seconds, self._log.last_line())
        if process.ended():
            raise self._early_death(process)
        if not ports.is_held_by(self.port, process.has):  # taken since we looked, and it was that one that answered
            raise ports.in_use(self.port)

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(ports.ADDRESS, self.port, timeout=_HEALTH_SECONDS)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        return False

    def _early_death(self, process: KeptProcess) -> ServerFailed:
        if process.was_stopped:
            return ServerFailed("vLLM was stopped while it started: stop() was called in another thread")
        return self._death(process, "ended before it was ready")

    def _death(self, process: KeptProcess, how: str) -> ServerFailed:
        return ServerFailed(sentence(how, process.exit_code, self._log.lines(), self.log_path), self._log.tail())

"""Whatever is told to people, logs, caches and watchers happens beside a call: the verdicts come all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import rewardcore as rc
from rewardcore.progress import Progress
from rewardcore.reply import Reply
from tests.modes.conftest import MODES, Opener
from tests.modes.hostile_server import HostileServer, breathing, says
from tests.modes.scripts import run_script

#: By then a call that never ends is known for one.
_GUARD = 25.0


def one_unparsed_of_20(server: HostileServer) -> list[rc.Sample]:
    return [*server.script(breathing).samples(19), server.script(says("no score at all")).sample()]


def statuses(verdicts: list[rc.Verdict]) -> list[str]:
    return [verdict.status for verdict in verdicts]


class Raising(logging.Handler):
    def __init__(self, error: type[BaseException]) -> None:
        super().__init__(logging.DEBUG)
        self.error = error
        self.met = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.met += 1
        raise self.error("the log's disk is full")


@pytest.fixture(params=[OSError, SystemExit])
def handler(request: pytest.FixtureRequest) -> Iterator[Raising]:
    log, handler = logging.getLogger("rewardcore"), Raising(request.param)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def test_a_logging_handler_that_raises_keeps_no_verdict_back(
    mode: str, open_judge: Opener, server: HostileServer, handler: Raising
) -> None:
    with open_judge(mode) as judge:
        verdicts = judge.submit(one_unparsed_of_20(server)).result(timeout=_GUARD)
        assert statuses(verdicts) == ["ok"] * 19 + ["unparsed"]
        assert sorted(statuses([verdict for _, verdict in judge.stream(one_unparsed_of_20(server))])) == sorted(
            ["ok"] * 19 + ["unparsed"]
        )
    assert handler.met


_DEAD_STDERR = """
import os, sys
import rewardcore as rc

if __name__ == "__main__":
    kind, mode, options, base_url, good, bad = sys.argv[1:]
    if kind == "closed":
        sys.stderr = None
    elif kind == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
    else:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 2)
    samples = [rc.Sample(f"[[{good}]]", str(number)) for number in range(19)] + [rc.Sample(f"[[{bad}]]", "a")]
    with rc.open_judge(mode, rc.Endpoint(base_url, "judge"), cache=None, deadline=20.0, **eval(options)) as judge:
        verdicts = judge.submit(samples).result(timeout=30.0)
        print(*(verdict.status for verdict in verdicts), flush=True)
        print(*(verdict.status for verdict in judge.judge(samples, progress=True)), flush=True)
    os._exit(0)  # an interpreter that cannot flush its stderr exits with 120
"""


@pytest.mark.parametrize("kind", ["full", "broken pipe", "closed"])
def test_a_stderr_that_cannot_be_written_keeps_no_verdict_back(kind: str, mode: str, server: HostileServer) -> None:
    name, options = MODES[mode]
    good, bad = server.script(breathing), server.script(says("no score at all"))
    output, _, code = run_script(_DEAD_STDERR, kind, name, repr(options), server.base_url, good.marker, bad.marker)
    wanted = " ".join(["ok"] * 19 + ["unparsed"])
    assert (output.splitlines(), code) == ([wanted, wanted], 0)


def test_a_watcher_that_raises_is_dropped_with_one_warning(
    mode: str, open_judge: Opener, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(progress: Progress) -> None:
        raise ZeroDivisionError("no bar for nothing")

    with open_judge(mode) as judge:
        verdicts = judge.judge(server.script(breathing).samples(5), progress=raises)
    assert statuses(verdicts) == ["ok"] * 5
    (told,) = [record.getMessage() for record in caplog.records if "progress" in record.getMessage()]
    assert told.startswith("progress raised ZeroDivisionError: no bar for nothing")


# A caller's own cache.


class CallersCache:
    """Does whatever it is made with, instead of keeping anything."""

    def __init__(self, get: Any = None, put: Any = None) -> None:
        self.answer, self.trouble = get, put
        self.asked = self.kept = 0

    def get(self, key: bytes) -> Reply | None:
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        self.kept += 1
        if self.trouble is not None:
            raise self.trouble

    def close(self) -> None:
        raise AssertionError("it is the caller's to close")


HERE = [mode for mode in MODES if mode != "asyncio-child-process"]  # which takes no object for a cache


@pytest.mark.parametrize("mode", HERE)
@pytest.mark.parametrize(
    "cache",
    [CallersCache(get=OSError("gone")), CallersCache(put=OSError("gone")), CallersCache(get=SystemExit("gone"))],
    ids=["get raises", "put raises", "get exits"],
)
def test_a_callers_cache_that_raises_steps_aside_with_one_warning(
    mode: str, cache: CallersCache, open_judge: Opener, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    cache.asked = cache.kept = 0
    script = server.script(breathing)
    with open_judge(mode, cache=cache) as judge:
        verdicts = judge.submit(script.samples(30)).result(timeout=_GUARD)
    assert statuses(verdicts) == ["ok"] * 30
    assert script.requests == 30
    (told,) = [record.getMessage() for record in caplog.records if "cache" in record.getMessage()]
    assert "gone; judging goes on without it" in told
    assert min(cache.asked, cache.kept) <= 1


NONSENSE = {
    "a number": 7,
    "a plain tuple": ("text", None, None),
    "no text": Reply(None),  # type: ignore[arg-type]
    "no usage": Reply("<score>7</score>", "many"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mode", HERE)
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_out_of_a_callers_cache_is_a_miss(
    mode: str, nonsense: str, open_judge: Opener, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    script, cache = server.script(breathing), CallersCache(get=NONSENSE[nonsense])
    with open_judge(mode, cache=cache) as judge:
        verdicts = judge.submit(script.samples(10)).result(timeout=_GUARD)
    assert statuses(verdicts) == ["ok"] * 10
    assert (script.requests, cache.asked, cache.kept) == (10, 10, 10)
    assert len([record for record in caplog.records if "taken for a miss" in record.getMessage()]) == 1

"""Child processes of a history: the parent's `SpawnedChild` and the child's own code as they are, over a played pipe.

Each is drawn a fate: slow to start, unable to, dead or stopped in mid-run, deaf to the signal that asks it to let go,
or one that says what nobody understands. One that is dead never runs again; what it had sent still arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from rewardcore.http.processes import _CANNOT_START, _HEAD, _READY, Listener, SpawnedChild
from tests.simulation.stage import PROCESS, Process
from tests.simulation.threads import Deadlock, Event, Thread, _Dismissed

if TYPE_CHECKING:
    from tests.simulation.world import World


class Fate(NamedTuple):
    """What becomes of a child, and how many seconds after it was started."""

    kind: str = "healthy"
    at: float = 0.0
    starts_in: float = 0.0
    stopped_for: float = 0.0
    lag: float = 0.0


KINDS = {"healthy": 8, "dies": 3, "stops": 3, "no process": 2, "cannot start": 2, "deaf": 2, "babbles": 1}


def draw_fate(world: World) -> Fate:
    dice = world.dice
    (kind,) = dice.choices(list(KINDS), list(KINDS.values())) if world.has_trouble else ["healthy"]
    at, starts_in = dice.choice([0.0, 0.02, 0.6, 3.0, 20.0]), dice.choice([0.0, 0.0, 0.1, 4.0])
    return Fate(kind, at, starts_in, dice.choice([0.1, 3.0, 40.0, 1e6]), dice.choice([0.0, 0.0, 0.002, 0.3]))


class PlayedChild(SpawnedChild):
    """As the parent has it; what the operating system does is played."""

    def __init__(self, world: World, listener: Listener, main: Callable[..., Any], *arguments: Any) -> None:
        self.world = world
        self.number = len(world.children)
        world.children.append(self)
        self.fate = draw_fate(world)
        super().__init__(listener, main, *arguments)

    async def _connect(self, main: Callable[..., Callable[[], None]], arguments: tuple[Any, ...]) -> None:
        self.world.note(f"child {self.number}: {self.fate}")
        await asyncio.sleep(self.world.dice.choice([0.0, 0.0, 0.2]))
        if self.fate.kind == "no process":
            self.give_up("a child process could not start: OSError: out of processes")
            return
        self._process = self._transport = PlayedProcess(self, main, arguments)  # type: ignore[assignment]
        for message in self._early:
            self.write(message)

    def signal(self, number: int) -> None:
        if isinstance(self._process, PlayedProcess):
            self._process.signal(number)

    def give_up(self, reason: str) -> None:
        if not self.reason:
            self.world.note(f"child {self.number} is lost: {reason}")
            self.world.losses += 1
            if self.world.at_loss is not None and isinstance(self._process, PlayedProcess):
                self.world.stage.call_later(self.world.dice.choice([0.0, 0.0, 0.1]), self.world.at_loss)
                self.world.at_loss = None
        super().give_up(reason)


class PlayedProcess(Process):
    """The process, by what `multiprocessing` and a transport of asyncio say of one; and its end of the pipe."""

    def __init__(self, child: PlayedChild, main: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__(child.world.stage)
        self.child, self.world, self.fate = child, child.world, child.fate
        self.sentinel = self  # the stage's add_reader is told by `ended`
        self.pid = 1000 + child.number
        self.ears: Any = None  # the handler of its log
        self.handlers: dict[int, Callable[..., object]] = {}
        self.at_death: list[Callable[[], object]] = []
        self._signals: list[int] = []
        self._inbox: deque[bytes] = deque()
        self._incoming: deque[bytes] = deque()
        self._outbox: deque[bytes] = deque()
        self._is_cut = False
        self._news = Event(self.stage)
        self._watchers: list[Callable[[], object]] = []
        self.has_finished = False  # by itself
        self.world.processes.append(self)
        self._context = copy_context()  # the parent's, where what it sends arrives
        context = copy_context()
        context.run(PROCESS.set, self)
        context.run(Thread, self.stage, lambda: self._run(main, arguments), is_interrupted=False)
        if self.fate.kind in ("dies", "stops"):
            later = self.die if self.fate.kind == "dies" else self._fall_asleep
            self.stage.call_later(self.fate.starts_in + self.fate.at, later)

    # What it does itself, in its thread.

    def _run(self, main: Callable[..., Callable[[], None]], arguments: tuple[Any, ...]) -> None:
        self.stage.sleep(self.fate.starts_in)
        try:
            if self.fate.kind == "cannot start":
                raise ImportError("no such module")
            work = main(self, *arguments)
        except _Dismissed:
            raise
        except BaseException as error:
            self.say(_CANNOT_START + f"{type(error).__name__}: {error}".encode())
            self.die()
            return
        self.say(_READY)
        with contextlib.suppress(EOFError, OSError):
            work()
        self.has_finished = True
        self.die()

    def sleep(self, seconds: float, *, is_deaf: bool = False) -> None:
        """Its main thread waits; a signal's handler may raise."""
        until = self.stage.now() + seconds
        while (left := until - self.stage.now()) > 0:
            self._news.clear()
            self._news.wait(left)
            if not is_deaf:
                self._heed()
        self._heed()

    def _heed(self) -> None:
        while self._signals:
            self.handlers[self._signals.pop(0)](0, None)

    # Its end of the pipe: multiprocessing's Connection.

    def recv_bytes(self) -> bytes:
        while not self._inbox:
            if self._is_cut:
                raise EOFError
            self._news.clear()
            self._news.wait()
            self._heed()
        return self._inbox.popleft()

    def send_bytes(self, message: bytes) -> None:
        if self.fate.kind == "babbles" and self.stage.now() >= self.fate.at:
            message = self.world.dice.choice([b"\0nonsense", pickle.dumps(7), pickle.dumps(("nonsense",))])
            self.world.babble += 1
            self.world.note(f"child {self.child.number} babbles {message!r}")
        self.say(message)

    def say(self, message: bytes) -> None:
        if self._is_cut:
            raise BrokenPipeError("the pipe is cut")
        framed = _HEAD.pack(len(message)) + message
        for piece in (framed[:7], framed[7:]):  # a pipe knows no messages
            self._outbox.append(piece)
            self.stage.call_later(self.fate.lag, self._arrive, context=self._context)

    def _arrive(self) -> None:
        """In the parent, unless it has cut the pipe."""
        if self._outbox:
            piece = self._outbox.popleft()
            if not self._is_cut:
                self.child.data_received(piece)

    # The parent's end of the pipe: a transport.

    def write(self, data: bytes) -> None:
        self._incoming.append(data[_HEAD.size :])
        self.stage.call_later(self.fate.lag, self._receive)

    def _receive(self) -> None:
        self._inbox.append(self._incoming.popleft())
        self._news.set()

    def abort(self) -> None:
        self._cut()
        self.stage.call_soon(self.child.connection_lost, None)

    def _cut(self) -> None:
        self._is_cut = True
        self._news.set()

    # What the operating system does with it.

    def is_alive(self) -> bool:
        return not self.is_dead

    def signal(self, number: int) -> None:
        if not self.is_dead:
            self._signals.append(number)
            self._news.set()

    def terminate(self) -> None:
        """One that is stopped follows when it goes on."""
        ends_in = 2.0 if self.fate.kind == "deaf" else self.world.dice.choice([0.0, 0.05, 0.5])
        self.stage.call_later(ends_in if self.runs else self.fate.stopped_for, self.die)

    def kill(self) -> None:
        self.die()

    def _fall_asleep(self) -> None:
        if not self.is_dead:
            self.world.note(f"child {self.child.number} is stopped")
            self.stop()
            self.stage.call_later(self.fate.stopped_for, self.go_on)

    def die(self) -> None:
        """Its memory and its connections are gone at once; whoever hears of it hears it in the parent's own time."""
        if self.is_dead:
            return
        self.world.note(f"child {self.child.number} ends")
        self.runs, self.is_dead = False, True
        self.held.clear()
        for action in self.at_death:
            action()
        self.stage.call_later(self.fate.lag, self._ended, context=self._context)

    def _ended(self) -> None:
        while self._outbox:
            self._arrive()
        for watcher in self._watchers:
            watcher()
        if not self._is_cut:
            self._is_cut = True
            self.child.connection_lost(None)

    def watch(self, callback: Callable[[], object]) -> None:
        self._watchers.append(callback)
        if self.is_dead:
            self.stage.call_soon(callback)

    def unwatch(self) -> None:
        self._watchers.clear()

    def join(self) -> None:
        if not self.is_dead:
            raise Deadlock("the loop waits for a process that does not end")

    def close(self) -> None:
        pass


class Blocking:
    """A worker's client: httpx_client's BlockingHttpx, by the methods that a worker uses."""

    def __init__(self, _: object) -> None:
        process = PROCESS.get()
        assert isinstance(process, PlayedProcess)
        self._process = process

    def send(self, body: bytes) -> Any:
        process, air = self._process, self._process.world.air
        process.at_death[:] = [lambda: air.leave(body)]
        _, seconds, answer = air.arrive(body)
        try:
            process.sleep(seconds)
            if process.fate.kind == "deaf":  # where no signal is heeded, as within some rubrics
                process.sleep(8.0, is_deaf=True)
        finally:
            if not process.is_dead:
                process.at_death.clear()
                air.leave(body)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def renew(self) -> None:
        pass


#: What a worker's own module has of `signal`, for the process in which it runs.
class Signals:
    SIGUSR1 = signal.SIGUSR1

    @staticmethod
    def signal(number: int, handler: Callable[..., object]) -> None:
        process = PROCESS.get()
        assert isinstance(process, PlayedProcess)
        process.handlers[number] = handler

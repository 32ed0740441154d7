"""How much of a night fits its minutes: which sizes, in how many rounds, by what one reply of the judge takes.

`probe` measures that; the rest is arithmetic, told before anything else begins. A size counts more than a round beyond
the fewest that say something. It is an estimate: parts ask other engines, and whatever has changed is measured again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from bench.figures import MEMORY
from bench.nightly.compare import FEWEST_ROUNDS
from bench.nightly.parts import Hear, Order, PartFailed, parts_of, run_child
from bench.scenarios import BATCH_SIZES, Scenario, samples_of

#: Seconds that a part takes to start: a model is loaded, kernels are compiled, graphs are captured.
START = 150.0
#: How many samples vLLM's engine judges at once.
_AT_ONCE = 256
#: Replies that are timed, each by itself.
_TIMED = 5


@dataclass(frozen=True)
class Extent:
    """`minutes` is what it takes, as far as can be told; `notes` are for the summary."""

    sizes: tuple[int, ...]
    rounds: int
    minutes: float = 0.0
    notes: tuple[str, ...] = ()


def extent_of(
    order: Order, sizes: Sequence[int], minutes: int, without: Collection[str], tell: Callable[[str], object]
) -> Extent:
    """What of these sizes and of the order's rounds is measured within so many minutes."""
    heard: list[dict[str, float]] = []
    tell("the judge is timed")
    try:
        run_child(replace(order, part="probe"), heard.append)
        (reply,) = [message["seconds a reply"] for message in heard if "seconds a reply" in message]
    except (PartFailed, ValueError) as failure:
        tell(f"the judge cannot be timed, so that as little as possible is measured: {failure}")
        return Extent(tuple(sizes[:1]), FEWEST_ROUNDS, notes=(f"n = {sizes[0]} alone: the judge could not be timed",))
    extent = fitting(order, sizes, minutes, without, reply)
    told = ", ".join(map(str, extent.sizes))
    tell(
        f"a reply takes {reply:.2g} s: n = {told} in {extent.rounds} rounds, about {extent.minutes:.0f} minutes of"
        f" --minutes {minutes}; more where something changed, which is measured again"
    )
    return extent


def fitting(order: Order, sizes: Sequence[int], minutes: int, without: Collection[str], reply: float) -> Extent:
    """The most sizes, smallest first, and then the most rounds; the least there is, where even that takes longer."""
    extents = [
        Extent(tuple(sizes[:count]), rounds, _seconds(order, sizes[:count], rounds, without, reply) / 60)
        for count in range(len(sizes), 0, -1)
        for rounds in range(max(order.rounds, FEWEST_ROUNDS), FEWEST_ROUNDS - 1, -1)
    ]
    extent = next((each for each in extents if each.minutes <= minutes), extents[-1])
    left_out = ", ".join(str(n) for n in sizes if n not in extent.sizes)
    notes = (f"n = {left_out}: left out to stay within --minutes {minutes}",) if left_out else ()
    return replace(extent, notes=notes)


def _seconds(order: Order, sizes: Sequence[int], rounds: int, without: Collection[str], reply: float) -> float:
    parts = [part for part in parts_of(replace(order, rounds=rounds), sizes) if part.name not in without]
    waits = sum(_waits(scenario) for part in parts for scenario in part.scenarios)
    return START * len(parts) + reply * rounds * waits


def _waits(scenario: Scenario) -> int:
    """How many replies one round waits for, one after the other."""
    if scenario == MEMORY:
        return len(BATCH_SIZES)
    if scenario.mode == "self":
        return math.ceil(scenario.n / (scenario.batch_size or _AT_ONCE))
    return math.ceil(scenario.n / scenario.places)


def measure(order: Order, hear: Hear) -> None:
    """The probe, in a child of its own: seconds a reply, of the judge as transformers runs it."""
    from bench.nightly.judges import data_type_of, directory_of
    from bench.self_mode import RUBRIC
    from rewardcore.local.torch_generator import TorchGenerator

    judge = TorchGenerator(directory_of(order), order.device, data_type_of(order), order.max_tokens)
    first, *others = [[RUBRIC.messages(sample)] for sample in samples_of(replace(MEMORY, n=1 + _TIMED))]
    judge.generate(first)  # kernels are chosen and loaded
    started = time.perf_counter()
    for conversation in others:
        judge.generate(conversation)
    hear({"seconds a reply": (time.perf_counter() - started) / _TIMED})

"""More defects to plant, for the tiers of the gate: what costs the client, its memory, or a permit.

`DEFECTS` are seen by an exact figure, `COSTS` by instructions, `MEMORY` by exact figures that need torch, and
`BLOCKING`, of a kind that nobody can count, by pairs.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.gate.instructions import METRIC
from tests.bench.defects import Defect, edit

_DRIVER = "rewardcore/http/drivers/loop.py"
_ENGINE = "rewardcore/http/engine.py"
_GENERATOR = "rewardcore/local/torch_generator.py"
_PREDICTED = "rewardcore/memory/predicted.py"

_OPENED = "            self._transport = self._open_transport()\n"
_SENT = "                reply = await send(flight.request.body)\n"
_GENERATED = "            tokens = self.model.generate(**prompts, logits_processor=self._drawing(device))\n"
_READ = "        return self._reader.read(message.code, message.headers, content)\n"
_BUILT = "        messages = ask(self._rubric, sample)\n"

DEFECTS = [
    Defect(
        "one more request",
        ((_DRIVER, _OPENED, _OPENED + "            await self._transport.send(flight.request.body)\n"),),
        ("async-1024", "requests"),
    ),
    Defect(
        "one lost permit",
        ((_ENGINE, "self.pace.wait(now, self.stats.in_flight)", "self.pace.wait(now, self.stats.in_flight + 1)"),),
        ("async-1024", "peak in flight"),
    ),
    Defect(
        "a serialised loop",
        (
            (
                _DRIVER,
                "        while (flight := self._step()) is not None:",
                "        while not self._workers and (flight := self._step()):",
            ),
            (_DRIVER, "                if not engine.is_full:\n", "                if False:\n"),
        ),
        ("respx/asyncio-httpx/100", "makespan"),
    ),
    Defect(
        "100 µs of blocking a request",
        ((_DRIVER, _SENT, _SENT + "                __import__('time').sleep(0.0001)\n"),),
        ("respx/asyncio-httpx/16", "loop blocked"),
    ),
    Defect(
        "a score on another scale",
        (
            (
                "rewardcore/rubrics/parsing.py",
                "        return (plain - low) / (high - low)",
                "        return plain / high",
            ),
        ),
        ("respx/sync/16", "verdict digest"),
    ),
    Defect(
        "a scenario that no longer runs",
        ((_DRIVER, _OPENED, "            raise SystemError('planted')\n"),),
        ("respx/asyncio-httpx/16", "verdict digest"),
    ),
]

COSTS = [
    Defect(
        "an extra json.dumps a request",
        (("rewardcore/http/request.py", _BUILT, _BUILT + "        __import__('json').dumps(messages)\n"),),
        ("loopback/asyncio/16", METRIC),
    ),
    Defect(
        "a reply parsed twice",
        (("rewardcore/http/transports/aiohttp_client.py", _READ, _READ.replace("return ", "") + _READ),),
        ("loopback/asyncio/16", METRIC),
    ),
]

MEMORY = [
    Defect(
        "the KV cache is not freed",
        (
            (
                _GENERATOR,
                _GENERATED,
                "            made = self.model.generate(**prompts, return_dict_in_generate=True)\n"
                "            self._kept, tokens = made.past_key_values, made.sequences\n",
            ),
        ),
        ("torch/self-8/1024", "left behind by a batch of 8"),
    ),
    Defect(
        "the KV cache is doubled",
        (
            (
                _GENERATOR,
                _GENERATED,
                "            twice = {name: torch.cat([each, each]) for name, each in prompts.items()}\n"
                '            tokens = self.model.generate(**twice)[: len(prompts["input_ids"])]\n',
            ),
        ),
        ("torch/self-8/1024", "counted peak, batch 8"),
    ),
    Defect(
        "the KV cache is doubled, as predicted",
        ((_PREDICTED, "prompt_tokens + new_tokens - 1)\n", "2 * (prompt_tokens + new_tokens - 1))\n"),),
        ("torch/self-8/1024", "predicted peak of a long reply, batch 8"),
    ),
    Defect(
        "the KV cache is not freed, as predicted",
        (
            (_PREDICTED, "                setattr(layer, name, None)\n", "                _kept.append(held)\n"),
            (_PREDICTED, "def _grow(", "_kept: list[Any] = []\n\n\ndef _grow("),
        ),
        ("torch/self-8/1024", "predicted peak of a long reply, batch 8"),
    ),
    Defect(
        "batches are formed in the order of arrival",
        (("rewardcore/local/batching.py", "key=lambda index: -lengths[index])", "key=lambda index: index)"),),
        ("torch/self-8/1024", "padding"),
    ),
    Defect(
        "batches are half full",
        (("rewardcore/local/batching.py", "    size = batch_size or", "    size = (batch_size or 0) // 2 or"),),
        ("torch/self-8/16", "requests"),
    ),
]


#: Not by time.sleep, which an exact figure sees: whatever else may make a loop wait.
BLOCKING = Defect(
    "100 µs of waiting for a lock a request",
    ((_DRIVER, _SENT, _SENT + "                threading.Event().wait(0.0001)\n"),),
    ("paired-saturated", "makespan"),
)


@contextlib.contextmanager
def planted(python: Path, defect: Defect) -> Iterator[Path]:
    """The Python of a copy of this environment, with the defect in the package that is installed there."""
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        environment = Path(directory) / "environment"
        shutil.copytree(python.parent.parent, environment, symlinks=True)  # what is compiled too, which takes seconds
        (packages,) = environment.glob("lib/python*/site-packages")
        edit(defect, packages)
        for file, *_ in defect.edits:
            for compiled in (packages / file).parent.glob(f"__pycache__/{Path(file).stem}.*"):
                compiled.unlink()
        yield environment / "bin" / "python"

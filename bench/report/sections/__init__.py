"""What stands on the page, in which words: a section for each question, with its figures, and what is missing there.

speed.py has speed-ups, concurrency and waits, costs.py memory and peers, changes.py histories and the gate's verdicts,
reproduce.py the commands and the machine. Every figure has a sentence that says what it shows and how it was measured.
"""

from __future__ import annotations

from bench.report.computed import Endpoints
from bench.report.newest import Newest
from bench.report.page import Section
from bench.report.sections import changes, costs, reproduce, speed
from bench.report.sources import Sources


def in_order(newest: Newest, sources: Sources, endpoints: Endpoints) -> list[Section]:
    return [
        speed.speed_up(newest),
        speed.concurrency(newest, endpoints),
        speed.gpu_wait(newest),
        costs.memory_by_batch_size(newest),
        costs.peers_beside(newest),
        changes.over_time(sources),
        changes.verdicts(sources.gate),
        reproduce.commands_and_machine(newest, sources),
    ]

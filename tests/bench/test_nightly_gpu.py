"""A night on a GPU that others use, or that is small for its judge."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from bench.nightly.gpu import Watch
from bench.nightly.summary import summary
from rewardcore.memory.neighbours import Process
from tests.bench.nights import BATCHED, FIGURES, MEMORY, a_night, a_part, a_plan, control, keep, run

SPEED = (BATCHED, "samples a second")
OURS, ANOTHER = "5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", "8c9ab0e1-1111-2222-3333-444455556666"
TRAINER = Process(OURS, 4712, "/opt/other train")


@pytest.mark.parametrize(
    ("listed", "dirt", "is_told"),
    [
        ([TRAINER], ["another process used the GPU: /opt/other train (pid 4712)"], False),
        ([TRAINER._replace(gpu=ANOTHER)], [], False),
        ([], [], True),
    ],
)
def test_another_process_on_our_gpu_makes_the_night_dirty_and_its_times_doubtful(tmp_path, listed, dirt, is_told):
    keep(tmp_path, a_night(1))
    machine = control(environment={"torch": "2.13.0", "gpu uuid": OURS})
    plan = a_plan(tmp_path, 9, a_part("torch", [{SPEED: 0.5}]), control=[machine])
    night, since = run(plan, watch=Watch(lambda: listed))
    assert night.exit_code == (2 if dirt else 1)
    assert list(night.why_not) == dirt
    assert ("nobody could tell whether others used the GPU" in summary(night, since)) is is_told


def test_a_process_that_the_night_has_started_is_no_stranger():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        with Watch(lambda: [TRAINER._replace(pid=child.pid)]) as watch:
            pass
        child.stdin.close()
    assert (watch.strangers_on(OURS), watch.is_blind) == ([], False)


@pytest.mark.parametrize(("did_fit", "exit_code"), [(False, 0), (True, 2)])
def test_a_batch_size_that_does_not_fit_the_memory_is_dirt_only_where_it_did(tmp_path, did_fit, exit_code):
    """On a GPU that is small for its judge, no night would ever be clean."""
    keep(
        tmp_path,
        a_night(1) if did_fit else a_night(1, dict.fromkeys(figure for figure in FIGURES if BATCHED in figure)),
    )

    def measure(ids, hear):
        hear({"unfit": BATCHED})
        a_part("torch").measure([MEMORY], hear)

    night, since = run(a_plan(tmp_path, 9, replace(a_part("torch"), measure=measure)))
    assert (night.exit_code, night.changed) == (exit_code, [])
    how = "no longer fits" if did_fit else "does not fit"
    assert f"- {'dirty: ' * did_fit}{BATCHED} {how} the memory" in summary(night, since)

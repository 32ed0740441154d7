"""What the GPUs wait for the judge in a trainer's step: exact, in virtual time."""

from __future__ import annotations

from bench import training_step


def test_gpu_wait_in_a_training_step(once, results):
    runs = once(training_step.measure)
    title = (
        "GPU wait in a step of training: 256 × 2 s at 60 at once, log-probabilities 6 s, values 4 s, virtual seconds"
    )
    results.note(title, training_step.lines_of(runs), training_step.records_of(runs))

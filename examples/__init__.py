"""Small programs to start from: `python -m examples.first_verdicts`, in the root of a clone.

Each judges with the simulated judge of rewardcore.testing, which needs no key and no GPU and whose scores mean nothing;
name your own with `--base-url URL --model NAME`.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

import rewardcore as rc


@contextlib.contextmanager
def a_judge_model() -> Iterator[rc.Endpoint]:
    """The endpoint that the command line names, or a simulated one that ends with the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", help="such as http://127.0.0.1:8000/v1; without it, a simulated judge")
    parser.add_argument("--model", default="judge", help="the name that it serves")
    options = parser.parse_args()
    if options.base_url:
        yield rc.Endpoint(options.base_url, options.model)
        return
    from rewardcore.testing import Profile, SimulatedServer

    with SimulatedServer(Profile(latency=0.2, spread=0.3)) as server:
        yield server.endpoint

"""The part vllm of a night whose engine is forked, as on a GPU: `python -m tests.vllm.forking_child ORDER`.

On a CPU vLLM always spawns it.
"""

from __future__ import annotations

import multiprocessing
import sys

from vllm.v1.engine import utils

from bench.nightly import child

if __name__ == "__main__":
    utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    sys.exit(child.main(sys.argv[1]))

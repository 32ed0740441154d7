"""What vLLM sets aside, asked of its own worker, which is another process: weights, activations and KV cache apart.

What it has allocated says nothing about a batch, since it allocates in advance. vLLM mixes this class into its worker
(`worker_extension_cls`); a worker that does not know a figure, as the CPU's, leaves it out.
"""

from __future__ import annotations

from typing import Any

ACTIVATIONS, GRAPHS = "activation peak", "CUDA graphs, estimated"
#: What it is called here → where vLLM's worker keeps it.
FIGURES = {
    "weights": ("model_runner", "model_memory_usage"),
    ACTIVATIONS: ("peak_activation_memory",),
    GRAPHS: ("cudagraph_memory_estimate",),
    "KV cache": ("available_kv_cache_memory_bytes",),
}


class EngineMemory:
    def rewardcore_engine_memory(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, path in FIGURES.items():
            value: Any = self
            for attribute in path:
                value = getattr(value, attribute, None)
            if isinstance(value, int | float) and value > 0:
                found[name] = int(value)
        if _has_graphs_in_the_peak() and ACTIVATIONS in found:
            found[ACTIVATIONS] -= found.get(GRAPHS, 0)
        return found


def _has_graphs_in_the_peak() -> bool:
    """Whether vLLM adds its estimate of the graphs to what it calls the peak of the activations."""
    from vllm import envs

    return bool(getattr(envs, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", False))

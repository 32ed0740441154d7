"""What vLLM sets aside, asked of its own worker, which is another process: weights, activations and KV cache apart.

What it has allocated says nothing about a batch, since it allocates in advance. vLLM mixes this class into its worker
(`worker_extension_cls`); a worker that does not know a figure, as the CPU's, leaves it out.
"""

from __future__ import annotations

from typing import Any

#: What it is called here → where vLLM's worker keeps it.
FIGURES = {
    "weights": ("model_runner", "model_memory_usage"),
    "activation peak": ("peak_activation_memory",),
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
        return found

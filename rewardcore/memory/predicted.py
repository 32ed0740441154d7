"""How much memory a batch takes, predicted from a model's config alone: no weights, no GPU, 70B on a laptop.

The model is built of fake tensors and run for one prefill and the last decode step, while a meter counts every
storage once. What is run is the installed transformers' and torch's own code (`FOLLOWED`), and under no_grad: in
inference mode, SDPA would come as one operator and hide what it takes for the mask. Not in the figure: the CUDA context
and fragmentation, which is what `RESERVE` is for. All numbers from here are called "predicted".
Nothing that other threads see is changed for it.
Of a tensor-parallel model, it is one GPU's share, as vLLM divides it; activations are taken whole, an upper bound.
"""

from __future__ import annotations

import copy
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import linear_regression
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, __version__

from ..failures import ConfigurationError
from .model_config import architecture, check_not_quantized, custom_code, first_sentence

#: The share of the free memory that a recommendation leaves alone.
RESERVE = 0.1
#: Whose code a prediction has run: another version may take other memory.
FOLLOWED = f"transformers {__version__}, torch {torch.__version__}"


@dataclass(frozen=True, slots=True)
class Peak:
    """Predicted bytes at the fullest moment of judging one batch: all four figures are of that moment."""

    batch_size: int
    weights: int
    kv_cache: int
    activations: int
    moment: Literal["prefill", "last token"] = "prefill"

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.activations


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes by batch size as a line: what is there anyway, and what each sample adds."""

    intercept: float
    slope: float

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> Curve:
        """The least-squares line through (batch size, bytes), of two sizes at least."""
        slope, intercept = linear_regression(*zip(*points, strict=True))
        return cls(intercept, slope)


def predict(
    config: Any,
    batch_sizes: Iterable[int],
    prompt_tokens: int,
    new_tokens: int,
    dtype: torch.dtype,
    padded: bool = True,
    tell: Callable[[int], object] = lambda batch_size: None,
    tensor_parallel: int = 1,
    trust_remote_code: bool = False,
) -> list[Peak]:
    """The peak for each batch size, each told before it begins: a large model takes seconds.

    A `padded` batch has prompts of several lengths, and so an attention mask.
    """
    raw = config.to_dict()
    check_not_quantized(raw)
    is_known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    is_custom = "AutoModelForCausalLM" in (raw.get("auto_map") or {})
    if is_custom and not is_known and not trust_remote_code:
        raise custom_code(raw)
    if config.is_encoder_decoder or not (is_known or is_custom):  # of the former, only the decoder would be built
        raise ConfigurationError(
            f"{architecture(raw)} is no decoder-only language model of transformers {__version__}, so its memory cannot"
            " be predicted; give a model that AutoModelForCausalLM takes"
        )
    log = logging.getLogger("torch._subclasses.fake_tensor")  # writes a traceback about what is one sentence here
    log.disabled = True
    try:
        with FakeTensorMode(), torch.no_grad():
            config = copy.deepcopy(config)  # from_config writes into it, and it may be a live model's own
            config._attn_implementation = None  # SDPA where the model can, as load_model takes it; no GPU's kernels
            # Any data type given here would be the default of the whole process meanwhile.
            model = AutoModelForCausalLM.from_config(config, dtype=None, trust_remote_code=trust_remote_code).eval()
            for weight in model.parameters():
                weight.data = weight.data.to(dtype)
            peaks = []
            for size in batch_sizes:
                tell(size)
                peaks.append(_peak(model, size, prompt_tokens, new_tokens, padded, tensor_parallel))
            return peaks
    except Exception as error:  # a model's own code raises what it likes
        raise ConfigurationError(
            f"{architecture(raw)} cannot be run on fake tensors, so its memory cannot be predicted"
            f" ({first_sentence(error)}); measure it on a GPU (torch.cuda.max_memory_allocated)"
        ) from error
    finally:
        log.disabled = False


def fit(peaks: Sequence[Peak]) -> Curve:
    """The least-squares line through the peaks; through the weights, where there is one peak only."""
    points: list[tuple[int, float]] = [(peak.batch_size, peak.total) for peak in peaks]
    if len({size for size, _ in points}) == 1:
        points.append((0, peaks[0].weights))
    return Curve.through(points)


def recommend_batch_size(curve: Curve, free_bytes: float, reserve: float = RESERVE) -> int:
    """The largest batch that fits what is free before the model is loaded; 0 where not even one sample does."""
    room = free_bytes * (1 - reserve) - curve.intercept
    return max(0, int(room // curve.slope))


def free_bytes(device: torch.device) -> int:
    """What a new batch could take on the device now, including what torch holds there without using it."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + unused)
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except OSError:  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _peak(model: Any, batch_size: int, prompt_tokens: int, new_tokens: int, padded: bool, gpus: int) -> Peak:
    meter = _Meter()
    weights = sum(
        _share(meter.count(weight), _parts(model, name, weight), gpus)
        for name, weight in (*model.named_parameters(), *model.named_buffers())
    )
    meter.live = meter.peak = 0  # the weights stay known, so that views of them are not counted again

    def peak(cache: Any, moment: Literal["prefill", "last token"]) -> Peak:
        activations = meter.peak - _cache_bytes(cache, 1)
        return Peak(batch_size, weights, _cache_bytes(cache, gpus), activations, moment)

    with meter:
        cache = _step(model, batch_size, prompt_tokens, prompt_tokens, padded, None)
        prefill = peak(cache, "prefill")
        _grow(cache, prompt_tokens, prompt_tokens + new_tokens - 1)
        meter.peak = 0
        cache = _step(model, batch_size, 1, prompt_tokens + new_tokens, padded, cache)
        return max(prefill, peak(cache, "last token"), key=lambda moment: moment.total)


def _parts(model: Any, name: str, weight: torch.Tensor) -> int:
    """Into how many parts a weight may go: a norm or a bias into one, keys and values by head, a matrix into any."""
    if weight.dim() < 2:
        return 1
    heads: int | None = getattr(model.config.get_text_config(), "num_key_value_heads", None)
    return heads if heads and name.endswith(("k_proj.weight", "v_proj.weight")) else int(weight.numel())


def _share(size: int, parts: int, gpus: int) -> int:
    """One GPU's bytes of what is divided into whole parts; with fewer parts than GPUs, some hold the same one."""
    return size * -(-parts // gpus) // parts


def _step(model: Any, batch_size: int, new: int, seen: int, padded: bool, cache: Any) -> Any:
    """One forward pass as `generate` does it: `new` tokens of the `seen`, and float32 scores for the last one."""
    output = model(
        input_ids=torch.zeros(batch_size, new, dtype=torch.long),
        attention_mask=torch.ones(batch_size, seen, dtype=torch.long) if padded else None,
        position_ids=torch.zeros(batch_size, new, dtype=torch.long),  # one row each: so are the rotary tables
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    output.logits[:, -1].to(torch.float32, copy=True)
    return output.past_key_values


def _grow(cache: Any, length: int, target: int) -> None:
    """Give the cache the size it has before the last token; a layer with a sliding window keeps no more than that."""
    for layer in cache.layers:
        window = getattr(layer, "sliding_window", None) or target + 1
        for name in ("keys", "values"):
            held = getattr(layer, name, None)
            if held is not None and held.shape[-2] == min(length, window - 1):
                setattr(layer, name, None)
                setattr(layer, name, held.new_empty(*held.shape[:-2], min(target, window - 1), held.shape[-1]))
                del held
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = target


def _cache_bytes(cache: Any, gpus: int) -> int:
    held = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    return sum(_share(kept.untyped_storage().nbytes(), kept.shape[1], gpus) for kept in held if kept is not None)


class _Meter(TorchDispatchMode):  # type: ignore[misc]  # untyped where torch is absent
    """Counts the bytes of every storage once while it lives, and remembers the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._known: set[int] = set()

    def count(self, tensor: torch.Tensor) -> int:
        """The bytes this tensor's storage adds: 0 for a view of what is counted already."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._known:
            return 0
        self._known.add(storage._cdata)
        size: int = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, storage._cdata, size)
        return size

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.count(leaf)
        return result

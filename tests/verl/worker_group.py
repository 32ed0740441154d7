"""A verl worker group without Ray: verl's own dispatch and rollout code, in this process."""

from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf
from verl import DataProto
from verl.workers.rollout.hf_rollout import HFRollout


class WorkerGroup:
    """Hands each worker its share as verl's dispatch does, and lets verl's own rollout code generate.

    verl 0.9.1 keeps HFRollout as code but leaves it abstract, so its method is borrowed rather than its class.
    """

    def __init__(self, model: Any, world_size: int) -> None:
        self.world_size = world_size
        self.batches: list[DataProto] = []
        config = OmegaConf.create({"do_sample": True, "temperature": 1.0, "response_length": 48})
        self._worker = SimpleNamespace(module=model, config=config)

    def generate_sequences(self, data: DataProto) -> DataProto:
        self.batches.append(data)
        shares = data.chunk(self.world_size)
        return DataProto.concat([HFRollout._generate_minibatch(self._worker, share) for share in shares])

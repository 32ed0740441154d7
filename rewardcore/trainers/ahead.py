"""`judging_ahead(GRPOTrainer)`: that trainer, and judging begins as soon as its completions are generated.

TRL asks its reward functions last, after the log-probabilities of the old policy and of the reference; those depend on
no reward, so a judge can work meanwhile. This is the one file that overrides methods that TRL keeps to itself: where a
version of TRL has others, it says so when the class is made. Not for the asynchronous trainer, whose rewards are
computed in a process of their own, beside everything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from ..calls import Pending
from ..failures import ConfigurationError
from ..notices import say
from ..sample import Sample

Trainer = TypeVar("Trainer", bound=type)


@runtime_checkable
class BeginsAhead(Protocol):
    """A reward function that can be told early: the call with the very same completions then collects."""

    def begin(self, prompts: Sequence[Any], completions: Sequence[Any], **given: Any) -> None: ...


class Begun(NamedTuple):
    """A batch on its way: whose completions, and in which process, since a fork has none of its parent's replies."""

    completions: Sequence[Any]
    samples: list[Sample | ConfigurationError]
    pending: Pending
    process: int

    def is_of(self, completions: Sequence[Any]) -> bool:
        return self.completions is completions and self.process == os.getpid()

    def give_up(self) -> None:
        """Nobody will ask for it here; where this is a fork, its parent may still."""
        if self.process == os.getpid():
            self.pending.cancel()


def judging_ahead(trainer_class: Trainer) -> Trainer:
    """A subclass of TRL's GRPOTrainer or RLOOTrainer, made and used as it is.

    The seconds that its log-probabilities take are seconds that the judge has, and `NAME/waited` in its log is what
    is left; a judge of mode "sync" works only while it is waited for, and gains nothing. Rewards are the same.
    """
    if not isinstance(trainer_class, type):
        raise ConfigurationError(f"judging_ahead takes a class, as in judging_ahead(GRPOTrainer), not {trainer_class}")
    for method in ("_generate", "_generate_and_score_completions"):
        if not callable(getattr(trainer_class, method, None)):
            raise ConfigurationError(
                f"judging_ahead needs a TRL trainer with the method {method}, and {trainer_class.__name__} has none: "
                "use the trainer as it is, and its rewards are judged when it asks for them"
            )

    class Ahead(trainer_class):  # type: ignore[misc, valid-type]
        def _generate_and_score_completions(self, inputs: Sequence[Mapping[str, Any]]) -> Any:
            self._generates_for = inputs
            return super()._generate_and_score_completions(inputs)

        def _generate(self, prompts: Sequence[Any]) -> Any:
            generated = super()._generate(prompts)
            self._begin(prompts, generated)
            return generated

        def _begin(self, prompts: Sequence[Any], generated: tuple[Any, ...]) -> None:
            completions = completions_in(generated, len(prompts))
            if completions is None:
                say(
                    logging.WARNING,
                    "judging_ahead found no completions in what TRL generated, so nothing is judged ahead",
                )
                return
            columns = _columns(self._generates_for, generated)
            for function in self.reward_funcs:
                if isinstance(function, BeginsAhead):
                    function.begin(prompts, completions, **columns)

    Ahead.__name__ = Ahead.__qualname__ = trainer_class.__name__  # TRL names model cards and telemetry by it
    return Ahead  # type: ignore[return-value]


def completions_in(generated: tuple[Any, ...], size: int) -> Sequence[Any] | None:
    """The texts or conversations among what `_generate` returns: GRPO has them elsewhere than RLOO."""
    for each in generated:
        if isinstance(each, list) and len(each) == size and all(map(_is_completion, each)):
            return each
    return None


def _is_completion(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _columns(inputs: Sequence[Mapping[str, Any]], generated: tuple[Any, ...]) -> dict[str, list[Any]]:
    """The dataset's columns as TRL will hand them over, with what a `rollout_func` has added to them."""
    columns = {name: [row[name] for row in inputs] for name in inputs[0] if name not in ("prompt", "completion")}
    for added in generated:
        if isinstance(added, dict):
            for name, values in added.items():
                columns[name] = values if isinstance(values, list) else [values] * len(inputs)
    return columns

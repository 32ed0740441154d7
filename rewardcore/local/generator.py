"""A generator: something local that turns conversations into texts, in batches. Nothing heavy is imported here.

Only `generate` is required. What a generator may also have is asked for through the functions below, so that no
other module needs to know which parts are optional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..failures import ConfigurationError

Conversation = Sequence[Mapping[str, Any]]


class Generator(Protocol):
    """One text per conversation, in order. Optional beside it:

    - `lengths(conversations) -> list[int]`: prompt lengths in tokens; characters count where it is missing;
    - `max_prompt_tokens: int`: a longer prompt never reaches the model; read only where there are `lengths`;
    - `recommend_batch_size(prompt_tokens: int) -> int | None`: what fits the free memory, None for "all at once";
    - `close()`: gives back the memory; for the caller who made it, never called by a judge.
    """

    def generate(self, conversations: list[Conversation]) -> list[str]: ...


def lengths_of(generator: Generator, conversations: list[Conversation]) -> list[int]:
    """Prompt lengths in the generator's own tokens, or else in characters."""
    if measure := getattr(generator, "lengths", None):
        return list(measure(conversations))
    return [sum(len(str(message.get("content") or "")) for message in talk) for talk in conversations]


def prompt_limit(generator: Generator) -> int | None:
    """The longest prompt the generator takes, where both the limit and the lengths are known in tokens."""
    return getattr(generator, "max_prompt_tokens", None) if hasattr(generator, "lengths") else None


def recommended_batch_size(generator: Generator, longest: int) -> int | None:
    """The generator's own answer to `batch_size="auto"`."""
    recommend = getattr(generator, "recommend_batch_size", None)
    if recommend is None:
        raise ConfigurationError(
            f'batch_size="auto" needs a generator with recommend_batch_size(prompt_tokens), which'
            f" {type(generator).__name__} has not; pass batch_size=8 or another number"
        )
    size: int | None = recommend(longest)
    return size

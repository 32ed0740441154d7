"""What every local model is asked before it judges: its tokenizer, its prompts as tokens, its room for a reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ..failures import ConfigurationError
from .generator import Conversation


def load_tokenizer(directory: Path, trust_remote_code: bool = False) -> Any:
    """The model's tokenizer, sure to have what batches of conversations need."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=trust_remote_code)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigurationError(f"{directory} has no tokenizer that transformers can read: {error}") from error
    check_tokenizer(tokenizer, f"the tokenizer in {directory}")
    return tokenizer


def check_tokenizer(tokenizer: Any, name: str) -> None:
    if tokenizer.chat_template is None:
        raise ConfigurationError(
            f"{name} has no chat template; use an instruction-tuned model, or put the template into"
            " chat_template.jinja beside its config.json"
        )
    if tokenizer.pad_token_id is None:
        raise ConfigurationError(
            f"{name} has no pad token, so batches cannot be padded; set pad_token in its tokenizer_config.json (the"
            " eos token will do)"
        )


class PromptEncoder:
    """Conversations as tokens, through the chat template. What was measured is not encoded again for generating.

    A sample may hold the model's control tokens as text (`<|im_end|>`) and so pretend to be another speaker: they are
    broken up by a space, and stay text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._measured: dict[str, list[int]] = {}
        control = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._control = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))) or "(?!)")

    def lengths(self, conversations: list[Conversation]) -> list[int]:
        self._measured = {}
        return [len(self._measured[prompt]) for prompt in self._prompts(conversations)]

    def encode(self, conversations: list[Conversation]) -> list[list[int]]:
        prompts = self._prompts(conversations)
        tokens = [self._measured[prompt] for prompt in prompts]
        for prompt in prompts:
            self._measured.pop(prompt, None)
        return tokens

    def harmless(self, value: Any) -> Any:
        """A conversation, or any part of one, in which no text is a control token."""
        if isinstance(value, str):
            return self._control.sub(lambda token: f"{token[0][0]} {token[0][1:]}", value)
        if isinstance(value, Mapping):
            return {name: self.harmless(part) for name, part in value.items()}
        return [self.harmless(part) for part in value] if isinstance(value, (list, tuple)) else value

    def _prompts(self, conversations: list[Conversation]) -> list[str]:
        if not conversations:
            return []
        if any(isinstance(message.get("content"), list) for talk in conversations for message in talk):
            raise TypeError("the sample shows images, and a local judge reads text alone; judge it over an endpoint")
        prompts: list[str] = self._tokenizer.apply_chat_template(
            self.harmless(conversations), tokenize=False, add_generation_prompt=True
        )
        if unknown := list({prompt: None for prompt in prompts if prompt not in self._measured}):
            encoded = self._tokenizer(unknown, add_special_tokens=False, return_attention_mask=False, verbose=False)
            self._measured.update(zip(unknown, encoded["input_ids"], strict=True))
        return prompts


def prompt_room(context: int | None, max_new_tokens: int) -> int | None:
    """The longest prompt that leaves room for the reply; None where the model has no fixed context."""
    if max_new_tokens < 1 or (context is not None and max_new_tokens >= context):
        raise ConfigurationError(
            f"max_new_tokens={max_new_tokens} does not fit the model's context of {context} tokens beside a prompt;"
            " pass a smaller number, of 1 or more"
        )
    return None if context is None else context - max_new_tokens

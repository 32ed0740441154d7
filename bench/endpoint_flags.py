"""The flags of every benchmark that asks an endpoint of the user's, and the endpoint that they name.

argparse and pytest take the same words. What is wrong with a flag is told in one sentence before anything is sent.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from rewardcore import ConfigurationError, Endpoint
from rewardcore.http.endpoint import read_extra_body


def add_endpoint_flags(add: Callable[..., object], *, max_tokens: int, required: bool = True) -> None:
    """`add` is `add_argument` of a parser, or `addoption` of a group of pytest's."""
    add("--base-url", required=required, metavar="URL", help="such as http://127.0.0.1:8000/v1")
    add("--model", required=required, metavar="NAME", help="the name that it serves")
    add("--api-key-env", default="OPENAI_API_KEY", help="variable that holds its key (%(default)s)")
    add("--max-tokens", type=count, default=max_tokens, help="tokens it may write per reply (%(default)s)")
    add("--extra-body", default="", metavar="JSON", help="added to every request, such as vLLM's structured outputs")


def endpoint_of(options: Any) -> Endpoint:
    """Raises ConfigurationError."""
    return Endpoint(
        options.base_url,
        options.model,
        api_key_env=options.api_key_env,
        max_tokens=options.max_tokens,
        extra_body=read_extra_body(options.extra_body),
    )


def parse(parser: argparse.ArgumentParser, arguments: list[str] | None) -> tuple[argparse.Namespace, Endpoint]:
    """A command's options and its endpoint; wrong ones end it."""
    options = parser.parse_args(arguments)
    try:
        return options, endpoint_of(options)
    except ConfigurationError as error:
        parser.error(str(error))


def count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"takes a whole number above 0, not {text!r}")
    return int(text)

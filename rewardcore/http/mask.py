"""Keys stay out of every message: one mask, through which all words about a failure pass, and other people's logs.

Hidden is a secret, and any part of one worth having, since what an endpoint repeats may come cut in two.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

#: A shorter text is no secret, but a word that any message may hold.
_SHORTEST = 6
#: As many characters in a row give away a part of a secret.
_PART = 8


class Secret(str):
    """A text that prints as ***, so that a dict of headers can be shown by any traceback or log line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Mask:
    """Called with a text, gives it back without the secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._parts = {
            secret[start : start + _PART] for secret in self._secrets for start in range(len(secret) - _PART + 1)
        }

    def __call__(self, text: str) -> str:
        for secret in self._secrets:  # the longest first: none may leave the tail of a longer one behind
            text = text.replace(secret, "***")
        hidden = [place for place in range(len(text) - _PART + 1) if text[place : place + _PART] in self._parts]
        for place in hidden:
            text = text[:place] + "\0" * _PART + text[place + _PART :]
        return re.sub("\0+", "***", text) if hidden else text

    def watch_logs(self, *names: str) -> None:
        """The HTTP client logs what endpoints send in their headers, at its finest level."""
        if self._secrets:
            for name in names:
                logging.getLogger(name).addFilter(self._filter)

    def forget_logs(self, *names: str) -> None:
        for name in names:
            logging.getLogger(name).removeFilter(self._filter)

    def _filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self(record.getMessage()), ()
        return True

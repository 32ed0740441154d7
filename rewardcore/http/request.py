"""A request: the exact bytes to send, and the key under which their reply is kept.

The key is the SHA-256 of canonical JSON (sorted keys, no spaces) over base URL (or identity), model, messages, every
sampling parameter and the sample's draw, which stands there as `repeat`. The body is itself canonical, so it is
serialised once and hashed once. No API key goes in.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

import orjson

from ..failures import ConfigurationError
from ..rubrics import Rubric
from ..rubrics.rubric import ask, unwritten
from ..sample import Sample
from .endpoint import Endpoint

_SORTED = orjson.OPT_SORT_KEYS


class Request(NamedTuple):
    key: bytes
    body: bytes
    draw: int = 0


class RequestBuilder:
    """Builds every request of a judge, whatever its mode."""

    def __init__(self, endpoint: Endpoint, rubric: Rubric) -> None:
        self.host = endpoint.host
        self._rubric = rubric
        parameters = endpoint.parameters()
        try:  # all that is the same in every request, on either side of where its messages stand in order
            json.dumps(parameters, allow_nan=False, default=repr)  # orjson would write null for NaN
            before = orjson.dumps({name: parameters[name] for name in parameters if name < "messages"}, option=_SORTED)
            after = orjson.dumps({name: parameters[name] for name in parameters if name > "messages"}, option=_SORTED)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"model and extra_body must be plain JSON: {error}") from error
        self._before = before[:-1] + (b"," if before != b"{}" else b"") + b'"messages":'
        self._after = b"," + after[1:]  # never empty: there is the model
        where = {"base_url": endpoint.base_url} if endpoint.identity is None else {"identity": endpoint.identity}
        self._prefix = orjson.dumps(where)[:-1] + b',"repeat":'
        self._hash_of_first = hashlib.sha256(self._prefix + b'0,"request":')

    def build(self, sample: Sample) -> Request:
        """Raises RubricFailed where the rubric raises or its messages are no JSON: this sample's failure alone."""
        messages = ask(self._rubric, sample)
        try:
            body = self._before + orjson.dumps(messages, option=_SORTED) + self._after
        except Exception as error:
            raise unwritten(error) from error
        if sample.draw:
            return Request(hashlib.sha256(self._material(body, sample.draw)).digest(), body, sample.draw)
        digest = self._hash_of_first.copy()
        digest.update(body)
        digest.update(b"}")
        return Request(digest.digest(), body)

    def material(self, request: Request) -> bytes:
        """The canonical JSON that the key is the hash of."""
        return self._material(request.body, request.draw)

    def _material(self, body: bytes, draw: int) -> bytes:
        return b'%s%d,"request":%s}' % (self._prefix, draw, body)

"""From the bytes of an HTTP answer to a reply or a typed failure: the one reader behind every mode, without IO.

A transport hands over status, headers and a body; `Body` caps what it gathers, after decompression, so that no
endpoint can fill the memory. Nothing here decides about retries.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ..failures import (
    BrokenReply,
    Denied,
    Failure,
    Forbidden,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Refused,
    Rejected,
    ReplyTooLarge,
    StatusFailure,
    Transient,
    Truncated,
    UnexpectedReply,
    Unparsed,
    WrongPath,
)
from ..reply import Reply
from ..words import one_line
from .endpoint import Endpoint
from .quota_headers import read_quota
from .retry import parse_retry_after

MAX_BODY_BYTES = 8 * 1024 * 1024
_TRANSIENT = frozenset({408, 409, 425, 429})
_OVERLOAD = frozenset({503, 529})
#: JSON keeps the last of two equal keys, so a reply could say two things; these decide a verdict.
_DECISIVE_KEYS = (b'"choices"', b'"message"', b'"content"', b'"refusal"', b'"finish_reason"')


class Body:
    """Gathers a body up to the cap, undoing its content encoding as it arrives."""

    def __init__(self, encoding: str = "") -> None:
        encoding = encoding.strip().lower()
        if encoding in ("", "identity"):
            self._decoder = None
        elif encoding in ("gzip", "x-gzip", "deflate"):
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
        else:
            raise UnexpectedReply(f"the reply came as {encoding!r} though identity was asked for")
        self._gathered = bytearray()

    def feed(self, chunk: bytes) -> None:
        if self._decoder is not None:
            if self._decoder.eof:  # zlib would keep whatever follows, without end
                raise BrokenReply("the compressed reply goes on after its end")
            try:
                chunk = self._decoder.decompress(chunk, MAX_BODY_BYTES + 1 - len(self._gathered))
            except zlib.error as error:
                raise BrokenReply(f"the compressed reply does not decompress: {error}") from error
        if len(self._gathered) + len(chunk) > MAX_BODY_BYTES:
            raise ReplyTooLarge(f"the reply is larger than {MAX_BODY_BYTES // 2**20} MiB and was cut off")
        self._gathered += chunk

    def finish(self) -> bytes:
        if self._decoder is not None and not self._decoder.eof:
            raise BrokenReply("the compressed reply ended early")
        return bytes(self._gathered)


class ReplyReader:
    """Reads one endpoint's answers; it knows the endpoint only to word its errors."""

    def __init__(self, endpoint: Endpoint, now: Callable[[], float] = time.time) -> None:
        self._endpoint = endpoint
        self._now = now
        self._has_key = endpoint.api_key() is not None
        self._limit = endpoint.reply_limit()

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """The reply, or a Failure raised."""
        if status != 200:
            raise self._status_failure(status, headers, body)
        document = self._decode(body)
        choice = self._choice(document)
        message = choice.get("message")
        if not isinstance(message, dict):
            raise UnexpectedReply("the reply's choice has no message")
        content = message.get("content")
        usage = _usage(document.get("usage"))
        reply = Reply(content if isinstance(content, str) else "", usage, read_quota(headers, usage, self._now))
        failure = self._message_failure(message, choice.get("finish_reason"), usage or {})
        if failure is not None:
            failure.reply = reply
            raise failure
        return reply

    def _message_failure(
        self, message: dict[str, Any], finish_reason: object, usage: Mapping[str, int]
    ) -> Failure | None:
        content = message.get("content")
        if message.get("refusal") or finish_reason == "content_filter":
            return Refused(f"the judge refused: {_excerpt(message.get('refusal') or finish_reason)}")
        if finish_reason == "length":
            return Truncated(f"the judge's reply was cut {self._what_cut(usage)}")
        if isinstance(content, str):
            return None if content else Unparsed("the judge replied with an empty text")
        if content is not None:
            return UnexpectedReply(f"the reply's content is {type(content).__name__}, not text")
        if message.get("reasoning_content") or message.get("reasoning"):
            return Unparsed("the judge replied with reasoning only, and no text")
        return UnexpectedReply("the reply's content is null")

    def _what_cut(self, usage: Mapping[str, int]) -> str:
        """By the parameter in force, unless the usage tells that the reply never came to it."""
        written, total = usage.get("completion_tokens"), usage.get("total_tokens")
        if self._limit is not None and (written is None or written >= self._limit[1]):
            name, limit = self._limit
            return f"at {limit} tokens; raise {name}"
        where = f"at {written} tokens" if written is not None else "short"
        filled = f", {total} tokens with its prompt" if total is not None else ""
        return f"{where} by the model's context{filled}; shorten what is judged, or serve it with a longer context"

    def _decode(self, body: bytes) -> dict[str, Any]:
        try:
            document = orjson.loads(body)
            # What most servers send comes out again byte for byte: no key was lost, at a third of what counting costs.
            if orjson.dumps(document) != body and any(body.count(key) > 1 for key in _DECISIVE_KEYS):
                document = json.loads(body, object_pairs_hook=_refuse_repeated_keys)
        except (ValueError, TypeError, RecursionError) as error:  # the second: nested deeper than orjson writes
            if body[:200].lstrip()[:1] == b"<":
                raise UnexpectedReply(
                    f"the endpoint answered 200 with HTML, not JSON: {_excerpt(body)}; is base_url right?"
                ) from None
            raise BrokenReply(f"the reply is not valid JSON ({error}): {_excerpt(body) or 'empty'}") from None
        if not isinstance(document, dict):
            raise UnexpectedReply(f"the reply is a JSON {type(document).__name__}, not an object")
        return document

    def _choice(self, document: dict[str, Any]) -> dict[str, Any]:
        choices = document.get("choices")
        if not isinstance(choices, list):
            if "error" in document:
                raise UnexpectedReply(f"the endpoint answered 200 with an error: {_excerpt(document['error'])}")
            raise UnexpectedReply("the reply has no choices")
        if len(choices) != 1:
            raise UnexpectedReply(f"the reply has {len(choices)} choices where one was asked for")
        for choice in choices:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                return choice
        raise UnexpectedReply("none of the reply's choices has index 0")

    def _status_failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        said = _excerpt(body) or "nothing more"
        where = self._endpoint.host
        failure: StatusFailure
        if _says_quota_is_used_up(body):
            return QuotaExhausted(f"{where} answered {status}, the quota is used up: {said}")
        if status in _TRANSIENT or status >= 500:
            kind = RateLimited if status == 429 else Overloaded if status in _OVERLOAD else Transient
            whose = ", an error of the server's own (see its log)" if kind is Transient and status >= 500 else ""
            failure = kind(f"{where} answered {status}{whose}: {said}")
            failure.retry_after = parse_retry_after(headers, self._now)
            failure.quota = read_quota(headers, None, self._now)
            return failure
        if status in (401, 403):
            name = self._endpoint.api_key_env
            hint = f"check the key in {name}" if self._has_key else f"set {name} to the endpoint's key"
            denied = Denied if status == 401 else Forbidden
            return denied(f"{where} answered {status}; {hint if name else 'name its variable in api_key_env'}: {said}")
        if 300 <= status < 400:
            return WrongPath(f"{where} answered {status}, a redirect, which is never followed; correct base_url")
        if status in (404, 405):
            return WrongPath(
                f"{where} answered {status} for model {self._endpoint.model!r} at {self._endpoint.url}; check the "
                f"model's name and that base_url ends in /v1 if the server wants it: {said}"
            )
        return Rejected(f"{where} answered {status}: {said}")


def _excerpt(said: object) -> str:
    return one_line(_text(said), 300)


def _text(said: object) -> str:
    if isinstance(said, bytes):
        return said.decode("utf-8", "replace")
    try:
        return said if isinstance(said, str) else json.dumps(said)
    except RecursionError:
        return "something deeply nested"


def _says_quota_is_used_up(body: bytes) -> bool:
    if b"insufficient_quota" not in body:
        return False
    try:
        error = orjson.loads(body)["error"]
        return "insufficient_quota" in (error.get("code"), error.get("type"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("an object has the same key twice")
    return table


def _usage(usage: object) -> dict[str, int] | None:
    if not isinstance(usage, dict):
        return None
    return {name: count for name, count in usage.items() if type(count) is int and 0 <= count < 2**53}

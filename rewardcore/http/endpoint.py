"""An endpoint: where a judge model answers, and with which sampling parameters. It never holds a key.

The key is read from the environment, by the name kept here, when a judge opens its connections.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from ..arguments import check, check_kind, check_whole, is_number
from ..failures import ConfigurationError
from .mask import Mask, Secret

_RESERVED = dict.fromkeys(("model", "messages", "stream"), "the judge sets it") | {
    "n": "for several draws, give samples different `draw` numbers; `n` is not supported"
}
#: What may bound a reply, in the order in which a server heeds it.
_REPLY_LIMITS = ("max_completion_tokens", "max_tokens")
_MAX_TOKENS = 1024
#: So many letters and digits at a stretch, small ones among them, are nobody's name for a variable.
_LIKE_A_KEY = re.compile(r"(?=[A-Za-z]*[0-9])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{20}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible base URL, a model name and the *name* of the variable that holds the key.

    `temperature=None` and `max_tokens=None` leave the parameter out; `max_completion_tokens` takes the place of
    `max_tokens`, for models that refuse it. `extra_body` carries what a server understands beyond the standard, such
    as vLLM's `structured_outputs`. `identity` stands for the base URL in the cache's keys, so that the same model on
    another node or port keeps its cache. `ca_file` holds the certificates to trust in place of the machine's own.
    """

    base_url: str
    model: str
    api_key_env: str | None = "OPENAI_API_KEY"
    temperature: float | None = 0.0
    max_tokens: int | None = _MAX_TOKENS
    max_completion_tokens: int | None = None
    extra_body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    identity: str | None = None
    ca_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", _checked_url(self.base_url))
        if not isinstance(self.model, str) or not self.model.strip():
            raise ConfigurationError("model must be the name the endpoint serves; GET base_url + /models lists them")
        if self.api_key_env:
            check_key_name(self.api_key_env, "api_key_env")
        if self.temperature is not None:
            is_fine = is_number(self.temperature) and 0.0 <= self.temperature <= 2.0
            check("temperature", self.temperature, "a number from 0 to 2 or None", is_fine)
            object.__setattr__(self, "temperature", float(self.temperature))  # 0 and 0.0 are one request with one key
        for name in _REPLY_LIMITS:
            check_whole(name, getattr(self, name), None)
        if self.max_completion_tokens is not None and self.max_tokens not in (None, _MAX_TOKENS):
            raise ConfigurationError("max_completion_tokens takes the place of max_tokens: give one of them")
        if self.identity is not None and not (isinstance(self.identity, str) and self.identity.strip()):
            raise ConfigurationError(f"identity must be a name such as judge-7b-v3, not {self.identity!r}")
        check_kind("extra_body", self.extra_body, "a mapping", Mapping)
        for name, reason in _RESERVED.items():
            if name in (self.extra_body or {}):
                raise ConfigurationError(f"extra_body must not set {name!r}: {reason}")
        check_kind("headers", self.headers, 'a mapping such as {"X-Team": "…"}', Mapping)
        if self.headers is not None:
            object.__setattr__(self, "headers", {name: _secret(name, self.headers[name]) for name in self.headers})
        is_path = isinstance(self.ca_file, str | os.PathLike | None)
        check("ca_file", self.ca_file, "the path of a file of PEM certificates", is_path)
        if self.ca_file is not None:
            self.ssl_context()  # a file that cannot be used is an error now

    @property
    def url(self) -> str:
        return self.base_url + "/chat/completions"

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        parts = urlsplit(self.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.hostname}:{port}"

    def ssl_context(self) -> ssl.SSLContext:
        """What every client verifies with: `ca_file`, or SSL_CERT_FILE and SSL_CERT_DIR, or what the machine trusts."""
        if self.ca_file is None and not self.base_url.startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and quickly made
        paths = ssl.get_default_verify_paths()
        file = self.ca_file
        if file is None and not (paths.cafile or paths.capath):
            import certifi

            file = certifi.where()
        try:
            return ssl.create_default_context(cafile=file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"ca_file {file} must be a file of PEM certificates: {error}") from None

    def mask(self) -> Mask:
        """Hides the key, and every word of the caller's own headers, which may hold another: not only "Bearer …"."""
        words = [word for value in (self.headers or {}).values() for word in value.split()]
        return Mask([self.api_key() or "", *words])

    def parameters(self) -> dict[str, Any]:
        """The request body without its messages."""
        body = {
            "model": self.model,
            "temperature": self.temperature,
            "max_completion_tokens": self.max_completion_tokens,
        }
        if self.max_completion_tokens is None:
            body["max_tokens"] = self.max_tokens
        return {name: value for name, value in body.items() if value is not None} | dict(self.extra_body or {})

    def reply_limit(self) -> tuple[str, int] | None:
        """The parameter that bounds a reply, and its tokens; None where the endpoint is not told."""
        parameters = self.parameters()
        for name in _REPLY_LIMITS:
            if type(limit := parameters.get(name)) is int:
                return name, limit
        return None

    def api_key(self) -> Secret | None:
        """The key from the environment; None where the variable is not set, as endpoints without keys allow."""
        value = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if not value:
            return None
        if not (value.isascii() and value.isprintable()):
            raise ConfigurationError(f"{self.api_key_env} holds characters that no header can carry; set it again")
        return Secret(value)

    def request_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        if key := self.api_key():
            headers["Authorization"] = Secret(f"Bearer {key}")
        own = self.headers or {}
        overridden = {name.lower() for name in own}
        return {name: value for name, value in headers.items() if name.lower() not in overridden} | dict(own)


def not_an_endpoint(given: object) -> ConfigurationError:
    wanted = 'a rewardcore.Endpoint, such as Endpoint("http://127.0.0.1:8000/v1", model="judge")'
    return ConfigurationError(f"endpoint must be {wanted}, not {type(given).__name__}")


def check_key_name(name: object, argument: str) -> None:
    """Raises where it is no name of a variable, and does not show it: it may be the key itself."""
    is_name = isinstance(name, str) and name.isidentifier() and (name in os.environ or not _LIKE_A_KEY.search(name))
    if not is_name:
        raise ConfigurationError(f"{argument} must be the name of a variable, as OPENAI_API_KEY, not the key")


def read_extra_body(text: str) -> dict[str, Any] | None:
    """What `--extra-body` says, in every command that takes it; None for nothing, and for an object without fields."""
    try:
        value = orjson.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConfigurationError(f"--extra-body must be a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f'--extra-body must be a JSON object such as {{"min_p": 0.1}}, not {text[:40]!r}')
    return value or None


def _secret(name: str, value: object) -> Secret:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise ConfigurationError(f"headers: {name!r} is no name of a header")
    if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
        raise ConfigurationError(f"headers[{name!r}] must be one line of plain ASCII text")
    return Secret(value)


def _checked_url(base_url: str) -> str:
    if not isinstance(base_url, str):
        kind = type(base_url).__name__
        raise ConfigurationError(f"base_url must be a text such as http://127.0.0.1:8000/v1, not {kind}")
    if "@" in base_url:  # before anything that would show a part of the URL: it may hold a password
        raise ConfigurationError("base_url must not hold user info (user:password@); put the key into a variable")
    if "?" in base_url or "#" in base_url:
        raise ConfigurationError("base_url must end with its path: parameters go into extra_body or headers")
    base_url = base_url.strip()
    if not base_url.isprintable() or " " in base_url:
        raise ConfigurationError(f"base_url {base_url!r} holds blanks or line breaks; write it without them")
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"base_url is not a URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"base_url must begin with http:// or https://, not {parts.scheme or base_url!r}")
    if not parts.hostname or port == 0:
        raise ConfigurationError(f"base_url {base_url!r} names no host and port to connect to")
    path = parts.path.rstrip("/")
    if path.endswith("/chat/completions"):
        raise ConfigurationError("base_url must end before /chat/completions, as in http://127.0.0.1:8000/v1")
    if not path:
        wanted = f"{parts.scheme}://{parts.netloc}/v1"
        raise ConfigurationError(f"base_url {base_url!r} has no path; most endpoints want {wanted}")
    return f"{parts.scheme}://{parts.netloc}{path}"

"""A small HTTP client for forges: JSON in and out, one origin, bounded in time and size, no redirects.

Written on the standard library, apart from `glue.providers.http`: that seam streams POST answers of models, and the
process that holds the write token should load as little as possible.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from glue.errors import ConfigError, GlueError

MOST = 8 * 1024 * 1024  # bytes of one answer
PAGES = 100  # of one list
Method = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]


class ForgeError(GlueError):
    """A forge refused, or could not be asked. `ambiguous`: it may have done what was asked."""

    def __init__(self, message: str, *, status: int = 0, ambiguous: bool = False, detail: str = "") -> None:
        super().__init__(message)
        self.status, self.ambiguous, self.detail = status, ambiguous, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request as it left, or would have left."""

    method: Method
    path: str
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class Client:
    """Talks to one forge. With `dry`, a change is only kept in `log`; `blind` asks for nothing either."""

    base: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    dry: bool = False
    blind: bool = False
    timeout: float = 30.0  # of one request, whole
    patience: float = 120.0  # seconds of waiting for rate limits, over all requests
    sleep: Callable[[float], None] = time.sleep
    check: Callable[[str], str] = lambda text: text  # the last look at every text that leaves
    log: list[Sent] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def get(self, path: str, **query: str | int) -> Any:
        """Fetch one JSON document; tried three times. Nothing is fetched when blind."""
        if self.blind:
            return None
        return self._patient("GET", _query(path, query), None, tries=3).body

    def pages(self, path: str, size: str = "per_page", count: int = 100) -> Iterator[Any]:
        """Fetch every row of a list, page by page."""
        if self.blind:
            return
        for number in range(1, PAGES + 1):
            answer = self._patient("GET", _query(path, {size: count, "page": number}), None, tries=3)
            if not isinstance(answer.body, list):
                raise ForgeError(f"GET {path}: expected a list", status=answer.status)
            yield from answer.body
            if 'rel="next"' not in answer.headers.get("link", "") and not answer.headers.get("x-next-page"):
                return
        raise ForgeError(f"GET {path}: more than {PAGES} pages")

    def change(self, method: Method, path: str, body: Any = None) -> Any:
        """Send a change. A POST is sent once and never again after an unclear failure; others may repeat."""
        body = _checked(body, self.check)
        self.log.append(Sent(method=method, path=path, body=body))
        if self.dry or self.blind:
            return {}
        raw = None if body is None else json.dumps(body).encode()
        return self._patient(method, path, raw, tries=1 if method == "POST" else 3).body

    def ask(self, path: str, body: Any) -> Any:
        """Send a POST that changes nothing, as a GraphQL query does."""
        if self.blind:
            return None
        return self._patient("POST", path, json.dumps(body).encode(), tries=2).body

    def _patient(self, method: Method, path: str, raw: bytes | None, tries: int) -> Answer:
        tried = 0
        while True:
            tried += 1
            try:
                return self._once(method, path, raw)
            except _Busy as busy:  # certainly not done: may be sent again
                if busy.wait > self.patience or tried > 6:
                    raise ForgeError(
                        f"{method} {path}: rate limited for {busy.wait:.0f} s", status=busy.status
                    ) from None
                self.patience -= busy.wait
                self.sleep(busy.wait)
            except ForgeError as error:
                if method == "DELETE" and error.status == 404:  # gone, perhaps by our own lost request
                    return Answer(status=404, body=None, headers={})
                again = error.status == 0 or error.status >= 500
                if not again or tried >= tries:
                    raise
                self.sleep(min(8.0, 2.0 ** (tried - 1)))

    def _once(self, method: Method, path: str, raw: bytes | None) -> Answer:
        what = f"{method} {path.split('?', 1)[0]}"
        connection, target, extra = self._connect(path)
        headers = {"accept": "application/json", "user-agent": "glue-review", **extra, **self.headers}
        if raw is not None:
            headers["content-type"] = "application/json"
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ForgeError(f"{what}: cannot connect: {_why(error)}") from error
        # A dripping server resets each socket timeout; the connection lets go of its socket before the answer is read.
        watch = threading.Timer(self.timeout, _shut, (connection.sock,))
        watch.daemon = True
        watch.start()
        try:
            connection.request(method, target, body=raw, headers=headers)
            response = connection.getresponse()
            with response:
                data = _read(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ForgeError(f"{what}: no answer: {_why(error)}", ambiguous=True) from error
        finally:
            watch.cancel()
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return _judge(what, response.status, found, data)

    def _connect(self, path: str) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        parts = urlsplit(self.base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the forge's address must start with https://, not {self.base!r}")
        if not path.startswith("/") or any(char <= " " for char in path):
            raise ConfigError(f"not a path of the API: {path!r}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        target = parts.path.rstrip("/") + path
        proxy = _proxy(self.environ, parts.scheme, parts.hostname)
        host, at = (proxy.hostname or "", proxy.port or 80) if proxy else (parts.hostname, port)
        if parts.scheme == "http":
            plain = http.client.HTTPConnection(host, at, timeout=self.timeout)
            return plain, f"http://{parts.netloc}{target}" if proxy else target, {}
        import ssl

        secure = http.client.HTTPSConnection(host, at, timeout=self.timeout, context=ssl.create_default_context())
        if proxy:
            secure.set_tunnel(parts.hostname, port)
        return secure, target, {}


class _Busy(Exception):
    def __init__(self, status: int, wait: float) -> None:
        super().__init__(f"busy for {wait} s")
        self.status, self.wait = status, wait


def _checked(value: Any, check: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return check(value)
    if isinstance(value, list):
        return [_checked(item, check) for item in value]
    if isinstance(value, dict):
        return {name: _checked(item, check) for name, item in value.items()}
    return value


def _read(response: http.client.HTTPResponse) -> bytes:
    data = bytearray()
    while block := response.read1(65_536):
        data += block
        if len(data) > MOST:
            raise ValueError(f"more than {MOST} bytes")
    if response.length:  # closed early: http.client says so only for a whole read
        raise ValueError("cut short")
    return bytes(data)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def escaped(text: str) -> str:
    """Quote one segment of a path."""
    return quote(text, safe="")


def _judge(what: str, status: int, headers: Mapping[str, str], data: bytes) -> Answer:
    if 200 <= status < 300:
        try:
            return Answer(status=status, body=json.loads(data) if data else None, headers=headers)
        except (ValueError, RecursionError) as error:
            raise ForgeError(f"{what}: the answer is not JSON", status=0, ambiguous=True) from error
    if status in (403, 429) and (wait := _wait(status, headers, data)) is not None:
        raise _Busy(status, wait)
    if 300 <= status < 400:
        raise ForgeError(f"{what}: HTTP {status}: redirects are not followed", status=status)
    detail = data[:2000].decode("utf-8", "replace")
    raise ForgeError(f"{what}: HTTP {status}: {_said(detail)}", status=status, ambiguous=status >= 500, detail=detail)


def _wait(status: int, headers: Mapping[str, str], data: bytes) -> float | None:
    """How long a rate limit asks to wait; None where it is no rate limit."""
    advised = _number(headers.get("retry-after", ""))
    if advised is not None:
        return advised
    if headers.get("x-ratelimit-remaining") == "0":
        reset = _number(headers.get("x-ratelimit-reset", ""))
        return max(1.0, reset - time.time()) if reset is not None else 60.0
    return 60.0 if status == 429 or b"rate limit" in data[:2000] else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _said(detail: str) -> str:
    from glue.agents.review.delivery.clean import line

    try:
        body = json.loads(detail)
    except ValueError:
        return line(detail, 120)
    if not isinstance(body, dict):
        return line(detail, 120)
    return line(f"{body.get('message', '')} {body.get('errors', '')}".strip(), 200)


def _why(error: Exception) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "timed out"
    return " ".join(str(error).split())[:120] or type(error).__name__


def _query(path: str, query: Mapping[str, str | int]) -> str:
    return path + ("?" + "&".join(f"{name}={quote(str(value))}" for name, value in query.items()) if query else "")


def _proxy(environ: Mapping[str, str], scheme: str, host: str) -> Any:
    value = environ.get(f"{scheme}_proxy") or (environ.get(f"{scheme.upper()}_PROXY") if scheme == "https" else None)
    skip = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    names = [name.strip().lstrip(".").lower() for name in skip.split(",") if name.strip()]
    if not value or "*" in names or any(host == name or host.endswith(f".{name}") for name in names):
        return None
    return urlsplit(value if "://" in value else f"http://{value}")

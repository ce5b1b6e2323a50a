"""The client of the forges: JSON in and out, one origin, bounded in time and size, no redirects."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from glue import seconds
from glue.agents.review.delivery.clean import line
from glue.errors import ConfigError, GlueError, ProviderError
from glue.providers import HTTP, Deadlines, HTTPResponse

MOST = 8 * 1024 * 1024  # bytes of one answer
PAGES = 100  # of one list
Method = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
Transport = Callable[..., HTTPResponse]  # called as HTTP.request_sync is


class ForgeError(GlueError):
    """A forge refused, or could not be asked.

    `ambiguous`: it may have done what was asked. `wait`: it certainly has not, and asks to wait so many seconds.
    """

    def __init__(self, message: str, *, status: int = 0, ambiguous: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.ambiguous, self.wait = status, ambiguous, wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeRequest:
    """One request as it left, or would have left."""

    method: Method
    path: str
    body: Any = None


@dataclass(slots=True, kw_only=True)
class Client:
    """Talks to one forge. With `dry`, a change is only kept in `log`; `blind` asks for nothing either."""

    base: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    dry: bool = False
    blind: bool = False
    timeout: float = 30.0  # of one request, whole
    wait_budget: float = 120.0  # seconds for rate limits, over all requests
    sleep: Callable[[float], None] = time.sleep
    transport: Transport | None = None  # instead of a connection of its own
    check: Callable[[str], str] = str  # the last look at every text that leaves
    log: list[ForgeRequest] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def get(self, path: str, **query: str | int) -> Any:
        """Fetch one JSON document; tried three times. Nothing is fetched when blind."""
        if self.blind:
            return None
        return self._retry("GET", path, query=query, tries=3).json()

    def pages(self, path: str, size: str = "per_page", count: int = 100) -> Iterator[Any]:
        """Fetch every row of a list, page by page."""
        if self.blind:
            return
        for number in range(1, PAGES + 1):
            answer = self._retry("GET", path, query={size: count, "page": number}, tries=3)
            rows = answer.json()
            if not isinstance(rows, list):
                raise ForgeError(f"GET {path}: expected a list", status=answer.status)
            yield from rows
            if 'rel="next"' not in answer.headers.get("link", "") and not answer.headers.get("x-next-page"):
                return
        raise ForgeError(f"GET {path}: more than {PAGES} pages")

    def change(self, method: Method, path: str, body: Any = None) -> Any:
        """Send a change. A POST is sent once and never again after an unclear failure; others may repeat."""
        body = _checked(body, self.check)
        self.log.append(ForgeRequest(method=method, path=path, body=body))
        if self.dry or self.blind:
            return {}
        return self._retry(method, path, body, tries=1 if method == "POST" else 3).json()

    def ask(self, path: str, body: Any) -> Any:
        """Send a POST that changes nothing, as a GraphQL query does."""
        if self.blind:
            return None
        return self._retry("POST", path, body, tries=2).json()

    def _retry(
        self, method: Method, path: str, body: Any = None, *, query: Mapping[str, str | int] | None = None, tries: int
    ) -> HTTPResponse:
        tried = 0
        while True:
            tried += 1
            try:
                return self._once(method, path, body, query)
            except ForgeError as error:
                if method == "DELETE" and error.status == 404:  # gone, perhaps by our own lost request
                    return HTTPResponse(status=404, headers={}, body=b"")
                if error.wait is not None:
                    if error.wait > self.wait_budget or tried > 6:
                        raise
                    self.wait_budget -= error.wait
                elif tried >= tries or 0 < error.status < 500:
                    raise
                self.sleep(min(8.0, 2.0 ** (tried - 1)) if error.wait is None else error.wait)

    def _once(self, method: Method, path: str, body: Any, query: Mapping[str, str | int] | None) -> HTTPResponse:
        if not path.startswith("/") or any(char <= " " for char in path):
            raise ConfigError(f"not a path of the API: {path!r}")
        if not self.base.startswith(("https://", "http://")):
            raise ConfigError(f"the forge's address must start with https://, not {self.base!r}")
        headers = {"accept": "application/json", "user-agent": "glue-review", **self.headers}
        raw = None if body is None else json.dumps(body).encode()
        if raw is not None:
            headers["content-type"] = "application/json"
        limits = Deadlines(connect=min(10.0, self.timeout), read=self.timeout, total=self.timeout)
        send = self.transport or HTTP(self.base, deadlines=limits, environ=self.environ).request_sync
        try:
            answer = send(method, path, body=raw, query=query, headers=headers, most=MOST)
        except ProviderError as error:
            how = "no answer" if error.ambiguous else "cannot connect"
            said = f"{method} {path}: {how}: {line(str(error), 120)}"
            raise ForgeError(said, ambiguous=error.ambiguous) from error
        return _judge(f"{method} {path}", answer)


def _checked(value: Any, check: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return check(value)
    if isinstance(value, list):
        return [_checked(item, check) for item in value]
    if isinstance(value, dict):
        return {name: _checked(item, check) for name, item in value.items()}
    return value


def escaped(text: str) -> str:
    """Quote one segment of a path."""
    return quote(text, safe="")


def _judge(what: str, answer: HTTPResponse) -> HTTPResponse:
    """Return an answer that can be used; what it refuses, or what cannot be read, is raised."""
    status = answer.status
    if 200 <= status < 300:
        try:
            answer.json()
        except ValueError as error:
            raise ForgeError(f"{what}: the answer is not JSON", ambiguous=True) from error
        return answer
    if status in (403, 429) and (wait := _wait(answer)) is not None:
        raise ForgeError(f"{what}: rate limited for {seconds(wait)}", status=status, wait=wait)
    if 300 <= status < 400:
        raise ForgeError(f"{what}: HTTP {status}: redirects are not followed", status=status)
    said = line(answer.text[:2000], 120)
    try:
        body = json.loads(answer.text[:2000])
        if isinstance(body, dict):
            said = line(f"{body.get('message', '')} {body.get('errors', '')}".strip(), 200)
    except (ValueError, RecursionError):
        pass
    raise ForgeError(f"{what}: HTTP {status}: {said}", status=status, ambiguous=status >= 500)


def _wait(answer: HTTPResponse) -> float | None:
    """How long a rate limit asks to wait; None where it is no rate limit."""
    if answer.retry_after is not None:
        return answer.retry_after
    # GitHub says a secondary limit in words alone.
    spent = answer.status == 429 or answer.headers.get("x-ratelimit-remaining") == "0"
    return 60.0 if spent or b"rate limit" in answer.body[:2000] else None

"""The HTTP client for forges: JSON requests to one origin, with limits, without redirects."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from glue.agents.review.delivery.clean import line
from glue.backoff import Backoff
from glue.errors import ConfigError, GlueError, ProviderError
from glue.providers import HTTP, Deadlines, HTTPResponse
from glue.text import format_seconds

MAX_BYTES = 8 * 1024 * 1024  # of one response
MAX_PAGES = 100  # of one list
FAILED = Backoff(first=1.0, cap=8.0)  # after an error of the server or the network
RATE_LIMITED = Backoff(first=1.0, cap=120.0, attempts=7)  # waits as long as the forge advises
Method = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
Transport = Callable[..., HTTPResponse]  # has the signature of HTTP.request_sync


class ForgeError(GlueError):
    """A request that the forge refused, or that got no usable response.

    `ambiguous` means that the forge may have carried out the request. `wait` is set if the forge
    has not, because of a rate limit: the seconds to wait before the next attempt.
    """

    def __init__(
        self, message: str, *, status: int = 0, ambiguous: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.ambiguous, self.wait = status, ambiguous, wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeRequest:
    """A request as it was sent or, in a dry run, would have been sent."""

    method: Method
    path: str
    body: Any = None


@dataclass(slots=True, kw_only=True)
class Client:
    """An HTTP client for one forge, which in a dry run only reads.

    With `dry`, requests that change something are stored in `log` and not sent. With `blind`, no
    request is sent at all.
    """

    base: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    dry: bool = False
    blind: bool = False
    timeout: float = 30.0  # seconds for one request in total
    wait_budget: float = 120.0  # seconds of waiting for rate limits, over all requests
    sleep: Callable[[float], None] = time.sleep
    transport: Transport | None = None  # called instead of opening a connection
    redact: Callable[[str], str] = str  # applied to each text of a change before it is sent
    log: list[ForgeRequest] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def get(self, path: str, **query: str | int) -> Any:
        """Send a GET request, with retries, and return the JSON. If `blind`, only return None."""
        if self.blind:
            return None
        return self._retry("GET", path, query=query, attempts=3).json()

    def pages(self, path: str, size: str = "per_page", count: int = 100) -> Iterator[Any]:
        """Request and yield the rows of a list; raise ForgeError if it exceeds MAX_PAGES pages.

        The pages are requested one by one, and the rows of the first MAX_PAGES pages are yielded
        before the error. Yield nothing, without a request, if the client is `blind`. `size` is the
        name of the query parameter for the number of rows in a page, and `count` is that number.
        Raise ForgeError also if a response is not a list.
        """
        if self.blind:
            return
        for number in range(1, MAX_PAGES + 1):
            response = self._retry("GET", path, query={size: count, "page": number}, attempts=3)
            rows = response.json()
            if not isinstance(rows, list):
                raise ForgeError(f"GET {path}: the response is not a list", status=response.status)
            yield from rows
            headers = response.headers
            if 'rel="next"' not in headers.get("link", "") and not headers.get("x-next-page"):
                return
        raise ForgeError(
            f"GET {path}: the list has more than {MAX_PAGES} pages, which is the limit"
        )

    def change(self, method: Method, path: str, body: Any = None) -> Any:
        """Store a write request in `log`; send it and return the JSON, or {} if `dry` or `blind`.

        A request is not sent if `dry` or `blind`. Before the request is stored, `redact` is applied
        to the texts in `body`. A POST that failed is not sent again, because the forge may have
        carried it out, unless the forge reported a rate limit. The other methods are idempotent and
        have three attempts.
        """
        body = _map_strings(body, self.redact)
        self.log.append(ForgeRequest(method=method, path=path, body=body))
        if self.dry or self.blind:
            return {}
        return self._retry(method, path, body, attempts=1 if method == "POST" else 3).json()

    def query(self, path: str, body: Any) -> Any:
        """Send a GraphQL query or other POST that only reads; return the JSON, or None if `blind`.

        If the client is `blind`, nothing is sent.
        """
        if self.blind:
            return None
        return self._retry("POST", path, body, attempts=2).json()

    def _retry(
        self,
        method: Method,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str | int] | None = None,
        attempts: int,
    ) -> HTTPResponse:
        """Send a request, with retries, and return the response; raise ForgeError if all fail.

        After an error of the server or the network, there are at most `attempts` attempts. A
        request that hit a rate limit was not carried out, so it is sent again even after that, as
        long as the wait fits into `wait_budget`. Other refusals are final. A DELETE that fails with
        404 counts as successful.
        """
        failures = 0
        while True:
            try:
                return self._once(method, path, body, query)
            except ForgeError as error:
                failures += 1
                if method == "DELETE" and error.status == 404:
                    # The resource is gone, perhaps deleted by an attempt whose response was lost.
                    return HTTPResponse(status=404, headers={}, body=b"")
                if error.wait is not None:
                    backoff = RATE_LIMITED._replace(cap=self.wait_budget)
                elif 0 < error.status < 500:
                    raise
                else:
                    backoff = FAILED._replace(attempts=attempts)
                delay = backoff.delay(failures, advised=error.wait)
                if delay is None:
                    raise
                self.wait_budget -= error.wait or 0.0
                self.sleep(delay)

    def _once(
        self, method: Method, path: str, body: Any, query: Mapping[str, str | int] | None
    ) -> HTTPResponse:
        if not path.startswith("/") or any(char <= " " for char in path):
            raise ConfigError(
                f"{path!r} is not a path of the API: a path starts with / and has no white space"
            )
        if not self.base.startswith(("https://", "http://")):
            raise ConfigError(
                f"the address of the forge must start with https:// or http://, not {self.base!r};"
                " set it with --api"
            )
        headers = {"accept": "application/json", "user-agent": "glue-review", **self.headers}
        raw = None if body is None else json.dumps(body).encode()
        if raw is not None:
            headers["content-type"] = "application/json"
        limits = Deadlines(connect=min(10.0, self.timeout), read=self.timeout, total=self.timeout)
        send = (
            self.transport or HTTP(self.base, deadlines=limits, environ=self.environ).request_sync
        )
        try:
            response = send(method, path, body=raw, query=query, headers=headers, most=MAX_BYTES)
        except ProviderError as error:
            problem = "no response" if error.ambiguous else "cannot connect"
            message = f"{method} {path}: {problem}: {line(str(error), 120)}"
            raise ForgeError(message, ambiguous=error.ambiguous) from error
        return _check(f"{method} {path}", response)


def _map_strings(value: Any, function: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value, in which `function` is applied to all strings except keys."""
    if isinstance(value, str):
        return function(value)
    if isinstance(value, list):
        return [_map_strings(item, function) for item in value]
    if isinstance(value, dict):
        return {name: _map_strings(item, function) for name, item in value.items()}
    return value


def escaped(text: str) -> str:
    """Return the text percent-encoded as one segment of a path, so that a `/` is encoded too."""
    return quote(text, safe="")


def _check(request: str, response: HTTPResponse) -> HTTPResponse:
    """Return the response if it is successful and contains JSON, else raise ForgeError."""
    status = response.status
    if 200 <= status < 300:
        try:
            response.json()
        except ValueError as error:
            raise ForgeError(f"{request}: the response is not JSON", ambiguous=True) from error
        return response
    wait = _rate_limit(response) if status in (403, 429) else None
    if wait is not None:
        message = f"{request}: the rate limit is reached; try again in {format_seconds(wait)}"
        raise ForgeError(message, status=status, wait=wait)
    if 300 <= status < 400:
        raise ForgeError(f"{request}: HTTP {status}: redirects are not followed", status=status)
    reason = line(response.text[:2000], 120)
    try:
        body = json.loads(response.text[:2000])
        if isinstance(body, dict):
            reason = line(f"{body.get('message', '')} {body.get('errors', '')}".strip(), 200)
    except (ValueError, RecursionError):
        pass
    raise ForgeError(f"{request}: HTTP {status}: {reason}", status=status, ambiguous=status >= 500)


def _rate_limit(response: HTTPResponse) -> float | None:
    """Return the seconds until the rate limit ends, or None if the response reports no limit."""
    if response.retry_after is not None:
        return response.retry_after
    spent = response.status == 429 or response.headers.get("x-ratelimit-remaining") == "0"
    # GitHub reports a secondary rate limit only in the text of the message.
    return 60.0 if spent or b"rate limit" in response.body[:2000] else None

"""Requests that end in time, with bounded bodies and credentials for one origin.

This is the only module that imports httpx, or httpx2 where that is installed. It drives their
engine, httpcore, without the client above it: a deadline for the whole request has to hold at each
read of the socket, since a read timeout is reset by every byte, and that is where httpcore lets us in.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import anyio

from glue.context import check_origin
from glue.dataclass import dataclass
from glue.errors import ConfigError, ErrorKind, ProviderError
from glue.providers.connection import (
    KEEP_ALIVE,
    Address,
    Backend,
    Broken,
    Content,
    Line,
    Watch,
    idle_lines,
    inflate,
    keep,
    proxy_for,
)

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("glue.http")

BODY = 32 * 1024 * 1024
ERROR_BODY = 64 * 1024
_ERROR_SECONDS = 10.0  # more is not worth waiting for the body of an error
_CLOSE_SECONDS = 2.0
_REST_SECONDS = 0.5  # for what comes after the last event: the end of the body, without which nothing is reused


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that the parts of one request may take.

    Nobody waits for a pool: a request that finds no idle connection opens one.
    """

    connect: float = 10.0
    read: float = 300.0  # silence; a keep-alive comment breaks it
    write: float = 120.0
    progress: float = 600.0  # without content; a keep-alive comment is none
    total: float = 1800.0


class HTTP:
    """Sends requests to one origin, with one set of credentials."""

    def __init__(
        self,
        base_url: str,
        *,
        provider: str = "",
        headers: Mapping[str, str] | None = None,
        query: Sequence[tuple[str, str]] = (),
        secrets: Sequence[str] = (),
        deadlines: Deadlines | None = None,
        engine: str = "",
    ) -> None:
        self.address = Address(base_url, provider, query)
        self.provider = provider
        self.deadlines = deadlines or Deadlines()
        self._secrets = tuple(secret for secret in secrets if len(secret) > 3)
        self._engine = engine
        self._proxy = proxy_for(self.address, os.environ)
        self._key = (self.address.origin, self._proxy, engine)
        self._urls: dict[str, Any] = {}
        self._headers = [
            (b"host", self.address.authority.encode()),
            (b"accept", b"*/*"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"glue"),
            *self._encode(headers or {}),
        ]

    def __repr__(self) -> str:
        return f"HTTP({self.address.origin!r})"

    @property
    def base_url(self) -> str:
        return self.address.origin + self.address.path

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None, *, model: str = "") -> Exchange:
        """Send a body: `async with http.post(...) as blocks`, then `async for block in blocks`."""
        return Exchange(self, path, body, self._encode(headers) if headers else [], model)

    async def aclose(self) -> None:
        """Close the connections of this event loop that are idle."""
        lines = await idle_lines(self._key)
        while lines:
            await lines.pop().close()

    @property
    def authorized(self) -> bool:
        """Say whether every request carries a key already."""
        return any(name == b"authorization" for name, _ in self._headers)

    def hide(self, secret: str) -> None:
        """Keep one more secret out of logs and errors: a token that was fetched later."""
        if len(secret) > 3 and secret not in self._secrets:
            self._secrets = (*self._secrets, secret)

    def mask(self, text: str) -> str:
        """Take every secret out of a text."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    @functools.cached_property
    def engine(self) -> ModuleType:
        return load_engine(self._engine)

    def _encode(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        pairs = []
        for name, value in headers.items():
            if not (name + value).isascii() or not value.isprintable() or value != value.strip():
                # Not shown: it may be the key, pasted with a line end or a typographic quote.
                raise ConfigError(f"{self.provider or 'http'}: {name} holds a letter that no header can carry")
            pairs.append((name.lower().encode(), value.encode()))
        return pairs

    def _url(self, path: str) -> Any:
        url = self._urls.get(path)
        if url is None:
            address = self.address
            target = address.target(path).encode()
            url = self.engine.URL(
                scheme=address.scheme.encode(), host=address.host.encode(), port=address.explicit_port, target=target
            )
            if len(self._urls) < 64:
                self._urls[path] = url
        return url

    async def _take(self) -> Line:
        lines = await idle_lines(self._key)
        while lines:
            line = lines.pop()
            if not line.connection.has_expired():
                return line
            await line.close()
        watch = Watch()
        options: dict[str, Any] = {"keepalive_expiry": KEEP_ALIVE, "network_backend": Backend(self.engine, watch)}
        if self.address.scheme == "https":
            options["ssl_context"] = ssl_context(self.engine)
        origin = self._url("").origin
        if self._proxy:
            return Line(_proxied(self.engine, self._proxy, origin, options), watch)
        return Line(self.engine.AsyncHTTPConnection(origin=origin, **options), watch)


class Exchange:
    """One request and its answer.

    No cancel scope stays open while a block is handled, so a generator may yield inside.
    """

    __slots__ = (
        "_blocks",
        "_body",
        "_extra",
        "_http",
        "_line",
        "_model",
        "_path",
        "_plain",
        "_response",
        "headers",
        "status",
    )

    def __init__(self, http: HTTP, path: str, body: bytes, extra: list[tuple[bytes, bytes]], model: str) -> None:
        self._http = http
        self._path = path
        self._body = body
        self._extra = extra
        self._model = model
        self._line: Line | None = None
        self._response: Any = None
        self._blocks: AsyncGenerator[bytes, None] | None = None
        self._plain: AsyncGenerator[bytes, None] | None = None
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def __aiter__(self) -> AsyncIterator[bytes]:
        blocks: AsyncGenerator[bytes, None] = self._response.stream.__aiter__()
        self._blocks = blocks
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() == "identity":
            return blocks  # as they are: a layer here would cost something for each delta
        self._plain = inflate(blocks, encoding, BODY)
        return self._plain

    async def __aenter__(self) -> Exchange:
        http = self._http
        if (check := check_origin.get()) is not None:
            check(http.address.origin)
        line = self._line = await http._take()
        watch = line.watch
        watch.start(http.deadlines.total, http.deadlines.progress, BODY)
        try:
            response = self._response = await line.connection.handle_async_request(self._request())
            self.status = response.status
            self.headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
            watch.answered = True
            watch.blind = "content-encoding" in self.headers
            if not 200 <= self.status < 300:
                raise await self._refusal(watch)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        line, self._line = self._line, None
        if line is None:
            return
        # Shielded, for a cancelled task could not even take the lock of its own connection.
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_SECONDS):
            await self._finish(line, leave=error is not None)
            stale: Line | None = line
            if self._response is not None and line.connection.is_available():
                stale = keep(line, await idle_lines(self._http._key))
            if stale is not None:
                await stale.connection.aclose()
        if error is not None:
            self._retype(error, line.watch)

    async def _finish(self, line: Line, *, leave: bool) -> None:
        """Read the rest, so that the connection may serve again, then end the answer.

        Where the reader had all it wanted the rest has a moment to come; else only what is here already is read.
        """
        line.watch.closed = leave or self._blocks is None
        line.watch.shorten(_REST_SECONDS)
        if self._plain is not None:
            await self._plain.aclose()
        if self._blocks is not None:
            # httpcore nests generators and closes only the outer one. Read on: with the watch closed
            # the next read of the socket fails, or soon one that finds nothing, which ends them all.
            try:
                async for _ in self._blocks:
                    pass
            except Exception as error:
                log.debug("%s: the answer was left unread (%s)", self._http.provider, type(error).__name__)
        if self._response is not None:
            await self._response.stream.aclose()

    def _request(self) -> Any:
        http = self._http
        own = {name for name, _ in self._extra}
        headers = [pair for pair in http._headers if pair[0] not in own] if own else list(http._headers)
        headers += [*self._extra, (b"content-length", b"%d" % len(self._body))]
        if not any(name == b"content-type" for name, _ in headers):
            headers.append((b"content-type", b"application/json"))
        if log.isEnabledFor(logging.DEBUG):
            lines = [f"POST {http.address.origin}{http.address.target(self._path)}"]
            lines += [f"{name.decode()}: {value.decode()}" for name, value in headers]
            log.debug("%s", http.mask("\n".join((*lines, "", self._body.decode("utf-8", "replace")))))
        limits = http.deadlines
        timeout = {"connect": limits.connect, "read": limits.read, "write": limits.write}
        url = http._url(self._path)
        return http.engine.Request(
            b"POST", url, headers=headers, content=Content(self._body), extensions={"timeout": timeout}
        )

    async def _refusal(self, watch: Watch) -> ProviderError:
        from glue.providers.errors import classify

        http = self._http
        if 300 <= self.status < 400:
            what = f"HTTP {self.status}: a redirect, which is not followed; set the base URL that it leads to"
            return ProviderError(
                what, kind="invalid_request", provider=http.provider, model=self._model, status=self.status
            )
        watch.shorten(_ERROR_SECONDS)
        body = b""
        try:
            async for block in self:
                body += block
                if len(body) >= ERROR_BODY:
                    break
        except _errors(http.engine) as error:  # the status says enough
            log.debug("%s: the error's body broke off (%s)", http.provider, type(error).__name__)
        body = http.mask(body[:ERROR_BODY].decode("utf-8", "replace")).encode()
        return classify(self.status, self.headers, body, provider=http.provider, model=self._model)

    def _retype(self, error: BaseException, watch: Watch) -> None:
        """Raise what went wrong on the line as a ProviderError; let anything else pass."""
        http = self._http
        if not isinstance(error, _errors(http.engine)):
            return
        what, kind, again = _explain(error, http, watch)
        raise ProviderError(
            http.mask(what), kind=kind, provider=http.provider, model=self._model, retryable=again
        ) from error


def _errors(engine: ModuleType) -> tuple[type[Exception], ...]:
    return (engine.NetworkError, engine.ProtocolError, engine.ProxyError, engine.TimeoutException, Broken)


def _explain(error: Exception, http: HTTP, watch: Watch) -> tuple[str, ErrorKind, bool | None]:
    """Say what happened, of what kind it is, and whether trying again may help where the kind leaves that open."""
    engine, limits, where = http.engine, http.deadlines, http.address.authority
    reason = str(error).strip()
    if isinstance(error, engine.TimeoutException) and not isinstance(error, engine.ConnectTimeout):
        try:
            watch.check(time.monotonic())
        except Broken as over:
            error = over
    if isinstance(error, Broken):
        if error.kind == "timeout" and time.monotonic() >= watch.end:
            return f"{where} took longer than {limits.total:g} s in all", "timeout", None
        return f"{where}: {error}", ("timeout" if error.kind == "timeout" else "protocol"), None
    if isinstance(error, engine.ConnectTimeout):
        return f"no connection to {where} within {limits.connect:g} s", "timeout", None
    if isinstance(error, engine.TimeoutException):
        step = f"took nothing for {limits.write:g} s" if isinstance(error, engine.WriteTimeout) else ""
        return f"{where} {step or f'said nothing for {limits.read:g} s'}", "timeout", None
    if isinstance(error, engine.ConnectError):
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return (
                f"the certificate of {where} is not trusted; SSL_CERT_FILE may name its authority",
                "transient",
                False,
            )
        hint = "; is the server running?" if http.address.is_local else ""
        return f"cannot connect to {where}: {reason or 'no reason given'}{hint}", "transient", None
    if isinstance(error, engine.ProxyError):
        return f"the proxy did not connect to {where}: {reason}", "transient", None
    if isinstance(error, engine.NetworkError) or "disconnected" in reason or "without sending" in reason:
        middle = "in the middle of the answer" if watch.answered else "before it answered"
        return f"{where} closed the connection {middle}", "transient", None
    return f"{where} does not speak HTTP as it should: {reason[:200]}", "protocol", None


# httpx --------------------------------------------------------------------------------------------


def load_engine(name: str = "") -> ModuleType:
    """Import the engine of httpx2 where that is installed, else that of httpx; or the one that is named."""
    if name:
        return import_module({"httpx": "httpcore", "httpx2": "httpcore2"}[name])
    try:
        return import_module("httpcore2")
    except ImportError:
        return import_module("httpcore")


def ssl_context(engine: ModuleType) -> ssl.SSLContext:
    """Return the one TLS context: httpx's choice of certificates, or what SSL_CERT_FILE and SSL_CERT_DIR say."""
    return _ssl_context(engine.__name__, os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))


@functools.cache
def _ssl_context(engine: str, file: str, folder: str) -> ssl.SSLContext:
    try:
        if engine == "httpcore2":
            context: ssl.SSLContext = import_module("httpx2").create_ssl_context()
        else:
            import httpx

            context = httpx.create_ssl_context()
    except OSError as error:
        name = "SSL_CERT_FILE" if file else "SSL_CERT_DIR"
        raise ConfigError(f"{name} names {file or folder!r}, which cannot be read: {error.strerror}") from error
    return context


def _proxied(engine: ModuleType, proxy: str, origin: Any, options: dict[str, Any]) -> Any:
    """Make a connection through a proxy."""
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(proxy)
        url = engine.URL(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
        raise ConfigError("the proxy variable must look like http://host:port (or https, socks5)")
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    if parts.scheme.startswith("socks"):
        try:
            import_module("socksio")
        except ImportError:
            raise ConfigError("a SOCKS proxy needs the package socksio: pip install 'httpx[socks]'") from None
        return engine.AsyncSOCKSProxy(proxy_url=url, proxy_auth=auth, **options).create_connection(origin)
    if parts.scheme == "https":
        options = {**options, "proxy_ssl_context": ssl_context(engine)}
    return engine.AsyncHTTPProxy(proxy_url=url, proxy_auth=auth, **options).create_connection(origin)

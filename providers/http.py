"""`HTTP`: a client for one origin, with deadlines, bounded bodies and masked credentials.

This is the only module that imports httpcore, or httpcore2 if it is installed: the engines of httpx
and httpx2. A read timeout starts again with every byte, so a deadline for the whole request must be
checked at each read of the socket; httpcore allows that, the clients above it do not.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlencode, urlsplit

import anyio

from glue.errors import ConfigError, ErrorKind, GlueError, ProviderError
from glue.messages import Json
from glue.overrides import check_origin
from glue.providers.connection import (
    KEEP_ALIVE,
    Address,
    Broken,
    Connection,
    Content,
    Resolve,
    Watch,
    WatchedBackend,
    idle_connections,
    inflate,
    proxy_for,
)
from glue.tasks import run_blocking

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("glue.http")

BODY = 32 * 1024 * 1024
ERROR_BODY = 64 * 1024
_ERROR_SECONDS = 10.0  # to read the body of an error response
_CLOSE_SECONDS = 2.0
# To read from the last event to the end of the body. Only then can the connection be reused.
_REST_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Timeouts of one request, in seconds.

    No request waits for a free connection: if none is idle, the request opens a new one.
    """

    connect: float = 10.0
    read: float = 300.0  # between two reads; a keep-alive comment counts as a read
    write: float = 120.0
    progress: float = 600.0  # between two reads with content; a keep-alive comment has none
    total: float = 1800.0


class Sent(NamedTuple):
    """A request as it is sent, with secrets masked."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str


# A function that is called with each request before it is sent, in the context that sends it.
on_request: ContextVar[Callable[[Sent], object] | None] = ContextVar(
    "glue.providers.on_request", default=None
)


class HTTPResponse(NamedTuple):
    """A complete response of any status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def retry_after(self) -> float | None:
        """The seconds that the server asks to wait, from a header or the body, or None."""
        from glue.providers.errors import advised_wait  # start-up: most requests succeed

        return advised_wait(self.headers, None, self.text[:2000].lower(), True)

    def json(self) -> Json:
        """Parse the body as JSON; return None if it is empty, raise ValueError if it is invalid."""
        try:
            return json.loads(self.body) if self.body.strip() else None
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error


class TransportResponse(Protocol):
    """The response of a `Transport`: its status and headers. Iterate over it to read the body."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    """The protocol of a user's own transport, which sends requests in place of glue's connections.

    `send` returns an async context manager that sends one request and yields the response. The
    transport decides about timeouts, proxies and TLS. An exception of the transport counts as a
    failed connection, a TimeoutError as a timeout.
    """

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AbstractAsyncContextManager[TransportResponse]: ...


class HTTP:
    """A client that sends requests to one origin with one set of credentials."""

    def __init__(
        self,
        base_url: str,
        *,
        provider: str = "",
        headers: Mapping[str, str] | None = None,
        query: Sequence[tuple[str, str]] = (),
        secrets: Sequence[str] = (),
        deadlines: Deadlines | None = None,
        environ: Mapping[str, str] | None = None,
        engine: str = "",
        transport: Transport | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self.address = Address(base_url, provider, query)
        self.provider = provider
        limits = self.deadlines = deadlines or Deadlines()
        # In the form that httpcore expects.
        self.timeouts = {"connect": limits.connect, "read": limits.read, "write": limits.write}
        self._secrets: tuple[str, ...] = ()
        for secret in secrets:
            self.hide(secret)
        self._engine = engine
        self.transport = transport
        self._exchange = Exchange if transport is None else Delegated
        self._proxy = proxy_for(self.address, os.environ if environ is None else environ)
        self._resolve = resolve
        # A connection is reused only if the same function has checked its address.
        self._key = (self.address.origin, self._proxy, engine, resolve)
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

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None, *, model: str = ""
    ) -> Exchange:
        """Send a POST request and stream the response: `async with http.post(...) as blocks`.

        In the block, use `async for block in blocks`. A status other than 2xx is raised as a
        ProviderError.
        """
        return self._exchange(self, "POST", path, body, headers, model=model)

    def get(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        raising: bool = True,
        most: int = BODY,
    ) -> Exchange:
        """Send a GET request and stream the response, as `post` does.

        If `raising` is false, a response of any status is streamed. `most` limits the bytes of the
        response.
        """
        return self._exchange(self, "GET", path, None, headers, raising=raising, most=most)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        most: int = BODY,
    ) -> HTTPResponse:
        """Send a request once and return the complete response, whatever its status.

        If no response comes, a ProviderError is raised. Its `ambiguous` is true if the server may
        have carried out the request.
        """
        if query:
            path += ("&" if "?" in path else "?") + urlencode(query)
        exchange = self._exchange(self, method, path, body, headers, raising=False, most=most)
        async with exchange as blocks:
            received = b"".join([block async for block in blocks])
        return HTTPResponse(status=exchange.status, headers=exchange.headers, body=received)

    def request_sync(self, method: str, path: str, **options: Any) -> HTTPResponse:
        """Send a request from synchronous code, close the connections and return the response.

        The arguments are those of `request`.
        """

        async def work() -> HTTPResponse:
            try:
                return await self.request(method, path, **options)
            finally:
                await self.aclose()

        return run_blocking(work)

    async def aclose(self) -> None:
        """Close the idle connections of this event loop to the origin."""
        idle = await idle_connections(self._key)
        while idle:
            await idle.pop().close()

    @property
    def authorized(self) -> bool:
        """True if every request has an authorization header."""
        return any(name == b"authorization" for name, _ in self._headers)

    def hide(self, secret: str) -> None:
        """Add a secret to mask in logs and errors, such as a token that was fetched later.

        A secret of three characters or less is ignored.
        """
        if len(secret) > 3 and secret not in self._secrets:
            escaped = secret.replace("/", "\\/")  # some servers escape slashes in JSON
            self._secrets = (*self._secrets, secret, escaped)

    def mask(self, text: str) -> str:
        """Return the text with each secret masked that was passed to `hide`."""
        from glue.secrets import mask_values  # start-up: most requests are not logged

        return mask_values(text, self._secrets)

    @functools.cached_property
    def engine(self) -> ModuleType:
        return load_engine(self._engine)

    def _encode(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        pairs = []
        for name, value in headers.items():
            if not (name + value).isascii() or not value.isprintable() or value != value.strip():
                # The message does not show the value, which may be the key, pasted with a line
                # end or a typographic quote.
                raise ConfigError(
                    f"{self.provider or 'http'}: the header {name} contains a line end, a character"
                    " outside ASCII, or a space at its start or end; correct its value"
                )
            pairs.append((name.lower().encode(), value.encode()))
        return pairs

    def _url(self, path: str) -> Any:
        address = self.address
        return self.engine.URL(
            scheme=address.scheme.encode(),
            host=address.host.encode(),
            port=address.explicit_port,
            target=address.target(path).encode(),
        )

    async def _idle_connection(self) -> Connection | None:
        """Take the idle connection that was used last out of the pool, and return it, or None.

        Connections that are no longer open are closed and removed until an open one is found.
        """
        idle = await idle_connections(self._key)
        while idle:
            connection = idle.pop()
            if not connection.inner.has_expired():
                return connection
            await connection.close()
        return None

    def _new_connection(self) -> Connection:
        watch = Watch()
        options: dict[str, Any] = {
            "keepalive_expiry": KEEP_ALIVE,
            "network_backend": WatchedBackend(self.engine, watch, self._resolve),
        }
        if self.address.scheme == "https":
            options["ssl_context"] = ssl_context(self.engine)
        origin = self._url("").origin
        if self._proxy:
            return Connection(_proxied(self.engine, self._proxy, origin, options), watch)
        return Connection(self.engine.AsyncHTTPConnection(origin=origin, **options), watch)


class Exchange:
    """A request and its response. `async with` sends the request; iteration yields the body.

    No cancel scope stays open while the caller handles a block, so the caller may be a generator.
    This class is not a generator: when the event loop ends, a generator would be closed too early,
    before the caller that reads from it.
    """

    def __init__(
        self,
        http: HTTP,
        method: str,
        path: str,
        body: bytes | None,
        extra: Mapping[str, str] | None,
        *,
        model: str = "",
        raising: bool = True,
        most: int = BODY,
    ) -> None:
        self.http = http
        self.method = method
        self.path = path
        self.body = body
        self.extra = extra  # headers of this request alone
        self.model = model
        self.raising = raising
        self.most = most
        self.status = 0
        self.headers: Mapping[str, str] = {}  # of the response; names in lower case
        self._connection: Connection | None = None
        self._response: Any = None
        self._blocks: AsyncGenerator[bytes, None] | None = None
        self._plain: AsyncGenerator[bytes, None] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        blocks: AsyncGenerator[bytes, None] = self._response.stream.__aiter__()
        self._blocks = blocks
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() == "identity":
            return blocks  # without another generator around it, which would slow each delta
        self._plain = inflate(blocks, encoding, self.most)
        return self._plain

    async def __aenter__(self) -> Exchange:
        http = self.http
        if (check := check_origin.get()) is not None:
            check(http.address.origin)
        connection = await http._idle_connection()
        if connection is not None:
            try:
                return await self._send(connection)
            except ProviderError as error:
                # The server may close an idle connection at the moment at which it is used again.
                # A request of `HTTP.request` is never sent twice.
                if not self.raising or not _is_stale(error, connection.watch, self.most):
                    raise
                log.debug("%s: the idle connection was closed, opening another", http.provider)
        return await self._send(http._new_connection())

    async def _send(self, connection: Connection) -> Exchange:
        """Send the request on a connection, read the status and headers, and return this exchange.

        Raise ProviderError if the connection fails, or for an error status if `raising` is true.
        """
        http, watch = self.http, connection.watch
        self._connection = connection
        watch.start(http.deadlines.total, http.deadlines.progress, self.most)
        try:
            response = self._response = await connection.inner.handle_async_request(self._request())
            self.status = response.status
            self.headers = {
                name.lower().decode("latin-1"): value.decode("latin-1")
                for name, value in response.headers
            }
            watch.answered = True
            watch.blind = "content-encoding" in self.headers
            if self.raising and not 200 <= self.status < 300:
                raise await self._refusal(watch)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # Shielded, because a cancelled task could not acquire the lock of its own connection.
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_SECONDS):
            await self._finish(connection.watch, leave=error is not None)
            stale: Connection | None = connection
            if self._response is not None and connection.inner.is_available():
                connection.since = time.monotonic()
                idle = await idle_connections(self.http._key)
                idle.append(connection)
                stale = idle.pop(0) if connection.since - idle[0].since > KEEP_ALIVE else None
            if stale is not None:
                await stale.inner.aclose()
        if error is not None:
            self._retype(error, connection.watch)

    async def _finish(self, watch: Watch, *, leave: bool) -> None:
        """Close the response. First try to read its rest, so that the connection can be reused.

        If `leave` is true, only bytes that have already arrived are read. Otherwise reading the
        rest may take up to `_REST_SECONDS`.
        """
        watch.closed = leave or self._blocks is None
        watch.shorten(_REST_SECONDS)
        if self._plain is not None:
            await self._plain.aclose()
        if self._blocks is not None:
            # httpcore nests generators and closes only the outer one. Continue reading: once the
            # watch is closed, the next read of the socket fails, which ends all of them.
            try:
                async for _ in self._blocks:
                    pass
            except Exception as error:
                log.debug(
                    "%s: the rest of the response was not read (%s)",
                    self.http.provider,
                    type(error).__name__,
                )
        if self._response is not None:
            await self._response.stream.aclose()

    def _request_headers(self) -> list[tuple[bytes, bytes]]:
        """Report the request to the observer and the debug log, if any, and return its headers."""
        http = self.http
        extra = http._encode(self.extra or {})
        own = {name for name, _ in extra}
        headers = [*(pair for pair in http._headers if pair[0] not in own), *extra]
        if self.body is not None:
            headers.append((b"content-length", b"%d" % len(self.body)))
            if not any(name == b"content-type" for name, _ in headers):
                headers.append((b"content-type", b"application/json"))
        if on_request.get() is not None or log.isEnabledFor(logging.DEBUG):
            self._report(headers)
        return headers

    def _request(self) -> Any:
        http = self.http
        return http.engine.Request(
            self.method.encode(),
            http._url(self.path),
            headers=self._request_headers(),
            content=Content(self.body or b""),
            extensions={"timeout": http.timeouts},
        )

    def _report(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Pass the request, with secrets masked, to the `on_request` observer and to the log."""
        http = self.http
        sent = Sent(
            method=self.method,
            url=http.mask(http.address.origin + http.address.target(self.path)),
            headers=tuple((name.decode(), http.mask(value.decode())) for name, value in headers),
            body=http.mask((self.body or b"").decode("utf-8", "replace")),
        )
        if (observe := on_request.get()) is not None:
            observe(sent)
        lines = (
            f"{sent.method} {sent.url}",
            *(f"{name}: {value}" for name, value in sent.headers),
            "",
            sent.body,
        )
        log.debug("%s", "\n".join(lines))

    async def _refusal(self, watch: Watch) -> ProviderError:
        """Read the body of a response that is not a success, and return the error for it."""
        http = self.http
        watch.shorten(_ERROR_SECONDS)
        body = b""
        try:
            async for block in self:
                body += block
                if len(body) >= ERROR_BODY:
                    break
        except _errors(http.engine) as error:  # classify the error by its status alone
            log.debug(
                "%s: the body of the error response was cut off (%s)",
                http.provider,
                type(error).__name__,
            )
        return self._classified(body)

    def _classified(self, body: bytes) -> ProviderError:
        http = self.http
        if 300 <= self.status < 400:
            what = (
                f"HTTP {self.status}: the server sent a redirect, which glue does not follow here; "
                "set the base URL to the target of the redirect"
            )
            return ProviderError(
                what,
                kind="invalid_request",
                provider=http.provider,
                model=self.model,
                status=self.status,
            )
        body = http.mask(body[:ERROR_BODY].decode("utf-8", "replace")).encode()
        from glue.providers.errors import classify  # start-up: most requests succeed

        return classify(self.status, self.headers, body, provider=http.provider, model=self.model)

    def _retype(self, error: BaseException, watch: Watch) -> None:
        """Raise a ProviderError if `error` means that the connection failed or exceeded a limit.

        Return if `error` is any other error.
        """
        http = self.http
        if not isinstance(error, _errors(http.engine)):
            return
        what, kind, again = _explain(error, http, watch)
        raised = ProviderError(
            http.mask(what), kind=kind, provider=http.provider, model=self.model, retryable=again
        )
        engine = http.engine
        raised.ambiguous = not isinstance(
            error, (engine.ConnectError, engine.ConnectTimeout, engine.ProxyError)
        )
        raised.answered = watch.answered
        raise raised from error


class Delegated(Exchange):
    """One request and its response, sent through the user's own transport."""

    _manager: AbstractAsyncContextManager[TransportResponse] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._blocks = self._read()
        return self._blocks

    async def _read(self) -> AsyncGenerator[bytes, None]:
        left, blocks = self.most, aiter(self._response)
        try:
            async for block in blocks:
                left -= len(block)
                if left < 0:
                    raise Broken("the response is longer than allowed", "protocol")
                yield block
        finally:
            if hasattr(blocks, "aclose"):
                await blocks.aclose()

    async def __aenter__(self) -> Exchange:
        http, address = self.http, self.http.address
        assert http.transport is not None
        if (check := check_origin.get()) is not None:
            check(address.origin)
        headers = {name.decode(): value.decode() for name, value in self._request_headers()}
        url = address.origin + address.target(self.path)
        try:
            manager = http.transport.send(self.method, url, headers, self.body)
            self._response = await manager.__aenter__()
        except Exception as error:
            raise self._failure(error) from error
        self._manager = manager
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.headers.items()}
        if self.raising and not 200 <= self.status < 300:
            body = b""
            try:
                async for block in self:
                    body += block
                    if len(body) >= ERROR_BODY:
                        break
                raise self._classified(body)
            except Exception as error:
                await self.__aexit__(type(error), error, None)
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        manager, self._manager = self._manager, None
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_SECONDS):
            if self._blocks is not None:
                await self._blocks.aclose()
            if manager is not None:
                await manager.__aexit__(kind, error, traceback)
        if isinstance(error, Exception) and not isinstance(error, GlueError):
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, GlueError):
            return error
        http = self.http
        kind: ErrorKind = "timeout" if isinstance(error, TimeoutError) else "transient"
        if isinstance(error, Broken):
            kind = "protocol"
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        failure = ProviderError(
            http.mask(f"the transport for {http.address.authority} failed: {what}"),
            kind=kind,
            provider=http.provider,
            model=self.model,
        )
        failure.ambiguous, failure.answered = True, self.status != 0
        return failure


def _is_stale(error: ProviderError, watch: Watch, size: int) -> bool:
    """Return whether a request failed because the server had closed the idle connection."""
    return error.kind == "transient" and not watch.answered and watch.left == size


def _errors(engine: ModuleType) -> tuple[type[Exception], ...]:
    return (
        engine.NetworkError,
        engine.ProtocolError,
        engine.ProxyError,
        engine.TimeoutException,
        Broken,
    )


def _explain(error: Exception, http: HTTP, watch: Watch) -> tuple[str, ErrorKind, bool | None]:
    """Return the message and the kind of a connection error, and whether a retry may help.

    The third value is None if the default of the kind applies.
    """
    import ssl  # start-up: only https needs it, and by now the engine has loaded it

    engine, limits, where = http.engine, http.deadlines, http.address.authority
    if http._proxy and isinstance(error, (engine.ConnectError, engine.ConnectTimeout)):
        proxy = http._proxy.rpartition("@")[2].rpartition("//")[2]
        where += f" through the proxy {proxy} (from HTTPS_PROXY or a similar variable)"
    reason = str(error).strip()
    if isinstance(error, engine.TimeoutException) and not isinstance(error, engine.ConnectTimeout):
        try:
            watch.check(time.monotonic())
        except Broken as over:
            error = over
    if isinstance(error, Broken):
        if error.kind == "timeout" and time.monotonic() >= watch.end:
            return f"{where} took longer than {limits.total:g} s in all", "timeout", None
        return f"{where}: {error}", error.kind, None
    if isinstance(error, engine.ConnectTimeout):
        return f"no connection to {where} within {limits.connect:g} s", "timeout", None
    if isinstance(error, engine.TimeoutException):
        is_write = isinstance(error, engine.WriteTimeout)
        silence = f"accepted nothing for {limits.write:g} s" if is_write else ""
        silence = silence or f"sent nothing for {limits.read:g} s"
        return f"{where} {silence}", "timeout", None
    if isinstance(error, engine.ConnectError):
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            what = (
                f"the certificate of {where} is not trusted;"
                " set SSL_CERT_FILE to the certificate of its authority"
            )
            return what, "transient", False
        hint = "; is the server running?" if http.address.is_local else ""
        return f"cannot connect to {where}: {reason or 'no reason given'}{hint}", "transient", None
    if isinstance(error, engine.ProxyError):
        return f"the proxy did not connect to {where}: {reason}", "transient", None
    if isinstance(error, engine.NetworkError) or watch.hung_up:
        moment = "in the middle of the response" if watch.answered else "before it responded"
        return f"{where} closed the connection {moment}", "transient", None
    return f"{where} sent an invalid HTTP response: {reason[:200]}", "protocol", None


# httpx


def load_engine(name: str = "") -> ModuleType:
    """Import and return the HTTP engine: httpcore2 for httpx2, httpcore for httpx.

    Without a name, return httpcore2 if it is installed, otherwise httpcore.
    """
    if name:
        return import_module({"httpx": "httpcore", "httpx2": "httpcore2"}[name])
    try:
        return import_module("httpcore2")
    except ImportError:
        return import_module("httpcore")


def ssl_context(engine: ModuleType) -> ssl.SSLContext:
    """Return the shared TLS context; SSL_CERT_FILE and SSL_CERT_DIR replace its certificates."""
    return _ssl_context(
        engine, os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")
    )


@functools.cache
def _ssl_context(engine: ModuleType, file: str, folder: str) -> ssl.SSLContext:
    # The same certificates as those of the client, whose import would take 40 ms more.
    import ssl  # start-up: only https needs it

    if file or folder:
        try:
            return ssl.create_default_context(cafile=file or None, capath=folder or None)
        except OSError as error:  # a folder is read later, at each connection
            raise ConfigError(
                f"SSL_CERT_FILE names {file!r}, which cannot be read: {error.strerror}"
            ) from error
    if engine.__name__ == "httpcore":
        return ssl.create_default_context(cafile=import_module("certifi").where())
    context: ssl.SSLContext = engine.default_ssl_context()
    return context


def _proxied(engine: ModuleType, proxy: str, origin: Any, options: dict[str, Any]) -> Any:
    """Return a connection to an origin through a proxy; raise ConfigError for a bad proxy URL."""
    try:
        parts = urlsplit(proxy)
        url = engine.URL(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
        raise ConfigError(
            "the proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY must look like http://host:port,"
            " https://host:port or socks5://host:port"
        )
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    if parts.scheme.startswith("socks"):
        try:
            import_module("socksio")
        except ImportError:
            raise ConfigError(
                "a SOCKS proxy needs the package socksio: pip install 'httpx[socks]'"
            ) from None
        return engine.AsyncSOCKSProxy(proxy_url=url, proxy_auth=auth, **options).create_connection(
            origin
        )
    if parts.scheme == "https":
        options = {**options, "proxy_ssl_context": ssl_context(engine)}
    return engine.AsyncHTTPProxy(proxy_url=url, proxy_auth=auth, **options).create_connection(
        origin
    )

"""Connections to servers: a pool for each event loop, deadlines, proxies, compressed bodies."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from ipaddress import ip_address, ip_network
from types import ModuleType
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import anyio
from anyio.lowlevel import RunVar

from glue.errors import ConfigError, ErrorKind

_SIZE = re.compile(rb"[0-9a-fA-F]{1,7}\r\n")
_BLANK = re.compile(rb"\n\r?\n")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_HEAD = 65536
_LINE_END = -1  # the value of `_left` while only the CRLF after a chunk is missing

# asyncio reads into a block of 256 KiB. glibc asks the kernel for such a block and returns it at
# every read (about 25 us), until a larger block was freed.
bytes(1 << 20)


class Chunks:
    """A filter for received bytes that merges HTTP chunks which arrive together into one chunk.

    Only chunks of responses with status 200 are merged. All other bytes pass unchanged.
    """

    __slots__ = ("_left", "_plain", "_rest", "_started")

    def __init__(self) -> None:
        self._plain = False  # pass all bytes on unchanged
        self._started = False  # the head of the response is complete
        self._rest = b""  # the head so far; later, the start of an incomplete chunk frame
        self._left = 0  # bytes of the current chunk that have not arrived yet

    def feed(self, data: bytes) -> bytes:
        """Add received bytes; return the bytes to pass on now, or b"" if all are kept for later."""
        if self._plain:
            return data
        if self._started:
            return self._joined(data)
        head = self._rest + data
        blank = _BLANK.search(head)
        if blank is None:
            self._rest = head
            self._plain = len(head) > _HEAD
            return data
        self._rest = b""
        self._started = True
        end = blank.end()
        if (
            blank[0] != b"\n\r\n"
            or not _CHUNKED.search(head, 0, end)
            or not head.startswith(b"HTTP/1.1 200")
        ):
            self._plain = True
            return data
        body = head[end:]
        return data[: len(data) - len(body)] + self._joined(body)

    def _joined(self, data: bytes) -> bytes:
        data = self._rest + data
        pieces: list[bytes] = []
        at = 0
        size = len(data)
        while at < size:
            if self._left == 0:
                match = _SIZE.match(data, at)
                length = int(data[at : match.end() - 2], 16) if match else 0
                if match is None or not length:
                    break
                at, end = match.end(), match.end() + length
                if data[end : end + 2] == b"\r\n":  # a whole chunk, as nearly every one is
                    pieces.append(data[at:end])
                    at = end + 2
                    continue
                self._left = length
            if self._left != _LINE_END:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left = self._left - len(piece) or _LINE_END
            if self._left == _LINE_END:
                if data[at : at + 2] != b"\r\n":
                    break
                at, self._left = at + 2, 0
        body = b"".join(pieces)
        # An empty chunk would end the response.
        framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        rest = data[at:]
        begins = (
            rest in (b"", b"\r")
            if self._left == _LINE_END
            else len(rest) < 9 and b"\r\n" not in rest
        )
        if begins:
            self._rest = rest  # the start of a frame whose rest has not arrived
            return framed
        self._plain = True  # the end of the body, or not a chunk
        return framed + rest


KEEP_ALIVE = 30.0  # seconds that an idle connection is kept
_CLOSE_SECONDS = 2.0
_STEP = 65536
_CONTENT = 128  # a read of at least this many bytes counts as content, not as a keep-alive


class Broken(Exception):
    """The error that is raised if a deadline passes, or if a response is too long or damaged.

    `kind` is the kind of the error for the caller.
    """

    def __init__(self, what: str, kind: ErrorKind) -> None:
        super().__init__(what)
        self.kind = kind


class Watch:
    """The deadlines and the size limit of one request, and its progress."""

    __slots__ = ("answered", "blind", "closed", "end", "hung_up", "left", "patience", "progress")

    def start(self, total: float, patience: float, size: int) -> None:
        """Set the limits of a new request: it may take `total` seconds and receive `size` bytes.

        At most `patience` seconds may pass between two reads with content.
        """
        now = time.monotonic()
        self.end = now + total
        self.patience = patience
        self.progress = now + patience
        self.left = size
        self.answered = False  # whether the status line has arrived
        # Whether the body is compressed, so that content and comments look the same.
        self.blind = False
        self.closed = False  # whether every further read fails
        self.hung_up = False  # whether the server closed the connection

    def shorten(self, seconds: float) -> None:
        """Shorten the total deadline of the request to at most `seconds` from now."""
        self.end = min(self.end, time.monotonic() + seconds)

    def wait(self, timeout: float | None) -> float:
        """Return the seconds that the next read or write may take; raise Broken if none are left.

        The result is at most `timeout`. Raise Broken too if the caller has closed the response.
        """
        if self.closed:
            raise Broken("the caller closed the response before its end", "transient")
        now = time.monotonic()
        left = (self.end if self.end < self.progress else self.progress) - now
        if left <= 0:
            self.check(now)
        return left if timeout is None or left < timeout else timeout

    def check(self, now: float) -> None:
        """Raise Broken if the total or the progress deadline has passed."""
        if now >= self.end:
            raise Broken("the request took longer than its total deadline", "timeout")
        if now >= self.progress:
            raise Broken(
                f"the server sent no content for {self.patience:g} s, only keep-alive", "timeout"
            )

    def note(self, data: bytes) -> None:
        """Count received bytes and extend the progress deadline; raise Broken above the size limit.

        Comments and pings of a stream do not extend the deadline.
        """
        self.left -= len(data)
        if self.left < 0:
            raise Broken("the response is longer than allowed", "protocol")
        if self.blind or len(data) >= _CONTENT or (b"data:" in data and b'"ping"' not in data):
            self.progress = time.monotonic() + self.patience


# A function that returns the addresses to connect to for a host and a port, or raises to refuse.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


class WatchedBackend:
    """A network backend for httpcore whose streams enforce the limits of a Watch.

    If `resolve` is given, it replaces the name lookup of the system: connections go only to the
    addresses that it returns, and no second lookup can lead elsewhere.
    """

    def __init__(self, engine: ModuleType, watch: Watch, resolve: Resolve | None = None) -> None:
        self._inner = engine.AnyIOBackend()
        self._watch = watch
        self._resolve = resolve
        self._failures = (engine.ConnectError, engine.ConnectTimeout)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Stream:
        hosts = [host] if self._resolve is None else await self._resolve(host, port)
        for number, each in enumerate(hosts, 1):
            try:
                stream = await self._inner.connect_tcp(
                    each, port, self._watch.wait(timeout), local_address, socket_options
                )
                return Stream(stream, self._watch)
            except self._failures:
                if number == len(hosts):
                    raise
        raise self._failures[0](f"{host} has no address")


class Stream:
    """A network stream for httpcore, plain or with TLS, that enforces the limits of a Watch."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch
        self._head = b""
        self._chunks = Chunks()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        watch = self._watch
        if self._head:
            await self.write(b"", timeout)
        while data := await self._inner.read(max_bytes, watch.wait(timeout)):
            watch.note(data)
            if joined := self._chunks.feed(data):
                return joined
        watch.hung_up = True
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # The head of a request is held until its body: one write and one packet instead of two.
        if buffer.endswith(b"\r\n\r\n") and not self._head and len(buffer) < _STEP:
            self._head = buffer
            self._chunks = Chunks()
            return
        head, self._head = self._head, b""
        if head and len(buffer) > _STEP:  # copying a large body costs more than a second write
            await self._inner.write(head, self._watch.wait(timeout))
            head = b""
        if head or buffer:
            await self._inner.write(head + buffer, self._watch.wait(timeout))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> Stream:
        inner = await self._inner.start_tls(ssl_context, server_hostname, self._watch.wait(timeout))
        return Stream(inner, self._watch)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Content:
    """The body of a request: an iterator that yields one block and need not be closed.

    httpcore's own generator would stay open if sending fails.
    """

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data

    def __aiter__(self) -> Content:
        return self

    async def __anext__(self) -> bytes:
        data, self._data = self._data, None
        if data is None:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Do nothing, because bytes in memory need no closing. httpcore closes every body."""


# The pool


class Connection:
    """A connection of httpcore, and the Watch that limits the time and size of its requests."""

    __slots__ = ("inner", "since", "watch")

    since: float  # when the connection became idle, by the monotonic clock

    def __init__(self, inner: Any, watch: Watch) -> None:
        self.inner = inner
        self.watch = watch

    async def close(self) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_SECONDS):
            await self.inner.aclose()


# Idle connections by origin. The one used last is taken first.
_Idle: TypeAlias = dict[object, list[Connection]]
_pool: RunVar[tuple[_Idle, AsyncGenerator[None, None]]] = RunVar("glue.providers.pool")


async def idle_connections(key: object) -> list[Connection]:
    """Return the event loop's list of idle connections for a key; create the list if necessary.

    The key is an origin, for example.
    """
    try:
        idle, _ = _pool.get()
    except LookupError:
        idle = {}
        closer = _close_at_exit(idle)
        _pool.set((idle, closer))
        await anext(closer)
    return idle.setdefault(key, [])


async def _close_at_exit(idle: _Idle) -> AsyncGenerator[None, None]:
    # An event loop that ends closes its open generators. This generator then closes the idle
    # connections, so that nothing warns at exit even if the user never called aclose.
    try:
        yield
    finally:
        for connections in idle.values():
            while connections:
                await connections.pop().close()


# Compressed bodies


async def inflate(
    blocks: AsyncIterator[bytes], encoding: str, limit: int
) -> AsyncGenerator[bytes, None]:
    """Yield the decompressed body of a response (gzip or deflate) in small blocks.

    Raise Broken if the body is damaged, has another encoding, or decompresses to more than `limit`
    bytes.
    """
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise Broken(
            f"the response is encoded as {encoding[:40]!r}, which the request does not accept",
            "protocol",
        )
    engine, begun, whole = zlib.decompressobj(47), False, True
    async for data in blocks:
        full = False
        while data or full:
            try:
                piece = engine.decompress(data, _STEP)
            except zlib.error as error:
                if begun:
                    raise Broken(
                        f"the compressed response is broken: {error}", "protocol"
                    ) from None
                engine, begun = zlib.decompressobj(-15), True  # deflate without its header
                continue
            begun, whole, full = True, engine.eof, len(piece) == _STEP
            limit -= len(piece)
            if limit < 0:
                raise Broken("the response is longer than allowed", "protocol")
            if piece:
                yield piece
            data = engine.unconsumed_tail
            if whole:
                data, engine, full = engine.unused_data, zlib.decompressobj(47), False
    if not whole:
        raise Broken("the compressed response is cut off", "protocol")


_PORTS = {"http": 80, "https": 443}
_SAFE = "!#$%&'()*+,/:;=?@[]~"  # with the percent sign: paths may be quoted already


class Address:
    """A base URL: its origin, the prefix of each path, and the query to append."""

    __slots__ = ("authority", "explicit_port", "host", "origin", "path", "port", "query", "scheme")

    def __init__(self, url: str, provider: str = "", query: Sequence[tuple[str, str]] = ()) -> None:
        try:
            parts = urlsplit(url.strip())
            host = parts.hostname or ""
            if not host.isascii():  # only then load the codec
                host = host.encode("idna").decode("ascii")
            port = parts.port
        except (ValueError, UnicodeError):
            raise _malformed(provider, url) from None
        if (
            parts.scheme not in _PORTS
            or not host
            or "@" in parts.netloc
            or port == 0
            or " " in parts.netloc
        ):
            raise _malformed(provider, url)
        self.scheme = parts.scheme
        self.host = host
        self.port = port or _PORTS[parts.scheme]
        self.explicit_port = None if self.port == _PORTS[self.scheme] else self.port
        name = f"[{host}]" if ":" in host else host
        # The value of the Host header.
        self.authority = f"{name}:{self.port}" if self.explicit_port else name
        self.origin = f"{self.scheme}://{self.authority}"
        self.path = parts.path.rstrip("/")
        self.query = "&".join(piece for piece in (parts.query, urlencode(query)) if piece)

    @property
    def is_local(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def target(self, path: str) -> str:
        """Return the path and query to request, percent-encoded, for a path below the base URL."""
        path, _, query = path.partition("?")
        path = f"{self.path}/{path.lstrip('/')}" if path else self.path or "/"
        query = "&".join(piece for piece in (query, self.query) if piece)
        return quote(f"{path}?{query}" if query else path, safe=_SAFE)


def has_login(url: str) -> bool:
    """Return whether a URL contains a user or password: an "@" before its path."""
    rest = url.partition("://")[2] or url
    return "@" in re.split(r"[/\\?#]", rest.lstrip("/"), maxsplit=1)[0]


def _malformed(provider: str, url: str) -> ConfigError:
    who = f"{provider}: " if provider else ""
    if has_login(url):
        return ConfigError(
            f"{who}a base URL must not contain a user or password; remove them, and set the key"
        )
    if "@" in url:  # a password may contain a slash, so the URL is not shown
        fault = "the base URL is malformed (it is not shown, because it may contain a password)"
    else:
        fault = f"{url!r} is not a base URL"
    return ConfigError(f"{who}{fault}; it must look like https://host/v1")


def proxy_for(address: Address, environ: Mapping[str, str]) -> str:
    """Return the URL of the proxy that the environment sets for an address, or "" for no proxy."""

    def variable(name: str) -> str:
        # Under CGI, HTTP_PROXY comes from a header of the client, so it is not trusted.
        if name == "http_proxy" and "REQUEST_METHOD" in environ:
            return environ.get(name, "").strip()
        return (environ.get(name) or environ.get(name.upper()) or "").strip()

    proxy = variable(f"{address.scheme}_proxy") or variable("all_proxy")
    if not proxy or any(
        _is_exempt(address, entry)
        for entry in variable("no_proxy").lower().replace(",", " ").split()
    ):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_exempt(address: Address, entry: str) -> bool:
    if "/" in entry:
        try:
            return ip_address(address.host) in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, _, port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
    if port and port != str(address.port):
        return False
    name = name.strip("[]").lstrip("*").lstrip(".")
    return entry == "*" or address.host == name or address.host.endswith("." + name)

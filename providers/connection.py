"""Connections to servers: a pool for each event loop, deadlines at every read, proxies and compressed bodies."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import anyio
from anyio.lowlevel import RunVar

from glue.errors import ConfigError

_SIZE = re.compile(rb"[0-9a-fA-F]{1,7}\r\n")
_BLANK = re.compile(rb"\n\r?\n")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_HEAD = 65536
_LINE_END = -1  # what is still to come of a chunk: the end of its line

# asyncio reads into a block of 256 KiB. glibc asks the kernel for such a block and gives it back at every read (some
# 25 us), until a larger one was freed.
bytes(1 << 20)


class Chunks:
    """Joins the chunks of one answer that came together to one; what is no plain chunk is passed on as it came."""

    __slots__ = ("_left", "_plain", "_rest", "_started")

    def __init__(self) -> None:
        self._plain = False  # pass everything on
        self._started = False  # the head is over
        self._rest = b""  # the head so far; then a frame that has not wholly come
        self._left = 0  # bytes of the current chunk that are still to come

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to hand on; nothing where only a part of a frame came."""
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
        if blank[0] != b"\n\r\n" or not _CHUNKED.search(head, 0, end) or not head.startswith(b"HTTP/1.1 200"):
            self._plain = True
            return data
        body = head[end:]
        return data[: len(data) - len(body)] + self._joined(body)

    def _joined(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        pieces: list[bytes] = []
        at = 0
        size = len(data)
        while at < size:
            if self._left == 0:
                match = _SIZE.match(data, at)
                length = int(data[at : match.end() - 2], 16) if match else 0
                if match is None or not length:
                    break
                at, self._left = match.end(), length
            if self._left > 0:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left = self._left - len(piece) or _LINE_END
            if self._left == _LINE_END:
                if data[at : at + 2] != b"\r\n":
                    break
                at, self._left = at + 2, 0
        body = b"".join(pieces)
        framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""  # an empty chunk would end the answer
        rest = data[at:]
        begins = rest in (b"", b"\r") if self._left == _LINE_END else len(rest) < 9 and b"\r\n" not in rest
        if begins:
            self._rest = rest  # of a frame, the rest is yet to come
            return framed
        self._plain = True  # the end of the body, or what is no frame
        return framed + rest


KEEP_ALIVE = 30.0  # seconds that an idle connection is kept
_CLOSE_SECONDS = 2.0
_STEP = 65536
_CONTENT = 128  # a read of so many bytes is more than a keep-alive


class Broken(Exception):
    """A deadline or a bound of ours ended an answer; `kind` is the error's."""

    def __init__(self, what: str, kind: str) -> None:
        super().__init__(what)
        self.kind = kind


class Watch:
    """The clocks of one request."""

    __slots__ = ("answered", "blind", "closed", "end", "hung_up", "left", "patience", "progress")

    def start(self, total: float, patience: float, size: int) -> None:
        now = time.monotonic()
        self.end = now + total
        self.patience = patience
        self.progress = now + patience
        self.left = size
        self.answered = False  # whether the status has come
        self.blind = False  # whether the body is compressed, so that content cannot be told from comments
        self.closed = False  # from here on a read fails
        self.hung_up = False  # whether the server closed the connection

    def shorten(self, seconds: float) -> None:
        self.end = min(self.end, time.monotonic() + seconds)

    def wait(self, timeout: float | None) -> float:
        """Return how long the next step may take."""
        if self.closed:
            raise Broken("the answer was not read to its end", "transient")
        now = time.monotonic()
        left = (self.end if self.end < self.progress else self.progress) - now
        if left <= 0:
            self.check(now)
        return left if timeout is None or left < timeout else timeout

    def check(self, now: float) -> None:
        """Raise where a deadline has passed."""
        if now >= self.end:
            raise Broken("the total time for a request is over", "timeout")
        if now >= self.progress:
            raise Broken(f"no content for {self.patience:g} s, only keep-alive", "timeout")

    def note(self, data: bytes) -> None:
        """Count what came; comments and pings are no progress, or they could go on for ever."""
        self.left -= len(data)
        if self.left < 0:
            raise Broken("the answer is longer than allowed", "protocol")
        if self.blind or len(data) >= _CONTENT or (b"data:" in data and b'"ping"' not in data):
            self.progress = time.monotonic() + self.patience


class Backend:
    """httpcore's network backend, whose streams obey a watch."""

    def __init__(self, engine: ModuleType, watch: Watch) -> None:
        self._inner = engine.AnyIOBackend()
        self._watch = watch

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Stream:
        stream = await self._inner.connect_tcp(host, port, self._watch.wait(timeout), local_address, socket_options)
        return Stream(stream, self._watch)


class Stream:
    """One socket, or TLS on top of one."""

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
        # A request's head waits for its body: one write, one packet, one timeout less.
        if buffer.endswith(b"\r\n\r\n") and not self._head and len(buffer) < _STEP:
            self._head = buffer
            self._chunks = Chunks()
            return
        head, self._head = self._head, b""
        if head and len(buffer) > _STEP:  # here a copy would cost more than it saves
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
    """A request's body. Not httpcore's own generator, which is left open where sending fails."""

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
        """There is nothing to close."""


# The pool -----------------------------------------------------------------------------------------


class Connection:
    """One of the engine's connections and its watch."""

    __slots__ = ("inner", "since", "watch")

    def __init__(self, inner: Any, watch: Watch) -> None:
        self.inner = inner
        self.watch = watch
        self.since = 0.0

    async def close(self) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_SECONDS):
            await self.inner.aclose()


_Idle: TypeAlias = dict[object, list[Connection]]  # by origin; the last one used is the first one taken
_pool: RunVar[tuple[_Idle, AsyncGenerator[None, None]]] = RunVar("glue.providers.pool")


async def idle_connections(key: object) -> list[Connection]:
    """Return the idle connections of this event loop for a key."""
    try:
        idle, _ = _pool.get()
    except LookupError:
        idle = {}
        closer = _close_at_exit(idle)
        _pool.set((idle, closer))
        await anext(closer)
    return idle.setdefault(key, [])


async def _close_at_exit(idle: _Idle) -> AsyncGenerator[None, None]:
    # Event loops close the generators that are left when they end. This one closes the
    # connections, so that nothing warns at exit although nobody called aclose.
    try:
        yield
    finally:
        for connections in idle.values():
            while connections:
                await connections.pop().close()


# Compressed bodies --------------------------------------------------------------------------------


async def inflate(blocks: AsyncIterator[bytes], encoding: str, limit: int) -> AsyncGenerator[bytes, None]:
    """Decompress gzip and deflate in small steps: a bomb costs no more than the limit."""
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise Broken(f"the answer is encoded as {encoding[:40]!r}, which was not asked for", "protocol")
    engine, begun, whole = zlib.decompressobj(47), False, True
    async for data in blocks:
        full = False
        while data or full:
            try:
                piece = engine.decompress(data, _STEP)
            except zlib.error as error:
                if begun:
                    raise Broken(f"the compressed answer is broken: {error}", "protocol") from None
                engine, begun = zlib.decompressobj(-15), True  # deflate without its header
                continue
            begun, whole, full = True, engine.eof, len(piece) == _STEP
            limit -= len(piece)
            if limit < 0:
                raise Broken("the answer is longer than allowed", "protocol")
            if piece:
                yield piece
            data = engine.unconsumed_tail
            if whole:
                data, engine, full = engine.unused_data, zlib.decompressobj(47), False
    if not whole:
        raise Broken("the compressed answer is cut off", "protocol")


_PORTS = {"http": 80, "https": 443}
_SAFE = "!#$%&'()*+,/:;=?@[]~"  # a percent sign stays: what a wire has quoted is sent as it is


class Address:
    """A base URL: one origin, and what comes before each path and after it."""

    __slots__ = ("authority", "explicit_port", "host", "origin", "path", "port", "query", "scheme")

    def __init__(self, url: str, provider: str = "", query: Sequence[tuple[str, str]] = ()) -> None:
        try:
            parts = urlsplit(url.strip())
            host = parts.hostname or ""
            if not host.isascii():  # the codec is not worth loading for the others
                host = host.encode("idna").decode("ascii")
            port = parts.port
        except (ValueError, UnicodeError):
            raise _malformed(provider, url) from None
        if parts.scheme not in _PORTS or not host or "@" in parts.netloc or port == 0 or " " in parts.netloc:
            raise _malformed(provider, url)
        self.scheme = parts.scheme
        self.host = host
        self.port = port or _PORTS[parts.scheme]
        self.explicit_port = None if self.port == _PORTS[self.scheme] else self.port
        name = f"[{host}]" if ":" in host else host
        self.authority = f"{name}:{self.port}" if self.explicit_port else name  # as the Host header wants it
        self.origin = f"{self.scheme}://{self.authority}"
        self.path = parts.path.rstrip("/")
        self.query = "&".join(piece for piece in (parts.query, urlencode(query)) if piece)

    @property
    def is_local(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def target(self, path: str) -> str:
        """Return the path and query to send for a path below the base URL."""
        path, _, query = path.partition("?")
        path = f"{self.path}/{path.lstrip('/')}" if path else self.path or "/"
        query = "&".join(piece for piece in (query, self.query) if piece)
        return quote(f"{path}?{query}" if query else path, safe=_SAFE)


def _malformed(provider: str, url: str) -> ConfigError:
    who = f"{provider}: " if provider else ""
    if "@" in url:  # may hold a password, which is not shown
        return ConfigError(f"{who}a base URL must not hold a user or password; use the key's variable")
    return ConfigError(f"{who}{url!r} is no base URL; it must look like https://host/v1")


def proxy_for(address: Address, environ: Mapping[str, str]) -> str:
    """Return the proxy that the standard variables name for an address, or nothing."""

    def variable(name: str) -> str:
        if name == "http_proxy" and "REQUEST_METHOD" in environ:  # under CGI a client sets HTTP_PROXY by a header
            return environ.get(name, "").strip()
        return (environ.get(name) or environ.get(name.upper()) or "").strip()

    proxy = variable(f"{address.scheme}_proxy") or variable("all_proxy")
    if not proxy or any(_is_exempt(address, entry) for entry in variable("no_proxy").lower().replace(",", " ").split()):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_exempt(address: Address, entry: str) -> bool:
    if "/" in entry:
        from ipaddress import ip_address, ip_network

        try:
            return ip_address(address.host) in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, _, port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
    if port and port != str(address.port):
        return False
    name = name.strip("[]").lstrip("*").lstrip(".")
    return entry == "*" or address.host == name or address.host.endswith("." + name)

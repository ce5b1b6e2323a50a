"""Connections: a free list for each event loop, and clocks that hold at every read of the socket."""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from types import ModuleType
from typing import Any

import anyio
from anyio.lowlevel import RunVar

from glue.providers.chunks import Chunks

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

    __slots__ = ("answered", "blind", "closed", "end", "left", "patience", "progress")

    def start(self, total: float, patience: float, size: int) -> None:
        now = time.monotonic()
        self.end = now + total
        self.patience = patience
        self.progress = now + patience
        self.left = size
        self.answered = False  # whether the status has come
        self.blind = False  # whether the body is compressed, so that content cannot be told from comments
        self.closed = False  # from here on a read fails

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

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


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


# The free list ------------------------------------------------------------------------------------


class Line:
    """A connection and its watch."""

    __slots__ = ("connection", "since", "watch")

    def __init__(self, connection: Any, watch: Watch) -> None:
        self.connection = connection
        self.watch = watch
        self.since = 0.0

    async def close(self) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_SECONDS):
            await self.connection.aclose()


class _Idle:
    """The idle connections of one event loop, by origin; the last one used is the first one taken."""

    def __init__(self) -> None:
        self.lines: dict[object, list[Line]] = {}
        self.keeper = self._keep()

    async def _keep(self) -> AsyncGenerator[None, None]:
        # Event loops close the generators that are left when they end. This one closes the
        # connections, so that nothing warns at exit although nobody called aclose.
        try:
            yield
        finally:
            for lines in self.lines.values():
                while lines:
                    await lines.pop().close()


_idle: RunVar[_Idle] = RunVar("glue.providers.idle")


async def idle_lines(key: object) -> list[Line]:
    """Return the idle connections of this event loop for a key."""
    try:
        idle = _idle.get()
    except LookupError:
        idle = _Idle()
        _idle.set(idle)
        await anext(idle.keeper)
    return idle.lines.setdefault(key, [])


def keep(line: Line, lines: list[Line]) -> Line | None:
    """Put a connection on the list; return one that has been idle for too long, to be closed."""
    line.since = time.monotonic()
    lines.append(line)
    return lines.pop(0) if line.since - lines[0].since > KEEP_ALIVE else None


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

"""Transports to MCP servers: a process, streamable HTTP or SSE, and what became of the connection."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio

from glue.errors import ConfigError
from glue.tools.mcp.config import ServerConfig

logger = logging.getLogger("glue.mcp")


class Transport:
    """How a server is reached, and what became of that."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.ended = False  # nothing more can be read
        self.expired = False  # the server no longer knows the HTTP session
        self.hint = ""  # what an HTTP status means

    @asynccontextmanager
    async def open(self, on_end: Callable[[], None]) -> AsyncIterator[Any]:
        """Open the streams; `on_end` is called when the server has hung up."""
        async with self._streams() as (read, write):
            yield _Watched(read, self, on_end), write

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        config = self.config
        if not config.url:
            parameters = StdioServerParameters(
                command=config.command, args=list(config.args), env=dict(config.env), cwd=config.cwd
            )
            async with stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr) as (read, write):
                yield read, write
            return
        from glue.tools.mcp.oauth import signed_in

        with signed_in(config) if config.oauth else nullcontext() as auth:
            async with self._over_http(auth) as streams:
                yield streams

    @asynccontextmanager
    async def _over_http(self, auth: Any) -> AsyncIterator[Any]:
        import httpx2  # the SDK's own HTTP library, which takes headers from whoever makes the client
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        config = self.config
        hooks: Any = {"response": [self._seen]}
        timeout = httpx2.Timeout(30.0, read=300.0)  # a stream may be silent for long
        if config.sse:

            def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
                return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)

            made = sse_client(config.url, dict(config.headers), httpx_client_factory=client, auth=auth)
            async with made as (read, write):
                yield read, write
            return
        async with (
            httpx2.AsyncClient(headers=dict(config.headers), timeout=timeout, auth=auth, event_hooks=hooks) as http,
            streamable_http_client(config.url, http_client=http) as (read, write, *_),
        ):
            yield read, write

    async def _seen(self, response: Any) -> None:
        status = response.status_code
        if status == 404 and "mcp-session-id" in response.request.headers:
            self.expired = True
        if status in (401, 403) and not self.config.oauth:
            way = 'headers: {"Authorization": "Bearer ..."} or "oauth": true'
            self.hint = f"HTTP {status}, it wants other credentials; set {way}"


class _Watched:
    """A stream that says when it has ended: the SDK reports that with a code that a server may send, too."""

    def __init__(self, stream: Any, transport: Transport, on_end: Callable[[], None]) -> None:
        self._stream, self._transport, self._on_end = stream, transport, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._transport.ended = True
            self._on_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


def load_sdk() -> None:
    """Import the SDK, which takes a second: in a thread, so that whatever else runs goes on."""
    try:
        import mcp
    except ImportError as error:
        raise ConfigError("MCP servers need the extra: pip install 'glue-agents[mcp]'") from error
    if not hasattr(mcp, "Client"):
        raise ConfigError("MCP servers need mcp>=2, an older one is installed: pip install 'glue-agents[mcp]'")
    quiet = logging.getLogger("mcp.client.stdio")
    if _noise not in quiet.filters:
        quiet.addFilter(_noise)


def _noise(record: logging.LogRecord) -> bool:
    """Make one debug line of what a server prints between its messages."""
    if "parse" not in str(record.msg):
        return True
    logger.debug("an MCP server wrote a line that is no message")
    return False

"""Transports to MCP servers: a process, streamable HTTP, or the older transport with SSE."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream

from glue.tools.mcp.config import ServerConfig
from glue.tools.mcp.oauth import sign_in
from glue.tools.mcp.sdk import httpx2, sse_client, streamable_http_client
from glue.tools.mcp.stdio import MAX_MESSAGE, ServerOutput, open_process

logger = logging.getLogger("glue.mcp")


class ServerTransport:
    """The streams to one MCP server, and the state of the connection."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.ended = False  # the server closed the connection
        self.expired = False  # the server no longer knows the HTTP session
        self.output = ServerOutput()
        self.hint = ""  # advice for the user after HTTP 401 or 403

    @asynccontextmanager
    async def open(self, on_end: Callable[[], None]) -> AsyncIterator[Any]:
        """Open the streams from and to the server, and yield them; close them after the block.

        `on_end` is called when the server closes the connection.
        """

        def end() -> None:
            self.ended = True
            on_end()

        async with AsyncExitStack() as stack:
            if self.config.url:
                read, write = await self._open_http(stack)
            else:
                read, write = await self._open_stdio(stack)
            yield _WatchedStream(read, end), write

    async def _open_stdio(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        def on_noise() -> None:
            logger.warning(
                "MCP server %s prints lines that are not messages to standard output; they are"
                " ignored",
                self.config.name,
            )

        return await stack.enter_async_context(open_process(self.config, self.output, on_noise))

    async def _open_http(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        def new_client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
            hooks: Any = {"response": [self._check_response]}
            # Not compressed, because a few bytes could be expanded to gigabytes.
            plain = {**(headers or {}), "accept-encoding": "identity"}
            return httpx2.AsyncClient(headers=plain, timeout=timeout, auth=auth, event_hooks=hooks)

        url, headers = self.config.url, dict(self.config.headers)
        auth = stack.enter_context(sign_in(self.config)) if self.config.oauth else None
        if self.config.sse:
            return await stack.enter_async_context(
                sse_client(url, headers, httpx_client_factory=new_client, auth=auth)
            )
        timeout = httpx2.Timeout(30.0, read=300.0)  # a stream may be silent for minutes
        http = await stack.enter_async_context(new_client(headers, timeout, auth))
        read, write, *_ = await stack.enter_async_context(
            streamable_http_client(url, http_client=http)
        )
        return read, write

    async def _check_response(self, response: Any) -> None:
        status = response.status_code
        response.stream = _LimitedStream(response.stream, self.output)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.RemoteProtocolError(
                "the server compresses its responses, although glue accepts only uncompressed ones"
            )
        if status == 404 and "mcp-session-id" in response.request.headers:
            self.expired = True
        if status in (401, 403) and not self.config.oauth:
            self.hint = (
                f"HTTP {status}: the server requires credentials, or refused the given ones; "
                'set "headers": {"Authorization": "Bearer ..."} or "oauth": true'
            )


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of an HTTP response. Reading it raises an error if a message is too long."""

    def __init__(self, stream: Any, output: ServerOutput) -> None:
        self._stream, self._output = stream, output

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for block in self._stream:
            # An empty line ends an event. A body without events is one message.
            end = max(block.rfind(b"\n\n"), block.rfind(b"\r\n\r\n"))
            size = len(block) - end if end >= 0 else size + len(block)
            if size > MAX_MESSAGE:
                self._output.fault = (
                    f"the server sent a message of more than {MAX_MESSAGE // 2**20} MiB"
                )
                raise httpx2.RemoteProtocolError(self._output.fault)
            yield block

    async def aclose(self) -> None:
        await self._stream.aclose()


class _WatchedStream(ObjectReceiveStream[Any]):
    """A stream of messages that calls `on_end` when it ends.

    The SDK reports the end with an error code that a server may send as well, so the code does not
    show whether the connection is lost.
    """

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

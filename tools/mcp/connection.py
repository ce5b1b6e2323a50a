"""Connections to MCP servers: their tools, kept up to date, and their processes, restarted once when they die."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus

from glue.context import Context, ToolResult
from glue.errors import ConfigError, ToolError
from glue.function.decorator import Tool
from glue.tools.mcp.config import ServerConfig, read_config
from glue.tools.mcp.results import prefixed, tool_result

if TYPE_CHECKING:
    from mcp import Client


logger = logging.getLogger("glue.mcp")

CALL_SECONDS = 60.0
START_SECONDS = 60.0  # some servers are fetched first
MAX_DESCRIPTION = 2000  # characters
MAX_PAGES = 100  # of a list of tools; a server that never ends one must not hang us


class Connection:
    """A server that is connected. `tools` changes when the server says so; read it anew for each run."""

    def __init__(
        self, config: ServerConfig, *, timeout: float, on_change: Callable[[Connection], object] | None = None
    ) -> None:
        self.config, self.timeout = config, timeout
        self.tools: tuple[Tool[..., Any], ...] = ()
        self._on_change = on_change
        self._client: Client | None = None
        self._ready = anyio.Event()  # set while there is a client, or none any more
        self._wake = anyio.Event()
        self._changed = False
        self._restarts = 1

    @property
    def name(self) -> str:
        return self.config.name

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Hold the connection, in one task from its beginning to its end: the SDK's scopes ask for that."""
        started = False
        while True:
            try:
                async with AsyncExitStack() as stack:
                    client = await stack.enter_async_context(_client(self.config, self.timeout, self._on_message))
                    await self._list(client)
                    self._client = client
                    self._ready.set()
                    if not started:
                        started = True
                        task_status.started()
                    await self._watch(client)
            except Exception as error:
                if not started:
                    raise
                logger.warning("MCP server %s: %s", self.name, reason(error))
            self._client = None
            if not self._restarts:
                self._ready.set()
                return
            self._restarts -= 1

    async def _watch(self, client: Client) -> None:
        """Follow changes of the list until the connection is lost."""
        async with anyio.create_task_group() as tasks:
            if _is_modern(client):
                tasks.start_soon(self._subscribe, client)
            while self._client is client:
                await self._wake.wait()
                self._wake = anyio.Event()
                if self._changed:
                    self._changed = False
                    before = [tool.spec for tool in self.tools]
                    await self._list(client)
                    if self._on_change is not None and before != [tool.spec for tool in self.tools]:
                        self._on_change(self)
            tasks.cancel_scope.cancel()

    async def _subscribe(self, client: Client) -> None:
        """Ask a server of the newer protocol for changes, which it sends only when asked."""
        from mcp import MCPError
        from mcp.client.subscriptions import SubscriptionLost

        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._mark_changed()  # what changed before it listened to us
                async for _ in changes:
                    self._mark_changed()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.debug("MCP server %s tells of no changes: %s", self.name, error)

    async def _on_message(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._mark_changed()

    def _mark_changed(self) -> None:
        self._changed = True
        self._wake.set()

    async def _list(self, client: Client) -> None:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            found += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        known = {tool["name"]: tool for tool in found}
        names = prefixed(self.name, known)
        self.tools = tuple(self._tool(prefixed_name, known[name]) for prefixed_name, name in names.items())

    def _tool(self, prefixed_name: str, given: Mapping[str, Any]) -> Tool[..., Any]:
        name = given["name"]

        async def call(context: Context[Any], arguments: dict[str, Any]) -> ToolResult:
            return await self._call(name, arguments, context)

        return Tool.from_schema(
            prefixed_name,
            _cut(str(given.get("description") or given.get("title") or f"The tool {name} of {self.name}.")),
            _short(given.get("inputSchema") or {"type": "object", "properties": {}}),
            call,
            needs_permission=True,  # whatever the server says of itself
            target=lambda arguments: json.dumps(arguments, default=str, ensure_ascii=False),
        )

    async def _call(self, name: str, arguments: dict[str, Any], context: Context[Any]) -> ToolResult:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            text = message or (f"{progress:g} of {total:g}" if total else f"{progress:g}")
            context.progress(text, {"progress": progress, "total": total})

        await self._ready.wait()  # a restart may be under way
        client = self._client
        if client is None:
            raise ToolError(f"the MCP server {self.name} has ended, and was restarted once before")
        try:
            result = await client.call_tool(name, arguments, self.timeout, on_progress)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise ToolError(f"{name} of {self.name} did not answer within {self.timeout:g} seconds") from error
            if error.code != CONNECTION_CLOSED:
                raise ToolError(f"{self.name} said: {error.message}") from error
            self._lost(client)
            raise ToolError(self._lost_message()) from error
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self._lost(client)
            raise ToolError(self._lost_message()) from error
        return tool_result(result.model_dump(by_alias=True, mode="json", exclude_none=True))

    def _lost(self, client: Client) -> None:
        if self._client is client:  # the first to notice
            self._client = None
            self._ready = anyio.Event()
            self._wake.set()

    def _lost_message(self) -> str:
        what = "it is started again, so try once more" if self._restarts else "it was restarted once before"
        return f"the MCP server {self.name} ended during the call; {what}"


def _client(
    config: ServerConfig, timeout: float, on_message: Callable[[Any], Any]
) -> AbstractAsyncContextManager[Client]:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp_types import Implementation

    from glue import __version__

    options: dict[str, Any] = {
        "read_timeout_seconds": timeout,
        "message_handler": on_message,
        "client_info": Implementation(name="glue", version=__version__),
    }
    if config.url:
        return _over_http(config, options)
    parameters = StdioServerParameters(
        command=config.command, args=list(config.args), env=dict(config.env), cwd=config.cwd
    )
    return Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr), **options)


def load_sdk() -> None:
    """Import the SDK, which takes a second: in a thread, so that whatever else runs goes on."""
    try:
        import mcp
    except ImportError as error:
        raise ConfigError("MCP servers need the extra: pip install 'glue-agents[mcp]'") from error
    del mcp


@asynccontextmanager
async def _over_http(config: ServerConfig, options: dict[str, Any]) -> AsyncIterator[Client]:
    import httpx2  # the SDK's own HTTP library, which takes headers from whoever makes the client
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(30.0, read=300.0)  # a stream may be silent for long
    async with (
        httpx2.AsyncClient(headers=dict(config.headers), timeout=timeout) as http,
        Client(streamable_http_client(config.url, http_client=http), **options) as client,
    ):
        yield client


def _is_modern(client: Client) -> bool:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return client.protocol_version in MODERN_PROTOCOL_VERSIONS


def reason(error: BaseException) -> str:
    """Say what went wrong in one line, out of whatever groups it comes in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


class Servers:
    """All that is connected; `tools` are those of every server, as they are now."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        return tuple(tool for connection in self.connections for tool in connection.tools)


@asynccontextmanager
async def connect(
    servers: str | os.PathLike[str] | Mapping[str, Any] | Iterable[ServerConfig],
    *,
    timeout: float = CALL_SECONDS,
    on_change: Callable[[Connection], object] | None = None,
) -> AsyncIterator[Servers]:
    """Connect servers from a list, or from the usual JSON file (or what it would hold), until the block ends.

    `timeout` is for each call. `on_change` is told when a server has changed its list of tools.
    """
    given: Any = servers
    configs = read_config(given) if isinstance(given, (str, os.PathLike, Mapping)) else tuple(given)
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"MCP servers must have different names; {name!r} is there twice")
    connections = [Connection(config, timeout=timeout, on_change=on_change) for config in configs]
    raised: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            await _start(tasks, connections)
            yield Servers(connections)
        except Exception as error:
            raised = error  # raised again outside, so that no group is wrapped around it
        finally:
            tasks.cancel_scope.cancel()
    if raised is not None:
        raise raised


@asynccontextmanager
async def connect_stdio(
    name: str,
    command: str,
    args: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float = CALL_SECONDS,
    on_change: Callable[[Connection], object] | None = None,
) -> AsyncIterator[Connection]:
    """Start one server as a process and connect to it; it ends with the block."""
    where = None if cwd is None else os.fspath(cwd)
    config = ServerConfig(name=name, command=command, args=tuple(args), env=dict(env or {}), cwd=where)
    async with connect([config], timeout=timeout, on_change=on_change) as servers:
        yield servers.connections[0]


@asynccontextmanager
async def connect_http(
    name: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    timeout: float = CALL_SECONDS,
    on_change: Callable[[Connection], object] | None = None,
) -> AsyncIterator[Connection]:
    """Connect to one server over streamable HTTP."""
    config = ServerConfig(name=name, url=url, headers=dict(headers or {}))
    async with connect([config], timeout=timeout, on_change=on_change) as servers:
        yield servers.connections[0]


async def _start(tasks: TaskGroup, connections: Sequence[Connection]) -> None:
    """Start all at once; the first that cannot be started is the error."""
    await anyio.to_thread.run_sync(load_sdk)
    failed: list[ConfigError] = []

    async def one(connection: Connection, group: TaskGroup) -> None:
        try:
            with anyio.fail_after(START_SECONDS):
                await tasks.start(connection.run)
        except Exception as error:
            if not failed:
                failed.append(_start_error(connection, error))
                failed[0].__cause__ = error
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for connection in connections:
            group.start_soon(one, connection, group)
    if failed:
        raise failed[0]


def _start_error(connection: Connection, error: Exception) -> ConfigError:
    config = connection.config
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, TimeoutError):
        return ConfigError(f"MCP server {config.name!r} did not start within {START_SECONDS:g} seconds")
    what = config.url or " ".join((config.command, *config.args))
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"MCP server {config.name!r}: there is no command {config.command!r}")
    return ConfigError(f"MCP server {config.name!r} ({what}) could not be connected: {reason(error)}")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]}…"


def _short(schema: Any) -> Any:
    """Cut the descriptions in a schema: a server must not fill the model's window."""
    if isinstance(schema, list):
        return [_short(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: _cut(value) if word == "description" and isinstance(value, str) else _short(value)
        for word, value in schema.items()
    }

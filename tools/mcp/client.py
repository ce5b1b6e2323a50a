"""Connect to MCP servers; the SDK is loaded when the first server is connected."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from glue import Tool
from glue.backoff import Backoff
from glue.errors import ConfigError
from glue.tasks import background, finish_in_thread
from glue.tools.mcp.config import ServerConfig, read_config

if TYPE_CHECKING:
    from glue.tools.mcp.config import OAuth
    from glue.tools.mcp.connection import ServerConnection, ServerPrompt
    from glue.tools.mcp.questions import Elicit

CALL_SECONDS = 60.0
# A server that ends is restarted at once. If it ends again, it is restarted after these delays.
BACKOFF = Backoff(first=1.0, cap=60.0, factor=4.0, attempts=5)


class Servers:
    """Connected MCP servers; `tools` has the tools that these servers offer now."""

    def __init__(self, connections: Sequence[ServerConnection]) -> None:
        self.connections = tuple(connections)

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        """The tools of all servers; of two tools with the same name, only the first.

        Log each tool that is left out once.
        """
        found: dict[str, Tool[..., Any]] = {}
        for connection in self.connections:
            for tool in connection.tools:
                if found.setdefault(tool.name, tool) is not tool:
                    connection.report_hidden(tool.name)
        return tuple(found.values())

    @property
    def prompts(self) -> dict[str, ServerPrompt]:
        """The prompts of all servers by name, such as `server:prompt`."""
        return {
            f"{each.name}:{prompt.name}": prompt
            for each in self.connections
            for prompt in each.prompts
        }

    async def prompt(self, text: str) -> Any:
        """Return the content of the prompt that `text` names, or `text` if there is no such prompt.

        A text such as `/server:prompt arguments` names the prompt of a connected server.
        """
        name, _, rest = text.strip()[1:].partition(" ")
        found = self.prompts.get(name) if text.strip().startswith("/") else None
        return text if found is None else await found.get(rest.strip())


@asynccontextmanager
async def connect(
    servers: str | os.PathLike[str] | Mapping[str, Any] | Iterable[ServerConfig],
    *,
    timeout: float = CALL_SECONDS,
    on_change: Callable[[ServerConnection], object] | None = None,
    on_error: Callable[[ServerConfig, ConfigError], object] | None = None,
    roots: Sequence[str | os.PathLike[str]] = (),
    elicit: Elicit | None = None,
    on_update: Callable[[ServerConnection, str], object] | None = None,
    backoff: Backoff = BACKOFF,
) -> AsyncIterator[Servers]:
    """Connect to MCP servers during an `async with` block; yield a `Servers` with their tools.

    >>> async with connect("mcp.json") as servers:  # doctest: +SKIP
    ...     agent = Agent("openai", tools=servers.tools, permission=policy)

    Args:
        servers: a JSON file with "mcpServers", the same content as a dict, or configurations.
        timeout: seconds for each call of a tool.
        on_change: is called when the tools of a server have changed.
        on_error: is called for each server that cannot be started; without it, raise ConfigError.
        roots: folders that the servers may use.
        elicit: asks the user a question of a server; without it, the permission policy decides
            about yes-or-no questions, and pages are not opened.
        on_update: is called with the URI of a resource that has changed, after
            `connection.subscribe`.
        backoff: the delays between restarts of a server that ended.
    """
    given: Any = servers
    configs = read_config(given) if isinstance(given, (str, os.PathLike, Mapping)) else tuple(given)
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"MCP servers must have different names; {name!r} occurs twice")
    # In a thread, so that other tasks continue while the SDK is loaded.
    connection = await finish_in_thread(_load_connection)
    make = partial(
        connection,
        timeout=timeout,
        on_change=on_change,
        roots=roots,
        elicit=elicit,
        on_update=on_update,
        backoff=backoff,
    )
    async with background() as tasks:
        yield Servers(await _start(tasks, [make(config) for config in configs], on_error))


@asynccontextmanager
async def connect_stdio(
    name: str,
    command: str,
    args: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    **options: Any,
) -> AsyncIterator[ServerConnection]:
    """Start one MCP server as a process, and yield its connection to an `async with` block.

    >>> async with connect_stdio("files", "mcp-files", ["."]) as server:  # doctest: +SKIP
    ...     agent = Agent("openai", tools=server.tools, permission=policy)

    Args:
        name: the name of the server, with which the names of its tools begin.
        command: the program.
        args: the arguments of the program.
        env: variables to add to the few that the program inherits.
        cwd: the folder in which the program runs.
        options: the keyword parameters of `connect`, but not `on_error`.
    """
    where = None if cwd is None else os.fspath(cwd)
    config = ServerConfig(
        name=name, command=command, args=tuple(args), env=dict(env or {}), cwd=where
    )
    async with _connect_one(config, options) as server:
        yield server


@asynccontextmanager
async def connect_http(
    name: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    oauth: bool | OAuth = False,
    **options: Any,
) -> AsyncIterator[ServerConnection]:
    """Connect to one MCP server over HTTP, and yield the connection to an `async with` block.

    Args:
        name: the name of the server, with which the names of its tools begin.
        url: the address of the server.
        headers: headers of every request, such as Authorization.
        oauth: sign in; True with the browser, or an `OAuth` with the details.
        options: the keyword parameters of `connect`, but not `on_error`.
    """
    config = ServerConfig(name=name, url=url, headers=dict(headers or {}), oauth=oauth)
    async with _connect_one(config, options) as server:
        yield server


@asynccontextmanager
async def _connect_one(
    config: ServerConfig, options: Mapping[str, Any]
) -> AsyncIterator[ServerConnection]:
    """Connect to one server, and yield its connection; raise ConfigError if it cannot start."""
    if "on_error" in options:
        raise TypeError("on_error is for `connect`: a single server that fails raises ConfigError")
    async with connect([config], **options) as servers:
        yield servers.connections[0]


def _load_connection() -> type[ServerConnection]:
    # The module imports the SDK, which is an optional dependency and slow to load.
    from glue.tools.mcp.connection import ServerConnection

    return ServerConnection


async def _start(
    tasks: TaskGroup,
    connections: Sequence[ServerConnection],
    on_error: Callable[[ServerConfig, ConfigError], object] | None,
) -> list[ServerConnection]:
    """Start all servers together, and return their connections; pass each failure to `on_error`.

    A server that fails is left out. If `on_error` is None, raise the ConfigError of the server.
    """
    failed: dict[str, ConfigError] = {}

    async def start(connection: ServerConnection, group: TaskGroup) -> None:
        try:
            await connection.start(tasks)
        except ConfigError as error:
            failed[connection.name] = error
            if on_error is None:
                group.cancel_scope.cancel()
            else:
                on_error(connection.config, error)

    async with anyio.create_task_group() as group:
        for connection in connections:
            group.start_soon(start, connection, group)
    if failed and on_error is None:
        raise next(iter(failed.values()))
    return [connection for connection in connections if connection.name not in failed]

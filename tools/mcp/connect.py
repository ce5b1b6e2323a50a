"""Connecting to MCP servers, and letting them go."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from glue.errors import ConfigError
from glue.tool import Tool
from glue.tools.mcp.config import ServerConfig, read_config
from glue.tools.mcp.connection import Connection, load_sdk, plain

TIMEOUT = 60.0  # seconds for one call
START = 60.0  # seconds for a server to start: some are fetched first


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
    timeout: float = TIMEOUT,
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
    timeout: float = TIMEOUT,
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
    timeout: float = TIMEOUT,
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
            with anyio.fail_after(START):
                await tasks.start(connection.own)
        except Exception as error:
            if not failed:
                failed.append(_said(connection, error))
                failed[0].__cause__ = error
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for connection in connections:
            group.start_soon(one, connection, group)
    if failed:
        raise failed[0]


def _said(connection: Connection, error: Exception) -> ConfigError:
    config = connection.config
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, TimeoutError):
        return ConfigError(f"MCP server {config.name!r} did not start within {START:g} seconds")
    what = config.url or " ".join((config.command, *config.args))
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"MCP server {config.name!r}: there is no command {config.command!r}")
    return ConfigError(f"MCP server {config.name!r} ({what}) could not be connected: {plain(error)}")

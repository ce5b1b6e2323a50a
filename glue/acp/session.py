"""Sessions of an editor: an open one with its usage and MCP servers, and the list of the stored ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.acp.updates import CallIds
from glue.context import AnyTool, Cancel
from glue.errors import GlueError
from glue.events import RunResult
from glue.messages import AssistantMessage, Message
from glue.session import Session
from glue.stores.store import SessionInfo

if TYPE_CHECKING:
    from glue.tools.mcp import ServerConfig, Servers

logger = logging.getLogger("glue.acp")

PAGE = 50  # sessions of one list


class PendingPrompt:
    """A prompt under way, from the moment it was read."""

    def __init__(self) -> None:
        self.cancel = Cancel()
        self.done = anyio.Event()


@dataclass(slots=True)
class SessionUsage:
    """What a session has used, for /usage."""

    requests: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0

    def add(self, result: RunResult[Any]) -> None:
        self.requests += result.requests
        self.input += result.usage.input
        self.output += result.usage.output
        self.cost += result.cost or 0.0

    def recall(self, messages: Iterable[Message]) -> None:
        """Count what was used before, as far as the transcript says."""
        for message in messages:
            if isinstance(message, AssistantMessage):
                self.requests += 1
                if message.usage is not None:
                    self.input += message.usage.input
                    self.output += message.usage.output
                    self.cost += message.usage.cost or 0.0

    def __str__(self) -> str:
        cost = f", {self.cost:.4f} USD" if self.cost else ""
        return f"{self.requests} requests, {self.input} tokens in, {self.output} out{cost}."


@dataclass(slots=True)
class OpenSession:
    """One open session."""

    session: Session[Any, Any]
    cwd: str
    directories: tuple[str, ...] = ()  # besides the working directory
    mode: str = "ask"
    has_title: bool = False
    servers: Servers | None = None
    prompt: PendingPrompt | None = None
    ids: CallIds = field(default_factory=CallIds)
    usage: SessionUsage = field(default_factory=SessionUsage)
    troubles: list[str] = field(default_factory=list)  # of MCP servers, not yet told
    connected: anyio.Event = field(default_factory=anyio.Event)
    closing: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)

    async def close(self) -> None:
        """Cancel its prompt, wait for the prompt's end, and let the MCP servers go."""
        if self.prompt is not None:
            self.prompt.cancel.cancel()
            await self.prompt.done.wait()
        self.closing.set()
        await self.closed.wait()


class LiveTools:
    """An agent's tools and those of MCP servers, read anew for each prompt: a server may change its list."""

    def __init__(self, own: Iterable[AnyTool], servers: Servers) -> None:
        self._own, self._servers = tuple(own), servers

    def __iter__(self) -> Iterator[AnyTool]:
        yield from self._own
        yield from self._servers.tools


async def run_servers(opened: OpenSession, configs: Sequence[ServerConfig], elicit: Any = None) -> None:
    """Keep the MCP servers of a session in a task of their own, from its beginning to its end."""
    from glue.tools.mcp import connect

    def failed(config: ServerConfig, error: Exception) -> None:
        opened.troubles.append(str(error))

    roots = (opened.cwd, *opened.directories)
    try:
        async with connect(configs, on_error=failed, roots=roots, elicit=elicit) as servers:
            opened.servers = servers
            opened.session.configure(tools=LiveTools(opened.session.settings.tools or (), servers))
            opened.connected.set()
            await opened.closing.wait()
    except Exception as error:
        opened.troubles.append(str(error) or type(error).__name__)
        logger.warning("the MCP servers of session %s failed", opened.session.id, exc_info=True)
    finally:
        opened.connected.set()
        opened.closed.set()


def server_configs(given: Any, opened: OpenSession) -> list[ServerConfig]:
    """Read the editor's list of MCP servers; one that is wrong costs a message, not the session."""
    if given is None:
        return []
    if not isinstance(given, list):
        raise RpcError(INVALID_PARAMS, "mcpServers must be a list")
    configs: dict[str, ServerConfig] = {}
    for each in given:
        try:
            config = _server_config(each, opened.cwd)
        except (AttributeError, KeyError, TypeError, GlueError) as error:
            opened.troubles.append(f"an MCP server was left out, it needs a name and a command or a url: {error!r}")
            continue
        if config.name in configs:
            opened.troubles.append(f"the MCP server {config.name!r} is there twice; the second was left out")
        configs.setdefault(config.name, config)
    return list(configs.values())


def _server_config(each: Any, cwd: str) -> ServerConfig:
    from glue.tools.mcp import ServerConfig

    name = str(each.get("name") or "mcp")
    if "url" in each:
        headers = {str(item["name"]): str(item["value"]) for item in each.get("headers") or ()}
        return ServerConfig(name=name, url=str(each["url"]), headers=headers, sse=each.get("type") == "sse")
    return ServerConfig(
        name=name,
        command=str(each["command"]),
        args=tuple(str(arg) for arg in each.get("args") or ()),
        env={str(item["name"]): str(item["value"]) for item in each.get("env") or ()},
        cwd=cwd,
    )


def list_page(sessions: Sequence[SessionInfo], cwd: Any = None, cursor: Any = None) -> dict[str, Any]:
    """List sessions, the last changed first; a cursor names the last one seen, so that new ones shift nothing."""
    # Editors open sessions that nothing is ever said in; they can be loaded, but nobody looks for them.
    listed = [info for info in sessions if info.title and _home(info)]
    if cwd is not None:
        listed = [info for info in listed if _home(info) == cwd]
    listed.sort(key=_rank)
    if cursor is not None:
        after = _after(cursor)
        listed = [info for info in listed if _rank(info) > after]
    more = {"nextCursor": f"{listed[PAGE - 1].updated!r} {listed[PAGE - 1].id}"} if len(listed) > PAGE else {}
    return {"sessions": [_shown(info) for info in listed[:PAGE]], **more}


def _home(info: SessionInfo) -> str:
    return str((info.meta or {}).get("cwd", ""))


def _rank(info: SessionInfo) -> tuple[float, str]:
    return -info.updated, info.id


def _after(cursor: Any) -> tuple[float, str]:
    try:
        updated, name = cursor.split(" ", 1)
        return -float(updated), name
    except (AttributeError, ValueError):
        raise RpcError(INVALID_PARAMS, "cursor must be one that an earlier list gave") from None


def _shown(info: SessionInfo) -> dict[str, Any]:
    updated = datetime.fromtimestamp(info.updated, UTC).isoformat()
    return {"sessionId": info.id, "cwd": _home(info), "title": info.title, "updatedAt": updated}

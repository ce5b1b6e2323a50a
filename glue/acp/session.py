"""A session that the editor has open: what it is, what was spent, and its MCP servers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.acp.updates import Ids
from glue.context import AnyTool, Cancel
from glue.messages import AssistantMessage, Message
from glue.result import RunResult
from glue.session import Session

logger = logging.getLogger("glue.acp")


class Turn:
    """A prompt under way, from the moment it was read."""

    def __init__(self) -> None:
        self.cancel = Cancel()
        self.done = anyio.Event()


@dataclass(slots=True)
class Spent:
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
class Held:
    """One open session."""

    session: Session[Any, Any]
    cwd: str
    mode: str = "ask"
    turn: Turn | None = None
    ids: Ids = field(default_factory=Ids)
    spent: Spent = field(default_factory=Spent)
    closing: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)

    async def close(self) -> None:
        """Cancel its prompt, wait for the prompt's end, and let the MCP servers go."""
        if self.turn is not None:
            self.turn.cancel.cancel()
            await self.turn.done.wait()
        self.closing.set()
        await self.closed.wait()


class Connected(Protocol):
    @property
    def tools(self) -> Sequence[AnyTool]: ...


class Live:
    """An agent's tools and those of MCP servers, read anew for each prompt: a server may change its list."""

    def __init__(self, own: Iterable[AnyTool], connected: Sequence[Connected]) -> None:
        self._own, self._connected = tuple(own), connected

    def __iter__(self) -> Iterator[AnyTool]:
        yield from self._own
        for each in self._connected:
            yield from each.tools


async def hold(held: Held, servers: Sequence[Mapping[str, Any]], *, task_status: TaskStatus[None]) -> None:
    """Keep the MCP servers of a session in a task of their own, from its beginning to its end."""
    from glue.tools.mcp import connect_stdio

    begun = False
    try:
        async with AsyncExitStack() as stack:
            connected = [
                await stack.enter_async_context(
                    connect_stdio(each["name"], each["command"], each["args"], each["env"], cwd=held.cwd)
                )
                for each in servers
            ]
            held.session.configure(tools=Live(held.session.settings.tools or (), connected))
            begun = True
            task_status.started()
            await held.closing.wait()
    except Exception:
        if not begun:
            raise
        logger.exception("an MCP server of session %s failed", held.session.id)
    finally:
        held.closed.set()


def stdio_servers(given: Any) -> list[dict[str, Any]]:
    """Check the editor's list of MCP servers."""
    if given is None:
        return []
    if not isinstance(given, list):
        raise RpcError(INVALID_PARAMS, "mcpServers must be a list")
    return [_server(each) for each in given]


def _server(each: Any) -> dict[str, Any]:
    wrong = RpcError(INVALID_PARAMS, "only MCP servers over stdio (name, command, args, env) are supported")
    if not isinstance(each, dict) or not isinstance(each.get("command"), str):
        raise wrong
    args, env = each.get("args") or [], each.get("env") or []
    try:
        made = {"args": [str(arg) for arg in args], "env": {str(item["name"]): str(item["value"]) for item in env}}
    except (KeyError, TypeError):
        raise wrong from None
    return {"name": str(each.get("name") or "mcp"), "command": each["command"], **made}

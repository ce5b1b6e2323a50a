"""What the editor does for an agent: reads and writes its buffers, runs its terminals, asks the user for permission."""

from __future__ import annotations

import json
import os.path
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from glue.acp.options import DEFAULTS
from glue.acp.rpc import Peer, RpcError
from glue.acp.updates import CallIds, describe, old_text, tool_update
from glue.context import Context
from glue.errors import ToolError
from glue.function.decorator import Tool, tool
from glue.messages import ToolCall
from glue.permission import Ask, Decision, Permission, PermissionRequest, PermissionTarget, allow, as_decision, deny

if TYPE_CHECKING:
    from glue.acp.server import Server
    from glue.agent import Agent


TERMINAL_BYTES = 64 * 1024  # bytes of a terminal that are kept
TERMINAL_SECONDS = 600.0  # after which a command is stopped


def ready_agent(model: str, bundle: str) -> Callable[[str, Server], Agent[Any, Any]]:
    """Make an agent with ready-made tools for whatever directory the editor works in."""

    def make(cwd: str, server: Server) -> Agent[Any, Any]:
        from glue.agent import Agent
        from glue.tools import coding, fs, git

        if bundle == "coding":
            tools = coding.tools(cwd, trust=True, shell=True)
        else:
            tools = fs.tools(cwd)
            tools += git.tools(cwd, trust=True) if bundle == "git" else []
        tools = [*editor_tools(tools, cwd, server), plan_tool()]
        return Agent(model, tools=tools, instructions=coding.prompt(tools), limits=DEFAULTS, name="glue")

    return make


def editor_tools(tools: Iterable[Tool[..., Any]], cwd: str, server: Server) -> list[Tool[..., Any]]:
    """Put the editor's own reading, writing and terminals in the place of ours, where it has them."""
    files = server.client.get("fs")
    files = files if isinstance(files, dict) else {}
    replaced: dict[str, Tool[..., Any]] = {}
    if files.get("readTextFile") is True:
        replaced["read_file"] = _reader(cwd, server)
    if files.get("writeTextFile") is True:
        replaced["write_file"] = _writer(cwd, server)
    if server.client.get("terminal") is True:
        replaced["shell"] = _terminal(cwd, server)
    return [replaced.get(each.name, each) for each in tools]


def _absolute(cwd: str, path: str) -> str:
    """Give the whole path of a file below the root; the editor opens it, so a link may lead no further."""
    from glue.tools.fs import safe_join

    return os.path.join(cwd, safe_join(cwd, path))


def _target(cwd: str, given: Mapping[str, Any]) -> PermissionTarget:
    from glue.tools.fs import path_target

    return path_target(cwd, given["path"])


def _reader(cwd: str, server: Server) -> Tool[..., Any]:
    @tool(name="read_file")
    async def read_file(context: Context[Any], path: str, offset: int = 1, limit: int = 2000) -> str:
        """Read lines of a text file of the project, as the editor has it, unsaved changes included.

        Args:
            path: relative to the root
            offset: first line, counted from 1
            limit: how many lines
        """
        if offset < 1 or limit < 1:
            raise ToolError("offset and limit are counted from 1")
        params = {"sessionId": context.session_id, "path": _absolute(cwd, path), "line": offset, "limit": limit}
        answer = await _request(server, "fs/read_text_file", params)
        return str(answer.get("content", ""))

    return read_file


def _writer(cwd: str, server: Server) -> Tool[..., Any]:
    @tool(name="write_file", needs_permission=True, target=lambda given: _target(cwd, given), alone=True)
    async def write_file(context: Context[Any], path: str, content: str) -> str:
        """Write a whole file of the project through the editor; what was there is replaced.

        Args:
            path: relative to the root
            content: the new text, written as it is
        """
        params = {"sessionId": context.session_id, "path": _absolute(cwd, path), "content": content}
        await _request(server, "fs/write_text_file", params)
        return f"wrote {path}: {len(content.encode())} bytes"

    return write_file


def _terminal(cwd: str, server: Server) -> Tool[..., Any]:
    @tool(
        name="shell",
        needs_permission=True,
        target=lambda given: PermissionTarget(text=given["command"], command=given["command"], folder=cwd),
        alone=True,
        timeout=TERMINAL_SECONDS,
    )
    async def shell(context: Context[Any], command: str) -> str:
        """Run a command line in a terminal of the editor, and give its exit code and what it printed.

        Args:
            command: a shell command line
        """
        session = {"sessionId": context.session_id}
        args = {"command": "sh", "args": ["-c", command], "cwd": cwd, "outputByteLimit": TERMINAL_BYTES}
        made = await _request(server, "terminal/create", {**session, **args})
        if not isinstance(made.get("terminalId"), str):
            raise ToolError("the editor gave no terminal")
        terminal = {**session, "terminalId": made["terminalId"]}
        context.progress(data={"terminal_id": made["terminalId"]})
        done = False
        try:
            status = await _request(server, "terminal/wait_for_exit", terminal)
            output = await _request(server, "terminal/output", terminal)
            done = True
        finally:  # nothing may be awaited here: the call may have been cancelled
            if not done:
                server.peer.send_request("terminal/kill", terminal)
            server.peer.send_request("terminal/release", terminal)
        code = status.get("exitCode")
        ended = f"exit code {code}" if code is not None else f"ended by signal {status.get('signal')}"
        cut = "[the beginning was cut off]\n" if output.get("truncated") else ""
        return f"{cut}{output.get('output', '')}\n[{ended}]"

    return shell


class PlanStep(TypedDict):
    """One entry of a plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


def plan_tool() -> Tool[..., Any]:
    """Make the tool by which a model shows its plan."""

    @tool(name="plan", advisory=True)
    async def plan(context: Context[Any], steps: list[PlanStep]) -> str:
        """Show the plan of a longer task and how far it is; send the whole plan each time.

        Args:
            steps: what is to be done, in order, each with how far it is
        """
        context.progress(data={"plan": [dict(step) for step in steps]})
        return "shown"

    return plan


async def _request(server: Server, method: str, params: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = await server.peer.request(method, params)
    except RpcError as error:
        raise ToolError(f"the editor said: {error}") from error
    return answer if isinstance(answer, dict) else {}


OPTIONS = (
    {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "allow_always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
    {"optionId": "reject_always", "name": "Always reject", "kind": "reject_always"},
)
_DECISIONS = {
    "allow_once": allow(),
    "allow_always": allow("session"),
    "reject_once": deny("the user rejected it"),
    "reject_always": deny("the user rejected it", "session"),
}


class EditorPermission:
    """A policy for one session: its mode first, then the agent's own policy where it has one, then the person."""

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        cwd: str,
        *,
        ids: CallIds,
        mode: Callable[[], str],
        own: Permission | None = None,
    ) -> None:
        self._peer, self._session, self._cwd = peer, session_id, cwd
        self._ids, self._mode, self._own = ids, mode, own
        self._remembering = Ask(self._ask)

    async def decide(self, request: PermissionRequest) -> Decision:
        decision = await self._decide(request)
        if decision.allowed:
            update = tool_update(self._ids.current(request.call_id), status="in_progress")
            self._peer.notify("session/update", {"sessionId": self._session, "update": update})
        return decision

    async def _decide(self, request: PermissionRequest) -> Decision:
        mode = self._mode()
        if mode == "read":
            return deny("the session is read-only")
        if self._own is not None:
            said = self._own.decide(request)
            return as_decision(await said if isinstance(said, Awaitable) else said)
        return allow() if mode == "allow" else await self._remembering.decide(request)

    async def _ask(self, request: PermissionRequest) -> Decision:
        arguments = json.dumps(dict(request.arguments), default=str)
        call = ToolCall(id=request.call_id, name=request.tool, arguments=arguments)
        shown = describe(call, self._ids.current(call.id), self._cwd, "pending", old_text(call, self._cwd))
        if request.target:
            shown["title"] = f"{request.tool}: {request.target}"
        params = {"sessionId": self._session, "toolCall": shown, "options": OPTIONS}
        try:
            answer = await self._peer.request("session/request_permission", params)
        except RpcError as error:
            return deny(f"the editor could not ask: {error}")
        return _decision(answer)


def _decision(answer: Any) -> Decision:
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return deny("the question was cancelled")
    return _DECISIONS.get(str(outcome.get("optionId")), deny("the editor answered with an unknown option"))

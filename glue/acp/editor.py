"""The editor as an agent's host: it reads and writes buffers, runs terminals, asks the user for permission."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from glue.acp.rpc import RpcError
from glue.acp.session import DEFAULTS
from glue.acp.updates import CallIds, ShownCall, diff_of, disk_text, edited_path, edited_text, tool_call, tool_update
from glue.context import Context, ToolResult, ToolWrapper
from glue.errors import ToolError
from glue.function.decorator import Tool, tool
from glue.messages import ToolCall
from glue.permission import AllowAll, Ask, Decision, Permission, PermissionRequest, Rules, allow, decide, deny

if TYPE_CHECKING:
    from glue.acp.server import Server
    from glue.agent import Agent

TERMINAL_BYTES = 64 * 1024  # that are kept
TERMINAL_SECONDS = 600.0  # after which a command is stopped


def ready_agent(model: Any, bundle: str) -> Callable[..., Agent[Any, Any]]:
    """Make an agent with ready-made tools for whatever directories the editor works in."""

    def make(cwd: str, server: Server, more: Sequence[str] = ()) -> Agent[Any, Any]:
        from glue.agent import Agent
        from glue.tools import coding, fs, git

        def tools_below(root: str) -> dict[str, Tool[..., Any]]:
            if bundle == "coding":
                made = coding.tools(root, trust=True, shell=True)
            else:
                made = [*fs.tools(root), *(git.tools(root, trust=True) if bundle == "git" else ())]
            return {each.name: each for each in editor_tools(made, root, server)}

        others = [(root, tools_below(root)) for root in more]
        tools: list[Any] = []
        for name, each in tools_below(cwd).items():
            same = [(root, named[name]) for root, named in others if name in named]
            takes_path = "path" in each.spec.parameters.get("properties", {})
            tools.append(_MultiRootTool(each, same) if same and takes_path else each)
        tools.append(plan_tool())
        instructions = coding.prompt(tools)
        if more:
            instructions += f"\nThese directories are yours too, by their absolute paths: {', '.join(more)}\n"
        return Agent(model, tools=tools, instructions=instructions, limits=DEFAULTS, name="glue")

    return make


class _MultiRootTool(ToolWrapper):
    """A tool over several roots: an absolute path picks its own."""

    def __init__(self, first: Tool[..., Any], others: Sequence[tuple[str, Tool[..., Any]]]) -> None:
        super().__init__(first)
        self._others = others

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        try:
            path = json.loads(call.arguments or "{}")["path"]
        except (ValueError, KeyError, TypeError, RecursionError):
            path = ""
        for root, other in self._others:
            if isinstance(path, str) and (path == root or path.startswith(root.rstrip("/") + "/")):
                return await other.invoke(call, context)
        return await self.tool.invoke(call, context)


def editor_tools(tools: Iterable[Tool[..., Any]], root: str, server: Server) -> list[Tool[..., Any]]:
    """Put the editor's own reading, writing and terminals in the place of ours, where it has them."""
    reads, writes = (server.offers("fs", name) is True for name in ("readTextFile", "writeTextFile"))
    has_terminals = server.offers("terminal") is True
    made: list[Tool[..., Any]] = []
    for ours in tools:
        theirs: Tool[..., Any] | None = None
        if ours.name == "read_file" and reads:
            theirs = _reader(root, server)
        elif ours.name in ("write_file", "edit_file") and reads and writes:
            theirs = _writer(ours, root, server)
        elif ours.name == "shell" and has_terminals:
            theirs = _terminal(ours, root, server)
        elif ours.name == "shell_job" and has_terminals:
            continue  # a terminal of the editor runs nothing in the background
        if theirs is not None:
            theirs.root, theirs.in_editor = root, True
        made.append(theirs or ours)
    return made


def _absolute(root: str, path: str) -> str:
    """Give the whole path of a file below the root; the editor opens it, so a link may lead no further."""
    from glue.tools.fs import safe_join

    return os.path.join(root, safe_join(root, path))


def _reader(root: str, server: Server) -> Tool[..., Any]:
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
        params = {"sessionId": context.session_id, "path": _absolute(root, path), "line": offset, "limit": limit}
        answer = await _request(server, "fs/read_text_file", params)
        return str(answer.get("content", ""))

    return read_file


def _writer(ours: Tool[..., Any], root: str, server: Server) -> Tool[..., Any]:
    """Make write_file or edit_file through the editor, with the same form as ours."""

    async def write(context: Context[Any], arguments: dict[str, Any]) -> str:
        path = arguments["path"]
        whole = _absolute(root, path)
        before = await editor_text(server, context.session_id, whole)
        if ours.name == "write_file":
            after = arguments["content"]
        elif before is None:
            raise ToolError(f"{path}: the editor has no such file")
        else:
            after = edited_text(before, arguments)
        old = {} if before is None else {"oldText": before}
        context.progress(data={"diff": {"type": "diff", "path": whole, **old, "newText": after}})
        params = {"sessionId": context.session_id, "path": whole, "content": after}
        await _request(server, "fs/write_text_file", params)
        return f"{'wrote' if ours.name == 'write_file' else 'edited'} {path} in the editor: {len(after.encode())} bytes"

    spec = ours.spec
    options = {"needs_permission": ours.action, "target": ours.target, "alone": True}
    return Tool.from_schema(spec.name, spec.description, spec.parameters, write, **options)


async def editor_text(server: Server, session_id: str, path: str) -> str | None:
    """Read a file as the editor has it; None where it has none."""
    try:
        answer = await _request(server, "fs/read_text_file", {"sessionId": session_id, "path": path})
    except ToolError:
        return None
    content = answer.get("content")
    return content if isinstance(content, str) else None


def _terminal(ours: Tool[..., Any], root: str, server: Server) -> Tool[..., Any]:
    @tool(name="shell", needs_permission=ours.action, target=ours.target, alone=True, timeout=TERMINAL_SECONDS)
    async def shell(context: Context[Any], command: str) -> str:
        """Run a command line in a terminal of the editor, and give its exit code and what it printed.

        Args:
            command: a shell command line
        """
        session = {"sessionId": context.session_id}
        args = {"command": "sh", "args": ["-c", command], "cwd": root, "outputByteLimit": TERMINAL_BYTES}
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


# Four answers; what is remembered holds for exactly this: the command in its folder, or the path.
_ANSWERS = {
    "allow_once": ("Allow", allow()),
    "allow_always": ("Always allow {}", allow("target")),
    "reject_once": ("Reject", deny("the user rejected it")),
    "reject_always": ("Always reject {}", deny("the user rejected it", "target")),
}


class EditorPermission:
    """A policy for one session: its mode, the rules of the settings, the agent's own policy if any, the person."""

    def __init__(
        self,
        server: Server,
        session_id: str,
        ids: CallIds,
        mode: Callable[[], str],
        own: Permission | None,
        **rules: Sequence[str],
    ) -> None:
        self._server, self._session = server, session_id
        self._ids, self._mode, self._own, self._rules = ids, mode, own, rules
        self._remembering = Ask(self._ask)

    def check(self, tools: Iterable[Any], ready_made: Iterable[str] = ()) -> None:
        """Have the rules looked at before a run."""
        self._policy("ask").check(tools, ready_made)

    def _policy(self, mode: str) -> Rules:
        otherwise = self._own or (AllowAll() if mode == "allow" else self._remembering)
        return Rules(**self._rules, otherwise=otherwise)

    async def decide(self, request: PermissionRequest) -> Decision:
        mode = self._mode()
        if mode == "read":
            return deny("the session is read-only")
        decision = await decide(self._policy(mode), request)
        shown = self._ids.current(request.call_id)
        if decision.allowed and shown is not None:
            update = tool_update(shown.id, status="in_progress")
            self._server.peer.notify("session/update", {"sessionId": self._session, "update": update})
        return decision

    async def _ask(self, request: PermissionRequest) -> Decision:
        shown = await self._shown(request)
        fields = tool_call(shown, "pending")
        if request.target:
            fields["title"] = f"{request.tool}: {request.target}"
        what = {"shell": "this command", "write_file": "this file", "edit_file": "this file"}
        word = what.get(request.tool, "exactly this")
        options = [{"optionId": kind, "name": name.format(word), "kind": kind} for kind, (name, _) in _ANSWERS.items()]
        params = {"sessionId": self._session, "toolCall": fields, "options": options}
        try:
            answer = await self._server.peer.request("session/request_permission", params)
        except RpcError as error:
            return deny(f"the editor could not ask: {error}")
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
            return deny("the question was cancelled")
        _, decision = _ANSWERS.get(str(outcome.get("optionId")), ("", None))
        return decision or deny("the editor answered with an unknown option")

    async def _shown(self, request: PermissionRequest) -> ShownCall:
        """Show the call with the arguments that it will run with, and what it will change."""
        arguments = json.dumps(dict(request.arguments), default=str)
        call = ToolCall(id=request.call_id, name=request.tool, arguments=arguments)
        shown = self._ids.current(call.id) or ShownCall(call.id, call)
        shown.call = call
        if path := edited_path(shown):
            if getattr(shown.tool, "in_editor", False):
                before = await editor_text(self._server, self._session, os.path.join(shown.root, path))
            else:
                before = disk_text(shown.root, path)
            shown.diff = diff_of(shown, before)
        return shown

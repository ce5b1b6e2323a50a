"""Tools that use the editor's buffers and terminals, and permission questions in the editor."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

from glue.acp.rpc import Peer, RpcError
from glue.acp.session import DEFAULTS
from glue.acp.updates import (
    CallIds,
    ShownCall,
    diff_of,
    disk_text,
    edited_path,
    edited_text,
    tool_call,
    tool_update,
)
from glue.agent import Agent
from glue.context import Context, ToolResult, ToolWrapper
from glue.errors import ToolError
from glue.function.decorator import Tool, tool
from glue.messages import ToolCall
from glue.permission import (
    AllowAll,
    Ask,
    Decision,
    Permission,
    PermissionRequest,
    Rules,
    allow,
    decide,
    deny,
)
from glue.tools import fs

TERMINAL_BYTES = 64 * 1024  # output of a command that the editor keeps
TERMINAL_SECONDS = 600.0  # after which a command is stopped


class EditorConnection(Protocol):
    """The interface through which tools use the connected editor. `Server` implements it."""

    peer: Peer

    def offers(self, *path: str) -> Any:
        """Return the capability that the editor announced under nested names, or None.

        `offers("fs", "readTextFile")` is the value of `readTextFile` in the object `fs`.
        """


def ready_agent(
    model: Any, bundle: str, shell: Mapping[str, Any] | None = None
) -> Callable[..., Agent[Any, Any]]:
    """Return a function that builds an agent with the tools of `bundle` for an editor's folders.

    Args:
        model: the model of the agent.
        bundle: the tools: "coding" for files, git and shell, "fs" to read files, "git" to read
            files and git.
        shell: options of the shell tool.
    """

    def make(cwd: str, editor: EditorConnection, more: Sequence[str] = ()) -> Agent[Any, Any]:
        # Slow to load, and not needed to answer `initialize`.
        from glue.tools import coding, git
        from glue.tools import shell as shell_tool

        def tools_below(root: str) -> dict[str, Tool[..., Any]]:
            if bundle == "coding":
                made = coding.tools(root, trust=True)
                made += shell_tool.tools(root, **(shell or {}))
            else:
                made = [*fs.tools(root), *(git.tools(root, trust=True) if bundle == "git" else ())]
            return {each.name: each for each in editor_tools(made, root, editor)}

        others = [(root, tools_below(root)) for root in more]
        tools: list[Any] = []
        for name, each in tools_below(cwd).items():
            same = [(root, named[name]) for root, named in others if name in named]
            takes_path = "path" in each.spec.parameters.get("properties", {})
            tools.append(_MultiRootTool(each, same) if same and takes_path else each)
        tools.append(plan_tool())
        instructions = coding.prompt(tools)
        if more:
            instructions += (
                f"\nYou may also use these directories, by absolute paths: {', '.join(more)}\n"
            )
        return Agent(model, tools=tools, instructions=instructions, limits=DEFAULTS, name="glue")

    return make


class _MultiRootTool(ToolWrapper):
    """A tool for several root folders: an absolute path in a call selects the root."""

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


def editor_tools(
    tools: Iterable[Tool[..., Any]], root: str, editor: EditorConnection
) -> list[Tool[..., Any]]:
    """Return the tools, with read, write, edit and shell tools of the editor if it offers them.

    An editor may offer to read its buffers, to write them, and to run commands in its terminals.
    With terminals, the tool `shell_job` is left out. All other tools are returned unchanged.
    """
    reads = editor.offers("fs", "readTextFile") is True
    writes = editor.offers("fs", "writeTextFile") is True
    has_terminals = editor.offers("terminal") is True
    made: list[Tool[..., Any]] = []
    for each in tools:
        replacement: Tool[..., Any] | None = None
        if each.name == "read_file" and reads:
            replacement = _reader(root, editor)
        elif each.name in ("write_file", "edit_file") and reads and writes:
            replacement = _writer(each, root, editor)
        elif each.name == "shell" and has_terminals:
            replacement = _terminal(each, root, editor)
        elif each.name == "shell_job" and has_terminals:
            continue  # the editor's terminals run nothing in the background
        if replacement is not None:
            replacement.root, replacement.in_editor = root, True
        made.append(replacement or each)
    return made


def _absolute(root: str, path: str) -> str:
    """Return the absolute path of a file; raise ToolError if the path leads outside the root.

    Links are resolved here, because the editor opens the file without a check.
    """
    return os.path.join(root, fs.relative_path(root, path))


def _reader(root: str, editor: EditorConnection) -> Tool[..., Any]:
    """Return a read_file tool that reads the editor's buffers."""

    @tool(name="read_file", read_only=True, kind="read")
    async def read_file(
        context: Context[Any], path: str, offset: int = 1, limit: int = 2000
    ) -> str:
        """Read lines of a text file of the project as the editor has it, with unsaved changes.

        Args:
            path: relative to the root
            offset: first line, counted from 1
            limit: how many lines
        """
        if offset < 1 or limit < 1:
            raise ToolError("offset and limit must be at least 1")
        params = {
            "sessionId": context.session_id,
            "path": _absolute(root, path),
            "line": offset,
            "limit": limit,
        }
        answer = await _request(editor, "fs/read_text_file", params)
        return str(answer.get("content", ""))

    return read_file


def _writer(original: Tool[..., Any], root: str, editor: EditorConnection) -> Tool[..., Any]:
    """Return a write_file or edit_file tool that writes the editor's buffers.

    Its name, description and parameters are those of the original tool.
    """

    async def write(context: Context[Any], arguments: dict[str, Any]) -> str:
        path = arguments["path"]
        absolute = _absolute(root, path)
        before = await editor_text(editor, context.session_id, absolute)
        if original.name == "write_file":
            done, after = "wrote", arguments["content"]
        elif before is None:
            raise ToolError(f"{path}: the editor cannot read this file; does it exist?")
        else:
            done, after = "edited", edited_text(before, arguments)
        old = {} if before is None else {"oldText": before}
        diff = {"type": "diff", "path": absolute, **old, "newText": after}
        context.progress(data={"diff": diff})
        params = {"sessionId": context.session_id, "path": absolute, "content": after}
        await _request(editor, "fs/write_text_file", params)
        return f"{done} {path} in the editor: {len(after.encode())} bytes"

    spec = original.spec
    options: dict[str, Any] = {
        "needs_permission": original.action,
        "target": original.target,
        "alone": True,
        "read_only": False,
        "kind": original.kind,
    }
    return Tool.from_schema(spec.name, spec.description, spec.parameters, write, **options)


async def editor_text(editor: EditorConnection, session_id: str, path: str) -> str | None:
    """Return the text of a file as the editor has it, or None if the editor cannot read it."""
    params = {"sessionId": session_id, "path": path}
    try:
        answer = await _request(editor, "fs/read_text_file", params)
    except ToolError:
        return None
    content = answer.get("content")
    return content if isinstance(content, str) else None


def _terminal(original: Tool[..., Any], root: str, editor: EditorConnection) -> Tool[..., Any]:
    """Return a shell tool that runs commands in the editor's terminals."""

    @tool(
        name="shell",
        needs_permission=original.action,
        target=original.target,
        alone=True,
        timeout=TERMINAL_SECONDS,
        read_only=False,
        kind="execute",
    )
    async def shell(context: Context[Any], command: str) -> str:
        """Run a command line in a terminal of the editor; return its output and exit code.

        Args:
            command: a shell command line
        """
        session = {"sessionId": context.session_id}
        # The sandbox that the permission question names applies in a terminal too.
        argv = original.confine(command) if original.confine is not None else ["sh", "-c", command]
        params = {
            "command": argv[0],
            "args": argv[1:],
            "cwd": root,
            "outputByteLimit": TERMINAL_BYTES,
        }
        made = await _request(editor, "terminal/create", {**session, **params})
        if not isinstance(made.get("terminalId"), str):
            raise ToolError("the editor did not open a terminal")
        terminal = {**session, "terminalId": made["terminalId"]}
        context.progress(data={"terminal_id": made["terminalId"]})
        done = False
        try:
            status = await _request(editor, "terminal/wait_for_exit", terminal)
            output = await _request(editor, "terminal/output", terminal)
            done = True
        finally:  # the call may have been cancelled, so nothing is awaited here
            if not done:
                editor.peer.send_request("terminal/kill", terminal)
            editor.peer.send_request("terminal/release", terminal)
        if (code := status.get("exitCode")) is not None:
            ended = f"exit code {code}"
        else:
            ended = f"ended by signal {status.get('signal')}"
        cut = "[the beginning was cut off]\n" if output.get("truncated") else ""
        return f"{cut}{output.get('output', '')}\n[{ended}]"

    shell.trial, shell.confinement = original.trial, original.confinement
    return shell


class PlanStep(TypedDict):
    """One step of a plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


def plan_tool() -> Tool[..., Any]:
    """Return the tool `plan`, with which a model shows its plan to the user."""

    @tool(name="plan", advisory=True, kind="think")
    async def plan(context: Context[Any], steps: list[PlanStep]) -> str:
        """Show the plan of a longer task to the user. Send the whole plan each time.

        Args:
            steps: the steps in order, each with its status
        """
        context.progress(data={"plan": [dict(step) for step in steps]})
        return "shown"

    return plan


async def _request(editor: EditorConnection, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the editor and return its result; raise ToolError if it fails.

    A result that is not an object is returned as {}.
    """
    try:
        answer = await editor.peer.request(method, params)
    except RpcError as error:
        raise ToolError(f"the editor answered with an error: {error}") from error
    return answer if isinstance(answer, dict) else {}


# The options of a question, with their labels and decisions. "Always" applies to the same target
# only: the same command in the same folder, or the same path.
_OPTIONS = {
    "allow_once": ("Allow", allow()),
    "allow_always": ("Always allow {}", allow("target")),
    "reject_once": ("Reject", deny("the user rejected the call")),
    "reject_always": ("Always reject {}", deny("the user rejected the call", "target")),
}
_TARGETS = {"shell": "this command", "write_file": "this file", "edit_file": "this file"}


class EditorPermission:
    """The permission policy of a session in an editor.

    The mode "read" denies every call. Then the rules decide, then the agent's own policy. If the
    agent has none, the mode "allow" allows the call, and the mode "ask" asks the user.

    Args:
        editor: the editor to ask.
        session_id: the session that the questions belong to.
        ids: the calls that the editor shows, with their ids in the editor.
        mode: returns the current mode of the session.
        own: the agent's own policy.
        rules: the permission rules of the settings, with the keys "allow" and "deny".
    """

    def __init__(
        self,
        editor: EditorConnection,
        session_id: str,
        ids: CallIds,
        mode: Callable[[], str],
        own: Permission | None,
        rules: Mapping[str, Sequence[str]],
    ) -> None:
        self._editor, self._session_id = editor, session_id
        self._ids, self._mode, self._own, self._rules = ids, mode, own, rules
        self._asking = Ask(self._ask)  # remembers the answers that are for always

    def check(self, tools: Iterable[Any]) -> None:
        """Raise ConfigError if a permission rule can never apply to a call of these tools."""
        self._policy("ask").check(tools)

    def _policy(self, mode: str) -> Rules:
        otherwise = self._own or (AllowAll() if mode == "allow" else self._asking)
        return Rules(**self._rules, otherwise=otherwise)

    def needs_person(self, request: PermissionRequest) -> bool:
        """Return whether a person must decide on a request; False if the session is read-only."""
        mode = self._mode()
        return mode != "read" and self._policy(mode).needs_person(request)

    async def decide(self, request: PermissionRequest) -> Decision:
        """Ask the user if needed, show an allowed call as running, and return the decision.

        In a read-only session, deny every call.
        """
        mode = self._mode()
        if mode == "read":
            return deny("the session is read-only")
        decision = await decide(self._policy(mode), request)
        shown = self._ids.current(request.call_id)
        if decision.allowed and shown is not None:
            update = tool_update(shown.id, status="in_progress")
            params = {"sessionId": self._session_id, "update": update}
            self._editor.peer.notify("session/update", params)
        return decision

    async def ask_once(self, request: PermissionRequest) -> Decision:
        """Ask the user in the editor about a request; return the decision without storing it."""
        call = ToolCall(id=f"{request.call_id}-question", name=request.tool, arguments="{}")
        return await self._request(request, ShownCall(call.id, call), ("allow_once", "reject_once"))

    async def _ask(self, request: PermissionRequest) -> Decision:
        """Ask the user to allow or reject a call, once or always; return the decision."""
        return await self._request(request, await self._shown(request), tuple(_OPTIONS))

    async def _request(
        self, request: PermissionRequest, shown: ShownCall, kinds: tuple[str, ...]
    ) -> Decision:
        """Ask the user for permission in the editor; return the decision, or a denial on failure.

        An error, a cancelled question or an unknown answer denies the call.
        """
        fields = tool_call(shown, "pending")
        if request.target:
            reason = f" ({request.reason})" if request.reason else ""
            fields["title"] = f"{request.tool}: {request.target}{reason}"
        target = _TARGETS.get(request.tool, "this target")
        options = [
            {"optionId": kind, "name": label.format(target), "kind": kind}
            for kind, (label, _) in _OPTIONS.items()
            if kind in kinds
        ]
        params = {"sessionId": self._session_id, "toolCall": fields, "options": options}
        try:
            answer = await self._editor.peer.request("session/request_permission", params)
        except RpcError as error:
            return deny(f"the editor could not ask the user: {error}")
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
            return deny("the question was cancelled")
        _, decision = _OPTIONS.get(str(outcome.get("optionId")), ("", None))
        return decision or deny("the editor answered with an unknown option")

    async def _shown(self, request: PermissionRequest) -> ShownCall:
        """Store the final arguments and the diff of a call in its ShownCall; return the ShownCall.

        Return a new ShownCall if the call has not been shown. Only an edit has a diff.
        """
        arguments = json.dumps(dict(request.arguments), default=str)
        call = ToolCall(id=request.call_id, name=request.tool, arguments=arguments)
        shown = self._ids.current(call.id) or ShownCall(call.id, call)
        shown.call = call
        if path := edited_path(shown):
            if getattr(shown.tool, "in_editor", False):
                absolute = os.path.join(shown.root, path)
                before = await editor_text(self._editor, self._session_id, absolute)
            else:
                before = disk_text(shown.root, path)
            shown.diff = diff_of(shown, before)
        return shown

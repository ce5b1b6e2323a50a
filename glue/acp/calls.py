"""Tool calls in the protocol's shapes: kinds, places with lines counted from 1, diffs. Pure, but for `old_text`."""

from __future__ import annotations

import json
import os.path
from typing import Any

from glue.acp.shapes import content_blocks
from glue.errors import GlueError
from glue.types import ToolCall, ToolMessage

LARGEST = 256 * 1024  # bytes of a file that a diff may show whole

_KINDS = {
    "read_file": "read",
    "list_dir": "read",
    "git_show": "read",
    "git_blame": "read",
    "git_diff_branch": "read",
    "git_log_branch": "read",
    "git_status": "read",
    "git_diff_worktree": "read",
    "find_files": "search",
    "grep": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "shell": "execute",
    "plan": "think",
}
_LINES = {"read_file": "offset", "git_blame": "first"}  # where a tool says which line it begins at


class Ids:
    """Gives each call an id of its own in the session: models count from 1 again and again."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def begin(self, call_id: str) -> str:
        self._used[call_id] = self._used.get(call_id, 0) + 1
        return self.current(call_id)

    def current(self, call_id: str) -> str:
        times = self._used.get(call_id, 1)
        return call_id if times == 1 else f"{call_id}#{times}"


def describe(call: ToolCall, id: str, cwd: str, status: str, before: str | None = None) -> dict[str, Any]:
    """Describe a call that begins, or waits; `before` is the text of the file that it would change."""
    arguments = _arguments(call)
    shown: dict[str, Any] = {
        "toolCallId": id,
        "title": _title(call.name, arguments),
        "kind": _KINDS.get(call.name, "other"),
        "status": status,
        "rawInput": arguments,
    }
    if (place := _place(call.name, arguments, cwd, before)) is not None:
        shown["locations"] = [place]
    if (diff := diff_of(call, cwd, before)) is not None:
        shown["content"] = [diff]
    return shown


def tool_call(call: ToolCall, id: str, cwd: str, status: str, before: str | None = None) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", **describe(call, id, cwd, status, before)}


def tool_update(id: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}


def tool_result(
    id: str, message: ToolMessage, diff: dict[str, Any] | None = None, terminal: str = ""
) -> dict[str, Any]:
    """Tell how a call ended; an edit that worked shows its diff, a terminal stays, all else shows what it gave."""
    status = "failed" if message.is_error else "completed"
    if terminal:
        content: list[dict[str, Any]] = [{"type": "terminal", "terminalId": terminal}]
    elif diff is not None and not message.is_error:
        content = [diff]
    else:
        content = [{"type": "content", "content": block} for block in content_blocks(message.content)]
        return tool_update(id, status=status, content=content)
    return tool_update(id, status=status, content=content, rawOutput={"text": message.text})


def old_text(call: ToolCall, cwd: str) -> str | None:
    """Read the file that a call is about to change; None where there is none, or one too large to show."""
    path = _arguments(call).get("path")
    if _KINDS.get(call.name) != "edit" or not isinstance(path, str):
        return None
    from glue.tools.fs import safe_open

    try:
        with safe_open(cwd, path) as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError, GlueError):
        return None
    return None if len(data) > LARGEST else data.decode("utf-8", "replace")


def diff_of(call: ToolCall, cwd: str, before: str | None = None) -> dict[str, Any] | None:
    """Show what a call that edits would change."""
    arguments = _arguments(call)
    path, old, new = arguments.get("path"), arguments.get("old"), arguments.get("new")
    if not isinstance(path, str) or not path:
        return None
    diff = {"type": "diff", "path": _absolute(cwd, path)}
    if call.name == "edit_file" and isinstance(old, str) and isinstance(new, str):
        return {**diff, "oldText": old, "newText": new}
    if call.name == "write_file" and isinstance(arguments.get("content"), str):
        return {**diff, **({} if before is None else {"oldText": before}), "newText": arguments["content"]}
    return None


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}", parse_constant=str)
    except (ValueError, RecursionError):
        return {"text": call.arguments}
    return arguments if isinstance(arguments, dict) else {"value": arguments}


def _title(name: str, arguments: dict[str, Any]) -> str:
    for key in ("path", "command", "pattern", "revision"):
        value = arguments.get(key)
        if value:
            shown = value if isinstance(value, str) else " ".join(map(str, value)) if isinstance(value, list) else ""
            return f"{name} {shown}".strip()[:200]
    return name


def _place(name: str, arguments: dict[str, Any], cwd: str, before: str | None) -> dict[str, Any] | None:
    path = arguments.get("path")
    if name not in _KINDS or not isinstance(path, str) or not path:
        return None
    place: dict[str, Any] = {"path": _absolute(cwd, path)}
    line = arguments.get(_LINES.get(name, ""))
    old = arguments.get("old")
    if before is not None and isinstance(old, str) and old and (at := before.find(old)) >= 0:
        line = before.count("\n", 0, at) + 1
    if isinstance(line, int) and not isinstance(line, bool) and line >= 1:
        place["line"] = line
    return place


def _absolute(cwd: str, path: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))

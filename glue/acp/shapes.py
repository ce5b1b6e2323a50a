"""From our records to the protocol's shapes, and back. Pure."""

from __future__ import annotations

import base64
import json
import os.path
from collections.abc import Iterable, Sequence
from typing import Any

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.limits import Outcome
from glue.types import Image, Part, Text, ToolCall, ToolMessage

STOP_REASONS = {
    Outcome.DONE: "end_turn",
    Outcome.WRAPPED_UP: "end_turn",
    Outcome.MAX_TURNS: "max_turn_requests",
    Outcome.BUDGET: "max_tokens",
    Outcome.HALTED: "end_turn",
    Outcome.STALLED: "end_turn",
    Outcome.CONTEXT_WINDOW: "max_tokens",
    Outcome.TRUNCATED: "max_tokens",
    Outcome.REFUSED: "refusal",
    Outcome.CANCELLED: "cancelled",
}

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


def prompt_parts(blocks: Any) -> tuple[str | Part, ...]:
    """Take the blocks of a prompt; a link is named, an embedded text is quoted with its address."""
    if not isinstance(blocks, list) or not blocks:
        raise RpcError(INVALID_PARAMS, "prompt must be a list of at least one content block")
    return tuple(_part(block) for block in blocks)


def _part(block: Any) -> str | Part:
    kind = block.get("type") if isinstance(block, dict) else None
    try:
        if kind == "text":
            return Text(text=_text(block["text"]))
        if kind == "image":
            return Image(media_type=_text(block["mimeType"]), data=base64.b64decode(block["data"], validate=True))
        if kind == "resource_link":
            return Text(text=f"[{_text(block['name'])}]({_text(block['uri'])})")
        if kind == "resource" and isinstance(block.get("resource"), dict) and "text" in block["resource"]:
            resource = block["resource"]
            return Text(text=f"<resource uri={json.dumps(resource['uri'])}>\n{_text(resource['text'])}\n</resource>")
    except (KeyError, TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"not a {kind} block: {error}") from error
    raise RpcError(INVALID_PARAMS, f"a prompt may hold text, image, resource_link and embedded text, not {kind!r}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {value!r}")
    return value


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def chunk(update: str, text: str, message_id: str) -> dict[str, Any]:
    return {"sessionUpdate": update, "content": text_block(text), "messageId": message_id}


def content_blocks(content: Iterable[Part]) -> list[dict[str, Any]]:
    """Show parts as content blocks."""
    blocks: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Text) and part.text:
            blocks.append(text_block(part.text))
        elif isinstance(part, Image) and part.data is not None:
            data = base64.b64encode(part.data).decode()
            blocks.append({"type": "image", "mimeType": part.media_type, "data": data})
    return blocks


def tool_call(call: ToolCall, cwd: str, status: str = "in_progress") -> dict[str, Any]:
    """Tell of a call that begins."""
    arguments = _arguments(call)
    shown: dict[str, Any] = {
        "sessionUpdate": "tool_call",
        "toolCallId": call.id,
        "title": _title(call.name, arguments),
        "kind": _KINDS.get(call.name, "other"),
        "status": status,
        "rawInput": arguments,
    }
    if places := _locations(call.name, arguments, cwd):
        shown["locations"] = places
    if diff := _diff(call.name, arguments, cwd):
        shown["content"] = [diff]
    return shown


def tool_result(call: ToolCall, message: ToolMessage, cwd: str) -> dict[str, Any]:
    """Tell how a call ended; an edit that worked shows its diff, everything else what it returned."""
    content: list[dict[str, Any]] = [{"type": "content", "content": block} for block in content_blocks(message.content)]
    diff = _diff(call.name, _arguments(call), cwd)
    if diff and not message.is_error:
        content = [diff]
    terminal = (message.meta or {}).get("terminal_id")
    if terminal:
        content = [{"type": "terminal", "terminalId": terminal}, *content]
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call.id,
        "status": "failed" if message.is_error else "completed",
        "content": content,
        "rawOutput": {"text": message.text, "isError": message.is_error},
    }


def tool_summary(tool: str, target: str, call_id: str, arguments: Any, cwd: str) -> dict[str, Any]:
    """Describe a call that waits for permission."""
    call = ToolCall(id=call_id, name=tool, arguments=json.dumps(arguments, default=str))
    shown = tool_call(call, cwd, "pending")
    del shown["sessionUpdate"]
    if target:
        shown["title"] = f"{tool}: {target}"
    return shown


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return {"text": call.arguments}
    return arguments if isinstance(arguments, dict) else {"value": arguments}


def _title(name: str, arguments: dict[str, Any]) -> str:
    for key in ("path", "command", "pattern", "revision"):
        value = arguments.get(key)
        if value:
            shown = value if isinstance(value, str) else " ".join(map(str, value)) if isinstance(value, list) else ""
            return f"{name} {shown}".strip()[:200]
    return name


def _locations(name: str, arguments: dict[str, Any], cwd: str) -> list[dict[str, Any]]:
    path = arguments.get("path")
    if name not in _KINDS or not isinstance(path, str) or not path:
        return []
    place: dict[str, Any] = {"path": os.path.normpath(os.path.join(cwd, path))}
    line = arguments.get("offset")
    if isinstance(line, int) and line >= 1:
        place["line"] = line
    return [place]


def _diff(name: str, arguments: dict[str, Any], cwd: str) -> dict[str, Any] | None:
    path, old, new = arguments.get("path"), arguments.get("old"), arguments.get("new")
    if not isinstance(path, str) or not path:
        return None
    whole = os.path.normpath(os.path.join(cwd, path))
    if name == "edit_file" and isinstance(old, str) and isinstance(new, str):
        return {"type": "diff", "path": whole, "oldText": old, "newText": new}
    if name == "write_file" and isinstance(arguments.get("content"), str):
        return {"type": "diff", "path": whole, "newText": arguments["content"]}
    return None


def plan_update(entries: Sequence[Any]) -> dict[str, Any]:
    """Show a plan; what is no entry is left out."""
    shown = [
        {
            "content": str(entry["content"]),
            "priority": _one_of(entry.get("priority"), ("high", "medium", "low"), "medium"),
            "status": _one_of(entry.get("status"), ("pending", "in_progress", "completed"), "pending"),
        }
        for entry in entries
        if isinstance(entry, dict) and entry.get("content")
    ]
    return {"sessionUpdate": "plan", "entries": shown}


def _one_of(value: Any, allowed: tuple[str, ...], otherwise: str) -> Any:
    return value if value in allowed else otherwise

"""Session updates of the Agent Client Protocol, made from a run's events and from stored messages."""

from __future__ import annotations

import base64
import json
import os.path
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from glue.acp.rpc import AUTH_REQUIRED, INTERNAL, INVALID_PARAMS, RpcError
from glue.errors import ConfigError, GlueError, MissingKey, ProviderError
from glue.events import (
    ContinuationAttempt,
    Event,
    MessageEnd,
    MessageStart,
    RequestStart,
    ToolEnd,
    ToolStart,
    ToolUpdate,
)
from glue.limits import Outcome, StopReason, estimate_tokens
from glue.loop.transcript import estimate
from glue.messages import AssistantMessage, Image, Message, Part, Text, Thinking, ToolCall, ToolMessage, UserMessage
from glue.provider import TextDelta, ThinkingDelta
from glue.result import RunResult


def prompt_parts(blocks: Any) -> tuple[str | Part, ...]:
    """Take the blocks of a prompt; a link is named, an embedded text is quoted with its address."""
    if not isinstance(blocks, list) or not blocks:
        raise RpcError(INVALID_PARAMS, "prompt must be a list of at least one content block")
    return tuple(_part(block) for block in blocks)


def _part(block: Any) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    try:
        if kind == "text":
            return Text(text=_text(block["text"]))
        if kind == "image":
            return Image(media_type=_text(block["mimeType"]), data=base64.b64decode(block["data"], validate=True))
        if kind == "resource_link":
            return Text(text=f"[{_text(block['name'])}]({_text(block['uri'])})")
        if kind == "resource" and "text" in block["resource"]:
            resource = block["resource"]
            where = json.dumps(_text(resource["uri"]))
            return Text(text=f"<resource uri={where}>\n{_text(resource['text'])}\n</resource>")
    except KeyError as error:
        raise RpcError(INVALID_PARAMS, f"a {kind} block needs {error}") from error
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"not a {kind} block: {error}") from error
    raise RpcError(INVALID_PARAMS, f"a prompt may hold text, image, resource_link and embedded text, not {kind!r}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {value!r}")
    value.encode()  # half a surrogate pair could not be stored
    return value


def chunk(update: str, text: str, message_id: str) -> dict[str, Any]:
    """Make an update of a piece of a message."""
    return {"sessionUpdate": update, "content": text_block(text), "messageId": message_id}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


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


def _one_of(value: Any, allowed: tuple[str, ...], otherwise: str) -> str:
    return value if isinstance(value, str) and value in allowed else otherwise


MAX_DIFF = 256 * 1024  # bytes of a file that a diff may show whole

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


class CallIds:
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
            data = file.read(MAX_DIFF + 1)
    except (OSError, ValueError, GlueError):
        return None
    return None if len(data) > MAX_DIFF else data.decode("utf-8", "replace")


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


class Reporter:
    """A listener that sends what a run says to the editor, and waits for an editor that is slow."""

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        drain: Callable[[], Awaitable[None]],
        *,
        cwd: str,
        ids: CallIds,
        gated: Collection[str] = (),
        window: int = 0,
        cost: float = 0.0,
    ) -> None:
        self._send, self.drain = send, drain
        self._cwd, self._ids, self._gated = cwd, ids, gated
        self._window, self.cost = window, cost
        self._message = ""  # the id of the chain that is being told
        self._in_chain = False
        self._request: Sequence[Message] = ()
        self._open: dict[str, dict[str, Any] | None] = {}  # the calls under way, with their diffs
        self._terminals: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._send(chunk("agent_message_chunk", event.text, self._message))
        elif isinstance(event, ThinkingDelta):
            self._send(chunk("agent_thought_chunk", event.text, self._message))
        elif isinstance(event, MessageStart) and event.role == "assistant":
            if not self._in_chain:
                self._message = event.id
            self._in_chain = False
        elif isinstance(event, ContinuationAttempt):
            self._in_chain = True
        elif isinstance(event, RequestStart):
            self._request = event.request.messages
        elif isinstance(event, ToolStart):
            self._started(event)
        elif isinstance(event, ToolUpdate):
            self._updated(event)
        elif isinstance(event, ToolEnd):
            self._ended(event.message)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._in_chain = self._in_chain or event.message.stop_reason is StopReason.PAUSE_TURN
            self._used(event.message)

    def _started(self, event: ToolStart) -> None:
        call = event.call
        before = old_text(call, self._cwd)
        self._open[call.id] = diff_of(call, self._cwd, before)
        status = "pending" if call.name in self._gated else "in_progress"
        self._send(tool_call(call, self._ids.begin(call.id), self._cwd, status, before))

    def _updated(self, event: ToolUpdate) -> None:
        data = event.data if isinstance(event.data, dict) else {}
        shown: dict[str, Any] | None = None
        if isinstance(data.get("plan"), list):
            self._send(plan_update(data["plan"]))
        elif isinstance(data.get("terminal_id"), str):
            self._terminals[event.call_id] = data["terminal_id"]
            shown = {"type": "terminal", "terminalId": data["terminal_id"]}
        elif event.text:
            shown = {"type": "content", "content": text_block(event.text)}
        if shown is not None:
            self._send(tool_update(self._ids.current(event.call_id), status="in_progress", content=[shown]))

    def _ended(self, message: ToolMessage) -> None:
        diff = self._open.pop(message.call_id, None)
        terminal = self._terminals.pop(message.call_id, "")
        self._send(tool_result(self._ids.current(message.call_id), message, diff, terminal))

    def _used(self, message: AssistantMessage) -> None:
        """Tell how full the context is; where the provider does not say, by estimate. A size of 0 is not known."""
        usage = message.usage
        used = usage.total if usage is not None else estimate((*self._request, message), estimate_tokens)
        update: dict[str, Any] = {"sessionUpdate": "usage_update", "used": used, "size": self._window}
        if usage is None:
            update["_meta"] = {"estimated": True}
        elif usage.cost is not None:
            self.cost += usage.cost
        if self.cost:
            update["cost"] = {"amount": self.cost, "currency": "USD"}
        self._send(update)


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


def answer(result: RunResult[Any]) -> dict[str, Any]:
    """Give the protocol's stop reason for an outcome; a failure is an error with what is known of it."""
    if result.outcome is Outcome.FAILED:
        raise failure(result.error, result)
    usage = result.usage
    meta = {
        **(dict(result.meta) if result.meta else {}),
        "outcome": str(result.outcome),
        "turns": result.turns,
        "requests": result.requests,
        "usage": {"inputTokens": usage.input, "outputTokens": usage.output, "totalTokens": usage.total},
        **({"cost": result.cost} if result.cost is not None else {}),
        **({"notice": result.notice} if result.notice else {}),
        **({"detail": str(result.error)} if result.error else {}),
    }
    return {"stopReason": STOP_REASONS[result.outcome], "_meta": meta}


def plain(outcome: Outcome) -> dict[str, Any]:
    """Answer a prompt that no model was asked about."""
    return {"stopReason": STOP_REASONS[outcome], "_meta": {"outcome": str(outcome)}}


def failure(error: BaseException | None, result: RunResult[Any] | None = None) -> RpcError:
    """Make the error that a request is answered with."""
    data: dict[str, Any] = {"outcome": str(Outcome.FAILED), "error": type(error).__name__}
    code = INTERNAL
    if isinstance(error, ProviderError):
        data |= {"kind": error.kind, "provider": error.provider, "model": error.model, "status": error.status}
        code = AUTH_REQUIRED if error.kind == "auth" else INTERNAL
    elif isinstance(error, ConfigError):
        code = AUTH_REQUIRED if isinstance(error, MissingKey) else INVALID_PARAMS
    if result is not None:
        data |= {"turns": result.turns, "requests": result.requests}
    return RpcError(code, str(error or "the run failed"), data)


_HUMAN_ORIGINS = ("user", "steering", "follow_up")  # what people said, and not the loop


def replay(messages: Sequence[Message], cwd: str, ids: CallIds) -> Iterator[dict[str, Any]]:
    """Tell everything again, but for refused prompts: those have left the context."""
    calls: dict[str, ToolCall] = {}
    chain = ""  # the id that a continuation goes on with
    for message in _without_refused(messages):
        if isinstance(message, UserMessage):
            if message.origin != "continue":
                chain = ""
            if message.origin in _HUMAN_ORIGINS:
                for block in content_blocks(message.content):
                    yield {"sessionUpdate": "user_message_chunk", "content": block, "messageId": message.id}
        elif isinstance(message, AssistantMessage):
            chain = chain or message.id
            yield from _message_chunks(message, chain)
            for call in message.calls:
                calls[call.id] = call
                yield tool_call(call, ids.begin(call.id), cwd, "in_progress")
            if message.stop_reason not in (StopReason.PAUSE_TURN, StopReason.MAX_TOKENS):
                chain = ""
        elif (call_made := calls.pop(message.call_id, None)) is not None:
            yield tool_result(ids.current(message.call_id), message, diff_of(call_made, cwd))
    for left in calls:  # the process was killed before it had their results
        content = [{"type": "content", "content": text_block("interrupted")}]
        yield tool_update(ids.current(left), status="failed", content=content)


def _message_chunks(message: AssistantMessage, id: str) -> Iterator[dict[str, Any]]:
    for part in message.content:
        if isinstance(part, Text) and part.text:
            yield chunk("agent_message_chunk", part.text, id)
        elif isinstance(part, Thinking) and part.text:
            yield chunk("agent_thought_chunk", part.text, id)


def _without_refused(messages: Sequence[Message]) -> Iterator[Message]:
    """Leave out runs that were refused; what a compaction took out of the context is still told."""
    prompts = [at for at, each in enumerate(messages) if isinstance(each, UserMessage) and each.origin == "user"]
    starts = sorted({0, *prompts, len(messages)})
    for start, stop in pairwise(starts):
        run = messages[start:stop]
        if not _refused(run):
            yield from (message for message in run if not _delivered(message))


def _refused(run: Sequence[Message]) -> bool:
    replies = [message for message in run if isinstance(message, AssistantMessage)]
    excluded = all(message.excluded for message in run)
    return excluded and (not replies or replies[-1].stop_reason is StopReason.REFUSAL)


def _delivered(message: Message) -> bool:
    return isinstance(message, ToolMessage) and message.call_id == "delivered"

"""Conversion from ACP prompts to messages, and from events and results of a run to ACP updates."""

from __future__ import annotations

import base64
import contextlib
import json
import os.path
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

from glue import events
from glue.acp.rpc import AUTH_REQUIRED, INTERNAL, INVALID_PARAMS, RpcError
from glue.context import AnyTool
from glue.errors import ConfigError, GlueError, MissingKey, ProviderError, ToolError
from glue.events import Event
from glue.limits import Outcome, StopReason, estimate_tokens
from glue.loop.transcript import estimate, has_content
from glue.messages import (
    HUMAN_ORIGINS,
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
    new_id,
)
from glue.provider import TextDelta, ThinkingDelta
from glue.result import RunResult
from glue.text import one_line
from glue.tools.fs import safe_open
from glue.tools.fs.edit import edit_all, read_edits

MAX_DIFF = 256 * 1024  # bytes of a file that is shown whole in a diff

_LINE_ARGUMENTS = {"read_file": "offset", "git_blame": "first"}  # the argument with the first line


def prompt_parts(blocks: Any) -> tuple[str | Part, ...]:
    """Convert the content blocks of an editor's prompt to message parts.

    A link becomes its name and address. An embedded text is quoted together with its address. Raise
    RpcError if a block is invalid, or if every block is a blank text.
    """
    if not isinstance(blocks, list) or not blocks:
        raise RpcError(INVALID_PARAMS, "prompt must be a list of at least one content block")
    parts = tuple(_part(block) for block in blocks)
    if not has_content(parts):
        raise RpcError(INVALID_PARAMS, "the prompt is empty; send a text, an image or a file")
    return parts


def _part(block: Any) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    try:
        if kind == "text":
            return Text(text=_text(block["text"]))
        if kind == "image":
            return Image(
                media_type=_text(block["mimeType"]),
                data=base64.b64decode(block["data"], validate=True),
            )
        if kind == "resource_link":
            return Text(text=f"[{_text(block['name'])}]({_text(block['uri'])})")
        if kind == "resource":
            return _resource(block["resource"])
    except KeyError as error:
        raise RpcError(
            INVALID_PARAMS, f"a block of the type {kind} needs the field {error}"
        ) from error
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"a block of the type {kind} is invalid: {error}") from error
    raise RpcError(
        INVALID_PARAMS,
        f"a prompt may contain text, image, resource_link and resource blocks, not {kind!r}",
    )


def _resource(resource: Any) -> Part:
    """Convert an embedded file to a message part: a quoted text, an image or a PDF.

    Raise ValueError for other binary data.
    """
    address = json.dumps(_text(resource["uri"]))
    if "text" in resource:
        return Text(text=f"<resource uri={address}>\n{_text(resource['text'])}\n</resource>")
    data = base64.b64decode(resource["blob"], validate=True)
    media_type = resource.get("mimeType") or ""
    if media_type.startswith("image/"):
        return Image(media_type=media_type, data=data)
    if media_type == "application/pdf":
        return File(media_type=media_type, data=data, name=resource["uri"].rpartition("/")[2])
    if b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return Text(text=f"<resource uri={address}>\n{data.decode()}\n</resource>")
    kind = media_type or "binary data without a MIME type"
    raise ValueError(f"{resource['uri']} contains {kind}, which models cannot read")


def _text(value: Any) -> str:
    """Return `value`; raise TypeError if it is not a string, ValueError if UTF-8 cannot encode it.

    UTF-8 cannot encode half a surrogate pair.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected a text, not {value!r}")
    value.encode()  # raises for half a surrogate pair, which could not be stored
    return value


def chunk(update: str, text: str, message_id: str) -> dict[str, Any]:
    """Return a session update of the kind `update` that adds a piece of text to a message."""
    return {"sessionUpdate": update, "content": text_block(text), "messageId": message_id}


def text_block(text: str) -> dict[str, Any]:
    """Return a content block of the protocol with a text."""
    return {"type": "text", "text": text}


def content_blocks(content: Iterable[Part]) -> list[dict[str, Any]]:
    """Return content blocks for texts, and for images that have their data; skip other parts."""
    blocks: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Text) and part.text:
            blocks.append(text_block(part.text))
        elif isinstance(part, Image) and part.data is not None:
            data = base64.b64encode(part.data).decode()
            blocks.append({"type": "image", "mimeType": part.media_type, "data": data})
    return blocks


_STATUSES = ("pending", "in_progress", "completed")


def plan_update(entries: Sequence[Any]) -> dict[str, Any]:
    """Return a session update that shows a plan; leave out entries without content."""
    shown = [
        {
            "content": str(entry["content"]),
            "priority": _one_of(entry.get("priority"), ("high", "medium", "low"), "medium"),
            "status": _one_of(entry.get("status"), _STATUSES, "pending"),
        }
        for entry in entries
        if isinstance(entry, dict) and entry.get("content")
    ]
    return {"sessionUpdate": "plan", "entries": shown}


def _one_of(value: Any, allowed: tuple[str, ...], default: str) -> str:
    return value if isinstance(value, str) and value in allowed else default


@dataclass(slots=True)
class ShownCall:
    """A tool call that has not ended, as the editor shows it."""

    id: str  # unique in the session, unlike the id of the call
    call: ToolCall
    tool: AnyTool | None = None  # None if the agent no longer has it
    diff: dict[str, Any] | None = None
    terminal: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments, or {"text": ...} if they are not valid JSON.

        JSON that is not an object is returned as {"value": ...}.
        """
        try:
            arguments = json.loads(self.call.arguments or "{}", parse_constant=str)
        except (ValueError, RecursionError):
            return {"text": self.call.arguments}
        return arguments if isinstance(arguments, dict) else {"value": arguments}

    @property
    def kind(self) -> str:
        """The kind that the tool declares, or "other". The editor shows an icon for the kind."""
        return getattr(self.tool, "kind", "") or "other"

    @property
    def root(self) -> str:
        """The folder that paths in the arguments are relative to, or "" if it is unknown."""
        return str(getattr(self.tool, "root", ""))


class CallIds:
    """The tool calls of a session that have not ended, each with an id unique in the session.

    Some models number their calls from 1 in each reply, and so do the models of sub-agents.
    """

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        # Calls that have not ended, by the ids of the calls around them and their own id.
        self.open: dict[tuple[str, ...], ShownCall] = {}

    def begin(self, key: tuple[str, ...], call: ToolCall, tool: AnyTool | None = None) -> ShownCall:
        """Register a call that begins, and return a ShownCall with an id unique in the session.

        The second and third call with the id "1" get the ids "1#2" and "1#3".
        """
        self._used[call.id] += 1
        times = self._used[call.id]
        unique = call.id if times == 1 else f"{call.id}#{times}"
        shown = self.open[key] = ShownCall(unique, call, tool)
        return shown

    def current(self, call_id: str) -> ShownCall | None:
        """Return the newest call with the model's id `call_id` that has not ended, or None."""
        same = (shown for shown in reversed(self.open.values()) if shown.call.id == call_id)
        return next(same, None)


def tool_call(shown: ShownCall, status: str) -> dict[str, Any]:
    """Return the fields of the protocol for a tool call that begins or waits for permission."""
    name, arguments = shown.call.name, shown.arguments
    fields: dict[str, Any] = {
        "toolCallId": shown.id,
        "title": _title(getattr(shown.tool, "title", "") or name, arguments),
        "name": name,
        "kind": shown.kind,
        "status": status,
        "rawInput": arguments,
    }
    if (location := _location(shown)) is not None:
        fields["locations"] = [location]
    if shown.diff is not None:
        fields["content"] = [shown.diff]
    return fields


def tool_update(id: str, **fields: Any) -> dict[str, Any]:
    """Return a session update that changes fields of the tool call `id`."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}


def tool_result(shown: ShownCall, message: ToolMessage) -> dict[str, Any]:
    """Return the session update for a call that ended, with its terminal, diff or result."""
    status = "failed" if message.is_error else "completed"
    raw = {"text": message.text}
    if shown.terminal:
        terminal = {"type": "terminal", "terminalId": shown.terminal}
        return tool_update(shown.id, status=status, content=[terminal], rawOutput=raw)
    if shown.diff is not None and not message.is_error:
        return tool_update(shown.id, status=status, content=[shown.diff], rawOutput=raw)
    blocks = content_blocks(message.content)
    content = [{"type": "content", "content": block} for block in blocks]
    return tool_update(shown.id, status=status, content=content)


def touched_path(root: str, path: str) -> str:
    """Return the absolute path of a file, with symbolic links in the folders below `root` resolved.

    If the file itself is a link, the path is that of the link. The result begins with the root as
    the editor wrote it, even if the root is a link.
    """
    folder, name = os.path.split(os.path.normpath(os.path.join(root, path)))
    below = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    return os.path.normpath(os.path.join(root, below, name))


def edited_path(shown: ShownCall) -> str:
    """Return the `path` argument of a call that changes a file, or "" for any other call.

    Return "" also if the root of the call is unknown.
    """
    path = shown.arguments.get("path")
    is_edit = bool(shown.root) and shown.kind == "edit"
    return path if is_edit and isinstance(path, str) else ""


def disk_text(root: str, path: str) -> str | None:
    """Return the text of a file below a root, or None if it cannot be read or is too large."""
    try:
        with safe_open(root, path) as file:
            data = file.read(MAX_DIFF + 1)
    except (OSError, ValueError, GlueError):
        return None
    return None if len(data) > MAX_DIFF else data.decode("utf-8", "replace")


def diff_of(shown: ShownCall, before: str | None) -> dict[str, Any] | None:
    """Return a diff of the file that a call edits, or None if the arguments contain no edit.

    Return None also for a call that edits no file, or if the root of the call is unknown.
    `before` is the text of the file before the call, or None if it is unknown. If the edit cannot
    be applied to that text, the diff shows the arguments `old` and `new`.
    """
    call, path = shown.call, edited_path(shown)
    if not path:
        return None
    arguments = shown.arguments
    diff = {"type": "diff", "path": touched_path(shown.root, path)}
    if call.name == "write_file" and isinstance(arguments.get("content"), str):
        old_text = {} if before is None else {"oldText": before}
        return {**diff, **old_text, "newText": arguments["content"]}
    if call.name == "edit_file" and before is not None:
        # If the edit is wrong, the tool itself reports the error.
        with contextlib.suppress(ToolError, KeyError, TypeError, ValueError, AttributeError):
            return {**diff, "oldText": before, "newText": edited_text(before, arguments)}
    old, new = arguments.get("old"), arguments.get("new")
    if call.name == "edit_file" and isinstance(old, str) and isinstance(new, str) and old:
        return {**diff, "oldText": old, "newText": new}
    return None


def edited_text(before: str, arguments: dict[str, Any]) -> str:
    """Return the text after the edits of an edit_file call, or raise ToolError if an edit fails."""
    return edit_all(before.encode(), read_edits(arguments)).content.decode()


def _title(name: str, arguments: dict[str, Any]) -> str:
    """Return the title of a call: the tool, and the path, command, pattern or revision if any."""
    for key in ("path", "command", "pattern", "revision"):
        value = arguments.get(key)
        if value:
            words = " ".join(map(str, value)) if isinstance(value, list) else value
            return one_line(f"{name} {words if isinstance(words, str) else ''}", 200)
    return name


def _location(shown: ShownCall) -> dict[str, Any] | None:
    """Return the file that a call touches, and the line if known; None without a path or root."""
    name, arguments, diff = shown.call.name, shown.arguments, shown.diff
    path = arguments.get("path")
    if not shown.root or not isinstance(path, str) or not path:
        return None
    location: dict[str, Any] = {"path": touched_path(shown.root, path)}
    line = arguments.get(_LINE_ARGUMENTS.get(name, ""))
    if diff is not None and name == "edit_file" and diff["oldText"] != arguments.get("old"):
        pairs = zip(diff["oldText"].splitlines(), diff["newText"].splitlines(), strict=False)
        unchanged = takewhile(lambda pair: pair[0] == pair[1], pairs)
        line = 1 + sum(1 for _ in unchanged)  # the first line that changes
    if isinstance(line, int) and not isinstance(line, bool) and line >= 1:
        location["line"] = line
    return location


@dataclass(slots=True, kw_only=True)
class Reporter:
    """A listener that sends the events of a run to the editor as session updates.

    Args:
        send: sends an update.
        drain: waits while the editor is far behind with reading. The run awaits this method.
        ids: the calls that the editor shows.
        tools: the tools of the agent.
        compaction: whether the editor understands updates about compactions.
        window: the context window of the model in tokens, if it is known.
        cost: the cost of the session before this run, in dollars.
    """

    send: Callable[[dict[str, Any]], None]
    drain: Callable[[], Awaitable[None]]
    ids: CallIds
    tools: Sequence[AnyTool]
    compaction: bool
    window: int | None
    cost: float
    _message: str = ""  # the message id of the current chain
    _in_chain: bool = False
    _request: Sequence[Message] = ()

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self.send(chunk("agent_message_chunk", event.text, self._message))
        elif isinstance(event, ThinkingDelta):
            self.send(chunk("agent_thought_chunk", event.text, self._message))
        elif isinstance(event, events.MessageStart) and event.role == "assistant":
            if not self._in_chain:
                self._message = event.id
            self._in_chain = False
        elif isinstance(event, events.ContinuationAttempt):
            self._in_chain = True
        elif isinstance(event, events.RequestStart):
            self._request = event.request.messages
        elif isinstance(event, (events.ToolStart, events.ToolUpdate, events.ToolEnd)):
            self._tool(event, ())
        elif isinstance(event, events.Compacted) and self.compaction:
            done = {"compactionId": new_id(), "status": "completed"}
            self.send({"sessionUpdate": "compaction_update", **done})
        elif isinstance(event, events.MessageEnd) and isinstance(event.message, AssistantMessage):
            self._in_chain = self._in_chain or event.message.stop_reason is StopReason.PAUSE_TURN
            self._send_usage(event.message)

    def _tool(
        self, event: events.ToolStart | events.ToolUpdate | events.ToolEnd, above: tuple[str, ...]
    ) -> None:
        """Send the update for the start, the progress or the end of a call, also of a sub-agent.

        `above` has the ids of the calls that started the sub-agent, the outermost first.
        """
        if isinstance(event, events.ToolStart):
            self._start(event.call, (*above, event.call.id))
        elif isinstance(event, events.ToolEnd):
            if (shown := self.ids.open.pop((*above, event.call.id), None)) is not None:
                self.send(tool_result(shown, event.message))
        elif isinstance(event.event, (events.ToolStart, events.ToolUpdate, events.ToolEnd)):
            self._tool(event.event, (*above, event.call_id))
        elif event.event is None:
            self._progress(event, (*above, event.call_id))

    def _start(self, call: ToolCall, key: tuple[str, ...]) -> None:
        """Register a new call, and send the update that shows it in the editor.

        `key` contains the ids of the calls around it, the outermost first, and its own id.
        """
        tool = next((tool for tool in self._tools_at(key) if tool.spec.name == call.name), None)
        shown = self.ids.begin(key, call, tool)
        if not getattr(tool, "in_editor", False) and (path := edited_path(shown)):
            shown.diff = diff_of(shown, disk_text(shown.root, path))
        status = "pending" if getattr(tool, "needs_permission", False) else "in_progress"
        self.send({"sessionUpdate": "tool_call", **tool_call(shown, status)})

    def _tools_at(self, key: tuple[str, ...]) -> Sequence[AnyTool]:
        """Return the tools of the agent or sub-agent that made a call; () if its tools are unknown.

        `key` contains the ids of the calls around it, the outermost first, and its own id.
        """
        parent = self.ids.open.get(key[:-1])
        if parent is None:
            return self.tools
        agent = getattr(parent.tool, "agent", None)
        return tuple(agent.settings.tools or ()) if agent is not None else ()

    def _progress(self, event: events.ToolUpdate, key: tuple[str, ...]) -> None:
        """Send the editor the plan, terminal, diff or text that a running call reports.

        A terminal or a diff is kept for the update at the end of the call.
        """
        data = event.data if isinstance(event.data, dict) else {}
        shown = self.ids.open.get(key)
        content: dict[str, Any] | None = None
        if isinstance(data.get("plan"), list):
            self.send(plan_update(data["plan"]))
        elif shown is not None and isinstance(data.get("terminal_id"), str):
            shown.terminal = data["terminal_id"]
            content = {"type": "terminal", "terminalId": shown.terminal}
        elif shown is not None and isinstance(data.get("diff"), dict):
            content = shown.diff = data["diff"]
        elif event.text:
            content = {"type": "content", "content": text_block(event.text)}
        if shown is not None and content is not None:
            self.send(tool_update(shown.id, status="in_progress", content=[content]))

    def _send_usage(self, message: AssistantMessage) -> None:
        """Add the cost of a reply to `cost`, and send the usage to the editor.

        Send nothing if the context window is unknown.

        If the provider reports no usage, the number of tokens is estimated.
        """
        usage = message.usage
        if usage is not None and usage.cost is not None:
            self.cost += usage.cost
        if self.window is None:
            return
        update: dict[str, Any] = {"sessionUpdate": "usage_update", "size": self.window}
        if usage is not None:
            update["used"] = usage.total
        else:
            update["used"] = estimate((*self._request, message), estimate_tokens)
            update["_meta"] = {"estimated": True}
        if self.cost:
            update["cost"] = {"amount": self.cost, "currency": "USD"}
        self.send(update)


# For each outcome except FAILED: the stop reason of the protocol, and a message for the user or "".
STOP_REASONS = {
    Outcome.DONE: ("end_turn", ""),
    Outcome.WRAPPED_UP: ("end_turn", ""),
    Outcome.MAX_TURNS: ("max_turn_requests", "Stopped at the limit of turns or requests"),
    Outcome.BUDGET: ("max_tokens", "Stopped: the budget of this prompt is used up"),
    Outcome.PAUSED: ("end_turn", "Paused: tool calls wait for a decision or a result"),
    Outcome.HALTED: ("end_turn", "Stopped: the model repeated the same call or error"),
    Outcome.STALLED: ("end_turn", "Stopped: the model made no progress"),
    Outcome.CONTEXT_WINDOW: (
        "max_tokens",
        "Stopped: the conversation no longer fits the context window",
    ),
    Outcome.TRUNCATED: ("max_tokens", "The answer was cut off"),
    Outcome.REFUSED: (
        "refusal",
        "The model refused; this prompt was removed from the conversation",
    ),
    Outcome.CANCELLED: ("cancelled", ""),
}


def answer(result: RunResult[Any]) -> dict[str, Any]:
    """Return the ACP answer to a prompt: the stop reason, and outcome, usage and cost as `_meta`.

    Raise RpcError if the run failed.
    """
    if result.outcome is Outcome.FAILED:
        raise failure(result.error, result)
    usage = result.usage
    meta = {
        **(dict(result.meta) if result.meta else {}),
        "outcome": str(result.outcome),
        "turns": result.turns,
        "requests": result.requests,
        "usage": {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "totalTokens": usage.total,
        },
        **({"cost": result.cost} if result.cost is not None else {}),
        **({"notice": result.notice} if result.notice else {}),
        **({"detail": str(result.error)} if result.error else {}),
    }
    return {"stopReason": STOP_REASONS[result.outcome][0], "_meta": meta}


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return the ACP answer to a prompt for an outcome, without the turns and tokens of a run."""
    return {"stopReason": STOP_REASONS[outcome][0], "_meta": {"outcome": str(outcome)}}


def failure(error: BaseException | None, result: RunResult[Any] | None = None) -> RpcError:
    """Return the JSON-RPC error for an exception; `result` adds counts of turns and requests."""
    data: dict[str, Any] = {"outcome": str(Outcome.FAILED), "error": type(error).__name__}
    code = INTERNAL
    if isinstance(error, ProviderError):
        data |= {
            "kind": error.kind,
            "provider": error.provider,
            "model": error.model,
            "status": error.status,
        }
        code = AUTH_REQUIRED if error.kind == "auth" else INTERNAL
    elif isinstance(error, ConfigError):
        code = AUTH_REQUIRED if isinstance(error, MissingKey) else INVALID_PARAMS
    if result is not None:
        data |= {"turns": result.turns, "requests": result.requests}
    return RpcError(code, str(error or "the run failed"), data)


_CHUNKS = {Text: "agent_message_chunk", Thinking: "agent_thought_chunk"}


def replay(
    messages: Sequence[Message], ids: CallIds, tools: Iterable[AnyTool] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the updates that show a stored conversation in an editor, without refused runs.

    A call without a result is shown as failed, with the text "interrupted".
    """
    known = {tool.spec.name: tool for tool in tools}
    chain = ""  # the message id of a reply that the next message continues
    for message in _without_refused(messages):
        if isinstance(message, UserMessage):
            if message.origin != "continue":
                chain = ""
            if message.origin in HUMAN_ORIGINS:
                for block in content_blocks(message.content):
                    update = {"content": block, "messageId": message.id}
                    yield {"sessionUpdate": "user_message_chunk", **update}
        elif isinstance(message, AssistantMessage):
            chain = chain or message.id
            for part in message.content:
                if isinstance(part, (Text, Thinking)) and part.text:
                    yield chunk(_CHUNKS[type(part)], part.text, chain)
            for call in message.calls:
                shown = ids.begin((call.id,), call, known.get(call.name))
                # The file may have changed since, so the diff shows only texts of the arguments.
                shown.diff = diff_of(shown, None)
                yield {"sessionUpdate": "tool_call", **tool_call(shown, "in_progress")}
            if message.stop_reason not in (StopReason.PAUSE_TURN, StopReason.MAX_TOKENS):
                chain = ""
        elif (ended := ids.open.pop((message.call_id,), None)) is not None:
            yield tool_result(ended, message)
    for left in ids.open.values():  # the process was killed before these calls ended
        content = [{"type": "content", "content": text_block("interrupted")}]
        yield tool_update(left.id, status="failed", content=content)
    ids.open.clear()


def _without_refused(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages except those of refused runs, and except results without a tool call.

    Messages that a compaction has excluded are yielded. A result without a tool call is the result
    that a policy delivered in place of a tool.
    """
    prompts = [
        place
        for place, message in enumerate(messages)
        if isinstance(message, UserMessage) and message.origin == "user"
    ]
    starts = sorted({0, *prompts, len(messages)})
    for start, stop in pairwise(starts):
        run = messages[start:stop]
        replies = [message for message in run if isinstance(message, AssistantMessage)]
        was_refused = not replies or replies[-1].stop_reason is StopReason.REFUSAL
        if was_refused and all(message.excluded for message in run):
            continue
        for message in run:
            if not (isinstance(message, ToolMessage) and message.call_id == "delivered"):
                yield message

"""Session updates of the Agent Client Protocol, made from a run's events and from stored messages."""

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
from glue.events import Event, RunResult
from glue.limits import Outcome, StopReason, estimate_tokens
from glue.loop.transcript import estimate
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
from glue.text import one_line


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
        if kind == "resource":
            return _resource(block["resource"])
    except KeyError as error:
        raise RpcError(INVALID_PARAMS, f"a {kind} block needs {error}") from error
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"not a {kind} block: {error}") from error
    raise RpcError(INVALID_PARAMS, f"a prompt may hold text, image, resource_link and resource, not {kind!r}")


def _resource(resource: Any) -> Part:
    """Take an embedded file: quoted where it is text, as it is where a model reads its kind."""
    where = json.dumps(_text(resource["uri"]))
    if "text" in resource:
        return Text(text=f"<resource uri={where}>\n{_text(resource['text'])}\n</resource>")
    data, media_type = base64.b64decode(resource["blob"], validate=True), resource.get("mimeType") or ""
    if media_type.startswith("image/"):
        return Image(media_type=media_type, data=data)
    if media_type == "application/pdf":
        return File(media_type=media_type, data=data, name=resource["uri"].rpartition("/")[2])
    if b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return Text(text=f"<resource uri={where}>\n{data.decode()}\n</resource>")
    raise ValueError(f"{resource['uri']} holds {media_type or 'bytes of an unknown type'}, which no model reads here")


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

_TOOLS = {
    "read": "read_file list_dir git_show git_blame git_diff_branch git_log_branch git_status git_diff_worktree",
    "search": "find_files grep",
    "edit": "write_file edit_file",
    "execute": "shell",
    "think": "plan",
}
_KINDS = {name: kind for kind, names in _TOOLS.items() for name in names.split()}
_LINES = {"read_file": "offset", "git_blame": "first"}  # where a tool says which line it begins at


@dataclass(slots=True)
class ShownCall:
    """A tool call under way, as the editor knows it."""

    id: str
    call: ToolCall
    tool: AnyTool | None = None  # None where it is not known, as in a session that was loaded
    diff: dict[str, Any] | None = None
    terminal: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        try:
            arguments = json.loads(self.call.arguments or "{}", parse_constant=str)
        except (ValueError, RecursionError):
            return {"text": self.call.arguments}
        return arguments if isinstance(arguments, dict) else {"value": arguments}

    @property
    def root(self) -> str:
        """The folder that the paths of its arguments are below; empty where nobody knows."""
        return str(getattr(self.tool, "root", ""))


class CallIds:
    """Gives each call an id of its own in the session: models count from 1 again and again, and so do sub-agents."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        self.open: dict[tuple[str, ...], ShownCall] = {}  # by the ids of the calls around it, and its own

    def begin(self, key: tuple[str, ...], call: ToolCall, tool: AnyTool | None = None) -> ShownCall:
        self._used[call.id] += 1
        times = self._used[call.id]
        shown = self.open[key] = ShownCall(call.id if times == 1 else f"{call.id}#{times}", call, tool)
        return shown

    def current(self, call_id: str) -> ShownCall | None:
        """Give the call with this id that began last and has not ended."""
        return next((shown for shown in reversed(self.open.values()) if shown.call.id == call_id), None)


def tool_call(shown: ShownCall, status: str) -> dict[str, Any]:
    """Describe a call that begins, or waits for permission."""
    name, arguments = shown.call.name, shown.arguments
    fields: dict[str, Any] = {
        "toolCallId": shown.id,
        "title": _title(name, arguments),
        "name": name,
        "kind": _KINDS.get(name, "other"),
        "status": status,
        "rawInput": arguments,
    }
    if (location := _location(shown)) is not None:
        fields["locations"] = [location]
    if shown.diff is not None:
        fields["content"] = [shown.diff]
    return fields


def tool_update(id: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}


def tool_result(shown: ShownCall, message: ToolMessage) -> dict[str, Any]:
    """Tell how a call ended; an edit that worked shows its diff, a terminal stays, all else shows what it gave."""
    status = "failed" if message.is_error else "completed"
    if shown.terminal:
        content: list[dict[str, Any]] = [{"type": "terminal", "terminalId": shown.terminal}]
    elif shown.diff is not None and not message.is_error:
        content = [shown.diff]
    else:
        content = [{"type": "content", "content": block} for block in content_blocks(message.content)]
        return tool_update(shown.id, status=status, content=content)
    return tool_update(shown.id, status=status, content=content, rawOutput={"text": message.text})


def touched_path(root: str, path: str) -> str:
    """Give the file that a path below a root leads to: folders that are links are followed, the last name is not."""
    folder, name = os.path.split(os.path.normpath(os.path.join(root, path)))
    below = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    return os.path.normpath(os.path.join(root, below, name))  # the root as the editor knows it


def edited_path(shown: ShownCall) -> str:
    """Give the file that a call is to change, below its root; empty where it changes none, or nobody knows its root."""
    path = shown.arguments.get("path")
    return path if shown.root and _KINDS.get(shown.call.name) == "edit" and isinstance(path, str) else ""


def disk_text(root: str, path: str) -> str | None:
    """Read a file below a root; None where there is none, or one too large to show."""
    from glue.tools.fs import safe_open

    try:
        with safe_open(root, path) as file:
            data = file.read(MAX_DIFF + 1)
    except (OSError, ValueError, GlueError):
        return None
    return None if len(data) > MAX_DIFF else data.decode("utf-8", "replace")


def diff_of(shown: ShownCall, before: str | None) -> dict[str, Any] | None:
    """Show the whole file before and after a call; where that cannot be told, the pieces that are quoted."""
    call, path = shown.call, edited_path(shown)
    if not path:
        return None
    arguments = shown.arguments
    diff = {"type": "diff", "path": touched_path(shown.root, path)}
    if call.name == "write_file" and isinstance(arguments.get("content"), str):
        return {**diff, **({} if before is None else {"oldText": before}), "newText": arguments["content"]}
    if call.name == "edit_file" and before is not None:
        with contextlib.suppress(ToolError, KeyError, TypeError, ValueError, AttributeError):  # the tool will say it
            return {**diff, "oldText": before, "newText": edited_text(before, arguments)}
    old, new = arguments.get("old"), arguments.get("new")
    if call.name == "edit_file" and isinstance(old, str) and isinstance(new, str) and old:
        return {**diff, "oldText": old, "newText": new}
    return None


def edited_text(before: str, arguments: dict[str, Any]) -> str:
    """Give the text after an edit, as the tool itself would make it; raises ToolError."""
    from glue.tools.fs.edit import edit_all, read_edits

    return edit_all(before.encode(), read_edits(arguments)).content.decode()


def _title(name: str, arguments: dict[str, Any]) -> str:
    for key in ("path", "command", "pattern", "revision"):
        value = arguments.get(key)
        if value:
            shown = value if isinstance(value, str) else " ".join(map(str, value)) if isinstance(value, list) else ""
            return one_line(f"{name} {shown}", 200)
    return name


def _location(shown: ShownCall) -> dict[str, Any] | None:
    """Say which file a call is about, and at which line where that is known."""
    name, arguments, diff = shown.call.name, shown.arguments, shown.diff
    path = arguments.get("path")
    if name not in _KINDS or not shown.root or not isinstance(path, str) or not path:
        return None
    location: dict[str, Any] = {"path": touched_path(shown.root, path)}
    line = arguments.get(_LINES.get(name, ""))
    if diff is not None and name == "edit_file" and diff["oldText"] != arguments.get("old"):
        pairs = zip(diff["oldText"].splitlines(), diff["newText"].splitlines(), strict=False)
        line = 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))  # the first that changes
    if isinstance(line, int) and not isinstance(line, bool) and line >= 1:
        location["line"] = line
    return location


@dataclass(slots=True, kw_only=True)
class Reporter:
    """A listener that sends what a run says to the editor, and waits for an editor that is slow."""

    send: Callable[[dict[str, Any]], None]
    drain: Callable[[], Awaitable[None]]  # the run waits for it
    ids: CallIds
    tools: Sequence[AnyTool]
    compaction: bool  # whether the editor knows such updates
    window: int | None
    cost: float
    _message: str = ""  # the id of the chain that is being told
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
            self.send({"sessionUpdate": "compaction_update", "compactionId": new_id(), "status": "completed"})
        elif isinstance(event, events.MessageEnd) and isinstance(event.message, AssistantMessage):
            self._in_chain = self._in_chain or event.message.stop_reason is StopReason.PAUSE_TURN
            self._used(event.message)

    def _tool(self, event: events.ToolStart | events.ToolUpdate | events.ToolEnd, above: tuple[str, ...]) -> None:
        """Tell of a call, of this run or of a sub-agent's: what its tools do is shown like any other."""
        if isinstance(event, events.ToolStart):
            self._started(event.call, (*above, event.call.id))
        elif isinstance(event, events.ToolEnd):
            if (shown := self.ids.open.pop((*above, event.call.id), None)) is not None:
                self.send(tool_result(shown, event.message))
        elif isinstance(event.event, (events.ToolStart, events.ToolUpdate, events.ToolEnd)):
            self._tool(event.event, (*above, event.call_id))
        elif event.event is None:
            self._updated(event, (*above, event.call_id))

    def _started(self, call: ToolCall, key: tuple[str, ...]) -> None:
        above = self.ids.open.get(key[:-1])
        agent = getattr(above.tool, "agent", None) if above is not None else None
        tools = self.tools if above is None else agent.settings.tools if agent is not None else ()
        tool = next((tool for tool in tools or () if tool.spec.name == call.name), None)
        shown = self.ids.begin(key, call, tool)
        if not getattr(tool, "in_editor", False) and (path := edited_path(shown)):
            shown.diff = diff_of(shown, disk_text(shown.root, path))
        status = "pending" if getattr(tool, "needs_permission", False) else "in_progress"
        self.send({"sessionUpdate": "tool_call", **tool_call(shown, status)})

    def _updated(self, event: events.ToolUpdate, key: tuple[str, ...]) -> None:
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

    def _used(self, message: AssistantMessage) -> None:
        """Tell how full the context is, where the window is known; where the provider does not say, by estimate."""
        usage = message.usage
        if usage is not None and usage.cost is not None:
            self.cost += usage.cost
        if self.window is None:
            return
        used = usage.total if usage is not None else estimate((*self._request, message), estimate_tokens)
        update: dict[str, Any] = {"sessionUpdate": "usage_update", "used": used, "size": self.window}
        if usage is None:
            update["_meta"] = {"estimated": True}
        if self.cost:
            update["cost"] = {"amount": self.cost, "currency": "USD"}
        self.send(update)


STOP_REASONS = {  # with what the user is told where a turn did not simply end
    Outcome.DONE: ("end_turn", ""),
    Outcome.WRAPPED_UP: ("end_turn", ""),
    Outcome.MAX_TURNS: ("max_turn_requests", "Stopped at the limit of turns or requests"),
    Outcome.BUDGET: ("max_tokens", "Stopped: the budget of this prompt is spent"),
    Outcome.HALTED: ("end_turn", "Stopped: the model went round in circles"),
    Outcome.STALLED: ("end_turn", "Stopped: the model got no further"),
    Outcome.CONTEXT_WINDOW: ("max_tokens", "Stopped: the conversation no longer fits the model"),
    Outcome.TRUNCATED: ("max_tokens", "The answer was cut off"),
    Outcome.REFUSED: ("refusal", "The model refused; this prompt has left the conversation"),
    Outcome.CANCELLED: ("cancelled", ""),
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
    return {"stopReason": STOP_REASONS[result.outcome][0], "_meta": meta}


def plain(outcome: Outcome) -> dict[str, Any]:
    """Answer a prompt that no model was asked about."""
    return {"stopReason": STOP_REASONS[outcome][0], "_meta": {"outcome": str(outcome)}}


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


_CHUNKS = {Text: "agent_message_chunk", Thinking: "agent_thought_chunk"}


def replay(messages: Sequence[Message], ids: CallIds, tools: Iterable[AnyTool] = ()) -> Iterator[dict[str, Any]]:
    """Tell everything again, but for refused prompts: those have left the context."""
    known = {tool.spec.name: tool for tool in tools}
    chain = ""  # the id that a continuation goes on with
    for message in _without_refused(messages):
        if isinstance(message, UserMessage):
            if message.origin != "continue":
                chain = ""
            if message.origin in HUMAN_ORIGINS:
                for block in content_blocks(message.content):
                    yield {"sessionUpdate": "user_message_chunk", "content": block, "messageId": message.id}
        elif isinstance(message, AssistantMessage):
            chain = chain or message.id
            for part in message.content:
                if isinstance(part, (Text, Thinking)) and part.text:
                    yield chunk(_CHUNKS[type(part)], part.text, chain)
            for call in message.calls:
                shown = ids.begin((call.id,), call, known.get(call.name))
                shown.diff = diff_of(shown, None)  # of what was quoted: the file has moved on
                yield {"sessionUpdate": "tool_call", **tool_call(shown, "in_progress")}
            if message.stop_reason not in (StopReason.PAUSE_TURN, StopReason.MAX_TOKENS):
                chain = ""
        elif (ended := ids.open.pop((message.call_id,), None)) is not None:
            yield tool_result(ended, message)
    for left in ids.open.values():  # the process was killed before it had their results
        content = [{"type": "content", "content": text_block("interrupted")}]
        yield tool_update(left.id, status="failed", content=content)
    ids.open.clear()


def _without_refused(messages: Sequence[Message]) -> Iterator[Message]:
    """Leave out runs that were refused; what a compaction took out of the context is still told."""
    prompts = [at for at, each in enumerate(messages) if isinstance(each, UserMessage) and each.origin == "user"]
    starts = sorted({0, *prompts, len(messages)})
    for start, stop in pairwise(starts):
        run = messages[start:stop]
        replies = [message for message in run if isinstance(message, AssistantMessage)]
        was_refused = not replies or replies[-1].stop_reason is StopReason.REFUSAL
        if not was_refused or not all(message.excluded for message in run):
            yield from (each for each in run if not (isinstance(each, ToolMessage) and each.call_id == "delivered"))

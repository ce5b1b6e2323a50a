"""Readers of transcripts: from stores, session files, cassettes, events and lists of messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from glue.codec import to_json
from glue.errors import ReplayError, StoreError
from glue.events import Explanation
from glue.events.union import snake
from glue.messages import (
    AssistantMessage,
    Json,
    Message,
    ToolSpec,
    Usage,
    message_from_json,
)
from glue.pending import PENDING
from glue.provider import Attempt
from glue.stores import read_session_file
from glue.testing.cassette import Cassette
from glue.text import count, format_seconds
from glue.view.transcript import Note, ShownMessage, Transcript

if TYPE_CHECKING:
    from glue.stores.records import Record
    from glue.stores.store import Store

WANTED = "a session file, a cassette, the events that --json printed, or a JSON list of messages"


def attempts_of(value: Json) -> tuple[Attempt, ...]:
    """Read a list of failed attempts from JSON; skip values that are not objects."""
    found: list[Attempt] = []
    for each in value if isinstance(value, (list, tuple)) else ():
        if isinstance(each, Mapping):
            values = _numbers(each, "delay", "seconds", "previous_cap", "next_cap")
            for name in ("provider", "model", "kind", "detail"):
                values[name] = str(each.get(name) or "")
            found.append(Attempt(**values, usage=usage_of(each.get("usage"))))
    return tuple(found)


def usage_of(value: Json) -> Usage | None:
    """Return the usage that a JSON object or a Usage contains; None if `value` is neither.

    Figures that are not numbers are left out.
    """
    value = to_json(value)
    if not isinstance(value, Mapping):
        return None
    names = ("input", "output", "cache_read", "cache_write", "reasoning", "cost")
    return Usage(**_numbers(value, *names))


def _numbers(values: Mapping[str, Json], *names: str) -> dict[str, Any]:
    """Return a dict of those `names` whose `values` are numbers; skip NaN and huge numbers."""
    found: dict[str, Any] = {name: values.get(name) for name in names}
    return {
        name: value
        for name, value in found.items()
        if type(value) in (int, float) and abs(value) < 1e15
    }


async def read_session(store: Store, id: str) -> Transcript:
    """Read a session from a store, with the times of its messages if the store keeps them."""
    messages = await store.load(id)
    info = next((info for info in await store.list() if info.id == id), None)
    read_times = getattr(store, "times", None)
    times: Mapping[str, float] = await read_times(id) if read_times is not None else {}
    head: Record = {"session": id}
    if info is not None:
        head |= {
            "created": info.created,
            "parent": info.parent,
            "forked_at": info.forked_at,
            "meta": info.meta,
        }
    return _session(head, messages, times)


def read_file(path: Path) -> Transcript:
    """Read a transcript from a file; raise StoreError if the file has none or is damaged.

    WANTED lists the kinds of files.
    """
    try:
        if (found := read_session_file(path)) is not None:
            return _session(*found)
        return _read(path, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise StoreError(f"{path} is not a text file; expected {WANTED}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error!r}; expected {WANTED}") from error


def _read(path: Path, text: str) -> Transcript:
    """Return the transcript in the text of a cassette, a file of events or a file of messages.

    The first line decides which kind of file the text comes from.
    """
    first = _parsed(text.lstrip("\ufeff \t\r\n").split("\n", 1)[0])
    first = first if isinstance(first, Mapping) else {}
    kind = first.get("type")
    if kind in ("cassette", "recording"):
        return _cassette(path)
    if isinstance(kind, str) and "role" not in first and "messages" not in first:
        return _events(path, text)
    return _messages(path, text)


def _parsed(text: str) -> Json:
    """Return parsed JSON, or None if the text is not valid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _session(head: Record, messages: Iterable[Message], times: Mapping[str, float]) -> Transcript:
    # Messages that were copied from the parent have the time of the fork, so it is left out.
    copied, meta = head.get("forked_at") or 0, head.get("meta") or {}
    return Transcript(
        title=str(head.get("session", "")),
        source="session",
        items=tuple(
            shown_message(message, None if index < copied else times.get(message.id))
            for index, message in enumerate(messages)
        ),
        created=head.get("created"),
        parent=str(head.get("parent") or ""),
        system=str(meta.get("instructions") or ""),
        tools=_tools(meta.get("tools")),
    )


def _messages(path: Path, text: str) -> Transcript:
    """Return the transcript in a text of JSON messages; raise StoreError if the text is invalid.

    The text is a list, an object with a list in `messages`, or one message in each line.
    """
    value = _parsed(text)
    if value is None:
        lines = [_parsed(line) for line in text.split("\n") if line.strip()]
        value = lines if lines and None not in lines else None
    elif isinstance(value, Mapping):
        # The only line of a file with one message per line is an object too.
        value = [value] if "role" in value else value.get("messages")
    if not isinstance(value, list):
        raise StoreError(f"{path} contains no transcript; expected {WANTED}")
    try:
        items = tuple(shown_message(message_from_json(each)) for each in value)
    except StoreError as error:
        raise StoreError(f"{path}: {error}; expected {WANTED}") from error
    return Transcript(title=path.name, source="messages", items=items)


def shown_message(
    message: Message, at: float | None = None, seconds: float | None = None
) -> ShownMessage:
    """Return a ShownMessage for a message, with its times and the failed attempts in its `meta`.

    Raise StoreError if a field that must be a string is not; the codec does not check this.
    """
    for part in (message, *message.content):
        for each in fields(part):
            value = getattr(part, each.name)
            if each.type == "str" and not isinstance(value, str):
                raise StoreError(
                    f"the field {each.name!r} of a message must be a text, "
                    f"not {json.dumps(value)[:80]}"
                )
    meta = message.meta if isinstance(message.meta, Mapping) else {}
    message = replace(message, meta=meta or None)
    known = _numbers({"at": at, "seconds": seconds}, "at", "seconds")
    return ShownMessage(message=message, **known, attempts=attempts_of(meta.get("attempts")))


_EXPLANATIONS = frozenset(snake(kind.__name__) for kind in get_args(Explanation))
_ENDED = "The run ended: "
_SHOWN_EVENTS = ("run_start", "message_end", "run_end", "result")


def _events(path: Path, text: str) -> Transcript:
    """Return the transcript in events that --json printed; raise StoreError if there is none.

    Raise StoreError too for a line that is not JSON, unless it is the incomplete last line of a
    killed process. Unknown events of newer versions are skipped.
    """
    events: list[Mapping[str, Json]] = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            event = json.loads(line.strip() or "null")
        except (ValueError, RecursionError):
            if line.startswith("{") and number == text.count("\n") + 1:
                break  # the last line of a killed process
            raise StoreError(
                f"{path}, line {number}: not valid JSON; delete the line to see the others"
            ) from None
        if isinstance(event, Mapping) and isinstance(event.get("type"), str):
            events.append(event)
    if not any(event["type"] in _SHOWN_EVENTS for event in events):
        raise StoreError(f"{path} contains no transcript; expected {WANTED}")
    prompt: Mapping[str, Json] = next((event for event in events if event["type"] == "prompt"), {})
    return Transcript(
        title=path.name,
        source="events of a run",
        items=tuple(_items(events)),
        system=str(prompt.get("system") or ""),
        tools=_tools(prompt.get("tools")),
    )


def _items(events: Iterable[Mapping[str, Json]]) -> list[ShownMessage | Note]:
    """Turn the events of a run into messages and notes, in the order of the events."""
    reader = EventReader()
    for event in events:
        reader.add(event)
    reader.end()  # a log may stop in the middle of a call
    return reader.items


class EventReader:
    """Collects the items of a transcript from the events of a run, recorded or live."""

    def __init__(self, items: Iterable[ShownMessage | Note] = (), *, live: bool = False) -> None:
        self.items = list(items)
        self.live = live  # the run is in progress, so the calls of a new reply are about to run
        self._attempts: tuple[Attempt, ...] = ()  # that failed since the last reply
        # Events of sub-agents, by the id of the call that started the sub-agent.
        self._children: dict[str, list[Mapping[str, Json]]] = {}

    def add(self, event: Mapping[str, Json], at: float | None = None) -> None:
        """Apply an event in JSON form to `items`. `at` is the time of the event, if known."""
        kind = str(event["type"])
        if kind == "prompt" and isinstance(event.get("message"), Mapping):
            self.items.append(shown_message(message_from_json(event["message"]), at))
        elif kind == "tool_update" and (child := _child_event(event)) is not None:
            self._children.setdefault(str(event.get("call_id")), []).append(child)
        elif kind == "attempt":
            self._attempts += attempts_of([event])
        elif kind == "message_end":
            shown = shown_message(message_from_json(event["message"]), at)
            if (shown.message.meta or {}).get("discarded"):
                return
            if self._attempts and isinstance(shown.message, AssistantMessage):
                shown, self._attempts = replace(shown, attempts=self._attempts), ()
            if self.live and isinstance(shown.message, AssistantMessage):
                running = frozenset(call.id for call in shown.message.calls if call.complete)
                shown = replace(shown, running=running)
            self.items.append(shown)
        elif kind == "tool_start" and isinstance(event.get("call"), Mapping):
            self._mark_running(str(event["call"].get("id")))
        elif kind == "tool_end":
            message = message_from_json(event["message"])
            steps = _items(self._children.pop(str(getattr(message, "call_id", "")), ()))
            shown = shown_message(message, at, event.get("seconds"))
            self.items.append(replace(shown, steps=tuple(steps)))
        elif kind == "tool_pending" and isinstance(event.get("call"), Mapping):
            self._mark_waiting(str(event["call"].get("id")).partition("/")[0])
        elif kind in _EXPLANATIONS:
            self.items.append(_explanation(kind, event))
        elif kind in ("result", "error") or (kind == "run_end" and "outcome" in event):
            last = self.items[-1] if self.items else None
            if isinstance(last, Note) and last.text.startswith(_ENDED):
                self.items.pop()  # a result repeats the end of the run, with more details
            self.end()
            self.items.append(_end(event, self._attempts))
            self._attempts = ()

    def _last_reply(self) -> int | None:
        """Return the index of the last reply in `items`, or None if there is no reply."""
        for at, item in reversed(list(enumerate(self.items))):
            if isinstance(item, ShownMessage) and isinstance(item.message, AssistantMessage):
                return at
        return None

    def _change_reply(self, **changes: Any) -> None:
        if (at := self._last_reply()) is not None:
            self.items[at] = replace(cast(ShownMessage, self.items[at]), **changes)

    def _mark_running(self, call_id: str) -> None:
        """Add a call to the running calls of the last reply."""
        if (at := self._last_reply()) is not None:
            running = cast(ShownMessage, self.items[at]).running
            self._change_reply(running=running | {call_id})

    def end(self) -> None:
        """Record that no call of the last reply is still running."""
        self._change_reply(running=frozenset())

    def _mark_waiting(self, call_id: str) -> None:
        """Record a call as pending in the meta of the last reply, as in a stored transcript."""
        if (at := self._last_reply()) is not None:
            message = cast(ShownMessage, self.items[at]).message
            meta = dict(message.meta or {})
            records = meta.get(PENDING)
            meta[PENDING] = {**(records if isinstance(records, Mapping) else {}), call_id: {}}
            self._change_reply(message=replace(message, meta=meta))


def _child_event(event: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return the sub-agent's event in a tool update, or None if the update contains none."""
    child = event.get("event")
    return child if isinstance(child, Mapping) and child.get("type") else None


def _explanation(kind: str, event: Mapping[str, Json]) -> Note:
    """Return a note about an event of the loop, such as "compacted: before 900, after 90"."""
    values = (
        f"{key} {value}"
        for key, value in event.items()
        if key != "type" and value not in (None, "")
    )
    return Note(kind="event", text=f"{kind.replace('_', ' ')}: {', '.join(values)}")


def _tools(value: Json) -> tuple[ToolSpec, ...]:
    """Return the ToolSpecs in a JSON list of tools; skip values that are not tools.

    If the value is not a list, return ().
    """
    return tuple(
        ToolSpec(
            name=str(tool["name"]),
            description=str(tool["description"]),
            parameters=tool.get("parameters") or {},
        )
        for tool in (value if isinstance(value, list) else ())
        if isinstance(tool, Mapping) and {"name", "description"} <= tool.keys()
    )


def _end(event: Mapping[str, Json], attempts: tuple[Attempt, ...]) -> Note:
    """Return the note at the end of a run: "The run ended: failed, 2 requests, 1.2 s: no key"."""
    outcome, error = str(event.get("outcome") or "failed"), event.get("error")
    why = f": {error.get('message')}" if isinstance(error, Mapping) else ""
    known = _numbers(event, "requests", "seconds")
    figures = [outcome]
    if "requests" in known:
        figures.append(count(known["requests"], "request"))
    if "seconds" in known:
        figures.append(format_seconds(known["seconds"]))
    is_fine = outcome in ("done", "wrapped_up", "paused")
    kind: Literal["event", "failed"] = "event" if is_fine else "failed"
    return Note(kind=kind, text=f"{_ENDED}{', '.join(figures)}{why}", attempts=attempts)


@dataclass(slots=True)
class _Conversation:
    """A conversation in a cassette: the messages and failures of the requests that belong to it."""

    system: str
    tools: tuple[ToolSpec, ...]
    items: list[ShownMessage | Note] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    unmatched: bool = False  # the last reply has not been in a request yet

    def add_request(self, request: Mapping[str, Json]) -> None:
        """Add the messages of a recorded request to `items`, except those added before."""
        for value in request["messages"]:
            message = message_from_json(value)
            if message.id in self.ids:
                continue
            self.ids.add(message.id)
            if isinstance(message, AssistantMessage) and self.unmatched:
                self.unmatched = False  # the last reply, to which the loop gave another id
                continue
            self.items.append(shown_message(message))

    def add_reply(self, exchange: Mapping[str, Json]) -> None:
        """Add the reply of a recorded exchange to `items`, or a note if the request failed."""
        events = exchange["events"]
        attempts = attempts_of([event for event in events if event["type"] == "attempt"])
        done = next((event for event in events if event["type"] == "done"), None)
        if done is not None:
            message = message_from_json(done["message"])
            self.ids.add(message.id)
            self.items.append(replace(shown_message(message), attempts=attempts))
            self.unmatched = True
            return
        text = "the reply was interrupted"
        if (error := exchange.get("error")) is not None:
            who = ", ".join(filter(None, (error.get("provider"), error.get("model"))))
            text = f"{who or 'the provider'}: {error.get('kind')}: {error.get('message')}"
        self.items.append(Note(kind="failed", text=text, attempts=attempts))


def _cassette(path: Path) -> Transcript:
    """Return one transcript with all conversations of a cassette.

    `Recorder` or `--record` wrote the cassette. Exchanges belong to the same conversation if their
    requests share a message. If there are several conversations, a heading precedes each of them.
    Raise StoreError if the cassette cannot be loaded.
    """
    try:
        cassette = Cassette.load(path)
    except ReplayError as error:
        raise StoreError(str(error)) from error
    conversations: list[_Conversation] = []
    for exchange in cassette.exchanges:
        request = exchange["request"]
        ids = {message.get("id") for message in request["messages"]}
        conversation = next((each for each in conversations if each.ids & ids), None)
        if conversation is None:
            system, tools = str(request.get("system", "")), _tools(request.get("tools"))
            conversation = _Conversation(system, tools)
            conversations.append(conversation)
        conversation.add_request(request)
        conversation.add_reply(exchange)
    items: list[ShownMessage | Note] = []
    for number, conversation in enumerate(conversations, 1):
        if len(conversations) > 1:
            heading = f"Conversation {number} of {len(conversations)}"
            items.append(Note(kind="heading", text=heading))
        items += conversation.items
    first = conversations[0] if conversations else _Conversation("", ())
    return Transcript(
        title=path.name,
        source=f"cassette of {cassette.provider}",
        items=tuple(items),
        system=first.system,
        tools=first.tools,
    )

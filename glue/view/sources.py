"""Readers of transcripts: stores, files, cassettes and events become messages, arranged into turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from glue.codec import to_json
from glue.errors import ReplayError, StoreError
from glue.events import Explanation, snake
from glue.messages import (
    AssistantMessage,
    Json,
    Message,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    message_from_json,
)
from glue.provider import Attempt
from glue.testing.cassette import Cassette
from glue.text import count, seconds

if TYPE_CHECKING:
    from glue.stores.store import Record, Store

# Copies of a session are stored within the same millisecond or two: that says nothing of how long a reply took.
_MEASURABLE = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message with what is known of its making."""

    message: Message
    at: float | None = None  # when it was stored, in seconds since 1970
    seconds: float | None = None  # how long it took, where that was measured
    waited: float | None = None  # seconds since the message before
    attempts: tuple[Attempt, ...] = ()  # tries that failed before it
    steps: tuple[Entry | Note, ...] = ()  # what a sub-agent did before this result


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something between messages: the beginning of a conversation, a failure, how a run ended."""

    kind: Literal["heading", "failed", "event"]
    text: str
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    title: str
    source: str  # "session", "cassette", ...: what it was read from
    entries: tuple[Entry | Note, ...]
    created: float | None = None
    parent: str = ""
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A transcript in an index: what it is, and the file of its page."""

    file: str
    kind: Literal["session", "run"]
    title: str
    at: float
    text: str = ""
    figures: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A reply and the results of its calls."""

    number: int
    entry: Entry
    message: AssistantMessage
    before: Entry | None = None
    continues: int | None = None  # the number of the cut-off reply that this one goes on with
    results: list[Entry] = field(default_factory=list)

    @property
    def calls(self) -> list[tuple[ToolCall, Entry | None]]:
        """Each call with its result; calls under one id have one each."""
        left = list(self.results)
        pairs: list[tuple[ToolCall, Entry | None]] = []
        for call in self.message.calls:
            found = next((result for result in left if _call_id(result) == call.id), None)
            if found is not None:
                left.remove(found)
            pairs.append((call, found))
        return pairs

    @property
    def model_seconds(self) -> float | None:
        return self.entry.seconds if self.entry.seconds is not None else _between(self.before, self.entry)

    @property
    def tool_seconds(self) -> float | None:
        # Calls run side by side and are stored together: the batch took as long as its slowest.
        measured = [result.seconds for result in self.results if result.seconds is not None]
        if measured or not self.results:
            return max(measured, default=None)
        return _between(self.entry, self.results[-1])

    @property
    def seconds(self) -> float:
        return (self.model_seconds or 0.0) + (self.tool_seconds or 0.0)


Block: TypeAlias = Turn | Entry | Note


def arrange(entries: Sequence[Entry | Note]) -> tuple[Block, ...]:
    """Put each reply together with the results of its calls; what a user said, and a result without its call, stay."""
    blocks: list[Block] = []
    before: Entry | None = None
    continued: int | None = None
    number = 0
    for entry in entries:
        if isinstance(entry, Note):
            blocks.append(entry)
            before = None if entry.kind == "heading" else before
            continue
        message, last = entry.message, blocks[-1] if blocks else None
        if isinstance(message, AssistantMessage):
            number += 1
            blocks.append(Turn(number=number, entry=entry, message=message, before=before, continues=continued))
            continued = None
        elif isinstance(last, Turn) and _call_id(entry) in {call.id for call in last.message.calls}:
            last.results.append(entry)
        else:
            blocks.append(replace(entry, waited=_between(before, entry)))
            if isinstance(message, UserMessage):
                continued = number if message.origin == "continue" and number else None
        before = entry
    return tuple(blocks)


def _call_id(entry: Entry) -> str | None:
    return entry.message.call_id if isinstance(entry.message, ToolMessage) else None


def _between(before: Entry | None, after: Entry) -> float | None:
    if before is None or before.at is None or after.at is None:
        return None
    seconds = after.at - before.at
    return seconds if seconds >= _MEASURABLE else None


def is_cut(message: AssistantMessage) -> bool:
    """Tell whether a reply stopped for another reason than that it was done or wanted tools."""
    return message.stop_reason not in ("end_turn", "tool_use")


def has_problem(block: Block) -> bool:
    if isinstance(block, Turn):
        failed = any(result is None or _failed(result) for _, result in block.calls)
        return failed or is_cut(block.message) or bool(block.entry.attempts)
    if isinstance(block, Entry):
        return _failed(block)
    return block.kind == "failed" or bool(block.attempts)


def _failed(entry: Entry) -> bool:
    return isinstance(entry.message, ToolMessage) and entry.message.is_error


def attempts_of(said: Json) -> tuple[Attempt, ...]:
    """Read attempts from JSON; what is no attempt is passed over."""
    found: list[Attempt] = []
    for row in said if isinstance(said, (list, tuple)) else ():
        if isinstance(row, Mapping):
            values = _numbers(row, "delay", "seconds", "previous_cap", "next_cap")
            values |= {name: str(row.get(name) or "") for name in ("provider", "model", "kind", "detail")}
            found.append(Attempt(**values, usage=usage_of(row.get("usage"))))
    return tuple(found)


def usage_of(said: Json) -> Usage | None:
    """Read usage from JSON or from a message; what is no number is not known."""
    said = to_json(said) if isinstance(said, Usage) else said
    if not isinstance(said, Mapping):
        return None
    return Usage(**_numbers(said, "input", "output", "cache_read", "cache_write", "reasoning", "cost"))


def _numbers(said: Mapping[str, Json], *names: str) -> dict[str, Any]:
    """Take the figures that are numbers people can read: neither infinite nor hundreds of digits long."""
    found: dict[str, Any] = {name: said.get(name) for name in names}
    return {name: value for name, value in found.items() if type(value) in (int, float) and abs(value) < 1e15}


# Readers ------------------------------------------------------------------------------------------

WANTED = "a session file, a cassette, the events of --json, or a JSON list of messages"


async def read_session(store: Store, id: str) -> Transcript:
    """Read a session with the times its store knows."""
    messages = await store.load(id)
    info = next((info for info in await store.list() if info.id == id), None)
    known = getattr(store, "times", None)
    times: Mapping[str, float] = await known(id) if known is not None else {}
    head: Record = {"session": id}
    if info is not None:
        head |= {"created": info.created, "parent": info.parent, "forked_at": info.forked_at, "meta": info.meta}
    return _session(head, messages, times)


def read_file(path: Path) -> Transcript:
    """Read whatever a file holds that can be shown."""
    from glue.stores import read_session_file

    try:
        if (found := read_session_file(path)) is not None:
            return _session(*found)
        return _read(path, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise StoreError(f"{path} is no text; wanted is {WANTED}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error!r}; wanted is {WANTED}") from error


def _read(path: Path, text: str) -> Transcript:
    first = _parsed(text.lstrip("\ufeff \t\r\n").split("\n", 1)[0])
    first = first if isinstance(first, Mapping) else {}
    kind = first.get("type")
    if kind in ("cassette", "recording"):
        return _cassette(path)
    if isinstance(kind, str) and "role" not in first and "messages" not in first:
        return _events(path, text)
    return _messages(path, text)


def _parsed(text: str) -> Json:
    """Read JSON; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _session(head: Record, messages: Iterable[Message], times: Mapping[str, float]) -> Transcript:
    # What was taken over from a parent bears the time of the fork, which says nothing.
    taken, meta = head.get("forked_at") or 0, head.get("meta") or {}
    return Transcript(
        title=str(head.get("session", "")),
        source="session",
        entries=tuple(
            entry_of(message, None if index < taken else times.get(message.id))
            for index, message in enumerate(messages)
        ),
        created=head.get("created"),
        parent=str(head.get("parent") or ""),
        system=str(meta.get("instructions") or ""),
        tools=_tools(meta.get("tools")),
    )


def _messages(path: Path, text: str) -> Transcript:
    said = _parsed(text)
    if said is None:
        rows = [_parsed(line) for line in text.split("\n") if line.strip()]
        said = rows if rows and None not in rows else None
    elif isinstance(said, Mapping):
        said = said.get("messages")
    if not isinstance(said, list):
        raise StoreError(f"{path} holds nothing that can be shown; wanted is {WANTED}")
    try:
        entries = tuple(entry_of(message_from_json(item)) for item in said)
    except StoreError as error:
        raise StoreError(f"{path}: {error}; wanted is {WANTED}") from error
    return Transcript(title=path.name, source="messages", entries=entries)


def entry_of(message: Message, at: float | None = None, seconds: float | None = None) -> Entry:
    """Make an entry of a message, with the attempts that it tells of itself; refuse what no page could show."""
    for part in (message, *message.content):
        for each in fields(part):
            value = getattr(part, each.name)
            if each.type == "str" and not isinstance(value, str):  # the codec lets it through
                raise StoreError(f"a message holds {json.dumps(value)[:80]} where a text belongs")
    meta = message.meta if isinstance(message.meta, Mapping) else {}
    message = replace(message, meta=meta or None)
    known = _numbers({"at": at, "seconds": seconds}, "at", "seconds")
    return Entry(message=message, **known, attempts=attempts_of(meta.get("attempts")))


_TOLD = frozenset(snake(kind.__name__) for kind in get_args(Explanation))
_ENDED = "The run ended: "


def _events(path: Path, text: str) -> Transcript:
    """Read what --json prints; a kind that only a newer version knows is passed over."""
    events: list[Mapping[str, Json]] = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            event = json.loads(line.strip() or "null")
        except (ValueError, RecursionError):
            raise StoreError(f"{path}, line {number}: not JSON") from None
        if isinstance(event, Mapping) and isinstance(event.get("type"), str):
            events.append(event)
    if not any(event["type"] in ("run_start", "message_end", "run_end", "result") for event in events):
        raise StoreError(f"{path} holds nothing that can be shown; wanted is {WANTED}")
    asked: Mapping[str, Json] = next((event for event in events if event["type"] == "prompt"), {})
    return Transcript(
        title=path.name,
        source="events of a run",
        entries=tuple(_entries(events)),
        system=str(asked.get("system") or ""),
        tools=_tools(asked.get("tools")),
    )


def _entries(events: Iterable[Mapping[str, Json]]) -> list[Entry | Note]:
    entries: list[Entry | Note] = []
    attempts: tuple[Attempt, ...] = ()  # before the next reply, or the end
    children: dict[str, list[Mapping[str, Json]]] = {}  # events of sub-agents, by call
    for event in events:
        kind = str(event["type"])
        if kind == "prompt" and isinstance(event.get("message"), Mapping):
            entries.append(entry_of(message_from_json(event["message"])))
        elif kind == "tool_update" and isinstance(event.get("event"), Mapping) and event["event"].get("type"):
            children.setdefault(str(event.get("call_id")), []).append(event["event"])
        elif kind == "attempt":
            attempts += attempts_of([event])
        elif kind == "message_end":
            entry = entry_of(message_from_json(event["message"]))
            if (entry.message.meta or {}).get("discarded"):
                continue
            if attempts and isinstance(entry.message, AssistantMessage):
                entry, attempts = replace(entry, attempts=attempts), ()
            entries.append(entry)
        elif kind == "tool_end":
            message = message_from_json(event["message"])
            steps = _entries(children.pop(str(getattr(message, "call_id", "")), ()))
            entries.append(replace(entry_of(message, seconds=event.get("seconds")), steps=tuple(steps)))
        elif kind in _TOLD:
            values = (f"{key} {value}" for key, value in event.items() if key != "type" and value not in (None, ""))
            entries.append(Note(kind="event", text=f"{kind.replace('_', ' ')}: {', '.join(values)}"))
        elif kind in ("result", "error") or (kind == "run_end" and "outcome" in event):
            if entries and isinstance(last := entries[-1], Note) and last.text.startswith(_ENDED):
                entries.pop()  # what comes later says the same and more
            entries.append(_end(event, attempts))
            attempts = ()
    return entries


def _tools(given: Json) -> tuple[ToolSpec, ...]:
    """Read the tools of a request; what is no tool is passed over."""
    return tuple(
        ToolSpec(name=str(tool["name"]), description=str(tool["description"]), parameters=tool.get("parameters") or {})
        for tool in (given if isinstance(given, list) else ())
        if isinstance(tool, Mapping) and {"name", "description"} <= tool.keys()
    )


def _end(event: Mapping[str, Json], attempts: tuple[Attempt, ...]) -> Note:
    outcome, error = str(event.get("outcome") or "failed"), event.get("error")
    why = f": {error.get('message')}" if isinstance(error, Mapping) else ""
    known = _numbers(event, "requests", "seconds")
    took = [count(known["requests"], "request")] if "requests" in known else []
    took += [seconds(known["seconds"])] if "seconds" in known else []
    kind: Literal["event", "failed"] = "event" if outcome in ("done", "wrapped_up") else "failed"
    return Note(kind=kind, text=f"{_ENDED}{', '.join([outcome, *took])}{why}", attempts=attempts)


@dataclass(slots=True)
class _Thread:
    """One conversation of those that a cassette holds."""

    system: str
    tools: tuple[ToolSpec, ...]
    entries: list[Entry | Note] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    unmatched: bool = False  # the last reply has not come back in a request yet

    def ask(self, request: Mapping[str, Json]) -> None:
        for said in request["messages"]:
            message = message_from_json(said)
            if message.id in self.ids:
                continue
            self.ids.add(message.id)
            if isinstance(message, AssistantMessage) and self.unmatched:
                self.unmatched = False  # the loop gives a reply another id than the provider did
                continue
            self.entries.append(entry_of(message))

    def answer(self, exchange: Mapping[str, Json]) -> None:
        events = exchange["events"]
        attempts = attempts_of([event for event in events if event["type"] == "attempt"])
        done = next((event for event in events if event["type"] == "done"), None)
        if done is not None:
            message = message_from_json(done["message"])
            self.ids.add(message.id)
            self.entries.append(replace(entry_of(message), attempts=attempts))
            self.unmatched = True
            return
        text = "the reply was broken off"
        if (error := exchange.get("error")) is not None:
            who = ", ".join(filter(None, (error.get("provider"), error.get("model"))))
            text = f"{who or 'the provider'}: {error.get('kind')}: {error.get('message')}"
        self.entries.append(Note(kind="failed", text=text, attempts=attempts))


def _cassette(path: Path) -> Transcript:
    """Read what `Recorder` or `--record` wrote."""
    try:
        cassette = Cassette.load(path)
    except ReplayError as error:
        raise StoreError(str(error)) from error
    threads: list[_Thread] = []
    for exchange in cassette.exchanges:
        request = exchange["request"]
        ids = {message.get("id") for message in request["messages"]}
        thread = next((thread for thread in threads if thread.ids & ids), None)
        if thread is None:
            thread = _Thread(str(request.get("system", "")), _tools(request.get("tools")))
            threads.append(thread)
        thread.ask(request)
        thread.answer(exchange)
    entries: list[Entry | Note] = []
    for number, thread in enumerate(threads, 1):
        if len(threads) > 1:
            entries.append(Note(kind="heading", text=f"Conversation {number} of {len(threads)}"))
        entries += thread.entries
    first = threads[0] if threads else _Thread("", ())
    return Transcript(
        title=path.name,
        source=f"cassette of {cassette.provider}",
        entries=tuple(entries),
        system=first.system,
        tools=first.tools,
    )

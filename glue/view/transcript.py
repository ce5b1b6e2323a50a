"""Transcript records: messages with times and attempts, arranged into turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from glue.codec import to_json
from glue.messages import AssistantMessage, Json, Message, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from glue.provider import Attempt

# Copies of a session are stored within the same millisecond or two: that says nothing of how long a reply took.
_MEASURABLE = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message with what is known of its making."""

    message: Message
    at: float | None = None  # when it was stored, in seconds since 1970
    seconds: float | None = None  # how long it took, where that was measured
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
class Said:
    """A user's message, or a result that belongs to no call that is there."""

    entry: Entry
    waited: float | None = None  # seconds since the message before


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A reply and what became of its calls."""

    number: int
    entry: Entry
    message: AssistantMessage
    calls: tuple[tuple[ToolCall, Entry | None], ...] = ()
    model_seconds: float | None = None
    tool_seconds: float | None = None
    continues: int | None = None  # the number of the cut-off reply that this one goes on with

    @property
    def seconds(self) -> float:
        return (self.model_seconds or 0.0) + (self.tool_seconds or 0.0)


Block: TypeAlias = Said | Turn | Note


def arrange(entries: Sequence[Entry | Note]) -> tuple[Block, ...]:
    """Put each reply together with the results of its calls, and work out how long they took."""
    blocks: list[Block] = []
    before: Entry | None = None
    continued: int | None = None
    number = index = 0
    while index < len(entries):
        entry = entries[index]
        index += 1
        if isinstance(entry, Note):
            blocks.append(entry)
            before = None if entry.kind == "heading" else before
            continue
        message = entry.message
        if not isinstance(message, AssistantMessage):
            blocks.append(Said(entry=entry, waited=_between(before, entry)))
            if isinstance(message, UserMessage):
                continued = number if message.origin == "continue" and number else None
            before = entry
            continue
        number += 1
        results: list[Entry] = []
        asked = {call.id for call in message.calls}
        while index < len(entries) and _answers(entries[index], asked):
            results.append(entries[index])  # type: ignore[arg-type]
            index += 1
        blocks.append(_turn(number, before, entry, message, results, continued))
        before, continued = (results or [entry])[-1], None
    return tuple(blocks)


def _answers(entry: Entry | Note, asked: set[str]) -> bool:
    return isinstance(entry, Entry) and isinstance(entry.message, ToolMessage) and entry.message.call_id in asked


def _turn(
    number: int,
    before: Entry | None,
    entry: Entry,
    message: AssistantMessage,
    results: Sequence[Entry],
    continues: int | None,
) -> Turn:
    left = list(results)
    pairs: list[tuple[ToolCall, Entry | None]] = []
    for call in message.calls:
        found = next((result for result in left if result.message.call_id == call.id), None)  # type: ignore[union-attr]
        if found is not None:
            left.remove(found)
        pairs.append((call, found))
    measured = [result.seconds for result in results if result.seconds is not None]
    return Turn(
        number=number,
        entry=entry,
        message=message,
        calls=tuple(pairs),
        model_seconds=entry.seconds if entry.seconds is not None else _between(before, entry),
        # Calls run side by side and are stored together: the batch took as long as its slowest.
        tool_seconds=max(measured) if measured else _between(entry, results[-1]) if results else None,
        continues=continues,
    )


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
    if isinstance(block, Said):
        return _failed(block.entry)
    return block.kind == "failed" or bool(block.attempts)


def _failed(entry: Entry) -> bool:
    return isinstance(entry.message, ToolMessage) and entry.message.is_error


def attempts_of(said: Json) -> tuple[Attempt, ...]:
    """Read attempts from JSON; what is no attempt is passed over."""
    if not isinstance(said, (list, tuple)):
        return ()
    return tuple(_attempt(item) for item in said if isinstance(item, Mapping))


def _attempt(said: Mapping[str, Json]) -> Attempt:
    words: dict[str, Any] = {name: str(said.get(name) or "") for name in ("provider", "model", "kind", "detail")}
    words |= {name: float(_number(said.get(name)) or 0) for name in ("delay", "seconds")}
    words |= {name: _whole(said.get(name)) for name in ("previous_cap", "next_cap")}
    return Attempt(**words, usage=usage_of(said.get("usage")))


def usage_of(said: Json) -> Usage | None:
    """Read usage from JSON or from a message; what is no number is not known."""
    if isinstance(said, Usage):
        said = to_json(said)
    if not isinstance(said, Mapping):
        return None
    return Usage(
        input=_whole(said.get("input")) or 0,
        output=_whole(said.get("output")) or 0,
        cache_read=_whole(said.get("cache_read")),
        cache_write=_whole(said.get("cache_write")),
        reasoning=_whole(said.get("reasoning")),
        cost=_number(said.get("cost")),
    )


def _number(value: Json) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0
    return value if is_number else None


def _whole(value: Json) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def child_usages(entries: Iterable[Entry | Note]) -> Iterable[Usage]:
    """Give what sub-agents spent, as their results say."""
    for entry in entries:
        if isinstance(entry, Entry) and isinstance(entry.message, ToolMessage):
            usage = usage_of((entry.message.meta or {}).get("usage"))
            if usage is not None:
                yield usage

"""Transcript records: messages with times and attempts, arranged into turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


Block: TypeAlias = Said | Turn | Note


def arrange(entries: Sequence[Entry | Note]) -> tuple[Block, ...]:
    """Put each reply together with the results of its calls."""
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
            blocks.append(Said(entry=entry, waited=_between(before, entry)))
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
    if isinstance(block, Said):
        return _failed(block.entry)
    return block.kind == "failed" or bool(block.attempts)


def _failed(entry: Entry) -> bool:
    return isinstance(entry.message, ToolMessage) and entry.message.is_error


def attempts_of(said: Json) -> tuple[Attempt, ...]:
    """Read attempts from JSON; what is no attempt is passed over."""
    found: list[Attempt] = []
    for row in said if isinstance(said, (list, tuple)) else ():
        if isinstance(row, Mapping):
            words: dict[str, Any] = {name: str(row.get(name) or "") for name in ("provider", "model", "kind", "detail")}
            words |= {name: _number(row.get(name)) or 0.0 for name in ("delay", "seconds")}
            words |= {name: _number(row.get(name), int) for name in ("previous_cap", "next_cap")}
            found.append(Attempt(**words, usage=usage_of(row.get("usage"))))
    return tuple(found)


def usage_of(said: Json) -> Usage | None:
    """Read usage from JSON or from a message; what is no number is not known."""
    if isinstance(said, Usage):
        said = to_json(said)
    if not isinstance(said, Mapping):
        return None
    spent: dict[str, Any] = {name: _number(said.get(name), int) or 0 for name in ("input", "output")}
    spent |= {name: _number(said.get(name), int) for name in ("cache_read", "cache_write", "reasoning")}
    return Usage(**spent, cost=_number(said.get("cost")))


def _number(value: Json, kind: type[int] | type[float] = float) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0
    return kind(value) if is_number else None

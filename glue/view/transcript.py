"""The transcript that a page shows: messages with their times, arranged into replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from glue.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolSpec, UserMessage
from glue.pending import PENDING, STARTED
from glue.provider import Attempt

# Messages that are copied to another session are stored within a millisecond or two. A difference
# below this many seconds is therefore not the duration of a reply.
_SHORTEST = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message with its times, the failed attempts before it, and the steps of a sub-agent."""

    message: Message
    at: float | None = None  # when it was stored, in seconds since 1970
    seconds: float | None = None  # how long it took, if that was measured
    waited: float | None = None  # seconds since the message before
    attempts: tuple[Attempt, ...] = ()  # attempts that failed before it
    steps: tuple[ShownMessage | Note, ...] = ()  # messages of the sub-agent that made this result
    running: frozenset[str] = frozenset()  # ids of the calls of this reply that run now


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line between messages: a heading, a failure, or an event of the run."""

    kind: Literal["heading", "failed", "event"]
    text: str
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A conversation to show on one page: its messages and notes, instructions and tools."""

    title: str
    source: str  # the kind of source: "session", "messages", ...
    items: tuple[ShownMessage | Note, ...]
    created: float | None = None
    parent: str = ""
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A line of the index page: a link to the page of a transcript, with its title and figures.

    The figures of a logged run are its outcome, tokens and cost. A session has no figures.
    """

    file: str
    kind: Literal["session", "run"]
    title: str
    at: float
    text: str = ""
    figures: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownReply:
    """A reply of the model and the results of its calls."""

    number: int
    shown: ShownMessage
    message: AssistantMessage
    before: ShownMessage | None = None
    continues: int | None = None  # the number of the cut-off reply that this reply continues
    results: list[ShownMessage] = field(default_factory=list)

    @property
    def waiting(self) -> frozenset[str]:
        """The ids of calls that wait for an answer from a person or another system."""
        meta = self.message.meta or {}
        records, started = meta.get(PENDING), meta.get(STARTED)
        if not isinstance(records, Mapping):  # a file that another program wrote
            return frozenset()
        done = started if isinstance(started, (list, tuple)) else ()
        return frozenset(key for key in records if key not in done)

    @property
    def calls(self) -> list[tuple[ToolCall, ShownMessage | None]]:
        """Each call with its result, or with None if the call has no result.

        Results with equal ids are assigned in order.
        """
        left = list(self.results)
        pairs: list[tuple[ToolCall, ShownMessage | None]] = []
        for call in self.message.calls:
            found = next((result for result in left if _call_id(result) == call.id), None)
            if found is not None:
                left.remove(found)
            pairs.append((call, found))
        return pairs

    @property
    def model_seconds(self) -> float | None:
        """Seconds that the reply took, or None if unknown.

        If the reply was not measured, this is the time since the message before.
        """
        if self.shown.seconds is not None:
            return self.shown.seconds
        return _between(self.before, self.shown)

    @property
    def tool_seconds(self) -> float | None:
        """Seconds that the tool calls of the reply took, or None if unknown.

        This is the time of the slowest measured call. If no call was measured, it is the time from
        the reply to the last result.
        """
        measured = [result.seconds for result in self.results if result.seconds is not None]
        if measured or not self.results:
            return max(measured, default=None)
        return _between(self.shown, self.results[-1])

    @property
    def seconds(self) -> float:
        """Seconds that the reply and its calls took together; an unknown time counts as zero."""
        return (self.model_seconds or 0.0) + (self.tool_seconds or 0.0)


Block: TypeAlias = ShownReply | ShownMessage | Note


def arrange(items: Sequence[ShownMessage | Note]) -> tuple[Block, ...]:
    """Group each reply with the results of its calls, and return the blocks of the transcript.

    Other messages get `waited`, the seconds since the message before.
    For example, the items `user, reply with call c1, result of c1, reply` become the blocks
    `user, (reply with call c1, result of c1), reply`.
    """
    blocks: list[Block] = []
    before: ShownMessage | None = None
    continued: int | None = None
    number = 0
    for item in items:
        if isinstance(item, Note):
            blocks.append(item)
            before = None if item.kind == "heading" else before
            continue
        message, last = item.message, blocks[-1] if blocks else None
        if isinstance(message, AssistantMessage):
            number += 1
            reply = ShownReply(
                number=number, shown=item, message=message, before=before, continues=continued
            )
            blocks.append(reply)
            continued = None
        elif isinstance(last, ShownReply) and _answers(item, last.message):
            last.results.append(item)
        else:
            blocks.append(replace(item, waited=_between(before, item)))
            if isinstance(message, UserMessage):
                continued = number if message.origin == "continue" and number else None
        before = item
    return tuple(blocks)


def _answers(item: ShownMessage, reply: AssistantMessage) -> bool:
    """Return whether a message is the result of one of the reply's calls."""
    return _call_id(item) in {call.id for call in reply.calls}


def _call_id(item: ShownMessage) -> str | None:
    return item.message.call_id if isinstance(item.message, ToolMessage) else None


def _between(before: ShownMessage | None, after: ShownMessage) -> float | None:
    """Return the seconds between two messages, or None if unknown or less than `_SHORTEST`."""
    if before is None or before.at is None or after.at is None:
        return None
    seconds = after.at - before.at
    return seconds if seconds >= _SHORTEST else None


def is_cut(message: AssistantMessage) -> bool:
    """Return whether a reply stopped early: its stop reason is neither end_turn nor tool_use."""
    return message.stop_reason not in ("end_turn", "tool_use")


def has_problem(block: Block) -> bool:
    """Return whether a block shows a problem, such as a failed call or a cut-off reply."""
    if isinstance(block, ShownReply):
        failed = any(
            asked.id not in block.waiting | block.shown.running
            if result is None
            else _failed(result)
            for asked, result in block.calls
        )
        return failed or is_cut(block.message) or bool(block.shown.attempts)
    if isinstance(block, ShownMessage):
        return _failed(block)
    return block.kind == "failed" or bool(block.attempts)


def _failed(item: ShownMessage) -> bool:
    return isinstance(item.message, ToolMessage) and item.message.is_error

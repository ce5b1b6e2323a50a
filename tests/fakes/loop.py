"""Helpers for tests of the loop: tools, providers, a journal, and a check of transcripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio

from glue import Cancel, Message, Request, StopReason, run, tool
from glue.events import Event, RunEnd
from glue.messages import AssistantMessage, ToolMessage
from glue.policies import Policy
from glue.provider import Done, ProviderEvent
from glue.testing import Reply, Script, say, shape


class Quit(BaseException):
    """An exception that `except Exception` does not catch."""


@tool
async def noop() -> str:
    """Return ok."""
    return "ok"


@tool(terminates=True)
async def term() -> str:
    """End the run."""
    return "bye"


@tool
async def broken() -> str:
    """Fail."""
    raise RuntimeError("broken")


def cut(text: str = "x", **options: Any) -> Reply:
    """Return a reply that was cut at max_tokens."""
    return say(text, stop="max_tokens", **options)


def reply(*parts: Any, stop: Any = "end_turn") -> Any:
    """Return an assistant message, typed as Any because some tests pass invalid parts."""
    return AssistantMessage(content=parts, stop_reason=stop)


def texts(messages: Sequence[Message]) -> list[str]:
    """Return the text of each message."""
    return [message.text for message in messages]


def results(messages: Sequence[Message]) -> list[str]:
    """Return the text of each tool result."""
    return [message.text for message in messages if isinstance(message, ToolMessage)]


def names(events: Sequence[Event]) -> list[str]:
    """Return the class name of each event."""
    return [type(event).__name__ for event in events]


def ends(events: Sequence[Event]) -> list[str]:
    """Return the outcome of each RunEnd event."""
    return [str(event.outcome) for event in events if isinstance(event, RunEnd)]


async def run_cancelled_at(trigger: type, provider: Script) -> Any:
    """Return the result of a run that is cancelled at the first event of the given type."""
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, trigger):
            cancel.cancel()

    result = await run(provider, "go", tools=[noop], on_event=listen, cancel=cancel)
    assert provider.open_streams == 0
    return result


def assert_valid(messages: Sequence[Message]) -> None:
    """Check that each call has one result directly after it, and that no reply is empty."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage) and message.call_id == "delivered":
            continue
        if isinstance(message, ToolMessage):
            assert waiting
            assert waiting.pop(0) == message.call_id
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            assert message.content
            assert all(part.complete for part in message.calls)
            waiting = [part.id for part in message.calls]
    assert not waiting


def queue(*texts: str) -> Any:
    """Return a function that returns all messages at its first call, and none later."""
    waiting = list(texts)

    def source() -> list[str]:
        taken = waiting[:]
        waiting.clear()
        return taken

    return source


class Queue:
    """A function object that returns one message at each call, and counts the calls."""

    def __init__(self, *waiting: str) -> None:
        self.waiting = list(waiting)
        self.polls = 0

    def __call__(self) -> list[str]:
        self.polls += 1
        return [self.waiting.pop(0)] if self.waiting else []


async def no_sleep(seconds: float) -> None:
    """Return at once, instead of sleeping."""
    await anyio.lowlevel.checkpoint()


class KeepLast(Policy):
    """A compactor that keeps the last messages of the transcript."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    async def compact(self, state: Any) -> Sequence[Message] | None:
        kept: Sequence[Message] = state.messages[-self.count :]
        return kept


class EventProvider:
    """A provider that streams the given events for each request, and raises given exceptions."""

    name = "fake"

    def __init__(self, *events: Any) -> None:
        self.events = events

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event


class ReplyProvider:
    """A provider that sends one of the given messages for each request, without deltas."""

    name = "fake"

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        yield Done(message=self.messages.pop(0))


class RecordingJournal:
    """A journal that records every operation, and applies it to its own list of messages.

    If `failing` is a number, that many writes succeed, and all later writes raise the error.
    """

    def __init__(self, failing: int | None = None, error: Exception | None = None) -> None:
        self.messages: list[Message] = []
        self.operations: list[str] = []
        self.writes = 0
        self.failing, self.error = failing, error or OSError(28, "No space left on device")

    async def append(self, message: Message) -> None:
        await self._write(f"append {shape([message])}")
        self.messages.append(message)

    async def insert(self, message: Message, before: str) -> None:
        await self._write("insert")
        self.messages.insert(self._index(before), message)

    async def amend(self, id: str, fields: Mapping[str, Any]) -> None:
        await self._write(f"amend {dict(fields)}")
        changed = dict(fields)
        if "stop_reason" in changed:
            changed["stop_reason"] = StopReason(changed["stop_reason"])
        index = self._index(id)
        self.messages[index] = replace(self.messages[index], **changed)

    async def drop(self, ids: Sequence[str]) -> None:
        await self._write(f"drop {len(ids)}")
        self.messages = [message for message in self.messages if message.id not in ids]

    async def exclude(self, ids: Sequence[str]) -> None:
        await self._write(f"exclude {len(ids)}")
        self.messages = [
            replace(message, excluded=True) if message.id in ids else message
            for message in self.messages
        ]

    async def _write(self, operation: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.writes += 1
        if self.failing is not None and self.writes > self.failing:
            raise self.error
        self.operations.append(operation)
        await anyio.lowlevel.checkpoint()

    def _index(self, id: str) -> int:
        """Return the index of a message, or the end if the journal does not have the message."""
        found = (index for index, message in enumerate(self.messages) if message.id == id)
        return next(found, len(self.messages))

"""Event listeners: writers of text, functions, and a stream that its reader sets the pace of."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Self, TextIO, TypeVar

import anyio
from anyio.abc import TaskGroup

from glue.context import Cancel
from glue.events import Event, Listener, MessageEnd, ToolStart
from glue.limits import StopReason
from glue.messages import AssistantMessage
from glue.provider import TextDelta
from glue.result import RunResult

_log = logging.getLogger("glue.agent")
OutputT = TypeVar("OutputT")


class Listeners:
    """Tells every listener; one that fails is logged and does not keep the others from hearing."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self.listeners = tuple(listeners)

    def __call__(self, event: Event) -> None:
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                _log.debug("a listener failed", exc_info=True)


class Paced(Listeners):
    """The same with listeners among them that set the pace."""

    async def drain(self) -> None:
        for listener in self.listeners:
            if (drain := getattr(listener, "drain", None)) is not None:
                await drain()


class TextWriter:
    """Writes the text of the answer as it comes; a new line only between two messages."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self._last = ""  # of the message before, where a break is due
        self._tail = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta) and event.text:
            if self._last:
                self.file.write("\n")
            self._last, self._tail = "", event.text
            self.file.write(event.text)
            self.file.flush()
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            cut = event.message.stop_reason is StopReason.MAX_TOKENS  # its next part goes on in the same line
            self._last = "" if cut or not self._tail or self._tail.endswith("\n") else self._tail


class ToolWriter:
    """Writes a line for each tool that starts."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def __call__(self, event: Event) -> None:
        if isinstance(event, ToolStart):
            self.file.write(f"[tool] {event.call.name}\n")
            self.file.flush()


def join(given: Iterable[Listener | None]) -> Listeners | None:
    """Make one listener of many; None where there is none."""
    found = [listener for listener in given if listener is not None]
    if not found:
        return None
    return (Paced if any(hasattr(listener, "drain") for listener in found) else Listeners)(found)


def writers(stream: TextIO | None, tool_log: TextIO | None) -> list[Listener]:
    """Make listeners that write; None writes nothing."""
    found: list[Listener] = []
    if stream is not None:
        found.append(TextWriter(stream))
    if tool_log is not None:
        found.append(ToolWriter(tool_log))
    return found


class Events(Generic[OutputT]):
    """A run as an async iterator of its events. The run waits for whoever reads.

    Leaving the block early cancels the run. `result` is there when the iteration has ended; a run that
    went wrong raises at that point.
    """

    def __init__(
        self, start: Callable[[Listener, Cancel], Awaitable[RunResult[OutputT]]], cancel: Cancel | None = None
    ) -> None:
        self._start, self._cancel = start, cancel or Cancel()
        self._waiting: deque[Event] = deque()
        self._result: RunResult[OutputT] | None = None
        self._error: Exception | None = None
        self._group: TaskGroup | None = None

    @property
    def result(self) -> RunResult[OutputT]:
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("the run has not ended; read its events to the end first")
        return self._result

    async def __aenter__(self) -> Self:
        self._send, self._receive = anyio.create_memory_object_stream[Event](0)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._run)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._group is None:
            return
        self._receive.close()
        if self._result is None and self._error is None:
            self._cancel.cancel()
        # Not told of the error: a task group would wrap it, and the run ends by its token.
        await self._group.__aexit__(None, None, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None

    def __call__(self, event: Event) -> None:
        self._waiting.append(event)

    async def drain(self) -> None:
        """Hand over what waits, one event at a time, when the reader asks for it."""
        while self._waiting:
            try:
                await self._send.send(self._waiting[0])
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._waiting.clear()  # nobody reads any more
                return
            self._waiting.popleft()

    async def _run(self) -> None:
        with self._send:
            try:
                self._result = await self._start(self, self._cancel)
            except Exception as error:
                self._error = error
            await self.drain()

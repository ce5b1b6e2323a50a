"""Event listeners: writers of text, functions, and a stream that its reader sets the pace of."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Self, TextIO, TypeVar

import anyio

from glue.context import Cancel
from glue.errors import Cancelled
from glue.events import Event, Listener, MessageEnd, ToolStart
from glue.limits import StopReason
from glue.messages import AssistantMessage
from glue.provider import TextDelta
from glue.result import RunResult
from glue.tasks import spawn

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
    """A run as an async iterator of its events, each handed out when it happens. The run waits for whoever reads.

    Leaving the block early, from whatever task, cancels the run. `result` is there when the iteration has ended;
    a run that went wrong raises at that point.
    """

    def __init__(
        self, start: Callable[[Listener, Cancel], Awaitable[RunResult[OutputT]]], cancel: Cancel | None = None
    ) -> None:
        self._start, self._cancel = start, cancel or Cancel()
        self._waiting: deque[Event] = deque()
        self._result: RunResult[OutputT] | None = None
        self._error: BaseException | None = None
        self._ended: anyio.Event | None = None
        self._closed = False

    @property
    def result(self) -> RunResult[OutputT]:
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("the run has not ended; read its events to the end first")
        return self._result

    async def __aenter__(self) -> Self:
        self._ended, self._news, self._taken = anyio.Event(), anyio.Event(), anyio.Event()
        spawn(self._run)  # in no task group: the block may be left from another task than it was entered in
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ended is None:
            return
        self._closed = True
        self._waiting.clear()
        self._taken.set()
        if not self._ended.is_set():
            self._cancel.cancel()
        with anyio.CancelScope(shield=True):  # the run ends by its token
            await self._ended.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._closed or self._ended is None or self._ended.is_set():
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        event = self._waiting.popleft()
        if not self._waiting:
            self._taken.set()
        return event

    def __call__(self, event: Event) -> None:
        if not self._closed:
            self._waiting.append(event)
            self._news.set()

    async def drain(self) -> None:
        """Wait until the reader has taken what there is."""
        while self._waiting and not self._closed:
            self._taken = anyio.Event()
            await self._taken.wait()

    async def _run(self) -> None:
        assert self._ended is not None
        try:
            self._result = await self._start(self, self._cancel)
        except anyio.get_cancelled_exc_class():  # the event loop itself ends
            self._error = Cancelled()
            raise
        except BaseException as error:  # raised where the events are read
            self._error = error
        finally:
            self._ended.set()
            self._news.set()

"""Listeners: functions that receive the events of a run, to log, print or pass them on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, TextIO

from glue.events import MessageEnd, TextDelta, ToolStart
from glue.failures import report_bug
from glue.limits import StopReason
from glue.messages import AssistantMessage

if TYPE_CHECKING:
    from glue.events import Event, Listener

logger = logging.getLogger("glue.loop")
logging.getLogger("glue").addHandler(logging.NullHandler())

_warned: set[tuple[str, str, str | None]] = set()


def warn_unknown_stop(reply: AssistantMessage) -> None:
    """Log a warning about the unknown stop reason of a reply, unless it was logged before.

    Each unknown stop reason of a model is logged once in a process.
    """
    key = (reply.provider, reply.model, reply.raw_stop_reason)
    if key not in _warned:
        _warned.add(key)
        logger.warning(
            "unknown stop reason %r from %s %s; treated as the end of the reply",
            reply.raw_stop_reason,
            reply.provider,
            reply.model,
        )


def listener_name(listener: object) -> str:
    """Return the name of a listener's function or class, for reports."""
    return str(getattr(listener, "__name__", type(listener).__name__))


class Listeners:
    """A listener that calls several listeners. Exceptions of listeners are reported, not raised."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self.listeners = tuple(listeners)

    def __call__(self, event: Event) -> None:
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:
                report_bug(f"listener {listener_name(listener)}", error, once=True)


class PacedListeners(Listeners):
    """A listener like `Listeners`, with an async method `drain` that the loop awaits."""

    async def drain(self) -> None:
        """Await the method `drain` of each listener that has it, so that slow listeners keep up."""
        for listener in self.listeners:
            if (drain := getattr(listener, "drain", None)) is not None:
                await drain()


class TextWriter:
    """A listener that writes replies to a file as they are streamed, each on a new line."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self._last = ""  # the last piece of text that was written
        self._break_due = False  # whether a newline must be written before the next text

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta) and event.text:
            if self._break_due:
                self.file.write("\n")
            self._break_due, self._last = False, event.text
            self.file.write(event.text)
            self.file.flush()
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            # The continuation of a cut reply belongs on the same line.
            is_cut = event.message.stop_reason is StopReason.MAX_TOKENS
            self._break_due = bool(self._last) and not is_cut and not self._last.endswith("\n")


def write_tool(file: TextIO, event: Event) -> None:
    """Write the name of the tool to `file` if the event is a `ToolStart`."""
    if isinstance(event, ToolStart):
        file.write(f"[tool] {event.call.name}\n")
        file.flush()


def join(given: Iterable[Listener | None]) -> Listener | None:
    """Return one listener that calls all listeners in `given`, or None if there are none.

    Values of None in `given` are ignored.
    """
    found = [listener for listener in given if listener is not None]
    if len(found) <= 1:
        return found[0] if found else None
    is_paced = any(hasattr(listener, "drain") for listener in found)
    return PacedListeners(found) if is_paced else Listeners(found)


def writers(stream: TextIO | None, tool_log: TextIO | None) -> list[Listener]:
    """Return listeners that write replies to `stream` and tool names to `tool_log`, unless None.

    There is no listener for a file that is None.
    """
    found: list[Listener] = []
    if stream is not None:
        found.append(TextWriter(stream))
    if tool_log is not None:
        found.append(partial(write_tool, tool_log))
    return found

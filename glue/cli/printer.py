"""Listeners that print a run: for people on stdout and stderr, or every event as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from glue import events
from glue.cli.screen import ProgressLine, Screen
from glue.codec import to_plain
from glue.events import Event, RequestStart, event_to_json
from glue.limits import StopReason
from glue.messages import AssistantMessage, Request, UserMessage, message_to_json
from glue.provider import Attempt, TextDelta, ThinkingDelta, ToolCallDelta
from glue.result import RunResult
from glue.text import clean_text, cost_text, count, cut, format_seconds, one_line, usage_text

_RESULT_LINES = 20  # lines of a tool result that --verbose prints


@dataclass(eq=False)
class Printer:
    """A listener that prints a run for people: the answer on stdout, everything else on stderr."""

    out: Screen
    err: Screen
    quiet: bool = False
    verbose: int = 0
    stream: bool = True  # False: the caller prints the whole answer at the end
    results: bool = False  # whether the line of a tool call is followed by its result's first line
    open: str = ""  # the stream whose last line is unfinished: "out", "err" or ""
    wrote: bool = False
    _new_message: bool = False  # the next text belongs to a new message, on a new line
    _was_cut: bool = False  # the reply was cut off; the next message continues it on the same line
    _tools: dict[str, str] = field(default_factory=dict)  # names of running tools, by call id
    _faults: set[str] = field(default_factory=set)  # failed attempts of this run that were printed

    def __post_init__(self) -> None:
        self.progress = ProgressLine(self.err, wanted=not self.quiet)

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                if text and self.stream:
                    if self.out.is_terminal:
                        self.progress.stop()
                    self.text(text)
                self.progress.count(text)
            case ThinkingDelta(text=text):
                self.progress.count(text)
                if self.verbose and text:
                    self.thinking(text)
            case ToolCallDelta(arguments=text):
                self.progress.count(text)
            case RequestStart() if self._was_cut:
                self._was_cut = False
            case RequestStart():
                self._new_message = self.open == "out"
                self._wait("thinking")
            case events.MessageEnd(message=AssistantMessage(stop_reason=reason)):
                self._was_cut = reason is StopReason.MAX_TOKENS and self.open == "out"
            case events.ToolStart(call=call):
                self._tools[call.id] = one_line(call.name, 40)
                self._wait(self._tools[call.id])
            case events.ToolUpdate(event=events.ToolEnd() as ended) if not self.quiet:
                self.note(f"  {tool_line(ended, self.err.width - 4)}")
            case events.ToolUpdate(text=text) if self.verbose and text:
                self.note(f"  {one_line(event.name)}: {one_line(text, self.err.width - 20)}")
            case events.ToolEnd():
                self._result(event)
            case Attempt() if not self.quiet:
                self._attempt(event)
            case events.RunEnd():
                self._faults.clear()
                self.progress.stop()
                self.progress.tokens = 0  # in a chat, another run follows
            case _ if self.verbose and isinstance(event, events.GateApplied | events.Explanation):
                names = type(event).__dataclass_fields__
                values = ", ".join(f"{name}={getattr(event, name)!r}" for name in names)
                self.note(one_line(f"- {type(event).__name__}: {values}", 300))

    def _attempt(self, attempt: Attempt) -> None:
        """Print a failed attempt. A failure that the run has printed already is shortened."""
        when = f"in {format_seconds(attempt.delay)}" if attempt.delay else "now"
        fault = one_line(attempt.detail or attempt.kind, 300)
        if fault in self._faults:
            fault = f"{one_line(attempt.provider, 80)}: failed again"
        else:
            self._faults.add(fault)
        self.note(f"! {fault}; the next attempt starts {when}", "yellow")

    def note(self, text: str, colour: str = "dim") -> None:
        """Write a line on stderr; end an unfinished line first."""
        self.settle()
        self.err.line(text, colour)

    def settle(self) -> None:
        """Hide the progress line and end an unfinished line."""
        self.progress.hide()
        if self.open:
            (self.out if self.open == "out" else self.err).write("\n")
        self.open = ""

    def text(self, text: str) -> None:
        """Write a piece of the answer on stdout."""
        self.progress.hide()
        if self.open == "err" or self._new_message:
            self.settle()
        self._new_message = False
        self.out.write(clean_text(text))
        self.wrote = True
        self.open = "" if text.endswith("\n") else "out"

    def thinking(self, text: str) -> None:
        """Write a piece of the model's thinking on stderr."""
        if self.open == "out":
            self.settle()
        self.progress.hide()
        self.err.write(self.err.paint(clean_text(text), "dim"))
        self.open = "" if text.endswith("\n") else "err"

    def _wait(self, label: str) -> None:
        """End an unfinished line on the terminal, then show the spinner with a label."""
        if self.progress.is_on and (self.open == "err" or self.out.is_terminal):
            self.settle()
        self.progress.start(label)

    def _result(self, event: events.ToolEnd) -> None:
        self._tools.pop(event.call.id, None)
        if not self._tools:
            self.progress.stop()
        else:
            self.progress.label = next(reversed(self._tools.values()))
        if self.quiet:
            return
        self.note(tool_line(event, self.err.width - 2), "red" if event.message.is_error else "dim")
        lines = clean_text(event.message.text).strip().splitlines()
        if self.results and not self.verbose and lines and not event.message.is_error:
            more = f"  (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
            self.err.line(f"    {cut(lines[0], self.err.width - 6 - len(more))}{more}", "dim")
        if self.verbose:
            for line in lines[:_RESULT_LINES]:
                self.err.line(f"    {line[: self.err.width - 5]}", "dim")
            if len(lines) > _RESULT_LINES:
                self.err.line(f"    … {len(lines) - _RESULT_LINES} more lines", "dim")


def tool_line(event: events.ToolEnd, width: int = 78) -> str:
    """Return one line about a tool call: its name, arguments, outcome and duration."""
    call, failed = event.call, event.message.is_error
    tail = f"  {'failed' if failed else 'ok'} {format_seconds(event.seconds)}"
    if failed:
        tail += f": {one_line(event.message.text, 240)}"
    room = max(width - 2 - len(call.name) - (len(tail) if not failed else 20), 16)
    try:
        values = json.loads(call.arguments or "{}").items()
        arguments = ", ".join(f"{key}={one_line(value_text(value), 60)}" for key, value in values)
    except (ValueError, AttributeError, RecursionError):
        arguments = call.arguments
    return f"{'✗' if failed else '·'} {one_line(call.name)}({one_line(arguments, room)}){tail}"


def value_text(value: Any) -> str:
    """Return a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def usage_line(result: RunResult[Any]) -> str:
    """Return one line with the tokens, cost, requests, time and outcome of a run."""
    pieces = (
        usage_text(result.usage),
        cost_text(result.cost),
        count(result.requests, "request"),
        format_seconds(result.seconds),
        result.outcome.value,
    )
    return ", ".join(pieces)


class EventWriter:
    """A listener that writes each event as a JSON line, and the prompt before the first request."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self.has_prompt = False

    def __call__(self, event: Event) -> None:
        if not self.has_prompt and isinstance(event, RequestStart):
            self.write_prompt(event.request)
        self.write(event_to_json(event))

    def write_prompt(self, request: Request) -> None:
        """Write one line of JSON with the prompt, model, instructions and tools of a request."""
        self.has_prompt = True
        prompts = [message for message in request.messages if isinstance(message, UserMessage)]
        self.write(
            {
                "type": "prompt",
                "model": request.model,
                "system": request.system,
                "tools": [to_plain(tool) for tool in request.tools],
                "message": message_to_json(prompts[-1]) if prompts else None,
            }
        )

    def write(self, value: Mapping[str, Any]) -> None:
        """Write one value as a line of JSON."""
        # Only ASCII: then nothing that a model wrote can control a terminal.
        self._write(json.dumps(value) + "\n")

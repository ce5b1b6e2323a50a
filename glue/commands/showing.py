"""What a person sees of a run: the answer on stdout, the rest on stderr."""

from __future__ import annotations

import json
from typing import Any

from glue import events as said
from glue.events import Event
from glue.limits import StopReason
from glue.result import RunResult
from glue.terminal import Screen, Spinner, clean, one_line, seconds
from glue.types import AssistantMessage, Attempt, TextDelta, ThinkingDelta, ToolCall, ToolCallDelta, Usage


class Show:
    """A listener that writes for people."""

    def __init__(self, out: Screen, err: Screen, *, quiet: bool = False, verbose: int = 0, stream: bool = True) -> None:
        self.out, self.err = out, err
        self.quiet, self.verbose = quiet, verbose
        self.stream = stream  # False: the answer is printed whole, at the end
        self.spinner = Spinner(err, wanted=not quiet)
        self.open = ""  # which output stands in the middle of a line: out, err or neither
        self.wrote = False
        self._apart = False  # a new message begins on a new line
        self._cut = False  # the next message goes on in the same line
        self._tools: dict[str, str] = {}  # those that run, by call

    def __call__(self, event: Event) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
        elif self.verbose and type(event).__name__ in _NOTES:
            self.note(_described(event))

    # Writing --------------------------------------------------------------------------------------

    def note(self, text: str, colour: str = "dim") -> None:
        """Write a line of its own on stderr."""
        self.settle()
        self.err.line(text, colour)

    def settle(self) -> None:
        """End a line that was begun, and take the spinner away."""
        self.spinner.hide()
        if self.open == "out":
            self.out.write("\n")
        elif self.open == "err":
            self.err.write("\n")
        self.open = ""

    def text(self, text: str) -> None:
        self.spinner.hide()
        if self.open == "err":
            self.err.write("\n")
            self.open = ""
        if self._apart and self.open == "out":
            self.out.write("\n")
        self._apart = False
        self.out.write(clean(text))
        self.wrote = True
        self.open = "" if text.endswith("\n") else "out"

    def thinking(self, text: str) -> None:
        self.spinner.hide()
        if self.open == "out":
            self.settle()
        self.err.write(self.err.paint(clean(text), "dim"))
        self.open = "" if text.endswith("\n") else "err"

    # Events ---------------------------------------------------------------------------------------

    def _request(self, event: said.RequestStart) -> None:
        if self._cut:
            self._cut = False
            return
        self._apart = self.open == "out"
        self._wait("thinking")

    def _wait(self, label: str) -> None:
        """Let the spinner turn, on a line of its own."""
        if self.spinner.is_on and (self.open == "err" or self.out.is_terminal):
            self.settle()
        self.spinner.start(label)

    def _message(self, event: said.MessageEnd) -> None:
        if isinstance(event.message, AssistantMessage):
            self._cut = event.message.stop_reason is StopReason.MAX_TOKENS and self.open == "out"

    def _delta(self, event: TextDelta) -> None:
        if event.text and self.stream:
            if self.out.is_terminal:
                self.spinner.stop()
            self.text(event.text)
        self._count(event.text)

    def _thought(self, event: ThinkingDelta) -> None:
        self._count(event.text)
        if self.verbose and event.text:
            self.thinking(event.text)

    def _call(self, event: ToolCallDelta) -> None:
        self._count(event.arguments)

    def _count(self, text: str) -> None:
        self.spinner.tokens += (len(text) + 3) // 4

    def _tool(self, event: said.ToolStart) -> None:
        self._tools[event.call.id] = one_line(event.call.name, 40)
        self._wait(self._tools[event.call.id])

    def _update(self, event: said.ToolUpdate) -> None:
        if event.event is not None and isinstance(event.event, said.ToolEnd) and not self.quiet:
            self.note(f"  {tool_line(event.event, self.err.width - 4)}")
        elif self.verbose and event.text:
            self.note(f"  {one_line(event.name)}: {one_line(event.text, self.err.width - 20)}")

    def _result(self, event: said.ToolEnd) -> None:
        self._tools.pop(event.call.id, None)
        if not self._tools:
            self.spinner.stop()
        else:
            self.spinner.label = next(reversed(self._tools.values()))
        if self.quiet:
            return
        self.note(tool_line(event, self.err.width - 2), "red" if event.message.is_error else "dim")
        if self.verbose:
            lines = clean(event.message.text).splitlines()
            for line in lines[:20]:
                self.err.line(f"    {line[: self.err.width - 5]}", "dim")
            if len(lines) > 20:
                self.err.line(f"    … {len(lines) - 20} more lines", "dim")

    def _attempt(self, event: Attempt) -> None:
        if not self.quiet:
            after = f"; next try in {seconds(event.delay)}" if event.delay else "; going on"
            self.note(f"! {one_line(event.detail or event.kind, 300)}{after}", "yellow")

    def _end(self, event: said.RunEnd) -> None:
        self.spinner.stop()


_HANDLERS: dict[type, Any] = {
    said.RequestStart: Show._request,
    TextDelta: Show._delta,
    ThinkingDelta: Show._thought,
    ToolCallDelta: Show._call,
    said.MessageEnd: Show._message,
    said.ToolStart: Show._tool,
    said.ToolUpdate: Show._update,
    said.ToolEnd: Show._result,
    Attempt: Show._attempt,
    said.RunEnd: Show._end,
}
_NOTES = ("ContinuationAttempt", "Compacted", "WrapUp", "Nudge", "LimitReached", "Guardrail", "GateApplied")


def _described(event: Event) -> str:
    name = type(event).__name__
    values = ", ".join(f"{key}={getattr(event, key)!r}" for key in type(event).__dataclass_fields__)
    return one_line(f"- {name}: {values}", 300)


def tool_line(event: said.ToolEnd, width: int = 78) -> str:
    """Write one line for a call: what, with what, how it went, how long it took."""
    failed = event.message.is_error
    tail = f"  {'failed' if failed else 'ok'} {seconds(event.seconds)}"
    if failed:
        tail += f": {one_line(event.message.text, 240)}"
    room = max(width - 2 - len(event.call.name) - (len(tail) if not failed else 20), 16)
    return f"{'✗' if failed else '·'} {one_line(event.call.name)}{_arguments(event.call, room)}{tail}"


def _arguments(call: ToolCall, width: int) -> str:
    try:
        values = json.loads(call.arguments or "{}")
        text = ", ".join(f"{key}={_short(value)}" for key, value in values.items())
    except (ValueError, AttributeError):
        text = call.arguments
    return f"({one_line(text, width)})"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, 60)


def usage_line(result: RunResult[Any]) -> str:
    """Say what a run used."""
    cost = "cost unknown" if result.cost is None else f"${result.cost:.4f}"
    turns = f"{result.requests} request{'s' if result.requests != 1 else ''}"
    return f"{usage_text(result.usage)}, {cost}, {turns}, {seconds(result.seconds)}, {result.outcome.value}"


def usage_text(usage: Usage) -> str:
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    thought = f" ({usage.reasoning:,} thinking)" if usage.reasoning else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out{thought}"

"""Output of a run for people: the answer on stdout, tool calls, notes and a spinner on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from glue import events
from glue.events import Event, RunResult
from glue.limits import StopReason
from glue.messages import AssistantMessage, ToolCall, Usage
from glue.provider import Attempt, TextDelta, ThinkingDelta, ToolCallDelta
from glue.text import clean_text, columns, cut, one_line, seconds

_WHEEL = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class Screen:
    """One output: whether it is a terminal, how wide, and whether it takes colours."""

    def __init__(self, file: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self.is_terminal = _is_terminal(file)
        self.is_dumb = environ.get("TERM", "dumb") in ("dumb", "unknown", "")
        plain = bool(environ.get("NO_COLOR")) or self.is_dumb or not self.is_terminal
        self.has_colour = not plain or (bool(environ.get("FORCE_COLOR")) and not environ.get("NO_COLOR"))

    @property
    def width(self) -> int:
        from shutil import get_terminal_size

        return get_terminal_size((80, 24)).columns

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.has_colour else text

    def line(self, text: str, colour: str = "") -> None:
        """Write a line; the text must be harmless already."""
        self.write((self.paint(text, colour) if colour else text) + "\n")

    def write(self, text: str) -> None:
        try:
            self.file.write(text)
            self.file.flush()
        except UnicodeEncodeError:
            encoding = self.file.encoding or "ascii"
            self.file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self.file.flush()


def table(rows: Iterable[Sequence[object]], heads: Sequence[str], screen: Screen | None = None) -> list[str]:
    """Draw a table that fits the terminal: columns whose head ends in ? are left out, then the widest are cut.

    A head that begins with > is a number's.
    """
    screen = screen or Screen(sys.stdout)
    cells = [[one_line("-" if cell in (None, "") else _number(cell)) for cell in row] for row in rows]
    if not cells:
        return []
    right = [head.startswith(">") for head in heads]
    cells.insert(0, [head.strip(">?") for head in heads])
    widths = [max(columns(row[at]) for row in cells) for at in range(len(heads))]
    spare = sum(widths) + 2 * (len(widths) - 1) - screen.width if screen.is_terminal else 0
    for at in reversed([at for at, head in enumerate(heads) if head.endswith("?")]):
        if spare > 0:
            spare -= widths.pop(at) + 2
            right.pop(at)
            cells = [[*row[:at], *row[at + 1 :]] for row in cells]
    while spare > 0:
        at = max(range(len(widths)), key=lambda at: (not right[at], widths[at]))
        if widths[at] <= 6:
            break
        widths[at] -= 1
        spare -= 1
    lines = []
    for row in cells:
        texts = [cut(text, width) for text, width in zip(row, widths, strict=True)]
        padded = [
            " " * (width - columns(text)) + text if end else text + " " * (width - columns(text))
            for text, width, end in zip(texts, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def print_table(rows: Iterable[Sequence[object]], heads: Sequence[str]) -> None:
    """Print a table on stdout."""
    screen = Screen(sys.stdout)
    for line in table(rows, heads, screen):
        screen.line(line)


def _number(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.4f}".rstrip("0").rstrip(".")
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


class Spinner:
    """A line that says how long a model has been thinking; drawn on a terminal only.

    Whoever writes to the same terminal calls `hide` first. `tick` redraws.
    """

    def __init__(self, screen: Screen, *, wanted: bool = True) -> None:
        self.screen = screen
        self.is_on = wanted and screen.is_terminal and not screen.is_dumb
        self.label = ""
        self.tokens = 0
        self._started: float | None = None
        self._shown = False
        self._frame = 0

    def start(self, label: str) -> None:
        self.label, self._started = label, time.monotonic()

    def stop(self) -> None:
        self.hide()
        self._started = None

    def hide(self) -> None:
        if self._shown:
            self.screen.write("\r\x1b[K")
            self._shown = False

    def tick(self) -> None:
        if not self.is_on or self._started is None:
            return
        self._frame += 1
        is_unicode = (self.screen.file.encoding or "").lower().replace("-", "") == "utf8"
        wheel = _WHEEL if is_unicode else "|/-\\"
        text = f"{wheel[self._frame % len(wheel)]} {self.label} {time.monotonic() - self._started:.0f} s"
        if self.tokens:
            text += f", {self.tokens:,} tokens"
        self.screen.write("\r" + self.screen.paint(one_line(text, self.screen.width - 1), "dim") + "\x1b[K")
        self._shown = True


def _is_terminal(file: TextIO) -> bool:
    try:
        return file.isatty()
    except (ValueError, AttributeError, OSError):
        return False


def is_interactive() -> bool:
    """Say whether there is a person to ask: both ends are a terminal."""
    return sys.stdin is not None and _is_terminal(sys.stdin) and _is_terminal(sys.stderr)


class Printer:
    """A listener that prints a run for people."""

    def __init__(
        self,
        out: Screen,
        err: Screen,
        *,
        quiet: bool = False,
        verbose: int = 0,
        stream: bool = True,
        results: bool = False,
    ) -> None:
        self.out, self.err = out, err
        self.quiet, self.verbose = quiet, verbose
        self.results = results  # whether a call's line is followed by the first of its result
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
        self.out.write(clean_text(text))
        self.wrote = True
        self.open = "" if text.endswith("\n") else "out"

    def thinking(self, text: str) -> None:
        self.spinner.hide()
        if self.open == "out":
            self.settle()
        self.err.write(self.err.paint(clean_text(text), "dim"))
        self.open = "" if text.endswith("\n") else "err"

    # Events ---------------------------------------------------------------------------------------

    def _request(self, event: events.RequestStart) -> None:
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

    def _message(self, event: events.MessageEnd) -> None:
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

    def _tool(self, event: events.ToolStart) -> None:
        self._tools[event.call.id] = one_line(event.call.name, 40)
        self._wait(self._tools[event.call.id])

    def _update(self, event: events.ToolUpdate) -> None:
        if event.event is not None and isinstance(event.event, events.ToolEnd) and not self.quiet:
            self.note(f"  {tool_line(event.event, self.err.width - 4)}")
        elif self.verbose and event.text:
            self.note(f"  {one_line(event.name)}: {one_line(event.text, self.err.width - 20)}")

    def _result(self, event: events.ToolEnd) -> None:
        self._tools.pop(event.call.id, None)
        if not self._tools:
            self.spinner.stop()
        else:
            self.spinner.label = next(reversed(self._tools.values()))
        if self.quiet:
            return
        self.note(tool_line(event, self.err.width - 2), "red" if event.message.is_error else "dim")
        lines = clean_text(event.message.text).strip().splitlines()
        if self.results and not self.verbose and lines and not event.message.is_error:
            more = f"  (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
            self.err.line(f"    {cut(lines[0], self.err.width - 6 - len(more))}{more}", "dim")
        if self.verbose:
            for line in lines[:20]:
                self.err.line(f"    {line[: self.err.width - 5]}", "dim")
            if len(lines) > 20:
                self.err.line(f"    … {len(lines) - 20} more lines", "dim")

    def _attempt(self, event: Attempt) -> None:
        if not self.quiet:
            after = f"; next try in {seconds(event.delay)}" if event.delay else "; going on"
            self.note(f"! {one_line(event.detail or event.kind, 300)}{after}", "yellow")

    def _end(self, event: events.RunEnd) -> None:
        self.spinner.stop()


_HANDLERS: dict[type, Any] = {
    events.RequestStart: Printer._request,
    TextDelta: Printer._delta,
    ThinkingDelta: Printer._thought,
    ToolCallDelta: Printer._call,
    events.MessageEnd: Printer._message,
    events.ToolStart: Printer._tool,
    events.ToolUpdate: Printer._update,
    events.ToolEnd: Printer._result,
    Attempt: Printer._attempt,
    events.RunEnd: Printer._end,
}
_NOTES = ("ContinuationAttempt", "Compacted", "WrapUp", "Nudge", "LimitReached", "Guardrail", "GateApplied")


def _described(event: Event) -> str:
    name = type(event).__name__
    values = ", ".join(f"{key}={getattr(event, key)!r}" for key in type(event).__dataclass_fields__)
    return one_line(f"- {name}: {values}", 300)


def tool_line(event: events.ToolEnd, width: int = 78) -> str:
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

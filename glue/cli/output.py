"""Output of a run: the answer on stdout; tool calls, notes, questions and a spinner on stderr; or lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import click

from glue import events
from glue.codec import to_plain
from glue.errors import GlueError
from glue.events import Event, RequestStart, RunResult, event_to_json
from glue.limits import StopReason, estimate_tokens
from glue.messages import AssistantMessage, UserMessage, message_to_json
from glue.permission import Decision, PermissionRequest, allow, deny
from glue.provider import Attempt, TextDelta, ThinkingDelta, ToolCallDelta
from glue.text import HIDDEN_CHARACTERS, clean_text, columns, cost_text, count, cut, one_line, seconds, usage_text

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


def table(rows: Iterable[Sequence[object]], heads: Sequence[str], screen: Screen) -> list[str]:
    """Draw a table that fits the terminal: columns whose head ends in ? are left out, then the widest are cut.

    A head that begins with > is a number's; one that ends in … is that of a text of any length, which is cut first.
    """
    cells = [[one_line(_cell(cell)) for cell in row] for row in rows]
    right = [head.startswith(">") for head in heads]
    cells.insert(0, [head.strip(">?…") for head in heads])
    widths = [max(columns(row[at]) for row in cells) for at in range(len(heads))]
    spare = sum(widths) + 2 * (len(widths) - 1) - screen.width if screen.is_terminal else 0
    to_cut = sum(max(width - 24, 0) for width, head in zip(widths, heads, strict=True) if head.endswith("…"))
    for at in reversed([at for at, head in enumerate(heads) if head.endswith("?")]):
        if spare > to_cut:
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
        line = ""
        for whole, width, is_right in zip(row, widths, right, strict=True):
            text = cut(whole, width)
            space = " " * (width - columns(text))
            line += (space + text if is_right else text + space) + "  "
        lines.append(line.rstrip())
    return lines


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def print_rows(
    rows: Sequence[Any], heads: Sequence[str], cells: Callable[[Any], Sequence[object]], as_json: bool, none: str = ""
) -> None:
    """Print rows as JSON, or as a table of their cells; `none` is said on stderr where there is no row."""
    if as_json:
        print_json(rows)
    elif rows:
        click.echo("\n".join(table(map(cells, rows), heads, Screen(sys.stdout))))
    elif none:
        click.echo(none, err=True)


def _cell(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.4f}".rstrip("0").rstrip(".")
    return f"{cell:,}" if type(cell) is int else str("-" if cell in (None, "") else cell)


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

    def count(self, text: str) -> None:
        """Estimate the tokens of a piece of a reply."""
        self.tokens += estimate_tokens(text)

    def tick(self) -> None:
        if not self.is_on or self._started is None:
            return
        self._frame += 1
        is_unicode = (self.screen.file.encoding or "").lower().replace("-", "") == "utf8"
        wheel = _WHEEL if is_unicode else "|/-\\"
        text = f"{wheel[self._frame % len(wheel)]} {self.label} {time.monotonic() - self._started:.0f} s"
        if self.tokens:
            text += f", {self.tokens:,} tokens"
        self.draw(text)

    def draw(self, text: str) -> None:
        """Write a text over the one that is shown."""
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


@dataclass(eq=False)
class Printer:
    """A listener that prints a run for people."""

    out: Screen
    err: Screen
    quiet: bool = False
    verbose: int = 0
    stream: bool = True  # False: the answer is printed whole, at the end
    results: bool = False  # whether a call's line is followed by the first of its result
    open: str = ""  # which output stands in the middle of a line: out, err or neither
    wrote: bool = False
    _apart: bool = False  # a new message begins on a new line
    _cut: bool = False  # the next message goes on in the same line
    _tools: dict[str, str] = field(default_factory=dict)  # those that run, by call

    def __post_init__(self) -> None:
        self.spinner = Spinner(self.err, wanted=not self.quiet)

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                if text and self.stream:
                    if self.out.is_terminal:
                        self.spinner.stop()
                    self.text(text)
                self.spinner.count(text)
            case ThinkingDelta(text=text):
                self.spinner.count(text)
                if self.verbose and text:
                    self.thinking(text)
            case ToolCallDelta(arguments=text):
                self.spinner.count(text)
            case RequestStart() if self._cut:
                self._cut = False
            case RequestStart():
                self._apart = self.open == "out"
                self._wait("thinking")
            case events.MessageEnd(message=AssistantMessage(stop_reason=reason)):
                self._cut = reason is StopReason.MAX_TOKENS and self.open == "out"
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
                after = f"; next try in {seconds(event.delay)}" if event.delay else "; going on"
                self.note(f"! {one_line(event.detail or event.kind, 300)}{after}", "yellow")
            case events.RunEnd():
                self.spinner.stop()
                self.spinner.tokens = 0  # a chat goes on with another run
            case _ if self.verbose and isinstance(event, events.GateApplied | events.Explanation):
                values = ", ".join(f"{key}={getattr(event, key)!r}" for key in type(event).__dataclass_fields__)
                self.note(one_line(f"- {type(event).__name__}: {values}", 300))

    def note(self, text: str, colour: str = "dim") -> None:
        """Write a line of its own on stderr."""
        self.settle()
        self.err.line(text, colour)

    def settle(self) -> None:
        """End a line that was begun, and take the spinner away."""
        self.spinner.hide()
        if self.open:
            (self.out if self.open == "out" else self.err).write("\n")
        self.open = ""

    def text(self, text: str) -> None:
        self.spinner.hide()
        if self.open == "err" or self._apart:
            self.settle()
        self._apart = False
        self.out.write(clean_text(text))
        self.wrote = True
        self.open = "" if text.endswith("\n") else "out"

    def thinking(self, text: str) -> None:
        if self.open == "out":
            self.settle()
        self.spinner.hide()
        self.err.write(self.err.paint(clean_text(text), "dim"))
        self.open = "" if text.endswith("\n") else "err"

    def _wait(self, label: str) -> None:
        """Let the spinner turn, on a line of its own."""
        if self.spinner.is_on and (self.open == "err" or self.out.is_terminal):
            self.settle()
        self.spinner.start(label)

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


def tool_line(event: events.ToolEnd, width: int = 78) -> str:
    """Write one line for a call: what, with what, how it went, how long it took."""
    call, failed = event.call, event.message.is_error
    tail = f"  {'failed' if failed else 'ok'} {seconds(event.seconds)}"
    if failed:
        tail += f": {one_line(event.message.text, 240)}"
    room = max(width - 2 - len(call.name) - (len(tail) if not failed else 20), 16)
    try:
        values = json.loads(call.arguments or "{}").items()
        arguments = ", ".join(f"{key}={one_line(_plain(value), 60)}" for key, value in values)
    except (ValueError, AttributeError, RecursionError):
        arguments = call.arguments
    return f"{'✗' if failed else '·'} {one_line(call.name)}({one_line(arguments, room)}){tail}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def usage_line(result: RunResult[Any]) -> str:
    """Say what a run used."""
    used = f"{usage_text(result.usage)}, {cost_text(result.cost)}, {count(result.requests, 'request')}"
    return f"{used}, {seconds(result.seconds)}, {result.outcome.value}"


class EventWriter:
    """A listener that writes each event as a line of JSON, the prompt first."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._begun = False

    def __call__(self, event: Event) -> None:
        if not self._begun and isinstance(event, RequestStart):
            self._begun = True
            request = event.request
            said = [message for message in request.messages if isinstance(message, UserMessage)]
            self.write(
                {
                    "type": "prompt",
                    "model": request.model,
                    "system": request.system,
                    "tools": [to_plain(tool) for tool in request.tools],
                    "message": message_to_json(said[-1]) if said else None,
                }
            )
        self.write(event_to_json(event))

    def write(self, value: Mapping[str, Any]) -> None:
        # ASCII alone: nothing that a model wrote can then do anything to a terminal.
        self._write(json.dumps(value) + "\n")


# Questions for permission -------------------------------------------------------------------------

_LARGEST = 1024 * 1024  # bytes of a file that are read for a diff
_MOST = 60  # lines of a diff that are shown


def question(request: PermissionRequest, screen: Screen) -> str:
    """Write what a tool is about to do, so that it can be judged."""
    # Whole and as it is: what is cut off or squeezed here would be allowed unseen.
    marks = HIDDEN_CHARACTERS["bidirectional controls"]  # a terminal may turn a command round at them
    target = marks.sub(lambda mark: f"⟨U+{ord(mark[0]):04X}⟩", request.target)
    target = clean_text(target).replace("\n", "␊").replace("\t", "␉")
    lines = [screen.paint(f"? {one_line(request.action)} {target}".strip(), "yellow")]
    change = _change(request)
    if change is not None:
        lines += _coloured(change, screen)
    for name, value in request.arguments.items():
        text = _plain(value)
        if text == request.target or (change is not None and name in ("old", "new", "content", "edits")):
            continue
        shown = clean_text(text).splitlines() or [""]
        more = [f"    … {len(shown) - 12} more lines"] if len(shown) > 12 else []
        lines += [f"  {one_line(name)}:", *(f"    {_cut(line)}" for line in shown[:12]), *more]
    return "\n".join(lines)


def _change(request: PermissionRequest) -> list[str] | None:
    """Give what a call changes in a file as a diff, as the tool sees it, or of the piece that is replaced."""
    if request.touched is not None and request.touched.preview:
        return request.touched.preview.splitlines()
    old, new, content, path = (request.arguments.get(name) for name in ("old", "new", "content", "path"))
    if isinstance(content, str) and isinstance(path, str):
        from glue.tools.fs import safe_open

        try:  # a tool of somebody else's may name a file that is not below the working directory
            with safe_open(".", path) as file:
                old, new = file.read(_LARGEST).decode("utf-8", "replace"), content
        except (OSError, GlueError):
            return None
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    from difflib import unified_diff

    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]


def _coloured(change: list[str], screen: Screen) -> list[str]:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    lines = []
    for line in change[:_MOST]:
        text = f"    {_cut(clean_text(line))}"
        lines.append(screen.paint(text, colours[line[0]]) if line[:1] in colours else text)
    more = [f"    … {len(change) - _MOST} more lines of the change"] if len(change) > _MOST else []
    return [*(lines or ["    (nothing changes)"]), *more]


def _cut(line: str) -> str:
    return line if len(line) <= 300 else f"{line[:300]}… {len(line) - 300} more characters"


def keys(request: PermissionRequest) -> str:
    """Name the keys that answer a question."""
    return f"  [y]es, [n]o, [a]lways this, [s]ession: all of {one_line(request.action)} > "


def answer_of(text: str) -> Decision:
    """Understand an answer; anything but a clear yes is a no."""
    match text.strip().lower():
        case "y" | "yes":
            return allow()
        case "a" | "always":
            return allow("target")
        case "s" | "session":
            return allow("session")
    return deny("the user said no")

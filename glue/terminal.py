"""What a terminal can show, and what must not reach it: colours, width, a spinner, harmless text."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from typing import TextIO

_WHEEL = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}

# Everything that moves a cursor, changes a title or turns the reading direction; line ends and tabs stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Make control characters of models and tools visible instead of obeying them."""
    return _CONTROL.sub(_visible, text.replace("\r\n", "\n")) if _CONTROL.search(text) else text


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the pictures of control characters
    return "␡" if code == 0x7F else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str, width: int = 0) -> str:
    """Put a text on one line, harmless and no wider than `width`."""
    text = clean(" ".join(text.split()))
    return text if not width or len(text) <= width else text[: max(width - 1, 0)] + "…"


def seconds(value: float) -> str:
    return (
        f"{value:.2f} s" if value < 1 else f"{value:.1f} s" if value < 60 else f"{value // 60:.0f} m {value % 60:.0f} s"
    )


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
        wheel = _WHEEL[self._frame % len(_WHEEL)] if self._is_unicode() else "|/-\\"[self._frame % 4]
        text = f"{wheel} {self.label} {time.monotonic() - self._started:.0f} s"
        if self.tokens:
            text += f", {self.tokens:,} tokens"
        self.screen.write("\r" + self.screen.paint(one_line(text, self.screen.width - 1), "dim") + "\x1b[K")
        self._shown = True

    def _is_unicode(self) -> bool:
        return (self.screen.file.encoding or "").lower().replace("-", "") == "utf8"


def _is_terminal(file: TextIO) -> bool:
    try:
        return file.isatty()
    except (ValueError, AttributeError, OSError):
        return False


def is_interactive() -> bool:
    """Say whether there is a person to ask: both ends are a terminal."""
    return sys.stdin is not None and _is_terminal(sys.stdin) and _is_terminal(sys.stderr)

"""Output streams: their width and colours, and a progress line that is redrawn."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import TextIO

from glue.limits import estimate_tokens
from glue.text import one_line

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
_COLOURS = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


class Screen:
    """An output stream that texts are written to, with its width and whether it shows colours."""

    def __init__(self, file: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self.is_terminal = is_terminal(file)
        self.is_dumb = environ.get("TERM", "dumb") in ("dumb", "unknown", "")
        no_colour = bool(environ.get("NO_COLOR"))
        force_colour = bool(environ.get("FORCE_COLOR"))
        can_colour = self.is_terminal and not self.is_dumb
        self.has_colour = not no_colour and (can_colour or force_colour)

    @property
    def width(self) -> int:
        return get_terminal_size((80, 24)).columns

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, or unchanged if the stream shows no colours."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.has_colour else text

    def line(self, text: str, colour: str = "") -> None:
        """Write a text and a line end. The caller must remove control characters from the text."""
        self.write((self.paint(text, colour) if colour else text) + "\n")

    def write(self, text: str) -> None:
        """Write text and flush; escape characters that the stream cannot encode."""
        try:
            self.file.write(text)
            self.file.flush()
        except UnicodeEncodeError:
            encoding = self.file.encoding or "ascii"
            self.file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self.file.flush()


class ProgressLine:
    """A progress line that is redrawn in place. Streams other than a terminal do not show it.

    Call `draw` with a text, or `start` and then `tick` for a spinner with the elapsed time. Call
    `hide` before anything else is written to the same terminal.
    """

    def __init__(self, screen: Screen, *, wanted: bool = True) -> None:
        self.screen = screen
        self.is_on = wanted and screen.is_terminal and not screen.is_dumb
        self.label = ""
        self.tokens = 0
        self._started: float | None = None
        self._is_shown = False
        self._frame = 0

    def draw(self, text: str) -> None:
        """Show `text` in place of the current progress line; do nothing if `is_on` is false."""
        if self.is_on:
            text = one_line(text, self.screen.width - 1)
            self.screen.write("\r" + self.screen.paint(text, "dim") + "\x1b[K")
            self._is_shown = True

    def hide(self) -> None:
        """Erase the progress line, if it is shown; the next `draw` or `tick` shows it again."""
        if self._is_shown:
            self.screen.write("\r\x1b[K")
            self._is_shown = False

    def start(self, label: str) -> None:
        """Start the spinner and its clock; `tick` draws them."""
        self.label, self._started = label, time.monotonic()

    def stop(self) -> None:
        """Erase the line and stop the spinner."""
        self.hide()
        self._started = None

    def count(self, text: str) -> None:
        """Add the estimated tokens of a piece of a reply to the count that the spinner shows."""
        self.tokens += estimate_tokens(text)

    def tick(self) -> None:
        """Draw the next frame of the spinner, if `start` was called."""
        if not self.is_on or self._started is None:
            return
        self._frame += 1
        is_utf8 = (self.screen.file.encoding or "").lower().replace("-", "") == "utf8"
        frames = _FRAMES if is_utf8 else _ASCII_FRAMES
        elapsed = time.monotonic() - self._started
        text = f"{frames[self._frame % len(frames)]} {self.label} {elapsed:.0f} s"
        if self.tokens:
            text += f", {self.tokens:,} tokens"
        self.draw(text)


def is_terminal(file: TextIO) -> bool:
    """Return whether a stream is a terminal; a closed stream is not."""
    try:
        return file.isatty()
    except (ValueError, AttributeError, OSError):
        return False


def is_interactive() -> bool:
    """Return whether a user can be asked: both stdin and stderr are terminals."""
    return sys.stdin is not None and is_terminal(sys.stdin) and is_terminal(sys.stderr)

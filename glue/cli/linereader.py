"""The reader of prompts for a pipe, a dumb terminal, or a chat without the extra [chat]."""

from __future__ import annotations

import sys
from contextlib import suppress

from glue.cli.screen import Screen

QUOTES = '"""'  # begin and end a prompt of several lines


class LineReader:
    """A reader of plain lines, for a pipe, a dumb terminal, or a chat without the extra [chat]."""

    echoes_interrupt = True  # the terminal shows ^C at the prompt
    help = f"End a line with \\ to continue it; {QUOTES} begins and ends a prompt of several lines."

    def __init__(self, out: Screen) -> None:
        self.out = out
        self.is_terminal = sys.stdin.isatty() and out.is_terminal
        self.was_interrupted = False  # Ctrl-C was the last key
        self.draft = ""  # the text that the user edits next, if the reader can offer it
        if self.is_terminal and not out.is_dumb:
            with suppress(ImportError):  # not every Python has readline
                import readline  # importing it makes input() edit lines

                # A paste of several lines is then one prompt.
                readline.parse_and_bind("set enable-bracketed-paste on")

    def read(self) -> str:
        """Read one prompt, which may span lines; raise EOFError at the end of the input."""
        line = self._line("> ")
        self.was_interrupted = False
        if not line.strip().startswith(QUOTES):
            while line.endswith("\\"):
                line = line[:-1] + "\n" + self._line(". ")
            return line
        text = line.strip().removeprefix(QUOTES)
        while not text.rstrip().endswith(QUOTES):
            text += "\n" + self._line(". ")
        return text.rstrip().removesuffix(QUOTES).strip("\n")

    def _line(self, prompt: str) -> str:
        if not self.is_terminal:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\r\n")
        # The marks \x01 and \x02 tell readline which characters take no room.
        return input(f"\x01\x1b[36m\x02{prompt}\x01\x1b[0m\x02" if self.out.has_colour else prompt)

    def end(self) -> None:
        """Write a line end after the ^C that the terminal shows."""
        if self.is_terminal:
            self.out.write("\n")

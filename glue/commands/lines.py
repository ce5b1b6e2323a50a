"""Lines from the keyboard: edited, remembered, and joined where they go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from glue.config import state_home
from glue.terminal import Screen

MOST = 1000  # lines of history
QUOTES = '"""'


class Lines:
    """Reads what a user types. On a terminal with readline: editing and history; elsewhere plain lines."""

    def __init__(self, out: Screen) -> None:
        self.out = out
        self.is_terminal = sys.stdin.isatty() and out.is_terminal
        self._interrupted = False
        self._history: Path | None = None
        if self.is_terminal:
            self._start()

    def read(self) -> str:
        """Read one entry; it may span lines. EOFError at the end."""
        line = self.ask("> ")
        self._interrupted = False
        self._remember(line)
        if line.strip().startswith(QUOTES):
            return self._block(line.strip()[len(QUOTES) :])
        while line.endswith("\\"):
            line = line[:-1] + "\n" + self.ask(". ")
        return line

    def ask(self, prompt: str) -> str:
        """Read one line."""
        if not self.is_terminal:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\r\n")
        return input(self._painted(prompt))

    def interrupted(self) -> bool:
        """Note a Ctrl-C at the prompt; say whether it is the second in a row."""
        again, self._interrupted = self._interrupted, True
        self.end()
        return again

    def end(self) -> None:
        """Leave the line in which ^C stands."""
        if self.is_terminal:
            self.out.write("\n")

    def _block(self, first: str) -> str:
        lines = [first] if first else []
        if first.endswith(QUOTES):
            return first[: -len(QUOTES)]
        while True:
            line = self.ask(". ")
            if line.rstrip().endswith(QUOTES):
                rest = line.rstrip()[: -len(QUOTES)]
                return "\n".join((*lines, rest) if rest else lines)
            lines.append(line)

    def _painted(self, prompt: str) -> str:
        if not self.out.has_colour:
            return prompt
        # The marks tell readline what takes no room.
        return f"\x01\x1b[36m\x02{prompt}\x01\x1b[0m\x02"

    def _start(self) -> None:
        try:
            import readline
        except ImportError:  # a Python without it: plain lines
            return
        path = state_home() / "glue" / "chat_history"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                readline.read_history_file(path)
            readline.set_history_length(MOST)
            readline.set_auto_history(False)  # an answer to a question is none
        except OSError:
            return  # a history is a comfort; a chat works without
        self._history = path

    def _remember(self, line: str) -> None:
        if self._history is None or not line.strip():
            return
        import readline

        readline.add_history(line)
        try:
            if not self._history.exists():
                os.close(os.open(self._history, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.append_history_file(1, self._history)
        except OSError:
            self._history = None

"""Terminal of the chat with the extra [chat]: editing, history and completion; Markdown as it streams."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from markdown_it import MarkdownIt
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment

from glue import slash
from glue.cli.chat import LineReader
from glue.cli.options import complete_model
from glue.cli.output import Printer, Screen
from glue.paths import state_dir
from glue.text import clean_text

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])  # a tag is text, and is shown
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


class Editor(LineReader):
    """Reads prompts: several lines, history across sessions, completion, and a status line below."""

    echoes_interrupt = False
    help = "Alt-Enter begins a new line, a paste of many lines is one prompt, Tab completes commands and @FILE."

    def __init__(self, out: Screen, status: Callable[[], str], sessions: Callable[[], Iterable[str]]) -> None:
        self.out, self.is_terminal, self.was_interrupted = out, True, False
        keys = KeyBindings()
        keys.add("enter")(lambda event: event.current_buffer.validate_and_handle())
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=_Completer(sessions),
            complete_while_typing=False,
            key_bindings=keys,
            multiline=True,
            prompt_continuation=". ",
            bottom_toolbar=status,
            reserve_space_for_menu=4,
        )

    def read(self) -> str:
        """Read one prompt; EOFError at the end."""
        text = self._session.prompt(ANSI(self.out.paint("> ", "cyan")))
        self.was_interrupted = False
        return text


def _history() -> FileHistory | InMemoryHistory:
    path = state_dir() / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()  # a history is a comfort; a chat works without
    return FileHistory(str(path))


class _Completer(Completer):
    """Complete slash commands, their models and sessions, and files behind an @."""

    def __init__(self, sessions: Callable[[], Iterable[str]]) -> None:
        self._sessions = sessions
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: Any) -> Iterator[Completion]:
        text = document.text_before_cursor
        name, space, rest = text.partition(" ")
        word = text.split()[-1] if text and not text[-1].isspace() else ""
        if word.startswith("@"):
            inner = Document(word[1:], len(word) - 1)
            yield from self._paths.get_completions(inner, complete_event)
        elif text.startswith("/") and not space:
            for each in slash.COMMANDS:
                if each.name.startswith(name[1:]):
                    yield Completion(f"/{each.name}", -len(name), display_meta=each.help)
        elif name == "/model":
            yield from (Completion(each, -len(rest)) for each in complete_model(rest))
        elif name == "/resume":
            yield from (Completion(each, -len(rest)) for each in self._sessions() if each.startswith(rest))


class MarkdownPrinter(Printer):
    """A printer that renders Markdown: finished blocks once, the block under way again with each piece."""

    def __init__(self, out: Screen, err: Screen, **options: Any) -> None:
        super().__init__(out, err, **options)
        self.console = Console(file=out.file, highlight=False, no_color=not out.has_colour)
        self._pending = ""
        self._live: Live | None = None

    def text(self, text: str) -> None:
        self.spinner.hide()
        self._pending += clean_text(text)
        self.wrote = True
        done, self._pending = finished_blocks(self._pending)
        if done:
            self._erase()
            self.console.print(_Block(done))
            self.console.print()
        if self._pending.strip():
            if self._live is None:
                self._live = Live(
                    console=self.console,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start()
            self._live.update(_Block(self._pending, last=max(self.console.height - 4, 1)), refresh=True)

    def settle(self) -> None:
        """Print what is under way, for good."""
        self._erase()
        if self._pending.strip():
            self.console.print(_Block(self._pending))
        self._pending = ""
        super().settle()

    def _erase(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Block:
    """A piece of Markdown without blank lines around it; where `last` is given, only so many of its last lines."""

    def __init__(self, text: str, last: int = 0) -> None:
        self.inner = Markdown("", hyperlinks=False, code_theme="ansi_dark")
        self.inner.parsed = _PARSER.parse(text.strip("\n"))
        self.last = last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.inner, options.update(height=None), pad=False)
        while lines and not "".join(segment.text for segment in lines[-1]).strip():
            lines.pop()
        while lines and not "".join(segment.text for segment in lines[0]).strip():
            lines.pop(0)
        for line in lines[-self.last :]:
            yield from line
            yield Segment.line()


def finished_blocks(text: str) -> tuple[str, str]:
    """Part a text where its last block begins: after a blank line that stands in no fence."""
    at = end = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        at += len(line)
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
                fence = ""
        elif not line.strip() and not fence and line.endswith("\n"):
            end = at
    return text[:end], text[end:]

"""A prompt editor and a printer of Markdown, for chats in a terminal with the extra [chat]."""

from __future__ import annotations

import os
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
from glue.cli.linereader import LineReader
from glue.cli.options import complete_model
from glue.cli.printer import Printer
from glue.cli.screen import Screen
from glue.markdown import Fence
from glue.paths import state_dir
from glue.text import clean_text

# HTML tags are shown as text.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


class Editor(LineReader):
    """A prompt editor: several lines, history across sessions, completion, a status line below."""

    echoes_interrupt = False
    help = (
        "Alt-Enter begins a new line. A paste of several lines is one prompt. "
        "Ctrl-X Ctrl-E opens $EDITOR. Tab completes commands and @FILE."
    )

    def __init__(
        self, out: Screen, status: Callable[[], str], sessions: Callable[[], Iterable[str]]
    ) -> None:
        self.out, self.is_terminal, self.was_interrupted, self.draft = out, True, False, ""
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
            enable_open_in_editor=True,
            tempfile_suffix=".md",
        )

    def read(self) -> str:
        """Read one prompt; raise EOFError at the end of the input."""
        draft, self.draft = self.draft, ""
        text = self._session.prompt(ANSI(self.out.paint("> ", "cyan")), default=draft)
        self.was_interrupted = False
        return text


def _history() -> FileHistory | InMemoryHistory:
    path = state_dir() / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()  # a chat also works without a stored history
    return FileHistory(str(path))


class _Completer(Completer):
    """Completion of slash commands, models after /model, sessions after /resume, files after @."""

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
            sessions = (each for each in self._sessions() if each.startswith(rest))
            yield from (Completion(each, -len(rest)) for each in sessions)


class MarkdownPrinter(Printer):
    """A printer that renders Markdown while it streams.

    A finished block is printed once; the unfinished last block is redrawn with each piece of text.
    """

    def __init__(self, out: Screen, err: Screen, **options: Any) -> None:
        super().__init__(out, err, **options)
        self.console = Console(file=out.file, highlight=False, no_color=not out.has_colour)
        self._pending = ""
        self._live: Live | None = None

    def text(self, text: str) -> None:
        """Print the finished blocks of the answer, and redraw the unfinished last block."""
        self.progress.hide()
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
            visible = max(self.console.height - 4, 1)
            self._live.update(_Block(self._pending, last=visible), refresh=True)

    def settle(self) -> None:
        """Print the last block of the answer in its final form, and end an unfinished line."""
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
    """Markdown that rich renders without blank lines at its start and its end.

    If `last` is above 0, only the last `last` lines are rendered.
    """

    def __init__(self, text: str, last: int = 0) -> None:
        self.inner = Markdown("", hyperlinks=False, code_theme="ansi_dark")
        self.inner.parsed = _PARSER.parse(text.strip("\n"))
        for token in self.inner.parsed:
            for part in token.children or ():
                if part.type == "softbreak":  # keep line breaks, as in a poem
                    part.type = "hardbreak"
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
    """Split Markdown at the last blank line outside a code fence; return both parts.

    The first part has the finished blocks, the second the block that still grows.
    """
    at = end = 0
    fence = Fence()
    for line in text.splitlines(keepends=True):
        at += len(line)
        fence.read(line)
        if not line.strip() and not fence.mark and line.endswith("\n"):
            end = at
    return text[:end], text[end:]

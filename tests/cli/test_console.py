"""The terminal of the extra [chat]. test_chat.py tests the editor with keys typed into tmux."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from glue.cli.screen import Screen

pytest.importorskip("rich", reason="the extra [chat] is not installed")
pytest.importorskip("prompt_toolkit", reason="the extra [chat] is not installed")

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from glue.cli.console import MarkdownPrinter, _Completer, finished_blocks


@pytest.mark.parametrize(
    ("text", "finished", "rest"),
    [
        ("a paragraph", "", "a paragraph"),
        ("one\n\ntwo", "one\n\n", "two"),
        ("one\n\n", "one\n\n", ""),
        ("```\nx\n\ny", "", "```\nx\n\ny"),
        ("```\nx\n\ny\n```\n\nend", "```\nx\n\ny\n```\n\n", "end"),
    ],
)
def test_markdown_is_split_at_a_blank_line_outside_code(
    text: str, finished: str, rest: str
) -> None:
    assert finished_blocks(text) == (finished, rest)


def test_each_block_is_printed_once_and_html_is_text() -> None:
    out = io.StringIO()
    printer = MarkdownPrinter(Screen(out, {}), Screen(io.StringIO(), {}))

    for piece in ("**One** <b>", "tag</b>\n\nT", "wo"):
        printer.text(piece)
    printer.settle()

    assert out.getvalue().count("One <b>tag</b>") == 1
    assert out.getvalue().rstrip().endswith("Two")


def test_the_answer_of_the_next_prompt_is_printed_without_the_previous_one() -> None:
    out = io.StringIO()
    printer = MarkdownPrinter(Screen(out, {}), Screen(io.StringIO(), {}))

    for answer in ("One", "Two"):
        printer.text(answer)
        printer.settle()

    assert out.getvalue().split() == ["One", "Two"]


@pytest.mark.parametrize(
    "text", ["# Title\n\nend", "## Title\n\nend", "```\nTitle\n```\n\nend", "- Title\n\nend"]
)
def test_no_blank_line_precedes_an_answer_and_one_separates_its_blocks(text: str) -> None:
    out = io.StringIO()
    printer = MarkdownPrinter(Screen(out, {}), Screen(io.StringIO(), {}))

    printer.text(text)
    printer.settle()

    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines[0] != ""
    assert "Title" in "".join(lines[:2])
    assert lines[-2:] == ["", "end"]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


ENVIRON = {"TERM": "xterm", "NO_COLOR": "1"}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {**ENVIRON, "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    return Terminal()


def test_an_unfinished_block_is_shown_and_other_output_is_left_alone(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(terminal, ENVIRON)
    printer = MarkdownPrinter(screen, screen)

    printer.text("\n \n")
    blank = terminal.getvalue()
    printer.text("not finished")
    shown = terminal.getvalue()
    print("from a tool")
    print("its warning", file=sys.stderr)
    printer.settle()

    assert "not finished" not in blank
    assert "not finished" in shown
    assert capsys.readouterr() == ("from a tool\n", "its warning\n")
    assert "from a tool" not in terminal.getvalue()
    assert re.search(r"not finished *\n$", terminal.getvalue())


def test_the_spinner_is_erased_before_the_answer_is_drawn(terminal: Terminal) -> None:
    screen = Screen(terminal, ENVIRON)
    printer = MarkdownPrinter(screen, screen)
    printer.progress.start("thinking")
    printer.progress.tick()
    before = len(terminal.getvalue())

    printer.text("hello")

    assert "thinking 0 s" in terminal.getvalue()[:before]
    assert terminal.getvalue()[before:].startswith("\r\x1b[K")


def test_line_breaks_are_kept_and_only_the_end_of_a_long_block_is_redrawn(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "10")
    screen = Screen(terminal, ENVIRON)
    printer = MarkdownPrinter(screen, screen)

    printer.text("\n".join(f"line {number}" for number in range(20)))
    redrawn = terminal.getvalue()
    printer.settle()
    settled = terminal.getvalue()[len(redrawn) :]

    assert re.findall(r"line \d+(?= *(?:\n|$))", redrawn) == [
        f"line {each}" for each in range(14, 20)
    ]
    assert re.findall(r"line \d+", settled)[-20:] == [f"line {each}" for each in range(20)]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", []),
        ("/us", ["/usage"]),
        ("us", []),
        ("/us ", []),
        ("/model gro", ["groq"]),
        ("/resume ", ["notes", "plans"]),
        ("/resume pl", ["plans"]),
        ("/save pl", []),
        ("read @no", ["tes.txt"]),
        ("/model @no", ["tes.txt"]),
        ("read @no ", []),
        ("read no", []),
    ],
)
def test_commands_models_sessions_and_files_are_offered_for_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").touch()
    completer = _Completer(lambda: ["notes", "plans"])

    found = list(completer.get_completions(Document(typed), CompleteEvent()))

    assert [each.text for each in found] == offered

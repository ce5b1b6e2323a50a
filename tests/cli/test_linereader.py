"""The plain reader of prompts, with lines from a pipe. test_chat.py tests it in a terminal."""

from __future__ import annotations

import io
import sys
from types import ModuleType

import pytest

from glue.cli.linereader import LineReader
from glue.cli.screen import Screen


@pytest.mark.parametrize(
    ("typed", "prompts"),
    [
        ("one\ntwo\r\n", ["one", "two"]),
        ("first\\\nsecond\n", ["first\nsecond"]),
        ('"""\na\nb\n"""\nc\n', ["a\nb", "c"]),
        ('"""a\nb"""\n', ["a\nb"]),
    ],
)
def test_a_prompt_is_a_line_or_several_joined_lines(
    typed: str, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    reader = LineReader(Screen(io.StringIO(), {}))

    read = [reader.read() for _ in prompts]

    assert read == prompts
    with pytest.raises(EOFError):
        reader.read()


def test_an_unfinished_prompt_ends_with_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('"""\nnever closed\n'))
    reader = LineReader(Screen(io.StringIO(), {}))

    with pytest.raises(EOFError):
        reader.read()


def test_nothing_is_written_to_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n"))
    out = io.StringIO()
    reader = LineReader(Screen(out, {}))

    reader.read()
    reader.end()

    assert out.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "shown"), [(Terminal, True), (io.StringIO, False)])
@pytest.mark.parametrize("shown_on", [Terminal, io.StringIO])
def test_a_prompt_is_shown_only_if_input_and_output_are_terminals(
    typed: type[io.StringIO],
    shown: bool,
    shown_on: type[io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", typed("one\\\ntwo\n"))
    out = shown_on()
    reader = LineReader(Screen(out, {"TERM": "dumb"}))

    text = reader.read()
    reader.end()

    is_terminal = shown and shown_on is Terminal
    assert text == "one\ntwo"
    assert capsys.readouterr().out == ("> . " if is_terminal else "")
    assert out.getvalue() == ("\n" if is_terminal else "")
    with pytest.raises(EOFError):
        reader.read()


def test_a_prompt_that_is_read_ends_the_wait_for_a_second_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n"))
    reader = LineReader(Screen(io.StringIO(), {}))
    assert (reader.was_interrupted, reader.draft) == (False, "")

    reader.was_interrupted = True
    reader.read()

    assert reader.was_interrupted is False


@pytest.mark.parametrize(
    ("typed", "shown_on", "kind", "is_edited"),
    [
        (Terminal, Terminal, "xterm", True),
        (Terminal, Terminal, "dumb", False),
        (io.StringIO, Terminal, "xterm", False),
        (Terminal, io.StringIO, "xterm", False),
    ],
)
def test_lines_are_edited_only_in_a_terminal_that_can(
    typed: type[io.StringIO],
    shown_on: type[io.StringIO],
    kind: str,
    is_edited: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound: list[str] = []
    monkeypatch.setattr("sys.stdin", typed(""))
    monkeypatch.setitem(sys.modules, "readline", Readline(bound))

    LineReader(Screen(shown_on(), {"TERM": kind}))

    assert bound == (["set enable-bracketed-paste on"] if is_edited else [])


class Readline(ModuleType):
    """The module readline, which notes its settings."""

    def __init__(self, bound: list[str]) -> None:
        super().__init__("readline")
        self.parse_and_bind = bound.append


@pytest.mark.parametrize(
    ("environ", "prompt"),
    [
        ({"TERM": "xterm"}, "\x01\x1b[36m\x02> \x01\x1b[0m\x02"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "> "),
    ],
)
def test_the_colour_of_a_prompt_takes_no_room_for_readline(
    environ: dict[str, str],
    prompt: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("one\n"))
    monkeypatch.setitem(sys.modules, "readline", Readline([]))

    assert LineReader(Screen(Terminal(), environ)).read() == "one"
    assert capsys.readouterr().out == prompt

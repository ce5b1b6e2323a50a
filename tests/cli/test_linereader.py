"""The plain reader of prompts, with lines from a pipe. test_chat.py tests it in a terminal."""

from __future__ import annotations

import io

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

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

"""What reaches a terminal: harmless text, colours where they are wanted, a spinner that goes away."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.cli.output import Screen, Spinner, clean, one_line, seconds


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    for letter in clean(text):
        assert letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cs", "Zl", "Zp")
        assert letter not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@given(st.text("aB9 .,/\\\n\t\u00e4\u200d\u200f\u6f22\U0001f44d"))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_control_characters_are_shown() -> None:
    assert clean("a\x1b[2Jb\x07\r\nc\x9b\u202ed\x7f") == "a␛[2Jb␇\nc\\x9b\\u202ed␡"


@given(st.text(), st.integers(1, 40))
def test_one_line_is_one_line_of_the_width(text: str, width: int) -> None:
    line = one_line(text, width)

    assert len(line) <= width
    assert "\n" not in line


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_only_where_they_are_wanted(environ: dict[str, str], coloured: bool) -> None:
    assert Screen(Terminal(), environ).has_colour is coloured


def test_a_pipe_has_neither_colours_nor_a_spinner() -> None:
    file = io.StringIO()
    screen = Screen(file, {"TERM": "xterm"})
    spinner = Spinner(screen)

    spinner.start("thinking")
    spinner.tick()
    spinner.stop()
    screen.line("done", "red")

    assert file.getvalue() == "done\n"


def test_the_spinner_says_how_long_and_how_much_and_goes_away() -> None:
    file = Terminal()
    spinner = Spinner(Screen(file, {"TERM": "xterm", "NO_COLOR": "1"}))

    spinner.start("thinking")
    spinner.tokens = 1234
    spinner.tick()
    shown = file.getvalue()
    spinner.stop()
    spinner.tick()

    assert "thinking 0 s, 1,234 tokens" in shown
    assert file.getvalue() == shown + "\r\x1b[K"


def test_a_dumb_terminal_has_no_spinner() -> None:
    file = Terminal()
    spinner = Spinner(Screen(file, {"TERM": "dumb"}))

    spinner.start("thinking")
    spinner.tick()

    assert file.getvalue() == ""


def test_letters_that_an_output_cannot_show_are_escaped() -> None:
    raw = io.BytesIO()
    screen = Screen(io.TextIOWrapper(raw, encoding="ascii"), {})

    screen.line("✗ é")

    assert raw.getvalue() == b"\\u2717 \\xe9\n"


def test_seconds_are_short() -> None:
    assert [seconds(0.123), seconds(4.56), seconds(125)] == ["0.12 s", "4.6 s", "2 m 5 s"]

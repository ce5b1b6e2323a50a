"""What reaches a terminal: harmless text, colours where they are wanted, a spinner that goes away."""

from __future__ import annotations

import io

import pytest

from glue.cli.output import Screen, Spinner


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


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

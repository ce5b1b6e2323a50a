"""Screens and progress lines: colours, the spinner, and characters that cannot be encoded."""

from __future__ import annotations

import io

import pytest

from glue.cli.screen import ProgressLine, Screen


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
def test_colours_are_used_only_on_a_terminal_that_shows_them(
    environ: dict[str, str], coloured: bool
) -> None:
    assert Screen(Terminal(), environ).has_colour is coloured


def test_a_pipe_has_neither_colours_nor_a_spinner() -> None:
    file = io.StringIO()
    screen = Screen(file, {"TERM": "xterm"})
    spinner = ProgressLine(screen)

    spinner.start("thinking")
    spinner.tick()
    spinner.stop()
    screen.line("done", "red")

    assert file.getvalue() == "done\n"


def test_the_spinner_shows_time_and_tokens_until_it_is_stopped() -> None:
    file = Terminal()
    spinner = ProgressLine(Screen(file, {"TERM": "xterm", "NO_COLOR": "1"}))

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
    spinner = ProgressLine(Screen(file, {"TERM": "dumb"}))

    spinner.start("thinking")
    spinner.tick()

    assert file.getvalue() == ""


def test_characters_that_a_stream_cannot_encode_are_escaped() -> None:
    raw = io.BytesIO()
    screen = Screen(io.TextIOWrapper(raw, encoding="ascii"), {})

    screen.line("✗ é")

    assert raw.getvalue() == b"\\u2717 \\xe9\n"

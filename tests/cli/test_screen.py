"""Screens and progress lines: colours, the spinner, and characters that cannot be encoded."""

from __future__ import annotations

import io
import sys

import pytest

from glue.cli.screen import ProgressLine, Screen, is_terminal


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


class Latin(Terminal):
    encoding = "latin-1"


@pytest.mark.parametrize(
    ("kind", "frames"), [(Terminal, ["⠙ ", "⠹ ", "⠸ "]), (Latin, ["/ ", "- ", "\\ ", "| ", "/ "])]
)
def test_each_tick_draws_the_next_frame_in_characters_of_the_terminal(
    kind: type[Terminal], frames: list[str]
) -> None:
    file = kind()
    spinner = ProgressLine(Screen(file, {"TERM": "xterm", "NO_COLOR": "1"}))

    spinner.start("thinking")
    for _ in frames:
        spinner.tick()

    assert [line[:2] for line in file.getvalue().split("\r")[1:]] == frames
    assert spinner.tokens == 0
    assert "tokens" not in file.getvalue()


def test_a_progress_line_is_cut_before_the_last_column_and_erased_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    file = Terminal()
    line = ProgressLine(Screen(file, {"TERM": "xterm", "NO_COLOR": "1"}))

    line.hide()
    line.draw("x" * 30)
    line.hide()
    line.hide()

    assert file.getvalue() == "\r" + "x" * 18 + "…\x1b[K\r\x1b[K"


def test_an_unwanted_progress_line_is_not_drawn() -> None:
    file = Terminal()

    ProgressLine(Screen(file, {"TERM": "xterm"}), wanted=False).draw("text")

    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("colour", "code"),
    [("bold", 1), ("dim", 2), ("red", 31), ("green", 32), ("yellow", 33), ("cyan", 36)],
)
def test_a_forced_colour_is_used_in_a_pipe_too(colour: str, code: int) -> None:
    screen = Screen(io.StringIO(), {"FORCE_COLOR": "1"})

    assert screen.paint("text", colour) == f"\x1b[{code}m" + "text\x1b[0m"


def test_a_closed_stream_is_not_a_terminal() -> None:
    closed = io.StringIO()
    closed.close()

    assert [is_terminal(each) for each in (closed, Terminal())] == [False, True]


def test_a_screen_of_unknown_width_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", None)

    assert Screen(io.StringIO(), {}).width == 80

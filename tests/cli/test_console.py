"""The terminal of the extra [chat]. test_chat.py tests the editor with keys typed into tmux."""

from __future__ import annotations

import io

import pytest

from glue.cli.screen import Screen

pytest.importorskip("rich", reason="the extra [chat] is not installed")
pytest.importorskip("prompt_toolkit", reason="the extra [chat] is not installed")

from glue.cli.console import MarkdownPrinter, finished_blocks


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

"""Tests of the questions of MCP servers in the terminal."""

from __future__ import annotations

import io
import queue
import webbrowser
from collections.abc import Iterator
from typing import Any

import pytest

from glue.cli.elicitation import ask
from glue.cli.screen import Screen
from glue.tools import mcp

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Of the branch.", "minLength": 2},
        "count": {"type": "integer", "default": 3},
        "sure": {"type": "boolean"},
        "size": {"type": "string", "enum": ["small", "large"]},
    },
    "required": ["name", "sure"],
}


async def answered(question: mcp.Question, *lines: str) -> tuple[Any, str]:
    """Answer a question with typed lines; return the answer and the text on the terminal."""
    shown: list[str] = []
    typed: Iterator[str] = iter(lines)

    async def read_line(text: str) -> str:
        shown.append(text)
        return next(typed) + "\n"

    answer = await ask(question, read_line, Screen(io.StringIO()))
    return answer, "\n".join(shown)


async def test_a_form_is_asked_field_by_field() -> None:
    question = mcp.Question(server="git", message="Which branch?", schema=FORM)

    answer, shown = await answered(question, "main", "", "y", "large")

    assert answer == {"name": "main", "count": 3, "sure": True, "size": "large"}
    assert "git asks: Which branch?" in shown
    assert "small, large" in shown


async def test_a_wrong_answer_is_asked_again_and_a_dot_declines() -> None:
    question = mcp.Question(server="git", message="Which branch?", schema=FORM)

    fixed, shown = await answered(question, "x", "main", "many", "4", "n", "")
    declined, _ = await answered(question, "main", ".")
    tired, _ = await answered(question, "", "", "")

    assert fixed == {"name": "main", "count": 4, "sure": False}
    assert "at least 2 characters" in shown
    assert "expected an integer" in shown
    assert (declined, tired) == (None, None)


@pytest.mark.parametrize(("line", "is_opened"), [("y", True), ("n", False), ("", False)])
async def test_a_page_is_opened_only_after_a_yes_to_its_url_and_origin(
    line: str, is_opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(webbrowser, "open", opened.put)
    question = mcp.Question(
        server="pay", message="Sign in.", url="https://pаy.example/login?next=/", id="1"
    )

    answer, shown = await answered(question, line)

    assert (answer is not None) is is_opened
    if is_opened:
        assert opened.get(timeout=30) == question.url
    assert opened.empty()
    assert "page: https://pаy.example/login?next=/" in shown
    assert "at:   https://xn--py-7kc.example" in shown  # the letter а is Cyrillic

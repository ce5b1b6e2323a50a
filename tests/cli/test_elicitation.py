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


async def test_each_field_shows_its_label_description_choices_and_default() -> None:
    question = mcp.Question(server="git", message="Which branch?", schema=FORM)

    _, shown = await answered(question, "main", "", "", "y", "")

    assert shown.splitlines() == [
        "? git asks: Which branch?",
        "  (an empty line takes the default, a dot declines the question)",
        "  name: Of the branch.",
        "  name > ",
        "  count",
        "  count [3] > ",
        "  sure",
        "  sure [y/n] > ",
        "  this field needs an answer; a dot declines the question",
        "  sure [y/n] > ",
        "  size",
        "    small, large",
        "  size > ",
    ]


@pytest.mark.parametrize(
    ("field", "line", "value"),
    [
        ({"type": "boolean", "default": True}, "", True),
        ({"type": "boolean", "default": True}, "NO", False),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a, b,", ["a", "b"]),
        ({"type": "string", "oneOf": [{"const": "x", "title": "X"}]}, "x", "x"),
        ({"type": "string", "title": "Your name"}, "yes", "yes"),
        ({"type": "number"}, "1.5", 1.5),
    ],
)
async def test_a_typed_line_becomes_a_value_of_the_field(
    field: dict[str, Any], line: str, value: Any
) -> None:
    schema = {"type": "object", "properties": {"it": field}, "required": ["it"]}

    answer, _ = await answered(mcp.Question(server="s", message="?", schema=schema), line)

    assert answer == {"it": value}


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ({"type": "array", "items": {"enum": ["a", 2]}}, ["    a, 2"]),
        ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}}, ["    x"]),
        ({"type": "string", "oneOf": [{"const": "x"}, {"const": "y"}]}, ["    x, y"]),
        ({"type": "string", "items": {"enum": ["a"]}}, []),
    ],
)
async def test_the_choices_of_a_field_are_shown(field: dict[str, Any], choices: list[str]) -> None:
    schema = {"type": "object", "properties": {"it": field}}

    _, shown = await answered(mcp.Question(server="s", message="?", schema=schema), "")

    assert shown.splitlines()[2:] == ["  it", *choices, "  it > "]


@pytest.mark.parametrize(("line", "answer"), [("YES", {}), ("n", None), ("", None)])
async def test_a_question_without_fields_is_confirmed(line: str, answer: Any) -> None:
    question = mcp.Question(server="git", message="Go on?", schema={"type": "object"})

    assert await answered(question, line) == (
        answer,
        "? git asks: Go on?\n  [y]es, [n]o > ",
    )


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

"""Code spans, fenced code blocks and the detection of open fences."""

from __future__ import annotations

import pytest

from glue.markdown import Fence, backticks, code_block, code_span


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "`x = 1`"),
        ("a `b` c", "``a `b` c``"),
        ("`", "`` ` ``"),
        ("```", "```` ``` ````"),
    ],
)
def test_a_code_span_cannot_be_ended_by_its_text(text: str, expected: str) -> None:
    assert code_span(text) == expected


def test_a_code_block_cannot_be_ended_by_its_text() -> None:
    assert code_block("x = 1", "python") == "```python\nx = 1\n```"
    assert code_block("a\n```\nb") == "````\na\n```\nb\n````"


def test_a_delimiter_has_at_least_the_requested_number_of_backticks() -> None:
    assert backticks("plain") == "`"
    assert backticks("plain", least=3) == "```"


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("no fence", ""),
        ("```python\nx = 1", "```"),
        ("```python\nx = 1\n```", ""),
        ("~~~\n```\n", "~~~"),
        ("````\n```\n", "````"),
        ("```\n````\n", ""),
        ("```\n```python\n", "```"),
        ("```inline``` code", ""),
        ("  ```\n", "```"),
    ],
)
def test_a_fence_is_open_until_a_line_closes_it(text: str, mark: str) -> None:
    fence = Fence()

    for line in text.splitlines(keepends=True):
        fence.read(line)

    assert fence.mark == mark


@pytest.mark.parametrize(("text", "span"), [("`a", "`` `a ``"), ("a`", "`` a` ``"), ("a", "`a`")])
def test_a_backtick_at_one_end_is_separated_from_the_delimiter(text: str, span: str) -> None:
    assert code_span(text) == span

"""Inert Markdown, code and lines."""

from __future__ import annotations

import pytest

from glue.agents.review.delivery import clean
from glue.agents.review.findings.gate import hidden
from glue.text import clean_text


def test_prose_lists_bold_and_code_are_kept() -> None:
    text = (
        "The **cache** is shared:\n"
        "\n"
        "- call `load(name)` twice\n"
        "1. first\n"
        "\n"
        "```python\n"
        "x = load(1)\n"
        "```"
    )

    assert clean.markdown(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [docs](https://example.com/x)", "see docs"),
        ("![alt](https://example.com/x.png) here", "alt here"),
        ("ask @octocat", "ask @ octocat"),
        ("fixes #12", "fixes no. 12"),
        ("GH-12 and o/r#3", "GH 12 and o/r no. 3"),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("1 * 2 * 3", "1 \\* 2 \\* 3"),
        ("snake_case_name", "snake\\_case\\_name"),
        ("# Title", "**Title**"),
        ("/close", "/ close"),
        ("::error::x", "\\: :error::x"),
        ("text\n====\nmore", "text\n\nmore"),
        ("see app/main.py:12 there", "see app/`main.py:12` there"),
        ("at deadbeef1 it broke", "at `deadbeef1` it broke"),
        ("visit https://example.com/a?b=c now", "visit https: `example.com/a` now"),
        ("http://x.test instead of https://x.test", "http: `x.test` instead of https: `x.test`"),
        ("/usr/bin/x is missing", "/ usr/bin/x is missing"),
        ("visit https://user:pw@example.com/a.", "visit https: `example.com/a`."),
    ],
)
def test_links_mentions_references_and_commands_are_broken(text: str, expected: str) -> None:
    assert clean.markdown(text) == expected


def test_code_of_the_change_keeps_plain_html_tags() -> None:
    known = "+@app.get('/x')\n+<li>{{ name }}</li>"

    assert clean.code("@app.get('/x')", known) == "`@app.get('/x')`"
    assert clean.code("<li>{{ name }}</li>", known) == "`<li>{{ name }}</li>`"
    assert clean.code("@octocat") == "`@ octocat`"
    assert clean.code("@octocat", "+@octocat") == "`@ octocat`"
    assert clean.code("<img src=x>", "+<img src=x>") == "`< img src=x>`"
    assert clean.code("x@property", "x@property") == "`x@ property`"
    assert clean.code("<img src=x>") == "`< img src=x>`"
    assert clean.code("a[i](x) < b") == "`a[i] (x) < b`"


def test_backticks_cannot_end_a_code_span_or_fence() -> None:
    assert clean.code("a `b` c") == "``a `b` c``"
    assert clean.code("`") == "`` ` ``"
    assert clean.fence("a\n```\nb", "python") == "````python\na\n```\nb\n````"
    assert clean.fence("x", "mermaid").startswith("```\n")


def test_open_fence_is_closed() -> None:
    assert clean.markdown("look\n```js\nx()") == "look\n```js\nx()\n```"


def test_suggestion_block_written_by_a_model_becomes_plain_code() -> None:
    assert clean.markdown("```suggestion\nx = 1\n```") == "```\nx = 1\n```"


def test_invisible_characters_are_removed_and_counted() -> None:
    text = "a\u200bb\u202ec\x1b[0m\ufeff\U000e0041"

    assert clean_text(text, drop=True) == "abc[0m"
    assert hidden(text) == 5
    assert clean_text("tab\tand\r\nline\u2028end", drop=True) == "tab\tand\nline\nend"
    assert clean_text("naïve 日本語 emoji 🔴", drop=True) == "naïve 日本語 emoji 🔴"


def test_line_breaks_and_runner_commands_are_removed_from_a_line() -> None:
    assert clean.line("::error::x\nsecond ##[group]") == ": :error::x second # #[group]"
    assert clean.line("x" * 400, 10) == "xxxxxxxxx…"


def test_shortened_text_ends_at_a_line_and_closes_its_fence() -> None:
    text = "intro\n```python\n" + "x = 1\n" * 100 + "```\n"

    short = clean.shorten(text, 200)

    assert len(short) <= 200
    assert short.endswith("\n```\n… (shortened)")
    assert clean.shorten("short", 200) == "short"


def test_shortened_line_has_no_open_code_span() -> None:
    short = clean.shorten("word `code span` " * 40, 205)

    assert short.count("`") % 2 == 0
    assert len(short) <= 205


def test_plain_text_is_not_escaped() -> None:
    assert clean.plain("a < b, `x_y` and *z*") == "a < b, `x_y` and *z*"
    assert (
        clean.plain("see [docs](https://example.com) @bob <!-- x -->")
        == "see docs @ bob < !-- x -->"
    )


def test_decorator_in_a_code_span_is_not_changed() -> None:
    assert clean.markdown("The route `@app.route` and `@pytest.mark.skip` and `@dataclass`.") == (
        "The route `@app.route` and `@pytest.mark.skip` and `@dataclass`."
    )
    assert "@octocat" not in clean.markdown("`@octocat` agrees, and @octocat too.")


def test_span_that_ends_in_a_backslash_does_not_hide_an_open_span() -> None:
    text = "`a\\` and `bbbb " + "c" * 200

    assert clean.shorten(text, 80) == "`a\\` and\n… (shortened)"

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
        ("**a** 2 * 3 **b** 4 * 5", "**a** 2 \\* 3 **b** 4 \\* 5"),
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
    known = "+@app.get('/x')\n+<td>{{ name }}</td>"

    assert clean.code("@app.get('/x')", known) == "`@app.get('/x')`"
    assert clean.code("<td>{{ name }}</td>", known) == "`<td>{{ name }}</td>`"
    assert clean.code("@octocat") == "`@ octocat`"
    assert clean.code("@octocat", "+@octocat") == "`@ octocat`"
    assert clean.code("<img src=x>", "+<img src=x>") == "`< img src=x>`"
    assert clean.code("x@property", "x@property") == "`x@ property`"
    assert clean.code("<img src=x>") == "`< img src=x>`"
    assert clean.code("a[i](x) < b") == "`a[i] (x) < b`"


def test_each_line_of_a_fence_keeps_its_tags_only_if_the_change_has_it() -> None:
    block = clean.fence("<td>a</td>\n\n<td>b</td>", "html", "+<td>a</td>")

    assert block == "```html\n<td>a</td>\n\n< td>b< /td>\n```"


def test_characters_that_change_the_direction_of_text_are_removed_in_every_form() -> None:
    text = "a\u202eb"

    assert [form(text) for form in (clean.line, clean.plain, clean.prose, clean.markdown)] == [
        "ab"
    ] * 4
    assert clean.code(text) == "`ab`"
    assert clean.fence(text) == "```\nab\n```"


def test_backticks_cannot_end_a_code_span_or_fence() -> None:
    assert clean.code("a `b` c") == "``a `b` c``"
    assert clean.code("`") == "`` ` ``"
    assert clean.fence("a\n```\nb", "python") == "````python\na\n```\nb\n````"
    assert clean.fence("x", "mermaid").startswith("```\n")
    assert clean.fence("`" * 12) == f"{'`' * 9}\n{'`' * 8}\n{'`' * 9}"


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
    assert clean.line("x" * 301) == "x" * 299 + "…"


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


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(6, "abcdef"), (5, "abcd…"), (4, "ab…"), (2, "a…"), (1, "…"), (0, "…")],
)
def test_line_is_cut_to_its_limit(limit: int, expected: str) -> None:
    text = "abcdef" if limit != 4 else "ab cde"  # no space before the ellipsis

    assert clean.line(text, limit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```\nx = 1\n```\nafter it", "```\nx = 1\n```\nafter it"),
        ("~~~\nx = 1\n~~~\nafter it\nand more", "```\nx = 1\n```\nafter it\nand more"),
        ("before\n````\n```\n````\nafter", "before\n````\n```\n````\nafter"),
        ("```\n```\nafter an empty block", "after an empty block"),
        ("```py\na\n```\n```js\nb\n```", "```py\na\n```\n```js\nb\n```"),
        ("```\n\n\nx\n\n```", "```\nx\n```"),
    ],
)
def test_text_after_a_fenced_block_is_kept(text: str, expected: str) -> None:
    assert clean.markdown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "- a\n  - b\n    - c\n      - d\n        - e",
            "- a\n  - b\n    - c\n      - d\n      - e",
        ),
        ("* a\n + b", "- a\n- b"),
        ("\t- a", "    - a"),
        ("\t - a", "    - a"),
        ("\t\t- a", "      - a"),
        ("10. ten\n11) eleven", "10. ten\n11. eleven"),
        ("1234. four digits", "1234. four digits"),
        ("12345. five digits", "12345\\. five digits"),
        ("12345) five digits", "12345\\) five digits"),
        ("- 3) three", "- 3\\) three"),
        ("- 3. three", "- 3\\. three"),
        ("2026.", "2026\\."),
        ("3.5 times", "3.5 times"),
        ("- # no heading", "- \\# no heading"),
        ("+1 from me", "\\+1 from me"),
        ("-1 is wrong", "\\-1 is wrong"),
        ("= 2", "\\= 2"),
    ],
)
def test_lists_keep_their_depth_and_other_lines_do_not_become_lists(
    text: str, expected: str
) -> None:
    assert clean.markdown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One", "**One**"),
        ("###### Six ##", "**Six**"),
        ("####### seven", "\\####### seven"),
        ("#hashtag", "\\#hashtag"),
        ("# **bold** title", "**bold title**"),
        ("#  ", ""),
        ("a\n---\nb", "a\n\nb"),
        ("a\n* * *\nb", "a\n\nb"),
        ("a\n--\nb", "a\n\nb"),
    ],
)
def test_headings_become_bold_and_rules_are_left_out(text: str, expected: str) -> None:
    assert clean.markdown(text) == expected


def test_shortened_text_never_exceeds_its_limit() -> None:
    texts = (
        "word `code span` and more " * 20,
        "line one\nline two\n" * 20,
        "```python\n" + "x = compute(1)\n" * 20,
        "~~~~\n" + "y" * 300,
        "z" * 300,
    )

    for text in texts:
        assert all(len(clean.shorten(text, limit)) <= limit for limit in range(20, 240))


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abcdef", 6, "abcdef"),
        ("word " * 40, 60, "\n… (shortened)"),
        ("word " * 40, 71, "word word\n… (shortened)"),
        ("word " * 40, 70, "word word\n… (shortened)"),
        ("twelve chars\n" + "word " * 40, 90, "twelve chars\nword word word\n… (shortened)"),
        ("see `abcde`\n" + "word " * 40, 90, "see `abcde`\nword word word\n… (shortened)"),
        ("twelve chars\n`" + "word " * 40, 90, "twelve chars\n… (shortened)"),
        ("first line\nsecond line\n" * 9, 80, "first line\n… (shortened)"),
        ("a\n" + "word " * 40, 80, "a\nword word word\n… (shortened)"),
        ("fish &amp; chips and peas " * 9, 66, "fish\n… (shortened)"),
        ("open `code span that is long` " * 9, 80, "open\n… (shortened)"),
    ],
)
def test_text_is_shortened_at_a_line_or_else_at_a_word(
    text: str, limit: int, expected: str
) -> None:
    assert clean.shorten(text, limit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("javascript:alert(1)", "(javascript link removed)"),
        ("mailto:ann@x.test", "x.test"),
        ("https://", "https://"),
        ("https://...", "https://..."),
        ("https://%2e/x", "(link removed)"),
        ("https://www.x.test/a//b?q=1#f", "https: x.test/a/b"),
        ("ftp://x.test/f", "ftp: x.test/f"),
        ("git+ssh://x.test/f", "x.test/f"),
        ("//x.test/f", "x.test/f"),
        ("www.x.test.", "x.test."),
        ("https://ann:pw@x.test:8080/f!", "https: x.test:8080/f!"),
        (r"https:\\x.test\f", r"https: x.test\f"),
        ("https://x.test/" + "a" * 200, "https: x.test/" + "a" * 113),
    ],
)
def test_links_are_shown_as_host_and_path_that_nothing_opens(text: str, expected: str) -> None:
    assert clean.plain(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&#64;ann", "@ ann"),
        ("&amp;#64;ann", "@ ann"),
        ("&amp;amp;amp;#64;ann", "@ ann"),
        ("＠ann and ﹫bob", "@ ann and @ bob"),
        ("＃12", "no. 12"),
        ("!5 and %6 and $7 and &8", "! 5 and % 6 and $ 7 and & 8"),
        ("gh-7", "gh 7"),
        ("&lt;script&gt;", "< script>"),
        ("＜img src=x＞", "< img src=x>"),
        ("a <b or a<c", "a < b or a<c"),
        ("##[group]", "# #[group]"),
        ("a\n  ::warning::x", "a\n  : :warning::x"),
        ("> /approve", "> / approve"),
        ("1. /merge", "1. / merge"),
        ("[a [b](x)](y)", "a b"),
        ("[![i](x)](y)", "i"),
        ("[text][ref]\n[ref]: https://x.test", "text"),
    ],
)
def test_disguised_mentions_links_and_commands_are_broken(text: str, expected: str) -> None:
    assert clean.plain(text).strip() == expected


@pytest.mark.parametrize(
    ("code", "mentions"),
    [
        ("@octocat", True),
        ("x = 1  # ask @octocat", True),
        ("@app.route('/x')", False),
        ("@dataclass", False),
        ("@cache(maxsize=1)", False),
        ("@octo-cat", True),
        ("user@example", True),
        ("@property\n# @ann", True),
        ("a @ b", False),
        ("no sign", False),
    ],
)
def test_mention_in_code_is_told_from_a_decorator(code: str, mentions: bool) -> None:
    assert clean.has_mention(code) == mentions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fixes #12", "`fixes no. 12`"),
        ("Closes: o/r#12", "`Closes: o/rno. 12`"),
        ("x #12", "`x #12`"),
        ("![a](b)", "`! [a] (b)`"),
        ("// https://x.test/a", "`// https: x.test/a`"),
        ("//comment about it", "`//comment about it`"),
        ("javascript:x", "`(javascript link removed)`"),
        ("/approve", "`/ approve`"),
        ("`" * 12, "````````` ```````` `````````"),
        ("", ""),
        ("  \n ", ""),
    ],
)
def test_code_spans_are_inert(text: str, expected: str) -> None:
    assert clean.code(text) == expected


def test_prose_is_one_line_without_bold() -> None:
    assert clean.prose("a **b**\n- c") == "a b - c"
    assert clean.prose("/close it") == "/ close it"

"""Texts as HTML: Markdown, invisible characters, splitting of long texts."""

from __future__ import annotations

import pytest
from fakes.examples import examples
from fakes.transcripts import parse
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.view.html import brief, escape, prose, split

MARKDOWN = """\
# Title with `code`

Some **bold** and *slanted* text, snake_case_name and 2 * 3 * 4,
on two lines.

- one
  - inner
3. three

> quoted

| a | b |
| - | - |
| `1` | <b> |

[text](javascript:alert(1)) ![x](http://127.0.0.1:9/x) <script>
"""


def test_markdown_is_rendered_and_links_and_html_stay_text() -> None:
    html = prose(MARKDOWN)

    for piece in (
        "<h5>Title with <code>code</code></h5>",
        "Some <strong>bold</strong> and <em>slanted</em> text, snake_case_name and 2 * 3 * 4,",
        "2 * 3 * 4,\non two lines.",
        '<ul><li class="d0">one</li><li class="d1">inner</li></ul>',
        '</ul><ol><li class="d0" value="3">three</li></ol>',
        "<blockquote><p>quoted</p></blockquote>",
        "<th>a</th><th>b</th></tr></thead><tbody><tr><td><code>1</code></td><td>&lt;b&gt;</td>",
        "[text](javascript:alert(1)) ![x](http://127.0.0.1:9/x) &lt;script&gt;",
    ):
        assert piece in html
    assert "href" not in html
    assert "src=" not in html


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("| a |\n| - |", "<table><thead><tr><th>a</th></tr></thead><tbody></tbody></table>"),
        ("| a |", '<p class="text">| a |</p>'),
        ("| a |\n| b |", '<p class="text">| a |\n| b |</p>'),
        ("###### six", "<h5>six</h5>"),
        ("####### seven", '<p class="text">####### seven</p>'),
        ("# closed ##", "<h5>closed</h5>"),
        (
            "* a\n+ b\n2) c",
            (
                '<ul><li class="d0">a</li><li class="d0">b</li></ul>'
                '<ol><li class="d0" value="2">c</li></ol>'
            ),
        ),
        ("        - deep", '<ul><li class="d3">deep</li></ul>'),
        ("\t - tab", '<ul><li class="d2">tab</li></ul>'),
        ("> a\n>b", "<blockquote><p>a\nb</p></blockquote>"),
        (
            "_a_ *b* **c** `*d*`",
            '<p class="text"><em>a</em> <em>b</em> <strong>c</strong> <code>*d*</code></p>',
        ),
    ],
)
def test_one_block_of_markdown(markdown: str, html: str) -> None:
    assert prose(markdown) == f'<div class="prose" dir="auto">{html}</div>'


@pytest.mark.parametrize(
    ("text", "head", "rest"),
    [
        ("x" * 3_750, 3_750, 0),
        ("x" * 3_751, 3_000, 751),
        ("x\n" * 50, 100, 0),
        ("x\n" * 51, 80, 22),
        ("x" * 2_000 + "\n" + "y" * 3_000, 2_001, 3_000),
        ("x\n" * 40 + "y" * 3_000, 80, 3_000),
        ("x\n" * 39 + "y" * 3_000, 3_078, 0),
        ("x" * 1_000 + "\n" + "y" * 4_000, 3_000, 2_001),
    ],
)
def test_a_long_text_is_split_after_40_lines_or_3000_characters(
    text: str, head: int, rest: int
) -> None:
    assert tuple(map(len, split(text))) == (head, rest)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<a>\n b", "&lt;a&gt; b"),
        ("x" * 11, "x" * 9 + "…"),
        (" " * 39 + "x", "x"),
        (" " * 40 + "x", ""),
    ],
)
def test_a_title_is_one_line_of_the_beginning_of_a_text(text: str, shown: str) -> None:
    assert brief(text, 10) == shown


def test_code_is_shown_as_code_also_if_its_fence_is_not_closed() -> None:
    code = '<pre class="code" dir="auto">\nx &lt; 1</pre>'

    assert prose("```py\nx < 1\n```") == code
    assert prose("~~~\nx < 1") == code


@given(st.text(alphabet=st.sampled_from("*_`#>-|1. \n<&a~[]()!"), max_size=60))
@settings(max_examples=examples(200), deadline=None)
def test_any_markdown_keeps_every_letter_and_closes_every_tag(text: str) -> None:
    parsed = parse(prose(text))

    assert parsed.stack == []
    assert sorted(char for char in "".join(parsed.text) if char == "a") == sorted(
        char for char in text if char == "a"
    )
    assert "".join(parsed.text).count("<") == text.count("<")


@given(st.text(max_size=300).map(lambda text: text * 40) | st.text(alphabet="ab\n", max_size=9_000))
@settings(max_examples=60, deadline=None)
def test_splitting_a_long_text_loses_nothing(text: str) -> None:
    head, rest = split(text)

    assert head + rest == text
    assert bool(head) == bool(text)


def test_invisible_characters_are_made_visible() -> None:
    assert (
        escape("a\x1b[31m\u202eb\x7f\u200b\ud800\r\n\tc") == "a␛[31m⟨U+202E⟩b␡⟨U+200B⟩⟨U+D800⟩\n\tc"
    )


def test_joiners_of_scripts_and_emoji_are_kept() -> None:
    assert escape("\U0001f469\u200d\U0001f4bb\u200c") == "\U0001f469\u200d\U0001f4bb\u200c"

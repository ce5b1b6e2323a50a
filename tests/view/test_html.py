"""Texts as HTML: Markdown, invisible characters, splitting of long texts."""

from __future__ import annotations

from fakes.transcripts import parse
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.view.html import escape, prose, split

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


@given(st.text(alphabet=st.sampled_from("*_`#>-|1. \n<&a~[]()!"), max_size=60))
@settings(max_examples=200, deadline=None)
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

"""Texts as safe HTML: Markdown is rendered, other text is escaped, and long texts are folded."""

from __future__ import annotations

import html
import re
from itertools import groupby

from glue.text import clean_text, one_line

HEAD = 3_000  # characters of a long text that are shown before it is unfolded
LINES = 40  # lines of a long text that are shown before it is unfolded
_FENCE = re.compile(r"^ {0,3}(```|~~~)[^\n]*\n?", re.MULTILINE)
_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_MARKS = (
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=[^\s*])\*(?![\w*])"), r"<em>\1</em>"),
    (re.compile(r"(?<!\w)_(?=[^\s_])([^_]+?)(?<=[^\s_])_(?!\w)"), r"<em>\1</em>"),
)
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.+?)\s*#*\s*")
_ITEM = re.compile(r"(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)")
_ROW = re.compile(r"\s*\|.*\|\s*")
_RULE = re.compile(r"\s*\|(\s*:?-+:?\s*\|)+\s*")


def escape(text: object) -> str:
    """Escape a text so that it is safe between HTML tags and in quoted attributes."""
    return html.escape(clean_text(str(text)), quote=True)


def brief(text: str, width: int) -> str:
    """Return a text as one line that is cut to `width` columns and then escaped for HTML."""
    return escape(one_line(text[: width * 4], width))


def split(text: str) -> tuple[str, str]:
    """Split a long text into the part that is shown at once and the folded rest; "" for no rest."""
    cut = min(len(text), HEAD)
    breaks = [match.end() for match in re.finditer("\n", text[:cut])]
    if len(breaks) >= LINES:
        cut = breaks[LINES - 1]
    if len(text) - cut <= HEAD // 4 and text.count("\n", cut) <= LINES // 4:
        return text, ""  # too little to fold
    line = text.rfind("\n", cut // 2, cut) + 1
    cut = line or cut
    return text[:cut], text[cut:]


def prose(text: str) -> str:
    """Return the HTML of a Markdown text, with all but the start of a long text folded.

    Links and HTML tags are not rendered; they are shown as text.
    """
    head, rest = split(text)
    fenced = len(_FENCE.findall(head)) % 2 == 1
    return _fenced(head, False) + _rest(len(text), _fenced(rest, fenced))


def _fenced(text: str, inside: bool) -> str:
    """Return the HTML of Markdown with fenced code. `inside`: the text begins within a fence."""
    out = []
    for piece in _FENCE.split(text)[::2]:
        if piece.strip():
            out.append(_pre(piece.strip("\n"), "code") if inside else _blocks(piece.strip("\n")))
        inside = not inside
    return "".join(out)


def _blocks(text: str) -> str:
    """Return the HTML of headings, lists, quotes, tables and paragraphs with their line breaks."""
    out: list[str] = []
    for kind, lines in groupby(text.split("\n"), _kind):
        rows = list(lines)
        if kind == "heading":
            out += [f"<h5>{_inline(_HEADING.fullmatch(row)[2])}</h5>" for row in rows]  # type: ignore[index]
        elif kind in ("ul", "ol"):
            out.append(f"<{kind}>{''.join(map(_item, rows))}</{kind}>")
        elif kind == "quote":
            inner = "\n".join(row.lstrip()[1:].removeprefix(" ") for row in rows)
            out.append(f"<blockquote><p>{_inline(inner)}</p></blockquote>")
        elif kind == "table":
            out.append(_table(rows))
        elif kind == "text":
            out.append(f'<p class="text">{_inline(chr(10).join(rows))}</p>')
    return f'<div class="prose" dir="auto">{"".join(out)}</div>'


def _kind(line: str) -> str:
    """Return the kind of Markdown block that a line belongs to; "" for a blank line."""
    if not line.strip():
        return ""
    if _HEADING.fullmatch(line):
        return "heading"
    if item := _ITEM.fullmatch(line):
        return "ul" if item[2] else "ol"
    if line.lstrip().startswith(">"):
        return "quote"
    return "table" if _ROW.fullmatch(line) else "text"


def _item(row: str) -> str:
    indent, _, number, text = _ITEM.fullmatch(row).groups()  # type: ignore[union-attr]
    depth = min(len(indent.expandtabs(4)) // 2, 3)
    place = f' value="{int(number)}"' if number else ""
    return f'<li class="d{depth}"{place}>{_inline(text)}</li>'


def _table(rows: list[str]) -> str:
    if len(rows) < 2 or not _RULE.fullmatch(rows[1]):
        return f'<p class="text">{_inline(chr(10).join(rows))}</p>'
    head = _cells(rows[0], "th")
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows[2:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: str, tag: str) -> str:
    cells = row.strip().strip("|").split("|")
    return "".join(f"<{tag}>{_inline(cell.strip())}</{tag}>" for cell in cells)


def _inline(text: str) -> str:
    """Escape a text, render its Markdown for code, bold and italics, and return the HTML."""
    out, at = [], 0
    for span in _SPAN.finditer(text):
        out += [_marked(text[at : span.start()]), f"<code>{escape(span[2])}</code>"]
        at = span.end()
    return "".join((*out, _marked(text[at:])))


def _marked(text: str) -> str:
    """Escape a text without code spans, render its bold and italics, and return the HTML."""
    text = escape(text)
    for pattern, tags in _MARKS:
        text = pattern.sub(tags, text)
    return text


def literal(text: str) -> str:
    """Return HTML that shows a text unchanged, not as Markdown; a long text is partly folded."""
    if not text:
        return '<p class="none">empty</p>'
    head, rest = split(text)
    return _pre(head, "raw") + _rest(len(text), _pre(rest, "raw") if rest else "")


def _pre(text: str, kind: str) -> str:
    # Browsers drop a line break right after <pre>, so one is added for a text that begins with it.
    return f'<pre class="{kind}" dir="auto">\n{escape(text)}</pre>'


def _rest(size: int, body: str) -> str:
    """Return HTML that folds `body` under "show all N characters", or "" if `body` is empty.

    N is `size`, the length of the whole text.
    """
    return fold("rest", f"show all {size:,} characters", body) if body else ""


def fold(kind: str, title: str, body: str) -> str:
    """Return HTML that shows `title`, and hides `body` until the user unfolds it."""
    return f'<details class="{kind}"><summary>{title}</summary>{body}</details>'

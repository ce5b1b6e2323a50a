"""Text as HTML: escaped, nothing in it hidden or obeyed, long ones folded."""

from __future__ import annotations

import html
import re

from glue.text import clean_text, one_line

HEAD = 3_000  # characters and lines that are shown of a long text
LINES = 40
_FENCE = re.compile(r"^ {0,3}(```|~~~)[^\n]*\n?", re.MULTILINE)


def escape(text: object) -> str:
    """Make text safe between tags and in quoted attributes."""
    return html.escape(clean_text(str(text)), quote=True)


def brief(text: str, width: int) -> str:
    """Put a text on one line of at most `width` characters, escaped."""
    return escape(one_line(text[: width * 4], width))


def split(text: str) -> tuple[str, str]:
    """Part a long text into what is shown at once and the rest."""
    cut = min(len(text), HEAD)
    for number, match in enumerate(re.finditer("\n", text[:cut]), 1):
        if number == LINES:
            cut = match.end()
            break
    if len(text) - cut <= HEAD // 4 and text.count("\n", cut) <= LINES // 4:
        return text, ""  # nobody folds away three lines
    line = text.rfind("\n", cut // 2, cut) + 1
    cut = line or cut
    return text[:cut], text[cut:]


def prose(text: str) -> str:
    """Show what was said: plain text, with fenced code set apart."""
    head, rest = split(text)
    fenced = len(_FENCE.findall(head)) % 2 == 1
    return _fenced(head, False) + _rest(len(text), _fenced(rest, fenced) if rest else "")


def _fenced(text: str, inside: bool) -> str:
    out = []
    for piece in _FENCE.split(text)[::2]:
        if piece.strip():
            out.append(_pre(piece.strip("\n"), "code" if inside else "text"))
        inside = not inside
    return "".join(out)


def literal(text: str) -> str:
    """Show a text exactly, the rest of a long one behind "show all"."""
    if not text:
        return '<p class="none">empty</p>'
    head, rest = split(text)
    return _pre(head, "raw") + _rest(len(text), _pre(rest, "raw") if rest else "")


def _pre(text: str, kind: str) -> str:
    return f'<pre class="{kind}" dir="auto">\n{escape(text)}</pre>'  # HTML drops a line end right after <pre>


def _rest(size: int, body: str) -> str:
    return f'<details class="rest"><summary>show all {size:,} characters</summary>{body}</details>' if body else ""


def fold(kind: str, title: str, body: str) -> str:
    return f'<details class="{kind}"><summary>{title}</summary>{body}</details>'

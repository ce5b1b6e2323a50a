"""Text of strangers made harmless: nothing in it is markup, hidden, or able to turn the reading direction."""

from __future__ import annotations

import html
import re

from glue.text import clean_text, one_line

HEAD = 3_000  # characters and lines that are shown of a long text
LINES = 40


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

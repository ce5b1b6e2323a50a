"""Text of strangers made harmless: nothing in it is markup, hidden, or able to turn the reading direction."""

from __future__ import annotations

import html
import re

# Line ends, tabs and the joiners that scripts and emoji need stay; all else that cannot be seen is shown.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_NAMES = {"\x00": "NUL", "\x08": "BS", "\r": "CR", "\x1b": "ESC", "\x7f": "DEL"}
HEAD = 3_000  # characters and lines that are shown of a long text
LINES = 40


def visible(text: str) -> str:
    """Show control and invisible characters instead of obeying them."""
    text = text.replace("\r\n", "\n")
    return _HIDDEN.sub(_picture, text) if _HIDDEN.search(text) else text


def _picture(match: re.Match[str]) -> str:
    return f"⟨{_NAMES.get(match[0]) or f'U+{ord(match[0]):04X}'}⟩"


def escape(text: object) -> str:
    """Make text safe between tags and in quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def one_line(text: str, width: int) -> str:
    """Put a text on one line of at most `width` characters, escaped."""
    short = " ".join(text[: width * 4].split())
    return escape(short if len(short) <= width else short[: width - 1] + "…")


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


def seconds(value: float) -> str:
    """Say a length of time as people do."""
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def dollars(value: float) -> str:
    if 0 < value < 0.0001:
        return "under $0.0001"
    return f"${value:.4f}" if value < 1 else f"${value:,.2f}"


def count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"

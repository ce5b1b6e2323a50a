"""Text made fit to print: control and invisible characters are shown or dropped, lengths and sums are written out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glue.messages import Usage

_TURNS = "\u202a-\u202e\u2066-\u2069"  # the reading direction of what follows
_MARKS = "\u061c\u200e\u200f"  # of direction, which prose in Hebrew and Arabic needs
_TAGS = "\U000e0000-\U000e007f"  # a second alphabet that nobody sees
_NOTHING = "\u180e\u2060-\u2065\u206a-\u206f\ufeff"  # no width, no use in any script
# Khmer, Thai, Lao and Burmese part words with a zero-width space, other scripts and emoji need joiners; only beside
# ASCII do they hide something.
_JOINS = "(?<=[\x21-\x7e])[\u200b-\u200d\u00ad]+(?=[\x21-\x7e])|[\u200b\u00ad]{3,}"
# What can make a line of code another than the one that people read, by what it is called. Marks of direction are among
# it; `clean_text` leaves them, for it prints prose.
HIDDEN_CHARACTERS: Mapping[str, re.Pattern[str]] = {
    "bidirectional controls": re.compile(f"[{_TURNS}{_MARKS}]"),
    "tag characters": re.compile(f"[{_TAGS}]"),
    "zero-width characters": re.compile(f"[{_NOTHING}]|{_JOINS}"),
}
# What moves a cursor, changes a title, turns the reading direction or cannot be seen. Line ends and tabs stay, and so
# do the joiners and marks that scripts and emoji need.
_HIDDEN = re.compile(
    f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\ufff9-\uffff\ud800-\udfff{_TURNS}{_TAGS}{_NOTHING}]"
)
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc")  # letters and marks that show nothing


def clean_text(text: str, *, drop: bool = False) -> str:
    """Show control and invisible characters instead of obeying them; `drop` leaves them out, blank letters too."""
    if drop:
        return _dropped(text)
    return _HIDDEN.sub(_picture, text.replace("\r\n", "\n")) if _HIDDEN.search(text) else text


def one_line(text: str, width: int = 0, *, drop: bool = False) -> str:
    """Put a text on one line, harmless and no longer than `width`."""
    text = " ".join(clean_text(" ".join(text.split()), drop=drop).split())
    return cut(text, width) if width else text


def cut(text: str, width: int) -> str:
    """Shorten a text to so many columns of a terminal; wide letters take two."""
    if len(text) <= width and (text.isascii() or columns(text) <= width):
        return text
    text = text[: max(width - 1, 0)]
    while not text.isascii() and columns(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def columns(text: str) -> int:
    """Say how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 0 if combining(char) else 1 for char in text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the pictures of control characters
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def _dropped(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    if text.isascii() and text.isprintable():
        return text
    import unicodedata

    kept: list[str] = []
    marks = 0
    for char in text:
        if char < "\x7f":
            marks = 0
            if char >= " " or char in "\n\t":
                kept.append(char)
            continue
        kind = unicodedata.category(char)
        if kind[0] == "C" or char in _BLANK or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
            continue
        if kind == "Zs":
            char = " "
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        if marks <= 3:  # a letter with dozens of marks paints over the lines around it
            kept.append(char)
    return "".join(kept)


_MEANT = {
    "timeout": "seconds",
    "max_cost": "usd_budget",
    "budget": "usd_budget",
    "system": "instructions",
    "system_prompt": "instructions",
    "effort": "reasoning",
}


def suggest(name: str, known: Iterable[str]) -> str:
    """Say which name was meant, or which there are."""
    from difflib import get_close_matches

    names = sorted(known)
    words = {"_".join(sorted(each.split("_"))): each for each in names}  # budget_usd is usd_budget
    meant = _MEANT.get(name) or words.get("_".join(sorted(name.split("_"))))
    close = [meant] if meant in names else get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"


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
    """Say a sum of money as people write it."""
    if 0 < value < 0.0001:
        return "under $0.0001"
    return f"${value:.4f}" if value < 1 else f"${value:,.2f}"


def cost_text(cost: float | None) -> str:
    return "cost unknown" if cost is None else dollars(cost)


def usage_text(usage: Usage) -> str:
    """Say how many tokens were used."""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    thought = f" ({usage.reasoning:,} thinking)" if usage.reasoning else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out{thought}"


def count(number: int, one: str, many: str = "") -> str:
    """Say how many there are: 1 file, 2 files."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"

"""Text for people: remove control characters, shorten, format numbers, suggest names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glue.messages import Usage

TURNS = "\u202a-\u202e\u2066-\u2069"  # change the reading direction
MARKS = "\u061c\u200e\u200f"  # direction marks, which Hebrew and Arabic prose needs
TAGS = "\U000e0000-\U000e007f"  # an invisible copy of ASCII
NOTHING = "\u180e\u2060-\u2065\u206a-\u206f\ufeff"  # zero-width, and not needed by any script
# Characters that move the cursor, change the title of a terminal, change the reading direction or
# are invisible. Line ends, tabs, and the joiners and marks that scripts and emoji need are kept.
# The patterns are compiled at their first use, to keep `import glue` fast.
_HIDDEN = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\ufff9-\uffff\ud800-\udfff"
    f"{TURNS}{TAGS}{NOTHING}]"
)
_VARIANT = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"  # invisible variation selectors
# Letters and marks that are blank.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc")


def clean_text(text: str, *, drop: bool = False) -> str:
    """Replace control and invisible characters with visible symbols, or drop them if `drop`.

    >>> clean_text("red\\x1b[31m")
    'red␛[31m'
    """
    if drop:
        return _dropped(text)
    if text.isascii() and text.isprintable():
        return text
    if re.search(_HIDDEN, text) is None:
        return text
    return re.sub(_HIDDEN, _picture, text.replace("\r\n", "\n"))


def one_line(text: str, width: int = 0, *, drop: bool = False) -> str:
    """Return a text on one line, without control characters, and cut to `width` columns.

    If `width` is 0, the text is not cut. `clean_text` replaces the control and invisible
    characters, or drops them if `drop`.
    """
    text = " ".join(clean_text(" ".join(text.split()), drop=drop).split())
    return cut(text, width) if width else text


def cut(text: str, width: int) -> str:
    """Return a text cut to `width` columns of a terminal. Wide characters take two columns."""
    if len(text) <= width and (text.isascii() or columns(text) <= width):
        return text
    text = text[: max(width - 1, 0)]
    while not text.isascii() and columns(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def columns(text: str) -> int:
    """Return the number of columns that a text occupies in a terminal."""
    if text.isascii():
        return len(text)
    # Start-up: a library of a megabyte, which most runs do without.
    from unicodedata import combining, east_asian_width

    return sum(
        2 if east_asian_width(char) in "WF" else 0 if combining(char) else 1 for char in text
    )


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the symbol of the control character
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def _dropped(text: str) -> str:
    """Return the text without control characters, invisible characters and excessive marks.

    A letter keeps its first three marks. Tabs are kept, line ends become newlines, and all other
    kinds of spaces become plain spaces.
    """
    text = re.sub("\r\n|[\r\u2028\u2029]", "\n", text)
    if text.isascii() and text.isprintable():
        return text
    from unicodedata import category  # start-up: see `columns`

    kept: list[str] = []
    marks = 0
    for char in text:
        if char < "\x7f":
            marks = 0
            if char >= " " or char in "\n\t":
                kept.append(char)
            continue
        kind = category(char)
        if kind[0] == "C" or char in _BLANK or re.match(_VARIANT, char):
            continue
        if kind == "Zs":
            char = " "
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        if marks <= 3:  # a letter with dozens of marks covers the lines around it
            kept.append(char)
    return "".join(kept)


# Names that users often write by mistake, and the right names.
_MEANT = {
    "timeout": "seconds",
    "max_cost": "usd_budget",
    "budget": "usd_budget",
    "system": "instructions",
    "system_prompt": "instructions",
    "effort": "reasoning",
}


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar known name, or all known names."""
    from difflib import get_close_matches  # slow to load, and only needed for an error message

    names = sorted(known)
    by_words = {_sorted_words(each): each for each in names}  # finds usd_budget for budget_usd
    swapped = next((each for each in names if sorted(each) == sorted(name)), None)  # mpa for map
    meant = _MEANT.get(name) or by_words.get(_sorted_words(name)) or swapped
    close = [meant] if meant in names else get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"


def _sorted_words(name: str) -> str:
    return "_".join(sorted(name.split("_")))


def format_seconds(value: float) -> str:
    """Return a duration in readable units, such as "850 ms", "3.2 s" or "2 h 5 m"."""
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


def format_dollars(value: float) -> str:
    """Return an amount of dollars as text, such as "$1,234.50", or "$0.0031" below one dollar."""
    if 0 < value < 0.0001:
        return "under $0.0001"
    return f"${value:.4f}" if value < 1 else f"${value:,.2f}"


def cost_text(cost: float | None) -> str:
    """Return a cost in dollars as text, or "cost unknown" if it is None."""
    return "cost unknown" if cost is None else format_dollars(cost)


def usage_text(usage: Usage) -> str:
    """Return the token counts of a usage as text, such as "1,200 tokens in, 80 out"."""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    thought = f" ({usage.reasoning:,} thinking)" if usage.reasoning else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out{thought}"


def file_name(name: str) -> str:
    """Return `name` as a file name: characters except letters, digits and "_-." become "-".

    >>> file_name("openai:gpt-5.4 nano")
    'openai-gpt-5.4-nano'
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "x"


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun in the right form: "1 file", "2 files"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"

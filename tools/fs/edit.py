"""Replace a piece of text that a model quoted more or less exactly.

The rungs of the ladder are tried in order; the first one with a match decides. Text is edited in place:
what lies outside the match keeps its bytes, line ends included.
"""

from __future__ import annotations

import codecs
import difflib
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, islice

from glue.errors import ToolError

SHOWN = 40  # lines of an echo
SIMILAR = 0.6  # how much of the middle must agree where only the anchors fit
QUOTES = str.maketrans("“”„‟«»‘’‚‛′″–—‒―−‐‑\u00a0\u2009\u202f", '""""""\'\'\'\'\'"-------   ')
ESCAPES = {"n": "\n", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\", "`": "`", "$": "$", "/": "/"}

MAX_PAIRS = 500  # of anchors that are looked at
MAX_LINES = 500_000  # of a file that is matched line by line
MAX_PLACES = 10_000
MAX_QUOTE = 1024 * 1024

Span = tuple[int, int, str]  # from, to, and what goes there


@dataclass(frozen=True, slots=True)
class Edit:
    """A text with its replacements made."""

    content: bytes
    rung: str
    count: int
    echo: str


class _Text:
    """A file's text, and its lines where they are asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def starts(self) -> array[int]:
        """Where each line starts; packed, for a file may be all line ends."""
        return array("I", accumulate((len(line) + 1 for line in self.lines[:-1]), initial=0))

    def may_hold(self, old: str) -> bool:
        """Say at little cost whether lines of a quote can be there at all; and whether there are not too many."""
        lines = {line.strip() for line in _lines(old)[:50]}
        if not any(lines) or self.text.count("\n") > MAX_LINES:
            return False
        return all(line in self.text for line in lines)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """From the start of one line to the end of another, its line end not included."""
        return self.starts[first], self.starts[last] + len(self.lines[last])

    def line_at(self, position: int) -> int:
        return bisect_left(self.starts, position + 1) - 1


def edit(content: bytes, old: str, new: str, *, replace_all: bool = False) -> Edit:
    """Replace `old` by `new`; an ambiguous match is an error that shows where the candidates are."""
    if not old:
        raise ToolError("old is empty; quote the text to be replaced, or use write_file")
    if len(old) > MAX_QUOTE:
        raise ToolError(f"old is {len(old)} characters long; quote at most {MAX_QUOTE}")
    decoded, encode = _decode(content)
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old == new:
        raise ToolError("old and new are the same; nothing to do")
    # Matching goes by "\n"; positions are carried back to the text as it is.
    flat = _Text(decoded.replace("\r\n", "\n"))
    for rung, match in LADDER:
        spans = match(flat, old, new)
        if not spans:
            continue
        spans = list(_apart(spans))
        if len(spans) > 1 and not replace_all:
            raise ToolError(_ambiguous(flat, spans, rung))
        text, lines = _apply(decoded, flat, spans)
        return Edit(encode(text), rung, len(spans), _echo(text, lines))
    raise ToolError(_nothing(flat, old))


# The ladder ------------------------------------------------------------------------------------------


def _exact(flat: _Text, old: str, new: str) -> list[Span]:
    return [(at, at + len(old), new) for at in _finds(flat.text, old)]


def _trailing(flat: _Text, old: str, new: str) -> list[Span]:
    """Whole lines that agree but for white space at their ends."""
    if not flat.may_hold(old):
        return []
    return [(*span, _cut(new, old)) for span in _whole_lines(flat, old, str.rstrip)]


def _indented(flat: _Text, old: str, new: str) -> list[Span]:
    """Whole lines that agree but for their indentation; the replacement takes on the file's."""
    if not flat.may_hold(old):
        return []
    spans = []
    for start, end in _whole_lines(flat, old, str.strip):
        first, last = flat.line_at(start), flat.line_at(end)
        spans.append((start, end, _reindent(_cut(new, old), _lines(old), flat.lines[first : last + 1])))
    return spans


def _typographic(flat: _Text, old: str, new: str) -> list[Span]:
    """Quotes, dashes and spaces that a printer would tell apart; what did not change keeps its own."""
    plain_old, plain_new = old.translate(QUOTES), new.translate(QUOTES)
    head = _common(plain_old, plain_new)
    tail = _common(plain_old[head:][::-1], plain_new[head:][::-1])
    spans = []
    for at in _finds(flat.text.translate(QUOTES), plain_old):
        end = at + len(old)
        middle = new[head : len(new) - tail]
        spans.append((at, end, flat.text[at : at + head] + middle + flat.text[end - tail : end]))
    return spans


def _anchored(flat: _Text, old: str, new: str) -> list[Span]:
    """A block whose first and last lines agree, and its middle more or less."""
    wanted = _lines(old)
    if len(wanted) < 3 or not wanted[0].strip() or not wanted[-1].strip():
        return []
    if not flat.may_hold(f"{wanted[0]}\n{wanted[-1]}"):
        return []
    slack = max(2, len(wanted) // 4)
    words = Counter(_words(wanted[1:-1]))
    head, tail = wanted[0].strip(), wanted[-1].strip()
    starts = [at for at, line in enumerate(flat.lines) if line.strip() == head]
    ends = [at for at, line in enumerate(flat.lines) if line.strip() == tail]
    spans: list[Span] = []
    for first, last in islice(_pairs(starts, ends, len(wanted) - 1 - slack, len(wanted) - 1 + slack), MAX_PAIRS):
        block = flat.lines[first : last + 1]
        if _alike(Counter(_words(block[1:-1])), words):
            start, end = flat.span(first, last)
            spans.append((start, end, _reindent(_cut(new, old), wanted, block)))
    return spans


def _pairs(starts: list[int], ends: list[int], least: int, most: int) -> Iterator[tuple[int, int]]:
    for first in starts:
        spot = bisect_left(ends, first + max(least, 2))
        while spot < len(ends) and ends[spot] <= first + most:
            yield first, ends[spot]
            spot += 1


def _unescaped(flat: _Text, old: str, new: str) -> list[Span]:
    """Text that was escaped once too often: a backslash and an n where a line ends."""
    plain = _unescape(old)
    if plain == old or not plain:
        return []
    fresh = _unescape(new)
    return _exact(flat, plain, fresh) or _trailing(flat, plain, fresh) or _indented(flat, plain, fresh)


LADDER: tuple[tuple[str, Callable[[_Text, str, str], list[Span]]], ...] = (
    ("exact", _exact),
    ("trailing whitespace", _trailing),
    ("indentation", _indented),
    ("typographic quotes and dashes", _typographic),
    ("block anchors", _anchored),
    ("over-escaped text", _unescaped),
)


# Finding ---------------------------------------------------------------------------------------------


def _finds(text: str, old: str) -> list[int]:
    found: list[int] = []
    at = text.find(old)
    while at >= 0:
        if len(found) >= MAX_PLACES:
            raise ToolError(f"old fits more than {MAX_PLACES} places; quote more of the text around the one meant")
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if len(lines) > 1 and lines[-1] == "" else lines


def _cut(new: str, old: str) -> str:
    """Leave out the last line end of the replacement where that of the quote is left out too."""
    return new[:-1] if old.endswith("\n") and len(old) > 1 and new.endswith("\n") else new


def _whole_lines(flat: _Text, old: str, key: Callable[[str], str]) -> list[tuple[int, int]]:
    """Find runs of lines that agree under `key`.

    Each line becomes one character, so that the search is str.find, which is linear: a hostile file
    of repeated lines costs no more than another.
    """
    wanted = [key(line) for line in _lines(old)]
    letters: dict[str, str] = {}
    for line in wanted:
        letters.setdefault(line, chr(len(letters) + 1))
    haystack = "".join([letters.get(key(line), "\0") for line in flat.lines])
    needle = "".join([letters[line] for line in wanted])
    return [flat.span(at, at + len(wanted) - 1) for at in _finds(haystack, needle)]


def _apart(spans: list[Span]) -> Iterator[Span]:
    """Drop spans that overlap an earlier one."""
    end = -1
    for span in sorted(spans):
        if span[0] >= end:
            yield span
            end = max(span[1], span[0] + 1)


def _common(one: str, other: str) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _words(lines: list[str]) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", "\n".join(lines))


def _alike(mine: Counter[str], theirs: Counter[str]) -> bool:
    both = sum((mine & theirs).values())
    return 2 * both >= SIMILAR * (sum(mine.values()) + sum(theirs.values())) and both > 0


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _reindent(new: str, wanted: list[str], block: list[str]) -> str:
    """Carry each indentation of the quote over to the one the file has in its place."""
    known: dict[str, str] = {}
    for mine, theirs in zip(wanted, block, strict=False):
        if mine.strip() and theirs.strip():
            known.setdefault(_indent(mine), _indent(theirs))
    if not known:
        return new
    lines = []
    for line in new.split("\n"):
        own = _indent(line)
        if not line.strip():
            lines.append(line)
        elif own in known:
            lines.append(known[own] + line[len(own) :])
        else:
            base = max((each for each in known if own.startswith(each)), key=len, default=None)
            if base is None:  # further left than anything quoted
                base = min(known, key=len)
                lines.append(known[base][: max(len(known[base]) - len(base) + len(own), 0)] + line[len(own) :])
            else:
                lines.append(known[base] + line[len(base) :])
    return "\n".join(lines)


def _unescape(text: str) -> str:
    return re.sub(r"\\([ntr\"'\\`$/])", lambda found: ESCAPES[found[1]], text)


# Putting together ------------------------------------------------------------------------------------


def _decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Decode so that encoding again gives the same bytes, a byte-order mark and broken characters included."""
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if content.startswith(mark) and not content.startswith(codecs.BOM_UTF32_LE):
            try:
                return content[2:].decode(name), partial(_encode, mark, name)
            except UnicodeDecodeError:
                break
    if b"\0" in content[:8192]:
        raise ToolError("the file is binary; only text can be edited")
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    text = content[len(mark) :].decode("utf-8", "surrogateescape")
    return text, partial(_encode, mark, "utf-8")


def _encode(mark: bytes, name: str, text: str) -> bytes:
    return mark + text.encode(name, "surrogateescape" if name == "utf-8" else "strict")


def _apply(text: str, flat: _Text, spans: list[Span]) -> tuple[str, list[tuple[int, int]]]:
    """Replace the spans; give the text, and the lines that changed, counted from 0."""
    # Where the line ends of two characters are, counted in the flat text.
    ends = array("I", (found.start() - at for at, found in enumerate(re.finditer("\r\n", text))))
    windows = 2 * len(ends) > flat.text.count("\n")
    pieces, changed = [], []
    done, line = 0, 0
    for start, end, new in spans:
        first, last = bisect_left(ends, start), bisect_left(ends, end)
        # The line ends of the place itself are followed, and those of most of the file elsewhere.
        inside = flat.text.count("\n", start, end)
        crlf = windows if not inside else 2 * (last - first) > inside
        pieces.append(text[done : start + first])
        line += pieces[-1].count("\n")
        pieces.append(new.replace("\n", "\r\n") if crlf else new)
        changed.append((line, line + new.count("\n")))
        line += new.count("\n")
        done = end + last
    pieces.append(text[done:])
    return _final(text, "".join(pieces), windows), changed


def _final(before: str, after: str, windows: bool) -> str:
    """Keep the last line as it was: ended, or not."""
    if before.endswith("\n") and after and not after.endswith("\n"):
        return after + ("\r\n" if windows else "\n")
    if before and not before.endswith("\n") and after.endswith("\n"):
        return after[: -2 if after.endswith("\r\n") else -1]
    return after


# Saying ----------------------------------------------------------------------------------------------


def _ambiguous(flat: _Text, spans: list[Span], rung: str) -> str:
    places = []
    for start, _, _ in spans[:5]:
        at = flat.line_at(start)
        places.append(f"  line {at + 1}: {flat.lines[at].strip()[:120]}")
    more = f"\n  and {len(spans) - 5} more" if len(spans) > 5 else ""
    return (
        f"old fits {len(spans)} places (by {rung}); quote more lines around the one that is meant, "
        f"or set replace_all:\n" + "\n".join(places) + more
    )


def _nothing(flat: _Text, old: str) -> str:
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:100]
    lines = [line.strip()[:100] for line in flat.text[:200_000].split("\n")[:1000]]
    close = difflib.get_close_matches(wanted, [line for line in lines if line], n=1, cutoff=0.6) if wanted else []
    if not close:
        return "old was not found, not even roughly; read the file again and quote it exactly"
    at = lines.index(close[0])
    return f"old was not found; the closest to its first line is line {at + 1}: {close[0]}"


def _echo(text: str, changed: list[tuple[int, int]]) -> str:
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    shown: list[str] = []
    last = -1
    for first, end in changed:
        start, stop = max(first - 2, last + 1), min(end + 3, len(lines))
        if shown and start > last + 1:
            shown.append("   ...")
        shown.extend(f"{at + 1:6}| {lines[at].rstrip(chr(13))[:300]}" for at in range(start, stop))
        last = max(last, stop - 1)
        if len(shown) > SHOWN:
            return "\n".join([*shown[:SHOWN], "   ..."])
    return "\n".join(shown)

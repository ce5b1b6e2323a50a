r"""Replace quoted texts in a file's content. Without `replace_all`, a quote must match once.

A quote may differ from the file in trailing blanks, indentation, line ends and look-alike
punctuation, and may leave out lines by a line of `...`. The text outside the quote keeps its bytes.
If `replace_all` is set, a quote may match several places, and all of them are replaced.

A worked example. The file is indented by a tab, the model quotes it with four blanks:

    file      "class A:\n\tdef run(self):\n\t\treturn 1\n"
    old       "    def run(self):\n        return 1\n"
    new       "    def run(self):\n        if self.x:\n            return 2\n"

1. `edit_all` decodes the file and turns "\r\n" into "\n" (`_Text`).
2. `_locate` tries each rung of `LADDER`. "exact" and "trailing whitespace" find nothing. The rung
   "indentation" compares lines without their indentation and finds lines 2 and 3, once.
3. `_reindent` pairs the indentations of quote and file: 4 blanks are 1 tab, 8 blanks are 2 tabs.
   The new text also has 12 blanks; `_map_indentations` continues the series: they are 3 tabs.
4. `_rewrite` keeps "\tdef run(self):" as the file has it, since the line did not change. The result
   is one span: (start, end, "\tdef run(self):\n\t\tif self.x:\n\t\t\treturn 2").
5. `_apply` puts the text of the span into the original text, with the line ends of the replaced
   lines, and `_diff` lists the removed and added lines for the model.

If a rung finds two places, or the indentation cannot be carried over without guessing, the edit is
refused with a message that shows the text of the file.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from functools import cached_property, partial
from itertools import accumulate, islice, pairwise
from math import gcd
from typing import Any

from glue.errors import ToolError
from glue.tools.fs.files import decode

SHOWN = 60  # lines of a diff, or of the text that resembles a quote most
WIDTH = 300  # characters of a line that are shown
# Typographic characters by kind: quotation marks, dashes, spaces.
KINDS = ("“”„‟«»‘’‚‛′″", "–—‒―−‐‑", "\u00a0\u2009\u202f")
LOOKALIKES = str.maketrans("".join(KINDS), '""""""\'\'\'\'\'"-------   ')
# A line that a model writes in place of text that it leaves out, such as "... rest unchanged".
PLACEHOLDER = re.compile(
    r"\W*(?:\.\.\.|…)\W*(?:\b(?:the|all|your|other)\W+)?"
    r"(?:rest|remain\w*|existing|unchanged|same|other|previous|omitted|keep|as before|code|more)"
    r"\b.{0,60}"
    r"|\W*(?:rest of|remainder of|remaining|existing)\s.{0,40}"
    r"(?:unchanged|stays?|the same|as before|omitted|goes? here|here)\b.{0,20}"
    r"|\W*(?:unchanged|existing code|rest unchanged|code omitted)\W*(?:\.\.\.|…)\W*",
    re.IGNORECASE,
)
# A line of dots, perhaps in a comment, in place of lines of the file.
DOTS = re.compile(r"\s*(?:#|//|--|/\*|<!--)?\s*(?:\.\.\.|…)\s*(?:\*/|-->)?\s*")
MAX_LINES = 500_000  # lines of a file that is matched line by line
MAX_PLACES = 10_000
MAX_COMPARED = 250_000  # lines of a quote times lines of its replacement
MAX_QUOTE = 1024 * 1024

Span = tuple[int, int, str]  # start, end, and the new text between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One edit: a text quoted from the file, and the text that replaces the quoted text."""

    old: str
    new: str
    replace_all: bool = False


def read_edits(given: Mapping[str, Any]) -> list[Replacement]:
    """Return the replacements an edit_file call asks for: `old` and `new` if given, then `edits`.

    Raise ToolError if the call has `edits` and `new`, but no `old`.
    """
    several = [Replacement(old=each["old"], new=each["new"]) for each in given.get("edits") or ()]
    if several and not given.get("old") and (given.get("new") or given.get("replace_all")):
        raise ToolError(
            "new and replace_all belong to old; quote the text in old, or leave them out"
        )
    if given.get("old") or not several:
        whole = bool(given.get("replace_all"))
        several.insert(
            0, Replacement(old=given.get("old", ""), new=given.get("new", ""), replace_all=whole)
        )
    return several


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of edits: new content, loosest match, number of replaced places, and a diff."""

    content: bytes
    rung: str  # the loosest rung of LADDER that a quote needed
    count: int  # replaced places
    diff: str


class _Text:
    """The text of a file, with its lines and their positions, which are computed at first use."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def starts(self) -> array[int]:
        """The positions where the lines start, in an array, which needs less memory than a list."""
        return array("I", accumulate((len(line) + 1 for line in self.lines[:-1]), initial=0))

    @cached_property
    def unit(self) -> int:
        """The number of spaces by which blocks are usually indented, such as 4; 0 if no block is.

        A step is the difference between a line and a line after it with more indentation. Lines
        indented with tabs are ignored.
        """
        depths = [
            len(_indent(line)) for line in self.lines if line.strip() and "\t" not in _indent(line)
        ]
        steps = Counter(below - above for above, below in pairwise(depths) if below > above)
        return steps.most_common(1)[0][0] if steps else 0

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the positions in the text of the start of line `first` and the end of line `last`.

        The newline of line `last` is outside the span.
        """
        return self.starts[first], self.starts[last] + len(self.lines[last])

    def line_at(self, position: int) -> int:
        return bisect_left(self.starts, position + 1) - 1


def edit_all(content: bytes, replacements: Sequence[Replacement]) -> Edited:
    """Make all replacements in a file's content; return an Edited, or raise ToolError if any fails.

    The file itself is not written. Every quote is searched in the original content. A replacement
    fails if its quote matches no place, or matches several places and `replace_all` is not set. The
    error then quotes the file. Other causes are edits that overlap, and edits that change nothing.
    """
    decoded, encode = decode(content)
    # Quotes are matched with "\n"; `_apply` converts positions to those of the original text.
    flat = _Text(decoded.replace("\r\n", "\n"))
    spans: list[Span] = []
    rungs: list[int] = []
    for number, each in enumerate(replacements, 1):
        try:
            rung, found = _locate(flat, each)
        except ToolError as error:
            if len(replacements) > 1:
                raise ToolError(f"edit {number}: {error}; no edit was made") from None
            raise
        rungs.append(rung)
        spans.extend(found)
    spans.sort()
    for one, other in pairwise(spans):
        if other[0] < one[1]:
            line = flat.line_at(other[0]) + 1
            raise ToolError(f"two edits overlap in line {line}; combine them; no edit was made")
    made = encode(_apply(decoded, flat, spans))
    if made == content:
        raise ToolError("nothing would change: the quoted place already has the new text")
    names = [*(name for name, _ in LADDER), "lines left out by ..."]
    return Edited(made, names[max(rungs)], len(spans), _diff(flat, spans))


def refuse_placeholder(new: str, known: str) -> None:
    """Raise ToolError if a new text has a placeholder line such as "... rest unchanged".

    The placeholder would be written to the file in place of the text that it leaves out. A line
    that `known`, the text of the file, already contains is allowed.
    """
    for line in new.split("\n"):
        if len(line) < 200 and PLACEHOLDER.fullmatch(line.strip()) and line.strip() not in known:
            raise ToolError(
                f"the new text contains a placeholder, {line.strip()[:80]!r}; "
                "write out the text that belongs there"
            )


def _locate(flat: _Text, given: Replacement) -> tuple[int, list[Span]]:
    """Find the quote of an edit; return the index in LADDER of its matcher, and the spans.

    The matchers are tried in order, and the first that finds the quote counts. If no matcher in
    LADDER finds the quote, but `_elided` does, the index is len(LADDER). Raise ToolError if nothing
    is found, if several places are found and `replace_all` is not set, or if the old or new text is
    invalid.
    """
    if not given.old:
        raise ToolError("old is empty; quote the text to be replaced, or use write_file")
    if len(given.old) > MAX_QUOTE:
        raise ToolError(f"old is {len(given.old)} characters long; quote at most {MAX_QUOTE}")
    old, new = given.old.replace("\r\n", "\n"), given.new.replace("\r\n", "\n")
    if old.endswith("\n") and new and not new.endswith("\n"):
        new += "\n"  # a quote of whole lines is replaced by whole lines; no two lines are joined
    if old == new:
        raise ToolError("old and new are the same, so the edit would change nothing")
    refuse_placeholder(new, flat.text)
    if any("\ud800" <= char <= "\udfff" for char in new):
        raise ToolError(
            "new contains a lone surrogate (half a character), which cannot be stored in a file"
        )
    for rung, (name, match) in enumerate(LADDER):
        spans = match(flat, old, new)
        if given.replace_all:
            spans = list(_without_overlaps(spans))
        elif spans and match in (_indented, _typographic):
            # These two rungs are equally loose: a place that only the other one finds counts too.
            places = list(_without_overlaps([*spans, *_loose(flat, old, new)]))
            spans = places if len(places) > len(spans) else spans
        if len(spans) > 1 and not given.replace_all:
            raise ToolError(_ambiguous_message(flat, spans, name))
        if spans:
            return rung, [_extend_deletion(flat, span) for span in spans]
    if not given.replace_all and (spans := _elided(flat, old, new)):
        return len(LADDER), spans
    raise ToolError(_not_found_message(flat, old))


def _elided(flat: _Text, old: str, new: str) -> list[Span]:
    """Return the spans to replace if `...` lines in a quote omit lines, or [] if in doubt.

    The quote "a\n...\nz" with the new text "b\na\n...\nz" means all lines from "a" to "z".
    Both texts must have the same `...` lines, and the lines next to each `...` must be the same in
    both, so that `...` can only mean text that stays. Each part of the quote must be in the file
    exactly once, in this order, and the file itself must not contain such a `...` line.
    """
    parts, news = _split_at_dots(old), _split_at_dots(new)
    dots = [line for line in old.split("\n") if DOTS.fullmatch(line)]
    same = [line for line in new.split("\n") if DOTS.fullmatch(line)] == dots
    if len(parts) < 2 or not same or any(DOTS.fullmatch(line) for line in flat.lines):
        return []
    spans: list[Span] = []
    last, end = len(parts) - 1, 0
    for number, (part, made) in enumerate(zip(parts, news, strict=True)):
        is_kept = part and made and (number == 0 or part[0] == made[0])
        if not is_kept or (number < last and part[-1] != made[-1]):
            return []
        text = "\n".join(part)
        places = [at for at in _positions(flat.text, text) if _is_whole_lines(flat, at, text)]
        # A part that is also inside a line, or that is there with another indentation, is unclear.
        loose = _by_lines(flat, text, text, key=str.strip)
        if len(places) != 1 or len(loose) != 1 or places[0] < end + bool(number):
            return []
        end = places[0] + len(text)
        if part != made:
            spans.append((places[0], end, "\n".join(made)))
    return spans


def _split_at_dots(text: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in _split_lines(text):
        if DOTS.fullmatch(line):
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _is_whole_lines(flat: _Text, at: int, text: str) -> bool:
    end = at + len(text)
    return flat.text[at - 1 : at] in ("", "\n") and flat.text[end : end + 1] in ("", "\n")


def _extend_deletion(flat: _Text, span: Span) -> Span:
    """Return a span; extend a deletion to whole lines if only blanks would remain in the lines."""
    start, end, new = span
    if new or flat.text[end - 1 : end] == "\n":
        return span
    line = flat.text.rfind("\n", 0, start) + 1
    stop = flat.text.find("\n", end)
    stop = len(flat.text) if stop < 0 else stop
    if flat.text[line:start].strip(" \t") or flat.text[end:stop].strip(" \t"):
        return span
    if stop < len(flat.text):
        return line, stop + 1, new
    return (line - 1, stop, new) if line else (line, stop, new)


def _exact(flat: _Text, old: str, new: str) -> list[Span]:
    places = _positions(flat.text, old)
    if "\n" in new.rstrip("\n") and "\n" not in old.rstrip("\n"):
        before = [flat.text[flat.text.rfind("\n", 0, at) + 1 : at] for at in places]
        if any(blanks and not blanks.strip(" \t") for blanks in before):
            raise ToolError(
                "the text in old leaves out the indentation of its line, so the indentation of "
                "the new lines is not clear; quote the whole line:\n"
                + _numbered(flat, [flat.line_at(at) for at in places[:5]])
            )
    return [(at, at + len(old), new) for at in places]


def _typographic(flat: _Text, old: str, new: str) -> list[Span]:
    """Return the spans that match a quote if typographic quotes, dashes and spaces count as ASCII.

    Characters that the edit does not change stay as they are in the file.
    """
    spans: list[Span] = []
    wanted, lines = old.split("\n"), new.split("\n")
    for at in _positions(flat.text.translate(LOOKALIKES), old.translate(LOOKALIKES)):
        block = flat.text[at : at + len(old)].split("\n")
        spans.append((at, at + len(old), _keep_characters(block, wanted, lines)))
    return spans


def _keep_characters(block: list[str], wanted: list[str], lines: list[str]) -> str:
    """Return the new text, but with the characters of the file in parts that stay unchanged.

    `block` has the lines of the file, `wanted` the lines of the quote, and `lines` the new lines.
    If there are too many lines to compare, return the new lines as `_plain_like` returns them.
    """
    made: list[str] = []
    lines = _plain_like(block, wanted, lines)
    old = [line.translate(LOOKALIKES) for line in wanted]
    new = [line.translate(LOOKALIKES) for line in lines]
    if len(old) * len(new) > MAX_COMPARED:
        return "\n".join(lines)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        for at in range(start, end):
            number = first + at - start  # the line of the quote that this line replaces
            if kind == "insert" or number >= last:
                made.append(lines[at])
                continue
            own = block[number]
            head = _common_prefix(old[number], new[at])
            tail = _common_prefix(old[number][head:][::-1], new[at][head:][::-1])
            middle = lines[at][head : len(lines[at]) - tail]
            made.append(own[:head] + middle + own[len(own) - tail :])
    return "\n".join(made)


def _plain_like(block: list[str], wanted: list[str], lines: list[str]) -> list[str]:
    """Return the new lines, with ASCII for typographic characters that the quote has by mistake.

    If the quote has “ where the file has ", the model probably means " where the new lines have “.
    A typographic character that the replaced lines of the file contain is not a mistake.
    """
    own, quoted = "\n".join(block), "\n".join(wanted)
    odd = {here for here, there in zip(quoted, own, strict=False) if here != there}
    kinds = [kind for kind in KINDS if not odd.isdisjoint(kind)]
    table = {ord(char): LOOKALIKES[ord(char)] for kind in kinds for char in kind if char not in own}
    return [line.translate(table) for line in lines]


def _by_lines(flat: _Text, old: str, new: str, key: Callable[[str], str]) -> list[Span]:
    """Return the spans of lines that equal the lines of the quote after `key` is applied to both.

    The new text of each span gets the indentation of the file. A span is left out if its
    indentation is not certain. For the search, each line becomes one character, so that `str.find`
    can search for several lines in linear time, even in a file of repeated lines.
    """
    wanted = _split_lines(old)
    keys = [key(line) for line in wanted]
    if not any(keys) or flat.text.count("\n") > MAX_LINES:
        return []
    letters: dict[str, str] = {}
    for line in keys:
        letters.setdefault(line, chr(len(letters) + 1))
    haystack = "".join([letters.get(key(line), "\0") for line in flat.lines])
    needle = "".join([letters[line] for line in keys])
    spans: list[Span] = []
    for at in _positions(haystack, needle):
        block = flat.lines[at : at + len(wanted)]
        made = _rewrite(flat, wanted, block, new, old, key)
        if made is not None:
            spans.append((*flat.span(at, at + len(wanted) - 1), made))
    return spans


def _rewrite(
    flat: _Text, wanted: list[str], block: list[str], new: str, old: str, key: Callable[[str], str]
) -> str | None:
    """Return the new text with the indentation of the file, or None if it is not certain.

    `wanted` has the lines of the quote, `block` the lines of the file that they match. Lines that
    the edit keeps are taken from the file.
    """
    if not new:
        return ""
    if old.endswith("\n") and len(old) > 1:
        new = new.removesuffix("\n")
    lines = new.split("\n")
    if key is _plain_key:
        lines = _plain_like(
            [line.strip() for line in block], [line.strip() for line in wanted], lines
        )
    shifted = _reindent(flat, lines, wanted, block)
    if shifted is None:
        return None
    if len(wanted) * len(lines) > MAX_COMPARED:
        return "\n".join(shifted)
    made: list[str] = []
    matcher = SequenceMatcher(
        None, [key(line) for line in wanted], [key(line) for line in lines], autojunk=False
    )
    for kind, first, _, start, end in matcher.get_opcodes():
        # A quoted line with the same indentation stays; a line that moved is written again.
        for at in range(start, end):
            same = kind == "equal" and _indent(lines[at]) == _indent(wanted[first + at - start])
            made.append(block[first + at - start] if same else shifted[at])
    return "\n".join(made)


def _plain_key(line: str) -> str:
    return line.translate(LOOKALIKES).strip()


_indented = partial(_by_lines, key=str.strip)
_loose = partial(_by_lines, key=_plain_key)
LADDER: tuple[tuple[str, Callable[[_Text, str, str], list[Span]]], ...] = (
    ("exact", _exact),
    ("trailing whitespace", partial(_by_lines, key=str.rstrip)),
    ("indentation", _indented),
    ("typographic quotes and dashes", _typographic),
    ("indentation and typographic quotes and dashes", _loose),
)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _reindent(
    flat: _Text, lines: list[str], wanted: list[str], block: list[str]
) -> list[str] | None:
    """Return the new lines with the indentation of the file, or None if it is not certain.

    `lines` are the new lines, `wanted` those of the quote, and `block` the lines of the file that
    the quote matches apart from their indentation.
    """
    pairs = [
        (_indent(quoted), _indent(own))
        for quoted, own in zip(wanted, block, strict=True)
        if quoted.strip()
    ]
    first, *rest = pairs
    if all(quoted == own for quoted, own in rest):
        if first[0] == first[1]:
            return lines
        # Models often quote only the first line without its indentation.
        if rest and not first[0] and not _indent(lines[0]):
            return [first[1] + lines[0], *lines[1:]]
    known = dict(pairs)
    if any(known[quoted] != own for quoted, own in pairs):
        return None  # one indentation of the quote has two in the file
    others = {_indent(line) for line in lines if line.strip()} - known.keys()
    mapped = _map_indentations(flat, known, others)
    if mapped is None:
        return None
    mapped |= known
    return [mapped[_indent(line)] + line.lstrip(" \t") if line.strip() else line for line in lines]


def _map_indentations(
    flat: _Text, known: Mapping[str, str], others: set[str]
) -> dict[str, str] | None:
    """Return a dict from indentations in `others` to the file's indentations; None if in doubt.

    `others` has the indentations that only the new text has. `known` is a dict from each
    indentation of the quote to that of the file. Three rules are tried, in this order:

    - The file has a fixed indentation more: {"": "    "} maps 2 blanks to 6.
    - The file has a fixed indentation less: {"    ": ""} maps 6 blanks to 2.
    - The file has another width for each step: {4 blanks: 1 tab, 8 blanks: 2 tabs} maps 12 blanks
      to 3 tabs.
    """
    quoted, own = next(iter(known.items()))
    in_quote, in_file = "".join([*known, *others]), "".join(known.values())
    if others and len(known) == 1 and not _has_same_steps(flat, quoted, own, others):
        return None
    more, less = own.removesuffix(quoted), quoted.removesuffix(own)
    if all(there == more + one for one, there in known.items()):
        return {other: more + other for other in others}
    if all(one == less + there for one, there in known.items()):
        if not all(other.startswith(less) for other in others):
            return None
        return {other: other.removeprefix(less) for other in others}
    # A straight line through the points (width in the quote, width in the file).
    points = sorted((len(one), len(there)) for one, there in known.items())
    (x_first, y_first), (x_last, y_last) = points[0], points[-1]
    if x_last > x_first:
        rise, run = y_last - y_first, x_last - x_first
    else:
        rise, run = y_first, x_first
    is_mixed = len({*in_quote}) > 1 or len({*in_file}) > 1  # tabs and blanks
    if is_mixed or rise <= 0 or (rise == run and {*in_quote} != {*in_file}):
        return None if others else {}
    if any((y - y_first) * run != (x - x_first) * rise for x, y in points):
        return None
    made: dict[str, str] = {}
    for other in others:
        steps, left = divmod((len(other) - x_first) * rise, run)
        if left or y_first + steps < 0:
            return None
        made[other] = in_file[0] * (y_first + steps)
    return made


def _has_same_steps(flat: _Text, quoted: str, own: str, others: set[str]) -> bool:
    """Return whether one known pair of indentations is enough to convert all of `others`.

    The caller knows only one indentation of the quote (`quoted`) and of the file (`own`). They show
    how far the quote was moved, but not how wide its steps are. If both are indented with blanks,
    the steps must have the width that is usual in the file.
    """
    in_quote = "".join([quoted, *others])
    if "\t" not in in_quote + own:
        return gcd(*(len(other) - len(quoted) for other in others)) == flat.unit
    if "\t" in own and "\t" not in in_quote:
        return bool(quoted)
    return bool(own) or not flat.unit


def _positions(text: str, old: str) -> list[int]:
    """Return the positions of `old` in a text, overlaps included; raise ToolError if too many.

    An overlapping match makes the quote ambiguous, such as "aa" in "aaa". Of several matches that
    overlap the same match, only the first is returned.
    """
    found: list[int] = []
    at = text.find(old)
    while at >= 0:
        if len(found) >= MAX_PLACES:
            raise ToolError(
                f"old matches more than {MAX_PLACES} places; quote more of the text around it"
            )
        found.append(at)
        if (other := text.find(old, at + 1, at + 2 * len(old) - 1)) >= 0:
            found.append(other)
        at = text.find(old, at + len(old))
    return found


def _split_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if len(lines) > 1 and lines[-1] == "" else lines


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the longest prefix that two texts have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _without_overlaps(spans: list[Span]) -> Iterator[Span]:
    """Yield the spans in order of position, but skip spans that overlap a yielded span."""
    end = -1
    for span in sorted(spans):
        if span[0] >= end:
            yield span
            end = max(span[1], span[0] + 1)


def _apply(text: str, flat: _Text, spans: list[Span]) -> str:
    """Return the original text with each span replaced by the new text of the span.

    The positions of the spans are positions in `flat`, in which each "\\r\\n" is a "\\n".
    """
    # The positions in `flat` of the former "\r\n". Each "\r\n" before shifts a position by one.
    ends = array("I", (found.start() - at for at, found in enumerate(re.finditer("\r\n", text))))
    windows = 2 * len(ends) > flat.text.count("\n")
    pieces: list[str] = []
    done = 0
    for start, end, new in spans:
        first, last = bisect_left(ends, start), bisect_left(ends, end)
        # Use the line ends of the replaced text, or, if it has none, those of most of the file.
        inside = flat.text.count("\n", start, end)
        crlf = windows if not inside else 2 * (last - first) > inside
        pieces += [text[done : start + first], new.replace("\n", "\r\n") if crlf else new]
        done = end + last
    pieces.append(text[done:])
    made = "".join(pieces)
    if (
        spans[-1][1] == len(flat.text) and made
    ):  # the file ends with a newline only if it did before
        new = spans[-1][2]
        if text.endswith("\n") and not made.endswith("\n"):
            made += "\r\n" if windows else "\n"
        elif not text.endswith("\n") and new.endswith("\n"):
            made = made[: -2 if made.endswith("\r\n") else -1]
    return made


def _diff(flat: _Text, spans: list[Span]) -> str:
    """Return the removed and added lines, with line numbers and context, cut after SHOWN lines."""
    shown: list[str] = []
    shift = 0  # new line numbers minus old ones
    done = 0  # old lines that are shown or skipped already

    def show(number: int | str, mark: str, line: str) -> None:
        shown.append(f"{number:6} {mark}{line[:WIDTH]}")

    def show_context(start: int, end: int) -> None:
        for at in range(start, end):
            show(at + 1 + shift, " ", flat.lines[at])

    for start, end, new in _join_by_line(flat, spans):
        first, last = flat.line_at(start), flat.line_at(max(end - 1, start))
        removed = flat.lines[first : last + 1]
        before = flat.text[flat.starts[first] : start]  # the rest of the first line ...
        after = flat.text[end : flat.span(last, last)[1]]  # ... and of the last line
        text = before + new + after
        added = text.split("\n") if text else []
        if added and added[-1] == "" and flat.text[end - 1 : end] == "\n":
            added.pop()
        if shown and first - 2 > done:
            shown.append("   ...")
        show_context(max(first - 2, done), first)
        for line in removed:
            show("", "-", line)
        for number, line in enumerate(added, first + 1 + shift):
            show(number, "+", line)
        shift += len(added) - len(removed)
        done = last + 1
        if len(shown) > SHOWN:
            return "\n".join([*shown[:SHOWN], "   ..."])
    count = len(flat.lines) - (flat.lines[-1] == "")
    show_context(done, min(done + 2, count))
    return "\n".join(shown)


def _join_by_line(flat: _Text, spans: list[Span]) -> Iterator[Span]:
    """Yield changed spans, with spans on one line joined, so that a diff shows the line once."""
    start, end, news = 0, 0, list[str]()
    for first, last, new in spans:
        if news and flat.line_at(first) == flat.line_at(max(end - 1, start)):
            news += flat.text[end:first], new
        else:
            if news:
                yield start, end, "".join(news)
            start, news = first, [new]
        end = last
    yield start, end, "".join(news)


def compare(old: str, new: str) -> str:
    """Return a unified diff of two texts without file names; "" if they are equal or too long."""
    before, after = old.split("\n"), new.split("\n")
    if not old or not new:  # an empty file has no lines, and neither side has a change at its end
        before, after = (_split_lines(text) if text else [] for text in (old, new))
    if len(before) * len(after) > 100 * MAX_COMPARED:
        return ""
    made = unified_diff(before, after, n=2, lineterm="")
    return "\n".join(islice(made, 2, None))  # the first two lines name the files


def _ambiguous_message(flat: _Text, spans: list[Span], rung: str) -> str:
    lines = [f"`old` matches {len(spans)} places ({rung}); quote more lines around the right one, "]
    lines[0] += "or set `replace_all`. The places are:"
    for start, _, _ in spans[:5]:
        at = flat.line_at(start)
        lines.append(f"  line {at + 1}: {flat.lines[at].strip()[:120]}")
    return "\n".join(lines + ([f"  and {len(spans) - 5} more"] if len(spans) > 5 else []))


def _numbered(flat: _Text, numbers: Iterable[int]) -> str:
    return "\n".join(f"{at + 1:6}  {flat.lines[at][:WIDTH]}" for at in numbers)


def _not_found_message(flat: _Text, old: str) -> str:
    wanted = [line.strip() for line in _split_lines(old)]
    first = _most_similar_line(flat.lines, wanted)
    if first is None:
        return "old was not found, not even roughly; read the file again and quote it exactly"
    lines = _numbered(flat, range(first, min(first + min(len(wanted), SHOWN), len(flat.lines))))
    escaped = (
        " (it contains \\n as two characters: send real newlines)"
        if "\\n" in old and "\n" not in old
        else ""
    )
    return f"old was not found{escaped}; quote the file exactly. The most similar text:\n{lines}"


def _most_similar_line(lines: list[str], wanted: list[str]) -> int | None:
    """Return the index of the line where a quote probably starts; None if no line is similar.

    The result follows from the lines that are both in the quote and in the file. If there are no
    such lines, it follows from the line whose words are most similar to those of the longest line
    of the quote.
    """
    votes: Counter[int] = Counter()
    places: dict[str, list[int]] = {line: [] for line in wanted if line}
    for at, line in enumerate(lines):
        if (found := places.get(line.strip())) is not None and len(found) < 100:
            found.append(at)
    for number, line in enumerate(wanted):
        for at in places.get(line, ()):
            # The more often a line occurs, the less its place counts.
            votes[max(at - number, 0)] += max(12 // len(places[line]), 1) * (1 + len(line) // 8)
    if votes:
        return max(votes, key=lambda start: (votes[start], -start))
    number = max(range(len(wanted)), key=lambda at: len(wanted[at]), default=0)
    words = set(re.findall(r"\w+", wanted[number])) if wanted else set()
    long = sorted(words, key=len)[-4:]
    best, score = None, 0.34
    for at, line in enumerate(lines):
        if any(word in line for word in long):
            theirs = set(re.findall(r"\w+", line[:1000]))
            alike = len(words & theirs) / len(words | theirs)
            if alike > score:
                best, score = max(at - number, 0), alike
    return best

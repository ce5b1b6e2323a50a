"""Replace text that a model quoted, where the quote stands in the file in one place, and refuse everything else.

A quote may differ from the file in trailing blanks, indentation, line ends and look-alike punctuation, and in nothing
else. What lies outside of it keeps its bytes.
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
from itertools import accumulate, pairwise
from math import gcd
from typing import Any

from glue.errors import ToolError
from glue.tools.fs.files import decode

SHOWN = 60  # lines of a diff, or of the text that is nearest to a quote
WIDTH = 300  # characters of a line that are shown
LOOKALIKES = str.maketrans("“”„‟«»‘’‚‛′″–—‒―−‐‑\u00a0\u2009\u202f", '""""""\'\'\'\'\'"-------   ')
# A line that stands for text which the model did not want to write out.
PLACEHOLDER = re.compile(
    r"\W*(?:\.\.\.|…)\W*(?:\b(?:the|all|your|other)\W+)?"
    r"(?:rest|remain\w*|existing|unchanged|same|other|previous|omitted|keep|as before|code|more)\b.{0,60}"
    r"|\W*(?:rest of|remainder of|remaining|existing)\s.{0,40}"
    r"(?:unchanged|stays?|the same|as before|omitted|goes? here|here)\b.{0,20}"
    r"|\W*(?:unchanged|existing code|rest unchanged|code omitted)\W*(?:\.\.\.|…)\W*",
    re.IGNORECASE,
)
MAX_LINES = 500_000  # of a file that is matched line by line
MAX_PLACES = 10_000
MAX_COMPARED = 250_000  # lines of a quote times lines of its replacement
MAX_QUOTE = 1024 * 1024

Span = tuple[int, int, str]  # from, to, and what goes there


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One quote, and what goes in its place."""

    old: str
    new: str
    replace_all: bool = False


def read_edits(given: Mapping[str, Any]) -> list[Replacement]:
    """Read what the arguments of edit_file ask for."""
    several = [Replacement(old=each["old"], new=each["new"]) for each in given.get("edits") or ()]
    if given.get("old") or not several:
        whole = bool(given.get("replace_all"))
        several.insert(0, Replacement(old=given.get("old", ""), new=given.get("new", ""), replace_all=whole))
    return several


@dataclass(frozen=True, slots=True)
class Edited:
    """A text with its replacements made."""

    content: bytes
    rung: str  # how the quotes were found, the loosest of them
    count: int
    diff: str


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

    @cached_property
    def unit(self) -> int:
        """By how many blanks a line is usually indented more than the one before; 0 where none is."""
        depths = [len(_indent(line)) for line in self.lines if line.strip() and "\t" not in _indent(line)]
        steps = Counter(below - above for above, below in pairwise(depths) if below > above)
        return steps.most_common(1)[0][0] if steps else 0

    def span(self, first: int, last: int) -> tuple[int, int]:
        """From the start of one line to the end of another, its line end not included."""
        return self.starts[first], self.starts[last] + len(self.lines[last])

    def line_at(self, position: int) -> int:
        return bisect_left(self.starts, position + 1) - 1


def edit_all(content: bytes, replacements: Sequence[Replacement]) -> Edited:
    """Make several replacements, all or none; each quote is looked for in the file as it is now.

    One that fits nowhere, or several places, is an error that shows what is there.
    """
    decoded, encode = decode(content)
    # Matching goes by "\n"; positions are carried back to the text as it is.
    flat = _Text(decoded.replace("\r\n", "\n"))
    spans: list[Span] = []
    rungs: list[int] = []
    for number, each in enumerate(replacements, 1):
        try:
            rung, found = _locate(flat, each)
        except ToolError as error:
            raise (ToolError(f"edit {number}: {error}; no edit was made") if len(replacements) > 1 else error) from None
        rungs.append(rung)
        spans.extend(found)
    spans.sort()
    for one, other in pairwise(spans):
        if other[0] < one[1] or other[:2] == one[:2]:
            line = flat.line_at(other[0]) + 1
            raise ToolError(f"two edits overlap in line {line}; make them one; no edit was made")
    text, diff = _apply(decoded, flat, spans)
    made = encode(text)
    if made == content:
        raise ToolError("old and new are the same here; nothing would change")
    return Edited(made, LADDER[max(rungs)][0], len(spans), diff)


def refuse_placeholder(new: str, known: str) -> None:
    """Refuse a line such as "... rest unchanged" that the file does not hold: it would replace what it stands for."""
    for line in new.split("\n"):
        if len(line) < 200 and PLACEHOLDER.fullmatch(line.strip()) and line.strip() not in known:
            raise ToolError(f"new holds a placeholder, {line.strip()[:80]!r}; write out the text that belongs there")


def _locate(flat: _Text, given: Replacement) -> tuple[int, list[Span]]:
    """Find where a quote stands, and say by which rung of the ladder."""
    if not given.old:
        raise ToolError("old is empty; quote the text to be replaced, or use write_file")
    if len(given.old) > MAX_QUOTE:
        raise ToolError(f"old is {len(given.old)} characters long; quote at most {MAX_QUOTE}")
    old, new = given.old.replace("\r\n", "\n"), given.new.replace("\r\n", "\n")
    if old == new:
        raise ToolError("old and new are the same; nothing to do")
    refuse_placeholder(new, flat.text)
    if any("\ud800" <= char <= "\udfff" for char in new):
        raise ToolError("new holds half a character, which no file can hold")
    for rung, (name, match) in enumerate(LADDER):
        spans = match(flat, old, new)
        if given.replace_all:
            spans = list(_apart(spans))
        elif spans and match in (_indented, _typographic):
            # Neither is nearer to the quote than the other, so a place that is off in the other way counts too.
            places = list(_apart([*spans, *_loose(flat, old, new)]))
            spans = places if len(places) > len(spans) else spans
        if len(spans) > 1 and not given.replace_all:
            raise ToolError(_ambiguous(flat, spans, name))
        if spans:
            return rung, [_whole_lines_deleted(flat, span) for span in spans]
    raise ToolError(_nothing(flat, old))


def _whole_lines_deleted(flat: _Text, span: Span) -> Span:
    """Where all text of whole lines is deleted, take the blanks around it and the line end along."""
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


# The ladder ------------------------------------------------------------------------------------------


def _exact(flat: _Text, old: str, new: str) -> list[Span]:
    places = _finds(flat.text, old)
    if "\n" in new.rstrip("\n") and "\n" not in old.rstrip("\n"):
        before = [flat.text[flat.text.rfind("\n", 0, at) + 1 : at] for at in places]
        if any(blanks and not blanks.strip(" \t") for blanks in before):
            raise ToolError(
                "old leaves out indentation of its line, so that it is not clear how the new lines are indented; "
                "quote the whole line:\n" + _numbered(flat, [flat.line_at(at) for at in places[:5]])
            )
    return [(at, at + len(old), new) for at in places]


def _typographic(flat: _Text, old: str, new: str) -> list[Span]:
    """Quotes, dashes and spaces that a printer would tell apart; what did not change keeps its own."""
    spans: list[Span] = []
    for at in _finds(flat.text.translate(LOOKALIKES), old.translate(LOOKALIKES)):
        there = flat.text[at : at + len(old)]
        spans.append((at, at + len(old), _kept(there.split("\n"), old.split("\n"), new.split("\n"))))
    return spans


def _kept(block: list[str], wanted: list[str], lines: list[str]) -> str:
    """Write the new lines, with the file's own characters in all that agrees with the quote."""
    made: list[str] = []
    old, new = ([line.translate(LOOKALIKES) for line in each] for each in (wanted, lines))
    if len(old) * len(new) > MAX_COMPARED:
        return "\n".join(lines)
    for kind, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for at in range(start, end):
            mine = first + at - start
            if kind == "insert" or mine >= last:
                made.append(lines[at])
                continue
            head = _common(old[mine], new[at])
            tail = _common(old[mine][head:][::-1], new[at][head:][::-1])
            middle = lines[at][head : len(lines[at]) - tail]
            made.append(block[mine][:head] + middle + block[mine][len(block[mine]) - tail :])
    return "\n".join(made)


def _by_lines(flat: _Text, old: str, new: str, key: Callable[[str], str]) -> list[Span]:
    """Find runs of lines that agree under `key`, and write the replacement as the file would have it.

    Each line becomes one character, so that the search is str.find, which is linear: a hostile file
    of repeated lines costs no more than another.
    """
    wanted = _lines(old)
    keys = [key(line) for line in wanted]
    if not any(keys) or flat.text.count("\n") > MAX_LINES:
        return []
    letters: dict[str, str] = {}
    for line in keys:
        letters.setdefault(line, chr(len(letters) + 1))
    haystack = "".join([letters.get(key(line), "\0") for line in flat.lines])
    needle = "".join([letters[line] for line in keys])
    spans: list[Span] = []
    for at in _finds(haystack, needle):
        block = flat.lines[at : at + len(wanted)]
        made = _rewrite(flat, wanted, block, new, old, key)
        if made is not None:
            spans.append((*flat.span(at, at + len(wanted) - 1), made))
    return spans


def _rewrite(
    flat: _Text, wanted: list[str], block: list[str], new: str, old: str, key: Callable[[str], str]
) -> str | None:
    """Write the new lines for a place; those that were quoted and stay are kept as the file has them."""
    if not new:
        return ""
    lines = (new[:-1] if old.endswith("\n") and len(old) > 1 and new.endswith("\n") else new).split("\n")
    shifted = _reindent(flat, lines, wanted, block)
    if shifted is None:
        return None
    if len(wanted) * len(lines) > MAX_COMPARED:
        return "\n".join(shifted)
    made: list[str] = []
    matcher = SequenceMatcher(None, [key(line) for line in wanted], [key(line) for line in lines], autojunk=False)
    for kind, first, _, start, end in matcher.get_opcodes():
        # A line that is quoted and comes back with the same indentation stays; one that moved is written anew.
        for at in range(start, end):
            same = kind == "equal" and _indent(lines[at]) == _indent(wanted[first + at - start])
            made.append(block[first + at - start] if same else shifted[at])
    return "\n".join(made)


_indented = partial(_by_lines, key=str.strip)
_loose = partial(_by_lines, key=lambda line: line.translate(LOOKALIKES).strip())
LADDER: tuple[tuple[str, Callable[[_Text, str, str], list[Span]]], ...] = (
    ("exact", _exact),
    ("trailing whitespace", partial(_by_lines, key=str.rstrip)),
    ("indentation", _indented),
    ("typographic quotes and dashes", _typographic),
    ("indentation and typographic quotes and dashes", _loose),
)


# Indentation -----------------------------------------------------------------------------------------


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _reindent(flat: _Text, lines: list[str], wanted: list[str], block: list[str]) -> list[str] | None:
    """Carry the indentation of the quote over to the file's; None where the two do not correspond."""
    pairs = [(_indent(mine), _indent(theirs)) for mine, theirs in zip(wanted, block, strict=True) if mine.strip()]
    first, *rest = pairs
    if all(mine == theirs for mine, theirs in rest):
        if first[0] == first[1]:
            return lines
        if rest and not first[0] and not _indent(lines[0]):  # often only the first line was quoted without its own
            return [first[1] + lines[0], *lines[1:]]
    known = dict(pairs)
    others = {_indent(line) for line in lines if line.strip()} - known.keys()
    if any(known[mine] != theirs for mine, theirs in pairs) or (made := _carried(flat, known, others)) is None:
        return None
    made |= known
    return [made[_indent(line)] + line.lstrip(" \t") if line.strip() else line for line in lines]


def _carried(flat: _Text, known: Mapping[str, str], others: set[str]) -> dict[str, str] | None:
    """Say what other indentations of the quote are in the file; None where those that are known do not tell."""
    mine, theirs = next(iter(known.items()))
    quoted, there = "".join([*known, *others]), "".join(known.values())
    if others and len(known) == 1:
        # One depth says how far the quote was moved, not how wide its steps are: those must be the file's own.
        if "\t" not in quoted + there and gcd(*(len(own) - len(mine) for own in others)) != flat.unit:
            return None
        if ("\t" in there and "\t" not in quoted and not mine) or ("\t" in quoted and not theirs and flat.unit):
            return None
    more, less = theirs.removesuffix(mine), mine.removesuffix(theirs)
    if all(other == more + one for one, other in known.items()):
        return {own: more + own for own in others}
    if all(one == less + other for one, other in known.items()):
        return {own: own.removeprefix(less) for own in others} if all(own.startswith(less) for own in others) else None
    # Else the columns of the file are those of the quote, in other steps and from another start.
    points = sorted((len(one), len(other)) for one, other in known.items())
    (first, above), (last, below) = points[0], points[-1]
    up, down = (below - above, last - first) if last > first else (above, first)
    if len({*quoted}) > 1 or len({*there}) > 1 or up <= 0 or (up == down and {*quoted} != {*there}):
        return None if others else {}
    made: dict[str, str] = {}
    for own in others:
        steps, left = divmod((len(own) - first) * up, down)
        if left or above + steps < 0:
            return None
        made[own] = there[0] * (above + steps)
    return made if all((y - above) * down == (x - first) * up for x, y in points) else None


# Finding ---------------------------------------------------------------------------------------------


def _finds(text: str, old: str) -> list[int]:
    """Find where a text stands, and for each place the first that overlaps it: then neither is the one meant."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0:
        if len(found) >= MAX_PLACES:
            raise ToolError(f"old fits more than {MAX_PLACES} places; quote more of the text around the one meant")
        found.append(at)
        if (other := text.find(old, at + 1, at + 2 * len(old) - 1)) >= 0:
            found.append(other)
        at = text.find(old, at + len(old))
    return found


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if len(lines) > 1 and lines[-1] == "" else lines


def _common(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _apart(spans: list[Span]) -> Iterator[Span]:
    """Drop spans that overlap an earlier one."""
    end = -1
    for span in sorted(spans):
        if span[0] >= end:
            yield span
            end = max(span[1], span[0] + 1)


# Putting together ------------------------------------------------------------------------------------


def _apply(text: str, flat: _Text, spans: list[Span]) -> tuple[str, str]:
    """Replace the spans; give the text, and the lines that went and came."""
    # Where the line ends of two characters are, counted in the flat text.
    ends = array("I", (found.start() - at for at, found in enumerate(re.finditer("\r\n", text))))
    windows = 2 * len(ends) > flat.text.count("\n")
    pieces: list[str] = []
    done = 0
    for start, end, new in spans:
        first, last = bisect_left(ends, start), bisect_left(ends, end)
        # The line ends of the place itself are followed, and those of most of the file elsewhere.
        inside = flat.text.count("\n", start, end)
        crlf = windows if not inside else 2 * (last - first) > inside
        pieces += [text[done : start + first], new.replace("\n", "\r\n") if crlf else new]
        done = end + last
    pieces.append(text[done:])
    made = "".join(pieces)
    if spans[-1][1] == len(flat.text) and made:  # the last line stays as it was: ended, or not
        new = spans[-1][2]
        if text.endswith("\n") and not made.endswith("\n"):
            made += "\r\n" if windows else "\n"
        elif not text.endswith("\n") and new.endswith("\n"):
            made = made[: -2 if made.endswith("\r\n") else -1]
    return made, _diff(flat, spans)


# Saying ----------------------------------------------------------------------------------------------


def _diff(flat: _Text, spans: list[Span]) -> str:
    """Write the lines that went and those that came, with their numbers in the new file, and two around them."""
    shown: list[str] = []
    moved, last = 0, 0  # how far numbers have shifted; lines that were shown
    for start, end, new in _by_line(flat, spans):
        first, final = flat.line_at(start), flat.line_at(max(end - 1, start))
        gone = flat.lines[first : final + 1]
        left, right = flat.text[flat.starts[first] : start], flat.text[end : flat.span(final, final)[1]]
        came = (left + new + right).split("\n") if left or new or right else []
        if came and came[-1] == "" and flat.text[end - 1 : end] == "\n":
            came.pop()
        if shown and first - 2 > last:
            shown.append("   ...")
        shown += [f"{at + 1 + moved:6}  {flat.lines[at][:WIDTH]}" for at in range(max(first - 2, last), first)]
        shown += [f"{'':6} -{line[:WIDTH]}" for line in gone]
        shown += [f"{first + 1 + moved + at:6} +{line[:WIDTH]}" for at, line in enumerate(came)]
        moved += len(came) - len(gone)
        last = final + 1
        if len(shown) > SHOWN:
            return "\n".join([*shown[:SHOWN], "   ..."])
    after = min(last + 2, len(flat.lines) - (flat.lines[-1] == ""))
    return "\n".join(shown + [f"{at + 1 + moved:6}  {flat.lines[at][:WIDTH]}" for at in range(last, after)])


def _by_line(flat: _Text, spans: list[Span]) -> Iterator[Span]:
    """Join spans that share a line: it goes once, and comes once."""
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
    """Write the lines that go and come where a whole text is replaced."""
    before, after = old.split("\n"), new.split("\n")
    if len(before) * len(after) > 100 * MAX_COMPARED:
        return ""
    made = unified_diff(before, after, n=2, lineterm="")
    return "\n".join(line for line in made if not line.startswith(("---", "+++")))


def _ambiguous(flat: _Text, spans: list[Span], rung: str) -> str:
    lines = [f"old fits {len(spans)} places (by {rung}); quote more lines around the one that is meant, "]
    lines[0] += "or set replace_all:"
    for start, _, _ in spans[:5]:
        at = flat.line_at(start)
        lines.append(f"  line {at + 1}: {flat.lines[at].strip()[:120]}")
    return "\n".join(lines + ([f"  and {len(spans) - 5} more"] if len(spans) > 5 else []))


def _numbered(flat: _Text, numbers: Iterable[int]) -> str:
    return "\n".join(f"{at + 1:6}  {flat.lines[at][:WIDTH]}" for at in numbers)


def _nothing(flat: _Text, old: str) -> str:
    wanted = [line.strip() for line in _lines(old)]
    first = _nearest(flat.lines, wanted)
    if first is None:
        return "old was not found, not even roughly; read the file again and quote it exactly"
    lines = _numbered(flat, range(first, min(first + min(len(wanted), SHOWN), len(flat.lines))))
    escaped = " (it holds \\n as two characters: send real line ends)" if "\\n" in old and "\n" not in old else ""
    return f"old was not found{escaped}; quote what stands there. The nearest text:\n{lines}"


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """Find where most lines of a quote stand, or else the line that has most words in common with one of them."""
    votes: Counter[int] = Counter()
    places: dict[str, list[int]] = {line: [] for line in wanted if line}
    for at, line in enumerate(lines):
        if (found := places.get(line.strip())) is not None and len(found) < 100:
            found.append(at)
    for number, line in enumerate(wanted):
        for at in places.get(line, ()):
            # A line that stands everywhere says little about where the quote belongs.
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

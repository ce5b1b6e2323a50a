"""Place a finding on the line that it quotes, and check the replacement that it suggests.

The line number that the model gave is used only to choose between several places.
"""

from __future__ import annotations

import ast
import html
import json
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from glue.agents.review.change.languages import block_end, is_test, language, opens_block
from glue.agents.review.records import Anchor, Bundle, FileDiff, Finding, Hunk

MIN_QUOTE = 8  # characters without white space; a shorter quote must be unique or have a line
MIN_PART = 4  # characters of a quote that is only a part of a line
MAX_LINES = 40  # lines of a suggestion
SIMILAR = 0.75  # similarity to a line, from 0 to 1, at which a quote counts as that line
NEAR = 0.5  # the same for a line that is at most NEARBY lines away from the claimed line
NEARBY = 3
# Line numbers and sign, as the model sees them in a hunk.
_NUMBERED = re.compile(r"^\s*(?:\d+\s+){1,2}[-+ ]?\s?")
# Other prefixes that models write: "12: ", "L12 | ", "line 12: ", "shop.py:12: ".
_PREFIX = re.compile(r"^\s*(?:[\w./-]+\.\w+:)?(?:L|[Ll]ine )?\d+(?::\d+)?\s*[:|)\]]\s?[-+]?")
_FENCE = re.compile(r"^\s*(?:```|~~~)\w*\s*$")
# A remark that a model adds after the code that it quotes.
_REMARK = re.compile(r"\s*(?:#|//|--|/\*|<!--|;;|←|<-+|<=+|\^+)(?!.*(?:#|//|--|/\*|<!--|;;|←)).*$")
_ELLIPSIS = re.compile(r"\s*(?:\.{3,}|…|\[(?:\.{3}|…)\])\s*")
_STRAIGHT = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u2013": "-", "\u2014": "-"})
# Strings and comments of languages with braces, in which brackets do not count.
_NOT_CODE = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`(?:\\.|[^`\\])*`|//[^\n]*|/\*.*?\*/', re.DOTALL
)
_RELAXES = re.compile(
    r"\b(?:skip|xfail|todo|only)\b"
    r"|\b(?:remove|delete|drop|relax|loosen|weaken|disable|comment out|update|rewrite)\b.{0,40}"
    r"\b(?:test|assert\w*|expectation|spec)s?\b",
    re.IGNORECASE,
)
_ASSERT = re.compile(r"\bassert|\bexpect\(|\bt\.(?:Error|Fatal)|\brequire\.")


@dataclass(frozen=True, slots=True)
class QuotePlace:
    """The place of a quote: its lines in the new file, how it was found, and the code there.

    `start` and `end` are None if no line of the hunk is left, as in a deleted file.
    """

    path: str
    start: int | None
    end: int | None
    how: Anchor = "exact"
    code: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    """A line that can be quoted: its number in the new file, and its text without white space.

    A deleted line has the number of the nearest line of the same hunk that is still there.
    """

    line: int | None
    plain: str
    text: str
    kind: str = " "


def anchor(finding: Finding, files: Sequence[FileDiff], head: Mapping[str, str]) -> Finding | None:
    """Return the finding with the path and line of its quote, or None if the quote is not found.

    The line is None if the quote is in the file but outside of the hunks. If the model did not copy
    the quote exactly, it is replaced with the code that was found.
    """
    path = resolve_path(finding.path, files)
    claimed = finding.claimed or finding.line
    place = locate(finding.quote, path, files, head, claimed)
    if place is None:
        return None
    if not finding.rule and place.start == place.end:
        place = _inside(place, files, head, claimed)
    if place.how == "file" and (named := anchor_at_line(finding, files)) is not None:
        return named  # the quote is outside every hunk, but the line is in one
    start, end = place.start, place.end
    inline = place.how != "file" and end is not None
    is_verbatim = _plain(finding.quote) in _plain(place.code)
    return replace(
        finding,
        path=place.path,
        quote=finding.quote if is_verbatim else place.code,
        anchor=place.how,
        line=end if inline else None,
        start_line=start if inline and start is not None and start != end else None,
        claimed=finding.claimed if place.how != "file" else end,
    )


def anchor_at_line(finding: Finding, files: Sequence[FileDiff]) -> Finding | None:
    """Place a finding on the line that the model named; return None if no hunk has that line.

    The returned finding quotes that line. For a blank line, return None. This is the last resort
    if a quote is missing or not found.
    """
    path = resolve_path(finding.path, files)
    file = next((file for file in files if file.path == path), None)
    lines = [line for hunk in file.hunks for line in hunk.lines] if file else []
    lines = [line for line in lines if line.new is not None]
    row = next((line for line in lines if line.new == finding.claimed and line.text.strip()), None)
    if row is None:
        return None
    return replace(finding, path=path, quote=row.text, anchor="line", line=row.new)


def resolve_path(path: str, files: Sequence[FileDiff]) -> str:
    """Return the path of the changed file that a model means by `path`, or else `path` itself.

    Models leave out folders, use the old name, or add quotation marks, `a/` or `./`. If no file or
    several files match, `path` is returned unchanged.
    """
    names = [file.path for file in files]
    if path in names:
        return path
    bare = re.sub(r"^(?:\.?/|[ab]/(?=.))+", "", path.strip().strip("`\"'"))
    tests: tuple[Callable[[FileDiff], bool], ...] = (
        lambda file: file.path == bare or file.path.strip() == bare,
        lambda file: bool(file.old_path) and file.old_path in (path, bare),
        lambda file: bool(bare) and file.path.endswith(f"/{bare}"),
        lambda file: path.endswith(f"/{file.path}"),
    )
    for test in tests:
        found = [file.path for file in files if test(file)]
        if len(found) == 1:
            return found[0]
    return path


def locate(
    quote: str,
    path: str,
    files: Sequence[FileDiff],
    head: Mapping[str, str],
    claimed: int | None = None,
) -> QuotePlace | None:
    """Return the place of a quote, or None if no place is found or a short quote is ambiguous.

    The quote is searched for in the hunks of the file `path`, in its deleted lines, in the hunks
    of other files, and in the rest of the file, in this order. Then the most similar line counts.
    `claimed` is the line number that the model gave: of several places, the nearest to it is
    returned. `head` maps paths to texts after the change.
    """
    if not quote.strip():
        return None
    file = next((file for file in files if file.path == path), None)
    if len(_plain(quote)) < MIN_QUOTE:
        return _short(_plain(quote), file, claimed) if file else None
    for wanted in _readings(quote):
        if place := _find(wanted, path, file, files, head, claimed):
            return place
    return _similar(quote, file, claimed) if file else None


def _find(
    wanted: tuple[str, ...],
    path: str,
    file: FileDiff | None,
    files: Sequence[FileDiff],
    head: Mapping[str, str],
    claimed: int | None,
) -> QuotePlace | None:
    """Return the place of the lines `wanted` in the diff or the file, or None if not found.

    `wanted` is one of the variants of a quote that `_readings` yields.
    """
    if file is not None:
        for kinds in (" +", "-", " -", " +-"):
            if place := _in_hunks(wanted, file, claimed, kinds):
                return place
    others = [_in_hunks(wanted, other, None) for other in files if other.path != path]
    elsewhere = [place for place in others if place is not None]
    if len(elsewhere) == 1 and elsewhere[0].how == "exact":
        return replace(elsewhere[0], how="relocated")
    if file is None:
        return None
    texts = enumerate(head.get(path, "").split("\n"), 1)
    whole = [_Row(number, _plain(text), text) for number, text in texts]
    if spans := _matches(wanted, whole):
        return _place(path, _nearest(spans, claimed), "file")
    return None


def _readings(quote: str) -> Iterator[tuple[str, ...]]:
    """Yield variants of a quote to search for, each as a tuple of lines without white space.

    The variants are: the quote as it is, without diff signs, without line numbers, its longest
    line, without remarks and marks of the model, and each of its longest lines.
    """
    lines = [line for line in quote.split("\n") if not _FENCE.match(line)]
    variants = [lines, [line[1:] if line[:1] in ("+", "-") else line for line in lines]]
    variants.append([_NUMBERED.sub("", line) for line in lines])
    variants += [[line] for line in sorted(lines, key=len, reverse=True)[:1]]
    plain = html.unescape(quote).replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t")
    bare = [_PREFIX.sub("", _unwrapped(line)) for line in _unwrapped(plain).split("\n")]
    bare = [line for line in bare if not _FENCE.match(line)]
    variants += [bare, [line[1:] if line[:1] in ("+", "-") else line for line in bare]]
    cut = [_REMARK.sub("", line) if line.strip() else line for line in bare]
    variants += [cut, [_ELLIPSIS.sub("", line) for line in cut]]
    for line in sorted((*lines, *bare, *cut), key=len, reverse=True)[:12]:
        signless = re.sub(r"^\s*[-+]\s?", "", _NUMBERED.sub("", line))
        variants += [[line], [signless], [_ELLIPSIS.sub("", signless)]]
    tried: set[tuple[str, ...]] = set()
    for variant in variants:
        wanted = tuple(
            text for line in variant if (text := _plain(line)) and text not in ("...", "…")
        )
        if wanted and wanted not in tried and sum(map(len, wanted)) >= MIN_QUOTE:
            tried.add(wanted)
            yield wanted


def _unwrapped(text: str) -> str:
    """Return the text without the backticks or quotation marks around it."""
    bare = text.strip()
    for mark in ("```", "``", "`", '"', "'"):
        if len(bare) > 2 * len(mark) and bare.startswith(mark) and bare.endswith(mark):
            return bare[len(mark) : -len(mark)]
    return text


def _plain(text: str) -> str:
    """Return the text without white space and with straight quotation marks.

    White space is what models copy wrongly most often.
    """
    return "".join(text.split()).translate(_STRAIGHT)


def _rows(hunk: Hunk, kinds: str = " +-") -> list[_Row]:
    """Return the lines of a hunk whose sign is in `kinds`, without blank lines."""
    rows: list[_Row] = []
    for at, line in enumerate(hunk.lines):
        if line.kind in kinds and (plain := _plain(line.text)):
            number = line.new if line.new is not None else _remaining(hunk, at)
            rows.append(_Row(number, plain, line.text, line.kind))
    return rows


def _remaining(hunk: Hunk, at: int) -> int | None:
    """Return the number of the nearest line that remains below a deleted line, or else above it.

    Return None if no line of the hunk remains. `at` is the index of the deleted line.
    """
    after = (line.new for line in hunk.lines[at:] if line.new is not None)
    before = (line.new for line in reversed(hunk.lines[:at]) if line.new is not None)
    return next(after, None) or next(before, None)


def _in_hunks(
    wanted: tuple[str, ...], file: FileDiff, claimed: int | None, kinds: str = " +"
) -> QuotePlace | None:
    spans: list[list[_Row]] = []
    for hunk in file.hunks:
        spans += _matches(wanted, _rows(hunk, kinds))
    if not spans:
        return None
    # Places with a changed line are preferred.
    spans = [span for span in spans if any(row.kind != " " for row in span)] or spans
    span = _nearest(spans, claimed)
    if all(row.kind == "-" for row in span):
        return _place(file.path, span, "deleted")
    kept = [row for row in span if row.kind != "-"]
    how: Anchor = "exact" if len(spans) == 1 else "nearest"
    return replace(_place(file.path, kept, how), code=_place(file.path, span, how).code)


def _place(path: str, span: list[_Row], how: Anchor) -> QuotePlace:
    start, end = span[0].line, span[-1].line
    if how == "deleted":
        start = end  # the comment goes on one line beside the gap
    return QuotePlace(path, start, end, how, "\n".join(row.text for row in span))


def _nearest(spans: list[list[_Row]], claimed: int | None) -> list[_Row]:
    if claimed is None:
        return spans[0]

    def distance(span: list[_Row]) -> int:
        first, last = span[0].line or 0, span[-1].line or 0
        return max(first - claimed, claimed - last, 0)

    return min(spans, key=distance)


def _matches(wanted: tuple[str, ...], rows: list[_Row]) -> list[list[_Row]]:
    """Return a list of rows for each place where `rows` contains the lines `wanted` in sequence.

    The first of the wanted lines may begin within a row, and the last one may end within a row.
    Rows without text are passed over.
    """
    rows = [row for row in rows if row.plain]
    if len(wanted) == 1:
        return [[row] for row in rows if wanted[0] in row.plain]
    found = []
    for at in range(len(rows) - len(wanted) + 1):
        window = rows[at : at + len(wanted)]
        if (
            window[0].plain.endswith(wanted[0])
            and window[-1].plain.startswith(wanted[-1])
            and all(row.plain == text for row, text in zip(window[1:-1], wanted[1:-1], strict=True))
        ):
            found.append(window)
    return found


def _short(wanted: str, file: FileDiff, claimed: int | None) -> QuotePlace | None:
    """Return the place of a short quote, or None if the quote is ambiguous or not found.

    `wanted` is the quote without white space. It must be unique in the hunks or in their changed
    lines, or near `claimed`, the line number that the model gave.
    """
    rows = [row for hunk in file.hunks for row in _rows(hunk)]
    whole = [row for row in rows if row.plain == wanted]
    found = whole or [row for row in rows if len(wanted) >= MIN_PART and wanted in row.plain]
    changed = [row for row in found if row.kind != " "]
    for candidates in (found, changed):
        if len(candidates) == 1:
            return _single(file, candidates[0], "exact")
    near = [row for row in found if _distance(row, claimed) <= NEARBY]
    return _single(file, min(near, key=lambda row: _distance(row, claimed))) if near else None


def _single(file: FileDiff, row: _Row, how: Anchor = "nearest") -> QuotePlace:
    return _place(file.path, [row], "deleted" if row.kind == "-" else how)


def _distance(row: _Row, claimed: int | None) -> int:
    return 1_000_000 if claimed is None or row.line is None else abs(row.line - claimed)


def _similar(quote: str, file: FileDiff, claimed: int | None) -> QuotePlace | None:
    """Return the place of the line most similar to a quote, or None if no line is clearly the best.

    Near `claimed`, the line number that the model gave, less similarity is enough.
    """
    rows = [row for hunk in file.hunks for row in _rows(hunk)]
    lines = sorted({"".join(wanted) for wanted in _readings(quote)}, key=len, reverse=True)
    scored: list[tuple[float, int, _Row]] = []
    for row in rows[:4_000]:
        score = max((_likeness(line[:400], row.plain[:400]) for line in lines[:6]), default=0.0)
        scored.append((score, -_distance(row, claimed), row))
    scored.sort(key=lambda entry: (round(entry[0], 3), entry[1]), reverse=True)
    if not scored:
        return None
    best = scored[0][0]
    others = [score for score, _, row in scored if row.plain != scored[0][2].plain]
    if best >= SIMILAR and (not others or best - others[0] >= 0.03):
        return _single(file, scored[0][2], "similar")
    near = [entry for entry in scored if entry[1] >= -NEARBY and entry[0] >= NEAR]
    return _single(file, near[0][2], "similar") if near else None


def _likeness(wanted: str, text: str) -> float:
    """Return how similar a quote is to a line, or to a part of the line, from 0 to 1."""
    wanted, text = wanted.lower(), text.lower()
    parts = [part for part in _ELLIPSIS.split(wanted) if part]
    if len(parts) > 1 and len("".join(parts)) >= MIN_QUOTE:
        pattern = ".*?".join(map(re.escape, parts))
        return 1.0 if re.search(pattern, text) else 0.0
    matcher = SequenceMatcher(None, wanted, text, autojunk=False)
    if matcher.real_quick_ratio() < NEAR and len(wanted) >= len(text):
        return 0.0
    blocks = [block for block in matcher.get_matching_blocks() if block.size >= 3]
    same = sum(block.size for block in blocks)
    whole = 2 * same / (len(wanted) + len(text))
    if not blocks:
        return 0.0
    span = blocks[-1].b + blocks[-1].size - blocks[0].b
    # A part of a line must match almost completely.
    is_part = len(wanted) >= 10 and same / len(wanted) >= 0.85 and span <= 1.2 * len(wanted)
    return max(whole, same / len(wanted) if is_part else 0.0)


def _inside(
    place: QuotePlace, files: Sequence[FileDiff], head: Mapping[str, str], claimed: int | None
) -> QuotePlace:
    """If `place` is the header of a function or class, return a line of its body, else `place`.

    A model that quotes the line `def total(prices):` means a line of the body: the line number in
    its report, else the first changed line. `place` is also returned unchanged if the report names
    no line of the body, and either the header is new or no line of the body has changed.
    """
    file = next((file for file in files if file.path == place.path), None)
    rows = head.get(place.path, "").split("\n")
    at = place.end
    if file is None or at is None or at > len(rows) or not opens_block(rows[at - 1]):
        return place
    end = block_end(rows, at)
    added = {line.new: line.text for line in file.added}
    if claimed is not None and at < claimed <= end and claimed in file.commentable:
        return QuotePlace(place.path, claimed, claimed, "inside", rows[claimed - 1])
    if at in added:
        return place
    changed = [row for hunk in file.hunks for row in _rows(hunk, "+-")]
    line = next((row.line for row in changed if row.line and at < row.line <= end), None)
    return QuotePlace(place.path, line, line, "inside", rows[line - 1]) if line else place


def fault(finding: Finding, bundle: Bundle) -> str:
    """Return the reason why the suggestion of a finding cannot be offered, or "" if it can be.

    Return "" also if the finding has no suggestion.
    """
    text, head = finding.suggestion, bundle.head.get(finding.path)
    if text is None:
        return ""
    is_quoted = finding.anchor not in ("deleted", "inside", "line")
    if finding.line is None or not is_quoted or head is None:
        return "the finding is not on a line that can be replaced"
    start, end = finding.start_line or finding.line, finding.line
    lines = head.split("\n")
    if not 1 <= start <= end <= len(lines):
        return "the finding is on a line outside the file"
    old, new = lines[start - 1 : end], text.rstrip("\n").split("\n") if text else []
    if len(new) > MAX_LINES:
        return f"the suggestion is longer than {MAX_LINES} lines"
    if any(re.match(r"\s*(?:```|~~~)", line) for line in new):
        return "the suggestion contains a code fence"
    if [line.rstrip() for line in old] == [line.rstrip() for line in new]:
        return "the suggestion changes nothing"
    was, now = _indent(old), _indent(new)
    if was is not None and now is not None and was != now:
        return "the suggestion is indented differently from the lines it replaces"
    # A model that quotes one line and rewrites three would duplicate the other two.
    above, below = lines[start - 2] if start > 1 else "", lines[end] if end < len(lines) else ""
    filled = [line.strip() for line in new if line.strip()]
    if len(filled) > 1 and len(filled[0]) > 4 and filled[0] == above.strip():
        return "the suggestion repeats the line above the replaced lines"
    if len(filled) > 1 and len(filled[-1]) > 4 and filled[-1] == below.strip():
        return "the suggestion repeats the line below the replaced lines"
    return _parses(finding.path, head, "\n".join([*lines[: start - 1], *new, *lines[end:]]))


def _indent(lines: list[str]) -> str | None:
    first = next((line for line in lines if line.strip()), None)
    return None if first is None else first[: len(first) - len(first.lstrip())]


def weakens_test(finding: Finding, bundle: Bundle) -> bool:
    """Return whether a finding of a model proposes to relax, skip or remove a changed test."""
    file = bundle.file(finding.path)
    if file is None or not is_test(finding.path) or finding.rule:
        return False
    if finding.suggestion is not None:
        before, after = (
            len(_ASSERT.findall(finding.quote)),
            len(_ASSERT.findall(finding.suggestion)),
        )
        if after < before or re.search(
            r"\.skip\b|pytest\.mark\.(?:skip|xfail)|t\.Skip", finding.suggestion
        ):
            return True
    return _RELAXES.search(f"{finding.title}\n{finding.body}\n{finding.acceptance}") is not None


def _parses(path: str, old: str, new: str) -> str:
    """Return the reason why the text `new` does not parse although `old` does, else "".

    Both are texts of the file `path`. In languages with braces only the brackets are compared. If
    the language is not known, "" is returned.
    """
    kind = PurePosixPath(path).suffix.lower()
    if kind in _PARSERS:
        after = _refused(kind, new)
        return (
            f"with the suggestion the file no longer parses: {after}"
            if after and not _refused(kind, old)
            else ""
        )
    has_braces = language(path) in ("js", "go", "rust", "java", "c", "php", "dart")
    if not has_braces or _open_brackets(old) == _open_brackets(new):
        return ""
    return "with the suggestion the brackets do not match"


def _open_brackets(code: str) -> list[int]:
    """Return a list of three numbers: the unclosed round, square and curly brackets in the code."""
    code = _NOT_CODE.sub("", code)
    return [code.count(opening) - code.count(closing) for opening, closing in ("()", "[]", "{}")]


def _refused(kind: str, text: str) -> str:
    """Return the parser's error for `text` in a file of type `kind`, or "" if the text parses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _PARSERS[kind](text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error)[:120]
    return ""


def _yaml(text: str) -> None:
    """Raise ValueError for frequent errors in YAML: tabs in indentation, no space after a colon."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*\t", line):
            raise ValueError(f"line {number} is indented with a tab")
        if (
            re.match(r"\s*[^\s#'\"{}\[\],&*!|>%@`-][^:]*:\S", line)
            and "://" not in line
            and "{" not in line
        ):
            if re.search(r"['\"]", line):
                return
            raise ValueError(f"line {number} lacks a space after its colon")


_PARSERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys((".py", ".pyi"), ast.parse),
    ".json": json.loads,
    ".toml": tomllib.loads,
    **dict.fromkeys((".yaml", ".yml"), _yaml),
}

"""Put a finding on the line its quote stands on, and check the replacement it suggests for that line.

The model's own line number only chooses between equal places.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from glue.agents.review.change.syntax import blanked, is_test, language
from glue.agents.review.records import Anchor, Bundle, FileDiff, Finding, Side

MIN_QUOTE = 8  # characters that are no blanks; a shorter quote proves nothing
MAX_LINES = 40  # of a suggestion
_NUMBERED = re.compile(r"^\s*(?:\d+\s+){1,2}[-+ ]?\s?")  # as the hunks are shown to the model
_FENCE = re.compile(r"^\s*(?:```|~~~)\w*\s*$")
_RELAXES = re.compile(
    r"\b(?:skip|xfail|todo|only)\b|\b(?:remove|delete|drop|relax|loosen|weaken|disable|comment out|update|rewrite)\b"
    r".{0,40}"
    r"\b(?:test|assert\w*|expectation|spec)s?\b",
    re.IGNORECASE,
)
_ASSERT = re.compile(r"\bassert|\bexpect\(|\bt\.(?:Error|Fatal)|\brequire\.")


@dataclass(frozen=True, slots=True)
class QuotePlace:
    """Where a quote stands: lines of the new file, or of the old one on the LEFT side."""

    path: str
    start: int
    end: int
    side: Side = "RIGHT"
    how: Anchor = "exact"


def anchor(finding: Finding, files: Sequence[FileDiff], head: Mapping[str, str]) -> Finding | None:
    """Put a finding on the line of its quote; None where the quote stands nowhere in the diff or its files."""
    place = locate(finding.quote, finding.path, files, head, finding.claimed or finding.line)
    if place is None:
        return None
    inline = place.side == "RIGHT" and place.how != "file"
    return replace(
        finding,
        path=place.path,
        side=place.side,
        anchor=place.how,
        line=place.end if inline or place.side == "LEFT" else None,
        start_line=place.start if inline and place.start < place.end else None,
        claimed=finding.claimed if place.how != "file" else place.end,
    )


def locate(
    quote: str, path: str, files: Sequence[FileDiff], head: Mapping[str, str], claimed: int | None = None
) -> QuotePlace | None:
    """Look in the file's hunks, its deleted lines, the other files' hunks, and the rest of the file, in this order."""
    if len(_plain(quote)) < MIN_QUOTE:
        return None
    file = next((one for one in files if one.path == path), None)
    for wanted in _readings(quote):
        if file is not None and (place := _in_hunks(wanted, file, claimed)):
            return place
        if file is not None and (spans := _matches(wanted, [(line.old or 0, line.text) for line in file.deleted])):
            return QuotePlace(path, *_nearest(spans, claimed), side="LEFT", how="deleted")
        elsewhere = [place for one in files if one.path != path and (place := _in_hunks(wanted, one, None))]
        if len(elsewhere) == 1 and elsewhere[0].how == "exact":
            return replace(elsewhere[0], how="relocated")
        if file is not None and (spans := _matches(wanted, list(enumerate(head.get(path, "").split("\n"), 1)))):
            return QuotePlace(path, *_nearest(spans, claimed), how="file")
    return None


def _readings(quote: str) -> Iterator[tuple[str, ...]]:
    """The quote as it is, then without diff signs, then without shown line numbers, then its longest line alone."""
    lines = [line for line in quote.split("\n") if not _FENCE.match(line)]
    signless = [line[1:] if line[:1] in ("+", "-") else line for line in lines]
    unnumbered = [_NUMBERED.sub("", line) for line in lines]
    tried: set[tuple[str, ...]] = set()
    for variant in (lines, signless, unnumbered, *([line] for line in sorted(lines, key=len, reverse=True)[:1])):
        wanted = tuple(text for line in variant if (text := _plain(line)) and text not in ("...", "…"))
        if wanted and wanted not in tried and sum(map(len, wanted)) >= MIN_QUOTE:
            tried.add(wanted)
            yield wanted


def _plain(text: str) -> str:
    """Blanks are what models get wrong most; they take no part in the comparison."""
    return "".join(text.split())


def _in_hunks(wanted: tuple[str, ...], file: FileDiff, claimed: int | None) -> QuotePlace | None:
    spans: list[tuple[int, int]] = []
    for hunk in file.hunks:
        spans += _matches(wanted, [(line.new, line.text) for line in hunk.lines if line.new is not None])
    if not spans:
        return None
    added = {line.new for line in file.added}
    spans = [span for span in spans if any(number in added for number in range(span[0], span[1] + 1))] or spans
    return QuotePlace(file.path, *_nearest(spans, claimed), how="exact" if len(spans) == 1 else "nearest")


def _nearest(spans: list[tuple[int, int]], claimed: int | None) -> tuple[int, int]:
    if claimed is None:
        return spans[0]
    return min(spans, key=lambda span: max(span[0] - claimed, claimed - span[1], 0))


def _matches(wanted: tuple[str, ...], lines: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Runs of lines that hold the wanted ones; the first may start, and the last may end, within a line."""
    rows = [(number, plain) for number, text in lines if (plain := _plain(text))]
    if len(wanted) == 1:
        return [(number, number) for number, text in rows if wanted[0] in text]
    found = []
    for at in range(len(rows) - len(wanted) + 1):
        window = rows[at : at + len(wanted)]
        if (
            window[0][1].endswith(wanted[0])
            and window[-1][1].startswith(wanted[-1])
            and all(row[1] == text for row, text in zip(window[1:-1], wanted[1:-1], strict=True))
        ):
            found.append((window[0][0], window[-1][0]))
    return found


def fault(finding: Finding, bundle: Bundle) -> str:
    """Say what is wrong with a finding's suggestion; the empty text where it may be offered."""
    text, head = finding.suggestion, bundle.head.get(finding.path)
    if text is None:
        return ""
    if finding.line is None or finding.side == "LEFT" or head is None:
        return "the suggestion stands on no line that can be replaced"
    start, end = finding.start_line or finding.line, finding.line
    lines = head.split("\n")
    if not 1 <= start <= end <= len(lines):
        return "the suggestion stands outside of the file"
    old, new = lines[start - 1 : end], text.rstrip("\n").split("\n") if text else []
    if len(new) > MAX_LINES:
        return f"the suggestion is longer than {MAX_LINES} lines"
    if any(re.match(r"\s*(?:```|~~~)", line) for line in new):
        return "the suggestion holds a fence"
    if [line.rstrip() for line in old] == [line.rstrip() for line in new]:
        return "the suggestion changes nothing"
    was, now = _indent(old), _indent(new)
    if was is not None and now is not None and was != now:
        return "the suggestion is indented differently from what it replaces"
    # A model that cites one line and rewrites three leaves the other two standing twice.
    above, below = lines[start - 2] if start > 1 else "", lines[end] if end < len(lines) else ""
    ink = [line.strip() for line in new if line.strip()]
    if len(ink) > 1 and len(ink[0]) > 4 and ink[0] == above.strip():
        return "the suggestion repeats the line above it"
    if len(ink) > 1 and len(ink[-1]) > 4 and ink[-1] == below.strip():
        return "the suggestion repeats the line below it"
    return _parses(finding.path, head, "\n".join([*lines[: start - 1], *new, *lines[end:]]))


def _indent(lines: list[str]) -> str | None:
    first = next((line for line in lines if line.strip()), None)
    return None if first is None else first[: len(first) - len(first.lstrip())]


def weakens_test(finding: Finding, bundle: Bundle) -> bool:
    """Whether the way out that a finding proposes is to relax a test of this very change."""
    file = bundle.file(finding.path)
    if file is None or not is_test(finding.path) or finding.rule:
        return False
    if finding.suggestion is not None:
        before, after = len(_ASSERT.findall(finding.quote)), len(_ASSERT.findall(finding.suggestion))
        if after < before or re.search(r"\.skip\b|pytest\.mark\.(?:skip|xfail)|t\.Skip", finding.suggestion):
            return True
    return _RELAXES.search(f"{finding.title}\n{finding.body}\n{finding.acceptance}") is not None


def _parses(path: str, old: str, new: str) -> str:
    """Nothing may parse worse than before."""
    kind = PurePosixPath(path).suffix.lower()
    if kind in _PARSERS:
        after = _refused(kind, new)
        return f"with the suggestion the file no longer parses: {after}" if after and not _refused(kind, old) else ""
    codes = [blanked(text, language(path)) for text in (old, new)] if language(path) else ["", ""]
    was, now = ([code.count(a) - code.count(b) for a, b in ("()", "[]", "{}")] for code in codes)
    return "with the suggestion the brackets do not match" if was != now else ""


def _refused(kind: str, text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _PARSERS[kind](text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error)[:120]
    return ""


def _yaml(text: str) -> None:
    """Without a YAML library: no tabs in the indentation, and no key that stands nowhere."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*\t", line):
            raise ValueError(f"line {number} is indented with a tab")
        if re.match(r"\s*[^\s#'\"{}\[\],&*!|>%@`-][^:]*:\S", line) and "://" not in line and "{" not in line:
            if re.search(r"['\"]", line):
                return
            raise ValueError(f"line {number} has no blank after its colon")


_PARSERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys((".py", ".pyi"), ast.parse),
    ".json": json.loads,
    ".toml": tomllib.loads,
    **dict.fromkeys((".yaml", ".yml"), _yaml),
}

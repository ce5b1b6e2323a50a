"""Find the line a quote stands on. The model's own line number only chooses between equal places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from glue.agents.review.records import Anchor, Bundle, FileDiff, Finding, Side

MIN_QUOTE = 8  # characters that are no blanks; a shorter quote proves nothing
_NUMBERED = re.compile(r"^\s*(?:\d+\s+){1,2}[-+ ]?\s?")  # as the hunks are shown to the model
_FENCE = re.compile(r"^\s*(?:```|~~~)\w*\s*$")


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
    if sum(not char.isspace() for char in quote) < MIN_QUOTE:
        return None
    file = next((one for one in files if one.path == path), None)
    for wanted in _readings(quote):
        if file is not None and (place := _in_hunks(wanted, file, claimed)):
            return place
        if file is not None and (place := _in_deleted(wanted, file, claimed)):
            return place
        elsewhere = [place for one in files if one.path != path and (place := _in_hunks(wanted, one, None))]
        if len(elsewhere) == 1 and elsewhere[0].how == "exact":
            return replace(elsewhere[0], how="relocated")
        if file is not None and (place := _in_text(wanted, path, head.get(path, ""), claimed)):
            return place
    return None


def _readings(quote: str) -> Iterable[tuple[str, ...]]:
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
    added = {line.new for line in file.added}
    places: list[QuotePlace] = []
    for hunk in file.hunks:
        rows = [(line.new, _plain(line.text)) for line in hunk.lines if line.new is not None]
        places += [QuotePlace(file.path, start, end) for start, end in _matches(wanted, rows)]
    changed = [place for place in places if any(number in added for number in range(place.start, place.end + 1))]
    return _choose(changed or places, claimed)


def _in_deleted(wanted: tuple[str, ...], file: FileDiff, claimed: int | None) -> QuotePlace | None:
    rows = [(line.old, _plain(line.text)) for line in file.deleted if line.old is not None]
    place = _choose([QuotePlace(file.path, start, end, "LEFT") for start, end in _matches(wanted, rows)], claimed)
    return replace(place, how="deleted") if place else None


def _in_text(wanted: tuple[str, ...], path: str, text: str, claimed: int | None) -> QuotePlace | None:
    rows = [(number, _plain(line)) for number, line in enumerate(text.split("\n"), 1)]
    place = _choose([QuotePlace(path, start, end) for start, end in _matches(wanted, rows)], claimed)
    return replace(place, how="file") if place else None


def _choose(places: list[QuotePlace], claimed: int | None) -> QuotePlace | None:
    if len(places) <= 1:
        return places[0] if places else None
    if claimed is None:
        return replace(places[0], how="nearest")
    nearest = min(places, key=lambda place: max(place.start - claimed, claimed - place.end, 0))
    return replace(nearest, how="nearest")


def _matches(wanted: tuple[str, ...], rows: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Runs of rows that hold the wanted lines; the first may start, and the last may end, within a line."""
    rows = [row for row in rows if row[1]]
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


_FENCED = re.compile(r"^[ \t]*(`{3,12}|~{3,12})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]{1,300})`")
_NAME = re.compile(r"[A-Za-z_$][\w$]{2,}")
_PATH = re.compile(
    r"(?<![\w/.@+-])((?:[\w@+-]+/)+[\w@+.-]+\.[A-Za-z]{1,5}|[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|rb|java|c|h|cpp|cs|php|md|toml|yaml|yml|json|sql|sh))(?![\w/])"
)
# Words of the languages themselves say nothing about the change.
_COMMON = frozenset(
    (
        "null None True False true false nil undefined self this return await async const let var def func"
        " function class int str bool float string number any list dict set tuple map object void error Error"
        " Exception try except catch finally with for while not and the key value type interface import from new"
        " delete assert raise throw yield lambda pass break continue public private protected static final struct"
        " enum switch case default else elif range len print HTTP GET POST PUT PATCH JSON SQL API URL UTC main"
        " test tests"
    ).split()
)
_CASED = re.compile(r"\b(?:[a-z]+[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w+|[a-z]+_[a-z]\w+)\b")
ABOUT = 0.50  # of the names in a summary
SHARE = 0.60  # of the names in backticks that must occur in the context


def context(bundle: Bundle) -> str:
    """Everything the reviewer was shown or could have read of the touched files."""
    names = " ".join(f"{file.path} {file.old_path}" for file in bundle.files)
    texts: Iterable[str] = (names, bundle.change.title, bundle.diff, *bundle.head.values(), *bundle.base.values())
    return "\n".join(texts)


def names(text: str, *, loose: bool = False) -> list[str]:
    """The names a text puts in backticks, outside of fences; `loose` adds those that only look like names."""
    prose = _FENCED.sub("\n", text)
    spans = [name for span in _SPAN.findall(prose) for name in _NAME.findall(span) if name not in _COMMON]
    return spans + _CASED.findall(_SPAN.sub(" ", prose)) if loose else spans


def grounded(text: str, shown: str) -> bool:
    """Whether enough of the names of a finding occur in what was shown; one name alone may be advice."""
    found = names(text)
    return len(found) < 2 or sum(name in shown for name in found) / len(found) >= SHARE


def on_topic(text: str, shown: str) -> bool:
    """Whether a summary speaks of this change at all: its names and its paths occur here."""
    found = names(text, loose=True)
    if found and sum(name in shown for name in found) / len(found) < ABOUT:
        return False
    paths = {path for path in _PATH.findall(_FENCED.sub("\n", text)) if "/" in path}
    return len(found) >= 5 or not paths or any(path in shown for path in paths)

"""Cut a diff into pieces that fit a model, and keep the ledger of what was shown (every hunk, once)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from glue import estimate_tokens
from glue.agents.review.change.diff import numbered
from glue.agents.review.change.syntax import functions, language
from glue.agents.review.records import (
    Bundle,
    Coverage,
    CoverageState,
    DiffLine,
    FileDiff,
    Hunk,
    HunkCoverage,
    SkippedFile,
)

MAX_LINE = 1_000  # characters of one line that are shown
CONTEXT = 60  # lines of the enclosing function that are shown on each side of a hunk
_SUFFIXES = (
    ".py .pyi .js .jsx .ts .tsx .mjs .cjs .go .rs .java .kt .rb .php .c .h .cc .cpp .cs .swift .sh .sql .html .css"
    " .json .toml .yaml .yml .md .txt .cfg .ini .xml .vue .svelte"
)
_TEXT_SUFFIXES = frozenset(_SUFFIXES.split())


@dataclass(frozen=True, slots=True)
class Piece:
    """A hunk, or a part of one, as it is shown."""

    path: str
    hunk: int
    text: str
    tokens: int
    last: bool = True  # whether this is the hunk's last part
    cut: bool = False  # whether a long line was shortened


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one question to the model shows."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "\n\n".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)


def chunks(bundle: Bundle, budget: int = 12_000, estimate: Callable[[str], int] = estimate_tokens) -> tuple[Chunk, ...]:
    """Pack the hunks, in order, into chunks of at most `budget` tokens each."""
    packed: list[Chunk] = []
    held: list[Piece] = []
    for piece in _pieces(bundle, budget, estimate):
        if held and sum(one.tokens for one in held) + piece.tokens > budget:
            packed.append(Chunk(tuple(held)))
            held = []
        held.append(piece)
    if held:
        packed.append(Chunk(tuple(held)))
    return tuple(packed)


def coverage(bundle: Bundle, shown: Iterable[Chunk], reason: str = "budget spent") -> Coverage:
    """Write the ledger: what the shown chunks hold, and why the rest is missing."""
    parts: dict[tuple[str, int], list[Piece]] = {}
    for chunk in shown:
        for piece in chunk.pieces:
            parts.setdefault((piece.path, piece.hunk), []).append(piece)
    left_out = {skip.path: skip for skip in bundle.skipped}
    ledger: list[HunkCoverage] = []
    for file in bundle.files:
        if file.path in left_out:
            ledger.append(_skipped(left_out[file.path]))
        elif not file.hunks:
            ledger.append(_without_hunks(file))
        ledger += [
            _hunk_entry(file, hunk, parts.get((file.path, hunk.index), []), reason)
            for hunk in file.hunks
            if file.path not in left_out
        ]
    known = {file.path for file in bundle.files}
    ledger += [_skipped(skip) for skip in bundle.skipped if skip.path not in known]
    return Coverage(hunks=tuple(ledger))


def _skipped(skip: SkippedFile) -> HunkCoverage:
    required = skip.reason.startswith("too large")
    return HunkCoverage(
        path=skip.path, hunk=0, state="skipped", reason=skip.reason, lines=skip.lines, required=required
    )


def everything(bundle: Bundle) -> Coverage:
    """The ledger of a reader that needs no budget: the deterministic rules."""
    return coverage(bundle, chunks(bundle))


def _hunk_entry(file: FileDiff, hunk: Hunk, pieces: list[Piece], reason: str) -> HunkCoverage:
    lines = len(hunk.lines)
    if not pieces:
        return _entry(file, hunk.index, "skipped", reason, lines=lines)
    if file.odd or any(piece.cut for piece in pieces):
        return _entry(file, hunk.index, "partial", file.odd or "a long line was shortened", lines=lines)
    if not pieces[-1].last:
        return _entry(file, hunk.index, "partial", reason, lines=lines)
    return _entry(file, hunk.index, "full", lines=lines)


def _without_hunks(file: FileDiff) -> HunkCoverage:
    if file.odd:
        return _entry(file, 0, "skipped", file.odd)
    if file.binary:
        # A NUL byte makes git call a source file binary: that must not pass as "nothing to read".
        return _entry(file, 0, "skipped", "binary", required=PurePosixPath(file.path).suffix in _TEXT_SUFFIXES)
    return _entry(file, 0, "full", file.status)  # a rename, a mode: the header says it all


def _entry(
    file: FileDiff, hunk: int, state: CoverageState, reason: str = "", *, lines: int = 0, required: bool = True
) -> HunkCoverage:
    return HunkCoverage(path=file.path, hunk=hunk, state=state, reason=reason, lines=lines, required=required)


def _pieces(bundle: Bundle, budget: int, estimate: Callable[[str], int]) -> Iterable[Piece]:
    left_out = {skip.path for skip in bundle.skipped}
    for file in bundle.files:
        if file.path in left_out:
            continue
        for hunk in file.hunks:
            yield from _hunk_pieces(file, hunk, bundle.head.get(file.path, ""), budget, estimate)


def _hunk_pieces(file: FileDiff, hunk: Hunk, head: str, budget: int, estimate: Callable[[str], int]) -> Iterable[Piece]:
    lines = tuple(_short(line) for line in hunk.lines)
    cut = any(len(line.text) > MAX_LINE for line in hunk.lines)
    above, below = _enclosing(file, hunk, head)
    title = f"### {file.path}" + (f" (was {file.old_path})" if file.old_path else "")
    text = f"{title}{above}\n{numbered(file, replace(hunk, lines=lines))}{below}"
    tokens = estimate(text)
    if tokens <= budget or len(lines) < 2:
        yield Piece(file.path, hunk.index, text, tokens, True, cut)
        return
    parts = min(len(lines), -(-tokens // max(budget, 1)) + 1)
    size = -(-len(lines) // parts)
    for at in range(0, len(lines), size):
        part = numbered(file, replace(hunk, lines=lines[at : at + size]))
        text = f"{title} (part {at // size + 1} of {-(-len(lines) // size)} of this hunk)\n{part}"
        yield Piece(file.path, hunk.index, text, estimate(text), at + size >= len(lines), cut)


def _short(line: DiffLine) -> DiffLine:
    if len(line.text) <= MAX_LINE:
        return line
    return replace(line, text=f"{line.text[:MAX_LINE]} [{len(line.text) - MAX_LINE} more characters]")


def _enclosing(file: FileDiff, hunk: Hunk, head: str) -> tuple[str, str]:
    """The unchanged lines of the enclosing function above and below a hunk, where git's own context is too short."""
    first, last = hunk.new_start, hunk.new_start + max(hunk.new_count, 1) - 1
    around = [one for one in functions(head, language(file.path)) if one.start <= last and one.end >= first]
    if not around:
        return "", ""
    lines = head.split("\n")
    opened = min((one for one in around if one.start <= first), key=lambda one: one.end - one.start, default=None)
    closed = min((one for one in around if one.end >= last), key=lambda one: one.end - one.start, default=None)
    above = range(max(opened.start, first - CONTEXT), first) if opened else range(0)
    below = range(last + 1, min(closed.end, last + CONTEXT) + 1) if closed else range(0)
    return _unchanged("above", above, lines), _unchanged("below", below, lines)


def _unchanged(side: str, numbers: range, lines: list[str]) -> str:
    rows = [f"{n:>6}   {lines[n - 1][:MAX_LINE]}" for n in numbers if 1 <= n <= len(lines)]
    return f"\nunchanged lines of the new file {side} the hunk:\n" + "\n".join(rows) if rows else ""

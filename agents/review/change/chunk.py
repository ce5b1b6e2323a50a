"""Split a diff into chunks for prompts, and compute how much of each hunk was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath

from glue.agents.review.change.languages import Function, functions
from glue.agents.review.records import Bundle, Coverage, CoverageState, FileDiff, Hunk, HunkCoverage
from glue.limits import estimate_tokens

MAX_LINE = 1_000  # characters; a longer line is cut
CONTEXT = 60  # lines of the enclosing function to show on each side of a hunk
_TEXT_SUFFIXES = frozenset(
    ".py .pyi .js .jsx .ts .tsx .mjs .cjs .go .rs .java .kt .rb .php .c .h .cc .cpp .cs .swift .sh"
    " .sql .html .css .json .toml .yaml .yml .md .txt .cfg .ini .xml .vue .svelte".split()
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt: one hunk, several hunks of one function, or a part of a large hunk."""

    path: str
    hunks: tuple[int, ...]  # numbers of the hunks, more than one if they are in one function
    text: str
    tokens: int  # of the text, estimated
    last: bool = True  # False if a later piece has another part of the same hunk


@dataclass(frozen=True, slots=True)
class Chunk:
    """The pieces of a diff that one prompt contains."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "\n\n".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)


def chunks(bundle: Bundle, budget: int = 12_000) -> tuple[Chunk, ...]:
    """Return the hunks of a change in order, packed into chunks of about `budget` tokens at most.

    A larger hunk is split into several pieces. Files that the bundle skips are left out.
    """
    packed: list[Chunk] = []
    for piece in _pieces(bundle, budget):
        if packed and packed[-1].tokens + piece.tokens <= budget:
            packed[-1] = Chunk((*packed[-1].pieces, piece))
        else:
            packed.append(Chunk((piece,)))
    return tuple(packed)


def _pieces(bundle: Bundle, budget: int) -> Iterator[Piece]:
    left_out = {skip.path for skip in bundle.skipped}
    for file in bundle.files:
        if file.path in left_out:
            continue
        title = _title(file)
        head = bundle.head.get(file.path, "")
        for group in _groups(file, head, budget):
            hunk, lines = group[0], group[0].lines
            text = f"{title}{_function(file, group, head)}"
            tokens = estimate_tokens(text)
            if tokens <= budget or len(lines) < 2:
                yield Piece(file.path, tuple(one.index for one in group), text, tokens)
                continue
            parts = min(len(lines), -(-tokens // max(budget, 1)) + 1)
            size = -(-len(lines) // parts)
            for at in range(0, len(lines), size):
                part = numbered(file, replace(hunk, lines=lines[at : at + size]))
                number, total = at // size + 1, -(-len(lines) // size)
                text = f"{title} (part {number} of {total} of this hunk)\n{part}"
                yield Piece(file.path, (hunk.index,), text, estimate_tokens(text), number == total)


def _title(file: FileDiff) -> str:
    return f"### {file.path}" + (f" (was {file.old_path})" if file.old_path else "")


def _groups(file: FileDiff, head: str, budget: int) -> Iterator[tuple[Hunk, ...]]:
    """Yield the hunks of a file in groups: the hunks of one function are one group.

    Then the code around them is shown once, and a quote of this code is not ambiguous. A group
    whose text needs more than `budget` tokens is split. `head` is the text after the change.
    """
    group: tuple[Hunk, ...] = ()
    for hunk in file.hunks:
        together = (*group, hunk)
        lines = [line for one in together for line in one.touched]
        first, last = min(lines, default=hunk.new_start), max(lines, default=hunk.new_start)
        is_same = any(one.start <= first and last <= one.end for one in functions(head))
        fits = estimate_tokens(f"{_title(file)}{_function(file, together, head)}") <= budget
        if group and not (is_same and fits):
            yield group
            together = (hunk,)
        group = together
    if group:
        yield group


def _function(file: FileDiff, group: tuple[Hunk, ...], head: str) -> str:
    """Return the text of a group of hunks, with unchanged lines above, between and below them.

    The lines above and below belong to the function around the group. At most CONTEXT lines are
    shown on each side. `head` is the text of the file after the change.
    """
    # Lines that another hunk shows are not repeated: a quote of them would be ambiguous.
    others = [hunk for hunk in file.hunks if hunk not in group]
    ends = [hunk.new_start + hunk.new_count for hunk in others if hunk.index < group[0].index]
    starts = [hunk.new_start for hunk in others if hunk.index > group[-1].index]
    lines = head.split("\n")
    above = _above(group[0], head, max(ends, default=1))
    below = _below(group[-1], head, min(starts, default=len(lines) + 1))
    text = f"{_unchanged('above the hunk', above, lines)}\n{numbered(file, group[0])}"
    for one, following in pairwise(group):
        between = range(one.new_start + one.new_count, following.new_start)
        text += _unchanged("between the hunks", between, lines)
        text += f"\n{numbered(file, following)}"
    return text + _unchanged("below the hunk", below, lines)


def numbered(file: FileDiff, hunk: Hunk) -> str:
    """Return a hunk as text. Each line has its old number, its new number, its sign and its text.

    The text of a line is cut after MAX_LINE characters.
    """
    width = len(str(max(hunk.old_start + hunk.old_count, hunk.new_start + hunk.new_count)))
    old, new = _span(hunk.old_start, hunk.old_count), _span(hunk.new_start, hunk.new_count)
    rows = [f"@@ hunk {hunk.index} of {file.path}: old {old}, new {new} @@ {hunk.section}".rstrip()]
    for line in hunk.lines:
        old, new = ("" if number is None else str(number) for number in (line.old, line.new))
        more = len(line.text) - MAX_LINE
        text = f"{line.text[:MAX_LINE]} [{more} more characters]" if more > 0 else line.text
        rows.append(f"{old:>{width}} {new:>{width}} {line.kind}{text}")
        if not line.end:
            rows.append(f"{'':>{width}} {'':>{width}} \\ no newline at the end")
    return "\n".join(rows)


def _span(start: int, count: int) -> str:
    return f"{start}-{start + count - 1}" if count else f"{start} (none)"


def _above(hunk: Hunk, head: str, low: int) -> range:
    """Return the numbers of up to CONTEXT lines above a hunk, in the function around the hunk.

    No line is before line `low`. The range is empty if no function contains the first change of the
    hunk.
    """
    first = min(hunk.touched, default=hunk.new_start)
    outer = _smallest([one for one in functions(head) if one.start <= first <= one.end])
    start = hunk.new_start
    return range(max(outer.start, start - CONTEXT, low), start) if outer else range(0)


def _below(hunk: Hunk, head: str, high: int) -> range:
    """Return the numbers of up to CONTEXT lines below a hunk, in the function around the hunk.

    All lines are before line `high`. The range is empty if no function contains the last change of
    the hunk.
    """
    last = max(hunk.touched, default=hunk.new_start)
    inner = _smallest([one for one in functions(head) if one.start <= last <= one.end])
    end = hunk.new_start + max(hunk.new_count, 1) - 1
    return range(end + 1, min(inner.end + 1, end + CONTEXT + 1, high)) if inner else range(0)


def _smallest(found: list[Function]) -> Function | None:
    return min(found, key=lambda function: function.end - function.start, default=None)


def _unchanged(side: str, numbers: range, lines: list[str]) -> str:
    rows = [f"{n:>6}   {lines[n - 1][:MAX_LINE]}" for n in numbers if 1 <= n <= len(lines)]
    return f"\nunchanged lines of the new file {side}:\n" + "\n".join(rows) if rows else ""


def coverage(
    bundle: Bundle,
    shown: Iterable[Chunk],
    reason: str = "budget spent",
    *,
    analysed: Mapping[str, str] | None = None,
) -> Coverage:
    """Return the coverage: whether each hunk was read in full, in part, or not at all.

    `shown` are the chunks that the model was given. `reason` is recorded for hunks that are not in
    them, or only in part. For a review without a model, `analysed` maps each file that an analyser
    understands to the name of the analyser: only the hunks of these files count as read.
    """
    pieces = [piece for chunk in shown for piece in chunk.pieces]
    ended = {(piece.path, hunk): piece.last for piece in pieces for hunk in piece.hunks}
    left_out = {skip.path: skip for skip in bundle.skipped}
    entries: list[HunkCoverage] = []
    for file in bundle.files:
        if file.path in left_out:
            continue
        if not file.hunks:
            entries.append(_without_hunks(file))
        for hunk in file.hunks:
            end = ended.get((file.path, hunk.index))
            state: CoverageState = "full"
            why = ""
            if analysed is not None:
                end = True if file.path in analysed else None
                why = f"analysed by {analysed.get(file.path)}"
                reason = f"no model was asked, and no analyser reads {_kind(file.path)}"
            if end is None:
                state, why = "skipped", reason
            elif file.odd or any(len(line.text) > MAX_LINE for line in hunk.lines):
                state, why = "partial", file.odd or "a long line was shortened"
            elif not end:
                state, why = "partial", reason
            entry = HunkCoverage(
                path=file.path, hunk=hunk.index, state=state, reason=why, lines=len(hunk.lines)
            )
            entries.append(entry)
    entries += [
        HunkCoverage(
            path=path,
            hunk=0,
            state="skipped",
            reason=out.reason,
            lines=out.lines,
            required=out.kind == "too_large",
        )
        for path, out in left_out.items()
    ]
    return Coverage(hunks=tuple(entries))


def _kind(path: str) -> str:
    """Return "*.rs files" for the path "a/b.rs", and the name of a file without a suffix."""
    name = PurePosixPath(path)
    return f"*{name.suffix} files" if name.suffix else name.name


def _without_hunks(file: FileDiff) -> HunkCoverage:
    """Return the HunkCoverage of a file without hunks, such as a renamed or a binary file.

    The file is skipped if it is binary or cannot be reviewed. Otherwise it counts as read in full.
    """
    if file.odd:
        return HunkCoverage(path=file.path, hunk=0, state="skipped", reason=file.odd)
    if file.binary:
        # Git calls a source file with a NUL byte binary. It still has to be read.
        required = PurePosixPath(file.path).suffix in _TEXT_SUFFIXES
        return HunkCoverage(
            path=file.path, hunk=0, state="skipped", reason="binary", required=required
        )
    # Without hunks, the header of the diff is all there is to read.
    return HunkCoverage(path=file.path, hunk=0, state="full", reason=file.status)

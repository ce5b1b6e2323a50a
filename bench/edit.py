"""Edits by `edit_file`, compared with an oracle: made, refused, or made wrongly.

    python bench/edit.py [--count 20000] [--seed 1]
    python bench/edit.py --history CHECKOUT... [--count 1000]

Without a history, random edits of random files: a refusal is due if the file does not contain the
quote, or contains it more than once. With a history, the changes of real commits, quoted as models
quote them: exactly, and with the noise that models add.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fakes.edits import KINDS, Case, agrees, cases

from glue.errors import ToolError
from glue.tools.fs.edit import Replacement, edit_all

COLUMNS = ("made", "refused, due", "refused, not due", "WRONG")
REAL_COLUMNS = ("right", "refused", "WRONG")
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
MAX_FILE = 400_000  # characters
COMMITS = 400  # of each checkout


def judge(case: Case) -> str:
    """Make a random edit, and return the column of the table in which the outcome is counted."""
    try:
        done = edit_all(case.content, [Replacement(old=old, new=new) for old, new in case.edits])
    except ToolError:
        return "refused, not due" if case.unique and case.expected is not None else "refused, due"
    return "made" if agrees(case, done.content) else "WRONG"


class Hunk(NamedTuple):
    """A change of a real commit: the file before and after, and the changed lines with context."""

    before: str
    after: str
    old: list[str]
    new: list[str]


def hunks(checkout: str, maker: random.Random) -> Iterator[Hunk]:
    """Yield changes from the history of a checkout, in random order of commits."""

    def git(*args: str) -> str:
        done = subprocess.run(["git", "-C", checkout, *args], capture_output=True, check=False)
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""

    commits = git("rev-list", "--no-merges", f"--max-count={10 * COMMITS}", "--all").split()
    for commit in maker.sample(commits, min(COMMITS, len(commits))):
        changed = git("diff-tree", "-r", "--no-commit-id", "--diff-filter=M", "--name-only", commit)
        for path in changed.splitlines()[:3]:
            before, after = git("show", f"{commit}^:{path}"), git("show", f"{commit}:{path}")
            if not before or not after or len(before) > MAX_FILE or "\0" in before + after:
                continue
            patch = git("diff-tree", "-p", f"-U{maker.choice([0, 1, 3])}", commit, "--", path)
            yield from _parse(before, after, patch, maker)


def _parse(before: str, after: str, patch: str, maker: random.Random) -> Iterator[Hunk]:
    found = list(HUNK.finditer(patch))
    if not found:
        return
    at = maker.choice(found)
    first, count, start, added = (int(each) if each else 1 for each in at.groups())
    rows, news = before.split("\n"), after.split("\n")
    old, new = rows[first - 1 : first - 1 + count], news[start - 1 : start - 1 + added]
    # A quote whose last line is blank does not show whether that line belongs to it.
    if not count or old == new or not all(each[-1].strip() for each in (old, new) if each):
        return
    whole = [*rows[: first - 1], *new, *rows[first - 1 + count :]]
    yield Hunk(before, "\n".join(whole), old, new)


def _dedent(lines: list[str], width: int) -> list[str]:
    return [line[width:] if line.strip() else line for line in lines]


def noisy(kind: str, hunk: Hunk, maker: random.Random) -> tuple[str, str] | None:
    """Return the quote and the new text as a model would send them, or None if the kind is not
    possible here.
    """
    old, new = list(hunk.old), list(hunk.new)
    if kind == "line end in old only":
        return "\n".join(old) + "\n", "\n".join(new)
    if kind == "line end in both":
        return "\n".join(old) + "\n", "\n".join(new) + ("\n" if new else "")
    if kind == "trailing blanks":
        old = [line.rstrip() + " " * maker.choice([0, 0, 1, 2]) for line in old]
    elif kind == "indented less":
        width = min(len(line) - len(line.lstrip()) for line in [*old, *new] if line.strip())
        if not width:
            return None
        old, new = _dedent(old, width), _dedent(new, width)
    elif kind == "curly quotes":
        if not any(char in line for line in old for char in "\"'"):
            return None
        curly = str.maketrans("\"'", "”’")
        old, new = ([line.translate(curly) for line in each] for each in (old, new))
        if any(char in hunk.after for char in "“”‘’"):
            return None
    elif kind == "stale line":
        old[maker.randrange(len(old))] += " # as it was before"
    elif kind == "line left out":
        if len(old) < 3:
            return None
        del old[maker.randrange(1, len(old) - 1)]
        if "\n".join(old) in hunk.before:
            return None  # one of several equal lines: the quote is still exact
    elif kind == "dots":
        return _elided(hunk)
    return "\n".join(old), "\n".join(new)


def _elided(hunk: Hunk) -> tuple[str, str] | None:
    """Return a quote and a new text that leave out unchanged lines by dots; None if too few."""
    rows = hunk.before.split("\n")
    news = hunk.after.split("\n")
    tail = 0
    while tail < min(len(rows), len(news)) and rows[-1 - tail] == news[-1 - tail]:
        tail += 1
    head = 0
    while head < min(len(rows), len(news)) - tail and rows[head] == news[head]:
        head += 1
    if tail < 8 or head < 1:
        return None
    rest = rows[len(rows) - tail :]
    if not (rest[0].strip() and rest[6].strip()):
        return None
    closing = [rest[0], "...", rest[6]]
    old = [*rows[head - 1 : len(rows) - tail], *closing]
    new = [*news[head - 1 : len(news) - tail], *closing]
    return "\n".join(old), "\n".join(new)


NOISE = (
    "exact",
    "line end in old only",
    "line end in both",
    "trailing blanks",
    "indented less",
    "curly quotes",
    "dots",
    "stale line",
    "line left out",
)


def judge_real(hunk: Hunk, old: str, new: str) -> str:
    """Make an edit of a real file, and return the column in which the outcome is counted."""
    try:
        done = edit_all(hunk.before.encode(), [Replacement(old=old, new=new)])
    except ToolError:
        return "refused"
    made, expected = done.content.decode(), hunk.after

    def rows(text: str) -> list[str]:
        return [line.rstrip() for line in text.rstrip("\n").split("\n")]

    return "right" if rows(made) == rows(expected) else "WRONG"


def replay(checkouts: list[str], count: int, seed: int) -> Counter[tuple[str, str]]:
    """Count the outcomes of `count` edits of each kind of noise."""
    maker = random.Random(seed)
    counts: Counter[tuple[str, str]] = Counter()
    sources = [hunks(each, maker) for each in checkouts]
    left = dict.fromkeys(NOISE, max(count // len(NOISE), 1))
    while sources and any(left.values()):
        source = maker.choice(sources)
        hunk = next(source, None)
        if hunk is None:
            sources.remove(source)
            continue
        for kind in NOISE:
            made = noisy(kind, hunk, maker) if left[kind] else None
            if made is not None and made[0] != made[1]:
                counts[kind, judge_real(hunk, *made)] += 1
                left[kind] -= 1
    return counts


def show(counts: Counter[tuple[str, str]], kinds: tuple[str, ...], columns: tuple[str, ...]) -> int:
    """Print a table of outcomes by kind of edit, and return the number of wrong edits."""
    print(f"{'':22}" + "".join(f"{name:>18}" for name in columns))
    for kind in kinds:
        print(f"{kind:22}" + "".join(f"{counts[kind, name]:>18,}" for name in columns))
    wrong = sum(counts[kind, "WRONG"] for kind in kinds)
    print(f"{counts.total():,} edits, {wrong} wrong")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", nargs="+", metavar="CHECKOUT", default=[])
    given = parser.parse_args()
    if given.history:
        counts = replay(given.history, given.count or 1000, given.seed)
        return 1 if show(counts, NOISE, REAL_COLUMNS) else 0
    made = cases(given.seed, given.count or 20_000)
    counts = Counter((case.kind, judge(case)) for case in made)
    return 1 if show(counts, KINDS, COLUMNS) else 0


if __name__ == "__main__":
    sys.exit(main())

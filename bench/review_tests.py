"""Measure how often the prompt of a review lists the test that would show the planted bug.

    python bench/review_tests.py [--count 40] [--misses] REPO [REPO ...]

Each REPO is the path of a git repository. Its fixes that also change a test function are undone,
and the tests stay as they are in the fix. The table shows for how many of these changes the prompt
lists a changed test function of the fix, how often such a test is the first one or among the first
three, and how many lines and characters the listed tests and callers take. `--misses` prints the
changes without such a test. Nothing is written to the repositories, and no test is run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from glue.agents.review.change.collect import collect_range
from glue.agents.review.change.languages import is_test, language
from glue.agents.review.findings.related_tests import NAME, find_tests
from glue.agents.review.findings.surroundings import surroundings
from glue.agents.review.records import Bundle
from glue.agents.review.selftest import Sample, Scratch, changes
from glue.tools.git import Repo

Test = tuple[str, str]  # path and name


@dataclass(slots=True)
class Row:
    """The figures of one repository."""

    name: str
    ranks: list[int] = field(default_factory=list)  # place of the first deciding test, 0 if missed
    lines: list[int] = field(default_factory=list)
    characters: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        listed = sum(rank > 0 for rank in self.ranks)
        first, three = (sum(0 < rank <= limit for rank in self.ranks) for limit in (1, 3))
        count = len(self.ranks)
        share = f"{listed / count:.0%}" if count else ""
        return (
            f"{self.name:<24}{count:>6}{listed:>8}{share:>6}{first:>7}{three:>7}"
            f"{mean(self.lines or [0]):>8.1f}{median(self.lines or [0]):>8g}"
            f"{mean(self.characters or [0]):>12.0f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repos", nargs="+", type=Path, metavar="REPO")
    parser.add_argument("--count", type=int, default=40, help="fixes of each repository")
    parser.add_argument("--misses", action="store_true", help="print the changes that were missed")
    given = parser.parse_args()
    print(
        f"{'repository':<24}{'fixes':>6}{'listed':>8}{'':>6}{'first':>7}{'top 3':>7}"
        f"{'lines':>8}{'median':>8}{'characters':>12}"
    )
    total = Row("all")
    for root in given.repos:
        row = measure(root, given.count, given.misses)
        print(row, flush=True)
        total.ranks += row.ranks
        total.lines += row.lines
        total.characters += row.characters
    print(total)
    return 0


def measure(root: Path, count: int, misses: bool) -> Row:
    """Return the figures of one repository."""
    name = root.parent.name if root.name == "repo" else root.name
    row = Row(name[:23])
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(Path(folder), root)
        for bundle, sample in changes(root, scratch, count):
            wanted = set(changed_tests(root, sample)) if sample.undone else set()
            if not wanted:
                continue
            with Repo(scratch.home, alternates=True) as repo:
                text = surroundings(bundle, repo)
            rank = next((at for at, test in enumerate(listed(text), 1) if test in wanted), 0)
            row.ranks.append(rank)
            row.lines.append(len(text.splitlines()))
            row.characters.append(len(text))
            if misses and not rank:
                print_miss(bundle, sample, wanted, text)
    return row


def changed_tests(root: Path, sample: Sample) -> Iterator[Test]:
    """Yield the tests in which a fix added lines."""
    fix = collect_range(root, f"{sample.sha}^..{sample.sha}")
    for file in fix.files:
        if not is_test(file.path) or not language(file.path):
            continue
        added = {line.new for line in file.added if line.text.strip()}
        for test in find_tests(file.path, fix.head.get(file.path, "")):
            if not added.isdisjoint(range(test.start, test.end + 1)):
                yield file.path, test.name[:NAME]


def listed(text: str) -> Iterator[Test]:
    """Yield the tests in the part of a prompt with tests and callers, in order."""
    part = text.partition("Existing tests")[2].partition("\n\n")[0]
    for match in re.finditer(r"(?m)^  (.+?):\d+: (.+)$", part):
        yield match[1], match[2]


def print_miss(bundle: Bundle, sample: Sample, wanted: set[Test], text: str) -> None:
    print(f"-- {sample.sha[:12]} {sample.subject}")
    print(f"   files: {', '.join(file.path for file in bundle.files)}")
    print(f"   wanted: {', '.join(f'{path}:{name}' for path, name in sorted(wanted)[:6])}")
    print("   " + text.replace("\n", "\n   "))


if __name__ == "__main__":
    sys.exit(main())

"""What a rule sees: one changed file with both of its sides, and how a place in it becomes a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from glue.agents.review.change.syntax import is_doc, is_generated, is_test, language
from glue.agents.review.findings.anchor import MIN_QUOTE
from glue.agents.review.records import Bundle, Category, Confidence, FileDiff, Finding, Severity

SOURCE = "rules"


@dataclass(frozen=True)
class View:
    """One changed file that people wrote: no binary, generated or deleted file has a view."""

    file: FileDiff
    head: str
    base: str
    whole: bool  # whether both texts are known; otherwise the head was put together from the hunks

    @property
    def path(self) -> str:
        return self.file.path

    @cached_property
    def language(self) -> str:
        return language(self.path)

    @cached_property
    def is_test(self) -> bool:
        return is_test(self.path)

    @cached_property
    def is_doc(self) -> bool:
        return is_doc(self.path)

    @cached_property
    def lines(self) -> list[str]:
        return [line.removesuffix("\r") for line in self.head.split("\n")]

    @cached_property
    def added(self) -> frozenset[int]:
        return frozenset(line.new for line in self.file.added if line.new is not None)

    def place(self, line: int) -> tuple[int, int] | None:
        """The lines around one that may carry a comment and hold enough text to quote."""
        hunk = next((hunk for hunk in self.file.hunks if line in hunk.commentable), None)
        if hunk is None:
            return None
        first = last = line
        while sum(not char.isspace() for char in self.quote(first, last)) < MIN_QUOTE:
            if last + 1 in hunk.commentable:
                last += 1
            elif first - 1 in hunk.commentable:
                first -= 1
            else:
                return None
        return first, last

    def quote(self, start: int, end: int) -> str:
        return "\n".join(self.lines[start - 1 : end])


def views(bundle: Bundle) -> tuple[View, ...]:
    """Make the views of a bundle; files that were left out of the review have none."""
    left_out = {skip.path for skip in bundle.skipped}
    found = []
    for file in bundle.files:
        if file.path in left_out or not file.hunks or file.symlink or file.submodule or file.status == "deleted":
            continue
        head, base = bundle.head.get(file.path), bundle.base.get(file.old_path or file.path)
        text = _from_hunks(file) if head is None else head
        if not is_generated(file.path, text):
            whole = head is not None and (base is not None or file.status == "added")
            found.append(View(file, text, base or "", whole))
    return tuple(found)


def _from_hunks(file: FileDiff) -> str:
    """The head as far as the hunks show it, every line at its own number."""
    lines: list[str] = []
    for line in (line for hunk in file.hunks for line in hunk.lines):
        if line.new is not None and line.new < 1_000_000:
            lines += [""] * (line.new - len(lines))
            lines[line.new - 1] = line.text
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is said when a rule fires. Texts may hold {names} that the rule fills in."""

    name: str
    category: Category
    severity: Severity
    confidence: Confidence
    title: str
    body: str
    acceptance: str

    def at(self, view: View, line: int, **names: object) -> Iterator[Finding]:
        """Yield the finding on a line of the head, or nothing where no comment may stand near it."""
        place = view.place(line)
        if place is None:
            return
        first, last = place
        yield Finding(
            path=view.path,
            quote=view.quote(first, last),
            title=self.title.format(**names),
            body=self.body.format(**names),
            severity=self.severity,
            confidence=self.confidence,
            category=self.category,
            acceptance=self.acceptance.format(**names),
            rule=self.name,
            source=SOURCE,
            line=last,
            start_line=first if first < last else None,
            claimed=last,
            anchor="exact",
        )

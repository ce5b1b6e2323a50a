"""A rule's words, and how a place becomes a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from glue.agents.review.findings.rules.view import View
from glue.agents.review.records import Category, Confidence, Finding, Severity

SOURCE = "rules"
_LONGEST = 8  # lines a finding may span


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

    def at(
        self, view: View, start: int, end: int | None = None, *, suggestion: str | None = None, **names: object
    ) -> Iterator[Finding]:
        """Yield the finding on these lines of the head, or nothing where no comment may stand there."""
        place = view.place(start, min(end or start, start + _LONGEST - 1))
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
            suggestion=suggestion,
            acceptance=self.acceptance.format(**names),
            rule=self.name,
            source=SOURCE,
            line=last,
            start_line=first if first < last else None,
            claimed=last,
            anchor="exact",
        )

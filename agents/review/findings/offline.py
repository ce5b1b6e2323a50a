"""The rules as something that the `offline` provider can play: the same loop and the same tools as a model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from glue.agents.review.records import SEVERITIES, Bundle, Finding
from glue.messages import Part, Request, ToolCall, ToolMessage

BATCH = 8  # findings a turn


class Player:
    """Report each finding with the tool, then finish. How far it is, it reads from the transcript."""

    def __init__(self, findings: Sequence[Finding], bundle: Bundle) -> None:
        self.findings = tuple(findings)
        self.bundle = bundle

    def __call__(self, request: Request) -> tuple[Part, ...]:
        done = sum(isinstance(one, ToolMessage) and one.name == "report_finding" for one in request.messages)
        waiting = self.findings[done : done + BATCH]
        if waiting:
            return tuple(_report(finding, done + index) for index, finding in enumerate(waiting, 1))
        return (ToolCall(id="finish", name="finish_review", arguments=json.dumps({"summary": self.summary()})),)

    def summary(self) -> str:
        """Say what was looked at and what was found."""
        files = len(self.bundle.files)
        added = sum(len(file.added) for file in self.bundle.files)
        deleted = sum(len(file.deleted) for file in self.bundle.files)
        size = f"The change touches {files} {'file' if files == 1 else 'files'} (+{added}, -{deleted} lines)."
        if not self.findings:
            return f"{size} The deterministic rules found nothing to report. They look for known mistakes only."
        counts = [(name, sum(one.severity == name for one in self.findings)) for name in SEVERITIES]
        parts = ", ".join(f"{count} {name}" for name, count in counts if count)
        return f"{size} The deterministic rules found: {parts}. They look for known mistakes only."


def _report(finding: Finding, number: int) -> ToolCall:
    arguments = {
        "path": finding.path,
        "quote": finding.quote,
        "title": finding.title,
        "body": finding.body,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "category": finding.category,
        "suggestion": finding.suggestion,
        "acceptance": finding.acceptance,
        "line": finding.line,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    return ToolCall(id=f"finding-{number}", name="report_finding", arguments=json.dumps(given))

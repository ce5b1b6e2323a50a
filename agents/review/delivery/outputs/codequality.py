"""GitLab's Code Quality report: an artifact that needs no token."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from glue.agents.review.delivery.outputs import words
from glue.agents.review.delivery.report import Item, Report
from glue.agents.review.records import Severity

_LEVELS: dict[Severity, str] = {
    "critical": "blocker",
    "high": "critical",
    "medium": "major",
    "low": "minor",
    "info": "info",
}


def render(report: Report) -> str:
    return json.dumps(to_list(report), indent=2) + "\n"


def to_list(report: Report) -> list[dict[str, Any]]:
    """Give a report as a list of issues."""
    return [_item(item) for item in report.items]


def _item(item: Item) -> dict[str, Any]:
    lines = words.lines(item)
    # GitLab asks for marks that are unique in the report; ours are unique in a file.
    mark = hashlib.sha256(f"{item.finding.fingerprint} {words.path(item)}".encode()).hexdigest()[:32]
    return {
        "description": words.message(item, 800),
        "check_name": words.rule(item),
        "fingerprint": mark,
        "severity": _LEVELS[item.finding.severity],
        "location": {"path": words.path(item), "lines": {"begin": lines[0] if lines else 1}},
    }

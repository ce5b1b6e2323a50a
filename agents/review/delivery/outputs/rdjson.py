"""Reviewdog's RDJSON."""

from __future__ import annotations

import json
from typing import Any

from glue.agents.review.delivery.outputs import words
from glue.agents.review.delivery.report import Item, Report
from glue.agents.review.records import Severity

_LEVELS: dict[Severity, str] = {
    "critical": "ERROR",
    "high": "ERROR",
    "medium": "WARNING",
    "low": "INFO",
    "info": "INFO",
}


def render(report: Report) -> str:
    return json.dumps(to_dict(report), indent=2) + "\n"


def to_dict(report: Report) -> dict[str, Any]:
    """Give a report as a DiagnosticResult."""
    return {"source": {"name": "glue review"}, "diagnostics": [_item(item) for item in report.items]}


def _item(item: Item) -> dict[str, Any]:
    place: dict[str, Any] = {"path": words.path(item)}
    lines = words.lines(item)
    if lines:
        place["range"] = {"start": {"line": lines[0]}, "end": {"line": lines[1]}}
    out: dict[str, Any] = {
        "message": words.message(item),
        "location": place,
        "severity": _LEVELS[item.finding.severity],
        "code": {"value": words.rule(item)},
    }
    if item.suggestion is not None and lines:
        # The end is exclusive where it has a column: name the start of the line behind.
        span = {"start": {"line": lines[0], "column": 1}, "end": {"line": lines[1] + 1, "column": 1}}
        text = item.suggestion if item.suggestion.endswith("\n") or not item.suggestion else item.suggestion + "\n"
        out["suggestions"] = [{"range": span, "text": text}]
    return out

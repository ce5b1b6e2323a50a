"""Our own JSON: everything a script may want."""

from __future__ import annotations

import json
from typing import Any

from glue.agents.review.delivery import clean
from glue.agents.review.delivery.outputs import words
from glue.agents.review.delivery.render import acceptance
from glue.agents.review.delivery.report import Item, Report


def render(report: Report) -> str:
    return json.dumps(to_dict(report), indent=2) + "\n"


def to_dict(report: Report) -> dict[str, Any]:
    """Give a report as plain data."""
    coverage = report.coverage
    return {
        "version": 1,
        "repo": clean.line(report.change.repo),
        "number": report.change.number,
        "head_sha": report.change.head_sha,
        "base_sha": report.change.base_sha,
        "clean": report.clean,
        "codes": list(report.codes),
        "tripwire": report.tripwire,
        "finished": report.finished,
        "summary": clean.plain(report.summary),
        "notices": [clean.plain(notice) for notice in report.notices],
        "findings": [_item(item) for item in report.items],
        "dismissed": [
            {**_item(item), "by": clean.line(mark.by), "reason": clean.line(clean.plain(mark.reason))}
            for item, mark in report.dismissed
        ],
        "dropped": report.dropped,
        "coverage": {
            "percent": coverage.percent,
            "complete": coverage.complete,
            "hunks": [
                {
                    "path": clean.line(hunk.path),
                    "hunk": hunk.hunk,
                    "state": hunk.state,
                    "reason": clean.line(hunk.reason),
                    "lines": hunk.lines,
                    "required": hunk.required,
                }
                for hunk in coverage.hunks
            ],
        },
        "skipped": [{"path": clean.line(skip.path), "reason": clean.line(skip.reason)} for skip in report.skipped],
        "model": clean.line(report.model),
        "prompt": clean.line(report.prompt),
        "cost": report.cost,
        "seconds": report.seconds,
    }


def _item(item: Item) -> dict[str, Any]:
    finding = item.finding
    lines = words.lines(item)
    return {
        "id": finding.fingerprint,
        "path": words.path(item),
        "start_line": lines[0] if lines else None,
        "line": lines[1] if lines else None,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "category": finding.category,
        "rule": words.rule(item),
        "title": words.title(item),
        "body": clean.plain(finding.body),
        "suggestion": item.suggestion,
        "acceptance": acceptance(item),
        "inline": item.inline,
        "source": clean.line(finding.source),
    }

"""SARIF 2.1.0, within what GitHub's code scanning takes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from glue.agents.review.delivery.outputs import words
from glue.agents.review.delivery.report import Item, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RESULTS = 5_000  # shown by GitHub


def render(report: Report) -> str:
    return json.dumps(to_dict(report), indent=2) + "\n"


def to_dict(report: Report) -> dict[str, Any]:
    """Give a report as a SARIF log of one run."""
    items = report.items[:RESULTS]
    rules = list(dict.fromkeys(words.rule(item) for item in items))
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "glue review", "rules": [_rule(name, items) for name in rules]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, rules) for item in items],
    }
    if report.codes or not report.finished:
        run["invocations"] = [{"executionSuccessful": False}]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(name: str, items: tuple[Item, ...]) -> dict[str, Any]:
    first = next(item for item in items if words.rule(item) == name)
    return {
        "id": name,
        "shortDescription": {"text": name.replace("/", ": ").replace("-", " ")},
        "defaultConfiguration": {"level": words.LEVELS[first.finding.severity]},
        "properties": {"tags": [first.finding.category]},
    }


def _result(item: Item, rules: list[str]) -> dict[str, Any]:
    lines = words.lines(item)
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(words.path(item)), "uriBaseId": "%SRCROOT%"}}
    if lines:
        place["region"] = {"startLine": lines[0], "endLine": lines[1]}
    mark = item.finding.fingerprint
    return {
        "ruleId": words.rule(item),
        "ruleIndex": rules.index(words.rule(item)),
        "level": words.LEVELS[item.finding.severity],
        "message": {"text": words.message(item)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"primaryLocationLineHash": mark, "glueReview/v1": mark},
        "properties": {"severity": item.finding.severity, "confidence": item.finding.confidence},
    }

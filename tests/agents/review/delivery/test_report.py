"""The report of a review and its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from glue.agents.review.change.config import make
from glue.agents.review.delivery import report
from glue.agents.review.records import Coverage, Finding, HunkCoverage, ReviewedChange

FINDING = Finding(
    path="app.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is made once and shared by every call of `load`.",
    source="script",
)
COVERED = Coverage(hunks=(HunkCoverage(path="app.py", hunk=1, state="full", lines=4),))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, 0),
        ({"findings": [replace(FINDING, severity="high")]}, 1),
        ({"findings": [replace(FINDING, severity="high")], "fail_on": "critical"}, 0),
        ({"findings": [replace(FINDING, severity="critical")], "fail_on": None}, 0),
        (
            {
                "findings": [replace(FINDING, severity="critical")],
                "fail_on": make({"fail-on": "never"}).fail_on,
            },
            0,
        ),
        ({"codes": ("degenerate.run",)}, 3),
        ({"finished": False}, 3),
        ({"coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),))}, 0),
        (
            {
                "coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),)),
                "require_coverage": 100.0,
            },
            3,
        ),
        ({"require_coverage": 100.0}, 0),
        ({"problem": "refused"}, 4),
        ({"problem": ""}, 0),
        ({"problem": "refused", "findings": [replace(FINDING, severity="high")]}, 4),
    ],
)
def test_verdict_determines_the_exit_code(options: dict[str, Any], code: int) -> None:
    found = options.pop("findings", ())
    items = tuple(report.Item(finding=one, path=one.path, where=one.path) for one in found)
    asked = {
        name: options.pop(name)
        for name in ("fail_on", "require_coverage", "problem")
        if name in options
    }
    judged = report.Report(change=ReviewedChange(), items=items, **{"coverage": COVERED, **options})
    found = report.decide(judged, **asked)

    assert found.exit_code == code
    assert found.word

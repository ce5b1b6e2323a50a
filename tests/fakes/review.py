"""What tests of the review share: a small change with a bug, what a model says of it, the command in a repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from glue.agents.review import demo
from glue.agents.review.cli import review

OLD = "def total(prices):\n    return sum(prices)\n"
NEW = "def total(prices):\n    count = len(prices)\n    return sum(prices) / count\n"
FOUND = {
    "path": "shop.py",
    "quote": "return sum(prices) / count",
    "title": "Division by zero for an empty list",
    "body": "With an empty list `count` is 0 and the division raises ZeroDivisionError, where the old code gave 0.",
    "severity": "high",
    "confidence": "high",
    "category": "bug",
    "acceptance": "An empty list gives 0.",
}
SUMMARY = (
    "The change turns `total` into an average. I looked at both lines of it and at what happens for an empty list."
)


def work_in_larder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build the demo's repository and go there, outside of CI and without a model."""
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "GITEA_", "GITLAB_", "FORGEJO_", "CI_", "GLUE_")):
            monkeypatch.delenv(name)
    demo.build(home / "larder")
    monkeypatch.chdir(home / "larder")
    return home / "larder"


def invoke(*args: str, stdin: str | None = None) -> tuple[int, str]:
    """Run `glue review`: its exit code, and what it printed."""
    result = CliRunner().invoke(review, args, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output

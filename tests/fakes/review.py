"""Shared parts of the review tests: pull requests, a finding of a model, the command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fakes import larder
from glue.agents.review.change.diff import parse
from glue.agents.review.cli import review
from glue.agents.review.records import Bundle, ReviewedChange

OLD = "def total(prices):\n    return sum(prices)\n"
NEW = "def total(prices):\n    count = len(prices)\n    return sum(prices) / count\n"
FOUND = {
    "path": "shop.py",
    "quote": "return sum(prices) / count",
    "title": "Division by zero for an empty list",
    "body": "With an empty list `count` is 0 and the division raises ZeroDivisionError, "
    "where the old code gave 0.",
    "severity": "high",
    "confidence": "high",
    "category": "bug",
    "acceptance": "An empty list gives 0.",
}
SUMMARY = (
    "The change turns `total` into an average. I looked at both lines of it and at what happens "
    "for an empty list."
)
HEAD, BASE = "a" * 40, "b" * 40


def work_in_larder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the repository of the demo and change to it, outside of CI and without a model."""
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "GITEA_", "GITLAB_", "FORGEJO_", "CI_", "GLUE_")):
            monkeypatch.delenv(name)
    larder.build(home / "larder")
    monkeypatch.chdir(home / "larder")
    return home / "larder"


def invoke(*args: str, stdin: str | None = None) -> tuple[int, str]:
    """Run `glue review` and return its exit code and its output."""
    result = CliRunner().invoke(review, args, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def pull_request(diff: str, **change: Any) -> Bundle:
    """Return a bundle of a diff and the new files; lines that the diff does not show are blank."""
    details: dict[str, Any] = {
        "repo": "octo/demo",
        "number": 1,
        "head_sha": HEAD,
        "base_sha": BASE,
        "author": "ann",
    }
    texts: dict[str, str] = {}
    for file in parse(diff):
        lines = {
            line.new: line.text
            for hunk in file.hunks
            for line in hunk.lines
            if line.new is not None
        }
        texts[file.path] = (
            "\n".join(lines.get(at, "") for at in range(1, max(lines, default=0) + 1)) + "\n"
        )
    found = ReviewedChange(mode="pull_request", **{**details, **change})
    return Bundle(change=found, diff=diff, files=parse(diff), head=texts)

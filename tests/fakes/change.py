"""A pull request as `collect` would give it, made from a diff alone."""

from __future__ import annotations

from typing import Any

from glue.agents.review.change.diff import parse
from glue.agents.review.records import Bundle, Change

HEAD, BASE = "a" * 40, "b" * 40


def pull_request(diff: str, **change: Any) -> Bundle:
    """Bundle a diff with the files after it, as far as it shows them; their other lines are blank."""
    details: dict[str, Any] = {"repo": "octo/demo", "number": 1, "head_sha": HEAD, "base_sha": BASE, "author": "ann"}
    texts: dict[str, str] = {}
    for file in parse(diff):
        lines = {line.new: line.text for hunk in file.hunks for line in hunk.lines if line.new is not None}
        texts[file.path] = "\n".join(lines.get(at, "") for at in range(1, max(lines, default=0) + 1)) + "\n"
    found = Change(mode="pull_request", **{**details, **change})
    return Bundle(change=found, diff=diff, files=parse(diff), head=texts)

"""A check run on GitHub: the verdict beside the commit, with an annotation for each finding."""

from __future__ import annotations

from typing import Any

from glue.agents.review import render
from glue.agents.review.forges.base import post_once
from glue.agents.review.forges.client import ForgeError
from glue.agents.review.forges.github import GitHub
from glue.agents.review.outputs import words
from glue.agents.review.report import Item, Report
from glue.agents.review.verdict import GATE, PASS, Verdict

NAME = "glue review"
ANNOTATIONS = 50  # a request
_LEVELS = {"error": "failure", "warning": "warning", "note": "notice"}


def post_check(forge: GitHub, report: Report, verdict: Verdict) -> str:
    """Add or renew the check run of this head; returns what went wrong."""
    body = run(report, verdict)
    try:
        found = _ours(forge, report)
        if found:
            forge.client.change("PATCH", f"{forge.root}/check-runs/{found[0]}", _renewed(body))
        else:
            post_once(
                lambda: forge.client.change("POST", f"{forge.root}/check-runs", body),
                lambda: bool(_ours(forge, report)),
                forge.client.sleep,
            )
    except ForgeError as error:
        return str(error)
    return ""


def run(report: Report, verdict: Verdict) -> dict[str, Any]:
    """Write a check run. It never says success where something was not read."""
    conclusion = {PASS: "success", GATE: "failure"}.get(verdict.exit_code, "neutral")
    if conclusion == "success" and not report.clean:
        conclusion = "neutral"
    notes = [note for item in report.items if (note := _note(item))]
    return {
        "name": NAME,
        "head_sha": report.change.head_sha,
        "status": "completed",
        "conclusion": conclusion,
        "output": {
            "title": f"{len(report.items) or 'No'} finding{'s' * (len(report.items) != 1)}",
            "summary": render.summary(report),
            "annotations": notes[:ANNOTATIONS],
        },
    }


def _renewed(body: dict[str, Any]) -> dict[str, Any]:
    """What changes in a run that is there; its annotations stay, as new ones would be added to them."""
    output = {name: value for name, value in body["output"].items() if name != "annotations"}
    return {**{name: value for name, value in body.items() if name != "head_sha"}, "output": output}


def _note(item: Item) -> dict[str, Any] | None:
    lines = words.lines(item)
    if lines is None or not item.inline:
        return None
    return {
        "path": item.finding.path,
        "start_line": lines[0],
        "end_line": lines[1],
        "annotation_level": _LEVELS[words.LEVELS[item.finding.severity]],
        "title": words.title(item)[:255],
        "message": words.message(item),
    }


def _ours(forge: GitHub, report: Report) -> list[int]:
    found = forge.client.get(f"{forge.root}/commits/{report.change.head_sha}/check-runs", check_name=NAME)
    rows = (found or {}).get("check_runs", [])
    return [int(row["id"]) for row in rows if row.get("name") == NAME]

"""What a job on GitHub or Gitea Actions can say without a token: annotations, a step summary, outputs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from glue import clean_text
from glue.agents.review.delivery.outputs import words
from glue.agents.review.delivery.render import summary
from glue.agents.review.delivery.report import Item, Report

PER_LEVEL = 10  # shown of each level, a step
STEP_SUMMARY = 1024 * 1024
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def commands(report: Report) -> str:
    """Write workflow commands, everything in them escaped."""
    counts: dict[str, int] = {}
    rows: list[str] = []
    for item in report.items:
        level = _COMMANDS[words.LEVELS[item.finding.severity]]
        counts[level] = counts.get(level, 0) + 1
        if counts[level] <= PER_LEVEL:
            rows.append(_command(level, item))
    return "".join(f"{row}\n" for row in rows)


def _command(level: str, item: Item) -> str:
    places = {"file": words.path(item), "title": f"glue review: {words.title(item)}"}
    if lines := words.lines(item):
        places |= {"line": str(lines[0]), "endLine": str(lines[1])}
    properties = ",".join(f"{name}={_property(value)}" for name, value in places.items())
    return f"::{level} {properties}::{_text(words.message(item, 1_000))}"


def outputs(values: Mapping[str, str | int | float | bool]) -> str:
    """Write values for GITHUB_OUTPUT; the delimiter is random, so that no value can end it."""
    rows: list[str] = []
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else clean_text(str(value), drop=True)
        mark = f"glue_{secrets.token_hex(16)}"
        rows.append(f"{name}<<{mark}\n{text}\n{mark}\n")
    return "".join(rows)


def write(report: Report, environ: Mapping[str, str], values: Mapping[str, str | int | float | bool]) -> None:
    """Append to the files the runner named, where it named any."""
    append(environ.get("GITHUB_STEP_SUMMARY", ""), summary(report)[:STEP_SUMMARY] + "\n")
    append(environ.get("GITHUB_OUTPUT", ""), outputs(values))


def append(path: str, text: str) -> None:
    """Append to a runner's file; without a path there is none."""
    if not path:
        return
    with Path(path).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")

"""Write a report in every format that other programs read: terminal, JSON, SARIF, RDJSON, Code Quality, CI runners.

Every text is made inert here: nothing in it can move a cursor, end a value or command a runner.
"""

from __future__ import annotations

import hashlib
import html
import json
import secrets
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from glue import clean_text
from glue.agents.review.delivery import clean
from glue.agents.review.delivery.render import acceptance, summary
from glue.agents.review.delivery.report import Item, Report
from glue.agents.review.records import Severity

LEVELS: dict[Severity, str] = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}
PER_LEVEL = 10  # annotations of each level that a runner shows, a step
STEP_SUMMARY = 1024 * 1024
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RESULTS = 5_000  # of a SARIF log that GitHub shows
_COLOURS = {"critical": "31;1", "high": "31", "medium": "33", "low": "36", "info": "34"}
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_RDJSON = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}
_QUALITY = {"critical": "blocker", "high": "critical", "medium": "major", "low": "minor", "info": "info"}


def render(report: Report, form: str) -> str:
    """Write a report in one of the FORMATS."""
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; there are: {', '.join(FORMATS)}")
    return FORMATS[form](report)


# What every format says of a finding ----------------------------------------------------------------


def title(item: Item) -> str:
    return clean.line(clean.plain(item.finding.title), 200)


def message(item: Item, limit: int = 1_500) -> str:
    """Title and body as plain text."""
    return clean.shorten(f"{title(item)}\n\n{clean.plain(item.finding.body)}", limit)


def rule(item: Item) -> str:
    return item.finding.rule or f"model/{item.finding.category}"


def lines(item: Item) -> tuple[int, int] | None:
    """The first and last line on the new side, where the finding stands on one."""
    finding = item.finding
    if finding.line is None or finding.side != "RIGHT":
        return None
    return finding.start_line or finding.line, finding.line


# Terminal -------------------------------------------------------------------------------------------


def terminal(report: Report, *, colour: bool = False, width: int = 100) -> str:
    """Write a report for people, each line of it inert."""
    rows = [_headline(report), ""]
    if report.summary.strip():
        rows += [*_wrapped(clean.plain(report.summary), width, ""), ""]
    rows += [f"note: {clean.line(clean.plain(notice))}" for notice in report.notices]
    for item in (item for item in report.items if not item.folded):
        rows += [*_terminal_item(item, colour, width), ""]
    folded = [item for item in report.items if item.folded]
    rows += [f"also: {clean.line(item.where)}: {item.finding.severity}: {title(item)}" for item in folded]
    rows += [f"fixed: {clean.line(old.path)}: {clean.line(clean.plain(old.title))}" for old in report.fixed]
    rows += [f"dismissed by author: {title(item)} ({item.finding.fingerprint})" for item, _ in report.dismissed]
    gaps = [hunk for hunk in report.coverage.required if hunk.state != "full"]
    if gaps:
        names = list(dict.fromkeys(clean.line(hunk.path, 120) for hunk in gaps))
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        rows.append(f"not read in full: {', '.join(names[:10])}{more}")
    return "\n".join(rows).rstrip() + "\n"


def _headline(report: Report) -> str:
    count = len(report.items)
    found = f"{count or 'no'} finding{'s' * (count != 1)}"
    if report.codes:
        found = f"inconclusive ({', '.join(report.codes)})"
    name = f"by {clean.line(report.model)}" if report.model else "by analysers and rules"
    return f"glue review: {found}, {report.coverage.percent:g} % of the change read in full, {name}"


def _terminal_item(item: Item, colour: bool, width: int) -> list[str]:
    finding = item.finding
    level = f"{finding.severity} {finding.category}"
    if colour:
        level = f"\x1b[{_COLOURS[finding.severity]}m{level}\x1b[0m"
    rows = [clean.line(item.where) + f": {level}: {title(item)}  [{finding.fingerprint}]"]
    rows += _wrapped(clean.plain(finding.body), width, "    ")
    if item.suggestion is not None:
        code = (clean_text(row, drop=True).replace("##[", "# #[")[:200] for row in item.suggestion.split("\n")[:20])
        rows += ["    suggestion:", *(f"    | {row}" for row in code)]
    if finding.note:
        rows.append(f"    note: {clean.line(finding.note)}")
    return [*rows, f"    Acceptance: {acceptance(item)}"]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    rows: list[str] = []
    for row in text.split("\n"):
        rows += textwrap.wrap(row, width, initial_indent=indent, subsequent_indent=indent) or [""]
    return [row if not row.lstrip().startswith("::") else row.replace("::", ": :", 1) for row in rows]


# HTML ------------------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>glue review</title>
<meta http-equiv="content-security-policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>body{{max-width:50rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif}}
pre{{background:#f3f3f3;padding:.6rem;overflow:auto}}article{{border-top:1px solid #ccc;margin-top:1rem}}
.critical,.high{{color:#b00}}.medium{{color:#a60}}.low,.info{{color:#555}}</style>
<h1>glue review</h1><p>{headline}</p>{body}</html>
"""


def to_html(report: Report) -> str:
    """Write a report as one page that loads nothing and runs nothing."""

    def text(words: str) -> str:
        return "".join(f"<p>{html.escape(part)}</p>" for part in words.split("\n\n") if part.strip())

    parts = [text(clean.plain(report.summary)), *(text(clean.plain(notice)) for notice in report.notices)]
    for item in report.items:
        finding = item.finding
        parts.append(
            f'<article><h2 class="{finding.severity}">{html.escape(title(item))}</h2>'
            f"<p><code>{html.escape(clean.line(item.where))}</code> · {finding.severity} {finding.category} ·"
            f" {html.escape(rule(item))}</p><pre>{html.escape(clean_text(finding.quote, drop=True))}</pre>"
            f"{text(clean.plain(finding.body))}<p>Acceptance: {html.escape(acceptance(item))}</p></article>"
        )
    return _PAGE.format(headline=html.escape(_headline(report)), body="".join(parts))


# JSON -----------------------------------------------------------------------------------------------


def to_data(report: Report) -> dict[str, Any]:
    """Give a report as plain data: everything a script may want."""
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
        "findings": [_data_item(item) for item in report.items],
        "dismissed": [
            {**_data_item(item), "by": clean.line(mark.by), "reason": clean.line(clean.plain(mark.reason))}
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


def _data_item(item: Item) -> dict[str, Any]:
    finding = item.finding
    span = lines(item)
    return {
        "id": finding.fingerprint,
        "path": item.path,
        "start_line": span[0] if span else None,
        "line": span[1] if span else None,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "category": finding.category,
        "rule": rule(item),
        "title": title(item),
        "body": clean.plain(finding.body),
        "suggestion": item.suggestion,
        "acceptance": acceptance(item),
        "inline": item.inline,
        "source": clean.line(finding.source),
    }


# SARIF 2.1.0, within what GitHub's code scanning takes ------------------------------------------------


def to_sarif(report: Report) -> dict[str, Any]:
    """Give a report as a SARIF log of one run."""
    items = report.items[:RESULTS]
    rules = list(dict.fromkeys(rule(item) for item in items))
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "glue review", "rules": [_sarif_rule(name, items) for name in rules]}},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(item, rules) for item in items],
    }
    if report.codes or not report.finished:
        run["invocations"] = [{"executionSuccessful": False}]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_rule(name: str, items: tuple[Item, ...]) -> dict[str, Any]:
    first = next(item for item in items if rule(item) == name)
    return {
        "id": name,
        "shortDescription": {"text": name.replace("/", ": ").replace("-", " ")},
        "defaultConfiguration": {"level": LEVELS[first.finding.severity]},
        "properties": {"tags": [first.finding.category]},
    }


def _sarif_result(item: Item, rules: list[str]) -> dict[str, Any]:
    span = lines(item)
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(item.path), "uriBaseId": "%SRCROOT%"}}
    if span:
        place["region"] = {"startLine": span[0], "endLine": span[1]}
    mark = item.finding.fingerprint
    return {
        "ruleId": rule(item),
        "ruleIndex": rules.index(rule(item)),
        "level": LEVELS[item.finding.severity],
        "message": {"text": message(item)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"primaryLocationLineHash": mark, "glueReview/v1": mark},
        "properties": {"severity": item.finding.severity, "confidence": item.finding.confidence},
    }


# Reviewdog's RDJSON, GitLab's Code Quality ------------------------------------------------------------


def to_rdjson(report: Report) -> dict[str, Any]:
    """Give a report as a DiagnosticResult."""
    return {"source": {"name": "glue review"}, "diagnostics": [_diagnostic(item) for item in report.items]}


def _diagnostic(item: Item) -> dict[str, Any]:
    place: dict[str, Any] = {"path": item.path}
    span = lines(item)
    if span:
        place["range"] = {"start": {"line": span[0]}, "end": {"line": span[1]}}
    out: dict[str, Any] = {
        "message": message(item),
        "location": place,
        "severity": _RDJSON[LEVELS[item.finding.severity]],
        "code": {"value": rule(item)},
    }
    if item.suggestion is not None and span:
        # The end is exclusive where it has a column: name the start of the line behind.
        replaced = {"start": {"line": span[0], "column": 1}, "end": {"line": span[1] + 1, "column": 1}}
        text = item.suggestion if item.suggestion.endswith("\n") or not item.suggestion else item.suggestion + "\n"
        out["suggestions"] = [{"range": replaced, "text": text}]
    return out


def to_code_quality(report: Report) -> list[dict[str, Any]]:
    """Give a report as GitLab's list of issues: an artifact that needs no token."""
    return [_issue(item) for item in report.items]


def _issue(item: Item) -> dict[str, Any]:
    span = lines(item)
    # GitLab asks for marks that are unique in the report; ours are unique in a file.
    mark = hashlib.sha256(f"{item.finding.fingerprint} {item.path}".encode()).hexdigest()[:32]
    return {
        "description": message(item, 800),
        "check_name": rule(item),
        "fingerprint": mark,
        "severity": _QUALITY[item.finding.severity],
        "location": {"path": item.path, "lines": {"begin": span[0] if span else 1}},
    }


# CI runners of GitHub and Gitea: annotations, a step summary, outputs ------------------------------------


def workflow_commands(report: Report) -> str:
    """Write workflow commands, everything in them escaped."""
    counts: dict[str, int] = {}
    rows: list[str] = []
    for item in report.items:
        level = _COMMANDS[LEVELS[item.finding.severity]]
        counts[level] = counts.get(level, 0) + 1
        if counts[level] <= PER_LEVEL:
            rows.append(_command(level, item))
    return "".join(f"{row}\n" for row in rows)


def _command(level: str, item: Item) -> str:
    places = {"file": item.path, "title": f"glue review: {title(item)}"}
    if span := lines(item):
        places |= {"line": str(span[0]), "endLine": str(span[1])}
    properties = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in places.items()
    )
    return f"::{level} {properties}::{_escaped(message(item, 1_000))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def step_outputs(values: Mapping[str, str | int | float | bool]) -> str:
    """Write values for GITHUB_OUTPUT; the delimiter is random, so that no value can end it."""
    rows: list[str] = []
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else clean_text(str(value), drop=True)
        mark = f"glue_{secrets.token_hex(16)}"
        rows.append(f"{name}<<{mark}\n{text}\n{mark}\n")
    return "".join(rows)


def write_step(report: Report, environ: Mapping[str, str], values: Mapping[str, str | int | float | bool]) -> None:
    """Append to the files the runner named, where it named any."""
    append(environ.get("GITHUB_STEP_SUMMARY", ""), summary(report)[:STEP_SUMMARY] + "\n")
    append(environ.get("GITHUB_OUTPUT", ""), step_outputs(values))


def append(path: str, text: str) -> None:
    """Append to a runner's file; without a path there is none."""
    if not path:
        return
    with Path(path).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _json(convert: Callable[[Report], Any]) -> Callable[[Report], str]:
    return lambda report: json.dumps(convert(report), indent=2) + "\n"


FORMATS: dict[str, Callable[[Report], str]] = {
    "terminal": terminal,
    "markdown": lambda report: summary(report) + "\n",
    "html": to_html,
    "json": _json(to_data),
    "sarif": _json(to_sarif),
    "rdjson": _json(to_rdjson),
    "codequality": _json(to_code_quality),
    "annotations": workflow_commands,
}

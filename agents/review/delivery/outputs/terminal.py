"""A report for a terminal: nothing in it can move the cursor, colour the screen or command a CI runner."""

from __future__ import annotations

import textwrap

from glue import clean_text
from glue.agents.review.delivery import clean
from glue.agents.review.delivery.outputs import words
from glue.agents.review.delivery.render import acceptance
from glue.agents.review.delivery.report import Item, Report

_COLOURS = {"critical": "31;1", "high": "31", "medium": "33", "low": "36", "info": "34"}


def render(report: Report, *, colour: bool = False, width: int = 100) -> str:
    """Write a report for people, each line of it inert."""
    rows = [_headline(report), ""]
    if report.summary.strip():
        rows += [*_wrapped(clean.plain(report.summary), width, ""), ""]
    rows += [f"note: {clean.line(clean.plain(notice))}" for notice in report.notices]
    for item in report.items:
        rows += [*_item(item, colour, width), ""]
    rows += [f"dismissed by author: {words.title(item)} ({item.finding.fingerprint})" for item, _ in report.dismissed]
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
    name = f"by {clean.line(report.model)}" if report.model else "by rules alone"
    return f"glue review: {found}, {report.coverage.percent:g} % of the change read in full, {name}"


def _item(item: Item, colour: bool, width: int) -> list[str]:
    finding = item.finding
    level = f"{finding.severity} {finding.category}"
    if colour:
        level = f"\x1b[{_COLOURS[finding.severity]}m{level}\x1b[0m"
    rows = [clean.line(item.where) + f": {level}: {words.title(item)}  [{finding.fingerprint}]"]
    rows += _wrapped(clean.plain(finding.body), width, "    ")
    if item.suggestion is not None:
        rows += ["    suggestion:", *(f"    | {_code(row)}" for row in item.suggestion.split("\n")[:20])]
    if finding.note:
        rows.append(f"    note: {clean.line(finding.note)}")
    return [*rows, f"    Acceptance: {acceptance(item)}"]


def _code(row: str) -> str:
    return clean_text(row, drop=True).replace("##[", "# #[")[:200]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    rows: list[str] = []
    for row in text.split("\n"):
        rows += textwrap.wrap(row, width, initial_indent=indent, subsequent_indent=indent) or [""]
    return [row if not row.lstrip().startswith("::") else row.replace("::", ": :", 1) for row in rows]

"""The texts every format needs, made inert."""

from __future__ import annotations

from glue.agents.review.delivery import clean
from glue.agents.review.delivery.report import Item
from glue.agents.review.records import Severity

LEVELS: dict[Severity, str] = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}


def title(item: Item) -> str:
    return clean.line(clean.plain(item.finding.title), 200)


def message(item: Item, limit: int = 1_500) -> str:
    """Title and body as plain text."""
    return clean.shorten(f"{title(item)}\n\n{clean.plain(item.finding.body)}", limit)


def rule(item: Item) -> str:
    return item.finding.rule or f"model/{item.finding.category}"


def path(item: Item) -> str:
    return item.path


def lines(item: Item) -> tuple[int, int] | None:
    finding = item.finding
    if finding.line is None or finding.side != "RIGHT":
        return None
    return finding.start_line or finding.line, finding.line

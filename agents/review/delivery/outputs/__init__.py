"""A report in other people's formats. Each is a pure function of the report."""

from __future__ import annotations

from collections.abc import Callable

from glue.agents.review.delivery.outputs import actions, codequality, data, rdjson, sarif, terminal
from glue.agents.review.delivery.render import summary
from glue.agents.review.delivery.report import Report

FORMATS: dict[str, Callable[[Report], str]] = {
    "terminal": terminal.render,
    "markdown": lambda report: summary(report) + "\n",
    "json": data.render,
    "sarif": sarif.render,
    "rdjson": rdjson.render,
    "codequality": codequality.render,
    "annotations": actions.commands,
}


def render(report: Report, form: str) -> str:
    """Write a report in one of the FORMATS."""
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; there are: {', '.join(FORMATS)}")
    return FORMATS[form](report)

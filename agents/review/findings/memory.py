"""Memory: decisions of people on earlier findings, in the committed file `.glue/dismissed`.

Each line is a fingerprint, a label, the place, the title and a reason. People can read and edit it:

    3f2a9c1d0e4b5a67 wrong shop.py: Division by zero for an empty list: callers check the list

A `wrong` or `arguable` finding with this fingerprint is not posted again. All lines are given to
the model and to the second look, which apply them by their meaning. A line without a fingerprint
that starts with "- " is a decision too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from glue.agents.review.change.config import DISMISSED_FILE
from glue.agents.review.records import Bundle, Finding
from glue.text import one_line

Label: TypeAlias = Literal["right", "arguable", "wrong"]
LABELS: tuple[Label, ...] = get_args(Label)
MAX_PROMPT = 8_000  # characters of decisions in a prompt, the newest ones
ID = r"([0-9a-f]{8,20}(?:-\d{1,4})?)\b[ \t:]*(.*)$"
_ROW = re.compile(rf"^{ID}", re.IGNORECASE)
_INTRODUCTION = (
    "People judged these findings of earlier reviews. Do not report again a finding with the same"
    " meaning as a wrong or arguable finding, unless the code differs in a fact on which the reason"
    " for that judgement depends. Findings like the right ones are wanted."
)
HEADER = (
    "# Decisions on findings of `glue review`. Each line: fingerprint, label (right, arguable or"
    " wrong), place, title, reason.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """A decision in `.glue/dismissed` on one finding, or on a kind of finding if `id` is ""."""

    id: str = ""
    label: Label = "wrong"
    text: str = ""


def decisions(bundle: Bundle) -> Iterator[PastDecision]:
    """Yield the decisions on findings in the file `.glue/dismissed` of the merge-base."""
    for row in bundle.guidelines.get(DISMISSED_FILE, "").splitlines():
        row = row.strip()
        if match := _ROW.match(row):
            word, _, rest = match[2].partition(" ")
            label = next((label for label in LABELS if word.lower().rstrip(":") == label), None)
            text = rest if label else match[2]
            yield PastDecision(id=match[1].lower(), label=label or "wrong", text=text.strip())
        elif row.startswith("- "):
            yield PastDecision(text=row[2:].strip())


def section(bundle: Bundle) -> str:
    """Return the decisions in `.glue/dismissed` as a section of a prompt, or "" if there are none.

    If they are too long together, the first decisions of the file are left out.
    """
    rows = [f"- {one.label}: {one.text}" for one in decisions(bundle) if one.text]
    while rows and sum(map(len, rows)) > MAX_PROMPT:
        rows.pop(0)
    if not rows:
        return ""
    return "\n".join(
        (
            "## Earlier decisions of this repository",
            "",
            _INTRODUCTION,
            "",
            *rows,
        )
    )


def line(finding: Finding, label: Label, reason: str) -> str:
    """Return a new line for `.glue/dismissed` that records a decision on a finding."""
    parts = (finding.path, finding.title, reason)
    text = ": ".join(one_line(part, drop=True) for part in parts if part)
    return f"{finding.fingerprint} {label} {text}\n"


def added(text: str, new: str) -> str:
    """Return `text` with the line `new` at its end and without older lines of the same finding.

    `text` is the content of `.glue/dismissed`. If no other line is left, HEADER is put first.
    """
    mark = new.split(" ", 1)[0]
    rows = [row for row in text.splitlines(keepends=True) if not _names(row, mark)]
    if rows and not rows[-1].endswith("\n"):
        rows[-1] += "\n"
    return "".join(rows or [HEADER]) + new


def _names(row: str, fingerprint: str) -> bool:
    """Return whether a row of `.glue/dismissed` has the fingerprint, in any form that is read."""
    match = _ROW.match(row.strip())
    return match is not None and match[1].lower() == fingerprint

"""Findings of a review: what analysers and rules say without a model, and what a model reports."""

from __future__ import annotations

from glue.agents.review.findings import analysers, rules
from glue.agents.review.findings.dedupe import rank
from glue.agents.review.records import Bundle, Finding


def deterministic(bundle: Bundle, *, disable: tuple[str, ...] = (), hints: bool = False) -> tuple[Finding, ...]:
    """Everything that can be said without a model, the worst first; with `hints`, also what only a model can judge."""
    found = (*rules.check(bundle, disable=disable), *analysers.ruff(bundle))
    return tuple(
        sorted((one for one in found if one.rule not in disable and (hints or not rules.is_hint(one))), key=rank)
    )

"""Deterministic rules: what can be said of a change without a model. One small file per family."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from glue.agents.review.findings.rules import (
    bounds,
    docs,
    effects,
    exceptions,
    golang,
    growth,
    leftovers,
    loops,
    loosened,
    manifests,
    python,
    queries,
    react,
    removed,
    requests,
    script,
    secrets,
    tests,
    tripwire,
    web,
)
from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, project
from glue.agents.review.records import CONFIDENCES, SEVERITIES, Bundle, Finding

FAMILIES = (
    tripwire,
    secrets,
    leftovers,
    queries,
    web,
    requests,
    removed,
    exceptions,
    bounds,
    python,
    golang,
    script,
    react,
    effects,
    loops,
    growth,
    loosened,
    tests,
    docs,
    manifests,
)
_log = logging.getLogger("glue.review")


def rules() -> tuple[Rule, ...]:
    """Every rule there is, in the order of their families."""
    found = [value for family in FAMILIES for value in vars(family).values() if isinstance(value, Rule)]
    return tuple({rule.name: rule for rule in found}.values())


def check(
    bundle: Bundle, *, disable: tuple[str, ...] = (), search: Callable[[str], tuple[str, ...]] | None = None
) -> tuple[Finding, ...]:
    """Run every rule over a bundle: the worst first, one finding a place."""
    found = [finding for finding in _all(project(bundle, search)) if finding.rule not in disable]
    return _sorted(_once(_unmarked(found, bundle)))


def notices(bundle: Bundle) -> tuple[str, ...]:
    """What the tripwire says of title, description, messages and names."""
    return tripwire.about(project(bundle))


def _all(whole: Project) -> Iterator[Finding]:
    for family in FAMILIES:
        try:
            yield from family.check(whole)
        except (RecursionError, ValueError, IndexError, KeyError, TypeError, AttributeError):
            # A rule that trips over odd text must not take the others down with it.
            _log.warning("rule family %s failed", family.__name__, exc_info=True)


def _unmarked(found: list[Finding], bundle: Bundle) -> Iterator[Finding]:
    """Leave out what a marker on the line says to ignore; the attack rules cannot be talked out of it."""
    for finding in found:
        marker = f"review: ignore {finding.rule}"
        if finding.category == "attack" or finding.line is None or finding.side == "LEFT":
            yield finding
            continue
        lines = bundle.head.get(finding.path, "").split("\n")
        near = "\n".join(lines[max((finding.start_line or finding.line) - 2, 0) : finding.line])
        if marker not in near:
            yield finding


def _once(found: Iterator[Finding]) -> list[Finding]:
    """Of findings on one line that say the same kind of thing keep the worst."""
    kept: dict[tuple[str, int | None, str], Finding] = {}
    for finding in found:
        key = (finding.path, finding.line, finding.category)
        other = kept.get(key)
        if other is None or SEVERITIES.index(finding.severity) < SEVERITIES.index(other.severity):
            kept[key] = finding
    return list(kept.values())


def _sorted(found: list[Finding]) -> tuple[Finding, ...]:
    found.sort(
        key=lambda one: (SEVERITIES.index(one.severity), CONFIDENCES.index(one.confidence), one.path, one.line or 0)
    )
    return tuple(replace(one) for one in found)

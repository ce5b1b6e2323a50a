"""The verdict in four parts: it ran, it covered everything, findings stay below the threshold, it was delivered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from glue.agents.review.model import SEVERITIES, Coverage, Finding, Severity

PASS, GATE, USAGE, INCONCLUSIVE, UNDELIVERED = 0, 1, 2, 3, 4  # exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a review came to. `delivered` is None where nothing was to be posted."""

    ran: bool
    covered: bool
    below: bool
    delivered: bool | None = None
    required: bool = False  # whether full coverage was asked for
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """A run that did not work says nothing; then the gate, then coverage, then delivery."""
        if not self.ran:
            return INCONCLUSIVE
        if not self.below:
            return GATE
        if self.required and not self.covered:
            return INCONCLUSIVE
        return UNDELIVERED if self.delivered is False else PASS

    @property
    def word(self) -> str:
        return {PASS: "pass", GATE: "findings", INCONCLUSIVE: "inconclusive", UNDELIVERED: "not delivered"}[
            self.exit_code
        ]


def decide(
    findings: Iterable[Finding],
    coverage: Coverage,
    *,
    codes: Iterable[str] = (),
    finished: bool = True,
    fail_on: Severity | None = "high",
    require_coverage: float | None = None,
    delivered: bool | None = None,
    undelivered: str = "",
) -> Verdict:
    """Come to a verdict. `fail_on` is the mildest severity that fails the gate, None for none."""
    reasons: list[str] = []
    codes = tuple(codes)
    if codes:
        reasons.append(f"inconclusive: {', '.join(codes)}")
    elif not finished:
        reasons.append("the reviewer stopped before it was done")
    grave = [one for one in findings if fail_on and SEVERITIES.index(one.severity) <= SEVERITIES.index(fail_on)]
    if grave:
        reasons.append(f"{len(grave)} {'finding' if len(grave) == 1 else 'findings'} of severity {fail_on} or worse")
    covered = coverage.complete if require_coverage is None else coverage.percent >= require_coverage
    if not covered:
        reasons.append(f"{coverage.percent:g} % of the change was read in full")
    if delivered is False:
        reasons.append(f"not delivered: {undelivered or 'the forge refused'}")
    return Verdict(
        ran=not codes and finished,
        covered=covered,
        below=not grave,
        delivered=delivered,
        required=require_coverage is not None,
        reasons=tuple(reasons),
    )

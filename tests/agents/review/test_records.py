"""The records of a review."""

from __future__ import annotations

from glue.agents.review.records import Coverage, HunkCoverage


def test_coverage_percent_is_rounded_down() -> None:
    rows = [HunkCoverage(path="x", hunk=n, state="full", lines=1_000) for n in range(1, 11)]
    rows.append(HunkCoverage(path="x", hunk=11, state="skipped", lines=1))

    assert Coverage(hunks=tuple(rows)).percent == 99.9
    assert not Coverage(hunks=tuple(rows)).complete

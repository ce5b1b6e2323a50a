"""A change that was reviewed before: the model reads what is new, and what it said of the rest is carried on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from glue.agents.review import records
from glue.agents.review.findings.anchor import anchor
from glue.agents.review.records import Bundle, Coverage, Finding, Hunk, HunkCoverage, ReviewRun
from glue.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Earlier:
    """A review that was saved (`--save`), and the change it read."""

    bundle: Bundle
    run: ReviewRun


def load(folder: str | Path) -> Earlier:
    """Read what `glue review --save FOLDER` kept."""
    place = Path(folder)
    earlier = Earlier(records.load(Bundle, place / "bundle.json"), records.load(ReviewRun, place / "findings.json"))
    if earlier.run.codes or not earlier.run.provider:
        why = "was inconclusive" if earlier.run.codes else "was made without a model"
        raise ConfigError(f"the review in {place} {why}")
    return earlier


def narrow(bundle: Bundle, earlier: Earlier) -> Bundle:
    """Leave in a bundle only the hunks that the earlier review did not read in full."""
    read = _read(earlier)
    files = [
        replace(file, hunks=tuple(hunk for hunk in file.hunks if _mark(file.path, hunk) not in read))
        for file in bundle.files
    ]
    left = {file.path for file, before in zip(files, bundle.files, strict=True) if file.hunks or not before.hunks}
    return replace(bundle, files=tuple(file for file in files if file.path in left))


def carried(bundle: Bundle, earlier: Earlier) -> tuple[Finding, ...]:
    """Give what a model said before of hunks that are still there; the rules speak anew for themselves."""
    read = _read(earlier)
    still = {file.path for file in bundle.files for hunk in file.hunks if _mark(file.path, hunk) in read}
    placed = [
        anchor(finding, bundle.files, bundle.head)
        for finding in earlier.run.findings
        if not finding.rule and finding.path in still
    ]
    return tuple(finding for finding in placed if finding is not None)


def joined(bundle: Bundle, earlier: Earlier, now: Coverage) -> Coverage:
    """Write the ledger of the whole change: what was read now, and what was read before."""
    read, sha = _read(earlier), earlier.bundle.change.head_sha[:12] or "an earlier head"
    entries = {(entry.path, entry.hunk): entry for entry in now.hunks}
    for file in bundle.files:
        for hunk in file.hunks:
            if _mark(file.path, hunk) in read:
                entries[file.path, hunk.index] = HunkCoverage(
                    path=file.path, hunk=hunk.index, state="full", reason=f"read at {sha}", lines=len(hunk.lines)
                )
    return Coverage(hunks=tuple(entries.values()))


def _read(earlier: Earlier) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    full = {(entry.path, entry.hunk) for entry in earlier.run.coverage.hunks if entry.state == "full"}
    return {
        _mark(file.path, hunk)
        for file in earlier.bundle.files
        for hunk in file.hunks
        if (file.path, hunk.index) in full
    }


def _mark(path: str, hunk: Hunk) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Know a hunk again by its words; the lines above it may have moved it."""
    return path, tuple((line.kind, line.text) for line in hunk.lines)

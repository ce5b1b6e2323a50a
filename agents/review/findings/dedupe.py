"""Fingerprints of findings: duplicates, dismissals, and findings of an earlier review.

A change that was reviewed before: the model reads what is new, and what it said of the rest is carried on.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from glue.agents.review import records
from glue.agents.review.change.config import DISMISSED_FILE
from glue.agents.review.findings.anchor import anchor
from glue.agents.review.records import CONFIDENCES, SEVERITIES, Bundle, Coverage, Finding, Hunk, HunkCoverage, ReviewRun
from glue.errors import ConfigError

_ID = r"([0-9a-f]{8,20}(?:-\d{1,4})?)\b[ \t:]*(.*)$"
DISMISSED = re.compile(rf"^{_ID}", re.IGNORECASE)  # a fingerprint, and a reason
_TRAILER = re.compile(rf"^Review-Dismiss:[ \t]*{_ID}", re.MULTILINE | re.IGNORECASE)
_STOP = frozenset(
    "the and for that this with from are was not but has have when which what where then than will would can could"
    " should its into here there does been being more also only any all one two code line value function change".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissal:
    """Somebody's word that a finding is not one. Binding unless it came from the author's own commits."""

    id: str  # a fingerprint, or at least its first eight characters
    reason: str = ""
    by: str = ""
    binding: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedFinding:
    """A finding that an earlier run posted."""

    fingerprint: str
    quote: str = ""  # digest of the quoted code
    path: str = ""
    comment: int = 0
    line: int | None = None  # where the comment stands now; None where the forge calls it outdated
    title: str = ""
    text: str = ""  # what it says
    by_model: bool = True
    head: str = ""  # the beginning of the commit it was posted for
    thread: str = ""  # what the forge calls the discussion, where it can be resolved
    resolved: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.fingerprint, self.path


def quote_key(finding: Finding) -> str:
    """Digest the quoted code alone, blanks folded."""
    return _digest("quote", _folded(finding.quote))


def rank(finding: Finding) -> tuple[int, int, str, int]:
    """Sort the worst and surest first."""
    return (SEVERITIES.index(finding.severity), CONFIDENCES.index(finding.confidence), finding.path, finding.line or 0)


def unique(findings: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Part findings of one run into those to keep and those that say the same of the same place."""
    kept: list[Finding] = []
    dropped: list[Finding] = []
    # A rule's finding is kept before a model's: its fingerprint is the same in every run.
    for finding in sorted(findings, key=lambda one: (not one.rule, *rank(one))):
        if any(_same_place(finding, other) for other in kept):
            dropped.append(replace(finding, dropped="duplicate"))
        else:
            kept.append(finding)
    return tuple(_named(kept)), tuple(dropped)


def _named(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Give every finding its fingerprint: what was said of which code.

    Neither path nor line is in it, so it survives renames and moves; the same code twice in one file is told apart by
    its order.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for finding in sorted(findings, key=lambda one: (one.path, one.line or 0)):
        about, code = finding.rule or finding.category, _folded(finding.quote)
        place = ("code", about, code) if code else ("file", about, finding.path, _folded(finding.title).lower())
        mark = _digest(*place)
        seen[mark, finding.path] += 1
        count = seen[mark, finding.path]
        yield replace(finding, fingerprint=mark if count == 1 else f"{mark}-{count}")


def match(findings: Sequence[Finding], known: Sequence[PostedFinding], bundle: Bundle) -> dict[int, PostedFinding]:
    """Say which findings were posted before: index of the finding -> comment. A comment stands for one finding.

    The same code, or overlapping lines, with similar words is the same problem; the same words elsewhere are another.
    """
    paths = {file.path for file in bundle.files}
    renamed = {file.old_path: file.path for file in bundle.files if file.old_path}
    scores = []
    for at, finding in enumerate(findings):
        for number, old in enumerate(known):
            here = old.path == finding.path or renamed.get(old.path) == finding.path or old.path not in paths
            if here and (score := _sameness(finding, old)):
                scores.append((-score, at, number))
    found: dict[int, PostedFinding] = {}
    taken: set[int] = set()
    for _, at, number in sorted(scores):
        if at not in found and number not in taken:
            found[at] = known[number]
            taken.add(number)
    return found


def _sameness(finding: Finding, old: PostedFinding) -> float:
    """How surely a comment speaks of a finding; 0 where it does not."""
    span = _range(finding)
    far = bool(span) and old.line is not None and not span[0] - 3 <= old.line <= span[-1] + 3
    mine, theirs = _words(f"{finding.title} {finding.body}"), _words(old.text)
    # The share of the shorter text's words that the other has too.
    words = len(mine & theirs) / max(min(len(mine), len(theirs)), 1) if old.text else 1.0
    bonus = words - far
    if old.fingerprint == finding.fingerprint and (finding.rule or words >= 0.12):
        return 6 + bonus
    same = old.fingerprint.partition("-")[0] == finding.fingerprint.partition("-")[0]
    if same and not far and (finding.rule or words >= 0.12):
        return 5 + bonus  # the order of equal lines in a file has changed
    if old.quote and old.quote == quote_key(finding) and not far and words >= 0.2 and not finding.rule:
        return 4 + bonus
    if span and old.line is not None and not far and words >= 0.3 and not (finding.rule or not old.by_model):
        return 2 + bonus
    return 0.0


def _words(text: str) -> set[str]:
    found = re.findall(r"[a-z]{3,}", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return {word.removesuffix("s").removesuffix("ed") for word in found} - _STOP


def dismissals(bundle: Bundle) -> tuple[Dismissal, ...]:
    """Read what was dismissed: in the committed file of the merge-base, and in trailers of the commits.

    The word of an author's own `Review-Dismiss: <id> reason` is shown, and not binding.
    """
    rows = [DISMISSED.match(row.strip()) for row in bundle.guidelines.get(DISMISSED_FILE, "").splitlines()]
    found = [Dismissal(id=row[1].lower(), reason=row[2].strip(), by="the repository") for row in rows if row]
    for commit in bundle.change.commits:
        for trailer in _TRAILER.finditer(commit.message):
            reason = trailer[2].strip()
            found.append(Dismissal(id=trailer[1].lower(), reason=reason, by=commit.author, binding=False))
    return tuple(found)


def dismissed(finding: Finding, given: Iterable[Dismissal]) -> Dismissal | None:
    """Find the dismissal of a finding. Secrets and attacks are never dismissed by the author alone."""
    grave = finding.category == "attack" or "secret" in finding.rule
    matches = [one for one in given if finding.fingerprint.startswith(one.id) and (one.binding or not grave)]
    return next((one for one in matches if one.binding), matches[0] if matches else None)


def _same_place(one: Finding, other: Finding) -> bool:
    if one.path != other.path:
        return False
    if _folded(one.quote) and _folded(one.quote) == _folded(other.quote) and one.line == other.line:
        # Two tools may mean the same in other words; two rules of one tool, and a rule of ours, do not.
        tools = {one.source, other.source}
        apart = one.rule and other.rule and (len(tools) == 1 or "rules" in tools)
        same = one.rule == other.rule if apart else one.category == other.category
        return same or _alike(one.title, other.title)
    first, last = _range(one), _range(other)
    near = bool(first and last) and first[0] <= last[1] and last[0] <= first[1]
    listed = one.line is None and other.line is None and one.claimed == other.claimed
    return (near or listed) and _alike(one.title, other.title)


def _range(finding: Finding) -> tuple[int, ...]:
    return (finding.start_line or finding.line, finding.line) if finding.line else ()


def _alike(one: str, other: str) -> bool:
    left, right = set(re.findall(r"\w+", one.lower())), set(re.findall(r"\w+", other.lower()))
    return bool(left | right) and len(left & right) / len(left | right) >= 0.5


def _folded(text: str) -> str:
    return " ".join(text.split())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class EarlierReview:
    """A review that was saved (`--save`), and the change it read."""

    bundle: Bundle
    run: ReviewRun

    def has(self, path: str, hunk: Hunk) -> bool:
        """Whether a hunk was read in full."""
        return (path, _words_of(hunk)) in self._read

    @cached_property
    def _read(self) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        full = {(entry.path, entry.hunk) for entry in self.run.coverage.hunks if entry.state == "full"}
        hunks = ((file.path, hunk) for file in self.bundle.files for hunk in file.hunks)
        return {(path, _words_of(hunk)) for path, hunk in hunks if (path, hunk.index) in full}


def _words_of(hunk: Hunk) -> tuple[tuple[str, str], ...]:
    """Know a hunk again by its words; the lines above it may have moved it."""
    return tuple((line.kind, line.text) for line in hunk.lines)


def load(folder: str | Path) -> EarlierReview:
    """Read what `glue review --save FOLDER` kept."""
    place = Path(folder)
    earlier = EarlierReview(
        records.load(Bundle, place / "bundle.json"), records.load(ReviewRun, place / "findings.json")
    )
    if earlier.run.codes or not earlier.run.provider:
        why = "was inconclusive" if earlier.run.codes else "was made without a model"
        raise ConfigError(f"the review in {place} {why}")
    return earlier


def narrow(bundle: Bundle, earlier: EarlierReview) -> Bundle:
    """Leave in a bundle only the hunks that the earlier review did not read in full."""
    files = []
    for file in bundle.files:
        hunks = tuple(hunk for hunk in file.hunks if not earlier.has(file.path, hunk))
        if hunks or not file.hunks:
            files.append(replace(file, hunks=hunks))
    return replace(bundle, files=tuple(files))


def carried(bundle: Bundle, earlier: EarlierReview) -> tuple[Finding, ...]:
    """Give what a model said before of hunks that are still there; the rules speak anew for themselves."""
    still = {file.path for file in bundle.files if any(earlier.has(file.path, hunk) for hunk in file.hunks)}
    said = [finding for finding in earlier.run.findings if not finding.rule and finding.path in still]
    return tuple(placed for finding in said if (placed := anchor(finding, bundle.files, bundle.head)))


def joined(bundle: Bundle, earlier: EarlierReview, now: Coverage) -> Coverage:
    """Write the ledger of the whole change: what was read now, and what was read before."""
    sha = earlier.bundle.change.head_sha[:12] or "an earlier head"
    entries = {(entry.path, entry.hunk): entry for entry in now.hunks}
    for file in bundle.files:
        for hunk in file.hunks:
            if earlier.has(file.path, hunk):
                entries[file.path, hunk.index] = HunkCoverage(
                    path=file.path, hunk=hunk.index, state="full", reason=f"read at {sha}", lines=len(hunk.lines)
                )
    return Coverage(hunks=tuple(entries.values()))

"""Recognise findings that are duplicates, that were dismissed, or that an earlier review reported.

If a change was reviewed before, the model reads only new hunks; its findings on the other hunks
are carried over.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from glue.agents.review import storage
from glue.agents.review.findings.anchor import anchor
from glue.agents.review.findings.memory import ID, decisions
from glue.agents.review.records import (
    CONFIDENCES,
    SEVERITIES,
    Bundle,
    Coverage,
    Finding,
    Hunk,
    HunkCoverage,
    ReviewRun,
)
from glue.errors import ConfigError

DISMISSED = re.compile(rf"^{ID}", re.IGNORECASE)  # a fingerprint, and a reason
_TRAILER = re.compile(rf"^Review-Dismiss:[ \t]*{ID}", re.MULTILINE | re.IGNORECASE)
_STOP = frozenset(
    "the and for that this with from are was not but has have when which what where then than will"
    " would can could should its into here there does been being more also only any all one two"
    " code line value function change".split()
)


SAME_WORDS = 0.5  # share of common words from which two texts say the same thing
SAME_DEFECT = 0.75  # this share for findings that name different lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissal:
    """A person's statement that a finding need not be posted.

    It is binding unless it comes from a commit message of the change, which its author writes.
    """

    id: str  # a fingerprint, or at least its first eight characters
    reason: str = ""
    by: str = ""
    binding: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedFinding:
    """A finding that an earlier review posted as an inline comment, read back from the forge."""

    fingerprint: str
    quote: str = ""  # digest of the quoted code
    path: str = ""
    comment: int = 0
    line: int | None = None  # the line of the comment; None if the forge marks it as outdated
    title: str = ""
    text: str = ""  # title and body of the comment
    by_model: bool = True
    head: str = ""  # start of the hash of the reviewed commit
    thread: str = ""  # id of the discussion on the forge, if it can be resolved
    resolved: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.fingerprint, self.path


def quote_key(finding: Finding) -> str:
    """Return a digest of the code that a finding quotes; white space makes no difference."""
    return _digest("quote", _folded(finding.quote))


def rank(finding: Finding) -> tuple[int, int, str, int]:
    """Return a sort key: the most severe and most certain findings come first."""
    return (
        SEVERITIES.index(finding.severity),
        CONFIDENCES.index(finding.confidence),
        finding.path,
        finding.line or 0,
    )


def unique(findings: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return two tuples: the distinct findings, each with its fingerprint, and their duplicates.

    Of several findings of the same defect, one of a rule is kept if there is one, else the most
    severe.
    """
    kept: list[Finding] = []
    dropped: list[Finding] = []
    # Findings of rules are kept first: their fingerprints are the same in every run.
    for finding in sorted(findings, key=lambda finding: (not finding.rule, *rank(finding))):
        if any(is_duplicate(finding, other) for other in kept):
            dropped.append(replace(finding, dropped="duplicate"))
        else:
            kept.append(finding)
    return tuple(_named(kept)), tuple(dropped)


def _named(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield every finding with its fingerprint, a digest of the quoted code and the rule.

    The category replaces a missing rule. Such a fingerprint depends neither on the path nor on the
    line, so it survives renames and moves. The fingerprint of a finding without quoted code is a
    digest of the rule, the path and the title instead.
    If the same code occurs several times in a file, a number in the order of lines is appended.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for finding in sorted(findings, key=_position):
        about, code = finding.rule or finding.category, _folded(finding.quote)
        if code:
            mark = _digest("code", about, code)
        else:
            mark = _digest("file", about, finding.path, _folded(finding.title).lower())
        seen[mark, finding.path] += 1
        count = seen[mark, finding.path]
        yield replace(finding, fingerprint=mark if count == 1 else f"{mark}-{count}")


def _position(finding: Finding) -> tuple[str, int, str]:
    return finding.path, finding.line or 0, _folded(finding.title).lower()


def match(
    findings: Sequence[Finding], known: Sequence[PostedFinding], bundle: Bundle
) -> dict[int, PostedFinding]:
    """Match findings to earlier comments. Return a dict: index in `findings` -> comment.

    A finding without an earlier comment is not in the dict.

    A finding and a comment match if they are about the same code, or about near lines in similar
    words. Each comment is used for at most one finding.
    """
    paths = {file.path for file in bundle.files}
    renamed = {file.old_path: file.path for file in bundle.files if file.old_path}
    scores = []
    for at, finding in enumerate(findings):
        for number, old in enumerate(known):
            is_same_file = finding.path in (old.path, renamed.get(old.path))
            if (is_same_file or old.path not in paths) and (score := _sameness(finding, old)):
                scores.append((-score, at, number))
    found: dict[int, PostedFinding] = {}
    taken: set[int] = set()
    for _, at, number in sorted(scores):
        if at not in found and number not in taken:
            found[at] = known[number]
            taken.add(number)
    return found


def _sameness(finding: Finding, old: PostedFinding) -> float:
    """Return how likely the comment `old` is about `finding`: 0 if it is not, else up to 7."""
    span = _range(finding)
    far = bool(span) and old.line is not None and not span[0] - 3 <= old.line <= span[-1] + 3
    mine, theirs = _words(f"{finding.title} {finding.body}"), _words(old.text)
    # The share of the words of the shorter text that the longer text contains.
    words = len(mine & theirs) / max(min(len(mine), len(theirs)), 1) if old.text else 1.0
    bonus = words - far
    if old.fingerprint == finding.fingerprint and (finding.rule or words >= 0.12):
        return 6 + bonus
    same = old.fingerprint.partition("-")[0] == finding.fingerprint.partition("-")[0]
    if same and not far and (finding.rule or words >= 0.12):
        return 5 + bonus  # equal lines of a file have changed their order
    if finding.rule or far:
        return 0.0
    if old.quote and old.quote == quote_key(finding) and words >= 0.2:
        return 4 + bonus
    if span and old.line is not None and old.by_model and words >= 0.3:
        return 2 + bonus
    return 0.0


def _words(text: str) -> set[str]:
    found = re.findall(r"[a-z]{3,}", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return {word.removesuffix("s").removesuffix("ed") for word in found} - _STOP


def dismissals(bundle: Bundle) -> tuple[Dismissal, ...]:
    """Return the dismissals in .glue/dismissed at the merge-base and in trailers of the commits.

    A trailer, `Review-Dismiss: <id> reason`, is written by the author, so it is not binding.
    """
    found = [
        Dismissal(id=one.id, reason=one.text, by="the repository")
        for one in decisions(bundle)
        if one.id and one.label != "right"
    ]
    for commit in bundle.change.commits:
        for trailer in _TRAILER.finditer(commit.message):
            reason = trailer[2].strip()
            found.append(
                Dismissal(id=trailer[1].lower(), reason=reason, by=commit.author, binding=False)
            )
    return tuple(found)


def dismissed(finding: Finding, given: Iterable[Dismissal]) -> Dismissal | None:
    """Return the dismissal of a finding, or None if the finding is not dismissed.

    Only binding dismissals apply to secrets and attacks, so the author cannot dismiss these.
    """
    grave = finding.category == "attack" or "secret" in finding.rule
    matches = [
        dismissal
        for dismissal in given
        if finding.fingerprint.startswith(dismissal.id) and (dismissal.binding or not grave)
    ]
    binding = [dismissal for dismissal in matches if dismissal.binding]
    return next(iter(binding or matches), None)


def is_duplicate(one: Finding, other: Finding) -> bool:
    """Return whether two findings report the same defect at the same place.

    Two findings of a model on one line are duplicates only if they use similar words, in their
    titles or in the whole texts. Their category does not matter.
    """
    if one.path != other.path:
        return False
    first, last = _range(one), _range(other)
    near = bool(first and last) and first[0] <= last[1] and last[0] <= first[1]
    listed = one.line is None and other.line is None and one.claimed == other.claimed
    if not near and not listed:
        return False
    if one.rule and other.rule:
        # Two tools may report the same defect in other words. Two rules of one tool, or a rule of
        # glue and another tool, report different defects.
        tools = {one.source, other.source}
        if len(tools) == 1 or "rules" in tools:
            return one.rule == other.rule and one.line == other.line
        return one.line == other.line or _alike(one.title, other.title)
    if one.rule or other.rule:
        # The text of a rule is general, so few common words are enough.
        same = one.category == other.category and one.line == other.line
        return says_the_same(one, other, 0.15 if same else SAME_WORDS)
    # The same kind of defect on the next line is another finding, in similar words.
    is_other_line = one.claimed and other.claimed and one.claimed != other.claimed
    return says_the_same(one, other, SAME_DEFECT if is_other_line else SAME_WORDS)


def says_the_same(one: Finding, other: Finding, least: float = SAME_WORDS) -> bool:
    """Return whether two findings use similar words, in their titles or in the whole texts.

    `least` is the share of the words of the shorter text that the longer one must contain.
    """
    if _alike(one.title, other.title):
        return True
    mine, theirs = _words(f"{one.title} {one.body}"), _words(f"{other.title} {other.body}")
    common = len(mine & theirs)
    return common >= 3 and common / max(min(len(mine), len(theirs)), 1) >= least


def covers(found: Finding, refused: Finding) -> bool:
    """Return whether the finding `found` is probably the corrected version of `refused`.

    It uses similar words, or it is about the same code, or about a line next to it.
    """
    if says_the_same(found, refused):
        return True
    if found.path != refused.path:
        return False
    quote, code = _folded(refused.quote), _folded(found.quote)
    if quote and code and (quote in code or code in quote):
        return True
    span = _range(found)
    at = refused.line or refused.claimed
    return bool(span) and at is not None and span[0] - 1 <= at <= span[-1] + 1


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
    """A review that `--save` stored, with the bundle of the change that was reviewed."""

    bundle: Bundle
    run: ReviewRun

    def has(self, path: str, hunk: Hunk) -> bool:
        """Return whether the earlier review read a hunk in full."""
        return (path, _content(hunk)) in self._read

    @cached_property
    def _read(self) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        full = {
            (entry.path, entry.hunk) for entry in self.run.coverage.hunks if entry.state == "full"
        }
        hunks = ((file.path, hunk) for file in self.bundle.files for hunk in file.hunks)
        return {(path, _content(hunk)) for path, hunk in hunks if (path, hunk.index) in full}


def _content(hunk: Hunk) -> tuple[tuple[str, str], ...]:
    """Return the content of a hunk without line numbers, which change if lines above it change."""
    return tuple((line.kind, line.text) for line in hunk.lines)


def load(folder: str | Path) -> EarlierReview | None:
    """Return the review that `glue review --save FOLDER` stored, or None if there is none yet.

    Raise ConfigError if it was inconclusive or made without a model.
    """
    place = Path(folder)
    if not (place / "bundle.json").exists() and not (place / "findings.json").exists():
        return None
    earlier = EarlierReview(
        storage.load(Bundle, place / "bundle.json"),
        storage.load(ReviewRun, place / "findings.json"),
    )
    if earlier.run.codes or not earlier.run.provider:
        reason = "was inconclusive" if earlier.run.codes else "was made without a model"
        raise ConfigError(f"the review in {place} {reason}")
    return earlier


def narrow(bundle: Bundle, earlier: EarlierReview) -> Bundle:
    """Return the bundle without the hunks that the earlier review read in full.

    A file whose hunks were all read is left out.
    """
    files = []
    for file in bundle.files:
        hunks = tuple(hunk for hunk in file.hunks if not earlier.has(file.path, hunk))
        if hunks or not file.hunks:
            files.append(replace(file, hunks=hunks))
    return replace(bundle, files=tuple(files))


def carried(bundle: Bundle, earlier: EarlierReview) -> tuple[Finding, ...]:
    """Return the model's findings of the earlier review that still hold, on their new lines.

    A finding still holds if its file has a hunk that the earlier review read in full, and its quote
    is still in the change. Findings of rules are left out, because the rules run again.
    """
    hunks = [(file.path, hunk) for file in bundle.files for hunk in file.hunks]
    unchanged = {path for path, hunk in hunks if earlier.has(path, hunk)}
    by_model = [finding for finding in earlier.run.findings if not finding.rule]
    kept = [finding for finding in by_model if finding.path in unchanged]
    placed = (anchor(finding, bundle.files, bundle.head) for finding in kept)
    head = earlier.bundle.change.head_sha[:12] or "an earlier head"
    return tuple(
        replace(finding, since=finding.since or head) for finding in placed if finding is not None
    )


def joined(bundle: Bundle, earlier: EarlierReview, now: Coverage) -> Coverage:
    """Return the coverage `now` plus the hunks that the earlier review read in full.

    These hunks count as fully covered, and their reason names the head of the earlier review.
    """
    sha = earlier.bundle.change.head_sha[:12] or "an earlier head"
    entries = {(entry.path, entry.hunk): entry for entry in now.hunks}
    for file in bundle.files:
        for hunk in file.hunks:
            if earlier.has(file.path, hunk):
                entries[file.path, hunk.index] = HunkCoverage(
                    path=file.path,
                    hunk=hunk.index,
                    state="full",
                    reason=f"read at {sha}",
                    lines=len(hunk.lines),
                )
    return Coverage(hunks=tuple(entries.values()))

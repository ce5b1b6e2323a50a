"""Know a finding again: after a rename, a rebase, moved lines, or in a later run; and remember what was dismissed."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from glue.agents.review.records import CONFIDENCES, SEVERITIES, Bundle, Commit, Finding

_TRAILER = re.compile(r"^Review-Dismiss:[ \t]*([0-9a-f]{8,20}(?:-\d{1,4})?)\b[ \t]*(.*)$", re.MULTILINE | re.IGNORECASE)
_ROW = re.compile(r"^([0-9a-f]{8,20}(?:-\d{1,4})?)\b[ \t:]*(.*)$")
FILE = ".glue/dismissed"  # of the merge-base: one fingerprint and its reason a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissal:
    """Somebody's word that a finding is not one. Binding unless it came from the author's own commits."""

    id: str  # a fingerprint, or at least its first eight characters
    reason: str = ""
    by: str = ""
    binding: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A finding that an earlier run posted."""

    fingerprint: str
    quote: str = ""  # digest of the quoted code
    path: str = ""
    comment: int = 0


def quote_key(finding: Finding) -> str:
    """Digest the quoted code alone, blanks folded."""
    return _digest("quote", _folded(finding.quote))


def fingerprint(finding: Finding) -> str:
    """Digest what was said of which code. Neither path nor line is in it, so it survives renames and moves."""
    code = _folded(finding.quote)
    if code:
        return _digest("code", finding.rule or finding.category, code)
    return _digest("file", finding.rule or finding.category, finding.path, _folded(finding.title).lower())


def assign(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Give every finding its fingerprint; the same code twice in one file is told apart by its order."""
    seen: Counter[tuple[str, str]] = Counter()
    named: list[Finding] = []
    for finding in sorted(findings, key=lambda one: (one.path, one.line or 0)):
        mark = fingerprint(finding)
        seen[mark, finding.path] += 1
        count = seen[mark, finding.path]
        named.append(replace(finding, fingerprint=mark if count == 1 else f"{mark}-{count}"))
    return tuple(named)


def rank(finding: Finding) -> tuple[int, int, str, int]:
    """Sort the worst and surest first."""
    return (
        SEVERITIES.index(finding.severity),
        CONFIDENCES.index(finding.confidence),
        finding.path,
        finding.line or 0,
    )


def unique(findings: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Part findings of one run into those to keep and those that say the same of the same place."""
    kept: list[Finding] = []
    dropped: list[Finding] = []
    # A rule's finding is kept before a model's: its fingerprint is the same in every run.
    for finding in sorted(findings, key=lambda one: (one.source != "rules", *rank(one))):
        if any(_same_place(finding, other) for other in kept):
            dropped.append(replace(finding, dropped="duplicate"))
        else:
            kept.append(finding)
    return assign(kept), tuple(dropped)


def fresh(finding: Finding, known: Iterable[Known], bundle: Bundle) -> bool:
    """Whether no earlier run posted this finding, here or under a name the file no longer has."""
    paths = {file.path for file in bundle.files}
    renamed = {file.old_path: file.path for file in bundle.files if file.old_path}
    for old in known:
        here = old.path == finding.path or renamed.get(old.path) == finding.path or old.path not in paths
        if here and (old.fingerprint == finding.fingerprint or (old.quote and old.quote == quote_key(finding))):
            return False
    return True


def dismissals(bundle: Bundle) -> tuple[Dismissal, ...]:
    """Read what was dismissed: in the committed file of the merge-base, and in trailers of the commits."""
    found = [
        Dismissal(id=match.group(1).lower(), reason=match.group(2).strip(), by="the repository")
        for row in bundle.guidelines.get(FILE, "").splitlines()
        if (match := _ROW.match(row.strip()))
    ]
    return (*found, *trailers(bundle.change.commits))


def trailers(commits: Iterable[Commit]) -> tuple[Dismissal, ...]:
    """Read `Review-Dismiss: <id> reason` of commit messages; an author's own word is shown, not binding."""
    return tuple(
        Dismissal(id=match.group(1).lower(), reason=match.group(2).strip(), by=commit.author, binding=False)
        for commit in commits
        for match in _TRAILER.finditer(commit.message)
    )


def dismissed(finding: Finding, given: Iterable[Dismissal]) -> Dismissal | None:
    """Find the dismissal of a finding. Secrets and attacks are never dismissed by the author alone."""
    grave = finding.category == "attack" or "secret" in finding.rule
    matches = [one for one in given if finding.fingerprint.startswith(one.id) and (one.binding or not grave)]
    return next((one for one in matches if one.binding), matches[0] if matches else None)


def _same_place(one: Finding, other: Finding) -> bool:
    if one.path != other.path:
        return False
    if _folded(one.quote) and _folded(one.quote) == _folded(other.quote) and one.line == other.line:
        return one.category == other.category or one.rule == other.rule != "" or _alike(one.title, other.title)
    first, last = _range(one), _range(other)
    near = bool(first and last) and first[0] <= last[1] and last[0] <= first[1]
    return (near or (one.line is None and other.line is None)) and _alike(one.title, other.title)


def _range(finding: Finding) -> tuple[int, ...]:
    return (finding.start_line or finding.line, finding.line) if finding.line else ()


def _alike(one: str, other: str) -> bool:
    left, right = set(re.findall(r"\w+", one.lower())), set(re.findall(r"\w+", other.lower()))
    return bool(left | right) and len(left & right) / len(left | right) >= 0.5


def _folded(text: str) -> str:
    return " ".join(text.split())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]

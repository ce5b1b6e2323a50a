"""The records that collect, run and publish hand to each other, and their JSON files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import glue
from glue.errors import ConfigError

VERSION = 1  # of bundle.json and findings.json

Severity: TypeAlias = Literal["critical", "high", "medium", "low", "info"]
FailOn: TypeAlias = Literal["critical", "high", "medium", "low", "info", "never"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
Category: TypeAlias = Literal["bug", "security", "performance", "tests", "types", "docs", "style", "process", "attack"]
Side: TypeAlias = Literal["RIGHT", "LEFT"]
# exact: the quote has one place in the file's hunks; nearest: several, the claimed line chose; relocated: it stands in
# another file of the diff, and `path` was mended; deleted: among deleted lines only, side LEFT and summary only;
# file: in the head file but outside every hunk, so `line` is None and it is listed, not posted inline; "": not tried.
Anchor: TypeAlias = Literal["", "exact", "nearest", "relocated", "deleted", "file"]
Status: TypeAlias = Literal["added", "deleted", "modified", "renamed", "copied", "mode", "type"]
Mode: TypeAlias = Literal["pull_request", "branch", "staged", "dirty", "range", "diff"]
SkipKind: TypeAlias = Literal["blocked", "excluded", "too_large"]  # only the last should have been read
CoverageState: TypeAlias = Literal["full", "partial", "skipped"]

SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")  # worst first
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a hunk. Deleted lines have no new number, added ones no old number."""

    kind: Literal[" ", "+", "-"]
    old: int | None
    new: int | None
    text: str  # without its ending; bytes that are no UTF-8 are replaced
    end: str = "\n"  # "\n", "\r\n", or "" at the end of a file without a newline


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A run of changed lines with their context; `index` counts from 1 within its file."""

    index: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: str = ""  # what git printed behind the second @@
    lines: tuple[DiffLine, ...] = ()

    @property
    def commentable(self) -> tuple[int, ...]:
        """The RIGHT-side lines a forge accepts a comment on: added and context."""
        return tuple(line.new for line in self.lines if line.new is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """What happened to one file. Names that are no UTF-8 hold surrogate escapes: clean them before showing."""

    path: str  # the new name; of a deleted file the old one
    old_path: str = ""  # where it differs
    status: Status = "modified"
    old_mode: str = ""
    new_mode: str = ""
    new_sha: str = ""
    binary: bool = False
    odd: str = ""  # why there are no hunks to review although something changed: "combined diff" ...
    hunks: tuple[Hunk, ...] = ()

    @property
    def submodule(self) -> bool:
        return "160000" in (self.old_mode, self.new_mode)

    @property
    def symlink(self) -> bool:
        return self.new_mode == "120000"

    @property
    def commentable(self) -> frozenset[int]:
        return frozenset(number for hunk in self.hunks for number in hunk.commentable)

    @property
    def added(self) -> tuple[DiffLine, ...]:
        return tuple(line for hunk in self.hunks for line in hunk.lines if line.kind == "+")

    @property
    def deleted(self) -> tuple[DiffLine, ...]:
        return tuple(line for hunk in self.hunks for line in hunk.lines if line.kind == "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCommit:
    sha: str
    message: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedChange:
    """What is being reviewed, and what its author said of it. Every text here is untrusted."""

    mode: Mode = "diff"
    forge: str = ""  # github, gitlab, gitea, or "" for plain git
    repo: str = ""  # owner/name
    number: int | None = None
    title: str = ""
    body: str = ""
    author: str = ""
    labels: tuple[str, ...] = ()
    draft: bool = False
    fork: bool = False
    head_ref: str = ""
    base_ref: str = ""
    head_sha: str = ""
    base_sha: str = ""  # the tip of the base branch
    merge_base: str = ""
    commits: tuple[ChangeCommit, ...] = ()
    issues: tuple[str, ...] = ()  # titles of what it is said to solve
    asked_by: str = ""  # who asked for this review, and with what words
    request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file that was left out of the review, and why."""

    path: str
    reason: str  # in words
    kind: SkipKind = "excluded"
    lines: int = 0  # changed ones, where they were counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Everything the review may see: the diff, the touched files on both sides, and the base's own rules."""

    change: ReviewedChange = ReviewedChange()
    diff: str = ""  # as git printed it; bytes that are no UTF-8 are surrogate escapes
    files: tuple[FileDiff, ...] = field(default=(), metadata={"derived": True})  # parsed from the diff
    head: Mapping[str, str] = field(default_factory=dict)  # path -> text after the change
    base: Mapping[str, str] = field(default_factory=dict)  # path -> text before it, under the old name
    skipped: tuple[SkippedFile, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)  # the config file of the merge-base, as it was read
    guidelines: Mapping[str, str] = field(default_factory=dict)  # path -> text, of the merge-base
    paths: tuple[str, ...] = ()  # names of all files at the head, as far as they fit
    version: int = field(default=VERSION, metadata={"always": True})

    def file(self, path: str) -> FileDiff | None:
        return next((file for file in self.files if file.path == path), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to say about one place. `line` is the last line on the RIGHT side, None where there is none."""

    path: str
    quote: str  # verbatim from the diff; the line is computed from it
    title: str
    body: str
    severity: Severity = "medium"
    confidence: Confidence = "medium"
    category: Category = "bug"
    suggestion: str | None = None  # replaces start_line..line
    acceptance: str = ""  # how to see that it is mended, in one line
    rule: str = ""  # the deterministic rule that found it; empty for what a model said
    source: str = ""  # "rules", the analyser, or the provider that said it
    line: int | None = None
    start_line: int | None = None  # set only where it is smaller than line
    side: Side = "RIGHT"
    anchor: Anchor = ""
    claimed: int | None = None  # the line the model named
    fingerprint: str = ""
    dropped: str = ""  # the gate's code; such a finding is never posted
    note: str = ""  # what the host did to it: "suggestion does not parse", "test and code disagree" ...

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class HunkCoverage:
    """How much of one hunk was shown to the reviewer; hunk 0 stands for a file without hunks."""

    path: str
    hunk: int
    state: CoverageState
    reason: str = ""
    lines: int = 0
    required: bool = True  # False where nothing could be read (a picture) or the user's own config left it out


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The ledger: every hunk of the diff, once."""

    hunks: tuple[HunkCoverage, ...] = ()

    @property
    def required(self) -> tuple[HunkCoverage, ...]:
        return tuple(hunk for hunk in self.hunks if hunk.required)

    @property
    def complete(self) -> bool:
        """Whether everything that could be read was shown whole; "clean" may not be said otherwise."""
        return all(hunk.state == "full" for hunk in self.required)

    @property
    def percent(self) -> float:
        """Required lines shown in full, in percent; never rounded up to 100."""
        required = self.required
        total = sum(max(hunk.lines, 1) for hunk in required)
        full = sum(max(hunk.lines, 1) for hunk in required if hunk.state == "full")
        return 100.0 if full == total else min(99.9, int(1000 * full / total) / 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAttempt:
    """One provider's attempt at the review, and why it was not the last where it was not."""

    provider: str
    model: str = ""
    outcome: str = ""
    codes: tuple[str, ...] = ()  # of the garbage gate
    detail: str = ""
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRun:
    """The result of a review: findings.json. Raw model text stays here and is never posted."""

    change: ReviewedChange = ReviewedChange()
    findings: tuple[Finding, ...] = ()
    dropped: tuple[Finding, ...] = ()
    summary: str = ""  # what finish_review was told
    coverage: Coverage = Coverage()
    skipped: tuple[SkippedFile, ...] = ()
    finished: bool = False  # whether finish_review was called
    provider: str = ""  # "" where only the rules ran
    model: str = ""
    outcome: str = ""  # how the loop ended
    stop_reason: str = ""
    codes: tuple[str, ...] = ()  # run-level codes of the gate; any means inconclusive
    tries: tuple[ProviderAttempt, ...] = ()
    raw: str = ""  # the final free text of the model, for the artifact alone
    canary: str = ""  # the token planted in the system prompt
    seen: tuple[str, ...] = ()  # names of other code that the model read with a tool and speaks of
    tripwire: bool = False  # the diff talks to the reviewer: comment only, never "clean"
    notices: tuple[str, ...] = ()  # what the host has to say in the summary, in its own words
    prompt: str = ""  # name and version of the prompt
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    seconds: float = 0.0
    version: int = field(default=VERSION, metadata={"always": True})


RecordT = TypeVar("RecordT")


def from_json(cls: type[RecordT], data: Any, where: str = "") -> RecordT:
    """Decode a record; an unknown, missing or ill-typed field is a ConfigError that names it."""
    where = where or cls.__name__
    version = data.get("version", VERSION) if isinstance(data, Mapping) else VERSION
    if cls in (Bundle, ReviewRun) and version != VERSION:
        raise ConfigError(f"{where} has version {version!r}; this program reads version {VERSION}")
    try:
        record = glue.from_json(cls, data)
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from error
    if not isinstance(record, Bundle):
        return record
    from glue.agents.review.change.diff import parse

    return dataclasses.replace(record, files=parse(record.diff))


def save(record: Any, path: str | Path) -> None:
    Path(path).write_text(json.dumps(glue.to_json(record), indent=1) + "\n", encoding="ascii")


def load(cls: type[RecordT], path: str | Path) -> RecordT:
    """Read a record from a file that `save` wrote."""
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    return from_json(cls, data, str(path))

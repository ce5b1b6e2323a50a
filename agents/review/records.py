"""The records that the stages of a review (collect, run, publish) pass to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

VERSION = 1  # format version of bundle.json and findings.json

Severity: TypeAlias = Literal["critical", "high", "medium", "low", "info"]
FailOn: TypeAlias = Literal["critical", "high", "medium", "low", "info", "never"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
Category: TypeAlias = Literal[
    "bug", "security", "performance", "tests", "types", "docs", "style", "process", "attack"
]
# How a quote was found:
# - exact: it occurs once in the hunks of the file;
# - nearest: it occurs several times, and the place nearest to the claimed line was taken;
# - relocated: it occurs in another file of the diff, and `path` was corrected;
# - deleted: it occurs only in deleted lines; `line` is the nearest line of the hunk that is left;
# - similar: no line has it, and the line that is clearly the most similar was taken;
# - inside: it opens a function, and a line in that function was taken;
# - line: there is no usable quote, and the line that the model named was taken;
# - file: it occurs in the new file but outside every hunk, so `line` is None and the finding is
#   listed in the summary, not posted on a line;
# - "": it was not searched for.
Anchor: TypeAlias = Literal[
    "", "exact", "nearest", "relocated", "deleted", "similar", "inside", "line", "file"
]
Status: TypeAlias = Literal["added", "deleted", "modified", "renamed", "copied", "mode", "type"]
Mode: TypeAlias = Literal["pull_request", "branch", "staged", "dirty", "range", "diff"]
# Of these, only a file that is too large should have been read, and counts as missing.
SkipKind: TypeAlias = Literal["blocked", "excluded", "too_large"]
SecondLookMode: TypeAlias = Literal["never", "auto", "always"]
CoverageState: TypeAlias = Literal["full", "partial", "skipped"]

SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")  # worst first
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a hunk. `new` is None for a deleted line, `old` is None for an added line."""

    kind: Literal[" ", "+", "-"]
    old: int | None
    new: int | None
    text: str  # without the line ending; bytes that are not UTF-8 are replaced
    end: str = "\n"  # "\n", "\r\n", or "" for the last line of a file without a final newline


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Consecutive changed lines with their context. `index` counts from 1 within the file."""

    index: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: str = ""  # the text after the second @@ of the hunk header
    lines: tuple[DiffLine, ...] = ()

    @property
    def commentable(self) -> tuple[int, ...]:
        """Line numbers of the new file that accept a comment: added and context lines."""
        return tuple(line.new for line in self.lines if line.new is not None)

    @property
    def touched(self) -> frozenset[int]:
        """Line numbers, in the new file, of added lines and of the line above each deleted line.

        For a deleted line at the top of the hunk, it is the number of the hunk's first line.
        """
        touched: set[int] = set()
        at = self.new_start
        for line in self.lines:
            at = line.new if line.new is not None else at
            if line.kind != " ":
                touched.add(at)
        return frozenset(touched)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """The diff of one file: its names, its modes, its status and its hunks.

    Names that are not UTF-8 contain surrogate escapes: clean them before showing them.
    """

    path: str  # the new name, or the old name of a deleted file
    old_path: str = ""  # set only if it differs from `path`
    status: Status = "modified"
    old_mode: str = ""
    new_mode: str = ""
    new_sha: str = ""
    binary: bool = False
    odd: str = ""  # the reason why the hunks cannot be reviewed, such as "combined diff"
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

    @property
    def touched(self) -> frozenset[int]:
        """The numbers of the added lines of all hunks, and of the line above each deleted line."""
        return frozenset(number for hunk in self.hunks for number in hunk.touched)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCommit:
    """One commit of the change under review."""

    sha: str
    message: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeComment:
    """A comment on the pull request, not of glue. `path` is "" unless it is an inline comment."""

    author: str
    body: str
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedChange:
    """The change under review and its metadata. Every text in it is untrusted."""

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
    comments: tuple[ChangeComment, ...] = ()  # on the pull request, oldest first
    older_comments: int = 0  # comments that were left out
    issues: tuple[str, ...] = ()  # titles, or titles and texts, of issues that it should solve
    asked_by: str = ""  # the user who asked for this review in a comment
    request: str = ""  # the question in that comment


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file that was left out of the review, with the reason."""

    path: str
    reason: str  # shown to people
    kind: SkipKind = "excluded"
    lines: int = 0  # changed lines, if they were counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The input of a review: the change, its diff, the changed files, settings and guidelines.

    The texts of the changed files are those before and after the change.
    """

    change: ReviewedChange = ReviewedChange()
    diff: str = ""  # as git printed it; bytes that are not UTF-8 are surrogate escapes
    # Parsed from `diff`, so it is not written to bundle.json.
    files: tuple[FileDiff, ...] = field(default=(), metadata={"derived": True})
    head: Mapping[str, str] = field(default_factory=dict)  # path -> text after the change
    base: Mapping[str, str] = field(default_factory=dict)  # old path -> text before the change
    skipped: tuple[SkippedFile, ...] = ()
    # The parsed config file of the merge-base.
    config: Mapping[str, object] = field(default_factory=dict)
    # Guideline files of the merge-base: path -> text.
    guidelines: Mapping[str, str] = field(default_factory=dict)
    version: int = field(default=VERSION, metadata={"always": True})

    def file(self, path: str) -> FileDiff | None:
        return next((file for file in self.files if file.path == path), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A defect in the change, at one place.

    `line` is the last line of the place in the new file, or None if it is not in the new file.
    """

    path: str
    quote: str  # verbatim from the diff; the line is computed from it
    title: str
    body: str
    severity: Severity = "medium"
    confidence: Confidence = "medium"
    category: Category = "bug"
    suggestion: str | None = None  # replacement for the lines start_line to line
    acceptance: str = ""  # how to verify the fix, in one line
    rule: str = ""  # the deterministic rule that found it; empty if a model reported it
    source: str = ""  # "rules", or the name of the analyser or provider
    line: int | None = None
    start_line: int | None = None  # set only if it is smaller than `line`
    anchor: Anchor = ""
    claimed: int | None = None  # the line number that the model gave
    fingerprint: str = ""
    dropped: str = ""  # the gate's code, if the gate refused it; it is then never posted
    note: str = ""  # a remark of glue itself, such as "test and code disagree"
    since: str = ""  # start of the hash of the head at which an earlier review reported it

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class HunkCoverage:
    """The coverage of one hunk: whether it was read in full, in part or not at all.

    The model or an earlier review has read it. In a review without a model, a hunk counts as read
    if an analyser reads its file. `hunk` is 0 if the record is about a whole file.
    """

    path: str
    hunk: int
    state: CoverageState
    reason: str = ""
    lines: int = 0
    # False if there is nothing to read (a picture), or if the user's config excludes the file.
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The coverage of a diff: how much of each hunk was read. Each hunk is listed once."""

    hunks: tuple[HunkCoverage, ...] = ()

    @property
    def required(self) -> tuple[HunkCoverage, ...]:
        return tuple(hunk for hunk in self.hunks if hunk.required)

    @property
    def is_empty(self) -> bool:
        """Return whether no required hunk contains lines, as in a change that has only pictures.

        The result is False if a required hunk was not read in full.
        """
        return all(hunk.state == "full" and not hunk.lines for hunk in self.required)

    @property
    def complete(self) -> bool:
        """Return whether every required hunk was read in full."""
        return all(hunk.state == "full" for hunk in self.required)

    @property
    def percent(self) -> float:
        """Return the percentage of lines of required hunks that are in hunks read in full.

        It is rounded down, so it is 100 only if every hunk was read in full.
        """
        required = self.required
        total = sum(max(hunk.lines, 1) for hunk in required)
        full = sum(max(hunk.lines, 1) for hunk in required if hunk.state == "full")
        return 100.0 if full == total else min(99.9, int(1000 * full / total) / 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAttempt:
    """The attempt of one provider to review the change: its outcome, its cost and its time.

    If `codes` is not empty, the attempt failed, and the next provider was asked if there was one.
    """

    provider: str
    model: str = ""
    outcome: str = ""
    codes: tuple[str, ...] = ()  # codes of the gate
    detail: str = ""
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """The figures of the second look: its cost, and how many findings it checked and refuted."""

    mode: SecondLookMode = "never"
    checked: int = 0
    refuted: int = 0
    corrected: int = 0  # a wrong detail in the body
    regraded: int = 0  # a wrong severity
    merged: int = 0  # into a finding with the same cause
    failed: int = 0  # could not be checked, so the finding stands
    tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRun:
    """The result of a review, as in findings.json. The model's free text, `raw`, is not posted."""

    change: ReviewedChange = ReviewedChange()
    findings: tuple[Finding, ...] = ()
    dropped: tuple[Finding, ...] = ()
    summary: str = ""  # the argument of finish_review
    # Whether `summary` is only about the hunks that an earlier review had not read.
    is_increment: bool = False
    coverage: Coverage = Coverage()
    skipped: tuple[SkippedFile, ...] = ()
    finished: bool = False  # whether finish_review was called
    provider: str = ""  # empty if no model was asked
    model: str = ""
    outcome: str = ""  # how the loop ended
    stop_reason: str = ""
    codes: tuple[str, ...] = ()  # codes of the gate for the run; any code means inconclusive
    tries: tuple[ProviderAttempt, ...] = ()
    second_look: SecondLook = SecondLook()
    raw: str = ""  # the last text of the model outside of tool calls
    canary: str = ""  # a random token in the system prompt; a reply that repeats it is refused
    seen: tuple[str, ...] = ()  # names in the summary that occur only in code read with a tool
    tripwire: bool = False  # the change addresses the reviewer, so it is never "clean"
    notices: tuple[str, ...] = ()  # remarks of glue itself, for the summary
    prompt: str = ""  # name and version of the prompt
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    seconds: float = 0.0
    version: int = field(default=VERSION, metadata={"always": True})

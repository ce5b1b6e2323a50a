"""Put a run, its gate and its dismissals into one report that is safe to show: every text redacted and visible."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from glue import clean_text, one_line
from glue.agents.review.change.config import Config
from glue.agents.review.delivery import clean
from glue.agents.review.findings import dedupe, gate
from glue.agents.review.findings import model as prompt
from glue.agents.review.findings.anchor import MIN_QUOTE, anchor, fault
from glue.agents.review.findings.dedupe import Dismissal, PostedFinding
from glue.agents.review.records import (
    CONFIDENCES,
    SEVERITIES,
    Bundle,
    Coverage,
    FailOn,
    FileDiff,
    Finding,
    ReviewedChange,
    ReviewRun,
    SkippedFile,
)
from glue.agents.review.secrets import MASK, Redactor

_ADDRESS = re.compile(r"https?:[/\\]{2}|\bwww\.|<!--|!\[|^\s*/[a-z][\w-]*\s*$|^\s*::|##\[|javascript:", re.I | re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A finding as it may be shown, and where it may stand."""

    finding: Finding
    path: str  # the file's name, visible and redacted, for people
    where: str  # the same with the line
    inline: bool = False  # whether its line takes a comment
    folded: bool = False  # mild, unsure or one too many: listed in the sticky comment, behind a fold

    @property
    def key(self) -> tuple[str, str]:
        return self.finding.fingerprint, self.finding.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a review has to say. Every text in it has been redacted; each output still escapes for itself."""

    change: ReviewedChange
    items: tuple[Item, ...] = ()
    dismissed: tuple[tuple[Item, Dismissal], ...] = ()
    fixed: tuple[PostedFinding, ...] = ()  # what earlier runs posted and is gone now
    open: frozenset[str] = frozenset()  # fingerprints of what was posted before and is still here
    summary: str = ""
    coverage: Coverage = field(default_factory=Coverage)
    skipped: tuple[SkippedFile, ...] = ()
    notices: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    dropped: int = 0
    tripwire: bool = False
    finished: bool = True
    model: str = ""
    prompt: str = ""
    cost: float | None = None
    seconds: float = 0.0
    known: str = ""  # text of the change: code that occurs in it may be shown to the letter

    @property
    def clean(self) -> bool:
        """Whether "nothing found" may be said at all."""
        quiet = not self.items and not self.codes and not self.tripwire
        return quiet and self.finished and self.coverage.complete

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(item.finding for item in self.items)


def build(
    bundle: Bundle, run: ReviewRun, redactor: Redactor, *, given: Iterable[Dismissal] = (), config: Config | None = None
) -> Report:
    """Gate a run, take out what was dismissed, and make every text safe. Of garbage only what rules said is kept."""
    config = config or Config()
    most = sorted(run.findings, key=dedupe.rank)[: gate.CONSIDERED]
    placed = tuple(_placed(finding, bundle) for finding in most)
    gated = gate.judge(replace(run, findings=placed), bundle, language=config.language, examples=prompt.examples())
    notices = run.notices
    if gated.codes and run.provider:
        kept = tuple(finding for finding in gated.findings if finding.rule)
        gated = replace(gated, findings=kept, summary=gate.host_summary(bundle, kept))
        said = "The model's review was inconclusive and is not shown; these are the findings of analysers and rules."
        notices = (*notices, said if kept else "The model's review was inconclusive and is not shown.")
    marks = (*dedupe.dismissals(bundle), *given)
    safe = _make_safe(redactor)
    items: list[Item] = []
    gone: list[tuple[Item, Dismissal]] = []
    for finding in gated.findings:
        item = _item(finding, bundle, redactor, safe)
        dismissal = dedupe.dismissed(finding, marks)
        if dismissal is None:
            items.append(_folded(item, config, sum(one.inline for one in items)))
        else:
            words = replace(dismissal, reason=safe(dismissal.reason, 200), by=safe(dismissal.by, 80))
            gone.append((item, words))
    change = bundle.change
    limits = {"title": 300, "author": 80, "asked_by": 80, "request": 200, "head_ref": 200, "base_ref": 200}
    texts: dict[str, Any] = {name: safe(getattr(change, name), limit) for name, limit in limits.items()}
    texts |= {"head_sha": valid_sha(change.head_sha), "base_sha": valid_sha(change.base_sha), "body": ""}
    return Report(
        change=replace(change, commits=(), **texts),
        items=tuple(items),
        dismissed=tuple(gone),
        summary=safe(gated.summary, gate.SUMMARY),
        coverage=Coverage(
            hunks=tuple(
                replace(hunk, path=safe(hunk.path, 300), reason=safe(hunk.reason, 200)) for hunk in run.coverage.hunks
            )
        ),
        skipped=tuple(replace(skip, path=safe(skip.path, 300), reason=safe(skip.reason, 200)) for skip in run.skipped),
        notices=tuple(safe(notice, 500) for notice in notices[:20]),
        codes=tuple(re.sub(r"[^\w.-]", "", code)[:60] or "unknown" for code in gated.codes),
        dropped=len(gated.dropped),
        tripwire=run.tripwire,
        finished=run.finished or not run.provider,
        model=safe(f"{run.provider}:{run.model}".strip(":"), 120),
        prompt=safe(run.prompt, 80),
        cost=run.cost,
        seconds=run.seconds,
        known=bundle.diff,
    )


def valid_sha(text: str) -> str:
    """A commit's full id, or nothing."""
    return text if re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", text) else ""


def _folded(item: Item, config: Config, shown: int) -> Item:
    """Fold away what is too mild, too unsure, or one too many for a comment of its own."""
    mild = SEVERITIES.index(item.finding.severity) > SEVERITIES.index(config.min_severity)
    unsure = CONFIDENCES.index(item.finding.confidence) > CONFIDENCES.index(config.min_confidence)
    spare = item.inline and shown >= config.max_findings
    return replace(item, inline=False, folded=True) if mild or unsure or spare else item


def _commentable(finding: Finding, file: FileDiff | None) -> bool:
    """Whether an inline comment may stand there: on a line of the new side, in a file whose name can be shown."""
    path = finding.path
    is_shown = clean_text(path, drop=True) == path and "\n" not in path and "\t" not in path
    return file is not None and is_shown and finding.side == "RIGHT" and finding.line in file.commentable


def _placed(finding: Finding, bundle: Bundle) -> Finding:
    """Compute the line again: what a file says is not trusted."""
    if len("".join(finding.quote.split())) >= MIN_QUOTE:
        finding = anchor(finding, bundle.files, bundle.head) or replace(finding, line=None, start_line=None)
    file, start, line = bundle.file(finding.path), finding.start_line, finding.line
    if line is not None and not _commentable(finding, file):
        return replace(finding, line=None, start_line=None, claimed=finding.claimed or line)
    if file is None or start is None or line is None:
        return finding
    together = any({start, line} <= set(hunk.commentable) for hunk in file.hunks)
    return finding if together and start < line else replace(finding, start_line=None)


Safe = Callable[[str, int], str]


def _make_safe(redactor: Redactor) -> Safe:
    """Make the function that redacts a text before and after its links are unwrapped: a value may be split by one."""

    @cache  # names of files come again with every hunk
    def safe(text: str, limit: int) -> str:
        text = redactor.redact(clean_text(text[: 2 * limit + 200], drop=True))
        inert = clean.plain(text)
        return clean.shorten(redactor.redact(inert) if redactor.find(inert) else text, limit)

    return safe


def _item(finding: Finding, bundle: Bundle, redactor: Redactor, safe: Safe) -> Item:
    path = safe(one_line(finding.path, drop=True)[:300], 300)
    inline = path == finding.path and _commentable(finding, bundle.file(finding.path))
    line = finding.line or finding.claimed
    suggestion = finding.suggestion if inline else None
    if suggestion is not None and (fault(finding, bundle) or not _harmless(suggestion, finding, bundle, redactor)):
        suggestion = None
    words = replace(
        finding,
        title=clean.line(safe(finding.title, 200), 200),
        body=safe(finding.body, gate.BODY),
        acceptance=clean.line(safe(finding.acceptance, 300), 300),
        note=clean.line(safe(finding.note, 200), 200),
        rule=re.sub(r"[^\w./-]", "", finding.rule)[:80],
        suggestion=suggestion,
    )
    together = "\n".join(clean.plain(text) for text in (words.title, words.body, words.acceptance))
    if redactor.exact(together):  # where the texts are read one after the other
        words = replace(words, title=MASK, body=MASK, acceptance="")
    return Item(finding=words, path=path, where=f"{path}:{line}" if line else path, inline=inline)


def _harmless(code: str, finding: Finding, bundle: Bundle, redactor: Redactor) -> bool:
    """A suggestion is applied with one click: it may bring in no secret, hidden character, address or command."""
    if not code.strip("\n") and not finding.quote.strip():
        return False
    if gate.hidden(code) or redactor.find(code) or len(code) > gate.BODY or "`" * 9 in code:
        return False
    known = bundle.head.get(finding.path, "") + bundle.diff
    rows = [row for row in code.split("\n") if row.strip() not in known]
    # A decorator is code; any other name behind an at-sign would be a call for somebody.
    return not _ADDRESS.search("\n".join(rows)) and all(clean.calls_nobody(row) for row in rows)


PASS, GATE, INCONCLUSIVE, UNDELIVERED = 0, 1, 3, 4  # exit codes; 2 is a usage error
_WORDS = {PASS: "pass", GATE: "findings", INCONCLUSIVE: "inconclusive", UNDELIVERED: "not delivered"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewVerdict:
    """The verdict of a review. `delivered` is None where nothing was to be posted."""

    ran: bool
    covered: bool
    below: bool
    delivered: bool | None = None
    required: bool = False  # whether full coverage was asked for
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What did not arrive comes first: nobody has seen the rest. Then whether it ran, the gate, and coverage."""
        if self.delivered is False:
            return UNDELIVERED
        if not self.ran:
            return INCONCLUSIVE
        if not self.below:
            return GATE
        return INCONCLUSIVE if self.required and not self.covered else PASS

    @property
    def word(self) -> str:
        return _WORDS[self.exit_code]


def decide(
    report: Report,
    *,
    fail_on: FailOn | None = "high",
    require_coverage: float | None = None,
    problem: str | None = None,
) -> ReviewVerdict:
    """Come to a verdict. `fail_on` is the mildest severity that fails the gate; None, as "never", for none.

    `problem` says why it did not arrive, and is empty where it did; None where nothing was to be posted.
    """
    reasons: list[str] = []
    if report.codes:
        reasons.append(f"inconclusive: {', '.join(report.codes)}")
    elif not report.finished:
        reasons.append("the reviewer stopped before it was done")
    judged = (*report.findings, *(item.finding for item, mark in report.dismissed if not mark.binding))
    grave = [
        one for one in judged if fail_on in SEVERITIES and SEVERITIES.index(one.severity) <= SEVERITIES.index(fail_on)
    ]
    if grave:
        reasons.append(f"{len(grave)} {'finding' if len(grave) == 1 else 'findings'} of severity {fail_on} or worse")
    coverage = report.coverage
    covered = coverage.complete if require_coverage is None else coverage.percent >= require_coverage
    if not covered:
        reasons.append(f"{coverage.percent:g} % of the change was read in full")
    if problem:
        reasons.append(f"not delivered: {problem}")
    return ReviewVerdict(
        ran=not report.codes and report.finished,
        covered=covered,
        below=not grave,
        delivered=None if problem is None else not problem,
        required=require_coverage is not None,
        reasons=tuple(reasons),
    )

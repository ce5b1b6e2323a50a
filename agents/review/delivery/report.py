"""The report of a review: the findings that may be posted, the verdict and the exit code.

Every text in a report is redacted and has no hidden characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias

from glue.agents.review.change.config import Config
from glue.agents.review.delivery import clean
from glue.agents.review.findings import dedupe, gate, prompt
from glue.agents.review.findings.anchor import anchor, fault
from glue.agents.review.findings.dedupe import Dismissal, PostedFinding
from glue.agents.review.findings.secondlook import DISMISSED, REFUTED
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
from glue.secrets import Redactor
from glue.text import clean_text, count

Folded: TypeAlias = Literal["", "mild", "limit"]
_ADDRESS = re.compile(
    r"https?:[/\\]{2}|\bwww\.|<!--|!\[|^\s*/[a-z][\w-]*\s*$|^\s*::|##\[|javascript:", re.I | re.M
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A finding with redacted texts, and how it is shown: inline, folded or in the list."""

    finding: Finding
    path: str  # redacted and without hidden characters, for people
    where: str  # the path with the line number
    inline: bool = False  # whether it is posted as a comment on its line
    # Why the finding is only in a folded section of the sticky comment: "mild" means that it is too
    # mild or too uncertain, "limit" that max_findings comments on lines come before it.
    folded: Folded = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.finding.fingerprint, self.finding.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a review, redacted and without hidden characters, to show to people.

    Each output format still has to escape the texts.
    """

    change: ReviewedChange
    items: tuple[Item, ...] = ()
    dismissed: tuple[tuple[Item, Dismissal], ...] = ()
    refuted: tuple[Item, ...] = ()  # by the second look; the reason is the note of the finding
    fixed: tuple[PostedFinding, ...] = ()  # posted by earlier reviews, and no longer found
    open: frozenset[str] = frozenset()  # fingerprints of findings posted before and still found
    summary: str = ""
    coverage: Coverage = field(default_factory=Coverage)
    skipped: tuple[SkippedFile, ...] = ()
    notices: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()  # why the review is inconclusive, in plain words
    dropped: int = 0
    tripwire: bool = False
    finished: bool = True
    model: str = ""
    prompt: str = ""
    cost: float | None = None
    seconds: float = 0.0
    known: str = ""  # text of the change: code that occurs in it is shown unchanged

    @property
    def clean(self) -> bool:
        """Return whether a finished, sound review read the whole change and found nothing.

        A change with text that addresses the reviewer is never clean.
        """
        return self.quiet and self.finished and self.coverage.complete

    @property
    def quiet(self) -> bool:
        """Return whether the report needs no comment: nothing was found, and everything was read.

        A review without a model needs no comment even if it did not cover the whole change.
        """
        is_silent = not self.items and not self.codes and not self.tripwire
        return is_silent and (self.coverage.complete or not self.model)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(item.finding for item in self.items)


def build(
    bundle: Bundle,
    run: ReviewRun,
    redactor: Redactor,
    *,
    given: Iterable[Dismissal] = (),
    config: Config | None = None,
) -> Report:
    """Return the redacted report of a review: the findings that may be posted.

    Findings that the gate refuses are left out. Dismissed findings are listed as dismissed; `given`
    are the dismissals in comments. If the gate refuses the model's whole review, only findings of
    analysers and rules remain.
    """
    config = config or Config()
    most = sorted(run.findings, key=dedupe.rank)[: gate.CONSIDERED]
    placed = tuple(_placed(finding, bundle) for finding in most)
    gated = gate.judge(
        replace(run, findings=placed), bundle, language=config.language, examples=prompt.examples()
    )
    refused = gate.unresolved(gated.dropped, gated.findings)
    notices = (*run.notices, *_attempts(run))
    if refused:
        notices = (*notices, f"{gate.tally(refused)}.")
    if gated.codes and run.provider:
        kept = tuple(finding for finding in gated.findings if finding.rule)
        gated = replace(gated, findings=kept, summary="")
        rest = "; these are the findings of analysers and rules." if kept else "."
        if kept or run.summary or run.findings:
            notices = (*notices, f"The model's review was inconclusive and is not shown{rest}")
    dismissals = (*dedupe.dismissals(bundle), *given)
    safe = _make_safe(redactor)
    items: list[Item] = []
    dismissed: list[tuple[Item, Dismissal]] = []
    for finding in gated.findings:
        item = _item(finding, bundle, redactor, safe)
        dismissal = dedupe.dismissed(finding, dismissals)
        if dismissal is None:
            inline_count = sum(item.inline for item in items)
            items.append(_folded(item, config, inline_count))
        else:
            words = replace(
                dismissal, reason=safe(dismissal.reason, 200), by=safe(dismissal.by, 80)
            )
            dismissed.append((item, words))
    refuted = [one for one in gated.dropped if one.dropped in (REFUTED, DISMISSED)][: gate.FINDINGS]
    look = run.second_look
    if look.failed:
        notices = (*notices, f"The second look could not check {count(look.failed, 'finding')}.")
    summary = _summary(bundle, gated, [item.finding for item in items])
    change = bundle.change
    limits = {
        "title": 300,
        "author": 80,
        "asked_by": 80,
        "request": 200,
        "head_ref": 200,
        "base_ref": 200,
    }
    texts: dict[str, Any] = {
        name: safe(getattr(change, name), limit) for name, limit in limits.items()
    }
    texts |= {
        "head_sha": valid_sha(change.head_sha),
        "base_sha": valid_sha(change.base_sha),
        "body": "",
    }
    codes = tuple(re.sub(r"[^\w.-]", "", code)[:60] or "unknown" for code in gated.codes)
    return Report(
        change=replace(change, commits=(), comments=(), issues=(), **texts),
        items=tuple(items),
        dismissed=tuple(dismissed),
        refuted=tuple(_item(finding, bundle, redactor, safe) for finding in refuted),
        summary=safe(summary, gate.SUMMARY),
        coverage=Coverage(
            hunks=tuple(
                replace(hunk, path=safe(hunk.path, 300), reason=safe(hunk.reason, 200))
                for hunk in run.coverage.hunks
            )
        ),
        skipped=tuple(
            replace(skip, path=safe(skip.path, 300), reason=safe(skip.reason, 200))
            for skip in run.skipped
        ),
        notices=tuple(safe(notice, 500) for notice in notices[:20]),
        codes=codes,
        reasons=tuple(dict.fromkeys(map(gate.meaning, codes))),
        dropped=len(gated.dropped),
        tripwire=run.tripwire,
        finished=run.finished or not run.provider,
        model=safe(f"{run.provider}:{run.model}".strip(":"), 120),
        prompt=safe(run.prompt, 80),
        cost=run.cost,
        seconds=run.seconds,
        known=bundle.diff,
    )


def _summary(bundle: Bundle, run: ReviewRun, findings: list[Finding]) -> str:
    """Return the model's summary or, if it wrote none, a summary that counts files and findings.

    The number of findings of earlier reviews that are still open is put before it, because the
    model does not summarise them.
    """
    summary = run.summary
    if run.provider and summary.strip():
        still = [finding for finding in findings if finding.since]
        new = "\n\nNew since the earlier review: " if run.is_increment else "\n\n"
        if still:
            noun = (
                "1 finding of an earlier review is"
                if len(still) == 1
                else (f"{len(still)} findings of earlier reviews are")
            )
            return f"{noun} still open: {gate.by_severity(still)}.{new}{summary}"
        return summary
    if run.provider:
        return gate.host_summary(bundle, findings, "" if run.codes else "Nothing was found.")
    if run.coverage.is_empty and not findings:
        return "There is nothing to read in this change, so no model was asked."
    tools = {
        hunk.path: hunk.reason.removeprefix("analysed by ")
        for hunk in run.coverage.hunks
        if hunk.reason.startswith("analysed by ")
    }
    names = ", ".join(dict.fromkeys(tools.values()))
    done = f"{names} analysed {count(len(tools), 'file')}, and all" if tools else "All"
    return (
        f"{gate.host_summary(bundle, findings, 'Nothing was found.')} No model was asked. {done}"
        " files were searched for secrets, conflict markers, hidden text and switched-off tests."
    )


def _attempts(run: ReviewRun) -> tuple[str, ...]:
    """Return sentences with the reason, one for each provider that did not deliver a review."""
    sentences = []
    for attempt in run.tries:
        if attempt.codes:
            detail = attempt.detail.removeprefix(f"{attempt.provider}: ")
            reason = detail or "; ".join(gate.meaning(code) for code in attempt.codes)
            sentences.append(f"{attempt.provider} did not review the change: {reason}")
    return tuple(sentences)


def valid_sha(text: str) -> str:
    """Return the text if it is a full commit hash, else ""."""
    return text if re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", text) else ""


def _folded(item: Item, config: Config, shown: int) -> Item:
    """Return the item, marked for a folded section if the settings allow no inline comment for it.

    This is so if the finding is too mild or too uncertain, or if `shown`, the number of inline
    comments so far, has reached the limit. The folded sections are in the sticky comment.
    """
    mild = SEVERITIES.index(item.finding.severity) > SEVERITIES.index(config.min_severity)
    unsure = CONFIDENCES.index(item.finding.confidence) > CONFIDENCES.index(config.min_confidence)
    over_limit = item.inline and shown >= config.max_findings
    folded: Folded = "mild" if mild or unsure else "limit" if over_limit else ""
    return replace(item, inline=False, folded=folded) if folded else item


def _commentable(finding: Finding, file: FileDiff | None) -> bool:
    """Return whether the forge accepts an inline comment on the line of the finding.

    The line must be on the new side of a hunk, and the path must not need cleaning.
    """
    path = finding.path
    is_shown = clean_text(path, drop=True) == path and "\n" not in path and "\t" not in path
    return file is not None and is_shown and finding.line in file.commentable


def _placed(finding: Finding, bundle: Bundle) -> Finding:
    """Return the finding on the line of its quote; its `line` is None if the quote is not found.

    The line number in a saved file is not trusted. `line` also becomes None if the forge accepts no
    comment there. A finding without a quote keeps its line if the forge accepts a comment there.
    """
    if finding.quote.strip():
        finding = anchor(finding, bundle.files, bundle.head) or replace(
            finding, line=None, start_line=None
        )
    file, start, line = bundle.file(finding.path), finding.start_line, finding.line
    if line is not None and not _commentable(finding, file):
        return replace(finding, line=None, start_line=None, claimed=finding.claimed or line)
    if file is None or start is None or line is None:
        return finding
    together = any({start, line} <= set(hunk.commentable) for hunk in file.hunks)
    return finding if together and start < line else replace(finding, start_line=None)


Safe = Callable[[str, int], str]


def _make_safe(redactor: Redactor) -> Safe:
    """Return the function `safe(text, limit)`, which cleans, redacts and shortens a text.

    It searches for secrets before and after links are unwrapped, because a link may split a secret.
    """

    @cache  # the path of a file is cleaned once for each hunk
    def safe(text: str, limit: int) -> str:
        text = redactor.redact(clean_text(text[: 2 * limit + 200], drop=True))
        inert = clean.plain(text)
        return clean.shorten(redactor.redact(inert) if redactor.find(inert) else text, limit)

    return safe


def _item(finding: Finding, bundle: Bundle, redactor: Redactor, safe: Safe) -> Item:
    """Return the Item for a finding, with redacted texts and without an unsafe suggestion."""
    path = safe(finding.path.replace("\n", " ").replace("\t", " ")[:300], 300)
    inline = path == finding.path and _commentable(finding, bundle.file(finding.path))
    line = finding.line or finding.claimed
    suggestion = finding.suggestion if inline else None
    if suggestion is not None and (
        fault(finding, bundle) or not _harmless(suggestion, finding, bundle, redactor)
    ):
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
    # A secret value may be split over several of the texts.
    if redactor.find_values(together):
        words = replace(words, title=redactor.mask, body=redactor.mask, acceptance="")
    return Item(finding=words, path=path, where=f"{path}:{line}" if line else path, inline=inline)


def _harmless(code: str, finding: Finding, bundle: Bundle, redactor: Redactor) -> bool:
    """Return whether the suggestion `code` is safe to apply with one click.

    It must not contain secrets or hidden characters, be empty without a quote, or be too long. Its
    new lines must not contain links, commands or mentions of users.
    """
    if not code.strip("\n") and not finding.quote.strip():
        return False
    if gate.hidden(code) or redactor.find(code) or len(code) > gate.BODY or "`" * 9 in code:
        return False
    known = bundle.head.get(finding.path, "") + bundle.diff
    rows = [row for row in code.split("\n") if row.strip() not in known]
    if _ADDRESS.search("\n".join(rows)):
        return False
    return not any(clean.has_mention(row) for row in rows)


def read_word(report: Report) -> str:
    """Return "analysed" if no model was asked and the review is conclusive, else "read in full".

    The words complete a sentence such as "only 80 % of the change was analysed". Without a model,
    only analysers and rules have looked at the change.
    """
    return "read in full" if report.model or report.codes else "analysed"


PASS, GATE, INCONCLUSIVE, UNDELIVERED = 0, 1, 3, 4  # exit codes; 2 is a usage error
_WORDS = {
    PASS: "pass",
    GATE: "findings",
    INCONCLUSIVE: "inconclusive",
    UNDELIVERED: "not delivered",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewVerdict:
    """The verdict of a review: the outcome of four checks, from which the exit code follows.

    `delivered` is None if the report was not to be posted.
    """

    ran: bool  # the review is finished and conclusive
    covered: bool  # enough of the change was read
    below: bool  # no finding reaches the severity that fails
    delivered: bool | None = None
    required: bool = False  # whether missing coverage makes the review inconclusive
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return the exit code of the first check that failed, or PASS if none failed.

        The order of the checks is: delivery, run, severity of the findings, coverage. Missing
        coverage fails only if it is `required`.
        """
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
    """Return the verdict on a report, with a reason for each check that failed.

    Args:
        fail_on: the lowest severity that fails; with None or "never" findings do not fail.
        require_coverage: percent of the change that must have been read in full.
        problem: the reason why the report was not delivered. It is empty if the report was
            delivered, and None if it was not to be posted.
    """
    reasons: list[str] = []
    if report.codes:
        reasons.append(
            f"inconclusive: {'; '.join(report.reasons)} ({', '.join(report.codes)})"
            if report.reasons
            else f"inconclusive: {', '.join(report.codes)}"
        )
    elif not report.finished:
        reasons.append("the review stopped before it was finished")
    judged = (
        *report.findings,
        *(item.finding for item, mark in report.dismissed if not mark.binding),
    )
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on in SEVERITIES else ()
    grave = [finding for finding in judged if finding.severity in failing]
    if grave:
        plural = "s" if len(grave) > 1 else ""
        reasons.append(f"{len(grave)} finding{plural} of severity {fail_on} or worse")
    coverage = report.coverage
    covered = (
        coverage.complete if require_coverage is None else coverage.percent >= require_coverage
    )
    if not covered:
        reasons.append(f"only {coverage.percent:g} % of the change was {read_word(report)}")
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

"""Write a report as Markdown: the sticky comment, the inline comments, and the fix instructions."""

from __future__ import annotations

import hashlib
import re

from glue.agents.review.delivery import clean, gate
from glue.agents.review.delivery.report import Item, Report
from glue.agents.review.findings.dedupe import quote_key

STICKY = "<!-- glue-review:sticky "
FINDING = "<!-- glue-review:finding "
REVIEW = "<!-- glue-review:review "
_FIELDS = re.compile(r"(\w+)=([\w.-]+)")
_MARKS = {"critical": "⛔", "high": "🔴", "medium": "🟠", "low": "🟡", "info": "🔵"}


def fields(body: str, kind: str) -> dict[str, str] | None:
    """Read our own marker, which stands at the very start of a body or nowhere."""
    if not body.startswith(kind):
        return None
    return dict(_FIELDS.findall(body.split("-->", 1)[0]))


def sticky(report: Report, limit: int = gate.SUMMARY) -> str:
    """Write the comment that is kept up to date, with its marker."""
    body = summary(report, limit=limit - 200)
    mark = hashlib.sha256(body.encode()).hexdigest()[:16]
    return f"{STICKY}v=1 head={report.change.head_sha or 'none'} digest={mark} -->\n{body}"


def summary(report: Report, *, limit: int = gate.SUMMARY) -> str:
    """Write what a review has to say as one Markdown text."""
    parts = [f"## glue review\n\n{headline(report)}"]
    if report.summary.strip():
        parts.append(clean.shorten(clean.markdown(report.summary, known=report.known), limit // 4))
    parts += [clean.markdown(notice) for notice in report.notices]
    shown = [item for item in report.items if not item.folded]
    folded = [item for item in report.items if item.folded]
    if shown:
        parts.append("### Findings\n\n" + "\n".join(_row(item, report) for item in shown))
    if folded:
        rows = "\n".join(_row(item, report) for item in folded)
        parts.append(_details(f"{len(folded)} more, milder or less sure", rows))
    if report.fixed:
        rows = "\n".join(f"- {clean.code(old.path)} {clean.prose(old.title)}" for old in report.fixed[:20])
        parts.append(f"### Fixed\n\n{rows}")
    if report.dismissed:
        rows = "\n".join(f"- {_title(item)}{_by(mark.by, mark.reason)}" for item, mark in report.dismissed)
        parts.append(f"### Dismissed\n\n{rows}")
    if report.items:
        parts.append(_details("Fix instructions", fixes(report)))
    parts += _unread(report)
    parts.append(footer(report))
    return clean.shorten("\n\n".join(parts), limit)


def _details(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def headline(report: Report) -> str:
    """Say in one line what was found and how much was read."""
    count = len(report.items)
    found = "No findings" if not count else f"{count} finding{'s' if count > 1 else ''}"
    if report.codes:
        found = "Inconclusive"
    elif not report.finished:
        found = f"{found}, and the review was cut short"
    elif not count and not report.coverage.complete:
        found = "No findings in what was read"
    elif not count and report.tripwire:
        found = "No findings, but the change holds text addressed to the reviewer"
    head = f" · head {clean.code(report.change.head_sha[:12])}" if report.change.head_sha else ""
    return f"**{found}** · {report.coverage.percent:g} % of the change read in full{head}"


def inline(item: Item, report: Report, suggestion: str = "suggestion") -> str:
    """Write one inline comment with its marker, within the limit whatever the finding holds."""
    finding = item.finding
    by, head = "rule" if finding.rule else "model", report.change.head_sha[:12] or "none"
    mark = f"{FINDING}v=1 fp={finding.fingerprint} q={quote_key(finding)} by={by} h={head} -->\n"
    head = f"{_title(item)}\n\n"
    tail = f"\n\n`{finding.fingerprint}`"
    block = "\n\n" + _suggestion(item, suggestion) if item.suggestion is not None else ""
    room = gate.BODY - len(mark) - len(head) - len(tail)
    if len(block) > room - 200:
        block = ""
    body = clean.shorten(clean.markdown(finding.body, known=report.known), room - len(block))
    if len(body) > room - len(block):
        body = body[: room - len(block)].replace("`", "'")
    return f"{mark}{head}{body}{block}{tail}"


def fixes(report: Report) -> str:
    """Write the findings as work for a person or an agent, each with how to see that it is done."""
    rows = ["Mend the following in this change."]
    for number, item in enumerate(report.items, 1):
        words = clean.line(clean.plain(item.finding.body), 250)
        rows.append(f"{number}. {clean.line(item.where)}: {clean.line(clean.plain(item.finding.title))}. {words}")
        rows.append(f"   Acceptance: {acceptance(item)}")
    return clean.fence("\n".join(rows), "text")


def acceptance(item: Item) -> str:
    """Say how to see that a finding is mended, in one line."""
    if item.finding.acceptance:
        return clean.line(clean.plain(item.finding.acceptance), 300)
    return f"`glue review` reports nothing with the id {item.finding.fingerprint} any more, and the tests pass."


def footer(report: Report) -> str:
    """Say who reviewed, who asked, and how to disagree."""
    words = [
        f"Reviewed by {clean.code(report.model)}"
        if report.model
        else "Reviewed by analysers and rules, without a model"
    ]
    if report.prompt:
        words.append(f"prompt {clean.code(report.prompt)}")
    if report.change.asked_by:
        asked = f" ({clean.prose(report.change.request)})" if report.change.request else ""
        words.append(f"asked for by {clean.code(report.change.asked_by)}{asked}")
    words.append("dismiss one with a commit trailer `Review-Dismiss: <id> reason`" if report.items else "")
    return "_" + " · ".join(word for word in words if word) + "_"


def _row(item: Item, report: Report) -> str:
    body = ""
    if not item.inline:
        text = clean.line(clean.plain(item.finding.body), 500)
        body = f"\n  {clean.prose(text)}"
    still = ", still open" if item.finding.fingerprint in report.open else ""
    return f"- {clean.code(item.where)} {_title(item)} (`{item.finding.fingerprint}`{still}){body}"


def _title(item: Item) -> str:
    finding = item.finding
    note = f" ({clean.prose(finding.note)})" if finding.note else ""
    return f"{_MARKS[finding.severity]} **{finding.severity} {finding.category}: {clean.prose(finding.title)}**{note}"


def _by(by: str, reason: str) -> str:
    words = f", by {clean.code(by)}" if by else ""
    return f"{words}: {clean.prose(reason)}" if reason else words


def _suggestion(item: Item, name: str) -> str:
    """Fence a replacement as the forge wants it."""
    code = item.suggestion or ""
    mark = "`" * max(3, max((len(run) for run in re.findall(r"`+", code)), default=0) + 1)
    above = (item.finding.line or 0) - (item.finding.start_line or item.finding.line or 0)
    body = code.removesuffix("\n")
    opened = f"{mark}{name.format(above=above)}\n"
    return f"{opened}{body}\n{mark}" if code else f"{opened}{mark}"


def _unread(report: Report) -> list[str]:
    """List what was not read, so that silence about it is no approval."""
    gaps = [hunk for hunk in report.coverage.required if hunk.state != "full"]
    names = dict.fromkeys((hunk.path, hunk.reason or hunk.state) for hunk in gaps)
    rows = [(path, reason) for path, reason in names] + [(skip.path, skip.reason) for skip in report.skipped]
    rows = list(dict.fromkeys(rows))
    if not rows:
        return []
    shown = [
        f"- {clean.code(clean.line(path, 200))}: {clean.prose(clean.line(reason, 120))}" for path, reason in rows[:20]
    ]
    more = [f"- and {len(rows) - 20} more"] if len(rows) > 20 else []
    return ["### Not read in full\n\n" + "\n".join([*shown, *more])]

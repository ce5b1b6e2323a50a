"""Convert a report to text: Markdown, terminal, HTML, JSON, SARIF, RDJSON, Code Quality, CI logs.

Every text is made inert here: it cannot trigger actions of a forge, move the cursor of a terminal,
end a quoted value, or be read as a command by a CI runner.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from glue.agents.review.delivery import clean
from glue.agents.review.delivery.report import Item, Report, read_word
from glue.agents.review.findings import gate
from glue.agents.review.findings.dedupe import Dismissal, quote_key
from glue.agents.review.records import Severity
from glue.markdown import backticks
from glue.text import clean_text, count

LEVELS: dict[Severity, str] = {
    "critical": "error",
    "high": "error",
    "medium": "warning",
    "low": "note",
    "info": "note",
}
PER_LEVEL = 10  # annotations of each level that a CI runner shows for one step
STEP_SUMMARY = 1024 * 1024
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RESULTS = 5_000  # results of a SARIF log that GitHub shows
_COLOURS = {"critical": "31;1", "high": "31", "medium": "33", "low": "36", "info": "34"}
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_RDJSON = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}
_QUALITY = {
    "critical": "blocker",
    "high": "critical",
    "medium": "major",
    "low": "minor",
    "info": "info",
}
MARKER = "<!-- glue-review:"  # every comment of the bot starts with it
STICKY = f"{MARKER}sticky "
FINDING = f"{MARKER}finding "
REVIEW = f"{MARKER}review "
_FIELDS = re.compile(r"(\w+)=([\w.-]+)")
_MARKS = {"critical": "⛔", "high": "🔴", "medium": "🟠", "low": "🟡", "info": "🔵"}


def render(report: Report, form: str) -> str:
    """Return a report as text in the format `form`, one of FORMATS; raise ValueError for others."""
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; use one of: {', '.join(FORMATS)}")
    return FORMATS[form](report)


def title(item: Item) -> str:
    return clean.line(clean.plain(item.finding.title), 200)


def message(item: Item, limit: int = 1_500) -> str:
    """Return the title and the body of a finding as plain text of at most `limit` characters."""
    return clean.shorten(f"{title(item)}\n\n{clean.plain(item.finding.body)}", limit)


def rule(item: Item) -> str:
    return item.finding.rule or f"model/{item.finding.category}"


def lines(item: Item) -> tuple[int, int] | None:
    """Return a finding's first and last line number in the new file, or None if it has no line."""
    finding = item.finding
    if finding.line is None:
        return None
    return finding.start_line or finding.line, finding.line


def acceptance(item: Item) -> str:
    """Return one line that states how to verify that a finding is fixed.

    It is the acceptance of the finding, or a general sentence if the finding has none.
    """
    if item.finding.acceptance:
        return clean.line(clean.plain(item.finding.acceptance), 300)
    fingerprint = item.finding.fingerprint
    return f"`glue review` no longer reports the finding {fingerprint}, and the tests pass."


def fields(body: str, kind: str) -> dict[str, str] | None:
    """Return the fields of the marker that begins a comment, or None without a marker of `kind`.

    The fields are a dict such as {"v": "1"}. `kind` is the text with which the marker begins.
    """
    if not body.startswith(kind):
        return None
    return dict(_FIELDS.findall(body.partition("-->")[0]))


def sticky(report: Report) -> str:
    """Return the text of the sticky comment: a marker, and the report as Markdown."""
    body = summary(report, limit=gate.SUMMARY - 200)
    mark = hashlib.sha256(body.encode()).hexdigest()[:16]
    return f"{STICKY}v=1 head={report.change.head_sha or 'none'} digest={mark} -->\n{body}"


def summary(report: Report, *, limit: int = gate.SUMMARY) -> str:
    """Return the whole report as Markdown, cut to `limit` characters."""
    text = clean.markdown(report.summary, known=report.known) if report.summary.strip() else ""
    shown = [_row(item, report) for item in report.items if not item.folded]
    mild = [_row(item, report) for item in report.items if item.folded == "mild"]
    over = [_row(item, report) for item in report.items if item.folded == "limit"]
    parts = [
        f"## glue review\n\n{headline(report)}",
        clean.shorten(text, limit // 4),
        *(clean.markdown(notice) for notice in report.notices),
        _section("Findings", shown),
        _fold(f"{count(len(over), 'more finding')} beyond the limit of comments on lines", over),
        _fold(f"{count(len(mild), 'more finding')} too mild or uncertain for a comment", mild),
        _section(
            "Fixed",
            [f"- {clean.code(old.path)} {clean.prose(old.title)}" for old in report.fixed[:20]],
        ),
        _fold(
            f"{count(len(report.refuted), 'finding')} refuted by the second look",
            [f"- {clean.code(item.where)} {_title(item)}" for item in report.refuted],
        ),
        _section("Dismissed", [f"- {_title(item)}{_by(mark)}" for item, mark in report.dismissed]),
        _fold("Fix instructions", [fixes(report)] if report.items else []),
        _section(f"Not {read_word(report)}", _unread(report)),
        footer(report),
    ]
    return clean.shorten("\n\n".join(part for part in parts if part), limit)


def _section(title: str, rows: list[str]) -> str:
    return "\n".join((f"### {title}\n", *rows)) if rows else ""


def _fold(title: str, rows: list[str]) -> str:
    return (
        "\n".join((f"<details><summary>{title}</summary>\n", *rows, "\n</details>")) if rows else ""
    )


def headline(report: Report) -> str:
    """Return one line of Markdown: the result, the share of the change that was read, and the head.

    The result is the number of findings, or that the review is inconclusive, was cut short or had
    nothing to read.
    """
    number = len(report.items)
    found = "No findings" if not number else count(number, "finding")
    if report.codes:
        found = "Inconclusive"
    elif not report.finished:
        found = f"{found}, but the review was cut short"
    elif not number and not report.coverage.complete:
        found = f"No findings in the part that was {read_word(report).split()[0]}"
    elif not number and report.tripwire:
        found = "No findings, but the change contains text addressed to the reviewer"
    head = f" · head {clean.code(report.change.head_sha[:12])}" if report.change.head_sha else ""
    if report.coverage.is_empty and not number:
        return f"**Nothing to read in this change**{head}"
    return f"**{found}** · {_share(report)}{head}"


def inline(item: Item, report: Report, suggestion: str = "suggestion") -> str:
    """Return the text of the inline comment on a finding, cut to the size limit.

    It begins with a marker, and contains the suggestion if there is room. `suggestion` is the
    forge's name for the block with the suggestion.
    """
    finding = item.finding
    by = "rule" if finding.rule else "model"
    sha = report.change.head_sha[:12] or "none"
    mark = f"{FINDING}v=1 fp={finding.fingerprint} q={quote_key(finding)} by={by} h={sha} -->\n"
    head = f"{_title(item)}\n\n"
    tail = f"\n\n`{finding.fingerprint}`"
    block = "\n\n" + _suggestion(item, suggestion) if finding.suggestion is not None else ""
    room = gate.BODY - len(mark) - len(head) - len(tail)
    if len(block) > room - 200:
        block = ""
    body = clean.shorten(clean.markdown(finding.body, known=report.known), room - len(block))
    if len(body) > room - len(block):
        body = body[: room - len(block)].replace("`", "'")
    return f"{mark}{head}{body}{block}{tail}"


def fixes(report: Report) -> str:
    """Return instructions to fix all findings, as a fenced block for a person or an agent."""
    rows = ["Fix the following in this change."]
    for number, item in enumerate(report.items, 1):
        name = clean.line(clean.plain(item.finding.title))
        body = clean.line(clean.plain(item.finding.body), 250)
        rows.append(f"{number}. {clean.line(item.where)}: {name}. {body}")
        rows.append(f"   Acceptance: {acceptance(item)}")
    return clean.fence("\n".join(rows), "text")


def footer(report: Report) -> str:
    """Return the last line of a report: the model, the prompt, and who asked for the review.

    If there are findings, the line also states how to dismiss one.
    """
    by = clean.code(report.model) if report.model else "analysers and rules, without a model"
    words = [f"Reviewed by {by}"]
    if report.prompt:
        words.append(f"prompt {clean.code(report.prompt)}")
    if report.change.asked_by:
        asked = f" ({clean.prose(report.change.request)})" if report.change.request else ""
        words.append(f"asked for by {clean.code(report.change.asked_by)}{asked}")
    if report.items:
        words.append("dismiss a finding with a commit trailer `Review-Dismiss: <id> reason`")
    return f"_{' · '.join(words)}_"


def _row(item: Item, report: Report) -> str:
    body = (
        "" if item.inline else f"\n  {clean.prose(clean.line(clean.plain(item.finding.body), 500))}"
    )
    still = ", still open" if item.finding.fingerprint in report.open else ""
    return f"- {clean.code(item.where)} {_title(item)} (`{item.finding.fingerprint}`{still}){body}"


def _title(item: Item) -> str:
    finding = item.finding
    name = f"{finding.severity} {finding.category}: {clean.prose(finding.title)}"
    note = f" ({clean.prose(finding.note)})" if finding.note else ""
    return f"{_MARKS[finding.severity]} **{name}**{note}"


def _by(dismissal: Dismissal) -> str:
    words = f", by {clean.code(dismissal.by)}" if dismissal.by else ""
    return f"{words}: {clean.prose(dismissal.reason)}" if dismissal.reason else words


def _suggestion(item: Item, name: str) -> str:
    """Return a finding's replacement code as a fenced block, in the forge's suggestion syntax."""
    code = item.finding.suggestion or ""
    mark = backticks(code, least=3)
    above = (item.finding.line or 0) - (item.finding.start_line or item.finding.line or 0)
    return f"{mark}{name.format(above=above)}\n{_ended(code)}{mark}"


def _ended(code: str) -> str:
    return code.removesuffix("\n") + "\n" if code else ""


def _unread(report: Report) -> list[str]:
    """Return rows of a Markdown list: files that were not read in full, each with the reason.

    There are at most 20 such rows, and then a row with the number of those that are left out.
    """
    gaps = (
        (hunk.path, hunk.reason or hunk.state)
        for hunk in report.coverage.required
        if hunk.state != "full"
    )
    rows = list(dict.fromkeys([*gaps, *((skip.path, skip.reason) for skip in report.skipped)]))
    shown = [
        f"- {clean.code(clean.line(path, 200))}: {clean.prose(clean.line(why, 120))}"
        for path, why in rows[:20]
    ]
    return [*shown, f"- and {len(rows) - 20} more"] if len(rows) > 20 else shown


def terminal(report: Report, *, colour: bool = False, width: int = 100) -> str:
    """Return a report as text for a terminal that is `width` columns wide.

    If `colour`, severities are coloured.
    """
    rows = [_headline(report), ""]
    if report.summary.strip():
        rows += [*_wrapped(clean.plain(report.summary), width, ""), ""]
    rows += [f"note: {clean.line(clean.plain(notice))}" for notice in report.notices]
    for item in (item for item in report.items if not item.folded):
        rows += [*_terminal_item(item, colour, width), ""]
    folded = [item for item in report.items if item.folded]
    rows += [
        f"also: {clean.line(item.where)}: {item.finding.severity}: {title(item)}" for item in folded
    ]
    rows += [
        f"fixed: {clean.line(old.path)}: {clean.line(clean.plain(old.title))}"
        for old in report.fixed
    ]
    rows += [
        f"dismissed: {title(item)} ({item.finding.fingerprint})" for item, _ in report.dismissed
    ]
    rows += [
        f"refuted: {clean.line(item.where)}: {title(item)} ({clean.line(item.finding.note)})"
        for item in report.refuted
    ]
    gaps = [hunk for hunk in report.coverage.required if hunk.state != "full"]
    if gaps:
        names = list(dict.fromkeys(clean.line(hunk.path, 120) for hunk in gaps))
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        rows.append(f"not {read_word(report)}: {', '.join(names[:10])}{more}")
    return "\n".join(rows).rstrip() + "\n"


def _headline(report: Report) -> str:
    number = len(report.items)
    found = count(number, "finding") if number else "no findings"
    if report.coverage.is_empty and not number and not report.codes:
        return "glue review: nothing to read in this change"
    if report.codes:
        found = f"inconclusive ({', '.join(report.codes)})"
    name = f"by {clean.line(report.model)}" if report.model else "by analysers and rules"
    return f"glue review: {found}, {_share(report)}, {name}"


def _share(report: Report) -> str:
    return f"{report.coverage.percent:g} % of the change {read_word(report)}"


def _terminal_item(item: Item, colour: bool, width: int) -> list[str]:
    finding = item.finding
    level = f"{finding.severity} {finding.category}"
    if colour:
        level = f"\x1b[{_COLOURS[finding.severity]}m{level}\x1b[0m"
    rows = [clean.line(item.where) + f": {level}: {title(item)}  [{finding.fingerprint}]"]
    rows += _wrapped(clean.plain(finding.body), width, "    ")
    if finding.suggestion is not None:
        code = (
            clean_text(row, drop=True).replace("##[", "# #[")[:200]
            for row in finding.suggestion.split("\n")[:20]
        )
        rows += ["    suggestion:", *(f"    | {row}" for row in code)]
    if finding.note:
        rows.append(f"    note: {clean.line(finding.note)}")
    return [*rows, f"    Acceptance: {acceptance(item)}"]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    rows: list[str] = []
    for row in text.split("\n"):
        rows += textwrap.wrap(row, width, initial_indent=indent, subsequent_indent=indent) or [""]
    return [
        row if not row.lstrip().startswith("::") else row.replace("::", ": :", 1) for row in rows
    ]


def to_html(report: Report) -> str:
    """Return a report as an HTML page without scripts or external resources."""

    def text(words: str) -> str:
        return "".join(f"<p>{_html(part)}</p>" for part in words.split("\n\n") if part.strip())

    parts = [
        text(clean.plain(report.summary)),
        *(text(clean.plain(notice)) for notice in report.notices),
    ]
    for item in report.items:
        finding = item.finding
        where = html.escape(clean.line(item.where))
        kind = f"{finding.severity} {finding.category} · {html.escape(rule(item))}"
        kind += " · removed code" if finding.anchor == "deleted" else ""
        quoted = html.escape(clean_text(finding.quote, drop=True))
        parts.append(
            f'<article><h2 class="{finding.severity}">{_html(title(item))}</h2>'
            f"<p><code>{where}</code> · {kind}</p><pre>{quoted}</pre>"
            f"{text(clean.plain(finding.body))}"
            f"<p>Acceptance: {_html(acceptance(item))}</p></article>"
        )
    page = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    return page.substitute(headline=html.escape(_headline(report)), body="".join(parts))


def _html(text: str) -> str:
    """Return a text as HTML: special characters are escaped, and code in backticks is marked."""
    parts = re.split(r"(?<!`)`([^`\n]+)`(?!`)", text)
    return "".join(
        f"<code>{html.escape(part)}</code>" if at % 2 else html.escape(part)
        for at, part in enumerate(parts)
    )


def to_data(report: Report) -> dict[str, Any]:
    """Return a report as a JSON object: findings, summary, coverage and figures of the run."""
    coverage = report.coverage
    return {
        "version": 1,
        "repo": clean.line(report.change.repo),
        "number": report.change.number,
        "head_sha": report.change.head_sha,
        "base_sha": report.change.base_sha,
        "clean": report.clean,
        "codes": list(report.codes),
        "tripwire": report.tripwire,
        "finished": report.finished,
        "summary": clean.plain(report.summary),
        "notices": [clean.plain(notice) for notice in report.notices],
        "findings": [_data_item(item) for item in report.items],
        "dismissed": [
            {
                **_data_item(item),
                "by": clean.line(mark.by),
                "reason": clean.line(clean.plain(mark.reason)),
            }
            for item, mark in report.dismissed
        ],
        "refuted": [
            {**_data_item(item), "reason": clean.line(clean.plain(item.finding.note))}
            for item in report.refuted
        ],
        "dropped": report.dropped,
        "coverage": {
            "percent": coverage.percent,
            "complete": coverage.complete,
            "hunks": [
                {**asdict(hunk), "path": clean.line(hunk.path), "reason": clean.line(hunk.reason)}
                for hunk in coverage.hunks
            ],
        },
        "skipped": [
            {"path": clean.line(skip.path), "reason": clean.line(skip.reason)}
            for skip in report.skipped
        ],
        "model": clean.line(report.model),
        "prompt": clean.line(report.prompt),
        "cost": report.cost,
        "seconds": report.seconds,
    }


def _data_item(item: Item) -> dict[str, Any]:
    finding = item.finding
    span = lines(item)
    return {
        "id": finding.fingerprint,
        "path": item.path,
        "start_line": span[0] if span else None,
        "line": span[1] if span else None,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "category": finding.category,
        "rule": rule(item),
        "title": title(item),
        "body": clean.plain(finding.body),
        "suggestion": finding.suggestion,
        "acceptance": acceptance(item),
        "inline": item.inline,
        "source": clean.line(finding.source),
    }


def to_sarif(report: Report) -> dict[str, Any]:
    """Return a report as a SARIF 2.1.0 log with at most RESULTS findings, the limit of GitHub."""
    first: dict[str, Item] = {}  # the first finding of each rule
    results = []
    for item in report.items[:RESULTS]:
        place: dict[str, Any] = {
            "artifactLocation": {"uri": quote(item.path), "uriBaseId": "%SRCROOT%"}
        }
        if span := lines(item):
            place["region"] = {"startLine": span[0], "endLine": span[1]}
        first.setdefault(rule(item), item)
        mark = item.finding.fingerprint
        result = {
            "ruleId": rule(item),
            "ruleIndex": list(first).index(rule(item)),
            "level": LEVELS[item.finding.severity],
            "message": {"text": message(item)},
            "locations": [{"physicalLocation": place}],
            "partialFingerprints": {"primaryLocationLineHash": mark, "glueReview/v1": mark},
            "properties": {
                "severity": item.finding.severity,
                "confidence": item.finding.confidence,
            },
        }
        results.append(result)
    rules = [
        {
            "id": name,
            "shortDescription": {"text": name.replace("/", ": ").replace("-", " ")},
            "defaultConfiguration": {"level": LEVELS[item.finding.severity]},
            "properties": {"tags": [item.finding.category]},
        }
        for name, item in first.items()
    ]
    driver = {"name": "glue review", "rules": rules}
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    if report.codes or not report.finished:
        run["invocations"] = [{"executionSuccessful": False}]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def to_rdjson(report: Report) -> dict[str, Any]:
    """Return a report as RDJSON, the format that reviewdog reads."""
    rows = []
    for item in report.items:
        row: dict[str, Any] = {
            "message": message(item),
            "location": {"path": item.path},
            "severity": _RDJSON[LEVELS[item.finding.severity]],
            "code": {"value": rule(item)},
        }
        if span := lines(item):
            row["location"]["range"] = {"start": {"line": span[0]}, "end": {"line": span[1]}}
            if item.finding.suggestion is not None:
                # An end with a column is exclusive, so it is the start of the following line.
                replaced = {
                    "start": {"line": span[0], "column": 1},
                    "end": {"line": span[1] + 1, "column": 1},
                }
                row["suggestions"] = [{"range": replaced, "text": _ended(item.finding.suggestion)}]
        rows.append(row)
    return {"source": {"name": "glue review"}, "diagnostics": rows}


def to_code_quality(report: Report) -> list[dict[str, Any]]:
    """Return a report as a Code Quality report, which GitLab reads from an artifact of the job."""
    return [
        {
            "description": message(item, 800),
            "check_name": rule(item),
            # Our fingerprints are unique in a file, and GitLab needs them unique in the report.
            "fingerprint": hashlib.sha256(
                f"{item.finding.fingerprint} {item.path}".encode()
            ).hexdigest()[:32],
            "severity": _QUALITY[item.finding.severity],
            "location": {"path": item.path, "lines": {"begin": (lines(item) or (1,))[0]}},
        }
        for item in report.items
    ]


def workflow_commands(report: Report) -> str:
    """Return the lines that make the CI runner of GitHub or Gitea show findings as annotations.

    Only the first PER_LEVEL findings of each level are included, because runners show no more.
    """
    counts: Counter[str] = Counter()
    rows: list[str] = []
    for item in report.items:
        level = _COMMANDS[LEVELS[item.finding.severity]]
        counts[level] += 1
        if counts[level] > PER_LEVEL:
            continue
        places = {"file": item.path, "title": f"glue review: {title(item)}"}
        if span := lines(item):
            places |= {"line": str(span[0]), "endLine": str(span[1])}
        named = (f"{name}={_escaped(value, ':,')}" for name, value in places.items())
        rows.append(f"::{level} {','.join(named)}::{_escaped(message(item, 1_000))}\n")
    return "".join(rows)


def _escaped(text: str, more: str = "") -> str:
    for char in f"%\r\n{more}":
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def step_outputs(values: Mapping[str, object]) -> str:
    """Return the outputs of a CI step, by name, as text for the file GITHUB_OUTPUT.

    The delimiter around each value is random, so that the value cannot contain it.
    """
    rows: list[str] = []
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else clean_text(str(value), drop=True)
        mark = f"glue_{os.urandom(16).hex()}"
        rows.append(f"{name}<<{mark}\n{text}\n{mark}\n")
    return "".join(rows)


def write_step(report: Report, environ: Mapping[str, str], values: Mapping[str, object]) -> None:
    """Append the report to the step summary of the CI job, and `values` to the outputs of the step.

    `environ` names the two files. If it does not name a file, nothing is written to it.
    """
    append(environ.get("GITHUB_STEP_SUMMARY", ""), summary(report)[:STEP_SUMMARY] + "\n")
    append(environ.get("GITHUB_OUTPUT", ""), step_outputs(values))


def append(path: str, text: str) -> None:
    """Append text to the file at `path`; do nothing if `path` is empty."""
    if not path:
        return
    with Path(path).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _json(convert: Callable[[Report], Any]) -> Callable[[Report], str]:
    return lambda report: json.dumps(convert(report), indent=2) + "\n"


FORMATS: dict[str, Callable[[Report], str]] = {
    "terminal": terminal,
    "markdown": lambda report: summary(report) + "\n",
    "html": to_html,
    "json": _json(to_data),
    "sarif": _json(to_sarif),
    "rdjson": _json(to_rdjson),
    "codequality": _json(to_code_quality),
    "annotations": workflow_commands,
}

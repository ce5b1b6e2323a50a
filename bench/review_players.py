"""Scripted reviewers that know every planted bug and report it in the ways of real models.

    GLUE_REVIEW_CORPUS=... python bench/review_players.py [--manner NAME]

Each player reports the same findings in another manner: the quote in backticks, a severity in
capitals, JSON instead of tool calls, and so on. The table shows how many findings are delivered,
how many of them on the planted lines, and how many runs had a clean verdict although a report was
refused.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from glue.agents.review.change.collect import from_diff
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, ReviewedChange
from glue.testing import Reply, Script, call, calls, say

Report = dict[str, Any]
SUMMARY = "The change was read in full, and its problems were reported one by one."


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--manner", default="")
    given = parser.parse_args()
    corpus = os.environ.get("GLUE_REVIEW_CORPUS", "")
    if not corpus:
        print("GLUE_REVIEW_CORPUS is not set; it names the folder of the cases to play")
        return 2
    paths = sorted(Path(corpus, "cases").glob("*.json"))
    cases = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    print(
        f"{'manner':<34}{'planted':>8}{'delivered':>10}{'on line':>8}{'clean lies':>11}{'exit':>6}"
    )
    for name in MANNERS:
        if given.manner in ("", name):
            print(play(name, cases), flush=True)
    return 0


def play(name: str, cases: list[dict[str, Any]]) -> str:
    """Run all cases with one way of reporting, and return its row of the table."""
    planted = delivered = on_line = lies = 0
    codes: set[int] = set()
    for case in cases:
        if not case["planted"]:
            continue
        bundle = bundle_of(case)
        reports = [report_of(place, bundle) for place in case["planted"]]
        run = anyio.run(_review, bundle, MANNERS[name](reports, bundle))
        done = publish(bundle, run, {}, post=False)
        titles = {
            f"{item.finding.title} {item.finding.body}": item.finding for item in done.report.items
        }
        found = [
            (place, finding)
            for place, told in zip(case["planted"], reports, strict=True)
            if (finding := _told(told, titles)) is not None
        ]
        by_rules = [
            place
            for place, told in zip(case["planted"], reports, strict=True)
            if _told(told, titles) is None and _covered(place, done.report.items)
        ]
        planted += len(reports)
        delivered += len(found) + len(by_rules)
        on_line += sum(_hits(finding, place) for place, finding in found) + len(by_rules)
        lost = len(reports) - len(found) - len(by_rules)
        lies += done.verdict.exit_code == 0 and not done.report.items and lost > 0
        codes.add(done.verdict.exit_code)
    shown = ",".join(map(str, sorted(codes)))
    return f"{name:<34}{planted:>8}{delivered:>10}{on_line:>8}{lies:>11}{shown:>6}"


async def _review(bundle: Bundle, replies: list[Reply]) -> Any:
    return await review(bundle, providers=[Script(*replies)])


def _told(report: Report, texts: dict[str, Any]) -> Any:
    """Return the delivered finding with the title of a report or the start of its body, or None."""
    for part in (report["title"], report["body"][:60]):
        key = re.sub(r"\W", "", part)
        for text, finding in texts.items():
            if key in re.sub(r"\W", "", text):
                return finding
    return None


def _covered(place: dict[str, Any], items: Any) -> bool:
    return any(item.finding.rule and _hits(item.finding, place) for item in items)


def _hits(finding: Any, place: dict[str, Any]) -> bool:
    spans = [(place["start_line"], place["end_line"]), *map(tuple, place.get("also", ()))]
    last = finding.line or 0
    first = finding.start_line or last
    return finding.path == place["path"] and any(
        low <= last and first <= high for low, high in spans
    )


def bundle_of(case: dict[str, Any]) -> Bundle:
    change = ReviewedChange(title=case["title"], body=case["body"])
    bundle = from_diff(case["diff"], head=case["files_after"], change=change)
    return replace(bundle, base=case["files_before"])


def report_of(place: dict[str, Any], bundle: Bundle) -> Report:
    """Return the report of a planted bug, with the longest added line of its place as quote."""
    file = bundle.file(place["path"])
    assert file is not None
    lines = [
        line
        for line in file.added
        if place["start_line"] <= (line.new or 0) <= place["end_line"] and line.text.strip()
    ]
    line = max(lines, key=lambda line: len(line.text.strip()))
    return {
        "path": place["path"],
        "quote": line.text,
        "title": f"{place['concept'].replace('-', ' ').capitalize()} at {place['start_line']}",
        "body": f"{place['why'].rstrip('.')}. A caller of this code sees the fault at once.",
        "severity": place["severity"],
        "confidence": "high",
        "category": "bug",
        "line": line.new,
    }


def told(change: Callable[[Report, Bundle], Any]) -> Callable[[list[Report], Bundle], list[Reply]]:
    """Return a function that makes replies with one tool call for each report.

    `change` returns the report as a model would send it.
    """

    def replies(reports: list[Report], bundle: Bundle) -> list[Reply]:
        made = [calls(call("report_finding", change(dict(one), bundle))) for one in reports]
        return [*made, *[calls(call("finish_review", {"summary": SUMMARY}))] * 3]

    return replies


def written(
    form: Callable[[list[Report]], str],
) -> Callable[[list[Report], Bundle], list[Reply]]:
    """Return a function that makes a reply with all reports as one text, which `form` returns."""
    return lambda reports, bundle: [say(form(reports))] * 3


def with_(**changes: Any) -> Callable[[list[Report], Bundle], list[Reply]]:
    """Return a function that makes replies as `told` does, with some fields of reports changed.

    A new value is a constant, or a function of the old value.
    """

    def change(one: Report, bundle: Bundle) -> Report:
        for name, value in changes.items():
            one[name] = value(one.get(name)) if callable(value) else value
        return one

    return told(change)


def _without(*names: str) -> Callable[[Report, Bundle], Report]:
    return lambda one, bundle: {name: one[name] for name in one if name not in names}


def _renamed(**names: str) -> Callable[[list[Report]], str]:
    def form(reports: list[Report]) -> str:
        rows = [{names.get(name, name): value for name, value in one.items()} for one in reports]
        return json.dumps({"findings": rows, "summary": SUMMARY})

    return form


def _typo(quote: str) -> str:
    """Swap two letters in the middle of a quote."""
    at = len(quote) // 2
    at = next((n for n in range(at, len(quote) - 1) if quote[n : n + 2].isalpha()), at)
    return quote[:at] + quote[at + 1 : at + 2] + quote[at : at + 1] + quote[at + 2 :]


def _middle(quote: str) -> str:
    text = quote.strip()
    cut = max(8, len(text) // 3)
    return f"{text[:cut]}...{text[-cut:]}" if len(text) > 3 * 8 else text


def _shortened(quote: str) -> str:
    text = quote.strip()
    return f"{text[: max(10, len(text) * 2 // 3)]}..." if len(text) > 15 else text


def _header(one: Report, bundle: Bundle) -> Report:
    """Return the report with a quote of the line that opens the function around the finding."""
    rows = bundle.head[one["path"]].split("\n")
    opens = re.compile(
        r"\s*(?:export |async |default )*(?:(?:def|func|function|class) \w|const \w+ = .*=> )"
    )
    for at in range(one["line"] - 1, -1, -1):
        if opens.match(rows[at]):
            return {**one, "quote": rows[at]}
    return one


def _around(one: Report, bundle: Bundle) -> Report:
    """Return the report with a quote of three lines as the prompt shows them: numbers and signs."""
    file = bundle.file(one["path"])
    assert file is not None
    lines = [line for hunk in file.hunks for line in hunk.lines]
    at = next(n for n, line in enumerate(lines) if line.new == one["line"])
    shown = lines[max(0, at - 1) : at + 2]
    quote = "\n".join(f"{line.old or ''} {line.new or ''} {line.kind}{line.text}" for line in shown)
    return {**one, "quote": quote}


def _together(reports: list[Report], bundle: Bundle) -> list[Reply]:
    made = [call("report_finding", one) for one in reports]
    return [calls(*made, call("finish_review", {"summary": SUMMARY}))] * 2


def _finish_first(reports: list[Report], bundle: Bundle) -> list[Reply]:
    made = [call("report_finding", one) for one in reports]
    return [calls(call("finish_review", {"summary": SUMMARY}), *made)] * 2


def _call_text(reports: list[Report]) -> str:
    rows = [json.dumps({"name": "report_finding", "arguments": one}) for one in reports]
    rows.append(json.dumps({"name": "finish_review", "arguments": {"summary": SUMMARY}}))
    return "\n".join(f"<tool_call>\n{row}\n</tool_call>" for row in rows)


def _object(reports: list[Report], key: str = "findings", **more: Any) -> str:
    return json.dumps({key: reports, **more})


MANNERS: dict[str, Callable[[list[Report], Bundle], list[Reply]]] = {
    "verbatim": with_(),
    "quote in backticks": with_(quote=lambda text: f"`{text.strip()}`"),
    "quote in a fence": with_(quote=lambda text: f"```python\n{text}\n```"),
    "quote in quotation marks": with_(quote=lambda text: f'"{text.strip()}"'),
    "quote with a comment (#)": with_(quote=lambda text: f"{text}  # <-- wrong"),
    "quote with a comment (//)": with_(quote=lambda text: f"{text} // BUG: this is wrong"),
    "quote with an arrow": with_(quote=lambda text: f"{text}   <-- here"),
    "quote with a plus sign": with_(quote=lambda text: f"+{text}"),
    "quote with a line number": told(
        lambda one, bundle: {**one, "quote": f"{one['line']}: {one['quote']}"}
    ),
    "quote with number and bar": told(
        lambda one, bundle: {**one, "quote": f"{one['line']} | {one['quote']}"}
    ),
    "quote with path and line": told(
        lambda one, bundle: {**one, "quote": f"{one['path']}:{one['line']}: {one['quote'].strip()}"}
    ),
    "quote as shown, three lines": told(_around),
    "quote with a typo": with_(quote=_typo),
    "quote cut with an ellipsis": with_(quote=_shortened),
    "ellipsis in the middle": with_(quote=_middle),
    "ellipsis line after it": with_(quote=lambda text: f"{text}\n    ..."),
    "blanks changed": with_(quote=lambda text: re.sub(r"\s+", "  ", text)),
    "quote in lower case": with_(quote=lambda text: text.lower()),
    "HTML entities": with_(
        quote=lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    ),
    "escaped quotation marks": with_(quote=lambda text: text.replace('"', '\\"')),
    "curly quotation marks": with_(quote=lambda text: text.replace('"', "”").replace("'", "’")),
    "quote is the def line": told(_header),
    "no quote, only a line": told(lambda one, bundle: {**one, "quote": ""}),
    "severity in capitals": with_(severity=str.upper),
    "severity major": with_(severity="major"),
    "severity P1": with_(severity="P1"),
    "severity as a number": with_(severity=4),
    "confidence as a number": with_(confidence=0.9),
    "confidence in percent": with_(confidence="90%"),
    "category logic": with_(category="Logic Error"),
    "an extra field": with_(reasoning="The value is used below."),
    "suggestion is prose": with_(suggestion="Use a bound parameter instead of this."),
    "suggestion is a list": with_(suggestion=["x", "y"]),
    "line as text": with_(line=str),
    "no title": told(_without("title")),
    "no severity or category": told(_without("severity", "confidence", "category")),
    "path with a/": with_(path=lambda path: f"a/{path}"),
    "path with a line": told(lambda one, bundle: {**one, "path": f"{one['path']}:{one['line']}"}),
    "file name without folders": with_(path=lambda path: path.rsplit("/", 1)[-1]),
    "path in backticks": with_(path=lambda path: f"`{path}`"),
    "names from elsewhere": with_(
        body=lambda text: f"{text} See `TestRunner.check_all`, `spec_helper` and `Gem::Version`."
    ),
    "finish in the same message": _together,
    "finish before the reports": _finish_first,
    "several findings in one call": lambda reports, bundle: [
        calls(call("report_finding", {"findings": reports})),
        *[calls(call("finish_review", {"summary": SUMMARY}))] * 3,
    ],
    "JSON": written(lambda reports: _object(reports, summary=SUMMARY)),
    "JSON in a fence": written(
        lambda reports: f"```json\n{_object(reports, summary=SUMMARY)}\n```"
    ),
    "JSON after prose": written(
        lambda reports: f"Here is the review:\n\n{_object(reports, summary=SUMMARY)}\n\nDone."
    ),
    "JSON without a summary": written(_object),
    "JSON list": written(json.dumps),
    "JSON under issues": written(lambda reports: _object(reports, "issues", overview=SUMMARY)),
    "JSON nested": written(
        lambda reports: json.dumps({"review": {"comments": reports, "summary": SUMMARY}})
    ),
    "JSON with file for path": written(_renamed(path="file")),
    "JSON with other names": written(
        _renamed(
            path="filePath", quote="code", body="description", title="issue", line="lineNumber"
        )
    ),
    "JSON lines": written(lambda reports: "\n".join(map(json.dumps, reports))),
    "JSON with trailing commas": written(
        lambda reports: _object(reports, summary=SUMMARY).replace("}]", "},]")
    ),
    "JSON that is cut off": written(lambda reports: f"{json.dumps(reports)[:-1]}, {{"),
    "Python instead of JSON": written(
        lambda reports: repr({"findings": reports, "summary": SUMMARY})
    ),
    "tool calls as text": written(_call_text),
}


if __name__ == "__main__":
    sys.exit(main())

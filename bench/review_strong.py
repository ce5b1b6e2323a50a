"""Deliver recorded reviews of a strong reviewer through the bot, and count the findings.

    python bench/review_strong.py --cases cases.jsonl --repos DIR

Each case is a real fix that was undone, or an ordinary change, with the findings of the reviewer.
`--repos` holds bare clones named `owner+name/repo`. The reviewer is played by a script, once with
tool calls and once with JSON. A finding arrives if the report shows it, and is on its line if the
line of the comment is at most one away from the line that the reviewer named.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from glue.agents.review.change.collect import collect_range, from_texts
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle
from glue.testing import Reply, Script, call, calls, say
from glue.tools.git import Repo


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--repos", type=Path, required=True)
    given = parser.parse_args()
    rows = given.cases.read_text(encoding="utf-8").splitlines()
    cases = [json.loads(row) for row in rows]
    for form in ("tools", "json"):
        print(f"{form}:")
        _score(cases, given.repos, form)
    return 0


def _score(cases: list[dict[str, Any]], repos: Path, form: str) -> None:
    told = arrived = placed = bugs = reached = lies = 0
    for case in cases:
        bundle = bundle_of(case, repos)
        run = anyio.run(_review, bundle, _replies(case, form))
        done = publish(bundle, run, {}, post=False)
        shown = {item.finding.title: item for item in done.report.items}
        found = [shown.get(finding["title"]) for finding in case["findings"]]
        hits = [
            item
            for item, finding in zip(found, case["findings"], strict=True)
            if item is not None and abs((item.finding.line or 0) - finding["line"]) <= 1
        ]
        told, arrived, placed = (
            told + len(found),
            arrived + sum(item is not None for item in found),
            placed + len(hits),
        )
        bugs += case["kind"] == "undone"
        reached += case["kind"] == "undone" and bool(hits)
        clean = done.verdict.exit_code == 0 and not done.report.items
        lies += clean and bool(found)
        others = len(done.report.items) - sum(item is not None for item in found)
        print(
            f"  {case['kind']:<7}{case['repo']:<18}{len(found)} reported,"
            f" {sum(item is not None for item in found)} arrived, {len(hits)} on the line,"
            f" {others} others, {done.verdict.word}"
        )
    print(
        f"  {arrived} of {told} reports arrived, {placed} on their lines;"
        f" {reached} of {bugs} undone fixes; {lies} clean verdicts over lost reports"
    )


async def _review(bundle: Bundle, replies: list[Reply]) -> Any:
    return await review(bundle, providers=[Script(*replies)])


def _replies(case: dict[str, Any], form: str) -> list[Reply]:
    if form == "json":
        text = json.dumps({"findings": case["findings"], "summary": case["summary"]})
        return [say(text)] * 3
    reports = [calls(call("report_finding", finding)) for finding in case["findings"]]
    return [*reports, *[calls(call("finish_review", {"summary": case["summary"]}))] * 3]


def bundle_of(case: dict[str, Any], repos: Path) -> Bundle:
    home = repos / case["repo"].replace("/", "+") / "repo"
    if case["kind"] == "clean":
        return collect_range(home, f"{case['base']}..{case['head']}")
    fixed: dict[str, str] = {}
    undone: dict[str, str] = {}
    with Repo(home) as repo:
        for path in case["sources"]:
            for rev, texts in ((case["base"], fixed), (f"{case['base']}^", undone)):
                entry = repo.entry(rev, path)
                if entry is not None:
                    texts[path] = repo.blob(entry.sha).decode("utf-8", "replace")
    return from_texts(fixed, undone)


if __name__ == "__main__":
    sys.exit(main())

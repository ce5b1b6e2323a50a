"""The scorecard of the review bot, deterministic and without a judge model.

    GLUE_REVIEW_CORPUS=... python bench/review.py

- rules: precision and recall of the analysers and rules on planted and clean cases (review_real.py
  measures real history);
- location: how often the line that a recorded model named is right, and how often the line computed
  from its quote is;
- mechanical: inline comments are on lines that accept one, and posting twice adds nothing;
- gate: recorded texts that pass the gate, by label;
- stability: the same findings after CRLF line ends, reordering and a move.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from glue.agents.review.change.collect import from_diff, from_texts
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings import gate
from glue.agents.review.findings.analysers import deterministic
from glue.agents.review.findings.anchor import locate
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, Finding, ReviewedChange

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes.forge import FakeForge

HEAD, BASE = "a" * 40, "b" * 40
CLAIM = re.compile(r"(?P<path>[\w./-]+\.(?:go|py|tsx?|jsx?|md))[`*]*(?::|#L)(?P<line>\d+)")
SPAN = re.compile(r"`([^`\n]{8,})`")


def main() -> int:
    corpus = os.environ.get("GLUE_REVIEW_CORPUS", "")
    if not corpus:
        print("GLUE_REVIEW_CORPUS is not set; it names the folder of the cases to score")
        return 2
    home = Path(corpus)
    cases = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((home / "cases").glob("*.json"))
    ]
    started = time.monotonic()
    score_rules(cases)
    score_location(cases)
    score_mechanics(cases)
    score_gate(home, cases)
    score_stability(cases)
    print(f"\n{time.monotonic() - started:.1f} s in all")
    return 0


def bundle_of(case: dict[str, Any]) -> Bundle:
    change = ReviewedChange(
        mode="pull_request",
        title=case["title"],
        body=case["body"],
        head_sha=HEAD,
        base_sha=BASE,
        number=1,
    )
    bundle = from_diff(
        case["diff"],
        head=case["files_after"],
        change=replace(change, repo="octo/demo", forge="github"),
    )
    return replace(bundle, base=case["files_before"])


def spots_of(case: dict[str, Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    wanted = [one for one in case["planted"] if not one.get("disputed")]
    return [
        (one["path"], [(one["start_line"], one["end_line"]), *map(tuple, one.get("also", ()))])
        for one in wanted
    ]


def hits(
    path: str, start: int, end: int, spots: list[tuple[str, list[tuple[int, int]]]]
) -> set[int]:
    return {
        index
        for index, (where, ranges) in enumerate(spots)
        if where == path and any(low <= end and start <= high for low, high in ranges)
    }


def score_rules(cases: list[dict[str, Any]]) -> None:
    print(f"{'rules':<40}{'found':>6}{'right':>6}{'wrong':>6}{'planted':>8}{'hit':>5}")
    right = wrong = hit = planted = alarms = 0
    for case in cases:
        spots = spots_of(case)
        found = deterministic(bundle_of(case))
        matched = [
            hits(one.path, one.start_line or one.line or 0, one.line or 0, spots) for one in found
        ]
        good, seen = sum(map(bool, matched)), set().union(*matched) if matched else set()
        bad = len(found) - good
        right, wrong = right + good, wrong + bad
        hit, planted = hit + len(seen), planted + len(spots)
        alarms += len(found) if case["clean"] else 0
        counts = f"{len(found):>6}{good:>6}{bad:>6}{len(spots):>8}{len(seen):>5}"
        print(f"{case['id']:<40}{counts}")
    clean = sum(case["clean"] for case in cases)
    print(f"precision {right / max(right + wrong, 1):.3f} ({right} of {right + wrong})", end=", ")
    print(f"recall {hit / max(planted, 1):.3f} ({hit} of {planted}),", end=" ")
    print(f"{alarms} findings on {clean} clean changes\n")


def score_location(cases: list[dict[str, Any]]) -> None:
    """Compare, in recorded reviews that found the bug, the named line with the quoted line.

    The models were not asked for a quote, so a text in backticks counts as one. It is often a bare
    name and not a line of code, so both counts are printed.
    """
    print("location, claims of recorded reviews that found the bug")
    for title, wanted in (("anything in backticks", r"\w"), ("code in backticks", r"[^\w.-]")):
        rows = [row for case in cases for row in _located(case, re.compile(wanted))]
        before, near, after, after_near = (sum(row[at] for row in rows) for at in range(4))
        count = max(len(rows), 1)
        print(f"  {title} ({len(rows)} claims)")
        print(f"{'':<4}hit@exact before anchoring {before / count:.0%}, after {after / count:.0%}")
        print(f"{'':<4}within 3 lines before {near / count:.0%}, after {after_near / count:.0%}")
    print()


def _located(
    case: dict[str, Any], wanted: re.Pattern[str]
) -> Iterator[tuple[bool, bool, bool, bool]]:
    bundle, spots = bundle_of(case), spots_of(case)
    for text in (one["text"] for one in case["recorded_outputs"] if one["verdict"] == "found"):
        for path, line, quotes in _claims(text, wanted):
            full = next((file.path for file in bundle.files if file.path.endswith(path)), "")
            places = [
                place
                for quote in quotes
                if (place := locate(quote, full, bundle.files, bundle.head, line))
            ]
            places = [place for place in places if place.side == "RIGHT" and place.path == full]
            if places and any(where == full for where, _ in spots):
                low, high = places[0].start, places[0].end
                yield (
                    bool(hits(full, line, line, spots)),
                    bool(hits(full, line - 3, line + 3, spots)),
                    bool(hits(full, low, high, spots)),
                    bool(hits(full, low - 3, high + 3, spots)),
                )


def _claims(text: str, wanted: re.Pattern[str]) -> Iterator[tuple[str, int, list[str]]]:
    lines = text.split("\n")
    for index, line in enumerate(lines):
        for match in CLAIM.finditer(line):
            below = lines[index + 1] if index + 1 < len(lines) else ""
            quotes = SPAN.findall(line[match.end() :]) or SPAN.findall(below)
            kept = [quote for quote in quotes if wanted.search(quote) and not CLAIM.search(quote)]
            yield match["path"], int(match["line"]), sorted(kept, key=len, reverse=True)


def score_mechanics(cases: list[dict[str, Any]]) -> None:
    posted = valid = again = refused = 0
    for case in cases:
        bundle = bundle_of(case)
        run = anyio.run(review, bundle)
        with FakeForge("github") as forge:
            forge.pull(case["diff"], head=HEAD, base=BASE)
            for round_ in range(2):
                done = publish(bundle, run, forge.environ, sleep=lambda seconds: None)
                count = done.delivery.posted if done.delivery else 0
                posted, again = (posted + count, again) if round_ == 0 else (posted, again + count)
            valid += sum(_is_commentable(row, bundle) for row in forge.pulls[1].inline)
            refused += sum(call.status == 422 for call in forge.calls)
    print(f"mechanical    {valid} of {posted} inline comments on lines that accept one,", end=" ")
    print(f"{refused} requests refused,")
    print(f"              {again} new comments when posted a second time\n")


def _is_commentable(row: dict[str, Any], bundle: Bundle) -> bool:
    file = bundle.file(row["path"])
    return (
        file is not None and row.get("side", "RIGHT") == "RIGHT" and row["line"] in file.commentable
    )


def score_gate(home: Path, cases: list[dict[str, Any]]) -> None:
    shown = {
        case["id"]: "\n".join(
            (
                case["title"],
                case["diff"],
                *case["files_before"].values(),
                *case["files_after"].values(),
            )
        )
        for case in cases
    }
    rows = []
    for name in ("outputs.jsonl", "outputs_derived.jsonl"):
        for row in map(json.loads, (home / name).read_text(encoding="utf-8").splitlines()):
            case = row.get("case") or row.get("from_id", "").split("@")[0]
            rows.append((row["label"], row["text"], shown.get(case, "")))
    print(f"gate\n  {'label':<14}{'posted':>8}{'refused':>9}")
    for label in sorted({row[0] for row in rows}):
        refused = [
            bool(gate.summary_codes(text, seen)) for name, text, seen in rows if name == label
        ]
        print(f"  {label:<14}{refused.count(False):>8}{refused.count(True):>9}")
    print()


def score_stability(cases: list[dict[str, Any]]) -> None:
    same = {"CRLF": 0, "reordered": 0, "moved": 0}
    for case in cases:
        before, after = case["files_before"], case["files_after"]
        change = ReviewedChange(title=case["title"], body=case["body"])
        plain = _keys(deterministic(from_texts(before, after, change)))
        crlf = [
            {path: text.replace("\n", "\r\n") for path, text in side.items()}
            for side in (before, after)
        ]
        same["CRLF"] += _keys(deterministic(from_texts(*crlf, change))) == plain
        bundle = bundle_of(case)
        parts = [f"diff --git {part}" for part in case["diff"].split("diff --git ")[1:]]
        turned = from_diff("".join(reversed(parts)), head=after, change=change)
        same["reordered"] += _keys(deterministic(turned)) == _keys(
            deterministic(replace(bundle, change=change))
        )
        moved = [{f"sub/{path}": text for path, text in side.items()} for side in (before, after)]
        same["moved"] += _keys(deterministic(from_texts(*moved, change)), "sub/") == plain
    print(
        "stability     "
        + ", ".join(f"{name} {count} of {len(cases)}" for name, count in same.items())
    )


def _keys(findings: tuple[Finding, ...], prefix: str = "") -> set[tuple[str, str, int | None]]:
    return {(one.rule, one.path.removeprefix(prefix), one.line) for one in findings}


if __name__ == "__main__":
    sys.exit(main())

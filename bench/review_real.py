"""Findings of `glue review` without a model on real history: noise on changes, recall on fixes.

    python bench/review_real.py --data DIR --repos DIR [--only owner/name ...]
        [--labels FILE] [--out FILE] [--fixes]

`--data` contains `changes.jsonl` and `fixes.jsonl` (repositories and commit ids). `--repos` holds
bare clones named `owner+name/repo`. `--out` writes every finding as JSON. `--labels` reads such a
file with a `label` (right, arguable or wrong) in each row, for a table by rule. `--fixes` undoes
each fix and counts the findings on the undone lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glue.agents.review.change.collect import collect_range, from_texts
from glue.agents.review.findings.analysers import deterministic
from glue.agents.review.records import Bundle, Finding
from glue.errors import GlueError
from glue.tools.git import Repo

LABELS = ("right", "arguable", "wrong")
SHOWN = ("critical", "high", "medium")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--fixes", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    name = "fixes.jsonl" if given.fixes else "changes.jsonl"
    rows = [
        json.loads(line) for line in (given.data / name).read_text(encoding="utf-8").splitlines()
    ]
    rows = [row for row in rows if not given.only or row["repo"] in given.only]
    labels = _labels(given.labels)
    found = list(_fixes(rows, given.repos) if given.fixes else _changes(rows, given.repos))
    for row in found:
        row["label"] = labels.get(_key(row), "")
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    print(_fix_table(found, rows) if given.fixes else _table(found, rows))
    return 0


def _changes(rows: list[dict[str, Any]], repos: Path) -> Iterator[dict[str, Any]]:
    for row in rows:
        bundle = _bundle(repos, row)
        if bundle is None:
            continue
        started = time.perf_counter()
        for finding in deterministic(bundle):
            yield _row(row, finding, time.perf_counter() - started)


def _fixes(rows: list[dict[str, Any]], repos: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each finding on an undone fix; `hit` is whether it is on the undone lines."""
    for row in rows:
        with Repo(_home(repos, row["repo"])) as repo:
            after: dict[str, str] = {}
            before: dict[str, str] = {}
            for path in row["sources"]:
                for rev, texts in ((row["base"], before), (f"{row['base']}^", after)):
                    entry = repo.entry(rev, path)
                    if entry is not None:
                        texts[path] = repo.blob(entry.sha).decode("utf-8", "replace")
        bundle = from_texts(before, after)
        undone = {(file.path, n) for file in bundle.files for n in _near(file)}
        for finding in deterministic(bundle):
            hit = any(
                (finding.path, n) in undone
                for n in range(finding.start_line or finding.line or 0, (finding.line or 0) + 1)
            )
            yield {**_row(row, finding, 0.0), "hit": hit}


def _near(file: Any) -> set[int]:
    lines: set[int] = set()
    for hunk in file.hunks:
        at = hunk.new_start
        for line in hunk.lines:
            at = line.new if line.new is not None else at
            if line.kind != " ":
                lines |= {at - 1, at, at + 1}
    return lines


def _bundle(repos: Path, row: dict[str, Any]) -> Bundle | None:
    try:
        return collect_range(_home(repos, row["repo"]), f"{row['base']}..{row['head']}")
    except GlueError as error:
        print(f"{row['repo']} {row['head'][:12]}: {error}", file=sys.stderr)
        return None


def _home(repos: Path, name: str) -> Path:
    return repos / name.replace("/", "+") / "repo"


def _row(row: dict[str, Any], finding: Finding, seconds: float) -> dict[str, Any]:
    fields = ("rule", "severity", "path", "line", "title", "quote")
    return {
        **{name: row[name] for name in ("repo", "base", "head")},
        **{name: getattr(finding, name) for name in fields},
        "seconds": round(seconds, 3),
    }


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return (row["repo"], row["head"], row["rule"], row["path"], str(row["line"]))


def _labels(path: Path | None) -> dict[tuple[str, ...], str]:
    if path is None:
        return {}
    return {
        _key(row): row["label"]
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    }


def _table(found: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in found:
        counts[f"{row['rule']} ({row['severity']})"][row["label"] or "unread"] += 1
    total = sum(counts.values(), Counter())
    lines = [f"{'rule':<34}" + "".join(f"{name:>10}" for name in (*LABELS, "unread"))]
    for name, row in (*sorted(counts.items()), ("all", total)):
        lines.append(f"{name:<34}" + "".join(f"{row[label]:>10}" for label in (*LABELS, "unread")))
    serious = [row for row in found if row["severity"] in SHOWN]
    judged = total["right"] + total["wrong"]
    failed = {row["head"] for row in found if row["severity"] in ("critical", "high")}
    unjust = {
        row["head"]
        for row in found
        if row["severity"] in ("critical", "high") and row["label"] != "right"
    }
    repos = {row["repo"] for row in rows}
    rate = 100 * len(found) / max(len(rows), 1)
    lines.append(
        f"{len(rows)} changes of {len(repos)} repositories: {len(found)} findings"
        f" ({rate:.1f} per 100 changes, {len(serious)} of medium or worse),"
        f" {total['right'] / judged if judged else 0:.2f} right among right and wrong,"
        f" {len(failed)} changes failed by the default gate, {len(unjust)} of them unjustly"
    )
    return "\n".join(lines)


def _fix_table(found: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    hit = {(row["repo"], row["base"]) for row in found if row["hit"]}
    rules = Counter(row["rule"] for row in found if row["hit"])
    names = ", ".join(f"{name} {count}" for name, count in rules.most_common())
    return (
        f"{len(rows)} fixes undone: a finding on the undone lines in {len(hit)} ({names}), "
        f"{len(found)} findings in all"
    )


if __name__ == "__main__":
    sys.exit(main())

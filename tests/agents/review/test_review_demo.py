"""`make demo` works with no key and no network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glue.agents.review import demo, records
from glue.agents.review.records import ReviewRun


def test_the_demo_finds_the_planted_bugs_and_says_where_the_files_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(str(tmp_path / "home")) == 0

    out = capsys.readouterr().out
    folder = tmp_path / "home/review"
    run = records.load(ReviewRun, folder / "findings.json")
    assert {finding.rule for finding in run.findings} == {
        "lock-removed", "check-removed", "limit-removed", "test-switched-off", "ruff/B006", "ruff/B015", "ruff/F821",
    }  # fmt: skip
    for finding in run.findings:
        assert out.count(f"  {finding.path}:{finding.line} ") == 1
    for name in ("review.txt", "review.html", "review.json", "review.sarif", "requests.jsonl"):
        assert str(folder / name) in out
    for name in ("bundle.json", "findings.json", "run.jsonl"):
        assert (folder / name).is_file()
    bodies = [json.loads(line)["body"] for line in (folder / "requests.jsonl").read_text().splitlines()]
    assert any(body.get("event") == "COMMENT" and len(body["comments"]) == 6 for body in bodies)
    assert len(out.splitlines()) < 50


def test_the_demo_is_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        demo.main(str(tmp_path / name))
    capsys.readouterr()

    one, two = ((tmp_path / name / "review/review.html").read_text() for name in ("one", "two"))

    assert one == two

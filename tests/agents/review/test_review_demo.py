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
        "sql-injection", "window-off-by-one", "mutable-default", "swallowed-exception", "test-skipped",
    }  # fmt: skip
    assert "The comment it would post" in out
    assert len(out.splitlines()) <= 32
    assert out.count("Off by one") == 2  # in the list, and in the comment
    for name in ("review.md", "review.json", "requests.jsonl"):
        assert str(folder / name) in out
    for name in ("bundle.json", "findings.json", "review.md", "review.sarif", "run.jsonl", "requests.jsonl"):
        assert (folder / name).is_file()
    bodies = [json.loads(line)["body"] for line in (folder / "requests.jsonl").read_text().splitlines()]
    assert any(body.get("event") == "COMMENT" and len(body["comments"]) == 5 for body in bodies)


def test_the_demo_is_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        demo.main(str(tmp_path / name))
    capsys.readouterr()

    one, two = ((tmp_path / name / "review/review.md").read_text() for name in ("one", "two"))

    assert one == two

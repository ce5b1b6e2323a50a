"""`make demo` works with no key and no network."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from glue.agents.review import storage
from glue.agents.review.records import ReviewRun


@pytest.fixture(scope="module")
def demo() -> Any:
    spec = importlib.util.spec_from_file_location(
        "demo", Path(__file__).parents[3] / "bench" / "demo.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo_finds_the_planted_bugs_and_prints_the_paths_of_its_files(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.review_larder(tmp_path / "home", tmp_path / "agent.html")

    out = capsys.readouterr().out
    folder = tmp_path / "home/review"
    run = storage.load(ReviewRun, folder / "findings.json")
    assert {finding.rule for finding in run.findings} == {
        "", "test-switched-off", "ruff/B006", "ruff/B015", "ruff/F821",
    }  # fmt: skip
    assert sum(not finding.rule for finding in run.findings) == 3
    assert (run.provider, run.second_look.checked, run.second_look.regraded) == ("recorded", 3, 1)
    assert "the played model" in out
    for finding in run.findings:
        assert out.count(f"  {finding.path}:{finding.line} ") == 1
    for name in ("review.txt", "review.html", "review.json", "requests.jsonl"):
        assert str(folder / name) in out
    assert str(tmp_path / "agent.html") in out
    for name in ("bundle.json", "findings.json", "run.jsonl"):
        assert (folder / name).is_file()
    bodies = [
        json.loads(line)["body"] for line in (folder / "requests.jsonl").read_text().splitlines()
    ]
    assert any(body.get("event") == "COMMENT" and len(body["comments"]) == 6 for body in bodies)
    assert len(out.splitlines()) < 55


def test_demo_writes_the_same_page_each_time(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        demo.review_larder(tmp_path / name, tmp_path / "agent.html")
    capsys.readouterr()

    one, two = ((tmp_path / name / "review/review.html").read_text() for name in ("one", "two"))

    assert one == two

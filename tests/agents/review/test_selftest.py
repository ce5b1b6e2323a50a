"""`glue review selftest`: a model is scored on fixes that are undone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.larder import git
from fakes.review import invoke, work_in_larder

from glue.agents.review import storage
from glue.agents.review.records import ReviewRun
from glue.agents.review.selftest import Score, Trial, changes, differences, selftest
from glue.testing import Script, call, calls
from glue.tools.git import Repo

DONE = calls(call("finish_review", {"summary": "The change was read in full. Nothing was found."}))


@pytest.fixture
def larder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return work_in_larder(tmp_path, monkeypatch)


def history(root: Path) -> None:
    code = "def first(rows):\n    if not rows:\n        return None\n    return rows[0]\n"
    test = "def test_first():\n    assert first([]) is None\n"
    broken = code.replace("    if not rows:\n        return None\n", "    log(rows)\n")
    started = {
        "a.py": broken,
        "b.py": "x = 1\n",
        "tests/test_a.py": "def test_x():\n    assert 1\n",
    }
    fixed = {"a.py": code, "tests/test_a.py": test}
    root.mkdir(exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    for message, files in {
        "Start": started,
        "Fix first for an empty list": fixed,
        "Count to two": {"b.py": "x = 2\n"},
    }.items():
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        git(root, "add", "--all")
        git(root, "commit", "-q", "-m", message)


def finding(**changes: Any) -> dict[str, Any]:
    words = {
        "path": "a.py",
        "quote": "    return rows[0]",
        "title": "Fails for an empty list",
        "severity": "high",
    }
    return {
        **words,
        "body": "`rows[0]` raises IndexError.",
        "confidence": "high",
        "category": "bug",
        **changes,
    }


async def test_model_is_scored_on_undone_fixes_and_clean_changes(tmp_path: Path) -> None:
    history(tmp_path)
    with Repo(tmp_path) as repo:
        assert [(trial.undone, trial.subject) for _, trial in changes(repo, 5)] == [
            (True, "Fix first for an empty list"),
            (False, "Count to two"),
        ]
        made = iter(
            [
                Script(calls(call("report_finding", finding())), DONE, name="good"),
                Script(DONE, name="good"),
            ]
        )
        score = await selftest(repo, providers=lambda: [next(made)], count=5)
        calm = await selftest(repo, providers=lambda: [Script(DONE, name="calm")], count=5)

    assert (score.recall, score.precision, score.model) == (1.0, 1.0, "good:script-1")
    assert (calm.recall, calm.precision) == (0.0, 0.0)
    assert "rules only     1 of 1" in str(calm)
    assert any(line.startswith("- ") and "Fix first" in line for line in differences(score, calm))


def test_scores_are_saved_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(tmp_path / "r")
    monkeypatch.delenv("GLUE_MODEL", raising=False)
    code, out = invoke("selftest", "-C", str(tmp_path / "r"), "--out", str(tmp_path / "one.json"))
    assert code == 0
    assert "found          0 (0%)" in out
    storage.save(Score(model="x"), tmp_path / "two.json")

    assert invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "two.json"))[0] == 1
    storage.save(ReviewRun(), tmp_path / "run.json")
    assert invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "run.json"))[0] == 2


def test_commit_subjects_are_cleaned_for_the_terminal(tmp_path: Path) -> None:
    trial = Trial(sha="a" * 40, subject="Fix\x1b]0;owned\x07 ##[error]", undone=True)
    storage.save(Score(trials=(trial,)), tmp_path / "one.json")
    storage.save(Score(trials=(replace(trial, found=True),)), tmp_path / "two.json")

    code, out = invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "two.json"))

    assert code == 1
    assert f"+ {'a' * 12} Fix]0;owned # #[error]" in out

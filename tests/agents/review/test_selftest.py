"""`glue review selftest`: a model is scored on fixes that are undone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.larder import git
from fakes.review import invoke, work_in_larder

from glue.agents.review import storage
from glue.agents.review.change.collect import collect_range
from glue.agents.review.findings import memory
from glue.agents.review.findings.model import review
from glue.agents.review.records import ReviewRun
from glue.agents.review.selftest import Score, Trial, differences, selftest
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
    made = iter(
        [
            Script(calls(call("report_finding", finding())), DONE, name="good"),
            Script(DONE, name="good"),
        ]
    )

    score = await selftest(tmp_path, providers=lambda: [next(made)], count=5, second_look="never")
    calm = await selftest(tmp_path, providers=lambda: [Script(DONE, name="calm")], count=5)

    assert [(trial.undone, trial.subject) for trial in score.trials] == [
        (True, "Fix first for an empty list"),
        (False, "Count to two"),
    ]
    assert (score.recall, score.precision, score.model) == (1.0, 1.0, "good:script-1")
    assert (calm.recall, calm.precision) == (0.0, None)
    assert any(line.startswith("- ") and "Fix first" in line for line in differences(score, calm))


async def test_findings_on_clean_changes_are_listed_and_count_only_with_a_label(
    tmp_path: Path,
) -> None:
    history(tmp_path)
    loud = finding(path="b.py", quote="x = 2", title="Too large", body="`x` is too large by one.")

    def asked() -> list[Script]:
        return [Script(calls(call("report_finding", loud)), DONE)]

    score = await selftest(tmp_path, providers=asked, count=5, second_look="never")
    (listed,) = score.listed
    (tmp_path / ".glue").mkdir()
    (tmp_path / ".glue/dismissed").write_text(memory.line(listed, "wrong", "two is right"))
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-q", "-m", "Remember")
    again = await selftest(tmp_path, providers=asked, count=5, second_look="never")

    assert f"  {listed.fingerprint} b.py:1: Too large" in str(score)
    assert (score.precision, again.precision) == (None, 0.0)
    assert "Findings to label" not in str(again)


async def test_requests_are_those_of_a_review_of_the_same_commits(tmp_path: Path) -> None:
    history(tmp_path)
    (tmp_path / "AGENTS.md").write_text("Lists may be empty.\n")
    (tmp_path / ".glue").mkdir()
    (tmp_path / ".glue/review.toml").write_text('instructions = "Be strict."\n')
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-q", "-m", "Guidelines")
    (tmp_path / "b.py").write_text("x = 3\n")
    git(tmp_path, "commit", "-q", "-a", "-m", "Count to three")
    scripts: list[Script] = []

    def asked() -> list[Script]:
        scripts.append(Script(DONE))
        return scripts[-1:]

    score = await selftest(tmp_path, providers=asked, count=5)
    sha = next(trial.sha for trial in score.trials if trial.subject == "Count to three")
    script = Script(DONE)
    bundle = collect_range(tmp_path, f"{sha}^..{sha}")
    with Repo(tmp_path) as repo:
        await review(bundle, providers=[script], repo=repo, second_look="auto")

    tested = scripts[[trial.sha for trial in score.trials].index(sha)]
    assert [plain(request) for request in tested.requests] == [
        plain(request) for request in script.requests
    ]
    assert "Be strict." in script.requests[0].system
    assert "Lists may be empty." in script.requests[0].system


def plain(request: Any) -> tuple[str, ...]:
    """Return the texts and tools of a request without its random markers."""
    texts = (request.system, *(message.text for message in request.messages))
    names = tuple(tool.name for tool in request.tools)
    return (*(re.sub(r"\b[0-9a-f]{24}\b", "MARK", text) for text in texts), *names)


async def test_undone_fix_has_a_neutral_history_and_can_be_read_with_tools(tmp_path: Path) -> None:
    history(tmp_path)
    asks = (
        calls(call("git_log", {})),
        calls(call("read_file", {"path": "tests/test_a.py"})),
        DONE,
    )
    scripts: list[Script] = []

    def asked() -> list[Script]:
        scripts.append(Script(*asks))
        return scripts[-1:]

    await selftest(tmp_path, providers=asked, count=1)

    log, test = (message.text for message in scripts[0].requests[-1].messages[2::2])
    assert log.count("Update") == 2
    assert "Fix first" not in log
    assert "assert first([]) is None" in test
    assert not any(tmp_path.glob(".git/*scratch*"))


def test_scores_are_saved_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(tmp_path / "r")
    monkeypatch.delenv("GLUE_MODEL", raising=False)
    code, out = invoke("selftest", "-C", str(tmp_path / "r"), "--out", str(tmp_path / "one.json"))
    assert code == 0
    assert "found          0 of 1: 0% (95% interval 0% to" in out
    storage.save(Score(model="x"), tmp_path / "two.json")

    assert invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "two.json"))[0] == 1
    storage.save(ReviewRun(), tmp_path / "run.json")
    assert invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "run.json"))[0] == 2


async def test_each_change_is_reviewed_as_often_as_asked(tmp_path: Path) -> None:
    history(tmp_path)
    replies = iter([[calls(call("report_finding", finding())), DONE], [DONE], [DONE], [DONE]])

    score = await selftest(
        tmp_path, providers=lambda: [Script(*next(replies))], repeat=2, second_look="never"
    )

    assert [trial.undone for trial in score.trials] == [True, True, False, False]
    assert (score.recall, [*score.noisy().values()]) == (0.5, [0.0])
    assert "fixes undone   1; each change was reviewed 2 times" in str(score)


def scored(found: int, cases: int) -> Score:
    """Return a score in which the first fixes were found."""
    trials = (
        Trial(sha=f"{at:040x}", subject="Fix", undone=True, found=at < found) for at in range(cases)
    )
    return Score(trials=tuple(trials))


def test_shares_have_intervals_over_whole_changes() -> None:
    rows = dict(scored(9, 10).rows())
    repeated = replace(scored(9, 10), trials=scored(9, 10).trials * 5)

    assert re.fullmatch(r"9 of 10: 90% \(95% interval 5\d% to \d+%\); .*", rows["found"])
    assert dict(repeated.rows())["found"] == rows["found"]


def test_scores_are_compared_in_pairs() -> None:
    far = differences(scored(1, 12), scored(9, 12))
    near = differences(scored(8, 12), scored(9, 12))

    found = "= undone fixes found: more often in"
    assert far[-1] == f"{found} 8 and less often in 0 of 12 changes (p = 0.0078)"
    assert near[-1].startswith(f"{found} 1 and less often in 0 of 12 changes (p = 1); ")
    assert differences(scored(3, 5), scored(3, 5)) == []


def test_commit_subjects_are_cleaned_for_the_terminal(tmp_path: Path) -> None:
    trial = Trial(sha="a" * 40, subject="Fix\x1b]0;owned\x07 ##[error]", undone=True)
    storage.save(Score(trials=(trial,)), tmp_path / "one.json")
    storage.save(Score(trials=(replace(trial, found=True),)), tmp_path / "two.json")

    code, out = invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "two.json"))

    assert code == 1
    assert f"+ {'a' * 12} Fix]0;owned # #[error]" in out

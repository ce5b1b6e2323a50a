"""`glue review selftest`: a model is scored on fixes that are undone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
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
from glue.agents.review.records import Bundle, Finding, ReviewRun
from glue.agents.review.selftest import (
    Sample,
    Score,
    Trial,
    differences,
    judge,
    selftest,
    sources,
)
from glue.errors import ConfigError
from glue.testing import Script, call, calls
from glue.tools.git import Repo
from glue.trials import CaseTrial, Evaluation, load, load_as, save

DONE = calls(call("finish_review", {"summary": "The change was read in full. Nothing was found."}))


@pytest.fixture
def larder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return work_in_larder(tmp_path, monkeypatch)


def history(root: Path, more: str = "") -> None:
    code = "def first(rows):\n    if not rows:\n        return None\n    return rows[0]\n" + more
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

    assert [(trial.undone, trial.case[13:]) for trial in score.trials] == [
        (True, "Fix first for an empty list"),
        (False, "Count to two"),
    ]
    assert (score.recall, score.precision, score.models) == (1.0, 1.0, ("good",))
    assert dict(score.rows())["model"] == "good:script-1"
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

    fix, clean = score.trials
    assert (fix.score, clean.score) == (0.0, 0.0)
    assert clean.reasons == (f"{listed.fingerprint} b.py:1: Too large",)
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
    cases = [trial.case for trial in score.trials]
    at = next(at for at, case in enumerate(cases) if case.endswith(" Count to three"))
    sha = cases[at].split()[0]
    script = Script(DONE)
    bundle = collect_range(tmp_path, f"{sha}^..{sha}")
    with Repo(tmp_path) as repo:
        await review(bundle, providers=[script], repo=repo, second_look="auto")

    assert [plain(request) for request in scripts[at].requests] == [
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
    one, two, run = (str(tmp_path / name) for name in ("one.jsonl", "two.jsonl", "run.json"))
    code, out = invoke("selftest", "-C", str(tmp_path / "r"), "--out", one)
    save(scored(1, 1), Path(two))
    storage.save(ReviewRun(), run)

    assert code == 0
    assert "model          analysers and rules only" in out
    assert "found          0 of 1: 0% (95% interval 0% to" in out
    assert invoke("diff", one, one) == (0, "no difference\n")
    assert invoke("diff", one, two)[0] == 1
    assert invoke("diff", one, run)[0] == 2


def test_another_evaluation_is_not_a_score(tmp_path: Path) -> None:
    case = CaseTrial(model="m", case="a", repeat=1, score=1.0, outcome="done")
    save(Evaluation(models=("m",), trials=(case,)), tmp_path / "eval.jsonl")

    with pytest.raises(ConfigError, match="was not written by glue review selftest: Trial"):
        load_as(Score, Trial, tmp_path / "eval.jsonl")


def test_scores_are_evaluations_that_glue_eval_compares(cli: Callable[..., Any]) -> None:
    save(scored(1, 12), Path("old.jsonl"))
    save(scored(9, 12), Path("new.jsonl"))

    score = load_as(Score, Trial, Path("new.jsonl"))
    evaluation = load(Path("new.jsonl"))
    ran = cli("eval", "diff", "old.jsonl", "new.jsonl")

    assert score == scored(9, 12)
    assert evaluation.scores("m") == score.scores("m")
    assert ran.code == 0
    assert "m against OLD: better in 8 cases, worse in 0 (p = 0.0078)" in ran.out
    assert "  better: 000000000001 Fix, " in ran.out


async def test_each_change_is_reviewed_as_often_as_asked(tmp_path: Path) -> None:
    history(tmp_path)
    replies = iter([[calls(call("report_finding", finding())), DONE], [DONE], [DONE], [DONE]])

    score = await selftest(
        tmp_path, providers=lambda: [Script(*next(replies))], repeat=2, second_look="never"
    )

    assert [(trial.undone, trial.repeat) for trial in score.trials] == [
        (True, 1),
        (True, 2),
        (False, 1),
        (False, 2),
    ]
    assert (score.recall, [*score.part(undone=False).scores("script").values()]) == (0.5, [1.0])
    assert "fixes undone   1; each change was reviewed 2 times" in str(score)


def trial(case: str, score: float, **more: Any) -> Trial:
    fields = {"model": "m", "repeat": 1, "outcome": "done", "undone": True, **more}
    return Trial(case=case, score=score, **fields)


def scored(found: int, cases: int) -> Score:
    """Return a score in which the first fixes were found."""
    trials = (trial(f"{at:012x} Fix", float(at < found)) for at in range(cases))
    return Score(models=("m",), trials=tuple(trials))


def test_shares_have_intervals_over_whole_changes() -> None:
    rows = dict(scored(9, 10).rows())
    repeated = replace(scored(9, 10), trials=scored(9, 10).trials * 5)

    assert re.fullmatch(r"9 of 10: 90% \(95% interval 5\d% to \d+%\); .*", rows["found"])
    assert dict(repeated.rows())["found"] == rows["found"]


def test_scores_are_compared_in_pairs() -> None:
    far = differences(scored(1, 12), scored(9, 12))
    near = differences(scored(8, 12), scored(9, 12))

    fixes = "= undone fixes against OLD: better in"
    assert far[-1] == f"{fixes} 8 cases, worse in 0 (p = 0.0078)"
    assert "+ 000000000001 Fix" in far
    assert near[-1].startswith(f"{fixes} 1 case, worse in 0 (p = 1); 12 cases cannot distinguish")
    assert differences(scored(3, 5), scored(3, 5)) == []


def test_findings_on_a_clean_change_lower_its_score() -> None:
    loud = Finding(path="b.py", quote="x = 2", title="Too large", body="By one.")
    quiet = trial("a Count", 1.0, undone=False)
    noisy = trial("a Count", 0.0, undone=False, others=(loud,))
    old, new = (Score(models=("m",), trials=(each,)) for each in (quiet, noisy))

    lines = differences(old, new)

    assert "~ with findings: 0 of 1: 0% (95% interval 0% to 100%) -> 1 of 1: 100%" in lines[0]
    assert "- a Count" in lines
    assert lines[-1].startswith(
        "= clean changes against OLD: better in 0 cases, worse in 1 (p = 1)"
    )


def test_findings_on_clean_changes_are_counted_by_label() -> None:
    loud = [
        Finding(path="b.py", quote="x = 2", title="Too large", body="By one.", fingerprint=name)
        for name in "abcde"
    ]
    score = Score(
        models=("m",),
        trials=(trial("a Count", 0.0, undone=False, others=tuple(loud)),),
        labels={"a": "right", "b": "wrong", "c": "wrong", "d": "arguable"},
    )

    rows = dict(score.rows())

    assert rows["other findings"] == "1 right, 1 arguable, 2 wrong, 1 without a label"
    assert rows["precision"].startswith("33% ")


def test_fix_changes_one_to_three_source_files_and_at_most_200_lines(tmp_path: Path) -> None:
    rows = [f"x{n} = {n}\n" for n in range(202)]
    names = [f"{name}.py" for name in "abcd"]
    steps = [
        (dict.fromkeys(names, rows[:1]), False),
        ({"a.py": rows[:201]}, True),  # 200 lines more
        ({"a.py": rows[:1]}, True),  # 200 lines fewer
        ({"a.py": rows}, False),  # 201 lines more
        (dict.fromkeys(names[1:], rows[:2]), True),
        (dict.fromkeys(names, rows[:3]), False),
        ({"notes.md": rows[:1]}, False),
        ({"new.py": rows[:1]}, False),
    ]
    stream = ""
    for files, _ in steps:
        stream += "commit refs/heads/main\ncommitter t <t@example.com> 0 +0000\ndata 4\nStep\n"
        for name, kept in files.items():
            text = "".join(kept)
            stream += f"M 100644 inline {name}\ndata {len(text)}\n{text}\n"
    git(tmp_path, "init", "-q", "-b", "main")
    argv = ["git", "fast-import", "--quiet"]
    subprocess.run(argv, cwd=tmp_path, input=stream.encode(), check=True, timeout=30)

    with Repo(tmp_path) as repo:
        commits = [repo.resolve(f"HEAD~{n}") for n in reversed(range(len(steps)))]
        found = [sources(repo, sha, tested=False) for sha in commits]

    assert [one is not None for one in found] == [suits for _, suits in steps]
    assert found[4] == (commits[3], names[1:], [])


def test_commit_subjects_are_cleaned_for_the_terminal(tmp_path: Path) -> None:
    case = f"{'a' * 12} Fix\x1b]0;owned\x07 ##[error]"
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    save(Score(models=("m",), trials=(trial(case, 0.0),)), old)
    save(Score(models=("m",), trials=(trial(case, 1.0),)), new)

    code, out = invoke("diff", str(old), str(new))

    assert code == 1
    assert f"+ {'a' * 12} Fix]0;owned # #[error]" in out


async def test_progress_names_each_change_and_its_result(tmp_path: Path) -> None:
    history(tmp_path, more="\n\nLAST_PAGE = 12 + 1\n")
    loud = finding(path="b.py", quote="x = 2", title="Too large", body="`x` is too large by one.")
    other = finding(quote="LAST_PAGE = 12 + 1", title="Wrong number")
    replies = iter(
        [
            [calls(call("report_finding", finding())), DONE],
            [calls(call("report_finding", loud)), DONE],
            [DONE],
            [DONE],
            [calls(call("finish_review", {"summary": "check " * 40}))] * 4,
            [DONE],
            [calls(call("report_finding", finding(), id="1"), call("report_finding", other)), DONE],
            [DONE],
        ]
    )
    lines: list[str] = []

    for _ in range(4):
        await selftest(
            tmp_path,
            providers=lambda: [Script(*next(replies))],
            second_look="never",
            on_progress=lines.append,
        )

    assert [re.sub(r"[0-9a-f]{12}", "SHA", line) for line in lines] == [
        "1: SHA fix undone: found",
        "2: SHA clean: 1 finding to label",
        "1: SHA fix undone: missed",
        "2: SHA clean: quiet",
        "1: SHA fix undone: inconclusive",
        "2: SHA clean: quiet",
        "1: SHA fix undone: found, 1 finding to label",
        "2: SHA clean: quiet",
    ]


def test_clean_change_counts_only_if_the_review_is_sound_and_quiet() -> None:
    sample = Sample(sha="a" * 40, subject="Count", undone=False)
    loud = Finding(path="b.py", quote="x = 2", title="Too large", body="By one.", line=1)
    runs = {
        1.0: ReviewRun(provider="m", finished=True),
        0.0: ReviewRun(provider="m", findings=(loud,)),
    }

    for score, run in runs.items():
        assert judge(run, Bundle(), sample).score == score
    assert judge(ReviewRun(provider="m", codes=("x.y",)), Bundle(), sample).score == 0.0
    unsound = judge(ReviewRun(provider="m", findings=(loud,), codes=("x.y",)), Bundle(), sample)
    assert (unsound.outcome, unsound.others, unsound.reasons) == ("inconclusive", (), ("x.y",))
    by_rule = judge(ReviewRun(findings=(replace(loud, rule="r"),)), Bundle(), sample)
    assert (by_rule.score, by_rule.model) == (1.0, "analysers and rules only")


async def test_long_subject_is_cut(tmp_path: Path) -> None:
    history(tmp_path)
    git(tmp_path, "commit", "-q", "--amend", "-m", "Count to two " + "x" * 200)

    score = await selftest(tmp_path, count=1)

    assert [len(trial.case) for trial in score.trials if not trial.undone] == [12 + 1 + 120]


def test_cost_is_that_of_all_changes_or_unknown() -> None:
    paid = [trial(f"{at:012x} Fix", 1.0, cost=0.25, tokens=10) for at in range(3)]
    costs = {
        tuple(paid): "$0.7500, 30 tokens",
        (paid[0], trial("a Fix", 1.0)): "unknown, 10 tokens",
    }

    for trials, cost in costs.items():
        assert dict(Score(models=("m",), trials=trials).rows())["cost"] == cost


async def test_at_most_count_fixes_are_undone(tmp_path: Path) -> None:
    history(tmp_path)
    for number in ("three", "four"):
        (tmp_path / "b.py").write_text(f"x = {number!r}\n")
        (tmp_path / "tests/test_b.py").write_text(f"assert x == {number!r}\n")
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "-q", "-m", f"Fix {number}")

    score = await selftest(tmp_path, count=1)

    assert [trial.case[13:] for trial in score.trials] == ["Fix four", "Count to two"]


def test_similar_findings_of_two_changes_can_each_be_labelled(larder: Path) -> None:
    large = Finding(path="b.py", quote="x = 2", title="Too large", body="By one.", line=1)
    loud = [replace(large, fingerprint=mark * 16) for mark in "ab"]
    trials = [
        trial(f"{one.fingerprint[:12]} Count", 0.0, undone=False, others=(one,)) for one in loud
    ]
    save(Score(models=("m",), trials=tuple(trials)), larder / "score.jsonl")

    for one in loud:
        mark = one.fingerprint
        assert invoke("label", mark, "wrong", "meant", "--findings", "score.jsonl")[0] == 0

    labels = (larder / ".glue/dismissed").read_text().splitlines()[1:]
    assert [row.split()[:2] for row in labels] == [[one.fingerprint, "wrong"] for one in loud]

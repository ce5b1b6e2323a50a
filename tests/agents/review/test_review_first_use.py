"""The first minutes with `glue review`: where it is started, what it says, what Ctrl-C leaves, what `init` writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.larder import git
from fakes.review import invoke, work_in_larder

from glue.agents.review import doctor, records
from glue.agents.review.change.chunk import chunks, coverage
from glue.agents.review.change.collect import MAX_UNTRACKED, collect, collect_dirty, from_diff, from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.change.diff import between
from glue.agents.review.findings.model import callers, question, review
from glue.agents.review.records import Bundle, ReviewedChange, ReviewRun, SkippedFile
from glue.agents.review.selftest import Score, Trial, changes, differences, selftest
from glue.testing import Script, call, calls
from glue.tools.git import Repo

DONE = calls(call("finish_review", {"summary": "The change was read in full. Nothing was found."}))


@pytest.fixture
def larder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return work_in_larder(tmp_path, monkeypatch)


def test_it_works_from_a_subfolder(larder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = invoke("--format", "json")[1]
    monkeypatch.chdir(larder / "larder")

    assert invoke("--format", "json")[1].split('"seconds"')[0] == whole.split('"seconds"')[0]


def test_it_works_on_a_bare_repository(larder: Path, tmp_path: Path) -> None:
    git(larder, "clone", "-q", "--bare", str(larder), str(tmp_path / "bare.git"))

    code, out = invoke("-C", str(tmp_path / "bare.git"), "--base", "main", "--head", "find-items")

    assert code == 1
    assert "The lock `with self.lock` was removed" in out


def test_on_main_with_a_dirty_tree_it_says_dirty(larder: Path) -> None:
    git(larder, "checkout", "-q", "main")
    assert invoke()[1] == "glue review: there is nothing to review\n"
    (larder / "larder/store.py").write_text("x = undefined_name\n")

    assert "--dirty" in invoke()[1]
    assert "Undefined name" in invoke("--dirty")[1]


def test_two_rules_on_one_line_are_two_findings(larder: Path) -> None:
    before = "def take(stock, name):\n    with lock:\n        stock[name] -= 1\n        return stock[name]\n"
    after = "def take(stock, name, seen=[]):\n    stock[name] -= 1\n    seen.append(name)\n    return stock[name]\n"
    git(larder, "checkout", "-q", "main")
    (larder / "larder/take.py").write_text(f"from larder.store import lock\n\n\n{before}")
    git(larder, "add", ".")
    git(larder, "commit", "-qm", "take")
    (larder / "larder/take.py").write_text(f"from larder.store import lock\n\n\n{after}")

    out = invoke("--dirty")[1]

    assert "glue review: 2 findings" in out
    assert "The lock `with lock` was removed" in out
    assert "mutable data structures" in out


@pytest.mark.parametrize("option", [("-o", "no/x.txt"), ("--record", "no/x.jsonl"), ("collect", "--out", "no/x")])
def test_a_file_that_cannot_be_written_is_a_mistake_and_no_finding(larder: Path, option: tuple[str, ...]) -> None:
    code, out = invoke(*option)

    assert (code, "there is no folder no" in out) == (2, True)
    assert invoke("--save", "larder/store.py/x")[0] == 2


def test_in_ci_a_model_without_a_key_leaves_the_rules(larder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    assert invoke("collect")[0] == 0

    code, out = invoke("run", "-m", "anthropic:claude-haiku-5-5")

    assert (code, "anthropic:claude-haiku-5-5 has no key and is left out" in out) == (0, True)
    assert records.load(ReviewRun, "findings.json").prompt == "rules"
    assert invoke("-m", "anthropic")[0] == 2  # by hand it is a mistake


@pytest.mark.parametrize("text", ["hello\n", "On branch main\nnothing to commit\n"])
def test_what_is_no_diff_is_refused(larder: Path, text: str) -> None:
    code, out = invoke("--diff", "-", stdin=text)

    assert code == 2
    assert "this is no diff" in out


def test_other_tools_results_go_into_the_same_review(larder: Path, tmp_path: Path) -> None:
    row = {"ruleId": "no-sleep", "level": "error", "message": {"text": "Do not call take here"}}
    place = {"physicalLocation": {"artifactLocation": {"uri": "larder/store.py"}, "region": {"startLine": 16}}}
    log = {
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "semgrep"}}, "results": [{**row, "locations": [place]}]}],
    }
    file = tmp_path / "x.sarif"
    file.write_text(json.dumps(log))

    _, out = invoke("--sarif", str(file), "--format", "json")
    assert "semgrep/no-sleep" in {one["rule"] for one in json.loads(out.split("\nglue review")[0])["findings"]}
    assert invoke("--sarif-base", str(file))[0] == 2


def test_paths_narrow_a_review_and_issues_reach_the_model(larder: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "b.json")
    assert invoke("collect", "--paths", "tests/**", "--issue", "Rice is lost", "--pr", "5", "--out", out)[0] == 0

    bundle = records.load(Bundle, out)

    assert [file.path for file in bundle.files] == ["tests/test_store.py"]
    assert [skip.path for skip in bundle.skipped] == ["larder/store.py"]
    assert (bundle.change.mode, bundle.change.number) == ("pull_request", 5)
    assert "It is said to solve: Rice is lost" in question(bundle, chunks(bundle)[0], 1, 1, (), "seed")
    ignored = str(tmp_path / "c.json")
    invoke("collect", "--paths-ignore", "tests/**", "--out", ignored)
    assert [file.path for file in records.load(Bundle, ignored).files] == ["larder/store.py"]


SLOW = """
import sys, anyio
from glue.agents.review import cli
from glue.agents.review.cli import review
from glue.testing import Script, call, calls

FOUND = {"path": "larder/store.py", "quote": "        seen.append(part)", "title": "Finds too much",
         "severity": "medium", "body": "`find` gives every row where `part` is empty.",
         "confidence": "high", "category": "bug"}

class Slow:
    name = "slow"
    def __init__(self): self.script = Script(calls(call("report_finding", FOUND)))
    async def stream(self, request):
        if self.script.requests:
            print("READY", flush=True)
            await anyio.sleep(60)
        async for event in self.script.stream(request):
            yield event

cli.providers = lambda *names: [Slow()]
review(sys.argv[1:])
"""


def test_ctrl_c_shows_what_there_is(larder: Path) -> None:
    argv = [sys.executable, "-c", SLOW, "--base", "main", "--post"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=larder) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "READY\n"
            child.send_signal(signal.SIGINT)
            out, said = child.communicate(timeout=60)
        finally:
            child.kill()

    assert child.returncode == 3
    assert "Finds too much" in out
    assert "The lock `with self.lock` was removed" in out
    # Analysers' findings at once, then the model's progress, then what it found.
    rows = said.splitlines()
    assert rows.index(next(row for row in rows if "lock-removed" in row or "The lock" in row)) < rows.index(
        next(row for row in rows if row.startswith("slow: part 1 of 1: larder/store.py"))
    )
    assert any("Finds too much" in row for row in rows)
    assert "stopped; this is what was found so far" in said


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("github", ".github/workflows/review.yml"),
        ("gitea", ".gitea/workflows/review.yml"),
        ("gitlab", ".gitlab/review.yml"),
        ("pre-push", ".git/hooks/pre-push"),
    ],
)
def test_init_writes_the_workflow_once(larder: Path, kind: str, path: str) -> None:
    commit = "1" * 40
    code, out = invoke("init", kind, "--from", f"ann/glue@{commit}", "-m", "openai:gpt-5-nano")

    text = (larder / path).read_text()
    assert (code, path in out) == (0, True)
    assert "REPLACE" not in text
    assert "OWNER" not in text
    assert ("GLUE_MODEL=openai:gpt-5-nano" in out) == (kind != "github")  # never dropped in silence
    if kind == "github":
        assert f"uses: ann/glue/agents/review@{commit}" in text
        assert "openai:gpt-5-nano" in text
        assert [str(one) for one in doctor.workflow(text, path)] == []
    if kind == "pre-push":
        assert os.access(larder / path, os.X_OK)
    else:
        assert "previous" in text
    assert invoke("init", kind)[0] == 2
    assert invoke("init", kind, "--force")[0] == 0


# What the model sees -----------------------------------------------------------------------------------


def test_the_question_holds_the_whole_function_and_its_callers(larder: Path) -> None:
    bundle = collect(larder, base="main", head="find-items")
    (larder / "larder/shop.py").write_text("def sell(larder):\n    return larder.take('rice', 1)\n")
    git(larder, "add", "--all")
    git(larder, "commit", "-q", "-m", "shop")
    bundle = collect(larder, base="main", head="find-items")
    with Repo(larder) as repo:
        around = callers(bundle, repo)

    assert "larder/shop.py:2: return larder.take('rice', 1)" in around
    text = question(bundle, chunks(bundle)[0], 1, 1, (), "seed", around)
    mark = text.split("from <")[1].split(">")[0]
    assert "larder/shop.py:2" in text.split(f"\n<{mark}>\n")[1]


def test_unchanged_lines_of_the_function_are_shown_above_and_below() -> None:
    body = [f"    step_{n}()" for n in range(40)]
    old = "def work():\n" + "\n".join(body) + "\n"
    bundle = from_texts({"a.py": old}, {"a.py": old.replace("step_20()", "other()")})

    text = chunks(bundle)[0].text

    assert "     1   def work():" in text
    assert "    41       step_39()" in text


def test_a_skipped_file_counts_with_its_lines() -> None:
    bundle = from_texts({}, {"a.py": "x = 1\n"})
    huge = Bundle(
        files=bundle.files,
        diff=bundle.diff,
        head=bundle.head,
        skipped=(SkippedFile(path="b.py", kind="too_large", reason="too large", lines=200_000),),
    )

    assert coverage(huge, chunks(huge)).percent < 0.1


# The self-test -----------------------------------------------------------------------------------------


def history(root: Path) -> None:
    code = "def first(rows):\n    if not rows:\n        return None\n    return rows[0]\n"
    test = "def test_first():\n    assert first([]) is None\n"
    broken = code.replace("    if not rows:\n        return None\n", "    log(rows)\n")
    started = {"a.py": broken, "b.py": "x = 1\n", "tests/test_a.py": "def test_x():\n    assert 1\n"}
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
    words = {"path": "a.py", "quote": "    return rows[0]", "title": "Fails for an empty list", "severity": "high"}
    return {**words, "body": "`rows[0]` raises IndexError.", "confidence": "high", "category": "bug", **changes}


async def test_the_self_test_scores_the_model_on_fixes_that_were_undone(tmp_path: Path) -> None:
    history(tmp_path)
    with Repo(tmp_path) as repo:
        assert [(trial.undone, trial.subject) for _, trial in changes(repo, 5)] == [
            (True, "Fix first for an empty list"),
            (False, "Count to two"),
        ]
        made = iter([Script(calls(call("report_finding", finding())), DONE, name="good"), Script(DONE, name="good")])
        score = await selftest(repo, providers=lambda: [next(made)], count=5)
        calm = await selftest(repo, providers=lambda: [Script(DONE, name="calm")], count=5)

    assert (score.recall, score.precision, score.model) == (1.0, 1.0, "good:script-1")
    assert (calm.recall, calm.precision) == (0.0, 0.0)
    assert "rules alone    1 of 1" in str(calm)
    assert any(line.startswith("- ") and "Fix first" in line for line in differences(score, calm))


def test_scores_are_kept_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(tmp_path / "r")
    monkeypatch.delenv("GLUE_MODEL", raising=False)
    code, out = invoke("selftest", "-C", str(tmp_path / "r"), "--out", str(tmp_path / "one.json"))
    assert code == 0
    assert "found          0 (0%)" in out
    records.save(Score(model="x"), tmp_path / "two.json")

    assert invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "two.json"))[0] == 1
    records.save(ReviewRun(), tmp_path / "run.json")
    assert invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "run.json"))[0] == 2


def test_what_a_commit_is_called_does_not_act_on_the_terminal(tmp_path: Path) -> None:
    trial = Trial(sha="a" * 40, subject="Fix\x1b]0;owned\x07 ##[error]", undone=True)
    records.save(Score(trials=(trial,)), tmp_path / "one.json")
    records.save(Score(trials=(replace(trial, found=True),)), tmp_path / "two.json")

    code, out = invoke("diff", str(tmp_path / "one.json"), str(tmp_path / "two.json"))

    assert code == 1
    assert f"+ {'a' * 12} Fix]0;owned # #[error]" in out


def test_a_review_that_speaks_of_run_files_is_still_a_review(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    records.save(ReviewRun(change=ReviewedChange(title='Write "glue-review-run" and "kind": "selftest"')), path)

    assert invoke("diff", str(path), str(path)) == (0, "no difference\n")


def test_before_the_first_commit_everything_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLUE_MODEL", raising=False)
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a.py").write_text("breakpoint()\n")

    assert "a.py:1" in invoke("-C", str(tmp_path), "--dirty")[1]
    git(tmp_path, "add", "--all")
    assert "a.py:1" in invoke("-C", str(tmp_path), "--staged")[1]


@pytest.mark.parametrize("chosen", [("--dirty",), ("--staged",), ("--diff", "-")])
def test_globs_narrow_every_kind_of_review(larder: Path, chosen: tuple[str, ...]) -> None:
    for name in ("one.py", "two.py"):
        (larder / name).write_text("breakpoint()\n")
    git(larder, "add", "--all")
    diff = "".join(between(name, None, "breakpoint()\n") for name in ("one.py", "two.py"))
    out = larder.parent / "out.json"

    def paths(*options: str) -> set[str]:
        assert invoke(*chosen, *options, "--format", "json", "-o", str(out), stdin=diff)[0] == 0
        return {one["path"] for one in json.loads(out.read_text())["findings"]}

    assert paths("--paths", "one.py") == {"one.py"}
    assert paths("--paths-ignore", "one.py") == {"two.py"}


def test_a_diff_of_a_secret_file_is_shown_to_nobody(larder: Path) -> None:
    diff = "".join(between(name, None, f"TOKEN={name}-value\n") for name in (".env", "a.py"))

    bundle = from_diff(diff, rules=Config())

    assert [file.path for file in bundle.files] == ["a.py"]
    assert ".env-value" not in bundle.diff
    assert "may hold secrets" in invoke("--diff", "-", stdin=diff)[1]


def test_secret_files_are_those_that_the_settings_name() -> None:
    diff = "".join(between(name, None, "x = 1\n") for name in (".env", "a.vault", "a.py"))

    bundle = from_diff(diff, rules=Config(secret_files=("*.vault", "!.env")))

    assert [(skip.path, skip.kind) for skip in bundle.skipped] == [("a.vault", "blocked")]


def test_new_files_beyond_the_most_are_named_as_not_read(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    for at in range(MAX_UNTRACKED + 2):
        (tmp_path / f"{at}.py").write_text("x = 1\n")

    bundle = collect_dirty(tmp_path)

    assert (len(bundle.files), len(bundle.skipped)) == (MAX_UNTRACKED, 2)
    assert not coverage(bundle, None).complete


def test_settings_that_are_no_text_are_a_usage_error(larder: Path) -> None:
    (larder / "bad.toml").write_bytes(b"\xff\xfe")

    assert invoke("--config", "bad.toml")[0] == 2


@pytest.mark.parametrize("model", ["offline", "offline:demo", "offline,offline:demo"])
def test_a_provider_that_only_plays_a_model_is_not_asked(larder: Path, model: str) -> None:
    plain = invoke("--format", "json")

    code, out = invoke("-m", model, "--format", "json")

    assert (code, out.split('"seconds"')[0]) == (plain[0], plain[1].split('"seconds"')[0])


def test_the_hook_is_written_where_git_looks_for_it(larder: Path) -> None:
    git(larder, "worktree", "add", "-q", "../tree")
    assert invoke("init", "pre-push", "-C", "../tree")[0] == 0
    assert (larder / ".git/hooks/pre-push").stat().st_mode & 0o111

    git(larder, "config", "core.hooksPath", ".hooks")
    assert invoke("init", "pre-push")[0] == 0
    assert (larder / ".hooks/pre-push").is_file()


async def test_a_byte_order_mark_and_quoted_names_are_read_right() -> None:
    old, new = (
        "\ufeffdef f(x):\n    require_admin(x)\n    return x.n\n",
        "\ufeffdef f(x):\n    return x.n\n",
    )
    bundle = from_texts({'dé "q".py': old}, {'dé "q".py': new}, ReviewedChange(title="x"))

    run = await review(bundle)

    assert [(one.rule, one.path, one.line) for one in run.findings] == [("auth-removed", 'dé "q".py', 2)]

"""The command `glue review` on a repository with planted bugs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.larder import git
from fakes.review import invoke, work_in_larder

from glue.agents.review import doctor, storage
from glue.agents.review.change.collect import (
    from_diff,
)
from glue.agents.review.change.config import Config
from glue.agents.review.change.diff import between
from glue.agents.review.cli import review
from glue.agents.review.findings.prompt import discussion
from glue.agents.review.records import Bundle, ReviewedChange, ReviewRun


@pytest.fixture
def larder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return work_in_larder(tmp_path, monkeypatch)


def test_review_started_in_a_subfolder_covers_the_whole_repository(
    larder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = invoke("--format", "json")[1]
    monkeypatch.chdir(larder / "larder")

    assert invoke("--format", "json")[1].split('"seconds"')[0] == whole.split('"seconds"')[0]


def test_bare_repositories_can_be_reviewed(larder: Path, tmp_path: Path) -> None:
    git(larder, "clone", "-q", "--bare", str(larder), str(tmp_path / "bare.git"))

    code, out = invoke("-C", str(tmp_path / "bare.git"), "--base", "main", "--head", "find-items")

    assert code == 1
    assert "Undefined name `limit`" in out


def test_dirty_option_is_suggested_if_only_uncommitted_changes_exist(larder: Path) -> None:
    git(larder, "checkout", "-q", "main")
    assert invoke()[1] == "glue review: there is nothing to review\n"
    (larder / "larder/store.py").write_text("x = undefined_name\n")

    assert "--dirty" in invoke()[1]
    assert "Undefined name" in invoke("--dirty")[1]


def test_two_rules_on_the_same_line_are_two_findings(larder: Path) -> None:
    key = "gh" + "p_" + "A1b2C3d4" * 5
    text = f'def take(name, seen=[]): seen.append(name + "{key}")\n'
    (larder / "larder/take.py").write_text(text)

    out = invoke("--dirty", "--paths", "larder/take.py")[1]

    assert "glue review: 2 findings" in out
    assert "Secret committed: a GitHub token" in out
    assert "mutable data structures" in out


@pytest.mark.parametrize(
    "option", [("-o", "no/x.txt"), ("--record", "no/x.jsonl"), ("collect", "--out", "no/x")]
)
def test_missing_output_folder_is_a_usage_error(larder: Path, option: tuple[str, ...]) -> None:
    code, out = invoke(*option)

    assert (code, "the folder no does not exist" in out) == (2, True)
    assert invoke("--save", "larder/store.py/x")[0] == 2


def test_run_uses_only_rules_if_the_model_has_no_key(
    larder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    assert invoke("collect")[0] == 0

    code, out = invoke("run", "-m", "anthropic:claude-haiku-5-5")

    assert (code, "anthropic:claude-haiku-5-5 has no key and is left out" in out) == (0, True)
    assert storage.load(ReviewRun, "findings.json").prompt == "rules"
    assert invoke("-m", "anthropic")[0] == 2  # the single command needs the key


@pytest.mark.parametrize("text", ["hello\n", "On branch main\nnothing to commit\n"])
def test_text_that_is_not_a_diff_is_a_usage_error(larder: Path, text: str) -> None:
    code, out = invoke("--diff", "-", stdin=text)

    assert code == 2
    assert "this is not a diff" in out


def test_results_of_other_tools_are_included_in_the_review(larder: Path, tmp_path: Path) -> None:
    row = {"ruleId": "no-sleep", "level": "error", "message": {"text": "Do not call take here"}}
    place = {
        "physicalLocation": {
            "artifactLocation": {"uri": "larder/store.py"},
            "region": {"startLine": 16},
        }
    }
    log = {
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": {"name": "semgrep"}}, "results": [{**row, "locations": [place]}]}
        ],
    }
    file = tmp_path / "x.sarif"
    file.write_text(json.dumps(log))

    report = tmp_path / "report.json"
    _, out = invoke("--sarif", str(file), "--format", "json", "--output", str(report))
    assert "semgrep/no-sleep" in {one["rule"] for one in json.loads(report.read_text())["findings"]}
    assert "1 result, 1 in changed files, 0 elsewhere" in out
    assert invoke("--sarif-base", str(file))[0] == 2


def test_paths_and_issues_of_the_command_line_are_in_the_bundle(
    larder: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "b.json")
    assert (
        invoke(
            "collect", "--paths", "tests/**", "--issue", "Rice is lost", "--pr", "5", "--out", out
        )[0]
        == 0
    )

    bundle = storage.load(Bundle, out)

    assert [file.path for file in bundle.files] == ["tests/test_store.py"]
    assert [skip.path for skip in bundle.skipped] == ["larder/store.py"]
    assert (bundle.change.mode, bundle.change.number) == ("pull_request", 5)
    assert "Issue that the change should solve: Rice is lost" in discussion(bundle)
    ignored = str(tmp_path / "c.json")
    invoke("collect", "--paths-ignore", "tests/**", "--out", ignored)
    assert [file.path for file in storage.load(Bundle, ignored).files] == ["larder/store.py"]


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


def test_interrupted_review_prints_the_findings_so_far(larder: Path) -> None:
    argv = [sys.executable, "-c", SLOW, "--base", "main", "--post"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=larder
    ) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "READY\n"
            child.send_signal(signal.SIGINT)
            out, said = child.communicate(timeout=60)
        finally:
            child.kill()

    assert child.returncode == 3
    assert "Finds too much" in out
    assert "Undefined name `limit`" in out
    # Findings of analysers come first, then the progress and the findings of the model.
    rows = said.splitlines()
    assert rows.index(next(row for row in rows if "Undefined name" in row)) < rows.index(
        next(row for row in rows if row.startswith("slow: part 1 of 1: larder/store.py"))
    )
    assert any("Finds too much" in row for row in rows)
    assert "interrupted; these are the findings so far" in said


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("github", ".github/workflows/review.yml"),
        ("gitea", ".gitea/workflows/review.yml"),
        ("gitlab", ".gitlab/review.yml"),
        ("pre-push", ".git/hooks/pre-push"),
    ],
)
def test_init_writes_a_template_and_refuses_to_replace_a_file(
    larder: Path, kind: str, path: str
) -> None:
    commit = "1" * 40
    code, out = invoke("init", kind, "--from", f"ann/glue@{commit}", "-m", "openai:gpt-5-nano")

    text = (larder / path).read_text()
    assert (code, path in out) == (0, True)
    assert "REPLACE" not in text
    assert "OWNER" not in text
    assert ("GLUE_MODEL=openai:gpt-5-nano" in out) == (
        kind != "github"
    )  # templates without the model need the variable
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


def test_diff_command_reads_a_review_whose_title_mentions_run_files(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    storage.save(
        ReviewRun(change=ReviewedChange(title='Write "glue-review-run" and "kind": "selftest"')),
        path,
    )

    assert invoke("diff", str(path), str(path)) == (0, "no difference\n")


def test_every_file_is_new_before_the_first_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLUE_MODEL", raising=False)
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a.py").write_text("breakpoint()\n")

    assert "a.py:1" in invoke("-C", str(tmp_path), "--dirty")[1]
    git(tmp_path, "add", "--all")
    assert "a.py:1" in invoke("-C", str(tmp_path), "--staged")[1]


@pytest.mark.parametrize("chosen", [("--dirty",), ("--staged",), ("--diff", "-")])
def test_path_options_apply_to_every_source_of_changes(
    larder: Path, chosen: tuple[str, ...]
) -> None:
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


def test_secret_files_in_a_diff_are_not_shown(larder: Path) -> None:
    diff = "".join(between(name, None, f"TOKEN={name}-value\n") for name in (".env", "a.py"))

    bundle = from_diff(diff, rules=Config())

    assert [file.path for file in bundle.files] == ["a.py"]
    assert ".env-value" not in bundle.diff
    assert "may contain secrets" in invoke("--diff", "-", stdin=diff)[1]


def test_config_file_that_is_not_utf8_is_a_usage_error(larder: Path) -> None:
    (larder / "bad.toml").write_bytes(b"\xff\xfe")

    assert invoke("--config", "bad.toml")[0] == 2


@pytest.mark.parametrize("model", ["offline", "offline:demo", "offline,offline:demo"])
def test_offline_providers_are_not_asked_and_the_user_is_told(larder: Path, model: str) -> None:
    note = (
        "glue review: the provider offline only plays a model and cannot review; it is left out\n"
    )
    plain = invoke("--format", "json")

    code, out = invoke("-m", model, "--format", "json")

    assert out.count(note) == 1
    rest = out.replace(note, "")
    assert (code, rest.split('"seconds"')[0]) == (plain[0], plain[1].split('"seconds"')[0])


def test_init_writes_the_hook_to_the_folder_that_git_uses(larder: Path) -> None:
    git(larder, "worktree", "add", "-q", "../tree")
    assert invoke("init", "pre-push", "-C", "../tree")[0] == 0
    assert (larder / ".git/hooks/pre-push").stat().st_mode & 0o111

    git(larder, "config", "core.hooksPath", ".hooks")
    assert invoke("init", "pre-push")[0] == 0
    assert (larder / ".hooks/pre-push").is_file()


def test_current_branch_is_reviewed_and_severe_findings_fail(larder: Path) -> None:
    code, out = invoke()

    assert code == 1
    assert "Undefined name `limit`" in out
    assert invoke("--fail-on", "never")[0] == 0


def test_collect_run_and_publish_equal_the_single_command(larder: Path) -> None:
    assert invoke("collect", "--out", "../b.json")[0] == 0
    assert (
        invoke("run", "--bundle", "../b.json", "--out", "../f.json", "--record", "../r.jsonl")[0]
        == 0
    )

    gated = invoke("gate", "--bundle", "../b.json", "--findings", "../f.json", "--format", "json")
    saved = ("--bundle", "../b.json", "--findings", "../f.json", "--fail-on", "never")
    code, out = invoke(
        "publish", *saved, "--dry-run", "--blind", "--forge", "github", "--repo", "o/r", "--pr", "1"
    )

    assert gated[0] == 1
    assert code == 0
    assert '"event": "COMMENT"' in out
    assert invoke("replay", "../r.jsonl", "--fail-on", "never")[0] == 0
    assert invoke("diff", "../f.json", "../r.jsonl") == (0, "no difference\n")


def test_inconclusive_review_exits_with_code_3(larder: Path) -> None:
    invoke("collect", "--out", "../b.json")
    run = ReviewRun(provider="x", finished=True, summary="the the the the the the the the " * 40)
    storage.save(run, larder.parent / "f.json")

    assert invoke("gate", "--bundle", "../b.json", "--findings", "../f.json")[0] == 3


def test_missing_coverage_fails_only_if_coverage_is_required(larder: Path) -> None:
    (larder / "huge.py").write_text("x = 1\n" * 30_000)
    git(larder, "add", "--all")
    git(larder, "commit", "-q", "-m", "huge")

    assert invoke("--fail-on", "never")[0] == 0
    assert invoke("--fail-on", "never", "--require-coverage", "100")[0] == 3


@pytest.mark.parametrize(
    "args",
    [
        ("--staged", "--dirty"),
        ("--base", "no-such-branch"),
        ("--format", "poem"),
        ("replay", "missing.jsonl"),
        ("publish", "--bundle", "missing.json"),
        ("--model", "nobody:nothing"),
    ],
)
def test_usage_errors_exit_with_code_2_and_without_traceback(
    larder: Path, args: Sequence[str]
) -> None:
    code, out = invoke(*args)

    assert code == 2
    assert "Traceback" not in out


def test_empty_change_passes(larder: Path) -> None:
    assert invoke("--staged") == (0, "glue review: there is nothing to review\n")


def test_diff_is_read_from_a_file(larder: Path) -> None:
    (larder.parent / "x.diff").write_text(
        "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,2 @@\n+def f(seen=[]):\n+    return seen\n"
    )

    code, out = invoke("--diff", "../x.diff")

    assert code == 0
    assert "mutable data structures" in out


@pytest.mark.parametrize(
    "name", ["collect", "run", "publish", "gate", "replay", "diff", "doctor", "selftest", "rules"]
)
def test_every_command_has_help(name: str) -> None:
    code, out = invoke(name, "--help")

    assert code == 0
    assert out.startswith("Usage:")


def test_path_option_that_matches_nothing_is_named(larder: Path) -> None:
    code, text = invoke("--paths", "nowhere/**")

    assert code == 0
    assert text == "glue review: no file matches --paths nowhere/**; the change has 2 files\n"


def test_first_review_with_a_folder_for_later_ones_has_no_error(larder: Path) -> None:
    _, text = invoke("--previous", "previous")

    assert "previous has no earlier review yet; the whole change is reviewed" in text
    assert "cannot read" not in text


def test_missing_base_branch_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q", "-b", "odd", "--template=")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")

    code, text = invoke()

    assert code == 2
    assert text == "glue review: no base branch was found; name it with --base\n"


def test_doctor_reports_that_there_are_no_problems_only_if_there_are_none(larder: Path) -> None:
    clean = "no problems found in the workflows"
    folder = larder / ".github" / "workflows"
    folder.mkdir(parents=True)

    assert clean in invoke("doctor")[1]
    (folder / "review.yml").write_text(
        "on: pull_request_target\njobs:\n  x:\n    runs-on: ubuntu-latest\n    steps:\n"
        "      - uses: actions/checkout@v4\n        with:\n"
        "          ref: ${{ github.event.pull_request.head.sha }}\n"
    )
    found = invoke("doctor")[1]

    assert "review.yml" in found
    assert clean not in found


def test_doctor_names_a_tool_for_all_other_checks(larder: Path) -> None:
    assert "zizmor" in invoke("doctor")[1]


def test_label_records_a_decision_that_the_next_review_knows(larder: Path) -> None:
    for _ in range(2):  # the second review writes into the folder of the first
        (larder / "new/saved/findings.json").unlink(missing_ok=True)
        assert "glue review: " in invoke("--save", "new/saved")[1]
    findings = "new/saved/findings.json"
    report = json.loads((larder / findings).read_text())
    assert report["findings"]
    code, text = invoke("label", "zzzz", "wrong", "--findings", findings)
    assert code == 2
    assert "zzzz does not identify exactly one finding in " in text
    mark = text.split("the ids are: ")[1].split(",")[0].strip()

    code, text = invoke("label", mark, "wrong", "it", "is", "meant", "--findings", findings)

    assert code == 0
    memory = (larder / ".glue/dismissed").read_text()
    assert memory.splitlines()[1].startswith(f"{mark} wrong ")
    assert memory.endswith(": it is meant\n")


def test_report_is_on_stdout_and_notes_are_on_stderr(larder: Path) -> None:
    result = CliRunner().invoke(review, ["--format", "json"])

    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"]
    assert result.stderr.startswith("glue review: ")
    assert "of severity high or worse" in result.stderr
    assert "ruff is not installed" not in result.stderr


def test_review_outside_of_ci_is_posted_only_on_request(larder: Path) -> None:
    assert invoke("--no-post")[0] == 1
    assert invoke("--post") == (
        2,
        (
            "glue review: no forge found in the environment; name the forge with"
            " `glue review publish --forge gitea|github|gitlab --repo OWNER/NAME`\n"
        ),
    )

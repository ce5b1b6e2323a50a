"""The exit codes of `glue review`, through the command itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.forge import FakeForge

from glue.agents.review import storage
from glue.agents.review.change.diff import parse
from glue.agents.review.records import (
    Bundle,
    Coverage,
    Finding,
    HunkCoverage,
    ReviewedChange,
    ReviewRun,
)
from glue.cli.app import main

Glue = Callable[..., subprocess.CompletedProcess[str]]

HEAD, BASE = "a" * 40, "b" * 40
DIFF = """diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -1,2 +1,3 @@
 import os
-def load(name):
+def load(name, cache={}):
+    return cache.setdefault(name, os.stat(name))
"""
BUNDLE = Bundle(
    change=ReviewedChange(
        mode="pull_request", repo="octo/demo", number=1, head_sha=HEAD, base_sha=BASE
    ),
    diff=DIFF,
    files=parse(DIFF),
)
FINDING = Finding(
    path="app.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is shared by every call of `load`.",
    severity="high",
    source="script",
)
HUNK = HunkCoverage(path="app.py", hunk=1, state="full", lines=3)
RUN = ReviewRun(
    provider="script",
    finished=True,
    summary="Adds a cache to `load`.",
    coverage=Coverage(hunks=(HUNK,)),
)


@pytest.fixture
def forge() -> Iterator[FakeForge]:
    with FakeForge("github") as server:
        server.pull(DIFF, head=HEAD, base=BASE)
        yield server


def bare() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GITHUB", "CI", "GITEA"))
    }


def save(folder: Path, run: ReviewRun) -> None:
    storage.save(BUNDLE, folder / "bundle.json")
    storage.save(run, folder / "findings.json")


@pytest.fixture
def glue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Glue:
    """Run the command in this process."""

    def call(run: ReviewRun, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        save(tmp_path, run)
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            for name in os.environ.keys() - bare().keys():
                patch.delenv(name)
            for name, value in environ.items():
                patch.setenv(name, value)
            try:
                main(["review", *arguments])
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(bool(end.code))
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return call


def test_exit_code_is_1_for_findings_at_the_threshold_and_0_below(
    tmp_path: Path, glue: Glue, forge: FakeForge
) -> None:
    save(tmp_path, RUN)
    code = "import sys; from glue.cli.app import main; main(sys.argv[1:])"
    passed = subprocess.run(
        [sys.executable, "-c", code, "review", "publish"],
        cwd=tmp_path,
        env={**bare(), **forge.environ},
        timeout=60,
        check=False,
    )
    found = glue(replace(RUN, findings=(FINDING,)), "publish", "--format", "json", **forge.environ)
    milder = glue(
        replace(RUN, findings=(FINDING,)), "publish", "--fail-on", "critical", **forge.environ
    )

    assert (passed.returncode, found.returncode, milder.returncode) == (0, 1, 0)
    assert json.loads(found.stdout)["findings"][0]["line"] == 2
    assert len(forge.pulls[1].inline) == 1


def test_exit_code_is_2_for_usage_errors(glue: Glue) -> None:
    unknown = glue(RUN, "publish", "--nope")
    nowhere = glue(RUN, "publish")

    assert unknown.returncode == nowhere.returncode == 2
    assert "no forge found" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr


def test_exit_code_is_3_for_inconclusive_reviews_and_nothing_is_posted(
    glue: Glue, forge: FakeForge
) -> None:
    garbage = replace(RUN, findings=(), summary="check check check check check check check")
    short = replace(RUN, coverage=Coverage(hunks=(replace(HUNK, state="partial"),)))

    assert glue(garbage, "publish", **forge.environ).returncode == 3
    assert forge.pulls[1].comments == forge.pulls[1].inline == []
    assert glue(short, "gate", "--require-coverage", "100").returncode == 3
    assert glue(short, "gate").returncode == 0


def test_exit_code_is_4_if_the_review_was_not_delivered(glue: Glue, forge: FakeForge) -> None:
    forge.pulls[1].head = "c" * 40

    moved = glue(
        replace(RUN, findings=(FINDING,)), "publish", "--fail-on", "never", **forge.environ
    )

    assert moved.returncode == 4
    assert "the head moved" in moved.stderr


def test_gate_command_needs_no_forge(glue: Glue) -> None:
    found = glue(replace(RUN, findings=(FINDING,)), "gate", "--format", "sarif")

    assert found.returncode == 1
    assert json.loads(found.stdout)["version"] == "2.1.0"


def test_dry_run_prints_the_exact_requests(glue: Glue) -> None:
    options: dict[str, Any] = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "octo/demo",
        "GITHUB_REF": "refs/pull/1/merge",
    }

    dry = glue(replace(RUN, findings=(FINDING,)), "publish", "--dry-run", **options)

    requests = [json.loads(row) for row in dry.stdout.splitlines()]
    assert [(row["method"], row["url"]) for row in requests] == [
        ("POST", "/repos/octo/demo/pulls/1/reviews"),
        ("POST", "/repos/octo/demo/issues/1/comments"),
    ]
    assert requests[0]["body"]["comments"][0]["line"] == 2

"""The workflows and the hook that users copy."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from glue.agents.review import doctor

HOME = Path(__file__).parents[3] / "agents" / "review"
WORKFLOWS = sorted(path for path in (HOME / "ci").glob("*.yml") if path.name != "gitlab.yml")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_doctor_finds_no_problem_except_the_hash_to_fill_in(path: Path) -> None:
    found = [
        str(one)
        for one in doctor.workflow(path.read_text(), path.name)
        if "REPLACE_WITH" not in one.text
    ]

    assert found == []


@pytest.mark.parametrize("path", [HOME / "action.yml", *WORKFLOWS], ids=lambda path: path.name)
def test_scripts_contain_no_workflow_expressions(path: Path) -> None:
    inside, depth = False, 0
    for row in path.read_text().splitlines():
        indent = len(row) - len(row.lstrip())
        if re.match(r"\s*(?:- )?run: \S", row):
            inside, depth = True, indent
        elif row.strip() and indent <= depth:
            inside = False
        assert not (inside and "${{" in row), row


def test_workflows_never_check_out_the_head() -> None:
    for path in WORKFLOWS:
        text = path.read_text()
        assert "pull_request_target" not in text
        assert not re.search(r"ref:.*\.head\.", text)
        assert "permissions: {}" in text or "contents: read" in text


def test_push_hook_reviews_the_pushed_range_and_stops_on_findings(tmp_path: Path) -> None:
    glue = tmp_path / "glue"
    glue.write_text('#!/bin/sh\necho "$@" >> "$LOG"\nexit "$CODE"\n')
    glue.chmod(0o755)
    zero, old, new = "0" * 40, "1" * 40, "2" * 40

    def push(line: str, code: int) -> tuple[int, str]:
        log = tmp_path / "log"
        log.write_text("")
        environ = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "LOG": str(log),
            "CODE": str(code),
        }
        hook = subprocess.run(
            [str(HOME / "ci" / "pre-push"), "origin", "x"],
            input=line,
            text=True,
            env=environ,
            timeout=30,
            check=False,
        )
        return hook.returncode, log.read_text()

    assert push(f"refs/heads/a {new} refs/heads/a {old}\n", 0) == (
        0,
        f"review --range {old}..{new} --no-post\n",
    )
    assert push(f"refs/heads/a {new} refs/heads/a {zero}\n", 1) == (
        1,
        f"review --head {new} --no-post\n",
    )
    assert push(f"(delete) {zero} refs/heads/a {old}\n", 1) == (0, "")
    assert push(f"refs/heads/a {new} refs/heads/a {old}\n", 3)[0] == 0

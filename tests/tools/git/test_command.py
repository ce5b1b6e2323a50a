"""Tests of finding git and of its errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from glue.errors import GitError, GlueError
from glue.tools import git
from glue.tools.git import (
    functions,  # noqa: F401  (loaded before privileges are dropped)
)
from glue.tools.git.command import check_output
from glue.tools.process import Finished


def test_a_git_error_is_a_glue_error() -> None:
    assert issubclass(GitError, GlueError)


@pytest.mark.parametrize(
    ("folder", "target"), [("root/bin", "other/program"), ("other/bin", "root/program")]
)
def test_a_git_program_inside_the_checkout_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, target: str
) -> None:
    for path in (tmp_path / folder / "git", tmp_path / target):
        path.parent.mkdir(parents=True)
    (tmp_path / target).write_text("#!/bin/sh\n")
    (tmp_path / target).chmod(0o755)
    (tmp_path / folder / "git").symlink_to(tmp_path / target)
    monkeypatch.setenv("PATH", f"{tmp_path / folder}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)  # without a root, a git in the current folder is used too

    assert git.find_git() == str(tmp_path / folder / "git")
    assert not git.find_git(str(tmp_path / "root")).startswith(str(tmp_path))


def finished(**given: Any) -> Finished:
    return Finished(**{"code": 0, "out": b"out", "err": b"", "seconds": 1.25, **given})


@pytest.mark.parametrize(
    ("given", "message", "kind"),
    [
        ({"code": 1, "err": b"fatal: no\n"}, "git log failed: fatal: no", "failed"),
        ({"code": 3}, "git log failed: exit code 3", "failed"),
        ({"code": -9, "reason": "cancelled"}, "git log failed: cancelled", "failed"),
        ({"code": 128, "err": b"fatal: Out of memory, malloc failed"}, "malloc failed", "memory"),
        ({"reason": "deadline"}, "git log took too long and was stopped after 1.2 s", "timeout"),
        ({"reason": "cap"}, "git log printed more than 9 bytes and was stopped", "too_large"),
    ],
)
def test_a_failed_command_is_an_error_with_its_reason(
    given: dict[str, Any], message: str, kind: str
) -> None:
    with pytest.raises(GitError) as caught:
        check_output("log", finished(**given), cap=9)

    assert message in str(caught.value)
    assert caught.value.kind == kind


def test_a_long_reason_is_cut_after_300_characters() -> None:
    with pytest.raises(GitError) as caught:
        check_output("log", finished(code=1, err=b"x" * 1000), cap=9)

    reason = str(caught.value).removeprefix("git log failed: ")
    assert len(reason) == 300
    assert reason.startswith("x" * 290)


def test_output_is_returned_if_the_command_succeeds_or_may_be_cut() -> None:
    assert check_output("log", finished(), cap=9) == b"out"
    assert check_output("log", finished(reason="enough", code=-9), cap=9) == b"out"
    assert check_output("log", finished(reason="cap", code=-9), cap=9, cut=True) == b"out"
    assert check_output("diff", finished(code=1), cap=9, codes=(0, 1)) == b"out"

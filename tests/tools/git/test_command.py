"""Tests of finding git and of its errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glue.errors import GitError, GlueError
from glue.tools import git
from glue.tools.git import (
    functions,  # noqa: F401  (loaded before privileges are dropped)
)


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

    assert git.find_git() == str(tmp_path / folder / "git")
    assert not git.find_git(str(tmp_path / "root")).startswith(str(tmp_path))

"""Tests of run_git."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkouts import Run

from glue.errors import GitError
from glue.tools.git import (
    functions,  # noqa: F401  (loaded before privileges are dropped)
    run_git,
)


def test_run_git_refuses_commands_and_options_that_do_more_than_read(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")

    assert run_git(repo, ["rev-parse", head]).decode().strip() == head
    refused = [
        [],
        ["push"],
        ["-c", "x=y", "log"],
        ["log", "--output=x", head],
        ["log", "--outp=x", head],
        ["grep", "-Osh", "x", head],
        ["grep", "--no-index", "x"],
        ["blame", "--contents=/etc/passwd", head],
        ["show", "--ext-diff", head],
        ["log", "--remerge-diff", head],
        ["show", "--diff-merges=remerge", head],
        ["show", "--diff-merges", "r", head],
    ]
    for args in refused:
        with pytest.raises(GitError, match="run_git does not"):
            run_git(repo, args)


def test_output_and_time_are_bounded(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")

    with pytest.raises(GitError, match="printed more than 100 bytes"):
        run_git(repo, ["show", head], cap=100)
    with pytest.raises(GitError, match="took too long"):
        run_git(repo, ["show", head], seconds=0.0)

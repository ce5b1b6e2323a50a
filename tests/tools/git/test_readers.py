"""Tests of run_git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.checkouts import Run

from glue.errors import GitError
from glue.tools.git import (
    build_pathspec,
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


@pytest.mark.parametrize(
    ("args", "trust", "message"),
    [
        ([], False, "run_git does not run 'nothing'; it runs: blame, cat-file, diff-tree, grep,"),
        (["push", "log"], False, "run_git does not run 'push'; it runs: blame, cat-file,"),
        (["status"], False, "run_git does not run 'status'"),
        (["log", "--output=x"], False, "run_git does not accept '--output':"),
        (["log", "--ou=x"], False, "run_git does not accept '--ou':"),
        (["log", "--output=x"], True, "run_git does not accept '--output':"),
        (["grep", "-Osh", "x"], False, "run_git does not accept '-O':"),
        (["log", "-Osh"], True, "run_git does not accept '-O':"),
        (["grep", "--cached", "x"], False, "run_git does not accept '--cached':"),
        (["grep", "--u", "x"], False, "run_git does not accept '--u':"),
        (["grep", "--no", "x"], False, "run_git does not accept '--no':"),
        (["show", "--diff-merges=rem"], False, "run_git does not accept '--remerge-diff':"),
    ],
)
def test_a_refused_command_or_option_is_named(
    repo: Path, args: list[str], trust: bool, message: str
) -> None:
    with pytest.raises(GitError) as caught:
        run_git(repo, args, trust=trust)

    assert str(caught.value).startswith(message)
    assert caught.value.kind == "usage"


def test_words_after_two_dashes_are_paths_and_harmless_options_are_accepted(
    repo: Path, run: Run
) -> None:
    head = run("rev-parse", "HEAD")

    assert run_git(repo, ["log", "--oneline", head, "--", "--output=x"]) == b""
    assert b"second" in run_git(repo, ["log", "-n1", "--diff-merges=first-parent", head])
    assert run_git(repo, ["rev-list", "--count", head]) != b""


def test_output_of_half_a_mebibyte_is_too_long(repo: Path, run: Run) -> None:
    for name, size in (("fits", 512 * 1024 - 1), ("long", 512 * 1024)):
        (repo / name).write_bytes(b"x" * size)
    run("add", "fits", "long")
    run("commit", "-qm", "sizes")
    fits, long = (run("rev-parse", f"HEAD:{name}") for name in ("fits", "long"))

    assert len(run_git(repo, ["cat-file", "blob", fits])) == 512 * 1024 - 1
    with pytest.raises(GitError, match="printed more than 524288 bytes"):
        run_git(repo, ["cat-file", "blob", long])


def test_a_trusted_checkout_may_show_its_index(repo: Path, run: Run) -> None:
    (repo / "a.py").write_text("staged\n")
    run("add", "a.py")

    assert b"+staged" in run_git(repo, ["diff", "--cached"], trust=True)


def test_a_folder_without_git_is_not_a_trusted_checkout(repo: Path) -> None:
    (repo / "below").mkdir()

    with pytest.raises(GitError, match="below is not the top of a git checkout") as caught:
        run_git(repo / "below", ["status"], trust=True)

    assert caught.value.kind == "unsafe"


def test_a_broken_checkout_does_not_lead_to_the_repository_around_it(repo: Path) -> None:
    (repo / "below/.git").mkdir(parents=True)

    with pytest.raises(GitError, match="not a git repository"):
        run_git(repo / "below", ["status"], trust=True)


def test_the_error_of_a_trusted_command_names_the_command(repo: Path) -> None:
    with pytest.raises(GitError, match="git log failed: fatal: "):
        run_git(repo, ["log", "no-such-branch"], trust=True)


def test_paths_are_given_once_and_only_as_pathspecs_of_this_package(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")
    specs = build_pathspec(["a.py"])

    assert b"a.py" in run_git(repo, ["show", "--name-only", head], pathspec=specs)
    with pytest.raises(GitError, match="not both") as caught:
        run_git(repo, ["show", head, "--", "x"], pathspec=specs)
    assert caught.value.kind == "usage"
    with pytest.raises(GitError, match="was not made by build_pathspec") as caught:
        run_git(repo, ["show", head], pathspec=["a.py"])
    assert caught.value.kind == "usage"


@pytest.mark.parametrize("place", ["repo/bin", "bin"])
def test_a_trusted_command_starts_no_program_of_the_checkout(
    repo: Path, run: Run, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    program = repo.parent / place / "tidy"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {repo.parent}/started\ncat\n")
    program.chmod(0o755)
    run("config", "filter.tidy.clean", "tidy")
    (repo / ".gitattributes").write_text("*.py filter=tidy\n")
    (repo / "a.py").write_text("changed\n")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}bin{os.pathsep}{os.environ['PATH']}")

    run_git(repo, ["diff"], trust=True)

    assert (repo.parent / "started").exists() is (place == "bin")

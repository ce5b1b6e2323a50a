"""Tests of pathspecs."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkouts import Run

from glue.errors import GitError
from glue.tools.git import (
    Repo,
    build_pathspec,
    functions,  # noqa: F401  (loaded before privileges are dropped)
    literal_pathspec,
    run_git,
)
from glue.tools.git.pathspec import Scope


def test_a_pathspec_is_empty_only_if_there_are_no_patterns() -> None:
    assert build_pathspec([], []) == build_pathspec([""], [" "]) == []
    assert build_pathspec([], ["x"])[0] == ":(glob)**"
    assert ":(glob)**" not in build_pathspec(["a"], ["x"])
    assert all(spec.startswith(":(exclude,glob)") for spec in build_pathspec(["a"], ["x"])[2:])


@pytest.mark.parametrize(
    ("includes", "excludes", "expected"),
    [
        (["*.py"], [], ["a.py", "src/b.py", "src/deep/c.py"]),
        (["src"], [], ["src/b.py", "src/b.txt", "src/deep/c.py"]),
        (["src/"], ["deep"], ["src/b.py", "src/b.txt"]),
        (["src/*.py"], [], ["src/b.py"]),
        (["src/**"], [], ["src/b.py", "src/b.txt", "src/deep/c.py"]),
        (["**/*.py"], ["src/**"], ["a.py"]),
        ([], ["*.py"], ["-x", ":odd", "src/b.txt"]),
        ([":odd"], [], [":odd"]),
        (["-x"], [], ["-x"]),
    ],
)
def test_a_pathspec_selects_the_expected_files(
    tmp_path: Path, run: Run, includes: list[str], excludes: list[str], expected: list[str]
) -> None:
    root = tmp_path / "repo"
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/b.txt", ":odd", "-x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    run("init", "-q")
    run("commit", "-q", "--allow-empty", "-m", "empty")
    run("add", "--", ".")
    run("commit", "-qm", "all")

    pathspec = build_pathspec(includes, excludes)
    with Repo(root) as opened:
        changes = opened.changes("HEAD~1", "HEAD", pathspec=pathspec)
        shas = [opened.resolve("HEAD~1"), opened.resolve("HEAD")]
    listed = run_git(root, ["diff-tree", "-r", "--name-only", *shas], pathspec=pathspec)

    assert sorted(change.path for change in changes) == expected
    assert sorted(listed.decode().split()) == expected
    scope = Scope(includes, excludes)
    files = (":odd", "-x", "a.py", "src/b.py", "src/b.txt", "src/deep/c.py")
    assert [name for name in sorted(files) if scope.covers(name)] == expected


@pytest.mark.parametrize("spec", ["*.py", ":(attr:x)*.py", ":(top)x", ":!x", ":(glob,icase)x"])
def test_run_git_accepts_no_other_form_of_pathspec(repo: Path, spec: str) -> None:
    with pytest.raises(GitError, match="was not made by build_pathspec"):
        run_git(repo, ["log", "--oneline"], pathspec=[spec])


def test_run_git_accepts_either_paths_or_a_pathspec(repo: Path) -> None:
    with pytest.raises(GitError, match="not both"):
        run_git(repo, ["log", "--", "a.py"], pathspec=[literal_pathspec("a.py")])


def test_a_literal_pathspec_includes_or_excludes_one_path() -> None:
    assert literal_pathspec("a*.py") == ":(top,literal)a*.py"
    assert literal_pathspec("a*.py", exclude=True) == ":(exclude,top,literal)a*.py"


def test_a_pattern_with_an_open_bracket_selects_no_file_as_in_git(repo: Path, run: Run) -> None:
    (repo / "[a").write_text("x\n")
    run("add", "[a")
    run("commit", "-qm", "odd")

    with Repo(repo) as opened:
        assert opened.changes("HEAD~1", "HEAD", pathspec=build_pathspec(["[a"])) == []
    assert not Scope(["[a"]).covers("[a")


def test_a_scope_is_given_by_lists() -> None:
    with pytest.raises(TypeError, match="includes must be a list"):
        Scope("src")
    with pytest.raises(TypeError, match="excludes must be a list"):
        Scope([], "src")

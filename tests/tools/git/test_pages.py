"""Tests of the pages that the git tools return."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkouts import Run

from glue.errors import ToolError
from glue.tools.fs import Blocklist
from glue.tools.git import Repo
from glue.tools.git.pages import PAGE, blame_page, commit_page, diff_page, file_page
from glue.tools.git.pathspec import Scope


def test_a_page_of_a_diff_covers_only_its_scope(repo: Path) -> None:
    with Repo(repo) as opened:
        everything = diff_page(opened, "main", "work", "", 1, None)
        one = diff_page(opened, "main", "work", "", 1, None, scope=Scope(["*.py"]))

    assert "6 files changed" in everything
    assert "1 files changed" in one
    assert "a.py" in one
    assert ".env" not in one


def test_files_of_the_block_list_are_counted_within_the_scope_only(repo: Path) -> None:
    with Repo(repo) as opened:
        without = diff_page(opened, "main", "work", "", 1, Blocklist(), scope=Scope([], [".env"]))
        hidden = diff_page(opened, "main", "work", "", 1, Blocklist())

    assert "block list" not in without
    assert "[1 files are on the block list and are not shown]" in hidden
    assert "TOKEN" not in without + hidden


def test_a_page_of_a_commit_has_its_message_and_its_changes(repo: Path) -> None:
    with Repo(repo) as opened:
        page = commit_page(opened, "work", scope=Scope(["a.py"]))

    assert "    second\n" in page
    assert "+seven" in page
    assert "image.bin" not in page


def test_a_page_of_a_folder_lists_what_the_scope_has_below_it(repo: Path, run: Run) -> None:
    (repo / "one/two").mkdir(parents=True)
    (repo / "one/two/x.py").write_text("x\n")
    (repo / "one/y.txt").write_text("y\n")
    run("add", "one")
    run("commit", "-qm", "folders")

    with Repo(repo) as opened:
        whole = file_page(opened, "HEAD", "one", 1)
        limited = file_page(opened, "HEAD", "one", 1, Scope(["*.py"]))

    assert whole == "[a folder]\none/two\none/y.txt"
    assert limited == "[a folder]\none/two"


def test_a_missing_file_is_not_answered_with_names_outside_the_scope(repo: Path) -> None:
    with Repo(repo) as opened:
        with pytest.raises(ToolError, match=r"did you mean a\.py"):
            file_page(opened, "HEAD", "src/a.py", 1)
        with pytest.raises(ToolError, match=r"does not exist in 'HEAD'$"):
            file_page(opened, "HEAD", "src/a.py", 1, Scope(["src"]))


def test_lines_past_the_end_have_no_author(repo: Path) -> None:
    with Repo(repo) as opened, pytest.raises(ToolError, match="the file has 30 lines"):
        blame_page(opened, "HEAD", "a.py", 31, 0)


def test_the_summary_and_the_patch_fill_one_page(repo: Path, run: Run) -> None:
    for number in range(150):
        (repo / f"{number:03}.txt").write_text(f"{'x' * 80}\n" * 10)
    run("add", ".")
    run("commit", "-qm", "many")

    with Repo(repo) as opened:
        page = diff_page(opened, "work~1", "work", "", 1, None)

    patch = page[page.index("diff --git") :]
    below = page[: page.index("diff --git")]
    assert below.count("\n") > 150
    note = patch[patch.rindex("\n[") :]
    assert PAGE - 200 < len(page) - len(note) <= PAGE

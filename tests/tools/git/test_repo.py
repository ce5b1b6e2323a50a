"""Tests of Repo in ordinary repositories."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.checkouts import Run

from glue.errors import GitError
from glue.tools.git import Repo, commit_page, run_git
from glue.tools.landlock import has_landlock


def test_a_sha256_repository_is_read(tmp_path: Path, run: Run) -> None:
    root = tmp_path / "wide"
    root.mkdir()
    run("init", "-q", "-b", "main", "--object-format=sha256", where="wide")
    (root / "f").write_text("x\n")
    run("add", ".", where="wide")
    run("commit", "-qm", "wide", where="wide")

    with Repo(root) as opened:
        assert len(opened.resolve("HEAD")) == 64
        assert opened.cat_file("HEAD:f") == b"x\n"
        assert "+x" in commit_page(opened, "HEAD")


def test_an_empty_file_is_a_change_in_every_kind_of_repository(tmp_path: Path, run: Run) -> None:
    for kind in ("sha1", "sha256"):
        root = tmp_path / kind
        root.mkdir()
        run("init", "-q", "-b", "main", f"--object-format={kind}", where=kind)
        (root / "empty").touch()
        run("add", ".", where=kind)
        run("commit", "-qm", "add", where=kind)
        run("rm", "-q", "empty", where=kind)
        run("commit", "-qm", "remove", where=kind)

        with Repo(root) as opened:
            pages = [commit_page(opened, name) for name in ("HEAD~1", "HEAD")]

        assert "A empty +0 -0" in pages[0]
        assert "D empty +0 -0" in pages[1]


def test_long_commit_messages_are_returned_in_full(repo: Path, run: Run) -> None:
    for number in range(5):
        (repo / "message").write_text(f"{number}\n\n" + "x" * 300_000)
        run("commit", "-q", "--allow-empty", "-F", "message")

    with Repo(repo) as opened:
        found = opened.log("main", "work")

    assert [len(commit.message) for commit in found[:5]] == [300_003] * 5


def test_a_temporary_directory_that_is_already_removed_does_not_matter(repo: Path) -> None:
    opened = Repo(repo)

    shutil.rmtree(opened.directory)

    opened.close()


def test_names_are_resolved_with_steps_and_short_hashes(repo: Path, run: Run) -> None:
    run("tag", "-a", "v1", "-m", "tag", "main")
    head = run("rev-parse", "HEAD")

    with Repo(repo) as opened:
        assert (
            opened.resolve("@")
            == opened.resolve(head[:10])
            == opened.resolve("refs/heads/work")
            == head
        )
        assert (
            opened.resolve("HEAD~1")
            == opened.resolve("work^")
            == opened.resolve("v1")
            == run("rev-parse", "main")
        )
        for name in (
            "",
            "nope",
            "HEAD~9",
            "-x",
            "a..b",
            "HEAD:a.py",
            "HEAD@{1}",
            "x\0y",
            "v1^{tree}",
            "\ud800",
        ):
            with pytest.raises(GitError):
                opened.resolve(name)


def test_errors_name_a_missing_repository_and_a_branch_without_commits(
    tmp_path: Path, run: Run
) -> None:
    with pytest.raises(GitError, match="is not a directory"):
        Repo(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GitError, match=r"\.git is missing"):
        Repo(tmp_path / "empty")
    run("init", "-q", where="empty")

    with (
        Repo(tmp_path / "empty") as opened,
        pytest.raises(GitError, match="no branch, tag or commit is called 'HEAD'"),
    ):
        opened.resolve("HEAD")


def test_trees_files_and_changes_are_read(repo: Path) -> None:
    with Repo(repo) as opened:
        assert [entry.path for entry in opened.list_tree("main")] == [
            "a.py",
            "old name.txt",
            "run.sh",
        ]
        assert [hit.line for hit in opened.grep("sev.n", "work", ["a.py"])] == [8]
        assert opened.grep("nothing at all", "work") == []
        assert opened.cat_file("work", "a.py", cap=5, cut=True) == b"line "
        with pytest.raises(GitError, match="larger than 5 bytes"):
            opened.cat_file("work", "a.py", cap=5)
        with pytest.raises(GitError, match="not a path in a tree"):
            opened.cat_file("work", "../a.py")
        assert {change.path: change.status for change in opened.changes("main", "work")}[
            "run.sh"
        ] == "M"
        assert opened.entry("work", "run.sh").mode == "100755"  # type: ignore[union-attr]


def test_the_temporary_directory_is_removed(repo: Path) -> None:
    with Repo(repo) as opened:
        directory = Path(opened.directory)
        assert directory.is_dir()

    assert not directory.exists()
    with pytest.raises(GitError, match="closed"):
        opened.resolve("HEAD")


def test_a_refused_repository_leaves_no_temporary_files(
    repo: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    (repo / ".git/config").write_bytes(b"#" * (2 * 1024 * 1024))

    with pytest.raises(GitError, match="larger than"):
        Repo(repo)

    assert not list(scratch.iterdir())


def test_objects_swapped_in_after_opening_are_not_read(
    repo: Path, run: Run, tmp_path: Path
) -> None:
    if not has_landlock():
        pytest.skip("needs Landlock")
    (tmp_path / "victim").mkdir()
    run("init", "-q", where="victim")
    (tmp_path / "victim/secret").write_text("secret")
    sha = run("hash-object", "-w", "secret", where="victim")
    folder, theirs = repo / ".git/objects" / sha[:2], tmp_path / "victim/.git/objects" / sha[:2]
    folder.rename(tmp_path / "away") if folder.exists() else None
    leaked = blocked = 0
    for swap in range(40):
        with Repo(repo) as opened:
            if swap % 2:
                folder.symlink_to(theirs)
            else:
                (repo / ".git/objects/info/alternates").write_text(f"{theirs.parent}\n")
            try:
                leaked += opened.blob(sha) == b"secret"
            except GitError:
                blocked += 1
            folder.unlink(missing_ok=True)
            (repo / ".git/objects/info/alternates").unlink(missing_ok=True)

    assert (leaked, blocked) == (0, 40)


def test_errors_have_a_kind(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")
    with Repo(repo) as opened:
        calls: dict[str, Callable[[], object]] = {
            "missing": lambda: opened.resolve("nope"),
            "too_large": lambda: run_git(repo, ["show", head], cap=100),
            "timeout": lambda: run_git(repo, ["show", head], seconds=0.0),
            "usage": lambda: run_git(repo, ["push"]),
            "unsafe": lambda: run_git(repo / ".git", ["status"], trust=True),
        }
        for kind, call in calls.items():
            with pytest.raises(GitError) as caught:
                call()
            assert caught.value.kind == kind


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_closed_repository_leaves_no_descriptor_open(repo: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))

    with Repo(repo) as opened:
        opened.cat_file("work", "a.py")
        during = os.listdir("/proc/self/fd")

    assert len(during) > len(before)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_an_argument_that_cannot_be_passed_to_git_is_an_error(repo: Path) -> None:
    whys = {
        "a\0b": "contains a NUL character",
        "a" * (64 * 1024 + 1): "has 65537 characters; at most 65536 are allowed",
        "\ud800": "contains a lone surrogate",
    }

    with Repo(repo) as opened:
        for path, why in whys.items():
            with pytest.raises(GitError, match=f"an argument {why}") as caught:
                opened.log("", "HEAD", paths=[path])
            assert caught.value.kind == "usage"
        assert opened.log("", "HEAD", paths=["a" * 64 * 1024]) == []


def test_a_hash_must_be_complete_and_name_a_file(repo: Path, run: Run) -> None:
    with Repo(repo) as opened:
        with pytest.raises(GitError, match="'abc' is not a full hash") as caught:
            opened.blob("abc")
        assert caught.value.kind == "usage"
        head = run("rev-parse", "HEAD")
        with pytest.raises(GitError, match=f"{head[:12]} is a commit, not a file") as caught:
            opened.blob(head)
        assert caught.value.kind == "missing"


def test_branches_without_a_common_commit_have_no_merge_base(repo: Path, run: Run) -> None:
    run("checkout", "-q", "--orphan", "alone")
    run("commit", "-qm", "alone")

    with Repo(repo) as opened, pytest.raises(GitError) as caught:
        opened.merge_base("alone", "main")

    assert str(caught.value) == "'alone' and 'main' share no commit"
    assert caught.value.kind == "missing"

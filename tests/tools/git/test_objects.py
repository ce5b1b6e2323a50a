"""Tests of reading objects and checking them against their hashes."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from fakes.checkouts import Lab

from glue.errors import GitError, GlueError
from glue.tasks import StopFlag
from glue.tools import git
from glue.tools.git import (
    Repo,
    functions,  # noqa: F401  (loaded before privileges are dropped)
)


def test_objects_are_read_by_one_process(repo: Path, started: list[str]) -> None:
    with Repo(repo) as opened:
        for name in ("a.py", "run.sh", "a.py"):
            opened.cat_file("work", name)
        opened.resolve("HEAD~1")

    assert started == ["cat-file"]


def test_one_reader_serves_several_threads(repo: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Repo(repo) as opened, ThreadPoolExecutor(8) as pool:
        texts = list(
            pool.map(
                lambda n: opened.cat_file("work", ("a.py", "run.sh")[n % 2], cap=5, cut=True),
                range(40),
            )
        )

    assert texts == [b"line ", b"x\n"] * 20


def test_a_cancelled_read_does_not_claim_that_it_took_too_long(repo: Path) -> None:
    stop = StopFlag()

    with Repo(repo, stop=stop) as opened, pytest.raises(GlueError, match="was cancelled"):
        opened.resolve("HEAD~1")
        stop.set()
        opened.cat_file("work", "a.py")


def test_a_file_whose_content_does_not_match_its_hash_is_refused(lab: Lab) -> None:
    sha = lab.sha("work:a.py")
    path = lab.dot / "objects" / sha[:2] / sha[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 7\0forged\n"))

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.cat_file("work", "a.py")


def test_a_forged_tree_is_found_by_a_comparison(lab: Lab) -> None:
    true, other = lab.sha("work^{tree}"), lab.sha("main^{tree}")
    path = lab.dot / "objects" / true[:2] / true[2:]
    path.chmod(0o644)
    path.write_bytes((lab.dot / "objects" / other[:2] / other[2:]).read_bytes())

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.changes("main", "work")


@pytest.mark.parametrize("name", ["a.py", "new.py"])
def test_a_forged_file_is_found_by_a_comparison(lab: Lab, name: str) -> None:
    (lab.root / name).write_text("changed\n")
    (lab.root / "empty").touch()
    lab.git("add", "-f", name, "empty")
    lab.git("commit", "-qm", "change")
    sha, old = (
        lab.sha(f"HEAD:{name}"),
        lab.git("show", "HEAD~1:a.py") + "\n" if name == "a.py" else "",
    )

    with git.Repo(lab.root) as repo:
        assert {change.path for change in repo.changes("HEAD~1", "HEAD")} == {name, "empty"}
    path = lab.dot / "objects" / sha[:2] / sha[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(f"blob {len(old)}\0{old}".encode()))
    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.changes("HEAD~1", "HEAD")


def test_a_forged_folder_is_found_by_a_comparison(lab: Lab) -> None:
    folder = lab.root / "folder"
    for text in ("one\n", "two\n"):
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text(text)
        lab.git("add", "-f", "folder/file")
        lab.git("commit", "-qm", text)
    true, other = lab.sha("HEAD:folder"), lab.sha("HEAD~1:folder")
    path = lab.dot / "objects" / true[:2] / true[2:]
    path.chmod(0o644)
    path.write_bytes((lab.dot / "objects" / other[:2] / other[2:]).read_bytes())

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.changes("HEAD~1", "HEAD")


def test_a_missing_object_is_an_error_that_names_it(lab: Lab) -> None:
    sha = lab.sha("work:a.py")
    (lab.dot / "objects" / sha[:2] / sha[2:]).unlink()

    with git.Repo(lab.root) as repo, pytest.raises(GitError) as caught:
        repo.cat_file("work", "a.py")

    assert str(caught.value) == (
        f"object {sha[:12]} is missing: the repository is incomplete, damaged or forged"
    )
    assert caught.value.kind == "missing"

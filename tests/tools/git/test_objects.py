"""Tests of reading objects and checking them against their hashes."""

from __future__ import annotations

import subprocess
import time
import zlib
from pathlib import Path

import pytest
from fakes.checkouts import Lab, Run

from glue.errors import GitError, GlueError
from glue.tasks import StopFlag
from glue.tools import git
from glue.tools.git import (
    Repo,
    functions,  # noqa: F401  (loaded before privileges are dropped)
)
from glue.tools.git.objects import GitObject, ObjectReader, parse_tree


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

    with Repo(repo, stop=stop) as opened:
        head = opened.resolve("HEAD~1")
        stop.set()
        with pytest.raises(GitError, match=f"^reading object {head[:12]} was cancelled$") as caught:
            opened.blob(head)
    assert caught.value.kind == "timeout"


def test_a_read_that_takes_too_long_is_stopped(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")

    with Repo(repo, seconds=0.0) as opened:
        with pytest.raises(GitError, match=f"^reading object {head[:12]} took too long") as caught:
            opened.blob(head)
        assert caught.value.kind == "timeout"


@pytest.mark.parametrize("program", ["true", "read line"])
def test_a_git_process_that_ends_without_an_answer_is_an_error(program: str) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        argv, pipe = ["sh", "-c", program], subprocess.PIPE
        child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, start_new_session=True)
        if program == "true":
            child.wait()  # so that the name of the object cannot be sent
        started.append(child)
        return child

    reader = ObjectReader(start, None)
    for _ in range(2):
        with pytest.raises(GitError, match=r"^object aaaaaaaaaaaa cannot be read: ") as caught:
            reader.read("a" * 40, until=time.monotonic() + 10)
        assert caught.value.kind == "damaged"

    assert [each.returncode is None for each in started] == [False, False]
    assert all(pipe.closed for each in started for pipe in (each.stdin, each.stdout) if pipe)


@pytest.mark.parametrize(
    ("answer", "state"),
    [("", "missing"), ("aaa missing", "missing"), ("aaa ambiguous", "ambiguous")],
)
def test_an_object_that_git_cannot_find_is_an_error_with_the_word_of_git(
    answer: str, state: str
) -> None:
    argv, pipe = ["sh", "-c", f"read line; echo '{answer}'; read line"], subprocess.PIPE
    reader = ObjectReader(
        lambda: subprocess.Popen(argv, stdin=pipe, stdout=pipe, start_new_session=True), None
    )

    with pytest.raises(GitError) as caught:
        reader.read("a" * 40, until=time.monotonic() + 10)
    reader.close()

    assert str(caught.value).startswith(f"object aaaaaaaaaaaa is {state}: ")
    assert caught.value.kind == "missing"


def test_a_comparison_of_too_many_folders_is_refused(
    repo: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (repo / f"folder{number}").mkdir()
        (repo / f"folder{number}/file").write_text(str(number))
    run("add", ".")
    run("commit", "-qm", "folders")
    top = 1  # the pair of the two trees themselves

    with Repo(repo) as opened:
        monkeypatch.setattr("glue.tools.git.objects.MAX_PAIRS", top + 5)
        assert len(opened.changes("work~1", "work")) == 6
        monkeypatch.setattr("glue.tools.git.objects.MAX_PAIRS", top + 4)
        with pytest.raises(GitError, match="too many folders differ") as caught:
            opened.changes("work~1", "work")
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize(
    "content",
    [b" name\0" + b"x" * 20, b"100644name\0", b"100644 name" + b"x" * 20, b"100644 name\0xxx"],
)
def test_a_tree_without_a_mode_or_a_whole_hash_is_damaged(content: bytes) -> None:
    entry = b"100644 first\0" + b"x" * 20

    for before in (b"", entry):
        with pytest.raises(GitError, match="tree aaaaaaaaaaaa cannot be read") as caught:
            parse_tree(GitObject("a" * 40, "tree", before + content))
        assert caught.value.kind == "damaged"
    assert [each.path for each in parse_tree(GitObject("a" * 40, "tree", entry * 2))] == [
        "first"
    ] * 2


def test_a_file_of_exactly_the_limit_is_read_and_checked(lab: Lab) -> None:
    sha = lab.sha("work:a.py")
    path = lab.dot / "objects" / sha[:2] / sha[2:]

    with git.Repo(lab.root) as repo:
        content = repo.cat_file("work", "a.py")
        size = len(content)
        assert repo.cat_file("work", "a.py", cap=size) == content
        assert repo.cat_file("work", "a.py", cap=size - 1, cut=True) == content[:-1]
        with pytest.raises(
            GitError, match=f"^blob {sha[:12]} is larger than {size - 1} b"
        ) as caught:
            repo.cat_file("work", "a.py", cap=size - 1)
        assert caught.value.kind == "too_large"
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob %d\0" % size + content.replace(b"line", b"evil")))
    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.cat_file("work", "a.py", cap=size, cut=True)


def test_a_file_whose_content_does_not_match_its_hash_is_refused(lab: Lab) -> None:
    sha = lab.sha("work:a.py")
    path = lab.dot / "objects" / sha[:2] / sha[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 7\0forged\n"))

    with git.Repo(lab.root) as repo, pytest.raises(GitError) as caught:
        repo.cat_file("work", "a.py")

    assert str(caught.value).startswith((f"blob {sha[:12]} does not", f"object {sha[:12]} cannot"))
    assert caught.value.kind == "damaged"


def test_a_forged_tree_is_found_by_a_comparison(lab: Lab) -> None:
    true, other = lab.sha("work^{tree}"), lab.sha("main^{tree}")
    path = lab.dot / "objects" / true[:2] / true[2:]
    path.chmod(0o644)
    path.write_bytes((lab.dot / "objects" / other[:2] / other[2:]).read_bytes())

    for names in (("main", "work"), ("work", "main")):
        with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
            repo.changes(*names)


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


def test_a_folder_that_did_not_change_is_not_read_by_a_comparison(lab: Lab) -> None:
    for text in ("one\n", "two\n"):
        for name in ("same/file", "other/file"):
            (lab.root / name).parent.mkdir(exist_ok=True)
        (lab.root / "same/file").write_text("same\n")
        (lab.root / "other/file").write_text(text)
        lab.git("add", "-f", "same", "other")
        lab.git("commit", "-qm", text)
    same = lab.sha("HEAD:same")
    (lab.dot / "objects" / same[:2] / same[2:]).unlink()

    with git.Repo(lab.root) as repo:
        (change,) = repo.changes("HEAD~1", "HEAD")

    assert (change.path, change.added, change.deleted) == ("other/file", 1, 1)
    assert (change.old_mode, change.new_mode) == ("100644", "100644")
    assert (change.old_sha, change.new_sha) == (
        lab.sha("HEAD~1:other/file"),
        lab.sha("HEAD:other/file"),
    )


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

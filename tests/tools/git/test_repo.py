"""Tests of Repo in ordinary repositories."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.checkouts import Run, import_commits, import_files

from glue.errors import GitError
from glue.tools.git import FileChange, GrepHit, Repo, TreeEntry, commit_page, run_git
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
    for call in (lambda: opened.resolve("HEAD"), lambda: opened.blob("0" * 40)):
        with pytest.raises(GitError, match="this Repo is closed; open another one") as caught:
            call()
        assert caught.value.kind == "usage"


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
            with pytest.raises(GitError, match=f"an argument of git {why}") as caught:
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


def test_the_error_for_a_missing_merge_base_advises_to_fetch_history_of_a_shallow_clone(
    repo: Path, run: Run, tmp_path: Path
) -> None:
    origin = f"file://{repo}"
    run("clone", "-q", "--depth=1", "--no-single-branch", origin, "shallow", where=".")

    with Repo(tmp_path / "shallow") as opened, pytest.raises(GitError) as caught:
        opened.merge_base("origin/main", "HEAD")

    why = "share no commit; the clone is shallow: fetch more history"
    assert str(caught.value) == f"'origin/main' and 'HEAD' {why}"


def test_the_lines_of_a_file_with_tabs_in_its_name_are_counted(repo: Path, run: Run) -> None:
    (repo / "one\ttwo\tthree").write_text("line\n")
    run("add", ".")
    run("commit", "-qm", "tabs")

    with Repo(repo) as opened:
        changes = {change.path: change for change in opened.changes("work~1", "work")}

    found = changes["one\ttwo\tthree"]
    assert (found.added, found.deleted) == (1, 0)


def test_a_repository_that_is_not_closed_leaves_no_temporary_directory(repo: Path) -> None:
    opened = Repo(repo)
    directory = Path(opened.directory)

    del opened
    gc.collect()

    assert not directory.exists()


def test_a_name_has_the_same_hash_as_long_as_the_repository_is_open(
    repo: Path, run: Run, started: list[str]
) -> None:
    with Repo(repo) as opened:
        before = opened.resolve("work")
        run("commit", "-q", "--allow-empty", "-m", "newer")
        started.clear()

        assert opened.resolve("work") == before != run("rev-parse", "work")
        assert opened.resolve(before) == before
    assert started == ["rev-parse"]  # only the one of this test


def test_a_hash_with_two_meanings_is_refused(repo: Path, run: Run) -> None:
    for text in ("4827", "11742"):
        (repo / "file").write_text(f"{text}\n")
        run("hash-object", "-w", "file")

    with Repo(repo) as opened:
        with pytest.raises(GitError, match="51d2738 matches 2 objects; give more digits") as caught:
            opened.resolve("51d2738")
        assert caught.value.kind == "usage"
        with pytest.raises(GitError, match="is not a commit of this repository") as caught:
            opened.resolve(run("hash-object", "file")[:12])
        assert caught.value.kind == "missing"


def test_files_and_folders_of_a_commit_are_listed(repo: Path, run: Run) -> None:
    for name in ("src/deep/a.py", "src/b.txt"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("x\n")
    run("add", "src")
    run("commit", "-qm", "folders")
    file, folder = run("rev-parse", "HEAD:src/b.txt"), run("rev-parse", "HEAD:src/deep")
    entry = TreeEntry(mode="100644", kind="blob", sha=file, path="src/b.txt")
    below = TreeEntry(mode="040000", kind="tree", sha=folder, path="src/deep")

    with Repo(repo) as opened:
        assert "src/deep/a.py" in [each.path for each in opened.list_tree("HEAD")]
        assert opened.list_tree("HEAD", "src/")[0] == entry
        assert [each.path for each in opened.list_tree("HEAD", "src")] == [
            *["src/b.txt", "src/deep/a.py"]
        ]
        assert opened.list_tree("HEAD", "src/b.txt") == [entry]
        assert opened.list_tree("HEAD", "src", recursive=False) == [entry, below]
        assert opened.entry("HEAD", "src/b.txt") == entry
        assert opened.entry("HEAD", "src/deep/") == below
        assert opened.entry("HEAD", "src/b.txt/x") is None
        assert opened.entry("HEAD", "none/b.txt") is None
        assert opened.entry("HEAD", "src/none") is None
        for path in ("", "/", "/src", "src//deep", "src/./deep", "src/../src", "a\0b"):
            with pytest.raises(GitError, match="is not a path in a tree") as caught:
                opened.entry("HEAD", path)
            assert caught.value.kind == "usage"
        with pytest.raises(GitError, match="'HEAD' does not contain a file 'src'") as caught:
            opened.cat_file("HEAD:src")
        assert caught.value.kind == "missing"
        assert opened.cat_file("HEAD:src/b.txt") == opened.cat_file("HEAD", "src/b.txt") == b"x\n"


def test_lines_that_match_are_found_in_the_text_files_of_a_commit(repo: Path, run: Run) -> None:
    (repo / "b.txt").write_bytes(b"one\r\nTwo\r\ntwo: \xff\n")
    run("add", "b.txt")
    run("commit", "-qm", "lines")

    with Repo(repo) as opened:
        assert opened.grep("^(one|two)", "HEAD", ["b.txt"]) == [
            GrepHit(path="b.txt", line=1, text="one"),
            GrepHit(path="b.txt", line=3, text="two: \ufffd"),
        ]
        assert [hit.line for hit in opened.grep("two", "HEAD", ["b.txt"], ignore_case=True)] == [
            2,
            3,
        ]
        assert len(opened.grep("line", "HEAD", limit=3)) == 3
        found = opened.grep("^line 1$|^text 1$", "HEAD", limit=2)
        assert [(hit.path, hit.line) for hit in found] == [("a.py", 2), ("new ñame.txt", 2)]
        assert len(opened.grep("line 1$|text 1$", "HEAD", limit=1)) == 1


def test_200_hits_are_returned_by_default(repo: Path, run: Run) -> None:
    (repo / "b.txt").write_text("same\n" * 201)
    run("add", "b.txt")
    run("commit", "-qm", "lines")

    with Repo(repo) as opened:
        assert len(opened.grep("same", "HEAD")) == 200


def test_more_hits_than_half_a_mebibyte_are_cut_after_a_whole_line(repo: Path, run: Run) -> None:
    (repo / "wide.txt").write_text(f"needle{'x' * 3994}\n" * 200)
    run("add", "wide.txt")
    run("commit", "-qm", "wide")

    with Repo(repo) as opened:
        hits = opened.grep("needle", "HEAD")
        assert len(opened.blame("HEAD", "wide.txt").encode()) == 512 * 1024

    assert len(hits) == 129
    assert {len(hit.text) for hit in hits} == {4000}


def test_the_authors_of_all_lines_or_of_a_range_are_returned(repo: Path) -> None:
    def lines(opened: Repo, *given: int) -> list[str]:
        text = opened.blame("HEAD", "a.py", *given).split("\n")
        assert all("(Änne 2024-05-06" in line for line in text[:-1])
        return [line.rpartition(") ")[2] for line in text]

    with Repo(repo) as opened:
        every = lines(opened)
        assert len(every) == 31
        assert lines(opened, 3, 4) == [*every[2:4], ""]
        assert lines(opened, 3, 3) == [*every[2:3], ""]
        assert lines(opened, 29) == lines(opened, 29, 2) == [*every[28:30], ""]
        assert lines(opened, 0, 1) == [every[0], ""]


def test_a_commit_of_more_than_a_mebibyte_is_resolved(
    repo: Path, run: Run, started: list[str]
) -> None:
    for size in (5000, 1024 * 1024):
        (repo / "message").write_text("subject\n\n" + "x" * size)
        run("commit", "-q", "--allow-empty", "-F", "message")
    head = run("rev-parse", "HEAD")
    started.clear()

    with Repo(repo) as opened:
        assert opened.resolve("HEAD~1") != head
        assert opened.resolve("HEAD~2")
        assert started == ["cat-file"]
        assert opened.resolve("HEAD") == head
        assert opened.cat_file("HEAD", "run.sh") == b"x\n"


def test_commits_are_returned_with_all_their_fields(repo: Path, run: Run) -> None:
    with Repo(repo) as opened:
        second, first = opened.log("", "HEAD")
        assert opened.log("main", "HEAD") == [second]
        assert opened.log("", "HEAD", limit=1) == opened.log("", "HEAD", limit=0) == [second]
        assert opened.log("", "HEAD", skip=1) == [first]
        assert opened.log("", "HEAD", skip=-1) == [second, first]
        assert opened.log("", "HEAD", paths=["image.bin"]) == [second]

    assert first.sha == run("rev-parse", "main")
    assert first.parents == ()
    assert second.parents == (first.sha,)
    assert (second.author, second.email) == ("Änne", "a@example.com")
    assert second.date.startswith("2024-05-06T07:08:09")
    assert second.message == "second\n\nwith a body"


def test_50_commits_are_returned_by_default(repo: Path) -> None:
    import_commits(repo, 50)

    with Repo(repo) as opened:
        assert len(opened.log("", "work")) == 50


def test_files_up_to_8_mib_are_read_and_compared(repo: Path, run: Run) -> None:
    limit = 8 * 1024 * 1024
    for name, size in (("fits", limit), ("large", limit + 1)):
        (repo / name).touch()
        os.truncate(repo / name, size)
    run("add", "fits", "large")
    run("commit", "-qm", "sizes")
    large = run("rev-parse", "HEAD:large")

    with Repo(repo) as opened:
        assert len(opened.cat_file("HEAD", "fits")) == limit
        assert len(opened.blob(run("rev-parse", "HEAD:fits"))) == limit
        with pytest.raises(GitError, match=f"is larger than {limit} bytes"):
            opened.cat_file("HEAD", "large")
        with pytest.raises(GitError, match=f"is larger than {limit} bytes"):
            opened.blob(large)
        assert len(opened.blob(large, cap=10, cut=True)) == 10
        changes = opened.changes("HEAD~1", "HEAD")
        assert {change.path for change in changes} == {"fits", "large"}
        assert [change.path for change in opened.oversized(changes)] == ["large"]
        assert opened.oversized([]) == []


def test_a_call_ends_at_the_earlier_of_both_deadlines(repo: Path) -> None:
    def refuses(opened: Repo, seconds: float | None = None) -> bool:
        try:
            opened.git(["rev-parse", "--is-bare-repository"], seconds=seconds)
        except GitError as error:
            return error.kind == "timeout"
        return False

    with Repo(repo) as opened:
        assert not refuses(opened)
        assert refuses(opened, seconds=0.0)
        opened.until = time.monotonic() + 60
        assert not refuses(opened)
        assert refuses(opened, seconds=0.0)
        opened.until = time.monotonic()
        assert refuses(opened)
        assert refuses(opened, seconds=60.0)
    with Repo(repo, seconds=0.0) as opened:
        assert refuses(opened)
        assert refuses(opened, seconds=60.0)


def test_a_job_is_called_again_only_if_git_ran_out_of_memory_the_first_time(repo: Path) -> None:
    def job(fails: int, is_memory: bool = True) -> Callable[[], int]:
        calls: list[int] = []

        def work() -> int:
            calls.append(1)
            if len(calls) <= fails:
                raise GitError(f"call {len(calls)}", kind="memory" if is_memory else "failed")
            return len(calls)

        return work

    with Repo(repo) as opened:
        assert opened.spare_memory(job(0)) == 1
        with pytest.raises(GitError, match="call 1"):
            opened.spare_memory(job(1, is_memory=False))
        assert opened.threshold == ""
        assert opened.spare_memory(job(1)) == 2
        with pytest.raises(GitError, match="call 1"):
            opened.spare_memory(job(1))
    with Repo(repo) as opened, pytest.raises(GitError, match="call 2"):
        opened.spare_memory(job(2))


def test_large_files_are_binary_for_git_after_it_ran_out_of_memory(repo: Path, run: Run) -> None:
    (repo / "big.txt").write_text("x\n" * 300_000)
    run("add", "big.txt")
    run("commit", "-qm", "big")

    class Poor(Repo):
        """A repository with too little memory for the first patch."""

        patches = 0

        def git(self, args: Sequence[str], **options: Any) -> bytes:
            self.patches += "-p" in args
            if "-p" in args and self.patches == 1:
                raise GitError("git diff-tree failed: out of memory", kind="memory")
            return super().git(args, **options)

    with Repo(repo) as opened:
        assert b"Binary" not in opened.diff_tree("HEAD~1", "HEAD")
    poor = Poor(repo)
    with poor:
        assert b"Binary files /dev/null and b/big.txt differ" in poor.diff_tree("HEAD~1", "HEAD")
        assert poor.patches == 2
    with Poor(repo) as opened, pytest.raises(GitError, match="out of memory"):
        opened.diff_tree("HEAD~1", "HEAD", sink=lambda block: True)


def test_a_patch_names_huge_files_if_git_runs_out_of_memory(repo: Path, run: Run) -> None:
    for name in ("changed", "deleted", "old"):
        (repo / f"huge {name}").write_text(f"{name}\n" * 20)
    run("add", "-A")
    run("commit", "-qm", "before")
    (repo / "huge changed").write_text("new\n")
    (repo / "huge deleted").unlink()
    (repo / "huge old").rename(repo / "huge ñew")
    (repo / "huge added").write_text("added\n")
    (repo / "small").write_text("small\n")
    run("add", "-A")
    run("commit", "-qm", "after")

    class Poor(Repo):
        """A repository with too little memory for files with a certain name."""

        def git(self, args: Sequence[str], **options: Any) -> bytes:
            if "-p" in args and not any("exclude" in arg for arg in args):
                raise GitError("git diff-tree failed: out of memory", kind="memory")
            return super().git(args, **options)

        def oversized(self, changes: Sequence[FileChange]) -> list[FileChange]:
            return [change for change in changes if change.path.startswith("huge")]

    with Poor(repo) as opened:
        patch = opened.diff_tree("HEAD~1", "HEAD").decode()
        one = opened.diff_tree("HEAD~1", "HEAD", ["small", "huge added"]).decode()

    assert "+small\n" in patch
    assert patch.count("diff --git") == 5
    added = "diff --git a/huge added b/huge added\nBinary files /dev/null and b/huge added differ\n"
    assert patch.endswith(
        added
        + "diff --git a/huge changed b/huge changed\n"
        + "Binary files a/huge changed and b/huge changed differ\n"
        + "diff --git a/huge deleted b/huge deleted\n"
        + "Binary files a/huge deleted and /dev/null differ\n"
        + "diff --git a/huge old b/huge ñew\n"
        + "Binary files a/huge old and b/huge ñew differ\n"
    )
    assert one.count("diff --git") == 2
    assert one.endswith(added)


def test_objects_are_found_by_their_path_on_a_system_without_proc(
    repo: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("worktree", "add", "-q", "../linked", "-b", "side")
    real = os.path.isdir
    monkeypatch.setattr("os.path.isdir", lambda path: "/proc/" not in str(path) and real(path))

    with Repo(repo) as opened:
        assert opened.cat_file("work", "run.sh") == b"x\n"
    with Repo(tmp_path / "linked") as opened:
        with pytest.raises(GitError, match=r"object directory is not at \.git/objects") as caught:
            opened.cat_file("work", "run.sh")
        assert caught.value.kind == "unsafe"


def test_the_8000_files_of_a_commit_are_listed(repo: Path) -> None:
    import_files(repo, 8000)

    with Repo(repo) as opened:
        assert len(opened.list_tree("work")) == 8006


def test_a_branch_that_is_called_like_a_hash_does_not_hide_the_commit(repo: Path, run: Run) -> None:
    work, main = run("rev-parse", "work"), run("rev-parse", "main")
    (repo / ".git/refs/heads" / main).write_text(f"{work}\n")

    with Repo(repo) as opened:
        assert opened.resolve(main) == main


def test_the_error_of_a_command_names_the_command(repo: Path) -> None:
    with Repo(repo, alternates=True) as opened:
        with pytest.raises(GitError, match=r"^git cat-file failed: fatal: "):
            opened.git(["cat-file", "blob", "0" * 40])
        assert opened.git(["rev-parse", "--is-bare-repository"]) == b"true\n"

"""Tests of finding objects and refs in every kind of repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fakes.checkouts import Lab, Run, tools_of

from glue.errors import GitError, GlueError
from glue.tools import git
from glue.tools.git import (
    Repo,
    functions,  # noqa: F401  (loaded before privileges are dropped)
)


def test_head_may_be_detached(repo: Path, run: Run) -> None:
    run("checkout", "-q", "--detach")

    with Repo(repo) as opened:
        assert opened.resolve("HEAD") == run("rev-parse", "work")
        assert opened.layout.head_branch() == ""


def test_packed_refs_and_objects_are_read(repo: Path, run: Run) -> None:
    run("pack-refs", "--all")
    run("gc", "-q")

    with Repo(repo) as opened:
        assert opened.resolve("main") == run("rev-parse", "main")
        assert b"seven" in opened.diff_tree("main", "work")


def test_a_loose_ref_overrides_a_packed_one(repo: Path, run: Run) -> None:
    run("pack-refs", "--all")
    run("commit", "-q", "--allow-empty", "-m", "newer")

    with Repo(repo) as opened:
        assert opened.resolve("work") == run("rev-parse", "work")


async def test_a_linked_worktree_is_read(repo: Path, run: Run, tmp_path: Path) -> None:
    run("worktree", "add", "-q", "../linked", "-b", "side")
    (tmp_path / "linked/a.py").write_text("from the side\n")
    run("commit", "-qam", "side", where="linked")

    text = await tools_of(tmp_path / "linked")["git_diff_branch"]()

    assert "+from the side" in text
    with Repo(repo) as opened:
        assert opened.resolve("HEAD") == run("rev-parse", "work")


def test_a_remote_branch_is_used_if_there_is_no_local_one(
    repo: Path, run: Run, tmp_path: Path
) -> None:
    run("clone", "-q", str(repo), "clone", where=".")

    with Repo(tmp_path / "clone") as opened:
        assert opened.resolve("main") == opened.resolve("origin/main") == run("rev-parse", "main")
        assert opened.base_branch() == "refs/remotes/origin/HEAD"


def test_the_error_for_a_reftable_names_it(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")
    (repo / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")

    with Repo(repo) as opened:
        assert opened.resolve(head) == head
        with pytest.raises(GitError, match="reftable"):
            opened.resolve("HEAD")


async def test_the_checkout_of_a_submodule_is_read(repo: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    run("init", "-q", "-b", "main", where="outer")
    allow = ("-c", "protocol.file.allow=always")
    run(*allow, "submodule", "add", "-q", str(repo), "sub", where="outer")

    text = await tools_of(tmp_path / "outer/sub", base="origin/main")["git_diff_branch"]()

    assert "+seven" in text
    (tmp_path / "outer/other").mkdir()
    # This git directory belongs to the checkout `sub`.
    (tmp_path / "outer/other/.git").write_text("gitdir: ../.git/modules/sub\n")
    with pytest.raises(GitError, match="does not point back to this checkout"):
        Repo(tmp_path / "outer/other")


def test_a_name_that_is_longer_than_file_names_can_be_is_not_found(repo: Path) -> None:
    with Repo(repo) as opened, pytest.raises(GitError, match="no branch, tag or commit") as caught:
        opened.resolve("a" * 300)

    assert caught.value.kind == "missing"


def test_a_name_may_have_1024_characters(repo: Path) -> None:
    with Repo(repo) as opened:
        with pytest.raises(GitError, match="no branch, tag or commit is called"):
            opened.resolve("a" * 1024)
        with pytest.raises(GitError, match="is not a name of a commit"):
            opened.resolve("a" * 1025)


def test_files_of_git_may_be_as_large_as_their_limits(repo: Path, run: Run) -> None:
    work = run("rev-parse", "work")
    (repo / ".git/refs/heads/work").write_text(work + "\n" * (4096 - 40))
    (repo / ".git/config").write_text("[core]\n" + "#" * (1024 * 1024 - 7))
    (repo / ".git/shallow").write_text(f"{work}\n" + " " * (4 * 1024 * 1024 - 41))
    (repo / ".git/packed-refs").touch()
    os.truncate(repo / ".git/packed-refs", 64 * 1024 * 1024)

    with Repo(repo) as opened:
        assert opened.resolve("work") == work
        assert opened.shallow == (work,)
        assert opened.layout.packed("refs/heads/none") is None


@pytest.mark.parametrize(
    ("name", "limit"),
    [("packed-refs", 64 * 1024 * 1024), ("shallow", 4 * 1024 * 1024), ("config", 1024 * 1024)],
)
def test_larger_files_of_git_are_refused(repo: Path, name: str, limit: int) -> None:
    (repo / ".git" / name).touch()
    os.truncate(repo / ".git" / name, limit + 1)

    with (
        pytest.raises(GitError, match=f"{name} is larger than {limit} bytes"),
        Repo(repo) as opened,
    ):
        opened.resolve("none")


def test_a_git_directory_without_objects_is_refused_with_the_reason(repo: Path) -> None:
    objects = repo / ".git/objects"
    objects.rename(repo / "moved")

    with pytest.raises(GitError, match="objects in the git directory cannot be opened: No such"):
        Repo(repo)
    objects.symlink_to("../moved")
    with pytest.raises(GitError, match="objects in the git directory cannot be opened: Not a dir"):
        Repo(repo)


def test_a_worktree_must_be_listed_by_the_repository(repo: Path, run: Run, tmp_path: Path) -> None:
    run("worktree", "add", "-q", "../linked", "-b", "side")
    listed = repo / ".git/worktrees"
    for name in ("HEAD", "gitdir", "commondir"):
        (listed / name).write_text((listed / "linked" / name).read_text())
    (listed / "commondir").write_text("..\n")
    # The folder of all worktrees is not a worktree, even if it contains the files of one.
    (tmp_path / "linked/.git").write_text(f"gitdir: {listed}\n")

    with pytest.raises(GitError, match="does not list this worktree"):
        Repo(tmp_path / "linked")


def test_a_link_in_place_of_a_listed_worktree_is_refused(
    repo: Path, run: Run, tmp_path: Path
) -> None:
    run("worktree", "add", "-q", "../linked", "-b", "side")
    listed, moved = repo / ".git/worktrees/linked", repo / ".git/other/linked"
    moved.parent.mkdir()
    listed.rename(moved)
    listed.symlink_to("../other/linked")
    (tmp_path / "linked/.git").write_text(f"gitdir: {moved}\n")

    with pytest.raises(GitError, match="does not list this worktree"):
        Repo(tmp_path / "linked")


def test_objects_of_another_repository_are_read_only_if_that_is_allowed(
    repo: Path, run: Run, tmp_path: Path
) -> None:
    run("clone", "-q", "--shared", str(repo), "clone", where=".")

    with pytest.raises(GitError, match="uses objects of another repository") as caught:
        Repo(tmp_path / "clone")
    with Repo(tmp_path / "clone", alternates=True) as opened:
        assert opened.cat_file("HEAD", "run.sh") == b"x\n"

    assert caught.value.kind == "unsafe"
    (tmp_path / "clone/.git/objects/info/alternates").write_text("")
    with Repo(tmp_path / "clone") as opened, pytest.raises(GitError, match="is not a commit"):
        opened.resolve("HEAD")


def test_files_beside_the_folders_of_objects_are_ignored(repo: Path) -> None:
    (repo / ".git/objects/tmp_obj_x").write_text("unfinished")

    with Repo(repo) as opened:
        assert opened.resolve("HEAD")


def test_a_symbolic_ref_may_have_any_blanks(repo: Path, run: Run) -> None:
    for text in ("ref:refs/heads/work", "ref: refs/heads/work", "ref:   refs/heads/work  \n"):
        (repo / ".git/HEAD").write_text(text)

        with Repo(repo) as opened:
            assert opened.resolve("HEAD") == run("rev-parse", "work")
            assert opened.layout.head_branch() == "work"


def test_a_bare_repository_is_read(repo: Path, run: Run, tmp_path: Path) -> None:
    run("clone", "-q", "--bare", str(repo), str(tmp_path / "bare"))

    with Repo(tmp_path / "bare") as opened:
        assert opened.resolve("work") == run("rev-parse", "work")
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / "bare" / name).rename(tmp_path / "moved")
        with pytest.raises(GitError, match="is not the top of a git checkout"):
            Repo(tmp_path / "bare")
        (tmp_path / "moved").rename(tmp_path / "bare" / name)


def test_a_bare_repository_has_a_file_head_and_two_folders(repo: Path, tmp_path: Path) -> None:
    for name in ("HEAD", "objects", "refs"):
        bare = tmp_path / f"without {name}"
        shutil.copytree(repo / ".git", bare)
        if name == "HEAD":
            (bare / name).unlink()
            (bare / name).mkdir()
        else:
            shutil.rmtree(bare / name)
            (bare / name).touch()

        with pytest.raises(GitError, match="is not the top of a git checkout"):
            Repo(bare)


def test_a_packed_file_may_lack_its_header(repo: Path, run: Run) -> None:
    work = run("rev-parse", "work")
    (repo / ".git/packed-refs").write_text(f"{work} refs/tags/first\n{work} refs/tags/last")

    with Repo(repo) as opened:
        assert [opened.resolve(name) for name in ("first", "last")] == [work, work]


@pytest.mark.parametrize("value", ["", "main", "--help", "a" * 39, "A" * 40, "ü", "^{work}"])
def test_a_line_of_a_packed_file_without_a_hash_is_not_a_ref(
    repo: Path, run: Run, value: str
) -> None:
    value = value.replace("{work}", run("rev-parse", "work"))
    (repo / ".git/packed-refs").write_text(f"{value} refs/tags/release\n")

    with Repo(repo) as opened, pytest.raises(GitError, match="is called 'release'"):
        opened.resolve("release")


def test_every_ref_of_a_packed_file_is_found(repo: Path, run: Run) -> None:
    run("tag", "-a", "-m", "annotated", "release")
    run("pack-refs", "--all")
    names = run("for-each-ref", "--format=%(refname)").split("\n")

    with Repo(repo) as opened:
        found = [opened.layout.packed(name) for name in names]
        assert opened.layout.packed("refs/heads/none") is None
        assert opened.layout.packed("refs/heads") is None
        assert opened.layout.packed("heads/work") is None

    assert found == [run("rev-parse", name) for name in names]


def test_a_link_in_place_of_a_ref_is_refused(lab: Lab) -> None:
    ref, decoy = lab.dot / "refs/heads/work", lab.dot / "refs/heads/refs/heads/main"
    decoy.parent.mkdir(parents=True)
    decoy.write_text(ref.read_text())
    ref.unlink()
    # git treats the link as a symbolic ref; the system treats it as a path to the decoy.
    ref.symlink_to("refs/heads/main")
    assert lab.sha("refs/heads/work") == lab.sha("refs/heads/main") != decoy.read_text().strip()

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="is not a plain file"):
        repo.resolve("work")


@pytest.mark.parametrize(
    "target",
    ["ORIG_HEAD", "refs/heads/../../ORIG_HEAD", "refs/heads/./work", "refs/heads/work.lock"],
)
def test_a_symbolic_ref_must_name_a_ref(lab: Lab, target: str) -> None:
    for name in ("ORIG_HEAD", "refs/heads/work.lock"):
        (lab.dot / name).write_text(lab.sha("main") + "\n")
    (lab.dot / "HEAD").write_text(f"ref: {target}\n")

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="which is not a ref"):
        repo.resolve("HEAD")


@pytest.mark.parametrize(
    "content",
    ["", "main", "--help", "HEAD~1", "a" * 39, "A" * 40, "ü", "{main}\n{main}", "{main}^"],
)
def test_a_ref_must_contain_a_hash(lab: Lab, content: str) -> None:
    (lab.dot / "refs/heads/work").write_text(content.replace("{main}", lab.sha("main")))

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="does not contain a hash"):
        repo.resolve("work")


@pytest.mark.parametrize(
    "name",
    ["../../ORIG_HEAD", "../heads/main", "./main", "main:a.py", "@{0}", "-main", "main\nHEAD"],
)
def test_a_commit_name_that_is_a_path_or_expression_is_refused(lab: Lab, name: str) -> None:
    (lab.dot / "ORIG_HEAD").write_text(lab.sha("main") + "\n")

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="is not a name of a commit"):
        repo.resolve(name)


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("refs/heads/work", "ref: refs/heads/work\n", "after 5 symbolic refs in a row"),
        ("refs/heads/work", "{main}" + "\n" * 5000, "refs/heads/work is larger than 4096 bytes"),
        ("shallow", "{main}\n../../x\n", "shallow does not consist of hashes"),
        ("shallow", "{main}\n" * 110_000, "shallow is larger than"),
        ("config", "#" * (1024 * 1024 + 1), "config is larger than"),
    ],
)
def test_files_of_git_that_are_too_large_or_malformed_are_refused(
    lab: Lab, file: str, content: str, why: str
) -> None:
    (lab.dot / file).write_text(content.replace("{main}", lab.sha("main")))

    with pytest.raises(GlueError, match=why), git.Repo(lab.root) as repo:
        repo.resolve("work")


def test_a_repository_with_too_many_object_files_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glue.tools.git.layout.MAX_OBJECT_FILES", 5)

    with pytest.raises(GlueError, match="too many object files to check"):
        git.Repo(lab.root)

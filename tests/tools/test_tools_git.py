"""The git tools in ordinary use."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from glue.errors import GitError, GlueError, ToolError
from glue.tools import git
from glue.tools.fs import Blocklist
from glue.tools.git import Repo, build_pathspec, run_git
from glue.tools.process import has_landlock

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Änne",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.com",
    "GIT_AUTHOR_DATE": "2024-05-06T07:08:09Z",
    "GIT_COMMITTER_DATE": "2024-05-06T07:08:09Z",
}
Run = Callable[..., str]


def call(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, env=ENV, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda *args, where="repo": call(tmp_path / where, *args)


@pytest.fixture
def repo(tmp_path: Path, template: Path) -> Path:
    shutil.copytree(template, tmp_path / "repo", symlinks=True)
    return tmp_path / "repo"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base branch, and a branch with a change, a rename, a binary file, a mode and odd names."""
    root = tmp_path_factory.mktemp("template")
    run = partial(call, root)
    run("init", "-q", "-b", "main", "--template=")
    (root / "a.py").write_text("".join(f"line {n}\n" for n in range(30)))
    (root / "old name.txt").write_text("".join(f"text {n}\n" for n in range(30)))
    (root / "run.sh").write_text("x\n")
    run("add", ".")
    run("commit", "-qm", "first")
    run("checkout", "-qb", "work")
    (root / "a.py").write_text("".join(f"line {n}\n" for n in range(30)).replace("line 7\n", "seven\n"))
    (root / "old name.txt").rename(root / "new ñame.txt")
    (root / "image.bin").write_bytes(bytes(range(256)))
    (root / "run.sh").chmod(0o755)
    (root / "line\nbreak").write_text("odd\n")
    (root / ".env").write_text("TOKEN=x\n")
    run("add", ".")
    run("commit", "-qm", "second\n\nwith a body")
    (root / "uncommitted").write_text("x")
    return root


def tools_of(root: Path, **options: Any) -> dict[str, Any]:
    return {tool.name: tool for tool in git.tools(root, **{"base": "main", **options})}


async def test_diff_has_a_summary_and_the_patch(repo: Path) -> None:
    text = await tools_of(repo)["git_diff_branch"]()

    assert "6 files changed" in text
    assert "M a.py +1 -1\n" in text
    assert "R old name.txt => new ñame.txt +0 -0\n" in text
    assert "A image.bin binary\n" in text
    assert "M run.sh +0 -0 (mode 100644 => 100755)\n" in text
    assert 'A "line\\nbreak" +1 -0\n' in text
    assert "-line 7\n+seven\n" in text
    assert "similarity index 100%\nrename from old name.txt\nrename to new ñame.txt\n" in text
    assert "Binary files /dev/null and b/image.bin differ\n" in text


async def test_diff_is_against_the_merge_base(repo: Path, run: Run) -> None:
    run("checkout", "-q", "main")
    (repo / "later").write_text("on main only\n")
    run("add", "later")
    run("commit", "-qm", "later")
    run("checkout", "-q", "work")

    assert "later" not in await tools_of(repo)["git_diff_branch"]()


async def test_diff_of_one_path_keeps_its_rename(repo: Path) -> None:
    tools = tools_of(repo)

    renamed = await tools["git_diff_branch"](path="new ñame.txt")
    assert "rename from old name.txt" in renamed
    assert "seven" not in renamed
    nothing = await tools["git_diff_branch"](path="nothing")
    assert nothing.endswith("]\n0 files changed, 0 lines added, 0 deleted\n")


async def test_diff_pages_put_together_are_the_diff(repo: Path, run: Run) -> None:
    (repo / "big.txt").write_text("".join(f"number {n}\n" for n in range(20_000)))
    run("add", "big.txt")
    run("commit", "-qm", "big")
    tools = tools_of(repo)
    whole, offset = "", 1
    while True:
        page = await tools["git_diff_branch"](path="big.txt", offset=offset)
        assert len(page.encode()) <= 25 * 1024
        assert page.startswith("[main ")
        body, mark, hint = page.rpartition("[continue with offset ")
        whole += body if mark else page
        if not mark:
            break
        offset = int(hint[:-1])

    assert whole.count("\n+number ") == 20_000
    assert "+number 0\n+number 1\n" in whole
    assert "+number 19998\n+number 19999\n" in whole


async def test_log_lists_the_commits_of_the_branch(repo: Path) -> None:
    text = await tools_of(repo)["git_log_branch"]()

    assert text[12:] == " 2024-05-06 Änne: second\n    with a body"


async def test_log_has_a_limit(repo: Path, run: Run) -> None:
    for number in range(5):
        run("commit", "-q", "--allow-empty", "-m", f"empty {number}")

    lines = (await tools_of(repo)["git_log_branch"](limit=2)).split("\n")

    assert [line[-7:] for line in lines[:2]] == ["empty 4", "empty 3"]
    assert lines[2] == "[the newest 2; raise the limit for more]"


async def test_show_gives_a_commit_or_a_file(repo: Path) -> None:
    show = tools_of(repo)["git_show"]

    assert "    second\n    \n    with a body\n" in await show("HEAD")
    assert "-line 7\n+seven" in await show("work")
    assert "A a.py +30 -0" in await show("HEAD~1")
    assert (await show("HEAD", "a.py")).split("\n")[7] == "seven"
    assert (await show("HEAD^", "a.py")).split("\n")[7] == "line 7"
    assert (await show("main", "a.py", offset=30)) == "line 29\n"
    with pytest.raises(ToolError, match="there is no 'nope'"):
        await show("HEAD", "nope")


async def test_blame_names_commits(repo: Path) -> None:
    text = await tools_of(repo)["git_blame"]("a.py", first=7, last=9)

    assert [line.rpartition(") ")[2] for line in text.strip().split("\n")] == ["line 6", "seven", "line 8"]
    assert "Änne 2024-05-06" in text


async def test_block_list_keeps_files_out_of_diffs(repo: Path) -> None:
    tools = tools_of(repo, blocklist=Blocklist())

    diff = await tools["git_diff_branch"]()
    assert "TOKEN" not in diff
    assert "[1 files are on the block list and are not shown]" in diff
    assert "seven" in diff
    assert "TOKEN" not in await tools["git_show"]("HEAD")
    with pytest.raises(ToolError, match="block list"):
        await tools["git_show"]("HEAD", ".env")


async def test_work_tree_is_looked_at_only_where_trusted(repo: Path) -> None:
    (repo / "a.py").write_text("changed\n")

    assert set(tools_of(repo)) == {"git_diff_branch", "git_log_branch", "git_show", "git_blame"}
    tools = tools_of(repo, trust=True)
    assert set(tools) - set(tools_of(repo)) == {"git_status", "git_diff_worktree"}
    assert " M a.py\n?? uncommitted\n" in await tools["git_status"]()
    assert "+changed" in await tools["git_diff_worktree"]()
    assert await tools["git_diff_worktree"](staged=True) == "no changes"


def test_every_tool_and_parameter_is_described(repo: Path) -> None:
    for tool in git.tools(repo, trust=True):
        assert tool.spec.description
        assert all("description" in each for each in tool.spec.parameters["properties"].values())


# Repositories of every kind ----------------------------------------------------------------------


def test_detached_head(repo: Path, run: Run) -> None:
    run("checkout", "-q", "--detach")

    with Repo(repo) as opened:
        assert opened.resolve("HEAD") == run("rev-parse", "work")
        assert opened.layout.head_branch() == ""


def test_packed_refs_and_objects(repo: Path, run: Run) -> None:
    run("pack-refs", "--all")
    run("gc", "-q")

    with Repo(repo) as opened:
        assert opened.resolve("main") == run("rev-parse", "main")
        assert b"seven" in opened.diff_tree("main", "work")


def test_loose_ref_wins_over_packed_one(repo: Path, run: Run) -> None:
    run("pack-refs", "--all")
    run("commit", "-q", "--allow-empty", "-m", "newer")

    with Repo(repo) as opened:
        assert opened.resolve("work") == run("rev-parse", "work")


async def test_linked_worktree(repo: Path, run: Run, tmp_path: Path) -> None:
    run("worktree", "add", "-q", "../linked", "-b", "side")
    (tmp_path / "linked/a.py").write_text("from the side\n")
    run("commit", "-qam", "side", where="linked")

    text = await tools_of(tmp_path / "linked")["git_diff_branch"]()

    assert "+from the side" in text
    with Repo(repo) as opened:
        assert opened.resolve("HEAD") == run("rev-parse", "work")


async def test_shallow_clone(repo: Path, run: Run, tmp_path: Path) -> None:
    run("clone", "-q", "--depth=1", f"file://{repo}", "shallow", where=".")
    tools = tools_of(tmp_path / "shallow", base="work")

    assert "shallow: older history is not here" in await tools["git_log_branch"]()
    assert "its parents are not here" in await tools["git_show"]("HEAD")
    assert (await tools["git_diff_branch"]()).endswith("]\n0 files changed, 0 lines added, 0 deleted\n")


def test_remote_branch_stands_in_for_a_local_one(repo: Path, run: Run, tmp_path: Path) -> None:
    run("clone", "-q", str(repo), "clone", where=".")

    with Repo(tmp_path / "clone") as opened:
        assert opened.resolve("main") == opened.resolve("origin/main") == run("rev-parse", "main")
        assert opened.base_branch() == "refs/remotes/origin/HEAD"


def test_sha256_repository(tmp_path: Path, run: Run) -> None:
    root = tmp_path / "wide"
    root.mkdir()
    run("init", "-q", "-b", "main", "--object-format=sha256", where="wide")
    (root / "f").write_text("x\n")
    run("add", ".", where="wide")
    run("commit", "-qm", "wide", where="wide")

    with Repo(root) as opened:
        assert len(opened.resolve("HEAD")) == 64
        assert opened.cat_file("HEAD:f") == b"x\n"


def test_names_are_resolved_with_steps_and_abbreviations(repo: Path, run: Run) -> None:
    run("tag", "-a", "v1", "-m", "tag", "main")
    head = run("rev-parse", "HEAD")

    with Repo(repo) as opened:
        assert opened.resolve("@") == opened.resolve(head[:10]) == opened.resolve("refs/heads/work") == head
        assert opened.resolve("HEAD~1") == opened.resolve("work^") == opened.resolve("v1") == run("rev-parse", "main")
        for name in ("", "nope", "HEAD~9", "-x", "a..b", "HEAD:a.py", "HEAD@{1}", "x\0y", "v1^{tree}", "\ud800"):
            with pytest.raises(GitError):
                opened.resolve(name)


def test_unborn_branch_and_no_repository_are_said_plainly(tmp_path: Path, run: Run) -> None:
    with pytest.raises(GitError, match="is not a directory"):
        Repo(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GitError, match="it has no"):
        Repo(tmp_path / "empty")
    run("init", "-q", where="empty")

    with Repo(tmp_path / "empty") as opened, pytest.raises(GitError, match="there is no branch, tag or commit 'HEAD'"):
        opened.resolve("HEAD")


def test_readers_of_objects(repo: Path) -> None:
    with Repo(repo) as opened:
        assert [entry.path for entry in opened.list_tree("main")] == ["a.py", "old name.txt", "run.sh"]
        assert [hit.line for hit in opened.grep("sev.n", "work", ["a.py"])] == [8]
        assert opened.grep("nothing at all", "work") == []
        assert opened.cat_file("work", "a.py", cap=5, cut=True) == b"line "
        with pytest.raises(GitError, match="larger than 5 bytes"):
            opened.cat_file("work", "a.py", cap=5)
        with pytest.raises(GitError, match="not a path in a tree"):
            opened.cat_file("work", "../a.py")
        assert {change.path: change.status for change in opened.changes("main", "work")}["run.sh"] == "M"
        assert opened.entry("work", "run.sh").mode == "100755"  # type: ignore[union-attr]


def test_throw_away_directory_is_thrown_away(repo: Path) -> None:
    with Repo(repo) as opened:
        directory = Path(opened.directory)
        assert directory.is_dir()

    assert not directory.exists()
    with pytest.raises(GitError, match="closed"):
        opened.resolve("HEAD")


def test_reftable_is_said_plainly(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")
    (repo / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")

    with Repo(repo) as opened:
        assert opened.resolve(head) == head
        with pytest.raises(GitError, match="reftable"):
            opened.resolve("HEAD")


def test_run_git_reads_and_nothing_else(repo: Path, run: Run) -> None:
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


def test_repository_that_is_refused_leaves_nothing_behind(
    repo: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    (repo / ".git/config").write_bytes(b"#" * (2 * 1024 * 1024))

    with pytest.raises(GitError, match="larger than"):
        Repo(repo)

    assert not list(scratch.iterdir())


def test_output_and_time_are_bounded(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")

    with pytest.raises(GitError, match="said more than 100 bytes"):
        run_git(repo, ["show", head], cap=100)
    with pytest.raises(GitError, match="took too long"):
        run_git(repo, ["show", head], seconds=0.0)


def test_file_too_large_to_compare_does_not_hide_the_rest(repo: Path, run: Run) -> None:
    with (repo / "huge.bin").open("wb") as file:
        file.truncate(340 * 1024 * 1024)
    run("-c", "core.bigFileThreshold=1m", "-c", "core.compression=1", "add", "huge.bin")
    run("commit", "-qm", "huge")

    text = anyio.run(tools_of(repo)["git_diff_branch"])  # once: such a file takes git a while

    assert "A huge.bin binary\n" in text
    assert "[1 files are too large to compare and are listed only]" in text
    assert "+seven" in text
    with Repo(repo) as opened:
        patch = opened.diff_tree("main", "work")
    assert b"+seven" in patch
    assert b"Binary files /dev/null and b/huge.bin differ\n" in patch


# Pathspecs ---------------------------------------------------------------------------------------


def test_pathspec_is_empty_only_where_both_are() -> None:
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
def test_pathspec_means_what_it_says(
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

    with Repo(root) as opened:
        changes = opened.changes("HEAD~1", "HEAD", pathspec=build_pathspec(includes, excludes))

    assert sorted(change.path for change in changes) == expected


def test_errors_are_of_one_family() -> None:
    assert issubclass(GitError, GlueError)


async def test_every_page_of_a_diff_names_base_and_head(repo: Path, run: Run) -> None:
    main, work = run("rev-parse", "main")[:12], run("rev-parse", "work")[:12]

    for offset in (1, 3):
        page = await tools_of(repo)["git_diff_branch"](offset=offset)
        assert page.startswith(f"[main {main} .. work {work}]\n")


async def test_paths_may_be_absolute_below_the_top(repo: Path) -> None:
    tools = tools_of(repo)

    for path in ("a.py", "./a.py", str(repo / "a.py")):
        assert (await tools["git_show"]("HEAD", path)).split("\n")[7] == "seven"
        assert "+seven" in await tools["git_diff_branch"](path=path)
        assert "seven" in await tools["git_blame"](path, first=8, last=8)
    with pytest.raises(ToolError, match=r"did you mean a\.py\?"):
        await tools["git_show"]("HEAD", "src/a.py")
    for path in (".", str(repo)):
        assert "a.py" in (await tools["git_show"]("HEAD", path)).split("\n")[1:]


async def test_changes_below_a_path_are_shown_however_it_is_written(repo: Path) -> None:
    (repo / "a.py").write_text("changed\n")
    tools = tools_of(repo, trust=True)

    for path in ("a.py", "./a.py", str(repo / "a.py"), ".", "./", str(repo)):
        assert "+changed" in await tools["git_diff_worktree"](path=path)
        assert "+seven" in await tools["git_diff_branch"](path=path)
    with pytest.raises(ToolError, match=r"offset 500 is past the end: the text has \d+ lines"):
        await tools["git_diff_worktree"](offset=500)


async def test_blame_says_when_it_stops(repo: Path, run: Run) -> None:
    (repo / "long.txt").write_text("".join(f"{n} {'x' * 40}\n" for n in range(1, 2001)))
    run("add", "long.txt")
    run("commit", "-qm", "long")
    blame = tools_of(repo)["git_blame"]

    seen, first = 0, 1
    while first:
        text = await blame("long.txt", first=first)
        body, mark, hint = text.rpartition("\n[lines ")
        seen += (body if mark else text).count(") ")
        assert not mark or f"-{seen} of 2000; continue with first {seen + 1}]" in hint
        first = int(hint.rpartition(" ")[2][:-1]) if mark else 0

    assert seen == 2000
    assert "[lines" not in await blame("long.txt", first=5, last=9)
    with pytest.raises(ToolError, match="has 2000 lines"):
        await blame("long.txt", first=2001)


async def test_partial_clone_says_what_to_do(repo: Path, run: Run, tmp_path: Path) -> None:
    run("config", "uploadpack.allowFilter", "true")
    run("clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{repo}", "partial", where=".")
    tools = tools_of(tmp_path / "partial", base="origin/main")

    assert "second" in await tools["git_log_branch"]()
    with pytest.raises(GitError, match="the clone is partial"):
        await tools["git_diff_branch"]()
    with pytest.raises(GitError, match="the clone is partial"):
        await tools["git_show"]("HEAD", "a.py")
    run("diff", "origin/main...HEAD", where="partial")  # the advice that is given
    assert "+seven" in await tools["git_diff_branch"]()


async def test_submodule_checkout_is_read(repo: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    run("init", "-q", "-b", "main", where="outer")
    run("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo), "sub", where="outer")

    text = await tools_of(tmp_path / "outer/sub", base="origin/main")["git_diff_branch"]()

    assert "+seven" in text
    (tmp_path / "outer/other").mkdir()
    (tmp_path / "outer/other/.git").write_text("gitdir: ../.git/modules/sub\n")  # not the one that it belongs to
    with pytest.raises(GitError, match="does not point back"):
        Repo(tmp_path / "outer/other")


def test_objects_swapped_in_during_a_read_are_not_read(repo: Path, run: Run, tmp_path: Path) -> None:
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


# How many processes ------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands that were started."""
    commands: list[str] = []
    real = subprocess.Popen

    def popen(argv: list[str], *args: Any, **options: Any) -> Any:
        if os.path.basename(argv[0]) == "git":
            commands.append(next(word for word in argv[1:] if not word.startswith("-")))
        return real(argv, *args, **options)

    monkeypatch.setattr("glue.tools.process.subprocess.Popen", popen)
    return commands


async def test_diff_of_a_branch_takes_few_processes(repo: Path, started: list[str]) -> None:
    await tools_of(repo)["git_diff_branch"](path="a.py")

    assert sorted(started) == ["cat-file", "diff-tree", "diff-tree", "merge-base"]


def test_objects_are_read_by_one_process(repo: Path, started: list[str]) -> None:
    with Repo(repo) as opened:
        for name in ("a.py", "run.sh", "a.py"):
            opened.cat_file("work", name)
        opened.resolve("HEAD~1")

    assert started == ["cat-file"]


def test_one_reader_serves_threads_at_once(repo: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Repo(repo) as opened, ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda n: opened.cat_file("work", ("a.py", "run.sh")[n % 2], cap=5, cut=True), range(40)))

    assert texts == [b"line ", b"x\n"] * 20


def test_errors_are_told_apart_by_kind(repo: Path, run: Run) -> None:
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

"""Tests of the git tools as a model calls them."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from fakes.checkouts import Lab, Run, import_commits, tools_of

from glue.errors import GitError, ToolError
from glue.tools import git
from glue.tools.fs import Blocklist
from glue.tools.git import (
    Repo,
    functions,  # noqa: F401  (loaded before privileges are dropped)
)


async def test_a_diff_has_a_summary_and_the_patch(repo: Path) -> None:
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


async def test_a_diff_starts_at_the_merge_base(repo: Path, run: Run) -> None:
    run("checkout", "-q", "main")
    (repo / "later").write_text("on main only\n")
    run("add", "later")
    run("commit", "-qm", "later")
    run("checkout", "-q", "work")

    assert "later" not in await tools_of(repo)["git_diff_branch"]()


async def test_a_diff_of_one_path_shows_its_rename(repo: Path) -> None:
    tools = tools_of(repo)

    renamed = await tools["git_diff_branch"](path="new ñame.txt")
    assert "rename from old name.txt" in renamed
    assert "seven" not in renamed
    nothing = await tools["git_diff_branch"](path="nothing")
    assert nothing.endswith("]\n0 files changed, 0 lines added, 0 deleted\n")


async def test_all_pages_of_a_diff_together_are_the_diff(repo: Path, run: Run) -> None:
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


async def test_the_log_stops_at_its_limit(repo: Path, run: Run) -> None:
    for number in range(5):
        run("commit", "-q", "--allow-empty", "-m", f"empty {number}")

    lines = (await tools_of(repo)["git_log_branch"](limit=2)).split("\n")

    assert [line[-7:] for line in lines[:2]] == ["empty 4", "empty 3"]
    assert lines[2] == "[commits 1-2; continue with offset 3]"


async def test_git_show_returns_a_commit_or_a_file(repo: Path) -> None:
    show = tools_of(repo)["git_show"]

    assert "    second\n    \n    with a body\n" in await show("HEAD")
    assert "-line 7\n+seven" in await show("work")
    assert "A a.py +30 -0" in await show("HEAD~1")
    assert (await show("HEAD", "a.py")).split("\n")[7] == "seven"
    assert (await show("HEAD^", "a.py")).split("\n")[7] == "line 7"
    assert (await show("main", "a.py", offset=30)) == "line 29\n"
    with pytest.raises(ToolError, match="'nope' does not exist"):
        await show("HEAD", "nope")


async def test_git_blame_shows_the_author_of_each_line(repo: Path) -> None:
    text = await tools_of(repo)["git_blame"]("a.py", first=7, last=9)

    assert [line.rpartition(") ")[2] for line in text.strip().split("\n")] == [
        "line 6",
        "seven",
        "line 8",
    ]
    assert "Änne 2024-05-06" in text


async def test_files_on_the_block_list_are_not_shown(repo: Path) -> None:
    tools = tools_of(repo, blocklist=Blocklist())

    diff = await tools["git_diff_branch"]()
    assert "TOKEN" not in diff
    assert "[1 files are on the block list and are not shown]" in diff
    assert "seven" in diff
    assert "TOKEN" not in await tools["git_show"]("HEAD")
    with pytest.raises(ToolError, match="block list"):
        await tools["git_show"]("HEAD", ".env")


async def test_the_work_tree_is_read_only_if_trusted(repo: Path) -> None:
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


async def test_tools_report_that_a_clone_is_shallow(repo: Path, run: Run, tmp_path: Path) -> None:
    run("clone", "-q", "--depth=1", f"file://{repo}", "shallow", where=".")
    tools = tools_of(tmp_path / "shallow", base="work")

    assert "shallow: older history is not here" in await tools["git_log_branch"]()
    assert "lacks the parents" in await tools["git_show"]("HEAD")
    assert (await tools["git_diff_branch"]()).endswith(
        "]\n0 files changed, 0 lines added, 0 deleted\n"
    )


def store_zeros(repo: Path, mebibytes: int) -> str:
    """Store a blob of zeros and return its hash; `git add` takes seconds for a huge one."""
    zeros, head = bytes(1024 * 1024), b"blob %d\0" % (mebibytes * 1024 * 1024)
    packer = zlib.compressobj(1)
    first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)  # may be repeated
    digest, checksum = hashlib.sha1(head), zlib.adler32(head)
    for _ in range(mebibytes):
        digest.update(zeros)
        checksum = zlib.adler32(zeros, checksum)
    name = digest.hexdigest()
    path = repo / ".git/objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(first + block * mebibytes + b"\x03\0" + checksum.to_bytes(4, "big"))
    return name


def test_a_file_too_large_to_compare_does_not_hide_the_others(repo: Path, run: Run) -> None:
    run("update-index", "--add", "--cacheinfo", f"100644,{store_zeros(repo, 340)},huge.bin")
    run("commit", "-qm", "huge")

    text = anyio.run(tools_of(repo)["git_diff_branch"])  # called once, since the file is slow

    assert "A huge.bin binary\n" in text
    assert "[1 files are too large to compare and are listed only]" in text
    assert "+seven" in text
    with Repo(repo) as opened:
        patch = opened.diff_tree("main", "work")
        chosen = opened.diff_tree("main", "work", ["a.py", "huge.bin"])
    assert b"+seven" in patch
    assert b"+++ b/.env" in patch
    for each in (patch, chosen):
        assert b"+seven" in each
        assert b"Binary files /dev/null and b/huge.bin differ\n" in each
    assert b"+++ b/.env" not in chosen


async def test_every_page_of_a_diff_names_base_and_head(repo: Path, run: Run) -> None:
    main, work = run("rev-parse", "main")[:12], run("rev-parse", "work")[:12]

    for offset in (1, 3):
        page = await tools_of(repo)["git_diff_branch"](offset=offset)
        assert page.startswith(f"[main {main} .. work {work}]\n")


async def test_paths_may_be_absolute_below_the_checkout(repo: Path) -> None:
    tools = tools_of(repo)

    for path in ("a.py", "./a.py", str(repo / "a.py")):
        assert (await tools["git_show"]("HEAD", path)).split("\n")[7] == "seven"
        assert "+seven" in await tools["git_diff_branch"](path=path)
        assert "seven" in await tools["git_blame"](path, first=8, last=8)
    with pytest.raises(ToolError, match=r"did you mean a\.py\?"):
        await tools["git_show"]("HEAD", "src/a.py")
    for path in (".", str(repo)):
        assert "a.py" in (await tools["git_show"]("HEAD", path)).split("\n")[1:]


async def test_every_spelling_of_a_path_shows_its_changes(repo: Path) -> None:
    (repo / "a.py").write_text("changed\n")
    tools = tools_of(repo, trust=True)

    for path in ("a.py", "./a.py", str(repo / "a.py"), ".", "./", str(repo)):
        assert "+changed" in await tools["git_diff_worktree"](path=path)
        assert "+seven" in await tools["git_diff_branch"](path=path)
    with pytest.raises(ToolError, match=r"offset 500 is past the end: the text has \d+ lines"):
        await tools["git_diff_worktree"](offset=500)


async def test_git_blame_is_paged(repo: Path, run: Run) -> None:
    (repo / "long.txt").write_text("".join(f"{n} {'x' * 40}\n" for n in range(1, 2001)))
    run("add", "long.txt")
    run("commit", "-qm", "long")
    blame = tools_of(repo)["git_blame"]

    seen, first = 0, 1
    while first:
        text = await blame("long.txt", first=first)
        body, mark, hint = text.rpartition("\n[lines ")
        seen += (body if mark else text).count(") ")
        assert not mark or f"-{seen} of 2000; continue with first={seen + 1}]" in hint
        first = int(hint.rpartition("=")[2][:-1]) if mark else 0

    assert seen == 2000
    assert "[lines" not in await blame("long.txt", first=5, last=9)
    with pytest.raises(ToolError, match="has 2000 lines"):
        await blame("long.txt", first=2001)


async def test_the_error_in_a_partial_clone_says_how_to_fetch_objects(
    repo: Path, run: Run, tmp_path: Path
) -> None:
    run("config", "uploadpack.allowFilter", "true")
    run(
        "clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{repo}", "partial", where="."
    )
    tools = tools_of(tmp_path / "partial", base="origin/main")

    assert "second" in await tools["git_log_branch"]()
    with pytest.raises(GitError, match="the clone is partial"):
        await tools["git_diff_branch"]()
    with pytest.raises(GitError, match="the clone is partial"):
        await tools["git_show"]("HEAD", "a.py")
    run("diff", "origin/main...HEAD", where="partial")  # the advice of the message
    assert "+seven" in await tools["git_diff_branch"]()


async def test_a_diff_of_a_branch_starts_four_processes(repo: Path, started: list[str]) -> None:
    await tools_of(repo)["git_diff_branch"](path="a.py")

    assert sorted(started) == ["cat-file", "diff-tree", "diff-tree", "merge-base"]


async def test_control_characters_in_results_are_made_visible(lab: Lab) -> None:
    (lab.root / "a.py").write_bytes(b"x = 1  # \x1b[2J\xe2\x80\xae\r\n")
    lab.git("add", "a.py")
    lab.git("commit", "-qm", "clear \x1b[2J\x9b2J", "--author", "E\x1b[2Jve <eve@example.com>")
    tools = {tool.name: tool for tool in git.tools(lab.root, base="main")}

    said = [
        await tools["git_diff_branch"](),
        await tools["git_log_branch"](),
        await tools["git_blame"]("a.py"),
    ]
    said += [await tools["git_show"]("HEAD"), await tools["git_show"]("HEAD", "a.py")]

    for text in said:
        assert "␛[2J" in text
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert said[-1] == "x = 1  # ␛[2J⟨U+202E⟩\r\n"


def test_each_git_tool_is_returned_alone_by_a_function_of_its_name(repo: Path) -> None:
    together = {tool.name: tool for tool in git.tools(repo, "main", trust=True)}
    alone = [
        git.diff_branch(repo, "main"),
        git.log_branch(repo, "main"),
        git.show(repo),
        git.blame(repo),
        git.status(repo, trust=True),
        git.diff_worktree(repo, trust=True),
    ]

    assert [tool.name for tool in alone] == list(together)
    for made in alone:
        assert made.spec == together[made.name].spec
        assert made.root == together[made.name].root == str(repo)


def test_the_root_of_a_tool_is_an_absolute_path(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo)

    assert {made.root for made in git.tools(".", trust=True)} == {str(repo)}


def test_single_tools_of_the_work_tree_need_trust(repo: Path) -> None:
    with pytest.raises(ValueError, match="trust=True for your own checkout"):
        git.status(repo, trust=False)
    with pytest.raises(ValueError, match="trust=True for your own checkout"):
        git.diff_worktree(repo, trust=False)


async def test_the_model_may_name_a_base_that_the_caller_allows(repo: Path, run: Run) -> None:
    run("branch", "release/1", "work")
    run("branch", "other", "main")
    tools = tools_of(repo, bases=["release/*"])
    diff, log = tools["git_diff_branch"], tools["git_log_branch"]

    assert (await diff()).startswith("[main ")
    assert (await diff(base="main")).startswith("[main ")
    assert (await diff(base="release/1")).startswith("[release/1 ")
    assert "0 files changed" in await diff(base="release/1")
    assert "second" in await log()
    assert await log(base="release/1") == "no commits: the base contains all commits of the branch"
    for name in ("other", "release/1~1", "release/1^", "HEAD"):
        with pytest.raises(ToolError, match=r"not an allowed base; allowed: main, release/\*"):
            await diff(base=name)
        with pytest.raises(ToolError, match="not an allowed base"):
            await log(base=name)


def test_tools_without_allowed_bases_have_no_parameter_for_a_base(repo: Path) -> None:
    assert "base" not in git.diff_branch(repo).spec.parameters["properties"]
    assert "base" not in git.log_branch(repo).spec.parameters["properties"]
    assert "base" in git.diff_branch(repo, bases=["main"]).spec.parameters["properties"]
    with pytest.raises(TypeError, match="bases must be a list"):
        git.log_branch(repo, bases="main")


async def test_files_outside_the_patterns_are_not_shown(repo: Path, run: Run) -> None:
    (repo / "src").mkdir()
    (repo / "src/b.py").write_text("inside_b\n")
    (repo / "src/c.lock").write_text("locked\n")
    run("add", ".")
    run("commit", "-qm", "third")
    (repo / "a.py").write_text("worktree_a\n")
    (repo / "src/b.py").write_text("worktree_b\n")
    tools = tools_of(repo, trust=True, includes=["src"], excludes=["*.lock"])

    diff = await tools["git_diff_branch"]()
    assert "1 files changed" in diff
    assert "+inside_b" in diff
    assert "seven" not in diff
    assert "locked" not in diff
    assert "0 files changed" in await tools["git_diff_branch"](path="a.py")
    shown = await tools["git_show"]("HEAD")
    assert "+inside_b" in shown
    assert "locked" not in shown
    assert await tools["git_show"]("HEAD", "src/b.py") == "inside_b\n"
    assert await tools["git_show"]("HEAD", "src") == "[a folder]\nsrc/b.py"
    assert await tools["git_show"]("HEAD", ".") == "[a folder]\nsrc"
    for path in ("a.py", "src/c.lock"):
        with pytest.raises(ToolError, match="not among the files that this tool shows"):
            await tools["git_show"]("HEAD", path)
        with pytest.raises(ToolError, match="not among the files that this tool shows"):
            await tools["git_blame"](path)
    assert "inside_b" in await tools["git_blame"]("src/b.py")
    assert "a.py" not in await tools["git_status"]()
    assert "src/b.py" in await tools["git_status"]()
    assert "worktree_a" not in await tools["git_diff_worktree"]()
    assert "worktree_b" in await tools["git_diff_worktree"]()
    assert await tools["git_diff_worktree"](path="a.py") == "no changes"


async def test_a_rename_into_the_patterns_is_shown_without_its_old_file(
    repo: Path, run: Run
) -> None:
    (repo / "src").mkdir()
    run("mv", "a.py", "src/a.py")
    run("commit", "-qm", "move")

    diff = await git.diff_branch(repo, "main", includes=["src"])()

    assert "A src/a.py +30 -0" in diff
    assert "rename from" not in diff


async def test_the_log_of_a_path_has_only_the_commits_that_change_it(repo: Path, run: Run) -> None:
    for name in ("a*.txt", "ab.txt", "a*.txt"):
        (repo / name).write_text(f"{name} {len(run('rev-list', '--all'))}")
        run("add", "-A")
        run("commit", "-q", "-m", f"change {name}")
    log = tools_of(repo)["git_log_branch"]

    lines = (await log(path="a*.txt")).split("\n")

    assert [line.partition(": ")[2] for line in lines] == ["change a*.txt", "change a*.txt"]
    assert await log(path="nothing.txt") == (
        "no commit of the branch changes nothing.txt; whole=true includes the commits of the base"
    )
    assert await log(path="nothing.txt", whole=True) == "no commit changes nothing.txt"


async def test_the_log_is_read_in_pages(repo: Path, run: Run) -> None:
    for number in range(5):
        run("commit", "-q", "--allow-empty", "-m", f"empty {number}")
    log = tools_of(repo)["git_log_branch"]

    second = (await log(limit=2, offset=3)).split("\n")

    assert [line[-7:] for line in second[:2]] == ["empty 2", "empty 1"]
    assert second[2] == "[commits 3-4; continue with offset 5]"
    assert await log(offset=100) == "no commits: the list ends before offset 100"


@pytest.mark.parametrize("bases", [[], ["main"]])
async def test_50_commits_are_listed_by_default(repo: Path, bases: list[str]) -> None:
    import_commits(repo, 50)  # besides the one of the fixture
    log = tools_of(repo, bases=bases)["git_log_branch"]

    page = (await log()).split("\n")

    assert len(page) == 51
    assert page[50] == "[commits 1-50; continue with offset 51]"
    assert "continue" not in await log(offset=2)
    assert "continue" not in await log(limit=51)


async def test_at_most_500_commits_are_listed(repo: Path) -> None:
    import_commits(repo, 500)
    log = tools_of(repo)["git_log_branch"]

    assert (await log(limit=600)).endswith("\n[commits 1-500; continue with offset 501]")


async def test_the_whole_history_includes_the_base(repo: Path, run: Run) -> None:
    log = tools_of(repo)["git_log_branch"]

    whole = await log(whole=True)

    assert len(whole.split("\n")) > len((await log()).split("\n"))


async def test_long_commit_messages_do_not_fill_more_than_a_page(repo: Path, run: Run) -> None:
    for number in range(4):
        run("commit", "-q", "--allow-empty", "-m", f"{number}\n\n" + f"{'word ' * 10}\n" * 200)
    log = tools_of(repo)["git_log_branch"]

    first = await log()

    assert len(first) < 24_000
    assert first.endswith("[commits 1-2; continue with offset 3]")


async def test_a_status_that_is_longer_than_a_page_is_cut_with_a_note(repo: Path) -> None:
    for number in range(200):
        (repo / f"{number:03}{'x' * 200}").touch()
    status = tools_of(repo, trust=True)["git_status"]
    short = tools_of(repo, trust=True, includes=["uncommitted"])["git_status"]

    text = await status()

    note = "[the list is longer; the rest is not shown]"
    assert note not in await short()
    assert text.endswith(note)
    assert len(text) == 23 * 1024 + len(note)


async def test_a_blame_of_a_long_file_is_read_in_pages(repo: Path, run: Run) -> None:
    (repo / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 501)))
    run("add", "-A")
    run("commit", "-q", "-m", "long")
    blame = tools_of(repo)["git_blame"]

    first = await blame(path="long.txt")

    assert len(first) < 24_000
    next_line = int(first.rpartition("continue with first=")[2].rstrip("]"))
    assert f"line {next_line}" in (await blame(path="long.txt", first=next_line)).split("\n")[0]


def test_every_git_tool_only_reads_and_runs_beside_others(repo: Path) -> None:
    for made in (git.tools(repo, trust=True), git.tools(repo, trust=True, bases=["main"])):
        assert [each.name for each in made if not each.read_only] == []
        assert {each.kind for each in made} == {"read"}
        assert not any(each.needs_permission or each.alone for each in made)

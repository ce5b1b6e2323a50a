"""Tests of the pages that the git tools return."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkouts import Run, import_files

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


def test_only_the_names_in_the_scope_are_listed_in_a_folder(repo: Path, run: Run) -> None:
    for name in ("src/deep/a.py", "src/b.txt", "docs/c.py"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).touch()
    run("add", "src", "docs")
    run("commit", "-qm", "folders")
    scope = Scope(["*.py"])

    with Repo(repo) as opened:
        assert file_page(opened, "HEAD", "", 1, scope) == "[a folder]\na.py\ndocs\nsrc"
        assert file_page(opened, "HEAD", "src", 1, scope) == "[a folder]\nsrc/deep"
        assert file_page(opened, "HEAD", "src/deep", 1, scope) == "[a folder]\nsrc/deep/a.py"


def test_a_page_of_a_file_has_at_most_2000_lines(repo: Path, run: Run) -> None:
    (repo / "many.txt").write_text("x\n" * 2001)
    run("add", "many.txt")
    run("commit", "-qm", "many")

    with Repo(repo) as opened:
        page = file_page(opened, "HEAD", "many.txt", 1)

    assert page == "x\n" * 2000 + "[lines 1-2000; continue with offset 2001]"


def test_a_file_of_16_mib_is_read_in_pages_of_80_kib(repo: Path, run: Run) -> None:
    (repo / "huge.txt").write_text("x\n" * (8 * 1024 * 1024))
    # Only a NUL in the first 8192 bytes makes a file binary.
    more = "x\n" * 4096 + "\0\n" + "x\n" * (8 * 1024 * 1024 - 4097) + "end\n"
    (repo / "more.txt").write_text(more)
    run("add", "huge.txt", "more.txt")
    run("commit", "-qm", "huge")

    with Repo(repo) as opened:
        page = file_page(opened, "HEAD", "huge.txt", 1)
        assert file_page(opened, "HEAD", "more.txt", 8 * 1024 * 1024 + 1) == "end\n"
        last = file_page(opened, "HEAD", "huge.txt", 8 * 1024 * 1024)

    assert page == "x\n" * (40 * 1024) + f"[continue with offset {40 * 1024 + 1}]"
    assert last == "x\n"


def test_a_large_binary_file_is_only_named(repo: Path, run: Run) -> None:
    (repo / "huge.bin").write_bytes(b"\0" + b"x" * (16 * 1024 * 1024 - 1))
    run("add", "huge.bin")
    run("commit", "-qm", "huge")

    with Repo(repo) as opened:
        page = file_page(opened, "HEAD", "huge.bin", 1)

    assert page == "[binary file of 16777216 bytes; not shown]"


def test_a_file_above_8_mib_is_too_large_to_compare(repo: Path, run: Run) -> None:
    (repo / "large.txt").write_text("x" * (8 * 1024 * 1024 + 1))
    run("add", "large.txt")
    run("commit", "-qm", "large")

    with Repo(repo) as opened:
        page = commit_page(opened, "HEAD")

        assert commit_page(opened, "HEAD", 2) == "no changes"

    assert "A large.txt binary\n[1 files are too large to compare and are listed only]" in page
    assert "Binary files" not in page


@pytest.mark.parametrize(("old", "new"), [(".env", "config.txt"), ("config.txt", ".env")])
def test_a_file_is_blocked_by_its_old_or_its_new_name(
    repo: Path, run: Run, old: str, new: str
) -> None:
    text = "".join(f"SECRET_{number}=x\n" for number in range(30))
    run("rm", "-q", ".env")
    (repo / old).write_text(text)
    run("add", "-A")
    run("commit", "-qm", "before")
    (repo / old).rename(repo / new)
    (repo / new).write_text(text + "SECRET_30=x\n")
    run("add", "-A")
    run("commit", "-qm", "after")

    with Repo(repo) as opened:
        page = commit_page(opened, "HEAD", blocklist=Blocklist())

    assert "SECRET" not in page
    assert "[1 files are on the block list and are not shown]" in page


def test_a_summary_lists_at_most_300_files(repo: Path, run: Run) -> None:
    for number in range(301):
        (repo / f"{number:03}").touch()
    run("add", ".")
    run("commit", "-qm", "many")

    with Repo(repo) as opened:
        page = commit_page(opened, "HEAD")

    assert "302 files changed" in page  # with `uncommitted` of the fixture
    assert "A 299 +0 -0\n[and 2 more files]\n" in page


def test_the_authors_of_a_range_of_lines_are_shown(repo: Path) -> None:
    with Repo(repo) as opened:
        one = blame_page(opened, "HEAD", "a.py", 3, 3)
        two = blame_page(opened, "HEAD", "a.py", 3, 4)
        rest = blame_page(opened, "HEAD", "a.py", 29, 0)
        more = blame_page(opened, "HEAD", "a.py", 30, 99)

    assert [line.rpartition(") ")[2] for line in one.split("\n")] == ["line 2"]
    assert [line.rpartition(") ")[2] for line in two.split("\n")] == ["line 2", "line 3"]
    assert [line.rpartition(") ")[2] for line in rest.split("\n")] == ["line 28", "line 29"]
    assert [line.rpartition(") ")[2] for line in more.split("\n")] == ["line 29"]


def test_a_page_of_authors_has_at_most_200_lines(repo: Path, run: Run) -> None:
    (repo / "long.txt").write_text("x\n" * 201)
    run("add", "long.txt")
    run("commit", "-qm", "long")

    with Repo(repo) as opened:
        first = blame_page(opened, "HEAD", "long.txt", 1, 0)
        second = blame_page(opened, "HEAD", "long.txt", 201, 0)

    assert first.count("\n") == 200
    assert first.endswith("\n[lines 1-200 of 201; continue with first=201]")
    assert "\n" not in second


def test_the_target_of_a_link_is_shown_up_to_4096_bytes(repo: Path, run: Run) -> None:
    (repo / "target").write_text("x" * 5000)
    blob = run("hash-object", "-w", "target")
    run("update-index", "--add", "--cacheinfo", f"120000,{blob},link")
    run("commit", "-qm", "link")

    with Repo(repo) as opened:
        page = file_page(opened, "HEAD", "link", 1)

    assert page == f"[a link to '{'x' * 4096}']"


def test_a_page_of_authors_has_at_most_16_kib(repo: Path, run: Run) -> None:
    (repo / "wide.txt").write_text(f"{'x' * 1000}\n" * 20 + "y" * 20_000)
    run("add", "wide.txt")
    run("commit", "-qm", "wide")

    with Repo(repo) as opened:
        several = blame_page(opened, "HEAD", "wide.txt", 1, 0)
        one = blame_page(opened, "HEAD", "wide.txt", 21, 0)

    assert several.endswith("\n[lines 1-15 of 21; continue with first=16]")
    assert len(one.encode()) == 16 * 1024
    assert one.endswith("\n[truncated]")


def test_a_line_that_is_longer_than_a_page_of_authors_is_shown_alone(repo: Path, run: Run) -> None:
    (repo / "wide.txt").write_text("y" * 20_000 + "\nshort\n")
    run("add", "wide.txt")
    run("commit", "-qm", "wide")

    with Repo(repo) as opened:
        page = blame_page(opened, "HEAD", "wide.txt", 1, 0)

    assert page.endswith("\n[truncated]\n[lines 1-1 of 2; continue with first=2]")


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


def test_a_page_of_a_commit_starts_with_its_author_message_and_totals(repo: Path, run: Run) -> None:
    with Repo(repo) as opened:
        page = commit_page(opened, "HEAD")
        rest = commit_page(opened, "HEAD", 2)

    lines = page.split("\n")
    assert lines[0] == f"commit {run('rev-parse', 'HEAD')}"
    assert lines[1] == "author Änne <a@example.com>"
    assert lines[2].startswith("date 2024-05-06T07:08:09")
    assert lines[3:8] == ["", "    second", "    ", "    with a body", ""]
    assert lines[8] == "6 files changed, 3 lines added, 1 deleted"
    assert page.endswith(rest)
    assert rest.startswith("new file mode 100644")


def test_a_merge_is_compared_with_its_first_parent(repo: Path, run: Run) -> None:
    run("checkout", "-q", "-b", "side", "main")
    (repo / "side.txt").write_text("side\n")
    run("add", "side.txt")
    run("commit", "-qm", "side")
    run("checkout", "-q", "work")
    run("merge", "-q", "--no-edit", "side")

    with Repo(repo) as opened:
        page = commit_page(opened, "HEAD")

    assert "\n[a merge commit with 2 parents, compared with the first]\n" in page
    assert "A side.txt +1 -0" in page
    assert "seven" not in page


def test_a_large_message_does_not_fill_more_than_a_page(repo: Path, run: Run) -> None:
    (repo / "message").write_text("subject\n\n" + "word\n" * 10_000)
    run("commit", "-q", "--allow-empty", "-F", "message")

    with Repo(repo) as opened:
        page = commit_page(opened, "HEAD")

    assert "    [truncated]\n" in page
    assert page.replace("\n    ", "\n").index("[truncated]") < PAGE + 200


def test_at_most_1000_names_of_a_folder_are_listed(repo: Path) -> None:
    import_files(repo, 1001)

    with Repo(repo) as opened:
        page = file_page(opened, "work", "", 1)

    assert page.count("\n") == 1000


def test_up_to_three_files_of_the_same_name_are_suggested(repo: Path, run: Run) -> None:
    for folder in "abcd":
        (repo / folder).mkdir()
        (repo / folder / "same.py").touch()
    run("add", *"abcd")
    run("commit", "-qm", "same")

    with (
        Repo(repo) as opened,
        pytest.raises(ToolError, match=r"did you mean a/same\.py or b/same\.py or c/same\.py\?$"),
    ):
        file_page(opened, "HEAD", "x/same.py", 1)


def test_a_submodule_is_shown_as_one_line(repo: Path, run: Run) -> None:
    head = run("rev-parse", "HEAD")
    run("update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    run("commit", "-qm", "submodule")

    with Repo(repo) as opened:
        page = file_page(opened, "HEAD", "sub", 1)

    assert page == f"[another repository (submodule), at commit {head}]"

"""Tests of pages, encodings and writes of files."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

import pytest
from fakes.trees import Tools
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.errors import GlueError, ToolError, UnsafePath
from glue.tools import fs
from glue.tools.fs import Root, files
from glue.tools.fs import functions as ready
from glue.tools.fs.files import Pager, decode, lines_that_fit


def test_a_page_ends_with_the_offset_of_the_next_page(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "big").write_text("".join(f"line {n}\n" for n in range(1, 100_001)))

    first = tools["read_file"]("big")
    second = tools["read_file"]("big", offset=2001)
    last = tools["read_file"]("big", offset=99_999)

    assert first.startswith("line 1\n")
    assert first.endswith("line 2000\n[lines 1-2000; continue with offset 2001]")
    assert second.startswith("line 2001\n")
    assert last == "line 99999\nline 100000\n"


@settings(deadline=None)
@given(
    lines=st.lists(
        st.text(
            st.characters(blacklist_characters="\n\0", blacklist_categories=["Cs"]), max_size=40
        )
    ),
    limit=st.integers(1, 7),
    end=st.booleans(),
)
def test_all_pages_together_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], limit: int, end: bool
) -> None:
    folder = tmp_path_factory.mktemp("page")
    text = "\n".join(lines) + ("\n" if end and lines else "")
    (folder / "f").write_bytes(text.encode())
    with Root(folder) as root:
        read = ready.functions(root)["read_file"]
        got, offset = "", 1
        for _ in range(200):
            page = read("f", offset=offset, limit=limit)
            body, mark, hint = page.rpartition("[lines ")
            if not mark:
                got += "" if page == "[the file is empty]" else page
                break
            got += body
            offset = int(hint.rpartition(" ")[2][:-1])

    assert got == text


def test_a_line_longer_than_a_page_is_read_in_pieces(tools: Tools, tmp_path: Path) -> None:
    line = "é" * 100_000
    (tmp_path / "long").write_text(line + "\nnext\n")
    got, start = "", 0
    while True:
        page = tools["read_file"]("long", start=start)
        body, mark, hint = page.rpartition("\n[lines ")
        got += body if mark else page
        if "and start" not in hint:
            break
        start = int(hint.rpartition(" ")[2][:-1])

    assert got == line + "\nnext\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "[the file is empty]"),
        (b"caf\xe9\n", "café\n"),
        (b"a\r\nb\r\n", "a\r\nb\r\n"),
        (b"\xef\xbb\xbfx\n", "\ufeffx\n"),
        (b"no end", "no end"),
        (b"a\0b", "[binary file of 3 bytes; not shown]"),
        ("x\n".encode("utf-16"), "[UTF-16 text of 6 bytes; not shown"),
    ],
)
def test_text_in_any_encoding_and_binary_files_can_be_read(
    tools: Tools, tmp_path: Path, content: bytes, expected: str
) -> None:
    (tmp_path / "file").write_bytes(content)

    assert tools["read_file"]("file").startswith(expected)


def test_only_a_nul_in_the_first_8192_bytes_makes_a_file_binary(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"x" * 8191 + b"\0old")
    (tmp_path / "text").write_bytes(b"x" * 8192 + b"\0old")

    assert tools["read_file"]("binary") == "[binary file of 8195 bytes; not shown]"
    assert tools["read_file"]("text").endswith("x\0old")
    with pytest.raises(ToolError, match="the file is binary"):
        tools["edit_file"]("binary", "old", "new")
    tools["edit_file"]("text", "old", "new")
    assert (tmp_path / "text").read_bytes().endswith(b"x\0new")


def test_a_page_has_at_most_2000_lines_and_80_kib(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("\n" * 2001)
    (tmp_path / "fits").write_text("x" * 80 * 1024)
    (tmp_path / "long").write_text("x" * (80 * 1024 + 1))

    every = tools["read_file"]("lines", limit=5000)

    assert every == "\n" * 2000 + "[lines 1-2000; continue with offset 2001]"
    assert every == tools["read_file"]("lines")
    assert tools["read_file"]("fits") == "x" * 80 * 1024
    assert tools["read_file"]("long").endswith(
        "x\n[lines 1-1; line 1 is longer than this page: continue with offset 1 and start 81920]"
    )
    assert tools["read_file"]("long", start=81920) == "x"
    assert tools["read_file"]("long", start=81921) == "[no more text: line 1 ends here]"
    with pytest.raises(ToolError, match="line 1 is shorter than 81922 bytes, so start is past"):
        tools["read_file"]("long", start=81922)


@pytest.mark.parametrize("options", [{"offset": 0}, {"limit": 0}, {"start": -1}])
def test_numbers_below_the_first_are_refused(
    tools: Tools, tmp_path: Path, options: dict[str, int]
) -> None:
    (tmp_path / "file").write_text("a\n")

    with pytest.raises(ToolError, match="offset and limit must be at least 1, and start at least"):
        tools["read_file"]("file", **options)
    assert tools["read_file"]("file", offset=1, limit=1, start=0) == "a\n"
    with pytest.raises(ToolError, match="line 1 is shorter than 3 bytes"):
        tools["read_file"]("file", start=3)


def test_an_offset_past_the_end_is_an_error_with_the_number_of_lines(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a\nb\n")
    (tmp_path / "cut").write_text("a\nb")

    for name in ("file", "cut"):
        with pytest.raises(ToolError, match="the file has 2 lines"):
            tools["read_file"](name, offset=3)
        with pytest.raises(ToolError, match="the file has 2 lines"):
            tools["read_file"](name, offset=30)


def test_an_offset_past_the_end_of_an_empty_file_is_an_error(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ToolError, match="offset 2 is past the end: the file has 0 lines"):
        tools["read_file"]("file", offset=2)


def test_lines_can_be_numbered(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\nb\n")

    assert tools["read_file"]("file", offset=2, numbers=True) == "     2| b\n"


def test_a_write_keeps_the_mode_and_creates_folders(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(0o6755)  # a write drops the set-user-ID and set-group-ID bits

    assert tools["write_file"]("run.sh", "new\n") == "replaced run.sh: 4 bytes, 1 line"
    assert tools["write_file"]("a/b/new", "x") == "created a/b/new: 1 byte, 1 line"
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "a/b/new").stat().st_mode) == 0o666 & ~umask


def test_a_write_to_a_folder_or_read_only_file_is_refused(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "sealed").write_text("x")
    (tmp_path / "sealed").chmod(0o444)
    os.mkfifo(tmp_path / "pipe")

    for path in ("folder", "folder/", "sealed", "pipe", "file/below"):
        with pytest.raises(GlueError):
            tools["write_file"](path, "y")
    (tmp_path / "sealed").chmod(0o555)  # a program
    with pytest.raises(ToolError, match="'sealed': the file is read-only"):
        tools["write_file"]("sealed", "y")

    assert (tmp_path / "file").read_text() == (tmp_path / "sealed").read_text() == "x"


@pytest.mark.parametrize("path", ["new/../file", "new/../../file", "a/../new/../../file"])
def test_a_path_back_from_a_missing_folder_creates_nothing(
    tools: Tools, tmp_path: Path, path: str
) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(ToolError, match="no such file or directory"):
        tools["write_file"](path, "x")

    assert os.listdir(tmp_path) == ["a"]


def test_a_write_below_a_link_inside_the_root_works(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    tools["write_file"]("link/new", "x")

    assert (tmp_path / "real/new").read_text() == "x"


@pytest.mark.parametrize(
    "name",
    [
        ".git",
        ".GIT",
        ".git. .",
        "git~1",
        "git~12",
        ".git::$INDEX_ALLOCATION",
        "a\\.git",
        ".g\u200cit",
        ".gi\ufe00t",
        ".gi\ufe0ft",
        "\uff0egit",
    ],
)
def test_names_that_a_file_system_treats_as_git_are_refused(
    tools: Tools, tmp_path: Path, name: str
) -> None:
    for path in (f"{name}/config", f"sub/{name}/hooks/x"):
        with pytest.raises(UnsafePath, match="git's own directory"):
            tools["write_file"](path, "x")

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        *[".gitignore", ".github/workflows/ci.yml", ".gitattributes", "git/x", ".git-x", "agit~1"],
        *["git~", "git~x", ".gi\ufe10t"],
    ],
)
def test_names_that_only_start_with_git_are_written(
    tools: Tools, tmp_path: Path, name: str
) -> None:
    tools["write_file"](name, "x")

    assert (tmp_path / name).read_text() == "x"


def test_a_write_keeps_the_owner(tools: Tools, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    (tmp_path / "file").write_text("x")
    os.chown(tmp_path / "file", 65534, 65534)

    tools["edit_file"]("file", "x", "y")

    assert (tmp_path / "file").stat().st_uid == 65534


def test_a_content_of_more_than_8_mib_is_not_written(tools: Tools) -> None:
    assert "8,388,608 bytes" in tools["write_file"]("file", "x" * 8 * 1024 * 1024)
    with pytest.raises(ToolError, match="8388609 bytes are too many for one file; at most 8388608"):
        tools["write_file"]("file", "x" * (8 * 1024 * 1024 + 1))


@pytest.mark.parametrize("existing", [False, True])
def test_a_file_is_private_until_it_is_complete_and_is_stored_on_the_disk(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    if existing:
        (tmp_path / "file").write_text("old")
        (tmp_path / "file").chmod(0o640)
    modes: list[int] = []
    synced: list[tuple[bool, str]] = []
    fchmod, fsync = os.fchmod, os.fsync

    def change(fd: int, mode: int) -> None:
        assert os.fstat(fd).st_size == (3 if modes else 0)
        modes.append(mode)
        fchmod(fd, mode)

    def sync(fd: int) -> None:
        shown = (tmp_path / "file").read_text() if (tmp_path / "file").exists() else ""
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), shown))
        fsync(fd)

    monkeypatch.setattr(os, "fchmod", change)
    monkeypatch.setattr(os, "fsync", sync)
    tools["write_file"]("file", "new")

    assert modes == [0o600, stat.S_IMODE((tmp_path / "file").stat().st_mode)]
    assert not existing or modes[1] == 0o640
    # The content before the file appears, then the name in the folder.
    assert synced == [(False, "old" if existing else ""), (True, "new")]


def test_a_file_that_was_created_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def meanwhile(names: tuple[str, ...]) -> None:
        (tmp_path / "file").write_text("theirs")

    with fs.Root(tmp_path) as root, pytest.raises(ToolError, match="'file' was created meanwhile"):
        files.write(root, "file", b"ours", guard=meanwhile, is_new=True)

    assert (tmp_path / "file").read_text() == "theirs"
    with fs.Root(tmp_path) as root:
        assert files.write(root, "file", b"ours")[0] is False
        new, mark = files.write(root, "new", b"ours", is_new=True)
    assert new
    assert mark == files.mark_of((tmp_path / "new").stat())


@pytest.mark.parametrize("path", ["new/", "new/.", "new//./", "new/..", "."])
def test_a_path_that_ends_like_a_folder_is_not_written(
    tools: Tools, tmp_path: Path, path: str
) -> None:
    with pytest.raises(GlueError):
        tools["write_file"](path, "x")

    assert not (tmp_path / "new").exists()


def outside(base: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in sorted((base / "out").rglob("*"))
    }


@pytest.mark.parametrize("back", [None, "a link", "another folder"])
def test_nothing_is_written_to_a_folder_that_was_moved(tmp_path: Path, back: str | None) -> None:
    folder = tmp_path / "root" / "folder"
    elsewhere = tmp_path / ("root/.git" if back == "a link" else "elsewhere")
    folder.mkdir(parents=True)

    # The guard is called when the folder is open and nothing is written yet.
    def move(names: tuple[str, ...]) -> None:
        folder.rename(elsewhere)
        if back == "a link":
            folder.symlink_to(".git")
        elif back:
            folder.mkdir()

    with (
        fs.Root(tmp_path / "root") as root,
        pytest.raises(UnsafePath, match="was moved meanwhile"),
    ):
        files.write(root, "folder/config", b"x", guard=move)

    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("what", ["changed", "removed"])
def test_a_file_that_changed_after_it_was_read_is_not_overwritten(
    tmp_path: Path, what: str
) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    mark = files.mark_of(file.stat())

    def meanwhile(names: tuple[str, ...]) -> None:
        file.write_text("theirs") if what == "changed" else file.unlink()

    with (
        fs.Root(tmp_path) as root,
        pytest.raises(ToolError, match=f"{what} meanwhile; nothing was written"),
    ):
        files.write(root, "file", b"ours", guard=meanwhile, mark=mark)

    assert [path.read_text() for path in tmp_path.iterdir()] == (
        ["theirs"] if what == "changed" else []
    )


def test_a_link_in_place_of_a_new_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for folder in (outside, tmp_path / "root"):
        folder.mkdir()
    before = outside.stat().st_mtime_ns

    def link(names: tuple[str, ...]) -> None:
        (tmp_path / "root/new").symlink_to(outside)

    with fs.Root(tmp_path / "root") as root, pytest.raises(OSError, match="new/file"):
        files.write(root, "new/file", b"x", guard=link)

    assert outside.stat().st_mtime_ns == before  # nothing was created there, even for a moment


def test_lines_that_fit_count_their_bytes_and_line_ends() -> None:
    assert lines_that_fit(["ab", "ä", "c"], 8) == ["ab", "ä", "c"]
    assert lines_that_fit(["ab", "ä", "c"], 7) == ["ab", "ä"]
    assert lines_that_fit(["ab", "ä", "c"], 2) == []


def test_a_page_without_pieces_of_lines_cuts_a_long_line() -> None:
    pager = Pager(1, 5)

    assert not pager.feed("aaaä bbb\nnext\n".encode())

    assert pager.text() == "aaaä\n[line 1 is cut; continue with offset 2]"


def test_a_page_may_be_exactly_as_long_as_its_limit() -> None:
    exact, longer = Pager(1, 10), Pager(1, 10)
    assert exact.feed(b"a\nbcdefghi")
    assert not longer.feed(b"a\nbcdefghij")

    assert exact.text() == "a\nbcdefghi"
    assert longer.text() == "a\n[continue with offset 2]"


def test_broken_utf16_is_not_edited() -> None:
    with pytest.raises(ToolError, match="the file is binary; only text can be edited"):
        decode(codecs.BOM_UTF16_LE + b"\x00\xd8a\x00")

"""Tests of Root: which paths it opens, and which it refuses."""

from __future__ import annotations

import gc
import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from fakes.trees import Tools
from hypothesis import given
from hypothesis import strategies as st

from glue.errors import ToolError, UnsafePath
from glue.tools import fs
from glue.tools.fs import Root, safe_open, truncate
from glue.tools.fs import functions as ready
from glue.tools.fs.root import file_kind, open_at, shorten, stat_or_none


@pytest.mark.parametrize(
    "target", ["a/file", "./a/file", "a/../a/file", "b/../a/file", "{root}/a/file", "b/up/a/file"]
)
def test_a_link_that_stays_inside_the_root_is_followed(
    tools: Tools, tmp_path: Path, target: str
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/file").write_text("inside")
    (tmp_path / "b/up").symlink_to("..")
    (tmp_path / "link").symlink_to(target.format(root=os.path.realpath(tmp_path)))

    assert tools["read_file"]("link") == "inside"


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "real/absolute").symlink_to(tmp_path / "link/file")
    (tmp_path / "link").symlink_to("real")

    for name in ("file", "absolute"):
        with safe_open(tmp_path / "link", name) as file:
            assert file.read() == b"x"


def test_redundant_components_of_a_path_are_ignored(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")

    for path in ("a/b", "a/b/", "a//b", "./a/./b/.", "a/b/../b", "a/../a/b"):
        assert tools["list_dir"](path) == "file  1 bytes"


def test_a_path_through_a_file_is_refused(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    for path in ("file/", "file/.", "file/x", "file/.."):
        with pytest.raises(ToolError, match="not a directory"):
            tools["read_file"](path)


@pytest.mark.parametrize(
    "path", ["", "/", "/etc/passwd", "a\0b", "x" * 20_000, "\ud800", "..", "a/../.."]
)
def test_an_invalid_path_is_refused_with_one_line(tools: Tools, tmp_path: Path, path: str) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(UnsafePath) as caught:
        tools["list_dir"](path)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_longest_path_has_16_kib(root: Root) -> None:
    with root.place("./" * (8 * 1024)) as place:
        assert place.path == "."
    with (
        pytest.raises(UnsafePath, match="the path is 16385 bytes long; at most 16384 are allowed"),
        root.place("./" * (8 * 1024) + "."),
    ):
        pass


def test_at_most_40_links_are_followed(root: Root, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("x")
    for number in range(1, 42):
        (tmp_path / str(number)).symlink_to(str(number - 1))

    with root.open("40") as file:
        assert file.read() == b"x"
    with pytest.raises(UnsafePath, match="'41' leads through more than 40 links"):
        root.open("41")
    with (
        pytest.raises(
            UnsafePath, match="'1' leads through a link, and this operation follows no links"
        ),
        root.place("1", links=False),
    ):
        pass


def test_a_path_that_is_not_a_directory_is_missing_or_a_file(root: Root, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    with root.directory("folder") as place:
        assert (place.path, place.name) == ("folder", None)
    for path, kind in (
        ("none", FileNotFoundError),
        ("none/deep", FileNotFoundError),
        ("file", NotADirectoryError),
    ):
        with pytest.raises(kind) as caught, root.directory(path):
            pass
        assert caught.value.filename == path


def test_a_link_is_followed_only_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("none")

    def kind(name: str, **options: bool) -> str:
        found = stat_or_none(str(tmp_path / name), **options)
        return "none" if found is None else file_kind(found.st_mode)

    names = ("file", "link", "dangling", "none", "a\0b")
    assert [kind(name) for name in names] == ["file", "link", "link", "none", "none"]
    assert [kind(name, follow=True) for name in names] == ["file", "file", "none", "none", "none"]


class FoldingRoot(Root):
    """A root on a file system that ignores upper and lower case."""

    def _stat(self, name: str) -> os.stat_result | None:
        return super()._stat(name) or super()._stat(name.lower())


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_case_of_names_is_tried_out_or_known_from_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for folder, files in {"letters": ["1", "a"], "digits": ["1"], "both": ["a", "A"]}.items():
        (tmp_path / folder).mkdir()
        for name in files:
            (tmp_path / folder / name).touch()

    assert not Root(tmp_path / "letters").folds_names
    assert FoldingRoot(tmp_path / "letters").folds_names
    assert not FoldingRoot(tmp_path / "both").folds_names
    assert Root(tmp_path / "digits").folds_names is (platform == "darwin")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_root_closes_its_descriptor_when_it_is_closed_left_or_forgotten(tmp_path: Path) -> None:
    def opened() -> int:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        top = os.path.realpath(tmp_path)
        return sum(os.path.realpath(link) == top for link in links)

    closed, forgotten = Root(tmp_path), Root(tmp_path)
    with Root(tmp_path):
        assert opened() == 3
    assert opened() == 2
    closed.close()
    closed.close()
    assert opened() == 1
    del forgotten
    assert opened() == 0


def test_a_long_path_is_cut_in_messages() -> None:
    assert shorten("x" * 200) == "'" + "x" * 200 + "'"
    assert shorten("x" * 201) == "'" + "x" * 200 + "'..."


def test_a_path_that_only_starts_with_the_name_of_the_root_is_refused(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2/file").write_text("x")
    (tmp_path / "link").symlink_to(f"{tmp_path}2/file")

    for path in (f"{tmp_path}2/file", "link"):
        with pytest.raises(UnsafePath):
            tools["read_file"](path)


def test_a_folder_without_read_permission_can_be_traversed(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/file").write_text("x")
    (tmp_path / "closed").chmod(0o311)
    tmp_path.chmod(0o755)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        root = Root(tmp_path)
        pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setuid(65534)
            os.write(writer, ready.functions(root)["read_file"]("closed/file").encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(pid, 0)
    (tmp_path / "closed").chmod(0o755)

    assert said == "x" or not hasattr(os, "O_PATH")


def test_deep_nesting_does_not_leak_descriptors(tools: Tools, tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    with pytest.raises((UnsafePath, ToolError)):
        tools["read_file"]("d/" * 400 + "file")
    tools["find_files"]("*")

    assert not before or len(os.listdir("/proc/self/fd")) == before


async def test_the_error_for_a_special_file_names_its_kind(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short

    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, kind in {"pipe": "FIFO", "socket": "socket"}.items():
            with pytest.raises(UnsafePath, match=f"'{name}' is a {kind}, not a regular file"):
                tools["read_file"](name)
    with pytest.raises(ToolError, match="'pipe' is a FIFO, not a regular file"):
        await tools["grep"]("x", "pipe")
    with pytest.raises(ToolError, match="'folder': is a directory"):
        tools["read_file"]("folder")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has these files")
@pytest.mark.parametrize("name", ["environ", "mem", "maps", "cmdline"])
def test_files_in_proc_are_refused(name: str) -> None:
    with pytest.raises(UnsafePath, match="is in /proc and is not a regular file"):
        safe_open("/proc", f"{os.getpid()}/{name}")


def test_folders_are_entered_down_to_256_levels(root: Root, tmp_path: Path) -> None:
    path = "/".join(["a"] * 256)
    (tmp_path / path / "a").mkdir(parents=True)

    with root.directory(path) as place:
        assert place.path == path
    with pytest.raises(UnsafePath, match="nested deeper than 256 directories"):
        root.open(f"{path}/a")


def test_a_path_of_too_many_folders_is_refused(tools: Tools, tmp_path: Path) -> None:
    path = "/".join(["a"] * 300)
    (tmp_path / path).mkdir(parents=True)

    with pytest.raises(UnsafePath, match="nested deeper than 256 directories"):
        tools["list_dir"](path)
    assert tools["list_dir"](path[:400]) == "a/"


LETTERS = st.text("aé日🦊\n\ud800", max_size=60)


@given(LETTERS, st.integers(-1, 60), LETTERS)
def test_truncate_never_exceeds_its_cap(text: str, cap: int, marker: str) -> None:
    short = truncate(text, cap, marker)

    size = len(short.encode("utf-8", "replace"))
    assert size <= max(cap, 0)
    if len(text.encode("utf-8", "replace")) <= cap:
        assert short == text
    elif len(marker.encode("utf-8", "replace")) <= cap:
        assert short.endswith(marker.encode("utf-8", "replace").decode())


@pytest.mark.parametrize(
    ("text", "cap", "marker", "expected"),
    [
        ("hello world", 8, "...", "hello..."),
        ("hello world", 2, "...", "he"),
        ("ééé", 5, "", "éé"),
        ("ééé", 5, "…", "é…"),
        ("日本", 4, "", "日"),
        ("abc", 3, "...", "abc"),
        ("abcd", 3, "...", "..."),
        ("abc", 0, "...", ""),
    ],
)
def test_truncate_cuts_between_characters(text: str, cap: int, marker: str, expected: str) -> None:
    assert truncate(text, cap, marker) == expected


SECRET = "tOpSeCrEt-4711"


def outside(base: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in sorted((base / "out").rglob("*"))
    }


@pytest.mark.parametrize("other", ["fifo", "link", "folder"])
def test_a_file_that_is_replaced_between_stat_and_open_is_refused(
    tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "outside").write_text(SECRET)
    real = os.stat

    def swapped(path: Any, *args: Any, **options: Any) -> os.stat_result:
        found = real(path, *args, **options)
        if path == "file":
            (tmp_path / "file").unlink()
            {
                "fifo": lambda: os.mkfifo(tmp_path / "file"),
                "link": lambda: (tmp_path / "file").symlink_to("outside"),
                "folder": lambda: (tmp_path / "file").mkdir(),
            }[other]()
        return found

    with fs.Root(tmp_path) as root:
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        monkeypatch.setattr(os, "stat", swapped)
        with pytest.raises((UnsafePath, IsADirectoryError)):
            open_at(root.fd, "file", "file")
        monkeypatch.undo()
        assert not before or len(os.listdir("/proc/self/fd")) == before


def test_an_absolute_link_in_a_folder_starts_at_the_root(tools: Tools, tmp_path: Path) -> None:
    for folder in ("b", "a/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text(folder)
    (tmp_path / "a/link").symlink_to(os.path.realpath(tmp_path) + "/b/file")

    assert tools["read_file"]("a/link") == "b"
    assert fs.relative_path(tmp_path, "a/link") == "b/file"
    with pytest.raises(UnsafePath, match="on the block list"):
        safe_open(tmp_path, "a/link", blocklist=fs.Blocklist(("b/file",)))


def test_close_also_closes_descriptor_0(tmp_path: Path) -> None:
    saved = os.dup(0)
    try:
        with fs.Root(tmp_path) as opened:
            os.dup2(opened.fd, 0)

        fs.Root.adopt(0).close()

        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def test_a_file_is_read_in_blocks_of_64_kib(root: Root, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100_000))

    with root.open("file") as file:
        assert len(file.peek()) == 64 * 1024


def test_a_link_is_not_opened_if_it_was_resolved_itself(root: Root, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")

    with (
        root.place("link", final=False) as place,
        pytest.raises(UnsafePath, match="'link' is a link, not a regular file"),
    ):
        place.open("link")


def test_an_error_without_a_number_keeps_its_text(root: Root) -> None:
    with pytest.raises(OSError, match=r"^no number$"), root.place("."):
        raise OSError("no number")


def test_a_root_that_is_not_closed_leaves_no_descriptor_open(tmp_path: Path) -> None:
    root = Root(tmp_path)
    fd = root.fd

    del root
    gc.collect()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)

"""The file tools in ordinary use, which the guards must not break."""

from __future__ import annotations

import codecs
import os
import socket
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.errors import GlueError, ToolError, UnsafePath
from glue.function.call import current_spool
from glue.tools import fs
from glue.tools.fs import Blocklist, Root, safe_join, safe_open, truncate, walk
from glue.tools.fs import functions as ready
from glue.tools.fs.grep import grep, texts
from glue.tools.fs.patterns import Glob, alternatives

Tools = dict[str, Any]


@pytest.fixture
def root(tmp_path: Path) -> Any:
    with Root(tmp_path) as opened:
        yield opened


@pytest.fixture
def tools(root: Root) -> Tools:
    return ready.functions(root)


# Legitimate paths --------------------------------------------------------------------------------

NAMES = [
    "plain.txt",
    "with space.txt",
    " leading and trailing ",
    "naïve-Ünïcödé.txt",
    "日本語.txt",
    "emoji-🦊.txt",
    "..name",
    "...",
    "name..",
    "a..b",
    "-rf",
    "--help",
    "~",
    "~user",
    "$HOME",
    "%2e%2e",
    "back\\slash",
    "quote'\"",
    "semi;colon",
    "star*.txt",
    "[brackets]",
    "{braces}",
    "tab\there",
    "line\nbreak",
    ".env",
    ".gitignore",
    ".hidden",
    "e\u0301-decomposed",
    "é-composed",
    "\u202eright-to-left",
    "x" * 255,
    "a/b/c/d/e/f/g.txt",
    "deep/" * 60 + "file",
    "COM1",
    "con.txt",
    "spool:notes.txt",
    ".git/config",
]


@pytest.mark.parametrize("name", NAMES)
def test_legitimate_name_is_read(tools: Tools, tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("hello\n")

    assert tools["read_file"](name) == "hello\n"
    assert tools["read_file"]("./" + name) == "hello\n"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(".git/")])
def test_legitimate_name_is_written_and_edited(tools: Tools, tmp_path: Path, name: str) -> None:
    tools["write_file"](name, "one two\n")
    tools["edit_file"](name, "two", "three")

    assert (tmp_path / name).read_text() == "one three\n"
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.parametrize("target", ["a/file", "./a/file", "a/../a/file", "b/../a/file", "{root}/a/file", "b/up/a/file"])
def test_link_that_stays_inside_is_followed(tools: Tools, tmp_path: Path, target: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/file").write_text("inside")
    (tmp_path / "b/up").symlink_to("..")
    (tmp_path / "link").symlink_to(target.format(root=os.path.realpath(tmp_path)))

    assert tools["read_file"]("link") == "inside"


def test_root_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "real/absolute").symlink_to(tmp_path / "link/file")
    (tmp_path / "link").symlink_to("real")

    for name in ("file", "absolute"):
        with safe_open(tmp_path / "link", name) as file:
            assert file.read() == b"x"


def test_odd_spellings_of_a_folder_are_the_same_folder(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")

    for path in ("a/b", "a/b/", "a//b", "./a/./b/.", "a/b/../b", "a/../a/b"):
        assert tools["list_dir"](path) == "file  1 bytes"


def test_file_is_no_folder(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    for path in ("file/", "file/.", "file/x", "file/.."):
        with pytest.raises(ToolError, match="not a directory"):
            tools["read_file"](path)


@pytest.mark.parametrize("path", ["", "/", "/etc/passwd", "a\0b", "x" * 20_000, "\ud800", "..", "a/../.."])
def test_what_is_no_path_is_refused_with_one_line(tools: Tools, tmp_path: Path, path: str) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(UnsafePath) as caught:
        tools["list_dir"](path)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_path_that_only_begins_like_the_root_is_not_below_it(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2/file").write_text("x")
    (tmp_path / "link").symlink_to(f"{tmp_path}2/file")

    for path in (f"{tmp_path}2/file", "link"):
        with pytest.raises(UnsafePath):
            tools["read_file"](path)


def test_folder_that_may_be_passed_but_not_listed_is_passed(tmp_path: Path) -> None:
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


def test_deep_nesting_leaks_no_descriptor(tools: Tools, tmp_path: Path) -> None:
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


# Reading -----------------------------------------------------------------------------------------


def test_page_ends_with_an_exact_hint(tools: Tools, tmp_path: Path) -> None:
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
    lines=st.lists(st.text(st.characters(blacklist_characters="\n\0", blacklist_categories=["Cs"]), max_size=40)),
    limit=st.integers(1, 7),
    end=st.booleans(),
)
def test_pages_put_together_are_the_file(
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


def test_line_longer_than_a_page_is_read_in_pieces(tools: Tools, tmp_path: Path) -> None:
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
def test_any_content_can_be_read(tools: Tools, tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "file").write_bytes(content)

    assert tools["read_file"]("file").startswith(expected)


def test_offset_past_the_end_says_how_long_the_file_is(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\nb\n")
    (tmp_path / "cut").write_text("a\nb")

    for name in ("file", "cut"):
        with pytest.raises(ToolError, match="the file has 2 lines"):
            tools["read_file"](name, offset=3)
        with pytest.raises(ToolError, match="the file has 2 lines"):
            tools["read_file"](name, offset=30)


def test_spooled_output_of_another_tool_is_read(tools: Tools) -> None:
    address = current_spool.get().write("all of it\n")

    assert tools["read_file"](address) == "all of it\n"


def test_lines_can_be_numbered(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\nb\n")

    assert tools["read_file"]("file", offset=2, numbers=True) == "     2| b\n"


# Listing, finding, searching ---------------------------------------------------------------------


def test_listing_says_what_is_what(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("12345")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "odd\nname").write_text("")

    assert tools["list_dir"]().split("\n") == [
        "file  5 bytes",
        "folder/",
        "link@",
        '"odd\\nname"  0 bytes',
        "pipe  (FIFO)",
    ]


def test_listing_is_paged(tools: Tools, tmp_path: Path) -> None:
    for number in range(1005):
        (tmp_path / f"{number:04}").touch()

    first = tools["list_dir"]()
    second = tools["list_dir"](offset=1001)

    assert first.endswith("[entries 1-1000 of 1005; continue with offset 1001]")
    assert [line[:4] for line in second.split("\n")] == ["1000", "1001", "1002", "1003", "1004"]


def test_name_that_is_not_utf8_is_listed_and_can_be_read(tools: Tools, tmp_path: Path) -> None:
    try:
        os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    except OSError:
        pytest.skip("this file system only takes UTF-8")

    assert tools["list_dir"]() == '"caf\\udce9"  0 bytes'
    assert tools["read_file"]("caf\udce9") == "[the file is empty]"
    assert tools["find_files"]("caf*") == '"caf\\udce9"'


def _tree(tmp_path: Path, *names: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"needle in {name}\n")


def test_finding_respects_gitignore(tools: Tools, tmp_path: Path) -> None:
    _tree(
        tmp_path, "a.py", "b.log", "keep.log", "build/x.py", "src/build/y.py", "src/c.py", "src/local/d.py", ".dot.py"
    )
    _tree(tmp_path, ".git/hooks/e.py", "docs/only/f.py")
    (tmp_path / ".gitignore").write_text("# comment\n*.log\n!keep.log\nbuild/\n/docs/only\n")
    (tmp_path / "src/.gitignore").write_text("local\n")

    assert tools["find_files"]("*.py").split("\n") == [".dot.py", "a.py", "src/c.py"]
    assert tools["find_files"]("*.log") == "keep.log"
    assert tools["find_files"]("src/**/*.py", ignored=True).split("\n") == [
        "src/build/y.py",
        "src/c.py",
        "src/local/d.py",
    ]
    assert tools["find_files"]("*.{log,md}", path=".") == "keep.log"
    assert tools["find_files"]("nothing") == "no file matches"


async def test_patterns_may_be_absolute_below_the_root(tools: Tools, tmp_path: Path) -> None:
    _tree(tmp_path, "top.py", "src/a.py", "src/deep/b.py")

    for top in ("", str(tmp_path)):
        assert tools["find_files"](f"{top}/*.py") == "top.py"
        assert tools["find_files"](f"{top}/src/**/*.py") == "src/a.py\nsrc/deep/b.py"
        assert (await tools["grep"]("needle", glob=f"{top}/src/*.py")).startswith("src/a.py:1: ")
    assert tools["find_files"]("/elsewhere/*.py") == "no file matches"


async def test_search_gives_paths_lines_and_context(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo needle\r\nthree\r\nfour\r\nneedle\r\n")
    _tree(tmp_path, "sub/b.txt")

    plain = await tools["grep"]("needle$", context=1, path="a.txt")
    found = await tools["grep"]("needle", glob="sub/**")
    dotted = await tools["grep"]("needle", glob="./sub/*.txt")

    assert plain.split("\n") == [
        "a.txt-1- one",
        "a.txt:2: two needle",
        "a.txt-3- three",
        "a.txt-4- four",
        "a.txt:5: needle",
    ]
    assert found == dotted == "sub/b.txt:1: needle in sub/b.txt"


async def test_an_empty_file_has_no_line_and_contexts_that_meet_are_one(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("a\n\nb\nc\nd\ne\n\n")

    found = await tools["grep"]("^$", context=1)
    first = await tools["grep"]("[abe]", context=1, limit=2)

    assert found.split("\n") == ["text-1- a", "text:2: ", "text-3- b", "--", "text-6- e", "text:7: "]
    assert first.split("\n")[:4] == ["text:1: a", "text-2- ", "text:3: b", "text-4- c"]


async def test_search_passes_over_what_it_cannot_read(tools: Tools, tmp_path: Path) -> None:
    _tree(tmp_path, "a", "ignored")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"needle\0")
    (tmp_path / "latin").write_bytes(b"needle \xe9\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "link").symlink_to("a")

    found = await tools["grep"]("needle")

    assert found.split("\n") == ["a:1: needle in a", "latin:1: needle é"]


def test_search_that_would_run_for_ever_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("aaa\n")
    (tmp_path / "second").write_text("a" * 40 + "b\n")
    switches = dict.fromkeys(("ignore_case", "fixed", "ignored", "context"), 0)
    query: dict[str, Any] = {"pattern": "^(a+)+$", "path": ".", "glob": "", "limit": 100, "blocked": None, **switches}

    found = grep(Root(tmp_path), query, seconds=1.5)

    assert found == "first:1: aaa\n[stopped after 1.5 s: simplify the pattern or narrow the path]"


@pytest.mark.parametrize("pattern", ["(", "*", "a" * 5000, "(?P<x>a)(?P<x>b)", "a{99999999999}", "[z-a]"])
async def test_search_says_what_is_wrong_with_a_pattern(tools: Tools, pattern: str) -> None:
    with pytest.raises(ToolError, match="the pattern cannot be used"):
        await tools["grep"](pattern)


async def test_search_names_a_path_that_is_not_there_on_one_line(tools: Tools) -> None:
    with pytest.raises(ToolError) as caught:
        await tools["grep"]("x", "no/such\x1b\nfile")

    assert str(caught.value) == r"'no/such\x1b\nfile': no such file or directory"


def test_search_opens_nothing_through_a_link(root: Root, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")

    assert list(texts(root.fd, "file", "file", b"")) == ["x"]
    with pytest.raises(OSError, match="symbolic link"):
        texts(root.fd, "link", "link", b"")


def test_ignore_rules_above_the_folder_count_too(tools: Tools, tmp_path: Path) -> None:
    _tree(tmp_path, "src/a.py", "src/a.log", "src/gen/b.py", "src/deep/gen/c.py")
    (tmp_path / ".gitignore").write_text("*.log\n/src/gen\n")

    assert tools["find_files"]("*", path="src").split("\n") == ["src/a.py", "src/deep/gen/c.py"]
    assert anyio.run(tools["grep"], "needle", "src/deep") == "src/deep/gen/c.py:1: needle in src/deep/gen/c.py"


async def test_search_that_is_cancelled_leaves_no_process(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("a" * 40 + "b\n")

    before = _children()

    with anyio.move_on_after(0.2):
        await tools["grep"]("(a+)+$")

    assert _children() == before


def _children() -> list[str]:
    return [pid for pid in _tasks() if pid]


def _tasks() -> list[str]:
    try:
        threads = os.listdir("/proc/self/task")
        return [pid for one in threads for pid in Path(f"/proc/self/task/{one}/children").read_text().split()]
    except OSError:
        return []


async def test_lines_are_counted_through_large_files(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "large").write_text("".join(f"line {n}\n" for n in range(300_000)) + "needle\nend\n")

    assert await tools["grep"]("needle") == "large:300001: needle"
    assert (
        await tools["grep"]("nee[d]le$", context=1)
        == "large-300000- line 299999\nlarge:300001: needle\nlarge-300002- end"
    )


async def test_long_lines_are_shown_around_the_hit(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "minified").write_text("x" * 3_000_000 + "needle" + "y" * 1000)

    found = await tools["grep"]("needle")

    assert "needle" in found
    assert len(found) < 700


def test_empty_ignore_rules_and_odd_ones_do_no_harm(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\n/\n!\n\\\n[\n[!\n**\\\n\xff\n   \n#\n\\#x\n")
    (tmp_path / "a").touch()

    assert tools["find_files"]("a") == "a"


# Writing -----------------------------------------------------------------------------------------


def test_writing_keeps_the_mode_and_makes_folders(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(0o6755)  # whoever may write it does not pass on the right to run as somebody else

    assert tools["write_file"]("run.sh", "new\n") == "replaced run.sh: 4 bytes, 1 lines"
    assert tools["write_file"]("a/b/new", "x") == "created a/b/new: 1 bytes, 1 lines"
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "a/b/new").stat().st_mode) == 0o666 & ~umask


def test_writing_is_refused_where_it_would_surprise(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "sealed").write_text("x")
    (tmp_path / "sealed").chmod(0o444)
    os.mkfifo(tmp_path / "pipe")

    for path in ("folder", "folder/", "link", "sealed", "pipe", "file/below"):
        with pytest.raises(GlueError):
            tools["write_file"](path, "y")

    assert (tmp_path / "file").read_text() == (tmp_path / "sealed").read_text() == "x"


async def test_reading_what_is_no_regular_file_is_refused_by_its_kind(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the name of a socket is short

    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, kind in {"pipe": "FIFO", "socket": "socket"}.items():
            with pytest.raises(UnsafePath, match=f"'{name}' is a {kind}, not a regular file"):
                tools["read_file"](name)
    with pytest.raises(ToolError, match="'pipe' is a FIFO, not a regular file"):  # at once, not after a deadline
        await tools["grep"]("x", "pipe")
    with pytest.raises(ToolError, match="'folder': is a directory"):
        tools["read_file"]("folder")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files of processes are Linux's")
@pytest.mark.parametrize("name", ["environ", "mem", "maps", "cmdline"])
def test_a_window_into_a_process_is_no_file(name: str) -> None:
    with pytest.raises(UnsafePath, match="a window into a process"):
        safe_open("/proc", f"{os.getpid()}/{name}")


async def test_a_walk_goes_so_deep_and_no_deeper(tools: Tools, tmp_path: Path) -> None:
    for depth in (60, 70):
        folder = tmp_path / "/".join([str(depth)] * depth)
        folder.mkdir(parents=True)
        (folder / "bottom").write_text("needle")

    found, hits = tools["find_files"]("bottom"), await tools["grep"]("needle")

    for said, note in ((found, "1 folders could not be entered"), (hits, "1 unreadable entries passed over")):
        assert said.startswith("60/60/")
        assert "70/" not in said
        assert note in said


def test_a_large_folder_is_read_as_far_as_the_budget_goes(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).touch()
    budget = walk.Budget(entries=10)

    with Root(tmp_path) as root:
        assert len(list(walk.scan(root.fd, budget))) == 10
    assert budget.stopped == "too many entries"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others do not hold a process to its limit")
def test_a_pattern_that_takes_all_memory_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("a" * 900_000)
    monkeypatch.setattr("glue.tools.fs.grep.MEMORY", 100 * 1024 * 1024)
    query: dict[str, object] = {
        "pattern": "(?:(?:(a)|(b))|(c)|(d)|(e)|(f)|(g)|(h))*!",
        "path": ".",
        "glob": "",
        "context": 0,
        "limit": 9,
    }
    query |= {"ignore_case": False, "fixed": False, "ignored": False, "blocked": None}

    with Root(tmp_path) as root, pytest.raises(ToolError, match="cannot be used: it takes too much memory"):
        grep(root, query, seconds=30.0)


def test_no_more_than_the_beginning_of_a_gitignore_is_read(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("one\n" + "#" * 64 * 1024 + "\ntwo\n")
    for name in ("one", "two"):
        (tmp_path / name).touch()

    assert tools["find_files"]("*") == ".gitignore\ntwo"


def test_a_path_holds_no_more_than_so_many_folders_open(tools: Tools, tmp_path: Path) -> None:
    path = "/".join(["a"] * 300)
    (tmp_path / path).mkdir(parents=True)

    with pytest.raises(UnsafePath, match="nested deeper than 256 directories"):
        tools["list_dir"](path)
    assert tools["list_dir"](path[:400]) == "a/"


@pytest.mark.parametrize("path", ["new/../file", "new/../../file", "a/../new/../../file"])
def test_nothing_is_made_on_the_way_back_from_a_folder_that_is_not_there(
    tools: Tools, tmp_path: Path, path: str
) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(ToolError, match="no such file or directory"):
        tools["write_file"](path, "x")

    assert os.listdir(tmp_path) == ["a"]


def test_writing_below_a_link_that_stays_inside_works(tools: Tools, tmp_path: Path) -> None:
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
        "git~12",
        ".git::$INDEX_ALLOCATION",
        "a\\.git",
        ".g\u200cit",
        ".gi\ufe0ft",
        "\uff0egit",
    ],
)
def test_what_some_file_system_takes_for_git_is_not_written(tools: Tools, tmp_path: Path, name: str) -> None:
    for path in (f"{name}/config", f"sub/{name}/hooks/x"):
        with pytest.raises(UnsafePath, match="git's own directory"):
            tools["write_file"](path, "x")

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name", [".gitignore", ".github/workflows/ci.yml", ".gitattributes", "git/x", ".git-x", "agit~1"]
)
def test_names_that_only_begin_like_git_are_written(tools: Tools, tmp_path: Path, name: str) -> None:
    tools["write_file"](name, "x")

    assert (tmp_path / name).read_text() == "x"


def test_owner_is_kept(tools: Tools, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    (tmp_path / "file").write_text("x")
    os.chown(tmp_path / "file", 65534, 65534)

    tools["edit_file"]("file", "x", "y")

    assert (tmp_path / "file").stat().st_uid == 65534


def test_too_much_is_not_written(tools: Tools) -> None:
    with pytest.raises(ToolError, match="too many"):
        tools["write_file"]("file", "x" * (8 * 1024 * 1024 + 1))


def test_half_characters_are_not_written(tools: Tools, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="half a character"):
        tools["write_file"]("file", "\ud800")

    assert not (tmp_path / "file").exists()


# The tools as tools ------------------------------------------------------------------------------


def test_reading_tools_need_no_permission_and_writing_ones_do(tmp_path: Path) -> None:
    reading = {tool.name: tool.needs_permission for tool in fs.tools(tmp_path)}
    writing = {tool.name: tool.needs_permission for tool in fs.tools(tmp_path, write=True)}

    assert reading == {"read_file": False, "list_dir": False, "find_files": False, "grep": False}
    assert {name for name, needs in writing.items() if needs} == {"write_file", "edit_file"}


def test_every_tool_and_parameter_is_described(tmp_path: Path) -> None:
    for tool in fs.tools(tmp_path, write=True):
        assert tool.spec.description
        assert all("description" in each for each in tool.spec.parameters["properties"].values())


def test_root_that_is_no_folder_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a directory"):
        fs.tools(tmp_path / "missing")


def test_block_list_holds_for_every_tool(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("needle\n")
    (tmp_path / "innocent").symlink_to(".env")
    tools = ready.functions(Root(tmp_path), Blocklist())

    for path in (".env", "innocent", "./.env"):
        with pytest.raises(GlueError, match="block list"):
            tools["read_file"](path)
        with pytest.raises(GlueError, match=r"block list|link"):
            tools["write_file"](path, "x")
        with pytest.raises(GlueError, match="block list"):
            anyio.run(tools["grep"], "needle", path)
    assert "no match" in anyio.run(tools["grep"], "needle")
    assert (tmp_path / ".env").read_text() == "needle\n"


# Plain functions ---------------------------------------------------------------------------------


def test_safe_join_gives_the_plain_name(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")

    assert safe_join(tmp_path, "link/../b/new.txt") == "a/b/new.txt"
    assert safe_join(tmp_path, "new/folder/x") == "new/folder/x"
    assert safe_join(tmp_path, ".") == "."
    with pytest.raises(UnsafePath):
        safe_join(tmp_path, "link/../../../x")


LETTERS = st.text("aé日🦊\n\ud800", max_size=60)


@given(LETTERS, st.integers(-1, 60), LETTERS)
def test_truncation_keeps_to_its_cap(text: str, cap: int, marker: str) -> None:
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
def test_truncation_cuts_between_characters(text: str, cap: int, marker: str, expected: str) -> None:
    assert truncate(text, cap, marker) == expected


@pytest.mark.parametrize(
    ("path", "blocked"),
    [
        (".env", True),
        ("deep/down/.ENV", True),
        (".env.production", True),
        (".env.example", False),
        ("server.pem", True),
        ("certs/Server.PEM", True),
        (".ssh/config", True),
        ("home/.ssh/id_rsa", True),
        ("id_ed25519.pub", False),
        ("id_ed25519", True),
        (".git/config", True),
        ("sub/.git/config", True),
        (".gitignore", False),
        ("environment.py", False),
        ("src/keys.py", False),
        ("monkey", False),
        ("docs/credentials", True),
        ("credentials.py", False),
    ],
)
def test_default_block_list(path: str, blocked: bool) -> None:
    assert Blocklist().blocks(path) is blocked


def test_block_list_matches_three_ways_and_stars_stop_at_slashes() -> None:
    assert Blocklist(("private/*.txt",)).blocks("private/a.txt")
    assert not Blocklist(("private/*.txt",)).blocks("private/deep/a.txt")
    assert Blocklist(("*.txt",)).blocks("private/deep/a.TXT")
    assert Blocklist(("private",)).blocks("some/private/a")
    assert Blocklist(("a", "b")).merge(["c"]).merge(Blocklist(("d",))).patterns == ("a", "b", "c", "d")
    assert not Blocklist(("*",)).merge(["!ok"]).blocks("ok")


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("**/a/**/b/*.c", "x/a/a/b/b/z.c", True),
        ("a?c", "abc", True),
        ("[!a]x", "bx", True),
        ("[^a]x", "ax", False),
        ("[a-c]x", "bx", True),
        ("[]]x", "]x", True),
        ("[", "[", True),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("*a*b*c", "xxaxxbxxc", True),
        ("*a*b*c", "xxaxxcxxb", False),
        ("**", "a/b", True),
    ],
)
def test_globs(pattern: str, path: str, fits: bool) -> None:
    assert Glob(pattern).matches(path.split("/")) is fits


def test_globs_take_linear_time() -> None:
    for pattern, path in (
        ("*a" * 40 + "*b", "a" * 200),
        ("*[a-b]?" * 40 + "c", "ab" * 100),
        ("**/a/" * 40 + "b", "a/" * 200),
    ):
        assert not Glob(pattern).matches(path.split("/"))


@given(st.text("ab*?[]!^-\\/", max_size=12), st.text("ab/", max_size=12))
def test_globs_never_fail(pattern: str, path: str) -> None:
    assert Glob(pattern).matches(path.split("/")) in (True, False)


def test_braces_are_alternatives() -> None:
    assert alternatives("*.{a,b}{c,d}") == ["*.ac", "*.ad", "*.bc", "*.bd"]
    assert alternatives("{a") == ["{a"]
    assert len(alternatives("{a,b}" * 30)) <= 200


def test_names_can_be_had_from_the_package() -> None:
    from glue import tools

    for name in tools.__all__:
        assert getattr(tools, name)
    callback: Callable[..., Any] = tools.safe_open
    assert callback is safe_open


# Small mercies ---------------------------------------------------------------------------------------


def test_absolute_paths_below_the_root_are_the_relative_ones(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.txt").write_text("hello\n")

    assert tools["read_file"](f"{tmp_path}/sub/a.txt") == "hello\n"
    assert tools["list_dir"](str(tmp_path)) == "sub/"
    assert "replaced" in tools["write_file"](f"{tmp_path}/sub/a.txt", "new\n")
    assert anyio.run(lambda: tools["grep"]("new", path=f"{tmp_path}/sub")) == "sub/a.txt:1: new"
    for path in ("/etc/passwd", f"{tmp_path}x/a", f"{tmp_path}/../a", f"{tmp_path}/sub/../../a"):
        with pytest.raises(GlueError):
            tools["read_file"](path)


def test_missing_file_gets_near_misses(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/deep/settings.py").touch()
    (tmp_path / "src/README.md").touch()

    with pytest.raises(ToolError, match=r"did you mean src/deep/settings.py\?$"):
        tools["read_file"]("settings.py")
    with pytest.raises(ToolError, match=r"did you mean src/deep/settings.py"):
        tools["edit_file"]("src/deep/setings.py", "a", "b")
    with pytest.raises(ToolError, match=r"did you mean src/README.md"):
        tools["read_file"]("src/readme.md")
    with pytest.raises(ToolError, match=r"no such file or directory$"):
        tools["read_file"]("nothing-like-it.txt")


def test_file_that_changed_since_it_was_read_is_said(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    tools["read_file"]("a")
    (tmp_path / "a").write_text("one\ntwo\nthree, by another\n")

    with pytest.raises(ToolError, match="changed since it was read"):
        tools["write_file"]("a", "mine\n")
    assert "it had changed since it was read" in tools["edit_file"]("a", "two", "2")
    assert "changed" not in tools["edit_file"]("./a", "one", "1")
    assert "replaced" in tools["write_file"]("a", "mine\n")


def test_several_edits_in_one_call_are_made_together_or_not(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")

    said = tools["edit_file"]("a", edits=[{"old": "one", "new": "1"}, {"old": "three\n", "new": ""}])
    assert (tmp_path / "a").read_text() == "1\ntwo\n"
    assert [line[7:] for line in said.split("\n")[1:]] == ["-one", "+1", " two", "-three"]
    with pytest.raises(ToolError, match="no edit was made"):
        tools["edit_file"]("a", edits=[{"old": "two", "new": "2"}, {"old": "missing", "new": ""}])
    assert (tmp_path / "a").read_text() == "1\ntwo\n"


def test_written_file_keeps_its_encoding_or_is_refused(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("café\n".encode("latin-1"))

    assert tools["read_file"]("a") == "café\n"
    assert anyio.run(lambda: tools["grep"]("café")) == "a:1: café"
    tools["write_file"]("a", "thé\n")
    assert (tmp_path / "a").read_bytes() == "thé\n".encode("latin-1")
    with pytest.raises(ToolError, match="not in UTF-8"):
        tools["write_file"]("a", "☕\n")
    assert (tmp_path / "a").read_bytes() == "thé\n".encode("latin-1")


def test_written_file_of_wide_characters_stays_one_and_a_binary_one_becomes_text(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "wide").write_bytes(codecs.BOM_UTF16_BE + "é\n".encode("utf-16-be"))
    (tmp_path / "binary").write_bytes(b"\0\1\2")

    tools["write_file"]("wide", "☕\n")
    tools["write_file"]("binary", "☕\n")

    assert (tmp_path / "wide").read_bytes() == codecs.BOM_UTF16_BE + "☕\n".encode("utf-16-be")
    assert (tmp_path / "binary").read_text() == "☕\n"


def test_placeholder_in_a_whole_file_is_refused(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")

    with pytest.raises(ToolError, match="placeholder"):
        tools["write_file"]("a.py", "one\n# ... rest of the code unchanged\n")
    assert (tmp_path / "a.py").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("path", ["new/", "new/.", "new//./", "new/..", "."])
def test_what_ends_like_a_folder_is_not_written_as_a_file(tools: Tools, tmp_path: Path, path: str) -> None:
    with pytest.raises(GlueError):
        tools["write_file"](path, "x")

    assert not (tmp_path / "new").exists()

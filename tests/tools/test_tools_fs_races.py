"""A second process swaps directories and links while we read and write."""

from __future__ import annotations

import os
import signal
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from glue.errors import GlueError, ToolError, UnsafePath
from glue.tools import fs
from glue.tools.fs import files, walk
from glue.tools.fs import functions as ready
from glue.tools.fs.root import open_at

SECRET = "tOpSeCrEt-4711"
NAME = "outside-only-name"
FEW = 600
MANY = 4000


@dataclass(frozen=True)
class Race:
    """What is swapped for what, and what we do meanwhile."""

    name: str
    swap: tuple[str, str]  # two paths below the base that change places
    act: Callable[[Any], str]
    check: str  # a path for the naive one to check ...
    use: str  # ... and one to use, both below the root

    def __str__(self) -> str:
        return self.name


def _read(path: str) -> Callable[[Any], str]:
    return lambda tools: str(tools.functions["read_file"](path))


def _search(tools: Any) -> str:
    """What the worker of grep does, in this process: a thousand processes would only measure their start."""
    text = []
    with tools.root.directory(".") as place:
        for entry in walk.walk(tools.root, place, walk.Budget(), everything=True):
            if entry.kind == "file":
                try:
                    with open_at(entry.parent, entry.names[-1], entry.path) as file:
                        text.append(file.read(100).decode())
                except (OSError, GlueError):
                    pass
    return "\n".join(text)


def _tool(name: str, **args: Any) -> Callable[[Any], str]:
    return lambda tools: str(tools.functions[name](**args))


RACES = (
    Race("file for a link", ("root/f", "spare/f"), _read("f"), "f", "f"),
    Race("folder for a link", ("root/d", "spare/d"), _read("d/f"), "d/f", "d/f"),
    Race("folder higher up for a link", ("root/d", "spare/d"), _read("d/e/f"), "d/e/f", "d/e/f"),
    Race("link inside for a link outside", ("root/l", "spare/l"), _read("l/f"), "l/f", "l/f"),
    Race("folder for a link, going back", ("root/d", "spare/d"), _read("d/e/../f"), "d/e/../f", "d/e/../f"),
    Race("listing a folder", ("root/d", "spare/d"), _tool("list_dir", path="d"), "d", "d"),
    Race("finding in a folder", ("root/d", "spare/d"), _tool("find_files", pattern="*"), "d", "d"),
    Race("searching folders", ("root/d", "spare/d"), _search, "d/f", "d/f"),
    Race("writing below a folder", ("root/d", "spare/d"), _tool("write_file", path="d/new", content="x"), "d", "d/new"),
    Race("writing a file", ("root/f", "spare/f"), _tool("write_file", path="f", content="x"), "f", "f"),
    Race("editing a file", ("root/f", "spare/f"), _tool("edit_file", path="f", old="in", new="on"), "f", "f"),
    Race("making folders", ("root/n", "spare/d"), _tool("write_file", path="n/m/new", content="x"), "n", "n/new"),
    Race("file for a FIFO", ("root/f", "spare/fifo"), _read("f"), "f", "f"),
    Race(
        "folder moved away", ("root/d", "spare/nothing"), _tool("write_file", path="d/new", content="x"), "d", "d/new"
    ),
)


@dataclass
class Tools:
    root: fs.Root
    functions: dict[str, Any]


def arrange(base: Path, race: Race) -> None:
    """Lay out a root, what lies outside, and the links that take the root's places."""
    for folder in ("root/d/e", "root/k/e", "out/e", "out/m", "spare"):
        (base / folder).mkdir(parents=True)
    for name in ("root/f", "root/d/f", "root/d/e/f", "root/k/f"):
        (base / name).write_text("inside\n")
    for name in ("out/f", "out/e/f", f"out/{NAME}"):
        (base / name).write_text(SECRET)
    os.symlink(base / "out/f", base / "spare/f")
    os.symlink(base / "out", base / "spare/d")
    os.symlink("k", base / "root/l")
    os.symlink("../out", base / "spare/l")
    os.mkfifo(base / "spare/fifo")
    (base / "spare/nothing").mkdir()


def exchange(one: Path, other: Path) -> None:
    """Let two names change places, in three steps."""
    third = one.with_name("third-" + other.name)
    for old, new in ((one, third), (other, one), (third, other)):
        try:
            os.rename(old, new)
        except FileNotFoundError:
            pass


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """A child that swaps two names for as long as the block lasts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            while os.getppid() != 1:
                exchange(one, other)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def outside(base: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted((base / "out").rglob("*"))}


def naive_falls(base: Path, race: Race) -> bool:
    """Check a path, be interrupted at the worst moment, and use it."""
    one, other = (base / name for name in race.swap)
    before = outside(base)
    checked = os.path.realpath(base / "root" / race.check)
    assert checked.startswith(str(base / "root"))
    exchange(one, other)
    used = base / "root" / race.use
    if stat.S_ISFIFO(used.lstat().st_mode) if used.exists() else False:
        return True  # it would wait for ever
    if "writ" in race.name or "edit" in race.name or "mak" in race.name or "moved" in race.name:
        try:
            used.write_text("pwned")
        except FileNotFoundError:
            return race.swap[1] == "spare/nothing"
        return outside(base) != before or race.swap[1] == "spare/nothing"
    got = " ".join(os.listdir(used)) if used.is_dir() else used.read_text()
    return SECRET in got or NAME in got


def run_race(base: Path, race: Race, attempts: int) -> list[str]:
    """Try again and again, and list what came through."""
    before = outside(base)
    faults: list[str] = []
    with fs.Root(base / "root") as root, swapping(*(base / name for name in race.swap)):
        tools = Tools(root, ready.functions(root))
        for _ in range(attempts):
            try:
                said = race.act(tools)
            except (ToolError, GlueError):
                continue
            if SECRET in said or NAME in said:
                faults.append(f"leaked: {said[:100]}")
                break
    if outside(base) != before:
        faults.append("something outside was changed")
    return faults


@pytest.mark.parametrize("race", RACES, ids=str)
def test_naive_code_loses_the_race(race: Race, tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    arrange(base, race)

    assert naive_falls(base, race)


@pytest.mark.parametrize("race", RACES, ids=str)
def test_race_lets_nothing_through(race: Race, tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    base = Path(os.path.realpath(tmp_path))
    arrange(base, race)

    faults = run_race(base, race, FEW)

    assert faults == []
    tally("race attempts", FEW)
    tally("races", 1)


@pytest.mark.soak
@pytest.mark.parametrize("race", RACES, ids=str)
def test_race_lets_nothing_through_for_long(race: Race, tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    base = Path(os.path.realpath(tmp_path))
    arrange(base, race)

    faults = run_race(base, race, MANY)

    assert faults == []
    tally("race attempts", MANY)
    tally("races", 1)


def test_race_leaves_no_temporary_files(tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    race = next(race for race in RACES if race.name == "writing below a folder")
    arrange(base, race)

    run_race(base, race, FEW)

    assert not [path for path in base.rglob("*") if path.name.endswith(".tmp")]


def test_races_are_ten_or_more() -> None:
    assert len(RACES) >= 10
    assert sys.platform != "win32"


@pytest.mark.parametrize("other", ["fifo", "link", "folder"])
def test_a_file_that_becomes_something_else_between_the_look_and_the_open_is_refused(
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


@pytest.mark.parametrize("back", [None, "a link", "another folder"])
def test_a_folder_that_is_moved_while_it_is_written_to_is_left_alone(tmp_path: Path, back: str | None) -> None:
    folder, elsewhere = tmp_path / "root" / "folder", tmp_path / ("root/.git" if back == "a link" else "elsewhere")
    folder.mkdir(parents=True)

    def move(names: tuple[str, ...]) -> None:  # asked when the folder is open and nothing is written yet
        folder.rename(elsewhere)
        if back == "a link":
            folder.symlink_to(".git")
        elif back:
            folder.mkdir()

    with fs.Root(tmp_path / "root") as root, pytest.raises(UnsafePath, match="was moved while it was written to"):
        files.write(root, "folder/config", b"x", guard=move)

    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("what", ["changed", "removed"])
def test_a_file_that_changes_after_it_was_read_is_not_written_over(tmp_path: Path, what: str) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    mark = files.mark_of(file.stat())

    def meanwhile(names: tuple[str, ...]) -> None:
        file.write_text("theirs") if what == "changed" else file.unlink()

    with fs.Root(tmp_path) as root, pytest.raises(ToolError, match=f"{what} meanwhile; nothing was written"):
        files.write(root, "file", b"ours", guard=meanwhile, mark=mark)

    assert [path.read_text() for path in tmp_path.iterdir()] == (["theirs"] if what == "changed" else [])


def test_a_link_that_comes_where_a_folder_was_to_be_made_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for folder in (outside, tmp_path / "root"):
        folder.mkdir()
    before = outside.stat().st_mtime_ns

    def link(names: tuple[str, ...]) -> None:
        (tmp_path / "root/new").symlink_to(outside)

    with fs.Root(tmp_path / "root") as root, pytest.raises(OSError, match="new/file"):
        files.write(root, "new/file", b"x", guard=link)

    assert outside.stat().st_mtime_ns == before  # not even for a moment


def test_a_folder_that_becomes_a_link_during_a_walk_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "outside" / NAME).mkdir(parents=True)
    folder = tmp_path / "root/folder"
    folder.mkdir(parents=True)
    met = []

    with fs.Root(tmp_path / "root") as root, root.directory(".") as place:
        for entry in walk.walk(root, place, budget := walk.Budget()):
            met.append(entry.path)
            folder.rmdir()  # met, and not entered yet
            folder.symlink_to(tmp_path / "outside")

    assert (met, budget.skipped) == (["folder"], 1)

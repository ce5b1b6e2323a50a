"""Tests against a second process that swaps folders and links during a call."""

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

from glue.errors import GlueError, ToolError
from glue.tools import fs
from glue.tools.fs import functions as ready
from glue.tools.fs import walk
from glue.tools.fs.root import open_at

SECRET = "tOpSeCrEt-4711"


NAME = "outside-only-name"


FEW = 200


MANY = 4000


@dataclass(frozen=True)
class Race:
    """Two paths that a child process swaps, and a call that runs meanwhile."""

    name: str
    swap: tuple[str, str]  # two paths below the base that are swapped
    act: Callable[[Any], str]
    check: str  # a path that naive code checks ...
    use: str  # ... before it opens this one; both are below the root

    def __str__(self) -> str:
        return self.name


def _read(path: str) -> Callable[[Any], str]:
    return lambda tools: str(tools.functions["read_file"](path))


def _search(tools: Any) -> str:
    """Search like the worker of grep, but in this process, which is much faster."""
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
    Race(
        "folder for a link, going back",
        ("root/d", "spare/d"),
        _read("d/e/../f"),
        "d/e/../f",
        "d/e/../f",
    ),
    Race("listing a folder", ("root/d", "spare/d"), _tool("list_dir", path="d"), "d", "d"),
    Race("finding in a folder", ("root/d", "spare/d"), _tool("find_files", pattern="*"), "d", "d"),
    Race("searching folders", ("root/d", "spare/d"), _search, "d/f", "d/f"),
    Race(
        "writing below a folder",
        ("root/d", "spare/d"),
        _tool("write_file", path="d/new", content="x"),
        "d",
        "d/new",
    ),
    Race(
        "writing a file",
        ("root/f", "spare/f"),
        _tool("write_file", path="f", content="x"),
        "f",
        "f",
    ),
    Race(
        "editing a file",
        ("root/f", "spare/f"),
        _tool("edit_file", path="f", old="in", new="on"),
        "f",
        "f",
    ),
    Race(
        "making folders",
        ("root/n", "spare/d"),
        _tool("write_file", path="n/m/new", content="x"),
        "n",
        "n/new",
    ),
    Race("file for a FIFO", ("root/f", "spare/fifo"), _read("f"), "f", "f"),
    Race(
        "folder moved away",
        ("root/d", "spare/nothing"),
        _tool("write_file", path="d/new", content="x"),
        "d",
        "d/new",
    ),
)


@dataclass
class Tools:
    root: fs.Root
    functions: dict[str, Any]


def arrange(base: Path, race: Race) -> None:
    """Create a root, files outside, and the links that are swapped with folders."""
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
    """Swap two names by three renames."""
    third = one.with_name("third-" + other.name)
    for old, new in ((one, third), (other, one), (third, other)):
        try:
            os.rename(old, new)
        except FileNotFoundError:
            pass


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Swap two names again and again in a child process until the block ends."""
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
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in sorted((base / "out").rglob("*"))
    }


def defeats_naive_code(base: Path, race: Race) -> bool:
    """Return whether code that checks a path before it opens it is defeated by a swap."""
    one, other = (base / name for name in race.swap)
    before = outside(base)
    checked = os.path.realpath(base / "root" / race.check)
    assert checked.startswith(str(base / "root"))
    exchange(one, other)
    used = base / "root" / race.use
    if stat.S_ISFIFO(used.lstat().st_mode) if used.exists() else False:
        return True  # the code would block forever
    if "writ" in race.name or "edit" in race.name or "mak" in race.name or "moved" in race.name:
        try:
            used.write_text("pwned")
        except FileNotFoundError:
            return race.swap[1] == "spare/nothing"
        return outside(base) != before or race.swap[1] == "spare/nothing"
    got = " ".join(os.listdir(used)) if used.is_dir() else used.read_text()
    return SECRET in got or NAME in got


def run_race(base: Path, race: Race, attempts: int) -> list[str]:
    """Repeat a call during swaps; return a list of the harm done."""
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
def test_the_swaps_defeat_code_that_checks_before_it_opens(race: Race, tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    arrange(base, race)

    assert defeats_naive_code(base, race)


@pytest.mark.parametrize("race", RACES, ids=str)
def test_tools_stay_inside_the_root_during_swaps(
    race: Race, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    base = Path(os.path.realpath(tmp_path))
    arrange(base, race)

    faults = run_race(base, race, FEW)

    assert faults == []
    tally("race attempts", FEW)
    tally("races", 1)


@pytest.mark.soak
@pytest.mark.parametrize("race", RACES, ids=str)
def test_tools_stay_inside_the_root_during_many_swaps(
    race: Race, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    base = Path(os.path.realpath(tmp_path))
    arrange(base, race)

    faults = run_race(base, race, MANY)

    assert faults == []
    tally("race attempts", MANY)
    tally("races", 1)


def test_interrupted_writes_leave_no_temporary_files(tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    race = next(race for race in RACES if race.name == "writing below a folder")
    arrange(base, race)

    run_race(base, race, FEW)

    assert not [path for path in base.rglob("*") if path.name.endswith(".tmp")]


def test_there_are_at_least_ten_races() -> None:
    assert len(RACES) >= 10
    assert sys.platform != "win32"

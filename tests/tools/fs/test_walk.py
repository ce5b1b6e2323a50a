"""Tests of walks through directory trees."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from fakes.trees import Tools, write_tree

from glue.tools import fs
from glue.tools.fs import Root, walk
from glue.tools.fs.root import ResolvedPath


def test_files_that_gitignore_excludes_are_not_found(tools: Tools, tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        "a.py",
        "b.log",
        "keep.log",
        "build/x.py",
        "src/build/y.py",
        "src/c.py",
        "src/local/d.py",
        ".dot.py",
    )
    write_tree(tmp_path, ".git/hooks/e.py", "docs/only/f.py")
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


def test_gitignore_files_above_the_folder_apply(tools: Tools, tmp_path: Path) -> None:
    write_tree(tmp_path, "src/a.py", "src/a.log", "src/gen/b.py", "src/deep/gen/c.py")
    (tmp_path / ".gitignore").write_text("*.log\n/src/gen\n")

    assert tools["find_files"]("*", path="src").split("\n") == ["src/a.py", "src/deep/gen/c.py"]
    assert (
        anyio.run(tools["grep"], "needle", "src/deep")
        == "src/deep/gen/c.py:1: needle in src/deep/gen/c.py"
    )


async def test_a_walk_stops_at_the_maximum_depth(tools: Tools, tmp_path: Path) -> None:
    for depth in (60, 70):
        folder = tmp_path / "/".join([str(depth)] * depth)
        folder.mkdir(parents=True)
        (folder / "bottom").write_text("needle")

    found, hits = tools["find_files"]("bottom"), await tools["grep"]("needle")

    for said, note in (
        (found, "1 folders could not be entered"),
        (hits, "1 entries were skipped: unreadable"),
    ):
        assert said.startswith("60/60/")
        assert "70/" not in said
        assert note in said


def test_folders_are_walked_down_to_64_levels(tools: Tools, tmp_path: Path) -> None:
    for depth in (64, 65):
        folder = tmp_path / "/".join([str(depth)] * depth)
        folder.mkdir(parents=True)
        (folder / "bottom").touch()

    assert tools["find_files"]("bottom").split("\n") == [
        f"{'64/' * 64}bottom",
        "[1 folders could not be entered]",
    ]


def test_a_folder_that_cannot_be_listed_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)  # may be passed through, but not listed

    with Root(tmp_path) as root:
        found = list(walk.walk(root, ResolvedPath(fd, (), None), budget := walk.Budget()))
    os.close(fd)

    assert (found, budget.skipped, budget.stopped) == ([], 1, "")


def test_everything_includes_git_and_ignored_files(tmp_path: Path) -> None:
    write_tree(tmp_path, ".git/config", "build/x", "a/build/y")
    (tmp_path / ".gitignore").write_text("build\n")

    def paths(folder: str, everything: bool) -> list[str]:
        with Root(tmp_path) as root, root.directory(folder) as place:
            options = {"everything": True} if everything else {}
            found = walk.walk(root, place, walk.Budget(), **options)
            return [entry.path for entry in found if entry.kind == "file"]

    assert paths(".", True) == [".git/config", ".gitignore", "a/build/y", "build/x"]
    assert paths(".", False) == [".gitignore"]
    assert paths("a", True) == ["a/build/y"]
    assert paths("a", False) == []


def test_a_walk_stops_when_the_budget_is_spent(tmp_path: Path) -> None:
    write_tree(tmp_path, "a/1", "a/2", "b/3", "b/4")
    budget = walk.Budget(entries=4)  # `a` and `b`, then the contents of `a`

    with Root(tmp_path) as root, root.directory(".") as place:
        found = [entry.path for entry in walk.walk(root, place, budget)]

    assert found == ["a", "a/1", "a/2", "b"]
    assert budget.stopped == "too many entries"


def test_a_scan_stops_when_the_budget_is_spent(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).touch()
    budget = walk.Budget(entries=10)

    with Root(tmp_path) as root:
        assert len(list(walk.scan(root.fd, budget))) == 10
    assert budget.stopped == "too many entries"


def test_only_the_first_64_kib_of_a_gitignore_are_read(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("one\n" + "#" * 64 * 1024 + "\ntwo\n")
    for name in ("one", "two"):
        (tmp_path / name).touch()

    assert tools["find_files"]("*") == ".gitignore\ntwo"


def test_a_rule_at_the_end_of_64_kib_counts(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("#" * (64 * 1024 - 5) + "\none\ntwo\n")
    for name in ("one", "two"):
        (tmp_path / name).touch()

    assert tools["find_files"]("*") == ".gitignore\ntwo"


def test_a_walk_has_a_limit_on_entries_by_default() -> None:
    assert walk.Budget().entries == 100_000


NAME = "outside-only-name"


def outside(base: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in sorted((base / "out").rglob("*"))
    }


def test_a_folder_that_becomes_a_link_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "outside" / NAME).mkdir(parents=True)
    folder = tmp_path / "root/folder"
    folder.mkdir(parents=True)
    met = []

    with fs.Root(tmp_path / "root") as root, root.directory(".") as place:
        for entry in walk.walk(root, place, budget := walk.Budget()):
            met.append(entry.path)
            folder.rmdir()  # the walk has yielded the folder, but not opened it yet
            folder.symlink_to(tmp_path / "outside")

    assert (met, budget.skipped) == (["folder"], 1)


def test_a_scan_stops_when_the_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    budget = walk.Budget(deadline=0.0)

    with Root(tmp_path) as root:
        assert list(walk.scan(root.fd, budget)) == []
    assert budget.stopped == "time is up"
    assert budget.spent


def test_the_kind_of_each_entry_is_known_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")

    with Root(tmp_path) as root:
        found = dict(walk.scan(root.fd, walk.Budget()))

    assert found == {"folder": "folder", "file": "file", "link": "link", "pipe": "other"}

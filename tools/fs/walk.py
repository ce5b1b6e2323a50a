"""Walk a directory tree by descriptors: no link is followed, and a budget limits every walk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from glue.errors import GlueError
from glue.tools.fs.patterns import Gitignore, is_ignored
from glue.tools.fs.root import DIRECTORY, ResolvedPath, Root, open_at

MAX_FILE = 64 * 1024  # bytes of a .gitignore file
MAX_DEPTH = 64
MAX_ENTRIES = 100_000


@dataclass(slots=True)
class Budget:
    """The limits of a walk, the limit that stopped the walk, and a count of skipped entries."""

    entries: int = MAX_ENTRIES
    deadline: float = float("inf")  # a value of time.monotonic()
    stopped: str = ""  # the limit that was reached; empty if none was
    skipped: int = 0  # entries that could not be read, or are nested too deep

    @property
    def spent(self) -> bool:
        if not self.stopped:
            if self.entries < 0:
                self.stopped = "too many entries"
            elif time.monotonic() > self.deadline:
                self.stopped = "time is up"
        return bool(self.stopped)


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """An entry of a directory, found by a walk. `parent` is valid only until the walk continues.

    `parent` is a file descriptor, and the walk may close it when it continues.
    """

    parent: int  # descriptor of its directory
    names: tuple[str, ...]
    kind: str  # "folder", "file", "link", "other"

    @property
    def path(self) -> str:
        return "/".join(self.names)


def walk(
    root: Root, place: ResolvedPath, budget: Budget, *, everything: bool = False
) -> Iterator[WalkEntry]:
    """Yield the entries below a directory recursively and sorted, without .git and ignored files.

    A file is ignored if a .gitignore excludes it. If `everything` is set, .git and ignored files
    are yielded too. Each folder comes before its contents. The walk stops early if the budget is
    spent.
    """
    rules = None if everything else _rules_above(root, place.names)
    return _below(place.fd, place.names, rules, budget, MAX_DEPTH)


def _below(
    fd: int,
    names: tuple[str, ...],
    rules: tuple[Gitignore, ...] | None,  # None if nothing is ignored
    budget: Budget,
    depth: int,
) -> Iterator[WalkEntry]:
    entries: list[tuple[str, str]] = []
    try:
        entries.extend(scan(fd, budget))
    except OSError:
        budget.skipped += 1
    if rules is not None and (".gitignore", "file") in entries:
        rules = (*rules, *_rules(fd, len(names)))
    for name, kind in sorted(entries):
        if budget.spent:
            return
        path = (*names, name)
        is_folder = kind == "folder"
        if rules is not None and (name == ".git" or is_ignored(rules, path, is_folder)):
            continue
        yield WalkEntry(fd, path, kind)
        if not is_folder:
            continue
        try:
            inner = os.open(name, DIRECTORY, dir_fd=fd) if depth else None
        except OSError:  # unreadable, removed, or replaced by a link: skip it
            inner = None
        if inner is None:
            budget.skipped += 1
            continue
        try:
            yield from _below(inner, path, rules, budget, depth - 1)
        finally:
            os.close(inner)


def scan(fd: int, budget: Budget) -> Iterator[tuple[str, str]]:
    """Count each entry of a directory in `budget`, and yield its name and kind.

    Stop if the budget has no entries or no time left.
    """
    with os.scandir(fd) as found:
        for entry in found:
            budget.entries -= 1
            if budget.spent:
                return
            yield entry.name, _kind(entry)


def _kind(entry: os.DirEntry[str]) -> str:
    """Return the kind of a directory entry: link, folder, file or other; follow no link."""
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else "other"
    except OSError:
        return "other"


def _rules_above(root: Root, names: tuple[str, ...]) -> tuple[Gitignore, ...]:
    found: list[Gitignore] = []
    for depth in range(len(names)):
        try:
            with root.directory("/".join(names[:depth]) or ".") as place:
                found.extend(_rules(place.fd, depth))
        except (OSError, GlueError):
            pass
    return tuple(found)


def _rules(fd: int, depth: int) -> list[Gitignore]:
    try:
        with open_at(fd, ".gitignore", ".gitignore") as file:
            return [Gitignore(file.read(MAX_FILE), depth)]
    except (OSError, GlueError):
        return []

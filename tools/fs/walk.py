"""Walk a directory tree by descriptors: no link is followed, and nothing goes on for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from glue.errors import GlueError
from glue.tools.fs.patterns import Gitignore, ignored
from glue.tools.fs.root import DIRECTORY, ResolvedPath, Root, open_at

MAX_FILE = 64 * 1024  # of a .gitignore
MAX_DEPTH = 64
MAX_ENTRIES = 100_000


@dataclass(slots=True)
class Budget:
    """What a walk may spend; `stopped` says what ran out, `skipped` how much could not be read."""

    entries: int = MAX_ENTRIES
    deadline: float = float("inf")  # of time.monotonic()
    stopped: str = ""
    skipped: int = 0

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
    """A name met on the way; `parent` is open only until the next one is asked for."""

    parent: int
    names: tuple[str, ...]
    kind: str  # "folder", "file", "link", "other"

    @property
    def path(self) -> str:
        return "/".join(self.names)


def walk(root: Root, place: ResolvedPath, budget: Budget, *, everything: bool = False) -> Iterator[WalkEntry]:
    """Yield what lies below a directory of a root, sorted, folders before what they hold.

    What .gitignore leaves out, here or above, and .git itself, is passed over unless `everything` is asked for.
    """
    rules = () if everything else _rules_above(root, place.names)
    return _below(place.fd, place.names, rules, budget, everything, MAX_DEPTH)


def _below(
    fd: int, names: tuple[str, ...], rules: tuple[Gitignore, ...], budget: Budget, everything: bool, depth: int
) -> Iterator[WalkEntry]:
    entries: list[tuple[str, str]] = []
    try:
        entries.extend(scan(fd, budget))
    except OSError:
        budget.skipped += 1
    if not everything and (".gitignore", "file") in entries:
        rules = (*rules, *_rules(fd, len(names)))
    for name, kind in sorted(entries):
        if budget.spent:
            return
        path = (*names, name)
        if not everything and (name == ".git" or ignored(rules, path, kind == "folder")):
            continue
        yield WalkEntry(fd, path, kind)
        if kind != "folder":
            continue
        try:
            inner = os.open(name, DIRECTORY, dir_fd=fd) if depth else -1
        except OSError:  # unreadable, gone, or a link by now: the rest of the tree is still worth it
            inner = -1
        if inner < 0:
            budget.skipped += 1
            continue
        try:
            yield from _below(inner, path, rules, budget, everything, depth - 1)
        finally:
            os.close(inner)


def scan(fd: int, budget: Budget) -> Iterator[tuple[str, str]]:
    """Yield the names in a directory and what they are, as far as the budget goes."""
    with os.scandir(fd) as found:
        for entry in found:
            budget.entries -= 1
            if (budget.entries < 0 or budget.entries % 1024 == 0) and budget.spent:
                return
            yield entry.name, _kind(entry)


def _kind(entry: os.DirEntry[str]) -> str:
    """Say what an entry is, without following it."""
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

"""Walk a directory tree by descriptors: no link is followed, and nothing goes on for ever."""

from __future__ import annotations

import codecs
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glue.errors import GlueError
from glue.tools.fs.glob import MAX_PATTERN, Glob
from glue.tools.fs.root import DIRECTORY, ResolvedPath, Root, open_at

MAX_FILE = 64 * 1024
MAX_RULES = 1000


class Gitignore:
    """The rules of one .gitignore, for paths relative to its directory; the last rule that fits decides.

    As in git, characters are bytes: `?` fits half an umlaut. Names are held against rules as Latin-1, which keeps them.
    """

    __slots__ = ("depth", "named", "others")

    def __init__(self, content: bytes, depth: int) -> None:
        self.depth = depth  # how many components lie above
        self.named: dict[str, list[tuple[int, bool, bool]]] = {}  # plain names: no need to try each rule
        self.others: list[tuple[int, bool, bool, bool, Glob]] = []
        lines = content.removeprefix(codecs.BOM_UTF8).decode("latin-1").split("\n")
        for number, line in enumerate(lines[:MAX_RULES]):
            self._add(number, line)

    def _add(self, number: int, line: str) -> None:
        if line.startswith("#"):
            return
        line = re.sub(r"((?:[^\\ ]|\\.| +(?=[^ ]))*) *", r"\1", line.removesuffix("\r"), count=1, flags=re.DOTALL)
        keep = line.startswith("!")
        line = line[1:] if keep else line
        folder = line.endswith("/")
        line = line[:-1] if folder else line
        if not line or len(line) > MAX_PATTERN:
            return
        if "/" in line:
            self.others.append((number, keep, folder, True, Glob(line.removeprefix("/"), strict=True)))
        elif any(char in "*?[\\" for char in line):
            self.others.append((number, keep, folder, False, Glob(line, strict=True)))
        else:
            self.named.setdefault(line, []).append((number, keep, folder))

    def judge(self, names: Sequence[str], is_folder: bool) -> bool | None:
        """Say whether a path is ignored; None where no rule speaks of it."""
        best, verdict = -1, None
        if not all(map(str.isascii, names)):
            names = [os.fsencode(name).decode("latin-1") for name in names]
        last = names[-1]
        for number, keep, folder in self.named.get(last, ()):
            if number > best and (is_folder or not folder):
                best, verdict = number, not keep
        for number, keep, folder, anchored, glob in reversed(self.others):
            if number < best:
                break
            if (is_folder or not folder) and glob.matches(names[self.depth :] if anchored else [last]):
                return not keep
        return verdict


def ignored(rules: Sequence[Gitignore], names: Sequence[str], is_folder: bool) -> bool:
    """Ask the nearest .gitignore first, then those above it."""
    for layer in reversed(rules):
        verdict = layer.judge(names, is_folder)
        if verdict is not None:
            return verdict
    return False


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
            if self.entries <= 0:
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


@dataclass(slots=True)
class _Level:
    fd: int
    names: tuple[str, ...]
    entries: list[tuple[str, str]]  # reversed: taken from the end
    rules: tuple[Gitignore, ...]


def walk(
    place: ResolvedPath, budget: Budget, *, everything: bool = False, rules: tuple[Gitignore, ...] = ()
) -> Iterator[WalkEntry]:
    """Yield what lies below a directory, sorted, folders before what they hold.

    What .gitignore leaves out, and .git itself, is passed over unless `everything` is asked for;
    `rules` are those of the folders above.
    """
    levels = [_enter(os.dup(place.fd), place.names, rules, budget, everything)]
    try:
        while levels:
            level = levels[-1]
            if not level.entries or budget.spent:
                os.close(levels.pop().fd)
                continue
            name, kind = level.entries.pop()
            names = (*level.names, name)
            if not everything and (name == ".git" or ignored(level.rules, names, kind == "folder")):
                continue
            yield WalkEntry(level.fd, names, kind)
            if kind == "folder":
                _descend(levels, name, names, budget, everything)
    finally:
        for level in levels:
            os.close(level.fd)


def _descend(levels: list[_Level], name: str, names: tuple[str, ...], budget: Budget, everything: bool) -> None:
    if len(levels) > MAX_DEPTH:
        budget.skipped += 1
        return
    try:
        fd = os.open(name, DIRECTORY, dir_fd=levels[-1].fd)
    except OSError:  # unreadable, gone, or a link by now: the rest of the tree is still worth it
        budget.skipped += 1
        return
    levels.append(_enter(fd, names, levels[-1].rules, budget, everything))


def _enter(fd: int, names: tuple[str, ...], rules: tuple[Gitignore, ...], budget: Budget, everything: bool) -> _Level:
    entries: list[tuple[str, str]] = []
    try:
        with os.scandir(fd) as found:
            for entry in found:
                budget.entries -= 1
                if budget.entries < 0 or (budget.entries % 1024 == 0 and budget.spent):
                    budget.stopped = budget.stopped or "too many entries"
                    break
                entries.append((entry.name, kind_of(entry)))
    except OSError:
        budget.skipped += 1
    entries.sort(reverse=True)
    if not everything and (".gitignore", "file") in entries:
        rules = (*rules, *_rules(fd, len(names)))
    return _Level(fd, names, entries, rules)


def kind_of(entry: os.DirEntry[str]) -> str:
    """Say what an entry is, without following it."""
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else "other"
    except OSError:
        return "other"


def rules_above(root: Root, names: tuple[str, ...]) -> tuple[Gitignore, ...]:
    """Read the .gitignore files of the folders that lie above a folder."""
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

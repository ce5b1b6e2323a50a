"""Read git objects through one `cat-file --batch` a repository, hold each against its hash, and parse what git prints.

Paths that are not UTF-8 keep their bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from glue.errors import GitError
from glue.tools.process import BLOCK, TICK, StopFlag, end_group

HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
MAX_TREE = 64 * 1024 * 1024
MAX_PAIRS = 200_000  # of folders that are compared
KEPT = 256  # trees, parsed
RAW = ("old_mode", "new_mode", "old_sha", "new_sha", "status")
EMPTY = (make(b"blob 0\0", usedforsecurity=False).hexdigest() for make in (hashlib.sha1, hashlib.sha256))
NOTHING = {"0" * 40, "0" * 64, *EMPTY}  # the hashes of no file, and of an empty one


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One name in a tree; mode 120000 is a link, 160000 another repository."""

    mode: str
    kind: str  # blob, tree or commit
    sha: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file that differs between two trees."""

    path: str
    old_path: str  # the same, but for renames and copies
    status: str  # A, D, M, R, C or T
    old_mode: str
    new_mode: str
    old_sha: str
    new_sha: str
    added: int | None = None  # lines; None for a binary file
    deleted: int | None = None

    @property
    def binary(self) -> bool:
        return self.added is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommit:
    sha: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepHit:
    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class GitObject:
    """An object as git keeps it, or the beginning of one."""

    sha: str
    kind: str  # blob, tree, commit or tag
    content: bytes


class ObjectReader:
    """The objects of one repository. The process starts with the first object that is asked for."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], stop: StopFlag | None) -> None:
        self.start, self.stop = start, stop
        self._child: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._trees: dict[str, dict[str, TreeEntry]] = {}
        self._lock = threading.RLock()  # the tools of a review run side by side in threads

    def close(self) -> None:
        child, self._child = self._child, None
        self._buffer.clear()
        if child is not None:
            end_group(child)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    def read(self, name: str, *, until: float, cap: int = MAX_TREE, cut: bool = False) -> GitObject:
        """Read one object by its hash, or an expression over one (`<hash>~2^{commit}`).

        One that is not here is a `GitError` of kind "missing"; one larger than `cap` is too, unless it may be cut.
        """
        with self._lock:
            try:
                return self._read(name, until, cap, cut)
            except BaseException:
                self.close()  # what was not read to its end would be taken for the next answer
                raise

    def tree(self, name: str, until: float) -> dict[str, TreeEntry]:
        """Read one folder of a commit, by the names in it."""
        with self._lock:
            if (known := self._trees.get(name)) is not None:
                return known
            found = self.read(name if HASH.fullmatch(name) else f"{name}^{{tree}}", until=until)
            if found.kind != "tree":
                found = self.read(f"{found.sha}^{{tree}}", until=until)
            entries = {entry.path: entry for entry in parse_tree(found)}
            if len(self._trees) < KEPT:
                self._trees[name] = entries
            return entries

    def compare(self, one: str, other: str, until: float) -> None:
        """Read every folder that differs between two trees, so that a forged one is found out."""
        pairs: list[tuple[str, str]] = [(one, other)]
        seen = set(pairs)
        while pairs:
            trees = [self.tree(sha, until) if sha else {} for sha in pairs.pop()]
            left, right = ({entry.path: entry.sha for entry in tree.values() if entry.kind == "tree"} for tree in trees)
            for name in left.keys() | right.keys():
                pair = left.get(name, ""), right.get(name, "")
                if pair[0] != pair[1] and pair not in seen:
                    seen.add(pair)
                    pairs.append(pair)
            if len(seen) > MAX_PAIRS:
                raise GitError("too many folders differ to compare them", kind="too_large")

    def _read(self, name: str, until: float, cap: int, cut: bool) -> GitObject:
        if self._child is None:
            self._child = self.start()
        assert self._child.stdin is not None
        assert "\n" not in name
        try:
            self._child.stdin.write(name.encode("ascii") + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise _broken(name) from None
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill(name, until)
        words = self._buffer[:end].decode("ascii", "replace").split()
        del self._buffer[: end + 1]
        if len(words) != 3 or not words[2].isdigit():
            kind = words[-1] if words else "missing"
            raise GitError(
                f"object {name[:12]} is {kind}: the repository is incomplete, damaged or forged", kind="missing"
            )
        sha, kind, size = words[0], words[1], int(words[2])
        if size > cap and not cut:
            raise GitError(f"{kind} {sha[:12]} is larger than {cap} bytes", kind="too_large")
        while len(self._buffer) < min(size + 1, cap + 1):
            self._fill(name, until)
        content = bytes(self._buffer[: min(size, cap)])
        if size > cap:
            self.close()  # cheaper than to read the rest
            return GitObject(sha, kind, content)
        del self._buffer[: size + 1]
        maker = hashlib.sha1 if len(sha) == 40 else hashlib.sha256
        if maker(f"{kind} {size}\0".encode() + content, usedforsecurity=False).hexdigest() != sha:
            text = f"{kind} {sha[:12]} does not hold what its name says: the repository is damaged or forged"
            raise GitError(text, kind="damaged")
        return GitObject(sha, kind, content)

    def _fill(self, name: str, until: float) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        fd = self._child.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while True:
            if self.stop or time.monotonic() > until:
                raise GitError(f"reading object {name[:12]} took too long and was stopped", kind="timeout")
            if poll.poll(TICK * 1000):
                break
        block = os.read(fd, BLOCK)
        if not block:
            raise _broken(name)
        self._buffer += block


def parse_tree(found: GitObject) -> list[TreeEntry]:
    entries: list[TreeEntry] = []
    content, at, width = found.content, 0, len(found.sha) // 2
    while at < len(content):
        blank, end = content.find(b" ", at), content.find(b"\0", at)
        if blank < 0 or end < blank or end + width >= len(content):
            raise GitError(f"tree {found.sha[:12]} cannot be read: the repository is damaged", kind="damaged")
        mode = content[at:blank].decode("ascii", "replace").zfill(6)
        kind = {"040000": "tree", "160000": "commit"}.get(mode, "blob")
        sha = content[end + 1 : end + 1 + width].hex()
        entries.append(TreeEntry(mode=mode, kind=kind, sha=sha, path=path_of(content[blank + 1 : end])))
        at = end + 1 + width
    return entries


def _broken(name: str) -> GitError:
    return GitError(f"object {name[:12]} cannot be read: the repository is damaged or forged", kind="damaged")


def path_of(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def parse_changes(out: bytes) -> list[FileChange]:
    """Read `--raw --numstat -z`: first every file's modes and hashes, then every file's counts."""
    fields = iter(out.split(b"\0"))
    found: list[FileChange] = []  # a forged tree may hold a name twice
    counts: dict[str, tuple[int | None, int | None]] = {}
    for field in fields:
        if field.startswith(b":"):
            raw: dict[str, Any] = dict(zip(RAW, field[1:].decode("ascii").split(), strict=True))
            raw["status"] = raw["status"][0]  # without how much of it is alike
            old_path = path_of(next(fields))
            path = path_of(next(fields)) if raw["status"] in "RC" else old_path
            found.append(FileChange(path=path, old_path=old_path, **raw))
        elif field:
            added, deleted, name = field.split(b"\t", 2)
            if not name:  # a rename: both names follow
                next(fields)
                name = next(fields)
            counts[path_of(name)] = (None, None) if added == b"-" else (int(added), int(deleted))
    for at, change in enumerate(found):
        lines = counts.get(change.path, (0, 0))
        if lines == (0, 0) and change.old_sha != change.new_sha and {change.old_sha, change.new_sha} - NOTHING:
            text = f"{change.path!a} changed and no line of it did: the repository is damaged or forged"
            raise GitError(text, kind="damaged")
        found[at] = replace(change, added=lines[0], deleted=lines[1])
    return found

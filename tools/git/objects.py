"""Read git objects with one `git cat-file --batch`, check their hashes, and parse them.

Paths that are not UTF-8 keep their bytes.
"""

from __future__ import annotations

import contextlib
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
from glue.tasks import StopFlag
from glue.tools.process import BLOCK
from glue.tools.process_group import TICK, end_group

HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
MAX_TREE = 64 * 1024 * 1024
MAX_PAIRS = 200_000  # folders that are compared
KEPT = 256  # parsed trees that are kept
RAW = ("old_mode", "new_mode", "old_sha", "new_sha", "status")
EMPTY = (
    make(b"blob 0\0", usedforsecurity=False).hexdigest() for make in (hashlib.sha1, hashlib.sha256)
)
NO_LINES = {"0" * 40, "0" * 64, *EMPTY}  # hashes of a missing and of an empty file


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """An entry of a tree; mode 120000 is a symbolic link, 160000 a submodule."""

    mode: str
    kind: str  # blob, tree or commit
    sha: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that differs between two trees: its paths, status, modes, hashes and line counts."""

    path: str
    old_path: str  # equal to `path`, except for renames and copies
    status: str  # A, D, M, R, C or T
    old_mode: str
    new_mode: str
    old_sha: str
    new_sha: str
    added: int | None = None  # lines; None for a binary file
    deleted: int | None = None

    @property
    def binary(self) -> bool:
        """True if git treats the file as binary and does not count its lines."""
        return self.added is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommit:
    """A commit: its hash, parents, author, email, date in ISO 8601, and message."""

    sha: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepHit:
    """A line that matches a pattern, with the path of the file and the line number."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class GitObject:
    """A git object: its hash, kind and content. The content may be cut off."""

    sha: str
    kind: str  # blob, tree, commit or tag
    content: bytes


class ObjectReader:
    """A reader of the objects of one repository; it starts git when it reads the first object."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], stop: StopFlag | None) -> None:
        self.start, self.stop = start, stop
        self._child: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._trees: dict[str, dict[str, TreeEntry]] = {}
        self._lock = threading.RLock()  # a review calls its tools in several threads

    def close(self) -> None:
        """End the git process; the next read starts another process."""
        child, self._child = self._child, None
        self._buffer.clear()
        if child is not None:
            end_group(child)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # a name could not be sent
                        pipe.close()

    def read(self, name: str, *, until: float, cap: int = MAX_TREE, cut: bool = False) -> GitObject:
        """Return the object with a hash; raise GitError if the object is missing or too large.

        `name` is the hash, or an expression such as `<hash>~2^{commit}`. The `GitError` is of kind
        "missing" if the object does not exist, and of kind "too_large" if the object has more than
        `cap` bytes, unless `cut` is set.
        """
        with self._lock:
            try:
                return self._read(name, until, cap, cut)
            except BaseException:
                self.close()  # the rest of this object would be taken for the next one
                raise

    def tree(self, name: str, until: float) -> dict[str, TreeEntry]:
        """Return the entries of a tree, as a dict by file name.

        `name` is the hash of the tree, or of a commit with this tree.
        """
        with self._lock:
            if (known := self._trees.get(name)) is not None:
                return known
            found = self.read(name, until=until)
            if found.kind != "tree":
                found = self.read(f"{found.sha}^{{tree}}", until=until)
            entries = {entry.path: entry for entry in parse_tree(found)}
            if len(self._trees) < KEPT:
                self._trees[name] = entries
            return entries

    def compare(self, one: str, other: str, until: float) -> None:
        """Check the hashes of folders that differ in two trees; raise GitError if a hash is wrong.

        Raise GitError too if a folder is missing, or if too many folders differ.
        """
        pairs: list[tuple[str, str]] = [(one, other)]
        seen = set(pairs)
        while pairs:
            one, other = pairs.pop()
            left, right = self._folders(one, until), self._folders(other, until)
            for name in left.keys() | right.keys():
                pair = left.get(name, ""), right.get(name, "")
                if pair[0] != pair[1] and pair not in seen:
                    seen.add(pair)
                    pairs.append(pair)
            if len(seen) > MAX_PAIRS:
                raise GitError("too many folders differ between the two trees", kind="too_large")

    def _folders(self, sha: str, until: float) -> dict[str, str]:
        """Return a dict from folder names to hashes for a tree; {} if `sha` is empty."""
        entries = self.tree(sha, until).values() if sha else ()
        return {entry.path: entry.sha for entry in entries if entry.kind == "tree"}

    def _read(self, name: str, until: float, cap: int, cut: bool) -> GitObject:
        if self._child is None:
            self._child = self.start()
        assert self._child.stdin is not None
        assert "\n" not in name
        try:
            self._child.stdin.write(name.encode("ascii") + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise _damaged(name) from None
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill(name, until)
        words = self._buffer[:end].decode("ascii", "replace").split()
        del self._buffer[: end + 1]
        if len(words) != 3 or not words[2].isdigit():
            kind = words[-1] if words else "missing"
            raise GitError(
                f"object {name[:12]} is {kind}: the repository is incomplete, damaged or forged",
                kind="missing",
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
            raise GitError(
                f"{kind} {sha[:12]} does not match its hash: the repository is damaged or forged",
                kind="damaged",
            )
        return GitObject(sha, kind, content)

    def _fill(self, name: str, until: float) -> None:
        """Read the next block of git's output, waiting if necessary, and append it to the buffer.

        Raise GitError at the deadline, if `stop` is set, or if the output ends.
        """
        assert self._child is not None
        assert self._child.stdout is not None
        fd = self._child.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while True:
            if self.stop:
                raise GitError(f"reading object {name[:12]} was cancelled", kind="timeout")
            if time.monotonic() > until:
                raise GitError(
                    f"reading object {name[:12]} took too long and was stopped", kind="timeout"
                )
            if poll.poll(TICK * 1000):
                break
        block = os.read(fd, BLOCK)
        if not block:
            raise _damaged(name)
        self._buffer += block


def parse_tree(found: GitObject) -> list[TreeEntry]:
    """Return the entries of a tree object; raise GitError if the object is damaged."""
    entries: list[TreeEntry] = []
    content, at, width = found.content, 0, len(found.sha) // 2
    while at < len(content):
        blank, end = content.find(b" ", at), content.find(b"\0", at)
        if not at < blank < end < len(content) - width:
            raise GitError(
                f"tree {found.sha[:12]} cannot be read: the repository is damaged", kind="damaged"
            )
        mode = content[at:blank].decode("ascii", "replace").zfill(6)
        kind = {"040000": "tree", "160000": "commit"}.get(mode, "blob")
        sha = content[end + 1 : end + 1 + width].hex()
        entries.append(
            TreeEntry(mode=mode, kind=kind, sha=sha, path=decode_path(content[blank + 1 : end]))
        )
        at = end + 1 + width
    return entries


def _damaged(name: str) -> GitError:
    return GitError(
        f"object {name[:12]} cannot be read: the repository is damaged or forged", kind="damaged"
    )


def decode_path(raw: bytes) -> str:
    """Decode a path in git's output; bytes that are not UTF-8 become surrogates."""
    return raw.decode("utf-8", "surrogateescape")


def parse_changes(out: bytes) -> list[FileChange]:
    """Parse the output of `git diff-tree --raw --numstat -z`; return the changed files.

    The output has the modes and hashes of all files first, then the line counts of all files. Raise
    GitError if a file changed although none of its lines did.
    """
    fields = iter(out.split(b"\0"))
    found: list[FileChange] = []  # not a dict: a forged tree may contain a name twice
    counts: dict[str, tuple[int | None, int | None]] = {}
    for field in fields:
        if field.startswith(b":"):
            raw: dict[str, Any] = dict(zip(RAW, field[1:].decode("ascii").split(), strict=True))
            raw["status"] = raw["status"][0]  # "R90" becomes "R": without the similarity
            old_path = decode_path(next(fields))
            path = decode_path(next(fields)) if raw["status"] in "RC" else old_path
            found.append(FileChange(path=path, old_path=old_path, **raw))
        elif field:
            added, deleted, name = field.split(b"\t", 2)
            if not name:  # a rename: both names follow
                next(fields)
                name = next(fields)
            is_binary = added == b"-"
            counts[decode_path(name)] = (None, None) if is_binary else (int(added), int(deleted))
    for at, change in enumerate(found):
        lines = counts.get(change.path, (0, 0))
        if (
            lines == (0, 0)
            and change.old_sha != change.new_sha
            and {change.old_sha, change.new_sha} - NO_LINES
        ):
            raise GitError(
                f"{change.path!a} changed, but none of its lines did: "
                "the repository is damaged or forged",
                kind="damaged",
            )
        found[at] = replace(change, added=lines[0], deleted=lines[1])
    return found

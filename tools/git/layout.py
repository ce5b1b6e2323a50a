"""The layout of a repository: finds the objects and refs that may be read, refuses links and other tricks."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import ExitStack

from glue.errors import GitError, UnsafePath
from glue.tools.fs.root import DIRECTORY, Root, look, same, shorten
from glue.tools.fs.walk import Budget, scan
from glue.tools.git.objects import HASH

MAX_OBJECT_FILES = 300_000
SECONDS = 4.0
# What git itself allows in a ref name, and a little less.
BAD = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[-./]|[./]$|\.$")
PLACES = ("refs/heads/", "refs/remotes/origin/", "refs/remotes/", "refs/tags/")
WORKTREE = re.compile(rb"(?im)^\s*worktree\s*=\s*(\S.*)$")
MAX_LINE = 4096  # of a ref, or of a file that names a directory
MAX_PACKED = 64 * 1024 * 1024
MAX_CONFIG = 1024 * 1024
MAX_JUMPS = 5
NOT_BACK = ".git names a git directory that does not point back here; only linked worktrees"
OF_WORKTREE = ("HEAD", "refs/bisect/", "refs/worktree/", "refs/rewritten/")


class Layout:
    """The repository at the very directory `path`: its objects, and its refs, loose ones first.

    The repositories above it are none of our business. `own` holds HEAD; `common`, which worktrees share, the rest.
    """

    def __init__(self, path: str, *, alternates: bool = False) -> None:
        self._packed: bytes | None = None
        with ExitStack() as held, Root(path) as root:
            self.own, self.common = _directories(root, path, held)
            self.objects = _enter(self.common.fd, "objects")
            held.callback(os.close, self.objects)
            _check_objects(self.objects, alternates)
            self._held = held.pop_all()

    def close(self) -> None:
        self._held.close()

    def find(self, name: str) -> str | None:
        """Give the hash a name stands for: HEAD, a full ref, or a branch, remote branch or tag, in this order."""
        if name in ("HEAD", "@"):
            return self.read("HEAD")
        if BAD.search(name) or len(name) > 1024:
            text = f"{shorten(name)} is not a name of a commit; give a branch, a tag, HEAD or a hash"
            raise GitError(text, kind="usage")
        for place in ("",) if name.startswith("refs/") else PLACES:
            if (found := self.read(place + name)) is not None:
                return found
        return None

    def read(self, ref: str) -> str | None:
        """Read one ref by its full name, through symbolic ones."""
        for _ in range(MAX_JUMPS):
            content = small(self.own if ref.startswith(OF_WORKTREE) else self.common, ref, MAX_LINE)
            if content is None:
                return self.packed(ref)
            text = content.decode("utf-8", "surrogateescape").strip()
            if not text.startswith("ref:"):
                if not HASH.fullmatch(text):
                    raise _unsafe(f"{shorten(ref)} does not hold a hash")
                return text
            ref = text[4:].strip()
            if ref == "refs/heads/.invalid":
                raise _unsafe("the repository keeps its refs in a reftable, which is not read; give full hashes")
            if not ref.startswith("refs/") or BAD.search(ref):
                raise _unsafe(f"a symbolic ref leads to {shorten(ref)}, which is no ref")
        raise _unsafe("symbolic refs lead round in a circle")

    def head_branch(self) -> str:
        """Name the branch that is checked out; empty where the head is detached."""
        text = (small(self.own, "HEAD", MAX_LINE) or b"").decode("utf-8", "replace").strip()
        ref = text.removeprefix("ref:").strip()
        return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else ""

    def packed(self, ref: str) -> str | None:
        """Look a ref up among the packed ones; there may be a million, so no table is made."""
        if self._packed is None:
            self._packed = b"\n" + (small(self.common, "packed-refs", MAX_PACKED) or b"") + b"\n"
        at = self._packed.find(b" " + ref.encode("utf-8", "surrogateescape") + b"\n")
        start = self._packed.rfind(b"\n", 0, max(at, 0)) + 1
        value = self._packed[start : max(at, start)].decode("ascii", "replace")
        return value if HASH.fullmatch(value) else None


def small(root: Root, path: str, cap: int) -> bytes | None:
    """Read a small regular file, not through any link; None where there is none."""
    try:
        with root.place(path, links=False) as place, place.open(path) as file:
            content = file.read(cap + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (OSError, UnsafePath) as error:
        raise _unsafe(f".git/{path} is not a plain file") from error
    if len(content) > cap:
        raise _unsafe(f".git/{path} is larger than {cap} bytes")
    return content


def _unsafe(text: str) -> GitError:
    return GitError(text, kind="unsafe")


def _enter(parent: int, name: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise _unsafe(f"{name} in the git directory is missing or not a directory of its own") from error


def _directories(root: Root, path: str, held: ExitStack) -> tuple[Root, Root]:
    """Open the git directory of a checkout, and the one that it shares with others: mostly the same."""
    found = look(".git", root.fd)
    if found is not None and stat.S_ISREG(found.st_mode):
        return _linked(root, path, found, held)
    if found is None:
        parts = [look(name, root.fd) for name in ("HEAD", "objects", "refs")]
        modes = [part.st_mode for part in parts if part is not None]
        if len(modes) < 3 or not stat.S_ISREG(modes[0]) or not all(map(stat.S_ISDIR, modes[1:])):
            raise GitError(f"{path} is not the top of a git checkout: it has no .git", kind="missing")
        own = held.enter_context(Root.adopt(os.dup(root.fd)))  # bare: it is itself a git directory
    elif stat.S_ISDIR(found.st_mode):
        own = held.enter_context(Root.adopt(_enter(root.fd, ".git")))
    else:
        raise _unsafe(".git is neither a directory nor a file")
    return own, own


def _linked(root: Root, path: str, gitfile: os.stat_result, held: ExitStack) -> tuple[Root, Root]:
    """Follow a .git file, if what it points to points back: else it may name anyone's repository."""
    content = small(root, ".git", MAX_LINE) or b""
    if not content.startswith(b"gitdir: "):
        raise _unsafe(".git is a file that names no git directory")
    target = _joined(os.path.realpath(path), content[8:])
    own = held.enter_context(_outside(target))
    shared = small(own, "commondir", MAX_LINE)
    if shared is None:  # a submodule's git directory names its checkout in its configuration
        named = WORKTREE.search(small(own, "config", MAX_CONFIG) or b"")
        back = look(_joined(target, named[1].strip().strip(b'"'))) if named is not None else None
        if not same(back, os.stat(path)):
            raise _unsafe(f"{NOT_BACK} and submodules are read")
        return own, own
    if not same(look(_joined(target, small(own, "gitdir", MAX_LINE) or b"\0")), gitfile):
        raise _unsafe(f"{NOT_BACK} are read")
    common = held.enter_context(_outside(_joined(target, shared or b"\0")))
    _check_worktree(common, own, os.path.basename(os.path.realpath(target)))
    return own, common


def _joined(folder: str, line: bytes) -> str:
    return os.path.join(folder, os.fsdecode(line.rstrip(b"\r\n")))


def _outside(path: str) -> Root:
    try:
        return Root.adopt(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except (OSError, ValueError):
        raise _unsafe(".git names a git directory that cannot be opened") from None


def _check_worktree(common: Root, own: Root, name: str) -> None:
    """The shared directory must list this worktree as its own, under that name."""
    try:
        with common.place(f"worktrees/{name}", links=False) as place:
            listed = os.fstat(place.fd) if place.name is None else None
    except (OSError, UnsafePath):
        listed = None
    if not same(listed, os.fstat(own.fd)):
        raise _unsafe(".git names a git directory that does not know this worktree")


def _check_objects(objects: int, alternates: bool) -> None:
    """Refuse links and oddities among the objects: git would follow them to other people's."""
    budget = Budget(entries=MAX_OBJECT_FILES, deadline=time.monotonic() + SECONDS)
    for folder, kind in scan(objects, budget):
        if kind == "file":
            continue
        fd = _enter(objects, folder)  # refuses what is neither
        try:
            for name, what in scan(fd, budget):
                if what in ("link", "other"):
                    raise _unsafe(f"objects/{folder}/{name} is not a plain file or directory")
                borrows = (folder, name) == ("info", "alternates") and not alternates
                if borrows and os.stat(name, dir_fd=fd, follow_symlinks=False).st_size:
                    text = "the repository borrows objects from elsewhere (objects/info/alternates): refused"
                    raise _unsafe(text)
        finally:
            os.close(fd)
        if budget.spent:
            break
    if budget.spent:
        raise _unsafe("there are too many object files to look at; pack the repository (git gc)")

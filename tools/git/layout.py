"""Find the parts of a repository that may be read, and refuse the tricks that can be played with them."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass

from glue.errors import GitError, UnsafePath
from glue.tools.fs.root import DIRECTORY, FILE, Root, shorten
from glue.tools.git.objects import HASH

MAX_OBJECT_FILES = 300_000
SECONDS = 4.0
SHORT = re.compile(r"[0-9a-f]{7,64}")
# What git itself allows in a ref name, and a little less.
BAD = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[-./]|[./]$|\.$")
PLACES = ("refs/heads/", "refs/remotes/origin/", "refs/remotes/", "refs/tags/")
WORKTREE = re.compile(rb"(?im)^\s*worktree\s*=\s*(\S.*)$")
MAX_REF = 4096
MAX_PACKED = 64 * 1024 * 1024
MAX_JUMPS = 5
OF_WORKTREE = ("HEAD", "refs/bisect/", "refs/worktree/", "refs/rewritten/")


@dataclass(slots=True)
class Layout:
    """Descriptors of a repository's own directory, of the one that worktrees share, and of its objects."""

    own: Root  # HEAD
    common: Root  # refs, packed-refs, shallow
    objects: int

    def close(self) -> None:
        self.own.close()
        self.common.close()
        if self.objects >= 0:
            os.close(self.objects)
            self.objects = -1


def find(path: str, *, alternates: bool = False) -> Layout:
    """Open the repository at the very directory `path`; the ones above it are none of our business."""
    with Root(path, fast=False) as root:
        own, common = _directories(root, path)
    layout = Layout(own, common, -1)
    try:
        layout.objects = _enter(common.fd, "objects")
        _check_objects(layout.objects, alternates)
    except BaseException:
        layout.close()
        raise
    return layout


def small(root: Root, path: str, cap: int) -> bytes | None:
    """Read a small regular file, not through any link; None where there is none."""
    try:
        with root.place(path, links=False) as place:
            if place.name is None or place.missing:
                return None
            fd = os.open(place.name, FILE, dir_fd=place.fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnsafePath) as error:
        raise GitError(f".git/{path} is not a plain file", kind="unsafe") from error
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise GitError(f".git/{path} is not a plain file", kind="unsafe")
        content = file.read(cap + 1)
    if len(content) > cap:
        raise GitError(f".git/{path} is larger than {cap} bytes", kind="unsafe")
    return content


def _enter(parent: int, name: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise GitError(
            f"{name} in the git directory is missing or not a directory of its own", kind="unsafe"
        ) from error


def _directories(root: Root, path: str) -> tuple[Root, Root]:
    try:
        found = os.stat(".git", dir_fd=root.fd, follow_symlinks=False)
    except OSError:
        if not _is_bare(root.fd):
            raise GitError(f"{path} is not the top of a git checkout: it has no .git", kind="missing") from None
        return Root.adopt(os.dup(root.fd), ()), Root.adopt(os.dup(root.fd), ())
    if stat.S_ISDIR(found.st_mode):
        own = _enter(root.fd, ".git")
        return Root.adopt(own, ()), Root.adopt(os.dup(own), ())
    if stat.S_ISREG(found.st_mode):
        return _linked(root, path, found)
    raise GitError(".git is neither a directory nor a file", kind="unsafe")


def _is_bare(fd: int) -> bool:
    """Whether a directory is itself a git directory: it has HEAD, objects and refs of its own."""
    try:
        kinds = [os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode for name in ("HEAD", "objects", "refs")]
    except OSError:
        return False
    return stat.S_ISREG(kinds[0]) and all(map(stat.S_ISDIR, kinds[1:]))


def _linked(root: Root, path: str, gitfile: os.stat_result) -> tuple[Root, Root]:
    """Follow a linked worktree's .git file, if what it points to points back: else it may name anyone's repository."""
    content = small(root, ".git", 4096) or b""
    if not content.startswith(b"gitdir: "):
        raise GitError(".git is a file that names no git directory", kind="unsafe")
    target = os.path.join(os.path.realpath(path), os.fsdecode(content[8:].rstrip(b"\r\n")))
    own = _outside(target)
    common: Root | None = None
    try:
        if small(own, "commondir", 4096) is None:
            _is_submodule(own, target, path)
            return own, Root.adopt(os.dup(own.fd), ())
        back = os.path.join(target, os.fsdecode((small(own, "gitdir", 4096) or b"\0").rstrip(b"\r\n")))
        shared = os.path.join(target, os.fsdecode((small(own, "commondir", 4096) or b"\0").rstrip(b"\r\n")))
        if not _same(_look(back), gitfile):
            raise GitError(
                ".git names a git directory that does not point back here; only linked worktrees are read",
                kind="unsafe",
            )
        common = _outside(shared)
        _is_worktree_of(common, own, os.path.basename(os.path.realpath(target)))
    except BaseException:
        own.close()
        if common is not None:
            common.close()
        raise
    return own, common


def _is_submodule(own: Root, target: str, path: str) -> None:
    """A submodule's git directory names its checkout in its configuration; any other may be anyone's."""
    found = WORKTREE.search(small(own, "config", 1024 * 1024) or b"")
    back = os.path.join(target, os.fsdecode(found[1].strip().strip(b'"'))) if found is not None else ""
    if not back or not _same(_look(back), os.stat(path)):
        text = ".git names a git directory that does not point back here; only linked worktrees and submodules are read"
        raise GitError(text, kind="unsafe")


def _outside(path: str) -> Root:
    try:
        return Root.adopt(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), ())
    except (OSError, ValueError):
        raise GitError(".git names a git directory that cannot be opened", kind="unsafe") from None


def _look(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except (OSError, ValueError):
        return None


def _same(one: os.stat_result | None, other: os.stat_result) -> bool:
    return one is not None and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _is_worktree_of(common: Root, own: Root, name: str) -> None:
    """The shared directory must list this worktree as its own, under that name."""
    try:
        with common.place(f"worktrees/{name}", links=False) as place:
            listed = os.fstat(place.fd) if place.name is None and not place.missing else None
    except (OSError, UnsafePath):
        listed = None
    if not _same(listed, os.fstat(own.fd)):
        raise GitError(".git names a git directory that does not know this worktree", kind="unsafe")


def _check_objects(objects: int, alternates: bool) -> None:
    """Refuse links and oddities among the objects: git would follow them to other people's."""
    left = MAX_OBJECT_FILES
    until = time.monotonic() + SECONDS
    for name, kind in _scan(objects):
        if kind == "file":
            continue
        if kind != "folder":
            raise GitError(f"objects/{name} is not a plain file or directory", kind="unsafe")
        fd = _enter(objects, name)
        try:
            for inner, what in _scan(fd):
                left -= 1
                if left < 0 or time.monotonic() > until:
                    raise GitError(
                        "there are too many object files to look at; pack the repository (git gc)", kind="unsafe"
                    )
                _check_inner(name, inner, what, alternates, fd)
        finally:
            os.close(fd)


def _check_inner(folder: str, name: str, kind: str, alternates: bool, fd: int) -> None:
    if kind in ("link", "other"):
        raise GitError(f"objects/{folder}/{name} is not a plain file or directory", kind="unsafe")
    borrows = folder == "info" and name in ("alternates", "http-alternates")
    if borrows and not alternates and os.stat(name, dir_fd=fd, follow_symlinks=False).st_size:
        raise GitError(
            "the repository borrows objects from elsewhere (objects/info/alternates): refused", kind="unsafe"
        )


def _scan(fd: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if len(found) > MAX_OBJECT_FILES:
                break
            if entry.is_symlink():
                kind = "link"
            elif entry.is_dir(follow_symlinks=False):
                kind = "folder"
            else:
                kind = "file" if entry.is_file(follow_symlinks=False) else "other"
            found.append((entry.name, kind))
    return found


class Refs:
    """The refs of one repository, loose ones first."""

    def __init__(self, own: Root, common: Root) -> None:
        self.own, self.common = own, common
        self._packed: bytes | None = None

    def find(self, name: str) -> str | None:
        """Give the hash a name stands for: HEAD, a full ref, or a branch, remote branch or tag, in this order."""
        if name in ("HEAD", "@"):
            return self.read("HEAD")
        if BAD.search(name) or len(name) > 1024:
            raise GitError(
                f"{shorten(name)} is not a name of a commit; give a branch, a tag, HEAD or a hash", kind="usage"
            )
        for place in ("",) if name.startswith("refs/") else PLACES:
            if (found := self.read(place + name)) is not None:
                return found
        return None

    def read(self, ref: str) -> str | None:
        """Read one ref by its full name, through symbolic ones."""
        for _ in range(MAX_JUMPS):
            home = self.own if ref.startswith(OF_WORKTREE) else self.common
            content = small(home, ref, MAX_REF)
            if content is None:
                return self.packed(ref)
            text = content.decode("utf-8", "surrogateescape").strip()
            if not text.startswith("ref:"):
                if not HASH.fullmatch(text):
                    raise GitError(f"{shorten(ref)} does not hold a hash", kind="unsafe")
                return text
            ref = text[4:].strip()
            if ref == "refs/heads/.invalid":
                raise GitError(
                    "the repository keeps its refs in a reftable, which is not read; give full hashes", kind="unsafe"
                )
            if not ref.startswith("refs/") or BAD.search(ref):
                raise GitError(f"a symbolic ref leads to {shorten(ref)}, which is no ref", kind="unsafe")
        raise GitError("symbolic refs lead round in a circle", kind="unsafe")

    def head_branch(self) -> str:
        """Name the branch that is checked out; empty where the head is detached."""
        text = (small(self.own, "HEAD", MAX_REF) or b"").decode("utf-8", "replace").strip()
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

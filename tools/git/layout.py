"""Find the parts of a repository that may be read, and refuse the tricks that can be played with them."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass

from glue.errors import GitError, UnsafePath
from glue.tools.fs.root import DIRECTORY, FILE, Root

MAX_OBJECT_FILES = 300_000
SECONDS = 4.0


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
        raise GitError(f".git/{path} is not a plain file") from error
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise GitError(f".git/{path} is not a plain file")
        content = file.read(cap + 1)
    if len(content) > cap:
        raise GitError(f".git/{path} is larger than {cap} bytes")
    return content


def _enter(parent: int, name: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise GitError(f"{name} in the git directory is missing or not a directory of its own") from error


def _directories(root: Root, path: str) -> tuple[Root, Root]:
    try:
        found = os.stat(".git", dir_fd=root.fd, follow_symlinks=False)
    except OSError:
        raise GitError(f"{path} is not the top of a git checkout: it has no .git") from None
    if stat.S_ISDIR(found.st_mode):
        own = _enter(root.fd, ".git")
        return Root.adopt(own, ()), Root.adopt(os.dup(own), ())
    if stat.S_ISREG(found.st_mode):
        return _linked(root, path, found)
    raise GitError(".git is neither a directory nor a file")


def _linked(root: Root, path: str, gitfile: os.stat_result) -> tuple[Root, Root]:
    """Follow a linked worktree's .git file, if what it points to points back: else it may name anyone's repository."""
    content = small(root, ".git", 4096) or b""
    if not content.startswith(b"gitdir: "):
        raise GitError(".git is a file that names no git directory")
    target = os.path.join(os.path.realpath(path), os.fsdecode(content[8:].rstrip(b"\r\n")))
    own = _outside(target)
    common: Root | None = None
    try:
        back = os.path.join(target, os.fsdecode((small(own, "gitdir", 4096) or b"\0").rstrip(b"\r\n")))
        shared = os.path.join(target, os.fsdecode((small(own, "commondir", 4096) or b"\0").rstrip(b"\r\n")))
        if not _same(_look(back), gitfile):
            raise GitError(".git names a git directory that does not point back here; only linked worktrees are read")
        common = _outside(shared)
        _is_worktree_of(common, own, os.path.basename(os.path.realpath(target)))
    except BaseException:
        own.close()
        if common is not None:
            common.close()
        raise
    return own, common


def _outside(path: str) -> Root:
    try:
        return Root.adopt(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), ())
    except (OSError, ValueError):
        raise GitError(".git names a git directory that cannot be opened") from None


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
        raise GitError(".git names a git directory that does not know this worktree")


def _check_objects(objects: int, alternates: bool) -> None:
    """Refuse links and oddities among the objects: git would follow them to other people's."""
    left = MAX_OBJECT_FILES
    until = time.monotonic() + SECONDS
    for name, kind in _scan(objects):
        if kind == "file":
            continue
        if kind != "folder":
            raise GitError(f"objects/{name} is not a plain file or directory")
        fd = _enter(objects, name)
        try:
            for inner, what in _scan(fd):
                left -= 1
                if left < 0 or time.monotonic() > until:
                    raise GitError("there are too many object files to look at; pack the repository (git gc)")
                _check_inner(name, inner, what, alternates, fd)
        finally:
            os.close(fd)


def _check_inner(folder: str, name: str, kind: str, alternates: bool, fd: int) -> None:
    if kind in ("link", "other"):
        raise GitError(f"objects/{folder}/{name} is not a plain file or directory")
    borrows = folder == "info" and name in ("alternates", "http-alternates")
    if borrows and not alternates and os.stat(name, dir_fd=fd, follow_symlinks=False).st_size:
        raise GitError("the repository borrows objects from elsewhere (objects/info/alternates): refused")


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

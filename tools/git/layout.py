"""Open the git directories of a checkout, check its object directory, and read its refs.

Links and other ways that lead to the objects of another repository are refused.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import ExitStack

from glue.errors import GitError, UnsafePath
from glue.tools.fs.root import DIRECTORY, Root, is_same_file, shorten, stat_or_none
from glue.tools.fs.walk import Budget, scan
from glue.tools.git.objects import HASH

MAX_OBJECT_FILES = 300_000
SECONDS = 4.0
# Characters and sequences that a ref name must not have; git allows slightly more names.
BAD = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[-./]|[./]$|\.$")
PLACES = ("refs/heads/", "refs/remotes/origin/", "refs/remotes/", "refs/tags/")
WORKTREE = re.compile(rb"(?im)^\s*worktree\s*=\s*(\S.*)$")
# The errors of opening a path that is missing, a directory, or longer than a path can be.
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
MAX_LINE = 4096  # bytes of a ref, or of a file that names a directory
MAX_PACKED = 64 * 1024 * 1024
MAX_CONFIG = 1024 * 1024
MAX_JUMPS = 5  # symbolic refs in a row
NOT_BACK = ".git points to a git directory that does not point back to this checkout"
# Refs that each worktree has for itself.
OF_WORKTREE = ("HEAD", "refs/bisect/", "refs/worktree/", "refs/rewritten/")


class Layout:
    """The git directories of the checkout at `path`; folders above it are not searched.

    `own` is the git directory with HEAD. `common` is the git directory with the other refs and the
    objects. Linked worktrees share `common`; in other checkouts it is the same as `own`.
    """

    def __init__(self, path: str, *, alternates: bool) -> None:
        self._packed: bytes | None = None
        with ExitStack() as stack, Root(path) as root:
            self.own, self.common = _open_git_directories(root, path, stack)
            self.objects = _open_directory(self.common.fd, "objects")
            stack.callback(os.close, self.objects)
            _check_objects(self.objects, alternates)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close the open directories."""
        self._stack.close()

    def find(self, name: str) -> str | None:
        """Return the hash that a name refers to, or None if the name does not exist.

        The name is HEAD, a full ref such as refs/heads/main, a branch, a remote branch or a tag;
        these are tried in this order.
        """
        if name in ("HEAD", "@"):
            return self.read("HEAD")
        if BAD.search(name) or len(name) > 1024:
            raise GitError(
                f"{shorten(name)} is not a name of a commit; give a branch, a tag, HEAD or a hash",
                kind="usage",
            )
        for place in ("",) if name.startswith("refs/") else PLACES:
            if (found := self.read(place + name)) is not None:
                return found
        return None

    def read(self, ref: str) -> str | None:
        """Return the hash of a ref by its full name, or None if the ref does not exist.

        Symbolic refs are followed.
        """
        for _ in range(MAX_JUMPS):
            root = self.own if ref.startswith(OF_WORKTREE) else self.common
            content = read_small(root, ref, MAX_LINE)
            if content is None:
                return self.packed(ref)
            text = content.decode("utf-8", "surrogateescape").strip()
            if not text.startswith("ref:"):
                if not HASH.fullmatch(text):
                    raise _unsafe(f"{shorten(ref)} does not contain a hash")
                return text
            ref = text[4:].strip()
            if ref == "refs/heads/.invalid":
                raise _unsafe(
                    "the repository stores its refs in a reftable, which cannot be read; "
                    "give full hashes"
                )
            if not ref.startswith("refs/") or BAD.search(ref):
                raise _unsafe(f"a symbolic ref leads to {shorten(ref)}, which is not a ref")
        raise _unsafe(
            f"glue stopped at {shorten(ref)} after {MAX_JUMPS} symbolic refs in a row; "
            "give a full hash"
        )

    def head_branch(self) -> str:
        """Return the name of the branch that is checked out, or "" if HEAD is detached."""
        text = (read_small(self.own, "HEAD", MAX_LINE) or b"").decode("utf-8", "replace").strip()
        ref = text.removeprefix("ref:").strip()
        return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else ""

    def packed(self, ref: str) -> str | None:
        """Return the hash of a ref in the file packed-refs, or None if the file lacks it.

        The file is searched as bytes: a dict of perhaps a million refs would take longer to build.
        """
        if self._packed is None:
            content = read_small(self.common, "packed-refs", MAX_PACKED) or b""
            self._packed = b"\n" + content + b"\n"
        at = self._packed.find(b" " + ref.encode("utf-8", "surrogateescape") + b"\n")
        if at < 0:
            return None
        start = self._packed.rfind(b"\n", 0, at) + 1
        value = self._packed[start:at].decode("ascii", "replace")
        return value if HASH.fullmatch(value) else None


def read_small(root: Root, path: str, cap: int) -> bytes | None:
    """Return the content of a small file, or None if the file is missing or a directory.

    Raise GitError if the file is a link, larger than `cap`, or cannot be read.
    """
    try:
        with root.place(path, links=False) as place, place.open(path) as file:
            content = file.read(cap + 1)
    except UnsafePath as error:
        raise _unsafe(f".git/{path} is not a plain file") from error
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise _unsafe(f".git/{path} cannot be read: {error.strerror}") from error
    if len(content) > cap:
        raise _unsafe(f".git/{path} is larger than {cap} bytes")
    return content


def _unsafe(text: str) -> GitError:
    return GitError(text, kind="unsafe")


def _open_directory(parent: int, name: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise _unsafe(f"{name} in the git directory cannot be opened: {error.strerror}") from error


def _open_git_directories(root: Root, path: str, stack: ExitStack) -> tuple[Root, Root]:
    """Open and return the git directory of a checkout and the directory that its worktrees share.

    `stack` closes both. They are the same directory unless the checkout is a linked worktree.
    """
    found = stat_or_none(".git", root.fd)
    if found is not None and stat.S_ISREG(found.st_mode):
        return _open_linked(root, path, found, stack)
    if found is None:
        parts = [stat_or_none(name, root.fd) for name in ("HEAD", "objects", "refs")]
        modes = [part.st_mode for part in parts if part is not None]
        if len(modes) < 3 or not stat.S_ISREG(modes[0]) or not all(map(stat.S_ISDIR, modes[1:])):
            raise GitError(
                f"{path} is not the top of a git checkout: .git is missing", kind="missing"
            )
        own = stack.enter_context(Root.adopt(os.dup(root.fd)))  # a bare repository
    elif stat.S_ISDIR(found.st_mode):
        own = stack.enter_context(Root.adopt(_open_directory(root.fd, ".git")))
    else:
        raise _unsafe(".git is neither a directory nor a file")
    return own, own


def _open_linked(
    root: Root, path: str, gitfile: os.stat_result, stack: ExitStack
) -> tuple[Root, Root]:
    """Open the git directory that a .git file names, and the shared git directory; return both.

    The git directory must name this checkout in turn; otherwise the .git file could name the
    repository of another user.
    """
    content = read_small(root, ".git", MAX_LINE) or b""
    if not content.startswith(b"gitdir: "):
        raise _unsafe(".git is a file that does not contain the path of a git directory")
    target = _join(os.path.realpath(path), content[8:])
    own = stack.enter_context(_open_outside(target))
    shared = read_small(own, "commondir", MAX_LINE)
    if shared is None:  # the git directory of a submodule; its config names the checkout
        named = WORKTREE.search(read_small(own, "config", MAX_CONFIG) or b"")
        checkout = _join(target, named[1].strip().strip(b'"')) if named is not None else ""
        if not is_same_file(stat_or_none(checkout), os.stat(path)):
            raise _unsafe(f"{NOT_BACK}; only linked worktrees and submodules may have a .git file")
        return own, own
    back = _join(target, read_small(own, "gitdir", MAX_LINE) or b"\0")
    if not is_same_file(stat_or_none(back), gitfile):
        raise _unsafe(f"{NOT_BACK}; only linked worktrees and submodules may have a .git file")
    common = stack.enter_context(_open_outside(_join(target, shared or b"\0")))
    _check_worktree(common, own, os.path.basename(os.path.realpath(target)))
    return own, common


def _join(folder: str, line: bytes) -> str:
    return os.path.join(folder, os.fsdecode(line.rstrip(b"\r\n")))


def _open_outside(path: str) -> Root:
    try:
        return Root.adopt(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except (OSError, ValueError):
        raise _unsafe(".git points to a git directory that cannot be opened") from None


def _check_worktree(common: Root, own: Root, name: str) -> None:
    """Raise GitError if the shared git directory does not list this worktree under its name."""
    try:
        with common.place(f"worktrees/{name}", links=False) as place:
            listed = os.fstat(place.fd) if place.name is None else None
    except (OSError, UnsafePath):
        listed = None
    if not is_same_file(listed, os.fstat(own.fd)):
        raise _unsafe(
            ".git points to a git directory of a repository that does not list this worktree"
        )


def _check_objects(objects: int, alternates: bool) -> None:
    """Raise GitError if the object directory contains links, special files or alternates.

    git would follow them to files outside the repository. If `alternates` is true, alternates are
    allowed. Too many files are an error too, since they cannot be checked in time.
    """
    budget = Budget(entries=MAX_OBJECT_FILES, deadline=time.monotonic() + SECONDS)
    for folder, kind in scan(objects, budget):
        if kind == "file":
            continue
        fd = _open_directory(objects, folder)  # raises if it is not a directory
        try:
            for name, what in scan(fd, budget):
                if what in ("link", "other"):
                    raise _unsafe(f"objects/{folder}/{name} is not a plain file or directory")
                borrows = (folder, name) == ("info", "alternates") and not alternates
                if borrows and os.stat(name, dir_fd=fd, follow_symlinks=False).st_size:
                    raise _unsafe(
                        "the repository uses objects of another repository "
                        "(objects/info/alternates), which is refused"
                    )
        finally:
            os.close(fd)
        if budget.spent:
            break
    if budget.spent:
        raise _unsafe("there are too many object files to check; pack the repository (git gc)")

"""A root directory that no path leads out of, even while another process swaps folders and links.

Each component of a path is opened by itself, relative to the descriptor of its parent and never
through a link. Links are read and expanded here. `..` returns to a descriptor that is already
open. No absolute path is ever built.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice

from glue.errors import UnsafePath

if os.name != "posix":
    raise ImportError(
        "the file tools need a POSIX system (Linux, macOS, WSL), because they use openat()"
    )

MAX_PATH = 16 * 1024
MAX_LINKS = 40
MAX_PROBED = 100  # entries of the root that are read to find a name with letters
MAX_DEPTH = 256  # nested directories; each needs an open descriptor

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# NONBLOCK: opening a FIFO must not block. NOCTTY: a terminal must not control this process.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KINDS = {
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
}

Guard = Callable[[tuple[str, ...]], None]


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The result of resolving a path: an open directory, or a name in an open directory."""

    fd: int  # the directory itself, or the parent of `name`
    names: tuple[str, ...]  # components from the root, without links and `..`
    name: str | None  # None if the path is a directory
    missing: tuple[str, ...] = ()  # folders between `fd` and `name` that do not exist

    @property
    def path(self) -> str:
        return "/".join(self.names) or "."

    def open(self, path: str) -> io.BufferedReader:
        """Open the regular file that the path resolved to; `path` is its name in error messages."""
        if self.missing:
            raise path_error(errno.ENOENT, path)
        if self.name is None:
            raise path_error(errno.EISDIR, path)
        return open_at(self.fd, self.name, path)


class Root:
    """An open directory that opens files below it, and refuses every path that leads outside.

    Close it, use it in `with`, or leave it to the garbage collector.

    >>> with Root(".") as root, root.open("README.md") as file:  # doctest: +SKIP
    ...     content = file.read()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.fd = -1
        given = os.fspath(path)
        try:
            self.fd = os.open(given, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError(
                f"root {given!r} is not a directory that can be opened: {error.strerror}"
            ) from error
        # The absolute names of the root: absolute paths and links that start with one stay inside.
        names = dict.fromkeys((os.path.realpath(given), os.path.abspath(given)))
        found = os.fstat(self.fd)
        self.spellings = tuple(
            name for name in names if is_same_file(stat_or_none(name, follow=True), found)
        )

    @property
    def folds_names(self) -> bool:
        """Whether `A` and `a` name the same file in the file system, as on macOS by default.

        A file of the root is looked up with the case of its name swapped. If no name in the root
        has letters, the operating system decides.
        """
        try:
            with os.scandir(self.fd) as entries:
                names = (entry.name for entry in islice(entries, MAX_PROBED))
                name = next((name for name in names if name.swapcase() != name), None)
        except OSError:
            name = None
        if name is None:
            return sys.platform == "darwin"
        found = self._stat(name)
        return found is not None and is_same_file(self._stat(name.swapcase()), found)

    def _stat(self, name: str) -> os.stat_result | None:
        """Return the stat result of a name in the root directory, or None if stat fails.

        Tests override this method.
        """
        return stat_or_none(name, self.fd)

    @classmethod
    def adopt(cls, fd: int, spellings: tuple[str, ...] = ()) -> Root:
        """Return a Root for the descriptor of an open directory; the Root closes the descriptor."""
        root = cls.__new__(cls)
        root.fd, root.spellings = fd, spellings
        return root

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def relative(self, path: str) -> str:
        """Return a path relative to the root; raise UnsafePath if the path is not valid.

        An absolute path is valid only if it begins with the path of the root. `..` is not checked
        here. The path is not stripped, unquoted, expanded or normalised.
        """
        if not isinstance(path, str) or not path:
            raise UnsafePath(
                "the path is empty; give a path relative to the root, such as 'src/main.py', or '.'"
            )
        if "\0" in path:
            raise UnsafePath("the path contains a NUL character")
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise UnsafePath("the path contains characters that cannot be in a file name") from None
        if size > MAX_PATH:
            raise UnsafePath(f"the path is {size} bytes long; at most {MAX_PATH} are allowed")
        if (below := self.below(path)) is None:
            raise UnsafePath(
                f"{shorten(path)} is absolute and not below the root; "
                "give a path relative to the root"
            )
        return below

    def below(self, path: str) -> str | None:
        """Convert an absolute path to a relative path; return None if the path is outside the root.

        The root itself becomes ".". A relative path is returned unchanged, even if it contains
        `..`.
        """
        if not path.startswith("/"):
            return path
        for spelling in self.spellings:
            base = spelling.rstrip("/") + "/"
            if path == spelling or path.startswith(base):
                return path[len(base) :] or "."
        return None

    def open(self, path: str, *, guard: Guard | None = None) -> io.BufferedReader:
        """Open a regular file below the root for reading, and return it.

        Raise UnsafePath if the path leads outside the root or to a special file, and OSError if the
        file is missing, a directory, or cannot be read.
        """
        with self.place(path, guard=guard) as place:
            return place.open(path)

    @contextmanager
    def directory(self, path: str, *, guard: Guard | None = None) -> Iterator[ResolvedPath]:
        """Open the directory at `path` for a `with` block; raise OSError if it is not a directory.

        Raise UnsafePath if the path leads outside the root.
        """
        with self.place(path, guard=guard) as place:
            if place.name is not None:
                there = not place.missing and stat_or_none(place.name, place.fd) is not None
                raise path_error(errno.ENOTDIR if there else errno.ENOENT, path)
            yield place

    @contextmanager
    def place(
        self, path: str, *, links: bool = True, final: bool = True, guard: Guard | None = None
    ) -> Iterator[ResolvedPath]:
        """Resolve a path below the root. Its file descriptors stay open during the `with` block.

        Args:
            path: relative to the root, or absolute and below the root. An OSError names this path.
            links: follow links; if False, a link in the path is an error.
            final: follow a link that is the last component of the path.
            guard: is called with the components of the resolved path; raises an error to refuse it.
        """
        walk = _Walk(self, path, links, final)
        try:
            place = walk.run()
            if guard is not None:
                guard(place.names)
            yield place
        except OSError as error:
            raise (
                path_error(error.errno, path, error.strerror) if error.errno else error
            ) from None
        finally:
            walk.close()


def shorten(path: str) -> str:
    """Return a path in quotes for a message, on one line and shortened to 200 characters."""
    return ascii(path) if len(path) <= 200 else ascii(path[:200]) + "..."


def path_error(number: int, path: str, text: str | None = None) -> OSError:
    """Return an OSError for an error number, with the path as the caller gave it."""
    return OSError(number, text or os.strerror(number), path)


def open_at(parent: int, name: str, path: str) -> io.BufferedReader:
    """Open a regular file in an open directory, never through a link."""
    # Checked before opening: a socket cannot be opened, and opening a tape would rewind it.
    check_regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
    try:
        fd = os.open(name, FILE, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(f"{shorten(path)} became a link while it was opened") from None
        raise
    try:
        check_regular(os.fstat(fd), path)
        return io.BufferedReader(io.FileIO(fd, "rb"), 64 * 1024)
    except BaseException:
        os.close(fd)
        raise


def check_regular(found: os.stat_result, path: str) -> None:
    """Raise an error if a stat result is not that of a regular file, or is of a file in /proc."""
    if stat.S_ISDIR(found.st_mode):
        raise path_error(errno.EISDIR, path)
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePath(f"{shorten(path)} is a {file_kind(found.st_mode)}, not a regular file")
    if found.st_dev == _proc_device():  # environ and mem claim to be regular files
        raise UnsafePath(f"{shorten(path)} is in /proc and is not a regular file")


def file_kind(mode: int) -> str:
    return KINDS.get(stat.S_IFMT(mode), "special file")


@cache
def _proc_device() -> int | None:
    return getattr(stat_or_none("/proc/self/stat"), "st_dev", None)


def stat_or_none(
    path: str, parent: int | None = None, *, follow: bool = False
) -> os.stat_result | None:
    """Return the stat result of a file, or None if stat fails. Links are followed if `follow`."""
    try:
        return os.stat(path, dir_fd=parent, follow_symlinks=follow)
    except (OSError, ValueError):
        return None


def is_same_file(one: os.stat_result | None, other: os.stat_result) -> bool:
    """Return whether two stat results belong to the same file; False if the first is None."""
    return one is not None and os.path.samestat(one, other)


class _Walk:
    """The state of resolving one path: open descriptors, names so far, and components to come."""

    def __init__(self, root: Root, path: str, links: bool, final: bool) -> None:
        self.root, self.path = root, path
        self.follows, self.final = links, final
        self.links_left = MAX_LINKS if links else 0
        self.fds: list[int] = []
        self.names: list[str] = []
        self.todo = root.relative(path).split("/")[::-1]

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    @property
    def here(self) -> int:
        return self.fds[-1] if self.fds else self.root.fd

    def run(self) -> ResolvedPath:
        while self.todo:
            part = self.todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not self.fds:
                    raise UnsafePath(f"{shorten(self.path)} leads outside the root")
                os.close(self.fds.pop())
                self.names.pop()
                continue
            if len(self.fds) >= MAX_DEPTH:
                raise UnsafePath(
                    f"{shorten(self.path)} is nested deeper than {MAX_DEPTH} directories"
                )
            try:
                self.fds.append(self.enter(part))
                self.names.append(part)
            except FileNotFoundError:
                return self.absent(part)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
                    raise
                if not self.follow(part):
                    return ResolvedPath(self.here, (*self.names, part), part)
        return ResolvedPath(self.here, tuple(self.names), None)

    def enter(self, part: str) -> int:
        try:
            return os.open(part, DIRECTORY, dir_fd=self.here)
        except PermissionError:
            if not hasattr(os, "O_PATH"):
                raise
        # A folder that may be passed through but not listed.
        return os.open(part, DIRECTORY | os.O_PATH, dir_fd=self.here)

    def follow(self, part: str) -> bool:
        """Follow the component `part` of the path if it is a link; return whether it was followed.

        A last component that is a link is followed only if `final` is set. Raise UnsafePath if the
        link leads outside the root.
        """
        try:
            target = os.readlink(part, dir_fd=self.here)
        except OSError:
            if self.todo:
                raise path_error(errno.ENOTDIR, self.path) from None
            return False
        if not self.todo and not self.final:
            return False
        if self.links_left <= 0:
            raise UnsafePath(
                f"{shorten(self.path)} leads through more than {MAX_LINKS} links"
                if self.follows
                else f"{shorten(self.path)} leads through a link, "
                "and this operation follows no links"
            )
        self.links_left -= 1
        if (below := self.root.below(target)) is None:
            raise UnsafePath(f"{shorten(self.path)} is a link that leads outside the root")
        if target.startswith("/"):
            self.close()
            self.names.clear()
        self.todo.extend(below.split("/")[::-1])
        return True

    def absent(self, part: str) -> ResolvedPath:
        """Return the resolved path of a missing file; `part` is its first missing component.

        Raise FileNotFoundError if ".." comes after `part`.
        """
        rest = [part, *(part for part in self.todo[::-1] if part not in ("", "."))]
        if ".." in rest:  # there is nothing above a folder that does not exist
            raise path_error(errno.ENOENT, self.path)
        return ResolvedPath(self.here, (*self.names, *rest), rest[-1], tuple(rest[:-1]))


def truncate(text: str, cap: int, marker: str = "\n[truncated]") -> str:
    """Return a text, cut to at most `cap` bytes of UTF-8 if it is longer.

    A cut text ends with the marker, which counts in `cap`, and is not cut inside a character. The
    marker is left out if it does not fit.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= cap:
        return text
    tail = marker.encode("utf-8", "replace")
    tail = tail if len(tail) <= cap else b""
    return (encoded[: max(cap - len(tail), 0)] + tail).decode("utf-8", "ignore")

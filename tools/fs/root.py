"""A directory that no path leads out of, whatever is swapped underneath.

Every component is opened by itself, relative to its parent's descriptor and never through a link; links
are read and expanded by hand; `..` goes back to a descriptor that is already held. No absolute path is built.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from glue.errors import UnsafePath

if os.name != "posix":
    raise ImportError("the file tools need a POSIX system (Linux, macOS, WSL): they rest on openat()")

MAX_PATH = 16 * 1024
MAX_LINKS = 40
MAX_DEPTH = 256  # one descriptor is held for each directory on the way

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# NONBLOCK: a FIFO must not hang the call; NOCTTY: a terminal must not become ours.
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
    """Where a path leads: `fd` is the directory itself, or the parent of `name`."""

    fd: int
    names: tuple[str, ...]  # plain names from the root, no link and no `..` among them
    name: str | None  # None: the path is a directory
    missing: tuple[str, ...] = ()  # what would have to be made between `fd` and `name`

    @property
    def path(self) -> str:
        return "/".join(self.names) or "."

    def open(self, path: str) -> io.BufferedReader:
        """Open the regular file that is here; `path` is what it is called in messages."""
        if self.missing:
            raise failure(errno.ENOENT, path)
        if self.name is None:
            raise failure(errno.EISDIR, path)
        return open_at(self.fd, self.name, path)


class Root:
    """An opened directory. Close it, use it in `with`, or let it be collected."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.fd = -1
        given = os.fspath(path)
        try:
            self.fd = os.open(given, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError(f"root {given!r} is not a directory that can be opened: {error.strerror}") from error
        # The absolute names of the root, for links that are absolute and yet stay inside.
        names = dict.fromkeys((os.path.realpath(given), os.path.abspath(given)))
        self.spellings = tuple(name for name in names if same(look(name, follow=True), os.fstat(self.fd)))

    @classmethod
    def adopt(cls, fd: int, spellings: tuple[str, ...] = ()) -> Root:
        """Take over a root that another process opened."""
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
        """Take an absolute path below the root for the relative one; refuse what is no path here at all.

        Nothing is stripped, unquoted, expanded or normalised.
        """
        if not isinstance(path, str) or not path:
            raise UnsafePath("the path is empty; give one relative to the root, such as 'src/main.py', or '.'")
        if "\0" in path:
            raise UnsafePath("the path holds a NUL character")
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise UnsafePath("the path holds characters that no file name can hold") from None
        if size > MAX_PATH:
            raise UnsafePath(f"the path is {size} bytes long; at most {MAX_PATH} are allowed")
        if (below := self.below(path)) is None:
            raise UnsafePath(f"{shorten(path)} is absolute and not below the root; give a path relative to the root")
        return below

    def below(self, path: str) -> str | None:
        """Give the relative spelling of a path; None for an absolute one that leads elsewhere."""
        if not path.startswith("/"):
            return path
        for spelling in self.spellings:
            base = spelling.rstrip("/") + "/"
            if path == spelling or path.startswith(base):
                return path[len(base) :] or "."
        return None

    def open(self, path: str, *, guard: Guard | None = None) -> io.BufferedReader:
        """Open a regular file for reading; refuse whatever leads outside or is anything else."""
        with self.place(path, guard=guard) as place:
            return place.open(path)

    @contextmanager
    def directory(self, path: str, *, guard: Guard | None = None) -> Iterator[ResolvedPath]:
        """Hold a directory open; its descriptor is closed at the end."""
        with self.place(path, guard=guard) as place:
            if place.name is not None:
                there = not place.missing and look(place.name, place.fd) is not None
                raise failure(errno.ENOTDIR if there else errno.ENOENT, path)
            yield place

    @contextmanager
    def place(
        self, path: str, *, links: bool = True, final: bool = True, guard: Guard | None = None
    ) -> Iterator[ResolvedPath]:
        """Walk to a path and hold what it leads to; `guard` sees the plain names and may refuse.

        Without `links` no link is followed; without `final` a link at the very end is not. An OSError names `path`.
        """
        walk = _Walk(self, path, links, final)
        try:
            place = walk.run()
            if guard is not None:
                guard(place.names)
            yield place
        except OSError as error:
            raise (failure(error.errno, path, error.strerror) if error.errno else error) from None
        finally:
            walk.close()


def shorten(path: str) -> str:
    """Quote a path for a message, on one line and not for ever."""
    return ascii(path) if len(path) <= 200 else ascii(path[:200]) + "..."


def failure(number: int, path: str, text: str | None = None) -> OSError:
    """Make the error of a path as it was given."""
    return OSError(number, text or os.strerror(number), path)


def open_at(parent: int, name: str, path: str) -> io.BufferedReader:
    """Open a regular file in a directory that is held, not through a link."""
    # Looked at first: a socket cannot be opened to see what it is, and a tape would be rewound.
    regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
    try:
        fd = os.open(name, FILE, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(f"{shorten(path)} became a link while it was opened") from None
        raise
    try:
        regular(os.fstat(fd), path)
        return io.BufferedReader(io.FileIO(fd, "rb"), 64 * 1024)
    except BaseException:
        os.close(fd)
        raise


def regular(found: os.stat_result, path: str) -> None:
    """Refuse what is no regular file on a disk."""
    if stat.S_ISDIR(found.st_mode):
        raise failure(errno.EISDIR, path)
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePath(f"{shorten(path)} is a {kind(found.st_mode)}, not a regular file")
    if found.st_dev == _proc_device():  # environ, mem and the like call themselves regular files
        raise UnsafePath(f"{shorten(path)} is a window into a process, not a file")


def kind(mode: int) -> str:
    return KINDS.get(stat.S_IFMT(mode), "special file")


@cache
def _proc_device() -> int:
    found = look("/proc/self/stat")
    return -1 if found is None else found.st_dev


def look(path: str, parent: int | None = None, *, follow: bool = False) -> os.stat_result | None:
    """Look at a file, and through a link only where that is asked for; None where there is nothing to see."""
    try:
        return os.stat(path, dir_fd=parent, follow_symlinks=follow)
    except (OSError, ValueError):
        return None


def same(one: os.stat_result | None, other: os.stat_result) -> bool:
    """Say whether two looks were at one file."""
    return one is not None and os.path.samestat(one, other)


class _Walk:
    """One walk: the descriptors held on the way, the names behind it and the parts before it."""

    def __init__(self, root: Root, path: str, links: bool, final: bool) -> None:
        self.root, self.path = root, path
        self.links_left, self.final = MAX_LINKS if links else 0, final
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
                raise UnsafePath(f"{shorten(self.path)} is nested deeper than {MAX_DEPTH} directories")
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
        """Go on through a link, or say that the walk ends here: with a file, or with a link that is not followed."""
        try:
            target = os.readlink(part, dir_fd=self.here)
        except OSError:
            if self.todo:
                raise failure(errno.ENOTDIR, self.path) from None
            return False
        if not self.todo and not self.final:
            return False
        if self.links_left <= 0:
            raise UnsafePath(f"{shorten(self.path)} goes through a link, or through too many")
        self.links_left -= 1
        if (below := self.root.below(target)) is None:
            raise UnsafePath(f"{shorten(self.path)} is a link that leads outside the root")
        if target.startswith("/"):
            self.close()
            self.names.clear()
        self.todo.extend(below.split("/")[::-1])
        return True

    def absent(self, part: str) -> ResolvedPath:
        """Say what is missing, name by name; nothing can be a link any more from here on."""
        rest = [part, *(part for part in self.todo[::-1] if part not in ("", "."))]
        if ".." in rest:  # not lexical: what does not exist has no parent to go back to
            raise failure(errno.ENOENT, self.path)
        return ResolvedPath(self.here, (*self.names, *rest), rest[-1], tuple(rest[:-1]))


def truncate(text: str, cap: int, marker: str = "\n[truncated]") -> str:
    """Cut text to at most `cap` bytes of UTF-8, marker included; never inside a character.

    The marker is left out where it does not fit.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= cap:
        return text
    tail = marker.encode("utf-8", "replace")
    tail = tail if len(tail) <= cap else b""
    return (encoded[: max(cap - len(tail), 0)] + tail).decode("utf-8", "ignore")

"""A directory that no path leads out of, whatever is swapped underneath.

Every component is opened by itself, relative to its parent's descriptor and never through a link; links
are read and expanded by hand; `..` goes back to a descriptor that is already held. No absolute path is built.
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
from typing import Any

from glue.errors import UnsafePath

if os.name != "posix":
    raise ImportError("the file tools need a POSIX system (Linux, macOS, WSL): they rest on openat()")

OPENAT2 = 437  # the same on every architecture that Linux still gives numbers to
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
MAX_PATH = 16 * 1024
MAX_LINKS = 40
MAX_DEPTH = 256  # one descriptor is held for each directory on the way

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# NONBLOCK: a FIFO must not hang the call; NOCTTY: a terminal must not become ours.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

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


class Root:
    """An opened directory. Close it, use it in `with`, or let it be collected."""

    def __init__(self, path: str | os.PathLike[str], *, fast: bool | None = None) -> None:
        self.fd = -1
        given = os.fspath(path)
        try:
            self.fd = os.open(given, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError(f"root {given!r} is not a directory that can be opened: {error.strerror}") from error
        self.fast = available() if fast is None else fast
        self.spellings = _spellings(given, self.fd)

    @classmethod
    def adopt(cls, fd: int, spellings: tuple[str, ...]) -> Root:
        """Take over a root that another process opened."""
        root = cls.__new__(cls)
        root.fd, root.fast, root.spellings = fd, False, spellings
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
        """Take an absolute path below the root for the relative one; refuse what is no path here at all."""
        check(path)
        if not path.startswith("/"):
            return path
        if (below := _below(path, self.spellings)) is None:
            raise UnsafePath(f"{shorten(path)} is absolute and not below the root; give a path relative to the root")
        return below

    def open(self, path: str, *, guard: Guard | None = None) -> io.BufferedReader:
        """Open a regular file for reading; refuse whatever leads outside or is anything else."""
        below = self.relative(path)
        if self.fast and guard is None:
            fd = beneath(self.fd, below, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            if fd is not None:  # whatever it refuses is judged, and worded, by the walk
                return reader(fd, path)
        with self.place(path, guard=guard) as place:
            return open_entry(place, path)

    @contextmanager
    def directory(self, path: str, *, guard: Guard | None = None) -> Iterator[ResolvedPath]:
        """Hold a directory open; its descriptor is closed at the end."""
        with self.place(path, guard=guard) as place:
            if place.name is not None or place.missing:
                kind = errno.ENOENT if place.missing or not _exists(place) else errno.ENOTDIR
                raise OSError(kind, os.strerror(kind), path)
            yield place

    @contextmanager
    def place(
        self, path: str, *, links: bool = True, final: bool = True, guard: Guard | None = None
    ) -> Iterator[ResolvedPath]:
        """Walk to a path and hold what it leads to; `guard` sees the plain names and may refuse.

        Without `links` no link is followed; without `final` a link at the very end is not.
        """
        walk = _Walk(self.fd, self.spellings, path, links, final)
        walk.todo = self.relative(path).split("/")[::-1]
        try:
            place = walk.run()
            if guard is not None:
                guard(place.names)
            yield place
        finally:
            walk.close()


def check(path: str) -> None:
    """Refuse what is no path at all; nothing is stripped, unquoted, expanded or normalised."""
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


def shorten(path: str) -> str:
    """Quote a path for a message, on one line and not for ever."""
    return ascii(path) if len(path) <= 200 else ascii(path[:200]) + "..."


def open_entry(place: ResolvedPath, path: str) -> io.BufferedReader:
    """Open the regular file at a place."""
    if place.missing:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if place.name is None:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return open_at(place.fd, place.name, path)


def open_at(parent: int, name: str, path: str) -> io.BufferedReader:
    """Open a regular file in a directory that is held, not through a link."""
    try:
        # Looked at first, so that opening wakes no writer of a FIFO and rewinds no tape.
        regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
        return reader(os.open(name, FILE, dir_fd=parent), path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(f"{shorten(path)} became a link while it was opened") from None
        raise OSError(error.errno, error.strerror, path) from None


def reader(fd: int, path: str) -> io.BufferedReader:
    """Read from a descriptor, if it is that of a regular file; it is closed in either case."""
    try:
        regular(os.fstat(fd), path)
        return io.BufferedReader(io.FileIO(fd, "rb", closefd=True), 64 * 1024)
    except BaseException:
        os.close(fd)
        raise


def regular(found: os.stat_result, path: str) -> None:
    """Refuse what is no regular file on a disk."""
    if stat.S_ISREG(found.st_mode):
        if found.st_dev == _proc_device():  # environ, mem and the like call themselves regular files
            raise UnsafePath(f"{shorten(path)} is a window into a process, not a file")
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise UnsafePath(f"{shorten(path)} is a {kind(found.st_mode)}, not a regular file")


def kind(mode: int) -> str:
    """Name the type of a file."""
    names = {
        stat.S_IFLNK: "link",
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
        stat.S_IFBLK: "block device",
        stat.S_IFCHR: "character device",
        stat.S_IFDIR: "directory",
        stat.S_IFREG: "file",
    }
    return names.get(stat.S_IFMT(mode), "special file")


@cache
def _proc_device() -> int:
    try:
        found = os.stat("/proc/self/stat")
    except OSError:
        return -1
    return found.st_dev


def _exists(place: ResolvedPath) -> bool:
    try:
        os.stat(place.name or ".", dir_fd=place.fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _spellings(given: str, fd: int) -> tuple[str, ...]:
    """List the absolute names of the root, for links that are absolute and yet stay inside."""
    found = os.fstat(fd)
    names = []
    for name in (os.path.realpath(given), os.path.abspath(given)):
        try:
            other = os.stat(name)
        except OSError:
            continue
        if (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino) and name not in names:
            names.append(name)
    return tuple(names)


def _below(path: str, spellings: tuple[str, ...]) -> str | None:
    for spelling in spellings:
        base = spelling.rstrip("/") + "/"
        if path == spelling or path.startswith(base):
            return path[len(base) :] or "."
    return None


def _open_directory(name: str, parent: int) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            raise
    # A folder that may be passed through but not listed.
    return os.open(name, DIRECTORY | os.O_PATH, dir_fd=parent)


class _Walk:
    """One walk: the descriptors held on the way, the names behind it and the parts before it."""

    def __init__(self, root: int, spellings: tuple[str, ...], path: str, links: bool, final: bool) -> None:
        self.root, self.spellings, self.path = root, spellings, path
        self.links_left, self.final = MAX_LINKS if links else 0, final
        self.fds: list[int] = []
        self.names: list[str] = []
        self.todo: list[str] = []

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    @property
    def here(self) -> int:
        return self.fds[-1] if self.fds else self.root

    def run(self) -> ResolvedPath:
        while self.todo:
            part = self.todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                self.back()
            elif (place := self.enter(part)) is not None:
                return place
        return ResolvedPath(self.here, tuple(self.names), None)

    def back(self) -> None:
        if not self.fds:
            raise UnsafePath(f"{shorten(self.path)} leads outside the root")
        os.close(self.fds.pop())
        self.names.pop()

    def enter(self, part: str) -> ResolvedPath | None:
        if len(self.fds) >= MAX_DEPTH:
            raise UnsafePath(f"{shorten(self.path)} is nested deeper than {MAX_DEPTH} directories")
        try:
            fd = _open_directory(part, self.here)
        except OSError as error:
            return self.other(part, error)
        self.fds.append(fd)
        self.names.append(part)
        return None

    def other(self, part: str, error: OSError) -> ResolvedPath | None:
        """Go on where a part is no directory: a link, a file, or nothing yet."""
        if error.errno == errno.ENOENT:
            return self.absent(part)
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            raise OSError(error.errno, error.strerror, self.path) from None
        try:
            target = os.readlink(part, dir_fd=self.here)
        except OSError:
            if self.todo:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path) from None
            return ResolvedPath(self.here, (*self.names, part), part)
        if not self.todo and not self.final:
            return ResolvedPath(self.here, (*self.names, part), part)
        self.expand(target)
        return None

    def expand(self, target: str) -> None:
        if self.links_left <= 0:
            raise UnsafePath(f"{shorten(self.path)} goes through a link, or through too many")
        self.links_left -= 1
        if target.startswith("/"):
            below = _below(target, self.spellings)
            if below is None:
                raise UnsafePath(f"{shorten(self.path)} is a link that leads outside the root")
            target = below
            self.close()
            self.names.clear()
        self.todo.extend(target.split("/")[::-1])

    def absent(self, part: str) -> ResolvedPath:
        """Say what is missing, name by name; nothing can be a link any more from here on."""
        rest = [part]
        while self.todo:
            part = self.todo.pop()
            if part == "..":
                # Not lexical: what does not exist has no parent to go back to.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
            if part not in ("", "."):
                rest.append(part)
        return ResolvedPath(self.here, (*self.names, *rest), rest[-1], tuple(rest[:-1]))


@cache
def available() -> bool:
    """Say whether the kernel has openat2: containers may forbid the call, and old kernels do not know it."""
    if not sys.platform.startswith("linux") or os.uname().machine not in ("x86_64", "aarch64"):
        return False
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        probe = beneath(fd, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)
    if probe is None:
        return False
    os.close(probe)
    return True


def beneath(root: int, path: str, flags: int) -> int | None:
    """Open a path that may not leave `root`; None where the kernel refused, for whatever reason."""
    call, struct = _libc()
    how = struct(flags, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
    fd = call(OPENAT2, root, os.fsencode(path), how)
    return fd if fd >= 0 else None


@cache
def _libc() -> tuple[Any, Any]:
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.sizeof(OpenHow)

    def call(number: int, root: int, path: bytes, how: OpenHow) -> int:
        found: int = libc.syscall(
            ctypes.c_long(number), ctypes.c_int(root), ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(size)
        )
        return found

    return call, OpenHow


def truncate(text: str, cap: int, marker: str = "\n[truncated]") -> str:
    """Cut text to at most `cap` bytes of UTF-8, marker included; never inside a character.

    The marker is left out where it does not fit.
    """
    if cap <= 0:
        return ""
    if len(text) * 4 <= cap:  # no character takes more than four bytes
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= cap:
        return text
    tail = marker.encode("utf-8", "replace")
    if len(tail) > cap:
        tail = b""
    return (encoded[: cap - len(tail)].decode("utf-8", "ignore")) + tail.decode("utf-8")

"""Write a file whole or not at all, and never through a link."""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from dataclasses import dataclass

from glue.errors import ToolError, UnsafePath
from glue.tools.fs.root import DIRECTORY, Guard, ResolvedPath, Root, kind, shorten

MAX_WRITE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mark:
    """What a file was when it was read."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> Mark:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def write(root: Root, path: str, content: bytes, *, guard: Guard | None = None, mark: Mark | None = None) -> bool:
    """Put a file in place in one step, and make its folders; say whether it is new.

    `mark` refuses to write over anything but the file that was read.
    """
    if len(content) > MAX_WRITE:
        raise ToolError(f"{len(content)} bytes are too many for one file; at most {MAX_WRITE} can be written")
    with root.place(path, final=False) as place:
        keep_git(place.names)
        if guard is not None:
            guard(place.names)
        if place.name is None or path.rpartition("/")[2] in ("", ".", ".."):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        parent, made = _parents(place, path)
        try:
            old = _target(parent, place.name, path, mark)
            _replace(root, parent, place, content, old)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            for fd in made:
                os.close(fd)
    return old is None


def keep_git(names: tuple[str, ...]) -> None:
    """Refuse to write into a git directory, however its name is spelt."""
    for name in names:
        if folds_to_git(name):
            raise UnsafePath(f"{shorten('/'.join(names))} lies in git's own directory, which is not written to")


def folds_to_git(name: str) -> bool:
    """Say whether some file system takes a name for `.git`."""
    plain = "".join(char for char in name if not _ignorable(char))
    plain = unicodedata.normalize("NFKC", plain).casefold()
    parts = (part.split(":")[0].rstrip(". ") for part in plain.split("\\"))
    return any(part == ".git" or (part.startswith("git~") and part[4:].isdigit()) for part in parts)


def _ignorable(char: str) -> bool:
    # HFS+ and others drop these from names: joiners, direction marks, variation selectors and the like.
    return unicodedata.category(char) in ("Cf", "Cc", "Cs") or 0xFE00 <= ord(char) <= 0xFE0F


def _parents(place: ResolvedPath, path: str) -> tuple[int, list[int]]:
    """Make the folders that are missing, one descriptor at a time."""
    made: list[int] = []
    parent = place.fd
    try:
        for name in place.missing:
            try:
                os.mkdir(name, dir_fd=parent)
            except FileExistsError:
                pass  # someone was quicker; what it is, the next line finds out
            parent = os.open(name, DIRECTORY, dir_fd=parent)
            made.append(parent)
    except OSError as error:
        for fd in made:
            os.close(fd)
        raise OSError(error.errno, error.strerror, path) from None
    return parent, made


def _target(parent: int, name: str, path: str, mark: Mark | None) -> os.stat_result | None:
    try:
        old = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if mark is not None:
            raise ToolError(f"{shorten(path)} was removed meanwhile; nothing was written") from None
        return None
    if not stat.S_ISREG(old.st_mode):
        raise UnsafePath(f"{shorten(path)} is a {kind(old.st_mode)}, not a regular file; nothing was written")
    if mark is not None and Mark.of(old) != mark:
        raise ToolError(f"{shorten(path)} changed meanwhile; nothing was written: read it again")
    if not old.st_mode & 0o222:
        # A rename asks only the folder for leave; the file's own word counts too.
        raise PermissionError(errno.EACCES, "the file is read-only", path)
    return old


def _replace(root: Root, parent: int, place: ResolvedPath, content: bytes, old: os.stat_result | None) -> None:
    assert place.name is not None
    temporary = f".{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A new file gets what the umask leaves; nobody but us may look until it is whole.
    fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=parent)
    try:
        try:
            mode = stat.S_IMODE(os.fstat(fd).st_mode if old is None else old.st_mode) & 0o777
            os.fchmod(fd, 0o600)
            _pour(fd, content)
            _adopt(fd, old)
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        _still_there(root, parent, place)
        os.rename(temporary, place.name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        try:
            os.unlink(temporary, dir_fd=parent)
        except OSError:
            pass
        raise
    try:
        os.fsync(parent)
    except OSError:
        pass  # some file systems do not know how; the content itself is on disk


def _pour(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _adopt(fd: int, old: os.stat_result | None) -> None:
    """Give the file back to its owner, where we may."""
    if old is None:
        return
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(fd, old.st_uid, old.st_gid)
        except OSError:
            pass


def _still_there(root: Root, parent: int, place: ResolvedPath) -> None:
    """Refuse where the folder was moved away since it was opened: it may lie outside by now."""
    held = os.fstat(parent)
    folder = "/".join(place.names[:-1]) or "."
    try:
        with root.place(folder, links=False) as again:
            now = os.fstat(again.fd) if again.name is None else None
    except (OSError, UnsafePath):
        now = None
    if now is None or (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino):
        raise UnsafePath(f"the folder of {shorten(place.path)} was moved while it was written to; nothing was written")

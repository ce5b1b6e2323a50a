"""Helpers for the files of stores: sync to disk, lock, read, and explain failures to open."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

from glue.errors import StoreError
from glue.stores.store import session_busy

if sys.platform != "win32":
    import fcntl


def sync_data(fd: int) -> None:
    """Wait until all data that was written to the open file `fd` is on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync on macOS stops at the drive's own cache
    else:
        os.fdatasync(fd)


def sync_folder(folder: Path) -> None:
    """Force the entries of a folder (its file names) to the disk, so that they survive a crash."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_locked(path: Path, id: str, sync: bool) -> int:
    """Open or create the file of a session for appending, lock it, and return its descriptor.

    The folder of the file is created if it does not exist. Raise SessionBusy if another writer
    has locked the file.
    """
    while True:
        is_new = not path.exists()
        if is_new and not path.parent.is_dir():
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
            sync_folder(path.parent.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        try:
            lock(fd, id)
            if is_new and sync:
                sync_folder(path.parent)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the file was deleted after it was opened and before it was locked: try again


def lock(fd: int, id: str) -> None:
    """Lock the open file `fd` until it is closed. Raise SessionBusy if it is locked already.

    `id` is the session that the error names.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise session_busy(id) from error


def pread(fd: int, start: int, stop: int) -> bytes:
    """Return the bytes of the open file `fd` from `start` to `stop`, or to the end of the file."""
    blocks = []
    while block := os.pread(fd, stop - start, start):
        blocks.append(block)
        start += len(block)
    return b"".join(blocks)


def read_only_reason(id: str, path: os.PathLike[str], error: OSError) -> str:
    """Return a message that a session is read-only, or raise StoreError for other errors.

    `error` is the error of opening the file for writing. The session is read-only if the cause
    is a missing permission or a read-only filesystem.
    """
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        raise cannot_open(id, path, error) from error
    return f"session {id!r} is read-only: {error.strerror}: {path}"


def cannot_open(id: str, path: os.PathLike[str], error: OSError) -> StoreError:
    """Return the error for a session whose file cannot be opened."""
    return StoreError(f"session {id!r} cannot be opened: {error.strerror}: {path}")

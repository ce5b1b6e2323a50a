"""`SessionLocks`: one lock file with a lock for each session, for SQLite stores."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from glue.errors import ConfigError
from glue.stores.store import session_busy

if sys.platform != "win32":
    import fcntl

_IN_USE = 0  # the byte on which every user of the lock file has a shared lock
_WRITER = 1  # the byte that the current writer of the database locks


class SessionLocks:
    """A lock file with one byte for each session. The writer of a session locks its byte.

    The operating system releases the locks of a killed process.
    """

    def __init__(self, path: Path) -> None:
        if sys.platform == "win32":
            raise ConfigError("SQLiteStore needs POSIX file locks; use MemoryStore on Windows")
        self.path = path
        self._fd = -1

    def open(self) -> None:
        """Open or create the lock file, and mark it as in use so that no other store deletes it."""
        while self._fd < 0:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                _lock(fd, "shared", _IN_USE, wait=True)
                if os.path.samestat(os.fstat(fd), os.stat(self.path)):
                    self._fd = fd
                    return
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # its last user deleted the file before it was locked here: try again

    def take(self, id: str) -> None:
        """Lock the session `id`. Raise SessionBusy if it is locked already."""
        try:
            _lock(self._fd, "exclusive", _byte_of(id))
        except BlockingIOError as error:
            raise session_busy(id) from error

    def release(self, id: str) -> None:
        """Unlock the session `id`."""
        _lock(self._fd, "none", _byte_of(id))

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Wait until no other writer has locked the database, and lock it during a `with` block.

        Waiting for this lock is faster and fairer than SQLite's own polling.
        """
        _lock(self._fd, "exclusive", _WRITER, wait=True)
        try:
            yield
        finally:
            _lock(self._fd, "none", _WRITER)

    def close(self) -> None:
        """Close the lock file, and delete the file if no other `SessionLocks` has it open."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            _lock(self._fd, "exclusive", _IN_USE)
            self.path.unlink()
        os.close(self._fd)
        self._fd = -1


def hold(path: Path, id: str) -> SessionLocks:
    """Lock the session `id` of a database file; call `close` of the returned object to unlock it.

    Raise SessionBusy if the session is locked already.
    """
    locks = SessionLocks(lock_path(path))
    locks.open()
    try:
        locks.take(id)
    except BaseException:
        locks.close()
        raise
    return locks


def lock_path(path: Path) -> Path:
    """Return the path of the lock file for the database file `path`."""
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + ".lock")


def _byte_of(id: str) -> int:
    return 2 + int.from_bytes(hashlib.sha256(id.encode()).digest()[:7], "big")


def _lock(fd: int, kind: str, start: int, *, wait: bool = False) -> None:
    kinds = {"exclusive": fcntl.F_WRLCK, "shared": fcntl.F_RDLCK, "none": fcntl.F_UNLCK}
    command = getattr(fcntl, "F_OFD_SETLKW" if wait else "F_OFD_SETLK", None)
    if command is not None:
        # This lock belongs to the open file, not to the process. So two stores in one process
        # exclude each other too.
        fcntl.fcntl(fd, command, struct.pack("hhqqi", kinds[kind], os.SEEK_SET, start, 1, 0))
    else:
        words = {"exclusive": fcntl.LOCK_EX, "shared": fcntl.LOCK_SH, "none": fcntl.LOCK_UN}
        fcntl.lockf(fd, words[kind] | (0 if wait or kind == "none" else fcntl.LOCK_NB), 1, start)

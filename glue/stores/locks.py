"""`SessionLocks`: locks for any number of sessions in one lock file, as SQLite stores use it."""

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

_IN_USE = 0  # the byte that every user of the lock file locks, shared
_WRITER = 1  # the byte that the current writer of the database locks


class SessionLocks:
    """Locks on the bytes of one file: one byte for each session.

    The system releases the locks of a killed process.
    """

    def __init__(self, path: Path) -> None:
        if sys.platform == "win32":
            raise ConfigError("SQLiteStore needs POSIX file locks; use MemoryStore on Windows")
        self.path = path
        self._fd = -1

    def open(self) -> None:
        """Open the lock file, and mark it as in use, so that other users do not delete it."""
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
            os.close(fd)  # the last user deleted the file before we locked it: try again

    def take(self, id: str) -> None:
        """Lock a session. Raise SessionBusy if another process has locked it."""
        try:
            _lock(self._fd, "exclusive", _byte_of(id))
        except BlockingIOError as error:
            raise session_busy(id) from error

    def release(self, id: str) -> None:
        """Unlock a session."""
        _lock(self._fd, "none", _byte_of(id))

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Wait for the writer's lock. This is faster and fairer than SQLite's own polling."""
        _lock(self._fd, "exclusive", _WRITER, wait=True)
        try:
            yield
        finally:
            _lock(self._fd, "none", _WRITER)

    def close(self) -> None:
        """Close the lock file, and delete it if it has no other users."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            _lock(self._fd, "exclusive", _IN_USE)
            self.path.unlink()
        os.close(self._fd)
        self._fd = -1


def hold(path: Path, id: str) -> SessionLocks:
    """Lock one session of a database file, and return the locks; closing them unlocks it."""
    locks = SessionLocks(lock_path(path))
    locks.open()
    try:
        locks.take(id)
    except BaseException:
        locks.close()
        raise
    return locks


def lock_path(path: Path) -> Path:
    """Return the path of the lock file of a database file."""
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + ".lock")


def _byte_of(id: str) -> int:
    return 2 + int.from_bytes(hashlib.sha256(id.encode()).digest()[:7], "big")


def _lock(fd: int, kind: str, start: int, *, wait: bool = False) -> None:
    kinds = {"exclusive": fcntl.F_WRLCK, "shared": fcntl.F_RDLCK, "none": fcntl.F_UNLCK}
    command = getattr(fcntl, "F_OFD_SETLKW" if wait else "F_OFD_SETLK", None)
    if command is not None:
        # A lock of the open file, not of the process: two stores in one process also exclude
        # each other.
        fcntl.fcntl(fd, command, struct.pack("hhqqi", kinds[kind], os.SEEK_SET, start, 1, 0))
    else:
        words = {"exclusive": fcntl.LOCK_EX, "shared": fcntl.LOCK_SH, "none": fcntl.LOCK_UN}
        fcntl.lockf(fd, words[kind] | (0 if wait or kind == "none" else fcntl.LOCK_NB), 1, start)

"""One writer a session, where sessions have no file of their own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from pathlib import Path

from glue.errors import ConfigError, SessionBusy


def _lock_path(path: Path, id: str) -> Path:
    return path.with_name(f"{path.name}-{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:16]}.lock")


def hold(path: Path, id: str) -> int:
    """Take the session for this writer; a killed process gives it up by itself."""
    if sys.platform == "win32":
        raise ConfigError("SQLiteStore needs POSIX file locks; use MemoryStore on Windows")
    import fcntl

    lock = _lock_path(path, id)
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.exists() and os.path.samestat(os.fstat(fd), os.stat(lock)):
                return fd
        except BlockingIOError as error:
            os.close(fd)
            raise SessionBusy(f"session {id!r} is in use, here or by another process; one writer at a time") from error
        os.close(fd)  # its holder removed the file between the opening and the locking: once more


def release(path: Path, id: str, fd: int) -> None:
    with contextlib.suppress(OSError):
        _lock_path(path, id).unlink()
    os.close(fd)

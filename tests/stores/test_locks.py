"""Locks of sessions in one lock file."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from fakes.sessions import open_files

from glue.errors import SessionBusy
from glue.stores.locks import SessionLocks, hold, lock_path

DEMO = 11_988_324_985_424_746  # the byte that the session "demo" has in a lock file


def test_a_session_can_be_locked_once(tmp_path: Path) -> None:
    first, second = (SessionLocks(tmp_path / "x.lock") for _ in range(2))
    first.open()
    second.open()
    first.take("demo")

    second.take("other")
    with pytest.raises(SessionBusy, match="session 'demo' is in use"):
        second.take("demo")

    first.release("demo")
    second.take("demo")
    first.close()
    second.close()


def test_the_last_user_deletes_the_lock_file(tmp_path: Path) -> None:
    first, second = (SessionLocks(tmp_path / "x.lock") for _ in range(2))
    first.open()
    second.open()

    first.close()
    assert (tmp_path / "x.lock").exists()
    second.close()

    assert not (tmp_path / "x.lock").exists()
    second.close()  # without effect


def test_a_lock_file_that_was_replaced_meanwhile_is_opened_again_and_the_old_one_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.lock"
    before, deleted = open_files(), list[Path]()

    def replaced(fd: int, *arguments: Any) -> Any:
        if not deleted:  # the last user deletes the file just before it is locked here
            path.unlink()
            deleted.append(path)
        return real(fd, *arguments)

    real = fcntl.fcntl
    monkeypatch.setattr(fcntl, "fcntl", replaced)
    locks = SessionLocks(path)
    locks.open()

    assert path.exists()
    assert deleted
    assert open_files() == before + 1
    locks.close()
    assert open_files() == before


def test_a_lock_file_that_cannot_be_locked_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = open_files()
    monkeypatch.setattr(fcntl, "fcntl", refuse)

    with pytest.raises(OSError, match="No locks available"):
        SessionLocks(tmp_path / "x.lock").open()

    assert open_files() == before


def test_hold_locks_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    locks = hold(path, "map")

    assert stat.S_IMODE(lock_path(path).stat().st_mode) == 0o600
    with pytest.raises(SessionBusy):
        hold(path, "map")

    locks.close()
    hold(path, "map").close()
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_has_the_lock_file_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")

    assert lock_path(tmp_path / "link.db") == lock_path(tmp_path / "x.db") == tmp_path / "x.db.lock"


def is_locked(path: Path, byte: int) -> bool:
    """Return whether another user of a lock file has locked a byte of the file."""
    fd = os.open(path, os.O_RDWR)
    try:
        whole = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_every_version_of_glue_locks_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    locks = SessionLocks(path)
    locks.open()

    locks.take("demo")
    with locks.writing():
        locked = [byte for byte in (0, 1, 2, DEMO - 1, DEMO, DEMO + 1) if is_locked(path, byte)]
    assert locked == [0, 1, DEMO]

    locks.release("demo")
    assert [byte for byte in (0, 1, DEMO) if is_locked(path, byte)] == [0]
    locks.close()


@pytest.mark.parametrize("byte", [0, 1])
def test_a_lock_of_the_whole_file_or_of_the_writer_is_awaited(
    byte: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, events, waits = tmp_path / "x.lock", list[str](), threading.Event()

    def observed(fd: int, command: int, lock: bytes) -> bytes:
        if threading.current_thread() is thread and command == fcntl.F_OFD_SETLKW:
            try:
                return real(fd, fcntl.F_OFD_SETLK, lock)
            except BlockingIOError:
                events.append("waits")
                waits.set()
        return real(fd, command, lock)

    def work() -> None:
        try:
            other.open()
            with other.writing():
                events.append("writes")
        finally:
            waits.set()

    real, other = fcntl.fcntl, SessionLocks(path)
    thread = threading.Thread(target=work)
    monkeypatch.setattr(fcntl, "fcntl", observed)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    real(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))

    thread.start()
    assert waits.wait(60)
    events.append("is free")
    os.close(fd)
    thread.join(60)

    assert events == ["waits", "is free", "writes"]
    other.close()


def test_locks_that_are_open_are_not_opened_again(tmp_path: Path) -> None:
    stdin = os.dup(0)
    os.close(0)
    try:
        locks = SessionLocks(tmp_path / "x.lock")
        locks.open()  # as the descriptor 0
        before = open_files()
        locks.open()

        assert open_files() == before
        locks.close()
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)


def test_without_locks_of_open_files_the_locks_of_the_process_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[int, int, int]] = []

    def record(fd: int, operation: int, length: int, start: int) -> None:
        used.append((operation, length, start))
        real(fd, operation, length, start)

    real = fcntl.lockf
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    monkeypatch.delattr(fcntl, "F_OFD_SETLKW")
    monkeypatch.setattr(fcntl, "lockf", record)
    locks = hold(tmp_path / "x.db", "demo")
    with locks.writing():
        pass
    locks.release("demo")
    locks.close()

    assert used == [
        (fcntl.LOCK_SH, 1, 0),
        (fcntl.LOCK_EX | fcntl.LOCK_NB, 1, DEMO),
        (fcntl.LOCK_EX, 1, 1),
        (fcntl.LOCK_UN, 1, 1),
        (fcntl.LOCK_UN, 1, DEMO),
        (fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0),
    ]

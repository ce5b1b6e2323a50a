"""Locks of sessions in one lock file."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from fakes.sessions import open_files

from glue.errors import SessionBusy
from glue.stores.locks import SessionLocks, hold, lock_path


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

    with pytest.raises(SessionBusy):
        hold(path, "map")

    locks.close()
    hold(path, "map").close()
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_has_the_lock_file_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")

    assert lock_path(tmp_path / "link.db") == lock_path(tmp_path / "x.db") == tmp_path / "x.db.lock"

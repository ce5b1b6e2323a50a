"""`SQLiteStore`: one file for all sessions, with shared commits."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sqlite3
import sys
import threading
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import anyio.to_thread
import pytest
from fakes.sessions import (
    fill,
    open_files,
    talk,
    write_texts,
)
from fakes.zygote import Zygote

from glue import user
from glue.errors import NewerSchema, SessionBusy, StoreError
from glue.stores import SQLiteStore, copy
from glue.stores import sqlite as module
from glue.stores.locks import SessionLocks, _lock, lock_path
from glue.stores.sqlite import (
    Database,
    ExclusiveStore,
    _databases,
    connect,
    store_errors,
    using,
)


async def test_a_database_of_a_newer_version_can_be_read_but_not_changed(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    await fill(store, "demo", talk())
    with store.connect() as connection:
        connection.execute("PRAGMA user_version = 99")

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == [each.text for each in talk()]
        with pytest.raises(NewerSchema, match="schema 99"):
            await log.append(user("x"))
    assert len(await store.load("demo")) == 4
    with pytest.raises(NewerSchema, match="tables of version 99"):
        await fill(store, "new", talk())
    with pytest.raises(NewerSchema, match="tables of version 99"):
        await store.delete("demo")
    with pytest.raises(StoreError, match="attempt to write a readonly database"):
        await store.vacuum()


async def test_the_error_of_a_failed_commit_is_repeated_until_the_session_is_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "x.db")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with store.log("demo") as log:
        await log.append(user("one"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(StoreError, match=r"x\.db could not be written: Input/output error"):
                await log.append(user("two"))
        with pytest.raises(
            StoreError, match=r"Input/output error; an earlier write failed: open the session again"
        ):
            await log.append(user("three"))

    async with log:
        await log.append(user("four"))
    assert await store.load("demo") == log.messages
    assert "three" not in [message.text for message in log.messages]


async def test_other_processes_can_write_while_one_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    real, waits = os.fdatasync, 0

    def wait(fd: int) -> None:
        nonlocal waits
        locks = SessionLocks(lock_path(store.path))
        locks.open()
        locks.take("demo-2")
        _lock(locks._fd, "exclusive", 1)  # raises BlockingIOError if a writer has the lock
        locks.close()
        waits += 1
        real(fd)

    async with store.log("demo") as log:
        monkeypatch.setattr(os, "fdatasync", wait)
        await log.append(user("one"))

    assert waits == 1


class Unlogged(sqlite3.Connection):
    """SQLite without a write-ahead log, as on a filesystem that cannot share memory."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace("journal_mode = WAL", "journal_mode"), *values)


async def test_without_a_write_ahead_log_sqlite_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Unlogged))
    store = SQLiteStore(tmp_path / "x.db")

    async with store.log("demo") as log:
        await log.append(user("one"))
        with using(store.path, True) as database:
            assert database.open().execute("PRAGMA synchronous").fetchone() == (2,)  # FULL

    assert [message.text for message in await store.load("demo")] == ["one"]
    assert os.listdir(tmp_path) == ["x.db"]


async def test_sessions_of_a_database_share_its_open_files(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(store.log("first"))
        before = open_files()
        for number in range(50):
            await stack.enter_async_context(SQLiteStore(tmp_path / "x.db").log(f"s{number}"))

        assert open_files() == before

    assert not _databases
    assert os.listdir(tmp_path) == ["x.db"]


@pytest.mark.parametrize("count", [2, 20])
async def test_sessions_that_write_at_the_same_time_share_a_commit(
    count: int, tmp_path: Path
) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    statements: list[str] = []
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(store.log(f"s{number}")) for number in range(count)]
        with using(store.path, True) as database:
            database.open().set_trace_callback(statements.append)
            async with anyio.create_task_group() as group:
                with database._commit_lock:
                    for log in logs:
                        group.start_soon(log.append, user(log.id))
                    while len(database._waiting) < len(logs):
                        await anyio.sleep(0)

    assert statements.count("COMMIT") == 1
    for log in logs:
        assert [message.text for message in await store.load(log.id)] == [log.id]


async def test_a_failed_write_does_not_affect_others_of_the_same_commit(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    failed: list[str] = []

    def delete_and_fail(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM sessions")
        connection.execute("SELECT nothing")

    async def fail() -> None:
        try:
            await anyio.to_thread.run_sync(database.run, delete_and_fail)
        except StoreError as error:
            failed.append(str(error))

    async with store.log("good") as good, store.log("other") as other:
        with using(store.path, True) as database:
            async with anyio.create_task_group() as group:
                with database._commit_lock:
                    group.start_soon(good.append, user("x"))
                    group.start_soon(fail)
                    group.start_soon(other.append, user("x"))
                    while len(database._waiting) < 3:
                        await anyio.sleep(0)

    assert len(failed) == 1
    assert [len(await store.load(name)) for name in ("good", "other")] == [1, 1]


WORKER = """
import sys
import anyio
from glue import user
from glue.stores import SQLiteStore

async def main(path, name):
    for number in range(10):
        async with SQLiteStore(path).log(f"{name}-{number % 2}") as log:
            await log.append(user(str(number)))

anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_several_processes_can_write_at_the_same_time(tmp_path: Path, zygote: Zygote) -> None:
    path = str(tmp_path / "x.db")
    commands = [[sys.executable, "-c", WORKER, path, str(number)] for number in range(6)]
    running = [zygote.start(command, tmp_path) for command in commands]

    assert [process.wait(120) for process in running] == [0] * 6
    for process in running:
        process.close()
    sessions = await SQLiteStore(path).list()
    assert len(sessions) == 12
    assert [len(await SQLiteStore(path).load(info.id)) for info in sessions] == [5] * 12


async def test_a_symbolic_link_to_a_database_shares_its_locks(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")
    (tmp_path / "folder").symlink_to(tmp_path)

    async with SQLiteStore(tmp_path / "x.db").log("demo"):
        for path in (tmp_path / "link.db", tmp_path / "folder" / "x.db"):
            with pytest.raises(SessionBusy):
                async with SQLiteStore(path).log("demo"):
                    pass


@pytest.mark.parametrize("sync", [True, False])
async def test_a_closed_session_can_be_reopened_while_another_is_open(
    tmp_path: Path, sync: bool
) -> None:
    path = tmp_path / "x.db"
    store = SQLiteStore(path)

    async with store.log("open all the time"):
        async with store.log("demo") as log:
            await log.append(user("one"))
        # A store with another `sync` has its own locks, as a store of another process has.
        async with SQLiteStore(path, sync=sync).log("demo") as log:
            await log.append(user("two"))

    assert [message.text for message in await store.load("demo")] == ["one", "two"]


async def test_a_session_of_another_process_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "x.db"

    async with SQLiteStore(path).log("demo"):
        # A store with another `sync` has its own locks, as a store of another process has.
        with pytest.raises(SessionBusy, match="session 'demo' is in use"):
            async with SQLiteStore(path, sync=False).log("demo"):
                pass

    async with SQLiteStore(path, sync=False).log("demo") as log:
        assert log.messages == ()


async def test_a_session_can_be_opened_while_another_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    monkeypatch.setattr(module, "WAIT", 0.1)
    await write_texts(SQLiteStore(path), "demo", "apples")
    other = SessionLocks(lock_path(path))
    other.open()

    async with AsyncExitStack() as stack:
        with (
            other.writing(),
            contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writing,
        ):
            writing.execute("BEGIN IMMEDIATE")
            log = await stack.enter_async_context(SQLiteStore(path).log("demo"))
            assert [message.text for message in log.messages] == ["apples"]
        other.close()


async def test_an_empty_database_file_is_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    store = SQLiteStore(tmp_path / "x.db")

    assert await store.list() == ()
    assert await store.search("apples") == ()
    await write_texts(store, "demo", "apples")
    assert len(await store.search("apples")) == 1


async def test_reading_does_not_create_the_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")

    assert await store.list() == ()
    with pytest.raises(StoreError, match="no session 'demo'; there are: none"):
        await store.load("demo")
    with pytest.raises(StoreError, match="no session 'demo'"):
        await copy(store, "demo", store, "x")
    assert os.listdir(tmp_path) == []


async def test_a_file_with_two_names_is_refused_and_not_changed(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    await fill(store, "demo", talk())
    os.link(tmp_path / "a.db", tmp_path / "b.db")
    before = (tmp_path / "a.db").read_bytes()

    for name in ("a.db", "b.db"):
        linked = SQLiteStore(tmp_path / name)
        with pytest.raises(StoreError, match=r"has several names \(hard links\)"):
            await linked.list()
        with pytest.raises(StoreError, match="copy the file and use the copy"):
            await fill(linked, "new", talk())

    assert (tmp_path / "a.db").read_bytes() == before
    (tmp_path / "b.db").unlink()
    assert len(await SQLiteStore(tmp_path / "a.db").load("demo")) == 4


async def test_older_tables_are_upgraded_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(SQLiteStore(tmp_path / "a.db"), "demo", talk())
    second = tmp_path / "sqlite-2.sql"
    monkeypatch.setattr("glue.stores.sqlite.MIGRATIONS", (*module.MIGRATIONS, second))
    second.write_text("ALTER TABLE sessions ADD COLUMN pinned INTEGER;\nSELECT nonsense();\n")
    with pytest.raises(StoreError, match="no such function: nonsense"):
        await fill(SQLiteStore(tmp_path / "a.db"), "new", talk())

    second.write_text("ALTER TABLE sessions ADD COLUMN pinned INTEGER;\n")
    await fill(SQLiteStore(tmp_path / "a.db"), "new", talk())

    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("SELECT pinned FROM sessions").fetchall() == [(None,)] * 2
    assert len(await SQLiteStore(tmp_path / "a.db").load("demo")) == 4


async def test_vacuum_frees_the_space_of_deleted_sessions_while_the_file_is_in_use(
    tmp_path: Path,
) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    statements: list[str] = []
    await fill(store, "long", tuple(user("word " * 20_000) for _ in range(10)))
    await fill(store, "kept", talk())
    before = (tmp_path / "a.db").stat().st_size

    await store.delete("long")
    with using(store.path, True) as database:
        database.open().set_trace_callback(statements.append)
        await store.vacuum()
        assert (tmp_path / "a.db").stat().st_size < before / 4
        assert (tmp_path / "a.db-wal").stat().st_size == 0
        database.open().set_trace_callback(None)

    assert "INSERT INTO words(words) VALUES ('optimize')" in statements
    assert len(await store.load("kept")) == 4


def test_an_abandoned_store_may_be_collected_while_a_database_is_registered(
    tmp_path: Path,
) -> None:
    abandoned = SQLiteStore(tmp_path / "abandoned.db").kept_open()
    abandoned.__enter__()
    owner: dict[str, object] = {"abandoned": abandoned}
    owner["itself"] = owner  # so that only the garbage collector can delete it
    del owner, abandoned

    def collect(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is Database.__init__.__code__:
            gc.collect()

    def open_another() -> None:
        sys.setprofile(collect)
        with using(tmp_path / "another.db", True):
            pass

    thread = threading.Thread(target=open_another, daemon=True)
    thread.start()
    thread.join(20)

    assert not thread.is_alive()
    assert not [key for key in _databases if key[0].startswith(str(tmp_path))]


def test_a_closed_database_can_be_closed_and_opened_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db", sync=False)
    database.run(lambda connection: connection.execute("PRAGMA user_version"))

    database.close()
    database.close()  # without effect
    count = database.read(
        lambda connection: connection.execute("SELECT count(*) FROM sessions").fetchone()[0]
    )
    database.close()

    assert count == 0
    assert os.listdir(tmp_path) == ["x.db"]


def test_only_changes_are_awaited_on_the_disk_and_only_if_sync_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fdatasync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}"))
    )

    def add(values: tuple[str], connection: sqlite3.Connection) -> None:
        insert = "INSERT INTO sessions(id, header, updated) VALUES (?, '{}', 0)"
        connection.execute(insert, values)

    for sync in (True, False):
        with using(tmp_path / "x.db", sync) as database:
            assert database.open().execute("PRAGMA synchronous").fetchone() == (1,)  # NORMAL
            before, synced[:] = open_files(), []
            database.run(lambda connection: connection.execute("SELECT 1").fetchone())
            assert synced == []
            for name in (f"a-{sync}", f"b-{sync}"):
                database.run(partial(add, (name,)))
            assert synced == [f"{tmp_path}/x.db-wal"] * 2 * sync
            assert open_files() == before


def test_a_failed_change_is_undone_and_the_next_one_is_stored(tmp_path: Path) -> None:
    insert = "INSERT INTO sessions(id, header, updated) VALUES (?, '{}', 0)"

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute(insert, ("failed",))
        connection.execute("SELECT nothing")

    with using(tmp_path / "x.db", False) as database:
        with pytest.raises(StoreError, match="syntax error"):
            database.run(fail)
        database.run(lambda connection: connection.execute(insert, ("good",)))

        found = database.read(
            lambda connection: connection.execute("SELECT id FROM sessions").fetchall()
        )
    assert found == [("good",)]


def test_a_database_file_is_created_under_the_lock_of_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, held = tmp_path / "x.db", list[bool]()

    def connect(*arguments: Any, **named: Any) -> sqlite3.Connection:
        locks = SessionLocks(lock_path(path))
        locks.open()
        try:
            _lock(locks._fd, "exclusive", 1)
            held.append(False)
        except BlockingIOError:
            held.append(True)
        locks.close()
        made: sqlite3.Connection = real(*arguments, **named)
        return made

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)

    for _ in range(2):
        with using(path, False) as database:
            database.open()
    path.write_bytes(b"")
    with using(path, False) as database:
        database.open()

    assert held == [True, False, True]


def test_a_database_that_cannot_be_upgraded_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "broken.sql"
    script.write_text("SELECT nonsense();\n")
    monkeypatch.setattr("glue.stores.sqlite.MIGRATIONS", (script,))
    before = open_files()

    with pytest.raises(sqlite3.OperationalError, match="nonsense") as caught:
        connect(tmp_path / "x.db")

    assert caught.tb is not None  # it keeps the connection alive
    assert open_files() == before


async def test_a_session_entered_again_reads_only_changes_of_other_writers(tmp_path: Path) -> None:
    statements: list[str] = []
    store, own = SQLiteStore(tmp_path / "x.db"), ExclusiveStore(tmp_path / "own.db")
    with (
        using(store.path, True) as database,
        contextlib.closing(own.database) as own_database,
    ):
        for each, used in ((store, database), (own, own_database)):
            log, other = each.log("demo"), each.log("demo")
            async with log:
                await log.append(user("one"))
                await log.append(user("two"))
            used.open().set_trace_callback(statements.append)

            async with log:
                assert not [each for each in statements if "FROM messages" in each]
                assert [message.text for message in log.messages] == ["one", "two"]
                await log.append(user("three"))
            async with other:
                assert [each for each in statements if "FROM messages" in each]
                await other.append(user("four"))
            async with log:
                assert [each.text for each in log.messages] == ["one", "two", "three", "four"]
            used.open().set_trace_callback(None)
            assert not [each for each in statements if "INSERT INTO sessions" in each]
            statements.clear()


async def test_an_exclusive_store_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", refuse)
    own = ExclusiveStore(tmp_path / "own.db")
    with contextlib.closing(own.database):
        async with own.log("demo") as log:
            assert not log.blocks
            await log.append(user("one"))
        await own.delete("demo")

        assert await own.list() == ()


def test_python_without_full_text_search_is_named() -> None:
    with (
        pytest.raises(StoreError, match="SQLite was built without FTS5"),
        store_errors(Path("x.db")),
    ):
        raise sqlite3.OperationalError("no such module: fts5")
    with (
        pytest.raises(StoreError, match=r"^x\.db: no such table: x$"),
        store_errors(Path("x.db")),
    ):
        raise sqlite3.OperationalError("no such table: x")

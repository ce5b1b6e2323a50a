"""Stores at the edge: cancelled writes, many sessions, links, read-only folders, what newer versions wrote."""

from __future__ import annotations

import asyncio  # noqa: TID251 - its own cancel is what is tested
import errno
import io
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from fakes.sessions import POSTGRES, make_store

from glue import Message, ToolMessage, user
from glue.errors import SessionBusy, StoreError
from glue.stores import FileStore, MemoryStore, SQLiteStore, Store, copy
from glue.stores.sqlite import SessionLocks, _databases, _lock, lock_path, using
from glue.stores.store import Fold, Log, Record


@pytest.fixture(params=["memory", "file", "sqlite", POSTGRES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, tmp_path, request)


@pytest.fixture(params=["file", "sqlite", POSTGRES])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, tmp_path, request)


async def fill(store: Store, id: str, *texts: str) -> tuple[Message, ...]:
    async with store.log(id) as log:
        await log.extend(user(text) for text in texts)
        return log.messages


# Cancelled writes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_write_is_whole_or_was_never_begun(kept: Store) -> None:
    for steps in range(40):
        log = kept.log(f"s{steps}")

        async def write(log: Any = log) -> None:
            async with log:
                await log.append(user("one"))
                await log.extend([user("two"), user("three")])

        task = asyncio.ensure_future(write())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async with log:  # it was given up, and can be gone on with
            assert [message.text for message in log.messages] in ([], ["one"], ["one", "two", "three"])
            await log.append(user("next"))
        assert await kept.load(log.id) == log.messages


async def test_a_cancelled_scope_leaves_list_and_store_alike(kept: Store) -> None:
    log = kept.log("demo")
    async with log:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.append(user("one"))
        assert await kept.load("demo") == log.messages
        await log.append(user("two"))

    assert await kept.load("demo") == log.messages


class Watching:
    """A writer that waits for the disk, and notes who calls it."""

    blocks = True

    def __init__(self) -> None:
        self.threads: list[int] = []

    def open(self, fold: Fold) -> None:
        self.threads.append(threading.get_ident())

    def write(self, records: Sequence[Record]) -> None:
        self.threads.append(threading.get_ident())

    def close(self) -> None:
        self.threads.append(threading.get_ident())


async def test_the_event_loop_never_waits_for_the_disk() -> None:
    writer = Watching()

    async with Log("demo", writer) as log:
        await log.append(user("one"))

    assert len(writer.threads) == 3
    assert threading.get_ident() not in writer.threads


async def test_a_store_that_failed_says_why_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)
    real = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with store.log("demo") as log:
        await log.append(user("one"))
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            await log.append(user("two"))
        monkeypatch.setattr(os, "write", real)
        with pytest.raises(StoreError, match=r"No space left.*an earlier write failed"):
            await log.append(user("three"))

    assert [message.text for message in await store.load("demo")] == ["one"]
    async with store.log("demo") as log:
        await log.append(user("four"))


async def test_a_database_that_the_disk_refused_says_why_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "x.db")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with store.log("demo") as log:
        await log.append(user("one"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(StoreError, match=r"x\.db could not be written: Input/output error"):
                await log.append(user("two"))
        with pytest.raises(StoreError, match=r"Input/output error; an earlier write failed: open the session again"):
            await log.append(user("three"))

    async with log:
        await log.append(user("four"))
    assert await store.load("demo") == log.messages
    assert "three" not in [message.text for message in log.messages]


async def test_others_may_write_while_one_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    real, waits = os.fdatasync, 0

    def wait(fd: int) -> None:
        nonlocal waits
        locks = SessionLocks(lock_path(store.path))
        locks.open()
        locks.take("demo-2")
        _lock(locks._fd, "exclusive", 1)  # the one place of a writer; BlockingIOError where it is taken
        locks.close()
        waits += 1
        real(fd)

    async with store.log("demo") as log:
        monkeypatch.setattr(os, "fdatasync", wait)
        await log.append(user("one"))

    assert waits == 1


class Unlogged(sqlite3.Connection):
    """SQLite as on a filesystem that cannot share memory, which the log needs."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace("journal_mode = WAL", "journal_mode"), *values)


async def test_without_a_log_sqlite_itself_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Unlogged))
    store = SQLiteStore(tmp_path / "x.db")

    async with store.log("demo") as log:
        await log.append(user("one"))
        with using(store.path, True) as database:
            assert database.open().execute("PRAGMA synchronous").fetchone() == (2,)  # FULL

    assert [message.text for message in await store.load("demo")] == ["one"]
    assert os.listdir(tmp_path) == ["x.db"]


# Many sessions ---------------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def test_sessions_of_a_database_share_its_descriptors(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(store.log("first"))
        before = open_files()
        for number in range(50):
            await stack.enter_async_context(SQLiteStore(tmp_path / "x.db").log(f"s{number}"))

        assert open_files() == before

    assert not _databases
    assert os.listdir(tmp_path) == ["x.db"]


async def test_sessions_that_write_at_once_share_a_commit(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    statements: list[str] = []
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(store.log(f"s{number}")) for number in range(20)]
        with using(store.path, True) as database:
            database.open().set_trace_callback(statements.append)
            async with anyio.create_task_group() as group:
                with database._turn:
                    for log in logs:
                        group.start_soon(log.append, user(log.id))
                    while len(database._waiting) < len(logs):
                        await anyio.sleep(0)

    assert statements.count("COMMIT") == 1
    for log in logs:
        assert [message.text for message in await store.load(log.id)] == [log.id]


async def test_a_write_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    failed: list[str] = []

    async def fail() -> None:
        try:
            await anyio.to_thread.run_sync(database.run, lambda connection: connection.execute("SELECT nothing"))
        except StoreError as error:
            failed.append(str(error))

    async with store.log("good") as good, store.log("other") as other:
        with using(store.path, True) as database:
            async with anyio.create_task_group() as group:
                with database._turn:
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
async def test_processes_write_side_by_side(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    running = [subprocess.Popen([sys.executable, "-c", WORKER, path, str(number)]) for number in range(6)]

    assert [process.wait(120) for process in running] == [0] * 6
    sessions = await SQLiteStore(path).list()
    assert len(sessions) == 12
    assert [len(await SQLiteStore(path).load(info.id)) for info in sessions] == [5] * 12


async def test_excluding_costs_the_same_for_each_message(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")

    async def steps(count: int) -> int:
        ids = [message.id for message in await fill(store, f"s{count}", *map(str, range(count)))]
        done = [0]
        with using(store.path, True) as database:
            connection = database.open()
            number = connection.execute("SELECT number FROM sessions WHERE id = ?", (f"s{count}",)).fetchone()[0]
            connection.set_progress_handler(lambda: done.__setitem__(0, done[0] + 1) or 0, 100)
            database.run(lambda connection: store.write(connection, number, [{"type": "exclude", "ids": ids}]))
            connection.set_progress_handler(None, 0)
        return done[0]

    few, many = await steps(500), await steps(4_000)

    assert many < few * 8 * 1.5
    assert all(message.excluded for message in await store.load("s4000"))


async def test_a_database_forks_by_itself(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    messages = await fill(store, "demo", "one", "two", "three")
    async with store.log("demo") as log:
        await log.exclude([messages[0].id])

    await copy(store, "demo", store, "all")
    await copy(store, "demo", store, "first", at=2)
    await copy(store, "demo", store, "live", at=2, live=True)

    assert await store.load("all") == await store.load("demo")
    assert [message.text for message in await store.load("first")] == ["one", "two"]
    assert [message.text for message in await store.load("live")] == ["two"]
    assert {info.id: (info.parent, info.forked_at) for info in await store.list()}["live"] == ("demo", 2)
    assert {hit.session for hit in await store.search("two")} == {"demo", "all", "first", "live"}
    with pytest.raises(StoreError, match="'all' is there already, with 3 messages"):
        await copy(store, "demo", store, "all")
    with pytest.raises(ValueError, match="has 3 messages; it cannot be forked at 9"):
        await copy(store, "demo", store, "more", at=9)
    assert "more" not in {info.id for info in await store.list()}


# Paths and filesystems -------------------------------------------------------------------------------


async def test_a_link_to_a_database_has_the_same_writers(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")
    (tmp_path / "folder").symlink_to(tmp_path)

    async with SQLiteStore(tmp_path / "x.db").log("demo"):
        for path in (tmp_path / "link.db", tmp_path / "folder" / "x.db"):
            with pytest.raises(SessionBusy):
                async with SQLiteStore(path).log("demo"):
                    pass


async def test_a_refused_session_leaves_no_descriptor_behind(kept: Store) -> None:
    async with kept.log("demo"):
        refused = 0
        before = open_files()
        for _ in range(20):
            with pytest.raises(SessionBusy):
                async with kept.log("demo"):
                    pass
            refused += 1

        assert refused == 20
        assert open_files() == before


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder that can be mounted again without the right to write, where the system allows that."""
    folder = tmp_path / "mount"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.name != "posix" or not os.path.exists("/bin/mount"), reason="needs mount")
@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_read_only_filesystem_can_be_read(kind: str, mounted: Path) -> None:
    store = make_store(kind, mounted)
    await fill(store, "demo", "apples", "pears")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)

    assert [message.text for message in await store.load("demo")] == ["apples", "pears"]
    assert len(await store.list()) == len(await store.search("pears")) == 1
    async with store.log("demo") as log:
        assert len(log.messages) == 2
        with pytest.raises(StoreError, match="may be read, not changed: Read-only file system"):
            await log.append(user("x"))
    with pytest.raises(StoreError, match="Read-only file system"):
        await fill(store, "new", "x")
    with pytest.raises(StoreError, match="Read-only file system"):
        await store.delete("demo")
    with pytest.raises(StoreError, match="Read-only file system"):
        await copy(store, "demo", store, "fork")


def refuse_to_write(patch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *rest, **named)

    patch.setattr(os, "open", refuse)


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_process_without_descriptors_says_so(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    kept = make_store(kind, tmp_path, request)
    await fill(kept, "demo", "apples")

    def refuse(*given: Any, **named: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for name in ("demo", "new"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            with pytest.raises(StoreError, match=f"session '{name}' cannot be opened: Too many open files"):
                async with kept.log(name):
                    pass

    async with kept.log("new") as log:
        await log.append(user("pears"))
    assert [message.text for message in await kept.load("new")] == ["pears"]


async def test_a_file_that_may_not_be_written_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", "apples")
    refuse_to_write(monkeypatch)

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["apples"]
        with pytest.raises(StoreError, match="may be read, not changed: Permission denied"):
            await log.append(user("x"))
    with pytest.raises(StoreError, match="Permission denied"):
        await fill(store, "new", "x")


async def test_a_file_that_may_not_be_read_either_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", "apples")
    refuse_to_write(monkeypatch)

    def refuse(*given: Any, **named: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), *given[:1])

    monkeypatch.setattr(io, "open", refuse)

    with pytest.raises(StoreError, match="session 'demo' cannot be opened: Permission denied"):
        await fill(store, "demo", "x")
    assert await store.search("apples") == ()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_session_that_may_be_written_again_is_what_it_was(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(kind, tmp_path)
    await fill(store, "demo", "apples")
    log = store.log("demo")
    with monkeypatch.context() as patch:
        refuse_to_write(patch)
        async with log:
            assert "may be read, not changed" in log.read_only

    async with log:
        assert not log.read_only
        await log.append(user("pears"))

    assert [message.text for message in log.messages] == ["apples", "pears"]
    assert await store.load("demo") == log.messages


@pytest.mark.parametrize(
    "content", [b"", b"my shopping list\nmilk\n", b"\xff\xfe\n", b'{"type":"message"}\n', b"apples"]
)
async def test_a_foreign_file_hides_no_session(tmp_path: Path, content: bytes) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", "apples")
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "z.jsonl").write_bytes(content)
    os.mkfifo(tmp_path / "pipe.jsonl")

    assert [info.id for info in await store.list()] == ["demo"]
    assert [hit.session for hit in await store.search("apples")] == ["demo"]


async def test_an_empty_database_file_is_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    store = SQLiteStore(tmp_path / "x.db")

    assert await store.list() == ()
    assert await store.search("apples") == ()
    await fill(store, "demo", "apples")
    assert len(await store.search("apples")) == 1


async def test_reading_makes_no_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")

    assert await store.list() == ()
    with pytest.raises(StoreError, match="no session 'demo'; there are: none"):
        await store.load("demo")
    with pytest.raises(StoreError, match="no session 'demo'"):
        await copy(store, "demo", store, "x")
    assert os.listdir(tmp_path) == []


async def test_a_record_that_is_nested_without_end_is_cut_like_a_torn_one(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", "one")
    with store.path("demo").open("a") as file:
        file.write("[" * 100_000 + "\n")

    assert [message.text for message in await store.load("demo")] == ["one"]
    await fill(store, "demo", "two")
    assert [message.text for message in await store.load("demo")] == ["one", "two"]


# What newer versions wrote ---------------------------------------------------------------------------

NEWER: list[dict[str, Any]] = [
    {"type": "hologram", "data": [1]},
    {"type": "message", "at": 1.0, "message": {"v": 1, "role": "oracle", "id": "o", "content": []}},
    {"type": "message", "at": 1.0, "message": {"v": 99, "role": "user", "id": "n", "content": "new"}},
    {"type": "amend", "id": "nobody", "fields": {"aura": 1}},
]


@pytest.mark.parametrize("record", NEWER, ids=["record", "role", "version", "change"])
async def test_a_newer_record_is_passed_over_and_kept(tmp_path: Path, record: dict[str, Any]) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", "one")
    with store.path("demo").open("a") as file:
        file.write(json.dumps(record) + "\n")
    await fill(store, "demo", "two")
    before = store.path("demo").read_bytes()

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["one", "two"]
        await log.append(user("three"))

    assert store.path("demo").read_bytes().startswith(before)
    assert json.loads(store.path("demo").read_bytes().splitlines()[2]) == record
    assert [message.text for message in await store.load("demo")] == ["one", "two", "three"]
    assert not store.path("demo").with_suffix(".torn").exists()


@pytest.mark.parametrize("data", [NEWER[1]["message"], NEWER[2]["message"]], ids=["role", "version"])
async def test_a_newer_row_is_passed_over_and_kept(tmp_path: Path, data: dict[str, Any]) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    one, two = await fill(store, "demo", "one", "two")
    body = json.dumps({**data, "id": one.id})
    with using(store.path, True) as database:
        database.run(lambda c: c.execute("UPDATE messages SET body = ? WHERE id = ?", (body, one.id)) and None)

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["two"]
        await log.amend(two.id, {"meta": {"a": 1}})
        await log.append(user("three"))

    assert [message.text for message in await store.load("demo")] == ["two", "three"]
    assert len(await store.list()) == 1
    with store.connect() as connection:
        assert connection.execute("SELECT body FROM messages WHERE id = ?", (one.id,)).fetchone()[0] == body


@pytest.mark.parametrize("damage", ["", "no JSON", "5", b"\xff"])
async def test_a_damaged_row_is_passed_over_and_kept(tmp_path: Path, damage: str | bytes) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    one, _ = await fill(store, "demo", "one", "two")
    await fill(store, "other", "two")
    with using(store.path, True) as database:
        database.run(lambda c: c.execute("UPDATE messages SET body = ? WHERE id = ?", (damage, one.id)) and None)
        database.run(lambda c: c.execute("UPDATE sessions SET header = ? WHERE id = 'demo'", (damage,)) and None)

    assert {info.id for info in await store.list()} == {"demo", "other"}
    assert len(await store.search("two")) == 2
    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["two"]
        await log.append(user("three"))

    with store.connect() as connection:
        assert connection.execute("SELECT body FROM messages WHERE id = ?", (one.id,)).fetchone()[0] == damage


@pytest.mark.parametrize(
    "record",
    [{"type": "drop", "ids": 5}, {"type": "amend", "id": "x", "fields": 5}, {"type": "message", "at": "noon"}],
    ids=["drop", "amend", "time"],
)
async def test_a_damaged_record_does_not_break_a_search(tmp_path: Path, record: dict[str, Any]) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", "apples")
    if record["type"] == "message":
        record = {**record, "message": {"role": "user", "id": "n", "content": [{"type": "text", "text": "pears"}]}}
    with store.path("demo").open("ab") as file:
        file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    assert len(await store.search("apples", since=1.0)) == 1
    assert len(await store.search("pears")) == (record["type"] == "message")


# The same in every store -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "count"),
    [
        *(("apples)", 1), ("-apples", 1), ("snake", 1), ("case", 1), ('"red apples"', 1), ("e-mail", 1)),
        *(('"e mail"', 1), ("mail e", 1), ("app", 0), ("app*", 1), ('"apples red"', 0), ("x" * 5_000, 0)),
        *(("über", 1), ("ber", 0)),
    ],
)
async def test_words_are_words_in_every_store(store: Store, query: str, count: int) -> None:
    await fill(store, "demo", "some red\napples", "a snake_case e-mail", "über")

    assert len(await store.search(query)) == count


async def test_equal_matches_stand_with_the_newest_first(store: Store) -> None:
    for name in ("one", "two", "three"):
        await fill(store, name, "apples")

    assert [hit.session for hit in await store.search("apples", limit=2)] == ["three", "two"]


async def test_the_end_of_a_long_text_is_found(store: Store) -> None:
    await fill(store, "demo", "x" * 1_000_000 + " apples " + "word " * 20_000 + "pears")

    assert len(await store.search("apples")) == len(await store.search("pears")) == 1


async def test_a_copy_keeps_the_times_and_what_the_session_is_about(store: Store) -> None:
    async with store.log("demo", meta={"instructions": "Be brief."}) as log:
        await log.append(user("apples"))
    other = MemoryStore()

    await copy(store, "demo", store, "fork")
    await copy(store, "demo", other)

    infos = [*await store.list(), *await other.list()]
    assert [info.meta for info in infos] == [{"instructions": "Be brief."}] * 3
    assert await store.times("fork") == await store.times("demo") == await other.times("demo")  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", ["", "nul\0", "x" * 201, "\ud800", 5])
async def test_an_impossible_id_is_refused_everywhere(store: Store, wrong: Any) -> None:
    for refused in (store.load, store.delete, partial(store.search, "x", role=None, session=wrong)):
        with pytest.raises(ValueError, match="a session id is a text"):
            await (refused() if isinstance(refused, partial) else refused(wrong))
    with pytest.raises(ValueError, match="a session id is a text"):
        store.log(wrong)


async def test_what_is_no_message_is_not_stored(store: Store) -> None:
    async with store.log("demo") as log:
        with pytest.raises(TypeError, match="a message is made by"):
            await log.append("text")  # type: ignore[arg-type]

    assert await store.load("demo") == ()


@pytest.mark.parametrize("query", ["東京", "京", "タワー", "서울", "tower", '"東京 tower"', "東京タ*"])
async def test_words_are_found_inside_text_without_spaces(store: Store, query: str) -> None:
    await fill(store, "demo", "これは東京タワーです", "나는 서울에서 삽니다", "the 東京 tower", "nothing")

    hits = await store.search(query)

    expected = {"東京": 2, "京": 2, "タワー": 1, "서울": 1, "tower": 1, '"東京 tower"': 1, "東京タ*": 1}[query]
    assert len(hits) == expected
    assert all("[" in hit.snippet and "\u200b" not in hit.snippet for hit in hits)
    assert await store.search("京東") == ()


@pytest.mark.parametrize(
    ("query", "snippet"),
    [
        ("need*", "…" + "x " * 29 + "x [needles] or pins " + "y " * 21 + "y…"),
        ("pins needles", "…" + "x " * 29 + "x [needles] or [pins] " + "y " * 21 + "y…"),
        ("世界", "你好[世界]和平"),
    ],
)
async def test_a_snippet_is_the_same_everywhere(store: Store, query: str, snippet: str) -> None:
    await fill(store, "demo", "x " * 99 + "needles or pins" + " y" * 99, "你好世界和平", "nothing")

    (hit,) = await store.search(query)

    assert hit.snippet == snippet


async def test_a_limit_means_the_same_everywhere(store: Store) -> None:
    await fill(store, "demo", "apples", "apples", "apples")

    assert [len(await store.search("apples", limit=limit)) for limit in (0, 1, 99)] == [0, 1, 3]
    assert len(await store.search("apples", limit=2**70)) == 3
    for wrong in (-1, True, "3"):
        with pytest.raises(ValueError, match="limit must be a number of hits"):
            await store.search("apples", limit=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["yesterday", float("nan")])
async def test_a_time_that_is_none_is_refused_everywhere(store: Store, wrong: Any) -> None:
    await fill(store, "demo", "apples")

    for refused in (partial(store.search, since=wrong), partial(store.search, until=wrong)):
        with pytest.raises(ValueError, match="must be a time in seconds since 1970"):
            await refused("apples")


@pytest.mark.parametrize(("query", "count"), [("caf\u00e9", 2), ("cafe\u0301", 2), ("cafe", 1), ("\ud55c\uad6d", 2)])
async def test_an_accent_is_part_of_its_letter_everywhere(store: Store, query: str, count: int) -> None:
    whole, in_parts = "a caf\u00e9 \ud55c\uad6d\uc5b4", "a cafe\u0301 \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"
    await fill(store, "demo", whole, in_parts, "a cafe")

    assert len(await store.search(query)) == count


async def test_nul_is_a_blank_everywhere(store: Store) -> None:
    result = ToolMessage(call_id="c", name="t", content=user("a\0b apples\0pears").content)
    async with store.log("demo") as log:
        await log.append(result)

    assert await store.load("demo") == (result,)
    assert len(await store.search("apples\0pears")) == len(await store.search("pears")) == 1
    assert len(await store.search("a\0b")) == 1


async def test_an_unknown_session_is_named_everywhere(store: Store) -> None:
    await fill(store, "demo", "apples")

    with pytest.raises(StoreError, match="no session 'dmo'; there are: demo"):
        await store.search("apples", session="dmo")
    with pytest.raises(StoreError, match="no session 'dmo'"):
        await copy(store, "dmo", store, "x")
    for wrong in (-1, 2, 1.0, "1"):
        with pytest.raises(ValueError, match="has 1 messages; it cannot be forked at"):
            await copy(store, "demo", store, "x", at=wrong)  # type: ignore[arg-type]
    assert [info.id for info in await store.list()] == ["demo"]


async def test_every_store_says_when_a_message_was_stored(store: Store) -> None:
    (message,) = await fill(store, "demo", "apples")

    (hit,) = await store.search("apples")

    assert await store.times("demo") == {message.id: hit.at}  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ['a "quoted" word', "back\\slash", "line\nbreak", "Größe ÄPFEL", "tab\tbed", "naïve"])
async def test_a_search_finds_what_json_writes_in_another_way(store: Store, text: str) -> None:
    await fill(store, "demo", text, "else")

    for word in text.replace('"', " ").replace("\\", " ").split():
        assert len(await store.search(word)) == 1, word
        assert len(await store.search(word.upper() if word != "Größe" else word.lower())) == 1, word

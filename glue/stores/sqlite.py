"""`SQLiteStore`: all conversations in one SQLite file, with an index for full-text search."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from glue.errors import ConfigError, StoreError
from glue.messages import SCHEMA_VERSION, Json, Message, message_from_json, message_to_json
from glue.stores.store import (
    Fold,
    Log,
    Query,
    Record,
    SearchHit,
    SessionInfo,
    amended,
    busy,
    check_fork,
    check_id,
    describe,
    header,
    join_words,
    missing,
    read_message,
    role_of,
    searchable,
    split_words,
    taken_already,
    terms,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    header TEXT NOT NULL,
    updated REAL NOT NULL,
    changes INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions(number) ON DELETE CASCADE,
    position REAL NOT NULL,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_by_position ON messages(session, position);
CREATE INDEX IF NOT EXISTS messages_by_id ON messages(session, id);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='messages', content_rowid='number');
CREATE TRIGGER IF NOT EXISTS words_added AFTER INSERT ON messages BEGIN
    INSERT INTO words(rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER IF NOT EXISTS words_removed AFTER DELETE ON messages BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.number, old.text);
END;
"""


WAIT = 60.0  # seconds for a lock of another program; our own writers queue by themselves


def _connect(path: Path, *, uri: str = "") -> Connection:
    import sqlite3

    connection = sqlite3.connect(
        uri or path, timeout=WAIT, isolation_level=None, check_same_thread=False, uri=bool(uri)
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect(path: Path, sync: bool) -> Connection:
    """Open a file to write; make its tables where there are none."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would go by the umask
    connection = _connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            connection.execute("PRAGMA query_only = ON")
        elif version < SCHEMA_VERSION:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Say in a StoreError what SQLite has against it."""
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        if "fts5" in str(error):
            raise StoreError("this Python's SQLite was built without FTS5, which SQLiteStore needs; use FileStore")
        raise StoreError(f"{path}: {error}") from error


# One file, all its writers ----------------------------------------------------------------------------


class SessionLocks:
    """Locks of any number of sessions on one descriptor: a byte of a file for each, given up by a killed process."""

    def __init__(self, path: Path) -> None:
        if sys.platform == "win32":
            raise ConfigError("SQLiteStore needs POSIX file locks; use MemoryStore on Windows")
        self.path = path
        self._fd = -1

    def open(self) -> None:
        while self._fd < 0:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                # A shared byte says that the file is in use, so that nobody removes it.
                _lock(fd, "shared", 0, wait=True)
                if os.path.samestat(os.fstat(fd), os.stat(self.path)):
                    self._fd = fd
                    return
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the last one who used it removed it meanwhile: once more

    def take(self, id: str) -> None:
        try:
            _lock(self._fd, "exclusive", _place(id))
        except BlockingIOError as error:
            raise busy(id) from error

    def give_up(self, id: str) -> None:
        _lock(self._fd, "none", _place(id))

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait in line for the one place of a writer: quicker and fairer than SQLite's polling."""
        _lock(self._fd, "exclusive", 1, wait=True)
        try:
            yield
        finally:
            _lock(self._fd, "none", 1)

    def close(self) -> None:
        """Close the file, and remove it where nobody else uses it."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            _lock(self._fd, "exclusive", 0)
            self.path.unlink()
        os.close(self._fd)
        self._fd = -1


def hold(path: Path, id: str) -> SessionLocks:
    """Take one session of a file for this process, until the lock is closed."""
    locks = SessionLocks(lock_path(path))
    locks.open()
    try:
        locks.take(id)
    except BaseException:
        locks.close()
        raise
    return locks


def lock_path(path: Path) -> Path:
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + ".lock")


def _place(id: str) -> int:
    return 2 + int.from_bytes(hashlib.sha256(id.encode(errors="surrogatepass")).digest()[:7], "big")


def _lock(fd: int, kind: str, start: int, *, wait: bool = False) -> None:
    import fcntl

    kinds = {"exclusive": fcntl.F_WRLCK, "shared": fcntl.F_RDLCK, "none": fcntl.F_UNLCK}
    command = getattr(fcntl, "F_OFD_SETLKW" if wait else "F_OFD_SETLK", None)
    if command is not None:  # of the open file: two stores in one process exclude each other as well
        fcntl.fcntl(fd, command, struct.pack("hhqqi", kinds[kind], os.SEEK_SET, start, 1, 0))
    else:
        words = {"exclusive": fcntl.LOCK_EX, "shared": fcntl.LOCK_SH, "none": fcntl.LOCK_UN}
        fcntl.lockf(fd, words[kind] | (0 if wait or kind == "none" else fcntl.LOCK_NB), 1, start)


class Job:
    """One change that waits for the next transaction."""

    def __init__(self, work: Callable[[Connection], object]) -> None:
        self.work = work
        self.is_over = False
        self.result: Any = None
        self.error: BaseException | None = None


class Database:
    """One file, shared by all stores of this process on it: one connection, one lock file, a transaction for many.

    Whoever comes first writes for all who have come meanwhile: sessions wait for one commit together.
    """

    def __init__(self, path: Path, sync: bool) -> None:
        self.path, self.sync = path, sync
        self.users = 0
        self.taken: set[str] = set()
        self.locks = SessionLocks(lock_path(path))
        self.connection: Connection | None = None
        self.schema = 0
        self._waiting: list[Job] = []
        self._turn = threading.Lock()  # held by the one who writes
        self._opening = threading.Lock()

    def open(self) -> Connection:
        with self._opening, store_errors(self.path):
            if self.connection is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.locks.open()
                with self.locks.turn():
                    self.connection = connect(self.path, self.sync)
                self.schema = self.connection.execute("PRAGMA user_version").fetchone()[0]
            return self.connection

    def close(self) -> None:
        """Leave the file; SQLite then moves the log into it, which waits for the disk."""
        with self._turn, store_errors(self.path):
            if self.connection is not None:
                with self.locks.turn():
                    self.connection.close()
                self.connection = None
            self.locks.close()

    def run(self, work: Callable[[Connection], T]) -> T:
        """Make a change, in one transaction with whatever others want to change at this moment."""
        job = Job(work)
        self._waiting.append(job)
        with self._turn:
            if not job.is_over:
                jobs, self._waiting = self._waiting, []
                try:
                    self._commit(jobs)
                except BaseException as error:
                    for each in jobs:
                        each.error = each.error or error
                finally:
                    for each in jobs:
                        each.is_over = True
        if job.error is not None:
            with store_errors(self.path):
                raise job.error
        result: T = job.result
        return result

    def _commit(self, jobs: Sequence[Job]) -> None:
        connection = self.open()
        with self.locks.turn():
            connection.execute("BEGIN IMMEDIATE")
            try:
                for job in jobs:
                    self._try(connection, job)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _try(self, connection: Connection, job: Job) -> None:
        """Do one of the changes; where it fails, the others stand."""
        connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except Exception as error:
            if not connection.in_transaction:  # the disk is full, say: SQLite took everything back
                raise
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")


_databases: dict[tuple[str, bool, int], Database] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def using(path: Path, sync: bool) -> Iterator[Database]:
    """Share the database of a file with whoever in this process uses it; the last one closes it."""
    key = (os.path.realpath(path), sync, os.getpid())  # a forked child must not use its parent's
    with _guard:
        database = _databases.setdefault(key, Database(Path(key[0]), sync))
        database.users += 1
    try:
        yield database
    finally:
        with _guard:
            database.users -= 1
            if database.users == 0:
                del _databases[key]
                database.close()


# Records as rows --------------------------------------------------------------------------------------


def messages_of(connection: Connection, number: int) -> Iterator[Message]:
    """Read a session's messages; those of a newer version are passed over."""
    rows = connection.execute("SELECT body FROM messages WHERE session = ? ORDER BY position", (number,))
    return (message for (body,) in rows if (message := read_message(json.loads(body))) is not None)


def _add(connection: Connection, session: int, record: Record) -> None:
    position = _last(connection, session) + 1.0
    if "before" in record:
        position = _between(connection, session, record["before"])
    message = message_from_json(record["message"])
    _put(connection, session, position, record["at"], message, record["message"])


def _put(
    connection: Connection, session: int, position: float, at: float, message: Message, data: Mapping[str, Json]
) -> None:
    text = searchable(message).encode(errors="replace").decode()
    connection.execute(
        "INSERT INTO messages(session, position, id, role, at, text, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (session, position, message.id, role_of(message), at, text, json.dumps(data)),
    )


def _last(connection: Connection, session: int) -> float:
    row = connection.execute("SELECT max(position) FROM messages WHERE session = ?", (session,)).fetchone()
    return row[0] or 0.0


def _between(connection: Connection, session: int, id: str) -> float:
    after = _find(connection, session, id)[1]
    sql = "SELECT max(position) FROM messages WHERE session = ? AND position < ?"
    before = connection.execute(sql, (session, after)).fetchone()[0]
    before = after - 2.0 if before is None else before
    middle: float = (before + after) / 2
    if before < middle < after:
        return middle
    numbered = connection.execute("SELECT number FROM messages WHERE session = ? ORDER BY position", (session,))
    for place, (number,) in enumerate(numbered.fetchall(), 1):
        connection.execute("UPDATE messages SET position = ? WHERE number = ?", (float(place), number))
    return _find(connection, session, id)[1] - 0.5


def _find(connection: Connection, session: int, id: str) -> tuple[int, float, float, Message]:
    # Sorted here: asked to sort, SQLite may walk through the session by position instead of looking the id up.
    sql = "SELECT position, number, at, body FROM messages INDEXED BY messages_by_id WHERE session = ? AND id = ?"
    rows = connection.execute(sql, (session, id)).fetchall()
    message = read_message(json.loads(max(rows)[3])) if rows else None
    if message is None:
        raise StoreError(f"there is no message {id!r} in this session")
    position, number, at, _ = max(rows)
    return number, position, at, message


def _amend(connection: Connection, session: int, record: Record) -> None:
    number, position, at, message = _find(connection, session, record["id"])
    connection.execute("DELETE FROM messages WHERE number = ?", (number,))
    changed = amended(message, record["fields"])
    _put(connection, session, position, at, changed, message_to_json(changed))


def _drop(connection: Connection, session: int, record: Record) -> None:
    sql = "DELETE FROM messages WHERE session = ? AND id = ?"
    connection.executemany(sql, [(session, key) for key in record["ids"]])


def _exclude(connection: Connection, session: int, record: Record) -> None:
    sql = "UPDATE messages SET body = json_set(body, '$.excluded', json('true')) WHERE session = ? AND id = ?"
    connection.executemany(sql, [(session, key) for key in record["ids"]])


_WRITES = {"message": _add, "amend": _amend, "drop": _drop, "exclude": _exclude}


class SQLiteStore:
    """Keep all conversations in one SQLite file (WAL, so not on a network drive)."""

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        self.path = Path(path)
        self.sync = sync

    def log(
        self, id: str, *, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
    ) -> Log:
        return Log(id, _Writer(self, check_id(id), header(id, parent, forked_at, meta)))

    async def list(self) -> tuple[SessionInfo, ...]:
        return await anyio.to_thread.run_sync(self._list)

    async def load(self, id: str) -> tuple[Message, ...]:
        return await anyio.to_thread.run_sync(self._load, id)

    async def times(self, id: str) -> Mapping[str, float]:
        """Say when each message was stored."""

        def read() -> dict[str, float]:
            with self.connect() as connection:
                number = self._row(connection, id)[0]
                return dict(connection.execute("SELECT id, at FROM messages WHERE session = ?", (number,)).fetchall())

        return await anyio.to_thread.run_sync(read)

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        session: str | None = None,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[SearchHit, ...]:
        return await anyio.to_thread.run_sync(self._search, Query(query, limit, session, role, since, until))

    async def delete(self, id: str) -> None:
        await anyio.to_thread.run_sync(self._delete, id)

    async def fork(self, id: str, new_id: str, *, at: int | None = None, live: bool = False) -> None:
        """Copy a session within this store, row by row."""
        await anyio.to_thread.run_sync(self._fork, id, check_id(new_id), at, live)

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open the file to read, for the length of a `with`; whatever SQLite says against it is a StoreError."""
        path = Path(os.path.realpath(self.path))
        with store_errors(self.path):
            connection = self._open_to_read(path)
            try:
                yield connection
            finally:
                connection.close()

    def _open_to_read(self, path: Path) -> Connection:
        import sqlite3

        if not path.exists():
            connection = _connect(path, uri="file::memory:")
            connection.executescript(_SCHEMA)
            return connection
        connection = _connect(path)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'sessions'").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            # No shared memory can be made on a read-only filesystem; nobody writes there either.
            connection = _connect(path, uri=f"{path.as_uri()}?mode=ro&immutable=1")
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'sessions'").fetchone()[0]:
            connection.close()
            connection = _connect(path, uri="file::memory:")
            connection.executescript(_SCHEMA)
        return connection

    def _list(self) -> tuple[SessionInfo, ...]:
        sql = """
            SELECT header, updated, (
                SELECT body FROM messages WHERE session = sessions.number AND role = 'user' ORDER BY position LIMIT 1
            ) FROM sessions ORDER BY updated DESC"""
        with self.connect() as connection:
            rows = connection.execute(sql).fetchall()
        found = [(head, updated, read_message(json.loads(first)) if first else None) for head, updated, first in rows]
        return tuple(describe(json.loads(head), [first] if first else [], updated) for head, updated, first in found)

    def _load(self, id: str) -> tuple[Message, ...]:
        with self.connect() as connection:
            number, _, _ = self._row(connection, id)
            return tuple(messages_of(connection, number))

    def _row(self, connection: Connection, id: str) -> tuple[int, Record, int]:
        row = connection.execute("SELECT number, header, changes FROM sessions WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise missing(id, [there for (there,) in connection.execute("SELECT id FROM sessions ORDER BY id LIMIT 9")])
        return row[0], json.loads(row[1]), row[2]

    def _search(self, query: Query) -> tuple[SearchHit, ...]:
        match = " ".join(_quote(split_words(term)) + ("*" if prefix else "") for term, prefix in terms(query.text))
        filters = {
            "sessions.id = ?": query.session,
            "role = ?": query.role,
            "at >= ?": query.since,
            "at <= ?": query.until,
        }
        used = {clause: value for clause, value in filters.items() if value is not None}
        sql = f"""
            SELECT sessions.id, messages.id, role, snippet(words, 0, '[', ']', '…', 16), at
            FROM words JOIN messages ON messages.number = words.rowid JOIN sessions ON sessions.number = session
            WHERE words MATCH ?{"".join(f" AND {clause}" for clause in used)} ORDER BY words.rank LIMIT ?"""
        with self.connect() as connection:
            if query.session is not None:
                self._row(connection, query.session)
            rows = connection.execute(sql, (match, *used.values(), query.limit)).fetchall()
        return tuple(
            SearchHit(session=session, message_id=key, role=role, snippet=join_words(text), at=at)
            for session, key, role, text, at in rows
        )

    def _delete(self, id: str) -> None:
        def delete(connection: Connection) -> None:
            number, _, _ = self._row(connection, id)
            connection.execute("DELETE FROM messages WHERE session = ?", (number,))
            connection.execute("DELETE FROM sessions WHERE number = ?", (number,))

        with self.connect() as connection:
            self._row(connection, id)
        with self.taking(id) as database:
            database.run(delete)

    def _fork(self, id: str, new_id: str, at: int | None, live: bool) -> None:
        def fork(connection: Connection) -> None:
            number = self._row(connection, id)[0]
            count = connection.execute("SELECT count(*) FROM messages WHERE session = ?", (number,)).fetchone()[0]
            check_fork(id, at, count)
            taken = count if at is None else at
            head = header(new_id, id, taken)
            connection.execute(
                "INSERT OR IGNORE INTO sessions(id, header, updated) VALUES (?, ?, ?)",
                (new_id, json.dumps(head), head["created"]),
            )
            new = self._row(connection, new_id)[0]
            there = connection.execute("SELECT count(*) FROM messages WHERE session = ?", (new,)).fetchone()[0]
            if there:
                raise taken_already(new_id, there)
            connection.execute(
                "INSERT INTO messages(session, position, id, role, at, text, body)"
                " SELECT ?, position, id, role, ?, text, body FROM"
                " (SELECT * FROM messages WHERE session = ? ORDER BY position LIMIT ?)"
                + (" WHERE json_extract(body, '$.excluded') IS NOT 1" if live else ""),
                (new, head["created"], number, taken),
            )

        with self.taking(new_id) as database:
            database.run(fork)

    @contextlib.contextmanager
    def taking(self, id: str) -> Iterator[Database]:
        """Hold a session of the file for this writer alone."""
        with using(self.path, self.sync) as database:
            database.open()
            with _guard:
                if id in database.taken:
                    raise busy(id)
                database.locks.take(id)
                database.taken.add(id)
            try:
                yield database
            finally:
                with _guard:
                    database.taken.discard(id)
                    database.locks.give_up(id)


class _Writer:
    blocks = True

    def __init__(self, store: SQLiteStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first
        self.stack = contextlib.ExitStack()
        self.database: Database | None = None
        self.number = 0
        self.head: Record = {}  # with the changes, of the session when the fold was last in step with it
        self.changes = -1

    def open(self, fold: Fold) -> None:
        try:
            self.database = self.stack.enter_context(self.store.taking(self.id))
        except OSError as error:  # no lock can be made: a read-only filesystem, say
            why = f"session {self.id!r} may be read, not changed: {error.strerror}: {self.store.path}"
            if not self.store.path.exists():
                raise StoreError(why) from error
            self._read(fold, 0)
            fold.read_only = fold.read_only or why
            return
        if self.database.schema > SCHEMA_VERSION:
            self._read(fold, self.database.schema)
            return
        self.catch_up(self.database, fold)

    def catch_up(self, database: Database, fold: Fold) -> None:
        """Begin the session where it is new, and read what others wrote where it is not."""
        is_new, (self.number, head, changes) = database.run(self._begin)
        if is_new:
            fold.clear()
            fold.apply(head)
            self.head, self.changes = head, changes
        elif (head, changes) != (self.head, self.changes):
            self._read(fold, 0)

    def _begin(self, connection: Connection) -> tuple[bool, tuple[int, Record, int]]:
        added = connection.execute(
            "INSERT OR IGNORE INTO sessions(id, header, updated) VALUES (?, ?, ?)",
            (self.id, json.dumps(self.first), self.first["created"]),
        )
        return added.rowcount == 1, self.store._row(connection, self.id)

    def _read(self, fold: Fold, schema: int) -> None:
        with self.store.connect() as connection:
            self.number, self.head, self.changes = self.store._row(connection, self.id)
            fold.clear()
            fold.apply({**self.head, "schema": max(schema, self.head.get("schema", 0))})
            fold.messages = list(messages_of(connection, self.number))

    def write(self, records: Sequence[Record]) -> None:
        if self.database is None:
            raise StoreError(f"session {self.id!r} is closed")

        def write(connection: Connection) -> None:
            for record in records:
                _WRITES[record["type"]](connection, self.number, record)
            connection.execute(
                "UPDATE sessions SET updated = ?, changes = changes + 1 WHERE number = ?", (time.time(), self.number)
            )

        self.database.run(write)
        self.changes += 1

    def close(self) -> None:
        self.database = None
        self.stack.close()


def _quote(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'

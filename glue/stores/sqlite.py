"""`SQLiteStore`: all sessions in one SQLite file, with an index for full-text search."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

from glue.checks import check_flag, check_path
from glue.errors import NewerSchema, StoreError
from glue.messages import Json, Message
from glue.signature import hinted
from glue.stores.files import read_only_reason, sync_data
from glue.stores.locks import SessionLocks, lock_path
from glue.stores.records import Record, StoredSession, newer_schema, read_message
from glue.stores.search import Query, searchable
from glue.stores.sql import SQLStore, SQLWriter, loads
from glue.stores.store import session_busy

T = TypeVar("T")

# Each script upgrades the tables by one version. SQLite's `user_version` counts the scripts that
# were run.
MIGRATIONS = tuple(Path(__file__).with_name(name) for name in ("sqlite-1.sql",))
# Seconds to wait for a lock of another program. Writers of glue wait for each other in
# `SessionLocks`.
WAIT = 60.0


# The store ----------------------------------------------------------------------------------------


class SQLiteStore(SQLStore):
    """A store that keeps all sessions in one SQLite file, with an index for full-text search.

    >>> store = SQLiteStore("sessions.db")
    >>> session = agent.session("demo", store=store)  # doctest: +SKIP
    >>> session.run_sync("Hello")                     # doctest: +SKIP

    Args:
        path: the file. It is created when the first session is stored. It uses a write-ahead log,
            which does not work on network drives.
        sync: wait until each record is on the disk. False is faster and still survives a killed
            process, but a power failure can lose the last records.
    """

    now = "((julianday('now') - 2440587.5) * 86400.0)"
    _prefix = ""
    _body = "body"
    _columns, _values = "text, body", "?, ?"
    _among = "id IN (SELECT value FROM json_each(?))"
    _excluding = "body = json_set(body, '$.excluded', json('true'))"
    _live = "json_extract(body, '$.excluded') IS NOT 1"
    # The inner query finds the best hits, so that the outer query reads only the texts of these.
    _matches = """
        SELECT s.id, m.id, role, text, at FROM (
            SELECT m.number AS found, rank AS place FROM words
            JOIN glue_messages AS m ON m.number = words.rowid
            JOIN glue_sessions AS s ON s.number = session
            WHERE words MATCH ?{where} ORDER BY rank, at DESC LIMIT ?
        )
        JOIN glue_messages AS m ON m.number = found JOIN glue_sessions AS s ON s.number = session
        ORDER BY place, at DESC"""

    @hinted
    def __init__(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        check_path("path", path, "glue.db")
        check_flag("sync", sync)
        self.path = Path(path)
        self.sync = sync

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """Yield a connection for reading. Errors of SQLite inside the block become StoreErrors.

        If the file does not exist or is not a store, the connection is to an empty store in memory.
        """
        path = Path(os.path.realpath(self.path))
        tables = "SELECT count(*) FROM sqlite_master WHERE name = 'sessions'"
        with store_errors(self.path), contextlib.ExitStack() as stack:

            def opened(uri: str = "") -> Connection:
                return stack.enter_context(contextlib.closing(_connect(path, uri=uri)))

            connection, is_store = None, 0
            if path.exists():
                check_links(path)
                connection = opened()
                try:
                    is_store = connection.execute(tables).fetchone()[0]
                except sqlite3.OperationalError:
                    # SQLite cannot create its shared memory on a read-only filesystem. The file
                    # cannot change there, so it can be opened as immutable.
                    connection = opened(f"{path.as_uri()}?mode=ro&immutable=1")
                    is_store = connection.execute(tables).fetchone()[0]
            if connection is None or not is_store:
                connection = opened("file::memory:")
                for script in MIGRATIONS:
                    connection.executescript(script.read_text())
            yield connection

    @contextlib.contextmanager
    def locked(self, id: str) -> Iterator[Database]:
        """Lock the session `id` during a `with` block, and yield the open database.

        Raise SessionBusy if the session is locked already.
        """
        with using(self.path, self.sync) as database:
            database.open()
            with _guard:
                if id in database.taken:
                    raise session_busy(id)
                database.locks.take(id)
                database.taken.add(id)
            try:
                yield database
            finally:
                with _guard:
                    database.taken.discard(id)
                    database.locks.release(id)

    def transact(self, work: Callable[[Connection], T]) -> T:
        with using(self.path, self.sync) as database:
            return database.run(work)

    def _vacuum(self) -> None:
        with using(self.path, self.sync) as database, store_errors(self.path):
            connection = database.open()
            with database.locks.writing():
                connection.execute("INSERT INTO words(words) VALUES ('optimize')")
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def kept_open(self) -> contextlib.AbstractContextManager[object]:
        return using(self.path, self.sync)

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self, id, first)

    def _get(self, work: Callable[[Connection], T]) -> T:
        with self.connect() as connection:
            return work(connection)

    def _change(self, id: str, work: Callable[[Connection], T]) -> T:
        with self.locked(id) as database:
            return database.run(work)

    def _encode(self, message: Message, data: Mapping[str, Json]) -> tuple[object, ...]:
        return searchable(message).encode(errors="replace").decode(), json.dumps(data)

    def _decode(self, *body: Any) -> Message | None:
        return read_message(loads(body[0]))

    def _match(self, query: Query) -> str:
        return " ".join(f'"{" ".join(words)}"' + "*" * prefix for words, prefix in query.terms)

    def _found_text(self, found: str) -> str | None:
        return found


class _Writer(SQLWriter):
    """A writer to one session, which is locked while the writer is open."""

    store: SQLiteStore

    def __init__(self, store: SQLiteStore, id: str, first: Record) -> None:
        super().__init__(store, id, first)
        self.stack = contextlib.ExitStack()
        self.database: Database | None = None

    def open(self, stored: StoredSession) -> None:
        try:
            self.database = self.stack.enter_context(self.store.locked(self.id))
        except OSError as error:  # no lock file can be created, as on a read-only filesystem
            reason = read_only_reason(self.id, self.store.path, error)
            return self.open_read_only(stored, reason, error)
        if self.database.read(self.exists):
            found = self.database.read(self.find)
        else:
            number = self.database.run(lambda connection: self.store.begin(connection, self.first))
            found = (number, self.first, 0, [])
        newer = self.database.schema if self.database.schema > len(MIGRATIONS) else 0
        return self.load_into(stored, found, newer)

    def exists(self, connection: Connection) -> bool:
        sql = "SELECT 1 FROM sessions WHERE id = ?"
        return connection.execute(sql, (self.id,)).fetchone() is not None

    def write(self, records: Sequence[Record]) -> None:
        if self.database is None:
            raise StoreError(f"session {self.id!r} is not open for writing; use `async with log`")

        def write(connection: Connection) -> int:
            number = self.number or self.store.begin(connection, self.first)
            self.store.write(connection, number, records)
            connection.execute(
                "UPDATE sessions SET updated = ?, changes = changes + 1 WHERE number = ?",
                (time.time(), number),
            )
            return number

        self.number = self.database.run(write)
        self.changes += 1

    def close(self) -> None:
        self.database = None
        self.stack.close()


class ExclusiveStore(SQLiteStore):
    """A SQLite store in a file that the caller has locked for this process with `locks.hold`.

    The store uses one connection and needs no locks and no threads. A write takes about 0.1 ms,
    because it does not wait for the disk. The records survive a killed process, but a power failure
    can lose the last records. A session is created with its first message, which saves a
    transaction.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync=False)
        self.database = Database(path, sync=False)

    def transact(self, work: Callable[[Connection], T]) -> T:
        return self.database.run(work)

    def _writer(self, id: str, first: Record) -> _Writer:
        return _ExclusiveWriter(self, id, first)


class _ExclusiveWriter(_Writer):
    blocks = False
    store: ExclusiveStore

    def open(self, stored: StoredSession) -> None:
        self.database = self.store.database
        if self.database.read(self.exists):
            return self.load_into(stored, self.database.read(self.find))
        self.number, self.head, self.changes = 0, self.first, 0
        stored.clear()
        stored.apply(self.first)
        return None


# The database file --------------------------------------------------------------------------------


class Job:
    """A change that waits for the next transaction of the database, and the change's result."""

    def __init__(self, work: Callable[[Connection], object]) -> None:
        self.work = work
        self.is_over = False
        self.result: Any = None
        self.error: BaseException | None = None


class Database:
    """The connection to one file, shared by all stores of this process that use the file.

    Changes are committed in groups: one thread commits the changes of all waiting threads, so that
    the threads share one transaction and one wait for the disk.
    """

    def __init__(self, path: Path, sync: bool) -> None:
        self.path, self.sync = path, sync
        self.users = 0
        self.taken: set[str] = set()  # sessions that writers of this process have locked
        self.locks = SessionLocks(lock_path(path))
        self.connection: Connection | None = None
        self.schema = 0
        self._failed: StoreError | None = None
        self._waiting: list[Job] = []
        self._commit_lock = threading.Lock()  # held while a group is committed and synced
        self._connection_lock = threading.RLock()  # held while the connection is used

    def open(self) -> Connection:
        """Return the connection. If it is not open, open it, and create the file if needed."""
        with self._connection_lock, store_errors(self.path):
            if self.connection is None:
                os.makedirs(self.path.parent, mode=0o700, exist_ok=True)
                self.locks.open()
                is_new = not self.path.exists() or not self.path.stat().st_size
                with self.locks.writing() if is_new else contextlib.nullcontext():
                    self.connection = connect(self.path)
                self.schema = self.connection.execute("PRAGMA user_version").fetchone()[0]
            return self.connection

    def close(self) -> None:
        """Close the connection and the lock file.

        The last connection to the file that is closed empties the write-ahead log.
        """
        with self._commit_lock, self._connection_lock, store_errors(self.path):
            if self.connection is not None:
                with self.locks.writing():
                    self.connection.close()
                self.connection = None
            self.locks.close()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Call `work`, which only reads, with the connection, and return its result."""
        with self._connection_lock, store_errors(self.path):
            return work(self.open())

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which makes changes, in a transaction. Return its result after the commit.

        The transaction is shared with the changes of other waiting threads.
        """
        job = Job(work)
        self._waiting.append(job)
        with self._commit_lock:
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
        if self._failed is not None:
            raise StoreError(
                f"{self._failed}; an earlier write failed: open the session again"
            ) from self._failed
        connection = self.open()
        if self.schema > len(MIGRATIONS):
            what = f"{self.path} has tables of version"
            raise NewerSchema(newer_schema(what, self.schema, len(MIGRATIONS)))
        with self.locks.writing(), self._connection_lock:
            before = connection.total_changes
            connection.execute("BEGIN IMMEDIATE")
            try:
                if len(jobs) == 1:
                    jobs[0].result = jobs[0].work(connection)
                else:
                    for job in jobs:
                        self._run_job(connection, job)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        if self.sync and connection.total_changes > before:
            self._sync()

    def _sync(self) -> None:
        """Sync the write-ahead log to the disk. If this fails, all later changes fail too.

        The caller waits until the sync is complete. A failure raises StoreError, also for later
        changes, until all sessions of the file are closed.

        The lock for writing is already released, so several processes can wait at the same time for
        one write to the disk. The log is valid up to its first incomplete frame. So a record that
        is on the disk never follows a record that was lost.
        """
        try:
            fd = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_data(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return  # this filesystem does not support a write-ahead log
        except OSError as error:  # a second attempt could succeed without having saved the data
            self._failed = StoreError(f"{self.path} could not be written: {error.strerror}")
            raise self._failed from error

    def _run_job(self, connection: Connection, job: Job) -> None:
        """Run one job of a transaction and set its result; if it fails, undo it and set its error.

        The changes of the other jobs are kept. If SQLite has rolled back the whole transaction,
        raise the error instead.
        """
        connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except Exception as error:
            if not connection.in_transaction:  # SQLite rolled back everything: a full disk
                raise
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")


_databases: dict[tuple[str, bool, int], Database] = {}
# Reentrant, because the garbage collector may run at any point, and then ends blocks of `using` and
# `locked` that were abandoned, such as those of a session without `aclose`.
_guard = threading.RLock()


@contextlib.contextmanager
def using(path: Path, sync: bool) -> Iterator[Database]:
    """Yield a Database that all blocks of this process with the same file and `sync` share.

    The end of the last of these blocks closes the database.
    """
    # A forked child must not use the connection of its parent, so the key has the process id.
    key = (os.path.realpath(path), sync, os.getpid())
    with _guard:
        database = _databases.get(key) or Database(Path(key[0]), sync)
        database.users += 1
        _databases[key] = database  # again, if the garbage collector has just ended the last block
    try:
        yield database
    finally:
        with _guard:
            database.users -= 1
            if database.users == 0:
                del _databases[key]
                database.close()


def connect(path: Path) -> Connection:
    """Open a database file for writing, and return the connection.

    The file and its tables are created if needed.
    """
    check_links(path)
    if not path.exists():
        # Created here, because SQLite would create a file that others can read.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = _connect(path)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        # `Database` syncs the write-ahead log. On a filesystem that does not support such a log,
        # SQLite must sync.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        if _version(connection) > len(MIGRATIONS):
            connection.execute("PRAGMA query_only = ON")
        elif _version(connection) < len(MIGRATIONS):
            _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def check_links(path: Path) -> None:
    """Raise StoreError if a database file has a second name (a hard link).

    SQLite finds the write-ahead log by the name of the file. Under another name SQLite does not
    find the log, and overwrites the changes in it. A copy of the file lacks them too, unless every
    program that used the file under the other name was closed first.
    """
    if path.exists() and path.stat().st_nlink > 1:
        raise StoreError(
            f"{path} has several names (hard links), which SQLite does not support; close the"
            " programs that use it under another name, then copy the file and use the copy"
        )


def _version(connection: Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _migrate(connection: Connection) -> None:
    """Create the tables, or upgrade them to the current version, in one transaction.

    After an error the caller closes the connection, which undoes the changes.
    """
    connection.execute("BEGIN IMMEDIATE")
    # The version is read again: another process may have upgraded the tables meanwhile.
    for number in range(_version(connection), len(MIGRATIONS)):
        for statement in _statements(MIGRATIONS[number].read_text()):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number + 1}")
    connection.execute("COMMIT")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one.

    The method `executescript` of SQLite cannot be used, because it would commit the transaction.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _connect(path: Path, *, uri: str = "") -> Connection:
    connection = sqlite3.connect(
        uri or path, timeout=WAIT, isolation_level=None, check_same_thread=False, uri=bool(uri)
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Translate errors of sqlite3 inside a `with` block to StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        if "fts5" in str(error):
            raise StoreError(
                "this Python's SQLite was built without FTS5, which SQLiteStore needs;"
                " use FileStore"
            )
        raise StoreError(f"{path}: {error}") from error

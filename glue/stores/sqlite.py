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

from glue.errors import ConfigError, NewerSchema, StoreError
from glue.messages import SCHEMA_VERSION, Json, Message
from glue.stores.sql import SQLStore, SQLWriter, loads
from glue.stores.store import Fold, Query, Record, busy, read_message, read_only, searchable, sync_data, too_new

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

_SCHEMA = Path(__file__).with_name("sqlite.sql")
WAIT = 60.0  # seconds for a lock of another program; our own writers queue by themselves


def _connect(path: Path, *, uri: str = "") -> Connection:
    import sqlite3

    connection = sqlite3.connect(
        uri or path, timeout=WAIT, isolation_level=None, check_same_thread=False, uri=bool(uri)
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect(path: Path) -> Connection:
    """Open a file to write; make its tables where there are none."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would go by the umask
    connection = _connect(path)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        # The log is synced by `Database`, outside its turn; where none can be had, by SQLite.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            connection.execute("PRAGMA query_only = ON")
        elif version < SCHEMA_VERSION:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA.read_text()} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
            )
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
    return 2 + int.from_bytes(hashlib.sha256(id.encode()).digest()[:7], "big")


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
        self._failed: StoreError | None = None
        self._waiting: list[Job] = []
        self._turn = threading.Lock()  # held by the one who writes, and waits for the disk
        self._access = threading.RLock()  # held by the one who uses the connection

    def open(self) -> Connection:
        with self._access, store_errors(self.path):
            if self.connection is None:
                os.makedirs(self.path.parent, mode=0o700, exist_ok=True)
                self.locks.open()
                is_new = not self.path.exists() or not self.path.stat().st_size
                with self.locks.turn() if is_new else contextlib.nullcontext():
                    self.connection = connect(self.path)
                self.schema = self.connection.execute("PRAGMA user_version").fetchone()[0]
            return self.connection

    def close(self) -> None:
        """Leave the file; SQLite then moves the log into it, which waits for the disk."""
        with self._turn, self._access, store_errors(self.path):
            if self.connection is not None:
                with self.locks.turn():
                    self.connection.close()
                self.connection = None
            self.locks.close()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Read something that nobody changes meanwhile, because the session is ours."""
        with self._access, store_errors(self.path):
            return work(self.open())

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
        if self._failed is not None:
            raise StoreError(f"{self._failed}; an earlier write failed: open the session again") from self._failed
        connection = self.open()
        if self.schema > SCHEMA_VERSION:
            raise NewerSchema(too_new(f"{self.path} has tables of version", self.schema))
        with self.locks.turn(), self._access:
            before = connection.total_changes
            connection.execute("BEGIN IMMEDIATE")
            try:
                for job in jobs:
                    self._try(connection, job)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        if self.sync and connection.total_changes > before:
            self._sync()

    def _sync(self) -> None:
        """Wait for the disk when others may write again: processes that wait at once are served by one write.

        What is in the log counts as far as it is whole, so that nothing acknowledged can be behind something lost.
        """
        try:
            fd = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_data(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return  # no log can be had on this filesystem
        except OSError as error:  # a second try may say yes and be wrong
            self._failed = StoreError(f"{self.path} could not be written: {error.strerror}")
            raise self._failed from error

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


# Sessions ---------------------------------------------------------------------------------------------


class SQLiteStore(SQLStore):
    """Keep all conversations in one SQLite file (WAL, so not on a network drive)."""

    _prefix = ""
    _body = "body"
    _columns, _values = "text, body", "?, ?"
    _among = "id IN (SELECT value FROM json_each(?))"
    _excluding = "body = json_set(body, '$.excluded', json('true'))"
    _live = "json_extract(body, '$.excluded') IS NOT 1"
    _matches = """
        SELECT s.id, m.id, role, text, at FROM (
            SELECT m.number AS found, rank AS place FROM words
            JOIN glue_messages AS m ON m.number = words.rowid JOIN glue_sessions AS s ON s.number = session
            WHERE words MATCH ?{where} ORDER BY rank, at DESC LIMIT ?
        ) JOIN glue_messages AS m ON m.number = found JOIN glue_sessions AS s ON s.number = session
        ORDER BY place, at DESC"""  # the texts only of those that are wanted

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        self.path = Path(path)
        self.sync = sync

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open the file to read, for the length of a `with`; whatever SQLite says against it is a StoreError."""
        import sqlite3

        path = Path(os.path.realpath(self.path))
        tables = "SELECT count(*) FROM sqlite_master WHERE name = 'sessions'"
        with store_errors(self.path), contextlib.ExitStack() as stack:

            def opened(uri: str = "") -> Connection:
                return stack.enter_context(contextlib.closing(_connect(path, uri=uri)))

            connection, is_store = None, 0
            if path.exists():
                connection = opened()
                try:
                    is_store = connection.execute(tables).fetchone()[0]
                except sqlite3.OperationalError:
                    # No shared memory can be made on a read-only filesystem; nobody writes there either.
                    connection = opened(f"{path.as_uri()}?mode=ro&immutable=1")
                    is_store = connection.execute(tables).fetchone()[0]
            if connection is None or not is_store:
                connection = opened("file::memory:")
                connection.executescript(_SCHEMA.read_text())
            yield connection

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

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self, id, first)

    def _get(self, work: Callable[[Connection], T]) -> T:
        with self.connect() as connection:
            return work(connection)

    def _change(self, id: str, work: Callable[[Connection], T]) -> T:
        with self.taking(id) as database:
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
    """Writes one session of a file, which it holds as long as it is open."""

    store: SQLiteStore

    def __init__(self, store: SQLiteStore, id: str, first: Record) -> None:
        super().__init__(store, id, first)
        self.stack = contextlib.ExitStack()
        self.database: Database | None = None

    def open(self, fold: Fold) -> None:
        try:
            self.database = self.stack.enter_context(self.store.taking(self.id))
        except OSError as error:  # no lock can be made: a read-only filesystem, say
            return self.open_to_read(fold, read_only(self.id, self.store.path, error), error)
        if self.database.read(self.is_there):
            found = self.database.read(self.find)
        else:
            found = self.database.run(lambda connection: self.store.begin(connection, self.first)), self.first, 0, []
        return self.take_in(fold, found, self.database.schema)

    def is_there(self, connection: Connection) -> bool:
        return connection.execute("SELECT 1 FROM sessions WHERE id = ?", (self.id,)).fetchone() is not None

    def write(self, records: Sequence[Record]) -> None:
        if self.database is None:
            raise StoreError(f"session {self.id!r} is closed")

        def write(connection: Connection) -> int:
            number = self.number or self.store.begin(connection, self.first)
            self.store.write(connection, number, records)
            connection.execute(
                "UPDATE sessions SET updated = ?, changes = changes + 1 WHERE number = ?", (time.time(), number)
            )
            return number

        self.number = self.database.run(write)
        self.changes += 1

    def close(self) -> None:
        self.database = None
        self.stack.close()


class ExclusiveStore(SQLiteStore):
    """Sessions of a file that this process alone has, by `hold`, on one connection: none needs a lock or a thread.

    A write is some 0.1 ms, without a wait for the disk: it survives kill -9; a power cut may cost the last ones.
    A session begins with its first message: one transaction less.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync=False)
        self.database = Database(path, sync=False)

    def _writer(self, id: str, first: Record) -> _Writer:
        return _ExclusiveWriter(self, id, first)


class _ExclusiveWriter(_Writer):
    blocks = False
    store: ExclusiveStore

    def open(self, fold: Fold) -> None:
        self.database = self.store.database
        if self.database.read(self.is_there):
            return self.take_in(fold, self.database.read(self.find))
        self.number, self.head, self.changes = 0, self.first, 0
        fold.clear()
        fold.apply(self.first)
        return None

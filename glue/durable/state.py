"""The state of a map in SQLite, beside its output: a result for each row, in the file that keeps the sessions."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from glue.durable.rows import OPEN, InputLine, MapRow
from glue.errors import ConfigError, NewerSchema, SessionBusy, StoreError
from glue.messages import Json, new_id
from glue.stores.sqlite import _WRITES, Database, SessionLocks, SQLiteStore, _Writer, hold
from glue.stores.store import Fold, Log, Record, check_id, header

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS map (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS map_rows (
    number INTEGER PRIMARY KEY,
    digest TEXT NOT NULL,
    outcome TEXT NOT NULL,
    cost REAL,
    tokens INTEGER NOT NULL,
    line TEXT NOT NULL
);
"""


class SharedStore(SQLiteStore):
    """Sessions of one process through one connection: the map holds the file, so no session needs a lock or a thread.

    A write is some 0.1 ms, without a wait for the disk: it survives kill -9; a power cut may cost the last rows.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync=False)
        self._database: Database | None = None

    def open(self) -> None:
        self._database = Database(self.path, sync=False)
        self._database.open()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def database(self) -> Database:
        if self._database is None:
            raise StoreError(f"{self.path} is closed")
        return self._database

    def log(
        self, id: str, *, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
    ) -> Log:
        return _SharedLog(id, _SharedWriter(self, check_id(id), header(id, parent, forked_at, meta)))


class _SharedLog(Log):
    async def __aenter__(self) -> Log:
        self._writer.open(self._fold)  # as quick as a thread would be to start
        self._entered = True
        return self


class _SharedWriter(_Writer):
    """Begins a session with its first message: one transaction less for every row."""

    blocks = False
    store: SharedStore

    def open(self, fold: Fold) -> None:
        self.database = self.store.database
        found = self.database.open().execute("SELECT 1 FROM sessions WHERE id = ?", (self.id,)).fetchone()
        if found is not None:
            return self.catch_up(self.database, fold)
        fold.clear()
        fold.apply(self.first)
        return None

    def write(self, records: Sequence[Record]) -> None:
        if self.number:
            return super().write(records)

        def begin(connection: Connection) -> int:
            values = (self.id, json.dumps(self.first), time.time())
            sql = "INSERT INTO sessions(id, header, updated, changes) VALUES (?, ?, ?, 1)"
            number = connection.execute(sql, values).lastrowid or 0
            for record in records:
                _WRITES[record["type"]](connection, number, record)
            return number

        self.number, self.head, self.changes = self.store.database.run(begin), self.first, 1
        return None


class MapState:
    """The rows that have ended, for one map at a time, through the connection of its sessions.

    One connection, in the event loop: two would wait for each other's locks, a hundred times longer than a write takes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.store = SharedStore(self.path)
        self._lock: SessionLocks | None = None

    def open(self, *, resume: bool) -> None:
        """Take the state for this process alone, new or as it was left."""
        if resume and not self.path.exists():
            raise ConfigError(f"there is nothing to resume: {self.path} does not exist")
        try:
            self._lock = hold(self.path, "map")
        except SessionBusy:
            raise SessionBusy(f"{self.path} is in use by another map; one at a time writes an output") from None
        try:
            if not resume:
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            self.store.open()
            self._run(self._begin)
            self.store.database.open().execute("PRAGMA wal_autocheckpoint = 0")
        except BaseException:
            self.close()
            raise

    def _begin(self, connection: Connection) -> None:
        for statement in filter(str.strip, _SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute("INSERT OR IGNORE INTO map VALUES ('version', ?), ('id', ?)", (str(VERSION), new_id()))
        version = int(connection.execute("SELECT value FROM map WHERE name = 'version'").fetchone()[0])
        if version > VERSION:
            raise NewerSchema(
                f"{self.path} was written with schema {version} of map, this version knows {VERSION}:"
                " upgrade glue-agents to go on with it"
            )

    def _run(self, work: Callable[[Connection], T]) -> T:
        return self.store.database.run(work)

    def value(self, name: str) -> str:
        sql = "SELECT value FROM map WHERE name = ?"
        row = self.store.database.open().execute(sql, (name,)).fetchone()
        return row[0] if row is not None else ""

    def put(self, rows: Iterable[tuple[InputLine, MapRow]]) -> None:
        """Keep results; all of them or none."""
        values = [
            (line.number, line.digest, row.outcome, row.cost, row.usage.total, json.dumps(row.to_json()))
            for line, row in rows
        ]
        sql = "INSERT OR REPLACE INTO map_rows VALUES (?, ?, ?, ?, ?, ?)"
        self._run(lambda connection: connection.executemany(sql, values))

    def get(self, number: int) -> tuple[str, str, MapRow] | None:
        """Give the digest, the outcome and the result of a row, or None where it has none."""
        sql = "SELECT digest, outcome, line FROM map_rows WHERE number = ?"
        row = self.store.database.open().execute(sql, (number,)).fetchone()
        return None if row is None else (row[0], row[1], MapRow.from_json(json.loads(row[2])))

    def finished(self, line: InputLine) -> MapRow | None:
        """Give the result of a row that is not to be run again."""
        found = self.get(line.number)
        if found is None or found[1] in OPEN:
            return None
        if found[0] != line.digest:
            raise ConfigError(
                f"line {line.number} is another one than when it was run; give another output, or begin again"
            )
        return found[2]

    def spent(self) -> tuple[float, int]:
        """Add up the dollars and tokens of the rows that stand; the others count when they are taken up."""
        marks = ", ".join("?" * len(OPEN))
        sql = f"SELECT total(cost), coalesce(sum(tokens), 0) FROM map_rows WHERE outcome NOT IN ({marks})"
        row: tuple[Any, Any] = self.store.database.open().execute(sql, tuple(OPEN)).fetchone()
        return float(row[0]), int(row[1])

    def checkpoint(self) -> None:
        """Move what was written into the file, in a thread: it waits for the disk, and keeps nobody from writing."""
        with self.store.connect() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self.store.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

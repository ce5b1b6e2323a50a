"""The state of a map in SQLite, beside its output: a result for each row, in the file that keeps the sessions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue.durable.rows import OPEN, InputLine, MapRow
from glue.errors import ConfigError, NewerSchema, SessionBusy
from glue.messages import new_id
from glue.stores.sqlite import ExclusiveStore, SessionLocks, hold

if TYPE_CHECKING:
    from sqlite3 import Connection

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


class MapState:
    """The rows that have ended, for one map at a time, through the connection of its sessions.

    One connection, in the event loop: two would wait for each other's locks, a hundred times longer than a write takes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.store = ExclusiveStore(self.path)
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
            self.store.database.run(self._begin)
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

    def _one(self, sql: str, *values: object) -> Any:
        return self.store.database.read(lambda connection: connection.execute(sql, values).fetchone())

    def value(self, name: str) -> str:
        row = self._one("SELECT value FROM map WHERE name = ?", name)
        return row[0] if row is not None else ""

    def put(self, rows: Iterable[tuple[InputLine, MapRow]]) -> None:
        """Keep results; all of them or none."""
        values = [
            (line.number, line.digest, row.outcome, row.cost, row.usage.total, json.dumps(row.to_json()))
            for line, row in rows
        ]
        sql = "INSERT OR REPLACE INTO map_rows VALUES (?, ?, ?, ?, ?, ?)"
        self.store.database.run(lambda connection: connection.executemany(sql, values))

    def get(self, number: int) -> tuple[str, str, MapRow] | None:
        """Give the digest, the outcome and the result of a row, or None where it has none."""
        row = self._one("SELECT digest, outcome, line FROM map_rows WHERE number = ?", number)
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
        cost, tokens = self._one(sql, *OPEN)
        return float(cost), int(tokens)

    def checkpoint(self) -> None:
        """Move what was written into the file, in a thread: it waits for the disk, and keeps nobody from writing."""
        with self.store.connect() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self.store.database.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

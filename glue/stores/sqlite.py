"""All conversations in one SQLite file, with an index for full-text search."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from glue.codec import message_from_json
from glue.errors import StoreError
from glue.stores.locks import hold, release
from glue.stores.log import Fold, Log, Record, header
from glue.stores.protocol import Hit, SessionInfo, check_id, describe, missing
from glue.stores.rows import WRITES, change, connect, messages_of, store_error
from glue.stores.search import terms
from glue.types import SCHEMA_VERSION, Json, Message

if TYPE_CHECKING:
    from sqlite3 import Connection


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

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        session: str | None = None,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[Hit, ...]:
        match = " ".join(_quote(term) + ("*" if prefix else "") for term, prefix in terms(query))
        filters = {"sessions.id = ?": session, "role = ?": role, "at >= ?": since, "at <= ?": until}
        used = {clause: value for clause, value in filters.items() if value is not None}
        where = "".join(f" AND {clause}" for clause in used)
        return await anyio.to_thread.run_sync(self._search, where, (match, *used.values(), limit))

    async def delete(self, id: str) -> None:
        await anyio.to_thread.run_sync(self._delete, id)

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open the file for the length of a `with`; whatever SQLite says against it is a StoreError."""
        import sqlite3

        try:
            connection = connect(self.path, self.sync)
            try:
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error

    def _list(self) -> tuple[SessionInfo, ...]:
        sql = """
            SELECT header, updated, (
                SELECT body FROM messages WHERE session = sessions.number AND role = 'user' ORDER BY position LIMIT 1
            ) FROM sessions ORDER BY updated DESC"""
        with self.connect() as connection:
            rows = connection.execute(sql).fetchall()
        return tuple(
            describe(json.loads(head), [message_from_json(json.loads(first))] if first else [], updated)
            for head, updated, first in rows
        )

    def _load(self, id: str) -> tuple[Message, ...]:
        with self.connect() as connection:
            number, _, _ = self._row(connection, id)
            return tuple(messages_of(connection, number))

    def _row(self, connection: Connection, id: str) -> tuple[int, Record, int]:
        row = connection.execute("SELECT number, header, changes FROM sessions WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise missing(id, [there for (there,) in connection.execute("SELECT id FROM sessions ORDER BY id LIMIT 9")])
        return row[0], json.loads(row[1]), row[2]

    def _search(self, where: str, values: tuple[Any, ...]) -> tuple[Hit, ...]:
        sql = f"""
            SELECT sessions.id, messages.id, role, snippet(words, 0, '[', ']', '…', 16), at
            FROM words JOIN messages ON messages.number = words.rowid JOIN sessions ON sessions.number = session
            WHERE words MATCH ?{where} ORDER BY words.rank LIMIT ?"""
        with self.connect() as connection:
            rows = connection.execute(sql, values).fetchall()
        return tuple(
            Hit(session=session, message_id=key, role=role, snippet=" ".join(text.split()), at=at)
            for session, key, role, text, at in rows
        )

    def _delete(self, id: str) -> None:
        with self.connect() as connection:
            number, _, _ = self._row(connection, id)
            fd = hold(self.path, id)
            try:
                with change(connection):
                    connection.execute("DELETE FROM messages WHERE session = ?", (number,))
                    connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
            finally:
                release(self.path, id, fd)


class _Writer:
    blocks = True

    def __init__(self, store: SQLiteStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first
        self.stack = contextlib.ExitStack()
        self.connection: Connection | None = None
        self.number = 0
        self.head: Record = {}  # with the changes, of the session when the fold was last in step with it
        self.changes = -1

    def open(self, fold: Fold) -> None:
        import sqlite3

        fd = hold(self.store.path, self.id)
        self.stack.callback(release, self.store.path, self.id, fd)
        self.connection = self.stack.enter_context(self.store.connect())
        try:
            self._catch_up(self.connection, fold)
        except sqlite3.Error as error:
            raise store_error(error, self.store.path) from error

    def _catch_up(self, connection: Connection, fold: Fold) -> None:
        schema = connection.execute("PRAGMA user_version").fetchone()[0]
        if schema <= SCHEMA_VERSION:
            with change(connection):
                connection.execute(
                    "INSERT OR IGNORE INTO sessions(id, header, updated) VALUES (?, ?, ?)",
                    (self.id, json.dumps(self.first), self.first["created"]),
                )
        self.number, head, changes = self.store._row(connection, self.id)
        if (head, changes) != (self.head, self.changes):
            fold.clear()
            fold.apply({**head, "schema": max(schema, head.get("schema", 0))})
            fold.messages = list(messages_of(connection, self.number))
            self.head, self.changes = head, changes

    def write(self, records: Sequence[Record]) -> None:
        import sqlite3

        connection = self.connection
        if connection is None:
            raise StoreError(f"session {self.id!r} is closed")
        try:
            with change(connection):
                for record in records:
                    WRITES[record["type"]](connection, self.number, record)
                connection.execute(
                    "UPDATE sessions SET updated = ?, changes = changes + 1 WHERE number = ?",
                    (time.time(), self.number),
                )
        except sqlite3.Error as error:
            raise store_error(error, self.store.path) from error
        self.changes += 1

    def close(self) -> None:
        self.connection = None
        self.stack.close()


def _quote(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'

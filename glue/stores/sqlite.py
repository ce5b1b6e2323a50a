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

from glue.errors import StoreError
from glue.messages import SCHEMA_VERSION, Json, Message, message_from_json, message_to_json
from glue.stores.store import (
    Fold,
    Log,
    Record,
    SearchHit,
    SessionInfo,
    check_id,
    describe,
    header,
    hold,
    missing,
    release,
    role_of,
    searchable,
    terms,
)

if TYPE_CHECKING:
    from sqlite3 import Connection


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


def connect(path: Path, sync: bool) -> Connection:
    import sqlite3

    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would go by the umask
    connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            connection.execute("PRAGMA query_only = ON")
        elif version < SCHEMA_VERSION:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def store_error(error: Exception, path: Path) -> StoreError:
    if "fts5" in str(error):
        return StoreError("this Python's SQLite was built without FTS5, which SQLiteStore needs; use FileStore")
    return StoreError(f"{path}: {error}")


@contextlib.contextmanager
def change(connection: Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def messages_of(connection: Connection, number: int) -> Iterator[Message]:
    rows = connection.execute("SELECT body FROM messages WHERE session = ? ORDER BY position", (number,))
    return (message_from_json(json.loads(body)) for (body,) in rows)


def _add(connection: Connection, session: int, record: Record) -> None:
    position = _last(connection, session) + 1.0
    if "before" in record:
        position = _between(connection, session, record["before"])
    _put(connection, session, position, record["at"], message_from_json(record["message"]))


def _put(connection: Connection, session: int, position: float, at: float, message: Message) -> None:
    body = json.dumps(message_to_json(message))
    text = searchable(message).encode(errors="replace").decode()
    connection.execute(
        "INSERT INTO messages(session, position, id, role, at, text, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (session, position, message.id, role_of(message), at, text, body),
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
    sql = "SELECT number, position, at, body FROM messages WHERE session = ? AND id = ? ORDER BY position DESC"
    row = connection.execute(sql, (session, id)).fetchone()
    if row is None:
        raise StoreError(f"there is no message {id!r} in this session")
    return row[0], row[1], row[2], message_from_json(json.loads(row[3]))


def _amend(connection: Connection, session: int, record: Record) -> None:
    number, position, at, message = _find(connection, session, record["id"])
    connection.execute("DELETE FROM messages WHERE number = ?", (number,))
    changed = message_from_json({**message_to_json(message), **record["fields"]})
    _put(connection, session, position, at, changed)


def _drop(connection: Connection, session: int, record: Record) -> None:
    sql = "DELETE FROM messages WHERE session = ? AND id = ?"
    connection.executemany(sql, [(session, key) for key in record["ids"]])


def _exclude(connection: Connection, session: int, record: Record) -> None:
    for key in record["ids"]:
        with contextlib.suppress(StoreError):  # as with drop: what is not there needs no excluding
            _amend(connection, session, {"id": key, "fields": {"excluded": True}})


WRITES = {"message": _add, "amend": _amend, "drop": _drop, "exclude": _exclude}


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
    ) -> tuple[SearchHit, ...]:
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

    def _search(self, where: str, values: tuple[Any, ...]) -> tuple[SearchHit, ...]:
        sql = f"""
            SELECT sessions.id, messages.id, role, snippet(words, 0, '[', ']', '…', 16), at
            FROM words JOIN messages ON messages.number = words.rowid JOIN sessions ON sessions.number = session
            WHERE words MATCH ?{where} ORDER BY words.rank LIMIT ?"""
        with self.connect() as connection:
            rows = connection.execute(sql, values).fetchall()
        return tuple(
            SearchHit(session=session, message_id=key, role=role, snippet=" ".join(text.split()), at=at)
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

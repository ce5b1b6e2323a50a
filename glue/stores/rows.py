"""Conversations as rows of SQLite tables, one commit a change."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from glue.codec import message_from_json, message_to_json
from glue.errors import StoreError
from glue.stores.log import Record
from glue.stores.search import role_of, searchable
from glue.types import SCHEMA_VERSION, Message

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

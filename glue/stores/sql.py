"""Conversations in a SQL database: what SQLite and Postgres do alike. Records become rows, rows become messages."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from sys import maxsize
from typing import Any, TypeAlias, TypeVar

from glue.errors import StoreError
from glue.messages import Json, Message, message_from_json, message_to_json
from glue.stores import store
from glue.stores.store import BlockingStore, Fold, Query, Record, SearchHit, SessionInfo

T = TypeVar("T")
Connection: TypeAlias = Any  # of sqlite3 or of psycopg, each imported only where it is used
Found: TypeAlias = tuple[int, Record, int, "list[Any] | None"]  # number, header, changes, and rows of messages


class SQLStore(BlockingStore):
    """A store in two tables. Statements are written with ? for a value and glue_ before a table."""

    _prefix, _mark = "glue_", "?"
    _body: str  # the columns that a message is read from
    _columns: str  # of a message, but for those that all have
    _values: str  # and the places of what goes there
    _among: str  # the condition that a message is one of some ids, given as JSON
    _excluding: str  # what marks a message as excluded
    _live: str  # the condition that it is not
    _free = ""  # a further condition that a session may be deleted
    _matches: str  # gives the hits of a search, the best first
    _encode: Callable[[Message, Mapping[str, Json]], tuple[object, ...]]  # gives what goes into the columns
    _decode: Callable[..., Message | None]  # makes the message of them again; None where only a newer version can
    _match: Callable[[Query], str]  # writes a search as the database wants it
    _found_text: Callable[[str], str | None]  # gives the text of a hit; None where only a newer version can

    def _get(self, work: Callable[[Connection], T]) -> T:
        """Do something that only reads."""
        raise NotImplementedError

    def _change(self, id: str, work: Callable[[Connection], T]) -> T:
        """Do something in a transaction, while nobody else has the session."""
        raise NotImplementedError

    # The methods of a store ----------------------------------------------------------------------------

    def _list(self) -> tuple[SessionInfo, ...]:
        sql = """
            SELECT id, header, updated, (
                SELECT body FROM glue_messages AS m WHERE m.session = s.number AND role = 'user'
                ORDER BY position LIMIT 1
            ) FROM glue_sessions AS s ORDER BY updated DESC"""
        rows = self._get(lambda connection: self.execute(connection, sql).fetchall())
        infos = []
        for name, head, updated, body in rows:
            first = store.read_message(loads(body or ""))
            infos.append(store.describe(header_of(name, head), [first] if first else [], updated))
        return tuple(infos)

    def _read(self, id: str) -> tuple[tuple[Message, ...], Mapping[str, float], Record]:
        _, head, _, rows = self._get(lambda connection: self.find(connection, id))
        return tuple(self.messages(rows or ())), {key: at for key, at, *_ in rows or ()}, head

    def _search(self, query: Query) -> tuple[SearchHit, ...]:
        filters = {
            "s.id = ?": query.session,
            "role = ?": query.role,
            "at >= ?": query.since,
            "at <= ?": query.until,
        }
        used = {clause: value for clause, value in filters.items() if value is not None}
        sql = self._matches.format(where="".join(f" AND {clause}" for clause in used))

        def look(connection: Connection) -> Sequence[Any]:
            if query.session is not None:
                self.row(connection, query.session)
            found: Sequence[Any] = self.execute(
                connection, sql, self._match(query), *used.values(), min(query.limit, maxsize)
            ).fetchall()
            return found

        return tuple(
            SearchHit(session=session, message_id=key, role=role, snippet=query.snippet(text) or beginning(text), at=at)
            for session, key, role, found, at in self._get(look)
            if (text := self._found_text(found)) is not None
        )

    def _delete(self, id: str) -> None:
        def delete(connection: Connection) -> None:
            number = self.row(connection, id)[0]
            if not self.execute(connection, f"DELETE FROM glue_sessions WHERE number = ?{self._free}", number).rowcount:
                raise store.busy(id)

        self._get(lambda connection: self.row(connection, id))
        self._change(id, delete)

    async def fork(self, id: str, new_id: str, *, at: int | None = None, live: bool = False) -> None:
        """Copy a session within this store, row by row."""
        store.check_id(new_id)

        def copy() -> None:
            self._get(lambda connection: self.row(connection, id))  # no file is made for what is not there
            self._change(new_id, lambda connection: self._copy(connection, id, new_id, at, live))

        await self._in_thread(copy)

    def _copy(self, connection: Connection, id: str, new_id: str, at: int | None, live: bool) -> None:
        count = "SELECT count(*) FROM glue_messages WHERE session = ?"
        number, old, _ = self.row(connection, id)
        (there,) = self.execute(connection, count, number).fetchone()
        store.check_fork(id, at, there)
        head = store.header(new_id, id, there if at is None else at, old.get("meta"))
        new = self.begin(connection, head)
        (taken,) = self.execute(connection, count, new).fetchone()
        if taken:
            raise store.taken_already(new_id, taken)
        sql = f"""
            INSERT INTO glue_messages(session, position, id, role, at, {self._columns})
            SELECT ?, position, id, role, at, {self._columns} FROM
            (SELECT * FROM glue_messages WHERE session = ? ORDER BY position LIMIT ?) AS taken"""
        sql += f" WHERE {self._live}" if live else ""
        self.execute(connection, sql, new, number, head["forked_at"])

    # Records and rows ----------------------------------------------------------------------------------

    def execute(self, connection: Connection, sql: str, *values: object) -> Any:
        return connection.execute(self._text(sql), values)

    def _text(self, sql: str) -> str:
        return sql.replace("?", self._mark).replace("glue_", self._prefix)

    def row(self, connection: Connection, id: str) -> tuple[int, Record, int]:
        """Give the number, the header and the changes of a session."""
        sql = "SELECT number, header, changes FROM glue_sessions WHERE id = ?"
        row = self.execute(connection, sql, store.check_id(id)).fetchone()
        if row is None:
            there = self.execute(connection, "SELECT id FROM glue_sessions ORDER BY id LIMIT 9").fetchall()
            raise store.missing(id, [name for (name,) in there])
        return row[0], header_of(id, row[1]), row[2]

    def find(self, connection: Connection, id: str, seen: object = None) -> Found:
        """Give a session with its messages, None where they are those that were seen, by header and changes."""
        number, head, changes = self.row(connection, id)
        if (head, changes) == seen:
            return number, head, changes, None
        sql = f"SELECT id, at, {self._body} FROM glue_messages WHERE session = ? ORDER BY position"
        return number, head, changes, self.execute(connection, sql, number).fetchall()

    def messages(self, rows: Sequence[Any]) -> list[Message]:
        """Make messages of rows; those of a newer version are passed over."""
        return [message for _, _, *body in rows if (message := self._decode(*body)) is not None]

    def begin(self, connection: Connection, head: Record) -> int:
        """Add a session where it is not there; give its number."""
        sql = "INSERT INTO glue_sessions(id, header, updated) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        self.execute(connection, sql, head["session"], json.dumps(head), head["created"])
        return self.row(connection, head["session"])[0]

    def write(self, connection: Connection, session: int, records: Sequence[Record]) -> None:
        """Keep records of one kind; messages that go to the end all at once."""
        first = records[0]
        if first["type"] == "message" and "before" not in first:
            sql = "SELECT coalesce(max(position), 0) FROM glue_messages WHERE session = ?"
            (last,) = self.execute(connection, sql, session).fetchone()
            rows = [(last + place, record["at"], record["message"]) for place, record in enumerate(records, 1)]
            return self._put(connection, session, rows)
        for record in records:
            if record["type"] == "message":
                place = self._between(connection, session, record["before"])
                self._put(connection, session, [(place, record["at"], record["message"])])
            elif record["type"] == "amend":
                position, number, at, message = self._there(connection, session, record["id"])
                changed = message_to_json(store.amended(message, record["fields"]))
                self.execute(connection, "DELETE FROM glue_messages WHERE number = ?", number)
                self._put(connection, session, [(position, at, changed)])
            elif record["type"] == "drop":
                self._some(connection, "DELETE FROM glue_messages", session, record["ids"])
            elif record["type"] == "exclude":
                self._some(connection, f"UPDATE glue_messages SET {self._excluding}", session, record["ids"])
        return None

    def _put(self, connection: Connection, session: int, rows: Sequence[tuple[float, float, Json]]) -> None:
        sql = f"""
            INSERT INTO glue_messages(session, position, id, role, at, {self._columns})
            VALUES (?, ?, ?, ?, ?, {self._values})"""
        values = []
        for position, at, data in rows:
            message = message_from_json(data)
            values.append((session, position, message.id, store.role_of(message), at, *self._encode(message, data)))
        connection.cursor().executemany(self._text(sql), values)

    def _some(self, connection: Connection, what: str, session: int, ids: Sequence[str]) -> None:
        self.execute(connection, f"{what} WHERE session = ? AND {self._among}", session, json.dumps(ids))

    def _there(self, connection: Connection, session: int, id: str) -> tuple[float, int, float, Message]:
        # Sorted here: asked to sort, SQLite may walk through the session by position instead of looking the id up.
        sql = f"SELECT position, number, at, {self._body} FROM glue_messages WHERE session = ? AND id = ?"
        rows = self.execute(connection, sql, session, id).fetchall()
        position, number, at, *body = max(rows, default=(0.0, 0, 0.0))
        message = self._decode(*body) if body else None
        if message is None:
            raise StoreError(f"there is no message {id!r} in this session")
        return position, number, at, message

    def _between(self, connection: Connection, session: int, id: str) -> float:
        """Find a position before a message; number all anew where there is none left."""
        after = self._there(connection, session, id)[0]
        sql = "SELECT max(position) FROM glue_messages WHERE session = ? AND position < ?"
        (before,) = self.execute(connection, sql, session, after).fetchone()
        before = after - 2.0 if before is None else before
        middle: float = (before + after) / 2
        if before < middle < after:
            return middle
        sql = "SELECT number FROM glue_messages WHERE session = ? ORDER BY position"
        numbers = self.execute(connection, sql, session).fetchall()
        places = [(float(place), number) for place, (number,) in enumerate(numbers, 1)]
        connection.cursor().executemany(self._text("UPDATE glue_messages SET position = ? WHERE number = ?"), places)
        return self._there(connection, session, id)[0] - 0.5


def beginning(text: str) -> str:
    """Cut a piece out of a text that fits a search only as the database sees words."""
    return store.join_words(text[: 2 * store.AROUND]) + "…" * (len(text) > 2 * store.AROUND)


def loads(text: str) -> Json:
    """Decode a column; what is damaged is None, and stays as it is."""
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return None


def header_of(id: str, text: str) -> Record:
    """Give the header of a session; one that is damaged is as good as a plain one."""
    found = loads(text)
    return {"type": "header", "session": id, **(found if isinstance(found, dict) else {})}


class SQLWriter:
    """What a writer knows of its session: the number, and the header and changes that its fold stands for."""

    blocks = True

    def __init__(self, store: SQLStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first
        self.number = 0
        self.head: Record = {}
        self.changes = -1

    def find(self, connection: Connection) -> Found:
        return self.store.find(connection, self.id, (self.head, self.changes))

    def open_to_read(self, fold: Fold, why: str, cause: Exception) -> None:
        """Read a session that may not be changed; one that is not there cannot be made either."""
        try:
            self.take_in(fold, self.store._get(self.find))
        except StoreError:
            raise StoreError(why) from cause
        fold.read_only = fold.read_only or why

    def take_in(self, fold: Fold, found: Found, schema: int = 0) -> None:
        """Bring the fold up to date with what was found; `schema` is that of the tables."""
        self.number, self.head, self.changes, rows = found
        fold.apply({**self.head, "schema": max(schema, self.head.get("schema", 0))})
        if rows is not None:
            fold.messages = self.store.messages(rows)

"""Sessions in a SQL database: the code that SQLite and PostgreSQL stores share.

A session is a row of `glue_sessions` and its messages are rows of `glue_messages`. `write` turns
records into rows, and `messages` turns rows into messages.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from sys import maxsize
from typing import Any, TypeAlias, TypeVar

from glue.errors import StoreError
from glue.messages import Json, Message, message_from_json, message_to_json
from glue.stores.records import (
    Record,
    StoredSession,
    amend_message,
    check_id,
    collector_paused,
    new_header,
    read_message,
)
from glue.stores.search import AROUND, Query, SearchHit, join_words, role_of
from glue.stores.store import (
    BlockingStore,
    SessionInfo,
    check_fork,
    no_session,
    session_busy,
    session_exists,
    session_info,
)

T = TypeVar("T")
Connection: TypeAlias = Any  # of sqlite3 or psycopg
# The number of a session, its header, its count of changes, and the rows of its messages. The rows
# are None if the caller has read them already.
Found: TypeAlias = tuple[int, Record, int, "list[Any] | None"]


class SQLStore(BlockingStore):
    """The base class of stores in a SQL database, with tables for sessions and for messages.

    Statements are written with `?` for values and `glue_` before table names. `_text` replaces
    these by `_mark` and `_prefix` of the subclass.
    """

    _prefix, _mark = "glue_", "?"
    _body: str  # the columns from which a message is decoded
    _columns: str  # the columns of a message that only this database has
    _values: str  # placeholders for these columns
    _among: str  # condition: the id of a message is in a JSON list
    _excluding: str  # assignment that marks a message as excluded
    _live: str  # condition: a message is not excluded
    _free = ""  # further condition under which a session may be deleted
    _matches: str  # query that returns the hits of a search, the best first
    # Returns the values of `_columns` for a message and its JSON.
    _encode: Callable[[Message, Mapping[str, Json]], tuple[object, ...]]
    # Returns the message for the values of `_body`, or None if a newer version wrote it.
    _decode: Callable[..., Message | None]
    # Returns a query in the search syntax of the database.
    _match: Callable[[Query], str]
    # Returns the searched text of a hit, or None if a newer version wrote it.
    _found_text: Callable[[str], str | None]

    now: str  # expression: the current time in seconds since 1970
    notifies = False  # whether the database has advisory locks, row locks and notifications

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Call `work` with a connection in a transaction, and return its result.

        If the connection breaks, `work` may be called again.
        """
        raise NotImplementedError

    def kept_open(self) -> contextlib.AbstractContextManager[object]:
        """Return a context manager that keeps the database file open between transactions.

        For a store without a file, the context manager does nothing.
        """
        return contextlib.nullcontext()

    def is_away(self, error: StoreError) -> bool:
        """Return whether an error means that the server is unreachable at the moment."""
        return False

    def twin(self) -> SQLStore:
        """Return a store for the same sessions that does not share connections with this store.

        A store that opens its file for each transaction returns itself.
        """
        return self

    def disconnect(self) -> None:
        """Close idle connections to a server. The store can be used again afterwards."""

    def _get(self, work: Callable[[Connection], T]) -> T:
        """Call `work`, which only reads, with a connection, and return its result."""
        raise NotImplementedError

    def _change(self, id: str, work: Callable[[Connection], T]) -> T:
        """Call `work`, which creates or changes the session `id`, in a transaction.

        Return the result of `work`. A SQLite store locks the session meanwhile. Raise NewerSchema
        if a newer version of glue created the tables.
        """
        raise NotImplementedError

    # The methods of a store -----------------------------------------------------------------------

    def _list(self) -> tuple[SessionInfo, ...]:
        sql = """
            SELECT id, header, updated, (
                SELECT body FROM glue_messages AS m WHERE m.session = s.number AND role = 'user'
                ORDER BY position LIMIT 1
            ) FROM glue_sessions AS s ORDER BY updated DESC"""
        rows = self._get(lambda connection: self.execute(connection, sql).fetchall())
        infos = []
        for name, head, updated, body in rows:
            first = read_message(loads(body or ""))
            infos.append(session_info(header_of(name, head), [first] if first else [], updated))
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

        def select(connection: Connection) -> Sequence[Any]:
            if query.session is not None:
                self.row(connection, query.session)
            values = (self._match(query), *used.values(), min(query.limit, maxsize))
            found: Sequence[Any] = self.execute(connection, sql, *values).fetchall()
            return found

        hits = []
        for session, key, role, found, at in self._get(select):
            text = self._found_text(found)
            if text is not None:
                # The database may split a text into other words, so `snippet` may find no match.
                snippet = query.snippet(text) or beginning(text)
                hits.append(
                    SearchHit(session=session, message_id=key, role=role, snippet=snippet, at=at)
                )
        return tuple(hits)

    def _delete(self, id: str) -> None:
        def delete(connection: Connection) -> None:
            number = self.row(connection, id)[0]
            sql = f"DELETE FROM glue_sessions WHERE number = ?{self._free}"
            if not self.execute(connection, sql, number).rowcount:
                raise session_busy(id)

        self._get(lambda connection: self.row(connection, id))
        self._change(id, delete)

    async def vacuum(self) -> None:
        """Make the disk space of deleted sessions available again."""
        await self._in_thread(self._vacuum)

    def _vacuum(self) -> None:
        raise NotImplementedError

    async def fork(
        self, id: str, new_id: str, *, at: int | None = None, live: bool = False
    ) -> None:
        """Copy the session `id` of this store to a new session `new_id` of this store.

        `at` and `live` are those of the function `copy`. The messages are copied inside the
        database, without loading them.
        """
        check_id(new_id)

        def copy() -> None:
            # Checked first, so that no database file is created for a session that does not exist.
            self._get(lambda connection: self.row(connection, id))
            self._change(new_id, lambda connection: self._copy(connection, id, new_id, at, live))

        await self._in_thread(copy)

    def _copy(
        self, connection: Connection, id: str, new_id: str, at: int | None, live: bool
    ) -> None:
        count = "SELECT count(*) FROM glue_messages WHERE session = ?"
        number, old, _ = self.row(connection, id)
        (total,) = self.execute(connection, count, number).fetchone()
        check_fork(id, at, total)
        head = new_header(new_id, id, total if at is None else at, old.get("meta"))
        new = self.begin(connection, head)
        (taken,) = self.execute(connection, count, new).fetchone()
        if taken:
            raise session_exists(new_id, taken)
        sql = f"""
            INSERT INTO glue_messages(session, position, id, role, at, {self._columns})
            SELECT ?, position, id, role, at, {self._columns} FROM
            (SELECT * FROM glue_messages WHERE session = ? ORDER BY position LIMIT ?) AS taken"""
        sql += f" WHERE {self._live}" if live else ""
        self.execute(connection, sql, new, number, head["forked_at"])

    # Records and rows -----------------------------------------------------------------------------

    def execute(self, connection: Connection, sql: str, *values: object) -> Any:
        return connection.execute(self._text(sql), values)

    def _text(self, sql: str) -> str:
        return sql.replace("?", self._mark).replace("glue_", self._prefix)

    def row(self, connection: Connection, id: str) -> tuple[int, Record, int]:
        """Return the row number, the header and the count of changes of the session `id`.

        Raise StoreError if the session does not exist.
        """
        sql = "SELECT number, header, changes FROM glue_sessions WHERE id = ?"
        row = self.execute(connection, sql, check_id(id)).fetchone()
        if row is None:
            sql = "SELECT id FROM glue_sessions ORDER BY id LIMIT 9"
            known = self.execute(connection, sql).fetchall()
            raise no_session(id, [name for (name,) in known])
        return row[0], header_of(id, row[1]), row[2]

    def find(self, connection: Connection, id: str, seen: object = None) -> Found:
        """Return a session's number, header, change count and rows; the rows are None if unchanged.

        Args:
            connection: the connection to read with.
            id: the session.
            seen: the header and count of changes at the caller's last read. If they have not
                changed, the messages are not read, and the rows are None.
        """
        number, head, changes = self.row(connection, id)
        if (head, changes) == seen:
            return number, head, changes, None
        sql = f"SELECT id, at, {self._body} FROM glue_messages WHERE session = ? ORDER BY position"
        return number, head, changes, self.execute(connection, sql, number).fetchall()

    def messages(self, rows: Sequence[Any]) -> list[Message]:
        """Return the messages in database rows; skip damaged rows and rows of a newer version."""
        with collector_paused():
            decoded = [self._decode(*body) for _, _, *body in rows]
        return [message for message in decoded if message is not None]

    def begin(self, connection: Connection, head: Record) -> int:
        """Insert a session with the header `head` if its id is new. Return the session's number."""
        sql = """
            INSERT INTO glue_sessions(id, header, updated) VALUES (?, ?, ?)
            ON CONFLICT DO NOTHING"""
        self.execute(connection, sql, head["session"], json.dumps(head), head["created"])
        return self.row(connection, head["session"])[0]

    def write(self, connection: Connection, session: int, records: Sequence[Record]) -> None:
        """Insert, amend, delete or exclude messages of a session, as `records` require.

        All records have the same type. `session` is the number of the session.
        """
        first = records[0]
        if first["type"] == "message" and "before" not in first:
            sql = "SELECT coalesce(max(position), 0) FROM glue_messages WHERE session = ?"
            (last,) = self.execute(connection, sql, session).fetchone()
            rows = [
                (last + place, record["at"], record["message"])
                for place, record in enumerate(records, 1)
            ]
            return self._put(connection, session, rows)
        for record in records:
            if record["type"] == "message":
                place = self._place_before(connection, session, record["before"])
                self._put(connection, session, [(place, record["at"], record["message"])])
            elif record["type"] == "amend":
                position, number, at, message = self._message(connection, session, record["id"])
                changed = message_to_json(amend_message(message, record["fields"]))
                self.execute(connection, "DELETE FROM glue_messages WHERE number = ?", number)
                self._put(connection, session, [(position, at, changed)])
            elif record["type"] == "drop":
                self._each(connection, "DELETE FROM glue_messages", session, record["ids"])
            elif record["type"] == "exclude":
                change = f"UPDATE glue_messages SET {self._excluding}"
                self._each(connection, change, session, record["ids"])
        return None

    def _put(
        self, connection: Connection, session: int, rows: Sequence[tuple[float, float, Json]]
    ) -> None:
        sql = f"""
            INSERT INTO glue_messages(session, position, id, role, at, {self._columns})
            VALUES (?, ?, ?, ?, ?, {self._values})"""
        values = []
        for position, at, data in rows:
            message = message_from_json(data)
            shared = (session, position, message.id, role_of(message), at)
            values.append((*shared, *self._encode(message, data)))
        connection.cursor().executemany(self._text(sql), values)

    def _each(self, connection: Connection, change: str, session: int, ids: Sequence[str]) -> None:
        sql = f"{change} WHERE session = ? AND {self._among}"
        self.execute(connection, sql, session, json.dumps(ids))

    def _message(
        self, connection: Connection, session: int, id: str
    ) -> tuple[float, int, float, Message]:
        """Return the position, the row number, the storage time and the content of a message.

        Raise StoreError if the session does not contain the message `id`.
        """
        # The rows are sorted here, because with ORDER BY, SQLite may scan all rows of the session.
        sql = (
            f"SELECT position, number, at, {self._body} FROM glue_messages"
            " WHERE session = ? AND id = ?"
        )
        rows = self.execute(connection, sql, session, id).fetchall()
        position, number, at, *body = max(rows, default=(0.0, 0, 0.0))
        message = self._decode(*body) if body else None
        if message is None:
            raise StoreError(f"there is no message {id!r} in this session")
        return position, number, at, message

    def _place_before(self, connection: Connection, session: int, id: str) -> float:
        """Return a free position before the message `id`; renumber the messages if none is free."""
        after = self._message(connection, session, id)[0]
        sql = "SELECT max(position) FROM glue_messages WHERE session = ? AND position < ?"
        (before,) = self.execute(connection, sql, session, after).fetchone()
        before = after - 2.0 if before is None else before
        middle: float = (before + after) / 2
        if before < middle < after:
            return middle
        sql = "SELECT number FROM glue_messages WHERE session = ? ORDER BY position"
        numbers = self.execute(connection, sql, session).fetchall()
        places = [(float(place), number) for place, (number,) in enumerate(numbers, 1)]
        sql = "UPDATE glue_messages SET position = ? WHERE number = ?"
        connection.cursor().executemany(self._text(sql), places)
        return self._message(connection, session, id)[0] - 0.5


class SQLWriter:
    """A writer to a session in a SQL database.

    The writer remembers the header and the count of changes that it read last. It reads the
    messages again only if one of these has changed.
    """

    blocks = True
    number: int  # of the session in the database; set when the session is loaded

    def __init__(self, store: SQLStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first
        self.head: Record = {}
        self.changes = -1

    def find(self, connection: Connection) -> Found:
        return self.store.find(connection, self.id, (self.head, self.changes))

    def open_read_only(self, stored: StoredSession, reason: str, cause: Exception) -> None:
        """Load into `stored` a session that must not be changed, and set `stored.read_only`.

        A reason that the session already has is kept; otherwise the value is `reason`. If the
        session cannot be loaded, raise StoreError with `reason` as its message.
        """
        try:
            self.load_into(stored, self.store._get(self.find))
        except StoreError:
            raise StoreError(reason) from cause
        stored.read_only = stored.read_only or reason

    def load_into(self, stored: StoredSession, found: Found, schema: int = 0) -> None:
        """Load the session `found` into `stored`, and remember its number, header and changes.

        `found` is a result of `find`. If a newer version of glue created the tables, `schema` is
        their version.
        """
        self.number, self.head, self.changes, rows = found
        stored.apply({**self.head, "schema": max(schema, self.head.get("schema", schema))})
        if rows is not None:
            stored.messages = self.store.messages(rows)


def beginning(text: str) -> str:
    """Return the first 120 characters of a text, on one line, as the snippet of a search hit."""
    return join_words(text[: 2 * AROUND]) + "…" * (len(text) > 2 * AROUND)


def loads(text: str) -> Json:
    """Decode the JSON text of a column. Return None if it is not valid JSON."""
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return None


def header_of(id: str, text: str) -> Record:
    """Decode the header of the session `id`. If it is damaged, return a minimal header."""
    found = loads(text)
    return {"type": "header", "session": id, **(found if isinstance(found, dict) else {})}

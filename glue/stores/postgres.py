"""`PostgresStore`: conversations in a Postgres database that any machine can go on with."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import anyio.to_thread

from glue.errors import ConfigError, StoreError
from glue.messages import Json, Message, message_from_json, message_to_json, new_id
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
    missing,
    read_message,
    role_of,
    searchable,
    split_words,
    taken_already,
    terms,
)

T = TypeVar("T")
Connection: TypeAlias = Any  # of psycopg, which is not installed everywhere

LEASE = 6.0  # seconds after which a session of a dead holder may be taken by another
PATIENCE = 30.0  # seconds to wait for a server that was there before and is gone: it may be starting again
CONNECTIONS = 4

MIGRATIONS = (
    """
    CREATE TABLE glue_sessions (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        header TEXT NOT NULL,
        updated DOUBLE PRECISION NOT NULL,
        changes BIGINT NOT NULL DEFAULT 0,
        holder TEXT,
        token BIGINT NOT NULL DEFAULT 0,
        expires TIMESTAMPTZ
    );
    CREATE TABLE glue_messages (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session BIGINT NOT NULL REFERENCES glue_sessions(number) ON DELETE CASCADE,
        position DOUBLE PRECISION NOT NULL,
        id TEXT NOT NULL,
        role TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL,
        excluded BOOLEAN NOT NULL,
        body TEXT NOT NULL,
        words TSVECTOR NOT NULL
    );
    CREATE INDEX glue_messages_by_position ON glue_messages(session, position);
    CREATE INDEX glue_messages_by_id ON glue_messages(session, id);
    CREATE INDEX glue_messages_by_word ON glue_messages USING gin(words);
    """,
)
_MIGRATING = 0x676C7565  # the advisory lock of those who change the tables


class PostgresStore:
    """Keep conversations in Postgres. A session has one writer, on any machine, by a lease that it renews.

    A writer that lost its lease is refused by a fencing token: it cannot write over its successor.
    """

    def __init__(self, url: str, *, lease: float = LEASE) -> None:
        if lease < 1:
            raise ValueError(f"lease must be at least 1 second, not {lease!r}")
        self.url, self.lease = url, lease
        self.pool = _Pool(url)
        self.schema = 0
        self._leases: dict[int, int] = {}  # of our sessions: number and token
        self._renewing = False
        self._guard = threading.Lock()
        weakref.finalize(self, self.pool.close)

    def log(
        self, id: str, *, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
    ) -> Log:
        return Log(id, _Writer(self, _check(id), header(id, parent, forked_at, meta)))

    async def list(self) -> tuple[SessionInfo, ...]:
        sql = """
            SELECT header, updated, (
                SELECT body FROM glue_messages AS m WHERE m.session = s.number AND role = 'user'
                ORDER BY position LIMIT 1
            ) FROM glue_sessions AS s ORDER BY updated DESC"""
        rows = await self._in_thread(lambda connection: connection.execute(sql).fetchall())
        found = [(head, updated, read_message(json.loads(first)) if first else None) for head, updated, first in rows]
        return tuple(describe(json.loads(head), [first] if first else [], updated) for head, updated, first in found)

    async def load(self, id: str) -> tuple[Message, ...]:
        return await self._in_thread(lambda connection: tuple(_messages(connection, _row(connection, id)[0])))

    async def times(self, id: str) -> Mapping[str, float]:
        """Say when each message was stored."""
        sql = "SELECT id, at FROM glue_messages WHERE session = %s"
        return await self._in_thread(
            lambda connection: dict(connection.execute(sql, (_row(connection, id)[0],)).fetchall())
        )

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
        asked = Query(query, limit, session, role, since, until)
        return await self._in_thread(lambda connection: _search(connection, asked))

    async def delete(self, id: str) -> None:
        def delete(connection: Connection) -> None:
            number = _row(connection, id)[0]
            sql = "DELETE FROM glue_sessions WHERE number = %s AND (holder IS NULL OR expires < now())"
            if not connection.execute(sql, (number,)).rowcount:
                raise busy(id)

        await self._in_thread(delete)

    async def fork(self, id: str, new_id: str, *, at: int | None = None, live: bool = False) -> None:
        """Copy a session within this store, row by row."""
        _check(new_id)
        await self._in_thread(lambda connection: _fork(connection, id, new_id, at, live))

    async def aclose(self) -> None:
        """Close the connections; the store may be used again."""
        await anyio.to_thread.run_sync(self.pool.close)

    async def _in_thread(self, work: Callable[[Connection], T]) -> T:
        return await anyio.to_thread.run_sync(self.run, work)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do something in a transaction; it is done again where the connection broke, so it must bear that."""
        if not self.schema:
            self.schema = self.pool.run(_migrate)
        return self.pool.run(work)

    # Leases --------------------------------------------------------------------------------------------

    def hold(self, number: int, token: int) -> None:
        """Renew a session's lease from now on."""
        with self._guard:
            self._leases[number] = token
            if not self._renewing:
                self._renewing = True
                threading.Thread(target=self._renew, name="glue-leases", daemon=True).start()

    def give_up(self, number: int, token: int) -> None:
        with self._guard:
            self._leases.pop(number, None)
        sql = "UPDATE glue_sessions SET holder = NULL, expires = NULL WHERE number = %s AND token = %s"
        with contextlib.suppress(StoreError):  # a server that is away forgets the lease by itself
            self.pool.run(functools.partial(_execute, sql, (number, token)), patience=1.0)

    def _renew(self) -> None:
        sql = """
            UPDATE glue_sessions AS s SET expires = now() + %s * interval '1 second'
            FROM unnest(%s::bigint[], %s::bigint[]) AS held(number, token)
            WHERE s.number = held.number AND s.token = held.token"""
        while True:
            time.sleep(self.lease / 3)
            with self._guard:
                held = dict(self._leases)
                if not held:
                    self._renewing = False
                    return
            values = (self.lease, list(held), list(held.values()))
            with contextlib.suppress(StoreError):  # a write will say what is wrong, or find that nothing is
                self.pool.run(functools.partial(_execute, sql, values), patience=0.0)


def _execute(sql: str, values: Sequence[object], connection: Connection) -> None:
    connection.execute(sql, values)


class _Pool:
    """A few connections for worker threads; a broken one is replaced, and what it was doing is done again."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("postgres", "postgresql"):
            raise ConfigError(f"a Postgres store is named as postgresql://USER@HOST/DATABASE, not {parts.scheme!r}")
        try:
            import psycopg
        except ImportError:
            raise ConfigError("PostgresStore needs psycopg: pip install 'glue-agents[postgres]'") from None
        self.url, self.errors = url, psycopg
        self.name = f"postgresql://{parts.netloc.rpartition('@')[2] or 'localhost'}{parts.path}"
        self._reset()

    def _reset(self) -> None:
        self._idle: list[Connection] = []
        self._free = threading.Semaphore(CONNECTIONS)
        self._was_there = False
        self._owner = os.getpid()

    def close(self) -> None:
        while self._idle and self._owner == os.getpid():
            self._idle.pop().close()

    def run(self, work: Callable[[Connection], T], patience: float = PATIENCE) -> T:
        """Do something in one transaction, again on another connection where one broke, as long as patience lasts."""
        if self._owner != os.getpid():  # a forked child must not use its parent's connections
            self._reset()
        end = time.monotonic() + patience
        pause = 0.05
        while True:
            try:
                with self._free:
                    return self._once(work)
            except (self.errors.OperationalError, self.errors.InterfaceError) as error:
                if not self._was_there or time.monotonic() > end or _is_final(error):
                    raise self._error(error) from error
            except self.errors.Error as error:
                raise self._error(error) from error
            time.sleep(pause)
            pause = min(1.0, pause * 2)

    def _once(self, work: Callable[[Connection], T]) -> T:
        connection = self._idle.pop() if self._idle else self._connect()
        try:
            with connection.transaction():
                result = work(connection)
        except BaseException:
            if connection.closed or connection.broken:
                connection.close()
            else:
                self._idle.append(connection)
            raise
        self._was_there = True
        self._idle.append(connection)
        return result

    def _connect(self) -> Connection:
        return self.errors.connect(
            self.url, autocommit=True, connect_timeout=10, prepare_threshold=None, application_name="glue"
        )

    def _error(self, error: Exception) -> StoreError:
        text = " ".join(str(error).split("\n")[0].split())
        return StoreError(f"{self.name}: {text or type(error).__name__}")


def _is_final(error: Exception) -> bool:
    """Tell whether an error would come again: the server speaks, and says no."""
    state = getattr(error, "sqlstate", None)
    return state is not None and not state.startswith(("08", "57P", "40"))


def _migrate(connection: Connection) -> int:
    """Bring the tables up to date, version by version in one transaction; give the version that is there."""
    found = connection.execute("SELECT to_regclass('glue_schema')").fetchone()
    version = _version(connection) if found and found[0] else 0
    if version >= len(MIGRATIONS):
        return version
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
    connection.execute("CREATE TABLE IF NOT EXISTS glue_schema (version INTEGER NOT NULL)")
    version = _version(connection)
    for number, sql in enumerate(MIGRATIONS[version:], version + 1):
        connection.execute(sql)
        connection.execute("DELETE FROM glue_schema")
        connection.execute("INSERT INTO glue_schema VALUES (%s)", (number,))
        version = number
    return version


def _version(connection: Connection) -> int:
    row = connection.execute("SELECT version FROM glue_schema").fetchone()
    return row[0] if row else 0


def _check(id: str) -> str:
    try:
        check_id(id).encode()
    except UnicodeEncodeError:
        raise ValueError(f"a session id of a Postgres store is text in UTF-8, not {id!r}") from None
    return id


# Records as rows -------------------------------------------------------------------------------------------


def _row(connection: Connection, id: str) -> tuple[int, Record, int]:
    row = connection.execute("SELECT number, header, changes FROM glue_sessions WHERE id = %s", (id,)).fetchone()
    if row is None:
        there = connection.execute("SELECT id FROM glue_sessions ORDER BY id LIMIT 9").fetchall()
        raise missing(id, [name for (name,) in there])
    return row[0], json.loads(row[1]), row[2]


def _messages(connection: Connection, number: int) -> Iterator[Message]:
    sql = "SELECT body, excluded FROM glue_messages WHERE session = %s ORDER BY position"
    for body, excluded in connection.execute(sql, (number,)):
        if (message := read_message({**json.loads(body), "excluded": excluded})) is not None:
            yield message


_INSERT = """
    INSERT INTO glue_messages(session, position, id, role, at, excluded, body, words)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s::tsvector)"""


def _append(connection: Connection, session: int, records: Sequence[Record]) -> None:
    """Add messages at the end, all on one way to the server and back."""
    (last,) = _one(connection, "SELECT coalesce(max(position), 0) FROM glue_messages WHERE session = %s", (session,))
    rows = [
        _values(session, last + place, record["at"], message_from_json(record["message"]))
        for place, record in enumerate(records, 1)
    ]
    connection.cursor().executemany(_INSERT, rows)


def _insert(connection: Connection, session: int, record: Record) -> None:
    position = _between(connection, session, record["before"])
    message = message_from_json(record["message"])
    connection.execute(_INSERT, _values(session, position, record["at"], message))


def _values(session: int, position: float, at: float, message: Message) -> tuple[object, ...]:
    data = {name: value for name, value in message_to_json(message).items() if name != "excluded"}
    words = _vector(searchable(message))
    return session, position, message.id, role_of(message), at, message.excluded, json.dumps(data), words


def _between(connection: Connection, session: int, id: str) -> float:
    after = _find(connection, session, id)[1]
    sql = "SELECT max(position) FROM glue_messages WHERE session = %s AND position < %s"
    (before,) = _one(connection, sql, (session, after))
    before = after - 2.0 if before is None else before
    middle: float = (before + after) / 2
    if before < middle < after:
        return middle
    connection.execute(
        "UPDATE glue_messages AS m SET position = n.place FROM (SELECT number, row_number() OVER (ORDER BY position)"
        " AS place FROM glue_messages WHERE session = %s) AS n WHERE m.number = n.number",
        (session,),
    )
    return _find(connection, session, id)[1] - 0.5


def _find(connection: Connection, session: int, id: str) -> tuple[int, float, float, Message]:
    sql = "SELECT number, position, at, body, excluded FROM glue_messages WHERE session = %s AND id = %s"
    row = connection.execute(sql + " ORDER BY position DESC LIMIT 1", (session, id)).fetchone()
    message = read_message({**json.loads(row[3]), "excluded": row[4]}) if row else None
    if row is None or message is None:
        raise StoreError(f"there is no message {id!r} in this session")
    return row[0], row[1], row[2], message


def _amend(connection: Connection, session: int, record: Record) -> None:
    number, position, at, message = _find(connection, session, record["id"])
    connection.execute("DELETE FROM glue_messages WHERE number = %s", (number,))
    changed = amended(message, json.loads(json.dumps(record["fields"])))
    connection.execute(_INSERT, _values(session, position, at, changed))


def _drop(connection: Connection, session: int, record: Record) -> None:
    connection.execute("DELETE FROM glue_messages WHERE session = %s AND id = ANY(%s)", (session, record["ids"]))


def _exclude(connection: Connection, session: int, record: Record) -> None:
    sql = "UPDATE glue_messages SET excluded = true WHERE session = %s AND id = ANY(%s)"
    connection.execute(sql, (session, record["ids"]))


_WRITES = {"message": _insert, "amend": _amend, "drop": _drop, "exclude": _exclude}


def _fork(connection: Connection, id: str, new_id: str, at: int | None, live: bool) -> None:
    number = _row(connection, id)[0]
    (count,) = _one(connection, "SELECT count(*) FROM glue_messages WHERE session = %s", (number,))
    check_fork(id, at, count)
    head = header(new_id, id, count if at is None else at)
    connection.execute(
        "INSERT INTO glue_sessions(id, header, updated) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (new_id, json.dumps(head), head["created"]),
    )
    new = _row(connection, new_id)[0]
    (there,) = _one(connection, "SELECT count(*) FROM glue_messages WHERE session = %s", (new,))
    if there:
        raise taken_already(new_id, there)
    connection.execute(
        "INSERT INTO glue_messages(session, position, id, role, at, excluded, body, words)"
        " SELECT %s, position, id, role, %s, excluded, body, words FROM"
        " (SELECT * FROM glue_messages WHERE session = %s ORDER BY position LIMIT %s) AS taken"
        " WHERE NOT (excluded AND %s)",
        (new, head["created"], number, head["forked_at"], live),
    )


def _one(connection: Connection, sql: str, values: Sequence[object]) -> tuple[Any, ...]:
    row = connection.execute(sql, values).fetchone()
    return tuple(row)


# Search ----------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+")
_LAST = 16_383  # the highest position in a tsvector


def _vector(text: str) -> str:
    """Write the words of a text with their places; our own, as Postgres's parser takes `a/b` or `x.y` for one word."""
    places: dict[str, list[str]] = {}
    size = 0
    for place, match in enumerate(_WORD.finditer(text.encode(errors="replace").decode().lower()), 1):
        word = match.group()
        size += len(word.encode()) + 8
        if place > _LAST or size > 900_000:  # of 1 MB
            break
        if len(word.encode()) < 2_000 and len(kept := places.setdefault(word, [])) < 200:
            kept.append(str(place))
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items())


def _tsquery(query: str) -> str:
    parts = []
    for term, prefix in terms(query):
        words = [f"'{word}'" for word in _WORD.findall(split_words(term.encode(errors="replace").decode()).lower())]
        if words and prefix:
            words[-1] += ":*"
        parts.append("(" + " <-> ".join(words or ["'_'"]) + ")")
    return " & ".join(parts)


def _search(connection: Connection, query: Query) -> tuple[SearchHit, ...]:
    if query.session is not None:
        _row(connection, query.session)
    filters = {
        "s.id = %s": query.session,
        "role = %s": query.role,
        "at >= %s": query.since,
        "at <= %s": query.until,
    }
    used = {clause: value for clause, value in filters.items() if value is not None}
    match = _tsquery(query.text)
    sql = f"""
        SELECT s.id, m.id, role, body, at FROM glue_messages AS m JOIN glue_sessions AS s ON s.number = session
        WHERE words @@ %s::tsquery{"".join(f" AND {clause}" for clause in used)}
        ORDER BY ts_rank(words, %s::tsquery) DESC, at DESC LIMIT %s"""
    rows = connection.execute(sql, (match, *used.values(), match, query.limit)).fetchall()
    hits = []
    for session, key, role, body, at in rows:
        message = read_message(json.loads(body))
        if message is not None:
            snippet = query.snippet(searchable(message))
            hits.append(SearchHit(session=session, message_id=key, role=role, snippet=snippet, at=at))
    return tuple(hits)


class _Writer:
    blocks = True

    def __init__(self, store: PostgresStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first
        self.number = self.token = 0
        self.head: Record = {}  # with the changes, of the session when the fold was last in step with it
        self.changes = -1

    def open(self, fold: Fold) -> None:
        self.token = 0
        attempt = new_id()  # one that was cut off after it took the session takes it again
        errors = self.store.pool.errors.errors
        try:
            newer_schema = self.store.run(lambda connection: self.store.schema) > len(MIGRATIONS)
            taken = None if newer_schema else self.store.run(lambda connection: self._take(connection, attempt))
        except StoreError as error:
            if not isinstance(error.__cause__, (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege)):
                raise
            self._read(fold)
            fold.read_only = f"session {self.id!r} may be read, not changed: {error}"
            return
        if taken is None:
            self._read(fold)
            fold.read_only = (
                f"{self.store.pool.name} has tables of version {self.store.schema}, this version knows"
                f" {len(MIGRATIONS)}: it may be read, not changed; upgrade glue-agents to go on with it"
            )
            return
        self.number, head, changes, self.token = taken
        self.store.hold(self.number, self.token)
        if (head, changes) != (self.head, self.changes):
            self._read(fold)

    def _take(self, connection: Connection, attempt: str) -> tuple[int, Record, int, int]:
        connection.execute(
            "INSERT INTO glue_sessions(id, header, updated) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (self.id, json.dumps(self.first), self.first["created"]),
        )
        row = connection.execute(
            "UPDATE glue_sessions SET holder = %s, token = token + 1, expires = now() + %s * interval '1 second'"
            " WHERE id = %s AND (holder IS NULL OR holder = %s OR expires < now())"
            " RETURNING number, header, changes, token",
            (attempt, self.store.lease, self.id, attempt),
        ).fetchone()
        if row is None:
            raise busy(self.id)
        return row[0], json.loads(row[1]), row[2], row[3]

    def _read(self, fold: Fold) -> None:
        def read(connection: Connection) -> tuple[tuple[int, Record, int], list[Message]]:
            row = _row(connection, self.id)
            return row, list(_messages(connection, row[0]))

        (self.number, self.head, self.changes), messages = self.store.run(read)
        fold.clear()
        fold.apply(self.head)
        fold.messages = messages

    def write(self, records: Sequence[Record]) -> None:
        def write(connection: Connection) -> None:
            # Waits for a transaction of ours that was cut off and has not ended; then the count says how it ended.
            done = connection.execute(
                "UPDATE glue_sessions SET changes = changes + 1, updated = %s,"
                " expires = now() + %s * interval '1 second' WHERE number = %s AND token = %s AND changes = %s",
                (time.time(), self.store.lease, self.number, self.token, self.changes),
            ).rowcount
            if done and all(record["type"] == "message" and "before" not in record for record in records):
                _append(connection, self.number, records)
                return
            if done:
                for record in records:
                    _WRITES[record["type"]](connection, self.number, record)
                return
            sql = "SELECT token, changes FROM glue_sessions WHERE number = %s"
            row = connection.execute(sql, (self.number,)).fetchone()
            if row is None or tuple(row) != (self.token, self.changes + 1):
                raise StoreError(
                    f"session {self.id!r} was taken over by another writer; nothing was written: open it again"
                )

        self.store.run(write)
        self.changes += 1

    def close(self) -> None:
        if self.token:
            self.store.give_up(self.number, self.token)
            self.token = 0

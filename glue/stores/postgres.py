"""`PostgresStore`: conversations in a Postgres database that any machine can go on with."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread

from glue.errors import ConfigError, NewerSchema, StoreError
from glue.messages import Json, Message, new_id
from glue.stores.sql import Connection, Found, SQLStore, SQLWriter, T, loads
from glue.stores.store import WORD, Fold, Query, Record, busy, read_message, searchable, too_new

LEASE = 6.0  # seconds after which a session of a dead holder may be taken by another
PATIENCE = 30.0  # seconds to wait for a server that was there before and is gone: it may be starting again
CONNECTIONS = 4

MIGRATIONS = ("postgres-1.sql",)
_MIGRATING = 0x676C7565  # the advisory lock of those who change the tables


class PostgresStore(SQLStore):
    """Keep conversations in Postgres. A session has one writer, on any machine, by a lease that it renews.

    A writer that lost its lease is refused by a fencing token: it cannot write over its successor.
    """

    _mark = "%s"
    _body = "body, excluded"
    _columns, _values = "excluded, body, words", "?, ?, ?::tsvector"
    _among = "id IN (SELECT json_array_elements_text(?::json))"
    _excluding = "excluded = true"
    _live = "NOT excluded"
    _free = " AND (holder IS NULL OR expires < now())"
    _matches = """
        SELECT s.id, m.id, role, body, at FROM (SELECT ?::tsquery AS wanted) AS asked
        JOIN glue_messages AS m ON words @@ wanted JOIN glue_sessions AS s ON s.number = session
        WHERE true{where} ORDER BY ts_rank(words, wanted) DESC, at DESC LIMIT ?"""

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

    async def aclose(self) -> None:
        """Close the connections; the store may be used again."""
        await anyio.to_thread.run_sync(self.pool.close)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do something in a transaction; it is done again where the connection broke, so it must bear that."""
        if not self.schema:
            self.schema = self.pool.run(_migrate)
        return self.pool.run(work)

    _get = run

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self, id, first)

    def _change(self, id: str, work: Callable[[Connection], T]) -> T:
        def change(connection: Connection) -> T:
            if self.schema > len(MIGRATIONS):
                raise NewerSchema(too_new(f"{self.pool.name} has tables of version", self.schema, len(MIGRATIONS)))
            return work(connection)

        return self.run(change)

    def _encode(self, message: Message, data: Mapping[str, Json]) -> tuple[object, ...]:
        kept = {name: value for name, value in data.items() if name != "excluded"}
        return message.excluded, json.dumps(kept), _vector(searchable(message))

    def _decode(self, *body: Any) -> Message | None:
        found = loads(body[0])
        return read_message({**found, "excluded": body[1]}) if isinstance(found, dict) else None

    def _match(self, query: Query) -> str:
        return _tsquery(query)

    def _found_text(self, found: str) -> str | None:
        message = read_message(loads(found))
        return searchable(message) if message is not None else None

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
            self._tell(1.0, sql, number, token)

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
            with contextlib.suppress(StoreError):  # a write will say what is wrong, or find that nothing is
                self._tell(0.0, sql, self.lease, list(held), list(held.values()))

    def _tell(self, patience: float, sql: str, *values: object) -> None:
        self.pool.run(lambda connection: connection.execute(sql, values), patience)


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
                state = getattr(error, "sqlstate", None)
                final = state is not None and not state.startswith(("08", "57P", "40"))  # the server says no
                if not self._was_there or time.monotonic() > end or final:
                    raise self._error(error) from error
            except self.errors.Error as error:
                raise self._error(error) from error
            time.sleep(pause)
            pause = min(1.0, pause * 2)

    def _once(self, work: Callable[[Connection], T]) -> T:
        connection: Connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self.errors.connect(
                self.url, autocommit=True, connect_timeout=10, prepare_threshold=None, application_name="glue"
            )
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

    def _error(self, error: Exception) -> StoreError:
        text = " ".join(str(error).split("\n")[0].split())
        return StoreError(f"{self.name}: {text or type(error).__name__}")


def _migrate(connection: Connection) -> int:
    """Bring the tables up to date, version by version in one transaction; give the version that is there."""
    found = connection.execute("SELECT to_regclass('glue_schema')").fetchone()
    version = _version(connection) if found and found[0] else 0
    if version >= len(MIGRATIONS):
        return version
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
    connection.execute("CREATE TABLE IF NOT EXISTS glue_schema (version INTEGER NOT NULL)")
    version = _version(connection)
    for number, name in enumerate(MIGRATIONS[version:], version + 1):
        connection.execute(Path(__file__).with_name(name).read_text())
        connection.execute("DELETE FROM glue_schema")
        connection.execute("INSERT INTO glue_schema VALUES (%s)", (number,))
        version = number
    return version


def _version(connection: Connection) -> int:
    row = connection.execute("SELECT version FROM glue_schema").fetchone()
    return row[0] if row else 0


# Search ----------------------------------------------------------------------------------------------------

_LAST = 16_383  # the highest position in a tsvector
_LONGEST = 2_000  # bytes of a word in it


def _vector(text: str) -> str:
    """Write the words of a text with their places; our own, as Postgres's parser takes `a/b` or `x.y` for one word."""
    places: dict[str, list[str]] = {}
    size = 0
    for place, match in enumerate(WORD.finditer(text.encode(errors="replace").decode().lower()), 1):
        word = match.group()
        if len(word.encode()) < _LONGEST and len(kept := places.setdefault(word, [])) < 200:
            kept.append(str(min(place, _LAST)))
            size += len(word.encode()) + 8
            if size > 900_000:  # of 1 MB
                break
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items())


def _tsquery(query: Query) -> str:
    parts = []
    for words, prefix in query.terms:
        # No text has a word that is "_"; one that is too long for the index is not found either.
        wanted = [f"'{word.lower() if len(word.encode()) < _LONGEST else '_'}'" for word in words]
        parts.append("(" + " <-> ".join(wanted) + ":*" * prefix + ")")
    return " & ".join(parts)


# Writing ---------------------------------------------------------------------------------------------------


class _Writer(SQLWriter):
    store: PostgresStore

    def __init__(self, store: PostgresStore, id: str, first: Record) -> None:
        super().__init__(store, id, first)
        self.token = 0

    def open(self, fold: Fold) -> None:
        self.token = 0
        attempt = new_id()  # one that was cut off after it took the session takes it again
        errors = self.store.pool.errors.errors
        try:
            self.token, found = self.store._change(self.id, lambda connection: self._take(connection, attempt))
        except NewerSchema as error:
            return self.open_to_read(fold, str(error), error)
        except StoreError as error:
            if not isinstance(error.__cause__, (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege)):
                raise
            return self.open_to_read(fold, f"session {self.id!r} may be read, not changed: {error}", error)
        self.store.hold(found[0], self.token)
        return self.take_in(fold, found)

    def _take(self, connection: Connection, attempt: str) -> tuple[int, Found]:
        self.store.begin(connection, self.first)
        row = connection.execute(
            "UPDATE glue_sessions SET holder = %s, token = token + 1, expires = now() + %s * interval '1 second'"
            " WHERE id = %s AND (holder IS NULL OR holder = %s OR expires < now()) RETURNING token",
            (attempt, self.store.lease, self.id, attempt),
        ).fetchone()
        if row is None:
            raise busy(self.id)
        return row[0], self.find(connection)

    def write(self, records: Sequence[Record]) -> None:
        def write(connection: Connection) -> None:
            # Waits for a transaction of ours that was cut off and has not ended; then the count says how it ended.
            done = connection.execute(
                "UPDATE glue_sessions SET changes = changes + 1, updated = %s,"
                " expires = now() + %s * interval '1 second' WHERE number = %s AND token = %s AND changes = %s",
                (time.time(), self.store.lease, self.number, self.token, self.changes),
            ).rowcount
            if done:
                return self.store.write(connection, self.number, records)
            sql = "SELECT token, changes FROM glue_sessions WHERE number = %s"
            row = connection.execute(sql, (self.number,)).fetchone()
            if row is None or tuple(row) != (self.token, self.changes + 1):
                raise StoreError(
                    f"session {self.id!r} was taken over by another writer; nothing was written: open it again"
                )
            return None

        self.store.run(write)
        self.changes += 1

    def close(self) -> None:
        if self.token:
            self.store.give_up(self.number, self.token)
            self.token = 0

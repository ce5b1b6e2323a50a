"""`PostgresStore`: sessions in a PostgreSQL database, which several machines can use."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from glue.backoff import Backoff
from glue.checks import check_text
from glue.errors import ConfigError, NewerSchema, StoreError
from glue.installing import install_command
from glue.messages import Json, Message, message_from_json, new_id
from glue.stores.records import Record, StoredSession, check_id, newer_schema, read_message
from glue.stores.search import WORD, Query, role_of, searchable
from glue.stores.sql import Connection, Found, SQLStore, SQLWriter, T, header_of, loads
from glue.stores.store import session_busy
from glue.tasks import finish_in_thread

LEASE = 6.0  # seconds after which another writer may take over the session of a dead writer
PATIENCE = 30.0  # seconds to wait for a server that was reachable before, in case it restarts
CONNECTIONS = 4
_BACKOFF = Backoff(first=0.05, cap=1.0)

MIGRATIONS = ("postgres-1.sql",)
_MIGRATING = 0x676C7565  # the key of the advisory lock for changes of the tables


class PostgresStore(SQLStore):
    """A store in a PostgreSQL database, shared by any number of machines.

    A session has one writer at a time, which has a lease and renews it. Each write includes a
    fencing token, so a writer that has lost its lease cannot overwrite the work of its successor.

    >>> store = PostgresStore("postgresql://user@host/database")  # doctest: +SKIP
    >>> session = agent.session("demo", store=store)              # doctest: +SKIP

    Args:
        url: the address of the database. The tables are created if needed.
        lease: seconds after which another writer may take over the session of a dead writer.
    """

    now = "extract(epoch FROM clock_timestamp())::float8"
    notifies = True
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
        self._leases: dict[int, int] = {}  # the token of each locked session, by its number
        self._renewing = False
        self._guard = threading.Lock()
        weakref.finalize(self, self.pool.close)

    async def aclose(self) -> None:
        """Close the idle connections to the server. The store can be used again afterwards."""
        await finish_in_thread(self.disconnect)

    def disconnect(self) -> None:
        self.pool.close()

    def run(self, work: Callable[[Connection], T], *, in_transaction: bool = True) -> T:
        """Return the result of `work(connection)`. Call it again if the connection breaks.

        `work` may be called several times, so it must be idempotent. The first call of `run` also
        creates the tables, or upgrades them to the current version.

        Args:
            work: a function that receives a connection.
            in_transaction: run its statements in one transaction. If False, each statement is
                committed on its own, which saves two round trips to the server.
        """
        if not self.schema:
            self.schema = self.pool.run(_migrate)
        return self.pool.run(work, in_transaction=in_transaction)

    _get = transact = run

    def _vacuum(self) -> None:
        def vacuum() -> None:
            with self.pool.connect() as connection:  # VACUUM does not run in a transaction
                connection.execute("VACUUM (ANALYZE)")

        self.pool.translated(vacuum)

    def is_away(self, error: StoreError) -> bool:
        psycopg = self.pool.psycopg
        return isinstance(error.__cause__, (psycopg.OperationalError, psycopg.InterfaceError))

    def twin(self) -> PostgresStore:
        return PostgresStore(self.url, lease=self.lease)

    def listen(
        self, channel: str, receive: Callable[[str], object], ending: threading.Event
    ) -> None:
        """Call `receive` with the text of each notification of a channel, until `ending` is set.

        This opens a connection of its own. If the connection breaks, it is opened again, and the
        notifications in between are lost.
        """
        failures = 0
        while not ending.is_set():
            try:
                with self.pool.connect() as connection:
                    connection.execute(f"LISTEN {channel}")
                    failures = 0
                    while not ending.is_set():
                        for notice in connection.notifies(timeout=1.0):
                            receive(notice.payload)
            except self.pool.psycopg.Error:
                failures += 1
                ending.wait(_BACKOFF.delay(failures))

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self, id, first)

    def _change(
        self, id: str, work: Callable[[Connection], T], *, in_transaction: bool = True
    ) -> T:
        def change(connection: Connection) -> T:
            if self.schema > len(MIGRATIONS):
                what = f"{self.pool.name} has tables of version"
                raise NewerSchema(newer_schema(what, self.schema, len(MIGRATIONS)))
            return work(connection)

        return self.run(change, in_transaction=in_transaction)

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

    # Leases ---------------------------------------------------------------------------------------

    def hold(self, number: int, token: int) -> None:
        """Renew the lease of a session regularly in a background thread, until `release` is called.

        `number` is the number of the session, and `token` is the fencing token of the lease.
        """
        with self._guard:
            self._leases[number] = token
            if not self._renewing:
                self._renewing = True
                threading.Thread(target=self._renew, name="glue-leases", daemon=True).start()

    def release(self, number: int, token: int) -> None:
        """End the lease of a session, so that another writer can lock the session."""
        with self._guard:
            self._leases.pop(number, None)
        sql = (
            "UPDATE glue_sessions SET holder = NULL, expires = NULL"
            " WHERE number = %s AND token = %s"
        )
        with contextlib.suppress(StoreError):  # if the server is unreachable, the lease expires
            self._execute(1.0, sql, number, token)

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
            # If the server is unreachable, the next write raises the error, or succeeds.
            with contextlib.suppress(StoreError):
                self._execute(0.0, sql, self.lease, list(held), list(held.values()))

    def _execute(self, patience: float, sql: str, *values: object) -> None:
        def execute(connection: Connection) -> None:
            connection.execute(sql, values)

        self.pool.run(execute, patience, in_transaction=False)


class _Pool:
    """A pool of connections for worker threads. If a connection breaks, its work is repeated."""

    def __init__(self, url: str) -> None:
        check_text("url", url)
        parts = urlsplit(url)
        if parts.scheme not in ("postgres", "postgresql"):
            raise ConfigError(
                "the address of a PostgreSQL store must be postgresql://USER@HOST/DATABASE;"
                f" this address begins with {parts.scheme!r}"
            )
        try:
            import psycopg  # optional: the extra glue-agents[postgres]
        except ImportError:
            raise ConfigError(
                f"PostgresStore needs psycopg: {install_command('postgres')}"
            ) from None
        self.url, self.psycopg = url, psycopg
        self.name = f"postgresql://{parts.netloc.rpartition('@')[2] or 'localhost'}{parts.path}"
        self._reset()

    def _reset(self) -> None:
        self._idle: list[Connection] = []
        self._free = threading.Semaphore(CONNECTIONS)
        self._has_connected = False
        self._owner = os.getpid()

    def close(self) -> None:
        while self._idle and self._owner == os.getpid():
            self._idle.pop().close()

    def run(
        self,
        work: Callable[[Connection], T],
        patience: float = PATIENCE,
        *,
        in_transaction: bool = True,
    ) -> T:
        """Return the result of `work(connection)`. Call it again if the connection breaks.

        If a connection breaks, and the server was reachable before, call `work` again with another
        connection, with backoff, for `patience` seconds.
        """
        if self._owner != os.getpid():  # a forked child must not use its parent's connections
            self._reset()
        end = time.monotonic() + patience
        for failures in itertools.count(1):
            try:
                with self._free:
                    return self._once(work, in_transaction)
            except (self.psycopg.OperationalError, self.psycopg.InterfaceError) as error:
                state = getattr(error, "sqlstate", None)
                # Connection lost, server shutting down, transaction aborted.
                is_transient = state is None or state.startswith(("08", "57P", "40"))
                if not is_transient or not self._has_connected or time.monotonic() > end:
                    raise self._error(error) from error
            except self.psycopg.Error as error:
                raise self._error(error) from error
            time.sleep(_BACKOFF.delay(failures) or 0.0)
        raise AssertionError("unreachable")

    def _once(self, work: Callable[[Connection], T], in_transaction: bool) -> T:
        connection = self._idle.pop() if self._idle else self.connect()
        try:
            if in_transaction:
                with connection.transaction():
                    result = work(connection)
            else:
                result = work(connection)
        except BaseException:
            if connection.closed or connection.broken:
                connection.close()
            else:
                self._idle.append(connection)
            raise
        self._has_connected = True
        self._idle.append(connection)
        return result

    def translated(self, work: Callable[[], T]) -> T:
        """Call `work` and return its result. Translate errors of psycopg to StoreError."""
        try:
            return work()
        except self.psycopg.Error as error:
            raise self._error(error) from error

    def connect(self) -> Connection:
        return self.psycopg.connect(
            self.url,
            autocommit=True,
            connect_timeout=10,
            prepare_threshold=None,
            application_name="glue",
        )

    def _error(self, error: Exception) -> StoreError:
        text = " ".join(str(error).split("\n")[0].split())
        return StoreError(f"{self.name}: {text or type(error).__name__}")


def _migrate(connection: Connection) -> int:
    """Create the tables or upgrade them to the current version, and return their version.

    Tables of a newer version are not changed.
    """
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


# Search -------------------------------------------------------------------------------------------

_LAST = 16_383  # the highest position that a tsvector can have
_LONGEST = 2_000  # bytes; longer words are not indexed


def _vector(text: str) -> str:
    """Return the words of a text with their positions, in the syntax of PostgreSQL's tsvector.

    PostgreSQL's own parser is not used, because it treats `a/b` and `x.y` as one word. Very long
    words, and the end of a very long text, are left out.
    """
    places: dict[str, list[str]] = {}
    size = 0
    for place, match in enumerate(WORD.finditer(text.encode(errors="replace").decode().lower()), 1):
        word = match.group()
        if len(word.encode()) < _LONGEST and len(kept := places.setdefault(word, [])) < 200:
            kept.append(str(min(place, _LAST)))
            size += len(word.encode()) + 8
            if size > 900_000:  # a tsvector can have at most 1 MB
                break
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items())


def _tsquery(query: Query) -> str:
    """Return a search query in the syntax of PostgreSQL's tsquery."""
    parts = []
    for words, prefix in query.terms:
        # Words that are too long for the index become "_", which matches no word.
        wanted = [f"'{word.lower() if len(word.encode()) < _LONGEST else '_'}'" for word in words]
        parts.append("(" + " <-> ".join(wanted) + ":*" * prefix + ")")
    return " & ".join(parts)


# Writing ------------------------------------------------------------------------------------------


# Opening a session and appending messages are one statement each, because every row of a queue and
# every prompt of a session does both.
_TAKE = """
    INSERT INTO glue_sessions AS s (id, header, updated, holder, token, expires)
    VALUES (%(id)s, %(header)s, %(created)s, %(holder)s, 1,
        now() + %(lease)s * interval '1 second')
    ON CONFLICT (id) DO UPDATE
    SET holder = excluded.holder, token = s.token + 1, expires = excluded.expires
    WHERE s.holder IS NULL OR s.holder = excluded.holder OR s.expires < now()
    RETURNING number, header, changes, token"""
_CHANGE = """
    UPDATE glue_sessions
    SET changes = changes + 1, updated = %s, expires = now() + %s * interval '1 second'
    WHERE number = %s AND token = %s AND changes = %s RETURNING number"""
_APPEND = f"""
    WITH held AS ({_CHANGE})
    INSERT INTO glue_messages(session, position, id, role, at, excluded, body, words)
    SELECT held.number, place + (
        SELECT coalesce(max(position), 0) FROM glue_messages WHERE session = held.number
    ), m.id, role, at, excluded, body, words::tsvector
    FROM held, unnest(
        %s::int[], %s::text[], %s::text[], %s::float8[], %s::bool[], %s::text[], %s::text[]
    ) AS m(place, id, role, at, excluded, body, words)"""


class _Writer(SQLWriter):
    store: PostgresStore

    def __init__(self, store: PostgresStore, id: str, first: Record) -> None:
        super().__init__(store, id, first)
        self.token = 0
        self._failed: StoreError | None = None

    def open(self, stored: StoredSession) -> None:
        self.token, self._failed = 0, None
        # If the connection breaks after the lease was stored, the second call of `_take` has the
        # same holder, and gets the lease again.
        holder = new_id()
        errors = self.store.pool.psycopg.errors
        try:
            self.token, found = self.store._change(
                self.id, lambda connection: self._take(connection, holder), in_transaction=False
            )
        except NewerSchema as error:
            return self.open_read_only(stored, str(error), error)
        except StoreError as error:
            refusals = (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege)
            if not isinstance(error.__cause__, refusals):
                raise
            return self.open_read_only(stored, f"session {self.id!r} is read-only: {error}", error)
        self.store.hold(found[0], self.token)
        return self.load_into(stored, found)

    def _take(self, connection: Connection, holder: str) -> tuple[int, Found]:
        """Create the session if it is missing, lease it, and return the token and the session.

        Raise SessionBusy if another writer has the lease.
        """
        row = connection.execute(
            _TAKE,
            {
                "id": check_id(self.id),
                "header": json.dumps(self.first),
                "created": self.first["created"],
                "holder": holder,
                "lease": self.store.lease,
            },
        ).fetchone()
        if row is None:
            raise session_busy(self.id)
        number, head, changes, token = row
        if changes == 0 and header_of(self.id, head) == self.first:
            return token, (number, self.first, 0, [])  # just created: it has no messages
        return token, self.find(connection)

    def write(self, records: Sequence[Record]) -> None:
        if self._failed is not None:
            raise StoreError(
                f"{self._failed}; an earlier write failed: open the session again"
            ) from self._failed

        def write(connection: Connection) -> None:
            # If an earlier attempt lost its connection, this statement waits until the server has
            # ended that transaction. The count of changes then shows whether it was committed.
            held = (time.time(), self.store.lease, self.number, self.token, self.changes)
            if is_append:
                done = connection.execute(_APPEND, (*held, *self._columns(records))).rowcount
            else:
                done = connection.execute(_CHANGE, held).rowcount
                if done:
                    self.store.write(connection, self.number, records)
            if done:
                return
            sql = "SELECT token, changes FROM glue_sessions WHERE number = %s"
            row = connection.execute(sql, (self.number,)).fetchone()
            if row is None:
                raise StoreError(f"session {self.id!r} was deleted; nothing was written")
            if tuple(row) != (self.token, self.changes + 1):
                raise StoreError(
                    f"session {self.id!r} was taken over by another writer; nothing was written:"
                    " open it again"
                )

        is_append = all(each["type"] == "message" and "before" not in each for each in records)
        try:
            self.store.run(write, in_transaction=not is_append)
        except StoreError as error:
            # The server may have stored the records, so the count of changes is now unknown.
            self._failed = error
            raise
        self.changes += 1

    def _columns(self, records: Sequence[Record]) -> list[list[object]]:
        """Return the messages in `records` as columns: one list for each argument of `unnest`.

        The columns are in the order in which `_APPEND` names them.
        """
        rows = []
        for place, record in enumerate(records, 1):
            message = message_from_json(record["message"])
            shared = (place, message.id, role_of(message), record["at"])
            rows.append((*shared, *self.store._encode(message, record["message"])))
        return [list(column) for column in zip(*rows, strict=True)]

    def close(self) -> None:
        if self.token:
            self.store.release(self.number, self.token)
            self.token = 0

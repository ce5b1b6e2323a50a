"""The tables of a queue, next to the sessions of a store: rows, maps, workers, meters, cooldowns.

    waiting -> running -> ended -> returned
       ^          |          |
       |          v          |  the row failed and its map was resumed,
       `----------+----------'  or its worker died

A row is a session in the store and a record here. The record has the state of the row, its worker,
and its result; everything that the row has said and done is in the session. All methods block, use
one transaction each, and wait while a Postgres server restarts. The SQL is the same for SQLite and
Postgres, except for locks, which SQLite does not need: it has one writer at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import anyio

from glue.backoff import Backoff
from glue.codec import from_json, to_json, to_plain
from glue.context import ToolResult
from glue.decision import Decision
from glue.durable.ledger import Balance, Hold, Meter
from glue.durable.rows import MapRow, Row
from glue.errors import ConfigError, NewerSchema, StoreError
from glue.limits import Outcome
from glue.messages import Json, messages_from_json, messages_to_json, new_id
from glue.settings import prompt_messages
from glue.stores.sql import Connection, SQLStore, loads
from glue.tasks import finish_in_thread

T = TypeVar("T")

SCHEMA = 1
STATES = ("waiting", "running", "ended", "returned")
LEASE = 10.0  # seconds after its last heartbeat at which a worker counts as dead
MAX_LOSSES = 5  # workers that a row may lose before it fails
PROBE_SECONDS = 30.0  # after which another request may test a provider that cools down
CHANNEL = "glue"  # of Postgres notifications
_BACKOFF = Backoff(first=0.2, cap=5.0)  # while the database does not respond
# Numbers of Postgres locks: for creating tables, for counting running rows, for recovery.
_CREATING, _COUNTING, _RECOVERING = 7305, 7306, 7307
_created: WeakSet[SQLStore] = WeakSet()  # stores whose tables exist


def engine_store(engine: str, lease: float = LEASE) -> SQLStore:
    """Open the store of a queue by its address. Raise ConfigError if the address is wrong.

    An address is postgresql://USER@HOST/DATABASE, sqlite:///FILE or a file that ends in .db.
    """
    if engine.startswith(("postgresql://", "postgres://")):
        from glue.stores.postgres import PostgresStore  # needs the extra glue-agents[postgres]

        # Sessions of a dead worker must be free before its rows are put back.
        return PostgresStore(engine, lease=max(1.0, lease * 0.6))
    file = engine.removeprefix("sqlite:///")
    is_file = bool(file) if file != engine else file.endswith((".db", ".sqlite", ".sqlite3"))
    if not is_file or "://" in file:
        forms = "postgresql://USER@HOST/DATABASE or sqlite:///FILE"
        raise ConfigError(f"an engine must be {forms}, not {engine!r}")
    from glue.stores.sqlite import SQLiteStore  # sqlite3 is slow to import

    return SQLiteStore(Path(file).expanduser())


def check_queue(name: str) -> str:
    """Return the name of a queue unchanged. Raise ConfigError if it is invalid."""
    if not re.fullmatch(r"[a-z0-9_-]{1,100}", name):
        raise ConfigError(f"the name of a queue may contain a-z, 0-9, - and _, not {name!r}")
    return name


async def when_available(
    tables: Tables, notice: Callable[[str], None], work: Callable[..., T], *values: Any
) -> T:
    """Call a function that uses the database, and return its result.

    If the database was there before and does not respond now, call the function again until it
    does. `notice` receives a message for each failed call.
    """
    failures = 0
    while True:
        try:
            return await finish_in_thread(work, *values)
        except StoreError as error:
            if tables.store not in _created or not tables.store.is_away(error):
                raise
            failures += 1
            notice(f"{error}; waiting")
            await anyio.sleep(_BACKOFF.delay(failures) or 0.0)


class Tables:
    """The tables of queues in a store. See the module for the states of a row."""

    def __init__(self, store: SQLStore) -> None:
        if not isinstance(store, SQLStore):
            raise TypeError(
                "rows need a glue.SQLiteStore or a glue.stores.PostgresStore,"
                f" not {type(store).__name__}"
            )
        self.store = store
        self._stack = contextlib.ExitStack()
        self._is_open = False
        self._claim = ""  # of the last call of `exchange`

    def close(self) -> None:
        self._stack.close()
        self._is_open = False

    def _transact(self, work: Callable[[Connection], T]) -> T:
        if not self._is_open:
            self._stack.enter_context(self.store.kept_open())
            self._is_open = True
        if self.store not in _created:
            self.store.transact(self._create)
            _created.add(self.store)
        return self.store.transact(work)

    def _create(self, connection: Connection) -> None:
        self._lock(connection, _CREATING)  # two workers may start at the same time
        script = Path(__file__).with_name("queue.sql").read_text()
        for statement in filter(str.strip, script.split(";")):
            self._run(connection, statement)
        (version,) = self._run(connection, "SELECT max(version) FROM glue_queue").fetchone()
        if version is None:
            self._run(connection, "INSERT INTO glue_queue VALUES (?)", SCHEMA)
        elif version > SCHEMA:
            raise NewerSchema(
                f"the queue has tables of version {version}, but this glue supports only {SCHEMA}:"
                " upgrade glue-agents"
            )

    def _run(self, connection: Connection, sql: str, *values: object) -> Any:
        return self.store.execute(connection, sql, *values)

    def _select(self, connection: Connection, sql: str, *values: object) -> list[Any]:
        found: list[Any] = self._run(connection, sql, *values).fetchall()
        return found

    def _fetch(self, sql: str, *values: object) -> list[Any]:
        """Select rows in a transaction of its own."""
        return self._transact(lambda connection: self._select(connection, sql, *values))

    def _each(self, connection: Connection, sql: str, rows: Iterable[Sequence[object]]) -> None:
        if rows := list(rows):
            connection.cursor().executemany(self.store._text(sql), rows)

    @property
    def _locked(self) -> str:
        """The SQL clause that locks the rows of a SELECT."""
        return " FOR UPDATE" if self.store.notifies else ""

    def _lock(self, connection: Connection, number: int, name: str = "") -> None:
        """Wait until no other transaction has the lock."""
        if self.store.notifies:
            self._run(connection, "SELECT pg_advisory_xact_lock(?, hashtext(?))", number, name)

    def _notify(self, connection: Connection, *message: object) -> None:
        if self.store.notifies:
            self._run(connection, "SELECT pg_notify(?, ?)", CHANNEL, json.dumps(message))

    # Rows -----------------------------------------------------------------------------------------

    def begin_map(
        self, id: str, queue: str, usd_budget: float | None, token_budget: float | None
    ) -> None:
        """Store a map, or change its budget.

        If the map had no budget before, what its rows have used so far is counted now.
        """
        sql = f"""
            INSERT INTO glue_maps(id, queue, created, usd_budget, token_budget)
            VALUES (?, ?, {self.store.now}, ?, ?) ON CONFLICT (id) DO UPDATE
            SET usd_budget = excluded.usd_budget, token_budget = excluded.token_budget"""
        old = "SELECT result FROM glue_rows WHERE map = ? AND result IS NOT NULL"

        def begin(connection: Connection) -> None:
            self._run(connection, sql, id, queue, usd_budget, token_budget)
            balance = self._balance(connection, id)
            if balance.requests or (usd_budget is None and token_budget is None):
                return
            for (text,) in self._select(connection, old, id):
                row = MapRow.from_json(loads(text))
                balance.add(row.usage, row.requests)
            self._store_balance(connection, id, balance)

        self._transact(begin)

    def enqueue(self, queue: str, rows: Sequence[Row], again: Sequence[str] = ()) -> None:
        """Put rows on a queue. Rows that wait or run already stay as they are.

        `again` are outcomes, if a map is resumed: rows that ended with one of them are run again,
        and rows with another outcome are returned again.
        """
        retry = f"""
            UPDATE glue_rows SET task = ?, losses = 0,
            state = CASE WHEN outcome IN ({_marks(again)}) THEN 'waiting' ELSE 'ended' END
            WHERE id = ? AND state IN ('ended', 'returned')"""

        def put(connection: Connection) -> None:
            if again:
                self._each(connection, retry, [(_task(row), *again, row.id) for row in rows])
            self._each(connection, _INSERT, [_new(row, queue) for row in rows])
            self._notify(connection, "rows", queue)

        self._transact(put)

    def exchange(
        self,
        worker: str,
        queue: str,
        *,
        ended: Sequence[Row] = (),
        back: Sequence[str] = (),
        free: int = 0,
        most: int | None = None,
        claim: str = "",
    ) -> list[Row]:
        """Store the results of a worker, put rows back, and claim up to `free` waiting rows.

        `most` limits the running rows of the queue. A call that repeats the `claim` of a failed
        call returns the rows that the failed call may have claimed. A result is stored only if the
        row still has the claim of the worker.
        """
        claim = claim or f"{worker}-{new_id()}"
        skip = f"{self._locked} SKIP LOCKED" if self.store.notifies else ""
        # Without MATERIALIZED, Postgres may run the inner query for each row of the outer one.
        take = f"""
            WITH first AS MATERIALIZED (
                SELECT id FROM glue_rows WHERE queue = ? AND state = 'waiting'
                ORDER BY number LIMIT ?{skip}
            ) {_TAKE} AND id IN (SELECT id FROM first) RETURNING {_RECORD}"""
        taken = f"""
            SELECT {_RECORD} FROM glue_rows
            WHERE queue = ? AND worker = ? AND state = 'running' AND claim = ?"""
        store = f"""
            UPDATE glue_rows SET state = 'ended', outcome = ?, cost = ?, result = ?, run = ?,
            worker = NULL, claim = NULL, losses = 0, ended = {self.store.now}
            WHERE id = ? AND claim = ?"""

        def work(connection: Connection) -> list[Any]:
            self._each(connection, store, map(_result, ended))
            self._each(connection, f"{_PUT_BACK} AND id = ?", [(worker, each) for each in back])
            is_repeated, self._claim = free > 0 and self._claim == claim, claim
            if is_repeated and (found := self._select(connection, taken, queue, worker, claim)):
                return found
            count = free
            if count > 0 and most is not None:
                count = min(count, most - self._running(connection, queue))
            return self._select(connection, take, queue, count, worker, claim) if count > 0 else []

        return sorted(map(_record, self._transact(work)), key=lambda row: row.number)

    def _running(self, connection: Connection, queue: str) -> int:
        self._lock(connection, _COUNTING, queue)  # two workers must not count at the same time
        sql = "SELECT count(*) FROM glue_rows WHERE queue = ? AND state = 'running'"
        return int(self._select(connection, sql, queue)[0][0])

    def find(self, id: str) -> Row | None:
        """Return a row, or None if there is none."""
        rows = self._fetch(_FIND, id)
        return _record(rows[0]) if rows else None

    def take(self, worker: str, queue: str, row: Row, states: Sequence[str] = ()) -> Row | None:
        """Store a row and claim it for this process; return it, or None if it may not run.

        A row may run if it is new or waiting, or if its state is in `states`.
        """
        claim = f"{worker}-{new_id()}"
        change = f"""
            UPDATE glue_rows SET state = 'waiting', task = ?, losses = 0
            WHERE id = ? AND state IN ({_marks(states)})"""
        taken = f"SELECT {_RECORD} FROM glue_rows WHERE id = ? AND claim = ?"

        def work(connection: Connection) -> list[Any]:
            if not self._select(connection, taken, row.id, claim):  # or the connection broke
                self._run(connection, _INSERT, *_new(row, queue))
                if states:
                    self._run(connection, change, _task(row), row.id, *states)
                self._run(connection, f"{_TAKE} AND id = ?", worker, claim, row.id)
            return self._select(connection, taken, row.id, claim)

        found = self._transact(work)
        return _record(found[0]) if found else None

    def add_lost(self, id: str) -> None:
        """Count a request of a row that had no reply when its worker died."""
        sql = "UPDATE glue_rows SET lost = lost + 1 WHERE id = ?"
        self._transact(lambda connection: self._run(connection, sql, id))

    def ended(self, map: str, most: int = 500) -> list[MapRow]:
        """Return the results of up to `most` rows that ended and were not returned yet."""
        sql = "SELECT result FROM glue_rows WHERE map = ? AND state = 'ended' LIMIT ?"
        return [MapRow.from_json(loads(result)) for (result,) in self._fetch(sql, map, most)]

    def mark_returned(self, map: str, numbers: Iterable[int]) -> None:
        sql = """
            UPDATE glue_rows SET state = 'returned'
            WHERE map = ? AND number = ? AND state = 'ended'"""
        rows = [(map, number) for number in numbers]
        self._transact(lambda connection: self._each(connection, sql, rows))

    def withdraw(self, map: str) -> set[int]:
        """Remove the rows of a map that no worker has begun; return the numbers of the others."""
        delete = "DELETE FROM glue_rows WHERE map = ? AND state = 'waiting' AND claims = 0"
        left = "SELECT number FROM glue_rows WHERE map = ?"

        def work(connection: Connection) -> set[int]:
            self._run(connection, delete, map)
            return {number for (number,) in self._select(connection, left, map)}

        return self._transact(work)

    # Workers --------------------------------------------------------------------------------------

    def heartbeat(
        self, worker: str, queue: str, concurrency: int, lease: float
    ) -> tuple[bool, dict[str, float]]:
        """Store that a worker is alive.

        Return whether another worker of the queue is dead, and the cooldowns of providers.
        """
        sql = f"""
            INSERT INTO glue_workers VALUES (?, ?, ?, ?, ?, ?, {self.store.now})
            ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"""
        dead = f"SELECT 1 FROM glue_workers WHERE queue = ? AND seen < {self.store.now} - lease"
        values = (worker, queue, socket.gethostname(), os.getpid(), concurrency, lease)

        def beat(connection: Connection) -> tuple[bool, dict[str, float]]:
            self._run(connection, sql, *values)
            return bool(self._select(connection, dead, queue)), self._cooldowns(connection)

        return self._transact(beat)

    def deregister(self, worker: str) -> None:
        """Remove a worker that stops, and put its rows back on the queue."""

        def work(connection: Connection) -> None:
            self._run(connection, _PUT_BACK, worker)
            self._run(connection, "DELETE FROM glue_workers WHERE id = ?", worker)

        self._transact(work)

    def recover(self, queue: str) -> int:
        """Put the rows of dead workers back on their queue, or give them up; return their number.

        A row that has lost too many workers is given up: it ends as failed. If another worker is
        recovering rows at the moment, do nothing.
        """
        alive = f"""
            SELECT 1 FROM glue_workers AS w
            WHERE w.id = glue_rows.worker AND w.seen >= {self.store.now} - w.lease"""
        find = f"""
            SELECT id, losses, held_usd, held_tokens, map FROM glue_rows
            WHERE queue = ? AND state = 'running' AND NOT EXISTS ({alive}){self._locked}"""
        back = f"""
            UPDATE glue_rows SET state = 'waiting', worker = NULL, claim = NULL, held_usd = 0,
            held_tokens = 0, losses = losses + 1 WHERE {self.store._among}"""
        fail = f"""
            UPDATE glue_rows SET state = 'ended', outcome = 'failed', result = ?,
            ended = {self.store.now} WHERE id = ?"""
        give = """
            UPDATE glue_maps SET held_usd = held_usd - ?, held_tokens = held_tokens - ?
            WHERE id = ?"""
        clean = f"DELETE FROM glue_workers WHERE queue = ? AND seen < {self.store.now} - lease"
        lock = "SELECT pg_try_advisory_xact_lock(?, hashtext(?))"
        error = f"given up after losing {MAX_LOSSES + 1} workers"

        def work(connection: Connection) -> int:
            if self.store.notifies and not self._select(connection, lock, _RECOVERING, queue)[0][0]:
                return 0
            found = self._select(connection, find, queue)
            self._run(connection, back, json.dumps([name for name, *_ in found]))
            for name in [name for name, losses, *_ in found if losses >= MAX_LOSSES]:
                row = _record(self._select(connection, _FIND, name)[0])
                result = row.ended(Outcome.FAILED, error=error)
                self._run(connection, fail, json.dumps(result.to_json()), name)
            self._each(connection, give, [held for _, _, *held in found if held[0] or held[1]])
            self._run(connection, clean, queue)
            if found:
                self._notify(connection, "rows", queue)
            return len(found)

        return self._transact(work)

    def workers(self, queue: str) -> list[dict[str, Any]]:
        """Return the workers of a queue; "silent" is the age of the last heartbeat."""
        names = ("id", "queue", "host", "pid", "concurrency", "lease", "silent")
        sql = f"""
            SELECT id, queue, host, pid, concurrency, lease, {self.store.now} - seen
            FROM glue_workers WHERE queue = ? ORDER BY id"""
        return [dict(zip(names, row, strict=True)) for row in self._fetch(sql, queue)]

    def slots(self, queue: str) -> int:
        """Return how many rows the living workers of a queue run at the same time."""
        return sum(
            worker["concurrency"]
            for worker in self.workers(queue)
            if worker["silent"] < worker["lease"]
        )

    def queues(self) -> list[str]:
        """Return the names of all queues that have rows or workers."""
        sql = "SELECT queue FROM glue_rows UNION SELECT queue FROM glue_workers ORDER BY 1"
        return [row[0] for row in self._fetch(sql)]

    def counts(self, queue: str) -> dict[str, Any]:
        """Return counts of a queue's rows by state, outcome and worker, the cost and cooldowns."""

        def grouped(column: str, where: str) -> dict[str, int]:
            sql = f"SELECT {column}, count(*) FROM glue_rows WHERE queue = ? AND {where} GROUP BY 1"
            return dict(self._fetch(sql, queue))

        cost = "SELECT coalesce(sum(cost), 0) FROM glue_rows WHERE queue = ?"
        held = "SELECT coalesce(sum(held_usd), 0) FROM glue_maps WHERE queue = ?"
        return {
            "states": grouped("state", "true"),
            "outcomes": grouped("outcome", "outcome IS NOT NULL"),
            "last_minute": sum(grouped("queue", f"ended > {self.store.now} - 60").values()),
            "held": grouped("worker", "state = 'running'"),
            "usd": float(self._fetch(cost, queue)[0][0]),
            "usd_reserved": float(self._fetch(held, queue)[0][0]),
            "cooldowns": self.cooldowns(),
        }

    def prune(
        self, queue: str, before: float, outcomes: Sequence[str] = (), *, dry_run: bool = False
    ) -> int:
        """Delete rows that ended before a time, and their sessions; return the number of rows.

        Paused rows are kept, unless `outcomes` names them. `dry_run` only counts the rows.
        """
        where = "(? = '' OR queue = ?) AND state IN ('ended', 'returned') AND ended < ?"
        kind = f"outcome IN ({_marks(outcomes)})" if outcomes else "outcome <> 'paused'"
        old = f"SELECT id FROM glue_rows WHERE {where} AND {kind}"
        values = (queue, queue, before, *outcomes)
        sessions = f"DELETE FROM glue_sessions WHERE id IN ({old}){self.store._free}"
        maps = "DELETE FROM glue_maps WHERE created < ? AND id NOT IN (SELECT map FROM glue_rows)"

        def work(connection: Connection) -> int:
            count = len(self._select(connection, old, *values))
            if not dry_run:
                self._run(connection, sessions, *values)
                self._run(connection, f"DELETE FROM glue_rows WHERE id IN ({old})", *values)
                self._run(connection, maps, before)
            return count

        return self._transact(work)

    # The ledger -----------------------------------------------------------------------------------

    def balance(self, map: str) -> Balance:
        """Return the budget of a map."""
        return self._transact(lambda connection: self._balance(connection, map))

    def _balance(self, connection: Connection, map: str, lock: str = "") -> Balance:
        sql = f"SELECT {', '.join(_AMOUNTS)} FROM glue_maps WHERE id = ?{lock}"
        found = self._select(connection, sql, map)
        return Balance(*found[0]) if found else Balance()

    def _store_balance(self, connection: Connection, map: str, balance: Balance) -> None:
        sql = f"UPDATE glue_maps SET {', '.join(f'{name} = ?' for name in _AMOUNTS)} WHERE id = ?"
        self._run(connection, sql, *astuple(balance), map)

    def change_balance(self, map: str, row: str, change: Callable[[Balance, Hold], T]) -> T | None:
        """Call `change` with the balance of a map and the reservation of a row, and store both.

        Return its result, or None if the connection broke after the commit.
        """
        mark = new_id()
        find = f"SELECT held_usd, held_tokens, mark FROM glue_rows WHERE id = ?{self._locked}"
        store = "UPDATE glue_rows SET held_usd = ?, held_tokens = ?, mark = ? WHERE id = ?"

        def work(connection: Connection) -> T | None:
            balance = self._balance(connection, map, self._locked)
            usd, tokens, last = next(iter(self._select(connection, find, row)), (0.0, 0.0, ""))
            if last == mark:
                return None
            hold = Hold(usd, tokens)
            result = change(balance, hold)
            self._store_balance(connection, map, balance)
            self._run(connection, store, hold.usd, hold.tokens, mark, row)
            return result

        return self._transact(work)

    def change_meter(self, name: str, change: Callable[[Meter, float], T]) -> T:
        """Call `change` with a meter and the time, store the meter, and return the result."""
        create = f"""
            INSERT INTO glue_meters VALUES (?, {self.store.now}, 0) ON CONFLICT (name) DO NOTHING"""
        find = f"SELECT free, mean, {self.store.now} FROM glue_meters WHERE name = ?{self._locked}"
        store = "UPDATE glue_meters SET free = ?, mean = ? WHERE name = ?"

        def work(connection: Connection) -> T:
            self._run(connection, create, name)
            free, mean, now = map(float, self._select(connection, find, name)[0])
            meter = Meter(free, mean)
            result = change(meter, now)
            self._run(connection, store, meter.free_at, meter.mean, name)
            return result

        return self._transact(work)

    def cool_down(self, name: str, seconds: float | None) -> None:
        """Begin a cooldown of a provider, for all workers, or end it if `seconds` is None."""
        sql = f"""
            INSERT INTO glue_cooldowns VALUES (?, {self.store.now} + ?)
            ON CONFLICT (name) DO UPDATE SET until = excluded.until"""

        def work(connection: Connection) -> None:
            self._run(connection, sql, name, seconds)
            self._notify(connection, "cooldown", name, seconds)

        self._transact(work)

    def probe(self, name: str) -> float:
        """Return the seconds until the caller may test a provider after its cooldown, or 0."""
        test = f"""
            UPDATE glue_cooldowns SET until = {self.store.now} + {PROBE_SECONDS}
            WHERE name = ? AND until <= {self.store.now}"""
        find = f"SELECT until - {self.store.now} FROM glue_cooldowns WHERE name = ?"

        def work(connection: Connection) -> float:
            if self._run(connection, test, name).rowcount:
                return 0.0
            found = self._select(connection, find, name)
            return max(float(found[0][0]), 0.01) if found and found[0][0] is not None else 0.0

        return self._transact(work)

    def cooldowns(self) -> dict[str, float]:
        """Return the remaining seconds of each cooldown, by the name of the provider."""
        return self._transact(self._cooldowns)

    def _cooldowns(self, connection: Connection) -> dict[str, float]:
        now = self.store.now
        sql = f"SELECT name, until - {now} FROM glue_cooldowns WHERE until > {now}"
        return dict(self._select(connection, sql))


# Statements ---------------------------------------------------------------------------------------

_AMOUNTS = tuple(each.name for each in fields(Balance))  # columns of `glue_maps`
# The columns that `_record` reads: those of the row, and the budget of its map.
_RECORD = "id, map, number, task, state, claim, claims, losses, lost, result, run, " + ", ".join(
    f"(SELECT {name} FROM glue_maps WHERE glue_maps.id = glue_rows.map)"
    for name in ("usd_budget", "token_budget")
)
_FIND = f"SELECT {_RECORD} FROM glue_rows WHERE id = ?"
_INSERT = """
    INSERT INTO glue_rows(id, map, number, queue, state, task)
    VALUES (?, ?, ?, ?, 'waiting', ?) ON CONFLICT (id) DO NOTHING"""
_TAKE = """
    UPDATE glue_rows SET state = 'running', worker = ?, claim = ?, claims = claims + 1
    WHERE state = 'waiting'"""
_PUT_BACK = """
    UPDATE glue_rows SET state = 'waiting', worker = NULL, claim = NULL
    WHERE worker = ? AND state = 'running'"""


def _marks(values: Sequence[object]) -> str:
    """Return the placeholders for values, or a value that equals no other."""
    return ", ".join("?" for _ in values) or "NULL"


def _new(row: Row, queue: str) -> tuple[object, ...]:
    return row.id, row.map, row.number, queue, _task(row)


def _result(row: Row) -> tuple[object, ...]:
    ended = row.result
    assert ended is not None
    run = None if row.run is None else json.dumps(row.run)
    return ended.outcome, ended.cost, json.dumps(ended.to_json()), run, row.id, row.claim


def _task(row: Row) -> str:
    """Encode the part of a row that a worker needs to run it."""
    return json.dumps(
        {
            "prompt": messages_to_json(prompt_messages(row.prompt)),
            "key": row.key,
            "retries": row.retries,
            "trace": dict(row.trace),
            "decisions": {key: _encode(each) for key, each in row.decisions.items()},
        }
    )


def _record(found: Sequence[Any]) -> Row:
    """Return the row with the values of the columns `_RECORD`."""
    name, map_name, number, task, state, claim, claims, losses, lost, result, run, *budget = found
    given = loads(task) or {}
    return Row(
        id=name,
        map=map_name,
        number=number,
        prompt=messages_from_json(given.get("prompt", [])),
        key=given.get("key"),
        retries=given.get("retries", 0),
        trace=given.get("trace") or {},
        decisions={key: _decode(each) for key, each in given.get("decisions", {}).items()},
        usd_budget=budget[0],
        token_budget=budget[1],
        state=state,
        claim=claim or "",
        is_new=claims == 1,
        is_lost=losses > 0,
        lost=lost,
        result=MapRow.from_json(loads(result)) if result else None,
        run=loads(run) if run else None,
    )


def _encode(decision: Any) -> Json:
    """Encode a decision on a pending call."""
    if isinstance(decision, Decision):
        return {"decision": to_json(decision)}
    if isinstance(decision, ToolResult):
        return {"result": to_json(decision)}
    return {"value": to_plain(decision)}


def _decode(value: Mapping[str, Json]) -> Any:
    if "decision" in value:
        return from_json(Decision, value["decision"])
    return from_json(ToolResult, value["result"]) if "result" in value else value["value"]

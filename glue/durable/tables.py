"""The tables of a queue, next to the sessions of a store: rows, maps, workers, meters, cooldowns.

    waiting -> running -> ended -> returned
       ^          |          |
       |          v          |  the row failed and its map was resumed,
       `----------+----------'  or its worker died

A row is a session in the store and a record here. The record has the state of the row, its worker,
and its result; everything that the row has said and done is in the session. All methods block, use
one transaction each, and wait while a Postgres server restarts.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from glue.durable.ledger import Balance
from glue.durable.rows import MapRow
from glue.errors import BudgetExceeded, ConfigError, NewerSchema, StoreError
from glue.limits import Outcome
from glue.messages import Json, Usage, new_id
from glue.stores.sql import Connection, SQLStore, loads

T = TypeVar("T")

SCHEMA = 1
STATES = ("waiting", "running", "ended", "returned")
LEASE = 10.0  # seconds after its last heartbeat at which a worker counts as dead
MAX_LOSSES = 5  # workers that a row may lose before it fails
PROBE_SECONDS = 30.0  # after which another request may test a provider that cools down
CHANNEL = "glue"  # of Postgres notifications
_MIGRATING = 7305  # the number of the advisory lock for creating the tables
_RECOVERING = 7306
_created: WeakSet[SQLStore] = WeakSet()  # stores whose tables exist


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecord:
    """A row of a queue as it is stored."""

    id: str  # also the id of its session
    map: str  # "" for a single run
    number: int
    task: Mapping[str, Json]
    claims: int = 1  # how often a worker has taken the row
    losses: int = 0  # workers that died while they ran the row, since its last result
    lost: int = 0  # requests that were under way when a worker died
    result: Mapping[str, Json] | None = None  # of the last try


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRow:
    """The result of a row. It is stored only if the row still has the same claim."""

    id: str
    claim: str
    outcome: str
    cost: float | None
    result: Mapping[str, Json]


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

    def close(self) -> None:
        self._stack.close()
        self._is_open = False

    def is_transient(self, error: StoreError) -> bool:
        """Return whether the database responded earlier and is unreachable now."""
        return self.store in _created and self.store.is_away(error)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        if not self._is_open:
            self._stack.enter_context(self.store.kept_open())
            self._is_open = True
        if self.store not in _created:
            self.store.transact(self._create)
            _created.add(self.store)
        return self.store.transact(work)

    def _create(self, connection: Connection) -> None:
        if self.store.notifies:  # two workers may start at the same time
            self._run(connection, f"SELECT pg_advisory_xact_lock({_MIGRATING})")
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

    def _fetch(self, sql: str, *values: object) -> list[Any]:
        """Run one statement in a transaction, and return the rows that it selects."""

        def work(connection: Connection) -> list[Any]:
            cursor = self._run(connection, sql, *values)
            return cursor.fetchall() if cursor.description else []

        return self._transact(work)

    def _each(self, connection: Connection, sql: str, rows: Iterable[Sequence[object]]) -> None:
        if rows := list(rows):
            connection.cursor().executemany(self.store._text(sql), rows)

    @property
    def _locked(self) -> str:
        """The SQL clause that locks the rows of a SELECT; "" for SQLite, which needs none."""
        return " FOR UPDATE" if self.store.notifies else ""

    def _notify(self, connection: Connection, *message: object) -> None:
        if self.store.notifies:
            self._run(connection, "SELECT pg_notify(?, ?)", CHANNEL, json.dumps(message))

    # Rows -----------------------------------------------------------------------------------------

    def begin_map(
        self, id: str, queue: str, usd_budget: float | None, token_budget: float | None
    ) -> None:
        """Store a map, or change its budget.

        If the map had no budget before, the cost of its rows so far is counted now.
        """
        sql = f"""
            INSERT INTO glue_maps(id, queue, created, usd_budget, token_budget)
            VALUES (?, ?, {self.store.now}, ?, ?) ON CONFLICT (id) DO UPDATE
            SET usd_budget = excluded.usd_budget, token_budget = excluded.token_budget,
            usd = CASE WHEN glue_maps.usd > 0 THEN glue_maps.usd ELSE coalesce(
                (SELECT sum(cost) FROM glue_rows WHERE glue_rows.map = excluded.id), 0) END"""
        self._fetch(sql, id, queue, usd_budget, token_budget)

    def enqueue(self, queue: str, rows: Sequence[RowRecord], again: Sequence[str] = ()) -> None:
        """Put rows on a queue. Rows that wait or run already stay as they are.

        `again` are outcomes, if a map is resumed: rows that ended with one of them are run again,
        and rows with another outcome are returned again.
        """
        insert = """
            INSERT INTO glue_rows(id, map, number, queue, state, task)
            VALUES (?, ?, ?, ?, 'waiting', ?) ON CONFLICT (id) DO NOTHING"""
        marks = ", ".join("?" for _ in again)
        retry = f"""
            UPDATE glue_rows SET task = ?, losses = 0, state = CASE
                WHEN outcome IN ({marks}) THEN 'waiting' ELSE 'ended' END
            WHERE id = ? AND state IN ('ended', 'returned')"""

        def put(connection: Connection) -> None:
            tasks = [(row, json.dumps(row.task)) for row in rows]
            if again:
                self._each(connection, retry, [(task, *again, row.id) for row, task in tasks])
            new = [(row.id, row.map, row.number, queue, task) for row, task in tasks]
            self._each(connection, insert, new)
            self._notify(connection, "rows", queue)

        self._transact(put)

    def exchange(
        self,
        worker: str,
        queue: str,
        *,
        ended: Sequence[EndedRow] = (),
        back: Sequence[str] = (),
        free: int = 0,
        most: int | None = None,
    ) -> list[tuple[RowRecord, str]]:
        """Store the results of a worker, put rows back, and claim up to `free` waiting rows.

        `most` limits the running rows of the queue. Return the claimed rows, with their claims.
        """
        claim, calls = f"{worker}-{new_id()}", itertools.count()
        skip = f"{self._locked} SKIP LOCKED" if self.store.notifies else ""
        take = f"""
            UPDATE glue_rows
            SET state = 'running', worker = ?, claim = ?, claims = claims + 1 WHERE id IN (
                SELECT id FROM glue_rows WHERE queue = ? AND state = 'waiting'
                ORDER BY number LIMIT ?{skip}
            ) RETURNING {_RECORD}"""
        taken = f"SELECT {_RECORD} FROM glue_rows WHERE claim = ? AND state = 'running'"

        def work(connection: Connection) -> list[Any]:
            self._end(connection, ended)
            self._each(connection, f"{_PUT_BACK} AND id = ?", [(worker, each) for each in back])
            # If this is called again, the connection broke, perhaps after the commit.
            found = self._run(connection, taken, claim).fetchall() if next(calls) else []
            if found:
                return found
            count = free if most is None else min(free, self._left(connection, queue, most))
            if count <= 0:
                return []
            rows: list[Any] = self._run(connection, take, worker, claim, queue, count).fetchall()
            return rows

        records = [_record(row) for row in self._transact(work)]
        return [(record, claim) for record in sorted(records, key=lambda each: each.number)]

    def _left(self, connection: Connection, queue: str, most: int) -> int:
        if self.store.notifies:  # two workers must not count at the same time
            self._run(connection, "SELECT pg_advisory_xact_lock(?, hashtext(?))", _MIGRATING, queue)
        sql = "SELECT count(*) FROM glue_rows WHERE queue = ? AND state = 'running'"
        return most - int(self._run(connection, sql, queue).fetchone()[0])

    def _end(self, connection: Connection, ended: Sequence[EndedRow]) -> None:
        sql = f"""
            UPDATE glue_rows SET state = 'ended', outcome = ?, cost = ?, result = ?, worker = NULL,
            claim = NULL, losses = 0, ended = {self.store.now} WHERE id = ? AND claim = ?"""
        self._each(
            connection,
            sql,
            [(row.outcome, row.cost, json.dumps(row.result), row.id, row.claim) for row in ended],
        )

    def find(self, id: str) -> tuple[str, RowRecord] | None:
        """Return the state and the record of a row, or None if there is none."""
        sql = f"SELECT state, {_RECORD} FROM glue_rows WHERE id = ?"
        rows = self._fetch(sql, id)
        return (rows[0][0], _record(rows[0][1:])) if rows else None

    def take(self, worker: str, queue: str, row: RowRecord, states: Sequence[str] = ()) -> str:
        """Store a row as running in this process; return its claim, or "" if it may not run.

        A new row may run, and a stored row whose state is in `states`.
        """
        claim = f"{worker}-{new_id()}"
        insert = """
            INSERT INTO glue_rows(id, map, number, queue, state, task, worker, claim, claims)
            VALUES (?, ?, ?, ?, 'running', ?, ?, ?, 1) ON CONFLICT (id) DO NOTHING"""
        marks = ", ".join("?" for _ in states) or "''"
        update = f"""
            UPDATE glue_rows
            SET state = 'running', task = ?, worker = ?, claim = ?, claims = claims + 1, losses = 0
            WHERE id = ? AND state IN ({marks})"""
        task = json.dumps(row.task)

        def work(connection: Connection) -> str:
            values = (row.id, row.map, row.number, queue, task, worker, claim)
            if not self._run(connection, insert, *values).rowcount:
                self._run(connection, update, task, worker, claim, row.id, *states)
            found = self._run(connection, "SELECT claim FROM glue_rows WHERE id = ?", row.id)
            return claim if found.fetchone()[0] == claim else ""

        return self._transact(work)

    def add_lost(self, id: str) -> None:
        """Count a request of a row that had no reply when its worker died."""
        self._fetch("UPDATE glue_rows SET lost = lost + 1 WHERE id = ?", id)

    def ended(self, map: str, most: int = 500) -> list[tuple[int, Mapping[str, Json]]]:
        """Return number and result of up to `most` rows that ended and were not returned yet."""
        sql = "SELECT number, result FROM glue_rows WHERE map = ? AND state = 'ended' LIMIT ?"
        return [(number, loads(result)) for number, result in self._fetch(sql, map, most)]

    def mark_returned(self, map: str, numbers: Iterable[int]) -> None:
        sql = """
            UPDATE glue_rows SET state = 'returned'
            WHERE map = ? AND number = ? AND state = 'ended'"""
        rows = [(map, number) for number in numbers]
        self._transact(lambda connection: self._each(connection, sql, rows))

    def withdraw(self, map: str) -> None:
        """Remove the rows of a map that no worker has begun."""
        self._fetch("DELETE FROM glue_rows WHERE map = ? AND state = 'waiting' AND claims = 0", map)

    def numbers(self, map: str) -> set[int]:
        """Return the numbers of all rows of a map."""
        return {row[0] for row in self._fetch("SELECT number FROM glue_rows WHERE map = ?", map)}

    def spent(self, map: str) -> tuple[float, float, bool]:
        """Return the dollars and tokens of a map, and whether one of its budgets is spent."""
        balance = self._transact(lambda connection: self._balance(connection, map))
        return balance.usd, balance.tokens, balance.over() is not None

    # Workers --------------------------------------------------------------------------------------

    def heartbeat(self, worker: str, queue: str, concurrency: int, lease: float) -> bool:
        """Store that a worker is alive. Return whether another worker of the queue is dead."""
        sql = f"""
            INSERT INTO glue_workers VALUES (?, ?, ?, ?, ?, ?, {self.store.now})
            ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"""
        dead = (
            f"SELECT count(*) FROM glue_workers WHERE queue = ? AND seen < {self.store.now} - lease"
        )
        values = (worker, queue, socket.gethostname(), os.getpid(), concurrency, lease)

        def beat(connection: Connection) -> bool:
            self._run(connection, sql, *values)
            return bool(self._run(connection, dead, queue).fetchone()[0])

        return self._transact(beat)

    def deregister(self, worker: str) -> None:
        """Remove a worker that stops, and put its rows back on the queue."""

        def work(connection: Connection) -> None:
            self._run(connection, _PUT_BACK, worker)
            self._run(connection, "DELETE FROM glue_workers WHERE id = ?", worker)

        self._transact(work)

    def held(self, worker: str, queue: str) -> set[str]:
        """Return the ids of the running rows of a worker."""
        sql = "SELECT id FROM glue_rows WHERE queue = ? AND worker = ? AND state = 'running'"
        return {row[0] for row in self._fetch(sql, queue, worker)}

    def recover(self, queue: str) -> int:
        """Put the rows of dead workers back on their queue, or give them up; return their number.

        A row that has lost too many workers is given up: it ends as failed. If another worker is
        recovering rows at the moment, do nothing.
        """
        alive = f"""
            SELECT 1 FROM glue_workers AS w
            WHERE w.id = r.worker AND w.seen >= {self.store.now} - w.lease"""
        find = f"""
            SELECT id, map, number, losses, held_usd, held_tokens, task FROM glue_rows AS r
            WHERE queue = ? AND state = 'running' AND NOT EXISTS ({alive}){self._locked}"""
        back = f"""
            UPDATE glue_rows SET state = 'waiting', worker = NULL, claim = NULL, request = NULL,
            held_usd = 0, held_tokens = 0, losses = losses + 1 WHERE {self.store._among}"""
        fail = f"""
            UPDATE glue_rows SET state = 'ended', worker = NULL, claim = NULL, request = NULL,
            held_usd = 0, held_tokens = 0, losses = losses + 1, outcome = 'failed', result = ?,
            ended = {self.store.now} WHERE id = ?"""
        give = """
            UPDATE glue_maps SET held_usd = held_usd - ?, held_tokens = held_tokens - ?
            WHERE id = ?"""
        clean = f"DELETE FROM glue_workers WHERE queue = ? AND seen < {self.store.now} - lease"

        def work(connection: Connection) -> int:
            if self.store.notifies:
                lock = "SELECT pg_try_advisory_xact_lock(?, hashtext(?))"
                if not self._run(connection, lock, _RECOVERING, queue).fetchone()[0]:
                    return 0
            rows = self._run(connection, find, queue).fetchall()
            given_up = [row for row in rows if row[3] >= MAX_LOSSES]
            self._run(connection, back, json.dumps([row[0] for row in rows if row[3] < MAX_LOSSES]))
            self._each(connection, fail, [(json.dumps(_given_up(row)), row[0]) for row in given_up])
            held: dict[str, tuple[float, float]] = {}
            for _, name, _, _, usd, tokens, _ in rows:
                if usd or tokens:
                    before = held.get(name, (0.0, 0.0))
                    held[name] = before[0] + usd, before[1] + tokens
            self._each(connection, give, [(*amounts, name) for name, amounts in held.items()])
            self._run(connection, clean, queue)
            if rows:
                self._notify(connection, "rows", queue)
            return len(rows)

        return self._transact(work)

    def workers(self, queue: str = "") -> list[dict[str, Any]]:
        """Return the workers of a queue, or of all queues; "silent" is the age of a heartbeat."""
        names = ("id", "queue", "host", "pid", "concurrency", "lease", "silent")
        sql = f"""
            SELECT id, queue, host, pid, concurrency, lease, {self.store.now} - seen
            FROM glue_workers WHERE ? = '' OR queue = ? ORDER BY id"""
        return [dict(zip(names, row, strict=True)) for row in self._fetch(sql, queue, queue)]

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

        def grouped(connection: Connection, column: str, where: str) -> dict[str, int]:
            sql = f"SELECT {column}, count(*) FROM glue_rows WHERE queue = ? AND {where} GROUP BY 1"
            return dict(self._run(connection, sql, queue).fetchall())

        def work(connection: Connection) -> dict[str, Any]:
            recent = f"ended > {self.store.now} - 60"
            cost = "SELECT coalesce(sum(cost), 0) FROM glue_rows WHERE queue = ?"
            held = "SELECT coalesce(sum(held_usd), 0) FROM glue_maps WHERE queue = ?"
            return {
                "states": grouped(connection, "state", "true"),
                "outcomes": grouped(connection, "outcome", "outcome IS NOT NULL"),
                "last_minute": sum(grouped(connection, "queue", recent).values()),
                "held": grouped(connection, "worker", "state = 'running'"),
                "usd": float(self._run(connection, cost, queue).fetchone()[0]),
                "usd_reserved": float(self._run(connection, held, queue).fetchone()[0]),
            }

        return {**self._transact(work), "cooldowns": self.cooldowns()}

    def prune(
        self, queue: str, before: float, outcomes: Sequence[str] = (), *, dry_run: bool = False
    ) -> int:
        """Delete rows that ended before a time, and their sessions; return the number of rows.

        Paused rows are kept, unless `outcomes` names them. `dry_run` only counts the rows.
        """
        marks = ", ".join("?" for _ in outcomes)
        where = "(? = '' OR queue = ?) AND state IN ('ended', 'returned') AND ended < ?"
        where += f" AND outcome IN ({marks})" if outcomes else " AND outcome <> 'paused'"
        values = (queue, queue, before, *outcomes)
        old = f"SELECT id FROM glue_rows WHERE {where}"
        maps = "DELETE FROM glue_maps WHERE created < ? AND id NOT IN (SELECT map FROM glue_rows)"

        def work(connection: Connection) -> int:
            if dry_run:
                sql = f"SELECT count(*) FROM glue_rows WHERE {where}"
                return int(self._run(connection, sql, *values).fetchone()[0])
            delete = f"DELETE FROM glue_sessions WHERE id IN ({old}){self.store._free}"
            self._run(connection, delete, *values)
            count = self._run(connection, f"DELETE FROM glue_rows WHERE {where}", *values).rowcount
            self._run(connection, maps, before)
            return int(count)

        return self._transact(work)

    # The ledger -----------------------------------------------------------------------------------

    def _balance(self, connection: Connection, map: str, lock: str = "") -> Balance:
        names = ("usd_budget", "token_budget", "usd", "tokens", "held_usd", "held_tokens")
        sql = f"SELECT {', '.join(names)}, requests FROM glue_maps WHERE id = ?{lock}"
        row = self._run(connection, sql, map).fetchone()
        if row is None:
            return Balance()
        balance, count = Balance(**dict(zip(names, row, strict=False))), max(row[-1], 1)
        return replace(balance, mean_usd=balance.usd / count, mean_tokens=balance.tokens / count)

    def reserve(self, row: str, map: str, usd: float, tokens: float) -> BudgetExceeded | None:
        """Reserve the cost of a request; see `glue.durable.ledger.Accounts`."""
        request = new_id()
        hold = """
            UPDATE glue_maps SET held_usd = held_usd + ?, held_tokens = held_tokens + ?
            WHERE id = ?"""
        mark = "UPDATE glue_rows SET request = ?, held_usd = ?, held_tokens = ? WHERE id = ?"

        def work(connection: Connection) -> BudgetExceeded | None:
            balance = self._balance(connection, map, self._locked)
            before, old_usd, old_tokens = self._held(connection, row)
            if before == request:
                return None  # the connection broke after the commit
            # A reservation that is left over from an interrupted try is replaced.
            balance = replace(
                balance,
                held_usd=balance.held_usd - old_usd,
                held_tokens=balance.held_tokens - old_tokens,
            )
            error = balance.over(usd, tokens)
            if error is None:
                new_usd, new_tokens = balance.expected(usd, tokens)
                self._run(connection, hold, new_usd - old_usd, new_tokens - old_tokens, map)
                self._run(connection, mark, request, new_usd, new_tokens, row)
            return error

        return self._transact(work)

    def _held(self, connection: Connection, row: str) -> tuple[str | None, float, float]:
        sql = f"SELECT request, held_usd, held_tokens FROM glue_rows WHERE id = ?{self._locked}"
        return self._run(connection, sql, row).fetchone() or (None, 0.0, 0.0)

    def settle(self, row: str, map: str, usage: Usage | None) -> None:
        """Replace the reservation of a row by `usage`, which is None if the row got no reply."""
        used = (0.0, 0, 0) if usage is None else (usage.cost or 0.0, usage.total, 1)
        clear = "UPDATE glue_rows SET request = NULL, held_usd = 0, held_tokens = 0 WHERE id = ?"
        add = """
            UPDATE glue_maps SET held_usd = held_usd - ?, held_tokens = held_tokens - ?,
            usd = usd + ?, tokens = tokens + ?, requests = requests + ? WHERE id = ?"""

        def work(connection: Connection) -> None:
            request, usd, tokens = self._held(connection, row)
            if request is not None:
                self._run(connection, clear, row)
            if request is not None or usage is not None:
                count = used[2] if request is not None else 0
                self._run(connection, add, usd, tokens, *used[:2], count, map)

        self._transact(work)

    def slot(self, name: str, seconds: float, tokens: float) -> tuple[float, float]:
        """Reserve a time slot of a rate limit; see `glue.durable.ledger.Ledger.slot`."""
        create = f"""
            INSERT INTO glue_meters VALUES (?, {self.store.now}, 0) ON CONFLICT (name) DO NOTHING"""
        find = f"SELECT free, mean, {self.store.now} FROM glue_meters WHERE name = ?{self._locked}"
        change = "UPDATE glue_meters SET free = ? WHERE name = ?"

        def work(connection: Connection) -> tuple[float, float]:
            self._run(connection, create, name)
            free, mean, now = map(float, self._run(connection, find, name).fetchone())
            reserved = max(tokens, mean) if tokens else 0.0
            begins = max(free, now)
            self._run(connection, change, begins + seconds * (reserved or 1.0), name)
            return begins - now, reserved

        return self._transact(work)

    def correct(self, name: str, seconds: float, reserved: float, used: float) -> None:
        """Correct a slot for tokens; see `glue.durable.ledger.Ledger.correct`."""
        latest = "greatest" if self.store.notifies else "max"
        sql = f"""
            UPDATE glue_meters SET free = {latest}(free, {self.store.now}) + ?,
            mean = CASE WHEN mean = 0 THEN ? ELSE 0.8 * mean + 0.2 * ? END WHERE name = ?"""
        self._fetch(sql, seconds * (used - reserved), used, used, name)

    def cool_down(self, name: str, seconds: float) -> None:
        """Begin a cooldown of a provider, for all workers."""
        sql = f"""
            INSERT INTO glue_cooldowns VALUES (?, {self.store.now} + ?)
            ON CONFLICT (name) DO UPDATE SET until = excluded.until"""

        def work(connection: Connection) -> None:
            self._run(connection, sql, name, seconds)
            self._notify(connection, "cold", name, seconds)

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
            row = self._run(connection, find, name).fetchone()
            return 0.0 if row is None or row[0] is None else max(float(row[0]), 0.01)

        return self._transact(work)

    def end_cooldown(self, name: str) -> None:
        sql = "UPDATE glue_cooldowns SET until = NULL WHERE name = ?"

        def work(connection: Connection) -> None:
            self._run(connection, sql, name)
            self._notify(connection, "open", name)

        self._transact(work)

    def cooldowns(self) -> dict[str, float]:
        """Return the remaining seconds of each cooldown, by the name of the provider."""
        now = self.store.now
        sql = f"SELECT name, until - {now} FROM glue_cooldowns WHERE until > {now}"
        return dict(self._fetch(sql))


_RECORD = "id, map, number, task, claims, losses, lost, result"
_PUT_BACK = """
    UPDATE glue_rows SET state = 'waiting', worker = NULL, claim = NULL
    WHERE worker = ? AND state = 'running'"""


def _record(row: Sequence[Any]) -> RowRecord:
    key, name, number, task, claims, losses, lost, result = row
    return RowRecord(
        id=key,
        map=name,
        number=number,
        task=loads(task) or {},
        claims=claims,
        losses=losses,
        lost=lost,
        result=loads(result) if result else None,
    )


def _given_up(row: Sequence[Any]) -> dict[str, Json]:
    """Return the result of a row that lost too many workers."""
    row_id, _, number, losses, *_, task = row
    return MapRow(
        number=number,
        id=(loads(task) or {}).get("key"),
        outcome=Outcome.FAILED,
        session=row_id,
        error=f"given up after losing {losses + 1} workers",
    ).to_json()

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
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
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

P = ParamSpec("P")
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
    """Return the SQL store for a database address. Raise ConfigError if the address is wrong.

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
        raise ConfigError(
            "the name of a queue must be 1 to 100 of the characters a-z, 0-9, - and _,"
            f" not {name!r}"
        )
    return name


async def when_available(
    tables: Tables, notice: Callable[[str], None], work: Callable[..., T], *values: Any
) -> T:
    """Call `work` in a thread and return its result. Retry if the database no longer responds.

    If the database has never responded, raise StoreError. `notice` receives a message for each
    failed call.
    """
    failures = 0
    while True:
        try:
            return await finish_in_thread(work, *values)
        except StoreError as error:
            if tables.store not in _created or not tables.store.is_away(error):
                raise
            failures += 1
            notice(f"{error}; waiting for the database")
            await anyio.sleep(_BACKOFF.delay(failures) or 0.0)


class Transaction:
    """A database transaction. Calling it with a SQL statement returns the rows of the result.

    In a statement `?` is a value, and names of tables begin with `glue_`. `$now` is the time of the
    database, and `$for_update` locks the selected rows, which SQLite does not need.
    """

    def __init__(self, store: SQLStore, connection: Connection, id: str) -> None:
        self.store, self.connection = store, connection
        self.id = id  # the same if the transaction is repeated, because the connection broke

    def __call__(self, sql: str, *values: object) -> list[Any]:
        cursor = self.store.execute(self.connection, self._clauses(sql), *values)
        return cursor.fetchall() if cursor.description else []

    def each(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a SQL statement once for each tuple of values in `rows`."""
        if rows := list(rows):
            text = self.store._text(self._clauses(sql))
            self.connection.cursor().executemany(text, rows)

    def _clauses(self, sql: str) -> str:
        lock, skip = ("FOR UPDATE", "SKIP LOCKED") if self.store.notifies else ("", "")
        sql = sql.replace("$for_update", lock).replace("$skip_locked", skip)
        return sql.replace("$now", self.store.now)

    def lock(self, number: int, name: str = "", *, wait: bool = True) -> bool:
        """Lock a name until the transaction ends. Without `wait`, return False if it is locked.

        With `wait`, wait until the name is no longer locked. After locking, return True. With
        SQLite, only return True.
        """
        if not self.store.notifies:
            return True
        function = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
        return self(f"SELECT {function}(?, hashtext(?))", number, name)[0][0] is not False

    def notify(self, *message: object) -> None:
        """Send a message to all workers when the transaction commits. With SQLite, do nothing."""
        if self.store.notifies:
            self("SELECT pg_notify(?, ?)", CHANNEL, json.dumps(message))


def transaction(
    method: Callable[Concatenate[Tables, Transaction, P], T],
) -> Callable[Concatenate[Tables, P], T]:
    """Return a method that calls `method` in a transaction, and again if the connection breaks."""

    @wraps(method)
    def call(tables: Tables, /, *args: P.args, **keywords: P.kwargs) -> T:
        return tables.transact(lambda run: method(tables, run, *args, **keywords))

    return call


class Tables:
    """An object that reads and changes the tables of the queues in a SQL store.

    The docstring of the module explains the states of a row.
    """

    def __init__(self, store: SQLStore) -> None:
        if not isinstance(store, SQLStore):
            raise TypeError(
                "store must be a glue.SQLiteStore or a glue.stores.PostgresStore,"
                f" not {type(store).__name__}"
            )
        self.store = store
        self._stack = contextlib.ExitStack()
        self._is_open = False
        self._claim = ""  # of the last call of `exchange`

    def close(self) -> None:
        self._stack.close()
        self._is_open = False

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Call `work` with a transaction, and return its result. The tables are created if needed.

        If the connection breaks, `work` is called again.
        """
        if not self._is_open:
            self._stack.enter_context(self.store.kept_open())
            self._is_open = True
        call = new_id()
        if self.store not in _created:
            self.store.transact(lambda each: _create(Transaction(self.store, each, call)))
            _created.add(self.store)
        return self.store.transact(lambda each: work(Transaction(self.store, each, call)))

    # Rows -----------------------------------------------------------------------------------------

    @transaction
    def begin_map(
        self,
        run: Transaction,
        id: str,
        queue: str,
        usd_budget: float | None,
        token_budget: float | None,
    ) -> None:
        """Store a new map, or set the budget of a map that is stored already.

        If the map had no budget before, count the usage of its rows so far.
        """
        sql = """
            INSERT INTO glue_maps(id, queue, created, usd_budget, token_budget)
            VALUES (?, ?, $now, ?, ?) ON CONFLICT (id) DO UPDATE
            SET usd_budget = excluded.usd_budget, token_budget = excluded.token_budget"""
        run(sql, id, queue, usd_budget, token_budget)
        balance = _balance(run, id)
        if not balance.requests and (usd_budget is not None or token_budget is not None):
            old = "SELECT result FROM glue_rows WHERE map = ? AND result IS NOT NULL"
            for (text,) in run(old, id):
                row = MapRow.from_json(loads(text))
                balance.add(row.usage, row.requests)
            _store_balance(run, id, balance)

    @transaction
    def enqueue(
        self, run: Transaction, queue: str, rows: Sequence[Row], again: Sequence[str] = ()
    ) -> None:
        """Put new rows on a queue, and put back ended rows whose outcome is in `again`.

        `rows` contains both kinds. `again` is set if a map is resumed; ended rows with another
        outcome are then returned again. Other existing rows are not changed.
        """
        retry = f"""
            UPDATE glue_rows SET task = ?, losses = 0,
            state = CASE WHEN outcome IN ({_marks(again)}) THEN 'waiting' ELSE 'ended' END
            WHERE id = ? AND state IN ('ended', 'returned')"""
        if again:
            run.each(retry, [(_task(row), *again, row.id) for row in rows])
        run.each(_INSERT, [_new(row, queue) for row in rows])
        run.notify("rows", queue)

    @transaction
    def exchange(
        self,
        run: Transaction,
        worker: str,
        queue: str,
        *,
        ended: Sequence[Row] = (),
        back: Sequence[str] = (),
        free: int = 0,
        most: int | None = None,
        claim: str = "",
    ) -> list[Row]:
        """Store results, put the rows `back` on the queue, and claim and return up to `free` rows.

        `most` limits the running rows of the queue. A call that repeats the `claim` of a failed
        call returns the rows that the failed call may have claimed. A result is stored only if the
        row still has the claim of the worker.
        """
        store = """
            UPDATE glue_rows SET state = 'ended', outcome = ?, cost = ?, result = ?, run = ?,
            worker = NULL, claim = NULL, losses = 0, ended = $now WHERE id = ? AND claim = ?"""
        # Without MATERIALIZED, Postgres may run the inner query for each row of the outer one.
        take = f"""
            WITH first AS MATERIALIZED (
                SELECT id FROM glue_rows WHERE queue = ? AND state = 'waiting'
                ORDER BY number LIMIT ? $for_update $skip_locked
            ) {_TAKE} AND id IN (SELECT id FROM first) RETURNING {_RECORD}"""
        taken = f"""
            SELECT {_RECORD} FROM glue_rows
            WHERE queue = ? AND worker = ? AND state = 'running' AND claim = ?"""
        run.each(store, map(_result, ended))
        run.each(f"{_PUT_BACK} AND id = ?", [(worker, each) for each in back])
        if free <= 0:
            return []
        claim = claim or f"{worker}-{run.id}"
        is_repeated, self._claim = self._claim == claim, claim
        found = run(taken, queue, worker, claim) if is_repeated else []
        if not found and most is not None:
            run.lock(_COUNTING, queue)  # two workers must not count at the same time
            running = "SELECT count(*) FROM glue_rows WHERE queue = ? AND state = 'running'"
            free = min(free, most - int(run(running, queue)[0][0]))
        if not found and free > 0:
            found = run(take, queue, free, worker, claim)
        return sorted(map(_record, found), key=lambda row: row.number)

    @transaction
    def find(self, run: Transaction, id: str) -> Row | None:
        """Return the row with this id, or None if there is none."""
        found = run(_FIND, id)
        return _record(found[0]) if found else None

    @transaction
    def take(
        self, run: Transaction, worker: str, queue: str, row: Row, states: Sequence[str] = ()
    ) -> Row | None:
        """Store a row if it is new, and claim it if it may run. Return the claimed row or None.

        `worker` gets the claim. A row may run if it is new or waiting, or if its state is in
        `states`.
        """
        claim = f"{worker}-{run.id}"
        change = f"""
            UPDATE glue_rows SET state = 'waiting', task = ?, losses = 0
            WHERE id = ? AND state IN ({_marks(states)}) AND coalesce(claim, '') <> ?"""
        run(_INSERT, *_new(row, queue))
        if states:
            run(change, _task(row), row.id, *states, claim)
        run(f"{_TAKE} AND id = ?", worker, claim, row.id)
        found = run(f"{_FIND} AND claim = ?", row.id, claim)
        return _record(found[0]) if found else None

    @transaction
    def add_lost(self, run: Transaction, id: str) -> None:
        """Add 1 to the number of a row's requests whose reply was lost because a worker died."""
        run("UPDATE glue_rows SET lost = lost + 1 WHERE id = ?", id)

    @transaction
    def ended(self, run: Transaction, map: str, most: int = 500) -> list[MapRow]:
        """Return up to `most` results of a map: of ended rows that are not marked as returned.

        `mark_returned` marks rows. This method does not mark any.
        """
        sql = "SELECT result FROM glue_rows WHERE map = ? AND state = 'ended' LIMIT ?"
        return [MapRow.from_json(loads(result)) for (result,) in run(sql, map, most)]

    @transaction
    def mark_returned(self, run: Transaction, map: str, numbers: Iterable[int]) -> None:
        sql = """
            UPDATE glue_rows SET state = 'returned'
            WHERE map = ? AND number = ? AND state = 'ended'"""
        run.each(sql, [(map, number) for number in numbers])

    @transaction
    def withdraw(self, run: Transaction, map: str) -> set[int]:
        """Delete a map's never claimed rows. Return the numbers of rows that are not returned yet.

        These are the numbers of the remaining rows that `mark_returned` has not marked.
        """
        run("DELETE FROM glue_rows WHERE map = ? AND state = 'waiting' AND claims = 0", map)
        left = "SELECT number FROM glue_rows WHERE map = ? AND state <> 'returned'"
        return {number for (number,) in run(left, map)}

    # Workers --------------------------------------------------------------------------------------

    @transaction
    def heartbeat(
        self, run: Transaction, worker: str, queue: str, concurrency: int, lease: float
    ) -> tuple[bool, dict[str, float]]:
        """Record a worker's heartbeat. Return whether any worker is dead, and all cooldowns.

        The first heartbeat registers the worker. A worker is dead if its last heartbeat is older
        than its lease. The cooldowns are seconds by the name of the provider.
        """
        sql = """
            INSERT INTO glue_workers VALUES (?, ?, ?, ?, ?, ?, $now)
            ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"""
        run(sql, worker, queue, socket.gethostname(), os.getpid(), concurrency, lease)
        dead = run("SELECT 1 FROM glue_workers WHERE queue = ? AND seen < $now - lease", queue)
        return bool(dead), dict(run(_COOLDOWNS))

    @transaction
    def deregister(self, run: Transaction, worker: str) -> None:
        """Remove a worker that stops, and put its rows back on the queue."""
        run(_PUT_BACK, worker)
        run("DELETE FROM glue_workers WHERE id = ?", worker)

    @transaction
    def recover(self, run: Transaction, queue: str) -> int:
        """Put dead workers' rows back on the queue or end them as failed. Return how many rows.

        The number includes the failed rows. A row ends as failed if it has lost too many workers.
        The dead workers are removed from the list of workers. If another worker is recovering rows
        at the moment, do nothing and return 0.
        """
        find = """
            SELECT id, losses, held_usd, held_tokens, map FROM glue_rows
            WHERE queue = ? AND state = 'running' AND NOT EXISTS (
                SELECT 1 FROM glue_workers AS w
                WHERE w.id = glue_rows.worker AND w.seen >= $now - w.lease
            ) $for_update"""
        back = f"""
            UPDATE glue_rows SET state = 'waiting', worker = NULL, claim = NULL, held_usd = 0,
            held_tokens = 0, losses = losses + 1 WHERE {self.store._among}"""
        fail = """
            UPDATE glue_rows SET state = 'ended', outcome = 'failed', result = ?, ended = $now
            WHERE id = ?"""
        give = """
            UPDATE glue_maps SET held_usd = held_usd - ?, held_tokens = held_tokens - ?
            WHERE id = ?"""
        if not run.lock(_RECOVERING, queue, wait=False):
            return 0
        found = run(find, queue)
        run(back, json.dumps([name for name, *_ in found]))
        for name in [name for name, losses, *_ in found if losses >= MAX_LOSSES]:
            error = f"the row failed because {MAX_LOSSES + 1} workers were lost while running it"
            result = _record(run(_FIND, name)[0]).ended(Outcome.FAILED, error=error)
            run(fail, json.dumps(result.to_json()), name)
        run.each(give, [held for _, _, *held in found if held[0] or held[1]])
        run("DELETE FROM glue_workers WHERE queue = ? AND seen < $now - lease", queue)
        if found:
            run.notify("rows", queue)
        return len(found)

    @transaction
    def workers(self, run: Transaction, queue: str) -> list[dict[str, Any]]:
        """Return the workers of a queue as dicts. "silent": seconds since the last heartbeat."""
        names = ("id", "queue", "host", "pid", "concurrency", "lease", "silent")
        sql = """
            SELECT id, queue, host, pid, concurrency, lease, $now - seen
            FROM glue_workers WHERE queue = ? ORDER BY id"""
        return [dict(zip(names, row, strict=True)) for row in run(sql, queue)]

    def slots(self, queue: str) -> int:
        """Return how many rows the living workers of a queue can run at the same time."""
        workers = self.workers(queue)
        return sum(each["concurrency"] for each in workers if each["silent"] < each["lease"])

    @transaction
    def queues(self, run: Transaction) -> list[str]:
        """Return the names of all queues that have rows or workers."""
        sql = "SELECT queue FROM glue_rows UNION SELECT queue FROM glue_workers ORDER BY 1"
        return [name for (name,) in run(sql)]

    @transaction
    def counts(self, run: Transaction, queue: str) -> dict[str, Any]:
        """Return the state of a queue as a dict: counts of rows, dollars, and cooldowns.

        Rows are counted by state, by outcome, and by the worker that runs them. The dollars are
        those spent and those reserved for running rows. The cooldowns are those of all queues.
        """

        def grouped(column: str, where: str) -> dict[str, int]:
            sql = f"SELECT {column}, count(*) FROM glue_rows WHERE queue = ? AND {where} GROUP BY 1"
            return dict(run(sql, queue))

        cost = "SELECT coalesce(sum(cost), 0) FROM glue_rows WHERE queue = ?"
        held = "SELECT coalesce(sum(held_usd), 0) FROM glue_maps WHERE queue = ?"
        return {
            "states": grouped("state", "true"),
            "outcomes": grouped("outcome", "outcome IS NOT NULL"),
            "last_minute": sum(grouped("queue", "ended > $now - 60").values()),
            "held": grouped("worker", "state = 'running'"),
            "usd": float(run(cost, queue)[0][0]),
            "usd_reserved": float(run(held, queue)[0][0]),
            "cooldowns": dict(run(_COOLDOWNS)),
        }

    @transaction
    def prune(
        self,
        run: Transaction,
        queue: str,
        before: float,
        outcomes: Sequence[str] = (),
        *,
        dry_run: bool = False,
    ) -> int:
        """Delete rows that ended before a time, unless paused, with sessions. Return how many rows.

        The sessions are those of the rows. Maps from before that time that have no rows are deleted
        too. PostgreSQL keeps a session that a writer has locked. If `outcomes` is given, only the
        rows with these outcomes are deleted, even if they are paused. If `queue` is "", the rows of
        all queues are deleted. `dry_run` only counts the rows.
        """
        where = "(? = '' OR queue = ?) AND state IN ('ended', 'returned') AND ended < ?"
        kind = f"outcome IN ({_marks(outcomes)})" if outcomes else "outcome <> 'paused'"
        old = f"SELECT id FROM glue_rows WHERE {where} AND {kind}"
        values = (queue, queue, before, *outcomes)
        count = len(run(old, *values))
        if not dry_run:
            run(f"DELETE FROM glue_sessions WHERE id IN ({old}){self.store._free}", *values)
            run(f"DELETE FROM glue_rows WHERE id IN ({old})", *values)
            unused = "created < ? AND id NOT IN (SELECT map FROM glue_rows)"
            mine = "(? = '' OR queue = ?)"
            run(f"DELETE FROM glue_maps WHERE {mine} AND {unused}", queue, queue, before)
        return count

    # The ledger -----------------------------------------------------------------------------------

    @transaction
    def balance(self, run: Transaction, map: str) -> Balance:
        """Return the budget, spending and reservations of a map, or zeros for an unknown map."""
        return _balance(run, map)

    @transaction
    def change_balance(
        self, run: Transaction, map: str, row: str, change: Callable[[Balance, Hold], T]
    ) -> T | None:
        """Call `change` to modify a map's balance and a row's reservation, and return its result.

        Both are stored. If the connection broke after the commit, return None.
        """
        find = "SELECT held_usd, held_tokens, mark FROM glue_rows WHERE id = ? $for_update"
        store = "UPDATE glue_rows SET held_usd = ?, held_tokens = ?, mark = ? WHERE id = ?"
        balance = _balance(run, map, "$for_update")
        usd, tokens, mark = next(iter(run(find, row)), (0.0, 0.0, ""))
        if mark == run.id:
            return None
        hold = Hold(usd, tokens)
        result = change(balance, hold)
        _store_balance(run, map, balance)
        run(store, hold.usd, hold.tokens, run.id, row)
        return result

    @transaction
    def change_meter(self, run: Transaction, name: str, change: Callable[[Meter, float], T]) -> T:
        """Let `change` modify the meter `name`, and store it. Return the result of `change`.

        `change` is called with the meter and the time. A missing meter is created first.
        """
        find = "SELECT free, mean, $now FROM glue_meters WHERE name = ? $for_update"
        run("INSERT INTO glue_meters VALUES (?, $now, 0) ON CONFLICT (name) DO NOTHING", name)
        free, mean, now = map(float, run(find, name)[0])
        meter = Meter(free, mean)
        result = change(meter, now)
        store = "UPDATE glue_meters SET free = ?, mean = ? WHERE name = ?"
        run(store, meter.free_at, meter.mean, name)
        return result

    @transaction
    def cool_down(self, run: Transaction, name: str, seconds: float | None) -> None:
        """Begin a cooldown of a provider, for all workers, or end it if `seconds` is None."""
        sql = """
            INSERT INTO glue_cooldowns VALUES (?, $now + ?)
            ON CONFLICT (name) DO UPDATE SET until = excluded.until"""
        run(sql, name, seconds)
        run.notify("cooldown", name, seconds)

    @transaction
    def probe(self, run: Transaction, name: str) -> float:
        """Return the seconds left of a cooldown, or reserve a test of the provider and return 0.

        After the cooldown, one caller may send a request that tests the provider. If the caller
        does not end the cooldown, another caller may test the provider PROBE_SECONDS later.
        Without a cooldown, only return 0.
        """
        test = f"""
            UPDATE glue_cooldowns SET until = $now + {PROBE_SECONDS}
            WHERE name = ? AND until <= $now RETURNING name"""
        left = "SELECT until - $now FROM glue_cooldowns WHERE name = ? AND until IS NOT NULL"
        found = [] if run(test, name) else run(left, name)
        return max(float(found[0][0]), 0.01) if found else 0.0

    @transaction
    def cooldowns(self, run: Transaction) -> dict[str, float]:
        """Return the remaining seconds of each cooldown, by the name of the provider."""
        return dict(run(_COOLDOWNS))


# Statements ---------------------------------------------------------------------------------------

_AMOUNTS = tuple(each.name for each in fields(Balance))  # columns of `glue_maps`
# The columns that `_record` reads: those of the row, and the budget of its map.
_RECORD = "id, map, number, task, state, claim, claims, losses, lost, result, run, " + ", ".join(
    f"(SELECT {name} FROM glue_maps WHERE glue_maps.id = glue_rows.map)"
    for name in ("usd_budget", "token_budget")
)
_FIND = f"SELECT {_RECORD} FROM glue_rows WHERE id = ?"
_COOLDOWNS = "SELECT name, until - $now FROM glue_cooldowns WHERE until > $now"
_INSERT = """
    INSERT INTO glue_rows(id, map, number, queue, state, task)
    VALUES (?, ?, ?, ?, 'waiting', ?) ON CONFLICT (id) DO NOTHING"""
_TAKE = """
    UPDATE glue_rows SET state = 'running', worker = ?, claim = ?, claims = claims + 1
    WHERE state = 'waiting'"""
_PUT_BACK = """
    UPDATE glue_rows SET state = 'waiting', worker = NULL, claim = NULL
    WHERE worker = ? AND state = 'running'"""


def _create(run: Transaction) -> None:
    run.lock(_CREATING)  # two workers may start at the same time
    script = Path(__file__).with_name("queue.sql").read_text()
    for statement in filter(str.strip, script.split(";")):
        run(statement)
    ((version,),) = run("SELECT max(version) FROM glue_queue")
    if version is None:
        run("INSERT INTO glue_queue VALUES (?)", SCHEMA)
    elif version > SCHEMA:
        raise NewerSchema(
            f"the queue has tables of version {version}, but this glue supports only {SCHEMA}:"
            " upgrade glue-agents"
        )


def _balance(run: Transaction, map: str, lock: str = "") -> Balance:
    found = run(f"SELECT {', '.join(_AMOUNTS)} FROM glue_maps WHERE id = ? {lock}", map)
    return Balance(*found[0]) if found else Balance()


def _store_balance(run: Transaction, map: str, balance: Balance) -> None:
    names = ", ".join(f"{name} = ?" for name in _AMOUNTS)
    run(f"UPDATE glue_maps SET {names} WHERE id = ?", *astuple(balance), map)


def _marks(values: Sequence[object]) -> str:
    """Return the SQL between the brackets of `IN (...)`: a `?` for each value, or NULL for none."""
    return ", ".join("?" for _ in values) or "NULL"


def _new(row: Row, queue: str) -> tuple[object, ...]:
    return row.id, row.map, row.number, queue, _task(row)


def _result(row: Row) -> tuple[object, ...]:
    ended = row.result
    assert ended is not None
    run = None if row.run is None else json.dumps(row.run)
    return ended.outcome, ended.cost, json.dumps(ended.to_json()), run, row.id, row.claim


def _task(row: Row) -> str:
    """Return the part of a row that a worker needs to run the row, as JSON text."""
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
    """Build a Row from a row of the database, `found`, with the columns `_RECORD`."""
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
    """Return a decision on a pending call as JSON, in the form that `_decode` reads."""
    if isinstance(decision, Decision):
        return {"decision": to_json(decision)}
    if isinstance(decision, ToolResult):
        return {"result": to_json(decision)}
    return {"value": to_plain(decision)}


def _decode(value: Mapping[str, Json]) -> Any:
    if "decision" in value:
        return from_json(Decision, value["decision"])
    return from_json(ToolResult, value["result"]) if "result" in value else value["value"]

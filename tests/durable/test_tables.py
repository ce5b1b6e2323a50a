"""The tables of a queue: states of rows, dead workers, shared budgets, meters and cooldowns."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

import glue
from glue import Usage
from glue.durable import Row
from glue.durable.ledger import Balance, Hold
from glue.durable.tables import (
    Tables,
    Transaction,
    check_queue,
    engine_store,
    when_available,
)
from glue.errors import BudgetExceeded, ConfigError, NewerSchema, StoreError
from glue.stores import FileStore, SQLiteStore

COST = Usage(input=10, output=5, cost=0.5)


@pytest.fixture
def tables(engine: str) -> Iterator[Tables]:
    made = Tables(engine_store(engine))
    yield made
    made.close()


def records(count: int, map: str = "m") -> list[Row]:
    return [
        Row(id=f"{map}-{number}", prompt="go", map=map, number=number, key=number)
        for number in range(1, count + 1)
    ]


def ended(row: Row, outcome: str = "done") -> Row:
    return replace(row, result=row.ended(outcome, usage=COST, requests=1, tries=1))


def reserve(tables: Tables, row: str, usd: float) -> BudgetExceeded | None:
    return tables.change_balance("m", row, lambda balance, hold: balance.reserve(hold, usd, 10))


def settle(tables: Tables, row: str) -> None:
    tables.change_balance("m", row, lambda balance, hold: balance.settle(hold, COST, 1))


def test_an_address_is_opened_as_a_store(tmp_path: object) -> None:
    for address in ("sqlite:///x.db", "x.db"):
        assert str(getattr(engine_store(address), "path", "")) == "x.db"
    for wrong in ("redis://host", "sqlite:///", "folder"):
        with pytest.raises(ConfigError, match="an engine must be postgresql://"):
            engine_store(wrong)
    with pytest.raises(ConfigError, match="the name of a queue"):
        check_queue("Big One")
    with pytest.raises(
        TypeError, match=r"store must be a glue.SQLiteStore or a glue.stores.PostgresStore"
    ):
        Tables(FileStore("x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("lease", "expected"), [(10.0, 6.0), (1.0, 1.0)])
def test_a_session_of_a_dead_worker_is_free_before_its_row_is_put_back(
    lease: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", ModuleType("psycopg"))

    store = engine_store("postgresql://me@host/db", lease)

    assert store.lease == expected  # type: ignore[attr-defined]


def test_a_row_is_the_same_after_storing_it(tables: Tables) -> None:
    decisions = {
        "a": glue.allow(),
        "b": glue.deny("no"),
        "c": "text",
        "d": {"x": [1]},
        "e": glue.ToolResult(content=(glue.Text(text="ok"),)),
    }
    prompt = (glue.user("see", glue.Image(data=b"x", media_type="image/png")),)
    trace = {"traceparent": "00-1-2-3"}
    row = Row(id="r", prompt=prompt, map="m", key=[7], retries=2, trace=trace, decisions=decisions)
    tables.begin_map("m", "q", 1.0, 200)
    tables.enqueue("q", [row])

    found = tables.find("r")

    assert found is not None
    assert found == replace(row, state="waiting", usd_budget=1.0, token_budget=200.0)


def test_rows_are_claimed_once_in_order(tables: Tables) -> None:
    tables.enqueue("q", records(5))

    first = tables.exchange("w1", "q", free=2)
    second = tables.exchange("w2", "q", free=9)

    assert [row.number for row in first] == [1, 2]
    assert [row.number for row in second] == [3, 4, 5]
    assert tables.exchange("w1", "q", free=9) == []
    assert tables.exchange("w1", "other", free=9) == []


def test_a_repeated_claim_returns_the_rows_of_the_first_call(tables: Tables) -> None:
    tables.enqueue("q", records(5))

    first = tables.exchange("w1", "q", free=2, claim="c")  # its answer did not arrive
    again = tables.exchange("w1", "q", free=2, claim="c")

    assert first == again
    assert [row.number for row in tables.exchange("w1", "q", free=2)] == [3, 4]


def test_results_are_stored_with_the_claim_of_the_row_only(tables: Tables) -> None:
    tables.enqueue("q", records(1))
    (stale,) = tables.exchange("w1", "q", free=1)
    tables.exchange("w1", "q", back=[stale.id])
    (row,) = tables.exchange("w2", "q", free=1)
    assert (stale.is_new, row.is_new) == (True, False)

    tables.exchange("w1", "q", ended=[ended(stale, "failed")])
    assert tables.ended("m") == []
    tables.exchange("w2", "q", ended=[ended(row)])

    assert [(each.number, each.outcome) for each in tables.ended("m")] == [(1, "done")]
    tables.mark_returned("m", [1])
    assert tables.ended("m") == []


def test_a_resumed_map_runs_open_rows_and_returns_the_others_again(tables: Tables) -> None:
    rows = records(2)
    tables.enqueue("q", rows)
    one, two = tables.exchange("w", "q", free=2)
    tables.exchange("w", "q", ended=[ended(one), ended(two, "failed")])
    tables.mark_returned("m", [1, 2])

    tables.enqueue("q", rows, again=["failed"])

    assert [row.number for row in tables.ended("m")] == [1]
    (row,) = tables.exchange("w", "q", free=9)
    assert row.number == 2
    assert row.result is not None
    assert (row.result.outcome, row.tries) == ("failed", 1)


def test_a_process_takes_a_row_that_is_new_or_waits(tables: Tables) -> None:
    (row,) = records(1)

    first = tables.take("w1", "q", row)
    assert first is not None
    assert first.is_new
    assert tables.take("w2", "q", row) is None
    tables.exchange("w1", "q", back=[row.id])
    assert tables.take("w2", "q", row) is not None
    again = tables.take("w3", "q", row, ["running"])

    assert again is not None
    assert tables.exchange("w2", "q", ended=[ended(first)]) == []
    assert tables.ended("m") == []  # the claim of w1 is over


def test_rows_of_dead_workers_are_put_back_together(tables: Tables) -> None:
    tables.enqueue("q", records(3))
    tables.begin_map("m", "q", 10.0, None)
    tables.exchange("dead", "q", free=2)
    reserve(tables, "m-1", 1.0)
    tables.heartbeat("alive", "q", 8, 60.0)
    tables.exchange("alive", "q", free=1)

    assert tables.recover("q") == 2
    assert tables.recover("q") == 0

    found = tables.exchange("alive", "q", free=9)
    assert [(row.number, row.is_lost) for row in found] == [(1, True), (2, True)]
    assert tables.counts("q")["usd_reserved"] == 0


def test_a_heartbeat_reports_dead_workers(tables: Tables) -> None:
    assert tables.heartbeat("a", "q", 8, 60.0) == (False, {})
    tables.heartbeat("b", "q", 8, -1.0)  # its lease is over at once

    assert tables.heartbeat("a", "q", 8, 60.0) == (True, {})
    tables.recover("q")
    assert [worker["id"] for worker in tables.workers("q")] == ["a"]
    assert tables.slots("q") == 8


def test_a_row_that_lost_too_many_workers_fails(tables: Tables) -> None:
    tables.enqueue("q", records(1))
    for _ in range(6):
        assert len(tables.exchange("dead", "q", free=1)) == 1
        tables.recover("q")

    (row,) = tables.ended("m")

    assert (row.outcome, row.id, row.session) == ("failed", 1, "m-1")
    assert row.error == "the row failed because 6 workers were lost while running it"


def test_global_concurrency_limits_the_rows_of_all_workers(tables: Tables) -> None:
    tables.enqueue("q", records(9))

    assert len(tables.exchange("a", "q", free=8, most=3)) == 3
    assert tables.exchange("b", "q", free=8, most=3) == []


def test_rows_that_have_not_begun_can_be_withdrawn(tables: Tables) -> None:
    tables.enqueue("q", records(3))
    tables.exchange("w", "q", free=1)

    assert tables.withdraw("m") == {1}

    assert tables.counts("q")["states"] == {"running": 1}


def test_all_processes_share_a_budget(engine: str, tables: Tables) -> None:
    second = Tables(engine_store(engine))
    tables.enqueue("q", records(3))
    tables.begin_map("m", "q", 1.0, None)

    assert reserve(tables, "m-1", 0.4) is None
    assert reserve(second, "m-2", 0.4) is None
    assert reserve(second, "m-3", 0.4) is not None
    settle(tables, "m-1")
    second.change_balance("m", "m-2", Balance.release)  # got no reply

    balance = tables.balance("m")
    assert (balance.usd, balance.tokens, balance.requests) == (0.5, 15, 1)
    assert balance.over() is None
    assert reserve(second, "m-3", 0.0) is None  # the mean is reserved: 0.5
    assert reserve(tables, "m-1", 0.0) is not None
    second.close()


def test_a_reservation_of_an_interrupted_try_is_replaced(tables: Tables) -> None:
    tables.enqueue("q", records(1))
    tables.begin_map("m", "q", 1.0, None)

    for _ in range(5):
        assert reserve(tables, "m-1", 0.6) is None
    assert tables.counts("q")["usd_reserved"] == pytest.approx(0.6)
    settle(tables, "m-1")

    assert tables.counts("q")["usd_reserved"] == pytest.approx(0)


def test_a_change_of_a_budget_is_counted_once_if_the_connection_breaks_after_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.enqueue("q", records(1))
    tables.begin_map("m", "q", 1.0, None)
    transact, calls = tables.store.transact, 0

    def twice(work: Any) -> Any:
        transact(work)
        return transact(work)

    def settle(balance: Balance, hold: Hold) -> None:
        nonlocal calls
        calls += 1
        balance.settle(hold, COST, 1)

    monkeypatch.setattr(tables.store, "transact", twice)
    tables.change_balance("m", "m-1", settle)

    assert calls == 1
    assert tables.balance("m").usd == 0.5


def test_a_budget_given_later_counts_the_usage_of_finished_rows(tables: Tables) -> None:
    tables.enqueue("q", records(3))
    tables.begin_map("m", "q", None, None)
    rows = tables.exchange("w", "q", free=2)
    tables.exchange("w", "q", ended=[ended(row) for row in rows])

    tables.begin_map("m", "q", 1.6, None)
    tables.begin_map("m", "q", 1.6, 100)

    balance = tables.balance("m")
    assert (balance.usd, balance.tokens, balance.requests) == (1.0, 30, 2)
    assert balance.over() is None  # a further request is expected to cost 0.50
    tables.begin_map("m", "q", 1.4, None)
    assert tables.balance("m").over() is not None


def test_all_processes_share_a_rate_limit_and_its_mean(engine: str, tables: Tables) -> None:
    second = Tables(engine_store(engine))

    waits = [
        each.change_meter("acme requests", lambda meter, now: meter.take(now, 10.0))[0]
        for each in (tables, second, tables)
    ]
    tables.change_meter("acme tokens", lambda meter, now: meter.take(now, 1.0, 5))
    tables.change_meter("acme tokens", lambda meter, now: meter.correct(now, 1.0, 5, 50))
    _, reserved = second.change_meter("acme tokens", lambda meter, now: meter.take(now, 1.0, 5))

    assert waits == [pytest.approx(at, abs=1) for at in (0, 10, 20)]
    assert reserved == 50
    second.close()


def test_lost_requests_of_a_row_are_counted(tables: Tables) -> None:
    tables.enqueue("q", records(2))

    tables.add_lost("m-1")
    tables.add_lost("m-1")

    found = [tables.find(name) for name in ("m-1", "m-2")]
    assert [row and row.lost for row in found] == [2, 0]


def test_one_process_tests_a_provider_after_its_cooldown(engine: str, tables: Tables) -> None:
    second = Tables(engine_store(engine))
    tables.cool_down("acme", 60.0)
    assert second.cooldowns()["acme"] == pytest.approx(60, abs=2)
    assert second.probe("acme") > 50

    tables.cool_down("acme", 0.0)
    assert second.probe("acme") == 0.0
    assert tables.probe("acme") > 10  # another process tests it
    second.cool_down("acme", None)

    assert tables.probe("acme") == 0.0
    assert tables.probe("unknown") == 0.0
    second.close()


def test_old_rows_are_pruned_with_their_sessions(tables: Tables) -> None:
    rows = records(4)
    tables.enqueue("q", rows)
    claimed = tables.exchange("w", "q", free=3)
    outcomes = ("done", "failed", "paused")
    tables.exchange("w", "q", ended=list(map(ended, claimed, outcomes)))
    for row in claimed:
        agent = glue.Agent(glue.testing.Script("x"))
        agent.session(row.id, store=tables.store).run_sync("hello")
    now = time.time() + 60

    assert tables.prune("", now - 600) == 0
    assert tables.prune("other", now) == 0
    assert tables.prune("q", now, dry_run=True) == 2
    assert tables.prune("q", now, ["done"]) == 1
    assert tables.prune("", now) == 1

    assert tables.counts("q")["states"] == {"ended": 1, "waiting": 1}
    infos = tables.store._list()
    assert [info.id for info in infos] == ["m-3"]


def test_pruning_a_queue_keeps_the_budgets_of_other_queues(tables: Tables) -> None:
    tables.begin_map("mine", "q", 1.0, None)
    tables.begin_map("other", "other", 2.0, None)

    tables.prune("q", time.time() + 60)

    assert tables.balance("other").usd_budget == 2.0
    assert tables.balance("mine").usd_budget is None
    tables.prune("", time.time() + 60)
    assert tables.balance("other").usd_budget is None


class Unreliable(SQLiteStore):
    """A store of a database that may be away for some time."""

    away = True

    def is_away(self, error: StoreError) -> bool:
        return self.away


@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"]
)
async def test_work_waits_for_a_database_that_was_there_before(
    anyio_backend: object, tmp_path: Path
) -> None:
    tables = Tables(Unreliable(tmp_path / "runs.db"))
    calls, notices = list[str](), list[tuple[str, float]]()

    def work(value: str) -> str:
        calls.append(value)
        if len(calls) % 4:
            raise StoreError("gone")
        return value * 2

    def notice(text: str) -> None:
        notices.append((text, anyio.current_time()))

    with pytest.raises(StoreError, match="gone"):
        await when_available(tables, notice, work, "x")
    assert notices == []

    tables.queues()  # now the database was there
    calls.clear()
    assert await when_available(tables, notice, work, "x") == "xx"
    assert [text for text, _ in notices] == ["gone; waiting for the database"] * 3
    (_, first), (_, second), (_, third) = notices
    assert 0.15 <= second - first <= 0.2
    assert 0.3 <= third - second <= 0.4

    tables.store.away = False  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="gone"):
        await when_available(tables, notice, work, "x")
    assert len(notices) == 3
    assert not SQLiteStore(tmp_path / "x.db").is_away(StoreError("gone"))
    tables.close()


class Advisory:
    """A stand-in for a Postgres store: it records statements and returns one value."""

    notifies, now = True, "clock_timestamp()"
    description: tuple[str, ...] | None = ("value",)

    def __init__(self, value: object) -> None:
        self.value, self.statements = value, list[tuple[object, ...]]()

    def execute(self, connection: object, sql: str, *values: object) -> Any:
        self.statements.append((sql, *values))
        return self

    def fetchall(self) -> list[tuple[object]]:
        return [(self.value,)]


def test_a_statement_without_a_result_returns_no_rows_in_postgres() -> None:
    class Silent(Advisory):
        description = None

        def fetchall(self) -> list[tuple[object]]:
            raise AssertionError("the last operation didn't produce records")  # as psycopg does

    run = Transaction(Silent(None), None, "t")  # type: ignore[arg-type]

    assert run("DELETE FROM glue_rows") == []


def test_postgres_locks_names_and_sends_notifications_in_a_transaction() -> None:
    taken, refused = Advisory(None), Advisory(False)

    assert Transaction(taken, None, "x").lock(7, "q")  # type: ignore[arg-type]
    assert not Transaction(refused, None, "x").lock(7, wait=False)  # type: ignore[arg-type]
    Transaction(taken, None, "x").notify("rows", "q")  # type: ignore[arg-type]

    assert taken.statements == [
        ("SELECT pg_advisory_xact_lock(?, hashtext(?))", 7, "q"),
        ("SELECT pg_notify(?, ?)", "glue", '["rows", "q"]'),
    ]
    assert refused.statements == [("SELECT pg_try_advisory_xact_lock(?, hashtext(?))", 7, "")]


@pytest.mark.scale
def test_one_worker_recovers_rows_at_a_time(database: str) -> None:
    first, second = Tables(engine_store(database)), Tables(engine_store(database))
    first.enqueue("q", records(1))
    first.exchange("dead", "q", free=1)
    assert second.queues() == ["q"]  # creates tables, which has to wait for other transactions

    def recover_twice(connection: Any) -> tuple[int, int]:
        transact = first.store.transact
        first.store.transact = lambda work: work(connection)  # type: ignore[method-assign]
        try:
            return first.recover("q"), second.recover("q")
        finally:
            first.store.transact = transact  # type: ignore[method-assign]

    # The second call happens before the first transaction is committed.
    assert first.store.transact(recover_twice) == (1, 0)
    first.close()
    second.close()


def test_tables_of_a_newer_version_are_not_changed(engine: str, tables: Tables) -> None:
    tables.queues()
    tables.transact(lambda run: run("UPDATE glue_queue SET version = 9"))

    with pytest.raises(NewerSchema, match="tables of version 9, but this glue supports only 1"):
        Tables(engine_store(engine)).queues()


@pytest.mark.scale
def test_heartbeats_continue_while_ten_thousand_rows_are_recovered(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, lease = 10_000, 10.0
    tables, own = Tables(engine_store(database)), Tables(engine_store(database))
    for start in range(0, lost, 1000):
        batch = [
            Row(id=f"m-{number}", map="m", number=number, prompt="x" * 200)
            for number in range(start, start + 1000)
        ]
        tables.enqueue("q", batch)
    tables.exchange("dead", "q", free=lost)
    silence, last, ending = [0.0], time.monotonic(), threading.Event()

    def beat() -> None:
        nonlocal last
        while not ending.wait(0.05):
            own.heartbeat("alive", "q", 8, lease)
            now = time.monotonic()
            silence.append(now - last)
            last = now

    own.heartbeat("alive", "q", 8, lease)
    thread = threading.Thread(target=beat)
    thread.start()
    started = time.monotonic()
    count = tables.recover("q")
    took = time.monotonic() - started
    ending.set()
    thread.join()

    with capsys.disabled():
        print(
            f"\n{lost:,} lost rows put back in {took:.2f} s; longest silence {max(silence):.2f} s"
        )
    assert count == lost
    assert max(silence) < lease / 2
    tables.close()
    own.close()

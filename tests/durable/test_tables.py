"""The tables of a queue: states of rows, dead workers, shared budgets, meters and cooldowns."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from glue import Usage
from glue.durable.rows import MapRow
from glue.durable.tables import (
    MAX_LOSSES,
    EndedRow,
    RowRecord,
    Tables,
    check_queue,
    engine_store,
)
from glue.errors import ConfigError, NewerSchema
from glue.stores import FileStore

COST = Usage(input=10, output=5, cost=0.5)


@pytest.fixture
def tables(engine: str) -> Iterator[Tables]:
    made = Tables(engine_store(engine))
    yield made
    made.close()


def records(count: int, map: str = "m") -> list[RowRecord]:
    return [
        RowRecord(id=f"{map}-{number}", map=map, number=number, task={"prompt": [], "key": number})
        for number in range(1, count + 1)
    ]


def ended(record: RowRecord, claim: str, outcome: str = "done") -> EndedRow:
    result = MapRow(number=record.number, outcome=outcome).to_json()
    return EndedRow(id=record.id, claim=claim, outcome=outcome, cost=0.5, result=result)


def test_an_address_is_opened_as_a_store(tmp_path: object) -> None:
    for address in ("sqlite:///x.db", "x.db"):
        assert str(getattr(engine_store(address), "path", "")) == "x.db"
    for wrong in ("redis://host", "sqlite:///", "folder"):
        with pytest.raises(ConfigError, match="an engine must be postgresql://"):
            engine_store(wrong)
    with pytest.raises(ConfigError, match="the name of a queue"):
        check_queue("Big One")
    with pytest.raises(
        TypeError, match=r"rows need a glue.SQLiteStore or a glue.stores.PostgresStore"
    ):
        Tables(FileStore("x"))  # type: ignore[arg-type]


def test_rows_are_claimed_once_in_order(tables: Tables) -> None:
    tables.enqueue("q", records(5))

    first = tables.exchange("w1", "q", free=2)
    second = tables.exchange("w2", "q", free=9)

    assert [record.number for record, _ in first] == [1, 2]
    assert [record.number for record, _ in second] == [3, 4, 5]
    assert tables.exchange("w1", "q", free=9) == []
    assert tables.exchange("w1", "other", free=9) == []


def test_results_are_stored_with_the_claim_of_the_row_only(tables: Tables) -> None:
    tables.enqueue("q", records(1))
    ((record, stale),) = tables.exchange("w1", "q", free=1)
    tables.exchange("w1", "q", back=[record.id])
    ((again, claim),) = tables.exchange("w2", "q", free=1)
    assert again.claims == 2

    tables.exchange("w1", "q", ended=[ended(record, stale, "failed")])
    assert tables.ended("m") == []
    tables.exchange("w2", "q", ended=[ended(record, claim)])

    assert [(number, row["outcome"]) for number, row in tables.ended("m")] == [(1, "done")]
    tables.mark_returned("m", [1])
    assert tables.ended("m") == []


def test_a_resumed_map_runs_open_rows_and_returns_the_others_again(tables: Tables) -> None:
    rows = records(2)
    tables.enqueue("q", rows)
    (one, claim), (two, other) = tables.exchange("w", "q", free=2)
    tables.exchange("w", "q", ended=[ended(one, claim), ended(two, other, "failed")])
    tables.mark_returned("m", [1, 2])

    tables.enqueue("q", rows, again=["failed"])

    assert [number for number, _ in tables.ended("m")] == [1]
    ((record, _),) = tables.exchange("w", "q", free=9)
    assert (record.number, (record.result or {})["outcome"]) == (2, "failed")


def test_rows_of_dead_workers_are_put_back_together(tables: Tables) -> None:
    tables.enqueue("q", records(3))
    tables.begin_map("m", "q", 10.0, None)
    tables.exchange("dead", "q", free=2)
    tables.reserve("m-1", "m", 1.0, 1)
    tables.heartbeat("alive", "q", 8, 60.0)
    tables.exchange("alive", "q", free=1)

    assert tables.recover("q") == 2
    assert tables.recover("q") == 0

    found = tables.exchange("alive", "q", free=9)
    assert [(record.number, record.losses) for record, _ in found] == [(1, 1), (2, 1)]
    assert tables.counts("q")["usd_reserved"] == 0


def test_a_heartbeat_reports_dead_workers(tables: Tables) -> None:
    assert not tables.heartbeat("a", "q", 8, 60.0)
    tables.heartbeat("b", "q", 8, -1.0)  # its lease is over at once

    assert tables.heartbeat("a", "q", 8, 60.0)
    tables.recover("q")
    assert [worker["id"] for worker in tables.workers("q")] == ["a"]
    assert tables.slots("q") == 8


def test_a_row_that_lost_too_many_workers_fails(tables: Tables) -> None:
    tables.enqueue("q", records(1))
    for _ in range(MAX_LOSSES + 1):
        assert len(tables.exchange("dead", "q", free=1)) == 1
        tables.recover("q")

    ((_, result),) = tables.ended("m")

    assert (result["outcome"], result["id"]) == ("failed", 1)
    assert result["error"] == f"given up after losing {MAX_LOSSES + 1} workers"


def test_global_concurrency_limits_the_rows_of_all_workers(tables: Tables) -> None:
    tables.enqueue("q", records(9))

    assert len(tables.exchange("a", "q", free=8, most=3)) == 3
    assert tables.exchange("b", "q", free=8, most=3) == []


def test_rows_that_have_not_begun_can_be_withdrawn(tables: Tables) -> None:
    tables.enqueue("q", records(3))
    tables.exchange("w", "q", free=1)

    tables.withdraw("m")

    assert tables.numbers("m") == {1}


def test_all_processes_share_a_budget(engine: str, tables: Tables) -> None:
    second = Tables(engine_store(engine))
    tables.enqueue("q", records(3))
    tables.begin_map("m", "q", 1.0, None)

    assert tables.reserve("m-1", "m", 0.4, 10) is None
    assert second.reserve("m-2", "m", 0.4, 10) is None
    assert second.reserve("m-3", "m", 0.4, 10) is not None
    tables.settle("m-1", "m", COST)
    second.settle("m-2", "m", None)  # got no reply

    assert tables.spent("m") == (0.5, 15, False)
    assert second.reserve("m-3", "m", 0.0, 10) is None  # the mean is reserved: 0.5
    assert tables.reserve("m-1", "m", 0.0, 10) is not None
    second.close()


def test_a_reservation_of_an_interrupted_try_is_replaced(tables: Tables) -> None:
    tables.enqueue("q", records(1))
    tables.begin_map("m", "q", 1.0, None)

    for _ in range(5):
        assert tables.reserve("m-1", "m", 0.6, 1) is None
    assert tables.counts("q")["usd_reserved"] == pytest.approx(0.6)
    tables.settle("m-1", "m", COST)

    assert tables.counts("q")["usd_reserved"] == pytest.approx(0)


def test_a_budget_given_later_counts_the_cost_of_finished_rows(tables: Tables) -> None:
    tables.enqueue("q", records(1))
    tables.begin_map("m", "q", None, None)
    ((record, claim),) = tables.exchange("w", "q", free=1)
    tables.exchange("w", "q", ended=[ended(record, claim)])

    tables.begin_map("m", "q", 0.4, None)

    assert tables.spent("m") == (0.5, 0, True)


def test_all_processes_share_a_rate_limit_and_its_mean(engine: str, tables: Tables) -> None:
    second = Tables(engine_store(engine))

    waits = [each.slot("acme requests", 10.0, 0)[0] for each in (tables, second, tables)]
    tables.slot("acme tokens", 1.0, 5)
    tables.correct("acme tokens", 1.0, 5, 50)
    _, reserved = second.slot("acme tokens", 1.0, 5)

    assert waits == [pytest.approx(at, abs=1) for at in (0, 10, 20)]
    assert reserved == 50
    second.close()


def test_one_process_tests_a_provider_after_its_cooldown(engine: str, tables: Tables) -> None:
    second = Tables(engine_store(engine))
    tables.cool_down("acme", 60.0)
    assert second.cooldowns()["acme"] == pytest.approx(60, abs=2)
    assert second.probe("acme") > 50

    tables.cool_down("acme", 0.0)
    assert second.probe("acme") == 0.0
    assert tables.probe("acme") > 10  # another process tests it
    second.end_cooldown("acme")

    assert tables.probe("acme") == 0.0
    assert tables.probe("unknown") == 0.0
    second.close()


def test_tables_of_a_newer_version_are_not_changed(engine: str, tables: Tables) -> None:
    tables.queues()
    tables._transact(lambda each: tables._run(each, "UPDATE glue_queue SET version = 9"))

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
            RowRecord(id=f"m-{number}", map="m", number=number, task={"prompt": ["x" * 200]})
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

"""A worker of a queue: its threads, and what workers learn from each other."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

import glue
from glue import Agent
from glue.durable import Row
from glue.durable.tables import Tables, engine_store
from glue.durable.worker import Worker
from glue.errors import StoreError
from glue.stores import SQLiteStore
from glue.testing import Repeat, Script

GLUE = [sys.executable, "-c", "from glue.cli.app import main; main()"]
AGENT = """
import glue
from glue.providers.offline import Offline

agent = glue.Agent(Offline(lambda request: "ready"))
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # a worker under trio is tested in test_runs.py


@pytest.fixture
def tables(engine: str) -> Iterator[Tables]:
    made = Tables(engine_store(engine))
    yield made
    made.close()


def rows(*numbers: int) -> list[Row]:
    return [Row(id=f"m-{number}", prompt="go", map="m", number=number) for number in numbers]


def worker(engine: str, **options: Any) -> Worker:
    agent = Agent(Script(Repeat("ready")))
    return Worker(agent, store=engine_store(engine, 1.0), queue="q", lease=1.0, **options)


async def test_a_worker_learns_the_cooldowns_of_the_others_and_their_end(engine: str) -> None:
    async with worker(engine) as first, worker(engine) as second:
        gate = first.ledger.gate("acme")

        await first.ledger.refuse(gate, gate.round, 60.0)

        with anyio.fail_after(20):
            while not second.ledger.cooling():
                await anyio.sleep(0.01)
        assert second.ledger.cooling()["acme"] == pytest.approx(60, abs=5)


@pytest.mark.scale
async def test_postgres_wakes_idle_workers_and_ends_their_cooldowns(database: str) -> None:
    tables = Tables(engine_store(database))
    async with (
        worker(database, poll=600.0) as first,
        worker(database) as second,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(first.work)
        gate = second.ledger.gate("acme")
        await second.ledger.refuse(gate, gate.round, 60.0)
        with anyio.fail_after(20):
            while not first.ledger.cooling():
                await anyio.sleep(0.01)

        await second.ledger.passed(gate, gate.round)
        tables.enqueue("q", rows(1))

        with anyio.fail_after(20):
            while first.ledger.cooling() or not tables.ended("m"):
                await anyio.sleep(0.01)
        first.stop()
    tables.close()


async def test_a_worker_that_stops_puts_its_unfinished_rows_back(
    engine: str, tables: Tables
) -> None:
    class Endless:
        name = "endless"
        asked = False

        async def stream(self, request: glue.Request) -> Any:
            self.asked = True
            await anyio.sleep_forever()
            yield

    provider = Endless()
    tables.enqueue("q", rows(1))
    async with (
        Worker(Agent(provider), store=engine_store(engine), queue="q", poll=0.01) as stopping,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stopping.work)
        with anyio.fail_after(20):
            while not provider.asked:
                await anyio.sleep(0.01)
        assert tables.counts("q")["states"] == {"running": 1}
        stopping.stop()

    assert tables.counts("q")["states"] == {"waiting": 1}
    assert tables.workers("q") == []
    (row,) = tables.exchange("w", "q", free=1)
    assert not row.is_lost


@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"]
)
async def test_a_row_whose_session_is_in_use_is_put_back_and_run_later(
    engine: str, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    other = engine_store(engine)
    tables.enqueue("q", rows(1))
    async with worker(engine) as waiting:
        async with other.log("m-1"):
            (row,) = await waiting.exchange(1)
            assert await waiting.run(row) is None
            assert await waiting.exchange() == []
            assert tables.counts("q")["states"] == {"waiting": 1}
        (row,) = await waiting.exchange(1)
        ended = await waiting.run(row)

    assert ended is not None
    assert ended.outcome == "done"
    assert tables.ended("m") == [ended]
    assert "row m-1 is put back on the queue: session 'm-1' is in use" in caplog.text


async def test_a_worker_runs_at_most_as_many_rows_as_its_concurrency(
    engine: str, tables: Tables
) -> None:
    class Counting:
        name = "counting"
        now = most = 0

        async def stream(self, request: glue.Request) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            await anyio.sleep(0.02)
            self.now -= 1
            yield glue.provider.Done(
                message=glue.AssistantMessage(content=(glue.Text(text="ready"),))
            )

    provider = Counting()
    tables.enqueue("q", rows(*range(1, 9)))
    async with (
        Worker(Agent(provider), store=engine_store(engine), queue="q", concurrency=2) as busy,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(busy.work)
        with anyio.fail_after(20):
            while len(tables.ended("m")) < 8:
                await anyio.sleep(0.01)
        busy.stop()

    assert provider.most == 2


def rename(tables: Tables, before: str, after: str) -> None:
    """Rename a table, so that statements that use it fail."""
    tables.transact(lambda run: run(f"ALTER TABLE {before} RENAME TO {after}"))


async def test_results_that_could_not_be_stored_are_stored_later(
    engine: str, tables: Tables
) -> None:
    tables.enqueue("q", rows(1, 2, 3))
    async with worker(engine) as failing:
        first, second, third = await failing.exchange(3)
        assert (first.id, second.id, third.id) == ("m-1", "m-2", "m-3")
        ended = await failing.run(first)
        failing.put_back(second.id)
        rename(tables, "glue_rows", "hidden")
        for _ in range(2):
            with pytest.raises(StoreError):
                await failing.exchange()
        rename(tables, "hidden", "glue_rows")

        await failing.exchange()

        assert tables.ended("m") == [ended]
        assert tables.counts("q")["states"] == {"ended": 1, "waiting": 1, "running": 1}


async def test_a_worker_continues_after_a_failed_heartbeat_and_leaves_without_the_database(
    engine: str, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(Script(Repeat("ready")))
    async with Worker(agent, store=engine_store(engine, 0.04), queue="q", lease=0.04):
        rename(tables, "glue_workers", "hidden")
        with anyio.fail_after(20):
            while caplog.text.count("the heartbeat of the worker failed: ") < 2:
                await anyio.sleep(0.01)

    assert "the worker could not deregister; its rows wait until its lease ends: " in caplog.text


async def test_a_worker_puts_the_rows_of_a_dead_worker_back(
    engine: str, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "glue.durable")
    tables.enqueue("q", rows(1, 2))
    tables.heartbeat("dead", "q", 1, -1.0)  # its lease is over at once
    tables.exchange("dead", "q", free=1)
    agent = Agent(Script(Repeat("ready")))

    async with Worker(agent, store=engine_store(engine, 0.4), queue="q", lease=0.4) as living:
        with anyio.fail_after(20):
            while tables.counts("q")["states"] != {"waiting": 2} or living._dead.is_set():
                await anyio.sleep(0.01)
        assert [each["id"] for each in tables.workers("q")] == [living.id]

    assert caplog.messages == [
        "recovered 1 row of dead workers; each is put back on the queue or ends as failed"
    ]


async def test_a_failed_recovery_is_logged_and_repeated(
    engine: str, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    tables.enqueue("q", rows(1))
    tables.exchange("dead", "q", free=1)
    agent = Agent(Script(Repeat("ready")))

    async with Worker(agent, store=engine_store(engine, 0.4), queue="q", lease=0.4):
        rename(tables, "glue_rows", "hidden")
        tables.heartbeat("dead", "q", 1, -1.0)  # its lease is over at once
        with anyio.fail_after(20):
            while "the rows of dead workers could not be put back on the" not in caplog.text:
                await anyio.sleep(0.01)
            rename(tables, "hidden", "glue_rows")
            while tables.counts("q")["states"] != {"waiting": 1}:
                await anyio.sleep(0.01)


class Notified(SQLiteStore):
    """A store of a database that sends notifications, which the test sends with `receive`."""

    def listen(self, channel: str, receive: Any, ending: threading.Event) -> None:
        self.channel, self.receive = channel, receive


async def test_a_worker_is_woken_by_notices_of_rows_of_its_queue(tmp_path: Path) -> None:
    store = Notified(tmp_path / "runs.db")
    agent = Agent(Script(Repeat("ready")))
    async with Worker(agent, store=store, queue="q", poll=600.0) as idle:
        idle._receive_notices()
        changed = idle._changed

        store.receive('["rows", "another"]')
        store.receive('["cooldown", "acme", 60.0]')
        with anyio.fail_after(20):
            while not idle.ledger.cooling():
                await anyio.sleep(0)
        assert idle.ledger.cooling() == {"acme": pytest.approx(60, abs=5)}
        assert not changed.is_set()

        store.receive('["cooldown", "acme", null]')
        store.receive('["rows", "q"]')
        with anyio.fail_after(20):
            await changed.wait()
        assert idle.ledger.cooling() == {}

    assert store.channel == "glue"


async def test_a_request_that_waits_is_sent_if_another_worker_gets_a_reply(engine: str) -> None:
    async with worker(engine) as first, worker(engine) as second:
        gate = second.ledger.gate("acme")
        await first.ledger.refuse(first.ledger.gate("acme"), 0, 60.0)
        second.ledger.learn({"acme": 60.0})
        sent: list[bool] = []

        async def enter() -> None:
            sent.append(await second.ledger.enter(gate, second.ledger.clock() + 600))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            await anyio.wait_all_tasks_blocked()
            assert sent == []
            await first.ledger.passed(first.ledger.gate("acme"), 1)
            second.ledger.reopen("acme")
            with anyio.fail_after(5):
                while not sent:
                    await anyio.sleep(0.001)

        assert sent == [True]


@pytest.mark.scale
def test_workers_are_never_silent_for_half_a_lease_although_ten_thousand_rows_are_lost(
    engine: str, tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, lease = 10_000, 10.0
    (tmp_path / "agent.py").write_text(AGENT)
    for start in range(1, lost, 1000):
        tables.enqueue("q", rows(*range(start, start + 1000)))
    tables.exchange("dead", "q", free=lost)
    tables.heartbeat("dead", "q", lost, -1.0)  # its lease is over at once
    command = [*GLUE, "worker", "agent.py", "--queue", "q", "--engine", engine, "-n", "64"]
    begun, recovered = time.monotonic(), 0.0
    silence: dict[str, float] = {}  # the longest of each worker, in seconds

    with open(tmp_path / "log", "ab") as log:
        started = [subprocess.Popen(command, cwd=tmp_path, stderr=log) for _ in range(2)]
    try:
        while not recovered or time.monotonic() < recovered + lease:
            assert time.monotonic() < begun + 120, (tmp_path / "log").read_text()[-2000:]
            found = {each["id"]: each["silent"] for each in tables.workers("q")}
            if len(found) == 2 and "dead" not in found:
                recovered = recovered or time.monotonic()
            found.pop("dead", None)
            silence = {name: max(silence.get(name, 0.0), found[name]) for name in found}
            time.sleep(0.02)
    finally:
        for process in started:
            process.kill()
            process.wait(30)
    claims = dict(
        tables.transact(lambda run: run("SELECT claims, count(*) FROM glue_rows GROUP BY 1"))
    )

    with capsys.disabled():
        kind = "Postgres" if engine.startswith("postgres") else "SQLite"
        longest, put_back = max(silence.values()), recovered - begun
        print(f"\n{kind}: {lost:,} rows of a killed worker put back after {put_back:.1f} s;")
        print(f"  longest silence of two workers {longest:.2f} s, at a lease of {lease:.0f} s")
        print(f"  rows by the number of workers that have taken them: {claims}")
    assert len(silence) == 2
    assert longest < lease / 2
    assert max(claims) == 2  # the killed worker and another one, which lost none of its rows

"""A worker of a queue: its threads, and what workers learn from each other."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import glue
from glue import Agent
from glue.durable import Row
from glue.durable.tables import Tables, engine_store
from glue.durable.worker import Worker
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


async def test_a_row_whose_session_is_in_use_is_put_back_and_run_later(
    engine: str, tables: Tables
) -> None:
    other = engine_store(engine)
    tables.enqueue("q", rows(1))
    async with (
        worker(engine, poll=0.05) as waiting,
        anyio.create_task_group() as tasks,
    ):
        async with other.log("m-1"):
            tasks.start_soon(waiting.work)
            with anyio.fail_after(20):
                while (row := tables.find("m-1")) is None or row.is_new or row.state != "waiting":
                    await anyio.sleep(0.01)
        with anyio.fail_after(20):
            while not (ended := tables.ended("m")):
                await anyio.sleep(0.01)
        waiting.stop()

    assert [row.outcome for row in ended] == ["done"]


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

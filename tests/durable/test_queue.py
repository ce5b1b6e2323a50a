"""Maps over a queue: real worker processes and a real Postgres, which the tests kill at random.

Each row must be returned once, have its effects at most once, and be billed once.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.postgres import Postgres
from fakes.zygote import Forked, Zygote

import glue
from glue.durable.queue import QueueEngine
from glue.durable.rows import InputLine
from glue.durable.tables import Tables, engine_store
from glue.errors import ConfigError
from glue.testing import Script

# Runs a command of glue whose output goes to the file `log`.
LOGGED = """
import os
os.close(0), os.open(os.devnull, os.O_RDONLY)
log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.dup2(log, 1), os.dup2(log, 2)

from glue.cli.app import main
main()
"""
ROWS = int(os.environ.get("GLUE_SCALE_ROWS", "5000"))
WORKERS = 4
SEED = int(os.environ.get("GLUE_SCALE_SEED", str(random.randrange(10_000))))

AGENT = """
import os, anyio, glue
from glue import AssistantMessage, Text, ToolCall, Usage
from glue.providers.offline import Offline

def note(name, row):  # several processes append, so each line is a single write
    fd = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{row}\\n".encode())
    os.close(fd)

@glue.tool
async def charge(row: str) -> str:
    "Charge a customer: never twice."
    note("charges", row)
    await anyio.sleep(0.02)
    return "charged"

@glue.tool(idempotent=True)
async def mark(row: str) -> str:
    "Mark a row: as often as you like."
    note("marks", row)
    await anyio.sleep(0.02)
    return "marked"

async def rules(request):
    row = request.messages[0].text
    note("requests", row)
    await anyio.sleep(0.03)
    note("replies", row)
    spent = Usage(input=100, output=10, cost=0.001)
    if len(request.messages) == 1:
        arguments = '{"row": "%s"}' % row
        names = ("charge", "mark")
        calls = tuple(ToolCall(id=name, name=name, arguments=arguments) for name in names)
        return AssistantMessage(content=calls, stop_reason="tool_use", usage=spent)
    results = " and ".join(message.text for message in request.messages[-2:])
    return AssistantMessage(content=(Text(text=f"{row}: {results}"),), usage=spent)

agent = glue.Agent(Offline(rules), tools=[charge, mark])
"""


class Processes:
    """The processes that a test started; the fixture kills them after the test."""

    def __init__(self, folder: Path, zygote: Zygote) -> None:
        self.folder = folder
        (folder / "log").touch()
        self.zygote = zygote
        self.all: list[Forked] = []

    def start(self, *args: str) -> Forked:
        process = self.zygote.start([sys.executable, "-c", LOGGED, *args], self.folder)
        process.close()  # the process writes to the log
        self.all.append(process)
        return process

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]


@pytest.fixture
def processes(tmp_path: Path, zygote: Zygote) -> Iterator[Processes]:
    (tmp_path / "agent.py").write_text(AGENT)
    made = Processes(tmp_path, zygote)
    yield made
    for process in made.all:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def inputs(folder: Path, count: int) -> None:
    (folder / "in.jsonl").write_text(
        "".join(json.dumps({"prompt": f"r{number}"}) + "\n" for number in range(1, count + 1))
    )


def output(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / "out.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def counted(folder: Path, name: str) -> Counter[str]:
    return Counter((folder / name).read_text().split())


def wait_for(condition: Callable[[], bool], processes: Processes, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, processes.log()
        time.sleep(0.05)


@pytest.mark.scale
def test_rows_survive_kills_of_workers_database_and_map(
    postgres: Postgres,
    database: str,
    processes: Processes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    inputs(tmp_path, ROWS)
    chance = random.Random(SEED)
    there = ("--queue", "scale", "--engine", database)
    options = ("--unordered", "--usd-budget", "1000", "--resume")
    map_args = ("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *there, *options)
    # The rate limits nothing here, but every request uses its meter.
    worker_args = ("worker", "agent.py", *there, "--lease", "3", "--rpm", "10000000")
    victims = ["worker"] * 9 + ["database"] * 3 + ["map"] * 2
    chance.shuffle(victims)
    parts = len(victims) + 1
    # The input has equal parts. In each of them but the last, one process is killed at random.
    places = [int((index + chance.random()) * ROWS / parts) for index in range(len(victims))]
    started = time.monotonic()

    workers = [processes.start(*worker_args) for _ in range(WORKERS)]
    client = processes.start(*map_args)

    def reached(place: int) -> bool:
        """Return whether so many rows were marked. Restart processes that found no database."""
        nonlocal client
        for at, worker in enumerate(workers):
            if worker.poll() is not None:
                workers[at] = processes.start(*worker_args)
        if client.poll() not in (None, 0):
            client = processes.start(*map_args)
        return len(counted_marks(tmp_path)) >= place

    for place, victim in zip(places, victims, strict=True):
        wait_for(partial(reached, place), processes)
        if victim == "worker":
            at = chance.randrange(WORKERS)
            workers[at].kill()
            workers[at].wait(30)
            workers[at] = processes.start(*worker_args)
        elif victim == "database":
            postgres.kill()
            time.sleep(chance.random())
            postgres.start()
        else:
            client.kill()
            client.wait(30)
            client = processes.start(*map_args)
    wait_for(lambda: reached(ROWS) and client.poll() == 0, processes, 900)
    took = time.monotonic() - started

    rows = output(tmp_path)
    charges, marks, requests, replies = (
        counted(tmp_path, name) for name in ("charges", "marks", "requests", "replies")
    )
    names = [f"r{number}" for number in range(1, ROWS + 1)]
    interrupted = [row for row in rows if "no result was recorded" in row["text"]]
    lost = sum(row.get("lost", 0) for row in rows)
    repeated = replies.total() - 2 * ROWS
    with capsys.disabled():
        killed = ", ".join(victims)
        title = f"{ROWS:,} rows, {WORKERS} workers of 8, seed {SEED}"
        print(f"\n{title}; killed in this order: {killed}")
        print(f"  {'rows in the results, each once':50}{len(rows):>8,}")
        print(f"  {'rows complete':50}{sum(row['outcome'] == 'done' for row in rows):>8,}")
        print(f"  {'most charges of a row (not idempotent)':50}{max(charges.values()):>8}")
        print(f"  {'rows with an interrupted charge':50}{len(interrupted):>8}")
        print(f"  {'fewest marks of a row (idempotent)':50}{min(marks[name] for name in names):>8}")
        print(f"  {'repeated marks':50}{marks.total() - ROWS:>8}")
        print(f"  {f'requests beyond {2 * ROWS:,}':50}{requests.total() - 2 * ROWS:>8}")
        print(f"  {'replies that no process received':50}{repeated:>8}")
        print(f"  {'requests reported as lost':50}{lost:>8}")
        print(f"  {'dollars in the results':50}{sum(row['cost'] for row in rows):>8.2f}")
        print(f"  {'seconds, rows per second':50}{took:>8.0f}{ROWS / took:>8.1f}")

    assert Counter(row["number"] for row in rows) == Counter(range(1, ROWS + 1))
    assert {row["outcome"] for row in rows} == {"done"}
    assert max(charges.values()) == 1
    assert all(row["text"].startswith(f"r{row['number']}: ") for row in rows)
    assert all(f"r{row['number']}" in charges for row in rows if "charged" in row["text"])
    assert all(marks[name] >= 1 for name in names)
    assert [row["cost"] for row in rows] == [pytest.approx(0.002)] * ROWS
    assert [row["usage"]["input"] for row in rows] == [200] * ROWS
    assert requests.total() - 2 * ROWS <= lost <= 8 * len(victims)
    assert "Traceback" not in (tmp_path / "log").read_text(errors="replace")


def counted_marks(folder: Path) -> Counter[str]:
    return counted(folder, "marks") if (folder / "marks").exists() else Counter()


def test_a_map_over_a_queue_returns_all_rows(
    engine: str, processes: Processes, tmp_path: Path
) -> None:
    inputs(tmp_path, 30)
    there = ("--queue", "rows", "--engine", engine)
    processes.start("worker", "agent.py", *there, "--poll", "0.05")

    assert (
        processes.start("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *there).wait(120) == 0
    ), processes.log()

    assert [row["text"] for row in output(tmp_path)] == [
        f"r{number}: charged and marked" for number in range(1, 31)
    ]
    assert sum(row["cost"] for row in output(tmp_path)) == pytest.approx(0.06)


async def test_the_rows_on_a_queue_follow_the_slots_of_its_workers(
    engine: str, tmp_path: Path
) -> None:
    tables, read = Tables(engine_store(engine)), 0
    tables.heartbeat("a worker of 60 rows at once", "rows", 60, 600.0)

    def prompts() -> Iterator[str]:
        nonlocal read
        for number in range(1000):
            read += 1
            yield f"r{number}"

    job = glue.map(
        glue.Agent(Script()),
        prompts(),
        engine=QueueEngine(engine, "rows", poll=0.01),
        state=tmp_path / "state.db",
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, aiter(job), None)
        with anyio.fail_after(30):
            while tables.counts("rows")["states"].get("waiting", 0) < 240:
                await anyio.sleep(0.01)
        job.stop()

    assert read == 240  # four for each slot
    assert tables.counts("rows")["states"] == {}  # rows that no worker had begun are taken back
    tables.close()


async def test_rows_that_have_not_begun_are_removed_if_the_budget_is_spent(
    engine: str, tmp_path: Path
) -> None:
    tables = Tables(engine_store(engine))
    job = glue.map(
        glue.Agent(Script()),
        ["one", "two"],
        engine=QueueEngine(engine, "rows", poll=0.01),
        state=tmp_path / "state.db",
        token_budget=10,
    )

    async def spend() -> None:
        with anyio.fail_after(30):
            while tables.counts("rows")["states"].get("waiting", 0) < 2:
                await anyio.sleep(0.01)
        usage = glue.Usage(input=10, output=5)
        tables.change_balance(job.state.id, "x", lambda balance, hold: balance.add(usage, 1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spend)
        found = [row async for row in job]

    assert found == []
    assert (job.over_budget, job.unfinished) == (True, True)
    assert tables.counts("rows")["states"] == {}
    tables.close()


async def test_a_queue_without_a_worker_is_reported_once(engine: str) -> None:
    notices: list[str] = []
    tables = Tables(engine_store(engine))
    rows = QueueEngine(engine, "rows", notice=notices.append)
    no_workers = "the queue 'rows' has no worker; its rows wait for a `glue worker`"

    await rows._check_workers()
    assert notices == []  # no row waits
    rows._out = {1: InputLine(number=1, text="x")}
    await rows._check_workers()
    await rows._check_workers()
    assert (notices, rows.window) == ([no_workers], 100)

    tables.heartbeat("w", "rows", 26, 600.0)
    await rows._check_workers()
    assert (notices, rows.window) == ([no_workers], 104)
    tables.deregister("w")
    await rows._check_workers()

    assert notices == [no_workers] * 2
    tables.close()
    rows.tables.close()


async def test_a_map_over_a_queue_refuses_settings_that_its_workers_decide(
    tmp_path: Path,
) -> None:
    engine = QueueEngine(f"sqlite:///{tmp_path / 'jobs.db'}", "rows", poll=0.01)
    agent = glue.Agent(Script())
    limits = glue.Limits(max_turns=3)

    with pytest.raises(ConfigError, match="does not take model, limits, deps: the agent and"):
        async for _ in glue.map(agent, ["x"], engine=engine, model="a", limits=limits, deps=1):
            pass
    with pytest.raises(ConfigError, match=r"with an engine, .* not take concurrency, patience"):
        glue.map(agent, ["x"], engine=engine, concurrency=8, patience=600.0)


def test_rows_wait_for_a_worker_and_a_resumed_map_collects_them(
    engine: str,
    processes: Processes,
    tmp_path: Path,
    cli: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs(tmp_path, 5)
    there = ("--queue", "rows", "--engine", engine)
    client = processes.start("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *there)
    wait_for(lambda: "the queue 'rows' has no worker; its rows wait" in processes.log(), processes)
    client.kill()
    client.wait(30)
    ran = cli("queue", "rows", "--engine", engine)
    assert "rows: 5 waiting, 0 running, 0 done, 0 failed; 0/min; $0" in ran.out
    assert "no worker is running" in ran.out

    worker = processes.start("worker", "agent.py", *there, "--poll", "0.05")
    wait_for(lambda: "5 done" in cli("queue", "--engine", engine).out, processes)
    held = json.loads(cli("queue", "--engine", engine, "--json").out)["rows"]["workers"]
    assert [found["pid"] for found in held] == [worker.pid]
    assert cli("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *there, "--resume").code == 0

    assert [row["outcome"] for row in output(tmp_path)] == ["done"] * 5
    assert (
        counted(tmp_path, "requests").total() == 10
    )  # the results were collected, not computed again


def test_invalid_rows_and_a_spent_budget_are_reported_on_a_queue(
    engine: str,
    processes: Processes,
    tmp_path: Path,
    cli: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text(
        "oops\n" + "".join(json.dumps({"prompt": f"r{n}"}) + "\n" for n in range(2, 62))
    )
    args = ("map", "agent.py", "in.jsonl", "-o", "out.jsonl", "--queue", "rows", "--engine", engine)
    worker = processes.start(
        "worker", "agent.py", "--queue", "rows", "--engine", engine, "--poll", "0.05", "-n", "2"
    )

    ran = cli(*args, "--usd-budget", "0.01")

    assert ran.code == 3
    assert "line 1: not valid JSON" in ran.err
    outcomes = Counter(row["outcome"] for row in output(tmp_path))
    assert outcomes["invalid"] == 1
    assert 4 <= outcomes["done"] <= 6
    assert sum(row.get("cost") or 0 for row in output(tmp_path)) <= 0.012
    ran = cli(*args, "--resume", "--usd-budget", "1")
    assert ran.code == 1  # the row is still invalid
    assert Counter(row["outcome"] for row in output(tmp_path)) == {"done": 60, "invalid": 1}
    assert [row["cost"] for row in output(tmp_path)[1:]] == [pytest.approx(0.002)] * 60
    worker.terminate()
    assert worker.wait(60) == 0


PAUSING = """
import glue
from glue import AssistantMessage, Text, ToolCall, Usage
from glue.providers.offline import Offline

@glue.tool(needs_permission=True)
def deploy(version: str) -> str:
    "Deploy a version."
    with open("deployed", "a") as file:
        file.write(version)
    return f"{version} is live"

def rules(request):
    usage = Usage(input=10, output=5, cost=0.25)
    if len(request.messages) > 1:
        return AssistantMessage(content=(Text(text=request.messages[-1].text),), usage=usage)
    if request.messages[0].text == "r2":
        return AssistantMessage(content=(Text(text="no deployment"),), usage=usage)
    parts = (ToolCall(id="c1", name="deploy", arguments='{"version": "1.4"}'),)
    return AssistantMessage(content=parts, stop_reason="tool_use", usage=usage)

agent = glue.Agent(Offline(rules), tools=[deploy])
"""


def test_a_map_over_a_queue_with_rows_that_wait_exits_with_6_and_continues_after_the_answer(
    engine: str,
    processes: Processes,
    tmp_path: Path,
    cli: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(PAUSING)
    inputs(tmp_path, 2)
    there = ("--queue", "rows", "--engine", engine)
    command = ("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *there)
    processes.start("worker", "agent.py", *there, "--poll", "0.05", "--on-question", "defer")

    first = cli(*command)
    again = cli(*command, "--resume")

    assert (first.code, again.code) == (6, 6)
    assert [row["outcome"] for row in output(tmp_path)] == ["paused", "done"]
    assert "1 done, 1 paused" in again.err or "1 paused, 1 done" in again.err
    session, store = output(tmp_path)[0]["session"], engine.removeprefix("sqlite:///")
    pending = f"line 1: paused: waits for deploy; `glue sessions pending {session} --store "
    assert pending in first.err
    assert pending in again.err
    assert not (tmp_path / "deployed").exists()
    options = ("--agent", "agent.py", "--store", store)
    answered = cli("sessions", "answer", session, "--allow", *options)
    assert answered.code == 0, answered.err
    assert cli(*command, "--resume").code == 0
    assert [row["text"] for row in output(tmp_path)] == ["1.4 is live", "no deployment"]
    assert [row["cost"] for row in output(tmp_path)] == [0.5, 0.25]
    assert (tmp_path / "deployed").read_text() == "1.4"


def test_a_terminated_worker_finishes_its_rows(
    engine: str, processes: Processes, tmp_path: Path
) -> None:
    inputs(tmp_path, 40)
    there = ("--queue", "rows", "--engine", engine)
    worker = processes.start("worker", "agent.py", *there, "--poll", "0.05", "-n", "4")
    client = processes.start("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *there)
    wait_for(lambda: len(counted_marks(tmp_path)) >= 5, processes)

    worker.terminate()
    assert worker.wait(60) == 0
    processes.start("worker", "agent.py", *there, "--poll", "0.05")

    assert client.wait(120) == 0, processes.log()
    assert max(counted(tmp_path, "charges").values()) == 1
    assert all(row["text"].endswith("charged and marked") for row in output(tmp_path))


def test_global_concurrency_limits_the_rows_of_all_workers(
    engine: str, processes: Processes, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(
        AGENT.replace(
            "await anyio.sleep(0.03)",
            "note('levels', '+'); await anyio.sleep(0.05); note('levels', '-')",
        )
    )
    inputs(tmp_path, 24)
    there = ("--queue", "rows", "--engine", engine)
    for _ in range(2):
        processes.start(
            "worker", "agent.py", *there, "--poll", "0.05", "-n", "3", "--global-concurrency", "3"
        )

    assert (
        processes.start("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *there).wait(180) == 0
    ), processes.log()

    level = most = 0
    for sign in (tmp_path / "levels").read_text().split():
        level += 1 if sign == "+" else -1
        most = max(most, level)
    assert 1 <= most <= 3

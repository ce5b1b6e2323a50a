"""The overhead of `glue map`: rows per second and CPU per row, in one process and on workers.

    python bench/map.py [rows]                     the embedded engine
    python bench/map.py [rows] --postgres          also a queue and DBOS, with the Postgres of
                                                   `make scale`
    python bench/map.py [rows] --engine URL        also a queue in another database

The model is scripted and answers at once, so only glue is measured. Ratios compare with a bare loop
in the same process and minute. The milliseconds depend on this machine and its load.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

import glue
from glue import AssistantMessage, Text, Usage
from glue.providers.offline import Offline

AGENT = """
import glue
from glue import AssistantMessage, Text, Usage
from glue.providers.offline import Offline

def rules(request):
    usage = Usage(input=10, output=5, cost=0.001)
    return AssistantMessage(content=(Text(text="an answer"),), usage=usage)

agent = glue.Agent(Offline(rules))
"""
GLUE = [sys.executable, "-c", "from glue.cli.app import main; main()"]


def rules(request: glue.Request) -> AssistantMessage:
    return AssistantMessage(
        content=(Text(text="an answer"),), usage=Usage(input=10, output=5, cost=0.001)
    )


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def peak() -> float:
    """Return the peak memory of this process in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024 if sys.platform == "linux" else 1024**2
    )


async def bare(agent: Any, count: int) -> None:
    for number in range(count):
        await agent.run(f"row {number}")
        if number % 200 == 199:
            marks.append(cpu())


async def mapped(agent: Any, count: int) -> None:
    done = 0
    async for _ in glue.map(agent, (f"row {number}" for number in range(count))):
        done += 1
        if done % 200 == 0:
            marks.append(cpu())
    assert done == count


marks: list[float] = []  # the CPU seconds of this process after every 200 rows


def costs() -> list[float]:
    """Return the CPU milliseconds per row, for each 200 rows."""
    return [(after - before) / 200 * 1e3 for before, after in itertools.pairwise(marks)]


def measure(work: Callable[..., Any], count: int) -> tuple[float, float]:
    """Run `work`; return the median of the CPU milliseconds per row, and the rows per second."""
    agent = glue.Agent(Offline(rules))
    marks[:] = [cpu()]
    wall = time.perf_counter()
    anyio.run(work, agent, count)
    return statistics.median(costs() or [0.0]), count / (time.perf_counter() - wall)


def local(most: int) -> None:
    print("embedded: one process, 8 rows at once, state in SQLite")
    names = ("bare ms", "map ms", "beyond", "ratio", "first", "last", "rows/s", "peak MB")
    print(f"{'rows':>9}" + "".join(f"{name:>9}" for name in names))
    measure(mapped, 50)  # not counted: imports modules and creates the database
    count = min(most, 1_000)
    while True:
        alone, _ = measure(bare, min(count, 5_000))
        ours, speed = measure(mapped, count)
        tenth = max(len(costs()) // 10, 1)
        first, last = statistics.median(costs()[:tenth]), statistics.median(costs()[-tenth:])
        figures = (alone, ours, ours - alone, ours / alone, first, last)
        print(
            f"{count:>9,}"
            + "".join(f"{each:>9.3f}" for each in figures)
            + f"{speed:>9.0f}{peak():>9.1f}",
            flush=True,
        )
        if count >= most:
            return
        count = min(count * 10, most)


def queued(engine: str, count: int) -> None:
    alone, _ = measure(bare, 2_000)
    print(f"\na queue in {engine.split(':')[0]}: workers of 8 rows at once, {count:,} rows in all")
    print(f"{'workers':>9} {'rows/s':>8} {'CPU ms/row':>13} {'ratio':>7}")
    for workers in (1, 2, 4):
        with tempfile.TemporaryDirectory() as name:
            speed, spent = on_workers(engine, Path(name), workers, count)
        print(f"{workers:>9} {speed:>8.1f} {spent:>13.2f} {spent / alone:>7.0f}", flush=True)


# Programs that run the same rows with other engines. Each prints its CPU seconds.
COMMON = """
import os, resource, sys, time
import anyio
url, count = sys.argv[1], int(sys.argv[2])

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
"""
DBOS_MAIN = """
import asyncio
from dbos import DBOS

name = f"bench{os.getpid()}"
DBOS(config={"name": name, "system_database_url": url, "log_level": "CRITICAL"})

@DBOS.workflow()
async def row(number):
    return await answer(number)

async def main():
    DBOS.launch()
    options = {"worker_concurrency": 8, "polling_interval_sec": 0.05}
    await DBOS.register_queue_async(name, **options, on_conflict="always_update")
    await (await DBOS.enqueue_workflow_async(name, row, 0)).get_result()
    before, wall = cpu(), time.perf_counter()
    numbers = range(1, count + 1)
    handles = [await DBOS.enqueue_workflow_async(name, row, number) for number in numbers]
    for handle in handles:
        await handle.get_result()
    print(cpu() - before, time.perf_counter() - wall, flush=True)
    os._exit(0)

asyncio.run(main())
"""
PLAYERS = {
    "raw httpx, 8 at once": """
import httpx, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

async def main():
    async with httpx.AsyncClient(base_url=url) as client:
        limiter = anyio.CapacityLimiter(8)

        async def ask(number):
            async with limiter:
                body = {"model": "m", "messages": [{"role": "user", "content": f"row {number}"}]}
                (await client.post("/chat", json=body)).json()

        await ask(0)
        before, wall = cpu(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(ask, number)
        print(cpu() - before, time.perf_counter() - wall)

anyio.run(main)
""",
    "glue map, one process": """
import glue
from agent import agent

async def run(count):
    async for row in glue.map(agent, (f"row {number}" for number in range(count))):
        pass

async def main():
    await run(20)
    before, wall = cpu(), time.perf_counter()
    await run(count)
    print(cpu() - before, time.perf_counter() - wall)

anyio.run(main)
""",
    "DBOS alone, a plain function": "async def answer(number):\n    return 'an answer'\n"
    + DBOS_MAIN,
    "glue on DBOS (run_row in a workflow)": """
import glue
from agent import agent
from glue.durable import Row, run_row

store = glue.stores.PostgresStore(url)

async def answer(number):
    row = Row(id=f"{os.getpid()}-{number}", prompt=f"row {number}")
    return (await run_row(agent, store, row)).text
"""
    + DBOS_MAIN,
    "pydantic-ai on DBOS": """
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.models.test import TestModel

agent = DBOSAgent(Agent(TestModel(custom_output_text="an answer"), name="bench"))

async def answer(number):
    return (await agent.run(f"row {number}")).output
"""
    + DBOS_MAIN,
}
SERVER = """
import asyncio, sys

async def serve(reader, writer):
    body = b'{"choices": [{"message": {"role": "assistant", "content": "an answer"}}]}'
    head = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\n"
    head += b"content-length: %d\\r\\n\\r\\n"
    try:
        while True:
            block = await reader.readuntil(b"\\r\\n\\r\\n")
            size = int(block.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
            await reader.readexactly(size)
            writer.write(head % len(body) + body)
    except asyncio.IncompleteReadError:
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def side_by_side(database: str, count: int) -> None:
    """Print the CPU time of a row on each engine, measured in the same minute."""
    print(f"\n{count:,} rows that a model answers at once: CPU of the client and its workers")
    print(f"{'':40}{'CPU ms/row':>11} {'rows/s':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "agent.py").write_text(AGENT)
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        try:
            for title, program in PLAYERS.items():
                url = f"http://127.0.0.1:{port}" if "httpx" in title else database
                (folder / "player.py").write_text(COMMON + program)
                command = [sys.executable, "player.py", url, str(count)]
                ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                if ran.returncode:
                    reason = (ran.stderr.strip().splitlines() or ["no reason"])[-1]
                    print(f"{title:40}  not measured: {reason[:80]}")
                    continue
                spent, took = map(float, ran.stdout.split()[-2:])
                print(f"{title:40}{spent / count * 1e3:>11.2f} {count / took:>8.0f}", flush=True)
        finally:
            server.kill()
            server.communicate()
        speed, used = on_workers(database, folder, 1, count)
        print(f"{'glue map on a queue, 1 worker':40}{used:>11.2f} {speed:>8.0f}")


def on_workers(engine: str, folder: Path, workers: int, count: int) -> tuple[float, float]:
    """Run a map on workers that are already started; return rows per second and CPU ms per row.

    The CPU time is that of the workers and of the map together.
    """
    (folder / "agent.py").write_text(AGENT)
    (folder / "in.jsonl").write_text(
        "".join(json.dumps({"prompt": f"row {n}"}) + "\n" for n in range(count))
    )
    queue = f"bench-{os.getpid()}-{workers}"
    there = ["--queue", queue, "--engine", engine]
    command = [*GLUE, "worker", "agent.py", *there]
    started = [
        subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) for _ in range(workers)
    ]
    try:
        for process in started:
            assert process.stderr is not None
            assert b"working on" in process.stderr.readline()
        before, wall = cpu(resource.RUSAGE_CHILDREN), time.perf_counter()
        idle = sum(process_cpu(process.pid) for process in started)
        map_command = [*GLUE, "map", "agent.py", "in.jsonl", "-o", "out.jsonl", "-q", *there]
        subprocess.run(map_command, cwd=folder, check=True)
        took = time.perf_counter() - wall
        used = (
            sum(process_cpu(process.pid) for process in started)
            - idle
            + cpu(resource.RUSAGE_CHILDREN)
            - before
        )
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert len((folder / "out.jsonl").read_text().splitlines()) == count
    return count / took, used / count * 1e3


def process_cpu(pid: int) -> float:
    """Return the CPU seconds of a running process on Linux, or 0 on other systems."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="?", type=int, default=10_000)
    parser.add_argument("--engine", action="append", default=[])
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--queued", type=int, default=300, help="rows of each map on a queue")
    given = parser.parse_args()
    local(given.rows)
    for each in given.engine:
        queued(each, given.queued)
    if given.postgres:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from fakes.postgres import Postgres

        with Postgres() as server:
            side_by_side(server.url, given.queued)
            queued(server.url, given.queued)

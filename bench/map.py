"""The overhead of `glue map`: rows per second and CPU per row, in one process and on DBOS workers.

    python bench/map.py [rows]                     the embedded engine
    python bench/map.py [rows] --postgres          also DBOS, with the Postgres of `make scale`
    python bench/map.py [rows] --engine dbos+...   also DBOS, with another database

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
    """Return the CPU milliseconds per row, as a median, and the rows per second."""
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
    database = engine.split("://")[0].removeprefix("dbos+")
    print(f"\nDBOS on {database}: each worker runs 8 rows at once, {count:,} rows in all")
    print(f"{'workers':>9} {'rows/s':>8} {'CPU ms/row':>13} {'ratio':>7}")
    for workers in (1, 2, 3, 4):
        with tempfile.TemporaryDirectory() as name:
            speed, spent = on_workers(engine, Path(name), workers, count)
        print(f"{workers:>9} {speed:>8.1f} {spent:>13.2f} {spent / alone:>7.0f}", flush=True)


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
    command = [*GLUE, "worker", "agent.py", *there, "--poll", "0.05"]
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
    parser.add_argument("--queued", type=int, default=300, help="rows of each map on DBOS")
    given = parser.parse_args()
    local(given.rows)
    for each in given.engine:
        queued(each, given.queued)
    if given.postgres:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from fakes.postgres import Postgres

        with Postgres() as server:
            queued(f"dbos+{server.url}", given.queued)

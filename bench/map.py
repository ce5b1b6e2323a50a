"""What a map costs beyond its runs: rows a second and CPU a row, in one process and on DBOS with 1 to 4 workers.

    python bench/map.py [rows]                     the embedded engine
    python bench/map.py [rows] --postgres          and workers on DBOS, with the Postgres of `make scale`
    python bench/map.py [rows] --engine dbos+...   and workers on DBOS, with a database of yours

The model is scripted and answers at once, so that all that is measured is ours. A ratio compares with the bare loop
in the same process and minute; the milliseconds are of this machine, whatever else it does.
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
    return AssistantMessage(content=(Text(text="an answer"),), usage=Usage(input=10, output=5, cost=0.001))

agent = glue.Agent(Offline(rules))
"""
GLUE = [sys.executable, "-c", "from glue.cli.app import main; main()"]


def rules(request: glue.Request) -> AssistantMessage:
    return AssistantMessage(content=(Text(text="an answer"),), usage=Usage(input=10, output=5, cost=0.001))


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def peak() -> float:
    """Megabytes of memory at most, since the process began."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


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


marks: list[float] = []  # CPU at every 200 rows


def costs() -> list[float]:
    """Give the CPU milliseconds of a row, for each 200 rows."""
    return [(after - before) / 200 * 1e3 for before, after in itertools.pairwise(marks)]


def measure(work: Callable[..., Any], count: int) -> tuple[float, float]:
    """Give the CPU milliseconds of a row (the median, as others may use this machine) and the rows a second."""
    agent = glue.Agent(Offline(rules))
    marks[:] = [cpu()]
    wall = time.perf_counter()
    anyio.run(work, agent, count)
    return statistics.median(costs() or [0.0]), count / (time.perf_counter() - wall)


def local(most: int) -> None:
    print("embedded: one process, 8 rows at once, state in SQLite")
    names = ("bare ms", "map ms", "beyond", "ratio", "first", "last", "rows/s", "peak MB")
    print(f"{'rows':>9}" + "".join(f"{name:>9}" for name in names))
    measure(mapped, 50)  # loads what is loaded at first use
    count = min(most, 1_000)
    while True:
        alone, _ = measure(bare, min(count, 5_000))
        ours, speed = measure(mapped, count)
        tenth = max(len(costs()) // 10, 1)
        first, last = statistics.median(costs()[:tenth]), statistics.median(costs()[-tenth:])
        figures = (alone, ours, ours - alone, ours / alone, first, last)
        print(
            f"{count:>9,}" + "".join(f"{each:>9.3f}" for each in figures) + f"{speed:>9.0f}{peak():>9.1f}", flush=True
        )
        if count >= most:
            return
        count = min(count * 10, most)


def queued(engine: str, count: int) -> None:
    alone, _ = measure(bare, 2_000)
    print(f"\nDBOS on {engine.split('://')[0].removeprefix('dbos+')}: workers of 8 rows, {count:,} rows each time")
    print(f"{'workers':>9} {'rows/s':>8} {'CPU ms a row':>13} {'ratio':>7}")
    for workers in (1, 2, 3, 4):
        with tempfile.TemporaryDirectory() as name:
            speed, spent = on_workers(engine, Path(name), workers, count)
        print(f"{workers:>9} {speed:>8.1f} {spent:>13.2f} {spent / alone:>7.0f}", flush=True)


def on_workers(engine: str, folder: Path, workers: int, count: int) -> tuple[float, float]:
    """Time a map from its first row to its last, with workers that are up; CPU is theirs and the map's together."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "in.jsonl").write_text("".join(json.dumps({"prompt": f"row {n}"}) + "\n" for n in range(count)))
    queue = f"bench-{os.getpid()}-{workers}"
    there = ["--queue", queue, "--engine", engine]
    command = [*GLUE, "worker", "agent.py", *there, "--poll", "0.05"]
    started = [subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) for _ in range(workers)]
    try:
        for process in started:
            assert process.stderr is not None
            assert b"working on" in process.stderr.readline()
        before, wall = cpu(resource.RUSAGE_CHILDREN), time.perf_counter()
        idle = sum(process_cpu(process.pid) for process in started)
        map_command = [*GLUE, "map", "agent.py", "in.jsonl", "-o", "out.jsonl", "-q", *there]
        subprocess.run(map_command, cwd=folder, check=True)
        took = time.perf_counter() - wall
        used = sum(process_cpu(process.pid) for process in started) - idle + cpu(resource.RUSAGE_CHILDREN) - before
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert len((folder / "out.jsonl").read_text().splitlines()) == count
    return count / took, used / count * 1e3


def process_cpu(pid: int) -> float:
    """Seconds of CPU of a process that runs, by Linux's count; 0 elsewhere."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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

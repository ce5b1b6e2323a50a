"""Simulate a map on many machines: rows per second, what limits them, and the load of the database.

    python bench/scale_sim.py                the table, from the constants below
    python bench/scale_sim.py --measure      measure the constants first, with the Postgres of
                                             `make scale`

The simulation advances in steps of a second. In each step the map puts rows on the queue, workers
claim rows for their free slots, and running rows end; each of these needs transactions, of which
the database does a limited number, and CPU time, of which each machine has a limited amount.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The costs of a transaction, a row and an idle worker, and the shape of the work."""

    commits: float = 11_700.0  # small transactions per second of one Postgres, measured
    row_transactions: float = 4.2  # of a row with one request, measured
    request_transactions: float = 2.1  # of each further request with a tool call, measured
    budget_transactions: float = 2.4  # of each request, if the map has a budget, measured
    idle_transactions: float = 0.6  # of an idle worker per second, measured
    row_cpu: float = 0.0025  # seconds of CPU of a worker for a row of one request, measured
    map_cpu: float = 0.0003  # seconds of CPU of the map for a row, measured
    cores: int = 4  # of a machine
    slots: int = 64  # rows that a worker runs at once; one worker for each core
    latency: float = 3.0  # seconds of a request
    requests: int = 3  # of a row
    ahead: int = 4  # rows on the queue for each slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a simulation: duration, rate, its limit, and the load of the database."""

    seconds: float
    rows_per_second: float
    limit: str
    transactions: float  # per second
    load: float  # share of the database's time


def simulate(machines: int, rows: int, budget: bool, given: Constants) -> Outcome:
    """Simulate a map of `rows` rows on machines with a worker for each core; return the outcome."""
    workers = machines * given.cores
    slots = workers * given.slots
    per_row = given.row_transactions + given.request_transactions * (given.requests - 1)
    per_row += given.budget_transactions * given.requests if budget else 0.0
    idle = workers * given.idle_transactions
    cpu_rows = machines * given.cores / (given.row_cpu * given.requests)
    map_rows = 1 / given.map_cpu
    seconds_per_row = given.latency * given.requests
    window = max(100, given.ahead * slots)
    left, queued, running, done, clock = float(rows), 0.0, 0.0, 0.0, 0
    limits: dict[str, int] = {}
    used = 0.0
    while done < rows - 1e-6 and clock < 10_000_000:
        clock += 1
        fed = min(left, window - queued - running if window > queued + running else 0.0, map_rows)
        left, queued = left - fed, queued + fed
        database_rows = max(given.commits - idle, 0.0) / per_row
        ended = min(running / seconds_per_row, cpu_rows, database_rows)
        if queued + left < 1 and running < 1:
            ended = running  # the rest of the last row
        done, running = done + ended, running - ended
        taken = min(queued, slots - running)
        queued, running = queued - taken, running + taken
        used += ended * per_row + idle
        rates = {
            "CPU of the workers": cpu_rows,
            "commits of the database": database_rows,
            "slots (latency of the model)": slots / seconds_per_row,
            "the map": map_rows,
        }
        if queued or left:
            name = min(rates, key=lambda each: rates[each])
            limits[name] = limits.get(name, 0) + 1
    limit = max(limits, key=lambda each: limits[each]) if limits else "the last rows"
    return Outcome(
        seconds=clock,
        rows_per_second=rows / clock,
        limit=limit,
        transactions=used / clock,
        load=used / clock / given.commits,
    )


def show(given: Constants) -> None:
    print(
        f"rows of {given.requests} requests of {given.latency:.0f} s; machines of {given.cores}"
        f" workers with {given.slots} slots; a database with {given.commits:,.0f} commits/s"
    )
    print(
        f"{'machines':>9}{'rows':>11}{'budget':>8}{'rows/s':>9}{'time':>10}{'database':>10}  limit"
    )
    for machines in (1, 10, 100):
        for rows in (10_000, 100_000, 1_000_000):
            for budget in (False, True):
                found = simulate(machines, rows, budget, given)
                print(
                    f"{machines:>9}{rows:>11,}{'yes' if budget else 'no':>8}"
                    f"{found.rows_per_second:>9.1f}{found.seconds / 60:>8.1f} m"
                    f"{found.load:>10.0%}  {found.limit}"
                )


# Measuring ----------------------------------------------------------------------------------------

PROGRAM = """
import glue
from glue import AssistantMessage, Text, ToolCall, Usage
from glue.providers.offline import Offline

@glue.tool
def look() -> str:
    "Look."
    return "ok"

def rules(request):
    usage = Usage(input=10, output=5, cost=0.0001)
    replies = sum(isinstance(each, AssistantMessage) for each in request.messages)
    if replies + 1 < int(request.messages[0].text):
        call = ToolCall(id=f"c{replies}", name="look", arguments="{}")
        return AssistantMessage(content=(call,), stop_reason="tool_use", usage=usage)
    return AssistantMessage(content=(Text(text="an answer"),), usage=usage)

agent = glue.Agent(Offline(rules), tools=[look], limits=glue.Limits(guards=None))
"""
GLUE = [sys.executable, "-c", "from glue.cli.app import main; main()"]


def measure(count: int) -> Constants:
    """Measure the constants of a simulation on this machine, print them, and return them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from fakes.postgres import Postgres

    with Postgres() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = PROGRAM.replace(", limits=glue.Limits(guards=None)", "")
        (folder / "agent.py").write_text(program)
        commits = commits_per_second(server.url)
        command = [*GLUE, "worker", "agent.py", "--queue", "q", "--engine", server.url, "-n", "16"]
        worker = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE)
        try:
            assert worker.stderr is not None
            assert b"working on" in worker.stderr.readline()
            time.sleep(6)
            idle = per_second(server.url, 20)
            one, cpu, map_cpu = cost(server.url, folder, worker.pid, 1, count)
            three, _, _ = cost(server.url, folder, worker.pid, 3, count)
            money, _, _ = cost(server.url, folder, worker.pid, 1, count, "--usd-budget", "1000")
        finally:
            worker.kill()
            worker.communicate()
    found = Constants(
        commits=commits,
        row_transactions=one,
        request_transactions=(three - one) / 2,
        budget_transactions=money - one,
        idle_transactions=idle,
        row_cpu=cpu,
        map_cpu=map_cpu,
    )
    print(f"commits per second                            {commits:10,.0f}")
    print(f"transactions of a row with one request        {one:10.1f}")
    print(f"of each further request with a tool call      {found.request_transactions:10.1f}")
    print(f"of each request, if the map has a budget      {found.budget_transactions:10.1f}")
    print(f"of an idle worker, per second                 {idle:10.2f}")
    print(f"CPU ms of a worker for a row of one request   {cpu * 1e3:10.2f}")
    print(f"CPU ms of the map for a row                   {map_cpu * 1e3:10.2f}\n", flush=True)
    return found


def transactions(url: str) -> int:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        time.sleep(1.2)  # backends report their counts once a second
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def per_second(url: str, seconds: float) -> float:
    before, started = transactions(url), time.monotonic()
    time.sleep(seconds)
    return (transactions(url) - before - 3) / (time.monotonic() - started)


def commits_per_second(url: str, threads: int = 8, seconds: float = 4.0) -> float:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bench (id BIGSERIAL, text TEXT)")
    counts: list[int] = []

    def work() -> None:
        done, end = 0, time.monotonic() + seconds
        with psycopg.connect(url, autocommit=True) as connection:
            while time.monotonic() < end:
                connection.execute("INSERT INTO bench(text) VALUES ('x')")
                done += 1
        counts.append(done)

    started = [threading.Thread(target=work) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sum(counts) / seconds


def cost(
    url: str, folder: Path, worker: int, requests: int, count: int, *options: str
) -> tuple[float, float, float]:
    """Run a map; return the transactions, the worker's and the map's CPU seconds of one row."""
    from map import process_cpu  # bench/map.py

    output = f"out-{time.monotonic_ns()}.jsonl"
    lines = json.dumps({"prompt": str(requests)}) + "\n"
    (folder / "in.jsonl").write_text(lines * count)
    before, cpu, own = transactions(url), process_cpu(worker), children()
    there = ("--queue", "q", "--engine", url)
    command = [*GLUE, "map", "agent.py", "in.jsonl", "-o", output, "-q", *there, *options]
    subprocess.run(command, cwd=folder, check=True)
    map_cpu = (children() - own) / count
    worker_cpu = (process_cpu(worker) - cpu) / count
    return (transactions(url) - before) / count, worker_cpu, map_cpu


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parsed() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="measure the constants first")
    parser.add_argument("--rows", type=int, default=4000, help="rows of each measurement")
    parser.add_argument("--commits", type=float, help="commits per second of another database")
    parser.add_argument("--latency", type=float, help="seconds of a request")
    parser.add_argument("--requests", type=int, help="requests of a row")
    return parser.parse_args()


if __name__ == "__main__":
    asked = parsed()
    constants = measure(asked.rows) if asked.measure else Constants()
    changes = {
        name: value
        for name in ("commits", "latency", "requests")
        if (value := getattr(asked, name)) is not None
    }
    show(replace(constants, **changes))

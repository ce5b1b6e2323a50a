"""`glue worker` and `glue queue`: run the rows of a queue, and count them."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from typing import Any

import click

from glue.cli.agentfile import open_agent
from glue.cli.map import map_settings, parse_rates
from glue.cli.options import permission_options
from glue.cli.tables import json_option, print_json
from glue.durable.database import LEASE, EngineDatabase
from glue.durable.engine import Worker
from glue.text import format_seconds

engine_option = click.option(
    "--engine",
    required=True,
    metavar="URL",
    help="Database of the queue: dbos+postgresql://... or dbos+sqlite:///FILE.",
)


@click.command(context_settings={"show_default": True})
@click.argument("file", metavar="AGENT.py")
@click.option("--queue", required=True, metavar="NAME", help="The queue to take rows from.")
@engine_option
@click.option(
    "-m", "--model", metavar="NAME", help="Use this provider:model, not that of the agent."
)
@click.option(
    "-n",
    "--concurrency",
    default=8,
    type=click.IntRange(min=1),
    help="Rows that this worker runs at once.",
)
@click.option(
    "--global-concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows that all workers together run at once.",
)
@click.option(
    "--rpm",
    multiple=True,
    metavar="[PROVIDER=]N",
    help="Maximum requests per minute of all workers. Repeatable.",
)
@click.option(
    "--tpm",
    multiple=True,
    metavar="[PROVIDER=]N",
    help="Maximum tokens per minute of all workers. Repeatable.",
)
@click.option(
    "--poll",
    default=1.0,
    type=click.FloatRange(min=0.01),
    help="Seconds between two checks of the queue.",
)
@click.option(
    "--lease",
    default=10.0,
    type=click.FloatRange(min=1),
    help="Seconds without a heartbeat after which others take over a worker's rows.",
)
@click.option(
    "--grace",
    default=30.0,
    type=click.FloatRange(min=0),
    help="Seconds that running rows may still take after Ctrl-C.",
)
@permission_options
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def worker(file: str, queue: str, engine: str, **given: Any) -> None:
    """Run rows that `glue map --queue NAME` put on a queue, until Ctrl-C.

    Start any number of workers, on any number of machines. If one is killed, the others continue
    its rows.
    """
    agent = open_agent(file)
    running = Worker(
        agent,
        engine=engine,
        name=queue,
        concurrency=given["concurrency"],
        global_concurrency=given["global_concurrency"],
        rates=parse_rates(given),
        poll=given["poll"],
        lease=given["lease"],
        settings=map_settings(agent, file, given),
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    running.start()
    if not given["quiet"]:
        click.echo(f"glue: working on the queue {queue} as {running.id}; Ctrl-C stops", err=True)
    stop.wait()
    running.stop(given["grace"])


@click.command()
@click.argument("name", required=False)
@engine_option
@json_option
def queue(name: str | None, engine: str, as_json: bool) -> None:
    """Show queues: rows that wait, run, are done or failed; rows per minute; and the workers."""
    database = EngineDatabase(engine)
    database.migrate()
    names = [name] if name else database.queues()
    found = {each: {**database.depth(each), "workers": database.workers(each)} for each in names}
    database.close()
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no queues")
    for each, state in found.items():
        states = Counter(state["states"])
        failures = ("ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
        failed = sum(states[failure] for failure in failures)
        counts = f"{states['ENQUEUED']:,} waiting, {states['PENDING']:,} running"
        ended = f"{states['SUCCESS']:,} done, {failed:,} failed"
        click.echo(f"{each}: {counts}, {ended}; {state['last_minute']:,}/min")
        alive = [worker for worker in state["workers"] if worker["silent"] < 3 * LEASE]
        for worker in alive:
            held = state["held"].pop(worker["id"], 0)
            heartbeat = f"last heartbeat {format_seconds(worker['silent'])} ago"
            click.echo(f"  {worker['id']}  runs {held} of {worker['concurrency']}, {heartbeat}")
        for worker_id, held in state["held"].items():
            click.echo(f"  {worker_id}  stopped, held {held}")
        if not alive:
            click.echo("  no worker is running; `glue worker AGENT.py --queue ...` starts one")

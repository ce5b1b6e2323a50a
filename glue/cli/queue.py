"""`glue worker` runs the rows of a queue; `glue queue` shows queues and deletes old rows."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from typing import Any

import anyio
import click

from glue.cli.agentfile import open_agent
from glue.cli.groups import ListGroup
from glue.cli.map import map_settings, parse_rates, question_option
from glue.cli.options import permission_options, rate_options
from glue.cli.retention import dry_run_option, older_option, outcome_option
from glue.cli.screen import ProgressLine, Screen
from glue.cli.tables import json_option, print_json
from glue.durable.ledger import PATIENCE
from glue.durable.tables import Tables, engine_store
from glue.durable.worker import Worker
from glue.errors import ConfigError
from glue.failures import show_notices_yourself
from glue.text import cost_text, count, format_seconds

engine_option = click.option(
    "--engine",
    required=True,
    metavar="URL",
    help="Database of the queue: postgresql://... or sqlite:///FILE.",
)


@click.command(context_settings={"show_default": True})
@click.argument("file", metavar="AGENT.py")
@click.option("--queue", required=True, metavar="NAME", help="The queue to take rows from.")
@engine_option
@click.option(
    "-m", "--model", metavar="NAME", help="Use this provider:model, not the agent's model."
)
@click.option(
    "-n",
    "--concurrency",
    default=8,
    type=click.IntRange(min=1),
    help="Maximum number of rows that this worker runs at once.",
)
@click.option(
    "--global-concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of rows that all workers together run at once.",
)
@rate_options
@click.option(
    "--patience",
    default=PATIENCE,
    type=click.FloatRange(min=0),
    help="Maximum seconds that a request waits while its provider refuses requests (HTTP 429).",
)
@click.option(
    "--poll",
    type=click.FloatRange(min=0.01),
    help="Seconds between two checks of the queue. Postgres also notifies workers of new rows.  "
    "[default: 5, or 0.2 for SQLite]",
)
@click.option(
    "--lease",
    default=10.0,
    type=click.FloatRange(min=1),
    help="Seconds without a heartbeat after which other workers take over a worker's rows.",
)
@click.option(
    "--grace",
    default=30.0,
    type=click.FloatRange(min=0),
    help="Seconds that running rows may still take after Ctrl-C.",
)
@permission_options
@question_option
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def worker(file: str, queue: str, engine: str, **given: Any) -> None:
    """Run rows that `glue map --queue NAME` put on a queue, until Ctrl-C.

    Start any number of workers, on any number of machines. If one is killed, the others continue
    its rows. --rpm and --tpm limit all workers together.
    """
    agent = open_agent(file)
    show_notices_yourself()  # `glue map` shows the notices of rows
    running = Worker(
        agent,
        store=engine_store(engine, given["lease"]),
        queue=queue,
        concurrency=given["concurrency"],
        global_concurrency=given["global_concurrency"],
        rates=parse_rates(given),
        patience=given["patience"],
        poll=given["poll"],
        lease=given["lease"],
        settings=map_settings(agent, file, given),
    )

    async def main() -> None:
        async with running:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: running.stop())
            if not given["quiet"]:
                click.echo(
                    f"glue: worker {running.id} runs rows of the queue {queue}; "
                    "Ctrl-C ends the worker",
                    err=True,
                )
            await running.work(given["grace"])

    anyio.run(main)


@click.group(cls=ListGroup, takes_name=True)
def queue() -> None:
    """Show queues, watch them, and delete old rows.

    `glue queue NAME` shows one queue, `glue queue` shows all.
    """


@queue.command(name="list")
@click.argument("name", required=False)
@engine_option
@json_option
@click.option("-w", "--watch", is_flag=True, help="Update the state of the queues until Ctrl-C.")
@click.option(
    "--every",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="With --watch: seconds between two updates.",
)
def list_(name: str | None, engine: str, as_json: bool, watch: bool, every: float) -> None:
    """Print the number of rows of each queue by state, and cost, cooldowns and workers.

    A row waits, runs, is done, is paused or has failed. With --watch the command prints one line
    for each queue, and updates the line until Ctrl-C. With --json the queues are one JSON object.
    """
    tables = _tables(engine)
    try:
        if watch:
            _watch(tables, name, as_json, every)
            return
        if name and name not in (queues := tables.queues()):
            raise ConfigError(f"unknown queue {name!r}; there are: {', '.join(queues) or 'none'}")
        found = _found(tables, name)
    finally:
        tables.close()
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no queues")
    for each, state in found.items():
        click.echo(f"{each}: {_line(state)}")
        for worker in state["workers"]:
            held = state["held"].pop(worker["id"], 0)
            if worker["silent"] < worker["lease"]:
                heartbeat = f"last heartbeat {format_seconds(worker['silent'])} ago"
                rows = f"{count(held, 'row')}, at most {worker['concurrency']}"
                click.echo(f"  {worker['id']}  runs {rows}, {heartbeat}")
            else:
                click.echo(f"  {worker['id']}  stopped with {count(held, 'unfinished row')}")
        for worker_id, held in state["held"].items():
            click.echo(f"  {worker_id}  stopped with {count(held, 'unfinished row')}")
        if not state["slots"]:
            click.echo("  no worker is running; `glue worker AGENT.py --queue ...` starts one")


def _tables(engine: str) -> Tables:
    """Open the queue tables of a database; raise ConfigError if its SQLite file does not exist."""
    store = engine_store(engine)
    path = getattr(store, "path", None)
    if path is not None and not path.exists():
        raise ConfigError(f"{path} does not exist, so it has no queues")
    return Tables(store)


def _found(tables: Tables, name: str | None) -> dict[str, dict[str, Any]]:
    found = {}
    for each in [name] if name else tables.queues():
        workers, slots = tables.workers(each), tables.slots(each)
        found[each] = {**tables.counts(each), "workers": workers, "slots": slots}
    return found


def _line(state: dict[str, Any]) -> str:
    """Return one line about a queue: rows by state, rows per minute, cost and cooldowns."""
    states, outcomes = Counter(state["states"]), Counter(state["outcomes"])
    done = outcomes["done"] + outcomes["wrapped_up"]
    paused = outcomes["paused"]
    failed = sum(outcomes.values()) - done - paused
    text = f"{states['waiting']:,} waiting, {states['running']:,} running, {done:,} done"
    text += f", {paused:,} paused" if paused else ""
    text += f", {failed:,} failed; {state['last_minute']:,}/min; {cost_text(state['usd'])}"
    if state["usd_reserved"] > 0:
        text += f" and {cost_text(state['usd_reserved'])} reserved"
    for name, seconds in state["cooldowns"].items():
        text += f"; rows wait {format_seconds(seconds)} because {name} refuses requests"
    return text


def _watch(tables: Tables, name: str | None, as_json: bool, every: float) -> None:
    """Show the state of queues every `every` seconds until Ctrl-C.

    On a terminal one line is redrawn; otherwise lines are added, as JSON if `as_json` is set.
    """
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    line = ProgressLine(Screen(sys.stdout), wanted=not as_json)
    while not ending.is_set():
        found = _found(tables, name)
        if as_json:
            click.echo(json.dumps({"at": round(time.time(), 3), "queues": found}))
        else:
            texts = [f"{each}: {_line(state)}" for each, state in found.items()]
            if line.is_on:
                line.draw(" | ".join(texts) or "no queues")
            else:
                click.echo("\n".join(texts) or "no queues")
        ending.wait(every)
    line.hide()


@queue.command()
@click.argument("name", required=False)
@engine_option
@older_option
@outcome_option
@dry_run_option
def prune(
    name: str | None, engine: str, older: float, outcomes: tuple[str, ...], dry_run: bool
) -> None:
    """Delete rows and their transcripts, if the rows ended more than AGE ago and are not paused.

    Without NAME, delete them in all queues. Rows that wait or run are kept, and paused rows unless
    --outcome names `paused`. The space of the rows is freed.

    \b
    glue queue prune triage --engine postgresql://glue@db/jobs --older 30d --outcome done
    """
    tables = _tables(engine)
    try:
        deleted = tables.prune(name or "", time.time() - older, outcomes, dry_run=dry_run)
        if deleted and not dry_run:
            anyio.run(tables.store.vacuum)
    finally:
        tables.close()
    click.echo(f"{'would delete' if dry_run else 'deleted'} {count(deleted, 'row')}")

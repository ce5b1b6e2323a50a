"""`glue map`: an agent on every line of a file; `glue worker` and `glue queue` for more than one machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from glue.cli.agentfile import open_agent
from glue.cli.options import TO_WRITE, Sources, permission_options, read_part, read_text
from glue.cli.output import Screen, Spinner
from glue.cli.run import cancel_on_signal
from glue.errors import ConfigError
from glue.limits import Outcome
from glue.messages import Part, Usage
from glue.tasks import background
from glue.text import cost_text, one_line, seconds, usage_text

if TYPE_CHECKING:
    from glue.agent import Agent
    from glue.durable import Map, MapRow, Rate

_SAID = 20  # rows that went wrong, told one by one; all of them are in the output


@click.command(context_settings={"show_default": True})
@click.argument("file", metavar="AGENT.py")
@click.argument("inputs", metavar="INPUTS.jsonl")
@click.option("-o", "--output", required=True, **TO_WRITE, help="Where the results go, one JSON object a line.")
@click.option("-m", "--model", metavar="NAME", help="Provider and model, instead of the agent's.")
@click.option("-n", "--concurrency", default=8, type=click.IntRange(min=1), help="Rows at once.")
@click.option("--template", metavar="TEXT", help="The prompt, with {field} for a row's fields; @FILE reads it.")
@click.option("--attachments", metavar="FOLDER", help="Where rows' attachments are; the inputs' folder if not given.")
@click.option("--resume", is_flag=True, help="Go on with a map that was stopped or killed.")
@click.option("--overwrite", is_flag=True, help="Begin again where there is an output already.")
@click.option("--unordered", is_flag=True, help="Write results as they come, not in the order of the inputs.")
@click.option("--retries", default=1, type=click.IntRange(min=0), help="Further tries of a failed row.")
@click.option("--usd-budget", type=click.FloatRange(min=0), help="Dollars for all rows together.")
@click.option("--token-budget", type=click.IntRange(min=0), help="Tokens for all rows together.")
@click.option("--rpm", multiple=True, metavar="[PROVIDER=]N", help="Requests a minute, of each or of one provider.")
@click.option("--tpm", multiple=True, metavar="[PROVIDER=]N", help="Tokens a minute, likewise.")
@click.option("--max-turns", type=click.IntRange(min=0), help="Turns with tools of a row, at most.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Seconds of a row, at most.")
@click.option("--queue", metavar="NAME", help="Put the rows on this queue, for workers; needs --engine.")
@click.option("--engine", metavar="URL", help="dbos+postgresql://... or dbos+sqlite:///FILE: where the queue is.")
@permission_options
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary; only errors.")
def map(file: str, inputs: str, **given: Any) -> None:  # noqa: A001
    """Run the agent of AGENT.py on every line of INPUTS.jsonl.

    A line is {"prompt": "..."}, or any fields with --template, with an "id" and "attachments" if you like.
    Leaves with 0 if every row is complete, 1 if some are not, 3 if the budget is spent, 130 if interrupted.

    \b
    glue map triage.py tickets.jsonl -o triaged.jsonl --template "Which team? {subject}: {body}"
    glue map triage.py tickets.jsonl -o triaged.jsonl --resume
    """
    import glue.durable
    from glue.durable.rows import Reader, input_lines

    if bool(given["queue"]) != bool(given["engine"]):
        raise click.UsageError("--queue and --engine go together")
    if given["engine"] and (given["rpm"] or given["tpm"]):
        raise click.UsageError("--rpm and --tpm hold over all workers: give them to `glue worker`")
    if given["resume"] and given["overwrite"]:
        raise click.UsageError("--resume and --overwrite exclude each other")
    agent = open_agent(file)
    output = Path(given["output"])
    state = output.with_name(output.name + ".state.db")
    if inputs != "-" and not os.path.isfile(inputs):
        raise ConfigError(f"there is no file {inputs}")
    if inputs != "-" and output.exists() and output.samefile(inputs):
        raise ConfigError(f"{output} holds the inputs; name another file for the results")
    if (output.exists() or state.exists()) and not given["resume"] and not given["overwrite"]:
        there = output if output.exists() else state
        raise ConfigError(f"{there} is there already; --resume goes on with it, --overwrite begins again")
    engine = None
    if given["engine"]:
        from glue.durable.queue import QueueEngine

        engine = QueueEngine(
            given["engine"], given["queue"], retries=given["retries"], notice=lambda text: progress.note(text)
        )
    job = glue.durable.map(
        agent,
        input_lines(inputs),
        concurrency=given["concurrency"],
        reader=Reader(template=read_text(given["template"] or ""), attach=_attach(inputs, given["attachments"])),
        state=state,
        resume=given["resume"],
        ordered=not given["unordered"],
        retries=given["retries"],
        usd_budget=given["usd_budget"],
        token_budget=given["token_budget"],
        rate=_rates(given),
        engine=engine,
        **_overrides(agent, file, given),
    )
    total = None
    if inputs != "-":
        with open(inputs, "rb") as lines:
            total = sum(1 for line in lines if line.strip())
    progress = Progress(Screen(sys.stderr), job, total, quiet=given["quiet"])
    try:
        anyio.run(_write, job, output, progress)
    finally:
        progress.end()
    if job.cancel.cancelled:
        sys.exit(Outcome.CANCELLED.exit_code)
    if job.budget.over() is not None and job.unfinished:
        sys.exit(Outcome.BUDGET.exit_code)
    sys.exit(0 if all(name != "invalid" and Outcome(name).complete for name in job.outcomes) else 1)


def _overrides(agent: Agent[Any, Any], path: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the command line says of every run."""
    names = ("model", "max_turns", "seconds", "allow", "deny", "yes")
    return Sources({name: given.get(name) for name in names}, path=path, agent=agent).options().given()


async def _write(job: Map, output: Path, progress: Progress) -> None:
    async with background() as tasks:
        await tasks.start(cancel_on_signal, job.stop, progress.line.hide)
        tasks.start_soon(progress.turn)
        file = None
        try:
            async for row in job:
                if file is None:  # only now: a state that is in use must not cost the output of whoever uses it
                    file = open(output, "w", encoding="utf-8")  # noqa: SIM115
                file.write(json.dumps(row.to_json(), ensure_ascii=False) + "\n")
                file.flush()
                progress.add(row)
            if file is None:
                output.touch()
        finally:
            if file is not None:
                file.close()


def _attach(inputs: str, folder: str | None) -> Callable[[str], Part]:
    root = Path(folder) if folder else Path(inputs).parent if inputs != "-" else Path()
    if not root.is_dir():
        raise ConfigError(f"there is no folder {root}")

    def attach(name: str) -> Part:
        path = (root / name).resolve()
        if not path.is_relative_to(root.resolve()):  # a row may come from anybody
            raise ValueError(f"attachment {name!r} leads outside {root}; --attachments names another folder")
        return read_part(str(path))

    return attach


def _rates(given: Mapping[str, Any]) -> dict[str, Rate]:
    from glue.durable import Rate
    from glue.providers import lookup

    found: dict[str, Rate] = {}
    for option, field in (("rpm", "requests"), ("tpm", "tokens")):
        for text in given[option]:
            name, _, number = text.rpartition("=")
            try:
                value = float(number)
            except ValueError:
                value = 0.0
            if not value > 0:
                raise click.UsageError(f"--{option} must be a number above 0, or PROVIDER=NUMBER, not {text!r}")
            if name:
                lookup(name)  # a misspelt one would bound nothing
            found[name] = replace(found.get(name, Rate()), **{field: value})
    return found


class Progress:
    """A line on stderr that says how far a map is; on a terminal it is redrawn, elsewhere written now and then."""

    def __init__(self, screen: Screen, job: Map, total: int | None, *, quiet: bool) -> None:
        self.screen, self.job, self.total, self.quiet = screen, job, total, quiet
        self.rows = 0
        self.bad: list[str] = []
        self.usage = Usage(cost=0.0)
        self._started = self._said = time.monotonic()
        self.line = Spinner(screen, wanted=not quiet)

    @property
    def incomplete(self) -> int:
        return self.rows - sum(self.job.outcomes[each] for each in ("done", "wrapped_up"))

    def add(self, row: MapRow) -> None:
        self.rows += 1
        self.usage += row.usage
        if not row.complete and len(self.bad) < _SAID:
            where = f"line {row.number}: {row.outcome}: "
            self.bad.append(row.error if row.outcome == "invalid" else where + (row.error or "no answer"))

    def note(self, text: str) -> None:
        """Write a line above."""
        self.line.hide()
        self.screen.line(f"glue: {one_line(text, 300)}", "yellow")

    async def turn(self) -> None:
        while not self.quiet:
            await anyio.sleep(0.2)
            now = time.monotonic()
            if self.line.is_on:
                self.line.draw(self.text(now))
            elif now - self._said > 30:
                self._said = now
                self.screen.line(f"glue: {self.text(now)}")

    def text(self, now: float) -> str:
        """Say how far, how fast, for how much and until when."""
        passed = max(now - self._started, 1e-9)
        fresh = self.rows - self.job.reused
        rate = fresh / passed
        pieces = [f"{self.rows:,}" + (f" of {self.total:,}" if self.total is not None else "") + " rows"]
        pieces.append(f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min")
        pieces.append(cost_text(self.usage.cost))
        if self.incomplete:
            pieces.append(f"{self.incomplete:,} not complete")
        if self.total is not None and fresh:
            pieces.append(f"{seconds((self.total - self.rows) / rate)} left")
        full = min(20 * self.rows // self.total, 20) if self.total else 0
        bar = f"[{'#' * full}{'-' * (20 - full)}] " if self.line.is_on and self.total else ""
        return bar + ", ".join(pieces)

    def end(self) -> None:
        self.line.hide()
        if self.quiet or not self.rows:
            return
        for text in self.bad:
            self.note(text)
        if self.incomplete > len(self.bad):
            self.note(f"and {self.incomplete - len(self.bad):,} more, all in the output")
        counts = ", ".join(f"{count:,} {name}" for name, count in self.job.outcomes.most_common())
        took = seconds(time.monotonic() - self._started)
        self.screen.line(
            f"{self.rows:,} rows: {counts}; {usage_text(self.usage)}, {cost_text(self.usage.cost)}; {took}"
        )
        if self.job.unfinished:
            self.note("not all rows were run; --resume goes on")


_engine = click.option("--engine", required=True, metavar="URL", help="dbos+postgresql://... or dbos+sqlite:///FILE.")


@click.command(context_settings={"show_default": True})
@click.argument("file", metavar="AGENT.py")
@click.option("--queue", required=True, metavar="NAME", help="The queue to take rows from.")
@_engine
@click.option("-m", "--model", metavar="NAME", help="Provider and model, instead of the agent's.")
@click.option("-n", "--concurrency", default=8, type=click.IntRange(min=1), help="Rows at once, here.")
@click.option("--global-concurrency", type=click.IntRange(min=1), metavar="N", help="Rows at once, over all workers.")
@click.option("--rpm", multiple=True, metavar="[PROVIDER=]N", help="Requests a minute, over all workers.")
@click.option("--tpm", multiple=True, metavar="[PROVIDER=]N", help="Tokens a minute, likewise.")
@click.option("--poll", default=1.0, type=click.FloatRange(min=0.01), help="Seconds between looks.")
@click.option(
    "--lease", default=10.0, type=click.FloatRange(min=1), help="Seconds until a dead worker's rows are taken up."
)
@click.option(
    "--grace", default=30.0, type=click.FloatRange(min=0), help="Seconds to end what runs, when told to stop."
)
@permission_options
@click.option("-q", "--quiet", is_flag=True, help="Only errors.")
def worker(file: str, queue: str, engine: str, **given: Any) -> None:
    """Run rows that `glue map --queue NAME` put on a queue, until told to stop.

    Start as many as you like, on as many machines. What a killed one leaves, the others take up where it was.
    """
    from glue.durable.engine import Worker

    agent = open_agent(file)
    made = Worker(
        agent,
        engine=engine,
        name=queue,
        concurrency=given["concurrency"],
        global_concurrency=given["global_concurrency"],
        rates=_rates(given),
        poll=given["poll"],
        lease=given["lease"],
        overrides=_overrides(agent, file, given),
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    made.start()
    if not given["quiet"]:
        click.echo(f"glue: working on the queue {queue} as {made.id}; Ctrl-C ends", err=True)
    stop.wait()
    made.stop(given["grace"])


@click.command()
@click.argument("name", required=False)
@_engine
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def queue(name: str | None, engine: str, as_json: bool) -> None:
    """Say how long the queues are, how fast they move, what failed, and who holds what."""
    from glue.durable.engine import LEASE, EngineDatabase

    database = EngineDatabase(engine)
    database.migrate()
    names = [name] if name else database.queues()
    found = {each: {**database.depth(each), "workers": database.workers(each)} for each in names}
    database.close()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo("no queues")
    for each, state in found.items():
        states = state["states"]
        failed = states.get("ERROR", 0) + states.get("CANCELLED", 0) + states.get("MAX_RECOVERY_ATTEMPTS_EXCEEDED", 0)
        counts = f"{states.get('ENQUEUED', 0):,} waiting, {states.get('PENDING', 0):,} running"
        click.echo(
            f"{each}: {counts}, {states.get('SUCCESS', 0):,} done, {failed:,} failed; {state['last_minute']:,}/min"
        )
        alive = [worker for worker in state["workers"] if worker["silent"] < 3 * LEASE]
        for worker in alive:
            held = state["held"].pop(worker["id"], 0)
            click.echo(
                f"  {worker['id']}  runs {held} of {worker['concurrency']}, heard of {seconds(worker['silent'])} ago"
            )
        for gone, held in state["held"].items():
            click.echo(f"  {gone}  gone, held {held}")
        if not alive:
            click.echo("  nobody works on it; `glue worker AGENT.py --queue ...` does")

"""`glue map`: run an agent on every line of a file."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click
from click.core import ParameterSource

from glue.agent import Agent
from glue.cli.agentfile import open_agent
from glue.cli.inputs import read_below, read_text
from glue.cli.options import FILE_TO_WRITE, Sources, batch_options, check_output
from glue.cli.process import cancel_on_signal
from glue.cli.screen import ProgressLine, Screen
from glue.durable import MapRow, MapRun, Rate
from glue.durable import map as durable_map
from glue.durable.ledger import PATIENCE
from glue.durable.queue import QueueEngine
from glue.durable.rows import Reader, input_lines
from glue.errors import ConfigError
from glue.failures import show_notices_yourself
from glue.limits import Outcome
from glue.messages import Part, Usage
from glue.providers import is_stand_in, lookup, no_key
from glue.stores import store_name
from glue.tasks import background
from glue.text import cost_text, count, format_seconds, one_line, usage_text

# Options without effect on a map that puts its rows on a queue.
_LIMITS = ("concurrency", "rpm", "tpm", "patience", "max_turns", "seconds")
_OF_WORKERS = ("model", *_LIMITS, "allow", "deny", "yes", "on_question")
_MAX_SHOWN = 20  # incomplete rows that are listed one by one; the output file has all of them


question_option = click.option(
    "--on-question",
    type=click.Choice(["defer", "deny"]),
    help="If no rule allows or denies a call: deny (the default), or defer, which pauses the row "
    "until `glue sessions answer` decides.",
)


@click.command(context_settings={"show_default": True})
@click.argument("file", metavar="AGENT.py")
@click.argument("inputs", metavar="INPUTS.jsonl")
@click.option(
    "-o",
    "--output",
    required=True,
    **FILE_TO_WRITE,
    help="File for the results, one JSON object per line.",
)
@click.option(
    "-m", "--model", metavar="NAME", help="Use this provider:model, not the agent's model."
)
@click.option(
    "--template",
    metavar="TEXT",
    help="The prompt, with {field} for the fields of a row; @FILE reads it from a file.",
)
@click.option(
    "--attachments",
    metavar="FOLDER",
    help="Folder of the rows' attachments; by default the folder of INPUTS.",
)
@click.option(
    "--unordered", is_flag=True, help="Write results as they arrive, not in the order of INPUTS."
)
@click.option(
    "--patience",
    default=PATIENCE,
    type=click.FloatRange(min=0),
    help="Maximum seconds that a request waits while its provider refuses requests (HTTP 429).",
)
@click.option(
    "--queue", metavar="NAME", help="Put the rows on this queue for workers; needs --engine."
)
@click.option(
    "--engine",
    metavar="URL",
    help="Database of the queue: postgresql://... or sqlite:///FILE.",
)
@batch_options("row", "a map")
@question_option
@click.option(
    "-q", "--quiet", is_flag=True, help="Print no progress, no incomplete rows and no summary."
)
def map(file: str, inputs: str, **given: Any) -> None:  # noqa: A001
    """Run the agent of AGENT.py on every line of INPUTS.jsonl.

    A line is {"prompt": "..."}, or with --template an object with any fields. It may also have an
    "id" and "attachments" (a list of files).

    Exits with 0 if every row is complete, 1 if some are not, 3 if the budget is spent, 6 if rows
    wait for an answer and all others are complete, 130 if interrupted.

    \b
    glue map triage.py tickets.jsonl -o triaged.jsonl --template "Which team? {subject}: {body}"
    glue map triage.py tickets.jsonl -o triaged.jsonl --resume
    """
    if bool(given["queue"]) != bool(given["engine"]):
        raise click.UsageError("--queue and --engine must be used together")
    context = click.get_current_context()
    for option in context.command.params if given["engine"] else ():
        name = option.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in _OF_WORKERS:
            raise click.UsageError(
                f"with a queue, {option.opts[-1]} is an option of `glue worker`, not of `glue map`"
            )
    output = Path(given["output"])
    state = output.with_name(output.name + ".state.db")
    agent = open_agent(file)
    if os.path.isdir(inputs):
        raise ConfigError(f"{inputs} is a folder; name a file with one row per line")
    if inputs != "-" and not os.path.exists(inputs):
        raise ConfigError(f"the file {inputs} does not exist")
    if inputs != "-" and output.exists() and output.samefile(inputs):
        raise ConfigError(f"{output} is the input file; choose another file for the results")
    check_output(given, output, state)
    engine = None
    if given["engine"]:
        engine = QueueEngine(
            given["engine"],
            given["queue"],
            notice=lambda text: progress.note(text),
        )
    settings = map_settings(agent, file, given)  # refuses a stand-in, with a queue too
    local = {
        "concurrency": given["concurrency"],
        "rate": parse_rates(given),
        "patience": given["patience"],
        **settings,
    }
    job = durable_map(
        agent,
        input_lines(inputs),
        reader=Reader(
            template=read_text(given["template"] or ""),
            attach=_attach(inputs, given["attachments"]),
        ),
        state=state,
        resume=given["resume"],
        overwrite=given["overwrite"],
        ordered=not given["unordered"],
        retries=given["retries"],
        usd_budget=given["usd_budget"],
        token_budget=given["token_budget"],
        engine=engine,
        **({} if engine is not None else local),  # the workers find their own settings
    )
    show_notices_yourself()
    total = None
    if os.path.isfile(inputs):  # stdin and pipes can be read only once
        with open(inputs, "rb") as lines:
            total = sum(1 for line in lines if line.strip())
    store = _shown_store(given["engine"]) if given["engine"] else str(state)
    progress = Progress(Screen(sys.stderr), job, total, store=store, quiet=given["quiet"])
    try:
        anyio.run(_write, job, output, progress)
    finally:
        progress.end()
    if job.cancel.cancelled:
        sys.exit(Outcome.CANCELLED.exit_code)
    sys.exit(_exit_code(job))


def _shown_store(engine: str) -> str:
    """Return the value for --store that names the database of a queue, without the password."""
    return store_name(engine.removeprefix("sqlite:///"))


def _exit_code(job: MapRun) -> int:
    if job.over_budget and (job.unfinished or job.outcomes[Outcome.BUDGET]):
        return Outcome.BUDGET.exit_code
    others = {name for name in job.outcomes if name == "invalid" or not Outcome(name).complete}
    if others == {Outcome.PAUSED}:
        return Outcome.PAUSED.exit_code
    return 1 if others else 0


def map_settings(agent: Agent[Any, Any], path: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that override the agent's; raise MissingKey if the model is a stand-in.

    The settings apply to every row. The stand-in `offline:stand-in` is not a real model: it invents
    answers while no key is set.
    """
    names = ("model", "max_turns", "seconds", "allow", "deny", "yes")
    flags = {name: given.get(name) for name in names}
    if given.get("on_question"):
        # A row is a session, which stores the calls that wait.
        flags |= {"on_question": given["on_question"], "session": "row"}
    found = Sources(flags, path=path, agent=agent).overrides()
    if is_stand_in(found.get("model") or agent.settings.model):
        raise no_key()  # rows that a stand-in invents would look like answers of a model
    return found


async def _write(job: MapRun, output: Path, progress: Progress) -> None:
    async with background() as tasks:
        await tasks.start(cancel_on_signal, job.stop, progress.line.hide)
        tasks.start_soon(progress.redraw)
        file = None
        try:
            async for row in job:
                if file is None:
                    # Not earlier: if another process uses the state, its output must stay intact.
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
    beside_inputs = Path(inputs).parent if inputs != "-" else Path()
    root = Path(folder) if folder else beside_inputs
    if not root.is_dir():
        raise ConfigError(f"the folder {root} does not exist")
    return partial(read_below, root, advice="; --attachments selects another folder")


def parse_rates(given: Mapping[str, Any]) -> dict[str, Rate]:
    """Return a Rate for each provider in --rpm and --tpm; the name "" means every provider.

    Raise UsageError if a value is not a number above 0.
    """
    found: dict[str, Rate] = {}
    for option, field in (("rpm", "requests"), ("tpm", "tokens")):
        for text in given[option]:
            name, _, number = text.rpartition("=")
            try:
                value = float(number)
            except ValueError:
                value = 0.0
            if not value > 0:
                raise click.UsageError(
                    f"--{option} must be a number above 0, or PROVIDER=NUMBER, not {text!r}"
                )
            if name:
                lookup(name)  # raises ConfigError for a wrong name
            found[name] = replace(found.get(name, Rate()), **{field: value})
    return found


class Progress:
    """The progress of a map on stderr: redrawn on a terminal, elsewhere a line every 30 seconds."""

    def __init__(
        self, screen: Screen, job: MapRun, total: int | None, *, store: str, quiet: bool
    ) -> None:
        self.screen, self.job, self.total, self.quiet = screen, job, total, quiet
        self.store = store  # the store that has the sessions of the rows
        self.rows = 0
        self.bad: list[str] = []
        self.notices: Counter[str] = Counter()  # the number of rows with each notice
        self.usage = Usage(cost=0.0)
        self.lost = 0  # requests that were under way when a process was killed
        self._started = self._last_line = time.monotonic()
        self.line = ProgressLine(screen, wanted=not quiet)

    @property
    def incomplete(self) -> int:
        """The number of ended rows whose outcome is neither done nor wrapped_up."""
        return self.rows - sum(self.job.outcomes[each] for each in ("done", "wrapped_up"))

    def add(self, row: MapRow) -> None:
        """Add an ended row to the totals; keep the errors of the first 20 incomplete rows."""
        self.rows += 1
        self.usage += row.usage
        self.notices.update([row.notice] if row.notice else [])
        self.lost += row.lost
        if not row.complete and len(self.bad) < _MAX_SHOWN:
            text = f"line {row.number}: {row.outcome}: {row.error or 'no answer'}"
            if row.outcome == Outcome.PAUSED:
                text += (
                    f"; `glue sessions pending {row.session} --store {self.store}` shows the calls"
                )
            self.bad.append(row.error if row.outcome == "invalid" else text)

    def note(self, text: str) -> None:
        """Hide the progress line and write a line on stderr; `redraw` draws the progress again."""
        self.line.hide()
        self.screen.line(f"glue: {one_line(text, 300)}", "yellow")

    async def redraw(self) -> None:
        """Show the progress until the task is cancelled; return at once if `quiet` is set.

        On a terminal the line is redrawn every 0.2 seconds, elsewhere a line is added every 30
        seconds.
        """
        while not self.quiet:
            await anyio.sleep(0.2)
            now = time.monotonic()
            if self.line.is_on:
                self.line.draw(self.text(now))
            elif now - self._last_line > 30:
                self._last_line = now
                self.screen.line(f"glue: {self.text(now)}")

    def text(self, now: float) -> str:
        """Return the text of the progress line: rows, rate, cost, incomplete rows, time left."""
        passed = max(now - self._started, 1e-9)
        fresh = self.rows - self.job.reused
        rate = fresh / passed
        pieces = [
            f"{self.rows:,}" + (f" of {self.total:,}" if self.total is not None else "") + " rows"
        ]
        pieces.append(f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min")
        pieces.append(cost_text(self.usage.cost))
        if self.incomplete:
            pieces.append(f"{self.incomplete:,} not complete")
        for name, seconds in self.job.ledger.cooling().items():
            pieces.append(f"rows wait {format_seconds(seconds)} because {name} refuses requests")
        if self.total is not None and fresh:
            pieces.append(f"{format_seconds((self.total - self.rows) / rate)} left")
        full = min(20 * self.rows // self.total, 20) if self.total else 0
        bar = f"[{'#' * full}{'-' * (20 - full)}] " if self.line.is_on and self.total else ""
        return bar + ", ".join(pieces)

    def end(self) -> None:
        """Print up to 20 incomplete rows and a summary, unless `quiet` is set or the map failed."""
        self.line.hide()
        if self.quiet or self.job.error is not None:
            return
        for text in self.bad:
            self.note(text)
        if self.incomplete > len(self.bad):
            more = f"{self.incomplete - len(self.bad):,}"
            self.note(f"and {more} more incomplete rows; the output has all of them")
        outcomes = self.job.outcomes.most_common()
        counts = ", ".join(f"{number:,} {name}" for name, number in outcomes)
        took = format_seconds(time.monotonic() - self._started)
        used = f"{usage_text(self.usage)}, {cost_text(self.usage.cost)}"
        rows = count(self.rows, "row") + (f": {counts}" if counts else "")
        self.screen.line(f"{rows}; {used}; {took}")
        for text, number in self.notices.most_common(_MAX_SHOWN):
            self.note(f"{count(number, 'row')}: {text}")
        if self.lost:
            self.note(
                f"a killed process left {count(self.lost, 'request')} without a reply; "
                "the provider may have charged for them"
            )
        if self.job.unfinished:
            budget = " and a larger budget" if self.job.over_budget else ""
            self.note(f"some rows were not run; continue the map with --resume{budget}")

"""`glue eval`: run cases on several models, check the results, and compare the models."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import click

from glue.agent import Agent
from glue.cases import Case, Function, read_cases
from glue.cli.agentfile import find_agent, import_file, run_agent_file
from glue.cli.cassette import record_to, replay_from
from glue.cli.groups import RunGroup
from glue.cli.inputs import read_below, read_text
from glue.cli.map import parse_rates
from glue.cli.options import FILE_TO_WRITE, Sources, batch_options, check_output
from glue.cli.process import cancel_on_signal
from glue.cli.screen import ProgressLine, Screen
from glue.cli.tables import print_json, table
from glue.context import Cancel
from glue.durable import MapRow
from glue.errors import ConfigError
from glue.evaluation import Around, Evaluation, differences, evaluate, load, save
from glue.failures import show_notices_yourself
from glue.limits import Outcome
from glue.paths import write_private
from glue.statistics import Comparison
from glue.tasks import background
from glue.text import count, file_name, one_line, suggest
from glue.view import comparison

_MAX_SHOWN = 5  # failed cases of a model that are listed; the page has all of them
# The settings that may follow the name of a model, and the types of their values.
_SETTINGS: dict[str, Callable[[str], Any]] = {
    "temperature": float,
    "max_tokens": int,
    "reasoning": str,
    "instructions": read_text,
}


@click.group(cls=RunGroup)
def eval() -> None:  # noqa: A001
    """Compare models on cases with checks."""


@eval.command(context_settings={"show_default": True})
@click.argument("file", metavar="AGENT.py")
@click.argument("cases", metavar="CASES.jsonl")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Provider or provider:model, perhaps with settings: 'openai temperature=0'. Repeatable; "
    "the others are compared with the first. By default the agent's own model.",
)
@click.option(
    "--repeat",
    default=1,
    type=click.IntRange(min=1),
    help="Number of times that each case is run on each model.",
)
@click.option(
    "--judge", metavar="NAME", help='Model that grades the answers of cases with a "judge" check.'
)
@click.option(
    "-o",
    "--output",
    default="eval.jsonl",
    **FILE_TO_WRITE,
    help="Write the evaluation to this file, and its page to the same name with .html.",
)
@click.option(
    "--at-least",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit with 1 if the mean score of a model is below this value, such as 0.9.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Exit with 1 if a case became worse than in this earlier evaluation.",
)
@click.option(
    "--record",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Record a cassette of each model in this folder.",
)
@click.option(
    "--replay",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="Take the replies from the cassettes in this folder; needs no key.",
)
@batch_options("trial", "an evaluation")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the table and errors.")
def run(file: str, cases: str, **given: Any) -> int:
    """Run the agent of AGENT.py on all cases of CASES.jsonl with each model; check the answers.

    A case has a "prompt" and checks: equals, contains, matches, json, calls, outcome, max_cost,
    max_turns, python, judge. Tools run in a fresh copy of the case's "folder", or are answered from
    its "answers". `glue eval diff OLD NEW` compares two evaluations. --resume does not run finished
    trials again, but checks them again.

    Exits with 0, or with 1 below --at-least or worse than --baseline, 3 if the budget is spent, 130
    if interrupted.

    \b
    glue eval triage.py cases.jsonl -m anthropic -m openai:gpt-5.4-nano --repeat 3
    glue eval triage.py cases.jsonl --replay cassettes --overwrite --at-least 0.9
    glue eval diff old.jsonl eval.jsonl
    """
    output = Path(given["output"])
    state = output.with_name(f"{output.name}.state")
    page = output.with_suffix(".html")
    if page == output:
        raise click.UsageError(
            f"--output {output} is the name of the HTML page; use a name such as eval.jsonl"
        )
    check_output(given, output, state, page)
    if given["record"] and (given["replay"] or given["resume"]):
        raise click.UsageError("--record needs a new evaluation, without --replay and --resume")
    baseline = load(Path(given["baseline"])) if given["baseline"] else None
    module = run_agent_file(file)
    agent = find_agent(module, file)
    chosen = read_cases(cases, attach=partial(read_below, Path(cases).parent))
    flags = {name: given[name] for name in ("max_turns", "seconds", "allow", "deny", "yes")}
    overrides = Sources(flags, path=file, agent=agent).overrides()
    overrides.pop("tools", None)  # those of the agent, which a working folder replaces
    own: Any = overrides.get("model") or agent.settings.model
    name = own if isinstance(own, str) else own.name
    variants = [
        {"name": name, **overrides, **parse_model(text)} for text in given["models"] or [""]
    ]
    if baseline is not None:  # a baseline of other models is an error now, not after the trials
        differences(Evaluation(models=tuple(each["name"] for each in variants)), baseline)
    start, home = Path.cwd(), Path(file).resolve()
    progress = TrialCount(len(chosen) * given["repeat"], quiet=given["quiet"] or given["as_json"])
    cancel = Cancel()

    def make(folder: Path) -> Agent[Any, Any]:
        return agent if folder == start else find_agent(run_agent_file(str(home)), file)

    async def work() -> Evaluation:
        async with background() as tasks:
            await tasks.start(cancel_on_signal, cancel.cancel, progress.line.hide)
            return await evaluate(
                make,
                chosen,
                models=variants,
                repeat=given["repeat"],
                judge=given["judge"],
                functions=find_functions(chosen, module, Path(file).parent),
                state=state,
                resume=given["resume"],
                overwrite=given["overwrite"],
                concurrency=given["concurrency"],
                retries=given["retries"],
                usd_budget=given["usd_budget"],
                token_budget=given["token_budget"],
                rate=parse_rates(given),
                cancel=cancel,
                on_row=progress.add,
                around=_around(given),
            )

    show_notices_yourself()
    try:
        found = anyio.run(work)
    finally:
        progress.line.hide()
    found = replace(found, replayed=bool(given["replay"]))
    save(found, output)
    write_private(page, comparison.comparison_page(found, f"{output.stem}: {Path(cases).name}"))
    pairs = differences(found, baseline) if baseline is not None else []
    _print(found, pairs, output, page, given)
    if found.unfinished:
        return (Outcome.CANCELLED if cancel.cancelled else Outcome.BUDGET).exit_code
    low = min(each.score for each in found.summaries())
    return int(any(pair.worse for pair in pairs) or low < (given["at_least"] or 0.0))


@eval.command()
@click.argument("old", type=click.Path(exists=True, dir_okay=False))
@click.argument("new", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(old: str, new: str, as_json: bool) -> int:
    """Compare the results of each model in OLD and NEW. Exits with 1 if a case became worse."""
    before, after = load(Path(old)), load(Path(new))
    pairs = differences(after, before)
    if as_json:
        print_json([asdict(pair) for pair in pairs])
    for line in () if as_json else _changes(pairs, "OLD"):
        click.echo(line)
    return int(any(pair.worse for pair in pairs))


def parse_model(text: str) -> dict[str, Any]:
    """Return the settings of a -m option, such as "openai:gpt-5.4-nano temperature=0.2".

    >>> parse_model("openai temperature=0")
    {'name': 'openai temperature=0', 'model': 'openai', 'temperature': 0.0}
    """
    words = text.split()
    found: dict[str, Any] = {"name": " ".join(words)} if words else {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and "model" not in found:
            found["model"] = word
            continue
        if name not in _SETTINGS or not equals:
            raise click.UsageError(f"--model: unknown setting {name!r}; {suggest(name, _SETTINGS)}")
        try:
            found[name] = _SETTINGS[name](value)
        except ValueError:
            raise click.UsageError(f"--model: {name} must be a number, not {value!r}") from None
    return found


def find_functions(cases: Sequence[Case], own: ModuleType, folder: Path) -> dict[str, Function]:
    """Return the functions of "python" checks by name, from the agent's file or FILE.py:NAME.

    A named FILE.py is run. Raise ConfigError if it has no function with this name.
    """
    found: dict[str, Function] = {}
    for case in cases:
        for named in case.listed("python"):
            file, _, name = named.rpartition(":")
            module = import_file(str(folder / file)) if file and named not in found else own
            function = found.get(named) or getattr(module, name, None)
            if not callable(function):
                raise ConfigError(
                    f"case {case.id}: there is no function {name!r} in {file or 'the agent file'}"
                )
            found[named] = function
    return found


def _around(given: Mapping[str, Any]) -> Around | None:
    """Return None if no cassettes are used, else a function that opens the cassette of a model.

    --record or --replay names the folder of the cassettes.
    """
    folder, use = (
        (given["replay"], replay_from) if given["replay"] else (given["record"], record_to)
    )
    if not folder:
        return None
    return lambda label: use(os.path.join(folder, f"{file_name(label)}.jsonl"))


def _print(
    found: Evaluation,
    pairs: Sequence[Comparison],
    output: Path,
    page: Path,
    given: Mapping[str, Any],
) -> None:
    """Print the table and the comparisons; print failed trials and the file names on stderr.

    At most _MAX_SHOWN failed trials of each model are printed. With --quiet, nothing is printed on
    stderr. With --json, one JSON object is printed instead.
    """
    if given["as_json"]:
        same, both = found.agreement()
        print_json(
            {
                "models": [asdict(each) for each in found.summaries()],
                "comparisons": [asdict(pair) for pair in found.pairs()],
                "baseline": [asdict(pair) for pair in pairs],
                "judge": {"model": found.judge, "agrees": same, "of": both}
                if found.judge
                else None,
                "unfinished": found.unfinished or None,
                "file": str(output),
                "page": str(page),
            }
        )
        return
    heads, rows = comparison.table(found)
    heads[-1] += "…"
    click.echo("\n".join(table(rows, heads, Screen(sys.stdout))))
    for line in (*comparison.notes(found, page.name), *_changes(pairs, "the baseline")):
        click.echo(line)
    if given["quiet"]:
        return
    shown: Counter[str] = Counter()
    for trial in found.trials:
        if trial.score < 1:
            shown[trial.model] += 1
            if shown[trial.model] <= _MAX_SHOWN:
                line = f"{trial.model}, case {trial.case}: {'; '.join(trial.reasons)}"
                click.echo(f"glue: {one_line(line, 300)}", err=True)
    click.echo(f"glue: every transcript is in {page}, the evaluation in {output}", err=True)


def _changes(pairs: Sequence[Comparison], old: str) -> list[str]:
    """Return lines that compare each model with its result in an earlier evaluation.

    The lines name the cases with a better or worse score. They call the earlier evaluation `old`.
    """
    lines = []
    for pair in pairs:
        lines.append(comparison.sentence(replace(pair, second=old)))
        for word, cases in (("better", pair.better), ("worse", pair.worse)):
            if cases:
                lines.append(f"  {word}: {one_line(', '.join(cases), 400)}")
        if pair.unpaired:
            lines.append(f"  in only one of the evaluations: {count(len(pair.unpaired), 'case')}")
    return lines


class TrialCount:
    """The line at the bottom of a terminal with the number of trials that have ended."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self.total = total
        self.ended: Counter[str] = Counter()
        self.line = ProgressLine(Screen(sys.stderr), wanted=not quiet)

    def add(self, label: str, row: MapRow) -> None:
        """Count a trial that ended, and show the count."""
        self.ended[label] += 1
        of = f" of {self.total:,}" if label != "judge" else ""
        self.line.draw(f"{label}: {self.ended[label]:,}{of} trials")

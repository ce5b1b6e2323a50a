"""The log of runs, one file per run, and `glue runs`, which lists them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from glue.cli.printer import EventWriter
from glue.cli.tables import json_option, print_rows
from glue.errors import ConfigError
from glue.messages import Request
from glue.paths import state_dir
from glue.text import one_line

MAX_RUNS = 1000  # log files of older runs are deleted


def runs_dir() -> Path:
    """Return the folder of the log files of runs, which may not exist."""
    return state_dir() / "runs"


class RunLog(EventWriter):
    """A listener that writes events and result of a run to a log file, and deletes older logs.

    Before the new log is created, the oldest log files are deleted, so that MAX_RUNS are left.
    `agent` is the name of the agent. `request` has the model and the prompt; it is written if the
    run ends before its first request.
    """

    def __init__(self, agent: str = "", request: Request | None = None) -> None:
        self.agent, self.request = agent, request or Request()
        folder = runs_dir()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in sorted(folder.glob("*.jsonl"))[: -MAX_RUNS or None]:
            old.unlink(missing_ok=True)
        now = time.time_ns()
        day = time.strftime("%Y%m%d-%H%M%S", time.localtime(now // 10**9))
        name = f"{day}-{now % 10**9:09d}-{os.urandom(2).hex()}.jsonl"
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = open(fd, "w", encoding="utf-8")  # noqa: SIM115 - open for the whole run
        super().__init__(self._file.write)

    def end(self, value: Mapping[str, Any]) -> None:
        """Write `value`, the result or error of the run, as the last line and close the file."""
        if not self.has_prompt:
            self.write_prompt(self.request)
        self.write({**value, "agent": self.agent})
        self._file.close()


@click.command()
@click.option(
    "-n",
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Maximum number of runs in the list, or of groups if they are grouped.",
)
@click.option(
    "--by",
    type=click.Choice(["day", "model", "agent"]),
    help="Add up the runs of each day, model or agent: outcomes, tokens, cost.",
)
@json_option
def runs(limit: int, by: str | None, as_json: bool) -> None:
    """List logged runs: time, outcome, model, tokens, cost and prompt. --by adds up groups of runs.

    `glue view last` shows the last run. Runs are logged if `glue config set log true` or GLUE_LOG=1
    switches the log on.
    """
    empty = "no runs are logged; `glue config set log true` switches the log on"
    if by is not None:
        heads = (f"{by}…", ">runs", "outcomes…", ">tokens in", ">out", ">cost", ">unpriced?")
        cells = itemgetter(by, "runs", "outcome_text", "input", "output", "cost", "unpriced")
        groups = add_up([summary(path) for path in log_files()], by)[:limit]
        rows = groups if as_json else [{**each, "outcome_text": _counts(each)} for each in groups]
        print_rows(rows, heads, cells, as_json, empty)
        return
    print_rows(
        [summary(path) for path in reversed(log_files()[-limit:])],
        ("when?", "outcome", "model?", ">tokens", ">cost", "prompt…"),
        itemgetter("at", "outcome", "model", "tokens", "cost", "prompt"),
        as_json,
        empty,
    )


def add_up(found: Sequence[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return a row for each day, model or agent: runs, outcomes, tokens and cost.

    Days are sorted from the newest, models and agents from the most expensive. `cost` is the known
    cost, or None if no cost is known; `unpriced` is the number of runs with an unknown cost.
    """
    groups: dict[str, dict[str, Any]] = {}
    for run in found:
        name = run["at"][:10] if by == "day" else run[by]
        new = {by: name, "runs": 0, "outcomes": Counter(), "input": 0, "output": 0}
        group = groups.setdefault(name, {**new, "cost": None, "unpriced": 0})
        group["runs"] += 1
        group["outcomes"][run["outcome"]] += 1
        group["input"] += run["input"]
        group["output"] += run["output"]
        if run["cost"] is not None:
            group["cost"] = (group["cost"] or 0.0) + run["cost"]
        group["unpriced"] += run["cost"] is None and bool(run["tokens"])
    if by == "day":
        return sorted(groups.values(), key=itemgetter(by), reverse=True)
    return sorted(
        groups.values(),
        key=lambda row: (row["cost"] or 0.0, row["input"], row["runs"]),
        reverse=True,
    )


def _counts(group: Mapping[str, Any]) -> str:
    return ", ".join(f"{number} {name}" for name, number in group["outcomes"].most_common())


def log_files() -> list[Path]:
    """Return the log files of all runs, the oldest first."""
    return sorted(runs_dir().glob("*.jsonl"))


def find_run(named: str) -> Path:
    """Return the log file of the run with the id `named`; "last" is the most recent run.

    Raise ConfigError if there is no such run.
    """
    files = log_files()
    found = files[-1:] if named == "last" else [path for path in files if path.stem == named]
    if not found:
        hint = (
            "`glue runs --json` lists the ids" if files else "`glue config set log true` logs runs"
        )
        raise ConfigError(f"there is no logged run {named!r} in {runs_dir()}; {hint}")
    return found[0]


def summary(path: Path) -> dict[str, Any]:
    """Read a log file and return its id, time, agent, model, outcome, tokens, cost and prompt.

    The outcome is "cut off" if the log has no end, and "damaged" if a value has the wrong type.
    """
    seen: dict[str, Any] = {}
    replies: list[Mapping[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        kind = line[10:].partition('"')[0]  # every line begins with {"type": "
        if kind in ("prompt", "message_end", "result", "error"):
            with suppress(ValueError, RecursionError):  # the last line of a killed process
                seen[kind] = json.loads(line)
                if kind == "message_end":
                    replies.append(seen[kind].get("message") or {})
    stamp = path.stem
    row = {"id": stamp, "at": f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[9:11]}:{stamp[11:13]}"}
    try:
        return row | _figures(seen, replies)
    except (AttributeError, TypeError, ValueError, OverflowError):
        nothing = {"tokens": 0, "input": 0, "output": 0, "cost": None, "prompt": ""}
        return row | {"agent": "", "model": "", "outcome": "damaged", **nothing}


def _figures(seen: Mapping[str, Any], replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    prompt, end = seen.get("prompt") or {}, seen.get("result") or seen.get("error") or {}
    parts = (prompt.get("message") or {}).get("content") or ()
    text = " ".join(part.get("text", f"[{part.get('type')}]") for part in parts)
    named = [each for each in replies if each.get("model")]
    last = named[-1] if named else {}
    model = ":".join(filter(None, (last.get("provider"), last.get("model"))))
    # A killed run has no end: add up the usage of its replies.
    own = end.get("usage")
    usages = [own] if own is not None else [each.get("usage") or {} for each in replies]
    costs: list[Any] = [usage.get("cost") for usage in usages if usage]
    used = {name: sum(int(each.get(name) or 0) for each in usages) for name in ("input", "output")}
    return {
        "agent": str(end.get("agent") or ""),
        "model": model or str(prompt.get("model") or ""),
        "outcome": str(end.get("outcome") or ("failed" if end else "cut off")),
        "tokens": used["input"] + used["output"],
        **used,
        "cost": None if not costs or None in costs else float(sum(costs)),
        "prompt": one_line(text, 200),
    }

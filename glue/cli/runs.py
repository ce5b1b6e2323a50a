"""The log of runs, and `glue runs`, which lists it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from glue.cli.printer import EventWriter
from glue.cli.tables import json_option, print_rows
from glue.errors import ConfigError
from glue.paths import state_dir
from glue.text import one_line

MAX_RUNS = 1000  # older ones are removed


def runs_dir() -> Path:
    """Return the folder of the log; it may not exist."""
    return state_dir() / "runs"


class RunLog(EventWriter):
    """The log file of one run: its events, and how it ended."""

    def __init__(self) -> None:
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
        """Write the last line and close the file."""
        self.write(value)
        self._file.close()


@click.command()
@click.option(
    "-n",
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Maximum number of runs to list.",
)
@json_option
def runs(limit: int, as_json: bool) -> None:
    """List the last runs: time, outcome, model, tokens, cost and prompt.

    `glue view last` shows the last one. Runs are logged if `glue config set log true` or GLUE_LOG=1
    switches the log on.
    """
    print_rows(
        [summary(path) for path in reversed(log_files()[-limit:])],
        ("when?", "outcome", "model?", ">tokens", ">cost", "prompt…"),
        lambda run: (
            run["at"],
            run["outcome"],
            run["model"],
            run["tokens"],
            run["cost"],
            run["prompt"],
        ),
        as_json,
        "no runs are logged; `glue config set log true` switches the log on",
    )


def log_files() -> list[Path]:
    """Return the files of the log, the oldest first."""
    return sorted(runs_dir().glob("*.jsonl"))


def find_run(named: str) -> Path:
    """Return the log file of a run, by its id or `last`."""
    files = log_files()
    found = files[-1:] if named == "last" else [path for path in files if path.stem == named]
    if not found:
        hint = "; `glue config set log true` switches the log on" if not files else ""
        raise ConfigError(f"no logged run {named!r} in {runs_dir()}{hint}")
    return found[0]


def summary(path: Path) -> dict[str, Any]:
    """Return the row of a logged run: id, time, model, outcome, tokens, cost and prompt."""
    seen: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        kind = line[10:].partition('"')[0]  # every line begins with {"type": "
        if kind in ("prompt", "message_end", "result", "error"):
            with suppress(ValueError, RecursionError):  # the last line of a killed process
                seen[kind] = json.loads(line)
    prompt, end = seen.get("prompt") or {}, seen.get("result") or seen.get("error") or {}
    reply = (seen.get("message_end") or {}).get("message") or {}
    stamp = path.stem
    row = {"id": stamp, "at": f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[9:11]}:{stamp[11:13]}"}
    try:
        parts = (prompt.get("message") or {}).get("content") or ()
        usage, cost = end.get("usage") or {}, end.get("cost")
        text = " ".join(part.get("text", f"[{part.get('type')}]") for part in parts)
        model = ":".join(filter(None, (reply.get("provider"), reply.get("model"))))
        return row | {
            "model": model or str(prompt.get("model") or ""),
            "outcome": str(end.get("outcome") or ("failed" if end else "cut off")),
            "tokens": int(usage.get("input") or 0) + int(usage.get("output") or 0),
            "cost": None if cost is None else float(cost),
            "prompt": one_line(text, 200),
        }
    except (AttributeError, TypeError, ValueError, OverflowError):
        return row | {"model": "", "outcome": "damaged", "tokens": 0, "cost": None, "prompt": ""}

"""`glue runs`: a log of runs, kept only where the user has switched it on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from glue.cli.output import print_table
from glue.errors import ConfigError
from glue.messages import UserMessage, message_to_json
from glue.paths import state_dir
from glue.text import one_line

MOST = 1000  # runs that are kept; older ones are removed


def runs_dir() -> Path:
    return state_dir() / "runs"


class JsonLines:
    """A listener that writes each event as a line of JSON, the prompt first."""

    def __init__(self, write: Any) -> None:
        self._write = write
        self._begun = False

    def __call__(self, event: Any) -> None:
        from glue.events import RequestStart, event_to_json

        if not self._begun and isinstance(event, RequestStart):
            self._begun = True
            self.write(_prompt(event))
        self.write(event_to_json(event))

    def write(self, value: Mapping[str, Any]) -> None:
        # ASCII alone: nothing that a model wrote can then do anything to a terminal.
        self._write(json.dumps(value) + "\n")


def _prompt(event: Any) -> dict[str, Any]:
    """Give what the model is asked first: the last prompt, the instructions and the tools."""
    from glue.codec import to_plain

    request = event.request
    said = [message for message in request.messages if isinstance(message, UserMessage)]
    return {
        "type": "prompt",
        "model": request.model,
        "system": request.system,
        "tools": [to_plain(tool) for tool in request.tools],
        "message": message_to_json(said[-1]) if said else None,
    }


class RunLog:
    """One file of the log: the events of a run, and how it ended."""

    def __init__(self) -> None:
        folder = runs_dir()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in sorted(folder.glob("*.jsonl"))[: -MOST or None]:
            old.unlink(missing_ok=True)
        now = time.time_ns()
        day = time.strftime("%Y%m%d-%H%M%S", time.localtime(now // 10**9))
        name = f"{day}-{now % 10**9:09d}-{os.urandom(2).hex()}.jsonl"
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = open(fd, "w", encoding="utf-8")  # noqa: SIM115 - it lasts as long as the run
        self.lines = JsonLines(self._file.write)

    def end(self, value: Mapping[str, Any]) -> None:
        self.lines.write(value)
        self._file.close()


@click.command()
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Runs, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def runs(limit: int, as_json: bool) -> None:
    """List the last runs: when, model, outcome, tokens, cost and prompt. `glue view last` shows one.

    Runs are logged where `glue config set log true` or GLUE_LOG=1 says so.
    """
    found = [summary(path) for path in reversed(log_files()[-limit:])]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo("no runs are logged; `glue config set log true` switches the log on", err=True)
    rows = [(run["at"], run["outcome"], run["model"], run["tokens"], run["cost"], run["prompt"]) for run in found]
    print_table(rows, ("when?", "outcome", "model?", ">tokens", ">cost", "prompt"))


def log_files() -> list[Path]:
    """Give the files of the log, the oldest first."""
    return sorted(runs_dir().glob("*.jsonl"))


def find_run(named: str) -> Path:
    """Find a run by `last`, or by the name of its file."""
    files = log_files()
    if named == "last" and files:
        return files[-1]
    found = [path for path in files if path.stem == named]
    if not found:
        hint = "; `glue config set log true` switches the log on" if not files else ""
        raise ConfigError(f"there is no logged run {named!r} in {runs_dir()}{hint}")
    return found[0]


def summary(path: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        kind = line[10:].partition('"')[0]
        if kind in ("prompt", "message_end", "result", "error"):
            try:
                seen[kind] = json.loads(line)
            except ValueError:
                continue  # cut off by a kill
    prompt, end = seen.get("prompt") or {}, seen.get("result") or seen.get("error") or {}
    reply = (seen.get("message_end") or {}).get("message") or {}
    parts = (prompt.get("message") or {}).get("content") or ()
    said = " ".join(part.get("text", f"[{part.get('type')}]") for part in parts if isinstance(part, Mapping))
    usage, stamp = end.get("usage") or {}, path.stem
    return {
        "id": stamp,
        "at": f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[9:11]}:{stamp[11:13]}",
        "model": ":".join(filter(None, (reply.get("provider"), reply.get("model")))) or str(prompt.get("model") or ""),
        "outcome": str(end.get("outcome") or ("failed" if end else "cut off")),
        "tokens": int(usage.get("input") or 0) + int(usage.get("output") or 0),
        "cost": end.get("cost"),
        "prompt": one_line(said, 200),
    }

"""`glue replay`: a recorded run again, without the model."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from glue.agentcli import permission_options


@click.command()
@click.argument("recording", type=click.Path(dir_okay=False))
@click.argument("file", required=False, metavar="[FILE.py]")
@click.argument("words", nargs=-1, metavar="[PROMPT...]")
@click.option("-v", "--verbose", is_flag=True, help="Thinking and the results of tools too.")
@permission_options
def replay(recording: str, file: str | None, words: tuple[str, ...], verbose: bool, **permissions: Any) -> None:
    """Play what a model said in RECORDING, as made by --record.

    With FILE.py the agent runs again, its tools too, and must ask what it asked then; PROMPT is the recorded one
    if left out. A request that differs is an error that shows the first difference.
    """
    from glue.commands.recorded import first_prompt, read_exchanges

    exchanges = read_exchanges(recording)
    if file is not None:
        from glue.commands.agentfile import open_agent
        from glue.commands.execute import execute

        given: dict[str, Any] = {**_DEFAULTS, **permissions, "replay": recording, "verbose": int(verbose)}
        sys.exit(execute(open_agent(file), words or (first_prompt(exchanges, recording),), given, path=file))
    _play(exchanges, verbose)


_DEFAULTS: dict[str, Any] = {
    "model": None,
    "tools": None,
    "mcp": None,
    "session": None,
    "resume": False,
    "store": None,
    "max_turns": None,
    "budget_usd": None,
    "timeout": None,
    "as_json": False,
    "usage": False,
    "show_wire": False,
    "as_curl": False,
    "record": None,
    "replay": None,
    "quiet": False,
    "verbose": 0,
}


def _play(exchanges: list[dict[str, Any]], verbose: bool) -> None:
    from glue.commands.execute import screens
    from glue.terminal import clean, one_line

    out, err = screens()
    for exchange in exchanges:
        model: dict[str, Any] = next((event["message"] for event in exchange["events"] if event["type"] == "done"), {})
        count = len(exchange["request"].get("messages", ()))
        name = f" {model.get('provider')}:{model.get('model')}" if model.get("model") else ""
        err.line(one_line(f"request {exchange['number']}:{name}, {count} messages"), "dim")
        if verbose:
            for message in exchange["request"].get("messages", ())[-3:]:
                if message.get("role") == "tool":
                    err.line(f"  {message.get('name')}: {one_line(json.dumps(message.get('content')), 300)}", "dim")
        wrote = False
        for event in exchange["events"]:
            if event["type"] == "text":
                out.write(clean(event["text"]))
                wrote = True
            elif event["type"] == "thinking" and verbose:
                err.write(err.paint(clean(event["text"]), "dim"))
        if wrote:
            out.write("\n")
        for part in model.get("content", ()):
            if part.get("type") == "tool_call":
                err.line(f"· {one_line(part['name'])} {one_line(part['arguments'], 200)}", "dim")
        if exchange.get("error"):
            err.line(f"✗ {one_line(exchange['error']['message'], 300)}", "red")

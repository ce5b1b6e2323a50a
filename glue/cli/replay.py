"""`glue replay`: print a recorded run, or run an agent against its recording."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from glue.cli.agentfile import open_agent
from glue.cli.cassette import load_cassette
from glue.cli.options import permission_options
from glue.cli.printer import Printer
from glue.cli.run import execute, run
from glue.cli.screen import Screen
from glue.errors import ConfigError
from glue.text import count, one_line


@click.command()
@click.argument("cassette", type=click.Path(dir_okay=False))
@click.argument("file", required=False, metavar="[FILE.py]")
@click.argument("words", nargs=-1, metavar="[PROMPT...]")
@click.option("-v", "--verbose", is_flag=True, help="Print thinking and tool results too.")
@permission_options
def replay(
    cassette: str, file: str | None, words: tuple[str, ...], verbose: bool, **permissions: Any
) -> None:
    """Print the replies in CASSETTE, a file that --record wrote.

    With FILE.py, run that agent and its tools again, with the recorded replies. PROMPT is the
    recorded one if you leave it out. A request that differs from the recorded one is an error,
    which shows the first difference.
    """
    exchanges = load_cassette(cassette).exchanges
    try:
        if file is None:
            _print_exchanges(exchanges, verbose)
            return
        words = words or (first_prompt(exchanges, cassette),)
    except (LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{cassette} is damaged: {error!r}") from error
    defaults = run.make_context("run", []).params
    given = defaults | permissions | {"replay": cassette, "verbose": int(verbose)}
    sys.exit(execute(open_agent(file), words, given, path=file))


def _print_exchanges(exchanges: Iterable[Mapping[str, Any]], verbose: bool) -> None:
    printer = Printer(Screen(sys.stdout), Screen(sys.stderr), verbose=verbose)
    for exchange in exchanges:
        reply: dict[str, Any] = next(
            (event["message"] for event in exchange["events"] if event["type"] == "done"), {}
        )
        asked = exchange["request"].get("messages", ())
        name = f" {reply.get('provider')}:{reply.get('model')}" if reply.get("model") else ""
        printer.note(
            one_line(f"request {exchange['number']}:{name}, {count(len(asked), 'message')}")
        )
        for message in asked[-3:]:
            if verbose and message.get("role") == "tool":
                content = json.dumps(message.get("content"))
                printer.note("  " + one_line(f"{message.get('name')}: {content}", 300))
        for event in exchange["events"]:
            if event["type"] == "text":
                printer.text(event["text"])
            elif event["type"] == "thinking" and verbose:
                printer.thinking(event["text"])
        for part in reply.get("content", ()):
            if part.get("type") == "tool_call":
                printer.note(f"· {one_line(part['name'])} {one_line(part['arguments'], 200)}")
        if exchange.get("error"):
            printer.note(f"✗ {one_line(exchange['error']['message'], 300)}", "red")
    printer.settle()


def first_prompt(exchanges: Sequence[Mapping[str, Any]], path: str) -> str:
    """Return the prompt text of a recording, with a leading @ doubled as in a PROMPT argument.

    Raise ConfigError if the recording has no prompt. With a single @, the prompt would be read as
    the name of a file.
    """
    messages = exchanges[0]["request"].get("messages", ()) if exchanges else ()
    asked = [message for message in messages if message.get("role") == "user"]
    parts = asked[-1]["content"] if asked else ()
    text = "".join(part.get("text", "") for part in parts if part.get("type") == "text")
    if not text:
        raise ConfigError(f"{path} contains no prompt; add a PROMPT to the command")
    return text.replace("@", "@@", 1) if text.startswith("@") else text

"""`glue replay` and `--record`: runs on a cassette, without the model."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from glue.cli.options import permission_options
from glue.errors import ConfigError, ReplayError
from glue.messages import Request
from glue.provider import Provider, ProviderEvent
from glue.testing.cassette import Cassette, Recorder, Replay, use_provider
from glue.text import clean_text, one_line


@click.command()
@click.argument("cassette", type=click.Path(dir_okay=False))
@click.argument("file", required=False, metavar="[FILE.py]")
@click.argument("words", nargs=-1, metavar="[PROMPT...]")
@click.option("-v", "--verbose", is_flag=True, help="Thinking and the results of tools too.")
@permission_options
def replay(cassette: str, file: str | None, words: tuple[str, ...], verbose: bool, **permissions: Any) -> None:
    """Play what a model said in CASSETTE, as made by --record.

    With FILE.py the agent runs again, its tools too, and must ask what it asked then; PROMPT is the recorded one
    if left out. A request that differs is an error that shows the first difference.
    """

    exchanges = _load(cassette).exchanges
    if file is not None:
        from glue.cli.agentfile import open_agent
        from glue.cli.run import execute

        given: dict[str, Any] = {**_DEFAULTS, **permissions, "replay": cassette, "verbose": int(verbose)}
        sys.exit(execute(open_agent(file), words or (first_prompt(exchanges, cassette),), given, path=file))
    _play(exchanges, verbose)


_DEFAULTS: dict[str, Any] = {
    "model": None,
    "tools": None,
    "mcp": None,
    "session": None,
    "resume": False,
    "store": None,
    "max_turns": None,
    "usd_budget": None,
    "seconds": None,
    "as_json": False,
    "usage": False,
    "show_wire": False,
    "as_curl": False,
    "record": None,
    "replay": None,
    "quiet": False,
    "verbose": 0,
}


def _play(exchanges: Sequence[Mapping[str, Any]], verbose: bool) -> None:
    from glue.cli.run import screens

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
                out.write(clean_text(event["text"]))
                wrote = True
            elif event["type"] == "thinking" and verbose:
                err.write(err.paint(clean_text(event["text"]), "dim"))
        if wrote:
            out.write("\n")
        for part in model.get("content", ()):
            if part.get("type") == "tool_call":
                err.line(f"· {one_line(part['name'])} {one_line(part['arguments'], 200)}", "dim")
        if exchange.get("error"):
            err.line(f"✗ {one_line(exchange['error']['message'], 300)}", "red")


class _NamedReplay:
    """A replay under the name of the provider that was recorded, so that requests are made as they were."""

    def __init__(self, replay: Replay, name: str) -> None:
        from glue.providers import capabilities

        self.replay, self.capabilities = replay, capabilities(name)
        self.name = self.capabilities.provider

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        return self.replay.stream(request)


@contextmanager
def record_to(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """Record all that agents ask by name; what is given handles a provider that has none."""
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise ConfigError(f"--record {path}: there is no folder {os.path.dirname(path)}")
    from glue.providers import new

    cassette = Cassette(path)
    made: dict[str, Provider] = {}

    def open_named(name: str) -> Provider:
        if name not in made:
            made[name] = Recorder(new(name), cassette)
        return made[name]

    with use_provider(open_named):
        yield lambda provider: Recorder(provider, cassette)


@contextmanager
def replay_from(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """Answer all that agents ask from a cassette."""
    replay = Replay(_load(path), by="hash")
    with use_provider(lambda name: _NamedReplay(replay, name)):
        yield lambda provider: replay


def _load(path: str) -> Cassette:
    try:
        return Cassette.load(path)
    except ReplayError as error:
        raise ConfigError(str(error)) from error


def first_prompt(exchanges: Sequence[Mapping[str, Any]], path: str) -> str:
    """Give the text of the prompt that began the recorded run."""
    messages = exchanges[0]["request"].get("messages", ()) if exchanges else ()
    asked = [message for message in messages if message.get("role") == "user"]
    text = "".join(
        part.get("text", "") for part in (asked[-1]["content"] if asked else ()) if part.get("type") == "text"
    )
    if not text:
        raise ConfigError(f"{path} holds no prompt; give one")
    return text.replace("@", "@@", 1) if text.startswith("@") else text

"""`glue replay`: a recorded run again, without the model."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

import click

from glue.cli.options import permission_options
from glue.errors import ConfigError, ReplayError
from glue.messages import Request
from glue.provider import Provider, ProviderEvent
from glue.providers.retry import close, opened
from glue.testing.cassette import Recorder, Replay, stand_in


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

    exchanges = read_exchanges(recording)
    if file is not None:
        from glue.cli.agentfile import open_agent
        from glue.cli.run import execute

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
    from glue.cli.run import screens
    from glue.text import clean_text, one_line

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


_asked: ContextVar[Provider] = ContextVar("glue_tape")


class _Chosen:
    """The provider that the request at hand is for."""

    name = "recorded"

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        return _asked.get().stream(request)


class _Taped:
    """A provider by name whose exchanges go to the one recording."""

    def __init__(self, provider: Provider, recorder: Recorder) -> None:
        self.provider, self.recorder = provider, recorder
        self.name = provider.name

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        _asked.set(self.provider)
        async with aclosing(opened(self.recorder, request)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        await close(self.provider)


class _Played:
    """A recording under the name of the provider that made it, so that requests are made as they were."""

    def __init__(self, replay: Replay, row: Any, model: str) -> None:
        self.replay, self.row, self.model = replay, row, model
        self.name = row.name

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        return self.replay.stream(request)


@contextmanager
def recorded(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """Record all that agents ask by name; what is given handles a provider that has none."""
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise ConfigError(f"--record {path}: there is no folder {os.path.dirname(path)}")
    from glue.providers import new

    recorder = Recorder(_Chosen(), path)
    made: dict[str, Provider] = {}

    def open_named(name: str) -> Provider:
        if name not in made:
            made[name] = _Taped(new(name), recorder)
        return made[name]

    with stand_in(open_named):
        yield lambda provider: _Taped(provider, recorder)


@contextmanager
def replayed(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """Answer all that agents ask from a recording."""
    try:
        replay = Replay(path, by="hash")
    except ReplayError as error:
        raise ConfigError(str(error)) from error
    with stand_in(lambda name: _played(replay, name)):
        yield lambda provider: replay


def _played(replay: Replay, name: str) -> Provider:
    from glue.providers import lookup, parse

    if "," in name:
        return replay
    row = lookup(name)
    if not row.wire:
        return replay
    import_module(f"glue.providers.{row.wire}")  # says what its models take
    return _Played(replay, row, parse(name)[1] or row.model)


def read_exchanges(path: str) -> list[dict[str, Any]]:
    """Give the recorded exchanges in order."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.strip()]
        if not lines or lines[0]["type"] != "recording":
            raise ValueError("its first line is no header")
        found = [line for line in lines if line["type"] == "exchange"]
        for line in found:
            if not isinstance(line["events"], list) or not isinstance(line["request"], dict):
                raise ValueError("an exchange is damaged")
        return sorted(found, key=lambda line: int(line["number"]))
    except OSError as error:
        raise ConfigError(f"the recording {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is no recording: {error}") from None


def first_prompt(exchanges: list[dict[str, Any]], path: str) -> str:
    """Give the text of the prompt that began the recorded run."""
    messages = exchanges[0]["request"].get("messages", ()) if exchanges else ()
    asked = [message for message in messages if message.get("role") == "user"]
    text = "".join(
        part.get("text", "") for part in (asked[-1]["content"] if asked else ()) if part.get("type") == "text"
    )
    if not text:
        raise ConfigError(f"{path} holds no prompt; give one")
    return text.replace("@", "@@", 1) if text.startswith("@") else text

"""`--record` and `--replay`, for an agent and for the agents below it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from glue.errors import ConfigError, ReplayError
from glue.providers.wrapper import close, opened
from glue.recording import Recorder, Replay
from glue.standin import stand_in
from glue.types import Provider, ProviderEvent, Request

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

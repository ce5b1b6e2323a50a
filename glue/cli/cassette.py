"""Providers that record to a cassette file or answer from it: --record and --replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from glue.errors import ConfigError, ReplayError
from glue.provider import Provider
from glue.providers import capabilities, new
from glue.testing.cassette import Cassette, Recorder, Replay, use_provider


class _NamedReplay:
    """A provider that replays a cassette with the name and capabilities of the recorded provider.

    Requests are then encoded as they were when they were recorded.
    """

    def __init__(self, replay: Provider, name: str) -> None:
        self.stream, self.capabilities = replay.stream, capabilities(name)
        self.name = self.capabilities.provider


@contextmanager
def record_to(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """In a `with` block, record the requests and replies of each provider that is opened by name.

    The yielded function wraps a provider object so that it is recorded too.
    """
    cassette = Cassette(path)
    with use_provider(cache(lambda name: Recorder(new(name), cassette))):
        yield lambda provider: Recorder(provider, cassette)


@contextmanager
def replay_from(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """In a `with` block, replay a cassette in place of each provider that is opened by name.

    The yielded function replaces a provider object by the replay.
    """
    replay = Replay(load_cassette(path), by="hash")
    with use_provider(lambda name: _NamedReplay(replay, name)):
        yield lambda provider: replay


def load_cassette(path: str) -> Cassette:
    """Load a cassette file; raise ConfigError if it does not exist or is damaged."""
    try:
        return Cassette.load(path)
    except ReplayError as error:
        raise ConfigError(str(error)) from error

"""A pytest plugin: no request leaves a test unless it is marked, and a marked test replays a cassette.

- `@pytest.mark.glue_cassette` answers from `cassettes/TEST/MODEL.jsonl` beside the test file;
  `pytest --glue-record` asks the real model and records that file anew.
- `@pytest.mark.glue_live` lets requests out.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from glue.testing.cassette import Recorder, Replay

_LOOPBACK = re.compile(r"^https?://(localhost|127\.[0-9.]+|\[::1\])(:\d+)?(/|$)", re.IGNORECASE)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("glue")
    group.addoption("--glue-record", action="store_true", help="ask real models and record cassettes anew")


def pytest_configure(config: pytest.Config) -> None:
    cassette = "glue_cassette(folder=None, by='order'): agents by name answer from a cassette; see --glue-record"
    config.addinivalue_line("markers", cassette)
    config.addinivalue_line("markers", "glue_live: real requests of glue may leave this test")
    config.stash[_guard] = RequestGuard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a whole test, its fixtures included."""
    from glue.context import check_origin

    mark = item.get_closest_marker("glue_cassette")
    record = bool(item.config.getoption("--glue-record")) and mark is not None
    guard = item.config.stash[_guard]
    guard.live = record or item.get_closest_marker("glue_live") is not None
    token = check_origin.set(guard.check)
    if mark is not None:
        from glue.testing.cassette import use_provider

        named = mark.args[0] if mark.args else mark.kwargs.get("folder")
        folder = item.path.parent / (named or Path("cassettes", _plain_name(item.name)))
        models = item.stash[_models] = Models(folder, mark.kwargs.get("by", "order"), record)
    try:
        with use_provider(models.open) if mark is not None else nullcontext():
            return (yield)
    finally:
        check_origin.reset(token)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    if (models := item.stash.get(_models, None)) is not None:
        models.assert_used_up()
    return result


class RequestGuard:
    """Lets requests to this machine pass, and others only from a live test.

    One object for all tests: a task group that outlives a test holds the context that the first one made.
    """

    live = False

    def check(self, origin: str) -> None:
        if self.live or _LOOPBACK.match(origin):
            return
        from glue.errors import ConfigError

        raise ConfigError(
            f"a test tried to reach {origin}; use glue.testing.Script, replay a cassette with"
            " @pytest.mark.glue_cassette, or let it out with @pytest.mark.glue_live"
        )


class Models:
    """The cassettes of one test: a file for each model it names."""

    def __init__(self, folder: Path, by: str, record: bool) -> None:
        self.folder, self.by, self.record = folder, by, record
        self.providers: dict[str, Recorder | Replay] = {}

    def open(self, model: str) -> Recorder | Replay:
        from glue.testing.cassette import Recorder, Replay

        if model in self.providers:
            return self.providers[model]
        path = self.folder / f"{_plain_name(model)}.jsonl"
        if self.record:
            from glue.providers import new

            self.providers[model] = Recorder(new(model), path)
        elif path.exists():
            self.providers[model] = Replay(path, by="hash" if self.by == "hash" else "order")
        else:
            pytest.fail(f"there is no cassette {path}; record it with `pytest --glue-record`", pytrace=False)
        return self.providers[model]

    def assert_used_up(self) -> None:
        """Fail unless the test made every recorded request."""
        for provider in self.providers.values():
            if (used := getattr(provider, "assert_used_up", None)) is not None:
                used()


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "x"


_models = pytest.StashKey[Models]()
_guard = pytest.StashKey[RequestGuard]()

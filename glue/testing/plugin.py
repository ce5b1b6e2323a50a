"""A pytest plugin: tests replay cassettes, and cannot send requests to real models by accident.

- `@pytest.mark.glue_cassette` replays `cassettes/TEST/MODEL.jsonl` in the folder of the test file.
  `pytest --glue-record` sends the requests to the real model instead, and replaces that file.
- `@pytest.mark.glue_live` allows a test to send requests to real models.
- `@pytest.mark.glue_cases("cases.jsonl")` runs a test once for each case, as its argument `case`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path

import pytest

from glue import providers
from glue.errors import ConfigError
from glue.overrides import check_origin
from glue.testing.cassette import Recorder, Replay, use_provider
from glue.text import file_name

_LOOPBACK = re.compile(r"^https?://(localhost|127\.[0-9.]+|\[::1\])(:\d+)?(/|$)", re.IGNORECASE)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("glue")
    group.addoption(
        "--glue-record",
        action="store_true",
        help="send the requests of glue_cassette tests to real models, and replace their cassettes",
    )


def pytest_configure(config: pytest.Config) -> None:
    cassette = "replay a recorded cassette for each model that the test opens by name"
    live = "the test may send requests to real models"
    cases = (
        "run the test once for each case in a JSONL file in the folder of the test, and pass the "
        "case as the argument `case`"
    )
    config.addinivalue_line("markers", f"glue_cassette(folder=None, by='order'): {cassette}")
    config.addinivalue_line("markers", f"glue_live: {live}")
    config.addinivalue_line("markers", f"glue_cases(file): {cases}")
    config.stash[_guard] = RequestGuard()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each case in the file that its mark `glue_cases` names."""
    mark = metafunc.definition.get_closest_marker("glue_cases")
    if mark is None:
        return
    if len(mark.args) != 1 or "case" not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: glue_cases needs a file, and the test needs an argument"
            ' `case`: @pytest.mark.glue_cases("cases.jsonl") def test_it(case): ...'
        )
    from glue.cases import read_cases  # loads the loop, which most test runs do without

    try:
        cases = read_cases(metafunc.definition.path.parent / mark.args[0])
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    metafunc.parametrize("case", cases, ids=[case.id for case in cases])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test and its fixtures with its cassettes, and refuse requests to other machines.

    Such requests are allowed in a test that is marked `glue_live` or that records cassettes.
    """
    mark = item.get_closest_marker("glue_cassette")
    record = bool(item.config.getoption("--glue-record")) and mark is not None
    guard = item.config.stash[_guard]
    guard.live = record or item.get_closest_marker("glue_live") is not None
    token = check_origin.set(guard.check)
    if mark is not None:
        named = mark.args[0] if mark.args else mark.kwargs.get("folder")
        folder = item.path.parent / (named or Path("cassettes", file_name(item.name)))
        models = item.stash[_models] = Models(folder, mark.kwargs.get("by", "order"), record)
    try:
        with use_provider(models.open) if mark is not None else nullcontext():
            return (yield)
    finally:
        check_origin.reset(token)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that did not send every recorded request."""
    result = yield
    models = item.stash.get(_models, None)
    if models is not None:
        models.assert_used_up()
    return result


class RequestGuard:
    """A check that refuses requests to other machines, unless the current test may send them.

    All tests share one object, because a task group can outlive the test that opened it, and its
    tasks keep the context of that test.
    """

    live = False  # whether the current test is marked `glue_live`, or records cassettes

    def check(self, origin: str) -> None:
        """Raise ConfigError if the current test may not send a request to this origin."""
        if self.live or _LOOPBACK.match(origin):
            return
        raise ConfigError(
            f"a test tried to reach {origin}; use glue.testing.Script, replay a cassette with"
            " @pytest.mark.glue_cassette, or allow requests with @pytest.mark.glue_live"
        )


class Models:
    """The cassettes of one test, one file for each model."""

    def __init__(self, folder: Path, by: str, record: bool) -> None:
        self.folder, self.by, self.record = folder, by, record
        self.providers: dict[str, Recorder | Replay] = {}

    def open(self, model: str) -> Recorder | Replay:
        """Return the provider that records or replays the requests to `model`.

        Fail the test if its requests are replayed, and no cassette exists for the model.
        """
        if model in self.providers:
            return self.providers[model]
        path = self.folder / f"{file_name(model)}.jsonl"
        if self.record:
            self.providers[model] = Recorder(providers.new(model), path)
        elif path.exists():
            self.providers[model] = Replay(path, by="hash" if self.by == "hash" else "order")
        else:
            pytest.fail(
                f"the cassette {path} does not exist; record it with `pytest --glue-record`",
                pytrace=False,
            )
        return self.providers[model]

    def assert_used_up(self) -> None:
        """Raise ReplayError if the test did not send every recorded request."""
        for provider in self.providers.values():
            if isinstance(provider, Replay):
                provider.assert_used_up()


_models = pytest.StashKey[Models]()
_guard = pytest.StashKey[RequestGuard]()

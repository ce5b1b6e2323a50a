"""For pytest: no real request leaves a test unless it is marked, and a marked test plays back a recording.

- `@pytest.mark.glue_recording` answers from `recordings/TEST/MODEL.jsonl` beside the test file;
  `pytest --glue-record` asks the real model and writes that file anew.
- `@pytest.mark.glue_live` lets requests out.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from glue.testing.cassette import Recorder, Replay

_LOOPBACK = re.compile(r"^https?://(localhost|127\.[0-9.]+|\[::1\])(:\d+)?(/|$)", re.IGNORECASE)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("glue")
    group.addoption("--glue-record", action="store_true", help="ask real models and write recordings anew")


def pytest_configure(config: pytest.Config) -> None:
    recording = "glue_recording(folder=None, by='order'): agents by name answer from a recording; see --glue-record"
    config.addinivalue_line("markers", recording)
    config.addinivalue_line("markers", "glue_live: real requests of glue may leave this test")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a whole test, its fixtures included."""
    from glue import outgoing

    mark = item.get_closest_marker("glue_recording")
    record = bool(item.config.getoption("--glue-record")) and mark is not None
    free = record or item.get_closest_marker("glue_live") is not None
    before, outgoing.check = outgoing.check, None if free else forbid
    try:
        with _recorded(item, mark, record) if mark is not None else nullcontext():
            return (yield)
    finally:
        outgoing.check = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    if (tape := item.stash.get(_tape, None)) is not None:
        tape.check()
    return result


def forbid(origin: str) -> None:
    """Let requests to this machine pass, and no others."""
    if _LOOPBACK.match(origin):
        return
    from glue.errors import ConfigError

    raise ConfigError(
        f"a test tried to reach {origin}; use glue.testing.Script, play back a recording with"
        " @pytest.mark.glue_recording, or let it out with @pytest.mark.glue_live"
    )


@contextmanager
def _recorded(item: pytest.Item, mark: pytest.Mark, record: bool) -> Iterator[None]:
    from glue.context import provider_names

    tape = item.stash[_tape] = Tape(_folder(item, mark), mark.kwargs.get("by", "order"), record)
    token = provider_names.set(tape.open)
    try:
        yield
    finally:
        provider_names.reset(token)


def _folder(item: pytest.Item, mark: pytest.Mark) -> Path:
    named = mark.args[0] if mark.args else mark.kwargs.get("folder")
    here = Path(item.path).parent
    return here / named if named else here / "recordings" / _plain_name(item.name)


class Tape:
    """The recordings of one test: a file for each model it names."""

    def __init__(self, folder: Path, by: str, record: bool) -> None:
        self.folder, self.by, self.record = folder, by, record
        self.providers: dict[str, Recorder | Replay] = {}

    def open(self, model: str) -> Recorder | Replay:
        if model not in self.providers:
            self.providers[model] = self._open(model)
        return self.providers[model]

    def _open(self, model: str) -> Recorder | Replay:
        from glue.testing.cassette import Recorder, Replay

        path = self.folder / f"{_plain_name(model)}.jsonl"
        if self.record:
            from glue.providers import new

            return Recorder(new(model), path)
        if not path.exists():
            pytest.fail(f"there is no recording {path}; make it with `pytest --glue-record`", pytrace=False)
        return Replay(path, by="hash" if self.by == "hash" else "order")

    def check(self) -> None:
        """Fail unless the test made every recorded request."""
        for provider in self.providers.values():
            if (used := getattr(provider, "assert_used_up", None)) is not None:
                used()


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "x"


_tape = pytest.StashKey[Tape]()

"""Shared fixtures: backends for async tests, servers on the loopback, the command line."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Tests must not depend on the load of the machine.
settings.register_profile(
    "glue", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("glue")

# A background job ignores Ctrl-C, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The login libraries of clouds look for a metadata server on the network, which no test may use.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ["NO_GCE_CHECK"] = "true"
os.environ["AZURE_TOKEN_CREDENTIALS"] = "EnvironmentCredential"

# Tests that run under one backend only, by the beginning of their path below tests/. They use
# threads, processes and pure functions with a single await; scheduling is tested elsewhere.
ONE_BACKEND = {
    "agents/": "asyncio",
    "cli/": "asyncio",
    "test_model_texts": "trio",
    "test_output": "trio",
    "providers/test_bedrock": "asyncio",
    "providers/test_gemini": "trio",
    "providers/test_openai": "asyncio",
    "providers/test_every_provider_over_http": "trio",
    "providers/test_google": "trio",
    "providers/test_listing": "asyncio",
    "providers/test_same_transcript_on_every_wire": "trio",
    "stores/test_records": "asyncio",
    "stores/test_search": "asyncio",
    "testing/": "trio",
    "tools/fs/": "trio",
    "tools/git/": "trio",
    "tools/test_": "trio",
    "view/": "asyncio",
}


def pytest_collection_finish() -> None:
    # Thousands of collected tests would make each full collection of garbage take half a second.
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = metafunc.definition.iter_markers("parametrize")
    chosen = hasattr(metafunc.module, "anyio_backend") or any(
        mark.args[0] == "anyio_backend" for mark in marks
    )
    if "anyio_backend" in metafunc.fixturenames and not chosen:
        path = metafunc.definition.path.relative_to(Path(__file__).parent).as_posix()
        one = next(
            (backend for start, backend in ONE_BACKEND.items() if path.startswith(start)), ""
        )
        metafunc.parametrize("anyio_backend", [one] if one else ["asyncio", "trio"], indirect=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request that a loopback server received."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


class Loopback:
    """A server on the loopback that sends given responses, one per request; the last one repeats.

    A response is bytes, or a function that receives the connection and writes to it. If the
    function returns False, the connection is closed.
    """

    def __init__(
        self,
        *answers: bytes | Callable[[socket.socket], object],
        context: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.seen: list[Seen] = []
        self.connections = 0
        self._answers = list(answers)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in list(self._open):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                number = self.connections
                self._threads.append(
                    threading.Thread(target=self._serve, args=(connection, number), daemon=True)
                )
            self._threads[-1].start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            # Called after the socket is closed: tests wait for it.
            stack.callback(lambda: self._open.discard(connection))
            stack.enter_context(connection)
            if self._context is not None:
                connection = stack.enter_context(
                    self._context.wrap_socket(connection, server_side=True)
                )
            with self._lock:
                self._open.add(connection)
            stream = stack.enter_context(connection.makefile("rb"))
            while (request := _read(stream, number)) is not None:
                with self._lock:
                    self.seen.append(request)
                    answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
                if callable(answer):
                    if answer(connection) is False:
                        return
                else:
                    connection.sendall(answer)


def _read(stream: Any, number: int) -> Seen | None:
    line = stream.readline().decode("latin-1").strip()
    if not line:
        return None
    headers = {}
    while pair := stream.readline().decode("latin-1").strip():
        name, _, value = pair.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    return Seen(line=line, headers=headers, body=body, connection=number)


@pytest.fixture
def loopback() -> Iterator[Callable[..., Loopback]]:
    """Start servers on the loopback; they are closed after the test."""
    servers: list[Loopback] = []

    def start(*answers: Any, **options: Any) -> Loopback:
        servers.append(Loopback(*answers, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


_COUNTS = pytest.StashKey[dict[str, int]]()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Return a function that counts attacks and races for the summary at the end of the tests."""
    counts = request.config.stash.setdefault(_COUNTS, {})

    def add(name: str, count: int) -> None:
        counts[name] = counts.get(name, 0) + count

    return add


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.stash.get(_COUNTS, {})
    if counts:
        terminalreporter.section("withstood")
        for name, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:>7,}  {name}")


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Run `glue ARGS...` in this process, in an empty folder and without keys."""
    import io
    import os
    import sys

    from glue.cli.app import main

    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_BASE_URL", "_TOKEN", "_PROXY")) or name.startswith(
            ("GLUE_", "XDG_")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*args: str, input: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input.encode())))
        capsys.readouterr()
        code = 0
        try:
            main(list(args))
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """Start a real Postgres; skip the test if `make scale` has not installed it."""
    from fakes.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: Any) -> str:
    """Return the address of an empty schema of the Postgres server."""
    import psycopg

    gc.collect()  # closes the connections of stores that earlier tests left open

    name = f"test_{os.urandom(6).hex()}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[call-overload,unused-ignore]
    return f"{postgres.url}?options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.scale)])
def engine(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Return the address of an empty database for a queue, of each supported kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    address: str = request.getfixturevalue("database")
    return address


@pytest.fixture(scope="session")
def zygote() -> Iterator[Any]:
    """Start a process that imports the package and forks for each command."""
    from fakes.zygote import Zygote

    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def editor(
    tmp_path: Path, zygote: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Start `glue acp` on an agent given as source, or on a script with ready-made tools."""
    from fakes.editor import GLUE, PREAMBLE, READY, Editor

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    opened: list[Editor] = []

    def start(
        source: str = "",
        ready: str = "",
        args: tuple[str, ...] = ("agent.py",),
        store: str = "store",
    ) -> Any:
        command = [*GLUE, "acp", *args, *(("--store", store) if store else ())]
        if ready:
            command = [sys.executable, "-c", READY.format(steps=ready)]
        elif source:
            (tmp_path / "agent.py").write_text(PREAMBLE + source)
        opened.append(Editor(zygote.start(command, tmp_path)))
        return opened[-1]

    yield start
    for each in opened:
        each.stop()

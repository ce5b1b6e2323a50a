"""Processes that are forked from a process with the package imported, which saves import time."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TextIO

import anyio

MODULES = (
    "glue.acp.editor",
    "glue.acp.server",
    "glue.cli.agentfile",
    "glue.cli.app",
    "glue.cli.map",
    "glue.cli.queue",
    "glue.cli.servers",
    "glue.durable.runs",
    "glue.loop.run",
    "glue.providers",
    "glue.stores.jsonl",
    "glue.stores.sqlite",
    "glue.testing",
    "glue.tools.coding",
    "glue.tools.git",
    "glue.tools.shell",
    "mcp",
)


class Zygote:
    """The process that forks others; `start` takes a command such as `python -c CODE ARGS...`."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        code = f"import sys; sys.path[:0] = {sys.path!r}\n"
        code += f"from fakes.zygote import fork_on; fork_on({theirs.fileno()})"
        self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()])
        theirs.close()

    def start(
        self, command: list[str], cwd: Path, environ: Mapping[str, str] = os.environ
    ) -> Forked:
        return Forked(self._channel, command, cwd, environ)

    def run(
        self,
        command: list[str],
        cwd: Path,
        environ: Mapping[str, str] = os.environ,
        *,
        stdin: str = "",
        merged: bool = False,
    ) -> tuple[int, str, str]:
        """Run a command with a short input; return its exit code, output and errors.

        If merged, the errors are part of the output, in the order of writing.
        """
        process = Forked(self._channel, command, cwd, environ, merged=merged)
        with contextlib.suppress(BrokenPipeError):  # it has ended already, without reading
            process.stdin.write(stdin.encode())
            process.stdin.close()
        with ThreadPoolExecutor(1) as thread, process.stdout, process.stderr:
            errors = thread.submit(process.stderr.read)
            out = process.stdout.read().decode()
            return process.wait(), out, errors.result().decode()

    def run_in_terminal(
        self,
        command: list[str],
        cwd: Path,
        environ: Mapping[str, str] = os.environ,
        typed: str = "",
    ) -> tuple[int, str]:
        """Run a command in a terminal; return its exit code and the text on the terminal."""
        ours, theirs = pty.openpty()
        os.write(ours, typed.encode())
        with _send(self._channel, [theirs] * 3, command, cwd, environ) as status:
            os.close(theirs)
            _line(status)  # the id of the process
            shown = b""
            with contextlib.suppress(OSError):  # the program has closed the terminal
                while piece := os.read(ours, 4096):
                    shown += piece
            os.close(ours)
            return int(_line(status)), shown.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self._channel.close()
        self._process.wait(30)


def _send(
    channel: socket.socket,
    streams: list[int],
    command: list[str],
    cwd: Path,
    environ: Mapping[str, str],
) -> socket.socket:
    """Send a command to the forking process; return a socket that reports its id and exit code."""
    ours, theirs = socket.socketpair()
    socket.send_fds(channel, [b"."], [*streams, theirs.fileno()])
    theirs.close()
    _, _, *code_and_args = command
    ours.sendall(json.dumps([code_and_args, str(cwd), dict(environ)]).encode() + b"\n")
    return ours


class Forked:
    """A process with pipes and the methods of `subprocess.Popen` that the tests use."""

    def __init__(
        self,
        channel: socket.socket,
        command: list[str],
        cwd: Path,
        environ: Mapping[str, str],
        *,
        merged: bool = False,
    ) -> None:
        (stdin, write), (read, stdout), (read_error, stderr) = os.pipe(), os.pipe(), os.pipe()
        printed = stdout if merged else stderr
        self._status = _send(channel, [stdin, stdout, printed], command, cwd, environ)
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(write, "wb"),
            os.fdopen(read, "rb"),
            os.fdopen(read_error, "rb"),
        )
        self.pid = int(_line(self._status))
        self._code: int | None = None

    def wait(self, timeout: float = 30.0) -> int:
        if self._code is None:
            self._status.settimeout(timeout)
            self._code = int(_line(self._status))
            self._status.close()
        return self._code

    def close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()

    def poll(self) -> int | None:
        if self._code is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self._code

    def send_signal(self, number: int) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_on(fd: int) -> None:
    """Fork a process for each set of descriptors that arrives on a socket, until it closes."""
    atexit.register(_leave)  # before the imports, so that it runs after all other functions
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    anyio.run(anyio.sleep, 0)  # loads the backend of anyio
    gc.freeze()  # the collector skips the objects so far when a forked process ends
    channel = socket.socket(fileno=fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        _, fds, _, _ = socket.recv_fds(channel, 1, 4)
        if not fds:
            return
        if os.fork() == 0:
            channel.close()
            _keep(socket.socket(fileno=fds.pop()), fds)
            return
        for each in fds:
            os.close(each)


def _keep(status: socket.socket, streams: list[int]) -> None:
    """Run a command in a forked process, and send its id and its exit code to `status`."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    (code, *args), cwd, environ = json.loads(_line(status))
    pid = os.fork()
    if pid:
        for fd in (0, *streams):
            os.close(fd)
        status.sendall(b"%d\n" % pid)
        status.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    status.close()
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.stdin, sys.stdout = (
        os.fdopen(0, encoding="utf-8", closefd=False),
        os.fdopen(1, "w", encoding="utf-8", closefd=False),
    )
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", closefd=False)
    _streams.extend((sys.stdout, sys.stderr))
    sys.argv = ["-c", *args]
    sys.path[:0] = [""]
    module = sys.modules["__main__"] = ModuleType("__main__")
    try:
        exec(compile(code, "<string>", "exec"), module.__dict__)
        _codes.append(0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _codes.append((end.code or 0) & 0xFF)
        raise


# The exit code of a forked process, and its first stdout and stderr.
_codes: list[int] = []
_streams: list[TextIO] = []


def _leave() -> None:
    """Exit without deleting the objects of all imported modules, which takes 30 ms of CPU."""
    if _codes:
        try:
            for stream in {sys.stdout, sys.stderr, *_streams} - {None}:
                stream.flush()
        except (OSError, ValueError):
            return  # the interpreter reports it
        os._exit(_codes[0])


def _line(sender: socket.socket) -> bytes:
    """Return the next line from a socket, and leave what follows the line in the socket."""
    line = b""
    while not line.endswith(b"\n"):
        if not (waiting := sender.recv(65536, socket.MSG_PEEK)):
            raise EOFError("the forking process has ended")
        line += sender.recv(waiting.find(b"\n") + 1 or len(waiting))
    return line

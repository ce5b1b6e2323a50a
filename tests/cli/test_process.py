"""The process: exit codes despite blocked threads, and signals."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from glue.cli.process import exit_code_despite_threads, live_threads

BLOCKED = """
import logging.handlers, os, sys, threading
from glue.cli.process import exit_code_despite_threads, live_threads

before = live_threads()
threading.Thread(target=threading.Event().wait).start()
print("flushed")
sys.stderr.write("an unfinished line")
last = logging.handlers.MemoryHandler(100, target=logging.StreamHandler(os.fdopen(os.dup(1), "w")))
last.emit(logging.makeLogRecord({"msg": "the log", "levelno": logging.INFO}))
exit_code_despite_threads(7, before)
print("never printed")
"""

TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from glue.cli.process import exit_now

class Provider(TracerProvider):
    def shutdown(self):
        print("sent", flush=True)

trace.set_tracer_provider(Provider(shutdown_on_exit=False))
exit_now(3)
"""

SIGNALS = """
import os, signal
import tempfile
import anyio
from glue.cli.process import cancel_on_signal
from glue.tools import sandbox

folder = tempfile.mkdtemp()
sandbox.PRIVATE.add(folder)
print(folder, flush=True)

async def main():
    async with anyio.create_task_group() as tasks:
        asked = anyio.Event()
        await tasks.start(cancel_on_signal, asked.set, lambda: print("left", flush=True))
        os.kill(os.getpid(), signal.SIGTERM)
        await asked.wait()
        print("cancelled", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()

anyio.run(main)
"""


ECHO = """
import os, pty, sys, termios
from glue.cli.process import terminal_echo

ours, theirs = pty.openpty()
os.dup2(theirs, 0)

def has_echo():
    return bool(termios.tcgetattr(0)[3] & termios.ECHO)

for before, shown in ((True, True), (True, False), (False, True), (False, False)):
    mode = termios.tcgetattr(0)
    mode[3] = mode[3] | termios.ECHO if before else mode[3] & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, mode)
    with terminal_echo(shown):
        inside = has_echo()
    print(inside == shown, has_echo() == before)
"""


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_blocked_thread_neither_keeps_the_process_alive_nor_loses_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    ran = run_program(BLOCKED)

    assert (ran.returncode, ran.stdout) == (7, "flushed\nthe log\n")
    assert ran.stderr == "an unfinished line"


def test_traces_are_sent_before_the_process_exits() -> None:
    pytest.importorskip("opentelemetry.sdk")

    ran = run_program(TRACED)

    assert (ran.returncode, ran.stdout) == (3, "sent\n")


@pytest.mark.parametrize("code", [0, 3])
def test_the_code_is_returned_if_all_threads_end(code: int) -> None:
    before = live_threads()
    thread = threading.Thread(target=lambda: None)
    thread.start()

    assert exit_code_despite_threads(code, before) == code


def test_threads_that_ran_before_are_not_waited_for() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    before = live_threads()

    code = exit_code_despite_threads(0, before)

    assert code == 0
    release.set()
    thread.join()


def test_the_first_signal_cancels_and_the_second_exits_without_private_folders() -> None:
    ran = run_program(SIGNALS)

    folder, *lines = ran.stdout.splitlines()
    assert (ran.returncode, lines) == (130, ["cancelled", "left"])
    assert not Path(folder).exists()


def test_the_echo_of_the_terminal_is_switched_during_a_block_only() -> None:
    ran = run_program(ECHO)

    assert (ran.stdout, ran.stderr) == ("True True\n" * 4, "")

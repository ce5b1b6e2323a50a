"""The process: cancel on a signal, exit despite blocked threads, switch the terminal's echo."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import anyio

from glue.limits import Outcome

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

GRACE = 0.5  # seconds that threads have to end


def live_threads() -> frozenset[threading.Thread]:
    """Return the running threads that are not daemons. Python waits for them before it exits."""
    return frozenset(thread for thread in threading.enumerate() if not thread.daemon)


def exit_code_despite_threads(code: int, before: Collection[threading.Thread]) -> int:
    """Return `code` if all new threads end within GRACE seconds; otherwise exit with `code`.

    A thread is new if it is not in `before`.
    """
    end = time.monotonic() + GRACE
    for thread in live_threads() - frozenset(before):
        if thread is not threading.current_thread():
            thread.join(max(end - time.monotonic(), 0))
            if thread.is_alive():
                exit_now(code)
    return code


def exit_now(code: int) -> NoReturn:
    """Flush output, send telemetry, remove sandbox folders, then exit without waiting for threads.

    Python waits for every thread that is not a daemon before it exits; a thread that is blocked
    would keep the process alive for ever.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    _shut_down_telemetry()
    logging.shutdown()
    _remove_private_folders()
    os._exit(code)


def _remove_private_folders() -> None:
    """Remove the temporary folders of sandboxes, if this process has loaded the sandbox module."""
    if "glue.tools.sandbox" in sys.modules:
        from glue.tools.sandbox import remove_private_folders  # loaded already

        remove_private_folders()


def _shut_down_telemetry() -> None:
    """Shut down the OpenTelemetry SDK, if it is loaded, so that it sends traces and metrics."""
    if "opentelemetry.sdk" not in sys.modules:
        return
    from opentelemetry import metrics, trace  # an optional dependency

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        shutdown = getattr(provider, "shutdown", None)
        if shutdown is not None:
            shutdown()


async def cancel_on_signal(
    cancel: Callable[[], object], leave: Callable[[], object], *, task_status: TaskStatus[None]
) -> None:
    """Call `cancel` at the first Ctrl-C or SIGTERM; call `leave` and exit at the second."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        await anext(signals)
        cancel()
        await anext(signals)
        leave()
        _remove_private_folders()
        os._exit(Outcome.CANCELLED.exit_code)


@contextmanager
def terminal_echo(shown: bool) -> Iterator[None]:
    """Switch the terminal's echo of typed keys on or off during a `with` block.

    Without echo, keys that the user types while an answer is printed do not appear in the answer.
    """
    import termios  # POSIX only

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    changed = [*before]
    changed[3] = changed[3] | termios.ECHO if shown else changed[3] & ~termios.ECHO
    if changed == before:
        yield  # setting the attributes would stop a process in the background
        return
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)

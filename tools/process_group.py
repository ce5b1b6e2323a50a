"""Process groups: start a child in a group of its own, and kill the whole group."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from glue.tools.landlock import start_confined

TICK = 0.05  # seconds between two checks of the stop flag and of the child's state
GRACE = 0.5  # seconds that processes have to end after a signal


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    stdin: int,
    stderr: int,
    pass_fds: Sequence[int] = (),
    memory: int = 0,
    rules: int = -1,
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group; the caller must end the group with `end_group`."""

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(env),
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )

    child = popen() if rules < 0 else start_confined(rules, popen)
    # prlimit is missing outside Linux, and fails if the child has ended already.
    with suppress(AttributeError, OSError, ValueError):
        if memory:
            # RLIMIT_DATA does not count mapped files, so git can still read large packs.
            resource.prlimit(child.pid, resource.RLIMIT_DATA, (memory, memory))
            resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))
    return child


def find_marked(mark: str) -> dict[int, str]:
    """Return the processes with the environment entry `mark`: process id -> command line.

    Only Linux shows the environment of other processes; elsewhere the result is empty.
    """
    found: dict[int, str] = {}
    entry = mark.encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if entry not in file.read(1024 * 1024).split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read(400).split(b"\0")
        except OSError:
            continue
        found[int(name)] = b" ".join(words).decode("utf-8", "replace").strip()
    return found


def end_marked(mark: str) -> None:
    """Kill the processes that `find_marked` returns until none is left or GRACE seconds passed."""
    until = time.monotonic() + GRACE
    while (found := find_marked(mark)) and time.monotonic() < until:
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(TICK / 10)


def has_exited(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a child process has ended; reap the child only if `os.waitid` is missing.

    The system cannot reuse the number of its process group until the child is reaped.
    """
    if child.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end_group(child: subprocess.Popen[bytes], *, polite: bool = False) -> None:
    """Kill a child and its process group, and reap the child; if `polite`, send SIGTERM first."""
    if child.returncode is None:
        if polite and not has_exited(child):
            _signal(child.pid, signal.SIGTERM)
            until = time.monotonic() + GRACE
            while not has_exited(child) and time.monotonic() < until:
                time.sleep(TICK / 10)
        _signal(child.pid, signal.SIGKILL)
    child.wait()
    until = time.monotonic() + GRACE
    while _signal(child.pid, 0) and time.monotonic() < until:  # until the whole group has ended
        time.sleep(TICK / 10)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group, and return whether the system accepted it.

    The result is False if the group has ended, or if this process may not send it signals.
    """
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True

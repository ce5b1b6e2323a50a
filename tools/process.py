"""Run a child process to its end, with a deadline and a limit on its output.

Before `run` returns, it kills the child, every process of its group and every marked process.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from glue.tasks import StopFlag
from glue.tools.process_group import TICK, end_group, end_marked, find_marked, has_exited, start

BLOCK = 64 * 1024
Sink = Callable[[bytes], bool]  # takes a block of output; returns whether to continue


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a child process; `reason` is empty if the child ended by itself."""

    code: int
    out: bytes
    err: bytes
    reason: str = ""  # "deadline", "cap", "enough" or "cancelled"
    seconds: float = 0.0
    left: tuple[str, ...] = ()  # command lines of marked processes that had to be killed


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    deadline: float,
    cap: int = 0,
    feed: bytes = b"",
    sink: Sink | None = None,
    merged: bool = False,
    stop: StopFlag | None = None,
    pass_fds: Sequence[int] = (),
    memory: int = 0,
    mark: str = "",
    rules: int = -1,
) -> Finished:
    """Run a program, kill it if it exceeds a limit, and return its exit code and its output.

    Args:
        argv: the program and its arguments.
        env: the child's whole environment.
        cwd: the folder in which the child runs.
        deadline: seconds until the child is killed.
        cap: bytes of standard output, unless there is a `sink`; the child is killed when it has
            printed as many.
        feed: bytes for its standard input.
        sink: receives standard output block by block instead of `Finished.out`, and returns
            whether to continue; the child is killed if not.
        merged: add standard error to standard output.
        stop: a flag that kills the child when another thread sets it.
        pass_fds: descriptors that the child inherits.
        memory: bytes of data that the child may allocate; 0 for no limit.
        mark: an entry of `env`, as `NAME=value`. Every process that has the entry is a descendant
            and is killed too, even if it left the group. The group gets SIGTERM first.
        rules: Landlock rules from `glue.tools.landlock.make_ruleset`; -1 for none.
    """
    began = time.monotonic()
    stdin = subprocess.PIPE if feed else subprocess.DEVNULL
    stderr = subprocess.STDOUT if merged else subprocess.PIPE
    child = start(
        argv,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stderr=stderr,
        pass_fds=pass_fds,
        memory=memory,
        rules=rules,
    )
    out, err, left = bytearray(), bytearray(), dict[int, str]()
    try:
        if child.stdin is not None:
            threading.Thread(
                target=_write, args=(child.stdin, feed), name="glue-feed", daemon=True
            ).start()
        reason = _read_output(child, began + deadline, cap, sink, stop, out, err)
    finally:
        left = find_marked(mark) if mark else {}
        end_group(child, polite=bool(mark))
        if left:
            end_marked(mark)
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()
    names = tuple(name for pid, name in left.items() if pid != child.pid)
    return Finished(
        child.returncode, bytes(out), bytes(err), reason, time.monotonic() - began, names
    )


def _write(pipe: IO[bytes], feed: bytes) -> None:
    with suppress(OSError), pipe:  # the child may end without reading all of its input
        pipe.write(feed)


def _read_output(
    child: subprocess.Popen[bytes],
    until: float,
    cap: int,
    sink: Sink | None,
    stop: StopFlag | None,
    out: bytearray,
    err: bytearray,
) -> str:
    """Store a child's output in `out` and `err`; return why reading stopped, "" if the child ended.

    The other results are "deadline", "cancelled", "cap" and "enough". `out` gets the standard
    output, unless there is a sink, and `err` the start of standard error.
    """
    silent = 0
    with selectors.DefaultSelector() as selector:
        for pipe in filter(None, (child.stdout, child.stderr)):
            selector.register(pipe, selectors.EVENT_READ)
        # A child may close its pipes and continue to run.
        while (pipes := selector.get_map()) or not has_exited(child):
            left = until - time.monotonic()
            if left <= 0:
                return "deadline"
            if stop:
                return "cancelled"
            ready = selector.select(min(left, TICK if pipes else TICK / 10))
            if not ready and has_exited(child):
                # A grandchild may keep the pipe open; the child's own output has arrived by now.
                silent += 1
                if silent > 1:
                    return ""
            for key, _ in ready:
                block = os.read(key.fd, BLOCK)
                if not block:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stderr:
                    err += block[: max(BLOCK - len(err), 0)]  # enough for an error message
                elif sink is not None:
                    if not sink(block):
                        return "enough"
                else:
                    out += block[: cap - len(out)]
                    if len(out) >= cap:
                        return "cap"
    return ""

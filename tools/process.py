"""Run a child process within bounds: its own group, a deadline, a cap on what is kept, and no way to outlive us.

Linux's Landlock confines it to reading some folders, so that links that are swapped in lead nowhere.
"""

from __future__ import annotations

import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, TypeVar

ResultT = TypeVar("ResultT")

BLOCK = 64 * 1024
TICK = 0.05  # how soon a cancelled call notices, and a child that left its pipe open
GRACE = 0.5  # how long what remains of a group has after TERM
Sink = Callable[[bytes], bool]

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
PRCTL = {"x86_64": 157, "aarch64": 167}
NO_NEW_PRIVS = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
HANDLED = (1 << 13) - 1  # what the first version knows: reading, running, writing, making and removing of all kinds
# Where programs and their libraries are.
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/nix/store")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a child ended; `reason` is empty where it ended by itself."""

    code: int
    out: bytes
    err: bytes
    reason: str = ""  # "deadline", "cap", "enough" or "cancelled"
    seconds: float = 0.0
    left: tuple[str, ...] = ()  # the commands that were still running and were ended, where a mark was given


class StopFlag(threading.Event):
    """A flag that ends a running child from another thread."""

    def __bool__(self) -> bool:
        return self.is_set()


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
    """Run a program and gather what it says, until it ends, says too much or takes too long.

    `sink` is handed standard output block by block instead of it being kept, and says whether to go on; `merged` has
    errors come with the output. `deadline` is in seconds. `mark` is an entry of `env` by which the child's own children
    are known, also those that left its group; they have time to end by themselves. `rules` come from `ruleset`.
    """
    began = time.monotonic()
    stdin = subprocess.PIPE if feed else subprocess.DEVNULL
    stderr = subprocess.STDOUT if merged else subprocess.PIPE
    bounds: dict[str, Any] = {"pass_fds": pass_fds, "memory": memory, "rules": rules}
    child = start(argv, env=env, cwd=cwd, stdin=stdin, stderr=stderr, **bounds)
    out, err, left = bytearray(), bytearray(), dict[int, str]()
    try:
        if child.stdin is not None:
            threading.Thread(target=_write, args=(child.stdin, feed), name="glue-feed", daemon=True).start()
        reason = _listen(child, began + deadline, cap, sink, stop, out, err)
    finally:
        left = marked(mark) if mark else {}
        end_group(child, polite=bool(mark))
        for pid in marked(mark) if left else ():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()
    names = tuple(name for pid, name in left.items() if pid != child.pid)
    return Finished(child.returncode, bytes(out), bytes(err), reason, time.monotonic() - began, names)


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
    """Start a program in a group of its own, with nothing of ours but what is given; end it with `end_group`."""

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

    child = popen() if rules < 0 else confined(rules, popen)
    # Maps of files are not counted, so large packs stay readable.
    with suppress(ImportError, AttributeError, OSError, ValueError):  # not Linux, or it has ended already
        import resource

        if memory:
            resource.prlimit(child.pid, resource.RLIMIT_DATA, (memory, memory))
            resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))
    return child


def _write(pipe: IO[bytes], feed: bytes) -> None:
    with suppress(OSError), pipe:  # a child that does not read to the end has its reasons
        pipe.write(feed)


def _listen(
    child: subprocess.Popen[bytes],
    until: float,
    cap: int,
    sink: Sink | None,
    stop: StopFlag | None,
    out: bytearray,
    err: bytearray,
) -> str:
    """Read what a child says into `out` and `err` or the sink, and say why no more is read."""
    silent = 0
    with selectors.DefaultSelector() as selector:
        for pipe in filter(None, (child.stdout, child.stderr)):
            selector.register(pipe, selectors.EVENT_READ)
        while (pipes := selector.get_map()) or not exited(child):  # it may close its pipes and go on
            left = until - time.monotonic()
            if left <= 0:
                return "deadline"
            if stop:
                return "cancelled"
            ready = selector.select(min(left, TICK if pipes else TICK / 10))
            if not ready and exited(child):
                # A grandchild may hold the pipe for ever; what was written is here by now.
                silent += 1
                if silent > 1:
                    return ""
            for key, _ in ready:
                block = os.read(key.fd, BLOCK)
                if not block:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stderr:
                    err += block[: max(BLOCK - len(err), 0)]  # errors are for a message, not for reading
                elif sink is not None:
                    if not sink(block):
                        return "enough"
                else:
                    out += block[: cap - len(out)]
                    if len(out) >= cap:
                        return "cap"
    return ""


def marked(mark: str) -> dict[int, str]:
    """Find the processes that have an entry in their environment, with their command lines; Linux alone tells."""
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


def exited(child: subprocess.Popen[bytes]) -> bool:
    """Say whether a child has ended, without reaping it: its group's number must not be given to others yet."""
    if child.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end_group(child: subprocess.Popen[bytes], *, polite: bool = False) -> None:
    """Kill a child with all of its group, and reap it."""
    if child.returncode is None:
        if polite and not exited(child):
            _signal(child.pid, signal.SIGTERM)
            until = time.monotonic() + GRACE
            while not exited(child) and time.monotonic() < until:
                time.sleep(TICK / 10)
        _signal(child.pid, signal.SIGKILL)
    child.wait()
    until = time.monotonic() + GRACE
    while _signal(child.pid, 0) and time.monotonic() < until:  # the others of the group, until they have heard it
        time.sleep(TICK / 10)


def _signal(group: int, number: int) -> bool:
    """Signal a group; say whether there was anyone to hear it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def in_thread(function: Callable[[StopFlag], ResultT]) -> ResultT:
    """Call a blocking function in a thread; on cancellation stop its child and wait until it is gone."""
    import anyio
    import anyio.to_thread

    from glue.tasks import background

    stop = StopFlag()

    async def watch() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()

    async with background() as tasks:
        tasks.start_soon(watch)
        return await anyio.to_thread.run_sync(function, stop)


# Landlock ------------------------------------------------------------------------------------------------


@cache
def has_landlock() -> bool:
    """Say whether the kernel has it switched on."""
    return is_known_linux() and syscall(CREATE_RULESET, None, 0, 1) >= 1


def ruleset(program: str, readable: Iterable[str | int]) -> int:
    """Make rules by which `program` runs and reads some folders, named or opened; -1 where there is no Landlock."""
    return _ruleset(program, readable) if has_landlock() and _starts(program) else -1


@cache
def _starts(program: str) -> bool:
    """Try a program that is not the system's own: its libraries may lie where it could not read them."""
    if os.path.realpath(program).startswith(tuple(f"{folder}/" for folder in SYSTEM)):
        return True
    rules = _ruleset(program, ())
    if rules < 0:
        return False
    quiet = subprocess.DEVNULL
    argv = [program, "--version"]
    try:
        child = confined(rules, lambda: subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet))
        return child.wait(10) == 0
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        os.close(rules)


def _ruleset(program: str, readable: Iterable[str | int]) -> int:
    rules = syscall(CREATE_RULESET, struct.pack("=Q", HANDLED), 8, 0)
    if rules < 0:
        return -1
    os.set_inheritable(rules, False)
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    for name in (*SYSTEM, *([prefix] if prefix.count("/") > 1 else [])):
        _allow(rules, name, EXECUTE | READ_FILE | READ_DIR)
    _allow(rules, os.devnull, READ_FILE | WRITE_FILE)
    for each in readable:
        _allow(rules, each, READ_FILE | READ_DIR)
    return rules


def _allow(rules: int, path: str | int, access: int) -> None:
    if isinstance(path, int):
        syscall(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", access, path), 0)
        return
    with suppress(OSError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            _allow(rules, fd, access if os.path.isdir(path) else access & ~READ_DIR)
        finally:
            os.close(fd)


def confined(rules: int, popen: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process under rules: they bind a thread of its own, and what that thread starts."""
    from concurrent.futures import ThreadPoolExecutor

    def work() -> subprocess.Popen[bytes]:
        if syscall(PRCTL[os.uname().machine], NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
            raise OSError("no_new_privs was refused")
        if syscall(RESTRICT_SELF, rules, 0) < 0:
            raise OSError("Landlock was refused")
        return popen()

    with ThreadPoolExecutor(1, "glue-landlock") as pool:
        return pool.submit(work).result()


def is_known_linux() -> bool:
    """Say whether calls may be made by number here."""
    return sys.platform.startswith("linux") and os.uname().machine in PRCTL


def syscall(number: int, *args: int | bytes | None) -> int:
    """Call the kernel; what it refuses is below 0."""
    import ctypes

    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in (number, *args)]
    found: int = ctypes.CDLL(None, use_errno=True).syscall(*words)
    return found

"""Run a child process within bounds: its own group, a deadline, a cap on what is kept, and no way to outlive us."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

ResultT = TypeVar("ResultT")

BLOCK = 64 * 1024
TICK = 0.05  # how soon a cancelled call notices, and a child that left its pipe open
GRACE = 0.5  # how long what remains of a group has after TERM
Sink = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a child ended; `reason` is empty where it ended by itself."""

    code: int
    out: bytes
    err: bytes
    reason: str = ""  # "deadline", "cap", "enough" or "cancelled"
    seconds: float = 0.0
    left: tuple[str, ...] = ()  # the commands that were still running and were ended, where a mark was given


class StopFlag:
    """A flag that ends a running child from another thread."""

    def __init__(self) -> None:
        self._flag = threading.Event()

    def set(self) -> None:
        self._flag.set()

    def __bool__(self) -> bool:
        return self._flag.is_set()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    deadline: float,
    cap: int,
    feed: bytes = b"",
    sink: Sink | None = None,
    both: Sink | None = None,
    stop: StopFlag | None = None,
    pass_fds: Sequence[int] = (),
    memory: int = 0,
    polite: bool = False,
    mark: str = "",
    rules: int = -1,
) -> Finished:
    """Run a program and gather what it says, until it ends, says too much or takes too long.

    `sink` is handed standard output block by block instead of it being kept, and says whether to go on; `both`
    likewise gets output and errors as they come. `polite` sends TERM before KILL. `deadline` is in seconds.
    `mark` is an entry of `env` by which the child's own children are known, also those that left its group;
    `rules` come from `glue.tools.landlock`.
    """
    began = time.monotonic()
    child = start(argv, env=env, cwd=cwd, pass_fds=pass_fds, memory=memory, stdin=bool(feed), rules=rules)
    talk = _Talk(child, cap, sink, both)
    left: dict[int, str] = {}
    try:
        reason = talk.listen(began + deadline, feed, stop)
    finally:
        left = marked(mark) if mark else {}
        end_group(child, polite=polite)
        for pid in marked(mark) if left else ():
            _kill(pid)
        talk.close()
    names = tuple(name for pid, name in left.items() if pid != child.pid)
    return Finished(child.returncode, bytes(talk.out), bytes(talk.err), reason, time.monotonic() - began, names)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    pass_fds: Sequence[int] = (),
    memory: int = 0,
    stdin: bool = False,
    stderr: bool = True,
    rules: int = -1,
) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own, with nothing of ours but what is given; end it with `end_group`."""

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr else subprocess.DEVNULL,
            env=dict(env),
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )

    if rules >= 0:
        from glue.tools import landlock

        child = landlock.popen(rules, popen)
    else:
        child = popen()
    _limit_memory(child.pid, memory)
    return child


class _Talk:
    """The pipes of one child."""

    def __init__(self, child: subprocess.Popen[bytes], cap: int, sink: Sink | None, both: Sink | None) -> None:
        self.child, self.cap, self.sink, self.both = child, cap, sink, both
        self.out, self.err = bytearray(), bytearray()

    def close(self) -> None:
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass

    def listen(self, until: float, feed: bytes, stop: StopFlag | None) -> str:
        view = memoryview(feed)
        with selectors.DefaultSelector() as selector:
            for pipe, mask in self._pipes():
                os.set_blocking(pipe, False)
                selector.register(pipe, mask)
            gone = 0
            while selector.get_map():
                left = until - time.monotonic()
                if left <= 0:
                    return "deadline"
                if stop:
                    return "cancelled"
                ready = selector.select(min(left, TICK))
                if not ready and exited(self.child):
                    # A grandchild may hold the pipe for ever; what was written is here by now.
                    gone += 1
                    if gone > 1:
                        return ""
                for key, _ in ready:
                    if self.child.stdin is not None and key.fd == self.child.stdin.fileno():
                        view = self._write(selector, view)
                    elif (reason := self._read(selector, key.fd)) is not None:
                        return reason
            while not exited(self.child):  # it closed its pipes and goes on
                if stop or time.monotonic() > until:
                    return "cancelled" if stop else "deadline"
                time.sleep(TICK / 10)
        return ""

    def _pipes(self) -> list[tuple[int, int]]:
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        pipes = [(self.child.stdout.fileno(), selectors.EVENT_READ), (self.child.stderr.fileno(), selectors.EVENT_READ)]
        if self.child.stdin is not None:
            pipes.append((self.child.stdin.fileno(), selectors.EVENT_WRITE))
        return pipes

    def _write(self, selector: selectors.BaseSelector, view: memoryview) -> memoryview:
        assert self.child.stdin is not None
        try:
            view = view[os.write(self.child.stdin.fileno(), view[:BLOCK]) :]
        except BlockingIOError:
            return view
        except OSError:
            view = view[:0]
        if not view:
            selector.unregister(self.child.stdin.fileno())
            self.child.stdin.close()
            self.child.stdin = None
        return view

    def _read(self, selector: selectors.BaseSelector, fd: int) -> str | None:
        assert self.child.stdout is not None
        try:
            block = os.read(fd, BLOCK)
        except BlockingIOError:
            return None
        if not block:
            selector.unregister(fd)
            return None
        if self.both is not None:
            return None if self.both(block) else "enough"
        if fd != self.child.stdout.fileno():
            self.err += block[: max(BLOCK - len(self.err), 0)]  # errors are for a message, not for reading
            return None
        if self.sink is not None:
            return None if self.sink(block) else "enough"
        self.out += block[: self.cap - len(self.out)]
        return "cap" if len(self.out) >= self.cap else None


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


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


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
    while _lives(child.pid) and time.monotonic() < until:  # the others of the group, until they have heard it
        time.sleep(TICK / 10)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def _limit_memory(pid: int, memory: int) -> None:
    """Limit what a child may allocate; maps of files are not counted, so large packs stay readable."""
    if not memory:
        return
    try:
        import resource

        resource.prlimit(pid, resource.RLIMIT_DATA, (memory, memory))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except (ImportError, AttributeError, OSError, ValueError):
        pass  # not Linux, or it has ended already


async def in_thread(function: Callable[[StopFlag], ResultT]) -> ResultT:
    """Call a blocking function in a thread; on cancellation stop its child and wait until it is gone."""
    import anyio
    import anyio.to_thread

    stop = StopFlag()

    async def watch() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            outcome = await anyio.to_thread.run_sync(_caught, function, stop)
        finally:
            group.cancel_scope.cancel()
    return outcome()


def _caught(function: Callable[[StopFlag], ResultT], stop: StopFlag) -> Callable[[], ResultT]:
    """Carry an exception past the task group, which would wrap it in a group."""
    try:
        value = function(stop)
    except Exception as error:
        failure = error

        def fail() -> ResultT:
            raise failure

        return fail
    return lambda: value

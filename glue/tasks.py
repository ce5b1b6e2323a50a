"""Helpers for tasks and threads, for cases that anyio does not support.

This is the only module that imports asyncio or trio. anyio lacks three things that glue needs: its
shielded cancel scopes do not protect against asyncio's own `task.cancel()`, its worker threads keep
a process alive, and it has no task that outlives the block that started it.

Blocking work runs in a thread through one of three functions:

- `in_thread` for the code of users: if the caller is cancelled, the thread is abandoned.
- `finish_in_thread` for writes: if the caller is cancelled, it still waits for the thread.
- `in_stoppable_thread` for work that can end early: if the caller is cancelled, it sets a flag that
  the work reads, then waits for the thread.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import wait
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import sniffio
from anyio.abc import TaskGroup

from glue.errors import GlueError, attach_result

T = TypeVar("T")

MAX_THREADS = 64  # functions that run at the same time through `in_thread`, in one event loop
_limiters: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("glue-tool-threads")
_IDLE_SECONDS = 10.0  # after which a worker thread without work ends
_SIGNAL_SECONDS = 0.2  # the longest time until a signal that did not wake the loop is handled
_EXIT_SECONDS = 0.2  # how long the end of a process waits for threads that still run
log = logging.getLogger("glue.tasks")


def on_asyncio() -> bool:
    """Return whether the running event loop is asyncio's; otherwise it is trio's."""
    return sniffio.current_async_library() == "asyncio"


class _AwaitedTask(asyncio.Task[T]):
    """A task that `asyncio.run` waits for instead of cancelling it.

    When `asyncio.run` ends, it cancels all tasks that are left, while the event loop is stopped.
    A timeout inside the task also calls `cancel`, but while the event loop runs.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        return super().cancel(msg) if self.get_loop().is_running() else False


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine to its end, then return its result or raise the caller's cancellation.

    If the caller is cancelled, the coroutine continues to its end, and its result is dropped.
    """
    if not on_asyncio():
        values = []
        with anyio.CancelScope(shield=True):
            values.append(await work)
        return values[0]
    task: asyncio.Task[T] = _AwaitedTask(work, loop=asyncio.get_running_loop())
    cancelled = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        task.exception()  # marks the exception as retrieved; the cancellation is raised instead
        raise cancelled
    return task.result()


def spawn(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start `function` as a task without a task group, and return. The function must not raise."""
    if on_asyncio():
        task = asyncio.ensure_future(function())
        _spawned.add(task)  # asyncio itself holds only a weak reference
        task.add_done_callback(_spawned.discard)
    else:
        import trio  # heavy and optional

        trio.lowlevel.spawn_system_task(function, context=copy_context())


_spawned: set[Any] = set()


@contextlib.asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """Yield a task group whose tasks run until the end of the block, and are then cancelled.

    An exception of the block is raised unchanged, not inside an exception group.
    """
    raised: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raised = error
        finally:
            tasks.cancel_scope.cancel()
    if raised is not None:
        raise raised


def caller() -> Callable[[Callable[[], object]], None]:
    """Return a function with which any thread can schedule calls in the current event loop.

    A signal handler may also call the returned function. Nothing is called if the loop has ended.
    """
    if on_asyncio():
        soon: Callable[..., object] = asyncio.get_running_loop().call_soon_threadsafe
    else:
        import trio  # heavy and optional

        soon = trio.lowlevel.current_trio_token().run_sync_soon

    def call(function: Callable[[], object]) -> None:
        # RuntimeError: the event loop has ended, and with it the task that waits for the call.
        with contextlib.suppress(RuntimeError):
            soon(function)

    return call


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function in a thread and return its result. A cancelled caller abandons the thread.

    An abandoned thread may continue, but its result is dropped. The thread is also abandoned if the
    process ends.
    """
    limiter = _limiters.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _limiters.set(limiter)
    async with limiter:
        return await _call_worker(function, args)


class StopFlag(threading.Event):
    """A flag that asks a function in another thread to end; it is true after `set()`."""

    def __bool__(self) -> bool:
        return self.is_set()


async def finish_in_thread(function: Callable[..., T], *args: Any, always: bool = False) -> T:
    """Call a function in a thread, wait for its end even if cancelled, and return its result.

    A cancellation is raised after the function has ended, and the function's result is dropped.
    If the cancellation comes before the thread has begun, the function is called only if `always`.
    """
    return await _finish(partial(function, *args), lambda: None, always=always)


async def in_stoppable_thread(function: Callable[..., T], *args: Any) -> T:
    """Call `function(flag, *args)` in a thread and return its result. A cancellation sets the flag.

    The cancellation is raised after the function has ended. The function checks the flag from time
    to time and returns early once it is set:

        def count(flag: StopFlag, path: str) -> int:
            lines = 0
            with open(path) as file:
                while not flag and file.readline():
                    lines += 1
            return lines

        lines = await in_stoppable_thread(count, "big.log")
    """
    flag = StopFlag()
    return await _finish(partial(function, flag, *args), flag.set, always=False)


async def _finish(work: Callable[[], T], on_cancel: Callable[[], None], *, always: bool) -> T:
    begun, ended, soon = threading.Lock(), anyio.Event(), caller()
    is_over = is_cancelled = False

    def run() -> T | None:
        nonlocal is_over
        if not begun.acquire(blocking=False):
            return None
        try:
            return work()
        finally:
            is_over = True
            if is_cancelled:  # otherwise anyio wakes the event loop, and a second time costs CPU
                soon(ended.set)

    def run_alone() -> None:
        try:
            run()
        except Exception:
            log.debug(
                "a function failed in a thread that continued after the cancellation of its caller",
                exc_info=True,
            )

    cancelled = anyio.get_cancelled_exc_class()
    try:
        # The thread belongs to anyio: it is not a daemon, so the process waits for it.
        value: Any = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    except cancelled:
        is_cancelled = True
        on_cancel()
        if always:
            # If the first thread has begun the work, this second thread does nothing.
            threading.Thread(target=run_alone, name="glue finish").start()
        elif begun.acquire(blocking=False):
            raise  # the work had not begun, and now cannot
        with anyio.CancelScope(shield=True):
            # The thread sets `is_over` and then reads `is_cancelled`. This task does it the other
            # way round, so at least one of the two notices the other.
            while not is_over and not ended.is_set():
                with contextlib.suppress(cancelled):
                    await ended.wait()
        raise
    result: T = value
    return result


async def _call_worker(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    ended, soon, context = anyio.Event(), caller(), copy_context()
    # No event loop runs in the thread, so `run_sync` of another agent may start one there.
    context.run(sniffio.current_async_library_cvar.set, None)
    values: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            values.append(context.run(function, *args))
        except BaseException as error:
            errors.append(error)

    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.inbox.put((work, lambda: soon(ended.set)))
    with _polling_for_signals():
        await ended.wait()
    if errors:
        raise errors[0]
    return values[0]


class _Worker(threading.Thread):
    """A daemon thread that calls one function after another, and ends after ten idle seconds."""

    def __init__(self) -> None:
        super().__init__(name="glue tool", daemon=True)
        self.inbox: SimpleQueue[tuple[Callable[[], None], Callable[[], None]]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            try:
                work, notify = self.inbox.get(timeout=_IDLE_SECONDS)
            except Empty:
                try:
                    _idle.remove(self)
                    return
                except ValueError:  # another task has just taken this worker
                    continue
            _busy.add(self)
            work()
            del work
            _busy.discard(self)
            _idle.append(self)
            notify()
            del notify


_idle: deque[_Worker] = deque()
_busy: set[_Worker] = set()


@atexit.register
def _stop_workers() -> None:
    """At the end of the process, raise SystemExit in busy worker threads and wait for them.

    The wait ends after `_EXIT_SECONDS`.

    The interpreter stops daemon threads at any point of their code. A thread that is stopped while
    it prints never releases the lock of stdout, and the interpreter aborts with a fatal error when
    it flushes stdout. A thread that waits or sleeps does not receive the exception. That is
    harmless, because such a thread does not hold the lock.
    """
    workers = tuple(_busy)
    if not workers:
        return
    import ctypes  # only needed here, and slow to load

    for worker in workers:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(worker.ident or 0), ctypes.py_object(SystemExit)
        )
    deadline = time.monotonic() + _EXIT_SECONDS
    while _busy and time.monotonic() < deadline:
        time.sleep(0.005)


@contextlib.contextmanager
def _polling_for_signals() -> Iterator[None]:
    """Wake the event loop regularly until the block ends: a signal does not always wake it.

    A signal that arrives just before asyncio begins to wait does not wake it. An event loop of
    `run_blocking` does not need this, because of `_woken_by_signals`. But the user may have started
    the current event loop.
    """
    if threading.current_thread() is not threading.main_thread() or not on_asyncio():
        yield
        return
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def wake() -> None:
        timers[:] = [loop.call_later(_SIGNAL_SECONDS, wake)]

    wake()
    try:
        yield
    finally:
        timers[0].cancel()


async def _woken_by_signals(main: Callable[[], Awaitable[T]]) -> T:
    """Await `main()` and return its result. Meanwhile, every signal wakes the event loop.

    Without this, a signal that arrives just before asyncio begins to wait does not wake asyncio.
    """
    if threading.current_thread() is not threading.main_thread() or not on_asyncio():
        return await main()  # trio does this itself
    loop = asyncio.get_running_loop()
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)
        loop.add_reader(receiver, lambda: receiver.recv(4096))
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            return await main()
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(receiver)


def run_blocking(
    function: Callable[[], Awaitable[T]], close: Callable[[], Awaitable[None]] | None = None
) -> T:
    """Run an async function in a new event loop and return its result.

    If the thread has a running event loop, the new event loop runs in another thread, and the
    running event loop is blocked until the end. `close` is awaited before the new event loop ends,
    to close the connections that were opened in it.
    """

    async def main() -> T:
        try:
            return await function()
        finally:
            if close is not None:
                await close()

    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        inside = False
        _refuse_second_loop()
    else:
        inside = True
    try:
        return _run_beside(main) if inside else anyio.run(_woken_by_signals, main)
    except GlueError as error:
        # A traceback shows this error alone; the errors of libraries below stay in __context__.
        raise error from None
    except KeyboardInterrupt as error:
        # asyncio raises KeyboardInterrupt in place of the cancellation, which has the result.
        if not hasattr(error, "result"):
            attach_result(error, getattr(error.__context__, "result", None))
        raise


def _refuse_second_loop() -> None:
    """Raise RuntimeError if another gevent greenlet of this thread runs an event loop.

    gevent switches greenlets while an event loop waits, but a thread can run only one event loop.
    """
    patched = getattr(sys.modules.get("gevent.monkey"), "is_module_patched", None)
    if patched is None or not patched("threading"):
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "another greenlet runs glue in this thread, and gevent cannot run two event loops in one "
        "thread; call gevent.get_hub().threadpool.apply(agent.run_sync, (prompt,))"
    )


def _run_beside(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main()` in another thread's event loop, wait for its end, and return its result.

    An interrupt in this thread cancels `main()`.
    """
    from anyio.from_thread import start_blocking_portal  # start-up: only needed here

    errors: list[BaseException] = []

    async def observed() -> T:
        try:
            return await main()
        except BaseException as error:
            errors.append(error)
            raise

    check = _cancellation_check()
    try:
        # An exception that leaves this block cancels the run and waits for its end.
        with start_blocking_portal() as portal:
            future = portal.start_task_soon(observed)
            while not wait([future], _SIGNAL_SECONDS).done:
                check()
            return future.result()
    except BaseException as error:
        for found in errors:
            if hasattr(found, "result"):
                attach_result(error, found.result)
        raise


def _cancellation_check() -> Callable[[], None]:
    """Return a function that raises CancelledError if the current asyncio task was cancelled.

    asyncio handles an interrupt by cancelling the task, but a blocked task does not receive the
    cancellation. With trio, the returned function does nothing.
    """
    if on_asyncio():
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0

        def check() -> None:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError

        return check
    return lambda: None

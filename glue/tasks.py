"""Tasks and threads beneath anyio: writes that complete, threads that can be left behind, calls from outside the loop.

The one module that knows asyncio and trio by name. anyio's scopes do not hold off asyncio's own `task.cancel()`, its
worker threads keep a process alive, and it has no task that outlives the block it was started in.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import sniffio
from anyio.abc import TaskGroup

from glue.errors import GlueError, attach_result

T = TypeVar("T")

THREADS = 64  # of tools at a time, in one event loop
_limiters: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("glue-tool-threads")


def on_asyncio() -> bool:
    return sniffio.current_async_library() == "asyncio"


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Await something to its end, whatever is cancelled meanwhile; the cancellation is raised afterwards."""
    if not on_asyncio():
        values = []
        with anyio.CancelScope(shield=True):
            values.append(await work)
        return values[0]
    import asyncio

    task, cancelled = asyncio.ensure_future(work), None
    asyncio.tasks._unregister_task(task)  # `asyncio.run` cancels every task that it finds when it ends
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        task.exception()  # seen, so that asyncio does not complain; the first error wins
        raise cancelled
    return task.result()


def spawn(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start a task that belongs to the event loop, not to the block it was started in; it must not raise."""
    if on_asyncio():
        import asyncio

        task = asyncio.ensure_future(function())
        _running.add(task)  # asyncio itself holds tasks weakly
        task.add_done_callback(_running.discard)
    else:
        import trio

        trio.lowlevel.spawn_system_task(function, context=copy_context())


_running: set[Any] = set()


@contextlib.asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """Run tasks beside a block and cancel them at its end; what the block raises comes out as it is, in no group."""
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
    """Give a function that has another called in this event loop; it may be used in any thread or signal handler."""
    if on_asyncio():
        import asyncio

        soon: Callable[..., object] = asyncio.get_running_loop().call_soon_threadsafe
    else:
        import trio

        soon = trio.lowlevel.current_trio_token().run_sync_soon

    def call(function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and whoever was to hear of it with it
            soon(function)

    return call


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function in a thread that is left behind when the call is cancelled, or when the process ends."""
    limiter = _limiters.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(THREADS)
        _limiters.set(limiter)
    async with limiter:
        return await _call_in_thread(function, args)


async def _call_in_thread(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    ended, soon, context = anyio.Event(), caller(), copy_context()
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
    with _hearing_signals():
        await ended.wait()
    if errors:
        raise errors[0]
    return values[0]


@contextlib.contextmanager
def _hearing_signals() -> Iterator[None]:
    """Have asyncio look for signals while only a thread may wake it: one that comes right before it waits is not heard.

    `run_sync` does better (`_woken_by_signals`), but this loop is the caller's.
    """
    if threading.current_thread() is not threading.main_thread() or not on_asyncio():
        yield
        return
    import asyncio

    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def look() -> None:
        timers[:] = [loop.call_later(_LOOK_SECONDS, look)]

    look()
    try:
        yield
    finally:
        timers[0].cancel()


class _Worker(threading.Thread):
    """A thread that calls one function after the other, and ends when nobody needs it for a while."""

    def __init__(self) -> None:
        super().__init__(name="glue tool", daemon=True)
        self.inbox: SimpleQueue[tuple[Callable[[], None], Callable[[], None]]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            try:
                work, told = self.inbox.get(timeout=_IDLE_SECONDS)
            except Empty:
                try:
                    _idle.remove(self)
                    return
                except ValueError:  # taken just now
                    continue
            work()
            del work
            _idle.append(self)
            told()
            del told


_idle: deque[_Worker] = deque()
_IDLE_SECONDS = 10.0
_LOOK_SECONDS = 0.2  # until an interrupt that was missed is heard


async def _woken_by_signals(main: Callable[[], Awaitable[T]]) -> T:
    """Wake the loop for each signal: one that comes right before it waits would be heard only with the next event."""
    if threading.current_thread() is not threading.main_thread() or not on_asyncio():
        return await main()  # trio does this itself
    import asyncio
    import signal
    import socket

    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        loop.add_reader(ours, lambda: ours.recv(4096))
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            return await main()
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(ours)


def run_blocking(function: Callable[[], Awaitable[T]], close: Callable[[], Awaitable[None]] | None = None) -> T:
    """Run an async function to its end in an event loop of its own, beside one that runs in this thread.

    `close` is awaited before the loop ends, for what was opened in it.
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
    else:
        inside = True
    try:
        return _run_beside(main) if inside else anyio.run(_woken_by_signals, main)
    except GlueError as error:  # its line alone is shown; what a library below has said is still its __context__
        raise error from None
    except KeyboardInterrupt as error:  # asyncio puts it in the place of the cancellation, which has the result
        if not hasattr(error, "result"):
            attach_result(error, getattr(error.__context__, "result", None))
        raise


def _run_beside(main: Callable[[], Awaitable[T]]) -> T:
    """Run an event loop in a thread while the one of this thread stands still; an interrupt here cancels that run."""
    from concurrent.futures import wait

    from anyio.from_thread import start_blocking_portal

    errors: list[BaseException] = []

    async def observed() -> T:
        try:
            return await main()
        except BaseException as error:
            errors.append(error)
            raise

    cancelled = _cancellation()
    try:
        with start_blocking_portal() as portal:  # leaving it by an exception cancels the run and waits for its end
            future = portal.start_task_soon(observed)
            while not wait([future], _LOOK_SECONDS).done:
                cancelled()
            return future.result()
    except BaseException as error:
        for found in errors:
            if hasattr(found, "result"):
                attach_result(error, found.result)
        raise


def _cancellation() -> Callable[[], None]:
    """Give what raises when this task was cancelled: asyncio's answer to an interrupt, which no blocked task hears."""
    if on_asyncio():
        import asyncio

        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0

        def check() -> None:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError

        return check
    return lambda: None

"""Tests of tasks that complete, threads that finish or are abandoned, and blocking calls."""

from __future__ import annotations

import asyncio  # noqa: TID251
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from types import ModuleType

import anyio
import anyio.to_thread
import pytest

from glue.tasks import (
    StopFlag,
    background,
    caller,
    complete,
    finish_in_thread,
    in_stoppable_thread,
    in_thread,
    run_blocking,
    spawn,
)


class Work:
    """A blocking function of a test: it announces its start and waits until it may end."""

    def __init__(self) -> None:
        self.begun, self.release, self.ended = (threading.Event() for _ in range(3))

    def __call__(self, value: str = "value") -> str:
        self.begun.set()
        assert self.release.wait(10)
        self.ended.set()
        return value


async def wait_for(event: threading.Event) -> None:
    while not event.is_set():
        await anyio.sleep(0.001)


async def cancelled_by_scope(work: Work, call: Callable[[], Awaitable[object]]) -> None:
    """Cancel the scope of a call once its thread has begun, then let the thread end."""
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            await call()

        tasks.start_soon(start)
        await wait_for(work.begun)
        tasks.cancel_scope.cancel()
        threading.Timer(0.05, work.release.set).start()


async def test_in_thread_returns_the_result() -> None:
    assert await in_thread(lambda text: text.upper(), "a") == "A"


async def test_a_cancelled_in_thread_abandons_its_thread() -> None:
    work = Work()

    await cancelled_by_scope(work, lambda: in_thread(work))

    assert not work.ended.is_set()
    work.release.set()


async def test_finish_in_thread_returns_the_result() -> None:
    assert await finish_in_thread(lambda text: text.upper(), "a") == "A"


async def test_finish_in_thread_raises_the_error_of_the_function() -> None:
    with pytest.raises(ZeroDivisionError):
        await finish_in_thread(lambda: 1 / 0)


async def test_a_cancelled_finish_in_thread_waits_for_the_end_of_its_function() -> None:
    work = Work()

    await cancelled_by_scope(work, lambda: finish_in_thread(work))

    assert work.ended.is_set()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_finish_in_thread_waits_although_the_task_is_cancelled_again_and_again() -> None:
    work = Work()
    task = asyncio.ensure_future(finish_in_thread(work))
    await wait_for(work.begun)

    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
    still_waiting = not task.done()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert still_waiting
    assert work.ended.is_set()


@pytest.mark.parametrize("always", [False, True])
async def test_a_function_that_was_cancelled_before_it_began_runs_only_if_always(
    always: bool,
) -> None:
    ran: list[str] = []
    limiter = anyio.to_thread.current_default_thread_limiter()
    tokens = limiter.total_tokens
    limiter.total_tokens = 1
    try:
        async with anyio.create_task_group() as tasks:
            await limiter.acquire_on_behalf_of(tasks)  # no thread is free

            async def call() -> None:
                await finish_in_thread(lambda: ran.append("ran"), always=always)

            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        limiter.release_on_behalf_of(tasks)
    finally:
        limiter.total_tokens = tokens

    assert ran == (["ran"] if always else [])


async def test_a_cancelled_stoppable_function_sees_the_flag_and_is_waited_for() -> None:
    work = Work()
    seen: list[bool] = []

    def count(flag: StopFlag, start: int) -> int:
        work.begun.set()
        seen.append(bool(flag))
        flag.wait(10)
        seen.append(bool(flag))
        return start

    await cancelled_by_scope(work, lambda: in_stoppable_thread(count, 1))

    assert seen == [False, True]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stoppable_function_is_stopped_by_a_task_that_is_cancelled() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(flag: StopFlag) -> None:
        begun.set()
        flag.wait(10)
        ended.set()

    task = asyncio.ensure_future(in_stoppable_thread(work))
    await wait_for(begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended.is_set()


async def test_in_stoppable_thread_returns_the_result() -> None:
    assert await in_stoppable_thread(lambda flag, text: text.upper(), "a") == "A"


async def test_complete_returns_the_result() -> None:
    async def work() -> str:
        await anyio.sleep(0)
        return "done"

    assert await complete(work()) == "done"


async def test_complete_raises_the_error_of_the_work() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await complete(work())


async def test_a_cancelled_complete_lets_its_work_end() -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")
        await anyio.sleep(0.01)
        steps.append("ended")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(complete, work())
        while not steps:
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()

    assert steps == ["begun", "ended"]


def test_the_end_of_asyncio_run_waits_for_work_in_a_forgotten_task() -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")
        await asyncio.sleep(0.01)
        steps.append("ended")

    async def main() -> asyncio.Task[None]:
        task = asyncio.ensure_future(complete(work()))
        while not steps:
            await asyncio.sleep(0)
        return task

    task = asyncio.run(main())

    assert steps == ["begun", "ended"]
    assert task.cancelled()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_timeout_inside_completed_work_still_holds() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            with anyio.move_on_after(0.01):
                await anyio.sleep(10)
            return "timed out twice"
        return "never"

    assert await complete(work()) == "timed out twice"


PRINTING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import anyio
from glue.tasks import in_thread

def chatter():
    while True:
        print("line", flush=True)

async def main():
    await in_thread(chatter)

anyio.run(main)
"""


def test_an_interrupt_while_an_abandoned_thread_prints_does_not_abort_the_interpreter() -> None:
    # Without a buffer stdout has no lock, and the fault would not show.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    child = subprocess.Popen(
        [sys.executable, "-c", PRINTING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "line\n"
    child.send_signal(signal.SIGINT)

    _, err = child.communicate(timeout=20)

    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_second_event_loop_in_a_greenlet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gevent = ModuleType("gevent.monkey")
    gevent.is_module_patched = lambda name: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gevent.monkey", gevent)
    raised: list[RuntimeError] = []

    async def work() -> str:
        return "done"

    def attempt() -> None:
        try:
            run_blocking(work)
        except RuntimeError as error:
            raised.append(error)

    async def other_greenlet() -> None:
        # A callback runs in the thread of the loop but in no task, as another greenlet would.
        asyncio.get_running_loop().call_soon(attempt)
        while not raised:
            await asyncio.sleep(0)

    assert run_blocking(work) == "done"
    asyncio.run(other_greenlet())

    assert "another greenlet runs glue in this thread" in str(raised[0])


async def test_a_spawned_task_that_waits_is_not_collected() -> None:
    begun = anyio.Event()
    kept: list[weakref.ref[anyio.Event]] = []

    async def work() -> None:
        never = anyio.Event()  # only this task refers to it
        kept.append(weakref.ref(never))
        begun.set()
        await never.wait()

    spawn(work)
    await begun.wait()
    del work
    await anyio.wait_all_tasks_blocked()
    gc.collect()

    assert kept[0]() is not None


def test_a_blocking_call_restores_the_descriptor_that_signals_wake() -> None:
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        outer = signal.set_wakeup_fd(sender.fileno())
        try:
            run_blocking(lambda: in_thread(str))
            assert signal.set_wakeup_fd(outer) == sender.fileno()
        finally:
            signal.set_wakeup_fd(outer)


async def test_an_error_after_the_caller_was_cancelled_is_logged_for_developers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "glue.tasks")
    limiter = anyio.to_thread.current_default_thread_limiter()
    tokens = limiter.total_tokens
    limiter.total_tokens = 1

    def fail() -> None:
        raise OSError("the disk is full")

    try:
        async with anyio.create_task_group() as tasks:
            await limiter.acquire_on_behalf_of(tasks)  # no thread is free

            async def call() -> None:
                await finish_in_thread(fail, always=True)

            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        limiter.release_on_behalf_of(tasks)
    finally:
        limiter.total_tokens = tokens

    for thread in threading.enumerate():
        if thread.name == "glue finish":
            thread.join(5)
    assert "the disk is full" in caplog.text


async def test_a_background_task_is_cancelled_at_the_end_of_its_block() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("ended")

    async with background() as tasks:
        tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        assert ended == []
    assert ended == ["ended"]
    with pytest.raises(KeyError, match="mine"):  # not in an exception group
        async with background() as tasks:
            tasks.start_soon(work)
            raise KeyError("mine")


async def test_a_function_is_called_in_the_event_loop_from_any_thread() -> None:
    called, threads = anyio.Event(), list[int]()

    def act() -> None:
        threads.append(threading.get_ident())
        called.set()

    schedule = caller()
    await anyio.to_thread.run_sync(schedule, act)
    with anyio.fail_after(5):
        await called.wait()

    assert threads == [threading.get_ident()]


def test_a_call_for_an_event_loop_that_has_ended_is_ignored() -> None:
    async def main() -> Callable[[Callable[[], object]], None]:
        return caller()

    schedule = anyio.run(main)
    schedule(lambda: None)


async def test_a_spawned_task_that_has_ended_is_not_kept() -> None:
    ended = anyio.Event()

    async def work() -> None:
        ended.set()

    waiting = work()
    kept = weakref.ref(waiting)
    spawn(lambda coroutine=waiting: coroutine)  # type: ignore[misc]
    del waiting
    await ended.wait()
    await anyio.wait_all_tasks_blocked()
    gc.collect()

    assert kept() is None


def test_an_error_of_completed_work_is_dropped_if_the_task_was_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            await go_on.wait()
            raise ValueError("too late")

        task = asyncio.create_task(complete(work()))
        await begun.wait()
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gc.collect()

    assert "never retrieved" not in caplog.text


async def test_no_timer_is_left_after_a_call_in_a_thread() -> None:
    assert await in_thread(str) == ""

    left = [
        each
        for each in gc.get_objects()
        if isinstance(each, asyncio.TimerHandle) and not each.cancelled() and "wake" in repr(each)
    ]
    assert left == []


def test_many_signals_at_once_print_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        for _ in range(5_000):  # more than the socket that wakes the event loop can hold
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        run_blocking(main)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert capfd.readouterr().err == ""

"""What holds at the edges of sessions: cancels, stores that fail, kills, queues, scopes (rows 116 to 133)."""

from __future__ import annotations

import asyncio  # noqa: TID251
import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

import glue
from glue import (
    Agent,
    Ask,
    AssistantMessage,
    FileStore,
    Limits,
    MemoryStore,
    Message,
    Outcome,
    PermissionRequest,
    SQLiteStore,
    UserMessage,
    allow,
    tool,
)
from glue.errors import (
    BudgetExceeded,
    Cancelled,
    EmptyReply,
    GlueError,
    InvalidContinuation,
    MaxTurnsExceeded,
    ProviderError,
    SessionBusy,
    StoreError,
)
from glue.events import Event, RunEnd, ToolStart
from glue.loop.transcript import CONTINUE
from glue.prompts import Prompt
from glue.stores.store import Log
from glue.testing import Script, call, calls, fail, repeat, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    await anyio.lowlevel.checkpoint()
    return "ok"


def assert_answered(messages: Sequence[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            assert not waiting
            waiting = [part.id for part in message.calls]
        elif isinstance(message, UserMessage):
            assert not waiting
        else:
            assert waiting.pop(0) == message.call_id
    assert not waiting


SCRIPT = (calls("noop", "noop", text="first "), say("half ", stop="max_tokens"), say("and half"))


# Row 116: asyncio's own cancel --------------------------------------------------------------------


class Stepped:
    """Runs a coroutine on asyncio and cancels it at its n-th suspension, by `task.cancel()` or a timeout."""

    def __init__(self, at: int) -> None:
        self.at, self.steps = at, 0

    def __call__(self, make: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        async def main() -> Any:
            task = asyncio.ensure_future(make())
            while not task.done():
                await asyncio.sleep(0)
                self.steps += 1
                if self.steps == self.at:
                    task.cancel()
            return await task

        try:
            return asyncio.run(main()), None
        except BaseException as error:
            return None, error


@pytest.mark.parametrize("sync", [True, False])
def test_s116_a_cancelled_task_leaves_list_and_store_valid_and_equal(tmp_path: Path, sync: bool) -> None:
    whole = Stepped(0)
    whole(
        lambda: (
            Agent(Script(*SCRIPT), tools=[noop]).session("s", store=FileStore(tmp_path / "0", sync=sync)).prompt("go")
        )
    )
    places = range(
        1, whole.steps + 1, max(whole.steps // 60, 1)
    )  # while a thread writes, the loop goes round and round

    for at in places:
        store = FileStore(tmp_path / f"{at}", sync=sync)
        events: list[Event] = []
        session = Agent(Script(*SCRIPT), tools=[noop]).session("s", store=store)

        result, error = Stepped(at)(lambda: session.prompt("go", on_event=events.append))  # noqa: B023

        if error is not None:
            assert isinstance(error, asyncio.CancelledError), repr(error)
            result = getattr(error, "result", None)
        stored = asyncio.run(session.load())
        ends = [event for event in events if isinstance(event, RunEnd)]
        if result is None:  # before anything was begun
            assert (stored, ends) == ((), [])
        else:
            assert list(stored) == list(result.messages), at
            assert_answered(stored)
            assert len(ends) == 1
        again = Agent(Script(repeat("fine"))).session("s", store=store)
        assert asyncio.run(again.prompt("and now?")).text == "fine"


async def cancelled_while_left(session: Any) -> None:
    session._log._writer.blocks = True
    leave = session._log.__aexit__

    async def slow(*given: Any) -> None:
        task.cancel()
        await asyncio.sleep(0)
        await leave(*given)

    session._log.__aexit__ = slow
    task = asyncio.ensure_future(session.prompt("go"))
    await task


def test_s116_the_first_error_wins_over_a_cancel_while_the_store_is_left() -> None:
    session = Agent(Script(calls("noop"), ZeroDivisionError("bug")), tools=[noop]).session("s")

    with pytest.raises(ZeroDivisionError, match="bug") as caught:
        asyncio.run(cancelled_while_left(session))

    assert asyncio.run(session.load()) == caught.value.result.messages  # type: ignore[attr-defined]


def test_s116_a_cancel_while_the_store_is_left_carries_the_result() -> None:
    session = Agent(Script("fine")).session("s")

    with pytest.raises(asyncio.CancelledError) as caught:
        asyncio.run(cancelled_while_left(session))

    assert getattr(caught.value, "result", None) is session.last
    assert session.last is not None
    assert session.last.text == "fine"
    assert asyncio.run(session.load()) == session.last.messages


@pytest.mark.parametrize("steps", range(0, 40, 4))
def test_s116_a_run_that_ends_with_its_event_loop_ends_well(tmp_path: Path, steps: int) -> None:
    """`asyncio.run` cancels every task that there is when it ends, also while a run is being ended."""

    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            started.set()
            await anyio.sleep_forever()
            return ""

        session = Agent(Script(calls("wait", "noop")), tools=[wait, noop]).session("demo", store=FileStore(tmp_path))
        prompt = asyncio.ensure_future(session.prompt("go"))
        await started.wait()
        prompt.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)

    asyncio.run(main())

    messages = asyncio.run(FileStore(tmp_path).load("demo"))
    assert shape(messages) == "u a t t"
    assert_answered(messages)


def test_s116_a_timeout_is_a_timeout(tmp_path: Path) -> None:
    for at in range(40):
        session = Agent(Script(*SCRIPT), tools=[noop]).session("s", store=FileStore(tmp_path / f"{at}"))

        async def main(seconds: float) -> None:
            async with asyncio.timeout(seconds):
                await session.prompt("go")  # noqa: B023

        try:
            asyncio.run(main(at * 0.0005))
        except TimeoutError as error:
            cause = error.__cause__ or error.__context__  # the first releases of Python 3.11 set no cause
            assert isinstance(cause, asyncio.CancelledError)
        stored = asyncio.run(session.load())
        assert_answered(stored)


def test_a_second_cancel_does_not_stop_the_ending() -> None:
    seen: list[str] = []

    async def until(what: str) -> None:
        while what not in seen:
            await asyncio.sleep(0)

    class Slow(MemoryStore):
        def log(self, id: str, **more: Any) -> Log:
            log = super().log(id, **more)
            amend = log.amend

            async def slow(*args: Any) -> None:
                seen.append("amend")
                await until("cancelled twice")
                await amend(*args)

            log.amend = slow  # type: ignore[method-assign, assignment]
            log._writer.blocks = True  # type: ignore[misc]
            return log

    @tool
    async def hang() -> str:
        """Hang."""
        seen.append("hang")
        await anyio.sleep_forever()
        return ""

    session = Agent(Script(calls("hang")), tools=[hang]).session("s", store=Slow())

    async def main() -> Any:
        task = asyncio.ensure_future(session.prompt("go"))
        await until("hang")
        task.cancel()
        await until("amend")
        task.cancel()
        await asyncio.sleep(0)
        seen.append("cancelled twice")
        return await task

    with pytest.raises(asyncio.CancelledError) as caught:
        asyncio.run(main())

    stored = asyncio.run(session.load())
    assert stored == caught.value.result.messages  # type: ignore[attr-defined]
    assert stored[1].stop_reason == "cancelled"  # type: ignore[union-attr]


async def test_a_prompt_in_a_cancelled_scope_asks_nobody(tmp_path: Path) -> None:
    script = Script("x")
    session = Agent(script).session("s", store=FileStore(tmp_path))

    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.prompt("go")

    assert scope.cancelled_caught
    assert (script.requests, session.messages) == ([], ())


# Row 118: a store that fails ----------------------------------------------------------------------


class Failing:
    """A file store whose disk is full at one of its writes."""

    def __init__(self, folder: Path, failing: int, number: int) -> None:
        self.store, self.failing, self.number, self.writes = FileStore(folder), failing, number, 0

    def log(self, id: str, **more: Any) -> Log:
        log = self.store.log(id, **more)
        write = log._writer.write

        def fails(records: Any) -> None:
            self.writes += 1
            if self.writes - 1 == self.failing:
                raise OSError(self.number, os.strerror(self.number))
            write(records)

        log._writer.write = fails  # type: ignore[method-assign]
        return log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_s118_a_full_disk_says_so_and_the_store_is_a_valid_prefix(tmp_path: Path, number: int) -> None:
    whole = Failing(tmp_path / "whole", -1, number)
    limits = Limits(max_requests=2)
    done = (
        await Agent(Script(*SCRIPT), tools=[noop], limits=limits).session("s", store=whole).prompt("go", unwrap=False)
    )

    for failing in range(1, whole.writes):
        store = Failing(tmp_path / f"{failing}", failing, number)
        events: list[Event] = []
        session = Agent(Script(*SCRIPT), tools=[noop], limits=limits).session("s", store=store)

        with pytest.raises((OSError, StoreError)) as caught:
            await session.prompt("go", on_event=events.append)

        cause = caught.value if isinstance(caught.value, OSError) else caught.value.__cause__
        assert isinstance(cause, OSError)
        assert cause.errno == number
        result = caught.value.result  # type: ignore[attr-defined]
        assert len([event for event in events if isinstance(event, RunEnd)]) == 1
        assert_answered(result.messages)
        stored = await store.load("s")
        assert [type(m) for m in stored][:4] == [type(m) for m in (*done.messages, None)][: len(stored)][:4]
        again = Agent(Script(repeat("fine"))).session("s", store=FileStore(tmp_path / f"{failing}"))
        assert (await again.prompt("and now?")).text == "fine"
        assert_answered(await again.load())


# Rows 127, 128, 133: resuming ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
async def test_s127_a_session_resumes_in_another_process_where_the_chain_was_cut(tmp_path: Path, kind: str) -> None:
    kept, db = MemoryStore(), SQLiteStore(tmp_path / "s.db")

    def store() -> Any:
        return FileStore(tmp_path) if kind == "file" else kept if kind == "memory" else db

    first = Agent(Script(say("one ", stop="max_tokens")), limits=Limits(max_requests=1)).session("s", store=store())
    with pytest.raises(MaxTurnsExceeded):
        await first.prompt("go")
    script = Script("two")

    result = await Agent(script).session("s", store=store()).resume()

    assert [message.text for message in script.requests[0].messages] == ["go", "one ", CONTINUE]
    assert (result.text, shape(result.messages)) == ("one two", "u a u+ a")
    assert await store().load("s") == result.messages
    with pytest.raises(InvalidContinuation):
        await Agent(Script("x")).session("s", store=store()).resume()


async def test_s127_a_session_resumes_after_a_failed_request() -> None:
    session = Agent(Script(fail("transient"), "fine")).session()
    with pytest.raises(ProviderError):
        await session.prompt("go")

    result = await session.resume()

    assert (result.text, shape(result.messages)) == ("fine", "u a")
    assert result.messages == await session.load()


async def test_s128_an_earlier_prompt_that_failed_is_no_part_of_a_run() -> None:
    session = Agent(Script(fail("transient"), say("no", stop="refusal"), "fine")).session()
    with pytest.raises(ProviderError):
        await session.prompt("one")

    refused = await session.prompt("two")

    assert (refused.outcome, [m.text for m in refused.new_messages]) == (Outcome.REFUSED, ["two", "no"])
    assert [(m.text, m.excluded) for m in await session.load()] == [("one", False), ("two", True), ("no", True)]


async def test_a_bug_of_the_provider_does_not_drop_the_prompt() -> None:
    session = Agent(Script(TypeError("a bug"))).session()

    with pytest.raises(TypeError, match="a bug") as caught:
        await session.prompt("go")

    assert [message.text for message in await session.load()] == ["go"]
    assert caught.value.result.new_messages == await session.load()  # type: ignore[attr-defined]


async def test_a_prompt_that_is_refused_at_once_is_not_stored() -> None:
    session = Agent(Script("x")).session()

    for wrong in ("", " "):
        with pytest.raises(ValueError, match="it is empty"):
            await session.prompt(wrong)

    assert await session.load() == ()


async def test_an_overlong_prompt_does_not_poison_the_session() -> None:
    script = Script("hi", fail("context_overflow"), "fine")
    session = Agent(script).session()
    await session.prompt("hello")
    overlong = await session.prompt("x" * 1000, unwrap=False)

    result = await session.prompt("short")

    assert "left out of later requests" in overlong.notice
    assert result.text == "fine"
    assert [message.text for message in script.requests[-1].messages] == ["hello", "hi", "short"]


KILLED = """
import os, signal, sys
import glue
from glue.testing import Script, calls

@glue.tool
async def die() -> str:
    "Die."
    os.kill(os.getpid(), signal.SIGKILL)

agent = glue.Agent(Script(calls("die", "die")), tools=[die], limits=glue.Limits(parallel_tools=1))
agent.session("s", store=glue.FileStore(sys.argv[1])).prompt_sync("go")
"""


@pytest.mark.parametrize("resumed", [True, False])
async def test_s133_every_call_of_a_killed_run_has_its_result(tmp_path: Path, resumed: bool) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    script = Script("fine")
    session = Agent(script, tools=[noop]).session("s", store=FileStore(tmp_path))

    result = await (session.resume() if resumed else session.prompt("and now?"))

    stored = await session.load()
    assert stored == result.messages
    assert shape(stored) == ("u a t t a" if resumed else "u a t t u a")
    assert_answered(stored)
    assert [m.text for m in stored[2:4]] == ["no result was recorded for this call"] * 2
    assert result.new_messages[0].text == (stored[2].text if resumed else "and now?")


# Row 130: events when they happen -----------------------------------------------------------------


async def test_s130_the_start_of_a_slow_tool_is_read_before_it_ends() -> None:
    read = anyio.Event()

    @tool
    async def slow() -> str:
        """Wait for the reader."""
        await read.wait()
        return "ok"

    with anyio.fail_after(5):
        async with Agent(Script(calls("slow"), "x"), tools=[slow]).stream("go") as events:
            async for event in events:
                if isinstance(event, ToolStart):
                    read.set()

    assert events.result.text == "x"


async def test_a_stream_may_be_closed_from_another_task() -> None:
    @tool
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    events = Agent(Script(calls("hang")), tools=[hang]).stream("go")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.__aenter__)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(events.__aexit__, None, None, None)

    with pytest.raises(Cancelled):
        assert events.result


@pytest.mark.parametrize("error", [SystemExit(3), ZeroDivisionError()])
async def test_what_ends_a_streamed_run_is_raised_where_it_is_read(error: BaseException) -> None:
    @tool
    async def leave() -> str:
        """Leave."""
        raise error

    script = Script(error) if isinstance(error, Exception) else Script(calls("leave"))
    with pytest.raises(type(error)):
        async with Agent(script, tools=[leave]).stream("go") as events:
            async for _ in events:
                pass


# 14: "for this session" ---------------------------------------------------------------------------


async def test_a_yes_for_a_session_covers_its_sub_agents_and_no_other_session() -> None:
    asked: list[str] = []

    async def answer(request: PermissionRequest) -> Any:
        asked.append(request.session_id)
        return allow("session")

    @tool(needs_permission=True)
    async def touch() -> str:
        """Touch."""
        return "touched"

    def agent() -> Agent[None, None]:
        child = Agent(Script(calls("touch"), "ok"), tools=[touch])
        script = Script(calls("touch"), calls(call("child", {"prompt": "x"})), "end")
        return Agent(script, tools=[touch, child.as_tool("child")], permission=permission)

    permission = Ask(answer)
    for name in ("ann", "bob"):
        await agent().session(name).prompt("go")
    assert asked == ["ann", "bob"]

    asked.clear()
    for _ in range(2):
        await agent().run("go")  # without a session the scope is the run, its sub-agents included
    assert len(asked) == len(set(asked)) == 2
    assert all(asked)


# 15: queues and cancels across threads and processes ----------------------------------------------


HOLDER = """
import sys, time
import anyio, glue
from glue.testing import Script

async def main():
    async with glue.FileStore(sys.argv[1]).log("s"):
        print("held", flush=True)
        sys.stdin.readline()

anyio.run(main)
"""


async def test_a_queued_prompt_waits_for_the_store_whoever_holds_it(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert await anyio.to_thread.run_sync(holder.stdout.readline) == "held\n"
        store = FileStore(tmp_path)
        with pytest.raises(SessionBusy):
            await Agent(Script("x")).session("s", store=store).prompt("go")
        results: list[str] = []

        async def ask(text: str) -> None:
            session = Agent(Script(repeat(text))).session("s", store=FileStore(tmp_path), queue=True)
            results.append((await session.prompt("go")).text)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for text in ("one", "two", "three"):
                    tasks.start_soon(ask, text)
                await anyio.sleep(0.05)
                assert not results
                assert holder.stdin is not None
                holder.stdin.write("\n")
                holder.stdin.flush()
    finally:
        holder.communicate()

    assert sorted(results) == ["one", "three", "two"]
    assert shape(await FileStore(tmp_path).load("s")) == "u a u a u a"


@pytest.mark.parametrize("how", ["token", "session"])
async def test_a_prompt_that_waits_for_another_can_be_cancelled(tmp_path: Path, how: str) -> None:
    agent, token = Agent(Script(repeat("x"))), glue.Cancel()
    waiting = agent.session("s", store=FileStore(tmp_path), queue=True)
    async with FileStore(tmp_path).log("s"), anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await anyio.sleep(0.05)
            (token if how == "token" else waiting).cancel()

        tasks.start_soon(cancel)
        with anyio.fail_after(5):
            result = await waiting.prompt("go", cancel=token, unwrap=False)

    assert (result.outcome, result.requests) == ("cancelled", 0)
    assert (await waiting.prompt("again")).text == "x"
    assert shape(await FileStore(tmp_path).load("s")) == "u a"


async def test_a_prompt_that_waits_for_its_own_session_can_be_cancelled() -> None:
    started, token = anyio.Event(), glue.Cancel()

    @glue.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await anyio.sleep(0.2)
        return "x"

    session = Agent(Script(calls("wait"), "end"), tools=[wait]).session(queue=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.prompt, "first")
        await started.wait()
        threading.Timer(0.05, token.cancel).start()
        result = await session.prompt("second", cancel=token, unwrap=False)
        assert result.outcome == "cancelled"
        assert session.running

    assert session.last is not None
    assert session.last.text == "end"
    assert shape(session.messages) == "u a t a"


def test_a_queue_holds_across_threads_on_one_session_object() -> None:
    session = Agent(Script(repeat(lambda request: say(f"{len(request.messages)}")))).session(queue=True)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                session.prompt_sync("go")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert errors == []
    assert shape(session.messages) == " ".join(["u a"] * 20)
    assert [m.text for m in session.messages if isinstance(m, AssistantMessage)] == [str(n) for n in range(1, 40, 2)]


@pytest.mark.parametrize("threaded", [True, False])
async def test_a_session_is_cancelled_from_another_thread_at_once(threaded: bool) -> None:
    started = threading.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await anyio.sleep_forever()
        return ""

    @tool(name="hang")
    def hang_in_a_thread() -> str:
        """Hang."""
        started.set()
        threading.Event().wait()
        return ""

    session = Agent(Script(calls("hang")), tools=[hang_in_a_thread if threaded else hang]).session()

    def cancel() -> None:
        started.wait()
        session.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    with anyio.fail_after(5):
        result = await session.prompt("go", unwrap=False)
    thread.join()

    assert (result.outcome, shape(result.messages)) == (Outcome.CANCELLED, "u a t")


SIGNALLED = """
import signal, sys, threading, os
import glue
from glue.testing import Script, calls

@glue.tool
def hang() -> str:
    "Hang."
    print("hanging", flush=True)
    threading.Event().wait()

session = glue.Agent(Script(calls("hang")), tools=[hang]).session()
signal.signal(signal.SIGUSR1, lambda *_: session.cancel())
print(session.prompt_sync("go", unwrap=False).outcome, flush=True)
"""


def test_a_session_is_cancelled_from_a_signal_handler_at_once() -> None:
    child = subprocess.Popen([sys.executable, "-c", SIGNALLED], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "hanging\n"
    child.send_signal(signal.SIGUSR1)

    out, _ = child.communicate(timeout=20)

    assert (out, child.returncode) == ("cancelled\n", 0)  # its thread is left behind


# 16: sync use -------------------------------------------------------------------------------------


BLOCKED = """
import threading, sys
import anyio, asyncio, glue
from glue.testing import Script, calls

@glue.tool
def hang() -> str:
    "Hang."
    print("hanging", flush=True)
    threading.Event().wait()

@glue.tool(needs_permission=True)
def act() -> str:
    "Act."

agent = glue.Agent(Script(calls("hang")), tools=[hang, act], permission=glue.Ask(lambda request: hang.function()))
async def main():
    await agent.run("go")
async def blocking():
    agent.run_sync("go")
"""
RUNS = (
    'agent.run_sync("go")',
    "asyncio.run(main())",
    'anyio.run(main, backend="trio")',
    "asyncio.run(blocking())",
    'anyio.run(blocking, backend="trio")',
)


@pytest.mark.parametrize("blocked", ["hang", "act"])  # a tool, and somebody who is asked
@pytest.mark.parametrize("last", RUNS)
def test_one_interrupt_ends_a_script_whose_sync_tool_is_blocked(last: str, blocked: str) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + BLOCKED + last
    code = code.replace('calls("hang")', f'calls("{blocked}")')
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "hanging\n"
    child.send_signal(signal.SIGINT)

    _, err = child.communicate(timeout=20)

    assert child.returncode != 0
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_an_async_listener_of_a_stream_is_refused() -> None:
    async def listener(event: Event) -> None:
        pass

    with pytest.raises(TypeError, match="on_event must be a plain function"):
        Agent(Script("x")).stream("go", on_event=listener)


@pytest.mark.parametrize("code", [3, 0])
async def test_what_ends_a_tool_in_a_run_beside_a_loop_comes_out_as_it_is(code: int) -> None:
    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit(code)

    with pytest.raises(SystemExit) as caught:
        Agent(Script(calls("leave")), tools=[leave]).run_sync("go")

    assert caught.value.code == code
    assert shape(caught.value.result.messages) == "u a t"  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_interrupt_of_run_sync_carries_the_result(backend: str) -> None:
    last = """
try:
    agent.run_sync("go")
except KeyboardInterrupt as error:
    print(error.result.outcome, len(error.result.messages), flush=True)
"""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + BLOCKED + last
    if backend == "trio":
        code = code.replace('agent.run_sync("go")', 'anyio.run(main, backend="trio")')
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "hanging\n"
    child.send_signal(signal.SIGINT)

    assert child.communicate(timeout=20)[0] == "cancelled 3\n"


def test_a_long_transcript_does_not_slow_run_sync() -> None:
    shown = []

    class Said(str):
        def __repr__(self) -> str:
            shown.append(self)  # asyncio shows what a task returns
            return "old"

    history = [glue.UserMessage(content=(glue.Text(text=Said("old")),))]

    assert Agent(Script("x")).run_sync("go", message_history=history).text == "x"
    assert shown == []


def test_an_error_of_run_sync_carries_no_foreign_traceback() -> None:
    with pytest.raises(ProviderError) as caught:
        Agent(Script(fail("auth"))).run_sync("go")

    seen: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        seen.append(error)
        error = error.__cause__ or error.__context__
    assert not [each for each in seen if "AsyncLibrary" in type(each).__name__]


# 17: threads of tools -----------------------------------------------------------------------------


async def test_hung_tools_do_not_block_the_store(tmp_path: Path) -> None:
    never = threading.Event()

    @tool(timeout=0.01)
    def hang() -> str:
        """Hang."""
        never.wait()
        return ""

    async def ask(number: int) -> None:
        session = Agent(Script(calls("hang"), "fine"), tools=[hang]).session(f"{number}", store=FileStore(tmp_path))
        assert (await session.prompt("go")).text == "fine"

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(45):
                    tasks.start_soon(ask, number)
    finally:
        never.set()


async def test_people_who_do_not_answer_do_not_block_the_store(tmp_path: Path) -> None:
    never, asked = threading.Event(), []

    @tool(needs_permission=True)
    def act() -> str:
        """Act."""
        return ""

    def wait(request: PermissionRequest) -> bool:
        asked.append(request)
        return never.wait()

    async def ask(number: int) -> None:
        agent = Agent(Script(calls("act"), "fine"), tools=[act], permission=Ask(wait))
        await agent.session(f"{number}", store=FileStore(tmp_path)).prompt("go")

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(45):
                    tasks.start_soon(ask, number)
                while len(asked) < 45:
                    await anyio.lowlevel.checkpoint()
                await Agent(Script("fine")).session("free", store=FileStore(tmp_path)).prompt("go")
                never.set()
    finally:
        never.set()


# 18: output, pickles ------------------------------------------------------------------------------


@dataclass
class Bill:
    total: Decimal
    due: timedelta


async def test_decimal_and_timedelta_are_read() -> None:
    script = Script(calls(call("final_answer", {"total": "12.30", "due": "P1DT2H"})))

    result = await Agent(script, output=Bill).run("go")

    assert result.output == Bill(Decimal("12.30"), timedelta(days=1, hours=2))


@pytest.mark.parametrize(
    ("total", "due", "expected"),
    [
        (12.3, 90, Bill(Decimal("12.3"), timedelta(seconds=90))),
        (-3, -1.5, Bill(Decimal(-3), timedelta(seconds=-1.5))),
        ("1e3", "-PT5M", Bill(Decimal(1000), -timedelta(minutes=5))),
    ],
)
async def test_a_number_may_stand_for_a_decimal_or_for_seconds(total: Any, due: Any, expected: Bill) -> None:
    script = Script(calls(call("final_answer", {"total": total, "due": due})))

    result = await Agent(script, output=Bill).run("go")

    assert result.output == expected


async def test_a_tool_may_return_a_decimal_and_a_timedelta() -> None:
    @tool
    def pay(bill: Bill) -> Bill:
        """Pay."""
        return bill

    script = Script(calls(call("pay", {"bill": {"total": "12.30", "due": "-PT90S"}})), "paid")

    result = await Agent(script, tools=[pay]).run("go")

    assert result.messages[2].text == '{"total": "12.30", "due": "-PT90S"}'


@pytest.mark.parametrize(
    "wrong",
    ["int", 3, object(), {"type": "nonsense"}, {"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1/x"}, {"required": 5}],
)
async def test_output_is_checked_before_the_first_request(wrong: Any) -> None:
    script = Script("x")

    with pytest.raises(TypeError, match="output must be a type or a JSON schema"):
        await Agent(script).run("go", output=wrong)

    assert script.requests == []


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("no", kind="auth", provider="p", model="m", status=401, retry_after=1.5),
        EmptyReply(provider="p"),
        MaxTurnsExceeded(3, 3),
        BudgetExceeded("usd", 1.0, 2.0),
        glue.errors.FailoverError("all", kind="auth", attempts=()),
        glue.errors.MissingKey("p", ["KEY"]),
        glue.errors.UnknownProvider("no p", "p", ["q"]),
        glue.errors.OutputError("no", ["a"]),
        Cancelled(),
    ],
)
def test_errors_survive_a_pickle(error: GlueError) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@tool
def top(x: int) -> str:
    """Be at the top of a module."""
    return str(x)


def test_agents_tools_and_prompts_survive_a_pickle() -> None:
    agent = Agent("openai:x", tools=[top], limits=Limits(max_turns=3), name="a", instructions="Be brief.")

    again = pickle.loads(pickle.dumps(agent))

    assert (again.name, again.settings) == (agent.name, agent.settings)
    assert pickle.loads(pickle.dumps(top)) is top
    prompt = Prompt("Be brief.", name="brief", version="v1")
    kept = pickle.loads(pickle.dumps(prompt))
    assert (kept, kept.identity) == (prompt, prompt.identity)


async def test_an_error_with_a_result_survives_a_pickle() -> None:
    with pytest.raises(MaxTurnsExceeded) as caught:
        await Agent(Script(repeat(calls("noop"))), tools=[noop], limits=Limits(max_turns=1)).run("go")

    again = pickle.loads(pickle.dumps(caught.value))

    assert caught.value.result is not None
    assert again.result.messages == caught.value.result.messages
    assert again.result.error is again

"""Sessions store messages, run one prompt at a time, and can be steered, forked and resumed."""

from __future__ import annotations

import asyncio  # noqa: TID251
import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
from fakes.examples import examples
from fakes.zygote import Zygote

import glue
from glue import (
    Agent,
    Ask,
    AssistantMessage,
    FileStore,
    Limits,
    Message,
    Outcome,
    RunResult,
    Session,
    SQLiteStore,
    UserMessage,
    allow,
    tool,
    user,
)
from glue.errors import (
    Cancelled,
    InvalidContinuation,
    MaxTurnsExceeded,
    NewerSchema,
    ProviderError,
    SessionBusy,
    StoreError,
)
from glue.events import Event, MessageEnd, RequestStart, RunEnd, RunStart, ToolStart
from glue.loop.transcript import CONTINUE, repair_transcript
from glue.messages import ToolMessage
from glue.permission import PermissionRequest
from glue.project import Role
from glue.provider import TextDelta
from glue.stores import MemoryStore, Store, lineage
from glue.stores.log import Log
from glue.testing import Script, call, calls, fail, repeat, say, shape


@tool
def noop() -> str:
    """Return at once."""
    return "ok"


@pytest.fixture(params=["memory", "file", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    makers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "file": lambda: FileStore(tmp_path / "sessions"),
        "sqlite": lambda: SQLiteStore(tmp_path / "sessions.db"),
    }
    return makers[request.param]()


def texts(script: Script, request: int = -1) -> list[str]:
    return [message.text for message in script.requests[request].messages]


async def test_a_session_remembers(store: Store) -> None:
    script = Script(calls("noop"), "one", "two")
    agent = Agent(script, tools=[noop])
    session = agent.session("demo", store=store)

    await session.run("a")
    result = await session.run("b")

    assert texts(script) == ["a", "", "ok", "one", "b"]
    assert shape(result.messages) == "u a t a u a"
    assert shape(result.new_messages) == "u a"
    assert await store.load("demo") == session.messages == result.messages


async def test_another_object_continues_from_the_messages_in_the_store(store: Store) -> None:
    script = Script("one", "two", "three")
    agent = Agent(script)
    first = agent.session("demo", store=store)
    await first.run("a")
    await agent.session("demo", store=store).run("b")

    await first.run("c")

    assert texts(script) == ["a", "one", "b", "two", "c"]
    assert await first.load() == first.messages


async def test_a_session_without_a_store_is_kept_in_memory() -> None:
    session = Agent(Script("one", "two")).session()

    await session.run("a")
    await session.run("b")

    assert shape(session.messages) == "u a u a"
    assert session.id
    assert await Agent(Script()).session().load() == ()


KILLED = """
import os, signal, sys
import anyio
from glue import Agent, FileStore, tool
from glue.testing import Script, calls

@tool
def deadly() -> str:
    "Die."
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

agent = Agent(Script(calls("deadly", text="I will.")), tools=[deadly])
agent.session("demo", store=FileStore(sys.argv[1])).run_sync("go")
"""


async def test_a_session_that_was_killed_in_a_tool_continues_with_a_valid_history(
    tmp_path: Path, zygote: Zygote
) -> None:
    code, _, _ = zygote.run([sys.executable, "-c", KILLED, str(tmp_path)], tmp_path)
    assert code == -signal.SIGKILL
    script = Script("I am back.")

    result = await Agent(script).session("demo", store=FileStore(tmp_path)).run("and now?")

    assert result.text == "I am back."
    sent = script.requests[0].messages
    assert shape(sent) == "u a t u"
    assert isinstance(sent[2], ToolMessage)
    assert sent[2].is_error


async def test_every_message_is_stored_before_the_next_request(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    on_disk = []

    def look(request: Any) -> Any:
        on_disk.append(store.path("demo").read_text().count('"type":"message"'))
        return calls("noop") if len(on_disk) < 3 else "done"

    await Agent(Script(repeat(look)), tools=[noop]).session("demo", store=store).run("x")

    assert on_disk == [1, 3, 5]


async def test_a_failed_prompt_stays_in_the_store_and_can_be_resumed(store: Store) -> None:
    session = Agent(Script(fail("overloaded"), "back")).session("demo", store=store)
    with pytest.raises(ProviderError) as caught:
        await session.run("x")
    assert caught.value.result is session.last

    result = await session.resume()

    assert result.text == "back"
    assert shape(await store.load("demo")) == "u a"


async def test_a_session_written_by_a_newer_version_is_not_prompted(tmp_path: Path) -> None:
    store, script = FileStore(tmp_path), Script("one", "two")
    session = Agent(script).session("demo", store=store)
    await session.run("a")
    path = store.path("demo")
    path.write_text(path.read_text().replace('"schema":1', '"schema":2', 1))

    with pytest.raises(NewerSchema, match="schema 2"):
        await Agent(script).session("demo", store=store).run("b")
    with pytest.raises(NewerSchema, match="schema 2"):
        await Agent(script).session("demo", store=store).resume()

    assert len(script.requests) == 1


async def test_a_read_only_session_raises_an_error_that_names_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, script = FileStore(tmp_path), Script("one", "two")
    await Agent(script).session("demo", store=store).run("a")
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(StoreError, match="is read-only: Read-only file system") as caught:
        await Agent(script).session("demo", store=store).run("b")

    assert not isinstance(caught.value, NewerSchema)
    assert len(script.requests) == 1


async def calls_of(work: Callable[[], Awaitable[object]]) -> int:
    """Return the number of Python function calls that an awaitable makes in this thread."""
    counted = 0

    def count(frame: FrameType, event: str, given: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("excluded", [0.0, 0.9])
async def test_a_later_prompt_costs_the_same_however_long_the_session_is(excluded: float) -> None:
    counts = []
    for length in (10, 3_000):
        store = MemoryStore()
        async with store.log("long") as log:
            await log.extend(user(f"message {number}") for number in range(length))
            await log.exclude([message.id for message in log.messages[: int(length * excluded)]])
        script = Script(repeat("fine"))
        session = Agent(script).session("long", store=store)
        await session.run("one")
        counts.append([await calls_of(partial(session.run, "again")) for _ in range(3)])
        assert list(script.requests[-1].messages) == repair_transcript(session.messages)[:-1]

    assert max(counts[1]) <= max(counts[0]) + 20  # an event loop does not always do the same


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio allocates memory of its own
async def test_a_later_prompt_copies_no_transcript(store: Store) -> None:
    async with store.log("long") as log:
        await log.extend(user(f"message {number}") for number in range(12_000))
    session = Agent(Script(repeat("fine"))).session("long", store=store)
    for _ in range(3):
        await session.run("one")  # the lists have room for more now

    tracemalloc.start()
    try:
        result = await session.run("again")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(result.messages) == 12_008
    assert peak < 75_000  # one copy would be 96,000 bytes


async def test_later_prompts_do_not_change_an_earlier_result(store: Store) -> None:
    script = Script("one", say("no", stop="refusal"), calls("noop"), "go on", "three", fail("auth"))
    session = Agent(script, tools=[noop]).session("demo", store=store)
    results = []
    seen = []

    async def keep(prompting: Awaitable[RunResult[Any]]) -> None:
        results.append(await prompting)
        seen.append(tuple(results[-1].messages))

    await keep(session.run("a"))
    await keep(session.run("b", unwrap=False))
    await keep(session.run("c", unwrap=False, limits=Limits(max_turns=1)))
    await keep(session.resume())
    async with store.log("demo") as log:
        await log.drop([log.messages[0].id])
    await keep(session.run("d"))
    await keep(session.run("e", unwrap=False))

    assert [tuple(result.messages) for result in results] == seen
    assert results[-1].messages == session.messages == await store.load("demo")
    assert pickle.loads(pickle.dumps(results[0])).messages == seen[0]
    assert (
        (*results[0].messages, *seen[0])
        == results[0].messages + seen[0]  # type: ignore[operator]
        == seen[0] + results[0].messages  # type: ignore[operator]
    )


async def test_requests_follow_changes_of_the_stored_transcript(store: Store) -> None:
    script = Script(
        "one",
        say("no", stop="refusal"),
        "three",
        say("cut", stop="max_tokens"),
        "four",
        "five",
        "six",
    )
    agent = Agent(script, limits=Limits(continuation_max_attempts=0))
    session = agent.session("demo", store=store)
    await session.run("a")

    await session.run("refused")
    await session.run("c")
    assert texts(script) == ["a", "one", "c"]

    await session.run("d")
    await session.run("e")
    assert texts(script) == ["a", "one", "c", "three", "d", "cut", "e"]
    async with store.log("demo") as log:
        await log.exclude([log.messages[0].id])
        await log.drop([log.messages[1].id])
    await session.run("f")
    assert texts(script) == ["c", "three", "d", "cut", "e", "four", "f"]

    await agent.session("demo", store=store).run("g")
    assert list(script.requests[-1].messages) == repair_transcript(await store.load("demo"))[:-1]


async def test_a_call_takes_precedence_over_the_session_and_the_session_over_the_agent() -> None:
    script = Script(repeat("ok"))
    agent = Agent(script, instructions="agent", max_tokens=1, temperature=0.1)
    session = agent.session(instructions="session", max_tokens=2)

    await session.run("x")
    await session.run("x", instructions="call")

    seen = [
        (request.system, request.max_tokens, request.temperature) for request in script.requests
    ]
    assert seen == [("session", 2, 0.1), ("call", 2, 0.1)]


async def test_the_settings_of_a_session_include_its_role() -> None:
    script = Script("ok")
    roles = {"critic": Role(name="critic", instructions="You are a critic.", model="offline:other")}
    session = Agent(script, instructions="base", roles=roles).session("s", role="critic")

    assert (session.settings.instructions, session.settings.model) == (
        "You are a critic.",
        "offline:other",
    )
    session.configure(model=script)
    await session.run("hi")

    assert session.settings.model is script
    assert script.requests[0].system == "You are a critic."
    [info] = await session.store.list()
    assert info.meta is not None
    assert info.meta["instructions"] == "You are a critic."


async def test_a_provider_may_be_swapped_between_prompts() -> None:
    one, two = Script(calls("noop"), "one", name="one"), Script(repeat("two"), name="two")
    session = Agent(one, tools=[noop]).session()
    await session.run("a")

    await session.run("b", model=two)
    session.configure(model=two)
    await session.run("c")

    assert shape(two.requests[-1].messages) == "u a t a u a u"
    assert len(one.requests) == 2


async def test_tools_and_limits_may_be_set_for_one_prompt() -> None:
    script = Script(calls("noop"), "one", calls("noop"))
    session = Agent(script).session(tools=[noop])
    await session.run("a")

    with pytest.raises(MaxTurnsExceeded):
        await session.run("b", limits=Limits(max_turns=1))

    assert session.limits == Limits()


async def test_a_function_is_asked_for_the_limits_before_each_request() -> None:
    asked = iter(range(2, 100))
    limits = lambda: Limits(max_turns=min(next(asked), 4))  # noqa: E731
    agent = Agent(Script(repeat(calls("noop"))), tools=[noop], limits=limits)

    result = await agent.session().run("x", unwrap=False)
    own = await agent.session(limits=lambda: Limits(max_turns=3)).run("x", unwrap=False)
    of_call = await agent.session().run("x", limits=lambda: Limits(max_turns=1), unwrap=False)

    assert (result.turns, own.turns, of_call.turns) == (4, 3, 1)
    assert agent.session().limits == Limits(max_turns=4)


async def test_limits_set_while_a_prompt_runs_apply_to_its_next_request() -> None:
    session = Agent(
        Script(repeat(calls("noop"))), tools=[noop], limits=Limits(max_turns=3)
    ).session()

    def raise_limit(event: Event) -> None:
        if isinstance(event, RequestStart) and event.number == 2:
            session.limits = Limits(max_turns=4)

    result = await session.run("x", on_event=raise_limit, unwrap=False)
    again = await session.run("x", limits=Limits(max_turns=2), on_event=raise_limit, unwrap=False)

    assert result.turns == 4
    assert again.turns == 4  # limits set later take precedence over those of the call
    with pytest.raises(TypeError, match=r"must be a glue\.Limits"):
        session.limits = 3  # type: ignore[assignment]


async def test_resume_continues_after_max_turns(store: Store) -> None:
    script = Script(calls("noop"), calls("noop"), "done")
    session = Agent(script, tools=[noop]).session("demo", store=store, limits=Limits(max_turns=1))
    stopped = await session.run("x", unwrap=False)
    assert stopped.outcome is Outcome.MAX_TURNS

    result = await session.resume(limits=Limits(max_turns=5))

    assert result.text == "done"
    assert shape(await store.load("demo")) == "u a t a t a"


def test_an_unknown_setting_is_refused() -> None:
    agent = Agent(Script())

    with pytest.raises(TypeError, match="does not take 'colour'"):
        agent.session(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="does not take 'colour'"):
        agent.session().configure(colour="red")  # type: ignore[call-arg]


async def test_a_second_prompt_on_a_busy_session_is_refused_and_the_first_continues() -> None:
    session = Agent(Script(calls("noop"), "one", "two"), tools=[noop]).session("demo")
    refused = []

    async def interrupt(event: Any) -> None:
        with pytest.raises(SessionBusy, match="session 'demo' is busy"):
            await session.run("b")
        refused.append(True)

    @tool
    async def meddle() -> str:
        """Prompt again."""
        await interrupt(None)
        return "ok"

    session.configure(tools=[noop, meddle])
    script = Script(calls("meddle"), "one", "two")

    result = await session.run("a", model=script)
    assert refused == [True]
    assert result.text == "one"
    assert not session.running
    assert (await session.run("b", model=script)).text == "two"


async def test_with_a_queue_a_second_prompt_waits_for_the_first() -> None:
    order: list[str] = []
    script = Script(repeat(lambda request: f"to {request.messages[-1].text}"))
    session = Agent(script).session(queue=True)

    async def say_and_note(text: str) -> None:
        order.append((await session.run(text)).text)

    async with anyio.create_task_group() as tasks:
        for text in "abcd":
            tasks.start_soon(say_and_note, text)
            await (
                anyio.wait_all_tasks_blocked()
            ) if text == "a" else await anyio.lowlevel.checkpoint()

    assert sorted(order) == ["to a", "to b", "to c", "to d"]
    assert shape(session.messages) == "u a u a u a u a"
    answers = [message.text for message in session.messages]
    assert all(answers[i + 1] == f"to {answers[i]}" for i in range(0, 8, 2))


async def test_a_cancelled_waiting_prompt_does_not_let_another_start_early() -> None:
    session = Agent(Script(say("slow", delay=0.01), repeat("ok"))).session(queue=True)
    done: list[str] = []

    async def ask(text: str) -> None:
        await session.run(text)
        done.append(text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "first")
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.run("given up")
        tasks.start_soon(ask, "last")

    assert done == ["first", "last"]
    assert shape(session.messages) == "u a u a"


async def test_steering_is_sent_with_the_next_request() -> None:
    script = Script(calls("noop"), "done")
    session = Agent(script, tools=[noop]).session()

    def steer(event: Event) -> None:
        if isinstance(event, ToolStart):
            session.steer("Hurry up.")

    result = await session.run("x", on_event=steer)

    assert texts(script) == ["x", "", "ok", "Hurry up."]
    assert shape(result.messages) == "u a t u a"
    assert session.messages == result.messages


async def test_a_follow_up_is_sent_when_the_model_would_end_the_run() -> None:
    script = Script("one", "two")
    session = Agent(script).session()
    session.follow_up("And then?")

    result = await session.run("x")

    assert texts(script) == ["x", "one", "And then?"]
    assert result.text == "two"


async def test_cancel_ends_the_prompt_and_keeps_the_session(store: Store) -> None:
    script = Script(say("abc", chunk=1), "back")
    session = Agent(script).session("demo", store=store)
    session.cancel()  # nothing runs: nothing happens

    def stop(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == "b":
            session.cancel()

    with pytest.raises(Cancelled):
        await session.run("x", on_event=stop)

    assert [message.text for message in await store.load("demo")] == ["x", "ab"]
    assert (await session.run("y")).text == "back"


async def test_a_cancelled_scope_leaves_a_valid_history_in_the_store(store: Store) -> None:
    @tool
    async def hang() -> str:
        """Wait for ever."""
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    session = Agent(Script(calls("hang"), "back"), tools=[hang]).session("demo", store=store)

    with anyio.CancelScope() as scope:
        await session.run("x")

    assert shape(await store.load("demo")) == "u a t"
    assert (await session.run("y")).text == "back"


@pytest.mark.parametrize("how", ["scope", "token"])
async def test_cancelled_at_any_event_the_store_holds_a_valid_history(
    how: str, tmp_path: Path
) -> None:
    store = FileStore(tmp_path, sync=False)

    def steps() -> Script:
        return Script(calls("noop", "noop", text="one"), say("two", chunk=1), "after")

    events: list[Event] = []
    await (
        Agent(steps(), tools=[noop]).session("whole", store=store).run("x", on_event=events.append)
    )

    for place in range(len(events)):
        session = Agent(steps(), tools=[noop]).session(f"cut-{place}", store=store)
        left = place

        def stop(event: Event, session: Session[None, None] = session) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                scope.cancel() if how == "scope" else session.cancel()

        with anyio.CancelScope() as scope:
            await session.run("x", on_event=stop, unwrap=False)

        stored = await store.load(session.id)
        assert [message.id for message in repair_transcript(stored)] == [
            message.id for message in stored
        ], place
        assert (await session.run("y", model=Script("back"))).text == "back"


async def test_subscribers_get_every_event_until_they_unsubscribe() -> None:
    session = Agent(Script("one", "two", "three")).session("demo")
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    session.subscribe(broken)
    leave = session.subscribe(heard.append)
    await session.run("a")
    await session.run("b")
    leave()
    leave()
    await session.run("c")

    starts = [event for event in heard if isinstance(event, RunStart)]
    assert [start.identity for start in starts] == [{"session": "demo"}] * 2
    assert sum(isinstance(event, RunEnd) for event in heard) == 2


async def test_a_session_streams() -> None:
    session = Agent(Script("one")).session()

    async with session.stream("x") as events:
        seen = [event async for event in events]

    assert events.result.text == "one"
    assert any(isinstance(event, MessageEnd) for event in seen)
    assert shape(session.messages) == "u a"


def test_run_sync_continues_across_event_loops(tmp_path: Path) -> None:
    script = Script("one", "two")
    session = Agent(script).session("demo", store=FileStore(tmp_path))

    session.run_sync("a")
    session.run_sync("b")

    assert texts(script) == ["a", "one", "b"]


async def test_run_sync_of_a_session_works_inside_an_event_loop() -> None:
    assert Agent(Script("one")).session().run_sync("a").text == "one"


async def test_a_fork_starts_at_a_message_and_does_not_change_its_origin(store: Store) -> None:
    script = Script("one", "two", "three", "four")
    session = Agent(script).session("demo", store=store)
    await session.run("a")
    await session.run("b")

    fork = await session.fork(at=2, id="fork")
    clone = await session.clone()
    await fork.run("c")

    assert texts(script) == ["a", "one", "c"]
    assert shape(await store.load("demo")) == "u a u a"
    assert await clone.load() == await session.load()
    tree = [(depth, info.id, info.forked_at) for depth, info in lineage(await store.list())]
    assert tree[0] == (0, "demo", None)
    assert set(tree[1:]) == {(1, "fork", 2), (1, clone.id, 4)}
    with pytest.raises(ValueError, match="cannot be forked at 99"):
        await session.fork(at=99)
    with pytest.raises(StoreError, match="already exists"):
        await session.fork(id="fork")


async def test_a_fork_keeps_the_settings_of_its_session() -> None:
    script = Script(repeat("ok"))
    session = Agent(script).session(instructions="mine")

    fork = await session.fork()
    await fork.run("x")

    assert script.requests[0].system == "mine"


async def test_a_session_is_a_context_manager() -> None:
    async with Agent(Script("ok")).session("demo") as session:
        assert isinstance(session, Session)
        await session.run(user("x"))
    assert repr(session) == "Session('demo', Agent('script'))"


async def test_a_prompt_that_cannot_be_sent_is_not_kept() -> None:
    session = Agent(Script("hello")).session()

    with pytest.raises(ValueError, match="tool_choice"):
        await session.run("first", limits=Limits(tool_choice="nope"))
    result = await session.run("second")

    assert [message.text for message in result.messages] == ["second", "hello"]


@pytest.mark.parametrize("other_object", [False, True])
async def test_a_tool_that_prompts_its_own_session_is_refused(other_object: bool) -> None:
    store = MemoryStore()

    @tool
    async def again() -> str:
        """Prompt the same session."""
        own = agent.session("s", store=store, queue=True) if other_object else session
        return (await own.run("inner")).text

    agent = Agent(Script(calls("again"), "done"), tools=[again])
    session = agent.session("s", store=store, queue=True)

    with anyio.fail_after(5):
        result = await session.run("outer")

    [answer] = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert "sent a prompt to its own session" in answer.text
    assert result.text == "done"


async def test_a_tool_may_prompt_another_session() -> None:
    @tool
    async def aside() -> str:
        """Prompt another session."""
        return (await Agent(Script("inner")).session("t", queue=True).run("x")).text

    agent = Agent(Script(calls("aside"), "done"), tools=[aside])

    result = await agent.session("s", queue=True).run("outer")

    assert result.messages[2].text == "inner"


@tool
async def pause() -> str:
    """Pause, so that other tasks run."""
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


SCRIPT = (calls("pause", "pause", text="first "), say("half ", stop="max_tokens"), say("and half"))


class Stepped:
    """A runner of coroutines on asyncio that cancels the task at its n-th suspension."""

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
def test_s116_cancelling_the_task_at_any_await_leaves_result_and_store_equal(
    tmp_path: Path, sync: bool
) -> None:
    whole = Stepped(0)
    whole(
        lambda: (
            Agent(Script(*SCRIPT), tools=[pause])
            .session("s", store=FileStore(tmp_path / "0", sync=sync))
            .run("go")
        )
    )
    places = range(
        1, whole.steps + 1, max(whole.steps // examples(90), 1)
    )  # while a thread writes, the loop goes round and round

    for at in places:
        store = FileStore(tmp_path / f"{at}", sync=sync)
        events: list[Event] = []
        session = Agent(Script(*SCRIPT), tools=[pause]).session("s", store=store)

        result, error = Stepped(at)(lambda: session.run("go", on_event=events.append))  # noqa: B023

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
        assert asyncio.run(again.run("and now?")).text == "fine"


async def cancelled_while_left(session: Any) -> None:
    session._log._writer.blocks = True
    leave = session._log.__aexit__

    async def slow(*given: Any) -> None:
        task.cancel()
        await asyncio.sleep(0)
        await leave(*given)

    session._log.__aexit__ = slow
    task = asyncio.ensure_future(session.run("go"))
    await task


def test_an_error_is_raised_even_if_the_task_is_cancelled_while_the_store_closes() -> None:
    session = Agent(Script(calls("pause"), ZeroDivisionError("bug")), tools=[pause]).session("s")

    with pytest.raises(ZeroDivisionError, match="bug") as caught:
        asyncio.run(cancelled_while_left(session))

    assert asyncio.run(session.load()) == caught.value.result.messages  # type: ignore[attr-defined]


def test_a_cancellation_while_the_store_closes_carries_the_result() -> None:
    session = Agent(Script("fine")).session("s")

    with pytest.raises(asyncio.CancelledError) as caught:
        asyncio.run(cancelled_while_left(session))

    assert getattr(caught.value, "result", None) is session.last
    assert session.last is not None
    assert session.last.text == "fine"
    assert asyncio.run(session.load()) == session.last.messages


@pytest.mark.parametrize("steps", range(0, 40, 4))
def test_a_run_that_its_ending_event_loop_cancels_stores_every_result(
    tmp_path: Path, steps: int
) -> None:
    """`asyncio.run` cancels all tasks when it ends, also one that is ending a run."""

    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            started.set()
            await anyio.sleep_forever()
            return ""

        session = Agent(Script(calls("wait", "pause")), tools=[wait, pause]).session(
            "demo", store=FileStore(tmp_path)
        )
        prompt = asyncio.ensure_future(session.run("go"))
        await started.wait()
        prompt.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)

    asyncio.run(main())

    messages = asyncio.run(FileStore(tmp_path).load("demo"))
    assert shape(messages) == "u a t t"
    assert_answered(messages)


def test_an_asyncio_timeout_raises_timeout_error_and_leaves_a_valid_store(tmp_path: Path) -> None:
    for at in range(40):
        session = Agent(Script(*SCRIPT), tools=[pause]).session(
            "s", store=FileStore(tmp_path / f"{at}")
        )

        async def main(seconds: float) -> None:
            async with asyncio.timeout(seconds):
                await session.run("go")  # noqa: B023

        try:
            asyncio.run(main(at * 0.0005))
        except TimeoutError as error:
            cause = (
                error.__cause__ or error.__context__
            )  # the first releases of Python 3.11 set no cause
            assert isinstance(cause, asyncio.CancelledError)
        stored = asyncio.run(session.load())
        assert_answered(stored)


def test_a_second_cancellation_does_not_interrupt_the_end_of_a_run() -> None:
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
        task = asyncio.ensure_future(session.run("go"))
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


async def test_a_prompt_in_a_cancelled_scope_sends_no_request(tmp_path: Path) -> None:
    script = Script("x")
    session = Agent(script).session("s", store=FileStore(tmp_path))

    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.run("go")

    assert scope.cancelled_caught
    assert (script.requests, session.messages) == ([], ())


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
async def test_a_full_disk_raises_and_leaves_a_valid_start_of_the_transcript(
    tmp_path: Path, number: int
) -> None:
    whole = Failing(tmp_path / "whole", -1, number)
    limits = Limits(max_requests=2)
    done = (
        await Agent(Script(*SCRIPT), tools=[pause], limits=limits)
        .session("s", store=whole)
        .run("go", unwrap=False)
    )

    for failing in range(1, whole.writes):
        store = Failing(tmp_path / f"{failing}", failing, number)
        events: list[Event] = []
        session = Agent(Script(*SCRIPT), tools=[pause], limits=limits).session("s", store=store)

        with pytest.raises((OSError, StoreError)) as caught:
            await session.run("go", on_event=events.append)

        cause = caught.value if isinstance(caught.value, OSError) else caught.value.__cause__
        assert isinstance(cause, OSError)
        assert cause.errno == number
        result = caught.value.result  # type: ignore[attr-defined]
        assert len([event for event in events if isinstance(event, RunEnd)]) == 1
        assert_answered(result.messages)
        stored = await store.load("s")
        assert [type(m) for m in stored][:4] == [type(m) for m in (*done.messages, None)][
            : len(stored)
        ][:4]
        again = Agent(Script(repeat("fine"))).session("s", store=FileStore(tmp_path / f"{failing}"))
        assert (await again.run("and now?")).text == "fine"
        assert_answered(await again.load())


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
async def test_another_process_resumes_a_session_in_the_middle_of_a_cut_reply(
    tmp_path: Path, kind: str
) -> None:
    kept, db = MemoryStore(), SQLiteStore(tmp_path / "s.db")

    def store() -> Any:
        return FileStore(tmp_path) if kind == "file" else kept if kind == "memory" else db

    first = Agent(Script(say("one ", stop="max_tokens")), limits=Limits(max_requests=1)).session(
        "s", store=store()
    )
    with pytest.raises(MaxTurnsExceeded):
        await first.run("go")
    script = Script("two")

    result = await Agent(script).session("s", store=store()).resume()

    assert [message.text for message in script.requests[0].messages] == ["go", "one ", CONTINUE]
    assert (result.text, shape(result.messages)) == ("one two", "u a u+ a")
    assert await store().load("s") == result.messages
    with pytest.raises(InvalidContinuation):
        await Agent(Script("x")).session("s", store=store()).resume()


async def test_a_session_resumes_after_a_failed_request() -> None:
    session = Agent(Script(fail("transient"), "fine")).session()
    with pytest.raises(ProviderError):
        await session.run("go")

    result = await session.resume()

    assert (result.text, shape(result.messages)) == ("fine", "u a")
    assert result.messages == await session.load()


async def test_an_earlier_prompt_that_failed_is_not_part_of_the_next_run() -> None:
    session = Agent(Script(fail("transient"), say("no", stop="refusal"), "fine")).session()
    with pytest.raises(ProviderError):
        await session.run("one")

    refused = await session.run("two")

    assert (refused.outcome, [m.text for m in refused.new_messages]) == (
        Outcome.REFUSED,
        ["two", "no"],
    )
    assert [(m.text, m.excluded) for m in await session.load()] == [
        ("one", False),
        ("two", True),
        ("no", True),
    ]


async def test_the_prompt_is_kept_if_the_provider_raises_an_unexpected_error() -> None:
    session = Agent(Script(TypeError("a bug"))).session()

    with pytest.raises(TypeError, match="a bug") as caught:
        await session.run("go")

    assert [message.text for message in await session.load()] == ["go"]
    assert caught.value.result.new_messages == await session.load()  # type: ignore[attr-defined]


async def test_an_empty_prompt_is_not_stored() -> None:
    session = Agent(Script("x")).session()

    for wrong in ("", " "):
        with pytest.raises(ValueError, match="the prompt is empty"):
            await session.run(wrong)

    assert await session.load() == ()


async def test_a_prompt_that_is_too_long_is_left_out_of_later_requests() -> None:
    script = Script("hi", fail("context_overflow"), "fine")
    session = Agent(script).session()
    await session.run("hello")
    overlong = await session.run("x" * 1000, unwrap=False)

    result = await session.run("short")

    assert "left out of later requests" in overlong.notice
    assert result.text == "fine"
    assert [message.text for message in script.requests[-1].messages] == ["hello", "hi", "short"]


KILLED_IN_A_CALL = """
import os, signal, sys
import glue
from glue.testing import Script, calls

@glue.tool
async def die() -> str:
    "Die."
    os.kill(os.getpid(), signal.SIGKILL)

agent = glue.Agent(Script(calls("die", "die")), tools=[die], limits=glue.Limits(parallel_tools=1))
agent.session("s", store=glue.FileStore(sys.argv[1])).run_sync("go")
"""


@pytest.mark.parametrize("resumed", [True, False])
async def test_every_call_of_a_killed_run_gets_a_result(
    tmp_path: Path, zygote: Zygote, resumed: bool
) -> None:
    code, _, errors = zygote.run([sys.executable, "-c", KILLED_IN_A_CALL, str(tmp_path)], tmp_path)
    assert code == -signal.SIGKILL, errors
    script = Script("fine")
    session = Agent(script, tools=[pause]).session("s", store=FileStore(tmp_path))

    result = await (session.resume() if resumed else session.run("and now?"))

    stored = await session.load()
    assert stored == result.messages
    assert shape(stored) == ("u a t t a" if resumed else "u a t t u a")
    assert_answered(stored)
    assert [m.text for m in stored[2:4]] == ["no result was recorded for this call"] * 2
    assert result.new_messages[0].text == (stored[2].text if resumed else "and now?")


async def test_a_permission_for_a_session_covers_its_sub_agents_and_no_other_session() -> None:
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
        await agent().session(name).run("go")
    assert asked == ["ann", "bob"]

    asked.clear()
    for _ in range(2):
        await agent().run("go")  # without a session the scope is the run, its sub-agents included
    assert len(asked) == len(set(asked)) == 2
    assert all(asked)


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


async def test_a_queued_prompt_waits_until_another_process_releases_the_session(
    tmp_path: Path,
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert await anyio.to_thread.run_sync(holder.stdout.readline) == "held\n"
        store = FileStore(tmp_path)
        with pytest.raises(SessionBusy):
            await Agent(Script("x")).session("s", store=store).run("go")
        results: list[str] = []

        async def ask(text: str) -> None:
            session = Agent(Script(repeat(text))).session(
                "s", store=FileStore(tmp_path), queue=True
            )
            results.append((await session.run("go")).text)

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
            result = await waiting.run("go", cancel=token, unwrap=False)

    assert (result.outcome, result.requests) == ("cancelled", 0)
    assert (await waiting.run("again")).text == "x"
    assert shape(await FileStore(tmp_path).load("s")) == "u a"


async def test_a_prompt_that_waits_for_its_own_session_can_be_cancelled() -> None:
    started, ended, token = anyio.Event(), anyio.Event(), glue.Cancel()

    @glue.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await ended.wait()
        return "x"

    session = Agent(Script(calls("wait"), "end"), tools=[wait]).session(queue=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run, "first")
        await started.wait()
        threading.Timer(0.05, token.cancel).start()
        result = await session.run("second", cancel=token, unwrap=False)
        assert result.outcome == "cancelled"
        assert session.running
        ended.set()

    assert session.last is not None
    assert session.last.text == "end"
    assert shape(session.messages) == "u a t a"


def test_threads_that_share_a_session_with_a_queue_run_one_prompt_at_a_time() -> None:
    session = Agent(Script(repeat(lambda request: say(f"{len(request.messages)}")))).session(
        queue=True
    )
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                session.run_sync("go")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert errors == []
    assert shape(session.messages) == " ".join(["u a"] * 20)
    assert [m.text for m in session.messages if isinstance(m, AssistantMessage)] == [
        str(n) for n in range(1, 40, 2)
    ]


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
        result = await session.run("go", unwrap=False)
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
print(session.run_sync("go", unwrap=False).outcome, flush=True)
"""


def test_a_session_is_cancelled_from_a_signal_handler_at_once() -> None:
    child = subprocess.Popen([sys.executable, "-c", SIGNALLED], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "hanging\n"
    child.send_signal(signal.SIGUSR1)

    out, _ = child.communicate(timeout=20)

    assert (out, child.returncode) == ("cancelled\n", 0)  # its thread is left behind


async def test_hung_tools_do_not_block_the_store(tmp_path: Path) -> None:
    never = threading.Event()

    @tool(timeout=0.01)
    def hang() -> str:
        """Hang."""
        never.wait()
        return ""

    async def ask(number: int) -> None:
        session = Agent(Script(calls("hang"), "fine"), tools=[hang]).session(
            f"{number}", store=FileStore(tmp_path)
        )
        assert (await session.run("go")).text == "fine"

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(45):
                    tasks.start_soon(ask, number)
    finally:
        never.set()


async def test_open_questions_for_permission_do_not_block_the_store(tmp_path: Path) -> None:
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
        await agent.session(f"{number}", store=FileStore(tmp_path)).run("go")

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(45):
                    tasks.start_soon(ask, number)
                while len(asked) < 45:
                    await anyio.lowlevel.checkpoint()
                await Agent(Script("fine")).session("free", store=FileStore(tmp_path)).run("go")
                never.set()
    finally:
        never.set()


async def test_a_tool_may_prompt_a_session_of_the_same_name_in_another_store(
    tmp_path: Path,
) -> None:
    @tool
    async def aside() -> str:
        """Prompt a session of the same name."""
        store = FileStore(tmp_path / "other")
        return (await Agent(Script("inner")).session("s", store=store).run("x")).text

    agent = Agent(Script(calls("aside"), "done"), tools=[aside])

    result = await agent.session("s", store=FileStore(tmp_path / "one")).run("outer")

    assert result.messages[2].text == "inner"


@pytest.mark.parametrize("kind", [FileStore, SQLiteStore])
async def test_another_store_object_for_the_same_place_has_the_same_session(
    tmp_path: Path, kind: type[FileStore] | type[SQLiteStore]
) -> None:
    @tool
    async def again() -> str:
        """Prompt the same session."""
        store = kind(os.path.relpath(tmp_path / "place"))
        return (await agent.session("s", store=store, queue=True).run("inner")).text

    agent = Agent(Script(calls("again"), "done"), tools=[again])

    with anyio.fail_after(5):
        store = kind(tmp_path / "place")
        result = await agent.session("s", store=store, queue=True).run("outer")

    assert "sent a prompt to its own session" in result.messages[2].text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"agent": "demo"}, r"agent must be a glue\.Agent, not 'demo'"),
        ({"id": 5}, "id must be a text"),
        ({"queue": 1}, "queue must be True or False"),
        ({"store": "runs"}, r"such as glue\.FileStore\('runs'\), not 'runs'"),
        ({"store": 5}, r"such as glue\.FileStore\('\.glue'\), not 5"),
        ({"store": FileStore}, "not the class FileStore"),
        ({"store": ""}, "store must be a store"),
    ],
)
def test_wrong_arguments_of_a_session_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Session(**{"agent": Agent(Script("x")), **arguments})


async def test_a_session_stores_its_instructions_and_the_names_of_its_tools() -> None:
    store = MemoryStore()

    full = Agent(Script("x"), tools=[noop], instructions="Be brief.").session("a", store=store)
    plain = Agent(Script("x")).session("b", store=store)
    for session in (full, plain):
        await session.run("hi")

    metas = {info.id: info.meta for info in await store.list()}
    described = {"name": "noop", "description": noop.spec.description}
    assert metas["a"] == {"instructions": "Be brief.", "tools": [described]}
    assert not metas["b"]


async def test_a_listener_that_subscribed_twice_leaves_once_for_each_subscription() -> None:
    session = Agent(Script("one", "two", "three")).session()
    starts: list[Event] = []

    def listen(event: Event) -> None:
        if isinstance(event, RunStart):
            starts.append(event)

    session.subscribe(print_nothing)
    leave, leave_too = session.subscribe(listen), session.subscribe(listen)
    session.subscribe(print_nothing)
    await session.run("a")
    leave()
    await session.run("b")
    leave_too()
    await session.run("c")

    assert len(starts) == 3
    with pytest.raises(TypeError, match="listener must be a function of one event"):
        session.subscribe(5)  # type: ignore[arg-type]


def print_nothing(event: Event) -> None:
    """Ignore an event."""


async def test_limits_of_none_restore_those_of_the_agent() -> None:
    session = Agent(Script("x"), limits=Limits(max_turns=7)).session(limits=Limits(max_turns=3))

    assert session.limits.max_turns == 3
    session.limits = None
    assert session.limits.max_turns == 7
    session.configure(limits=Limits(max_turns=2), max_tokens=9)
    session.configure(max_tokens=None)
    assert (session.limits.max_turns, session.settings.max_tokens) == (2, None)


async def test_a_session_is_running_only_while_a_prompt_runs() -> None:
    seen: list[bool] = []

    @tool
    def look() -> str:
        """Look whether the session runs."""
        seen.append(session.running)
        return ""

    session = Agent(Script(calls("look"), "done"), tools=[look]).session()
    assert not session.running
    await session.run("x")

    assert seen == [True]
    assert not session.running
    assert session.last is not None
    assert session.last.text == "done"


async def test_the_reason_of_a_rejection_is_a_text() -> None:
    with pytest.raises(TypeError, match="reason must be a text"):
        await Agent(Script("x")).session().reject_pending(5)  # type: ignore[arg-type]


async def test_a_failed_run_is_returned_only_if_it_is_not_to_be_unwrapped() -> None:
    session = Agent(Script(fail("auth"), fail("auth"))).session()

    result = await session.run("a", unwrap=False)
    with pytest.raises(ProviderError):
        await session.run("b", unwrap=True)

    assert result.outcome is Outcome.FAILED


async def test_a_session_that_exists_but_cannot_be_read_is_an_error() -> None:
    class Broken(MemoryStore):
        async def load(self, id: str) -> tuple[Message, ...]:
            raise StoreError("the file is damaged")

    session = Agent(Script("one")).session("demo", store=Broken())
    assert await session.load() == ()
    await session.run("a")

    with pytest.raises(StoreError, match="the file is damaged"):
        await session.load()


def test_work_that_a_tool_left_behind_may_prompt_the_session_after_the_prompt() -> None:
    kept: list[Context] = []

    @tool
    def leave() -> str:
        """Leave work behind, as a task that outlives the call."""
        kept.append(copy_context())
        return "left"

    session = Agent(Script(calls("leave"), "done", "later"), tools=[leave]).session()
    session.run_sync("now")

    assert kept[0].run(session.run_sync, "again").text == "later"

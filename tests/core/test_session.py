"""A session remembers, takes one prompt at a time, and can be steered, forked and resumed."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest

from glue import Agent, Event, Limits, Outcome, ProviderError, RunResult, Session, tool, user
from glue.errors import Cancelled, MaxTurnsExceeded, NewerSchema, SessionBusy, StoreError
from glue.events import MessageEnd, RequestStart, RunEnd, RunStart, ToolStart
from glue.loop.transcript import harden
from glue.messages import ToolMessage
from glue.project import Role
from glue.provider import TextDelta
from glue.stores import FileStore, MemoryStore, SQLiteStore, Store, lineage
from glue.testing import Script, calls, fail, repeat, say, shape


@tool
def noop() -> str:
    """Do nothing."""
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


# Remembering ----------------------------------------------------------------------------------------


async def test_a_session_remembers(store: Store) -> None:
    script = Script(calls("noop"), "one", "two")
    agent = Agent(script, tools=[noop])
    session = agent.session("demo", store=store)

    await session.prompt("a")
    result = await session.prompt("b")

    assert texts(script) == ["a", "", "ok", "one", "b"]
    assert shape(result.messages) == "u a t a u a"
    assert shape(result.new_messages) == "u a"
    assert await store.load("demo") == session.messages == result.messages


async def test_another_object_goes_on_where_the_store_stands(store: Store) -> None:
    script = Script("one", "two", "three")
    agent = Agent(script)
    first = agent.session("demo", store=store)
    await first.prompt("a")
    await agent.session("demo", store=store).prompt("b")

    await first.prompt("c")

    assert texts(script) == ["a", "one", "b", "two", "c"]
    assert await first.load() == first.messages


async def test_a_session_without_a_store_is_kept_in_memory() -> None:
    session = Agent(Script("one", "two")).session()

    await session.prompt("a")
    await session.prompt("b")

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
agent.session("demo", store=FileStore(sys.argv[1])).prompt_sync("go")
"""


async def test_a_session_killed_in_a_tool_goes_on_with_a_valid_history(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60, check=False)
    assert killed.returncode == -9
    script = Script("I am back.")

    result = await Agent(script).session("demo", store=FileStore(tmp_path)).prompt("and now?")

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

    await Agent(Script(repeat(look)), tools=[noop]).session("demo", store=store).prompt("x")

    assert on_disk == [1, 3, 5]


async def test_a_failed_prompt_stays_in_the_store_and_can_be_resumed(store: Store) -> None:
    session = Agent(Script(fail("overloaded"), "back")).session("demo", store=store)
    with pytest.raises(ProviderError) as caught:
        await session.prompt("x")
    assert caught.value.result is session.last

    result = await session.resume()

    assert result.text == "back"
    assert shape(await store.load("demo")) == "u a"


async def test_a_session_written_by_a_newer_version_is_not_prompted(tmp_path: Path) -> None:
    store, script = FileStore(tmp_path), Script("one", "two")
    session = Agent(script).session("demo", store=store)
    await session.prompt("a")
    path = store.path("demo")
    path.write_text(path.read_text().replace('"schema":1', '"schema":2', 1))

    with pytest.raises(NewerSchema, match="schema 2"):
        await Agent(script).session("demo", store=store).prompt("b")
    with pytest.raises(NewerSchema, match="schema 2"):
        await Agent(script).session("demo", store=store).resume()

    assert len(script.requests) == 1


async def test_a_session_that_may_not_be_written_says_so_and_blames_no_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, script = FileStore(tmp_path), Script("one", "two")
    await Agent(script).session("demo", store=store).prompt("a")
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(StoreError, match="may be read, not changed: Read-only file system") as caught:
        await Agent(script).session("demo", store=store).prompt("b")

    assert not isinstance(caught.value, NewerSchema)
    assert len(script.requests) == 1


# What a prompt costs --------------------------------------------------------------------------------


async def calls_of(work: Callable[[], Awaitable[object]]) -> int:
    """Count the Python functions that something calls in this thread."""
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
        await session.prompt("one")
        counts.append([await calls_of(partial(session.prompt, "again")) for _ in range(3)])
        assert list(script.requests[-1].messages) == harden(session.messages)[:-1]

    assert max(counts[1]) <= max(counts[0]) + 20  # an event loop does not always do the same


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what is counted is ours alone
async def test_a_later_prompt_copies_no_transcript(store: Store) -> None:
    async with store.log("long") as log:
        await log.extend(user(f"message {number}") for number in range(30_000))
    session = Agent(Script(repeat("fine"))).session("long", store=store)
    for _ in range(3):
        await session.prompt("one")  # the lists have room for more now

    tracemalloc.start()
    try:
        result = await session.prompt("again")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(result.messages) == 30_008
    assert peak < 150_000  # one copy would be 240,000 bytes


async def test_an_earlier_result_stays_what_it_was(store: Store) -> None:
    script = Script("one", say("no", stop="refusal"), calls("noop"), "go on", "three", fail("auth"))
    session = Agent(script, tools=[noop]).session("demo", store=store)
    results = []
    seen = []

    async def keep(prompting: Awaitable[RunResult[Any]]) -> None:
        results.append(await prompting)
        seen.append(tuple(results[-1].messages))

    await keep(session.prompt("a"))
    await keep(session.prompt("b", unwrap=False))
    await keep(session.prompt("c", unwrap=False, limits=Limits(max_turns=1)))
    await keep(session.resume())
    async with store.log("demo") as log:
        await log.drop([log.messages[0].id])
    await keep(session.prompt("d"))
    await keep(session.prompt("e", unwrap=False))

    assert [tuple(result.messages) for result in results] == seen
    assert results[-1].messages == session.messages == await store.load("demo")
    assert pickle.loads(pickle.dumps(results[0])).messages == seen[0]
    assert (*results[0].messages, *seen[0]) == results[0].messages + seen[0] == seen[0] + results[0].messages  # type: ignore[operator]


async def test_what_was_sent_before_is_forgotten_where_the_transcript_changed(store: Store) -> None:
    script = Script("one", say("no", stop="refusal"), "three", say("cut", stop="max_tokens"), "four", "five", "six")
    agent = Agent(script, limits=Limits(continuation_max_attempts=0))
    session = agent.session("demo", store=store)
    await session.prompt("a")

    await session.prompt("refused")
    await session.prompt("c")
    assert texts(script) == ["a", "one", "c"]

    await session.prompt("d")
    await session.prompt("e")
    assert texts(script) == ["a", "one", "c", "three", "d", "cut", "e"]
    async with store.log("demo") as log:
        await log.exclude([log.messages[0].id])
        await log.drop([log.messages[1].id])
    await session.prompt("f")
    assert texts(script) == ["c", "three", "d", "cut", "e", "four", "f"]

    await agent.session("demo", store=store).prompt("g")
    assert list(script.requests[-1].messages) == harden(await store.load("demo"))[:-1]


# Overrides ------------------------------------------------------------------------------------------


async def test_the_call_goes_before_the_session_and_the_session_before_the_agent() -> None:
    script = Script(repeat("ok"))
    agent = Agent(script, instructions="agent", max_tokens=1, temperature=0.1)
    session = agent.session(instructions="session", max_tokens=2)

    await session.prompt("x")
    await session.prompt("x", instructions="call")

    seen = [(request.system, request.max_tokens, request.temperature) for request in script.requests]
    assert seen == [("session", 2, 0.1), ("call", 2, 0.1)]


async def test_the_settings_of_a_session_are_those_of_its_next_prompt_its_role_included() -> None:
    script = Script("ok")
    roles = {"critic": Role(name="critic", instructions="You are a critic.", model="offline:other")}
    session = Agent(script, instructions="base", roles=roles).session("s", role="critic")

    assert (session.settings.instructions, session.settings.model) == ("You are a critic.", "offline:other")
    session.configure(model=script)
    await session.prompt("hi")

    assert session.settings.model is script
    assert script.requests[0].system == "You are a critic."
    [info] = await session.store.list()
    assert info.meta is not None
    assert info.meta["instructions"] == "You are a critic."


async def test_a_provider_may_be_swapped_between_prompts() -> None:
    one, two = Script(calls("noop"), "one", name="one"), Script(repeat("two"), name="two")
    session = Agent(one, tools=[noop]).session()
    await session.prompt("a")

    await session.prompt("b", model=two)
    session.configure(model=two)
    await session.prompt("c")

    assert shape(two.requests[-1].messages) == "u a t a u a u"
    assert len(one.requests) == 2


async def test_tools_and_limits_may_be_set_for_one_prompt() -> None:
    script = Script(calls("noop"), "one", calls("noop"))
    session = Agent(script).session(tools=[noop])
    await session.prompt("a")

    with pytest.raises(MaxTurnsExceeded):
        await session.prompt("b", limits=Limits(max_turns=1))

    assert session.limits == Limits()


async def test_a_function_gives_the_limits_of_a_session_anew_before_each_request() -> None:
    asked = iter(range(2, 100))
    limits = lambda: Limits(max_turns=min(next(asked), 4))  # noqa: E731
    agent = Agent(Script(repeat(calls("noop"))), tools=[noop], limits=limits)

    result = await agent.session().prompt("x", unwrap=False)
    own = await agent.session(limits=lambda: Limits(max_turns=3)).prompt("x", unwrap=False)
    of_call = await agent.session().prompt("x", limits=lambda: Limits(max_turns=1), unwrap=False)

    assert (result.turns, own.turns, of_call.turns) == (4, 3, 1)
    assert agent.session().limits == Limits(max_turns=4)


async def test_limits_replaced_while_a_prompt_runs_count_at_the_next_request() -> None:
    session = Agent(Script(repeat(calls("noop"))), tools=[noop], limits=Limits(max_turns=3)).session()

    def raise_limit(event: Event) -> None:
        if isinstance(event, RequestStart) and event.number == 2:
            session.limits = Limits(max_turns=4)

    result = await session.prompt("x", on_event=raise_limit, unwrap=False)
    again = await session.prompt("x", limits=Limits(max_turns=2), on_event=raise_limit, unwrap=False)

    assert result.turns == 4
    assert again.turns == 4  # the last word counts, also over what the call said
    with pytest.raises(TypeError, match=r"must be a glue\.Limits"):
        session.limits = 3  # type: ignore[assignment]


async def test_resume_goes_on_after_max_turns(store: Store) -> None:
    script = Script(calls("noop"), calls("noop"), "done")
    session = Agent(script, tools=[noop]).session("demo", store=store, limits=Limits(max_turns=1))
    stopped = await session.prompt("x", unwrap=False)
    assert stopped.outcome is Outcome.MAX_TURNS

    result = await session.resume(limits=Limits(max_turns=5))

    assert result.text == "done"
    assert shape(await store.load("demo")) == "u a t a t a"


def test_an_unknown_setting_is_refused() -> None:
    agent = Agent(Script())

    with pytest.raises(TypeError, match="no option 'colour'"):
        agent.session(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no option 'colour'"):
        agent.session().configure(colour="red")  # type: ignore[call-arg]


# While it runs ----------------------------------------------------------------------------------------


async def test_a_second_prompt_on_a_busy_session_is_refused_and_the_first_goes_on() -> None:
    session = Agent(Script(calls("noop"), "one", "two"), tools=[noop]).session("demo")
    refused = []

    async def interrupt(event: Any) -> None:
        with pytest.raises(SessionBusy, match="session 'demo' is busy"):
            await session.prompt("b")
        refused.append(True)

    @tool
    async def meddle() -> str:
        """Prompt again."""
        await interrupt(None)
        return "ok"

    session.configure(tools=[noop, meddle])
    script = Script(calls("meddle"), "one", "two")

    result = await session.prompt("a", model=script)
    assert refused == [True]
    assert result.text == "one"
    assert not session.running
    assert (await session.prompt("b", model=script)).text == "two"


async def test_with_queue_a_second_prompt_waits_its_turn() -> None:
    order: list[str] = []
    script = Script(repeat(lambda request: f"to {request.messages[-1].text}"))
    session = Agent(script).session(queue=True)

    async def say_and_note(text: str) -> None:
        order.append((await session.prompt(text)).text)

    async with anyio.create_task_group() as tasks:
        for text in "abcd":
            tasks.start_soon(say_and_note, text)
            await anyio.wait_all_tasks_blocked() if text == "a" else await anyio.lowlevel.checkpoint()

    assert sorted(order) == ["to a", "to b", "to c", "to d"]
    assert shape(session.messages) == "u a u a u a u a"
    answers = [message.text for message in session.messages]
    assert all(answers[i + 1] == f"to {answers[i]}" for i in range(0, 8, 2))


async def test_a_waiting_prompt_that_is_given_up_lets_nobody_in_early() -> None:
    session = Agent(Script(say("slow", delay=0.01), repeat("ok"))).session(queue=True)
    done: list[str] = []

    async def ask(text: str) -> None:
        await session.prompt(text)
        done.append(text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "first")
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.prompt("given up")
        tasks.start_soon(ask, "last")

    assert done == ["first", "last"]
    assert shape(session.messages) == "u a u a"


async def test_steering_is_heard_at_the_next_request() -> None:
    script = Script(calls("noop"), "done")
    session = Agent(script, tools=[noop]).session()

    def steer(event: Event) -> None:
        if isinstance(event, ToolStart):
            session.steer("Hurry up.")

    result = await session.prompt("x", on_event=steer)

    assert texts(script) == ["x", "", "ok", "Hurry up."]
    assert shape(result.messages) == "u a t u a"
    assert session.messages == result.messages


async def test_a_follow_up_is_heard_when_the_model_is_done() -> None:
    script = Script("one", "two")
    session = Agent(script).session()
    session.follow_up("And then?")

    result = await session.prompt("x")

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
        await session.prompt("x", on_event=stop)

    assert [message.text for message in await store.load("demo")] == ["x", "ab"]
    assert (await session.prompt("y")).text == "back"


async def test_a_cancelled_scope_leaves_a_valid_history_in_the_store(store: Store) -> None:
    @tool
    async def hang() -> str:
        """Wait for ever."""
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    session = Agent(Script(calls("hang"), "back"), tools=[hang]).session("demo", store=store)

    with anyio.CancelScope() as scope:
        await session.prompt("x")

    assert shape(await store.load("demo")) == "u a t"
    assert (await session.prompt("y")).text == "back"


@pytest.mark.parametrize("how", ["scope", "token"])
async def test_cancelled_at_any_event_the_store_holds_a_valid_history(how: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path, sync=False)

    def steps() -> Script:
        return Script(calls("noop", "noop", text="one"), say("two", chunk=1), "after")

    events: list[Event] = []
    await Agent(steps(), tools=[noop]).session("whole", store=store).prompt("x", on_event=events.append)

    for place in range(len(events)):
        session = Agent(steps(), tools=[noop]).session(f"cut-{place}", store=store)
        left = place

        def stop(event: Event, session: Session[None, None] = session) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                scope.cancel() if how == "scope" else session.cancel()

        with anyio.CancelScope() as scope:
            await session.prompt("x", on_event=stop, unwrap=False)

        stored = await store.load(session.id)
        assert [message.id for message in harden(stored)] == [message.id for message in stored], place
        assert (await session.prompt("y", model=Script("back"))).text == "back"


async def test_subscribers_hear_every_prompt_until_they_leave() -> None:
    session = Agent(Script("one", "two", "three")).session("demo")
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    session.subscribe(broken)
    leave = session.subscribe(heard.append)
    await session.prompt("a")
    await session.prompt("b")
    leave()
    leave()
    await session.prompt("c")

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


def test_prompt_sync_goes_on_across_event_loops(tmp_path: Path) -> None:
    script = Script("one", "two")
    session = Agent(script).session("demo", store=FileStore(tmp_path))

    session.prompt_sync("a")
    session.prompt_sync("b")

    assert texts(script) == ["a", "one", "b"]


async def test_prompt_sync_works_inside_a_running_loop() -> None:
    assert Agent(Script("one")).session().prompt_sync("a").text == "one"


# Forks ------------------------------------------------------------------------------------------------


async def test_a_fork_begins_at_a_message_and_goes_its_own_way(store: Store) -> None:
    script = Script("one", "two", "three", "four")
    session = Agent(script).session("demo", store=store)
    await session.prompt("a")
    await session.prompt("b")

    fork = await session.fork(at=2, id="fork")
    clone = await session.clone()
    await fork.prompt("c")

    assert texts(script) == ["a", "one", "c"]
    assert shape(await store.load("demo")) == "u a u a"
    assert await clone.load() == await session.load()
    tree = [(depth, info.id, info.forked_at) for depth, info in lineage(await store.list())]
    assert tree[0] == (0, "demo", None)
    assert set(tree[1:]) == {(1, "fork", 2), (1, clone.id, 4)}
    with pytest.raises(ValueError, match="cannot be forked at 99"):
        await session.fork(at=99)
    with pytest.raises(StoreError, match="there already"):
        await session.fork(id="fork")


async def test_a_fork_keeps_the_settings_of_its_session() -> None:
    script = Script(repeat("ok"))
    session = Agent(script).session(instructions="mine")

    fork = await session.fork()
    await fork.prompt("x")

    assert script.requests[0].system == "mine"


async def test_a_session_is_a_context_manager() -> None:
    async with Agent(Script("ok")).session("demo") as session:
        assert isinstance(session, Session)
        await session.prompt(user("x"))
    assert repr(session) == "Session('demo', Agent('script'))"


async def test_a_prompt_that_is_refused_before_it_is_sent_is_not_kept() -> None:
    session = Agent(Script("hello")).session()

    with pytest.raises(ValueError, match="tool_choice"):
        await session.prompt("first", limits=Limits(tool_choice="nope"))
    result = await session.prompt("second")

    assert [message.text for message in result.messages] == ["second", "hello"]

"""Runs that are cut or killed anywhere and resumed: the transcript is that of an uncut run."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from fakes.examples import examples
from fakes.loop import noop, texts
from fakes.sessions import POSTGRES, make_store
from hypothesis import given, settings
from hypothesis.strategies import composite, integers, sampled_from

from glue import (
    Agent,
    AssistantMessage,
    Cancel,
    Limits,
    Message,
    Outcome,
    Request,
    RunResult,
    StopReason,
    Text,
    UserMessage,
    tool,
    user,
)
from glue.errors import InvalidContinuation
from glue.events import Event, RequestStart
from glue.loop.position import position_of
from glue.loop.transcript import CONTINUE, NO_RESULT, OURS
from glue.policies import Hook, Policy, nudge
from glue.provider import ProviderEvent, opened
from glue.stores import MemoryStore, Store
from glue.testing import Script, call, calls, fail, partial, say, shape

STEPS: dict[str, list[Any]] = {
    "tools": [calls("noop", "noop"), calls("noop"), "end"],
    "chain": [say("one ", stop="max_tokens"), say("two ", stop="max_tokens"), "three"],
    "repair": [calls(partial("noop"), text="try ", stop="max_tokens"), calls("noop"), "end"],
    "pause": [say("one ", stop="pause_turn"), say("two ", stop="pause_turn"), "three"],
    "all": [
        calls("noop"),
        say("a ", stop="max_tokens"),
        calls("noop"),
        say("b ", stop="pause_turn"),
        "c",
    ],
    "nudge": [calls("noop"), calls("noop"), "end"],
}
KINDS = sorted(STEPS)


class StatelessProvider:
    """A provider whose reply depends only on the number of replies in the request.

    It may raise an error once, at the given request.
    """

    name = "stateless"

    def __init__(
        self, steps: Sequence[Any], fails_at: int = 0, error: Exception | None = None
    ) -> None:
        self.steps, self.fails_at, self.error = steps, fails_at, error
        self.asked: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        self.asked.append(request)
        if self.error is not None and len(self.asked) == self.fails_at:
            raise self.error
        step = self.steps[
            sum(isinstance(message, AssistantMessage) for message in request.messages)
        ]
        async with opened(Script(step), request) as events:
            async for event in events:
                yield event


class Note(Policy):
    """A policy that sends a nudge after the first batch."""

    def after_tools(self, state: Any, results: Any) -> Hook:
        return nudge("note") if len(state.messages) == 3 else None


def agent(kind: str, provider: Any = None) -> Agent[None, None]:
    policies = [Note()] if kind == "nudge" else []
    return Agent(provider or StatelessProvider(STEPS[kind]), tools=[noop], policies=policies)


async def uncut(kind: str) -> RunResult[None]:
    return await agent(kind).session("s").prompt("go")


def kinds_and_texts(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(shape([message]), message.text) for message in messages]


async def assert_resumes(kind: str, store: MemoryStore) -> None:
    whole = await uncut(kind)
    result = await agent(kind).session("s", store=store).resume()

    assert kinds_and_texts(result.messages) == kinds_and_texts(whole.messages)
    assert (result.text, result.outcome) == (whole.text, Outcome.DONE)
    assert await store.load("s") == result.messages


@pytest.mark.parametrize("kind", KINDS)
async def test_s127_a_run_ended_by_a_limit_before_any_request_is_resumed(kind: str) -> None:
    for most in range((await uncut(kind)).requests):
        store = MemoryStore()
        cut = (
            await agent(kind)
            .session("s", store=store)
            .prompt("go", limits=Limits(max_requests=most), unwrap=False)
        )
        assert cut.outcome is Outcome.MAX_TURNS
        await assert_resumes(kind, store)


@pytest.mark.parametrize("kind", KINDS)
async def test_s127_a_run_ended_by_a_limit_after_any_turn_is_resumed(kind: str) -> None:
    for most in range((await uncut(kind)).turns + 1):
        store = MemoryStore()
        cut = (
            await agent(kind)
            .session("s", store=store)
            .prompt("go", limits=Limits(max_turns=most), unwrap=False)
        )
        if cut.outcome is not Outcome.DONE:
            await assert_resumes(kind, store)


@pytest.mark.parametrize("error", [fail("auth"), ZeroDivisionError()])
@pytest.mark.parametrize("kind", KINDS)
async def test_s127_a_run_ended_by_an_error_at_any_request_is_resumed(
    kind: str, error: Exception
) -> None:
    for at in range(1, (await uncut(kind)).requests + 1):
        store = MemoryStore()
        with pytest.raises(type(error)):
            await (
                agent(kind, StatelessProvider(STEPS[kind], at, error))
                .session("s", store=store)
                .prompt("go")
            )
        await assert_resumes(kind, store)


@pytest.mark.parametrize("kind", KINDS)
async def test_s127_a_run_cancelled_at_any_request_is_resumed(kind: str) -> None:
    for at in range(1, (await uncut(kind)).requests + 1):
        store, cancel = MemoryStore(), Cancel()

        def listen(event: Event, at: int = at, cancel: Cancel = cancel) -> None:
            if isinstance(event, RequestStart) and event.number == at:
                cancel.cancel()

        session = agent(kind).session("s", store=store)
        cut = await session.prompt("go", on_event=listen, cancel=cancel, unwrap=False)
        assert cut.outcome is Outcome.CANCELLED
        await assert_resumes(kind, store)


async def killed_after(session: Any, writes: int) -> bool:
    """Run a prompt whose store fails after the given writes; return whether it failed."""
    writer, left = session._log._writer, [writes]
    write = writer.write

    def write_or_fail(records: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("killed")
        write(records)

    writer.write = write_or_fail
    try:
        await session.run("go", unwrap=False)
    except OSError:
        return True
    return False


async def killed(kind: str, writes: int) -> MemoryStore | None:
    """Return the store of a run that was killed after the given writes; None if it ended."""
    store = MemoryStore()
    is_killed = await killed_after(agent(kind).session("s", store=store), writes)
    return store if is_killed else None


@pytest.mark.parametrize("kind", KINDS)
async def test_s133_a_run_killed_after_any_write_is_resumed(kind: str) -> None:
    whole, writes = await uncut(kind), 0
    while (store := await killed(kind, writes := writes + 1)) is not None:
        result = await agent(kind).session("s", store=store).resume()

        assert result.outcome is Outcome.DONE
        assert await store.load("s") == result.messages
        # A stored answer counts as the end, so a nudge that would have followed it is lost.
        if NO_RESULT not in texts(result.messages) and kind != "nudge":
            assert kinds_and_texts(result.messages) == kinds_and_texts(whole.messages)
            assert result.text == whole.text
    assert writes >= len(whole.messages)
    with pytest.raises(InvalidContinuation):
        await agent(kind).resume(whole)


@pytest.mark.parametrize("kind", KINDS)
async def test_s133_a_session_killed_after_any_write_accepts_a_new_prompt(kind: str) -> None:
    writes = 0
    while (store := await killed(kind, writes := writes + 1)) is not None:
        provider = Script("fine")
        result = await Agent(provider).session("s", store=store).prompt("new")

        assert kinds_and_texts(result.new_messages) == [("u", "new"), ("a", "fine")]
        assert await store.load("s") == result.messages
        before = provider.requests[0].messages[:-1]
        assert (
            not before or not isinstance(before[-1], UserMessage) or before[-1].origin not in OURS
        )


async def test_s134_a_repair_does_not_end_a_chain() -> None:
    steps = [
        calls(partial("noop"), text="one ", stop="max_tokens"),
        say("two ", stop="max_tokens"),
        "three",
    ]
    made = Agent(StatelessProvider(steps), tools=[noop], limits=Limits(max_requests=2))
    cut = await made.run("go", unwrap=False)

    result = await made.resume(cut, limits=Limits())

    assert cut.outcome is Outcome.MAX_TURNS
    assert result.text == "one two three"


async def test_s135_a_run_killed_before_a_repair_prompt_requests_the_call_again() -> None:
    store = await killed("repair", 2)  # the prompt and the cut reply are stored
    assert store is not None

    provider = StatelessProvider(STEPS["repair"])
    await agent("repair", provider).session("s", store=store).resume()

    assert "before its tool call to noop was complete" in provider.asked[0].messages[-1].text


@composite
def scenarios(draw: Any) -> list[Any]:
    """Draw the replies of a run: calls, cut texts, cut calls and pauses, then an answer."""
    steps: list[Any] = []
    for number in range(draw(integers(1, 6))):
        text = f"part {number} "
        kind = draw(sampled_from(["call", "two", "cut", "repair", "pause"]))
        if kind == "call":
            steps.append(calls(call("count", {"n": number}), text=draw(sampled_from(["", text]))))
        elif kind == "two":
            steps.append(calls(call("count", {"n": number}), call("count", {"n": -number})))
        elif kind == "cut":
            steps.append(say(text, stop="max_tokens"))
        elif kind == "repair":
            steps.append(calls(partial("count"), text=text, stop="max_tokens"))
        else:
            steps.append(say(text, stop="pause_turn"))
    return [*steps, "the end"]


@tool
async def count(n: int = 0) -> str:
    """Return the number."""
    return f"counted {n}"


MANY: dict[str, Any] = {"continuation_max_attempts": 99, "continuation_tool_repair_attempts": 99}


def counting(steps: Sequence[Any], error_at: int = 0, **limits: Any) -> Agent[None, None]:
    provider = StatelessProvider(steps, error_at, fail("auth"))
    return Agent(provider, tools=[count], limits=Limits(**MANY, **limits))


Place: TypeAlias = tuple[Store, str]  # a store, and the id of an empty session in it


def in_memory() -> Place:
    return MemoryStore(), "s"


async def assert_ends_like(whole: RunResult[None], steps: list[Any], place: Place) -> None:
    store, name = place
    try:
        await counting(steps).session(name, store=store).resume()
    except InvalidContinuation:
        pass  # the run was killed after its last write
    messages = await store.load(name)
    if any(message.text == NO_RESULT for message in messages):
        return  # a call may have run before the process was killed
    assert kinds_and_texts(messages) == kinds_and_texts(whole.messages)


async def assert_same_transcript(steps: list[Any], place: Callable[[], Place] = in_memory) -> int:
    """Cut a run at each request and after each write, and resume it; return the number of cuts."""
    whole = await counting(steps).session("s").run("go")
    for number in range(1, whole.requests):
        store, name = place()
        session = counting(steps, max_requests=number).session(name, store=store)
        cut = await session.run("go", unwrap=False)
        assert position_of(await store.load(name)) == cut.position
        await assert_ends_like(whole, steps, (store, name))
    for number in range(1, whole.requests + 1):
        store, name = place()
        await counting(steps, number).session(name, store=store).run("go", unwrap=False)
        await assert_ends_like(whole, steps, (store, name))
    writes = 0
    while True:
        (store, name), writes = place(), writes + 1
        session = counting(steps).session(name, store=store)
        if not await killed_after(session, writes):
            break
        await assert_ends_like(whole, steps, (store, name))
    return 2 * whole.requests - 1 + writes - 1


@settings(max_examples=examples(60), deadline=None)
@given(scenarios())
def test_s136_a_random_run_cut_anywhere_and_resumed_has_the_same_transcript(
    steps: list[Any],
) -> None:
    anyio.run(assert_same_transcript, steps)


@pytest.mark.soak
@settings(max_examples=3000, deadline=None)
@given(scenarios())
def test_s136_many_random_runs_cut_anywhere_and_resumed_have_the_same_transcript(
    steps: list[Any],
) -> None:
    anyio.run(assert_same_transcript, steps)


@pytest.mark.parametrize("kind", [pytest.param("file", marks=pytest.mark.soak), "sqlite", POSTGRES])
def test_s136_random_runs_cut_anywhere_have_the_same_transcript_in_every_store(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cuts: list[int] = []
    ids = itertools.count()
    store = make_store(kind, tmp_path, request)

    async def cut_everywhere(steps: list[Any]) -> None:
        cuts.append(await assert_same_transcript(steps, lambda: (store, f"s{next(ids)}")))

    @settings(max_examples=5 if kind == "sqlite" else 60, deadline=None)
    @given(scenarios())
    def run(steps: list[Any]) -> None:
        anyio.run(cut_everywhere, steps)

    run()

    print(f"{kind}: {len(cuts)} runs, {sum(cuts)} cuts")


async def store_messages(store: MemoryStore, *messages: Message) -> None:
    """Store the messages that a killed process has written."""
    async with store.log("s") as log:
        await log.extend(messages)


HALF = AssistantMessage(content=(Text(text="part one "),), stop_reason=StopReason.MAX_TOKENS)
ASKED = user(CONTINUE, origin="continue")


async def test_s127_a_chain_of_a_killed_run_is_joined_when_it_is_resumed() -> None:
    store, script = MemoryStore(), Script("part two")
    await store_messages(store, user("go"), HALF, ASKED)

    result = await Agent(script).session("s", store=store).resume()

    assert result.text == "part one part two"
    assert texts(script.requests[0].messages) == ["go", "part one ", CONTINUE]
    assert await store.load("s") == result.messages


async def test_s127_the_prompt_to_continue_is_not_sent_twice_after_a_kill() -> None:
    store, script = (
        MemoryStore(),
        Script(say(HALF.text, stop="max_tokens"), fail("auth"), "part two"),
    )
    session = Agent(script).session("s", store=store)
    assert (await session.prompt("go", unwrap=False)).outcome is Outcome.FAILED
    await store_messages(store, ASKED)  # a resumed run was killed after this write

    result = await session.resume()

    assert texts(script.requests[-1].messages) == ["go", "part one ", CONTINUE]
    assert result.text == "part one part two"


@pytest.mark.parametrize("origin", ["continue", "repair", "nudge", "wrap_up"])
async def test_a_new_prompt_removes_the_unanswered_prompt_of_the_loop(
    origin: str,
) -> None:
    store, script = MemoryStore(), Script("fine")
    await store_messages(store, user("go"), HALF, user("a prompt of the loop", origin=origin))

    result = await Agent(script).session("s", store=store).prompt("something new")

    assert texts(script.requests[0].messages) == ["go", "part one ", "something new"]
    assert texts(result.new_messages) == ["something new", "fine"]
    assert await store.load("s") == result.messages


async def test_a_new_prompt_keeps_an_unanswered_steering_message() -> None:
    store, script = MemoryStore(), Script("fine")
    await store_messages(store, user("go"), HALF, user("hurry", origin="steering"))

    await Agent(script).session("s", store=store).prompt("something new")

    assert texts(script.requests[0].messages) == ["go", "part one ", "hurry", "something new"]

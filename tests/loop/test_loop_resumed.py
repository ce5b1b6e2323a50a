"""A run that was cut anywhere, or killed after any write, and resumed ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from glue import (
    Agent,
    AssistantMessage,
    Cancel,
    Limits,
    MemoryStore,
    Message,
    Outcome,
    Policy,
    ProviderEvent,
    Request,
    RunResult,
    UserMessage,
    tool,
)
from glue.errors import InvalidContinuation
from glue.events import Event, RequestStart
from glue.loop.transcript import NO_RESULT, OURS
from glue.policies import Hook, nudge
from glue.provider import opened
from glue.testing import Script, calls, fail, partial, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


STEPS: dict[str, list[Any]] = {
    "tools": [calls("noop", "noop"), calls("noop"), "end"],
    "chain": [say("one ", stop="max_tokens"), say("two ", stop="max_tokens"), "three"],
    "repair": [calls(partial("noop"), text="try ", stop="max_tokens"), calls("noop"), "end"],
    "pause": [say("one ", stop="pause_turn"), say("two ", stop="pause_turn"), "three"],
    "all": [calls("noop"), say("a ", stop="max_tokens"), calls("noop"), say("b ", stop="pause_turn"), "c"],
    "nudge": [calls("noop"), calls("noop"), "end"],
}
KINDS = sorted(STEPS)


class Position:
    """A provider whose answer depends on nothing but the number of replies in the request; it may fail once."""

    name = "position"

    def __init__(self, steps: Sequence[Any], fails_at: int = 0, error: Exception | None = None) -> None:
        self.steps, self.fails_at, self.error = steps, fails_at, error
        self.asked: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        self.asked.append(request)
        if self.error is not None and len(self.asked) == self.fails_at:
            raise self.error
        step = self.steps[sum(isinstance(message, AssistantMessage) for message in request.messages)]
        async with opened(Script(step), request) as events:
            async for event in events:
                yield event


class Note(Policy):
    """Speaks after the first batch."""

    def after_tools(self, state: Any, results: Any) -> Hook:
        return nudge("note") if len(state.messages) == 3 else None


def agent(kind: str, provider: Any = None) -> Agent[None, None]:
    policies = [Note()] if kind == "nudge" else []
    return Agent(provider or Position(STEPS[kind]), tools=[noop], policies=policies)


def story(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(shape([message]), message.text) for message in messages]


async def uncut(kind: str) -> RunResult[None]:
    return await agent(kind).session("s").prompt("go")


async def assert_goes_on(kind: str, store: MemoryStore) -> None:
    whole = await uncut(kind)
    result = await agent(kind).session("s", store=store).resume()

    assert story(result.messages) == story(whole.messages)
    assert (result.text, result.outcome) == (whole.text, Outcome.DONE)
    assert await store.load("s") == result.messages


@pytest.mark.parametrize("kind", KINDS)
async def test_s127_a_limit_before_each_request(kind: str) -> None:
    for most in range((await uncut(kind)).requests):
        store = MemoryStore()
        cut = await agent(kind).session("s", store=store).prompt("go", limits=Limits(max_requests=most), unwrap=False)
        assert cut.outcome is Outcome.MAX_TURNS
        await assert_goes_on(kind, store)


@pytest.mark.parametrize("kind", KINDS)
async def test_s127_a_limit_after_each_turn(kind: str) -> None:
    for most in range((await uncut(kind)).turns + 1):
        store = MemoryStore()
        cut = await agent(kind).session("s", store=store).prompt("go", limits=Limits(max_turns=most), unwrap=False)
        if cut.outcome is not Outcome.DONE:
            await assert_goes_on(kind, store)


@pytest.mark.parametrize("error", [fail("auth"), ZeroDivisionError()])
@pytest.mark.parametrize("kind", KINDS)
async def test_s127_an_error_at_each_request(kind: str, error: Exception) -> None:
    for at in range(1, (await uncut(kind)).requests + 1):
        store = MemoryStore()
        with pytest.raises(type(error)):
            await agent(kind, Position(STEPS[kind], at, error)).session("s", store=store).prompt("go")
        await assert_goes_on(kind, store)


@pytest.mark.parametrize("kind", KINDS)
async def test_s127_a_cancel_at_each_request(kind: str) -> None:
    for at in range(1, (await uncut(kind)).requests + 1):
        store, cancel = MemoryStore(), Cancel()

        def listen(event: Event, at: int = at, cancel: Cancel = cancel) -> None:
            if isinstance(event, RequestStart) and event.number == at:
                cancel.cancel()

        session = agent(kind).session("s", store=store)
        cut = await session.prompt("go", on_event=listen, cancel=cancel, unwrap=False)
        assert cut.outcome is Outcome.CANCELLED
        await assert_goes_on(kind, store)


async def killed(kind: str, writes: int) -> MemoryStore | None:
    """Run in a process that is killed after so many writes; None where it has ended before that."""
    store = MemoryStore()
    session = agent(kind).session("s", store=store)
    writer: Any = session._log._writer
    write, left = writer.write, [writes]

    def write_or_die(records: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("killed")
        write(records)

    writer.write = write_or_die
    try:
        await session.prompt("go", unwrap=False)
    except OSError:
        return store
    return None


@pytest.mark.parametrize("kind", KINDS)
async def test_s133_killed_after_each_write(kind: str) -> None:
    whole, writes = await uncut(kind), 0
    while (store := await killed(kind, writes := writes + 1)) is not None:
        result = await agent(kind).session("s", store=store).resume()

        assert result.outcome is Outcome.DONE
        assert await store.load("s") == result.messages
        told = [text for _, text in story(result.messages)]
        if NO_RESULT not in told and kind not in ("repair", "nudge"):  # what it was about to say is not known
            assert story(result.messages) == story(whole.messages)
            assert result.text == whole.text
    assert writes >= len(whole.messages)
    with pytest.raises(InvalidContinuation):
        await agent(kind).resume(whole)


@pytest.mark.parametrize("kind", KINDS)
async def test_s133_killed_after_each_write_and_asked_something_new(kind: str) -> None:
    writes = 0
    while (store := await killed(kind, writes := writes + 1)) is not None:
        provider = Script("fine")
        result = await Agent(provider).session("s", store=store).prompt("new")

        assert story(result.new_messages) == [("u", "new"), ("a", "fine")]
        assert await store.load("s") == result.messages
        before = provider.requests[0].messages[:-1]
        assert not before or not isinstance(before[-1], UserMessage) or before[-1].origin not in OURS

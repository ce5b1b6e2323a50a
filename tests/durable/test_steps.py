"""Durable steps: stored replies and tool results, on checkpoints in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

import glue
from glue import Agent, Limits, Usage
from glue.durable.steps import INTERRUPTED, DurableProvider, DurableTool
from glue.errorcodec import decode_error, encode_error
from glue.errors import BudgetExceeded, EmptyReply, FailoverError, ProviderError
from glue.messages import Json
from glue.testing import Repeat, Script, call, calls, fail, say

COST = Usage(input=10, output=5, cost=0.25)


class MemoryCheckpoints:
    """Checkpoints in memory. `stored` has the results of an earlier execution, by step number."""

    def __init__(self, stored: dict[int, tuple[str, Json]] | None = None) -> None:
        self.stored = dict(stored or {})
        self.begun: list[str] = []

    async def step(self, name: str, body: Callable[[], Any]) -> Json:
        number = len(self.begun)
        self.begun.append(name)
        if number in self.stored:
            assert self.stored[number][0] == name
            return self.stored[number][1]
        value = json.loads(json.dumps(await body()))
        self.stored[number] = name, value
        return value


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # DBOS supports only asyncio


def durably(agent: Agent[Any, Any], steps: MemoryCheckpoints, **options: Any) -> Any:
    slots = anyio.Semaphore(2)
    provider: Any = agent.settings.model
    tools = [DurableTool(tool, steps, slots) for tool in agent.settings.tools or ()]
    limits = Limits(parallel_tools=100)
    return agent.run(
        "go",
        model=DurableProvider(provider, steps),
        tools=tools,
        limits=limits,
        unwrap=False,
        **options,
    )


def error_of(result: Any) -> Any:
    return result.error


def seen(result: Any) -> list[Any]:
    return [(type(message).__name__, message.text) for message in result.messages]


async def test_a_replayed_run_sends_no_requests_and_reports_the_same_cost() -> None:
    done = []

    @glue.tool
    def act(x: int) -> str:
        """Act."""
        done.append(x)
        return f"did {x}"

    script = Script(
        calls(call("act", {"x": 1}), call("act", {"x": 2}), usage=COST), say("ready", usage=COST)
    )
    agent, steps = Agent(script, tools=[act]), MemoryCheckpoints()
    first = await durably(agent, steps)

    again = await durably(agent, MemoryCheckpoints(steps.stored))

    assert seen(again) == seen(first)
    assert (again.text, again.usage, again.cost, again.requests) == ("ready", first.usage, 0.5, 2)
    assert len(script.requests) == 2
    assert sorted(done) == [1, 2]


async def test_steps_begin_in_the_order_of_the_calls() -> None:
    order = []

    @glue.tool
    async def act(x: int) -> str:
        """Act."""
        for _ in range(30 - 10 * x):
            await anyio.lowlevel.checkpoint()
        order.append(x)
        return str(x)

    @glue.tool(idempotent=True)
    async def look(x: int) -> str:
        """Return x."""
        return str(x)

    asked = [
        call("act", {"x": 0}),
        call("look", {"x": 9}),
        call("act", {"x": 1}),
        call("act", {"x": 2}),
    ]
    script = Script(calls(*asked), say("ready"))
    steps = MemoryCheckpoints()

    await durably(Agent(script, tools=[act, look]), steps)

    assert steps.begun == ["model", "call act", "tool act", "tool look"] + [
        "call act",
        "tool act",
    ] * 2 + ["model"]
    assert order != [0, 1, 2]


@pytest.mark.parametrize("count", range(9))
async def test_a_run_can_be_resumed_after_any_step(count: int) -> None:
    effects: list[str] = []

    @glue.tool
    def act() -> str:
        """Act."""
        effects.append("act")
        return "acted"

    @glue.tool(idempotent=True)
    def look() -> str:
        """Return x."""
        effects.append("look")
        return "looked"

    def make() -> Agent[Any, Any]:
        replies = [
            calls("act", "look", usage=COST),
            calls("act", usage=COST),
            say("ready", usage=COST),
        ]

        def answer(request: glue.Request) -> Any:
            return replies[
                sum(isinstance(message, glue.AssistantMessage) for message in request.messages)
            ]

        return Agent(Script(Repeat(answer)), tools=[act, look])

    whole = MemoryCheckpoints()
    await durably(make(), whole)
    assert len(whole.stored) == 8  # model, call, tool, tool; model, call, tool; model

    effects.clear()
    result = await durably(
        make(),
        MemoryCheckpoints({at: whole.stored[at] for at in range(count) if at in whole.stored}),
    )

    assert result.text == "ready"
    assert result.cost == 0.75
    claimed = sum(
        1 for at in range(count) if at in whole.stored and whole.stored[at][0] == "call act"
    )
    ran = sum(1 for at in range(count) if at in whole.stored and whole.stored[at][0] == "tool act")
    assert effects.count("act") == 2 - claimed  # a call that had begun is not repeated
    told = [
        message.text
        for message in result.messages
        if isinstance(message, glue.ToolMessage) and message.is_error
    ]
    assert told == [INTERRUPTED] * (claimed - ran)


async def test_a_failed_request_is_stored_and_replayed() -> None:
    failover = glue.with_failover(
        Script(Repeat(fail("overloaded", "busy", status=529))), Script(fail("quota", "empty"))
    )
    steps = MemoryCheckpoints()
    first = await durably(Agent(failover), steps)

    again = await durably(Agent(Script()), MemoryCheckpoints(steps.stored))

    assert isinstance(error_of(again), FailoverError)
    assert str(error_of(again)) == str(error_of(first))
    assert (error_of(again).kind, len(error_of(again).attempts)) == ("quota", 2)
    assert (again.outcome, again.attempts, again.requests) == (
        first.outcome,
        first.attempts,
        first.requests,
    )


async def test_failed_attempts_are_replayed_with_the_reply() -> None:
    async def no_wait(_: float) -> None: ...

    steps = MemoryCheckpoints()
    provider = glue.providers.with_retries(
        Script(fail("overloaded"), say("ready", usage=COST)), sleep=no_wait
    )
    first = await durably(Agent(provider), steps)

    again = await durably(Agent(Script()), MemoryCheckpoints(steps.stored))

    assert len(first.attempts) == 1
    assert (again.text, again.attempts, again.requests, again.usage) == (
        "ready",
        first.attempts,
        2,
        first.usage,
    )


async def test_deltas_reach_listeners_once_and_are_not_replayed() -> None:
    def pieces(heard: list[Any]) -> list[str]:
        return [event.text for event in heard if isinstance(event, glue.provider.TextDelta)]

    steps, heard, later = MemoryCheckpoints(), [], []  # type: ignore[var-annotated]
    await durably(Agent(Script(say("abcdef", chunk=2))), steps, on_event=heard.append)

    again = await durably(Agent(Script()), MemoryCheckpoints(steps.stored), on_event=later.append)

    assert pieces(heard) == ["ab", "cd", "ef"]
    assert pieces(later) == []
    assert again.text == "abcdef"


async def test_the_error_of_a_tool_is_stored_as_the_model_saw_it() -> None:
    @glue.tool
    def act() -> str:
        """Act."""
        raise glue.ToolError("no such thing")

    steps = MemoryCheckpoints()
    await durably(Agent(Script(calls("act"), say("ready")), tools=[act]), steps)

    again = await durably(Agent(Script(), tools=[act]), MemoryCheckpoints(steps.stored))

    assert [
        message.text for message in again.messages if isinstance(message, glue.ToolMessage)
    ] == ["no such thing"]


async def test_a_cancelled_run_leaves_no_tasks_running() -> None:
    import asyncio  # noqa: TID251

    started = anyio.Event()

    @glue.tool
    async def act() -> str:
        """Act."""
        started.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: durably(Agent(Script(calls("act")), tools=[act]), MemoryCheckpoints())
        )
        await started.wait()
        tasks.cancel_scope.cancel()

    assert len(asyncio.all_tasks()) <= 2  # this test and its runner


async def test_slots_limit_how_many_calls_run_at_once() -> None:
    running, most = 0, 0

    @glue.tool
    async def act() -> str:
        """Act."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return ""

    await durably(
        Agent(Script(calls(*["act"] * 6), say("ready")), tools=[act]), MemoryCheckpoints()
    )

    assert most == 2  # the slots of `durably`


@pytest.mark.parametrize(
    "error",
    [
        ProviderError(
            "no", kind="timeout", provider="acme", status=504, retry_after=3.0, usage=COST
        ),
        EmptyReply(provider="acme"),
        BudgetExceeded("usd", 1.0, 2.0),
        glue.ToolError("odd"),
    ],
)
def test_an_error_is_the_same_after_encoding_and_decoding(error: Any) -> None:
    again: Any = decode_error(json.loads(json.dumps(encode_error(error))))

    assert (type(again), str(again)) == (type(error), str(error))
    for name in ("kind", "status", "retry_after", "retryable", "emitted", "usage", "request_id"):
        assert getattr(again, name, None) == getattr(error, name, None)


def test_an_unknown_error_is_decoded_as_a_run_error() -> None:
    assert type(decode_error(encode_error(KeyError("x")))) is glue.errors.RunError

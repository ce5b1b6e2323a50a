"""Cancel at every await: whatever the moment, the transcript is valid and nothing is left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from glue import Cancel, Message, Outcome, run, tool
from glue.messages import AssistantMessage, ToolMessage
from glue.providers.retry import with_retries
from glue.testing import Script, calls, fail, partial, say

TICKS = 400  # more checkpoints than the run has


class Log:
    """A journal with a checkpoint in every method."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def append(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        self.messages.append(message)

    async def insert(self, message: Message, before: str) -> None:
        await anyio.lowlevel.checkpoint()

    async def amend(self, id: str, fields: Mapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()

    async def drop(self, ids: Sequence[str]) -> None:
        await anyio.lowlevel.checkpoint()
        self.messages = [message for message in self.messages if message.id not in ids]

    async def exclude(self, ids: Sequence[str]) -> None:
        await anyio.lowlevel.checkpoint()


@tool
async def slow() -> str:
    """Take a few steps."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    return "ok"


@tool
def threaded() -> str:
    """Run in a thread."""
    return "ok"


async def no_sleep(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


def script() -> Script:
    return Script(
        fail("empty"),
        calls("slow", "slow"),
        say("part one ", stop="max_tokens", chunk=3),
        say("part two", chunk=3),
        name="script",
    )


def script_with_repair() -> Script:
    return Script(calls(partial("slow"), stop="max_tokens"), calls("slow", "threaded"), say("end", chunk=1))


def assert_valid(messages: Sequence[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.call_id
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            assert message.content
            waiting = [part.id for part in message.calls]
    assert not waiting
    assert getattr(messages[-1], "origin", "user") == "user" if messages else True


async def after_ticks(count: int, action: Any) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
    action()


@pytest.mark.parametrize("make", [script, script_with_repair])
async def test_a_token_cancels_at_any_moment(make: Any) -> None:
    finished = 0
    for tick in range(TICKS):
        provider, journal, cancel = make(), Log(), Cancel()
        results: list[Any] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(after_ticks, tick, cancel.cancel)
            wrapped = with_retries(provider, sleep=no_sleep)
            results.append(await run(wrapped, "go", tools=[slow, threaded], journal=journal, cancel=cancel))
            tasks.cancel_scope.cancel()

        result = results[0]
        assert result.outcome in (Outcome.CANCELLED, Outcome.DONE)
        assert_valid(result.messages)
        assert_valid(journal.messages)
        assert [m.id for m in journal.messages] == [m.id for m in result.new_messages[1:]]
        assert provider.open_streams == 0
        finished += result.outcome is Outcome.DONE
        if finished == 3:
            break

    assert tick > 15
    assert finished == 3


@pytest.mark.parametrize("make", [script, script_with_repair])
async def test_an_enclosing_scope_cancels_at_any_moment(make: Any) -> None:
    finished = 0
    for tick in range(TICKS):
        provider, journal = make(), Log()
        returned: list[Any] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(after_ticks, tick, tasks.cancel_scope.cancel)
            wrapped = with_retries(provider, sleep=no_sleep)
            returned.append(await run(wrapped, "go", tools=[slow, threaded], journal=journal))
            tasks.cancel_scope.cancel()

        assert_valid(journal.messages)
        assert provider.open_streams == 0
        if returned:
            assert [m.id for m in journal.messages] == [m.id for m in returned[0].new_messages[1:]]
        finished += bool(returned)
        if finished == 3:
            break

    assert tick > 15
    assert finished == 3

"""Runs cancelled at every await: transcript and journal are valid, and no stream is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from fakes.loop import RecordingJournal, assert_valid, no_sleep

from glue import Cancel, Message, Outcome, run, tool
from glue.providers.retry import with_retries
from glue.testing import Script, calls, fail, partial, say

TICKS = 400  # more checkpoints than the run has


@tool
async def slow() -> str:
    """Return after a few checkpoints."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    return "ok"


@tool
def threaded() -> str:
    """Run in a thread."""
    return "ok"


def script() -> Script:
    return Script(
        fail("empty"),
        calls("slow", "slow"),
        say("part one ", stop="max_tokens", chunk=3),
        say("part two", chunk=3),
        name="script",
    )


def script_with_repair() -> Script:
    return Script(
        calls(partial("slow"), stop="max_tokens"), calls("slow", "threaded"), say("end", chunk=1)
    )


def assert_stored(messages: Sequence[Message]) -> None:
    """Check that the messages are valid, and that the last is not a prompt of the loop."""
    assert_valid(messages)
    assert not messages or getattr(messages[-1], "origin", "user") == "user"


async def after_ticks(count: int, action: Any) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
    action()


@pytest.mark.parametrize("make", [script, script_with_repair])
async def test_a_run_cancelled_by_its_token_at_any_await_leaves_a_valid_journal(make: Any) -> None:
    finished = 0
    for tick in range(TICKS):
        provider, journal, cancel = make(), RecordingJournal(), Cancel()
        results: list[Any] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(after_ticks, tick, cancel.cancel)
            wrapped = with_retries(provider, sleep=no_sleep)
            results.append(
                await run(wrapped, "go", tools=[slow, threaded], journal=journal, cancel=cancel)
            )
            tasks.cancel_scope.cancel()

        result = results[0]
        assert result.outcome in (Outcome.CANCELLED, Outcome.DONE)
        assert_stored(result.messages)
        assert_stored(journal.messages)
        assert [m.id for m in journal.messages] == [m.id for m in result.new_messages[1:]]
        assert provider.open_streams == 0
        finished += result.outcome is Outcome.DONE
        if finished == 3:
            break

    assert tick > 15
    assert finished == 3


@pytest.mark.parametrize("make", [script, script_with_repair])
async def test_a_run_cancelled_by_its_scope_at_any_await_leaves_a_valid_journal(make: Any) -> None:
    finished = 0
    for tick in range(TICKS):
        provider, journal = make(), RecordingJournal()
        returned: list[Any] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(after_ticks, tick, tasks.cancel_scope.cancel)
            wrapped = with_retries(provider, sleep=no_sleep)
            returned.append(await run(wrapped, "go", tools=[slow, threaded], journal=journal))
            tasks.cancel_scope.cancel()

        assert_stored(journal.messages)
        assert provider.open_streams == 0
        if returned:
            assert [m.id for m in journal.messages] == [m.id for m in returned[0].new_messages[1:]]
        finished += bool(returned)
        if finished == 3:
            break

    assert tick > 15
    assert finished == 3

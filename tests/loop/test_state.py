"""`glue.loop.state`: writes to the journal, and the limits of parent runs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fakes.loop import RecordingJournal, assert_valid, ends, noop

from glue import AssistantMessage, Context, Limits, Message, Outcome, Usage, UserMessage, run, tool
from glue.context import Host
from glue.errors import BudgetExceeded, MaxTurnsExceeded, StoreError
from glue.events import Event, LimitReached
from glue.testing import Script, calls, repeat, say


async def test_every_change_of_the_transcript_is_written_to_the_journal() -> None:
    journal = RecordingJournal()
    provider = Script(say("part", stop="max_tokens"))

    await run(provider, "go", limits=Limits(max_requests=1), journal=journal)

    assert journal.operations == ["append a", "amend {'stop_reason': 'max_turns'}"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(5, "EIO"), StoreError("torn")]
)
async def test_s118_an_error_of_the_journal_carries_the_result_with_the_reply(
    error: Exception,
) -> None:
    whole = RecordingJournal()
    script = [calls("noop", "noop"), say("part", stop="max_tokens"), say("end")]
    limits = Limits(max_requests=2)

    done = await run(Script(*script), "go", tools=[noop], limits=limits, journal=whole)

    assert done.outcome is Outcome.MAX_TURNS

    for failing in range(whole.writes):
        events: list[Event] = []
        journal = RecordingJournal(failing, error)
        with pytest.raises(type(error)) as caught:
            await run(
                Script(*script),
                "go",
                tools=[noop],
                limits=limits,
                on_event=events.append,
                journal=journal,
            )

        assert caught.value is error
        result = caught.value.result  # type: ignore[attr-defined]
        assert len(ends(events)) == 1
        assert_valid(result.messages)
        assert result.messages[1].calls  # the reply is not lost
        assert journal.writes == failing + 1  # no write after the one that failed
        stored = [type(message) for message in journal.messages]
        expected = [AssistantMessage, *[type(m) for m in done.messages[2:]], UserMessage]
        assert stored == expected[: len(stored)]


async def test_a_scope_cancelled_during_a_write_ends_the_run_before_the_next_request() -> None:
    class Slow(RecordingJournal):
        blocks = True

        async def append(self, message: Message) -> None:
            await super().append(message)
            if message.text == "ok":
                scope.cancel()

    provider = Script(calls("noop"), "x")

    with anyio.CancelScope() as scope:
        await run(provider, "go", tools=[noop], journal=Slow())

    assert scope.cancelled_caught
    assert len(provider.requests) == 1


@pytest.mark.parametrize("own", [Limits(), Limits(max_requests=None)])
async def test_the_request_limit_of_the_parent_run_is_in_the_error_of_the_inner_run(
    own: Limits,
) -> None:
    inner: list[Any] = []
    events: list[Event] = []

    @tool
    async def nest(context: Context[None]) -> str:
        """Run the inner run."""
        host = Host(parent=context)
        provider = Script(repeat(calls("noop")))
        inner.append(
            await run(provider, "go", tools=[noop], host=host, limits=own, on_event=events.append)
        )
        return "ok"

    outer = await run(
        Script(repeat(calls("nest"))), "go", tools=[nest], limits=Limits(max_requests=3)
    )

    error = inner[0].error
    assert (inner[0].outcome, error.kind, error.used, error.limit) == (
        "max_turns",
        "requests",
        3,
        3,
    )
    assert [(event.used, event.max) for event in events if isinstance(event, LimitReached)] == [
        (3, 3)
    ]
    assert isinstance(outer.error, MaxTurnsExceeded)
    assert (outer.requests, outer.error.used, outer.error.limit) == (1, 3, 3)


async def test_the_budget_of_the_parent_run_ends_the_inner_run() -> None:
    inner: list[Any] = []

    @tool
    async def nest(context: Context[None]) -> str:
        """Run the inner run."""
        provider = Script(repeat(calls("noop", usage=Usage(output=40))))
        inner.append(await run(provider, "go", tools=[noop], host=Host(parent=context)))
        return "ok"

    outer = await run(Script(calls("nest")), "go", tools=[nest], limits=Limits(token_budget=100))

    assert (inner[0].outcome, inner[0].requests, outer.outcome) == ("budget", 3, "budget")
    assert isinstance(outer.error, BudgetExceeded)


async def test_a_cancelled_run_cancels_its_inner_runs() -> None:
    inner: list[Any] = []

    @tool
    async def nest(context: Context[None]) -> str:
        """Run the inner run, which goes on although the call is cancelled."""
        with anyio.CancelScope(shield=True):
            context.cancel.cancel()
            inner.append(await run(Script("x"), "go", host=Host(parent=context)))
        return "ok"

    await run(Script(calls("nest")), "go", tools=[nest])

    assert (inner[0].outcome, inner[0].requests) == ("cancelled", 0)

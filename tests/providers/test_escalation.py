"""Raising the output cap: LOOP rows 47 to 54."""

from __future__ import annotations

from typing import Any

import pytest

from glue.events import Event, MessageStart, OutputCapEscalated
from glue.limits import Limits, Outcome, StopReason
from glue.loop.run import run
from glue.messages import AssistantMessage, Request, Usage, user
from glue.providers.retry import with_escalation
from glue.testing import Script, call, calls, repeat, say

ASK = user("hello")
CUT = say("cut", stop="max_tokens")


def caps(script: Script) -> list[int | None]:
    return [request.max_tokens for request in script.requests]


async def test_the_cap_is_doubled_until_the_reply_fits() -> None:
    script, events = Script(CUT, CUT, "hello"), list[Event]()

    result = await run(with_escalation(script), [ASK], request=Request(max_tokens=4096), on_event=events.append)

    assert caps(script) == [4096, 8192, 16384]
    assert [type(message).__name__ for message in result.messages] == ["UserMessage", "AssistantMessage"]
    assert (result.text, result.outcome) == ("hello", Outcome.DONE)
    raised = [(event.previous, event.new) for event in events if isinstance(event, OutputCapEscalated)]
    assert raised == [(4096, 8192), (8192, 16384)]


async def test_without_the_wrapper_a_cut_reply_is_accepted() -> None:
    script, events = Script(CUT), list[Event]()

    result = await run(
        script,
        [ASK],
        request=Request(max_tokens=4096),
        limits=Limits(continuation_max_attempts=0),
        on_event=events.append,
    )

    assert result.outcome is Outcome.TRUNCATED
    assert not [event for event in events if isinstance(event, OutputCapEscalated)]


async def test_it_stops_after_as_many_attempts_as_allowed() -> None:
    script = Script(repeat(CUT))

    result = await run(
        with_escalation(script, attempts=2),
        [ASK],
        request=Request(max_tokens=8),
        limits=Limits(continuation_max_attempts=0),
    )

    assert len(script.requests) == 3
    replies = [message for message in result.messages if isinstance(message, AssistantMessage)]
    assert [reply.stop_reason for reply in replies] == [StopReason.MAX_TOKENS]


async def test_a_request_without_a_cap_is_left_alone() -> None:
    script = Script(CUT)

    await run(with_escalation(script), [ASK], limits=Limits(continuation_max_attempts=0))

    assert caps(script) == [None]


async def test_a_ceiling_that_is_reached_ends_it() -> None:
    script = Script(repeat(CUT))

    await run(
        with_escalation(script, attempts=5, ceiling=16),
        [ASK],
        request=Request(max_tokens=8),
        limits=Limits(continuation_max_attempts=0),
    )

    assert caps(script) == [8, 16]


async def test_a_continuation_starts_from_the_last_reply() -> None:
    script = Script(say("one ", stop="max_tokens"), say("longer ", stop="max_tokens"), "end")

    result = await run(with_escalation(script, attempts=1), [ASK], request=Request(max_tokens=8))

    assert (result.text, result.continuations) == ("longer end", 1)


@pytest.mark.parametrize(
    ("ladder", "expected"),
    [(10, [8, 18, 28, 38]), ([16, 64], [8, 16, 64]), ((4, 8, 9), [8, 9]), ("double", [8, 16, 32, 64])],
)
async def test_ladders(ladder: Any, expected: list[int]) -> None:
    script = Script(repeat(CUT))

    await run(
        with_escalation(script, ladder=ladder, attempts=3),
        [ASK],
        request=Request(max_tokens=8),
        limits=Limits(continuation_max_attempts=0),
    )

    assert caps(script) == expected


async def test_the_reply_that_is_thrown_away_is_named_and_paid_for() -> None:
    script = Script(
        say("cut", stop="max_tokens", usage=Usage(input=1, output=8)), say("ok", usage=Usage(input=1, output=2))
    )
    events: list[Event] = []

    result = await run(with_escalation(script), [ASK], request=Request(max_tokens=8), on_event=events.append)

    started = [event.id for event in events if isinstance(event, MessageStart) and event.role == "assistant"]
    (raised,) = [event for event in events if isinstance(event, OutputCapEscalated)]
    assert raised.discarded == started[0]
    assert result.attempts[0].discarded
    assert result.usage.output == 10


async def test_a_cut_call_is_asked_for_again_too() -> None:
    half = calls(call("noop", '{"', complete=False), stop="max_tokens")
    script = Script(half, "ok")

    result = await run(with_escalation(script), [ASK], request=Request(max_tokens=8))

    assert (result.text, result.repairs) == ("ok", 0)


@pytest.mark.parametrize("ladder", ["triple", 0, -1])
def test_a_ladder_that_leads_nowhere_is_refused(ladder: Any) -> None:
    with pytest.raises(ValueError, match=r"ladder|step"):
        with_escalation(Script(), ladder=ladder)

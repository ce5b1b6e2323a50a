"""Repeating a request with a higher output cap."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fakes.loop import cut

from glue import Cancel
from glue.events import Event, MessageEnd, MessageStart, OutputCapEscalated
from glue.limits import Limits, Outcome, StopReason
from glue.loop.run import run
from glue.messages import AssistantMessage, Request, Usage, user
from glue.provider import TextDelta
from glue.providers.escalation import with_escalation
from glue.testing import Script, call, calls, repeat, say, shape

ASK = user("hello")
CUT = say("cut", stop="max_tokens")


def caps(script: Script) -> list[int | None]:
    return [request.max_tokens for request in script.requests]


async def test_the_cap_is_doubled_until_the_reply_fits() -> None:
    script, events = Script(CUT, CUT, "hello"), list[Event]()

    result = await run(
        with_escalation(script), [ASK], request=Request(max_tokens=4096), on_event=events.append
    )

    assert caps(script) == [4096, 8192, 16384]
    assert [type(message).__name__ for message in result.messages] == [
        "UserMessage",
        "AssistantMessage",
    ]
    assert (result.text, result.outcome) == ("hello", Outcome.DONE)
    raised = [
        (event.previous, event.new) for event in events if isinstance(event, OutputCapEscalated)
    ]
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


async def test_it_stops_after_the_allowed_attempts() -> None:
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


async def test_no_attempt_follows_once_the_ceiling_is_reached() -> None:
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
    [
        (10, [8, 18, 28, 38]),
        ([16, 64], [8, 16, 64]),
        ((4, 8, 9), [8, 9]),
        ("double", [8, 16, 32, 64]),
    ],
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


async def test_the_discarded_reply_is_named_and_its_usage_counted() -> None:
    script = Script(
        say("cut", stop="max_tokens", usage=Usage(input=1, output=8)),
        say("ok", usage=Usage(input=1, output=2)),
    )
    events: list[Event] = []

    result = await run(
        with_escalation(script), [ASK], request=Request(max_tokens=8), on_event=events.append
    )

    started = [
        event.id
        for event in events
        if isinstance(event, MessageStart) and event.role == "assistant"
    ]
    (raised,) = [event for event in events if isinstance(event, OutputCapEscalated)]
    assert raised.discarded == started[0]
    assert result.attempts[0].discarded
    assert result.usage.output == 10


async def test_the_attempt_has_the_seconds_that_the_cut_reply_took() -> None:
    before = time.monotonic()

    result = await run(
        with_escalation(Script(say("cut", stop="max_tokens"), "ok")),
        [ASK],
        request=Request(max_tokens=8),
    )

    assert 0 <= result.attempts[0].seconds <= time.monotonic() - before


async def test_a_request_is_also_repeated_if_a_call_was_cut() -> None:
    half = calls(call("noop", '{"', complete=False), stop="max_tokens")
    script = Script(half, "ok")

    result = await run(with_escalation(script), [ASK], request=Request(max_tokens=8))

    assert (result.text, result.repairs) == ("ok", 0)


@pytest.mark.parametrize(
    ("ladder", "words"),
    [
        (
            "triple",
            "ladder must be 'double', a number of tokens to add or a list of limits, not 'triple'",
        ),
        (0, "ladder must be at least 1, the number of tokens to add, not 0"),
        (-1, "ladder must be at least 1, the number of tokens to add, not -1"),
    ],
)
def test_an_invalid_ladder_is_refused(ladder: Any, words: str) -> None:
    with_escalation(Script(), ladder=1)

    with pytest.raises(ValueError, match=f"^{words}$"):
        with_escalation(Script(), ladder=ladder)


CAP = Request(max_tokens=4096)


async def test_s047_the_cap_doubles_until_the_reply_fits() -> None:
    events: list[Event] = []
    provider = Script(cut("a"), cut("b"), "hello")

    result = await run(
        with_escalation(provider, attempts=3), "go", request=CAP, on_event=events.append
    )

    assert caps(provider) == [4096, 8192, 16384]
    assert (shape(result.messages), result.text, result.outcome) == ("u a", "hello", "done")
    raised = [(e.attempt, e.previous, e.new) for e in events if isinstance(e, OutputCapEscalated)]
    assert raised == [(1, 4096, 8192), (2, 8192, 16384)]
    assert all(
        m.stop_reason != "max_tokens" for m in result.messages if isinstance(m, AssistantMessage)
    )
    assert result.requests == 3


NO_CONTINUATION = Limits(continuation_max_attempts=0)


async def test_s048_without_escalation_a_cut_reply_is_accepted() -> None:
    events: list[Event] = []

    result = await run(
        Script(cut()), "go", request=CAP, limits=NO_CONTINUATION, on_event=events.append
    )

    assert (result.outcome, result.requests) == ("truncated", 1)
    assert not [event for event in events if isinstance(event, OutputCapEscalated)]


async def test_s049_escalation_stops_after_its_attempts() -> None:
    provider = Script(repeat(cut()))

    result = await run(
        with_escalation(provider, attempts=2), "go", request=CAP, limits=NO_CONTINUATION
    )

    assert (len(provider.requests), shape(result.messages), result.stop_reason) == (
        3,
        "u a",
        "max_tokens",
    )
    assert result.outcome == "truncated"


async def test_s050_a_request_without_a_cap_is_not_escalated() -> None:
    provider = Script(cut())

    await run(with_escalation(provider, attempts=2), "go", limits=NO_CONTINUATION)

    assert len(provider.requests) == 1


async def test_s051_escalation_stops_at_its_ceiling() -> None:
    provider = Script(repeat(cut()))

    await run(
        with_escalation(provider, attempts=5, ceiling=16),
        "go",
        request=Request(max_tokens=8),
        limits=NO_CONTINUATION,
    )

    assert caps(provider) == [8, 16]


async def test_s052_a_continuation_follows_the_last_escalated_reply() -> None:
    provider = Script(cut("one "), cut("two "), "three")

    result = await run(with_escalation(provider, attempts=1), "go", request=CAP)

    assert (result.text, result.continuations, shape(result.messages)) == (
        "two three",
        1,
        "u a u+ a",
    )


@pytest.mark.parametrize(
    ("ladder", "expected"), [(100, [10, 110, 210, 310]), ([20, 50], [10, 20, 50])]
)
async def test_s053_a_ladder_may_be_a_step_or_a_list(ladder: Any, expected: list[int]) -> None:
    provider = Script(repeat(cut()))

    await run(
        with_escalation(provider, ladder=ladder, attempts=3),
        "go",
        request=Request(max_tokens=10),
        limits=NO_CONTINUATION,
    )

    assert caps(provider) == expected


async def test_s054_the_event_of_an_escalation_names_the_discarded_reply() -> None:
    events: list[Event] = []

    result = await run(
        with_escalation(Script(cut("a"), "b"), attempts=1),
        "go",
        request=CAP,
        on_event=events.append,
    )

    started = [event.id for event in events if type(event).__name__ == "MessageStart"]  # type: ignore[union-attr]
    discarded = [event.discarded for event in events if isinstance(event, OutputCapEscalated)]
    assert started[1:] == [*discarded, result.messages[-1].id]
    ended = [event.message for event in events if isinstance(event, MessageEnd)]
    assert [message.id for message in ended] == started
    assert [(message.meta or {}).get("discarded") for message in ended] == [None, True, None]


async def test_the_usage_of_a_discarded_reply_is_counted() -> None:
    provider = Script(
        cut("a", usage=Usage(input=5, output=7, cost=1.0)),
        say("b", usage=Usage(output=1, cost=0.5)),
    )

    result = await run(with_escalation(provider, attempts=1), "go", request=CAP)

    assert (result.usage.input, result.usage.output, result.cost) == (5, 8, 1.5)


async def test_the_text_of_a_discarded_reply_is_not_in_a_cancelled_answer() -> None:
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == "new":
            cancel.cancel()

    provider = Script(cut("old text"), say("newer", chunk=3))

    result = await run(
        with_escalation(provider, attempts=1), "go", request=CAP, on_event=listen, cancel=cancel
    )

    assert (result.outcome, result.text) == ("cancelled", "new")


async def test_the_cut_reply_is_kept_if_no_request_is_left_for_an_escalation() -> None:
    events: list[Event] = []
    provider = Script(say("paid for", stop="max_tokens", usage=Usage(output=9)))

    result = await run(
        with_escalation(provider),
        "go",
        request=Request(max_tokens=10),
        limits=Limits(max_requests=1),
        on_event=events.append,
    )

    assert (result.outcome, result.text, shape(result.messages)) == ("max_turns", "paid for", "u a")
    assert (result.usage.output, result.stop_reason) == (9, "max_turns")
    assert not [event for event in events if isinstance(event, OutputCapEscalated)]

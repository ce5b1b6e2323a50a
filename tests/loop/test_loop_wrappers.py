"""LOOP scenarios 47 to 65: escalation, empty replies, transports that fail, overflow, pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from glue import Agent, Cancel, Limits, Message, Policy, Request, Usage, run, tool
from glue.errors import ContextOverflow, EmptyReply, ProviderError
from glue.events import Compacted, Event, MessageEnd, MessageStart, OutputCapEscalated, TurnEnd, TurnStart
from glue.loop.state import State
from glue.messages import AssistantMessage, user
from glue.provider import Attempt, TextDelta
from glue.providers import with_failover
from glue.providers.retry import HINT, with_escalation, with_retries
from glue.testing import Reply, Script, calls, fail, repeat, say, shape

CAP = Request(max_tokens=4096)
NO_CONTINUATION = Limits(continuation_max_attempts=0)


class Clock:
    """Takes the place of sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await anyio.lowlevel.checkpoint()


def cut(text: str = "x", **options: Any) -> Reply:
    return say(text, stop="max_tokens", **options)


def caps(provider: Script) -> list[int | None]:
    return [request.max_tokens for request in provider.requests]


def zero() -> ProviderError:
    return fail("transient", "the connection broke before any output")


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


async def test_s047_the_cap_doubles_until_the_reply_fits() -> None:
    events: list[Event] = []
    provider = Script(cut("a"), cut("b"), "hello")

    result = await run(with_escalation(provider, attempts=3), "go", request=CAP, on_event=events.append)

    assert caps(provider) == [4096, 8192, 16384]
    assert (shape(result.messages), result.text, result.outcome) == ("u a", "hello", "done")
    raised = [(e.attempt, e.previous, e.new) for e in events if isinstance(e, OutputCapEscalated)]
    assert raised == [(1, 4096, 8192), (2, 8192, 16384)]
    assert all(m.stop_reason != "max_tokens" for m in result.messages if isinstance(m, AssistantMessage))
    assert result.requests == 3


async def test_s048_without_escalation_a_truncated_reply_is_taken() -> None:
    events: list[Event] = []

    result = await run(Script(cut()), "go", request=CAP, limits=NO_CONTINUATION, on_event=events.append)

    assert (result.outcome, result.requests) == ("truncated", 1)
    assert not [event for event in events if isinstance(event, OutputCapEscalated)]


async def test_s049_escalations_are_counted() -> None:
    provider = Script(repeat(cut()))

    result = await run(with_escalation(provider, attempts=2), "go", request=CAP, limits=NO_CONTINUATION)

    assert (len(provider.requests), shape(result.messages), result.stop_reason) == (3, "u a", "max_tokens")
    assert result.outcome == "truncated"


async def test_s050_no_cap_no_escalation() -> None:
    provider = Script(cut())

    await run(with_escalation(provider, attempts=2), "go", limits=NO_CONTINUATION)

    assert len(provider.requests) == 1


async def test_s051_escalation_stops_at_its_ceiling() -> None:
    provider = Script(repeat(cut()))

    await run(
        with_escalation(provider, attempts=5, ceiling=16), "go", request=Request(max_tokens=8), limits=NO_CONTINUATION
    )

    assert caps(provider) == [8, 16]


async def test_s052_a_continuation_starts_from_the_last_reply() -> None:
    provider = Script(cut("one "), cut("two "), "three")

    result = await run(with_escalation(provider, attempts=1), "go", request=CAP)

    assert (result.text, result.continuations, shape(result.messages)) == ("two three", 1, "u a u+ a")


@pytest.mark.parametrize(("ladder", "expected"), [(100, [10, 110, 210, 310]), ([20, 50], [10, 20, 50])])
async def test_s053_ladders_may_be_steps_or_a_list(ladder: Any, expected: list[int]) -> None:
    provider = Script(repeat(cut()))

    await run(
        with_escalation(provider, ladder=ladder, attempts=3),
        "go",
        request=Request(max_tokens=10),
        limits=NO_CONTINUATION,
    )

    assert caps(provider) == expected


async def test_s054_a_discarded_reply_is_named() -> None:
    events: list[Event] = []

    result = await run(with_escalation(Script(cut("a"), "b"), attempts=1), "go", request=CAP, on_event=events.append)

    started = [event.id for event in events if type(event).__name__ == "MessageStart"]  # type: ignore[union-attr]
    discarded = [event.discarded for event in events if isinstance(event, OutputCapEscalated)]
    assert started[1:] == [*discarded, result.messages[-1].id]
    ended = [event.message for event in events if isinstance(event, MessageEnd)]
    assert [message.id for message in ended] == started
    assert [(message.meta or {}).get("discarded") for message in ended] == [None, True, None]


async def test_what_was_thrown_away_is_still_paid_for() -> None:
    provider = Script(cut("a", usage=Usage(input=5, output=7, cost=1.0)), say("b", usage=Usage(output=1, cost=0.5)))

    result = await run(with_escalation(provider, attempts=1), "go", request=CAP)

    assert (result.usage.input, result.usage.output, result.cost) == (5, 8, 1.5)


async def test_s055_an_empty_reply_is_asked_for_again() -> None:
    clock = Clock()
    provider = Script(fail("empty"), "ok")

    result = await run(with_retries(provider, sleep=clock), "go")

    assert (result.requests, clock.slept, result.outcome) == (2, [0.25], "done")
    assert [attempt.kind for attempt in result.attempts] == ["empty"]


@pytest.mark.parametrize("empty", [fail("empty"), say("")])
async def test_s056_three_empty_replies_are_a_failure(empty: Any) -> None:
    clock = Clock()

    result = await run(with_retries(Script(repeat(empty)), sleep=clock), "go")

    assert (result.requests, clock.slept, result.outcome) == (3, [0.25, 0.5], "failed")
    assert isinstance(result.error, EmptyReply)
    assert shape(result.messages) == "u"


async def test_s057_a_stream_without_its_end_is_an_empty_reply() -> None:
    clock = Clock()

    result = await run(with_retries(Script(say("", terminal=False), "ok"), sleep=clock), "go")

    assert (result.requests, clock.slept, result.outcome) == (2, [0.25], "done")


async def test_s057_also_without_the_wrapper() -> None:
    result = await run(Script(say("", terminal=False)), "go")

    assert isinstance(result.error, EmptyReply)


async def test_a_stream_that_ends_in_the_middle_is_a_protocol_error_after_output() -> None:
    result = await run(Script(say("half an", terminal=False)), "go")

    assert isinstance(result.error, ProviderError)
    assert (result.error.kind, result.error.emitted, shape(result.messages)) == ("protocol", True, "u")


async def test_s058_a_transport_that_fails_is_tried_again_with_less_reasoning_and_a_hint() -> None:
    clock = Clock()
    provider = Script(zero(), "ok")

    result = await run(with_retries(provider, sleep=clock), "go", request=Request(reasoning="high"))

    assert (result.requests, clock.slept, result.outcome) == (2, [0.5], "done")
    assert [request.reasoning for request in provider.requests] == ["high", "minimal"]
    assert [len(request.messages) for request in provider.requests] == [1, 2]
    assert provider.requests[1].messages[-1].text == HINT
    assert shape(result.messages) == "u a"
    assert all(message.text != HINT for message in result.messages)


async def test_s059_a_transport_is_tried_twice() -> None:
    result = await run(with_retries(Script(repeat(zero())), sleep=Clock()), "go")

    assert (result.requests, result.outcome) == (2, "failed")


async def test_s060_low_reasoning_stays() -> None:
    provider = Script(zero(), "ok")

    await run(with_retries(provider, sleep=Clock()), "go", request=Request(reasoning="low"))

    assert [request.reasoning for request in provider.requests] == ["low", "low"]


async def test_s061_a_cancel_ends_a_back_off_at_once() -> None:
    cancel = Cancel()

    async def sleep(seconds: float) -> None:
        cancel.cancel()
        await anyio.sleep_forever()

    result = await run(with_retries(Script(repeat(fail("empty"))), sleep=sleep), "go", cancel=cancel)

    assert (result.outcome, result.requests) == ("cancelled", 2)


class Tail(Policy):
    """A compactor that keeps the last message, or as many as it is told."""

    def __init__(self, keep: int = 1) -> None:
        self.keep = keep

    async def compact(self, state: State) -> Sequence[Message] | None:
        return state.messages[-self.keep :]


LONG: list[Message] = [user("a" * 400), AssistantMessage(content=user("b" * 400).content), user("now")]


async def test_s062_an_overflow_is_compacted_and_tried_again() -> None:
    events: list[Event] = []
    provider = Script(fail("context_overflow"), calls("noop"), "ok")

    result = await run(provider, LONG, tools=[noop], policies=[Tail()], on_event=events.append)

    assert [len(request.messages) for request in provider.requests] == [3, 1, 3]
    assert (result.outcome, shape(result.messages), shape(result.new_messages)) == ("done", "u a t a", "u a t a")
    assert [(e.before, e.after, e.removed) for e in events if isinstance(e, Compacted)] == [(201, 1, 2)]


async def test_s062_a_second_overflow_ends_the_run() -> None:
    provider = Script(repeat(fail("context_overflow")))

    result = await run(provider, LONG, policies=[Tail()])

    assert (result.outcome, len(provider.requests)) == ("context_window", 2)


@pytest.mark.parametrize("policies", [[Tail(keep=3)], []])
async def test_s063_without_room_to_gain_an_overflow_ends_the_run(policies: list[Policy]) -> None:
    result = await run(Script(fail("context_overflow")), LONG, policies=policies)

    assert (result.outcome, result.requests) == ("context_window", 1)
    assert isinstance(result.error, ContextOverflow)
    assert list(result.messages) == [*LONG[:-1], replace(LONG[-1], excluded=True)]
    assert "left out of later requests" in result.notice


async def test_s064_text_with_a_full_window_is_kept() -> None:
    result = await run(Script(say("half", stop="context_window")), "go")

    assert (result.outcome, result.text, result.requests, shape(result.messages)) == (
        "context_window",
        "half",
        1,
        "u a",
    )
    assert result.stop_reason == "context_window"
    assert isinstance(result.error, ContextOverflow)


async def test_s065_a_pause_goes_on_without_a_word() -> None:
    provider = Script(say("one ", stop="pause_turn"), "two")

    result = await run(provider, "go", limits=Limits(max_turns=2))

    assert (shape(result.messages), result.requests, result.text) == ("u a a", 2, "one two")
    assert result.turns == 1


async def test_s129_an_endless_pause_ends_at_the_turn_limit() -> None:
    events: list[Event] = []
    limits = Limits(max_turns=3, max_requests=None)

    result = await run(Script(repeat(say("on ", stop="pause_turn"))), "go", limits=limits, on_event=events.append)

    assert (result.outcome, result.requests, shape(result.messages)) == ("max_turns", 3, "u a a a")
    assert [event.turn for event in events if isinstance(event, TurnStart)] == [1, 2, 3]
    assert [event.turn for event in events if isinstance(event, TurnEnd)] == [1, 2, 3]


async def test_an_endless_pause_ends_at_the_request_limit() -> None:
    result = await run(Script(repeat(say("", stop="pause_turn"))), "go", limits=Limits(max_requests=4))

    assert (result.outcome, result.requests, shape(result.messages)) == ("max_turns", 4, "u")


async def test_a_failed_try_is_told_and_kept_on_the_reply() -> None:
    events: list[Event] = []
    provider = Script(fail("empty", "nothing came"), say("ok"))

    result = await run(with_retries(provider, sleep=Clock()), "go", on_event=events.append)

    told = [event for event in events if isinstance(event, Attempt)]
    assert [(attempt.kind, attempt.delay) for attempt in told] == [("empty", 0.25)]
    reply = result.messages[-1]
    assert reply.meta is not None
    (noted,) = reply.meta["attempts"]
    assert (noted["kind"], noted["provider"], noted["delay"]) == ("empty", "script", 0.25)
    assert noted["seconds"] == round(told[0].seconds, 3)
    assert "usage" not in noted
    assert "next_cap" not in noted


async def test_each_failure_of_a_chain_is_told_once() -> None:
    chain = with_failover(Script(fail("auth", "one")), Script(fail("auth", "two")))

    result = await Agent(chain).run("go", unwrap=False)

    assert [attempt.detail for attempt in result.attempts] == ["script: one", "script: two"]


async def test_what_was_thrown_away_is_not_in_a_cancelled_answer() -> None:
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == "new":
            cancel.cancel()

    provider = Script(cut("old text"), say("newer", chunk=3))
    result = await run(with_escalation(provider, attempts=1), "go", request=CAP, on_event=listen, cancel=cancel)

    assert (result.outcome, result.text) == ("cancelled", "new")


async def test_each_turn_and_each_reply_has_its_own_number_and_id() -> None:
    events: list[Event] = []
    provider = Script(calls("noop", text="one"), calls("noop", text="two"), "three")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert [event.turn for event in events if isinstance(event, TurnStart)] == [1, 2, 3]
    assert [event.turn for event in events if isinstance(event, TurnEnd)] == [1, 2, 3]
    replies = [message.id for message in result.messages if isinstance(message, AssistantMessage)]
    assert [event.id for event in events if isinstance(event, MessageStart)] == [result.messages[0].id, *replies]
    assert len(set(replies)) == 3

"""LOOP scenarios 5 to 32: plain runs, stop reasons, and text that continues after max_tokens."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from glue import Cancel, Limits, Outcome, Policy, Request, StopReason, Usage, collapse_continuations, run, tool
from glue.events import (
    ContinuationAttempt,
    ContinuationTerminated,
    Event,
    MessageEnd,
    MessageStart,
    RunEnd,
    RunStart,
    StopReasonObserved,
    ToolPayloadRepair,
)
from glue.loop.transcript import CONTINUE, merge
from glue.loop.truncation import PLACEHOLDER
from glue.messages import AssistantMessage, Text, Thinking, UserMessage, new_id, user
from glue.policies import Hook, Steering, nudge
from glue.provider import Done, ProviderEvent
from glue.testing import Reply, Script, calls, fail, partial, repeat, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


def names(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def cut(text: str = "x", **options: Any) -> Reply:
    return say(text, stop="max_tokens", **options)


async def test_s005_an_unknown_stop_reason_warns_once_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "glue.loop")
    provider = Script(repeat(say("x", stop="unknown", raw="zzz")), model=f"model-{new_id()}")  # never warned of yet

    for _ in range(2):
        result = await run(provider, "hi")

    assert result.outcome is Outcome.DONE
    assert result.stop_reason is StopReason.UNKNOWN
    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert last.raw_stop_reason == "zzz"
    assert [(record.name, record.levelname) for record in caplog.records] == [("glue.loop", "WARNING")]


def test_s005_an_unknown_stop_reason_warns_once_per_provider_model_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from glue.events import log_event

    caplog.set_level(logging.WARNING, "glue.loop")
    one = StopReasonObserved(
        provider="p", model="once", normalized=StopReason.UNKNOWN, raw="zzz", run_id="r", request=1
    )
    other = StopReasonObserved(
        provider="p", model="twice", normalized=StopReason.UNKNOWN, raw="zzz", run_id="r", request=1
    )

    for event in (one, one, other, one):
        log_event(event)

    assert len(caplog.records) == 2
    assert "'zzz'" in caplog.records[0].getMessage()


async def test_s007_a_plain_answer_ends_the_run() -> None:
    events: list[Event] = []

    result = await run(provider := Script("hi"), "hello", on_event=events.append)

    assert (shape(result.messages), result.outcome, result.stop_reason) == ("u a", "done", "end_turn")
    assert (result.text, result.requests, len(provider.requests)) == ("hi", 1, 1)
    assert result.error is None
    assert not {"ContinuationAttempt", "ContinuationTerminated", "ToolPayloadRepair"} & set(names(events))


async def test_s008_a_call_is_run_and_its_result_sent() -> None:
    result = await run(provider := Script(calls("noop"), "x"), "go", tools=[noop])

    assert shape(result.messages) == "u a t a"
    assert (result.outcome, result.turns, result.requests) == ("done", 1, 2)
    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert last.stop_reason is StopReason.END_TURN
    assert shape(provider.requests[1].messages) == "u a t"
    assert provider.requests[1].messages[-1].text == "ok"
    provider.assert_used_up()


async def test_s009_a_whole_call_runs_though_the_reason_is_stop() -> None:
    result = await run(Script(calls("noop", stop="end_turn"), "x"), "go", tools=[noop])

    assert shape(result.messages) == "u a t a"


async def test_s010_tool_use_without_a_call_is_an_end() -> None:
    result = await run(Script(say("done", stop="tool_use")), "go", tools=[noop])

    assert (result.outcome, result.text, result.requests) == ("done", "done", 1)


async def test_s011_events_come_in_order() -> None:
    events: list[Event] = []

    await run(Script(calls("noop"), "x"), "go", tools=[noop], on_event=events.append)

    order = [name for name in names(events) if name not in ("MessageStart", "ToolCallDelta", "TextDelta")]
    assert order == [
        "RunStart",
        "MessageEnd",
        "TurnStart",
        "RequestStart",
        "StopReasonObserved",
        "MessageEnd",
        "ToolStart",
        "ToolEnd",
        "TurnEnd",
        "TurnStart",
        "RequestStart",
        "StopReasonObserved",
        "MessageEnd",
        "TurnEnd",
        "RunEnd",
    ]
    assert names(events)[1] == "MessageStart"
    assert names(events).index("MessageStart", 2) == names(events).index("ToolCallDelta") - 1
    assert isinstance(first := events[0], RunStart)
    assert isinstance(last := events[-1], RunEnd)
    assert first.run_id == last.run_id


async def test_message_events_carry_the_id_of_the_stored_message() -> None:
    events: list[Event] = []

    result = await run(Script(say("abc", chunk=1)), "go", on_event=events.append)

    started = [event.id for event in events if isinstance(event, MessageStart)]
    assert started == [message.id for message in result.messages]
    assert names(events).count("TextDelta") == 3


async def test_a_reply_without_deltas_has_a_start_too() -> None:
    class Whole:
        name = "whole"

        async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
            yield Done(message=AssistantMessage(content=(Text(text="hi"),)))

    events: list[Event] = []
    result = await run(Whole(), "go", on_event=events.append)

    started = [event.id for event in events if isinstance(event, MessageStart)]
    assert started == [message.id for message in result.messages]


async def test_s012_text_continues_after_max_tokens() -> None:
    events: list[Event] = []

    result = await run(Script(cut("part one "), "part two"), "go", on_event=events.append)

    assert (shape(result.messages), result.text) == ("u a u+ a", "part one part two")
    assert (result.outcome, result.requests, result.continuations) == ("done", 2, 1)
    attempts = [event for event in events if isinstance(event, ContinuationAttempt)]
    ends = [event for event in events if isinstance(event, ContinuationTerminated)]
    assert [(event.attempt, event.chars, event.left) for event in attempts] == [(1, 9, 2)]
    assert [(event.reason, event.attempts) for event in ends] == [("completed", 1)]


async def test_s013_the_continue_prompt_is_a_plain_user_message() -> None:
    events: list[Event] = []
    provider = Script(cut("part one "), "part two")

    result = await run(provider, "go", on_event=events.append)

    prompt = result.messages[2]
    assert isinstance(prompt, UserMessage)
    assert prompt.content == (Text(text="Continue from where you left off."),)
    assert prompt.text == CONTINUE
    assert provider.requests[1].messages[-1] == prompt
    assert prompt in [event.message for event in events if isinstance(event, MessageEnd)]


async def test_s014_a_continuation_counts_no_turn() -> None:
    result = await run(Script(cut("part one "), "part two"), "go", limits=Limits(max_turns=1))

    assert (result.turns, result.outcome) == (0, "done")


async def test_s015_continuations_end_after_three() -> None:
    events: list[Event] = []

    result = await run(Script(repeat(cut())), "go", on_event=events.append)

    assert (result.requests, result.continuations, result.outcome) == (4, 3, "truncated")
    assert result.error is None
    assert result.notice
    assert result.stop_reason is StopReason.MAX_TOKENS
    assert shape(result.messages) == "u a u+ a u+ a u+ a"
    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert last.stop_reason is StopReason.MAX_TOKENS
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == ["retry_limit"]
    assert [e.left for e in events if isinstance(e, ContinuationAttempt)] == [2, 1, 0]


async def test_s016_each_continuation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "glue.loop")

    await run(Script(repeat(cut())), "go")

    lines = [record.getMessage() for record in caplog.records if record.name == "glue.loop"]
    assert lines == [
        *(f"response truncated at max_tokens, continuing ({n}/3)" for n in (1, 2, 3)),
        "continuation limit reached",
    ]
    assert {record.levelname for record in caplog.records} == {"INFO"}


async def test_s017_continuations_count_on_across_tools() -> None:
    events: list[Event] = []
    provider = Script(cut(), cut(), calls("noop"), cut(), cut())

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert (result.requests, result.continuations, result.outcome) == (5, 3, "truncated")
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == ["completed", "retry_limit"]


async def test_s018_a_second_run_has_its_own_continuations() -> None:
    first = await run(Script(repeat(cut())), "go")

    second = await run(Script(repeat(cut())), [*first.messages, user("again")])

    assert (first.continuations, second.continuations) == (3, 3)


async def test_s019_a_continuation_may_turn_into_a_call() -> None:
    result = await run(Script(cut(), calls("noop"), "x"), "go", tools=[noop])

    assert (shape(result.messages), result.outcome, result.text) == ("u a u+ a t a", "done", "x")


async def test_s020_nothing_at_max_tokens_is_truncated() -> None:
    result = await run(Script(cut("")), "go")

    assert (result.requests, result.outcome, result.text, result.continuations) == (1, "truncated", "", 0)
    assert shape(result.messages) == "u a"
    assert result.messages[-1].text == PLACEHOLDER == "(truncated)"


@pytest.mark.parametrize("text", ["", " "])
async def test_s021_reasoning_alone_at_max_tokens_is_truncated(text: str) -> None:
    result = await run(Script(cut(text, thinking="hm")), "go")

    assert (result.requests, result.outcome, result.text) == (1, "truncated", "")
    assert result.messages[-1].content == (Thinking(text="hm"), Text(text="(truncated)"))


async def test_s022_a_chain_ends_at_its_length() -> None:
    events: list[Event] = []

    result = await run(Script(repeat(cut("y" * 70_000))), "go", on_event=events.append)

    assert (result.requests, result.outcome) == (2, "truncated")
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == ["budget_exhausted"]


async def test_s022_a_chain_may_be_exactly_as_long_as_allowed() -> None:
    limits = Limits(continuation_max_output_chars=10)

    assert (await run(Script(cut("y" * 9), "z"), "go", limits=limits)).outcome == "done"
    assert (await run(Script(cut("y" * 10)), "go", limits=limits)).outcome == "truncated"


async def test_s023_a_chain_ends_at_four_times_its_first_cap() -> None:
    provider = Script(repeat(cut("abc", usage=Usage(output=100))))

    result = await run(provider, "go", request=Request(max_tokens=100), limits=Limits(continuation_max_attempts=99))

    assert (result.requests, result.outcome) == (4, "truncated")


async def test_s023_a_token_cap_for_chains_may_be_set() -> None:
    limits = Limits(continuation_max_attempts=99, continuation_max_total_completion_tokens=250)

    result = await run(Script(repeat(cut("abc", usage=Usage(output=100)))), "go", limits=limits)

    assert result.requests == 3


async def test_s023_without_a_cap_only_attempts_count() -> None:
    provider = Script(repeat(cut("abc", usage=Usage(output=1000))))

    result = await run(provider, "go", limits=Limits(continuation_max_attempts=7))

    assert result.requests == 8


async def test_s024_an_overlap_is_said_once() -> None:
    first, second = "The list is: alpha, beta, gamma", "alpha, beta, gamma, delta"

    result = await run(Script(cut(first), second), "go")

    assert result.text == "The list is: alpha, beta, gamma, delta"
    assert [m.text for m in result.messages if isinstance(m, AssistantMessage)] == [first, second]


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        (("hel", "lo"), "hello"),
        (("0.1", "100 km"), "0.1100 km"),
        (
            ("起承転結を考えて文章を書くのです", "起承転結を考えて文章を書くのですから"),
            "起承転結を考えて文章を書くのですから",
        ),
        (("x" + "a" * 12, "a" * 12 + "y"), "x" + "a" * 12 + "y"),
        (("x" + "b" * 11, "b" * 11 + "y"), "x" + "b" * 22 + "y"),
        (("c" * 401, "c" * 401 + "d"), "c" * 402 + "d"),
        (("", "one"), "one"),
        ((), ""),
    ],
)
def test_s025_parts_merge_without_losing_a_character(parts: tuple[str, ...], merged: str) -> None:
    assert merge(parts) == merged


async def test_s026_a_failure_in_a_chain_keeps_the_first_part() -> None:
    events: list[Event] = []

    result = await run(Script(cut("part"), fail("auth")), "go", on_event=events.append)

    assert (result.outcome, result.text, shape(result.messages)) == ("failed", "part", "u a")
    assert result.error is not None
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == ["provider_error"]


async def test_s027_a_refusal_in_a_chain_ends_it() -> None:
    events: list[Event] = []

    result = await run(Script(cut("part"), say("no", stop="refusal")), "go", on_event=events.append)

    assert result.outcome is Outcome.REFUSED
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == ["safety_blocked"]


@pytest.mark.parametrize("first", [cut("part"), calls(partial("noop"), text="part", stop="max_tokens")])
async def test_s028_a_request_limit_leaves_no_prompt_of_ours(first: Reply) -> None:
    events: list[Event] = []

    result = await run(Script(first), "go", tools=[noop], limits=Limits(max_requests=1), on_event=events.append)

    assert (result.outcome, shape(result.messages), result.text) == ("max_turns", "u a", "part")
    assert shape(result.new_messages) == "u a"


@pytest.mark.parametrize("first", [cut("part"), calls(partial("noop"), text="part", stop="max_tokens")])
async def test_s028_a_cancel_leaves_no_prompt_of_ours(first: Reply) -> None:
    cancel = Cancel()
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, MessageEnd) and isinstance(event.message, UserMessage) and event.message.origin != "user":
            cancel.cancel()

    result = await run(Script(first), "go", tools=[noop], on_event=listen, cancel=cancel)

    assert (result.outcome, shape(result.messages), result.text) == ("cancelled", "u a", "part")
    ends = [event.reason for event in events if isinstance(event, ContinuationTerminated)]
    repairs = [event for event in events if isinstance(event, ToolPayloadRepair)]
    assert ends == ([] if repairs else ["cancelled"])


async def test_s029_a_chain_may_be_collapsed() -> None:
    result = await run(Script(cut("part one "), "part two"), "go")

    collapsed = collapse_continuations(result)

    assert shape(collapsed.messages) == shape(collapsed.new_messages) == "u a"
    assert collapsed.messages[-1].text == "part one part two"
    assert isinstance(last := collapsed.messages[-1], AssistantMessage)
    assert last.stop_reason is StopReason.END_TURN
    assert shape(result.messages) == "u a u+ a"


async def test_s029_a_transcript_that_begins_in_a_chain_stays_as_it_is() -> None:
    prompt = user(CONTINUE, origin="continue")

    result = await run(Script("rest"), [prompt])

    assert collapse_continuations(result).messages == result.messages


async def test_s030_the_notice_is_not_in_the_transcript() -> None:
    result = await run(Script(repeat(cut())), "go")

    assert result.notice
    assert all(result.notice not in message.text for message in result.messages)
    assert not (await run(Script("x"), "go")).notice


async def test_s031_steering_waits_for_the_end_of_a_chain() -> None:
    waiting = ["stop that"]
    polls: list[int] = []
    provider = Script(cut("a "), cut("b "), calls("noop"), "end")

    def source() -> list[str]:
        polls.append(len(provider.requests))
        taken = waiting[:] if len(provider.requests) > 0 else []
        del waiting[: len(taken)]
        return taken

    result = await run(provider, "go", tools=[noop], policies=[Steering(source)])

    assert polls == [0, 3, 4]  # the last when the model has settled
    assert shape(result.messages) == "u a u+ a u+ a t u a"


@pytest.mark.parametrize("first", [cut("a "), calls(partial("noop"), stop="max_tokens"), say("a ", stop="pause_turn")])
async def test_s031_nobody_speaks_inside_a_chain(first: Any) -> None:
    class Always(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return nudge("psst")

    provider = Script(first, "b")

    await run(provider, "go", tools=[noop], policies=[Always()])

    assert [[message.text for message in request.messages].count("psst") for request in provider.requests] == [1, 1]


async def test_s032_no_continuations_may_be_allowed() -> None:
    result = await run(Script(cut()), "go", limits=Limits(continuation_max_attempts=0))

    assert (result.requests, result.outcome, result.text) == (1, "truncated", "x")


@pytest.mark.parametrize("counted", [0, 1])
async def test_a_collapsed_chain_keeps_the_usage_of_the_part_that_has_one(counted: int) -> None:
    usage = Usage(input=3, output=4)
    parts = [
        cut("part one ", usage=usage if counted == 0 else None),
        say("part two", usage=usage if counted == 1 else None),
    ]

    result = collapse_continuations(await run(Script(*parts), "go"))

    assert result.messages[-1].usage == usage  # type: ignore[union-attr]

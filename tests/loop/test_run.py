"""`glue.loop.run`: requests, replies, limits and endings of a run, and resumed runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes.loop import (
    KeepLast,
    RecordingJournal,
    assert_valid,
    names,
    noop,
    queue,
    reply,
    run_cancelled_at,
    texts,
)

from glue import (
    Agent,
    Cancel,
    Limits,
    Outcome,
    Request,
    StopReason,
    ToolResult,
    Usage,
    resume,
    run,
    tool,
)
from glue.errors import (
    Cancelled,
    ContextOverflow,
    InvalidContinuation,
    MaxTurnsExceeded,
    ProviderError,
)
from glue.events import (
    Compacted,
    Event,
    LimitReached,
    MessageEnd,
    MessageStart,
    Nudge,
    RunEnd,
    RunStart,
    StopReasonObserved,
    TurnEnd,
    TurnStart,
)
from glue.loop.state import State
from glue.loop.transcript import CONTINUE
from glue.messages import AssistantMessage, Message, Text, new_id, user
from glue.policies import Hook, Policy, Say, Steering, Stop, nudge
from glue.stores import MemoryStore
from glue.testing import Script, call, calls, fail, partial, repeat, say, shape


async def test_s007_a_plain_answer_ends_the_run() -> None:
    events: list[Event] = []

    result = await run(provider := Script("hi"), "hello", on_event=events.append)

    assert (shape(result.messages), result.outcome, result.stop_reason) == (
        "u a",
        "done",
        "end_turn",
    )
    assert (result.text, result.requests, len(provider.requests)) == ("hi", 1, 1)
    assert result.error is None
    assert not {"ContinuationAttempt", "ContinuationTerminated", "ToolPayloadRepair"} & set(
        names(events)
    )


async def test_s008_a_call_is_run_and_its_result_is_sent() -> None:
    result = await run(provider := Script(calls("noop"), "x"), "go", tools=[noop])

    assert shape(result.messages) == "u a t a"
    assert (result.outcome, result.turns, result.requests) == ("done", 1, 2)
    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert last.stop_reason is StopReason.END_TURN
    assert shape(provider.requests[1].messages) == "u a t"
    assert provider.requests[1].messages[-1].text == "ok"
    provider.assert_used_up()


async def test_s009_a_complete_call_is_run_although_the_stop_reason_is_end_turn() -> None:
    result = await run(Script(calls("noop", stop="end_turn"), "x"), "go", tools=[noop])

    assert shape(result.messages) == "u a t a"


async def test_s010_a_reply_that_stopped_for_tool_use_without_a_call_ends_the_run() -> None:
    result = await run(Script(say("done", stop="tool_use")), "go", tools=[noop])

    assert (result.outcome, result.text, result.requests) == ("done", "done", 1)


async def test_s011_events_are_emitted_in_order() -> None:
    events: list[Event] = []

    await run(Script(calls("noop"), "x"), "go", tools=[noop], on_event=events.append)

    order = [
        name for name in names(events) if name not in ("MessageStart", "ToolCallDelta", "TextDelta")
    ]
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


async def test_s005_an_unknown_stop_reason_logs_one_warning_and_ends_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "glue.loop")
    # A new name, because the warning is logged once per model and process.
    provider = Script(repeat(say("x", stop="unknown", raw="zzz")), model=f"model-{new_id()}")

    for _ in range(2):
        result = await run(provider, "hi")

    assert result.outcome is Outcome.DONE
    assert result.stop_reason is StopReason.UNKNOWN
    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert last.raw_stop_reason == "zzz"
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("glue.loop", "WARNING")
    ]


async def test_the_event_of_a_stop_reason_has_the_number_of_its_request() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), say("x", raw="fin"))

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    seen = [event for event in events if isinstance(event, StopReasonObserved)]
    assert [(event.request, event.normalized, event.raw) for event in seen] == [
        (1, "max_tokens", "max_tokens"),
        (2, "end_turn", "fin"),
    ]
    assert {event.run_id for event in seen} == {result.run_id}


async def test_the_end_event_of_a_turn_has_the_number_of_its_start_event() -> None:
    events: list[Event] = []

    await run(
        Script(calls("noop"), say("a", stop="max_tokens"), "b"),
        "go",
        tools=[noop],
        on_event=events.append,
    )

    starts = [event.turn for event in events if isinstance(event, TurnStart)]
    ends = [event.turn for event in events if isinstance(event, TurnEnd)]
    assert starts == ends == [1, 2]


async def test_each_turn_has_its_own_number_and_each_reply_its_own_id() -> None:
    events: list[Event] = []
    provider = Script(calls("noop", text="one"), calls("noop", text="two"), "three")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert [event.turn for event in events if isinstance(event, TurnStart)] == [1, 2, 3]
    assert [event.turn for event in events if isinstance(event, TurnEnd)] == [1, 2, 3]
    replies = [message.id for message in result.messages if isinstance(message, AssistantMessage)]
    assert [event.id for event in events if isinstance(event, MessageStart)] == [
        result.messages[0].id,
        *replies,
    ]
    assert len(set(replies)) == 3


@pytest.mark.parametrize(
    "script",
    [
        [say("abc", chunk=1), "x"],
        [say("abc", chunk=1, terminal=False)],
        [say("", stop="end_turn")],
        [say("no", stop="refusal")],
        [calls("noop", text="one"), fail("transient")],
        [say("a", stop="max_tokens"), fail("transient")],
        [say("", stop="pause_turn"), "x"],
    ],
)
async def test_every_message_start_event_is_followed_by_a_message_end_event(
    script: list[Any],
) -> None:
    events: list[Event] = []

    await run(
        Script(*script), "go", tools=[noop], on_event=events.append, limits=Limits(max_turns=3)
    )

    started = [event.id for event in events if isinstance(event, MessageStart)]
    assert started == [event.message.id for event in events if isinstance(event, MessageEnd)]
    assert isinstance(events[0], RunStart)
    assert isinstance(events[1], MessageStart)


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"provider": "openai"}, TypeError, "provider must"),
        ({"messages": ["hi"]}, TypeError, "messages must"),
        ({"messages": []}, ValueError, "messages must"),
        ({"messages": 5}, TypeError, "messages must"),
        ({"messages": user("hi")}, TypeError, "messages must"),
        ({"messages": ""}, ValueError, "the prompt is empty; give it a text"),
        (
            {"messages": [user("hi"), reply(Text(text="x")), user(" ")]},
            ValueError,
            "the prompt is empty; give it a text",
        ),
        ({"tools": noop}, TypeError, "tools must"),
        ({"request": Request(max_tokens=0)}, ValueError, "max_tokens must"),
        ({"policies": Policy()}, TypeError, "policies must"),
        ({"cancel": True}, TypeError, "cancel must"),
        ({"host": {"deps": 1}}, TypeError, "host must"),
        ({"journal": []}, TypeError, "journal must"),
        ({"tools": [print]}, TypeError, "tools must"),
        ({"tools": [noop, noop]}, ValueError, "'noop' is there twice"),
        ({"limits": 3}, TypeError, "limits must"),
        ({"limits": lambda: None}, TypeError, "limits must"),
        ({"limits": Limits(tool_choice="read")}, ValueError, "tool_choice must"),
        ({"request": {"model": "x"}}, TypeError, "request must"),
        ({"policies": [print]}, TypeError, "policies must"),
        ({"on_event": 3}, TypeError, "on_event must"),
    ],
)
async def test_a_wrong_argument_is_an_error_before_any_request(
    options: dict[str, Any], error: type[Exception], expected: str
) -> None:
    provider = Script("x")
    given: dict[str, Any] = {"provider": provider, "messages": "hi", "tools": [noop], **options}

    with pytest.raises(error, match=expected):
        await run(given.pop("provider"), given.pop("messages"), **given)

    assert provider.requests == []


async def test_the_given_request_is_the_template_of_each_request() -> None:
    provider = Script("x")

    await run(
        provider, [user("hi")], request=Request(system="be brief", model="m", temperature=0.5)
    )

    sent = provider.requests[0]
    assert (sent.system, sent.model, sent.temperature) == ("be brief", "m", 0.5)


@pytest.mark.parametrize(("tools", "there"), [([noop], r"\('noop'\)"), ([], r"\(none was given\)")])
async def test_a_tool_choice_that_is_not_a_tool_raises_an_error_that_lists_the_tools(
    tools: Any, there: str
) -> None:
    with pytest.raises(ValueError, match=f"'none' or a tool {there}, not 'read'"):
        await run(Script(), "go", tools=tools, limits=Limits(tool_choice="read"))


async def test_a_forced_tool_choice_applies_until_the_first_batch() -> None:
    provider = Script(calls("noop"), "x")

    await run(provider, "go", tools=[noop], limits=Limits(tool_choice="noop"))

    assert [request.tool_choice for request in provider.requests] == ["noop", "auto"]


async def test_the_tool_choice_none_applies_to_every_request() -> None:
    provider = Script(calls("noop"), "x")

    await run(provider, "go", tools=[noop], limits=Limits(tool_choice="none"))

    assert [request.tool_choice for request in provider.requests] == ["none", "none"]


async def test_the_prompt_is_the_user_messages_at_the_end_of_the_transcript() -> None:
    cases: list[tuple[list[Message], list[Message]]] = [
        ([user("a"), reply(Text(text="x"))], [user("b"), user("c")]),
        ([], [user("a")]),
    ]

    for before, prompt in cases:
        result = await run(Script("y"), [*before, *prompt])
        assert list(result.new_messages[:-1]) == prompt
    with pytest.raises(InvalidContinuation):
        await run(Script(), [reply(Text(text="x"))])


async def test_s066_a_run_that_reaches_max_turns_ends_with_an_error() -> None:
    provider = Script(repeat(calls("noop")))

    result = await run(provider, "go", tools=[noop], limits=Limits(max_turns=2))

    assert (result.requests, result.outcome, result.turns) == (2, "max_turns", 2)
    assert isinstance(result.error, MaxTurnsExceeded)
    assert (result.error.limit, result.error.used) == (2, 2)
    assert shape(result.messages) == shape(result.new_messages) == "u a t a t"
    for messages in (result.messages, result.new_messages):
        assert isinstance(first := messages[1], AssistantMessage)
        assert isinstance(last := messages[3], AssistantMessage)
        assert (first.stop_reason, last.stop_reason) == ("tool_use", "max_turns")
        assert last.raw_stop_reason == "tool_use"
    assert result.stop_reason is StopReason.MAX_TURNS
    assert (result.complete, result.outcome.exit_code) == (False, 3)


async def test_s067_the_default_limit_is_32_turns() -> None:
    limits = Limits(repeat_nudge=None, repeat_halt=None)

    result = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=limits)

    assert (result.turns, result.requests, result.outcome) == (32, 32, "max_turns")


async def test_s068_an_answer_before_the_limit_keeps_its_stop_reason() -> None:
    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], limits=Limits(max_turns=4))

    assert (result.stop_reason, result.outcome) == ("end_turn", "done")


async def test_s069_an_answer_on_the_last_turn_is_done() -> None:
    two = await run(Script(calls("noop"), "x"), "go", tools=[noop], limits=Limits(max_turns=2))
    one = await run(Script("x"), "go", limits=Limits(max_turns=1))

    assert (two.outcome, one.outcome) == ("done", "done")


async def test_s070_a_run_resumed_with_a_raised_limit_continues_from_the_tool_results() -> None:
    first = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=Limits(max_turns=2))
    provider = Script("x")

    second = await resume(provider, first.messages, tools=[noop], limits=Limits(max_turns=4))

    assert shape(provider.requests[0].messages) == "u a t a t"
    assert (shape(second.messages), shape(second.new_messages), second.outcome) == (
        "u a t a t a",
        "a",
        "done",
    )


async def test_s071_a_limit_of_no_requests_ends_the_run_before_the_first_request() -> None:
    provider = Script()
    events: list[Event] = []

    result = await run(provider, "go", limits=Limits(max_requests=0), on_event=events.append)

    assert (result.requests, len(provider.requests), result.outcome) == (0, 0, "max_turns")
    assert isinstance(result.error, MaxTurnsExceeded)
    assert result.meta == {"turns": 0, "requests": 0, "max_requests": 0}
    assert [(e.kind, e.used, e.max) for e in events if isinstance(e, LimitReached)] == [
        ("requests", 0, 0)
    ]
    assert result.stop_reason is StopReason.MAX_TURNS


async def test_s076_a_request_limit_wins_over_a_budget_and_a_cancel_over_both() -> None:
    limits = Limits(max_requests=0, token_budget=1)
    cancel = Cancel()

    first = await run(Script(), "x" * 100, limits=limits)
    cancel.cancel()

    second = await run(Script(), "x" * 100, limits=limits, cancel=cancel)

    assert (first.outcome, second.outcome) == ("max_turns", "cancelled")


async def test_s077_each_run_reads_its_limits_from_the_function() -> None:
    current = [Limits(max_turns=1)]

    def source() -> Limits:
        return current[0]

    first = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=source)
    current[0] = Limits(max_turns=2)

    second = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=source)

    assert (first.turns, second.turns) == (1, 2)


async def test_limits_are_read_again_before_a_request_that_continues_a_cut_reply() -> None:
    script = Script(say("one ", stop="max_tokens"), "two")

    def limits() -> Limits:
        return Limits(max_requests=1 if script.requests else 9)

    result = await run(script, "go", limits=limits)

    assert (result.requests, result.outcome) == (1, "max_turns")


async def test_s115_limits_raised_during_a_run_apply_to_the_next_request() -> None:
    current = [Limits(max_turns=1)]

    @tool
    async def more() -> str:
        """Raise the limit."""
        current[0] = Limits(max_turns=3)
        return "ok"

    result = await run(Script(calls("more"), "x"), "go", tools=[more], limits=lambda: current[0])

    assert (result.outcome, result.turns) == ("done", 1)


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        (Limits(max_turns=6), "max_turns"),  # the nudge after the third call is a turn
        (Limits(max_requests=5), "max_turns"),
        (Limits(token_budget=250), "budget"),
        (Limits(), "halted"),
    ],
)
async def test_a_limit_wins_over_a_guard(limits: Limits, outcome: str) -> None:
    same = calls(call("noop", id="c"), usage=Usage(output=50))

    result = await run(provider := Script(repeat(same)), "go", tools=[noop], limits=limits)

    assert (result.outcome, len(provider.requests)) == (outcome, 5)


@pytest.mark.parametrize("most", [3, 4])
async def test_no_nudge_is_sent_if_no_turn_is_left_for_the_reply(most: int) -> None:
    events: list[Event] = []
    provider = Script(repeat(calls(call("noop", id="c"))))

    result = await run(
        provider, "go", tools=[noop], limits=Limits(max_turns=most), on_event=events.append
    )

    assert isinstance(result.error, MaxTurnsExceeded)
    assert (len(provider.requests), result.turns, result.error.used, result.error.limit) == (
        most,
        most,
        most,
        most,
    )
    assert not [event for event in events if isinstance(event, Nudge)]


async def test_s065_a_paused_reply_is_continued_without_a_prompt() -> None:
    provider = Script(say("one ", stop="pause_turn"), "two")

    result = await run(provider, "go", limits=Limits(max_turns=2))

    assert (shape(result.messages), result.requests, result.text) == ("u a a", 2, "one two")
    assert result.turns == 1


async def test_s129_replies_that_always_pause_end_at_the_turn_limit() -> None:
    events: list[Event] = []
    limits = Limits(max_turns=3, max_requests=None)

    result = await run(
        Script(repeat(say("on ", stop="pause_turn"))), "go", limits=limits, on_event=events.append
    )

    assert (result.outcome, result.requests, shape(result.messages)) == ("max_turns", 3, "u a a a")
    assert [event.turn for event in events if isinstance(event, TurnStart)] == [1, 2, 3]
    assert [event.turn for event in events if isinstance(event, TurnEnd)] == [1, 2, 3]


async def test_the_events_of_an_empty_paused_reply_end_before_the_next_message() -> None:
    events: list[Event] = []
    limits = Limits(max_turns=2, max_requests=2, grace=1)

    await run(
        Script(repeat(say("", stop="pause_turn"))), "go", limits=limits, on_event=events.append
    )

    starts = [event.id for event in events if isinstance(event, MessageStart)]
    assert starts == [event.message.id for event in events if isinstance(event, MessageEnd)]


async def test_replies_that_always_pause_end_at_the_request_limit() -> None:
    result = await run(
        Script(repeat(say("", stop="pause_turn"))), "go", limits=Limits(max_requests=4)
    )

    assert (result.outcome, result.requests, shape(result.messages)) == ("max_turns", 4, "u")


LONG: list[Message] = [
    user("a" * 400),
    AssistantMessage(content=user("b" * 400).content),
    user("now"),
]


async def test_s062_after_an_overflow_the_compacted_transcript_is_sent() -> None:
    events: list[Event] = []
    provider = Script(fail("context_overflow"), calls("noop"), "ok")

    result = await run(provider, LONG, tools=[noop], policies=[KeepLast()], on_event=events.append)

    assert [len(request.messages) for request in provider.requests] == [3, 1, 3]
    assert (result.outcome, shape(result.messages), shape(result.new_messages)) == (
        "done",
        "u a t a",
        "u a t a",
    )
    assert [(e.before, e.after, e.removed) for e in events if isinstance(e, Compacted)] == [
        (201, 1, 2)
    ]


async def test_s062_a_second_overflow_ends_the_run() -> None:
    provider = Script(repeat(fail("context_overflow")))

    result = await run(provider, LONG, policies=[KeepLast()])

    assert (result.outcome, len(provider.requests)) == ("context_window", 2)


@pytest.mark.parametrize("policies", [[KeepLast(3)], []])
async def test_s063_an_overflow_ends_the_run_if_compaction_saves_nothing(
    policies: list[Policy],
) -> None:
    result = await run(Script(fail("context_overflow")), LONG, policies=policies)

    assert (result.outcome, result.requests) == ("context_window", 1)
    assert isinstance(result.error, ContextOverflow)
    assert list(result.messages) == [*LONG[:-1], replace(LONG[-1], excluded=True)]
    assert "left out of later requests" in result.notice


async def test_s064_the_text_of_a_reply_that_filled_the_window_is_kept() -> None:
    result = await run(Script(say("half", stop="context_window")), "go")

    assert (result.outcome, result.text, result.requests, shape(result.messages)) == (
        "context_window",
        "half",
        1,
        "u a",
    )
    assert result.stop_reason == "context_window"
    assert isinstance(result.error, ContextOverflow)


async def test_an_overflow_result_has_the_error_of_the_provider() -> None:
    failure = fail("context_overflow", "too long by far")

    result = await run(Script(failure), "go")

    assert (result.outcome, str(result.error)) == ("context_window", str(failure))
    assert result.error is not None
    assert result.error.__cause__ is failure


@pytest.mark.parametrize("keep", [[], [1]])
async def test_a_compaction_that_keeps_nothing_or_saves_nothing_is_not_used(
    keep: list[int],
) -> None:
    class Keep(Policy):
        async def compact(self, state: State) -> Sequence[Message] | None:
            return [state.messages[index] for index in keep]

    hidden = replace(user("x" * 99), excluded=True)
    provider = Script(fail("context_overflow"))

    result = await run(provider, [hidden, user("go")], policies=[Keep()])

    assert (result.outcome, len(provider.requests), len(result.messages)) == (
        "context_window",
        1,
        2,
    )


async def test_a_compaction_that_keeps_only_a_nudge_is_not_used() -> None:
    class Keep(Policy):
        def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
            return nudge("look again")

        async def compact(self, state: State) -> Sequence[Message] | None:
            return state.messages[-1:]

    result = await run(Script("x" * 99, fail("context_overflow")), "go", policies=[Keep()])

    assert (result.outcome, shape(result.messages)) == ("context_window", "u a")


async def test_the_text_of_a_failed_reply_is_not_part_of_the_next_reply() -> None:
    class DropFirst(Policy):
        async def compact(self, state: Any) -> Any:
            return state.messages[1:]

    provider = Script(say("half an", error=fail("context_overflow")), "whole")

    result = await run(provider, [user("x" * 99), user("go")], policies=[DropFirst()])

    assert (shape(result.messages), result.text) == ("u a", "whole")


class Summarize(Policy):
    """A compactor that replaces all messages except the last with a summary."""

    async def compact(self, state: State) -> Sequence[Message]:
        return [user("short", origin="summary"), state.messages[-1]]


async def test_a_compaction_is_written_to_the_journal() -> None:
    journal = RecordingJournal()
    long: list[Message] = [
        user("a" * 400),
        AssistantMessage(content=user("b" * 400).content),
        user("now"),
    ]

    await run(Script(fail("context_overflow"), "ok"), long, policies=[Summarize()], journal=journal)

    assert journal.operations == ["exclude 2", "insert", "append a"]


async def test_a_compaction_that_replaces_every_message_is_appended_to_the_journal() -> None:
    class SummarizeAll(Policy):
        async def compact(self, state: Any) -> Any:
            return (user("a summary"),)

    journal = RecordingJournal()
    provider = Script(fail("context_overflow"), "ok")

    result = await run(
        provider, [user("a" * 400), user("now")], policies=[SummarizeAll()], journal=journal
    )

    assert journal.operations == ["exclude 2", "append u", "append a"]
    assert [message.text for message in provider.requests[-1].messages] == ["a summary"]
    assert shape(result.messages) == "u a"


async def test_s100_a_content_filter_error_is_a_refusal() -> None:
    result = await run(Script(fail("content_filter")), "bad")

    assert (result.outcome, result.error) == ("refused", None)


async def test_s100_the_calls_of_a_refusal_are_not_kept() -> None:
    result = await run(Script(calls("noop", text="no", stop="refusal")), "bad", tools=[noop])

    assert (shape(result.messages), result.text) == ("u a", "no")


@pytest.mark.parametrize("stop", ["refusal", "error", "cancelled", "context_window"])
async def test_a_reply_that_ends_the_run_is_not_stored_if_it_has_only_calls(stop: str) -> None:
    result = await run(Script(calls("noop", stop=stop)), "go", tools=[noop])

    assert shape(result.messages) == "u"
    assert not result.complete


async def test_the_text_of_a_reply_with_stop_reason_error_is_kept() -> None:
    result = await run(Script(say("half", stop="error")), "go")

    assert (result.outcome, result.text, shape(result.messages)) == (Outcome.FAILED, "half", "u a")
    assert isinstance(result.error, ProviderError)


async def test_a_reply_with_stop_reason_cancelled_ends_the_run() -> None:
    result = await run(Script(say("par", stop="cancelled")), "go")

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "par", "u a")


async def test_a_reply_with_stop_reason_cancelled_is_a_cancelled_error() -> None:
    result = await run(Script(say("half", stop="cancelled")), "go")

    assert (result.outcome, result.text) == (Outcome.CANCELLED, "half")
    assert isinstance(result.error, Cancelled)


async def test_a_reply_that_the_provider_cancelled_keeps_its_usage_and_model() -> None:
    result = await run(Script(say("par", stop="cancelled", usage=Usage(output=3, cost=0.5))), "go")

    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert (last.text, last.model, last.usage, result.cost) == (
        "par",
        "script-1",
        Usage(output=3, cost=0.5),
        0.5,
    )


async def test_s104_a_run_cancelled_before_the_first_request_sends_no_request() -> None:
    cancel = Cancel()
    cancel.cancel()

    result = await run(provider := Script(), "go", cancel=cancel)

    assert (result.outcome, shape(result.messages), provider.requests) == ("cancelled", "u", [])
    assert isinstance(result.error, Cancelled)
    assert result.outcome.exit_code == 130
    assert result.stop_reason is StopReason.CANCELLED


async def test_s104_a_run_cancelled_after_the_last_reply_keeps_its_text() -> None:
    result = await run_cancelled_at(TurnEnd, Script("bye"))

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "bye", "u a")


async def test_s127_a_chain_cut_by_the_request_limit_is_continued_by_resume() -> None:
    first = await run(
        Script(say("part one ", stop="max_tokens")), "go", limits=Limits(max_requests=1)
    )
    provider = Script("part two")

    result = await resume(provider, first.messages)

    assert shape(first.messages) == "u a"
    assert [message.text for message in provider.requests[0].messages] == [
        "go",
        "part one ",
        CONTINUE,
    ]
    assert (shape(result.messages), result.text, result.outcome) == (
        "u a u+ a",
        "part one part two",
        Outcome.DONE,
    )


async def test_s127_a_cut_call_is_requested_again_by_resume() -> None:
    cut = calls(call("noop", {}, complete=False), stop="max_tokens")

    first = await run(Script(cut), "go", tools=[noop], limits=Limits(max_requests=1))

    result = await resume(Script(calls("noop"), "x"), first.messages, tools=[noop])

    assert shape(result.messages) == "u a u+ a t a"
    assert "cut off by the token limit" in result.messages[2].text


async def test_s127_a_reply_repaired_after_resume_is_part_of_its_chain() -> None:
    broken = calls(call("noop", {}, complete=False), text="I look: ", stop="max_tokens")
    first = await run(Script(broken), "go", tools=[noop], limits=Limits(max_requests=1))
    provider = Script("no need", "fine")

    result = await resume(
        provider, first.messages, tools=[noop], policies=[Steering(queue("psst"))]
    )
    without_steering = await resume(Script("no need"), first.messages, tools=[noop])

    assert [message.text for message in provider.requests[0].messages][-1].startswith(
        "Your last reply was cut off"
    )
    assert [message.text for message in result.messages[-3:]] == ["no need", "psst", "fine"]
    assert without_steering.text == "I look: no need"


@pytest.mark.parametrize("script", [[fail("transient")], [calls("noop"), fail("transient")]])
async def test_s127_a_failed_request_is_sent_again_by_resume(script: list[Any]) -> None:
    first = await run(Script(*script), "go", tools=[noop])

    result = await resume(Script("x"), first.messages, tools=[noop])

    assert first.outcome is Outcome.FAILED
    assert (result.outcome, result.messages[: len(first.messages)]) == (
        Outcome.DONE,
        first.messages,
    )
    assert shape(result.messages) == shape(first.messages) + " a"


async def test_s127_a_nudge_that_was_not_sent_is_sent_by_resume_before_steering() -> None:
    class NudgeAndStop(Policy):
        def after_tools(self, state: Any, results: Any) -> Hook:
            return Say((user("look closer", origin="nudge"),))

        def before_request(self, state: Any, request: Request) -> Hook:
            return Stop(Outcome.BUDGET) if state.requests else None

    waiting = Steering(lambda: ["psst"] if provider.requests else [])
    provider = Script(calls("noop"), "x")

    first = await run(provider, "go", tools=[noop], policies=[NudgeAndStop(), waiting])

    await resume(provider, first.messages, tools=[noop])

    # The run stopped before the request, so the steering message is still in its source.
    assert [message.text for message in first.messages[2:]] == ["ok"]
    assert [message.text for message in provider.requests[1].messages[2:]] == ["ok", "look closer"]


async def test_s127_the_wrap_up_message_is_not_sent_again_by_resume() -> None:
    first = await run(
        Script(calls("noop"), fail("auth")), "go", tools=[noop], limits=Limits(max_turns=2, grace=1)
    )

    result = await resume(Script("x"), first.messages, tools=[noop])

    assert (shape(first.messages), shape(result.messages)) == ("u a t", "u a t a")


async def test_s127_a_chain_cut_by_a_failure_is_continued_by_resume() -> None:
    first = await run(Script(say("one ", stop="max_tokens"), fail("transient")), "go")

    result = await resume(Script("two"), first.messages)

    assert (result.text, shape(result.messages)) == ("one two", "u a u+ a")


async def test_s127_nudges_that_exceeded_the_budget_are_sent_by_resume() -> None:
    class NudgeTwice(Policy):
        def on_settle(self, state: Any, reply: AssistantMessage) -> Hook:
            nudges = (user("really? " * 20, origin="nudge"), user("think again", origin="nudge"))
            return Say(nudges) if reply.text == "yes" else None

    first = await run(Script("yes"), "go", policies=[NudgeTwice()], limits=Limits(token_budget=20))
    provider = Script("yes, really")

    result = await resume(provider, first.messages)

    assert (first.outcome, shape(first.messages)) == (Outcome.BUDGET, "u a")
    assert [message.text for message in provider.requests[0].messages[-2:]] == [
        "really? " * 20,
        "think again",
    ]
    assert shape(result.messages) == "u a u+ u+ a"


async def test_a_paused_reply_and_a_cancelled_reply_are_continued_by_resume() -> None:
    paused = await run(
        Script(repeat(say("a ", stop="pause_turn"))), "go", limits=Limits(max_turns=1)
    )
    cancelled = [user("go"), reply(Text(text="half a "), stop=StopReason.CANCELLED)]

    after_pause = await resume(Script("b"), paused.messages)
    after_cancel = await resume(Script("reply"), cancelled)

    assert shape(after_pause.messages) == "u a a"
    assert (shape(after_cancel.messages), after_cancel.text) == ("u a u+ a", "half a reply")


@pytest.mark.parametrize("before", [(), (fail("auth"),)])
@pytest.mark.parametrize("script", ["x", say("no", stop="refusal"), calls("leave")])
async def test_a_run_that_ended_by_answer_refusal_or_vote_cannot_be_resumed(
    script: Any, before: tuple[Any, ...]
) -> None:
    @tool
    async def leave() -> ToolResult:
        """End the run."""
        return ToolResult(content=(Text(text="bye"),), terminate=True)

    store = MemoryStore()
    agent = Agent(Script(*before, script, "next"), tools=[leave])
    session = agent.session("s", store=store)

    for _ in before:
        await session.prompt("this fails", unwrap=False)
    ended = await session.prompt("go")

    with pytest.raises(InvalidContinuation):
        await agent.resume(ended)
    with pytest.raises(InvalidContinuation):
        await agent.session("s", store=store).resume()

    assert (await session.prompt("more")).text == "next"


@pytest.mark.parametrize(
    "messages", [[], [user("hi"), AssistantMessage(content=(Text(text="done"),))]]
)
async def test_s099_a_transcript_without_an_open_request_cannot_be_resumed(
    messages: list[Any],
) -> None:
    provider = Script()

    with pytest.raises(InvalidContinuation):
        await resume(provider, messages)

    assert provider.requests == []


async def test_s099_a_transcript_that_ends_in_a_paused_reply_can_be_resumed() -> None:
    paused = AssistantMessage(content=(Text(text="half "),), stop_reason=StopReason.PAUSE_TURN)

    result = await resume(Script("rest"), [user("hi"), paused])

    assert result.outcome is Outcome.DONE


class EndsAsDone(Policy):
    """Ends the run as done at the given call of a hook."""

    def __init__(self, hook: str, time: int) -> None:
        self.time = time
        setattr(self, hook, self._answer)

    def start(self) -> EndsAsDone:
        return self

    def _answer(self, state: Any, given: Any) -> Hook:
        self.time -= 1
        return Stop(Outcome.DONE) if self.time == 0 else None


@pytest.mark.parametrize(
    ("hook", "time"),
    [
        ("on_reply", 1),
        ("before_request", 2),
        ("on_reply", 2),
        ("before_request", 3),
        ("after_tools", 1),
    ],
)
async def test_a_run_that_a_policy_ended_as_done_cannot_be_resumed(hook: str, time: int) -> None:
    script = Script(say("half", stop="max_tokens"), calls("noop"), "never")

    result = await run(script, "go", tools=[noop], policies=[EndsAsDone(hook, time)])

    assert result.outcome is Outcome.DONE
    with pytest.raises(InvalidContinuation, match="the model has answered"):
        await Agent(Script()).resume(result)
    with pytest.raises(InvalidContinuation):
        await Agent(Script(), policies=[EndsAsDone("before_request", 1)]).resume(result)


async def test_a_resumed_run_that_a_policy_ended_as_done_cannot_be_resumed_again() -> None:
    cut = await run(Script(calls("noop")), "go", tools=[noop], limits=Limits(max_turns=1))

    result = await Agent(Script(), policies=[EndsAsDone("before_request", 1)]).resume(cut)

    assert (result.outcome, result.new_messages) == (Outcome.DONE, ())
    with pytest.raises(InvalidContinuation, match="the model has answered"):
        await Agent(Script()).resume(result)


async def test_a_resumed_pause_is_continued_before_steering_is_sent() -> None:
    script = Script(say("one ", stop="pause_turn"), "two", "three")
    session = Agent(script).session("s")

    cut = await session.prompt("go", limits=Limits(max_turns=1), unwrap=False)

    assert cut.outcome is Outcome.MAX_TURNS
    session.steer("hurry")

    result = await session.resume(limits=Limits(max_turns=3))

    assert texts(script.requests[1].messages) == ["go", "one "]
    assert texts(result.messages) == ["go", "one ", "two", "hurry", "three"]
    assert result.text == "three"
    assert (await Agent(Script("two")).resume(cut)).text == "one two"


async def test_resume_adds_a_result_to_each_open_call_of_a_killed_run() -> None:
    killed = [
        user("go"),
        reply(call("noop", id="a"), call("noop", id="b"), stop=StopReason.TOOL_USE),
    ]
    journal = RecordingJournal()

    result = await resume(Script("x"), killed, tools=[noop], journal=journal)

    assert shape(result.messages) == "u a t t a"
    assert_valid(result.messages)
    assert [message.text for message in journal.messages[:2]] == [
        "no result was recorded for this call"
    ] * 2

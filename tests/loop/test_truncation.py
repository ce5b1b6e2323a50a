"""`glue.loop.truncation`: replies and calls that were cut, continued or repaired."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fakes.loop import cut

from glue import Cancel, Limits, Outcome, Request, StopReason, Usage, run, tool
from glue.events import (
    ContinuationAttempt,
    ContinuationTerminated,
    Event,
    MessageEnd,
    ToolPayloadRepair,
)
from glue.loop.transcript import CONTINUE
from glue.loop.truncation import PLACEHOLDER
from glue.messages import AssistantMessage, Text, Thinking, ToolMessage, UserMessage, user
from glue.policies import Hook, Policy, Steering, nudge
from glue.testing import Reply, Script, call, calls, fail, partial, repeat, say, shape

ran: list[str] = []  # the tools that ran in this test


@pytest.fixture(autouse=True)
def clear_ran() -> None:
    """Clear the list of calls that the previous test recorded."""
    ran.clear()


@tool
async def noop() -> str:
    """Return ok."""
    ran.append("noop")
    return "ok"


@tool
async def other(key: str) -> str:
    """Return ok for any key."""
    ran.append(key)
    return "ok"


@tool(terminates=True)
async def term() -> str:
    """End the run."""
    ran.append("term")
    return "bye"


def repairs(events: list[Event]) -> list[tuple[str, bool, bool | None]]:
    """Return the fields of each repair event."""
    return [(e.issue, e.attempted, e.success) for e in events if isinstance(e, ToolPayloadRepair)]


async def test_s012_a_text_cut_at_max_tokens_is_continued() -> None:
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


async def test_s014_a_continuation_does_not_count_as_a_turn() -> None:
    result = await run(Script(cut("part one "), "part two"), "go", limits=Limits(max_turns=1))

    assert (result.turns, result.outcome) == (0, "done")


async def test_s015_a_chain_ends_after_three_continuations() -> None:
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


async def test_s017_continuations_before_and_after_a_batch_are_counted_together() -> None:
    events: list[Event] = []
    provider = Script(cut(), cut(), calls("noop"), cut(), cut())

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert (result.requests, result.continuations, result.outcome) == (5, 3, "truncated")
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == [
        "completed",
        "retry_limit",
    ]


async def test_s018_each_run_counts_its_own_continuations() -> None:
    first = await run(Script(repeat(cut())), "go")

    second = await run(Script(repeat(cut())), [*first.messages, user("again")])

    assert (first.continuations, second.continuations) == (3, 3)


async def test_s019_a_continuation_may_call_a_tool() -> None:
    result = await run(Script(cut(), calls("noop"), "x"), "go", tools=[noop])

    assert (shape(result.messages), result.outcome, result.text) == ("u a u+ a t a", "done", "x")


async def test_s020_an_empty_reply_cut_at_max_tokens_ends_the_run() -> None:
    result = await run(Script(cut("")), "go")

    assert (result.requests, result.outcome, result.text, result.continuations) == (
        1,
        "truncated",
        "",
        0,
    )
    assert shape(result.messages) == "u a"
    assert result.messages[-1].text == PLACEHOLDER == "(truncated)"


@pytest.mark.parametrize("text", ["", " "])
async def test_s021_reasoning_without_text_cut_at_max_tokens_ends_the_run(text: str) -> None:
    result = await run(Script(cut(text, thinking="hm")), "go")

    assert (result.requests, result.outcome, result.text) == (1, "truncated", "")
    assert result.messages[-1].content == (Thinking(text="hm"), Text(text="(truncated)"))


async def test_s022_a_chain_ends_at_its_limit_of_characters() -> None:
    events: list[Event] = []

    result = await run(Script(repeat(cut("y" * 70_000))), "go", on_event=events.append)

    assert (result.requests, result.outcome) == (2, "truncated")
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == [
        "budget_exhausted"
    ]


async def test_s022_a_chain_that_reaches_its_limit_of_characters_is_truncated() -> None:
    limits = Limits(continuation_max_output_chars=10)

    assert (await run(Script(cut("y" * 9), "z"), "go", limits=limits)).outcome == "done"
    assert (await run(Script(cut("y" * 10)), "go", limits=limits)).outcome == "truncated"


async def test_s023_a_chain_ends_at_four_times_the_token_cap_of_its_request() -> None:
    provider = Script(repeat(cut("abc", usage=Usage(output=100))))

    result = await run(
        provider, "go", request=Request(max_tokens=100), limits=Limits(continuation_max_attempts=99)
    )

    assert (result.requests, result.outcome) == (4, "truncated")


async def test_s023_a_token_limit_for_chains_can_be_set() -> None:
    limits = Limits(continuation_max_attempts=99, continuation_max_total_completion_tokens=250)

    result = await run(Script(repeat(cut("abc", usage=Usage(output=100)))), "go", limits=limits)

    assert result.requests == 3


async def test_s023_a_chain_without_a_token_cap_ends_at_its_limit_of_attempts() -> None:
    provider = Script(repeat(cut("abc", usage=Usage(output=1000))))

    result = await run(provider, "go", limits=Limits(continuation_max_attempts=7))

    assert result.requests == 8


async def test_s026_a_failure_in_a_chain_keeps_the_first_part() -> None:
    events: list[Event] = []

    result = await run(Script(cut("part"), fail("auth")), "go", on_event=events.append)

    assert (result.outcome, result.text, shape(result.messages)) == ("failed", "part", "u a")
    assert result.error is not None
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == ["provider_error"]


async def test_s027_a_refusal_ends_a_chain() -> None:
    events: list[Event] = []

    result = await run(Script(cut("part"), say("no", stop="refusal")), "go", on_event=events.append)

    assert result.outcome is Outcome.REFUSED
    assert [e.reason for e in events if isinstance(e, ContinuationTerminated)] == ["safety_blocked"]


@pytest.mark.parametrize(
    "first", [cut("part"), calls(partial("noop"), text="part", stop="max_tokens")]
)
async def test_s028_a_request_limit_removes_the_unsent_prompt_of_the_loop(first: Reply) -> None:
    events: list[Event] = []

    result = await run(
        Script(first), "go", tools=[noop], limits=Limits(max_requests=1), on_event=events.append
    )

    assert (result.outcome, shape(result.messages), result.text) == ("max_turns", "u a", "part")
    assert shape(result.new_messages) == "u a"


@pytest.mark.parametrize(
    "first", [cut("part"), calls(partial("noop"), text="part", stop="max_tokens")]
)
async def test_s028_a_cancel_removes_the_unsent_prompt_of_the_loop(first: Reply) -> None:
    cancel = Cancel()
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if (
            isinstance(event, MessageEnd)
            and isinstance(event.message, UserMessage)
            and event.message.origin != "user"
        ):
            cancel.cancel()

    result = await run(Script(first), "go", tools=[noop], on_event=listen, cancel=cancel)

    assert (result.outcome, shape(result.messages), result.text) == ("cancelled", "u a", "part")
    ends = [event.reason for event in events if isinstance(event, ContinuationTerminated)]
    repairs = [event for event in events if isinstance(event, ToolPayloadRepair)]
    assert ends == ([] if repairs else ["cancelled"])


async def test_s030_the_notice_of_a_truncated_run_is_not_in_the_transcript() -> None:
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


@pytest.mark.parametrize(
    "first", [cut("a "), calls(partial("noop"), stop="max_tokens"), say("a ", stop="pause_turn")]
)
async def test_s031_no_policy_message_is_added_inside_a_chain(first: Any) -> None:
    class Always(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return nudge("psst")

    provider = Script(first, "b")

    await run(provider, "go", tools=[noop], policies=[Always()])

    assert [
        [message.text for message in request.messages].count("psst")
        for request in provider.requests
    ] == [1, 1]


async def test_s032_a_limit_of_no_continuations_ends_the_run_at_a_cut_reply() -> None:
    result = await run(Script(cut()), "go", limits=Limits(continuation_max_attempts=0))

    assert (result.requests, result.outcome, result.text) == (1, "truncated", "x")


@pytest.mark.parametrize(
    "last", [say("", stop="max_tokens"), say("", thinking="hm", stop="max_tokens"), say("")]
)
async def test_an_empty_continuation_ends_the_chain(last: Any) -> None:
    events: list[Event] = []

    result = await run(Script(say("part", stop="max_tokens"), last), "go", on_event=events.append)

    assert (result.outcome, result.text) == (
        "failed" if last.stop == "end_turn" else "truncated",
        "part",
    )
    assert [event.reason for event in events if isinstance(event, ContinuationTerminated)] == [
        "empty"
    ]


async def test_s033_a_complete_call_runs_and_the_cut_call_is_dropped() -> None:
    provider = Script(calls("noop", partial("other"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop, other])

    assert (shape(result.messages), ran, result.continuations, result.requests) == (
        "u a t a",
        ["noop"],
        0,
        2,
    )
    assert isinstance(reply := result.messages[1], AssistantMessage)
    assert [part.name for part in reply.calls] == ["noop"]
    assert reply.meta == {"dropped_calls": ["other"]}


async def test_s034_complete_calls_of_a_cut_reply_run() -> None:
    result = await run(Script(calls("noop", stop="max_tokens"), "x"), "go", tools=[noop])

    assert (ran, result.continuations, result.turns, result.outcome) == (["noop"], 0, 1, "done")
    assert isinstance(reply := result.messages[1], AssistantMessage)
    assert reply.meta is None


async def test_s035_a_cut_call_is_requested_again() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), calls("noop"), "x")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert shape(result.messages) == "u a u+ a t a"
    assert (ran, result.requests, result.repairs, result.outcome) == (["noop"], 3, 1, "done")
    assert repairs(events) == [("cut_off", True, None), ("success", True, True)]
    assert result.messages[1].text == "(truncated)"
    assert result.text == "x"


async def test_a_call_with_deeply_nested_cut_arguments_is_requested_again() -> None:
    deep = call("noop", '{"x": ' + "[" * 100_000)

    result = await run(
        Script(calls(deep, stop="max_tokens"), calls("noop"), "x"), "go", tools=[noop]
    )

    assert (ran, result.repairs, result.outcome) == (["noop"], 1, "done")


async def test_s036_a_second_cut_call_ends_the_run() -> None:
    events: list[Event] = []
    provider = Script(
        calls(partial("noop"), stop="max_tokens"), calls(partial("noop"), stop="max_tokens")
    )

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert (result.outcome, ran, result.requests) == ("truncated", [], 2)
    assert repairs(events) == [("cut_off", True, None), ("cut_off", True, False)]
    assert result.notice


async def test_s037_a_limit_of_no_repairs_ends_the_run_at_a_cut_call() -> None:
    events: list[Event] = []
    limits = Limits(continuation_tool_repair_attempts=0)

    result = await run(
        Script(calls(partial("noop"), stop="max_tokens")),
        "go",
        tools=[noop],
        limits=limits,
        on_event=events.append,
    )

    assert (result.requests, result.outcome, result.repairs, result.continuations) == (
        1,
        "truncated",
        0,
        0,
    )
    assert result.messages[-1].text == "(truncated)"
    assert result.text == ""
    assert repairs(events) == [("cut_off", False, False)]


async def test_s038_the_text_of_a_reply_with_a_cut_call_is_kept() -> None:
    provider = Script(calls(partial("noop"), text="thinking", stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop])

    assert isinstance(reply := result.messages[1], AssistantMessage)
    assert (reply.text, reply.calls) == ("thinking", ())
    prompt = result.messages[2].text
    assert "noop" in prompt
    assert "token limit" in prompt
    assert "one complete call" in prompt


async def test_s039_a_text_instead_of_the_repaired_call_ends_the_run() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), "never mind")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert result.outcome == "done"
    assert repairs(events) == [("cut_off", True, None), ("abandoned", True, False)]


async def test_s040_repairs_and_continuations_have_separate_limits() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), say("a", stop="max_tokens"), "b")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert (result.repairs, result.continuations, result.outcome) == (1, 1, "done")
    assert [e.attempt for e in events if isinstance(e, ContinuationAttempt)] == [1]


async def test_s041_a_complete_call_with_invalid_json_gets_an_error_result() -> None:
    provider = Script(calls(call("noop", "{bad")), "x")

    result = await run(provider, "go", tools=[noop])

    assert (shape(result.messages), ran) == ("u a t a", [])
    assert isinstance(answer := result.messages[2], ToolMessage)
    assert answer.is_error


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "3", "null"])
async def test_s042_arguments_that_are_not_an_object_get_an_error_result(arguments: str) -> None:
    result = await run(Script(calls(call("other", arguments)), "x"), "go", tools=[other])

    assert (shape(result.messages), ran) == ("u a t a", [])
    assert isinstance(answer := result.messages[2], ToolMessage)
    assert answer.is_error


async def test_s043_empty_arguments_of_a_complete_call_are_an_empty_object() -> None:
    result = await run(Script(calls(call("noop", "")), "x"), "go", tools=[noop])

    assert (ran, result.outcome) == (["noop"], "done")


async def test_s043_a_cut_call_with_empty_arguments_is_incomplete() -> None:
    provider = Script(calls(call("noop", "", complete=False), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop])

    assert (shape(result.messages), ran) == ("u a u+ a", [])


async def test_s044_a_malformed_call_is_repaired_once() -> None:
    events: list[Event] = []
    provider = Script(say(stop="malformed_call"), say(stop="malformed_call"))

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert (result.requests, result.outcome, result.repairs) == (2, "truncated", 1)
    assert repairs(events) == [("malformed", True, None), ("malformed", True, False)]
    assert "before its tool call was complete" in result.messages[2].text


async def test_s045_a_dropped_call_prevents_a_vote_to_end() -> None:
    provider = Script(calls("term", partial("term"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[term])

    assert (result.requests, ran) == (2, ["term"])


async def test_s046_with_truncated_batch_void_no_call_of_a_cut_batch_runs() -> None:
    provider = Script(calls("noop", partial("half"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop], limits=Limits(truncated_batch="void"))

    assert (shape(result.messages), ran, result.repairs) == ("u a u+ a", [], 1)
    assert "half" in result.messages[2].text


async def test_with_truncated_batch_void_a_batch_of_complete_calls_runs() -> None:
    provider = Script(calls("noop", stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop], limits=Limits(truncated_batch="void"))

    assert (shape(result.messages), ran) == ("u a t a", ["noop"])


async def test_an_incomplete_call_never_runs_at_any_stop_reason() -> None:
    provider = Script(calls(partial("noop", "{}")), "x")

    result = await run(provider, "go", tools=[noop])

    assert (shape(result.messages), ran, result.repairs) == ("u a u+ a", [], 1)


async def test_a_complete_call_with_invalid_json_at_max_tokens_is_repaired() -> None:
    provider = Script(calls(call("noop", "{bad"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop])

    assert (shape(result.messages), ran, result.repairs) == ("u a u+ a", [], 1)


async def test_a_limit_of_two_repairs_allows_two() -> None:
    provider = Script(
        calls(partial("noop"), stop="max_tokens"),
        calls(partial("noop"), stop="max_tokens"),
        calls("noop"),
        "x",
    )

    result = await run(
        provider, "go", tools=[noop], limits=Limits(continuation_tool_repair_attempts=2)
    )

    assert (result.repairs, ran, result.outcome) == (2, ["noop"], "done")


async def test_a_repair_succeeds_if_one_call_of_a_cut_reply_is_complete() -> None:
    events: list[Event] = []
    half = Reply(content=(call("noop"), partial("noop")), stop="max_tokens")
    script = Script(Reply(content=(partial("noop"),), stop="max_tokens"), half, "done")

    await run(script, "go", tools=[noop], on_event=events.append)

    repairs = [event for event in events if isinstance(event, ToolPayloadRepair)]
    assert [event.success for event in repairs] == [None, True]


async def test_the_end_of_a_chain_names_the_provider_and_the_model_of_its_replies() -> None:
    events: list[Event] = []

    await run(Script(cut("a"), "b"), "go", on_event=events.append)

    [ended] = [event for event in events if isinstance(event, ContinuationTerminated)]
    assert (ended.provider, ended.model) == ("script", "script-1")

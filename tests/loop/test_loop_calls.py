"""LOOP scenarios 33 to 46: calls that were cut off, repaired or broken."""

from __future__ import annotations

import pytest

from glue import Limits, run, tool
from glue.events import ContinuationAttempt, Event, ToolPayloadRepair
from glue.messages import AssistantMessage, ToolMessage
from glue.testing import Script, call, calls, partial, say, shape

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
async def noop() -> str:
    """Do nothing."""
    ran.append("noop")
    return "ok"


@tool
async def other(key: str) -> str:
    """Do something else."""
    ran.append(key)
    return "ok"


@tool(terminates=True)
async def term() -> str:
    """End the run."""
    ran.append("term")
    return "bye"


def repairs(events: list[Event]) -> list[tuple[str, bool, bool | None]]:
    return [(e.issue, e.attempted, e.success) for e in events if isinstance(e, ToolPayloadRepair)]


async def test_s033_a_whole_call_runs_and_the_cut_off_one_is_dropped() -> None:
    provider = Script(calls("noop", partial("other"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop, other])

    assert (shape(result.messages), ran, result.continuations, result.requests) == ("u a t a", ["noop"], 0, 2)
    assert isinstance(reply := result.messages[1], AssistantMessage)
    assert [part.name for part in reply.calls] == ["noop"]
    assert reply.meta == {"dropped_calls": ["other"]}


async def test_s034_whole_calls_run_though_the_reply_was_cut() -> None:
    result = await run(Script(calls("noop", stop="max_tokens"), "x"), "go", tools=[noop])

    assert (ran, result.continuations, result.turns, result.outcome) == (["noop"], 0, 1, "done")
    assert isinstance(reply := result.messages[1], AssistantMessage)
    assert reply.meta is None


async def test_s035_a_cut_off_call_is_asked_for_again() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), calls("noop"), "x")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert shape(result.messages) == "u a u+ a t a"
    assert (ran, result.requests, result.repairs, result.outcome) == (["noop"], 3, 1, "done")
    assert repairs(events) == [("cut_off", True, None), ("success", True, True)]
    assert result.messages[1].text == "(truncated)"
    assert result.text == "x"


async def test_arguments_nested_without_end_are_asked_for_again() -> None:
    deep = call("noop", '{"x": ' + "[" * 100_000)

    result = await run(Script(calls(deep, stop="max_tokens"), calls("noop"), "x"), "go", tools=[noop])

    assert (ran, result.repairs, result.outcome) == (["noop"], 1, "done")


async def test_s036_a_second_cut_off_call_ends_the_run() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), calls(partial("noop"), stop="max_tokens"))

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert (result.outcome, ran, result.requests) == ("truncated", [], 2)
    assert repairs(events) == [("cut_off", True, None), ("cut_off", True, False)]
    assert result.notice


async def test_s037_no_repair_may_be_allowed() -> None:
    events: list[Event] = []
    limits = Limits(continuation_tool_repair_attempts=0)

    result = await run(
        Script(calls(partial("noop"), stop="max_tokens")), "go", tools=[noop], limits=limits, on_event=events.append
    )

    assert (result.requests, result.outcome, result.repairs, result.continuations) == (1, "truncated", 0, 0)
    assert result.messages[-1].text == "(truncated)"
    assert result.text == ""
    assert repairs(events) == [("cut_off", False, False)]


async def test_s038_the_text_beside_a_cut_off_call_stays() -> None:
    provider = Script(calls(partial("noop"), text="thinking", stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop])

    assert isinstance(reply := result.messages[1], AssistantMessage)
    assert (reply.text, reply.calls) == ("thinking", ())
    prompt = result.messages[2].text
    assert "noop" in prompt
    assert "token limit" in prompt
    assert "one complete call" in prompt


async def test_s039_a_repair_may_be_abandoned() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), "never mind")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert result.outcome == "done"
    assert repairs(events) == [("cut_off", True, None), ("abandoned", True, False)]


async def test_s040_repairs_and_continuations_have_separate_budgets() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), say("a", stop="max_tokens"), "b")

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    assert (result.repairs, result.continuations, result.outcome) == (1, 1, "done")
    assert [e.attempt for e in events if isinstance(e, ContinuationAttempt)] == [1]


async def test_s041_a_closed_call_with_bad_json_is_told_to_the_model() -> None:
    provider = Script(calls(call("noop", "{bad")), "x")

    result = await run(provider, "go", tools=[noop])

    assert (shape(result.messages), ran) == ("u a t a", [])
    assert isinstance(answer := result.messages[2], ToolMessage)
    assert answer.is_error


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "3", "null"])
async def test_s042_arguments_that_are_no_object_are_told_to_the_model(arguments: str) -> None:
    result = await run(Script(calls(call("other", arguments)), "x"), "go", tools=[other])

    assert (shape(result.messages), ran) == ("u a t a", [])
    assert isinstance(answer := result.messages[2], ToolMessage)
    assert answer.is_error


async def test_s043_empty_arguments_of_a_closed_call_are_an_empty_object() -> None:
    result = await run(Script(calls(call("noop", "")), "x"), "go", tools=[noop])

    assert (ran, result.outcome) == (["noop"], "done")


async def test_s043_empty_arguments_of_a_cut_off_call_are_half_a_call() -> None:
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


async def test_s045_a_dropped_call_vetoes_the_end() -> None:
    provider = Script(calls("term", partial("term"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[term])

    assert (result.requests, ran) == (2, ["term"])


async def test_s046_a_cut_off_batch_may_be_void() -> None:
    provider = Script(calls("noop", partial("half"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop], limits=Limits(truncated_batch="void"))

    assert (shape(result.messages), ran, result.repairs) == ("u a u+ a", [], 1)
    assert "half" in result.messages[2].text


async def test_a_void_batch_that_is_whole_runs() -> None:
    provider = Script(calls("noop", stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop], limits=Limits(truncated_batch="void"))

    assert (shape(result.messages), ran) == ("u a t a", ["noop"])


async def test_half_a_call_never_runs_whatever_the_stop_reason() -> None:
    provider = Script(calls(partial("noop", "{}")), "x")

    result = await run(provider, "go", tools=[noop])

    assert (shape(result.messages), ran, result.repairs) == ("u a u+ a", [], 1)


async def test_at_max_tokens_a_closed_call_with_bad_json_is_repaired() -> None:
    provider = Script(calls(call("noop", "{bad"), stop="max_tokens"), "x")

    result = await run(provider, "go", tools=[noop])

    assert (shape(result.messages), ran, result.repairs) == ("u a u+ a", [], 1)


async def test_two_repairs_may_be_allowed() -> None:
    provider = Script(
        calls(partial("noop"), stop="max_tokens"), calls(partial("noop"), stop="max_tokens"), calls("noop"), "x"
    )

    result = await run(provider, "go", tools=[noop], limits=Limits(continuation_tool_repair_attempts=2))

    assert (result.repairs, ran, result.outcome) == (2, ["noop"], "done")

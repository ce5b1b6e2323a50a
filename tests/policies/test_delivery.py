"""Delivery of plain texts, and the budget for replies without calls."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.loop import Queue, noop, term

from glue import AssistantMessage, Limits, Outcome, resume, run, tool
from glue.errors import InvalidContinuation, Stalled
from glue.events import Event, Nudge
from glue.loop.state import State
from glue.messages import ToolMessage, UserMessage, user
from glue.policies import (
    Delivery,
    FollowUp,
    Gate,
    Gates,
    Hook,
    Policy,
    StallBudget,
    nudge,
    strip_thinking,
)
from glue.policies.delivery import asks_back
from glue.testing import Script, calls, repeat, say, shape

QUESTION = "Should I continue?"
NUDGE = "Deliver your result by calling submit; a plain answer is not seen."


@tool
async def search() -> str:
    """Search."""
    return "found"


@tool(terminates=True)
async def submit(text: str) -> str:
    """Submit the result."""
    return text


async def deliver(*replies: Any, tools: Any = (search, submit), **options: Any) -> Any:
    policy = Delivery("submit", **options)
    return await run(Script(*replies), "go", tools=list(tools), policies=[policy])


async def test_a_delivered_run_cannot_be_resumed_because_the_model_has_answered() -> None:
    result = await deliver(say("here"), tools=(submit,))
    assert result.delivered == "here"

    with pytest.raises(InvalidContinuation, match="the model has answered"):
        await resume(Script(), result.messages)


async def test_a_text_is_delivered_at_once_if_only_the_delivery_tool_was_offered() -> None:
    result = await deliver("It is 42.", tools=[submit])

    assert (result.outcome, result.delivered, result.requests) == (Outcome.DONE, "It is 42.", 1)


async def test_tools_in_terminal_do_not_count_as_other_tools() -> None:
    result = await deliver("It is 42.", terminal=["search"])

    assert (result.delivered, result.requests) == ("It is 42.", 1)


async def test_a_text_is_not_delivered_if_other_tools_were_offered() -> None:
    result = await deliver("It is 42.")

    assert result.delivered is None


async def test_an_eager_delivery_nudges_first_and_delivers_the_first_text() -> None:
    result = await deliver("It is 42.", "As I said.", "Yes.", eager=True)

    nudges = [message.text for message in result.messages if message.text == NUDGE]
    assert (result.delivered, result.requests, len(nudges)) == ("It is 42.", 3, 2)


async def test_the_text_of_the_nudge_can_be_changed() -> None:
    result = await deliver("It is 42.", "Yes.", eager=True, nudges=1, text="Use submit.")

    assert "Use submit." in [message.text for message in result.messages]


async def test_a_call_discards_the_text_before_it() -> None:
    result = await deliver("Too early.", calls("search"), "It is 42.", "a", "b", eager=True)

    assert result.delivered == "It is 42."


async def test_a_question_is_delivered_only_if_there_is_no_other_text() -> None:
    with_answer = await deliver(QUESTION, "It is 42.", "Yes.", eager=True)
    without = await deliver(QUESTION, QUESTION, QUESTION, eager=True)

    assert (with_answer.delivered, without.delivered) == ("It is 42.", QUESTION)


def test_terminal_must_be_a_list() -> None:
    with pytest.raises(TypeError, match="terminal must be a list of tools' names, not 'search'"):
        Delivery("submit", terminal="search")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>hm</think>42", "42"),
        ("<THINKING>hm\nhm</THINKING> 42 ", "42"),
        ("42 <reasoning>never closed", "42"),
        ("a < b", "a < b"),
    ],
)
def test_reasoning_in_tags_is_removed(text: str, expected: str) -> None:
    assert strip_thinking(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (QUESTION, True),
        ("Would you like a list?", True),
        ("It is 42.", False),
        ("x" * 400 + "?", False),
    ],
)
def test_a_short_text_that_asks_the_user_is_a_question(text: str, expected: bool) -> None:
    assert asks_back(text) is expected


async def test_a_run_stalls_if_the_model_settles_more_often_than_the_budget() -> None:
    class Nudges(Policy):
        def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
            return nudge("Use a tool.")

    policies = [StallBudget(1), Nudges()]

    result = await run(Script("a", "b"), "go", tools=[search, submit], policies=policies)

    assert (result.outcome, result.requests) == (Outcome.STALLED, 2)
    assert isinstance(result.error, Stalled)
    assert result.meta == {"budget": 1, "observed": 2}


@pytest.mark.parametrize("budget", [-1, True, 1.5, "1"])
def test_the_budget_must_be_a_whole_number(budget: Any) -> None:
    with pytest.raises(ValueError, match="budget must be a whole number of 0 or more"):
        StallBudget(budget)


@tool(name="deliver")
async def delivery_tool(text: str) -> str:
    """Hand over the result."""
    return text


@tool
async def info() -> str:
    """Return information."""
    return "i"


def gate(*names: str, name: str = "g", priority: int = 0, required: bool = False) -> Gate:
    return Gate(name=name, allow=names, priority=priority, required=required)


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param([Gates(gate("deliver")), Delivery("deliver")], id="s090"),
        pytest.param(
            [Gates(gate("info", "deliver")), Delivery("deliver", terminal=["info"])], id="s091"
        ),
        pytest.param([Delivery("deliver", eager=True, nudges=0)], id="s092"),
    ],
)
async def test_s090_s091_s092_a_plain_answer_is_delivered(policies: list[Any]) -> None:
    provider = Script("<think>hm</think>p")

    result = await run(provider, "go", tools=[delivery_tool, info, noop], policies=policies)

    assert (result.outcome, result.requests, result.delivered, result.text) == ("done", 1, "p", "p")
    assert shape(result.messages) == "u a t"
    assert isinstance(synthetic := result.messages[-1], ToolMessage)
    assert (synthetic.text, synthetic.name, synthetic.excluded) == ("p", "deliver", True)
    later = Script("x")
    await run(later, [*result.messages, user("more")])
    assert shape(later.requests[0].messages) == "u a u"


async def test_s091_a_text_is_not_delivered_if_a_tool_outside_terminal_was_offered() -> None:
    policies = [Gates(gate("info", "deliver")), Delivery("deliver", nudges=0)]

    result = await run(Script("p"), "go", tools=[delivery_tool, info], policies=policies)

    assert (result.outcome, result.delivered) == ("done", None)


async def test_s093_the_first_answer_is_delivered_after_the_nudges() -> None:
    events: list[Event] = []

    result = await run(
        Script("T0", "T1", "T2"),
        "go",
        tools=[delivery_tool],
        policies=[
            Gates(gate("deliver", "x")),
            Delivery("deliver", eager=True, nudges=2, terminal=[]),
        ],
        on_event=events.append,
    )
    eager = await run(
        Script("T0", "T1", "T2"),
        "go",
        tools=[delivery_tool, noop],
        policies=[Delivery("deliver", eager=True, nudges=2)],
    )

    assert result.delivered == "T0"  # at once, because the gate leaves only the delivery tool
    assert (eager.requests, eager.delivered, eager.text) == (3, "T0", "T0")
    assert [m.origin for m in eager.messages if isinstance(m, UserMessage)] == [
        "user",
        "nudge",
        "nudge",
    ]
    assert not [event for event in events if isinstance(event, Nudge)]


async def test_s094_a_question_is_not_delivered() -> None:
    result = await run(
        Script("Would you like me to proceed?", "T1", "T2"),
        "go",
        tools=[delivery_tool, noop],
        policies=[Delivery("deliver", eager=True, nudges=2)],
    )

    assert result.delivered == "T1"


@pytest.mark.parametrize(("length", "delivered"), [(399, "T1"), (400, "long")])
async def test_a_text_of_400_characters_that_ends_in_a_question_is_delivered(
    length: int, delivered: str
) -> None:
    long = "?".rjust(length, "x")
    provider = Script(long, "T1", "T2")

    result = await run(
        provider,
        "go",
        tools=[delivery_tool, noop],
        policies=[Delivery("deliver", eager=True, nudges=2)],
    )

    assert result.delivered == (long if delivered == "long" else delivered)


@pytest.mark.parametrize("length", [400, 600])
async def test_a_long_text_that_ends_in_a_question_is_delivered_at_once(length: int) -> None:
    text = ("The report. " * 50)[: length - 14] + "Shall I go on?"

    result = await run(
        Script(text), "go", tools=[noop], policies=[Delivery("deliver", eager=True, nudges=0)]
    )

    assert result.delivered == text


async def test_s095_without_eager_a_plain_answer_is_a_stall() -> None:
    result = await run(
        Script("p"),
        "go",
        tools=[delivery_tool, noop],
        policies=[Delivery("deliver"), StallBudget(0)],
    )

    assert (result.outcome, result.delivered) == ("stalled", None)


async def test_s124_a_batch_restarts_the_delivery() -> None:
    provider = Script("early", calls("noop"), "late", "later", "latest")

    result = await run(
        provider,
        "go",
        tools=[noop],
        policies=[Delivery("deliver", eager=True, nudges=2)],
        limits=Limits(max_turns=9),
    )

    assert (result.delivered, result.requests) == ("late", 5)


async def test_the_last_question_is_delivered_if_there_is_no_other_text() -> None:
    policy = Delivery("deliver", eager=True, nudges=1)

    result = await run(Script("Shall I?", "Shall I go on?"), "go", tools=[noop], policies=[policy])

    assert result.delivered == "Shall I go on?"


async def test_nothing_is_delivered_if_no_tool_was_offered() -> None:
    result = await run(Script("p"), "go", policies=[Delivery("deliver")])

    assert (result.outcome, result.delivered) == (Outcome.DONE, None)


async def test_delivery_without_eager_does_not_nudge() -> None:
    result = await run(Script("plain"), "go", tools=[noop], policies=[Delivery("deliver")])

    assert (result.outcome, result.delivered, result.requests) == (Outcome.DONE, None, 1)


@pytest.mark.parametrize(
    "policy",
    [Delivery("deliver", eager=True, nudges=0), Delivery("deliver", terminal=["noop"])],
    ids=["eager", "only"],
)
async def test_the_joined_text_of_a_chain_is_delivered(policy: Policy) -> None:
    @tool
    async def deliver(text: str) -> str:
        """Hand over the result."""
        return text

    provider = Script(say("<think>part</think>one ", stop="max_tokens"), "and two")

    result = await run(provider, "go", tools=[deliver, noop], policies=[policy])

    assert (result.delivered, result.text) == ("one and two", "one and two")


async def test_the_first_text_is_delivered_if_the_last_reply_is_only_thinking() -> None:
    policy = Delivery("deliver", eager=True, nudges=1)

    result = await run(Script("T0", "<think>hm</think>"), "go", tools=[noop], policies=[policy])

    assert result.delivered == "T0"


@pytest.mark.parametrize("nudges", [0, 1])
async def test_nothing_is_delivered_if_every_reply_is_only_thinking(nudges: int) -> None:
    policy = Delivery("deliver", eager=True, nudges=nudges)

    result = await run(Script(repeat("<think>hm</think>")), "go", tools=[noop], policies=[policy])

    assert (result.outcome, result.delivered, result.requests) == ("done", None, nudges + 1)
    assert shape(result.messages).endswith("a")


async def test_a_reply_that_is_only_thinking_is_not_delivered() -> None:
    result = await run(Script("<think>hm</think>"), "go", tools=[noop], policies=[Delivery("noop")])

    assert (result.outcome, result.delivered) == (Outcome.DONE, None)


async def test_s088_a_model_that_settles_too_often_stalls_the_run() -> None:
    result = await run(Script("a", "b"), "go", policies=[StallBudget(1), FollowUp(Queue("go on"))])

    assert (result.outcome, result.requests) == ("stalled", 2)
    assert isinstance(result.error, Stalled)
    assert (result.error.budget, result.error.observed) == (1, 2)
    assert isinstance(result.messages[-1], AssistantMessage)


async def test_s089_a_call_resets_the_stall_count() -> None:
    provider = Script("a", calls("noop"), "b", calls("noop"), "c", calls("term"))
    policies = [StallBudget(1), FollowUp(Queue("1", "2", "3"))]

    result = await run(provider, "go", tools=[noop, term], policies=policies)

    assert (result.outcome, result.requests) == ("done", 6)


@pytest.mark.parametrize("budget", ["1", -1, True, 1.0, None])
def test_a_stall_budget_must_be_a_whole_number(budget: Any) -> None:
    with pytest.raises(ValueError, match="budget must be a whole number of 0 or more, not"):
        StallBudget(budget)

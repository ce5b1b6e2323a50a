"""Messages of the user during a run, and nudges for a model that only announces work."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.loop import Queue

from glue import Limits, Outcome, Usage, UserMessage, run, tool, user
from glue.events import Event, MessageEnd, Nudge
from glue.policies import AutoContinue, FollowUp, Steering
from glue.policies.steering import CONTINUE, announces
from glue.provider import TextDelta
from glue.testing import Script, calls, repeat, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


def texts(result: Any) -> list[tuple[str, str]]:
    """Return the origin and the text of each user message."""
    return [
        (message.origin, message.text)
        for message in result.messages
        if isinstance(message, UserMessage)
    ]


def source(*waiting: Any) -> Any:
    """Return a function that returns one batch of messages at each call, then None."""
    batches = list(waiting)
    return lambda: batches.pop(0) if batches else None


async def test_steering_sends_waiting_messages_with_the_next_request() -> None:
    policy = Steering(source(None, ["Only Europe.", "And hurry."]))

    result = await run(Script(calls("noop"), "ok"), "go", tools=[noop], policies=[policy])

    assert texts(result) == [
        ("user", "go"),
        ("steering", "Only Europe."),
        ("steering", "And hurry."),
    ]
    assert result.requests == 2


async def test_steering_during_the_last_reply_gets_a_request_of_its_own() -> None:
    policy = Steering(source(None, "One more thing."))

    result = await run(Script("a", "b"), "go", policies=[policy])

    assert (result.text, result.requests) == ("b", 2)


async def test_follow_up_messages_are_sent_after_the_model_has_settled() -> None:
    policy = FollowUp(source("Now translate it."))

    result = await run(Script(calls("noop"), "a", "b"), "go", tools=[noop], policies=[policy])

    assert texts(result) == [("user", "go"), ("follow_up", "Now translate it.")]
    assert result.text == "b"


async def test_a_follow_up_stays_in_its_source_if_no_turn_is_left() -> None:
    asked: list[int] = []
    policy = FollowUp(lambda: asked.append(1))

    await run(Script("a"), "go", limits=Limits(max_turns=1), policies=[policy])

    assert asked == []


async def test_messages_keep_an_origin_of_their_own() -> None:
    policy = FollowUp(source(user("x", origin="cron")))

    result = await run(Script("a", "b"), "go", policies=[policy])

    assert texts(result)[1] == ("cron", "x")


@pytest.mark.parametrize("kind", [Steering, FollowUp])
def test_a_source_must_be_a_function(kind: Any) -> None:
    with pytest.raises(TypeError, match="takes a function that returns the waiting messages"):
        kind(["more"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I will now read the file.", True),
        ("Let me look at it.", True),
        ("I\u2019ll start with the tests.", True),
        ("Let me know if you need more.", False),
        ("I will now stop. Feel free to ask.", False),
        ("I will now read. " + "x" * 400, False),
        ("It is 42.", False),
    ],
)
def test_a_text_that_ends_with_a_plan_is_an_announcement(text: str, expected: bool) -> None:
    assert announces(text) is expected


async def test_auto_continue_nudges_after_an_announcement_at_most_so_many_times() -> None:
    script = Script(*["I will now read."] * 3)

    result = await run(script, "go", tools=[noop], policies=[AutoContinue(2)])

    assert texts(result)[1:] == [("nudge", CONTINUE)] * 2
    assert result.requests == 3


async def test_auto_continue_does_not_nudge_a_run_without_tools() -> None:
    result = await run(Script("I will now read."), "go", policies=[AutoContinue()])

    assert result.requests == 1


def test_the_text_of_the_nudge() -> None:
    assert CONTINUE == (
        "Go on: do what you announced, with the tools you have. "
        "If you are done, give your final answer."
    )


async def test_s084_a_follow_up_message_continues_the_run() -> None:
    result = await run(Script("one", "two"), "go", policies=[FollowUp(Queue("and?"))])

    assert (result.requests, result.outcome, shape(result.messages), result.text) == (
        2,
        "done",
        "u a u a",
        "two",
    )
    assert result.turns == 1


async def test_a_follow_up_given_as_a_message_is_stored_unchanged() -> None:
    waiting = [user("and this?", origin="steering")]
    message = waiting[0]

    result = await run(
        Script("one", "two"), "go", policies=[FollowUp(lambda: [waiting.pop()] if waiting else [])]
    )

    assert result.messages[2] == message


async def test_s085_steering_messages_are_sent_with_the_next_request() -> None:
    events: list[Event] = []
    queue = Queue("before")

    @tool
    async def speak() -> str:
        """Add a message of the user."""
        queue.waiting.append("during")
        return "ok"

    provider = Script(calls("speak"), "x")

    result = await run(
        provider, "go", tools=[speak], policies=[Steering(queue)], on_event=events.append
    )

    assert shape(result.messages) == "u u a t u a"
    assert [m.text for m in provider.requests[0].messages] == ["go", "before"]
    assert provider.requests[1].messages[-1].text == "during"
    sent = [
        e.message.text
        for e in events
        if isinstance(e, MessageEnd) and isinstance(e.message, UserMessage)
    ]
    assert sent == ["go", "before", "during"]
    assert result.turns == 1


async def test_s086_a_steering_message_at_the_turn_limit_stays_in_its_source() -> None:
    queue = Queue()

    @tool
    async def speak() -> str:
        """Add a message of the user."""
        queue.waiting.append("late")
        return "ok"

    result = await run(
        Script(calls("speak")),
        "go",
        tools=[speak],
        limits=Limits(max_turns=1),
        policies=[Steering(queue)],
    )

    assert (result.outcome, queue.waiting, queue.polls) == ("max_turns", ["late"], 1)


@pytest.mark.parametrize("limits", [Limits(max_turns=1), Limits(max_requests=1)])
async def test_s087_a_follow_up_stays_in_its_source_if_no_turn_or_request_is_left(
    limits: Limits,
) -> None:
    queue = Queue("more")

    result = await run(Script("x"), "go", limits=limits, policies=[FollowUp(queue)])

    assert (result.outcome, queue.polls, queue.waiting) == ("done", 0, ["more"])


async def test_a_follow_up_is_read_only_if_it_can_be_answered() -> None:
    queue = Queue("more", "and more")

    result = await run(
        Script("x", "y"), "go", limits=Limits(max_turns=2), policies=[FollowUp(queue)]
    )

    assert (result.outcome, result.text, queue.waiting) == ("done", "y", ["and more"])


async def test_a_follow_up_stays_in_its_source_if_the_budget_is_spent() -> None:
    waiting = ["more"]

    def source() -> list[str]:
        return [waiting.pop()] if waiting else []

    provider = Script(say("x", usage=Usage(output=100)))

    result = await run(provider, "go", limits=Limits(token_budget=50), policies=[FollowUp(source)])

    assert (result.outcome, waiting) == ("done", ["more"])


async def test_s122_steering_during_the_last_reply_is_answered_in_the_same_run() -> None:
    waiting: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == "done":
            waiting.append("and the tests?")

    def source() -> list[str]:
        taken = waiting[:]
        waiting.clear()
        return taken

    result = await run(Script("done", "green"), "go", policies=[Steering(source)], on_event=listen)

    assert (result.requests, result.text, shape(result.messages)) == (2, "green", "u a u a")


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [("hurry", ["hurry"]), (user("hurry"), ["hurry"]), (None, []), ((), [])],
)
async def test_a_source_may_return_one_message_or_none(waiting: Any, expected: list[str]) -> None:
    given = [waiting]
    source = Steering(lambda: given.pop() if given else None)

    result = await run(Script("x"), "go", policies=[source])

    assert [message.text for message in result.messages] == ["go", *expected, "x"]


async def test_s111_auto_continue_ignores_a_run_without_tools() -> None:
    result = await run(Script("I will now edit the file."), "go", policies=[AutoContinue()])

    assert (result.outcome, result.requests) == ("done", 1)


async def test_s111_auto_continue_nudges_after_an_announcement_at_most_twice() -> None:
    policy = AutoContinue()

    one = await run(
        Script("I will now edit the file.", "done"), "go", tools=[noop], policies=[policy]
    )
    none = await run(Script("Let me know if you need more."), "go", tools=[noop], policies=[policy])
    events: list[Event] = []

    most = await run(
        Script(repeat("I'll now start.")),
        "go",
        tools=[noop],
        policies=[policy],
        on_event=events.append,
    )

    assert [shape(result.messages) for result in (one, none, most)] == [
        "u a u+ a",
        "u a",
        "u a u+ a u+ a",
    ]
    assert most.outcome is Outcome.DONE
    assert [event.policy for event in events if isinstance(event, Nudge)] == ["auto_continue"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I will now look." + " " * 284 + ".", False),  # only the last 300 characters count
        ("I will now look." + " " * 283 + ".", True),
        ("I\u2019m going to look at it.", True),
        ("Next, I'll run the tests.", True),
        ("Let me check the file.", True),
        ("I will now stop. Let me know how it goes.", False),
        ("The file is fixed.", False),
        ("", False),
    ],
)
def test_s111_a_text_that_ends_with_an_intention_is_an_announcement(
    text: str, expected: bool
) -> None:
    assert announces(text) is expected

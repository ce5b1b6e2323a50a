"""Where two rules of the loop meet: which one wins, and that nothing paid for is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from glue import Cancel, Context, Host, Limits, Message, Outcome, Policy, Request, Usage, run, tool
from glue.errors import BudgetExceeded, MaxTurnsExceeded
from glue.events import (
    ContinuationTerminated,
    Event,
    LimitReached,
    MessageEnd,
    MessageStart,
    Nudge,
    OutputCapEscalated,
    StopReasonObserved,
    ToolEnd,
    TurnEnd,
    TurnStart,
)
from glue.loop.state import State
from glue.messages import AssistantMessage, Text, ToolMessage, user
from glue.policies import Delivery, FollowUp, Gate, Gates, Hook, Rewrite, nudge
from glue.provider import Done, ProviderEvent, TextDelta
from glue.providers.retry import with_escalation
from glue.testing import Script, call, calls, fail, partial, repeat, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


class Tail(Policy):
    """A compactor that keeps the last exchange."""

    async def compact(self, state: State) -> Sequence[Message] | None:
        return state.messages[-3:]


# The text of a result ------------------------------------------------------------------------------


async def test_the_text_after_a_compaction_is_the_answer_alone() -> None:
    provider = Script(calls("noop", text="Looking. "), fail("context_overflow"), "Found.")

    result = await run(provider, [user("x" * 99), user("go")], tools=[noop], policies=[Tail()])

    assert (result.outcome, result.text) == ("done", "Found.")


async def test_a_chain_that_was_compacted_is_still_joined() -> None:
    provider = Script(say("part one ", stop="max_tokens"), fail("context_overflow"), "part two")

    result = await run(provider, [user("x" * 99), user("go")], policies=[Tail()])

    assert result.text == "part one part two"


@pytest.mark.parametrize(
    "policy", [Delivery("deliver", eager=True, nudges=0), Delivery("deliver", terminal=["noop"])], ids=["eager", "only"]
)
async def test_a_whole_chain_is_delivered(policy: Policy) -> None:
    @tool
    async def deliver(text: str) -> str:
        """Hand over the result."""
        return text

    provider = Script(say("<think>part</think>one ", stop="max_tokens"), "and two")

    result = await run(provider, "go", tools=[deliver, noop], policies=[policy])

    assert (result.delivered, result.text) == ("one and two", "one and two")


async def test_the_first_answer_is_delivered_though_the_last_is_only_thinking() -> None:
    policy = Delivery("deliver", eager=True, nudges=1)

    result = await run(Script("T0", "<think>hm</think>"), "go", tools=[noop], policies=[policy])

    assert result.delivered == "T0"


@pytest.mark.parametrize("nudges", [0, 1])
async def test_nothing_is_delivered_where_the_model_only_thought(nudges: int) -> None:
    policy = Delivery("deliver", eager=True, nudges=nudges)

    result = await run(Script(repeat("<think>hm</think>")), "go", tools=[noop], policies=[policy])

    assert (result.outcome, result.delivered, result.requests) == ("done", None, nudges + 1)
    assert shape(result.messages).endswith("a")


# Failed replies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["transient", "content_filter", "context_overflow"])
async def test_a_reply_that_failed_half_way_is_not_kept(kind: Any) -> None:
    events: list[Event] = []

    result = await run(Script(say("half an", error=fail(kind))), "go", on_event=events.append)

    ended = [event.message for event in events if isinstance(event, MessageEnd)]
    assert (shape(result.messages), result.text) == ("u", "")
    assert [(message.text, (message.meta or {}).get("discarded")) for message in ended] == [
        ("go", None),
        ("half an", True),
    ]


async def test_an_overflow_names_the_error_that_the_provider_gave() -> None:
    failure = fail("context_overflow", "too long by far")

    result = await run(Script(failure), "go")

    assert (result.outcome, str(result.error)) == ("context_window", str(failure))
    assert result.error is not None
    assert result.error.__cause__ is failure


async def test_a_reply_that_failed_half_way_is_no_part_of_the_next() -> None:
    class Shorter(Policy):
        async def compact(self, state: Any) -> Any:
            return state.messages[1:]

    provider = Script(say("half an", error=fail("context_overflow")), "whole")

    result = await run(provider, [user("x" * 99), user("go")], policies=[Shorter()])

    assert (shape(result.messages), result.text) == ("u a", "whole")


# Cancelled replies ---------------------------------------------------------------------------------


class AtOnce:
    """A provider that sends no deltas."""

    name = "once"

    def __init__(self, message: AssistantMessage) -> None:
        self.message = message

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        yield Done(message=self.message)


async def test_a_cancelled_reply_without_deltas_keeps_its_text_and_no_call() -> None:
    message = AssistantMessage(
        content=(Text(text="half"), call("noop")), stop_reason=AssistantMessage(content=()).stop_reason
    )
    cancel = Cancel()

    def listen(event: Event) -> None:
        if type(event).__name__ == "RequestStart":
            cancel.cancel()

    result = await run(AtOnce(message), "go", tools=[noop], cancel=cancel, on_event=listen)

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "half", "u a")


async def test_what_is_kept_of_a_cancelled_reply_has_the_id_that_listeners_saw() -> None:
    cancel, events = Cancel(), list[Event]()

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, TextDelta):
            cancel.cancel()

    result = await run(Script(say("hello world", chunk=5)), "go", cancel=cancel, on_event=listen)

    started = [event.id for event in events if isinstance(event, MessageStart)]
    ended = [event.message.id for event in events if isinstance(event, MessageEnd)]
    assert started == ended == [message.id for message in result.messages]


async def test_a_reply_that_the_provider_cancelled_keeps_its_usage_and_model() -> None:
    result = await run(Script(say("par", stop="cancelled", usage=Usage(output=3, cost=0.5))), "go")

    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert (last.text, last.model, last.usage, result.cost) == ("par", "script-1", Usage(output=3, cost=0.5), 0.5)


async def test_no_tool_is_started_after_a_cancel() -> None:
    ran: list[str] = []

    @tool(alone=True)
    async def first(context: Context[None]) -> str:
        """Cancel the run, and do not wait."""
        context.cancel.cancel()
        return "ok"

    @tool(alone=True)
    async def second() -> str:
        """Do not wait either."""
        ran.append("second")
        return "ok"

    result = await run(Script(calls("first", "second")), "go", tools=[first, second])

    assert (result.outcome, ran) == ("cancelled", [])
    assert [message.text for message in result.messages[2:]] == ["ok", "cancelled"]


@pytest.mark.parametrize(("trigger", "reply"), [(ToolEnd, calls("noop")), (TurnEnd, "x")])
async def test_no_policy_is_asked_after_a_cancel(trigger: type, reply: Any) -> None:
    asked: list[Any] = []
    cancel = Cancel()
    policy: Any = Policy()
    policy.after_tools = policy.on_settle = lambda state, given: asked.append(given)

    def listen(event: Event) -> None:
        if isinstance(event, trigger):
            cancel.cancel()

    result = await run(Script(reply), "go", tools=[noop], policies=[policy], on_event=listen, cancel=cancel)

    assert (result.outcome, asked) == ("cancelled", [])


class Hangs(Policy):
    """Never answers one of the questions."""

    def __init__(self, hook: str, act: Any) -> None:
        self.hook, self.act = hook, act

    async def _ask(self, hook: str) -> Any:
        if hook == self.hook:
            self.act()
            await anyio.sleep_forever()

    async def before_request(self, state: State, request: Request) -> Any:
        return await self._ask("before_request")

    async def on_reply(self, state: State, reply: AssistantMessage) -> Any:
        return await self._ask("on_reply")

    async def after_tools(self, state: State, results: Any) -> Any:
        return await self._ask("after_tools")

    async def on_settle(self, state: State, reply: AssistantMessage) -> Any:
        return await self._ask("on_settle")

    async def compact(self, state: State) -> Any:
        return await self._ask("compact")


HOOKS = {
    "before_request": "u",
    "on_reply": "u a t",
    "after_tools": "u a t",
    "on_settle": "u a t a",
    "compact": "u a t a",
}


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_policy_that_is_asking_is_cancelled_at_once(hook: str) -> None:
    cancel = Cancel()
    provider = Script(
        calls("noop"), say("x", stop="max_tokens") if hook == "compact" else "x", fail("context_overflow")
    )

    with anyio.fail_after(30):
        result = await run(provider, "go", tools=[noop], policies=[Hangs(hook, cancel.cancel)], cancel=cancel)

    assert (result.outcome, shape(result.messages)) == ("cancelled", HOOKS[hook])


@pytest.mark.parametrize("hook", [name for name in HOOKS if name != "compact"])
async def test_the_clock_ends_a_policy_that_is_asking(hook: str) -> None:
    with anyio.fail_after(30):
        result = await run(
            Script(calls("noop"), "x"), "go", tools=[noop], policies=[Hangs(hook, int)], limits=Limits(seconds=0.2)
        )

    assert (result.outcome, shape(result.messages)) == ("budget", HOOKS[hook])


# Limits --------------------------------------------------------------------------------------------


async def test_a_vote_wins_over_the_clock() -> None:
    @tool(terminates=True)
    async def late() -> str:
        """End the run, when its time is up."""
        current[0] = Limits(seconds=0)
        return "bye"

    current = [Limits(seconds=60)]

    result = await run(Script(calls("late")), "go", tools=[late], limits=lambda: current[0])

    assert result.outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        (Limits(max_turns=6), "max_turns"),  # the nudge at the third took one
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
async def test_no_word_is_said_that_nobody_can_hear(most: int) -> None:
    events: list[Event] = []
    provider = Script(repeat(calls(call("noop", id="c"))))

    result = await run(provider, "go", tools=[noop], limits=Limits(max_turns=most), on_event=events.append)

    assert isinstance(result.error, MaxTurnsExceeded)
    assert (len(provider.requests), result.turns, result.error.used, result.error.limit) == (most, most, most, most)
    assert not [event for event in events if isinstance(event, Nudge)]


async def test_a_follow_up_stays_where_it_is_when_the_budget_is_spent() -> None:
    waiting = ["more"]

    def source() -> list[str]:
        return [waiting.pop()] if waiting else []

    provider = Script(say("x", usage=Usage(output=100)))
    result = await run(provider, "go", limits=Limits(token_budget=50), policies=[FollowUp(source)])

    assert (result.outcome, waiting) == ("done", ["more"])


@pytest.mark.parametrize("own", [Limits(), Limits(max_requests=None)])
async def test_the_limit_of_a_run_above_is_the_one_that_is_named(own: Limits) -> None:
    inner: list[Any] = []
    events: list[Event] = []

    @tool
    async def nest(context: Context[None]) -> str:
        """Run a run inside."""
        host = Host(parent=context)
        provider = Script(repeat(calls("noop")))
        inner.append(await run(provider, "go", tools=[noop], host=host, limits=own, on_event=events.append))
        return "ok"

    outer = await run(Script(repeat(calls("nest"))), "go", tools=[nest], limits=Limits(max_requests=3))

    error = inner[0].error
    assert (inner[0].outcome, error.kind, error.used, error.limit) == ("max_turns", "requests", 3, 3)
    assert [(event.used, event.max) for event in events if isinstance(event, LimitReached)] == [(3, 3)]
    assert isinstance(outer.error, MaxTurnsExceeded)
    assert (outer.requests, outer.error.used, outer.error.limit) == (1, 3, 3)


async def test_the_budget_of_a_run_above_ends_the_one_inside() -> None:
    inner: list[Any] = []

    @tool
    async def nest(context: Context[None]) -> str:
        """Run a run inside."""
        provider = Script(repeat(calls("noop", usage=Usage(output=40))))
        inner.append(await run(provider, "go", tools=[noop], host=Host(parent=context)))
        return "ok"

    outer = await run(Script(calls("nest")), "go", tools=[nest], limits=Limits(token_budget=100))

    assert (inner[0].outcome, inner[0].requests, outer.outcome) == ("budget", 3, "budget")
    assert isinstance(outer.error, BudgetExceeded)


async def test_an_escalation_for_which_no_request_is_left_keeps_the_reply() -> None:
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


async def test_a_discarded_reply_without_usage_is_estimated() -> None:
    provider = Script(say("x" * 400, stop="max_tokens"), say("yyyy", usage=Usage(output=1)))

    result = await run(with_escalation(provider), "go", request=Request(max_tokens=10))

    assert result.usage.output == 101


async def test_a_call_without_usage_is_estimated() -> None:
    reply = calls(call("noop", {"text": "x" * 4000}))

    result = await run(Script(repeat(reply)), "go", tools=[noop], limits=Limits(token_budget=1000))

    assert (result.outcome, result.requests) == ("budget", 1)


async def test_the_pieces_of_a_reply_that_broke_off_are_estimated() -> None:
    broken = await run(Script(say("x" * 40, error=fail("transient"))), "go")
    told = await run(Script(say("x" * 40, error=fail("transient", usage=Usage(output=3)))), "go")

    assert (broken.outcome, broken.usage.output, told.usage.output) == ("failed", 10, 3)


async def test_the_pieces_of_a_cancelled_reply_are_estimated_once() -> None:
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta):
            cancel.cancel()

    result = await run(Script(say("x" * 40, chunk=20)), "go", cancel=cancel, on_event=listen)

    assert (result.text, result.usage.output) == ("x" * 20, 5)


# Compaction ----------------------------------------------------------------------------------------


class Trim(Policy):
    """Send copies, with short results."""

    in_chain = True

    def before_request(self, state: State, request: Request) -> Any:
        short = (Text(text="..."),)
        return Rewrite(
            [replace(m, content=short) if isinstance(m, ToolMessage) else replace(m) for m in state.messages]
        )


@pytest.mark.parametrize(
    ("last", "limits"), [(say("no", stop="refusal"), Limits()), (calls("noop"), Limits(max_turns=2))], ids=["no", "max"]
)
async def test_a_rewritten_run_is_tagged_and_excluded_in_both_lists(last: Any, limits: Limits) -> None:
    result = await run(Script(calls("noop"), last), "go", tools=[noop], policies=[Trim()], limits=limits)

    for messages in (result.messages, result.new_messages):
        assert {message.excluded for message in messages} == {result.outcome is Outcome.REFUSED}
        replies = [message for message in messages if isinstance(message, AssistantMessage)]
        assert replies[-1].stop_reason == result.stop_reason
    assert (result.messages[2].text, result.new_messages[2].text) == ("...", "ok")


@pytest.mark.parametrize("keep", [[], [1]])
async def test_a_compaction_that_leaves_nothing_or_saves_nothing_is_none(keep: list[int]) -> None:
    class Keep(Policy):
        async def compact(self, state: State) -> Sequence[Message] | None:
            return [state.messages[index] for index in keep]

    hidden = replace(user("x" * 99), excluded=True)
    provider = Script(fail("context_overflow"))

    result = await run(provider, [hidden, user("go")], policies=[Keep()])

    assert (result.outcome, len(provider.requests), len(result.messages)) == ("context_window", 1, 2)


async def test_a_compaction_that_leaves_nothing_but_a_word_of_ours_is_none() -> None:
    class Keep(Policy):
        def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
            return nudge("look again")

        async def compact(self, state: State) -> Sequence[Message] | None:
            return state.messages[-1:]

    result = await run(Script("x" * 99, fail("context_overflow")), "go", policies=[Keep()])

    assert (result.outcome, shape(result.messages)) == ("context_window", "u a")


# Events --------------------------------------------------------------------------------------------


async def test_a_turn_ends_with_the_number_it_started_with() -> None:
    events: list[Event] = []

    await run(Script(calls("noop"), say("a", stop="max_tokens"), "b"), "go", tools=[noop], on_event=events.append)

    starts = [event.turn for event in events if isinstance(event, TurnStart)]
    ends = [event.turn for event in events if isinstance(event, TurnEnd)]
    assert starts == ends == [1, 2]


@pytest.mark.parametrize("last", [say("", stop="max_tokens"), say("", thinking="hm", stop="max_tokens"), say("")])
async def test_a_continuation_that_holds_nothing_ends_the_chain_as_empty(last: Any) -> None:
    events: list[Event] = []

    result = await run(Script(say("part", stop="max_tokens"), last), "go", on_event=events.append)

    assert (result.outcome, result.text) == ("failed" if last.stop == "end_turn" else "truncated", "part")
    assert [event.reason for event in events if isinstance(event, ContinuationTerminated)] == ["empty"]


async def test_a_stop_reason_is_told_with_the_number_of_its_request() -> None:
    events: list[Event] = []
    provider = Script(calls(partial("noop"), stop="max_tokens"), say("x", raw="fin"))

    result = await run(provider, "go", tools=[noop], on_event=events.append)

    seen = [event for event in events if isinstance(event, StopReasonObserved)]
    assert [(event.request, event.normalized, event.raw) for event in seen] == [
        (1, "max_tokens", "max_tokens"),
        (2, "end_turn", "fin"),
    ]
    assert {event.run_id for event in seen} == {result.run_id}


# Providers -----------------------------------------------------------------------------------------


class Plain:
    """A provider whose `stream` is a function that fails at once."""

    name = "plain"

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        raise fail("auth")


async def test_a_provider_that_fails_before_it_streams_is_a_typed_failure() -> None:
    result = await run(Plain(), "go")

    assert (result.outcome, shape(result.messages)) == ("failed", "u")


async def test_a_gate_holds_after_a_compaction() -> None:
    provider = Script(fail("context_overflow"), "x")

    await run(
        provider,
        [user("x" * 99), user("a"), user("b"), user("c")],
        tools=[noop],
        policies=[Tail(), Gates(Gate(name="g", allow=()))],
    )

    assert [request.tools for request in provider.requests] == [(), ()]


async def test_thousands_of_calls_are_one_batch() -> None:
    count = 2_000
    named = [call("noop", id="same") for _ in range(count)]

    result = await run(Script(calls(*named), "x"), "go", tools=[noop])

    assert (result.outcome, result.turns, len(result.messages)) == ("done", 1, count + 3)


async def test_a_policy_that_raises_leaves_a_valid_transcript() -> None:
    class Broken(Policy):
        async def on_reply(self, state: State, reply: AssistantMessage) -> Any:
            await anyio.lowlevel.checkpoint()
            kept.append(state)
            raise ZeroDivisionError

    kept: list[State] = []
    events: list[Event] = []

    with pytest.raises(ZeroDivisionError):
        await run(Script(calls("noop")), "go", tools=[noop], policies=[Broken()], on_event=events.append)

    assert shape(kept[0].messages) == "u a t"
    assert type(events[-1]).__name__ == "RunEnd"

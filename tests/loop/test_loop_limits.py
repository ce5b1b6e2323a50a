"""LOOP scenarios 66 to 99: limits, budgets, wrap-up, votes, steering, delivery, gates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

import anyio
import pytest

from glue import Agent, Cancel, Limits, Outcome, Request, StopReason, ToolResult, Usage, run, run_continue, tool
from glue.errors import BudgetExceeded, ConfigError, InvalidContinuation, MaxTurnsExceeded, Stalled
from glue.events import Event, GateApplied, GateConflict, LimitReached, MessageEnd, Nudge, WrapUp
from glue.messages import AssistantMessage, Text, ToolMessage, UserMessage, user
from glue.policies import Delivery, FollowUp, Gate, Gates, StallBudget, Steering
from glue.provider import Capabilities, ProviderEvent, TextDelta
from glue.providers.failover import with_failover
from glue.providers.retry import with_retries
from glue.testing import Script, calls, fail, repeat, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@tool(terminates=True)
async def term() -> str:
    """End the run."""
    return "bye"


@tool(terminates=True)
async def broken() -> str:
    """Fail."""
    raise RuntimeError("broken")


@tool(advisory=True)
async def hint() -> ToolResult:
    """Advise."""
    return ToolResult(content=(Text(text="hm"),))


class Queue:
    """A source of messages that counts how often it was asked."""

    def __init__(self, *waiting: str) -> None:
        self.waiting = list(waiting)
        self.polls = 0

    def __call__(self) -> list[str]:
        self.polls += 1
        return [self.waiting.pop(0)] if self.waiting else []


async def nothing(seconds: float) -> None:
    """Do not sleep."""


async def test_s066_a_run_stops_at_max_turns_and_says_so() -> None:
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


async def test_s067_the_default_is_32_turns() -> None:
    limits = Limits(repeat_nudge=None, repeat_halt=None)

    result = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=limits)

    assert (result.turns, result.requests, result.outcome) == (32, 32, "max_turns")


async def test_s068_a_natural_end_keeps_its_tag() -> None:
    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], limits=Limits(max_turns=4))

    assert (result.stop_reason, result.outcome) == ("end_turn", "done")


async def test_s069_an_end_on_the_last_turn_is_done() -> None:
    two = await run(Script(calls("noop"), "x"), "go", tools=[noop], limits=Limits(max_turns=2))
    one = await run(Script("x"), "go", limits=Limits(max_turns=1))

    assert (two.outcome, one.outcome) == ("done", "done")


async def test_s070_a_raised_limit_goes_on_from_the_tool_results() -> None:
    first = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=Limits(max_turns=2))
    provider = Script("x")

    second = await run_continue(provider, first.messages, tools=[noop], limits=Limits(max_turns=4))

    assert shape(provider.requests[0].messages) == "u a t a t"
    assert (shape(second.messages), shape(second.new_messages), second.outcome) == ("u a t a t a", "a", "done")


async def test_s071_no_request_may_be_allowed() -> None:
    provider = Script()
    events: list[Event] = []

    result = await run(provider, "go", limits=Limits(max_requests=0), on_event=events.append)

    assert (result.requests, len(provider.requests), result.outcome) == (0, 0, "max_turns")
    assert isinstance(result.error, MaxTurnsExceeded)
    assert result.meta == {"turns": 0, "requests": 0, "max_requests": 0}
    assert [(e.kind, e.used, e.max) for e in events if isinstance(e, LimitReached)] == [("requests", 0, 0)]
    assert result.stop_reason is StopReason.MAX_TURNS


async def test_s072_a_retry_counts_as_a_request() -> None:
    provider = Script(fail("empty"), calls("noop"), calls("noop"))

    result = await run(with_retries(provider, sleep=nothing), "go", tools=[noop], limits=Limits(max_requests=3))

    assert (result.requests, result.outcome, shape(result.messages)) == (3, "max_turns", "u a t a t")


async def test_s072_a_retry_for_which_no_request_is_left_is_not_made() -> None:
    provider = Script(repeat(fail("empty")))

    result = await run(with_retries(provider, sleep=nothing), "go", limits=Limits(max_requests=1))

    assert (result.outcome, len(provider.requests), provider.open_streams) == ("max_turns", 1, 0)


async def test_s073_a_prompt_above_the_budget_is_not_sent() -> None:
    result = await run(Script(), "x" * 500_000, limits=Limits(token_budget=100_000))

    assert (result.requests, result.outcome, result.stop_reason) == (0, "budget", "token_budget")
    assert isinstance(result.error, BudgetExceeded)
    assert (result.error.kind, result.error.limit, result.error.used) == ("tokens", 100_000, 125_000)
    assert result.meta is not None
    assert (result.meta["used"], result.meta["limit"]) == (125_000, 100_000)


async def test_s074_a_budget_is_spent_by_usage() -> None:
    reply = calls("noop", usage=Usage(input=1000, output=50))

    result = await run(Script(repeat(reply)), "go!!", tools=[noop], limits=Limits(token_budget=100))

    assert (result.requests, result.outcome, shape(result.messages)) == (2, "budget", "u a t a t")
    assert result.meta is not None
    assert (result.meta["input"], result.meta["output"]) == (1 + 1 + 1, 100)
    assert isinstance(last := result.messages[3], AssistantMessage)
    assert last.stop_reason is StopReason.TOKEN_BUDGET


async def test_s074_money_is_a_budget_too() -> None:
    reply = calls("noop", usage=Usage(output=1, cost=0.4))

    result = await run(Script(repeat(reply)), "go", tools=[noop], limits=Limits(usd_budget=0.8))

    assert (result.requests, result.outcome) == (2, "budget")
    assert isinstance(result.error, BudgetExceeded)
    assert result.error.kind == "usd"
    assert result.cost == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("usage", "why"),
    [(None, "script-1 does not say what it used;"), (Usage(output=1), "no price is known for script-1;")],
)
async def test_s131_money_without_a_price_ends_the_run_at_the_first_reply(usage: Usage | None, why: str) -> None:
    reply = calls("noop", usage=usage)

    result = await run(Script(reply, reply, "x"), "go", tools=[noop], limits=Limits(usd_budget=1))

    assert (result.outcome, result.requests) == ("failed", 1)
    assert isinstance(result.error, ConfigError)
    assert f"usd_budget cannot be kept: {why}" in str(result.error)
    assert result.messages[-1].text == "not run: the run ended (failed)"


class Named(Script):
    """A provider that says what it is, and knows no price."""

    capabilities = Capabilities(provider="acme", model="script-1")


async def test_s131_a_budget_is_refused_before_the_first_request_where_no_price_is_known() -> None:
    provider = Named("x")

    for asked in (provider, with_retries(provider), with_failover(provider, provider)):
        with pytest.raises(ConfigError, match=r"no price is known for acme:script-1.*prices= or GLUE_PRICES"):
            await run(asked, "go", limits=Limits(usd_budget=1))

    assert provider.requests == []


async def test_s131_a_model_whose_name_holds_a_comma_is_refused_as_any_other() -> None:
    provider = Script("x")
    provider.capabilities = Capabilities(provider="acme", model="one,two")  # type: ignore[attr-defined]

    with pytest.raises(ConfigError, match="no price is known for acme:one"):
        await run(provider, "go", limits=Limits(usd_budget=1))

    assert provider.requests == []


@pytest.mark.parametrize("where", ["agent", "environment"])
async def test_s131_a_price_may_be_given(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "environment":
        monkeypatch.setenv("GLUE_PRICES", "other=1/2,script-1=1/2")
    prices = {"script-1": (1.0, 2.0)} if where == "agent" else None
    reply = say("x", usage=Usage(input=500_000, output=250_000))

    result = await Agent(Named(reply), prices=prices, limits=Limits(usd_budget=1)).run("go")

    assert (result.outcome, result.cost) == ("done", 1.0)
    assert result.messages[-1].usage.cost == 1.0  # type: ignore[union-attr]
    monkeypatch.setenv("GLUE_PRICES", "script-1=cheap")
    with pytest.raises(ConfigError, match="GLUE_PRICES must be like"):
        await run(Script("x"), "go")


async def test_s131_a_price_may_be_nothing() -> None:
    reply = say("x", usage=Usage(input=500_000, output=250_000))

    result = await Agent(Named(reply), prices={"script-1": (0, 0.0)}, limits=Limits(usd_budget=1)).run("go")

    assert (result.outcome, result.cost) == ("done", 0.0)


@pytest.mark.parametrize("price", [1.0, (1.0,), ("a", "b"), (-1.0, 2.0), (float("nan"), 1.0)])
async def test_s131_a_price_that_is_none_is_refused(price: Any) -> None:
    with pytest.raises(ConfigError, match=r"prices must be like \{'my-model': \(0.1, 0.4\)\}.*not 'script-1': "):
        await Agent(Script("x"), prices={"script-1": price}).run("go")


async def test_s131_a_reply_that_overshoots_ends_the_run_and_its_calls_do_not_run() -> None:
    reply = calls("noop", usage=Usage(output=1, cost=0.9))

    result = await run(Script(reply, reply), "go", tools=[noop], limits=Limits(usd_budget=0.8))

    assert (result.requests, result.outcome, shape(result.messages)) == (1, "budget", "u a t")
    assert result.messages[-1].text == "not run: the run ended (budget)"
    assert result.stop_reason == "token_budget"
    answer = await run(Script(say("x", usage=Usage(cost=0.9))), "go", limits=Limits(usd_budget=0.8))
    assert (answer.outcome, answer.text) == ("budget", "x")
    exact = await run(Script(say("x", usage=Usage(cost=0.8))), "go", limits=Limits(usd_budget=0.8))
    assert exact.outcome == "done"


async def test_s074_time_is_a_budget_too() -> None:
    result = await run(Script(), "go", limits=Limits(seconds=0))

    assert (result.requests, result.outcome) == (0, "budget")


async def test_the_clock_ends_a_reply_and_keeps_its_text() -> None:
    closed: list[bool] = []

    class Hangs:
        name = "hangs"

        async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
            try:
                yield TextDelta(text="a")
                await anyio.sleep_forever()
            finally:
                closed.append(True)

    events: list[Event] = []

    result = await run(Hangs(), "go", limits=Limits(seconds=0.3), on_event=events.append)

    assert (result.outcome, result.text, shape(result.messages)) == ("budget", "a", "u a")
    assert isinstance(result.error, BudgetExceeded)
    assert (result.error.kind, result.error.limit) == ("seconds", 0.3)
    assert 0.3 <= result.error.used < 300
    assert [(event.kind, event.max) for event in events if isinstance(event, LimitReached)] == [("seconds", 0.3)]
    assert result.stop_reason is StopReason.TOKEN_BUDGET
    assert closed == [True]


async def test_s075_tokens_are_estimated() -> None:
    assert Limits().estimator("x" * 400) == 100
    assert Limits().estimator("") == 0
    assert Limits().estimator("x") == 1

    result = await run(Script(), "three words here", limits=Limits(token_budget=3, estimator=lambda t: len(t.split())))

    assert (result.outcome, result.requests) == ("budget", 0)


async def test_s076_requests_win_over_a_budget_and_a_cancel_over_both() -> None:
    limits = Limits(max_requests=0, token_budget=1)
    cancel = Cancel()

    first = await run(Script(), "x" * 100, limits=limits)
    cancel.cancel()
    second = await run(Script(), "x" * 100, limits=limits, cancel=cancel)

    assert (first.outcome, second.outcome) == ("max_turns", "cancelled")


async def test_s077_limits_are_read_before_each_request() -> None:
    current = [Limits(max_turns=1)]

    def source() -> Limits:
        return current[0]

    first = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=source)
    current[0] = Limits(max_turns=2)
    second = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=source)

    assert (first.turns, second.turns) == (1, 2)


@pytest.mark.parametrize("grace", [1, 3])
async def test_s078_a_wrap_up_is_asked_for_once(grace: int) -> None:
    events: list[Event] = []
    provider = Script(calls("noop"), calls("noop"), "end")
    limits = Limits(max_turns=2 + grace, grace=grace)

    result = await run(provider, "go", tools=[noop], limits=limits, on_event=events.append)

    assert (shape(result.messages), result.outcome, result.complete) == ("u a t a t u+ a", "wrapped_up", True)
    assert [event.turns_left for event in events if isinstance(event, WrapUp)] == [grace]
    assert result.outcome.exit_code == 0


async def test_s079_a_wrap_up_may_be_ignored() -> None:
    result = await run(
        Script(repeat(calls("noop"))), "go", tools=[noop], limits=Limits(max_turns=5, grace=3, repeat_halt=None)
    )

    assert (result.outcome, result.complete) == ("max_turns", False)
    assert [m.origin for m in result.messages if isinstance(m, UserMessage)].count("wrap_up") == 1


@pytest.mark.parametrize(
    "limits", [Limits(max_turns=3, grace=0), Limits(max_turns=3, grace=3), Limits(max_turns=None, grace=3)]
)
async def test_s080_no_wrap_up_where_it_makes_no_sense(limits: Limits) -> None:
    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], limits=limits)

    assert (shape(result.messages), result.outcome) == ("u a t a", "done")


async def test_s080_no_wrap_up_between_the_parts_of_a_reply() -> None:
    paused = Script(say("a ", stop="pause_turn"), "b")

    result = await run(paused, "go", limits=Limits(max_turns=2, grace=1))

    assert (shape(result.messages), result.outcome) == ("u a a", "done")


async def test_s081_a_vote_ends_the_run_before_anyone_is_asked() -> None:
    steering, follow_up = Queue("steer"), Queue("more")

    result = await run(Script(calls("term")), "go", tools=[term], policies=[Steering(steering), FollowUp(follow_up)])

    assert (result.requests, result.outcome, steering.polls, follow_up.polls) == (1, "done", 1, 0)
    assert shape(result.messages) == "u u a t"
    assert result.stop_reason is StopReason.TOOL_USE


async def test_s082_a_vote_must_be_unanimous() -> None:
    result = await run(Script(calls("term", "noop"), "x"), "go", tools=[term, noop])

    assert result.requests == 2


@pytest.mark.parametrize(
    ("named", "requests"),
    [(("term", "hint"), 1), (("hint",), 2), (("term", "nope"), 2), (("broken",), 2), (("term", "term"), 1)],
)
async def test_s083_who_may_end_a_run(named: tuple[str, ...], requests: int) -> None:
    result = await run(Script(calls(*named), "x"), "go", tools=[term, hint, broken])

    assert result.requests == requests


async def test_s084_a_follow_up_goes_on() -> None:
    result = await run(Script("one", "two"), "go", policies=[FollowUp(Queue("and?"))])

    assert (result.requests, result.outcome, shape(result.messages), result.text) == (2, "done", "u a u a", "two")
    assert result.turns == 1


async def test_a_follow_up_may_be_a_message_and_is_kept_as_it_is() -> None:
    waiting = [user("and this?", origin="steering")]
    said = waiting[0]

    result = await run(Script("one", "two"), "go", policies=[FollowUp(lambda: [waiting.pop()] if waiting else [])])

    assert result.messages[2] == said


async def test_s085_steering_goes_in_front_of_the_next_request() -> None:
    events: list[Event] = []
    queue = Queue("before")

    @tool
    async def speak() -> str:
        """Let the user say something."""
        queue.waiting.append("during")
        return "ok"

    provider = Script(calls("speak"), "x")
    result = await run(provider, "go", tools=[speak], policies=[Steering(queue)], on_event=events.append)

    assert shape(result.messages) == "u u a t u a"
    assert [m.text for m in provider.requests[0].messages] == ["go", "before"]
    assert provider.requests[1].messages[-1].text == "during"
    said = [e.message.text for e in events if isinstance(e, MessageEnd) and isinstance(e.message, UserMessage)]
    assert said == ["go", "before", "during"]
    assert result.turns == 1


async def test_s086_steering_at_the_cap_is_not_lost() -> None:
    queue = Queue()

    @tool
    async def speak() -> str:
        """Let the user say something."""
        queue.waiting.append("late")
        return "ok"

    result = await run(
        Script(calls("speak")), "go", tools=[speak], limits=Limits(max_turns=1), policies=[Steering(queue)]
    )

    assert (result.outcome, queue.waiting, queue.polls) == ("max_turns", ["late"], 1)


@pytest.mark.parametrize("limits", [Limits(max_turns=1), Limits(max_requests=1)])
async def test_s087_a_follow_up_with_nothing_left_is_not_lost(limits: Limits) -> None:
    queue = Queue("more")

    result = await run(Script("x"), "go", limits=limits, policies=[FollowUp(queue)])

    assert (result.outcome, queue.polls, queue.waiting) == ("done", 0, ["more"])


async def test_a_follow_up_that_is_taken_is_always_answered() -> None:
    queue = Queue("more", "and more")

    result = await run(Script("x", "y"), "go", limits=Limits(max_turns=2), policies=[FollowUp(queue)])

    assert (result.outcome, result.text, queue.waiting) == ("done", "y", ["and more"])


async def test_s088_a_model_that_keeps_settling_has_stalled() -> None:
    result = await run(Script("a", "b"), "go", policies=[StallBudget(1), FollowUp(Queue("go on"))])

    assert (result.outcome, result.requests) == ("stalled", 2)
    assert isinstance(result.error, Stalled)
    assert (result.error.budget, result.error.observed) == (1, 2)
    assert isinstance(result.messages[-1], AssistantMessage)


async def test_s089_a_call_clears_the_stall() -> None:
    provider = Script("a", calls("noop"), "b", calls("noop"), "c", calls("term"))
    policies = [StallBudget(1), FollowUp(Queue("1", "2", "3"))]

    result = await run(provider, "go", tools=[noop, term], policies=policies)

    assert (result.outcome, result.requests) == ("done", 6)


@tool
async def deliver(text: str) -> str:
    """Hand over the result."""
    return text


@tool
async def info() -> str:
    """Tell something."""
    return "i"


def gate(*names: str, name: str = "g", priority: int = 0, required: bool = False) -> Gate:
    return Gate(name=name, allow=names, priority=priority, required=required)


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param([Gates(gate("deliver")), Delivery("deliver")], id="s090"),
        pytest.param([Gates(gate("info", "deliver")), Delivery("deliver", terminal=["info"])], id="s091"),
        pytest.param([Delivery("deliver", eager=True, nudges=0)], id="s092"),
    ],
)
async def test_s090_s091_s092_a_plain_answer_is_delivered(policies: list[Any]) -> None:
    provider = Script("<think>hm</think>p")

    result = await run(provider, "go", tools=[deliver, info, noop], policies=policies)

    assert (result.outcome, result.requests, result.delivered, result.text) == ("done", 1, "p", "p")
    assert shape(result.messages) == "u a t"
    assert isinstance(synthetic := result.messages[-1], ToolMessage)
    assert (synthetic.text, synthetic.name, synthetic.excluded) == ("p", "deliver", True)
    later = Script("x")
    await run(later, [*result.messages, user("more")])
    assert shape(later.requests[0].messages) == "u a u"


async def test_s091_an_undeclared_tool_keeps_the_gate_open() -> None:
    policies = [Gates(gate("info", "deliver")), Delivery("deliver", nudges=0)]

    result = await run(Script("p"), "go", tools=[deliver, info], policies=policies)

    assert (result.outcome, result.delivered) == ("done", None)


async def test_s093_the_first_answer_is_delivered_after_the_nudges() -> None:
    events: list[Event] = []

    result = await run(
        Script("T0", "T1", "T2"),
        "go",
        tools=[deliver],
        policies=[Gates(gate("deliver", "x")), Delivery("deliver", eager=True, nudges=2, terminal=[])],
        on_event=events.append,
    )
    eager = await run(
        Script("T0", "T1", "T2"), "go", tools=[deliver, noop], policies=[Delivery("deliver", eager=True, nudges=2)]
    )

    assert result.delivered == "T0"  # narrowed: at once
    assert (eager.requests, eager.delivered, eager.text) == (3, "T0", "T0")
    assert [m.origin for m in eager.messages if isinstance(m, UserMessage)] == ["user", "nudge", "nudge"]
    assert not [event for event in events if isinstance(event, Nudge)]


async def test_s094_a_question_is_not_delivered() -> None:
    result = await run(
        Script("Would you like me to proceed?", "T1", "T2"),
        "go",
        tools=[deliver, noop],
        policies=[Delivery("deliver", eager=True, nudges=2)],
    )

    assert result.delivered == "T1"


@pytest.mark.parametrize(("length", "delivered"), [(399, "T1"), (400, "long")])
async def test_a_long_answer_that_ends_in_a_question_is_an_answer(length: int, delivered: str) -> None:
    long = "?".rjust(length, "x")
    provider = Script(long, "T1", "T2")

    result = await run(provider, "go", tools=[deliver, noop], policies=[Delivery("deliver", eager=True, nudges=2)])

    assert result.delivered == (long if delivered == "long" else delivered)


async def test_s095_without_eagerness_a_plain_answer_stalls() -> None:
    result = await run(Script("p"), "go", tools=[deliver, noop], policies=[Delivery("deliver"), StallBudget(0)])

    assert (result.outcome, result.delivered) == ("stalled", None)


async def gated(*gates: Gate, tools: Collection[Any] = ()) -> tuple[list[str], list[Event]]:
    events: list[Event] = []
    provider = Script("x")
    await run(provider, "go", tools=tools or [noop, term, info], policies=[Gates(*gates)], on_event=events.append)
    return [spec.name for spec in provider.requests[0].tools], events


async def test_s096_the_gate_of_higher_priority_wins_a_conflict() -> None:
    names, events = await gated(gate("noop", name="b", priority=100), gate("term", name="r", priority=10))

    assert names == ["noop"]
    assert [event.winner for event in events if isinstance(event, GateConflict)] == ["b"]


@pytest.mark.parametrize(
    ("gates", "winner"),
    [
        ([gate("noop", "info", name="a"), gate("term", name="b")], "b"),
        ([gate("noop", name="b"), gate("term", name="a")], "a"),
        ([gate("noop", name="a"), gate(name="b")], "b"),
    ],
)
async def test_s096_then_the_smaller_set_then_the_name(gates: list[Gate], winner: str) -> None:
    _, events = await gated(*gates)

    assert [event.winner for event in events if isinstance(event, GateConflict)] == [winner]


async def test_s097_a_required_gate_drops_advisory_ones_below_it() -> None:
    required = gate("noop", "term", name="required", priority=5, required=True)

    below, _ = await gated(required, gate("noop", name="advisory"))
    above, _ = await gated(required, gate("noop", name="advisory", priority=6))
    beside, _ = await gated(required, gate("noop", name="advisory", priority=5))
    idle, _ = await gated(gate("noop", "term", "info", name="r", priority=5, required=True), gate("noop", name="a"))

    assert (below, above, beside, idle) == (["noop", "term"], ["noop"], ["noop"], ["noop"])


async def test_s098_empty_gates_send_no_tools() -> None:
    names, events = await gated(gate(name="a"), gate(name="b"))

    assert names == []
    assert [(e.gates, e.allowed) for e in events if isinstance(e, GateApplied)] == [(("a", "b"), ())]
    assert not [event for event in events if isinstance(event, GateConflict)]


async def test_gates_intersect_and_a_gated_call_is_refused() -> None:
    gates = Gates(gate("noop", "term", name="a"), gate("noop", "info", name="b"), Gate(name="c", allow=lambda _: None))
    provider = Script(calls("info"), "x")

    result = await run(provider, "go", tools=[noop, term, info], policies=[gates])

    assert [spec.name for spec in provider.requests[0].tools] == ["noop"]
    assert isinstance(answer := result.messages[2], ToolMessage)
    assert answer.is_error
    assert answer.text == "tool 'info' is not available now; there are: noop"


async def test_a_forced_choice_holds_until_the_first_batch() -> None:
    provider = Script(calls("noop"), "x")

    await run(provider, "go", tools=[noop], limits=Limits(tool_choice="noop"))

    assert [request.tool_choice for request in provider.requests] == ["noop", "auto"]


@pytest.mark.parametrize(
    ("choice", "allowed", "sent"),
    [
        ("noop", ["term"], "auto"),
        ("noop", ["noop"], "noop"),
        ("noop", [], "auto"),
        ("required", ["term"], "required"),
        ("required", [], "auto"),
        ("none", ["term"], "none"),
        ("none", [], "none"),
        ("auto", ["term"], "auto"),
    ],
)
async def test_a_choice_is_kept_while_a_gate_lets_it_be_followed(choice: str, allowed: list[str], sent: str) -> None:
    provider = Script("x")
    limits = Limits(tool_choice=choice)

    await run(provider, "go", tools=[noop, term], limits=limits, policies=[Gates(gate(*allowed))])

    assert provider.requests[0].tool_choice == sent


async def test_a_gate_holds_for_the_rest_of_a_reply() -> None:
    provider = Script(say("a", stop="max_tokens"), "b")

    await run(provider, "go", tools=[noop, term], policies=[Gates(gate("term"))])

    assert [[spec.name for spec in request.tools] for request in provider.requests] == [["term"], ["term"]]


def test_a_gate_is_advisory_and_of_no_priority_unless_it_says_so() -> None:
    made = Gate(name="g", allow=())

    assert (made.priority, made.required, Gates().place) == (0, False, "gates")


async def test_no_choice_stays_none() -> None:
    provider = Script(calls("noop"), "x")

    await run(provider, "go", tools=[noop], limits=Limits(tool_choice="none"))

    assert [request.tool_choice for request in provider.requests] == ["none", "none"]


@pytest.mark.parametrize("messages", [[], [user("hi"), AssistantMessage(content=(Text(text="done"),))]])
async def test_s099_there_must_be_something_to_go_on_from(messages: list[Any]) -> None:
    provider = Script()

    with pytest.raises(InvalidContinuation):
        await run_continue(provider, messages)

    assert provider.requests == []


async def test_s099_a_paused_reply_may_be_continued() -> None:
    paused = AssistantMessage(content=(Text(text="half "),), stop_reason=StopReason.PAUSE_TURN)

    result = await run_continue(Script("rest"), [user("hi"), paused])

    assert result.outcome is Outcome.DONE

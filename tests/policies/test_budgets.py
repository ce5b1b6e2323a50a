"""Budgets, prices of models, and the wrap-up message."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.wires import played

from glue import (
    Agent,
    AssistantMessage,
    Limits,
    Outcome,
    StopReason,
    Text,
    Usage,
    providers,
    run,
    tool,
)
from glue.errors import BudgetExceeded, ConfigError
from glue.events import Event, LimitReached, WrapUp
from glue.messages import UserMessage
from glue.policies.budgets import (
    WRAP_UP,
    check_price,
    known_prices,
    price_of,
    priced,
    unpriced,
)
from glue.provider import Capabilities
from glue.providers.failover import with_failover
from glue.providers.retry import with_retries
from glue.testing import Repeat, Script, calls, repeat, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


def reply(usage: Usage | None) -> AssistantMessage:
    return AssistantMessage(content=(Text(text="x"),), provider="acme", model="m", usage=usage)


def test_prices_of_the_environment_are_overridden_by_given_prices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GLUE_PRICES", "one=0.1/0.4, acme:two=1/2")

    prices = known_prices({"one": (5.0, 6.0)})

    assert prices == {"one": (5.0, 6.0), "acme:two": (1.0, 2.0)}


@pytest.mark.parametrize("text", ["one", "one=1", "one=1/2/3", "one=cheap/dear"])
def test_a_price_in_the_environment_that_is_not_a_pair_is_an_error(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_PRICES", text)

    with pytest.raises(ConfigError, match=r"GLUE_PRICES must be like my-model=0\.1/0\.4"):
        known_prices(None)


@pytest.mark.parametrize("price", [1, (1,), (1, 2, 3), (1, -1), (1, float("inf")), "ab"])
def test_a_given_price_that_is_not_a_pair_is_an_error(price: Any) -> None:
    with pytest.raises(ConfigError, match=r"prices must be like .*, but the price of 'm' is "):
        known_prices({"m": price})


def test_the_price_of_a_provider_and_model_goes_before_that_of_the_model() -> None:
    prices = {"m": (1.0, 1.0), "acme:m": (2.0, 2.0)}

    assert price_of(prices, "acme", "m") == (2.0, 2.0)
    assert price_of(prices, "other", "m") == (1.0, 1.0)
    assert price_of(prices, "other", "n") is None


def test_the_cost_of_a_reply_is_computed_from_its_tokens() -> None:
    message = priced(reply(Usage(input=1_000_000, output=500_000)), {"m": (1.0, 4.0)})

    assert message.usage is not None
    assert message.usage.cost == 3.0


@pytest.mark.parametrize("name", ["m", "acme:m"])
def test_a_price_of_the_user_replaces_the_cost_of_the_provider(name: str) -> None:
    message = priced(reply(Usage(input=1_000_000, output=500_000, cost=0.5)), {name: (1.0, 4.0)})

    assert message.usage is not None
    assert message.usage.cost == 3.0


@pytest.mark.parametrize(
    ("usage", "prices"),
    [(None, {"m": (1.0, 4.0)}), (Usage(input=1, cost=0.5), {"other:m": (1.0, 4.0)})],
    ids=["no usage", "price of another provider"],
)
def test_a_reply_without_usage_or_without_a_price_is_not_changed(
    usage: Usage | None, prices: dict[str, tuple[float, float]]
) -> None:
    message = reply(usage)

    assert priced(message, prices) is message


@pytest.mark.parametrize(
    ("able", "prices", "missing"),
    [
        (Capabilities(), {}, ""),
        (Capabilities(provider="acme", model="m", input_price=1.0, output_price=1.0), {}, ""),
        (Capabilities(provider="acme", model="m"), {"m": (1.0, 1.0)}, ""),
        (Capabilities(provider="acme", model="m"), {}, "acme:m"),
        (Capabilities(provider="a,b", model="m,n"), {"m": (1.0, 1.0)}, "a:m, b:n"),
    ],
    ids=["no model", "own price", "given price", "no price", "failover list"],
)
def test_a_budget_in_dollars_needs_a_price_of_every_model(
    able: Capabilities, prices: dict[str, tuple[float, float]], missing: str
) -> None:
    provider = Script("x")
    provider.capabilities = able  # type: ignore[attr-defined]

    if missing:
        with pytest.raises(ConfigError, match=f"no price is known for {missing};"):
            check_price(provider, prices)
    else:
        check_price(provider, prices)


def test_the_error_without_a_price_tells_how_to_set_one() -> None:
    assert str(unpriced("m")) == (
        "usd_budget cannot be checked: no price is known for m; to run without the budget, use "
        "usd_budget=None or --usd-budget none; to set a price, use prices= or GLUE_PRICES=m=IN/OUT"
    )
    assert "no price is known for this model;" in str(unpriced(""))
    assert "GLUE_PRICES=MODEL=IN/OUT" in str(unpriced(""))
    assert str(unpriced("", counted=False)) == (
        "usd_budget cannot be checked: this model does not report how many tokens it used; "
        "to run without the budget, use usd_budget=None or --usd-budget none; "
        "to limit the estimated tokens instead, use token_budget=; "
        "in a test, add usage=glue.Usage(cost=0.01) to each step of the Script"
    )


async def test_a_spent_budget_of_tokens_ends_the_run_before_the_next_request() -> None:
    events: list[Event] = []
    script = Script(calls("noop", usage=Usage(output=50)), "never sent")

    result = await run(
        script, "go", tools=[noop], limits=Limits(token_budget=40), on_event=events.append
    )

    assert result.outcome is Outcome.BUDGET
    assert isinstance(result.error, BudgetExceeded)
    assert len(script.requests) == 1
    reached = [event for event in events if isinstance(event, LimitReached)]
    assert [(event.kind, event.max) for event in reached] == [("tokens", 40)]


async def test_a_reply_that_exceeds_the_budget_in_dollars_ends_the_run_before_its_calls() -> None:
    ran: list[int] = []

    @tool
    async def act() -> None:
        """Act."""
        ran.append(1)

    script = Script(calls("act", usage=Usage(output=1, cost=2.0)))

    result = await run(script, "go", tools=[act], limits=Limits(usd_budget=1.0))

    assert (result.outcome, ran) == (Outcome.BUDGET, [])


async def test_the_wrap_up_message_is_sent_once_before_the_last_turns() -> None:
    events: list[Event] = []
    script = Script(Repeat(calls("noop")))

    result = await run(
        script,
        "go",
        tools=[noop],
        limits=Limits(max_turns=4, grace=2, repeat_nudge=None),
        on_event=events.append,
    )

    texts = [message.text for message in result.messages if message.text == WRAP_UP]
    assert len(texts) == 1
    assert [event.turns_left for event in events if isinstance(event, WrapUp)] == [2]


def test_the_text_of_the_wrap_up_message() -> None:
    assert WRAP_UP == (
        "You are almost out of turns. Stop using tools and give your final answer now, "
        "with what you have."
    )


@pytest.mark.parametrize("grace", [0, 4, 5])
async def test_no_wrap_up_message_is_sent_if_grace_is_zero_or_not_below_max_turns(
    grace: int,
) -> None:
    events: list[Event] = []
    limits = Limits(max_turns=4, grace=grace)

    await run(
        Script(calls("noop"), "Done."), "go", tools=[noop], limits=limits, on_event=events.append
    )

    assert not any(isinstance(event, WrapUp) for event in events)


async def test_s073_a_prompt_above_the_budget_is_not_sent() -> None:
    result = await run(Script(), "x" * 500_000, limits=Limits(token_budget=100_000))

    assert (result.requests, result.outcome, result.stop_reason) == (0, "budget", "token_budget")
    assert "too small" in str(result.error)
    assert isinstance(result.error, BudgetExceeded)
    assert (result.error.kind, result.error.limit, result.error.used) == (
        "tokens",
        100_000,
        125_000,
    )
    assert result.meta is not None
    assert (result.meta["used"], result.meta["limit"]) == (125_000, 100_000)


async def test_s074_the_usage_of_replies_is_charged_to_the_budget() -> None:
    reply = calls("noop", usage=Usage(input=1000, output=50))

    result = await run(Script(repeat(reply)), "go!!", tools=[noop], limits=Limits(token_budget=100))

    assert (result.requests, result.outcome, shape(result.messages)) == (2, "budget", "u a t a t")
    assert result.meta is not None
    assert (result.meta["input"], result.meta["output"]) == (1 + 1 + 1, 100)
    assert isinstance(last := result.messages[3], AssistantMessage)
    assert last.stop_reason is StopReason.TOKEN_BUDGET


async def test_s074_a_spent_budget_in_dollars_ends_the_run() -> None:
    reply = calls("noop", usage=Usage(output=1, cost=0.4))

    result = await run(Script(repeat(reply)), "go", tools=[noop], limits=Limits(usd_budget=0.8))

    assert (result.requests, result.outcome) == (2, "budget")
    assert isinstance(result.error, BudgetExceeded)
    assert result.error.kind == "usd"
    assert result.cost == pytest.approx(0.8)


async def test_s074_a_time_limit_of_zero_ends_the_run_before_the_first_request() -> None:
    result = await run(Script(), "go", limits=Limits(seconds=0))

    assert (result.requests, result.outcome) == (0, "budget")


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        (None, "script-1 does not report how many tokens it used;"),
        (Usage(output=1), "no price is known for script-1;"),
    ],
)
async def test_s131_a_reply_without_a_price_ends_a_run_with_a_budget_in_dollars(
    usage: Usage | None, why: str
) -> None:
    reply = calls("noop", usage=usage)

    result = await run(Script(reply, reply, "x"), "go", tools=[noop], limits=Limits(usd_budget=1))

    assert (result.outcome, result.requests) == ("failed", 1)
    assert isinstance(result.error, ConfigError)
    assert f"usd_budget cannot be checked: {why}" in str(result.error)
    assert result.messages[-1].text == "not run: the run ended (failed)"


class Named(Script):
    """A script with a provider and a model, but without a price."""

    capabilities = Capabilities(provider="acme", model="script-1")


async def test_s131_a_budget_in_dollars_is_refused_if_no_price_is_known() -> None:
    provider = Named("x")

    for asked in (provider, with_retries(provider), with_failover(provider, provider)):
        with pytest.raises(
            ConfigError, match=r"no price is known for acme:script-1.*prices= or GLUE_PRICES"
        ):
            await run(asked, "go", limits=Limits(usd_budget=1))

    assert provider.requests == []


async def test_s131_a_model_name_with_a_comma_needs_a_price_too() -> None:
    provider = Script("x")
    provider.capabilities = Capabilities(provider="acme", model="one,two")  # type: ignore[attr-defined]

    with pytest.raises(ConfigError, match="no price is known for acme:one"):
        await run(provider, "go", limits=Limits(usd_budget=1))

    assert provider.requests == []


@pytest.mark.parametrize("where", ["agent", "environment"])
async def test_s131_a_price_of_the_agent_or_the_environment_is_used(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "anthropic:claude-haiku-4-5"])
@pytest.mark.parametrize("where", ["agent", "environment"])
async def test_s131_a_price_of_the_user_replaces_the_known_price_of_a_model(
    loopback: Any, name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "environment":
        monkeypatch.setenv("GLUE_PRICES", f"{name}=100000/200000")
    prices = {name: (100_000.0, 200_000.0)} if where == "agent" else None
    server = loopback(played("anthropic"))  # 3 tokens of input, 2 of output
    model = providers.new("anthropic:claude-haiku-4-5", base_url=server.url, key="k")

    result = await Agent(model, prices=prices, limits=Limits(usd_budget=0.5)).run(
        "go", unwrap=False
    )

    assert result.outcome is Outcome.BUDGET
    assert result.cost == pytest.approx(0.7)


async def test_s131_a_price_of_zero_is_accepted() -> None:
    reply = say("x", usage=Usage(input=500_000, output=250_000))

    result = await Agent(
        Named(reply), prices={"script-1": (0, 0.0)}, limits=Limits(usd_budget=1)
    ).run("go")

    assert (result.outcome, result.cost) == ("done", 0.0)


@pytest.mark.parametrize("price", [1.0, (1.0,), ("a", "b"), (-1.0, 2.0), (float("nan"), 1.0)])
async def test_s131_a_price_that_is_not_a_pair_of_numbers_is_refused(price: Any) -> None:
    with pytest.raises(
        ConfigError,
        match=r"prices must be like \{'my-model': \(0.1, 0.4\)\}.*but the price of 'script-1' is ",
    ):
        await Agent(Script("x"), prices={"script-1": price}).run("go")


async def test_s131_a_reply_above_the_budget_ends_the_run_and_its_calls_do_not_run() -> None:
    reply = calls("noop", usage=Usage(output=1, cost=0.9))

    result = await run(Script(reply, reply), "go", tools=[noop], limits=Limits(usd_budget=0.8))

    assert (result.requests, result.outcome, shape(result.messages)) == (1, "budget", "u a t")
    assert result.messages[-1].text == "not run: the run ended (budget)"
    assert result.stop_reason == "token_budget"
    answer = await run(Script(say("x", usage=Usage(cost=0.9))), "go", limits=Limits(usd_budget=0.8))
    assert (answer.outcome, answer.text) == ("budget", "x")
    exact = await run(Script(say("x", usage=Usage(cost=0.8))), "go", limits=Limits(usd_budget=0.8))
    assert exact.outcome == "done"


@pytest.mark.parametrize("attempts", [0, 3])
async def test_s131_a_cut_reply_above_the_budget_ends_the_run_without_a_continuation(
    attempts: int,
) -> None:
    script = Script(say("half", stop="max_tokens", usage=Usage(output=9, cost=2.0)))

    result = await run(
        script, "go", limits=Limits(usd_budget=1.0, continuation_max_attempts=attempts)
    )

    assert (result.outcome, result.stop_reason, result.text) == (
        Outcome.BUDGET,
        StopReason.TOKEN_BUDGET,
        "half",
    )
    assert isinstance(result.error, BudgetExceeded)
    assert shape(result.messages) == "u a"
    assert result.notice == ""


@pytest.mark.parametrize("grace", [1, 3])
async def test_s078_the_wrap_up_message_is_sent_once_and_the_answer_is_complete(grace: int) -> None:
    events: list[Event] = []
    provider = Script(calls("noop"), calls("noop"), "end")
    limits = Limits(max_turns=2 + grace, grace=grace)

    result = await run(provider, "go", tools=[noop], limits=limits, on_event=events.append)

    assert (shape(result.messages), result.outcome, result.complete) == (
        "u a t a t u+ a",
        "wrapped_up",
        True,
    )
    assert [event.turns_left for event in events if isinstance(event, WrapUp)] == [grace]
    assert result.outcome.exit_code == 0


async def test_s079_a_model_that_ignores_the_wrap_up_message_reaches_max_turns() -> None:
    result = await run(
        Script(repeat(calls("noop"))),
        "go",
        tools=[noop],
        limits=Limits(max_turns=5, grace=3, repeat_halt=None),
    )

    assert (result.outcome, result.complete) == ("max_turns", False)
    assert [m.origin for m in result.messages if isinstance(m, UserMessage)].count("wrap_up") == 1


@pytest.mark.parametrize(
    "limits",
    [Limits(max_turns=3, grace=0), Limits(max_turns=3, grace=3), Limits(max_turns=None, grace=3)],
)
async def test_s080_without_grace_below_max_turns_no_wrap_up_message_is_sent(
    limits: Limits,
) -> None:
    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], limits=limits)

    assert (shape(result.messages), result.outcome) == ("u a t a", "done")


async def test_s080_no_wrap_up_message_is_sent_inside_a_paused_reply() -> None:
    paused = Script(say("a ", stop="pause_turn"), "b")

    result = await run(paused, "go", limits=Limits(max_turns=2, grace=1))

    assert (shape(result.messages), result.outcome) == ("u a a", "done")

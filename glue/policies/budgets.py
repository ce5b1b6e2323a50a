"""Budgets of a run (tokens, dollars, seconds), prices of models, and the wrap-up message."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from glue import events
from glue.context import Spending
from glue.errors import BudgetExceeded, ConfigError
from glue.limits import Outcome
from glue.messages import AssistantMessage, Request, UserMessage
from glue.policies.policy import Policy, Stop, nudge
from glue.provider import Provider, capabilities

if TYPE_CHECKING:
    from glue.loop.state import State
    from glue.policies.actions import Hook

# Dollars per million tokens of input and output, by "model" or "provider:model".
Prices: TypeAlias = Mapping[str, tuple[float, float]]

WRAP_UP = (
    "You are almost out of turns. Stop using tools and give your final answer now, "
    "with what you have."
)


class Budgets(Policy):
    """A policy that ends the run if a budget is spent, or if a dollar budget cannot be checked.

    Every budget is checked before each request. The budget in dollars is also checked after each
    reply: if the reply exceeds the budget, its calls do not run.
    """

    place = "budgets"

    def before_request(self, state: State, request: Request) -> Hook:
        spent = overspent(state)
        return None if spent is None else _stop(state, *spent)

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        budgets = [
            (spending, limits.usd_budget)
            for spending, limits in state.budgets()
            if limits.usd_budget is not None
        ]
        if budgets and (reply.usage is None or reply.usage.cost is None):
            model = reply.model or reply.provider
            return Stop(Outcome.FAILED, unpriced(model, counted=reply.usage is not None))
        for spending, limit in budgets:
            if spending.usd > limit:
                return _stop(state, spending, "usd", spending.usd, limit)
        return None


def known_prices(given: Prices | None) -> Prices:
    """Return the prices in the environment variable GLUE_PRICES, overridden by those in `given`.

    GLUE_PRICES looks like `my-model=0.1/0.4,acme:other=1/2`. Raise ConfigError for a price that
    is not a pair of numbers.
    """
    found: dict[str, tuple[float, float]] = {}
    for item in filter(None, os.environ.get("GLUE_PRICES", "").split(",")):
        name, _, text = item.rpartition("=")
        try:
            input_price, output_price = (float(price) for price in text.split("/"))
        except ValueError:
            raise ConfigError(
                f"GLUE_PRICES must be like my-model=0.1/0.4 (USD per million tokens), not {item!r}"
            ) from None
        found[name.strip()] = input_price, output_price
    prices = {**found, **(given or {})}
    for name, price in prices.items():
        if not _is_price(price):
            like = "{'my-model': (0.1, 0.4)} (USD per million tokens, in and out)"
            raise ConfigError(f"prices must be like {like}, but the price of {name!r} is {price!r}")
    return prices


def _is_price(price: object) -> bool:
    if not isinstance(price, (tuple, list)) or len(price) != 2:
        return False
    return all(isinstance(each, (int, float)) and 0 <= each < 1e15 for each in price)


def price_of(prices: Prices, provider: str, model: str) -> tuple[float, float] | None:
    """Return the price in `prices` for "provider:model", or else for "model", or None."""
    return prices.get(f"{provider}:{model}") or prices.get(model)


def check_price(provider: Provider, prices: Prices) -> None:
    """Raise ConfigError if the price of the provider's model is unknown.

    A provider that does not report the name of its model is not checked. A run with a budget in
    dollars calls this, because the budget cannot work without a price.
    """
    able = capabilities(provider)
    if able.model and able.input_price is None:
        # A failover list joins the names of its providers and models by commas. The two lists may
        # differ in length, because the name of a model may contain a comma.
        names = list(zip(able.provider.split(","), able.model.split(","), strict=False))
        if not all(price_of(prices, *name) for name in names):
            raise unpriced(", ".join(f"{provider}:{model}" for provider, model in names))


def priced(message: AssistantMessage, prices: Prices) -> AssistantMessage:
    """Return a reply with its cost computed from `prices`, or unchanged if it cannot be computed.

    A price that the user has set replaces the cost of the provider, whether the provider computed
    it from the known prices or the server sent it. Cached tokens cost as much as other tokens.
    If `prices` has no price for the model, or the reply has no usage, return it unchanged.
    """
    usage, price = message.usage, price_of(prices, message.provider, message.model)
    if usage is None or price is None:
        return message
    cost = (usage.input * price[0] + usage.output * price[1]) / 1_000_000
    return replace(message, usage=replace(usage, cost=cost))


def unpriced(model: str, *, counted: bool = True) -> ConfigError:
    """Return a ConfigError: the budget in dollars cannot be checked, as the cost is unknown.

    The error asks for a price of `model`. If `counted` is False, the error says instead that the
    provider did not report the tokens of a reply.
    """
    price = f"GLUE_PRICES={model or 'MODEL'}=IN/OUT"
    model = model or "this model"
    why = (
        f"no price is known for {model}; to run without the budget, use usd_budget=None or "
        f"--usd-budget none; to set a price, use prices= or {price}"
    )
    if not counted:
        why = (
            f"{model} does not report how many tokens it used; "
            "to run without the budget, use usd_budget=None or --usd-budget none; "
            "to limit the estimated tokens instead, use token_budget=; "
            "in a test, add usage=glue.Usage(cost=0.01) to each step of the Script"
        )
    return ConfigError(f"usd_budget cannot be checked: {why}")


def _stop(state: State, spending: Spending, kind: str, used: float, limit: float) -> Stop:
    state.emit(events.LimitReached(kind=kind, used=used, max=limit))
    meta = {
        "used": used,
        "limit": limit,
        "input": spending.tokens_in,
        "output": spending.tokens_out,
    }
    # The tokens of the prompt are counted before the first request, so they can spend the budget.
    sent = kind != "tokens" or spending.requests > 0
    return Stop(Outcome.BUDGET, BudgetExceeded(kind, limit, used, sent=sent), meta)


def overspent(state: State) -> tuple[Spending, str, float, float] | None:
    """Return the first budget of this run, or of the runs that called it, that is used up, or None.

    The tuple is: the spending of that run, the kind of budget, the used amount, the limit.
    """
    for spending, limits in state.budgets():
        budgets = (
            ("tokens", spending.tokens_in + spending.tokens_out, limits.token_budget),
            ("usd", spending.usd, limits.usd_budget),
            ("seconds", time.monotonic() - spending.started, limits.seconds),
        )
        for kind, used, limit in budgets:
            if limit is not None and used >= limit:
                return spending, kind, used, limit
    return None


def out_of_time(state: State) -> BudgetExceeded:
    """Emit LimitReached, and return the error for a run that has reached its time limit."""
    used, limit = time.monotonic() - state.spending.started, state.limits.seconds or 0.0
    state.emit(events.LimitReached(kind="seconds", used=used, max=limit))
    return BudgetExceeded("seconds", limit, used)


class Grace(Policy):
    """A policy that asks the model to finish, once, when `limits.grace` turns are left."""

    place = "wrap_up"

    def before_request(self, state: State, request: Request) -> Hook:
        max_turns, grace = state.limits.max_turns, state.limits.grace
        if state.in_chain or state.wrapped_up or max_turns is None or not 0 < grace < max_turns:
            return None
        if state.turns < max_turns - grace:
            return None
        turns_left = max_turns - state.turns

        def announce(message: UserMessage) -> None:
            state.wrapped_up = True
            state.emit(events.WrapUp(turns_left=turns_left))

        return nudge(WRAP_UP, origin="wrap_up", sent=announce)

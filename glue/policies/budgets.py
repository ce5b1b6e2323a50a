"""Budgets: tokens, money and time that a run may spend, and the wrap-up message before its last turns."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from glue.context import Spending
from glue.errors import BudgetExceeded, ConfigError
from glue.events import LimitReached, WrapUp
from glue.limits import Outcome
from glue.messages import AssistantMessage, Request
from glue.policies import Hook, Policy, Stop, nudge
from glue.provider import Provider, capabilities

if TYPE_CHECKING:
    from glue.loop.state import State


class Budgets(Policy):
    """Stop before a request when something is spent, and at a reply that overshoots a budget in dollars."""

    place = "budgets"

    def before_request(self, state: State, request: Request) -> Hook:
        found = overspent(state)
        return None if found is None else _stop(state, *found)

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        budgets = [
            (spending, limits.usd_budget) for spending, limits in state.budgets() if limits.usd_budget is not None
        ]
        if budgets and (reply.usage is None or reply.usage.cost is None):
            return Stop(Outcome.FAILED, unpriced(reply.model or reply.provider, counted=reply.usage is not None))
        for spending, most in budgets:
            if spending.usd > most:  # its calls do not run
                return _stop(state, spending, "usd", spending.usd, most)
        return None


Prices: TypeAlias = Mapping[str, tuple[float, float]]  # USD per million tokens, in and out, by model


def known_prices(given: Prices | None) -> Prices:
    """Join the prices of GLUE_PRICES, such as `my-model=0.1/0.4,acme:other=1/2`, with those a run was given."""
    found: dict[str, tuple[float, float]] = {}
    for item in filter(None, os.environ.get("GLUE_PRICES", "").split(",")):
        name, _, text = item.rpartition("=")
        try:
            read, written = (float(price) for price in text.split("/"))
        except ValueError:
            raise ConfigError(
                f"GLUE_PRICES must be like my-model=0.1/0.4 (USD per million tokens), not {item!r}"
            ) from None
        found[name.strip()] = read, written
    prices = {**found, **(given or {})}
    for name, price in prices.items():
        pair = price if isinstance(price, (tuple, list)) else ()
        if len(pair) != 2 or not all(isinstance(each, (int, float)) and 0 <= each < 1e15 for each in pair):
            like = "{'my-model': (0.1, 0.4)} (USD per million tokens, in and out)"
            raise ConfigError(f"prices must be like {like}, not {name!r}: {price!r}")
    return prices


def price_of(prices: Prices, provider: str, model: str) -> tuple[float, float] | None:
    return prices.get(f"{provider}:{model}") or prices.get(model)


def check_price(provider: Provider, prices: Prices) -> None:
    """Refuse a budget in dollars where the provider says what it asks, and no price is known for that."""
    able = capabilities(provider)
    if able.model and able.input_price is None:
        # Not strict: a chain joins its names by commas, and a model's own name may hold one.
        names = list(zip(able.provider.split(","), able.model.split(","), strict=False))
        if not all(price_of(prices, *name) for name in names):
            raise unpriced(", ".join(f"{provider}:{model}" for provider, model in names))


def priced(message: AssistantMessage, prices: Prices) -> AssistantMessage:
    """Put the cost on a reply that came without, where its price was given."""
    usage, price = message.usage, price_of(prices, message.provider, message.model)
    if usage is None or usage.cost is not None or price is None:
        return message
    cost = (usage.input * price[0] + usage.output * price[1]) / 1_000_000
    return replace(message, usage=replace(usage, cost=cost))


def unpriced(model: str, *, counted: bool = True) -> ConfigError:
    """Make the error for a budget in dollars that would be void."""
    model = model or "this model"
    why = f"no price is known for {model}; set one with prices= or GLUE_PRICES, or usd_budget=None"
    if not counted:
        why = f"{model} does not say what it used; set usd_budget=None, or token_budget= instead"
    return ConfigError(f"usd_budget cannot be kept: {why}")


def _stop(state: State, spending: Spending, kind: str, used: float, most: float) -> Stop:
    state.emit(LimitReached(kind=kind, used=used, max=most))
    meta = {"used": used, "limit": most, "input": spending.tokens_in, "output": spending.tokens_out}
    sent = kind != "tokens" or spending.requests > 0  # tokens are counted when a message is added, before a request
    return Stop(Outcome.BUDGET, BudgetExceeded(kind, most, used, sent=sent), meta)


def overspent(state: State) -> tuple[Spending, str, float, float] | None:
    """Return the first budget that is used up, with whose it is, kind, what was used and what is allowed."""
    for spending, limits in state.budgets():
        spent = (
            ("tokens", spending.tokens_in + spending.tokens_out, limits.token_budget),
            ("usd", spending.usd, limits.usd_budget),
            ("seconds", time.monotonic() - spending.started, limits.seconds),
        )
        for kind, used, most in spent:
            if most is not None and used >= most:
                return spending, kind, used, most
    return None


def out_of_time(state: State) -> BudgetExceeded:
    """Make the error for seconds that ran out while something was under way."""
    used, most = time.monotonic() - state.spending.started, state.limits.seconds or 0.0
    state.emit(LimitReached(kind="seconds", used=used, max=most))
    return BudgetExceeded("seconds", most, used)


TEXT = "You are almost out of turns. Stop using tools and give your final answer now, with what you have."


class Grace(Policy):
    """Send the wrap-up message once, `limits.grace` turns before the last."""

    place = "wrap_up"

    def before_request(self, state: State, request: Request) -> Hook:
        most, grace = state.limits.max_turns, state.limits.grace
        if state.in_chain or state.wrapped_up or most is None or not 0 < grace < most or state.turns < most - grace:
            return None
        state.wrapped_up = True
        state.emit(WrapUp(turns_left=most - state.turns))
        return nudge(TEXT, origin="wrap_up")

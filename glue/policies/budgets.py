"""Budgets: tokens, money and time that a run may spend, and the wrap-up message before its last turns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from glue.context import Purse
from glue.errors import BudgetExceeded
from glue.events import LimitReached, logger
from glue.events import WrapUp as WrapUpEvent
from glue.limits import Limits, Outcome
from glue.messages import Request
from glue.policies.policy import Hook, Policy, Stop, nudge

if TYPE_CHECKING:
    from glue.loop.state import State


class Budgets(Policy):
    """Stop before a request when something is spent."""

    place = "budgets"
    in_chain = True

    def __init__(self) -> None:
        self._warned = False

    def before_request(self, state: State, request: Request) -> Hook:
        if state.limits.usd_budget is not None and state.usage.cost is None and not self._warned:
            self._warned = True
            logger.warning("usd_budget counts only part of this run: some reply has no known price")
        if (found := overspent(state)) is None:
            return None
        purse, kind, used, most = found
        state.emit(LimitReached(kind=kind, used=used, max=most))
        meta = {"used": used, "limit": most, "input": purse.tokens_in, "output": purse.tokens_out}
        return Stop(Outcome.BUDGET, BudgetExceeded(kind, most, used), meta)


def overspent(state: State) -> tuple[Purse, str, float, float] | None:
    """Return the first budget that is used up, with its purse, kind, what was used and what is allowed."""
    for purse, limits in state.purses():
        for kind, used, most in _spent(purse, limits):
            if most is not None and used >= most:
                return purse, kind, used, most
    return None


def _spent(purse: Purse, limits: Limits) -> tuple[tuple[str, float, float | None], ...]:
    return (
        ("tokens", purse.tokens_in + purse.tokens_out, limits.token_budget),
        ("usd", purse.usd, limits.usd_budget),
        ("seconds", time.monotonic() - purse.started, limits.timeout),
    )


def budget_error(state: State, kind: str) -> BudgetExceeded:
    """Make the error for a budget that ran out while something was under way."""
    for name, used, most in _spent(state.purse, state.limits):
        if name == kind and most is not None:
            state.emit(LimitReached(kind=kind, used=used, max=most))
            return BudgetExceeded(kind, most, used)
    raise ValueError(f"no budget of {kind} is set")


TEXT = "You are almost out of turns. Stop using tools and give your final answer now, with what you have."


class WrapUp(Policy):
    """Send the wrap-up message once, `limits.grace` turns before the last."""

    place = "wrap_up"

    def before_request(self, state: State, request: Request) -> Hook:
        most, grace = state.limits.max_turns, state.limits.grace
        if state.wrapped_up or most is None or not 0 < grace < most or state.turns < most - grace:
            return None
        state.wrapped_up = True
        state.emit(WrapUpEvent(turns_left=most - state.turns))
        return nudge(TEXT, origin="wrap_up")

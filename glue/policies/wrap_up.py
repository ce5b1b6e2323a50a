"""Ask for an answer a few turns before the cap, so that a run ends with one."""

from __future__ import annotations

from glue.events import WrapUp as WrapUpEvent
from glue.policies.base import Hook, Policy, nudge
from glue.state import State
from glue.types import Request

TEXT = "You are almost out of turns. Stop using tools and give your final answer now, with what you have."


class WrapUp(Policy):
    """Send the wrap-up message once, `limits.grace` turns before the last."""

    order = 20

    def before_request(self, state: State, request: Request) -> Hook:
        most, grace = state.limits.max_turns, state.limits.grace
        if state.wrapped_up or most is None or not 0 < grace < most or state.turns < most - grace:
            return None
        state.wrapped_up = True
        state.emit(WrapUpEvent(turns_left=most - state.turns))
        return nudge(TEXT, origin="wrap_up")

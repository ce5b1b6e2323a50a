"""Policies: objects that extend the loop. Each implements some hooks, which the loop calls."""

from __future__ import annotations

from collections.abc import Iterable

from glue.policies.budgets import Budgets, Grace
from glue.policies.delivery import Delivery, StallBudget, strip_thinking
from glue.policies.gates import Gate, Gates
from glue.policies.guards import Guards, RefusalDetector, looks_like_refusal
from glue.policies.policy import (
    Action,
    Change,
    Deliver,
    Hook,
    Policy,
    Poll,
    Rewrite,
    Say,
    Stop,
    nudge,
)
from glue.policies.steering import AutoContinue, FollowUp, Steering

__all__ = [
    "ORDER",
    "Action",
    "AutoContinue",
    "Budgets",
    "Change",
    "Deliver",
    "Delivery",
    "FollowUp",
    "Gate",
    "Gates",
    "Grace",
    "Guards",
    "Hook",
    "Policy",
    "Poll",
    "RefusalDetector",
    "Rewrite",
    "Say",
    "StallBudget",
    "Steering",
    "Stop",
    "looks_like_refusal",
    "nudge",
    "strip_thinking",
]

# The order in which policies are called, by their `place`. Policies with the same place are called
# in the order in which the caller listed them.
ORDER = (
    "refusal",  # before the budgets: a refusal that also spent the budget ends the run as refused
    "budgets",
    "gates",
    "compaction",
    "wrap_up",
    "steering",
    "stall",
    "other",
    "delivery",
    "output",
    "auto_continue",
    "follow_up",
    "guards",
)


def start_policies(given: Iterable[Policy]) -> list[Policy]:
    """Return the policies of one run: copies of `given` and the built-in policies, in `ORDER`."""
    policies = [Budgets(), Grace(), *given, Guards()]
    for policy in policies:
        if not isinstance(policy, Policy):
            hint = f"; make one: {policy.__name__}()" if isinstance(policy, type) else ""
            raise TypeError(f"policies must be glue.policies.Policy objects, not {policy!r}{hint}")
        if policy.place not in ORDER:
            raise ValueError(
                f"the place of {policy!r} must be one of {', '.join(ORDER)}, not {policy.place!r}"
            )
    policies.sort(key=lambda policy: ORDER.index(policy.place))
    return [policy.start() for policy in policies]

"""Policies: objects that extend the loop. Each implements some hooks, which the loop calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from glue.lazy import lazy_names
from glue.policies.budgets import Budgets, Grace
from glue.policies.guards import Guards, RefusalDetector, looks_like_refusal
from glue.policies.policy import Policy, Say, Stop, nudge

if TYPE_CHECKING:
    from glue.policies.actions import Action as Action
    from glue.policies.actions import Change as Change
    from glue.policies.actions import Deliver as Deliver
    from glue.policies.actions import Hook as Hook
    from glue.policies.actions import Poll as Poll
    from glue.policies.actions import Rewrite as Rewrite
    from glue.policies.delivery import Delivery as Delivery
    from glue.policies.delivery import StallBudget as StallBudget
    from glue.policies.delivery import strip_thinking as strip_thinking
    from glue.policies.gates import Gate as Gate
    from glue.policies.gates import Gates as Gates
    from glue.policies.steering import AutoContinue as AutoContinue
    from glue.policies.steering import FollowUp as FollowUp
    from glue.policies.steering import Steering as Steering

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

# Every run has the policies that are imported above; these names are loaded at first use.
_HOMES = {
    "actions": "Action Change Deliver Hook Poll Rewrite",
    "delivery": "Delivery StallBudget strip_thinking",
    "gates": "Gate Gates",
    "steering": "AutoContinue FollowUp Steering",
}
if not TYPE_CHECKING:  # so that a type checker reports unknown names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

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
                f"the attribute `place` of {policy!r} must be one of {', '.join(ORDER)},"
                f" not {policy.place!r}"
            )
    policies.sort(key=lambda policy: ORDER.index(policy.place))
    return [policy.start() for policy in policies]

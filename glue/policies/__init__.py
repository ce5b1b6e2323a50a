"""Policies: what hangs on the loop. Each answers some of its four hooks, in the order of one tuple."""

from __future__ import annotations

from collections.abc import Iterable

from glue.policies.budgets import Budgets, WrapUp
from glue.policies.delivery import Delivery, StallBudget, strip_thinking
from glue.policies.gates import Gate, Gates
from glue.policies.guards import Guards, RefusalDetector, looks_like_refusal
from glue.policies.policy import Answer, Change, Deliver, Hook, Policy, Rewrite, Say, Stop, nudge
from glue.policies.steering import AutoContinue, FollowUp, Steering

__all__ = [
    "ORDER",
    "Answer",
    "AutoContinue",
    "Budgets",
    "Change",
    "Deliver",
    "Delivery",
    "FollowUp",
    "Gate",
    "Gates",
    "Guards",
    "Hook",
    "Policy",
    "RefusalDetector",
    "Rewrite",
    "Say",
    "StallBudget",
    "Steering",
    "Stop",
    "WrapUp",
    "looks_like_refusal",
    "nudge",
    "strip_thinking",
]

# The order in which policies are asked, by their `place`; those of one place in the order they were given.
ORDER = (
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
    """Add the policies that every run has, put all in their order, and make each anew for one run."""
    chosen = [Budgets(), WrapUp(), *given, Guards()]
    for policy in chosen:
        if not isinstance(policy, Policy):
            raise TypeError(f"policies must be glue.Policy objects, not {policy!r}")
        if policy.place not in ORDER:
            raise ValueError(f"the place of {policy!r} must be one of {', '.join(ORDER)}, not {policy.place!r}")
    return [policy.start() for policy in sorted(chosen, key=lambda policy: ORDER.index(policy.place))]

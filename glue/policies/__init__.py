"""Policies extend the loop: each answers some of its four hooks, in the order of one tuple."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from glue.errors import GlueError
from glue.limits import Outcome
from glue.messages import AssistantMessage, Json, Message, Request, ToolMessage, UserMessage, user

if TYPE_CHECKING:
    from glue.loop.state import State

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
    "Grace",
    "Guards",
    "Hook",
    "Policy",
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


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the model something. Counts a turn, except before a request."""

    messages: tuple[UserMessage, ...]

    def __post_init__(self) -> None:
        given: Any = self.messages
        said = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
        if not all(isinstance(message, UserMessage) for message in said):
            raise TypeError(f"Say takes messages made by glue.user, not {given!r}")
        object.__setattr__(self, "messages", said)


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run."""

    outcome: Outcome
    error: GlueError | None = None
    meta: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", Outcome(self.outcome))


@dataclass(frozen=True, slots=True)
class Change:
    """Send another request. Not an answer yet: the next policy is asked too."""

    request: Request

    def __post_init__(self) -> None:
        if not isinstance(self.request, Request):
            raise TypeError(f"Change takes a glue.Request, not {self.request!r}")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Go on with another transcript (compaction). Not an answer yet either."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Deliver:
    """End the run with a text as the result of the delivery tool."""

    tool: str
    text: str


Answer: TypeAlias = Say | Stop | Change | Rewrite | Deliver | None
Hook: TypeAlias = Answer | Awaitable[Answer]


class Policy:
    """Override the hooks you need. Each run works on a copy, so attributes may count.

    `place` names its place in `glue.policies.ORDER`.
    Where `state.in_chain`, between the parts of one reply, what a policy says is not taken; where a run has
    settled, only while `state.may_say`: ask before you take a message from a source.
    """

    place = "other"

    if not TYPE_CHECKING:

        def __new__(cls, *args, **kwargs):
            made = super().__new__(cls)
            if (args or kwargs) and cls.__init__ is object.__init__:
                raise TypeError(f"{cls.__name__}() takes no arguments")
            object.__setattr__(made, "_given", (*args, *kwargs.values()))
            return made

    def start(self) -> Self:
        """Return a copy that serves one run: what it has made itself is made anew, what it was given is shared."""
        made = copy.copy(self)
        given: list[Any] = [*getattr(self, "_given", ())]
        given += [each for listed in given if isinstance(listed, (list, tuple, set, frozenset)) for each in listed]
        shared = {id(each): each for each in given} | {id(self): made}
        slots = (name for kind in type(made).__mro__ for name in getattr(kind, "__slots__", ()))
        for name in (*vars(made), *slots):
            with suppress(Exception):  # a lock, a client: what cannot be copied is shared too
                object.__setattr__(made, name, copy.deepcopy(getattr(made, name), shared))
        return made

    def before_request(self, state: State, request: Request) -> Hook:
        return None

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        return None

    def after_tools(self, state: State, results: Sequence[ToolMessage]) -> Hook:
        return None

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        return None

    async def compact(self, state: State) -> Sequence[Message] | None:
        """Return a shorter transcript, when the provider says that this one is too long."""
        return None

    def finish(self, state: State, stop: Stop) -> Stop:
        """Have the last word on how the run ends."""
        return stop


def nudge(text: str, origin: str = "nudge") -> Say:
    """Make an answer of one text of ours."""
    return Say((user(text, origin=origin),))


# Below the base class, which each of these is made of.
from glue.policies.budgets import Budgets, Grace  # noqa: E402
from glue.policies.delivery import Delivery, StallBudget, strip_thinking  # noqa: E402
from glue.policies.gates import Gate, Gates  # noqa: E402
from glue.policies.guards import Guards, RefusalDetector, looks_like_refusal  # noqa: E402
from glue.policies.steering import AutoContinue, FollowUp, Steering  # noqa: E402

# The order in which policies are asked, by their `place`; those of one place in the order they were given.
ORDER = (
    "refusal",  # ranks above a budget that the same reply has spent
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
    chosen = [Budgets(), Grace(), *given, Guards()]
    for policy in chosen:
        if not isinstance(policy, Policy):
            made = f"; make one: {policy.__name__}()" if isinstance(policy, type) else ""
            raise TypeError(f"policies must be glue.Policy objects, not {policy!r}{made}")
        if policy.place not in ORDER:
            raise ValueError(f"the place of {policy!r} must be one of {', '.join(ORDER)}, not {policy.place!r}")
    return [policy.start() for policy in sorted(chosen, key=lambda policy: ORDER.index(policy.place))]

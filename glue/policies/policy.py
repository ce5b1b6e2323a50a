"""The base class of policies: four hooks of the loop, and the answers a hook may give."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

from glue.errors import GlueError
from glue.limits import Outcome
from glue.messages import AssistantMessage, Json, Message, Request, ToolMessage, UserMessage

if TYPE_CHECKING:
    from glue.loop.state import State


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the model something. Counts a turn, except before a request."""

    messages: tuple[UserMessage, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run."""

    outcome: Outcome
    error: GlueError | None = None
    meta: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Send another request. Not an answer yet: the next policy is asked too."""

    request: Request


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
    `in_chain` is for those that must also be asked between the parts of one truncated reply.
    """

    place = "other"
    in_chain = False

    def start(self) -> Self:
        """Return the object that serves one run."""
        return copy.copy(self)

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


def nudge(text: str, origin: str = "nudge") -> Say:
    """Make an answer of one text of ours."""
    from glue.messages import user

    return Say((user(text, origin=origin),))

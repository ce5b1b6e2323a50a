"""The base class of policies, and the values that most of their hooks return."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from glue.errors import GlueError
from glue.limits import Outcome
from glue.messages import AssistantMessage, Json, Message, Request, ToolMessage, UserMessage, user

if TYPE_CHECKING:
    from glue.loop.state import State
    from glue.policies.actions import Hook


@dataclass(frozen=True, slots=True)
class Say:
    """An action of a policy: messages that the loop adds before it sends another request.

    The messages count as a turn, unless `before_request` returns them. The loop calls `sent` with
    each message after it has stored the message. If another policy stops the run or adds messages
    first, the messages are not used and `sent` is not called. So a policy counts and reports its
    messages in `sent`.
    """

    messages: tuple[UserMessage, ...]
    sent: Callable[[UserMessage], object] | None = None

    def __post_init__(self) -> None:
        given: Any = self.messages
        is_many = isinstance(given, Iterable) and not isinstance(given, str)
        messages = tuple(given) if is_many else (given,)
        if not all(isinstance(message, UserMessage) for message in messages):
            raise TypeError(f"Say takes messages made by glue.user, not {given!r}")
        object.__setattr__(self, "messages", messages)


@dataclass(frozen=True, slots=True)
class Stop:
    """The decision of a policy or of the loop to end the run.

    The result of the run gets `outcome`, `error` and `meta`.
    """

    outcome: Outcome
    error: GlueError | None = None
    meta: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", Outcome(self.outcome))


class Policy:
    """A base class for objects that stop or steer a run. Override the hooks that you need.

        class NoGuessing(Policy):
            def __init__(self):
                self.sent_back = False

            def on_settle(self, state, reply):
                if "probably" in reply.text and not self.sent_back:
                    self.sent_back = True
                    return nudge("Do not guess: look it up with a tool.")

        agent = Agent("openai:gpt-5.4-nano", policies=[NoGuessing()])

    A policy is copied shallowly for each run, so it may keep counters in its attributes. A policy
    that has a list or a dict overrides `start()` to create a new list or dict for each run.

    `place` is one of the names in `glue.policies.ORDER`, the order in which policies are called.

    If `state.in_chain` is true, the next request continues a reply that was cut, and the loop drops
    messages that a policy adds. In `on_settle`, the loop adds messages only if `state.may_say` is
    true.

    The loop calls `before_request` of one policy after another, uses all their changes and
    messages, and ends the run at the first `Stop`. At the other hooks, the loop calls every policy
    and uses one answer: a `Stop` before a `Say`, and the first `Say` in the order of the policies.
    """

    place = "other"

    def start(self) -> Self:
        """Return a shallow copy of the policy for one run.

        Override it to reset lists and dicts:

            def start(self):
                policy = super().start()
                policy.seen = []
                return policy
        """
        return copy.copy(self)

    def before_request(self, state: State, request: Request) -> Hook:
        """Return an action before `request` is sent, or None to send it unchanged."""
        return None

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        """Return a Stop after a reply of the model, before its calls run, or None to continue."""
        return None

    def after_tools(self, state: State, results: Sequence[ToolMessage]) -> Hook:
        """Return an action for the loop after it has run the calls of a reply, or None to continue.

        `results` is in the order of the calls.
        """
        return None

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        """Return an action after a reply without calls. None accepts the reply as the answer."""
        return None

    async def compact(self, state: State) -> Sequence[Message] | None:
        """Return a shorter transcript, or None if this policy does not shorten the transcript.

        The loop calls this after a provider has rejected the transcript as too long. After None, it
        asks the next policy.
        """
        return None

    def finish(self, state: State, stop: Stop) -> Stop:
        """Return `stop` unchanged, or another Stop with which the run ends instead.

        The loop calls this before it ends the run. The next policy gets the returned Stop.
        """
        return stop


def nudge(
    text: str, origin: str = "nudge", sent: Callable[[UserMessage], object] | None = None
) -> Say:
    """Return the action that adds `text` to the transcript as a user message of the loop.

    `sent` is called after the message is stored.
    """
    return Say((user(text, origin=origin),), sent)

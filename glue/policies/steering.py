"""What a user says while a run goes: at the next request, or when the model thinks it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glue.loop.state import State
from glue.messages import AssistantMessage, Request, UserMessage, user
from glue.policies.policy import Hook, Policy, Say

Source = Callable[[], Sequence[str | UserMessage]]  # takes what is waiting; polled only when it can be sent


class Steering(Policy):
    """Put waiting messages in front of the next request."""

    order = 30

    def __init__(self, source: Source) -> None:
        self.source = source

    def before_request(self, state: State, request: Request) -> Hook:
        return _say(self.source(), "steering")


class FollowUp(Policy):
    """Go on with waiting messages when the model has settled."""

    order = 70

    def __init__(self, source: Source) -> None:
        self.source = source

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        return _say(self.source(), "follow_up")


def _say(waiting: Sequence[str | UserMessage], origin: str) -> Hook:
    messages = tuple(user(item, origin=origin) if isinstance(item, str) else item for item in waiting)
    return Say(messages) if messages else None

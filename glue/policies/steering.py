"""Policies that send messages during a run: from the user, or to make the model continue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from glue.events import Nudge
from glue.messages import AssistantMessage, Request, UserMessage
from glue.policies.actions import Hook, Poll, Source
from glue.policies.policy import Policy, nudge

if TYPE_CHECKING:
    from glue.loop.state import State

CONTINUE = (
    "Go on: do what you announced, with the tools you have. "
    "If you are done, give your final answer."
)
_ANNOUNCEMENT = re.compile(
    r"\b(i will now|i'll now|i will start|i'll start|i am going to|i'm going to"
    r"|next,? i will|next,? i'll|now i will|now i'll|let me(?! know)|let's now"
    r"|i will (?:first|next|then|proceed)|i'll (?:first|next|then|proceed))\b",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"\b(let me know|feel free|if you (?:need|want|would like)|happy to help)\b", re.IGNORECASE
)


class _FromSource(Policy):
    """A policy that sends the messages from `source` after a reply without tool calls."""

    def __init__(
        self, source: Source, *, sent: Callable[[UserMessage], object] | None = None
    ) -> None:
        if not callable(source):
            raise TypeError(
                f"{type(self).__name__} takes a function that returns the waiting messages, "
                f"not {source!r}"
            )
        self.source, self.sent = source, sent

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        return self._poll()  # the loop reads the source only if `state.may_say`

    def _poll(self) -> Poll:
        return Poll(self.source, self.place, self.sent)


class Steering(_FromSource):
    """A policy that sends the user's waiting messages with the next request.

    Messages that arrive during the last reply are sent in a request of their own. `source` is a
    function, perhaps async, that returns the waiting messages and forgets them. It is called only
    if the messages will be sent:

        waiting: list[str] = []  # the user interface appends to it

        def take():
            messages = waiting[:]
            waiting.clear()
            return messages

        agent = Agent("openai:gpt-5.4-nano", policies=[Steering(take)])

    If the source does not forget the messages, use `sent` to remove them: it is called with each
    message after the message is stored.
    """

    place = "steering"

    def before_request(self, state: State, request: Request) -> Hook:
        return self._poll()  # the loop reads no source while a reply is continued


class FollowUp(_FromSource):
    """A policy that sends the user's waiting messages only after a reply without tool calls."""

    place = "follow_up"


def announces(text: str) -> bool:
    """Return whether a text ends with an announcement of work rather than with a result.

    >>> announces("I will now read the file.")
    True
    """
    tail = text.replace("\u2019", "'").strip()[-300:]
    return bool(_ANNOUNCEMENT.search(tail)) and not _CLOSING.search(tail)


class AutoContinue(Policy):
    """A policy that asks a model to do the work that it only announced.

    The model is asked at most `times` times in a run.
    """

    place = "auto_continue"

    def __init__(self, times: int = 2, text: str = CONTINUE) -> None:
        self.times, self.text = times, text
        self._nudged = 0

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        if not state.may_say or not state.tools or self._nudged >= self.times:
            return None
        if not announces(reply.text):
            return None
        return nudge(self.text, sent=lambda message: self._count(state))

    def _count(self, state: State) -> None:
        self._nudged += 1
        state.emit(Nudge(policy="auto_continue", text=self.text))

"""Steering: messages that reach the model while a run goes, from the user or because it only announces work."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from glue.events import Nudge
from glue.messages import AssistantMessage, Request, UserMessage, user
from glue.policies import Hook, Policy, Say, nudge

if TYPE_CHECKING:
    from glue.loop.state import State

# Takes what is waiting, one or many; polled only when it can be sent.
Source = Callable[[], str | UserMessage | Sequence[str | UserMessage] | None]


class _FromSource(Policy):
    """What is said comes from a function."""

    def __init__(self, source: Source) -> None:
        if not callable(source):
            raise TypeError(f"{type(self).__name__} takes a function that gives what is waiting, not {source!r}")
        self.source = source

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        return _say(self.source(), self.place) if state.may_say else None


class Steering(_FromSource):
    """Put waiting messages in front of the next request; what came during the last reply gets one of its own."""

    place = "steering"

    def before_request(self, state: State, request: Request) -> Hook:
        return None if state.in_chain else _say(self.source(), self.place)


class FollowUp(_FromSource):
    """Go on with waiting messages when the model has settled."""

    place = "follow_up"


def _say(waiting: str | UserMessage | Sequence[str | UserMessage] | None, origin: str) -> Hook:
    given = (waiting,) if isinstance(waiting, str | UserMessage) else waiting or ()
    said = [user(item) if isinstance(item, str) else item for item in given]
    # Whoever gave it, it is no prompt: a run begins with that.
    return Say(tuple(replace(each, origin=origin) if getattr(each, "origin", "") == "user" else each for each in said))


TEXT = "Go on: do what you announced, with the tools you have. If you are done, give your final answer."
_INTENT = re.compile(
    r"\b(i will now|i'll now|i will start|i'll start|i am going to|i'm going to|next,? i will|next,? i'll|now i will|"
    r"now i'll|let me(?! know)|let's now|i will (?:first|next|then|proceed)|i'll (?:first|next|then|proceed))\b",
    re.IGNORECASE,
)
_CLOSING = re.compile(r"\b(let me know|feel free|if you (?:need|want|would like)|happy to help)\b", re.IGNORECASE)


def announces(text: str) -> bool:
    """Tell whether a text ends in an announcement of work rather than in a result."""
    tail = text.replace("\u2019", "'").strip()[-300:]
    return bool(_INTENT.search(tail)) and not _CLOSING.search(tail)


class AutoContinue(Policy):
    """Nudge after an announcement, at most `times` a run."""

    place = "auto_continue"

    def __init__(self, times: int = 2, text: str = TEXT) -> None:
        self.times, self.text = times, text
        self._said = 0

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        if not state.may_say or self._said >= self.times or not state.tools or not announces(reply.text):
            return None
        self._said += 1
        state.emit(Nudge(policy="auto_continue", text=self.text))
        return nudge(self.text)

"""A model that says what it will do and then does nothing is asked, once or twice, to do it."""

from __future__ import annotations

import re

from glue.events import Nudge
from glue.policies.base import Hook, Policy, nudge
from glue.state import State
from glue.types import AssistantMessage

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

    order = 65

    def __init__(self, times: int = 2, text: str = TEXT) -> None:
        self.times, self.text = times, text
        self._said = 0

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        if self._said >= self.times or not state.tools or not announces(reply.text):
            return None
        self._said += 1
        state.emit(Nudge(policy="auto_continue", text=self.text))
        return nudge(self.text)

"""Policies for replies without calls: `Delivery` uses the text, `StallBudget` ends the run."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from glue.errors import Stalled
from glue.events import Nudge
from glue.limits import Outcome
from glue.messages import AssistantMessage
from glue.policies.actions import Deliver, Hook
from glue.policies.policy import Policy, Stop, nudge

if TYPE_CHECKING:
    from glue.loop.state import State

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]*\?")  # a sentence that ends with a question mark
_TO_USER = re.compile(
    r"\W*(?:so|and|but|or|okay|ok)?\W*"
    r"(?:what|which|who|where|when|why|how|would|do|did|does|should|shall|could|can|may|are|is|will"
    r"|have|want|need)\b.*\b(?:you|your|i|me|we)\b",
    re.IGNORECASE,
)
_MAX_QUESTION = 400  # characters; a longer text is an answer, even if it ends in a question


def strip_thinking(text: str) -> str:
    """Return a text without reasoning that the model wrote in tags such as <think>."""
    return _THINKING.sub("", text).strip()


def asks_back(text: str) -> bool:
    """Return whether a text is a question to the user rather than an answer.

    >>> asks_back("What do you need? I can read files.")
    True
    >>> asks_back("The dialog asks 'do you want to save'.")
    False
    """
    if len(text) >= _MAX_QUESTION:
        return False
    if text.rstrip(" \n\t*_\"')").endswith("?"):
        return True
    return any(_TO_USER.match(sentence) for sentence in _SENTENCE.findall(text))


class Delivery(Policy):
    """A policy that uses plain text as the result if the model does not call the delivery tool.

        agent = Agent(
            "openai:gpt-5.4-nano", tools=[search, submit], policies=[Delivery("submit", eager=True)]
        )

    If the request offered no other tools than the delivery tool and those in `terminal`, a plain
    text is delivered at once. Otherwise a plain text is delivered only if `eager`: the model is
    asked up to `nudges` times to call the tool, and then its first text since its last calls is
    delivered. A question to the user is delivered only if the model wrote nothing else.

    Args:
        tool: name of the delivery tool.
        eager: deliver a plain text also if other tools were offered.
        nudges: the number of times that the model is asked to call the tool first.
        terminal: names of other tools that end the run.
        text: the message that asks the model to call the tool; the default names the tool.
    """

    place = "delivery"

    def __init__(
        self,
        tool: str,
        *,
        eager: bool = False,
        nudges: int = 2,
        terminal: Collection[str] = (),
        text: str = "",
    ) -> None:
        if isinstance(terminal, str):
            raise TypeError(f"terminal must be a list of tools' names, not {terminal!r}")
        self.tool = tool
        self.eager = eager
        self.nudges = nudges
        self.terminal = frozenset(terminal)
        self.text = text or f"Deliver your result by calling {tool}; a plain answer is not seen."
        self._batches = 0  # `state.batches` at the last reply without calls
        self._kept = ""  # the first text since the last calls that is not a question
        self._nudged = 0  # nudges since the last calls

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        text = strip_thinking(state.text)  # the whole chain, not only its last part
        if state.offered and state.offered - self.terminal <= {self.tool}:
            return Deliver(self.tool, text) if text else None
        if not self.eager:
            return None
        if state.batches != self._batches:
            self._batches, self._kept, self._nudged = state.batches, "", 0
        if not self._kept and text and not asks_back(text):
            self._kept = text
        if self._nudged < self.nudges and state.may_say:
            return nudge(self.text, sent=lambda message: self._count(state))
        kept = self._kept or text
        return Deliver(self.tool, kept) if kept else None

    def _count(self, state: State) -> None:
        self._nudged += 1
        state.emit(Nudge(policy="delivery", text=self.text))


class StallBudget(Policy):
    """A policy that ends the run after more than `budget` replies in a row without a tool call."""

    place = "stall"

    def __init__(self, budget: int) -> None:
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
            raise ValueError(f"budget must be a whole number of 0 or more, not {budget!r}")
        self.budget = budget
        self._batches = 0  # `state.batches` at the last reply without calls
        self._settled = 0  # replies without calls since the last calls

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        if state.batches != self._batches:
            self._batches, self._settled = state.batches, 0
        self._settled += 1
        if self._settled <= self.budget:
            return None
        error = Stalled(self.budget, self._settled)
        return Stop(Outcome.STALLED, error, {"budget": self.budget, "observed": self._settled})

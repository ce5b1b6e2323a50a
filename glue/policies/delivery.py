"""Delivery: an agent hands over its result through one tool, also when the model answers in prose."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from glue.errors import Stalled
from glue.events import Nudge
from glue.limits import Outcome
from glue.messages import AssistantMessage
from glue.policies import Deliver, Hook, Policy, Stop, nudge

if TYPE_CHECKING:
    from glue.loop.state import State

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_QUESTION = re.compile(r"\?\s*$|\b(would you like|shall i|should i|do you want)\b", re.IGNORECASE)
_ANSWER = 400  # characters from which a text that ends in a question is an answer all the same


def strip_thinking(text: str) -> str:
    """Take reasoning that a model wrote as tags out of its answer."""
    return _THINKING.sub("", text).strip()


def asks_back(text: str) -> bool:
    """Tell whether a text is a question to the user rather than an answer."""
    return len(text) < _ANSWER and bool(_QUESTION.search(text))


class Delivery(Policy):
    """Take a plain answer as the delivery tool's result where nothing else can be meant.

    That is so when only that tool (and those in `terminal`) was offered, or when `eager`. Before an
    eager delivery the model is asked up to `nudges` times to call the tool; its first answer since the
    last batch of calls that is not a question is kept.
    """

    place = "delivery"

    def __init__(
        self, tool: str, *, eager: bool = False, nudges: int = 2, terminal: Collection[str] = (), text: str = ""
    ) -> None:
        if isinstance(terminal, str):
            raise TypeError(f"terminal must be a list of tools' names, not {terminal!r}")
        self.tool, self.eager, self.nudges, self.terminal = tool, eager, nudges, frozenset(terminal)
        self.text = text or f"Deliver your result by calling {tool}; a plain answer is not seen."
        self._batches = 0
        self._kept = ""
        self._nudged = 0

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        text = strip_thinking(state.text)  # of the whole chain, not of its last part
        if state.offered and state.offered - self.terminal <= {self.tool}:
            return Deliver(self.tool, text) if text else None
        if not self.eager:
            return None
        if state.batches != self._batches:
            self._batches, self._kept, self._nudged = state.batches, "", 0
        if not self._kept and text and not asks_back(text):
            self._kept = text
        if self._nudged < self.nudges and state.may_say:
            self._nudged += 1
            state.emit(Nudge(policy="delivery", text=self.text))
            return nudge(self.text)
        kept = self._kept or text
        return Deliver(self.tool, kept) if kept else None


class StallBudget(Policy):
    """End a run whose model keeps settling without a call, where more was asked of it."""

    place = "stall"

    def __init__(self, budget: int) -> None:
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
            raise ValueError(f"budget must be a whole number of 0 or more, not {budget!r}")
        self.budget = budget
        self._batches = 0
        self._settled = 0

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        if state.batches != self._batches:
            self._batches, self._settled = state.batches, 0
        self._settled += 1
        if self._settled <= self.budget:
            return None
        error = Stalled(self.budget, self._settled)
        return Stop(Outcome.STALLED, error, {"budget": self.budget, "observed": self._settled})

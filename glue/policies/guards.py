"""Notice a model that goes in circles: first a word, then the end."""

from __future__ import annotations

from collections.abc import Sequence

from glue.errors import GuardHalted
from glue.events import Guardrail, Nudge
from glue.limits import Outcome
from glue.policies.base import Hook, Policy, Stop, nudge
from glue.policies.budgets import overspent
from glue.state import State
from glue.types import AssistantMessage, ToolMessage

REPEAT = (
    "You have made the same call with the same arguments {count} times. Its result will not change: try something else."
)
ERRORS = "Every tool call of the last {count} turns failed. Read the errors, and change your approach."


class Guards(Policy):
    """Count identical single calls, and turns in which every result is an error."""

    order = 90

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._repeats = 0
        self._errors = 0

    def after_tools(self, state: State, results: Sequence[ToolMessage]) -> Hook:
        limits = state.limits
        self._count(state, results)
        if not state.may_turn() or not state.may_ask() or overspent(state) is not None:
            return None  # a limit ranks above a guard, and READY says which
        return self._judge(state, "repeat", self._repeats, limits.repeat_nudge, limits.repeat_halt) or self._judge(
            state, "errors", self._errors, limits.error_nudge, limits.error_halt
        )

    def _count(self, state: State, results: Sequence[ToolMessage]) -> None:
        reply = next(message for message in reversed(state.new) if isinstance(message, AssistantMessage))
        call = (reply.calls[0].name, reply.calls[0].arguments) if len(reply.calls) == 1 else None
        self._repeats = self._repeats + 1 if call is not None and call == self._last else int(call is not None)
        self._last = call
        self._errors = self._errors + 1 if all(result.is_error for result in results) else 0

    def _judge(self, state: State, kind: str, count: int, say: int | None, halt: int | None) -> Hook:
        if halt is not None and count >= halt:
            state.emit(Guardrail(kind=kind, count=count, action="halt"))
            return Stop(Outcome.HALTED, GuardHalted(kind, count), {"guard": kind, "count": count})
        if say is None or count != say or not state.may_turn(2):  # one for the word, one to heed it
            return None
        text = (REPEAT if kind == "repeat" else ERRORS).format(count=count)
        state.emit(Guardrail(kind=kind, count=count, action="nudge"))
        state.emit(Nudge(policy="guards", text=text))
        return nudge(text)

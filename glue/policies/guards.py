"""Guards: end a run whose model repeats itself, fails again and again, or refuses in prose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from glue.errors import GuardHalted
from glue.events import Guardrail, Nudge
from glue.limits import Outcome
from glue.messages import AssistantMessage, ToolMessage
from glue.policies import Hook, Policy, Stop, nudge
from glue.policies.budgets import overspent

if TYPE_CHECKING:
    from glue.loop.state import State

REPEAT = (
    "You have made the same call with the same arguments {count} times. Its result will not change: try something else."
)
ERRORS = "Every tool call of the last {count} turns failed. Read the errors, and change your approach."


class Guards(Policy):
    """Count identical single calls, and turns in which every result is an error."""

    place = "guards"

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._repeats = 0
        self._errors = 0

    def after_tools(self, state: State, results: Sequence[ToolMessage]) -> Hook:
        calls = state.last_reply.calls if state.last_reply is not None else ()
        call = (calls[0].name, _plain(calls[0].arguments)) if len(calls) == 1 else None
        self._repeats = self._repeats + 1 if call is not None and call == self._last else int(call is not None)
        self._last = call
        self._errors = self._errors + 1 if all(result.is_error for result in results) else 0
        limits = state.limits
        if not state.may_turn() or not state.may_ask() or overspent(state) is not None:
            return None  # a limit ranks above a guard, and READY says which
        return self._judge(state, "repeat", self._repeats, limits.repeat_nudge, limits.repeat_halt) or self._judge(
            state, "errors", self._errors, limits.error_nudge, limits.error_halt
        )

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


def _plain(arguments: str) -> str:
    """Write arguments in one way, so that the same are the same however a model spells them."""
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


LONGEST = 400  # a refusal is short; a long text that opens with regret goes on to help


@cache
def _refusal() -> re.Pattern[str]:
    """Read what refusals say, one expression a line."""
    lines = Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8").splitlines()
    return re.compile("|".join(lines), re.IGNORECASE)


def looks_like_refusal(text: str) -> bool:
    """Tell whether a short text declines the request."""
    plain = text.replace("\u2019", "'").strip()
    return 0 < len(plain) <= LONGEST and _refusal().search(plain) is not None


class RefusalDetector(Policy):
    """End a run as refused when a reply without calls reads like one."""

    place = "refusal"

    def __init__(self, detect: Callable[[str], bool] = looks_like_refusal) -> None:
        self.detect = detect

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        if reply.calls or not self.detect(reply.text):
            return None
        return Stop(Outcome.REFUSED, meta={"refusal": "detector"})

"""Guards: policies that end a run whose model repeats a call, keeps failing, or refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from glue import events
from glue.errors import GuardHalted
from glue.limits import Outcome
from glue.messages import AssistantMessage, ToolMessage, UserMessage
from glue.policies.budgets import overspent
from glue.policies.policy import Policy, Stop, nudge

if TYPE_CHECKING:
    from glue.loop.state import State
    from glue.policies.actions import Hook

REPEAT = (
    "You have made the same call with the same arguments {count} times. "
    "Its result will not change: try something else."
)
ERRORS = (
    "Every tool call of the last {count} turns failed. Read the errors, and change your approach."
)
_MAX_REFUSAL = 400  # characters; a longer text that begins with an apology usually helps after all


class Guards(Policy):
    """A policy against repeated calls and failed turns: it warns the model, then ends the run.

    A repeated call is the only call of its turn and equals the only call of the turn before. In a
    failed turn every result is an error. The counts at which the policy acts are `repeat_nudge`,
    `repeat_halt`, `error_nudge` and `error_halt` in `Limits`.
    """

    place = "guards"

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None  # name and arguments of the last single call
        self._repeats = 0
        self._errors = 0

    def after_tools(self, state: State, results: Sequence[ToolMessage]) -> Hook:
        self._count(state.last_reply, results)
        limits = state.limits
        return self._judge(
            state, "repeat", self._repeats, limits.repeat_nudge, limits.repeat_halt
        ) or self._judge(state, "errors", self._errors, limits.error_nudge, limits.error_halt)

    def _count(self, reply: AssistantMessage | None, results: Sequence[ToolMessage]) -> None:
        calls = reply.calls if reply is not None else ()
        call = (calls[0].name, _normalize(calls[0].arguments)) if len(calls) == 1 else None
        if call is None:
            self._repeats = 0
        else:
            self._repeats = self._repeats + 1 if call == self._last else 1
        self._last = call
        self._errors = self._errors + 1 if all(result.is_error for result in results) else 0

    def _judge(
        self, state: State, kind: str, count: int, nudge_at: int | None, halt_at: int | None
    ) -> Hook:
        halts = halt_at is not None and count >= halt_at
        nudges = nudge_at is not None and count == nudge_at
        if not halts and not nudges:
            return None
        if not state.may_turn() or not state.may_ask() or overspent(state) is not None:
            return None  # a limit ends the run, and the outcome must name this limit
        if halts:
            state.emit(events.Guardrail(kind=kind, count=count, action="halt"))
            return Stop(Outcome.HALTED, GuardHalted(kind, count), {"guard": kind, "count": count})
        # The nudge counts as a turn, and the model needs another turn to act on it.
        if not state.may_turn(2):
            return None
        text = (REPEAT if kind == "repeat" else ERRORS).format(count=count)

        def announce(message: UserMessage) -> None:
            state.emit(events.Guardrail(kind=kind, count=count, action="nudge"))
            state.emit(events.Nudge(policy="guards", text=text))

        return nudge(text, sent=announce)


def _normalize(arguments: str) -> str:
    """Return arguments as JSON with sorted keys, so that equal arguments are equal texts.

    Arguments that are not JSON are returned unchanged.
    """
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


@cache
def _refusals() -> re.Pattern[str]:
    """Return one pattern for phrases of refusals, from the lines of refusals.txt."""
    lines = Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8").splitlines()
    return re.compile("|".join(lines), re.IGNORECASE)


def looks_like_refusal(text: str) -> bool:
    """Return whether a text is short and contains a phrase with which models refuse requests.

    >>> looks_like_refusal("I'm sorry, but I can't help with that.")
    True
    """
    plain = text.replace("\u2019", "'").strip()
    return 0 < len(plain) <= _MAX_REFUSAL and _refusals().search(plain) is not None


class RefusalDetector(Policy):
    """A policy that ends the run as refused if a reply without calls looks like a refusal.

    `detect` returns whether a text is a refusal; None is `looks_like_refusal`. Providers that
    report refusals need no detector.
    """

    place = "refusal"

    def __init__(self, detect: Callable[[str], bool] | None = None) -> None:
        self.detect = looks_like_refusal if detect is None else detect

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        if reply.calls or not self.detect(reply.text):
            return None
        return Stop(Outcome.REFUSED, meta={"refusal": "detector"})

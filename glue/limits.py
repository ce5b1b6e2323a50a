"""Limits of a run, how a run ends, and why a model stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias

from glue.dataclass import dataclass
from glue.text import suggest


class StopReason(StrEnum):
    """Why the model stopped one reply; the last two are written by the loop alone."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    CONTEXT_WINDOW = "context_window"
    REFUSAL = "refusal"
    PAUSE_TURN = "pause_turn"
    MALFORMED_CALL = "malformed_call"
    CANCELLED = "cancelled"
    ERROR = "error"
    UNKNOWN = "unknown"
    MAX_TURNS = "max_turns"
    TOKEN_BUDGET = "token_budget"

    @property
    def outcome(self) -> Outcome | None:
        """How a run ends whose model stopped for this; None where it can go on."""
        return _ENDS.get(self)


class Outcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    WRAPPED_UP = "wrapped_up"
    MAX_TURNS = "max_turns"
    BUDGET = "budget"
    HALTED = "halted"
    STALLED = "stalled"
    CONTEXT_WINDOW = "context_window"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def complete(self) -> bool:
        return self in (Outcome.DONE, Outcome.WRAPPED_UP)

    @property
    def exit_code(self) -> int:
        return _OUTCOMES[self][0]

    @property
    def tag(self) -> StopReason | None:
        """The stop reason that the run's last reply gets; None leaves the provider's own."""
        return _OUTCOMES[self][1]

    @property
    def chain_end(self) -> str:
        """How a chain of continuations ended that this outcome cut."""
        return _OUTCOMES[self][2]


# Exit code, tag, end of a chain.
_OUTCOMES: dict[Outcome, tuple[int, StopReason | None, str]] = {
    Outcome.DONE: (0, None, "completed"),
    Outcome.WRAPPED_UP: (0, None, "completed"),
    Outcome.MAX_TURNS: (3, StopReason.MAX_TURNS, "budget_exhausted"),
    Outcome.BUDGET: (3, StopReason.TOKEN_BUDGET, "budget_exhausted"),
    Outcome.HALTED: (3, None, "provider_error"),
    Outcome.STALLED: (3, None, "provider_error"),
    Outcome.CONTEXT_WINDOW: (3, StopReason.CONTEXT_WINDOW, "provider_error"),
    Outcome.TRUNCATED: (4, StopReason.MAX_TOKENS, "empty"),  # the continuation held nothing to go on from
    Outcome.REFUSED: (5, StopReason.REFUSAL, "safety_blocked"),
    Outcome.CANCELLED: (130, StopReason.CANCELLED, "cancelled"),
    Outcome.FAILED: (1, StopReason.ERROR, "provider_error"),
}

# What only the loop writes, and a cut that can be continued, say nothing about a model's own stop.
_ENDS: dict[StopReason | None, Outcome] = {
    tag: outcome
    for outcome, (_, tag, _) in _OUTCOMES.items()
    if tag not in (None, StopReason.MAX_TURNS, StopReason.TOKEN_BUDGET, StopReason.MAX_TOKENS)
}


def estimate_tokens(text: str) -> int:
    """Guess the tokens of a text: four characters each, rounded up."""
    return (len(text) + 3) // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every setting that bounds a run; None means no limit."""

    max_turns: int | None = 32
    max_requests: int | None = 50
    grace: int = 0
    token_budget: int | None = None
    usd_budget: float | None = None
    seconds: float | None = None
    continuation_max_attempts: int = 3
    continuation_max_output_chars: int = 120_000
    continuation_max_total_completion_tokens: int | None = None  # None: four times the first cap
    continuation_tool_repair_attempts: int = 1
    truncated_batch: str = "run"
    tool_choice: str = "auto"
    parallel_tools: int = 8
    estimator: Callable[[str], int] = estimate_tokens
    repeat_nudge: int | None = 3
    repeat_halt: int | None = 5
    error_nudge: int | None = 3
    error_halt: int | None = 6

    def __new__(cls, **given: object) -> Limits:
        for name in given:
            if name not in cls.__dataclass_fields__:
                raise TypeError(f"there is no limit {name!r}; {suggest(name, cls.__dataclass_fields__)}")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name))


_GUARDS = ("repeat_nudge", "repeat_halt", "error_nudge", "error_halt")
BUDGETS = ("max_turns", "max_requests", "token_budget", "usd_budget", "seconds")
_OPTIONAL = frozenset((*BUDGETS, *_GUARDS, "continuation_max_total_completion_tokens"))
_POSITIVE = frozenset((*_GUARDS, "parallel_tools"))


def _check(name: str, value: object) -> None:
    if name == "truncated_batch":
        if value not in ("run", "void"):
            raise ValueError(f"truncated_batch must be 'run' or 'void', not {value!r}")
    elif name == "tool_choice":
        if not isinstance(value, str) or not value:
            raise TypeError(f"tool_choice must be 'auto', 'required', 'none' or a tool's name, not {value!r}")
    elif name == "estimator":
        if not callable(value):
            raise TypeError(f"estimator must be a callable from text to a number of tokens, not {value!r}")
    elif value is not None or name not in _OPTIONAL:
        _check_number(name, value)


def _check_number(name: str, value: object) -> None:
    real = name in ("usd_budget", "seconds")
    allowed = "a number" if real else "a whole number"
    allowed += " of 1 or more" if name in _POSITIVE else " of 0 or more"
    if name in _OPTIONAL:
        allowed += ", or None for no limit"
    if isinstance(value, bool) or not isinstance(value, (int, float) if real else int):
        raise TypeError(f"{name} must be {allowed}, not {value!r}")
    if not value >= (1 if name in _POSITIVE else 0):
        raise ValueError(f"{name} must be {allowed}, not {value!r}")


LimitsSource: TypeAlias = Limits | Callable[[], Limits]
_default = cache(Limits)


def read_limits(source: LimitsSource | None) -> Limits:
    """Give the limits as they are now: a function is asked for them, and None means the defaults."""
    limits = source() if callable(source) else source or _default()
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a glue.Limits, or a function that returns one, not {limits!r}")
    return limits


def override_limits(source: LimitsSource | None, **given: Any) -> LimitsSource:
    """Give the same with some limits set; a function is still asked each time."""
    if callable(source):
        return lambda: replace(read_limits(source), **given)
    return replace(read_limits(source), **given)

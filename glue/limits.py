"""Limits of a run, outcomes of a run, and stop reasons of a reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias

from glue.checks import with_form


class StopReason(StrEnum):
    """The reason why a reply ended. Only the loop sets MAX_TURNS and TOKEN_BUDGET."""

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
        """The outcome of a run that this reason ends, or None if it does not end the run."""
        return _FINAL_REASONS.get(self)


class Outcome(StrEnum):
    """The way in which a run ended."""

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
    PAUSED = "paused"
    FAILED = "failed"

    @property
    def complete(self) -> bool:
        """Whether a run with this outcome ended with a whole answer."""
        return self in (Outcome.DONE, Outcome.WRAPPED_UP)

    @property
    def exit_code(self) -> int:
        """The exit code of `glue run` for this outcome."""
        return _OUTCOMES[self][0]

    @property
    def tag(self) -> StopReason | None:
        """The stop reason that the loop sets on the last reply, or None to leave it unchanged."""
        return _OUTCOMES[self][1]

    @property
    def chain_end(self) -> str:
        """The `reason` of a `ContinuationTerminated` event for a run with this outcome, as a text.

        The event is emitted if the run ends while a cut reply is being continued.
        """
        return _OUTCOMES[self][2]


# For each outcome: `exit_code`, `tag` and `chain_end`.
_OUTCOMES: dict[Outcome, tuple[int, StopReason | None, str]] = {
    Outcome.DONE: (0, None, "completed"),
    Outcome.WRAPPED_UP: (0, None, "completed"),
    Outcome.MAX_TURNS: (3, StopReason.MAX_TURNS, "budget_exhausted"),
    Outcome.BUDGET: (3, StopReason.TOKEN_BUDGET, "budget_exhausted"),
    Outcome.HALTED: (3, None, "provider_error"),
    Outcome.STALLED: (3, None, "provider_error"),
    Outcome.CONTEXT_WINDOW: (3, StopReason.CONTEXT_WINDOW, "provider_error"),
    Outcome.TRUNCATED: (4, StopReason.MAX_TOKENS, "empty"),
    Outcome.REFUSED: (5, StopReason.REFUSAL, "safety_blocked"),
    Outcome.CANCELLED: (130, StopReason.CANCELLED, "cancelled"),
    Outcome.PAUSED: (6, None, "completed"),
    Outcome.FAILED: (1, StopReason.ERROR, "provider_error"),
}

# Stop reasons of a provider that end the run. MAX_TOKENS is not among them: the loop continues a
# reply that was cut.
_FINAL_REASONS = {
    StopReason.CONTEXT_WINDOW: Outcome.CONTEXT_WINDOW,
    StopReason.REFUSAL: Outcome.REFUSED,
    StopReason.CANCELLED: Outcome.CANCELLED,
    StopReason.ERROR: Outcome.FAILED,
}


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text: one for every four characters, rounded up."""
    return (len(text) + 3) // 4


@with_form("glue.Limits(max_turns=5)")
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a run. None means no limit.

    >>> limits = Limits(max_turns=10, usd_budget=0.50, seconds=120)
    >>> agent = Agent("openai:gpt-5.4-nano", tools=[search], limits=limits)
    >>> result = agent.run_sync("Compare the three offers.", unwrap=False)
    >>> result.outcome
    <Outcome.BUDGET: 'budget'>

    If a run reaches a limit, `agent.run` raises an error such as `BudgetExceeded`, whose `result`
    has the transcript so far. With `unwrap=False`, it returns that result instead.

    A sub-agent spends from the budgets of the run that called it as well as from its own.
    """

    max_turns: int | None = 32  # requests whose reply calls tools
    max_requests: int | None = 50  # all requests, continuations included
    grace: int = 0  # the model is told to finish when this many turns are left; 0 for never
    token_budget: int | None = None
    usd_budget: float | None = None  # needs a price of the model
    seconds: float | None = None
    continuation_max_attempts: int = 3  # requests for the rest of cut replies, in a run
    continuation_max_output_chars: int = 120_000  # characters of one continued reply
    # Tokens of one continued reply. None: four times `max_tokens` of the request.
    continuation_max_total_completion_tokens: int | None = None
    continuation_tool_repair_attempts: int = 1  # requests to send a cut call again, in a run
    truncated_batch: str = "run"  # complete calls of a cut reply: "run" them, or "void" them too
    # Until the model has called a tool: "auto", "required", "none" or the name of a tool.
    tool_choice: str = "auto"
    parallel_tools: int = 8  # calls that run at the same time
    # Estimates the tokens of a text. A factory, so that the signature shows no address.
    estimator: Callable[[str], int] = field(default_factory=lambda: estimate_tokens)
    repeat_nudge: int | None = 3  # turns in a row with the same call and no other call
    repeat_halt: int | None = 5
    error_nudge: int | None = 3  # turns in a row in which every call failed
    error_halt: int | None = 6

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name))


_COUNTS = ("repeat_nudge", "repeat_halt", "error_nudge", "error_halt")
BUDGETS = ("max_turns", "max_requests", "token_budget", "usd_budget", "seconds")
_OPTIONAL = frozenset((*BUDGETS, *_COUNTS, "continuation_max_total_completion_tokens"))
_POSITIVE = frozenset((*_COUNTS, "parallel_tools"))


def _check(name: str, value: object) -> None:
    if name == "truncated_batch":
        if value not in ("run", "void"):
            raise ValueError(f"truncated_batch must be 'run' or 'void', not {value!r}")
    elif name == "tool_choice":
        if not isinstance(value, str) or not value:
            raise TypeError(
                f"tool_choice must be 'auto', 'required', 'none' or a tool's name, not {value!r}"
            )
    elif name == "estimator":
        if not callable(value):
            raise TypeError(
                f"estimator must be a callable that takes a text and returns tokens, not {value!r}"
            )
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


# Limits, or a function that the loop calls before each request, so that limits can change in a run.
LimitsSource: TypeAlias = Limits | Callable[[], Limits]
_default = cache(Limits)


def read_limits(source: LimitsSource | None) -> Limits:
    """Return `source`, or `source()` if it is a function, or the default limits if it is None.

    Raise TypeError if the result is not a Limits.
    """
    limits = source() if callable(source) else _default() if source is None else source
    if not isinstance(limits, Limits):
        raise TypeError(
            f"limits must be a glue.Limits, or a function that returns a Limits, not {limits!r}"
        )
    return limits


def override_limits(source: LimitsSource | None, **given: Any) -> LimitsSource:
    """Return limits with the fields in `given` replaced, or a function that returns such limits.

    A function is returned if `source` is a function. The returned function calls `source` and
    replaces the fields in its result.
    """
    if callable(source):
        return lambda: replace(read_limits(source), **given)
    return replace(read_limits(source), **given)

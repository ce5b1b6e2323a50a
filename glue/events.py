"""What a run says while it goes: one small class for each thing that can happen.

Text and thinking deltas are the provider's own objects, passed on; so are `Attempt` reports.
Events carry deltas, never a growing copy of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from glue.frozen import dataclass
from glue.limits import Outcome, StopReason
from glue.types import Attempt, Message, Request, TextDelta, ThinkingDelta, ToolCall, ToolCallDelta, ToolMessage, Usage

# The run itself -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    run_id: str
    identity: Mapping[str, Any] | None = None  # agent, session, prompt version: whatever the caller gave


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStart:
    """The exact neutral request, before a wire encodes it."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStart:
    id: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnd:
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart:
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdate:
    """Progress of a running tool; `event` is set where the tool is an agent of its own."""

    call_id: str
    name: str
    text: str = ""
    data: Any = None
    event: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd:
    call: ToolCall
    message: ToolMessage
    seconds: float
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    run_id: str
    outcome: Outcome
    usage: Usage
    turns: int
    requests: int
    seconds: float


# Stops and continuations --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReasonObserved:
    provider: str
    model: str
    normalized: StopReason
    raw: str | None
    run_id: str
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationAttempt:
    attempt: int
    chars: int
    tokens: int
    left: int
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationTerminated:
    """completed, retry_limit, budget_exhausted, safety_blocked, empty, provider_error or cancelled."""

    reason: str
    attempts: int
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPayloadRepair:
    issue: str  # cut_off, malformed; when it is over: success, failure or abandoned
    tool: str
    attempted: bool
    success: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCapEscalated:
    attempt: int
    previous: int
    new: int
    discarded: str | None


# Policies -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChanged:
    policy: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    before: int  # estimated tokens
    after: int
    removed: int  # messages


@dataclass(frozen=True, slots=True, kw_only=True)
class WrapUp:
    turns_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    policy: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    kind: str
    used: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateApplied:
    gates: tuple[str, ...]
    allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConflict:
    winner: str
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    kind: str
    count: int
    action: str  # nudge or halt


Event: TypeAlias = (
    RunStart
    | TurnStart
    | RequestStart
    | MessageStart
    | TextDelta
    | ThinkingDelta
    | ToolCallDelta
    | MessageEnd
    | ToolStart
    | ToolUpdate
    | ToolEnd
    | TurnEnd
    | RunEnd
    | StopReasonObserved
    | ContinuationAttempt
    | ContinuationTerminated
    | ToolPayloadRepair
    | OutputCapEscalated
    | Attempt
    | ContextChanged
    | Compacted
    | WrapUp
    | Nudge
    | LimitReached
    | GateApplied
    | GateConflict
    | Guardrail
)

Listener: TypeAlias = Callable[[Event], object]

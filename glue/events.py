"""Events: what a run reports while it goes, one small class for each, and their JSON.

Text and thinking deltas are the provider's own objects, passed on; so are `Attempt` reports.
Events carry deltas, never a growing copy of the message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from glue.codec import Json, to_plain
from glue.dataclass import dataclass
from glue.limits import Outcome, StopReason
from glue.messages import Message, Request, ToolCall, ToolMessage, Usage
from glue.provider import Attempt, TextDelta, ThinkingDelta, ToolCallDelta

if TYPE_CHECKING:
    from glue.result import RunResult


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
class GateList:
    """What one gate wanted, and why; `dropped` says that a required gate of higher priority overruled it."""

    name: str
    allowed: tuple[str, ...]
    priority: int
    required: bool
    reason: str
    dropped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateApplied:
    gates: tuple[str, ...]
    allowed: tuple[str, ...]
    lists: tuple[GateList, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConflict:
    winner: str
    gates: tuple[str, ...]
    lists: tuple[GateList, ...] = ()


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


logger = logging.getLogger("glue.loop")
logging.getLogger("glue").addHandler(logging.NullHandler())

_warned: set[tuple[str, str, str | None]] = set()


def log_event(event: Event) -> None:
    """Say what an operator should know."""
    if isinstance(event, StopReasonObserved):
        key = (event.provider, event.model, event.raw)
        if event.normalized is StopReason.UNKNOWN and key not in _warned:
            _warned.add(key)
            logger.warning("unknown stop reason %r from %s %s; taken as an end", event.raw, event.provider, event.model)
    elif isinstance(event, ContinuationAttempt):
        most = event.attempt + event.left
        logger.info("response truncated at max_tokens, continuing (%d/%d)", event.attempt, most)
    elif isinstance(event, ContinuationTerminated) and event.reason == "retry_limit":
        logger.info("continuation limit reached")


VERSION = 1


def event_to_json(event: Any) -> dict[str, Json]:
    """Encode an event: `type` is its class in snake_case, the rest are its fields."""
    name = _snake(type(event).__name__)
    if name == "request_start":  # the whole transcript with each request would be quadratic
        request = event.request
        return {
            "type": name,
            "number": event.number,
            "messages": len(request.messages),
            "tools": [tool.name for tool in request.tools],
            "max_tokens": request.max_tokens,
        }
    data: dict[str, Json] = {"type": name, **to_plain(event)}
    if name == "tool_update" and event.event is not None:
        data["event"] = event_to_json(event.event)
    return data


def result_to_json(result: RunResult[Any], session: str = "") -> dict[str, Json]:
    """Encode how a run ended: the last line."""
    return {
        "type": "result",
        "outcome": result.outcome.value,
        "exit_code": result.outcome.exit_code,
        "stop_reason": result.stop_reason.value if result.stop_reason is not None else None,
        "text": result.text,
        "output": to_plain(result.output),
        "usage": to_plain(result.usage),
        "cost": result.cost,
        "turns": result.turns,
        "requests": result.requests,
        "seconds": round(result.seconds, 3),
        "run_id": result.run_id,
        "session": session or None,
        "notice": result.notice or None,
        "error": error_to_json(result.error) if result.error is not None else None,
    }


def error_to_json(error: BaseException) -> dict[str, Json]:
    return {"class": type(error).__name__, "message": str(error), "kind": getattr(error, "kind", None)}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")

"""Events: small objects that report each step of a run to listeners, and their JSON.

An event carries only the new part, such as a piece of text, not a growing copy of the message. Some
events are objects of the provider that the loop passes on: `TextDelta`, `ThinkingDelta`,
`ToolCallDelta`, `Attempt` and `Notice`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from glue.codec import Json, to_plain
from glue.limits import Outcome, StopReason
from glue.messages import Message, Request, ToolCall, ToolMessage, Usage
from glue.pending import PendingCall
from glue.provider import Attempt, Notice, TextDelta, ThinkingDelta, ToolCallDelta

__all__ = [
    "Attempt",
    "Compacted",
    "ContextChanged",
    "ContinuationAttempt",
    "ContinuationTerminated",
    "Event",
    "Explanation",
    "GateApplied",
    "GateConflict",
    "GateList",
    "Guardrail",
    "LimitReached",
    "Listener",
    "MessageEnd",
    "MessageStart",
    "Notice",
    "Nudge",
    "OutputCapEscalated",
    "RequestStart",
    "RunEnd",
    "RunStart",
    "StopReasonObserved",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolEnd",
    "ToolPayloadRepair",
    "ToolPending",
    "ToolStart",
    "ToolUpdate",
    "TurnEnd",
    "TurnStart",
    "WrapUp",
    "event_to_json",
]


# Runs, turns, requests, messages and calls.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The beginning of a run."""

    run_id: str
    identity: Mapping[str, Any] | None = None  # from the caller: agent, session, prompt version


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """The beginning of a turn. The first turn has the number 1."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStart:
    """A request that is about to be sent, not yet encoded in the format of the provider."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStart:
    """The beginning of a message: a prompt, or a reply that is streamed."""

    id: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnd:
    """The end of a message, with the complete message."""

    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart:
    """The start of a tool for a call of the model."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdate:
    """Progress of a running tool. If the tool is an agent, `event` is an event of its run."""

    call_id: str
    name: str
    text: str = ""
    data: Any = None
    event: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd:
    """The end of a tool for a call of the model, with the result of the call."""

    call: ToolCall
    message: ToolMessage
    seconds: float
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPending:
    """A call that waits for a decision or a result, so that the run ends `paused`."""

    call: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """The end of a turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run."""

    run_id: str
    outcome: Outcome
    usage: Usage
    turns: int
    requests: int
    seconds: float


# Stop reasons and continuations.


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReasonObserved:
    """The stop reason of a reply, as glue names it (`normalized`) and as it was sent (`raw`)."""

    provider: str
    model: str
    normalized: StopReason
    raw: str | None
    run_id: str
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationAttempt:
    """A request for the rest of a reply that was cut.

    The counts include all requests for the rest of this reply so far.
    """

    attempt: int
    chars: int
    tokens: int
    left: int
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationTerminated:
    """The end of the requests for the rest of a cut reply, with the reason for the end."""

    # completed, retry_limit, budget_exhausted, safety_blocked, empty, provider_error or cancelled
    reason: str
    attempts: int
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPayloadRepair:
    """The repair of a cut or malformed tool call: the model is asked to send the call again.

    The loop emits this event with `success` None before the request, and then with the result. If
    the limits do not allow the request, `attempted` is False.
    """

    # "cut_off" or "malformed" for a wrong call. "success" or "abandoned" if the next reply has a
    # complete call, or has no call.
    issue: str
    tool: str
    attempted: bool
    success: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCapEscalated:
    """A reply that was cut, and is requested again with a higher limit of output tokens."""

    attempt: int
    previous: int
    new: int
    discarded: str | None


# Policies.


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChanged:
    """A change of a request by a policy. The transcript stays unchanged.

    `before` and `after` are estimated tokens. `added`, `removed` and `edited` are message ids.
    """

    policy: str
    before: int
    after: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compaction: the transcript of the run was made shorter."""

    before: int  # estimated tokens
    after: int
    removed: int  # messages


@dataclass(frozen=True, slots=True, kw_only=True)
class WrapUp:
    """A message of the loop that asks the model to finish, because few turns are left."""

    turns_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    """A policy added a message for the model to the conversation."""

    policy: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A limit of the run that was reached."""

    kind: str
    used: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateList:
    """The tools that one gate allows in a request.

    `dropped` is True if a required gate of higher priority overruled this gate. `abstained` is True
    if this gate did not apply to the request.
    """

    name: str
    allowed: tuple[str, ...]
    priority: int
    required: bool
    reason: str
    dropped: bool
    abstained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateApplied:
    """The tools that a request offers after all gates were applied."""

    gates: tuple[str, ...]
    allowed: tuple[str, ...]
    lists: tuple[GateList, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConflict:
    """Gates that have no allowed tool in common. The request offers the tools of the winner."""

    winner: str
    gates: tuple[str, ...]
    lists: tuple[GateList, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """A guard has acted, because the model repeats a call or its calls keep failing."""

    kind: str
    count: int
    action: str  # nudge or halt


# The events that explain why the loop did something. All other events report messages and calls.
Explanation: TypeAlias = (
    ContinuationAttempt
    | ContinuationTerminated
    | ToolPayloadRepair
    | OutputCapEscalated
    | ContextChanged
    | Compacted
    | WrapUp
    | Nudge
    | LimitReached
    | GateConflict
    | Guardrail
)
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
    | ToolPending
    | TurnEnd
    | RunEnd
    | StopReasonObserved
    | Attempt
    | Notice
    | GateApplied
    | Explanation
)

Listener: TypeAlias = Callable[[Event], object]


def event_to_json(event: Any) -> dict[str, Json]:
    """Return an event as JSON. `type` is the name of its class in snake_case.

    >>> event_to_json(TurnStart(turn=1))
    {'type': 'turn_start', 'turn': 1}
    """
    name = snake(type(event).__name__)
    # Only the number of messages: a log with every message of every request would be quadratic.
    if name == "request_start":
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


def snake(name: str) -> str:
    """Return the name of a class in snake_case."""
    spaced = (f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return "".join(spaced).lstrip("_")

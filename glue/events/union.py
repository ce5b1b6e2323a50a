"""`Event`, the type of all events, and `event_to_json`, which turns an event into JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from glue.codec import Json, to_plain
from glue.decision import PendingCall as PendingCall
from glue.events import (
    MessageEnd,
    MessageStart,
    RequestStart,
    RunEnd,
    RunStart,
    StopReasonObserved,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolEnd,
    ToolPending,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnStart,
)
from glue.events.explanations import (
    Compacted,
    ContextChanged,
    ContinuationAttempt,
    ContinuationTerminated,
    GateApplied,
    GateConflict,
    Guardrail,
    LimitReached,
    Nudge,
    OutputCapEscalated,
    ToolPayloadRepair,
    WrapUp,
)
from glue.provider import Attempt as Attempt
from glue.provider import Notice as Notice

# The events that explain why the loop or a policy did something, except `GateApplied`, which every
# request with gates has.
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
    """Return an event as a JSON object. Its `type` is the name of the event's class in snake_case.

    The JSON of a `RequestStart` contains the number of messages and the names of the tools in place
    of the request.

    >>> event_to_json(TurnStart(turn=1))
    {'type': 'turn_start', 'turn': 1}
    """
    name = snake(type(event).__name__)
    # Only the number of messages, because a log with every message of every request would be
    # quadratic.
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
    """Convert the name of a class to snake_case: `ToolCall` becomes `tool_call`."""
    spaced = (f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return "".join(spaced).lstrip("_")

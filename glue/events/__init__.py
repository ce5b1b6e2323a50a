"""Events: small objects that report each step of a run to listeners, and their JSON.

An event carries only the new part, such as a piece of text, not a growing copy of the message. The
provider creates the events `TextDelta`, `ThinkingDelta`, `ToolCallDelta`, `Attempt` and `Notice`;
the loop passes them on.

The classes below are the events of nearly every run. All other events are loaded at first use,
because few runs have them and each class takes a third of a millisecond to define.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glue.lazy import lazy_names
from glue.limits import Outcome, StopReason
from glue.messages import Message, Request, ToolCall, ToolMessage, Usage
from glue.provider import TextDelta, ThinkingDelta, ToolCallDelta

if TYPE_CHECKING:
    from glue.decision import PendingCall as PendingCall
    from glue.events.explanations import Compacted as Compacted
    from glue.events.explanations import ContextChanged as ContextChanged
    from glue.events.explanations import ContinuationAttempt as ContinuationAttempt
    from glue.events.explanations import ContinuationTerminated as ContinuationTerminated
    from glue.events.explanations import GateApplied as GateApplied
    from glue.events.explanations import GateConflict as GateConflict
    from glue.events.explanations import GateList as GateList
    from glue.events.explanations import Guardrail as Guardrail
    from glue.events.explanations import LimitReached as LimitReached
    from glue.events.explanations import Nudge as Nudge
    from glue.events.explanations import OutputCapEscalated as OutputCapEscalated
    from glue.events.explanations import ToolPayloadRepair as ToolPayloadRepair
    from glue.events.explanations import WrapUp as WrapUp
    from glue.events.progress import ToolPending as ToolPending
    from glue.events.progress import ToolUpdate as ToolUpdate
    from glue.events.union import Attempt as Attempt
    from glue.events.union import Event as Event
    from glue.events.union import Explanation as Explanation
    from glue.events.union import Listener as Listener
    from glue.events.union import Notice as Notice
    from glue.events.union import event_to_json as event_to_json

# The module that defines each name that is loaded at first use.
_HOMES = {
    "explanations": (
        "Compacted ContextChanged ContinuationAttempt ContinuationTerminated GateApplied "
        "GateConflict GateList Guardrail LimitReached Nudge OutputCapEscalated "
        "ToolPayloadRepair WrapUp"
    ),
    "progress": "ToolPending ToolUpdate",
    "union": "Attempt Event Explanation Listener Notice PendingCall event_to_json",
}
__all__ = [
    *" ".join(_HOMES.values()).split(),
    "MessageEnd",
    "MessageStart",
    "RequestStart",
    "RunEnd",
    "RunStart",
    "StopReasonObserved",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolEnd",
    "ToolStart",
    "TurnEnd",
    "TurnStart",
]
if not TYPE_CHECKING:  # so that a type checker reports unknown names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


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
    """The start of a request to the model. The request is not yet encoded for the provider."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStart:
    """The beginning of a user message or of a reply. A tool result has no such event."""

    id: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnd:
    """The end of a user message or of a reply, with the message.

    If a streamed reply was discarded, the message has the text so far, and `meta["discarded"]`.
    """

    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart:
    """A tool call is about to be checked and run; a question for permission may follow."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd:
    """The end of a tool call, with its result."""

    call: ToolCall
    message: ToolMessage
    seconds: float  # without the time that the call waited for permissions
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """The end of a turn: after its tool results, after a reply without calls, or before RunEnd."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReasonObserved:
    """The stop reason of a reply: glue's name for it (`normalized`) and the server's (`raw`)."""

    provider: str
    model: str
    normalized: StopReason
    raw: str | None
    run_id: str
    request: int

"""Events: what a run reports while it goes and when it has ended, who listens to them, and their JSON.

Text and thinking deltas are the provider's own objects, passed on; so are `Attempt` reports.
Events carry deltas, never a growing copy of the message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Generic, TextIO, TypeAlias, TypeVar

from glue.codec import Json, to_plain
from glue.dataclass import dataclass
from glue.errors import GlueError
from glue.limits import Outcome, StopReason
from glue.messages import AssistantMessage, Message, Request, ToolCall, ToolMessage, Usage
from glue.provider import Attempt, TextDelta, ThinkingDelta, ToolCallDelta

OutputT = TypeVar("OutputT", covariant=True)


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


# What says why a run went as it did, for people and traces; the rest are its messages, its calls and their pieces.
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
    | TurnEnd
    | RunEnd
    | StopReasonObserved
    | Attempt
    | GateApplied
    | Explanation
)

Listener: TypeAlias = Callable[[Event], object]


# The result ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[OutputT]):
    """Everything a run produced; nothing that was paid for is lost."""

    messages: Sequence[Message] = field(repr=False)  # the whole transcript; not shown, as asyncio shows each result
    new_messages: tuple[Message, ...]  # this run's: its prompt and everything after
    text: str  # the merged final answer
    outcome: Outcome
    stop_reason: StopReason | None
    usage: Usage
    attempts: tuple[Attempt, ...] = ()
    notice: str = ""  # why the answer is cut, for people; never in the transcript
    error: GlueError | None = None
    turns: int = 0
    requests: int = 0
    continuations: int = 0
    repairs: int = 0
    seconds: float = 0.0
    run_id: str = ""
    delivered: str | None = None  # set by a delivery tool's policy
    meta: Mapping[str, Json] | None = None
    output: OutputT = None  # type: ignore[assignment]  # None where no output was asked for, then OutputT is None

    @property
    def cost(self) -> float | None:
        """USD, or None where some reply has no known price."""
        return self.usage.cost

    @property
    def complete(self) -> bool:
        return self.outcome.complete

    def unwrap(self) -> RunResult[OutputT]:
        """Return self, or raise the run's error with this result attached."""
        if self.error is not None:
            self.error.result = self
            raise self.error
        return self


# Listeners ----------------------------------------------------------------------------------------

logger = logging.getLogger("glue.loop")
logging.getLogger("glue").addHandler(logging.NullHandler())
_log = logging.getLogger("glue.agent")

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


class Listeners:
    """Tells every listener; one that fails is logged and does not keep the others from hearing."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self.listeners = tuple(listeners)

    def __call__(self, event: Event) -> None:
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                _log.debug("a listener failed", exc_info=True)


class PacedListeners(Listeners):
    """Tells every listener, and waits for those that set the pace."""

    async def drain(self) -> None:
        for listener in self.listeners:
            if (drain := getattr(listener, "drain", None)) is not None:
                await drain()


class TextWriter:
    """Writes the text of the answer as it comes; a new line only between two messages."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self._last = ""  # of the message before, where a break is due
        self._tail = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta) and event.text:
            if self._last:
                self.file.write("\n")
            self._last, self._tail = "", event.text
            self.file.write(event.text)
            self.file.flush()
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            cut = event.message.stop_reason is StopReason.MAX_TOKENS  # its next part goes on in the same line
            self._last = "" if cut or not self._tail or self._tail.endswith("\n") else self._tail


def write_tool(file: TextIO, event: Event) -> None:
    """Write a line for each tool that starts."""
    if isinstance(event, ToolStart):
        file.write(f"[tool] {event.call.name}\n")
        file.flush()


def join(given: Iterable[Listener | None]) -> Listener | None:
    """Make one listener of many; None where there is none."""
    found = [listener for listener in given if listener is not None]
    if len(found) <= 1:
        return found[0] if found else None
    return (PacedListeners if any(hasattr(listener, "drain") for listener in found) else Listeners)(found)


def writers(stream: TextIO | None, tool_log: TextIO | None) -> list[Listener]:
    """Make listeners that write; None writes nothing."""
    found: list[Listener] = []
    if stream is not None:
        found.append(TextWriter(stream))
    if tool_log is not None:
        found.append(partial(write_tool, tool_log))
    return found


# JSON ---------------------------------------------------------------------------------------------


def event_to_json(event: Any) -> dict[str, Json]:
    """Encode an event: `type` is its class in snake_case, the rest are its fields."""
    name = snake(type(event).__name__)
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


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")

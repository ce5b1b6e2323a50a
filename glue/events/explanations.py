"""Events that explain why the loop or a policy did something. Few runs have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationAttempt:
    """A request for the rest of a reply that was cut off.

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
    """The requests for the rest of a cut-off reply are over: it is complete, or the loop gave up.

    `reason` names the cause.
    """

    # completed, retry_limit, budget_exhausted, safety_blocked, empty, provider_error or cancelled
    reason: str
    attempts: int
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPayloadRepair:
    """The repair of a cut-off or malformed tool call: the model is asked to send the call again.

    The loop emits this event with `success` None before the request, and then with the result. If
    the limits do not allow the request, `attempted` is False.
    """

    # Before the request, the fault of the call: "cut_off" or "malformed". Afterwards "success" if
    # the next reply has a complete call, or "abandoned" if it has no call.
    issue: str
    tool: str
    attempted: bool
    success: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCapEscalated:
    """A reply was cut off and is requested again with a higher limit of output tokens."""

    attempt: int
    previous: int
    new: int
    discarded: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChanged:
    """A policy changed the messages of one request. The transcript stays unchanged.

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
    """A message that asks the model to finish, because few turns are left."""

    turns_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    """A policy added a message for the model to the conversation."""

    policy: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """The run reached one of its limits."""

    kind: str
    used: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateList:
    """A record in GateApplied and GateConflict: the tools that one gate allows in a request.

    This record is not an event. A gate is an allow list for tools. `dropped` is True if a required
    gate of higher priority overruled this gate. `abstained` is True if this gate did not apply to
    the request.
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
    """The tools that a request offers to the model after all gates were applied."""

    gates: tuple[str, ...]
    allowed: tuple[str, ...]
    lists: tuple[GateList, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConflict:
    """Gates allow no tool in common, so the request offers only the tools of the gate `winner`."""

    winner: str
    gates: tuple[str, ...]
    lists: tuple[GateList, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """A guard has warned the model or stopped the run: calls are repeated, or keep failing."""

    kind: str
    count: int
    action: str  # nudge or halt

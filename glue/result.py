"""The result of a run, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from glue import errorcodec as errorcodec  # encodes `error`
from glue.codec import Json, to_plain
from glue.errors import GlueError
from glue.limits import Outcome, StopReason
from glue.loop.position import OVER, Position
from glue.messages import Message, Usage
from glue.pending import PendingCall
from glue.provider import Attempt

OutputT = TypeVar("OutputT", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[OutputT]):
    """The result of a run. Runs that failed or were cancelled have a result too.

    >>> result = agent.run_sync("Which of these files is the largest?")
    >>> result.text
    'data/2026.csv'
    >>> result.outcome, result.turns, result.cost
    (<Outcome.DONE: 'done'>, 2, 0.0031)
    """

    # The whole transcript. It is not in the repr, which asyncio prints in debug messages.
    messages: Sequence[Message] = field(repr=False)
    new_messages: tuple[Message, ...]  # of this run: its prompt and the messages after it
    text: str  # the answer; if a reply was continued, its parts are joined
    outcome: Outcome
    stop_reason: StopReason | None  # of the last reply
    usage: Usage
    attempts: tuple[Attempt, ...] = ()  # failed attempts at requests
    notice: str = ""  # tells people why the answer is cut; not in the transcript
    error: GlueError | None = None
    turns: int = 0
    requests: int = 0
    continuations: int = 0
    repairs: int = 0
    seconds: float = 0.0
    run_id: str = ""
    delivered: str | None = None  # the text that the policy `Delivery` delivered
    meta: Mapping[str, Json] | None = None
    pending: tuple[PendingCall, ...] = ()  # calls that wait, if the outcome is `paused`
    position: Position = OVER  # the next step, if the run is resumed
    # The parsed answer. If no `output=` was given, it is None, and so is OutputT.
    output: OutputT = field(default=None, metadata={"plain": True})  # type: ignore[assignment]

    @property
    def cost(self) -> float | None:
        """The cost in dollars, or None if the price of some reply is not known."""
        return self.usage.cost

    @property
    def complete(self) -> bool:
        """Whether the run ended with a whole answer."""
        return self.outcome.complete

    def unwrap(self) -> RunResult[OutputT]:
        """Return this result, or raise the error of the run if there is one.

        The error has this result as its attribute `result`.
        """
        if self.error is not None:
            self.error.result = self
            raise self.error
        return self


def result_to_json(result: RunResult[Any], session: str = "") -> dict[str, Json]:
    """Return a result as the JSON object that `glue run --json` prints as its last line."""
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
    """Return the class, the message and the kind of an error as JSON."""
    return {
        "class": type(error).__name__,
        "message": str(error),
        "kind": getattr(error, "kind", None),
    }

"""The result of a run, whatever its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from glue.dataclass import dataclass
from glue.errors import GlueError
from glue.limits import Outcome, StopReason
from glue.messages import Json, Message, Usage
from glue.provider import Attempt

OutputT = TypeVar("OutputT", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[OutputT]):
    """Everything a run produced; nothing that was paid for is lost."""

    messages: tuple[Message, ...]  # the whole transcript
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

"""The result of a run, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from glue import errorcodec as errorcodec  # encodes `error`
from glue import provider
from glue.codec import Json, to_plain
from glue.errors import GlueError
from glue.limits import Outcome, StopReason
from glue.loop.position import Position, position_of
from glue.messages import AssistantMessage, Message, Usage
from glue.pending import pending_calls
from glue.text import cost_text, count, one_line, usage_text

if TYPE_CHECKING:
    from glue.decision import PendingCall

OutputT = TypeVar("OutputT", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult(Generic[OutputT]):
    """The result of a run. Runs that failed or were cancelled have a result too.

    >>> result = agent.run_sync("Which of these files is the largest?")
    >>> result.text
    'data/2026.csv'
    >>> result.outcome, result.turns, result.cost
    (<Outcome.DONE: 'done'>, 2, 0.0031)
    >>> result
    RunResult(done: 'data/2026.csv', gpt-5.4-nano, 2 turns, 1,204 tokens in, 31 out, $0.0031)
    """

    messages: Sequence[Message]  # the whole transcript
    new_messages: tuple[Message, ...]  # the prompt of this run and the messages after the prompt
    text: str  # the answer; if a reply was continued, its parts are joined
    outcome: Outcome
    stop_reason: StopReason | None  # of the last reply
    usage: Usage
    attempts: tuple[provider.Attempt, ...] = ()  # failed attempts of all requests
    notice: str = ""  # for people: why the answer is cut, or that no model wrote it
    error: GlueError | None = None
    turns: int = 0
    requests: int = 0
    continuations: int = 0
    repairs: int = 0
    seconds: float = 0.0
    run_id: str = ""
    delivered: str | None = None  # the text that the policy `Delivery` delivered
    meta: Mapping[str, Json] | None = None
    # The parsed answer. Without `output=`, both the value and OutputT are None.
    output: OutputT = field(default=None, metadata={"plain": True})  # type: ignore[assignment]

    @property
    def cost(self) -> float | None:
        """The cost in dollars, or None if the price of some reply is not known."""
        return self.usage.cost

    @property
    def model(self) -> str:
        """The model that wrote the last reply of the run, or "" if there was no reply.

        It is "offline" if no key is set, so that glue's offline model answered.
        """
        return self._replies[-1].model if self._replies else ""

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for a decision or a result, or () if the outcome is not `paused`."""
        return pending_calls(self.messages) if self.outcome is Outcome.PAUSED else ()

    @property
    def position(self) -> Position:
        """The next step of the run if it is resumed; the step is `over` if the run is complete."""
        return position_of(self.messages)

    @property
    def reply(self) -> AssistantMessage:
        """The last reply of the run. Without any reply, raise ValueError."""
        if not self._replies:
            raise ValueError(f"the run has no reply: it ended with the outcome {self.outcome}")
        return self._replies[-1]

    @property
    def _replies(self) -> list[AssistantMessage]:
        return [each for each in self.new_messages if isinstance(each, AssistantMessage)]

    def __repr__(self) -> str:
        # Short, for notebooks and for the debug messages of asyncio.
        answer = self.output if self.output is not None else self.text
        parts = [
            f"{self.outcome}: {one_line(repr(answer), 100)}",
            self.model,
            count(self.turns, "turn"),
            usage_text(self.usage),
            cost_text(self.cost),
            f"notice: {one_line(self.notice, 100)}" if self.notice else "",
            f"error: {one_line(repr(self.error), 200)}" if self.error is not None else "",
        ]
        return f"RunResult({', '.join(filter(None, parts))})"

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
        "model": result.model or None,
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

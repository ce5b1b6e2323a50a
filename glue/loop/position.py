"""The position of a run: the loop's next step, as one value that a transcript determines.

    after the prompt ........................ ask
    after a reply whose text was cut ........ join
    after a reply whose call was cut ........ repair
    after a reply that the provider paused .. pause_turn
    after a reply with calls ................ call, then ask
    if some of these calls have to wait ..... await
    after a reply without calls ............. over, unless a policy adds a message
    at the end of a run that a limit cut .... say, if the end removed messages of the loop

`position_of` reads the position from the last messages of a transcript. If the last message alone
does not determine it, because the end of the run tagged a reply or removed a prompt, the end writes
the position into the `meta` of the last message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

from glue.errors import InvalidContinuation
from glue.limits import StopReason
from glue.loop.transcript import last_reply, open_calls
from glue.messages import AssistantMessage, Json, Message, ToolMessage, UserMessage, user
from glue.pending import waiting_records

Step: TypeAlias = Literal["ask", "join", "repair", "pause_turn", "say", "call", "await", "over"]

POSITION = "position"  # the key in a message's meta
DELIVERED = "delivered"  # the `call_id` of the result that the action `Deliver` stores
DROPPED_CALLS = "dropped_calls"  # in a reply's meta: names of calls that were cut off and removed

# Stop reasons that the loop sets on the last reply of a run that a limit or an error ended early.
TAGS = (
    StopReason.CANCELLED,
    StopReason.ERROR,
    StopReason.MAX_TURNS,
    StopReason.TOKEN_BUDGET,
)


class Position(NamedTuple):
    """The next step of a run, with the prompts or the ids of the calls that the step needs.

    ask: send a request.
    join: ask the model to continue its text, which was cut.
    repair: ask the model to send a call of `tool` again, which was cut.
    pause_turn: send a request that continues a reply which the provider paused.
    say: store `prompts`, which the model has not seen, then send a request.
    call: run the calls of the last reply whose ids are in `calls`.
    await: wait for decisions on `calls`, or for their results.
    over: do nothing, because the model has answered.
    """

    step: Step
    tool: str = ""
    prompts: tuple[tuple[str, str], ...] = ()  # origin and text of each message
    calls: tuple[str, ...] = ()  # ids of calls
    cut: bool = False  # with over: a limit or a cancellation ended the run right after the answer

    @property
    def continues(self) -> bool:
        """True if the next reply continues the last reply. Policies then cannot add messages."""
        return self.step in ("join", "repair", "pause_turn")

    def messages(self) -> list[UserMessage]:
        """Return `prompts` as user messages. The caller stores them before the next request."""
        return [user(text, origin=origin) for origin, text in self.prompts]

    def to_json(self) -> dict[str, Json]:
        plain: dict[str, Json] = {"step": self.step}
        if self.tool:
            plain["tool"] = self.tool
        if self.prompts:
            plain["prompts"] = [{"origin": origin, "text": text} for origin, text in self.prompts]
        if self.calls:
            plain["calls"] = list(self.calls)
        if self.cut:
            plain["cut"] = True
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Position:
        prompts = tuple((said["origin"], said["text"]) for said in plain.get("prompts", ()))
        return cls(
            step=plain["step"],
            tool=plain.get("tool", ""),
            prompts=prompts,
            calls=tuple(plain.get("calls", ())),
            cut=plain.get("cut", False),
        )


ASK = Position(step="ask")
JOIN = Position(step="join")
PAUSE_TURN = Position(step="pause_turn")
OVER = Position(step="over")


def say(prompts: Sequence[UserMessage]) -> Position:
    """Return the position of a run whose end removed `prompts`, because no reply followed them.

    A resumed run stores `prompts` again, and then sends a request.
    """
    return Position(step="say", prompts=tuple((each.origin, each.text) for each in prompts))


def position_of(messages: Sequence[Message]) -> Position:
    """Return the next step of the last run in the transcript `messages`."""
    if not messages or messages[-1].excluded:
        return OVER
    last = messages[-1]
    if last.meta and POSITION in last.meta:
        return Position.from_json(last.meta[POSITION])
    if isinstance(last, UserMessage):
        if last.origin == "repair":
            return Position(step="repair", tool=_cut_tool(last_reply(messages)))
        return JOIN if last.origin == "continue" else ASK
    if calls := open_calls(messages):
        return _position_at_calls(last_reply(messages), tuple(call.id for call in calls))
    return ASK if isinstance(last, ToolMessage) else after_reply(last)


def resume_position(messages: Sequence[Message]) -> Position:
    """Return the next step of a resumed run. Raise InvalidContinuation if it cannot be resumed.

    A run cannot be resumed if it is complete or was refused, or if the transcript is empty.

    A run that a limit ended right after its answer can be resumed: its step is `over`, and it ends
    without a request.
    """
    position = position_of(messages)
    if not messages:
        raise InvalidContinuation("there is nothing to resume: the transcript is empty")
    last = messages[-1]
    if last.excluded and not (isinstance(last, ToolMessage) and last.call_id == DELIVERED):
        raise InvalidContinuation(
            "there is nothing to resume: the model or its provider refused the last run, or its "
            "prompt was too long; send a new prompt"
        )
    if position.step == "over" and not position.cut:
        raise InvalidContinuation(
            "there is nothing to resume: the model has answered; send a new prompt"
        )
    return position


def is_resumable(messages: Sequence[Message]) -> bool:
    """Return whether the last run in the transcript `messages` can be resumed."""
    try:
        resume_position(messages)
    except InvalidContinuation:
        return False
    return True


def at_position(message: ToolMessage, position: Position) -> ToolMessage:
    """Return a copy of a tool result whose `meta` has the position of the run after the result."""
    return replace(message, meta={**(message.meta or {}), POSITION: position.to_json()})


def after_reply(reply: AssistantMessage) -> Position:
    """Return the next step of a run whose last message is `reply`."""
    if calls := reply.calls:
        return Position(step="call", calls=tuple(call.id for call in calls))
    if reply.stop_reason is StopReason.MALFORMED_CALL or DROPPED_CALLS in (reply.meta or {}):
        return Position(step="repair", tool=_cut_tool(reply))
    if reply.stop_reason is StopReason.PAUSE_TURN:
        return PAUSE_TURN
    return JOIN if reply.stop_reason in (StopReason.MAX_TOKENS, *TAGS) else OVER


def _position_at_calls(reply: AssistantMessage | None, calls: tuple[str, ...]) -> Position:
    """Return the position of a run in which `calls`, of the last reply, have no results yet.

    The step is "await" if one of the calls was deferred, else "call".
    """
    records = waiting_records(reply)
    if any(records.get(call, {}).get("deferred") for call in calls):
        return Position(step="await", calls=calls)
    return Position(step="call", calls=calls)


def _cut_tool(reply: AssistantMessage | None) -> str:
    """Return the name of the first call that was cut off and removed from a reply, or ""."""
    names = (reply.meta or {}).get(DROPPED_CALLS) if reply is not None else None
    return str(names[0]) if names else ""

"""Truncated replies: run the calls that are whole, ask for the rest, or give up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from glue.events import ContinuationAttempt, ContinuationTerminated, ToolPayloadRepair
from glue.limits import Limits, Outcome, StopReason
from glue.loop.state import Chain, State
from glue.loop.transcript import CONTINUE, has_content
from glue.messages import AssistantMessage, Part, Text, ToolCall, UserMessage, user
from glue.policies import Stop

PLACEHOLDER = "(truncated)"
NOTICE = "The answer is incomplete: the model reached its output limit."
REPAIR = (
    "Your last reply was cut off by the token limit before its tool call{named} was complete, so nothing was run. "
    "Send one complete call. If its arguments are long, split the work into several smaller calls."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a reply: what is stored, what is said next, and where the run goes."""

    then: Literal["tools", "settle", "again", "pause", "end"]
    store: AssistantMessage | None = None
    prompt: UserMessage | None = None
    stop: Stop | None = None
    dropped: int = 0  # calls that were cut off; they veto a vote to end


def is_whole(call: ToolCall) -> bool:
    """Tell whether a call was closed and its arguments are a JSON object."""
    if not call.complete:
        return False
    try:
        return not call.arguments.strip() or isinstance(json.loads(call.arguments), dict)
    except (ValueError, RecursionError):
        return False


def judge_cut(state: State, reply: AssistantMessage) -> Verdict:
    """Decide about a reply that was cut off."""
    whole = [call for call in reply.calls if is_whole(call)]
    partial = [call for call in reply.calls if not is_whole(call)]
    if whole and not (partial and state.limits.truncated_batch == "void"):
        return Verdict(then="tools", store=_without(reply, partial), dropped=len(partial))
    if reply.calls or reply.stop_reason is StopReason.MALFORMED_CALL:
        return _repair(state, reply, partial or reply.calls)
    if not has_content(reply.content):
        return _give_up(_or_placeholder(reply))
    return _continue(state, reply)


def _repair(state: State, reply: AssistantMessage, partial: Sequence[ToolCall]) -> Verdict:
    tool = partial[0].name if partial else ""
    issue = "cut_off" if partial else "malformed"
    kept = _or_placeholder(_without(reply, reply.calls))
    attempted = state.repairs < state.limits.continuation_tool_repair_attempts
    if state.repairing:
        state.emit(ToolPayloadRepair(issue=issue, tool=tool, attempted=True, success=False))
        state.repairing = ""
    if not attempted:
        if not state.repairs:
            state.emit(ToolPayloadRepair(issue=issue, tool=tool, attempted=False, success=False))
        return _give_up(kept)
    state.repairs += 1
    state.repairing = tool or "?"
    state.emit(ToolPayloadRepair(issue=issue, tool=tool, attempted=True))
    text = REPAIR.format(named=f" to {tool}" if tool else "")
    return Verdict(then="again", store=kept, prompt=user(text, origin="repair"))


def _continue(state: State, reply: AssistantMessage) -> Verdict:
    chain = state.chain or Chain(cap=state.template.max_tokens)
    state.chain = chain
    chain.chars += len(reply.text)
    chain.tokens += reply.usage.output if reply.usage else state.limits.estimator(reply.text)
    if reason := _exhausted(state.continuations, chain, state.limits):
        end_chain(state, chain, reason)
        return _give_up(reply)
    state.continuations += 1
    chain.attempts += 1
    state.emit(
        ContinuationAttempt(
            attempt=state.continuations,
            chars=chain.chars,
            tokens=chain.tokens,
            left=state.limits.continuation_max_attempts - state.continuations,
            provider=reply.provider,
            model=reply.model,
        )
    )
    return Verdict(then="again", store=reply, prompt=user(CONTINUE, origin="continue"))


def _exhausted(used: int, chain: Chain, limits: Limits) -> str:
    if used >= limits.continuation_max_attempts:
        return "retry_limit"
    most = limits.continuation_max_total_completion_tokens
    if most is None and chain.cap is not None:
        most = 4 * chain.cap
    if chain.chars >= limits.continuation_max_output_chars or (most is not None and chain.tokens >= most):
        return "budget_exhausted"
    return ""


def end_chain(state: State, chain: Chain, reason: str) -> None:
    """Say once how a chain of continuations ended."""
    provider, model = (last.provider, last.model) if (last := state.last_reply) else (state.provider.name, "")
    state.emit(ContinuationTerminated(reason=reason, attempts=chain.attempts, provider=provider, model=model))
    state.chain = None


def end_repair(state: State, success: bool) -> None:
    """Say once what came of a repair: a whole call, or the model thought better of it."""
    issue = "success" if success else "abandoned"
    state.emit(ToolPayloadRepair(issue=issue, tool=state.repairing, attempted=True, success=success))
    state.repairing = ""


def _give_up(kept: AssistantMessage) -> Verdict:
    return Verdict(then="end", store=kept, stop=Stop(Outcome.TRUNCATED))


def _without(reply: AssistantMessage, dropped: Sequence[ToolCall]) -> AssistantMessage:
    if not dropped:
        return reply
    content = tuple(part for part in reply.content if not any(part is call for call in dropped))
    names = [call.name for call in dropped]
    return replace(reply, content=content, meta={**(reply.meta or {}), "dropped_calls": names})


def _or_placeholder(reply: AssistantMessage) -> AssistantMessage:
    if has_content(reply.content):
        return reply
    kept: tuple[Part, ...] = tuple(part for part in reply.content if not isinstance(part, Text))
    return replace(reply, content=(*kept, Text(text=PLACEHOLDER)), meta={**(reply.meta or {}), "placeholder": True})

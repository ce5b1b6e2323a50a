"""Replies that were cut: run the complete calls, ask the model for the rest, or end the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from glue import events
from glue.limits import Outcome, StopReason
from glue.listeners import logger
from glue.loop.position import DROPPED_CALLS, Position
from glue.loop.state import Chain, State
from glue.loop.transcript import CONTINUE, has_content
from glue.messages import AssistantMessage, Part, Text, ToolCall, UserMessage, user
from glue.policies import Stop

PLACEHOLDER = "(truncated)"
NOTICE = "The answer is incomplete: the model reached its output limit."
REPAIR = (
    "Your last reply was cut off by the token limit before its tool call{named} was complete, so "
    "nothing was run. Send one complete call. If its arguments are long, split the work into "
    "several smaller calls."
)


class Verdict(NamedTuple):
    """The loop's decision on a reply: the message to store, and whether the run ends."""

    store: AssistantMessage | None = None
    stop: Stop | None = None
    counts_turn: bool = False


def is_whole(call: ToolCall) -> bool:
    """Return whether a call is complete and its arguments are empty or a JSON object."""
    if not call.complete:
        return False
    try:
        return not call.arguments.strip() or isinstance(json.loads(call.arguments), dict)
    except (ValueError, RecursionError):
        return False


def judge_cut(state: State, reply: AssistantMessage) -> Verdict:
    """Return the verdict on a cut reply: run its complete calls, ask for the rest, or end the run.

    The continuation or the repair is counted, and its events are emitted.
    """
    whole = [call for call in reply.calls if is_whole(call)]
    partial = [call for call in reply.calls if not is_whole(call)]
    if whole and not (partial and state.limits.truncated_batch == "void"):
        if state.position.step == "repair":
            end_repair(state, success=True)
        return Verdict(store=_without(reply, partial))
    if reply.calls or reply.stop_reason is StopReason.MALFORMED_CALL:
        return _repair(state, reply, partial or reply.calls)
    if not has_content(reply.content):
        return _give_up(_or_placeholder(reply))
    return _continue(state, reply)


def _repair(state: State, reply: AssistantMessage, partial: Sequence[ToolCall]) -> Verdict:
    tool = partial[0].name if partial else ""
    issue = "cut_off" if partial else "malformed"
    kept = _or_placeholder(
        _without(reply, (*partial, *(c for c in reply.calls if c not in partial)))
    )
    attempted = state.repairs < state.limits.continuation_tool_repair_attempts
    if state.position.step == "repair":
        state.emit(events.ToolPayloadRepair(issue=issue, tool=tool, attempted=True, success=False))
    if not attempted:
        if not state.repairs:
            state.emit(
                events.ToolPayloadRepair(issue=issue, tool=tool, attempted=False, success=False)
            )
        return _give_up(kept)
    state.repairs += 1
    state.emit(events.ToolPayloadRepair(issue=issue, tool=tool, attempted=True))
    return Verdict(store=kept)


def _continue(state: State, reply: AssistantMessage) -> Verdict:
    chain = state.chain or Chain()
    state.chain = chain
    chain.chars += len(reply.text)
    chain.tokens += reply.usage.output if reply.usage else state.limits.estimator(reply.text)
    if reason := _exhausted(state, chain):
        end_chain(state, chain, reason)
        return _give_up(reply)
    state.continuations += 1
    chain.attempts += 1
    most = state.limits.continuation_max_attempts
    logger.info("response truncated at max_tokens, continuing (%d/%d)", state.continuations, most)
    state.emit(
        events.ContinuationAttempt(
            attempt=state.continuations,
            chars=chain.chars,
            tokens=chain.tokens,
            left=most - state.continuations,
            provider=reply.provider,
            model=reply.model,
        )
    )
    return Verdict(store=reply)


def prompt_at(position: Position) -> UserMessage | None:
    """Return the message that asks for the rest of a cut reply, or None if no reply was cut."""
    if position.step == "join":
        return user(CONTINUE, origin="continue")
    if position.step == "repair":
        named = f" to {position.tool}" if position.tool else ""
        return user(REPAIR.format(named=named), origin="repair")
    return None


def _exhausted(state: State, chain: Chain) -> str:
    """Return the reason to end the continuation of a cut reply, or "" if it may be continued."""
    limits, cap = state.limits, state.template.max_tokens
    if state.continuations >= limits.continuation_max_attempts:
        return "retry_limit"
    most = limits.continuation_max_total_completion_tokens
    if most is None and cap is not None:
        most = 4 * cap
    if chain.chars >= limits.continuation_max_output_chars or (
        most is not None and chain.tokens >= most
    ):
        return "budget_exhausted"
    return ""


def end_chain(state: State, chain: Chain, reason: str) -> None:
    """End the chain of a cut reply, and emit ContinuationTerminated with the reason."""
    if reason == "retry_limit":
        logger.info("continuation limit reached")
    provider, model = (
        (last.provider, last.model) if (last := state.last_reply) else (state.provider.name, "")
    )
    state.emit(
        events.ContinuationTerminated(
            reason=reason, attempts=chain.attempts, provider=provider, model=model
        )
    )
    state.chain = None


def end_repair(state: State, success: bool) -> None:
    """Emit ToolPayloadRepair with `success`: whether the repaired reply has a complete call."""
    issue = "success" if success else "abandoned"
    tool = state.position.tool or "?"
    state.emit(events.ToolPayloadRepair(issue=issue, tool=tool, attempted=True, success=success))


def _give_up(kept: AssistantMessage) -> Verdict:
    return Verdict(store=kept, stop=Stop(Outcome.TRUNCATED))


def _without(reply: AssistantMessage, dropped: Sequence[ToolCall]) -> AssistantMessage:
    if not dropped:
        return reply
    content = tuple(part for part in reply.content if not any(part is call for call in dropped))
    names = [call.name for call in dropped]
    return replace(reply, content=content, meta={**(reply.meta or {}), DROPPED_CALLS: names})


def _or_placeholder(reply: AssistantMessage) -> AssistantMessage:
    if has_content(reply.content):
        return reply
    kept: tuple[Part, ...] = tuple(part for part in reply.content if not isinstance(part, Text))
    return replace(
        reply,
        content=(*kept, Text(text=PLACEHOLDER)),
        meta={**(reply.meta or {}), "placeholder": True},
    )

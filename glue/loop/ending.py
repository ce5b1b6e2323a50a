"""The end of a run: a valid transcript, a tag on the last reply, one result."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from glue.errors import Cancelled, EmptyReply
from glue.events import RunEnd, TurnEnd
from glue.limits import Outcome, StopReason
from glue.loop.state import State
from glue.loop.transcript import OURS, unanswered
from glue.loop.truncation import NOTICE, end_chain
from glue.messages import AssistantMessage, Text, UserMessage, new_id
from glue.policies.policy import Stop
from glue.result import RunResult


async def end(state: State, stop: Stop) -> RunResult[None]:
    """Leave a valid transcript, tag the last reply, tell the listeners, return everything."""
    if state.cancel.cancelled and stop.outcome is not Outcome.CANCELLED:
        stop = Stop(Outcome.CANCELLED, Cancelled())
    await _keep_partial(state)
    await store_results(state)
    await _drop_prompts(state)
    for message in unanswered(state.new):
        await state.store(message)
    tag = await _tag(state, stop.outcome)
    if stop.outcome is Outcome.REFUSED:
        await _exclude(state)
    if stop.outcome is Outcome.TRUNCATED:
        state.notice = NOTICE
    empty = isinstance(stop.error, EmptyReply)
    end_chain(state, "empty" if empty else stop.outcome.chain_end)
    close_turn(state)
    seconds = time.monotonic() - state.started
    state.emit(
        RunEnd(
            run_id=state.host.run_id,
            outcome=stop.outcome,
            usage=state.usage,
            turns=state.turns,
            requests=state.requests,
            seconds=seconds,
        )
    )
    return RunResult(
        messages=tuple(state.messages),
        new_messages=tuple(state.new),
        text=state.text,
        outcome=stop.outcome,
        stop_reason=tag,
        usage=state.usage,
        attempts=tuple(state.attempts),
        notice=state.notice,
        error=stop.error,
        turns=state.turns,
        requests=state.requests,
        continuations=state.continuations,
        repairs=state.repairs,
        seconds=seconds,
        run_id=state.host.run_id,
        delivered=state.delivered,
        meta={**state.meta, **(stop.meta or {})},
    )


async def _keep_partial(state: State) -> None:
    """Keep the text of a reply that a cancellation or the clock cut off."""
    text, state.partial = "".join(state.partial), []
    if text.strip():
        state.answer = [*state.answer, text] if state.joins else [text]
        message = AssistantMessage(
            id=state.reply_id or new_id(),  # that of the pieces that listeners have seen
            content=(Text(text=text),),
            stop_reason=StopReason.CANCELLED,
            provider=state.provider.name,
        )
        await state.store(message)


async def _drop_prompts(state: State) -> None:
    """Take back what we said and nobody answered."""
    dropped: list[str] = []
    for messages in (state.messages, state.new):
        index = len(messages)
        while index and isinstance(message := messages[index - 1], UserMessage):
            index -= 1
            if message.origin in OURS:
                dropped.append(message.id)
                del messages[index]
    if dropped and state.journal is not None:
        await state.journal.drop(tuple(dict.fromkeys(dropped)))


async def _tag(state: State, outcome: Outcome) -> StopReason | None:
    """Say on the last reply of this run why the run ended; nothing else changes."""
    tag = outcome.tag
    last = next((message for message in reversed(state.new) if isinstance(message, AssistantMessage)), None)
    if last is None:
        return tag
    if tag is None or last.stop_reason is tag:
        return last.stop_reason
    _amend(state, last.id, stop_reason=tag)
    if state.journal is not None:
        await state.journal.amend(last.id, {"stop_reason": str(tag)})
    return tag


async def _exclude(state: State) -> None:
    """Keep a refused run in the log and out of every later request."""
    for message in tuple(state.new):
        _amend(state, message.id, excluded=True)
    if state.journal is not None:
        await state.journal.exclude(tuple(message.id for message in state.new))


def _amend(state: State, id: str, **fields: Any) -> None:
    """Change a message in both lists, each as it stands there: a policy may have shortened one."""
    for messages in (state.messages, state.new):
        for index in range(len(messages) - 1, -1, -1):
            if messages[index].id == id:
                messages[index] = replace(messages[index], **fields)
                break


async def store_results(state: State) -> None:
    while state.pending:
        await state.store(state.pending.pop(0))


def close_turn(state: State) -> None:
    if state.turn_open:
        state.emit(TurnEnd(turn=state.turn_open))
        state.turn_open = 0

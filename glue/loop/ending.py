"""The end of a run: repair the transcript, tag the last reply, give one result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glue.codec import to_plain
from glue.errors import Cancelled, EmptyReply
from glue.events import RunEnd, RunResult, TurnEnd
from glue.limits import Outcome, StopReason
from glue.loop.state import State
from glue.loop.transcript import CUT, ENDED, OURS, UNSENT, needs_answer, run_start, unanswered
from glue.loop.truncation import NOTICE, end_chain
from glue.messages import AssistantMessage, Messages, Text, UserMessage, new_id
from glue.policies import Stop

OVERLONG = "The prompt does not fit the model's context window; it is left out of later requests."


async def end(state: State, stop: Stop) -> RunResult[None]:
    """Leave a valid transcript, tag the last reply, tell the listeners, return everything."""
    state.ending = True
    await _keep_partial(state)
    state.discard()
    await store_results(state)
    if state.cancel.cancelled and stop.outcome is not Outcome.CANCELLED:
        stop = Stop(Outcome.CANCELLED, Cancelled())
    dropped = await drop_prompts(state)
    reason = "cancelled" if stop.outcome is Outcome.CANCELLED else f"not run: the run ended ({stop.outcome})"
    for message in unanswered(state.new, reason):
        await state.store(message)
    if stop.outcome.complete:
        last, dropped = state.messages[-1], []
        if needs_answer(state.messages) or getattr(last, "stop_reason", None) in CUT:  # a vote or a policy ended it
            await _amend(state, last.id, meta={**(last.meta or {}), ENDED: True})
    tag = await _tag(state, stop.outcome, dropped)
    await _exclude(state, stop.outcome)
    if stop.outcome is Outcome.TRUNCATED:
        state.notice = NOTICE
    if state.chain is not None:
        end_chain(state, state.chain, "empty" if isinstance(stop.error, EmptyReply) else stop.outcome.chain_end)
    close_turn(state)
    seconds = time.monotonic() - state.spending.started
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
    state.result = RunResult(
        messages=Messages(state.messages),
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
        meta=dict(stop.meta or {}),
    )
    return state.result


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


async def drop_prompts(state: State) -> list[UserMessage]:
    """Take back what we said and nobody answered."""
    dropped: dict[str, UserMessage] = {}
    for messages in (state.messages, state.new):
        index = len(messages)
        while index and isinstance(message := messages[index - 1], UserMessage):
            index -= 1
            if message.origin in OURS:
                dropped[message.id] = message
                del messages[index]
    if dropped:
        await state.record(lambda journal: journal.drop(tuple(dropped)))
    return list(dropped.values())


async def _tag(state: State, outcome: Outcome, dropped: Sequence[UserMessage]) -> StopReason | None:
    """Say on the last reply of this run why the run ended, and what was not sent; nothing else changes."""
    tag = outcome.tag
    if (last := state.last_reply) is None:
        return tag
    fields: dict[str, Any] = {}
    if tag is not None and last.stop_reason is not tag:
        fields["stop_reason"] = tag
    unsent = [{"origin": said.origin, "text": said.text} for said in reversed(dropped) if said.origin != "wrap_up"]
    if unsent or (fields and last.stop_reason is StopReason.PAUSE_TURN):
        fields["meta"] = {**(last.meta or {}), UNSENT: unsent}
    if fields:
        await _amend(state, last.id, **fields)
    return tag or last.stop_reason


async def _exclude(state: State, outcome: Outcome) -> None:
    """Keep in the log and out of every later request: a refused run, and a prompt that fits no window."""
    run = state.messages[run_start(state.messages) :] if state.resumed else state.new
    overlong = outcome is Outcome.CONTEXT_WINDOW and not any(isinstance(each, AssistantMessage) for each in run)
    if not overlong and outcome is not Outcome.REFUSED:
        return
    if overlong:
        state.notice = OVERLONG
    ids = tuple(message.id for message in run)
    for each in ids:
        _replace(state, each, excluded=True)
    await state.record(lambda journal: journal.exclude(ids))


async def _amend(state: State, id: str, **fields: Any) -> None:
    _replace(state, id, **fields)
    await state.record(lambda journal: journal.amend(id, to_plain(fields)))


def _replace(state: State, id: str, **fields: Any) -> None:
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

"""The end of a run: make the transcript valid, set the last stop reason, build the result."""

from __future__ import annotations

import time
from collections.abc import Iterable

from glue.errors import Cancelled, EmptyReply
from glue.events import RunEnd, TurnEnd
from glue.failures import warn_of_notice
from glue.limits import Outcome, StopReason
from glue.loop.pause import last_reply_of
from glue.loop.position import ASK, JOIN, OVER, POSITION, position_of, say
from glue.loop.state import State
from glue.loop.transcript import OURS, next_result, run_start, unanswered
from glue.loop.truncation import NOTICE, end_chain
from glue.messages import AssistantMessage, Message, Messages, Text, UserMessage, new_id
from glue.policies import Stop
from glue.result import RunResult

OVERLONG = "The prompt does not fit the model's context window; it is left out of later requests."


async def end(state: State, stop: Stop) -> RunResult[None]:
    """End a run with the outcome of `stop`, and return the result of the run.

    If the run was cancelled meanwhile, its outcome is `cancelled` instead. Calls without a result
    get an error result, unless the run is paused. The stop reason of the last reply is set, and the
    event RunEnd is emitted.
    """
    state.recorder.ending = True
    await _keep_partial(state)
    state.discard()
    await store_results(state)
    if state.cancel.cancelled and stop.outcome is not Outcome.CANCELLED:
        stop = Stop(Outcome.CANCELLED, Cancelled())
    removed = [each for each in await drop_prompts(state) if each.origin == "nudge"]
    reason = (
        "cancelled"
        if stop.outcome is Outcome.CANCELLED
        else f"not run: the run ended ({stop.outcome})"
    )
    if stop.outcome is not Outcome.PAUSED:
        state.results = unanswered(state.messages, reason)
        await store_results(state)
    if stop.outcome.complete:
        state.position = OVER
    elif stop.outcome is Outcome.PAUSED:
        state.position = position_of(state.messages)
    elif state.position.step in ("call", "await"):
        state.position = ASK
    elif state.position.step == "over":
        state.position = state.position._replace(cut=True)
    elif removed:
        state.position = say(removed[::-1])
    tag = await _tag(state, stop.outcome)
    notice = await _exclude(state, stop.outcome)
    await _keep_position(state)
    if stop.outcome is Outcome.TRUNCATED:
        notice = NOTICE
    written = reply_notices(state.new)
    for text in written:
        warn_of_notice(text)
    notice = "; ".join(filter(None, (notice, *written)))
    if state.chain is not None:
        end_chain(
            state,
            state.chain,
            "empty" if isinstance(stop.error, EmptyReply) else stop.outcome.chain_end,
        )
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
        notice=notice,
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


def reply_notices(messages: Iterable[Message]) -> list[str]:
    """Return the notices in the `meta` of replies and of sub-agents' results, without duplicates.

    A notice is a text for people that a provider wrote.
    """
    metas = (
        message.meta or {}
        for message in messages
        if isinstance(message, AssistantMessage) or "agent" in (message.meta or {})
    )
    found = (str(meta.get("notice") or "") for meta in metas)
    return list(dict.fromkeys(filter(None, found)))


async def _keep_partial(state: State) -> None:
    """Store the text of an interrupted reply and set the step to `join`, unless the text is blank.

    The streamed text becomes a message. At the step `join`, a resumed run asks the model to
    continue the text.
    """
    text, state.partial = "".join(state.partial), []
    if text.strip():
        state.answer = [*state.answer, text] if state.in_chain else [text]
        state.position = JOIN
        message = AssistantMessage(
            id=state.reply_id or new_id(),  # the id that listeners saw with the deltas
            content=(Text(text=text),),
            stop_reason=StopReason.CANCELLED,
            provider=state.provider.name,
        )
        await state.store(message)


async def drop_prompts(state: State) -> list[UserMessage]:
    """Remove the messages that the loop added and that have no reply. Return them, newest first.

    They are removed from the end of the transcript and from the journal.
    """
    dropped: dict[str, UserMessage] = {}
    for messages in (state.messages, state.new):
        index = len(messages)
        while index and isinstance(message := messages[index - 1], UserMessage):
            index -= 1
            if message.origin in OURS:
                dropped[message.id] = message
                del messages[index]
    if dropped:
        await state.recorder.write(lambda journal: journal.drop(tuple(dropped)))
    return list(dropped.values())


async def _tag(state: State, outcome: Outcome) -> StopReason | None:
    """Return the run's stop reason. If `outcome` has a stop reason, store it in the last reply.

    The run's stop reason is the stop reason of `outcome`, or else of the last reply. Return None
    if neither has a stop reason.
    """
    tag = outcome.tag
    if (last := state.last_reply) is None:
        return tag
    if tag is not None and last.stop_reason is not tag:
        await state.recorder.amend(last.id, stop_reason=tag)
    return tag or last.stop_reason


async def _keep_position(state: State) -> None:
    """Store the next step of the run in the last message, unless the messages imply this step.

    A resumed run continues with this step. An excluded message is not changed.
    """
    last = state.messages[-1] if state.messages else None
    if last is not None and not last.excluded and position_of(state.messages) != state.position:
        meta = {**(last.meta or {}), POSITION: state.position.to_json()}
        await state.recorder.amend(last.id, meta=meta)


async def _exclude(state: State, outcome: Outcome) -> str:
    """Exclude a refused run or an overlong prompt from later requests. Return a notice, or "".

    The messages stay in the transcript and in the journal. The notice is returned for a prompt that
    exceeds the context window, and is for the user. Otherwise return "".
    """
    run = state.messages[run_start(state.messages) :] if state.resumed else state.new
    overlong = outcome is Outcome.CONTEXT_WINDOW and not any(
        isinstance(each, AssistantMessage) for each in run
    )
    if not overlong and outcome is not Outcome.REFUSED:
        return ""
    ids = tuple(message.id for message in run)
    for each in ids:
        state.recorder.replace(each, excluded=True)
    await state.recorder.write(lambda journal: journal.exclude(ids))
    return OVERLONG if overlong else ""


async def store_results(state: State) -> None:
    """Move all tool results from `state.results` to the transcript and the journal."""
    while state.results:
        result = state.results.pop(0)
        before = None
        if state.resumed:  # a pause has stored the results of later calls
            before = next_result(state.messages, last_reply_of(state), result.call_id)
        await state.store(result, before=before)


def close_turn(state: State) -> None:
    if state.turn_open:
        state.emit(TurnEnd(turn=state.turn_open))
        state.turn_open = 0

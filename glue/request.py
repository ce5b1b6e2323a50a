"""Sending one request and streaming its reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace

from glue.errors import Cancelled, EmptyReply, MaxTurnsExceeded, ProviderError
from glue.events import LimitReached, MessageStart, OutputCapEscalated, RequestStart, TurnStart
from glue.limits import Outcome
from glue.policies.base import Stop
from glue.policies.budgets import budget_error
from glue.state import State, watched
from glue.types import AssistantMessage, Attempt, Done, Json, ProviderEvent, Request, TextDelta, new_id


@dataclass(slots=True)
class Reply:
    """A whole message, or why there is none."""

    message: AssistantMessage | None = None
    error: ProviderError | None = None
    stop: Stop | None = None


async def send(state: State, request: Request) -> Reply:
    """Send one request and stream its reply, watching for cancellation."""
    if not state.in_chain:
        state.turn_open = state.turns + 1
        state.emit(TurnStart(turn=state.turn_open))
    state.requests += 1
    state.purse.spend(requests=1)
    state.offered = frozenset(spec.name for spec in request.tools)
    state.partial = []
    if state.on_event is not None:
        state.emit(RequestStart(number=state.requests, request=request))
    reply = Reply()
    with watched(state) as scope:
        stream = None
        try:
            stream = state.provider.stream(request)
            reply = await _stream(state, stream)
        except ProviderError as error:
            reply = Reply(error=error)
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()
    if reply.message is None and reply.stop is None:  # what was streamed is paid for, whatever came of it
        state.charge_lost(reply.error.usage if reply.error is not None else None)
    if state.cancel.cancelled or scope.cancelled_caught:
        reply.stop = cut_short(state)
    return reply


def cut_short(state: State) -> Stop:
    """Say why something that was under way was cancelled."""
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    return Stop(Outcome.BUDGET, budget_error(state, "seconds"))


async def _stream(state: State, stream: AsyncIterator[ProviderEvent]) -> Reply:
    partial, drain, cancel, listening = state.partial, state.drain, state.cancel, state.on_event is not None
    state.reply_id = ""
    before = len(state.attempts)
    async for event in stream:
        if isinstance(event, TextDelta):
            partial.append(event.text)
        elif isinstance(event, Done):
            message = replace(event.message, id=state.reply_id) if state.reply_id else event.message
            if not state.reply_id:  # a reply without deltas
                state.emit(MessageStart(id=message.id, role="assistant"))
            return Reply(message=_noted(message, state.attempts[before:]))
        elif isinstance(event, Attempt):
            if (stop := _attempted(state, event)) is not None:
                return Reply(stop=stop)
            continue
        if not state.reply_id:
            state.reply_id = new_id()
            state.emit(MessageStart(id=state.reply_id, role="assistant"))
        if listening:
            state.tell(event)
        if cancel.cancelled:  # a block may hold many deltas and no checkpoint
            return Reply()
        if drain is not None:
            await drain()
    name = state.provider.name
    if state.reply_id:
        return Reply(error=ProviderError("the stream ended early", kind="protocol", provider=name, emitted=True))
    return Reply(error=EmptyReply(provider=name))


def _noted(message: AssistantMessage, tried: Sequence[Attempt]) -> AssistantMessage:
    """Write the tries that failed on the reply they led to, so that a stored transcript tells of them."""
    if not tried:
        return message
    return replace(message, meta={**(message.meta or {}), "attempts": [_said(attempt) for attempt in tried]})


def _said(attempt: Attempt) -> dict[str, Json]:
    said = {name: value for name, value in asdict(attempt).items() if value not in (None, "", 0.0)}
    return said | ({"seconds": round(attempt.seconds, 3)} if attempt.seconds else {})


def _attempted(state: State, attempt: Attempt) -> Stop | None:
    """Count a further try of a wrapper; there may be no request left for it."""
    state.attempts.append(attempt)
    state.charge_lost(attempt.usage)
    if not state.may_ask():
        state.emit(attempt)
        return exhausted(state, "requests")  # what was cut off is all there is, and is kept
    state.partial.clear()
    if attempt.next_cap is not None:
        escalations = sum(1 for earlier in state.attempts if earlier.next_cap is not None)
        previous, discarded = attempt.previous_cap or 0, state.reply_id or attempt.discarded
        state.emit(
            OutputCapEscalated(attempt=escalations, previous=previous, new=attempt.next_cap, discarded=discarded)
        )
    state.emit(attempt)
    state.reply_id = ""
    state.requests += 1
    state.purse.spend(requests=1)
    return None


def exhausted(state: State, kind: str) -> Stop:
    """End a run for want of turns or requests, its own or those of a run above."""
    used, most = state.turns, state.limits.max_turns
    if kind == "requests":
        used, most = next(
            (purse.requests, limits.max_requests)
            for purse, limits in state.purses()
            if limits.max_requests is not None and purse.requests >= limits.max_requests
        )
    state.emit(LimitReached(kind=kind, used=used, max=most or 0))
    meta = {"turns": state.turns, "requests": state.requests, f"max_{kind}": most}
    return Stop(Outcome.MAX_TURNS, MaxTurnsExceeded(most or 0, used, kind), meta)

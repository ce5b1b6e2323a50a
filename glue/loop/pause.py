"""Pending calls: store a record of each call, end the run, and restore the run when it resumes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glue.codec import from_json, to_plain
from glue.context import AnyTool, Context, Spending, ToolResult
from glue.errors import RunPaused
from glue.limits import Outcome
from glue.loop.state import State
from glue.loop.transcript import last_reply
from glue.messages import AssistantMessage, Json, ToolCall, Usage
from glue.pending import (
    LATER,
    PENDING,
    SPENT,
    STARTED,
    VOTES,
    CallDeferred,
    inner_decisions,
    pending_calls,
    record_of,
    waiting_records,
)
from glue.policies import Stop

if TYPE_CHECKING:
    from glue.decision import Decision, PermissionRequest

# Counters of a run that continue after a pause.
_COUNTERS = ("turns", "requests", "continuations", "repairs", "batches", "wrapped_up")
_SPENDING = ("requests", "tokens_in", "tokens_out", "usd")


def question(
    state: State, call: ToolCall
) -> Callable[[PermissionRequest, Awaitable[Decision]], Awaitable[Decision]] | None:
    """If the run has a journal, return a function that awaits a decision on `call`, else None.

    The function writes the question to the journal before the person is asked, and the consent
    before the call runs. It returns the decision. If the process dies in between, another process
    can ask again, and no call runs twice.
    """
    if state.recorder.journal is None:
        return None

    async def ask(request: PermissionRequest, answer: Awaitable[Decision]) -> Decision:
        await _note(state, **{PENDING: {call.id: record_of(request.arguments, request)}})
        decision = await answer
        if decision.allowed:
            await _note_started(state, call.id)
        return decision

    return ask


async def apply_decision(
    state: State,
    tool: AnyTool,
    call: ToolCall,
    record: Mapping[str, Json],
    context: Context[Any],
) -> tuple[ToolResult | None, Context[Any]]:
    """Apply the decision on a pending call. Return the result, or None, and the call's context.

    If the call still has to run, the result is None, and the caller runs the call with the returned
    context. The permission policy remembers the decision. Raise CallDeferred if the decision is to
    wait longer.
    """
    # Start-up: few runs have pending calls.
    from glue.decision import Decision, PermissionRequest
    from glue.function.call import supplied_result
    from glue.function.guard import Decided, denied
    from glue.permission import remember_decision

    decision = state.decisions.get(call.id)
    if decision is not None and not isinstance(decision, Decision):
        return await supplied_result(tool, decision), context
    if decision is not None:
        if decision.deferred:
            raise _still_waiting(record, decision.reason)
        if "request" not in record:  # of an external tool, which only a person or program runs
            arguments: Any = record.get("arguments", {})
            request = PermissionRequest(tool=call.name, action=call.name, arguments=arguments)
            return denied(request, decision), context
        request = from_json(PermissionRequest, record["request"])
        request = replace(request, session_id=context.scope)
        remember_decision(state.host.permission, request, decision)
        if not decision.allowed:
            return denied(request, decision), context
    await _note_started(state, call.id)
    decided = Decided(record=record, decisions=inner_decisions(call.id, state.decisions))
    return None, replace(context, decided=decided)


def _still_waiting(record: Mapping[str, Json], reason: str) -> CallDeferred:
    """Return the exception for a call that waits longer: with its record, and with a new reason."""
    waiting = CallDeferred({})
    waiting.record = {**record, **({"reason": reason} if reason else {})}
    return waiting


async def _note_started(state: State, id: str) -> None:
    """Record in the journal that the call `id` was allowed, and may run from now on."""
    await _note(state, **{STARTED: [id]})


async def record_pending(
    state: State,
    waiting: Mapping[str, Mapping[str, Json]],
    later: Sequence[str],
    votes: Sequence[str],
) -> None:
    """Record the pending calls in the journal, so that another process can decide on them.

    Args:
        state: the state of the run.
        waiting: records of the pending calls, by call id.
        later: ids of calls that run after the pending calls.
        votes: ids of calls whose results ask to end the run.
    """
    reply = last_reply_of(state)
    meta = dict(reply.meta or {})
    started = [each for each in meta.get(STARTED, ()) if each not in waiting]
    records = {key: {**record, "deferred": True} for key, record in waiting.items()}
    fields = {
        PENDING: {**meta.get(PENDING, {}), **records},
        STARTED: started,
        LATER: list(later),
        VOTES: [*meta.get(VOTES, ()), *votes],
    }
    for name, value in fields.items():
        meta.pop(name, None)
        if value:
            meta[name] = value
    await state.recorder.amend(reply.id, meta=meta)


async def stop_paused(state: State) -> Stop:
    """Record the spending of the run in the journal, and return the Stop that pauses the run."""
    reply = last_reply_of(state)
    spent: dict[str, Json] = {name: getattr(state, name) for name in _COUNTERS}
    spent["run_id"] = state.host.run_id
    spent["spending"] = {name: getattr(state.spending, name) for name in _SPENDING}
    spent["usage"] = to_plain(state.usage)
    await state.recorder.amend(reply.id, meta={**(reply.meta or {}), SPENT: spent})
    calls = pending_calls(state.messages)
    return Stop(Outcome.PAUSED, RunPaused(calls, state.host.session_id))


def restore(state: State) -> None:
    """Set the counters, the spending and the id of a run to those of the run that was paused.

    Do nothing if the last reply has no record of them.
    """
    spent = (last_reply_of(state).meta or {}).get(SPENT)
    if not spent:
        return
    for name in _COUNTERS:
        setattr(state, name, spent[name])
    # The spending is not added to the parent's: the record of the parent includes it already.
    spending = Spending(state.spending.parent)
    spending.started = state.spending.started
    spending.usage = from_json(Usage, spent["usage"])
    for name in _SPENDING:
        setattr(spending, name, spent["spending"][name])
    state.spending = spending
    state.host = replace(state.host, run_id=spent["run_id"])


def waiting_call(state: State, call: ToolCall) -> Mapping[str, Json] | None:
    """Return the record of a pending call, or None if the call is not pending or has started.

    The record is in the `meta` of the last reply.
    """
    return waiting_records(last_reply_of(state)).get(call.id)


async def _note(state: State, **changes: Any) -> None:
    """Merge `changes` into the `meta` of the last reply, in memory and in the journal."""
    reply = last_reply_of(state)
    meta = dict(reply.meta or {})
    for name, change in changes.items():
        if isinstance(change, dict):
            meta[name] = {**meta.get(name, {}), **change}
        else:
            meta[name] = [*meta.get(name, ()), *change]
    await state.recorder.amend(reply.id, meta=meta)


def last_reply_of(state: State) -> AssistantMessage:
    reply = last_reply(state.messages)
    assert reply is not None, "the transcript contains no reply"
    return reply

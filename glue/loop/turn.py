"""One turn: send a request, stream its reply, run the tool calls of the reply."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from glue import events, provider
from glue.context import AnyTool, Context, ToolResult, error_result
from glue.errors import Cancelled, EmptyReply, MaxTurnsExceeded, ProviderError
from glue.events import (
    MessageStart,
    RequestStart,
    ToolEnd,
    ToolStart,
    TurnStart,
)
from glue.failures import failure_result, warn_once
from glue.limits import Outcome, StopReason
from glue.loop.pause import apply_decision, question, waiting_call
from glue.loop.position import DROPPED_CALLS
from glue.loop.state import State, watched
from glue.messages import (
    AssistantMessage,
    Json,
    Part,
    Request,
    ToolCall,
    ToolMessage,
    check_parts,
    new_id,
)
from glue.pending import VOTES, CallDeferred, inner_decisions
from glue.policies import Stop
from glue.policies.budgets import out_of_time
from glue.provider import Done, TextDelta, ThinkingDelta, ToolCallDelta, opened
from glue.text import cut

if TYPE_CHECKING:
    from glue.provider import Attempt, ProviderEvent

MAX_NAMES = 40  # tools that a message about an unknown tool lists


class Answered(NamedTuple):
    """The reply to a request or the error of the request, and the Stop if the run has to end."""

    message: AssistantMessage | None = None
    error: ProviderError | None = None
    stop: Stop | None = None


async def send(state: State, request: Request) -> Answered:
    """Send one request; return its reply or its error, and a Stop if the run has to end."""
    if not state.turn_open:
        state.turn_open = state.turns + 1
        state.emit(TurnStart(turn=state.turn_open))
    state.count_request()
    state.offered = frozenset(spec.name for spec in request.tools)
    state.discard()  # an earlier reply without content, which was not stored
    if state.on_event is not None:
        state.emit(RequestStart(number=state.requests, request=request))
    reply = Answered()
    with watched(state) as scope:
        try:
            async with opened(state.provider, request) as stream:
                reply = await _stream(state, stream)
        except ProviderError as error:
            reply = Answered(error=error)
    if reply.message is None and reply.stop is None:
        # The provider charges for the streamed part of a reply that failed.
        state.charge_lost(reply.error.usage if reply.error is not None else None)
    if state.cancel.cancelled or scope.cancelled_caught:
        return reply._replace(stop=cut_short(state))
    return reply


def cut_short(state: State) -> Stop:
    """Return the Stop for a cancelled run, or emit LimitReached and return the Stop for a timeout.

    Call this only if the run was cancelled or is out of time.
    """
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    return Stop(Outcome.BUDGET, out_of_time(state))


async def _stream(state: State, stream: AsyncIterator[ProviderEvent]) -> Answered:
    partial, cancel = state.partial, state.cancel
    drain = getattr(state.on_event, "drain", None)
    emit = state.emit if state.on_event is not None else None
    state.reply_id = ""
    before = len(state.attempts)
    async for event in stream:
        if isinstance(event, TextDelta):
            partial.append(event.text or "")  # some providers send None
        elif isinstance(event, Done):
            message = _checked(state, event.message)
            if not state.reply_id:  # a reply without deltas
                state.reply_id = message.id
                state.emit(MessageStart(id=message.id, role="assistant"))
            if message.id != state.reply_id:
                message = replace(message, id=state.reply_id)
            return Answered(message=_with_attempts(message, state.attempts[before:]))
        elif isinstance(event, (ThinkingDelta, ToolCallDelta)):
            pass  # the complete parts are in the message of Done
        elif isinstance(event, provider.Attempt):
            if (stop := _count_attempt(state, event)) is not None:
                return Answered(stop=stop)
            continue
        elif isinstance(event, provider.Notice):
            warn_once(f"{event.provider}: {event.text}")
            state.emit(event)
            continue
        if not state.reply_id:
            state.reply_id = new_id()
            state.emit(MessageStart(id=state.reply_id, role="assistant"))
        if emit is not None:
            emit(event)
        if cancel.cancelled:  # many deltas may come without a checkpoint
            return Answered()
        if drain is not None:
            await drain()
    name = state.provider.name
    if state.reply_id:
        return Answered(
            error=ProviderError(
                "the stream ended before the reply was complete",
                kind="protocol",
                provider=name,
                emitted=True,
            )
        )
    return Answered(error=EmptyReply(provider=name))


def _checked(state: State, message: AssistantMessage) -> AssistantMessage:
    """Correct an invalid stop reason and repeated call ids of a reply, and return the reply.

    Raise TypeError if the reply is not an AssistantMessage with parts as its content.
    """
    if not isinstance(message, AssistantMessage):
        raise TypeError(
            f"the stream of {state.provider.name} must end in"
            " Done(message=glue.AssistantMessage(...)),"
            f" not {message!r}"
        )
    content = check_parts(f"the content of a reply of {state.provider.name}", message.content)
    if content is not message.content:
        message = replace(message, content=content)
    reason, raw = message.stop_reason, message.raw_stop_reason
    if not isinstance(reason, StopReason):
        known = reason in frozenset(StopReason)
        raw = raw if raw is not None or known else str(reason)
        message = replace(
            message,
            stop_reason=StopReason(reason) if known else StopReason.UNKNOWN,
            raw_stop_reason=raw,
        )
    ids = [call.id for call in message.calls]
    if len(set(ids)) == len(ids):
        return message
    seen: set[str] = set()
    renamed: list[Part] = []
    for part in content:
        if isinstance(part, ToolCall):
            name, number = part.id, 2
            while name in seen:
                name, number = f"{part.id}_{number}", number + 1
            seen.add(name)
            part = replace(part, id=name)
        renamed.append(part)
    return replace(message, content=tuple(renamed))


_UNKNOWN = (None, "", 0.0)  # values of an attempt that are not stored


def _with_attempts(message: AssistantMessage, tried: Sequence[Attempt]) -> AssistantMessage:
    """Return the reply with the failed attempts `tried` stored in its `meta`, if there were any."""
    if not tried:
        return message
    attempts: list[dict[str, Json]] = []
    for attempt in tried:
        values = replace(attempt, seconds=round(attempt.seconds, 6))
        known = {name: value for name, value in asdict(values).items() if value not in _UNKNOWN}
        attempts.append(known)
    return replace(message, meta={**(message.meta or {}), "attempts": attempts})


def _count_attempt(state: State, attempt: Attempt) -> Stop | None:
    """Record a failed attempt. Return a Stop if `max_requests` is reached, else None.

    Without a Stop, the next attempt is counted as a request.
    """
    state.attempts.append(attempt)
    state.charge_lost(attempt.usage)
    if not state.may_ask():
        state.emit(attempt)
        return exhausted(state, "requests")  # the text that was streamed so far is stored
    if attempt.next_cap is not None:
        escalations = sum(1 for earlier in state.attempts if earlier.next_cap is not None)
        previous, discarded = attempt.previous_cap or 0, state.reply_id or attempt.discarded
        state.emit(
            events.OutputCapEscalated(
                attempt=escalations, previous=previous, new=attempt.next_cap, discarded=discarded
            )
        )
    state.discard()
    state.emit(attempt)
    state.count_request()
    return None


def exhausted(state: State, kind: str) -> Stop:
    """Emit LimitReached and return the Stop for a run that has no turn or request left.

    `kind` is "turns" or "requests". The requests may be those of a run that called this run.
    """
    used, most = state.turns, state.limits.max_turns
    if kind == "requests":
        used, most = next(
            (spending.requests, limits.max_requests)
            for spending, limits in state.budgets()
            if limits.max_requests is not None and spending.requests >= limits.max_requests
        )
    state.emit(events.LimitReached(kind=kind, used=used, max=most or 0))
    meta = {"turns": state.turns, "requests": state.requests, f"max_{kind}": most}
    return Stop(Outcome.MAX_TURNS, MaxTurnsExceeded(most or 0, used, kind), meta)


class Batch:
    """The tool calls of one reply, and their results by the index of the call."""

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self.calls = calls
        self.started: dict[int, float] = {}  # times of `time.monotonic`
        self.waited: dict[int, list[float]] = {}  # seconds, for permissions
        self.messages: dict[int, ToolMessage] = {}
        self.waiting: dict[int, Mapping[str, Json]] = {}  # records of deferred calls
        self.later: list[int] = []  # calls that run after the deferred calls
        self.votes: list[str] = []  # ids of calls whose results ask to end the run

    def in_order(self) -> list[ToolMessage]:
        """Return the results so far, in the order of the calls."""
        return [self.messages[index] for index in sorted(self.messages)]

    def ends_run(self, state: State, reply: AssistantMessage) -> bool:
        """Return whether no call was cut and all results but those of advisory tools end the run.

        A result asks to end the run if its `terminate` is set and it is not an error. Return False
        if all tools are advisory.
        """
        meta = reply.meta or {}
        votes = {*self.votes, *meta.get(VOTES, ())}
        if not votes:
            return False
        counted = [
            call.id
            for call in reply.calls
            if not ((tool := state.tools.get(call.name)) and tool.advisory)
        ]
        return bool(counted) and DROPPED_CALLS not in meta and votes.issuperset(counted)


async def run_batch(state: State, calls: Sequence[ToolCall]) -> Batch:
    """Run the calls of a reply, and return a Batch with their results.

    The results are also put in `state.results`. A cancelled call gets the result "cancelled". A
    call that has to wait for a decision or a result gets no result.
    """
    batch = Batch(calls)
    complete = False
    with watched(state):
        try:
            for group in _groups(state, calls):
                await _run_group(state, batch, group)
            complete = not state.cancel.cancelled
        finally:
            # Also if the enclosing scope is cancelled: the caller stores the results.
            for index in range(len(calls)):
                waits = complete and (index in batch.waiting or index in batch.later)
                if index not in batch.messages and not waits:
                    _record_result(state, batch, index, error_result("cancelled"))
            state.results = batch.in_order()
    return batch


def _groups(state: State, calls: Sequence[ToolCall]) -> list[list[int]]:
    """Return the indexes of the calls in groups: a call of a tool that must run alone is one group.

    The groups run one after the other. The calls of a group run in parallel.
    """
    groups: list[list[int]] = [[]]
    for index, call in enumerate(calls):
        tool = state.tools.get(call.name)
        if tool is not None and tool.alone:
            groups += [[index], []]
        else:
            groups[-1].append(index)
    return groups


async def _run_group(state: State, batch: Batch, group: Sequence[int]) -> None:
    """Run the calls of a group in parallel, or put them off if an earlier call was deferred.

    At most `parallel_tools` calls run at a time. Calls that are put off run when the run is
    resumed.
    """
    limit = state.limits.parallel_tools
    if len(group) <= 1 or limit == 1 or batch.waiting:
        for index in group:
            if batch.waiting:  # a call that does not run in parallel waits for the deferred calls
                batch.later.append(index)
            else:
                await _run_one(state, batch, index)
        return
    slots = anyio.Semaphore(limit)
    raised: list[BaseException] = []

    async def run_beside(index: int) -> None:
        async with slots:
            try:
                await _run_one(state, batch, index)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                # Raised outside of the task group: SystemExit in a task would end the event loop.
                raised.append(error)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for index in group:
            tasks.start_soon(run_beside, index)
    if raised:
        raise raised[0]


async def _run_one(state: State, batch: Batch, index: int) -> None:
    call = batch.calls[index]
    await anyio.lowlevel.checkpoint_if_cancelled()  # the tool may never await anything
    record = waiting_call(state, call)
    if record is not None and record.get("deferred") and not _is_decided(state, call.id):
        batch.waiting[index] = record
        return
    state.emit(ToolStart(call=call))
    batch.started[index] = time.monotonic()
    try:
        context = _context(state, call, batch.waited.setdefault(index, []))
        result = await _result(state, call, record, context)
    except CallDeferred as deferred:
        batch.waiting[index] = deferred.record
        return
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:  # SystemExit, for example: gets a result, and is raised
        _record_result(state, batch, index, error_result(error))
        raise
    _record_result(state, batch, index, result)


def _record_result(state: State, batch: Batch, index: int, result: ToolResult) -> None:
    call = batch.calls[index]
    message = ToolMessage(
        call_id=call.id,
        name=call.name,
        content=result.content,
        is_error=result.is_error,
        meta=result.meta,
    )
    batch.messages[index] = message
    if result.terminate and not result.is_error:
        batch.votes.append(call.id)
    if index in batch.started:
        took = time.monotonic() - batch.started[index]
        seconds = max(took - sum(batch.waited.get(index, ())), 0.0)
        state.emit(ToolEnd(call=call, message=message, seconds=seconds, traceback=result.traceback))


def _is_decided(state: State, id: str) -> bool:
    return id in state.decisions or bool(inner_decisions(id, state.decisions))


async def _result(
    state: State, call: ToolCall, record: Mapping[str, Json] | None, context: Context[Any]
) -> ToolResult:
    """Return the result of a call. Run the tool, unless the call is denied or was given a result.

    For a denied call, and for a tool that is not offered now, return an error result. Return a
    supplied result without running the tool.

    `record` is the record of a call that was pending before the run was resumed, or None.
    """
    tool = state.tools.get(call.name)
    if tool is None or call.name not in state.offered:
        return error_result(_unavailable(state, call.name, tool))
    if record is not None and _is_decided(state, call.id):
        result, context = await apply_decision(state, tool, call, record, context)
        if result is not None:
            return result
    return await _invoke(tool, call, context)


async def _invoke(tool: AnyTool, call: ToolCall, context: Context[Any]) -> ToolResult:
    try:
        result = await tool.invoke(call, context)
        if not isinstance(result, ToolResult):
            raise TypeError(f"tool {call.name!r} must return a glue.ToolResult, not {result!r}")
        return result
    except Exception as error:
        return failure_result(error, f"tool {call.name}")


def _unavailable(state: State, name: str, tool: AnyTool | None) -> str:
    offered = sorted(state.offered)
    there = ", ".join(offered[:MAX_NAMES]) or "none"
    if len(offered) > MAX_NAMES:
        there += f" and {len(offered) - MAX_NAMES} more"
    if tool is not None:
        return f"tool {name!r} is not available now; there are: {there}"
    from difflib import get_close_matches

    name = cut(name, 100)
    close = get_close_matches(name, offered, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    if close and len(offered) > MAX_NAMES:
        return f"unknown tool {name!r}{hint}"
    return f"unknown tool {name!r}{hint}; there are: {there}"


def _context(state: State, call: ToolCall, waited: list[float]) -> Context[Any]:
    def report(text: str, data: Any, event: Any) -> None:
        state.emit(
            events.ToolUpdate(call_id=call.id, name=call.name, text=text, data=data, event=event)
        )

    most = state.limits.max_turns
    return Context(
        call=call,
        host=state.host,
        cancel=state.cancel,
        spending=state.spending,
        report=report,
        limits=state.limits,
        turns_left=None if most is None else max(most - state.turns, 0),
        ask=question(state, call),
        waited=waited,
        provider=state.provider,
    )

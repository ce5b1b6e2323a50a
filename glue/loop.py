"""The loop: ask the model, judge the reply, call the tools it names, end well.

READY -> REQUEST -> JUDGE -> TOOLS or SETTLE -> READY ... END. Each state is a function below, in the
order of use. Policies answer hooks, wrappers wrap a provider, listeners listen: none is a branch here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack, cast

import anyio

from glue.batch import run_batch
from glue.context import AnyTool, Cancel, Host
from glue.errors import Cancelled, ContextOverflow, EmptyReply, FailoverError, MaxTurnsExceeded, ProviderError
from glue.events import (
    Compacted,
    LimitReached,
    Listener,
    MessageStart,
    OutputCapEscalated,
    RequestStart,
    RunEnd,
    RunStart,
    StopReasonObserved,
    TurnEnd,
    TurnStart,
)
from glue.limits import Limits, Outcome, StopReason
from glue.policies.base import Answer, Change, Deliver, Hook, Policy, Rewrite, Say, Stop
from glue.policies.budgets import budget_error
from glue.result import RunResult
from glue.start import Options, start
from glue.state import Journal, State, seconds_left
from glue.transcript import OURS, History, estimate, has_content, unanswered
from glue.truncation import NOTICE, Verdict, end_chain, end_repair, is_whole, judge_cut, merge, visible_text, was_cut
from glue.types import (
    AssistantMessage,
    Attempt,
    Done,
    Message,
    Provider,
    ProviderEvent,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolMessage,
    UserMessage,
    new_id,
)


async def run(
    provider: Provider,
    messages: str | Sequence[Message],
    *,
    tools: Iterable[AnyTool] = (),
    limits: Limits | Callable[[], Limits] | None = None,
    request: Request | None = None,
    policies: Iterable[Policy] = (),
    host: Host | None = None,
    on_event: Listener | None = None,
    cancel: Cancel | None = None,
    journal: Journal | None = None,
) -> RunResult[None]:
    """Ask the model, run the tools it names, repeat until it names none or a limit says so.

    `request` is the template of every request: system, model, max_tokens and the like.
    """
    options = Options(
        tools=tools,
        limits=limits,
        request=request,
        policies=policies,
        host=host,
        on_event=on_event,
        cancel=cancel,
        journal=journal,
    )
    return await _drive(start(provider, messages, options))


async def run_continue(provider: Provider, messages: Sequence[Message], **options: Unpack[Options]) -> RunResult[None]:
    """Go on from where a transcript stands, with no new prompt. Options as for `run`."""
    return await _drive(start(provider, messages, options, resume=True))


async def _drive(state: State) -> RunResult[None]:
    state.emit(RunStart(run_id=state.host.run_id, identity=state.host.identity))
    stop: Stop | None = None
    try:
        stop = await _turns(state)
    finally:
        if stop is None:  # the enclosing scope was cancelled, or a bug: leave a valid transcript behind
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 5):
                await _end(state, Stop(Outcome.CANCELLED, Cancelled()))
    return await _end(state, stop)


async def _turns(state: State) -> Stop:
    while True:
        ready = await _ready(state)
        if isinstance(ready, Stop):
            return ready
        reply = await _request(state, ready)
        verdict = await _judge(state, reply)
        stop = await _apply(state, verdict)
        if stop is None and verdict.store is not None and verdict.then == "tools":
            stop = await _tools(state, verdict.store.calls, verdict.dropped)
        elif stop is None and verdict.store is not None and verdict.then == "settle":
            stop = await _settle(state, verdict.store)
        if stop is not None:
            return stop


# READY --------------------------------------------------------------------------------------------


async def _ready(state: State) -> Request | Stop:
    """Check the limits and ask the policies; return the request to send."""
    state.refresh()
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    if not state.in_chain and not state.may_turn():
        return _exhausted(state, "turns", state.limits.max_turns, state.turns)
    if not state.may_ask():
        return _exhausted(state, "requests", state.limits.max_requests, state.requests)
    request = _build(state)
    for policy in state.policies:
        if state.in_chain and not policy.in_chain:
            continue
        answer = await _answer(policy.before_request(state, request))
        if isinstance(answer, Stop):
            return answer
        if isinstance(answer, Change):
            request = answer.request
        elif isinstance(answer, Rewrite):
            await _rewrite(state, answer.messages)
        elif isinstance(answer, Say):
            for message in answer.messages:
                await state.store(message)
            break
    return replace(request, messages=state.history.view(state.messages))


def _exhausted(state: State, kind: str, most: int | None, used: int) -> Stop:
    state.emit(LimitReached(kind=kind, used=used, max=most or 0))
    meta = {"turns": state.turns, "requests": state.requests, f"max_{kind}": most}
    return Stop(Outcome.MAX_TURNS, MaxTurnsExceeded(most or 0, used, kind), meta)


def _build(state: State) -> Request:
    # A forced choice holds until the first batch has run; for ever, the model could never settle.
    choice = "auto" if state.batches and state.limits.tool_choice != "none" else state.limits.tool_choice
    return replace(state.template, tools=state.specs, tool_choice=choice)


async def _answer(hook: Hook) -> Answer:
    return await hook if inspect.isawaitable(hook) else hook


async def _rewrite(state: State, messages: Sequence[Message]) -> None:
    """Go on with a shorter transcript; what stays keeps its identity."""
    before = state.messages
    kept = {message.id for message in messages}
    removed = [message.id for message in before if message.id not in kept and not message.excluded]
    old = {message.id for message in before}
    state.messages, state.history = list(messages), History()
    state.emit(
        Compacted(
            before=estimate(before, state.limits.estimator),
            after=estimate(messages, state.limits.estimator),
            removed=len(removed),
        )
    )
    if state.journal is None:
        return
    await state.journal.exclude(removed)
    for index, message in reversed(list(enumerate(messages))):
        if message.id in old:
            continue
        if index + 1 < len(messages):
            await state.journal.insert(message, messages[index + 1].id)
        else:
            await state.journal.append(message)


# REQUEST ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reply:
    """A whole message, or why there is none."""

    message: AssistantMessage | None = None
    error: ProviderError | None = None
    stop: Stop | None = None


async def _request(state: State, request: Request) -> _Reply:
    """Send one request and stream its reply, watching for cancellation."""
    if not state.in_chain:
        state.turn_open = True
        state.emit(TurnStart(turn=state.turns + 1))
    state.requests += 1
    state.purse.spend(requests=1)
    state.offered = frozenset(spec.name for spec in request.tools)
    state.partial = []
    if state.on_event is not None:
        state.emit(RequestStart(number=state.requests, request=request))
    reply = _Reply()
    with anyio.CancelScope() as scope:
        left = seconds_left(state)
        if left is not None:
            scope.deadline = anyio.current_time() + max(left, 0)
        state.cancel.attach(scope.cancel)
        stream = state.provider.stream(request)
        try:
            reply = await _stream(state, stream)
        except ProviderError as error:
            reply = _Reply(error=error)
        finally:
            state.cancel.detach(scope.cancel)
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()
    if state.cancel.cancelled:
        reply.stop = Stop(Outcome.CANCELLED, Cancelled())
    elif scope.cancelled_caught:
        reply.stop = Stop(Outcome.BUDGET, budget_error(state, "seconds"))
    return reply


async def _stream(state: State, stream: AsyncIterator[ProviderEvent]) -> _Reply:
    partial, drain, listening = state.partial, state.drain, state.on_event is not None
    state.reply_id = ""
    async for event in stream:
        if isinstance(event, TextDelta):
            partial.append(event.text)
        elif isinstance(event, Done):
            return _Reply(message=replace(event.message, id=state.reply_id) if state.reply_id else event.message)
        elif isinstance(event, Attempt):
            if (stop := _attempted(state, event)) is not None:
                return _Reply(stop=stop)
            continue
        if not state.reply_id:
            state.reply_id = new_id()
            state.emit(MessageStart(id=state.reply_id, role="assistant"))
        if listening:
            state.tell(event)
        if drain is not None:
            await drain()
    name = state.provider.name
    if state.reply_id:
        return _Reply(error=ProviderError("the stream ended early", kind="protocol", provider=name, emitted=True))
    return _Reply(error=EmptyReply(provider=name))


def _attempted(state: State, attempt: Attempt) -> Stop | None:
    """Count a further try of a wrapper; there may be no request left for it."""
    state.attempts.append(attempt)
    state.partial.clear()
    if attempt.usage is not None:
        state.charge_reply(attempt.usage, str)
    if attempt.next_cap is not None:
        escalations = sum(1 for earlier in state.attempts if earlier.next_cap is not None)
        previous, discarded = attempt.previous_cap or 0, state.reply_id or attempt.discarded
        state.emit(
            OutputCapEscalated(attempt=escalations, previous=previous, new=attempt.next_cap, discarded=discarded)
        )
    state.emit(attempt)
    state.reply_id = ""
    if not state.may_ask():
        return _exhausted(state, "requests", state.limits.max_requests, state.requests)
    state.requests += 1
    state.purse.spend(requests=1)
    return None


# JUDGE --------------------------------------------------------------------------------------------


async def _judge(state: State, reply: _Reply) -> Verdict:
    """Decide what becomes of a reply; the first rule that matches wins."""
    message = reply.message
    if message is not None:
        state.charge_reply(message.usage, lambda: message.text)
        state.emit(
            StopReasonObserved(
                provider=message.provider,
                model=message.model,
                normalized=message.stop_reason,
                raw=message.raw_stop_reason,
                run_id=state.host.run_id,
                request=state.requests,
            )
        )
        if message.stop_reason is StopReason.CANCELLED and reply.stop is None:
            reply.stop = Stop(Outcome.CANCELLED, Cancelled("the provider cancelled the reply"))
    if reply.stop is not None:
        return Verdict(then="end", stop=reply.stop)
    if message is None:
        return await _judge_failure(state, cast(ProviderError, reply.error))
    state.partial = []
    return _judge_message(state, message)


async def _judge_failure(state: State, error: ProviderError) -> Verdict:
    state.partial = []
    if isinstance(error, FailoverError):
        state.attempts += [attempt for attempt in error.attempts if attempt not in state.attempts]
    if error.usage is not None:
        state.charge_reply(error.usage, str)
    if error.kind == "context_overflow":
        if await _compact(state):
            return Verdict(then="again")
        overflow = ContextOverflow(str(error))
        overflow.__cause__ = error
        return Verdict(then="end", stop=Stop(Outcome.CONTEXT_WINDOW, overflow))
    if error.kind == "content_filter":
        return Verdict(then="end", stop=Stop(Outcome.REFUSED, meta={"refusal": str(error)}))
    return Verdict(then="end", stop=Stop(Outcome.FAILED, error))


async def _compact(state: State) -> bool:
    """Shorten the transcript once, and only if that helps."""
    if state.compacted:
        return False
    state.compacted = True
    for policy in state.policies:
        messages = await policy.compact(state)
        if messages is None:
            continue
        before = estimate(state.messages, state.limits.estimator)
        if estimate(messages, state.limits.estimator) < before:
            await _rewrite(state, messages)
            return True
    return False


def _judge_message(state: State, message: AssistantMessage) -> Verdict:
    reason = message.stop_reason
    if reason is StopReason.REFUSAL:
        return Verdict(then="end", store=_text_only(message), stop=Stop(Outcome.REFUSED))
    if reason is StopReason.CONTEXT_WINDOW:
        return Verdict(then="end", store=_text_only(message), stop=Stop(Outcome.CONTEXT_WINDOW, ContextOverflow()))
    if reason is StopReason.ERROR:
        error = ProviderError("the reply ended in an error", kind="transient", provider=message.provider)
        return Verdict(then="end", stop=Stop(Outcome.FAILED, error))
    if was_cut(message):
        return judge_cut(state, message)
    end_repair(state, success=any(is_whole(call) for call in message.calls))
    if message.calls:
        return Verdict(then="tools", store=message)
    empty = not has_content(message.content)
    if reason is StopReason.PAUSE_TURN:
        return Verdict(then="again", store=None if empty else message)
    if empty:
        error = EmptyReply(provider=message.provider, model=message.model)
        return Verdict(then="end", stop=Stop(Outcome.FAILED, error))
    return Verdict(then="settle", store=message)


def _text_only(message: AssistantMessage) -> AssistantMessage | None:
    content = tuple(part for part in message.content if not isinstance(part, ToolCall))
    return replace(message, content=content) if has_content(content) else None


async def _apply(state: State, verdict: Verdict) -> Stop | None:
    """Store what the verdict keeps, say what it says, and ask the policies about the reply."""
    if (message := verdict.store) is not None:
        if not state.in_chain:
            state.answer = []
        state.answer.append(visible_text(message))
        await state.store(message)
    if verdict.then != "again" and verdict.stop is None:
        end_chain(state, "completed")
    state.in_chain = verdict.then == "again"
    if verdict.stop is not None:
        return verdict.stop
    if message is not None:
        for policy in state.policies:
            answer = await _answer(policy.on_reply(state, message))
            if isinstance(answer, Stop):
                return answer
    if verdict.prompt is not None:
        await state.store(verdict.prompt)
    return None


# TOOLS --------------------------------------------------------------------------------------------


async def _tools(state: State, calls: Sequence[ToolCall], dropped: int) -> Stop | None:
    """Run a batch, store its results in the order of the calls, and see whether it ends the run."""
    state.turns += 1
    state.batches += 1
    batch = await run_batch(state, calls)
    await _store_results(state)
    _close_turn(state)
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    if (left := seconds_left(state)) is not None and left <= 0:
        return Stop(Outcome.BUDGET, budget_error(state, "seconds"))
    if batch.vote(state, dropped):
        return Stop(Outcome.DONE)
    for policy in state.policies:
        answer = await _answer(policy.after_tools(state, batch.messages))
        if isinstance(answer, Stop):
            return answer
        if isinstance(answer, Say):
            await _say(state, answer)
            break
    return None


async def _store_results(state: State) -> None:
    while state.pending:
        await state.store(state.pending.pop(0))


async def _say(state: State, answer: Say) -> None:
    state.turns += 1
    for message in answer.messages:
        await state.store(message)


def _close_turn(state: State) -> None:
    if state.turn_open:
        state.turn_open = False
        state.emit(TurnEnd(turn=state.turns))


# SETTLE -------------------------------------------------------------------------------------------


async def _settle(state: State, reply: AssistantMessage) -> Stop | None:
    """The model named no tool: a policy may keep the run going, while a turn and a request are left."""
    _close_turn(state)
    state.refresh()
    done = Stop(Outcome.WRAPPED_UP if state.wrapped_up else Outcome.DONE)
    # What a policy says counts a turn of its own, and the answer to it needs another.
    if state.cancel.cancelled or not state.may_turn(2) or not state.may_ask():
        return done
    for policy in state.policies:
        answer = await _answer(policy.on_settle(state, reply))
        if isinstance(answer, Stop):
            return answer
        if isinstance(answer, Say):
            await _say(state, answer)
            return None
        if isinstance(answer, Deliver):
            await _deliver(state, answer)
            return done
    return done


async def _deliver(state: State, answer: Deliver) -> None:
    """Keep a text as if the delivery tool had been called with it; no provider ever sees that."""
    state.delivered = answer.text
    state.answer = [answer.text]
    content = (Text(text=answer.text),)
    await state.store(ToolMessage(call_id="delivered", name=answer.tool, content=content, excluded=True))


# END ----------------------------------------------------------------------------------------------

_TAGS = {
    Outcome.MAX_TURNS: StopReason.MAX_TURNS,
    Outcome.BUDGET: StopReason.TOKEN_BUDGET,
    Outcome.CONTEXT_WINDOW: StopReason.CONTEXT_WINDOW,
    Outcome.TRUNCATED: StopReason.MAX_TOKENS,
    Outcome.REFUSED: StopReason.REFUSAL,
    Outcome.CANCELLED: StopReason.CANCELLED,
    Outcome.FAILED: StopReason.ERROR,
}
_CHAIN_ENDS = {
    Outcome.CANCELLED: "cancelled",
    Outcome.REFUSED: "safety_blocked",
    Outcome.MAX_TURNS: "budget_exhausted",
    Outcome.BUDGET: "budget_exhausted",
}


async def _end(state: State, stop: Stop) -> RunResult[None]:
    """Leave a valid transcript, tag the last reply, tell the listeners, return everything."""
    if state.cancel.cancelled and stop.outcome is not Outcome.CANCELLED:
        stop = Stop(Outcome.CANCELLED, Cancelled())
    await _keep_partial(state)
    await _store_results(state)
    await _drop_prompts(state)
    for message in unanswered(state.new):
        await state.store(message)
    tag = await _tag(state, stop.outcome)
    if stop.outcome is Outcome.REFUSED:
        await _exclude(state)
    if stop.outcome is Outcome.TRUNCATED:
        state.notice = NOTICE
    empty = isinstance(stop.error, EmptyReply)
    end_chain(state, "empty" if empty else _CHAIN_ENDS.get(stop.outcome, "provider_error"))
    _close_turn(state)
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
        text=merge(state.answer),
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
        state.answer = [*state.answer, text] if state.in_chain else [text]
        message = AssistantMessage(
            content=(Text(text=text),), stop_reason=StopReason.CANCELLED, provider=state.provider.name
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
    tag = _TAGS.get(outcome)
    last = next((message for message in reversed(state.new) if isinstance(message, AssistantMessage)), None)
    if last is None:
        return tag
    if tag is None or last.stop_reason is tag:
        return last.stop_reason
    _swap(state, last, replace(last, stop_reason=tag))
    if state.journal is not None:
        await state.journal.amend(last.id, {"stop_reason": str(tag)})
    return tag


async def _exclude(state: State) -> None:
    """Keep a refused run in the log and out of every later request."""
    for message in tuple(state.new):
        _swap(state, message, replace(message, excluded=True))
    if state.journal is not None:
        await state.journal.exclude(tuple(message.id for message in state.new))


def _swap(state: State, old: Message, new: Message) -> None:
    for messages in (state.messages, state.new):
        for index in range(len(messages) - 1, -1, -1):
            if messages[index] is old:
                messages[index] = new
                break

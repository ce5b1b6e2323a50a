"""The loop: ask the model, judge the reply, call the tools it names, end well.

READY -> REQUEST -> JUDGE -> TOOLS or SETTLE -> READY ... END. Each state is a function below, in the
order of use. Policies answer hooks, wrappers wrap a provider, listeners listen: none is a branch here.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, cast

import anyio

from glue.context import AnyTool, Cancel, Host, Purse
from glue.errors import Cancelled, ContextOverflow, EmptyReply, FailoverError, InvalidContinuation, ProviderError
from glue.events import Compacted, Listener, RunStart, StopReasonObserved
from glue.limits import Limits, Outcome, StopReason
from glue.loop.ending import close_turn, end, store_results
from glue.loop.state import Journal, State, watched
from glue.loop.transcript import History, estimate, has_content, message_chars, needs_answer, prompt_start
from glue.loop.truncation import Verdict, end_chain, end_repair, is_whole, judge_cut, visible_text, was_cut
from glue.loop.turn import Reply, cut_short, exhausted, run_batch, send
from glue.messages import AssistantMessage, Message, Request, Text, ToolCall, ToolMessage, UserMessage, user
from glue.options import LoopOptions, Options
from glue.policies import start_policies
from glue.policies.budgets import overspent
from glue.policies.policy import Answer, Change, Deliver, Hook, Policy, Rewrite, Say, Stop
from glue.provider import Provider
from glue.result import RunResult


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
    return await drive(provider, messages, options)


async def run_continue(
    provider: Provider, messages: Sequence[Message], **options: Unpack[LoopOptions]
) -> RunResult[None]:
    """Go on from where a transcript stands, with no new prompt. Options as for `run`."""
    return await drive(provider, messages, Options(**options), resume=True)


def _traced(drive: Callable[..., Awaitable[RunResult[None]]]) -> Callable[..., Awaitable[RunResult[None]]]:
    """Put a span around each run of the bare loop where GLUE_OTEL asks for it; an agent does that by itself."""

    async def run(provider: Provider, *given: Any, **more: Any) -> RunResult[None]:
        options = next(each for each in given if isinstance(each, Options))
        known = options.telemetry is False or (options.host is not None and options.host.telemetry is not None)
        if known or os.environ.get("GLUE_OTEL", "") in ("", "0"):
            return await drive(provider, *given, **more)
        from glue.telemetry import telemetry_of

        telemetry = telemetry_of(True)
        assert telemetry is not None
        return await telemetry.traced(drive)(provider, *given, **more)

    return run


@_traced
async def drive(
    provider: Provider, messages: str | Sequence[Message], options: Options, *, resume: bool = False
) -> RunResult[None]:
    """Take the turns and end, so that a valid transcript is left whatever happens."""
    state = _start(provider, messages, options, resume)
    state.emit(RunStart(run_id=state.host.run_id, identity=state.host.identity))
    try:
        stop = await _turns(state)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 5):
            await end(state, Stop(Outcome.CANCELLED, Cancelled()))
        raise
    except Exception:  # a bug, of a provider or a policy: not ours to hide
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 5):
            await end(state, Stop(Outcome.FAILED))
        raise
    with anyio.CancelScope(shield=True):
        result = await end(state, stop)
    return result


async def _turns(state: State) -> Stop:
    while True:
        ready = await _ready(state)
        if isinstance(ready, Stop):
            return ready
        reply = await send(state, ready)
        verdict = await _judge(state, reply)
        stop = await _apply(state, verdict)
        if stop is None and verdict.store is not None and verdict.then == "tools":
            stop = await _tools(state, verdict.store.calls, verdict.dropped)
        elif stop is None and verdict.store is not None and verdict.then == "settle":
            stop = await _settle(state, verdict.store)
        if stop is not None:
            return stop


# START --------------------------------------------------------------------------------------------


def _start(provider: Provider, messages: str | Sequence[Message], options: Options, resume: bool) -> State:
    """Make the state of a run, or raise ValueError or TypeError that names the argument."""
    if not callable(getattr(provider, "stream", None)):
        raise TypeError(f"provider must have a name and a stream(request) method, not {provider!r}")
    transcript = _transcript(messages, resume)
    tools = _tool_table(options.tools or ())
    limits, source = _limits(options.limits, tools)
    host = options.host or Host()
    above = host.parent
    state = State(
        provider=provider,
        messages=transcript,
        new=[] if resume else transcript[prompt_start(transcript) :],
        tools=tools,
        specs=tuple(tool.spec for tool in tools.values()),
        limits=limits,
        limits_source=source,
        template=options.request or Request(),
        policies=start_policies(options.policies or ()),
        host=host,
        cancel=options.cancel or (above.cancel if above else Cancel()),
        purse=Purse(parent=above.purse if above else None),
        on_event=options.on_event,
        drain=getattr(options.on_event, "drain", None),
        journal=options.journal,
    )
    state.charge_prompt()
    return state


def _limits(
    given: Limits | Callable[[], Limits] | None, tools: Mapping[str, AnyTool]
) -> tuple[Limits, Callable[[], Limits] | None]:
    source = given if callable(given) else None
    limits = source() if source is not None else given or Limits()
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a glue.Limits, or a function that returns one, not {limits!r}")
    if limits.tool_choice not in ("auto", "required", "none", *tools):
        names = ", ".join(repr(name) for name in tools) or "none was given"
        choice = limits.tool_choice
        raise ValueError(f"tool_choice must be 'auto', 'required', 'none' or a tool ({names}), not {choice!r}")
    return limits, source


def _transcript(messages: str | Sequence[Message], resume: bool) -> list[Message]:
    if isinstance(messages, str):
        messages = [user(messages)]
    if not isinstance(messages, Iterable):
        raise TypeError(f"messages must be a list, not {messages!r}")
    transcript = list(messages)
    for message in transcript:
        if not isinstance(message, (UserMessage, AssistantMessage, ToolMessage)):
            raise TypeError(f"messages must be a text or glue messages, not {message!r}")
    if not transcript and not resume:
        raise ValueError("messages must hold at least one message")
    if not needs_answer(transcript):
        what = "the transcript is empty" if not transcript else "the model has answered; say something new"
        raise InvalidContinuation(f"there is nothing to go on from: {what}")
    prompt = transcript[prompt_start(transcript) :]
    if prompt and not any(has_content(message.content) for message in prompt):
        raise ValueError("messages must end in a prompt that says something; it is empty")
    return transcript


def _tool_table(tools: Iterable[AnyTool]) -> dict[str, AnyTool]:
    table: dict[str, AnyTool] = {}
    for tool in tools:
        spec = getattr(tool, "spec", None)
        if spec is None or not callable(getattr(tool, "invoke", None)):
            raise TypeError(f"tools must be made by glue.tool, not {tool!r}")
        if spec.name in table:
            raise ValueError(f"tools must have different names; {spec.name!r} is there twice")
        table[spec.name] = tool
    return table


# READY --------------------------------------------------------------------------------------------


async def _ready(state: State) -> Request | Stop:
    """Check the limits and ask the policies; return the request to send."""
    state.refresh()
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    if not state.in_chain and not state.may_turn():
        return exhausted(state, "turns")
    if not state.may_ask():
        return exhausted(state, "requests")
    request = _build(state)
    for policy in state.policies:
        if state.in_chain and not policy.in_chain:
            continue
        answer = await _answer(state, policy.before_request(state, request))
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


def _build(state: State) -> Request:
    # A forced choice holds until the first batch has run; for ever, the model could never settle.
    choice = "auto" if state.batches and state.limits.tool_choice != "none" else state.limits.tool_choice
    return replace(state.template, tools=state.specs, tool_choice=choice)


async def _answer(state: State, hook: Hook) -> Answer:
    if not inspect.isawaitable(hook):
        return hook
    with watched(state):  # a policy may ask a model or a person
        return await hook
    return cut_short(state)


async def _rewrite(state: State, messages: Sequence[Message]) -> None:
    """Go on with a shorter transcript; what stays keeps its identity."""
    before = state.messages
    kept = {message.id for message in messages}
    removed = [message.id for message in before if message.id not in kept and not message.excluded]
    state.messages, state.history = list(messages), History()
    state.emit(
        Compacted(
            before=estimate(before, state.limits.estimator),
            after=estimate(messages, state.limits.estimator),
            removed=len(removed),
        )
    )
    if state.journal is not None:
        with anyio.CancelScope(shield=True):
            await _log_rewrite(state.journal, messages, removed, {message.id for message in before})


async def _log_rewrite(journal: Journal, messages: Sequence[Message], removed: Sequence[str], old: set[str]) -> None:
    await journal.exclude(removed)
    for index, message in reversed(list(enumerate(messages))):
        if message.id in old:
            continue
        if index + 1 < len(messages):
            await journal.insert(message, messages[index + 1].id)
        else:
            await journal.append(message)


# JUDGE --------------------------------------------------------------------------------------------


async def _judge(state: State, reply: Reply) -> Verdict:
    """Decide what becomes of a reply; the first rule that matches wins."""
    message = reply.message
    if message is not None:
        state.charge_reply(message.usage, lambda: message_chars(message))
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
        kept = _text_only(message) if message is not None else None
        if kept is not None:
            state.partial = []  # else what was streamed is kept
        return Verdict(then="end", store=kept, stop=reply.stop)
    if message is None:
        return await _judge_failure(state, cast(ProviderError, reply.error))
    state.partial = []
    return _judge_message(state, message)


async def _judge_failure(state: State, error: ProviderError) -> Verdict:
    state.partial = []
    if isinstance(error, FailoverError):
        state.attempts += [attempt for attempt in error.attempts if attempt not in state.attempts]
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
        messages: Sequence[Message] | None = None
        with watched(state):
            messages = await policy.compact(state)
        if not messages:
            continue
        before = estimate((message for message in state.messages if not message.excluded), state.limits.estimator)
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
        if not state.joins:
            state.answer = []
        state.answer.append(visible_text(message))
        state.joins = verdict.then == "again"
        await state.store(message)
    if verdict.then != "again" and verdict.stop is None:
        end_chain(state, "completed")
    state.in_chain = verdict.then == "again"
    if verdict.stop is not None:
        return verdict.stop
    if message is not None:
        for policy in state.policies:
            answer = await _answer(state, policy.on_reply(state, message))
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
    await store_results(state)
    close_turn(state)
    state.refresh()
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    if batch.vote(state, dropped):
        return Stop(Outcome.DONE)
    for policy in state.policies:
        answer = await _answer(state, policy.after_tools(state, batch.messages))
        if isinstance(answer, Stop):
            return answer
        if isinstance(answer, Say):
            await _say(state, answer)
            break
    return None


async def _say(state: State, answer: Say) -> None:
    state.turns += 1
    for message in answer.messages:
        await state.store(message)


# SETTLE -------------------------------------------------------------------------------------------


async def _settle(state: State, reply: AssistantMessage) -> Stop | None:
    """The model named no tool: a policy may keep the run going, while a turn and a request are left."""
    close_turn(state)
    state.refresh()
    done = Stop(Outcome.WRAPPED_UP if state.wrapped_up else Outcome.DONE)
    # What a policy says counts a turn of its own, and the answer to it needs another.
    if state.cancel.cancelled or not state.may_turn(2) or not state.may_ask() or overspent(state) is not None:
        return done
    for policy in state.policies:
        answer = await _answer(state, policy.on_settle(state, reply))
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

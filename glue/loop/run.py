"""The loop: ask the model, judge the reply, call the tools it names, end well.

READY -> REQUEST -> JUDGE -> TOOLS or SETTLE -> READY ... END. Each state is a function below, in the
order of use. Policies answer hooks, wrappers wrap a provider, listeners listen: none is a branch here.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack, cast

import anyio

from glue.context import Cancel, Host, Spending
from glue.errors import (
    Cancelled,
    ContextOverflow,
    EmptyReply,
    FailoverError,
    GlueError,
    InvalidContinuation,
    ProviderError,
    attach_result,
)
from glue.events import ContextChanged, RunResult, RunStart, StopReasonObserved
from glue.limits import Limits, Outcome, StopReason
from glue.loop.ending import close_turn, drop_prompts, end, store_results
from glue.loop.state import State, watched
from glue.loop.transcript import (
    ASKED,
    NO_RESULT,
    History,
    chain_texts,
    check_messages,
    estimate,
    has_content,
    message_chars,
    needs_answer,
    resume_prompts,
    unanswered,
    visible_text,
)
from glue.loop.truncation import Verdict, end_chain, end_repair, is_whole, judge_cut
from glue.loop.turn import Answered, cut_short, exhausted, run_batch, send
from glue.messages import AssistantMessage, Message, Request, Text, ToolCall, ToolMessage, UserMessage, user
from glue.options import LoopOptions, Options, loop_options, tool_table, traceable
from glue.policies import Answer, Change, Deliver, Policy, Rewrite, Say, Stop, start_policies
from glue.policies.budgets import check_price, known_prices, priced
from glue.provider import Provider


async def run(provider: Provider, messages: str | Sequence[Message], **options: Unpack[LoopOptions]) -> RunResult[None]:
    """Ask the model, run the tools it names, repeat until it names none or a limit says so.

    Options: `tools`, `limits`, `policies`, `host`, `on_event`, `cancel`, `journal`, and `request`, which is the
    template of every request: system, model, max_tokens and the like.
    """
    transcript = check_messages("messages", [user(messages)] if isinstance(messages, str) else messages)
    start = len(transcript)  # of the prompt: the user messages at the end, without those of an earlier run that failed
    while start and isinstance(last := transcript[start - 1], UserMessage) and not last.excluded:
        if last.memo.get(ASKED) != transcript[-1].memo.get(ASKED):
            break
        start -= 1
    return await drive(provider, transcript[:start], transcript[start:], loop_options(options), keep_prompt=False)


async def run_continue(
    provider: Provider, messages: Sequence[Message], **options: Unpack[LoopOptions]
) -> RunResult[None]:
    """Go on from where a transcript stands, with no new prompt. Options as for `run`."""
    return await drive(provider, check_messages("messages", messages), None, loop_options(options))


@traceable
async def drive(
    provider: Provider,
    history: Sequence[Message],
    prompt: Sequence[Message] | None,
    options: Options,
    *,
    keep_prompt: bool = True,
) -> RunResult[None]:
    """Take the turns and end, so that list and store are left valid whatever happens.

    Without a prompt the run goes on from where the history stands; `keep_prompt` writes the prompt to the journal.
    """
    state, said = _start(provider, history, prompt, options)
    try:
        state.emit(RunStart(run_id=state.host.run_id, identity=state.host.identity))
        await _begin(state, prompt, said, keep_prompt)
        stop = await _turns(state)
        for policy in state.policies:
            stop = policy.finish(state, stop)
    except BaseException as error:  # ended here, and raised again
        cancelled = isinstance(error, (anyio.get_cancelled_exc_class(), KeyboardInterrupt))
        mine = Cancelled() if cancelled else error if isinstance(error, GlueError) else None
        with contextlib.suppress(anyio.get_cancelled_exc_class()):  # the first error wins
            await state.whole(end(state, Stop(Outcome.CANCELLED if cancelled else Outcome.FAILED, mine)))
        attach_result(error, state.result)
        raise
    try:
        result = await state.whole(end(state, stop))
        if state.late_error is None:
            return result
        raise state.late_error
    except BaseException as error:
        attach_result(error, state.result)
        raise


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


def _start(
    provider: Provider, history: Sequence[Message], prompt: Sequence[Message] | None, options: Options
) -> tuple[State, Sequence[Message]]:
    """Make the state of a run and what it says first, or raise ValueError or TypeError that names the argument."""
    if not callable(getattr(provider, "stream", None)) or not isinstance(getattr(provider, "name", None), str):
        raise TypeError(f"provider must have a name and a stream(request) method, not {provider!r}")
    said = resume_prompts(history) if prompt is None else prompt
    if not history and not said:
        raise ValueError("messages must hold at least one message")
    if prompt is not None and not needs_answer(history, prompt):
        raise InvalidContinuation("there is nothing to go on from: the model has answered; say something new")
    if prompt and not any(has_content(message.content) for message in prompt):
        raise ValueError("messages must end in a prompt that says something; it is empty")
    tools = tool_table(options.tools or ())
    host, limits = options.host or Host(), options.limits
    above, hardened = host.parent, options.hardened or History()
    state = State(
        provider=provider,
        messages=hardened.begin(history, resumed=prompt is None),
        tools=tools,
        specs=tuple(tool.spec for tool in tools.values()),
        limits=limits if isinstance(limits, Limits) else Limits(),
        limits_source=limits if callable(limits) else None,
        template=options.request or Request(),
        policies=start_policies(options.policies or ()),
        host=host,
        cancel=options.cancel or (above.cancel if above else Cancel()),
        spending=Spending(parent=above.spending if above else None),
        on_event=options.on_event,
        drain=getattr(options.on_event, "drain", None),
        journal=options.journal,
        prices=known_prices(options.prices),
        history=hardened,
    )
    state.refresh()
    choice = state.limits.tool_choice
    if choice not in ("auto", "required", "none", *tools):
        there = ", ".join(repr(name) for name in tools) or "none was given"
        raise ValueError(f"tool_choice must be 'auto', 'required', 'none' or a tool ({there}), not {choice!r}")
    if state.limits.usd_budget is not None:
        check_price(provider, state.prices)
    return state, said


async def _begin(state: State, prompt: Sequence[Message] | None, said: Sequence[Message], keep: bool) -> None:
    """Say the prompt, after mending what a killed run left; a resumed run says its own again."""
    if keep:
        for result in unanswered(state.messages, NO_RESULT):
            await state.store(result)
    state.resumed = not prompt
    if prompt is None:
        first = said[0] if said else state.messages[-1]  # what the next reply answers, or carries on
        state.paused = isinstance(first, AssistantMessage)
        state.in_chain = state.joins = state.paused or getattr(first, "origin", "") in ("continue", "repair")
        state.answer = chain_texts(state.messages)
    else:
        if keep and await drop_prompts(state):
            state.history.align(state.messages)
        state.new = []  # this run begins with its prompt
    for message in said:
        message.memo[ASKED] = state.host.run_id
        await state.store(message, write=keep)


# READY --------------------------------------------------------------------------------------------


async def _ready(state: State) -> Request | Stop:
    """Check the limits and ask the policies; return the request to send."""
    await anyio.lowlevel.checkpoint_if_cancelled()  # a write that was shielded has not noticed
    state.refresh()
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    if (not state.in_chain or state.paused) and not state.may_turn():
        return exhausted(state, "turns")
    if not state.may_ask():
        return exhausted(state, "requests")
    return await _request(state)


async def _request(state: State) -> Request | Stop:
    """Let the policies change the request, all of them before any of them speaks."""
    # A forced choice holds until the first batch has run; for ever, the model could never settle.
    choice = "auto" if state.batches and state.limits.tool_choice != "none" else state.limits.tool_choice
    messages: Sequence[Message] = state.history.view(state.messages)
    request = replace(state.template, tools=state.specs, tool_choice=choice, messages=messages)
    says: list[UserMessage] = []
    stop: Stop | None = None
    waiting = list(state.hooked["before_request"])
    changed: list[Policy] = []  # the messages
    while waiting:
        policy = waiting.pop(0)
        answer = await _ask(state, policy, "before_request", request)
        if isinstance(answer, Stop):
            stop = answer
            break
        if isinstance(answer, Change):
            before, after = request.messages, answer.request.messages
            if after is not before and check_messages(f"{type(policy).__name__}: messages", after) != list(before):
                sizes = [estimate(each, state.limits.estimator) for each in (before, after)]
                state.emit(ContextChanged(policy=type(policy).__name__, before=sizes[0], after=sizes[1]))
                changed.append(policy)
            request = answer.request
        elif isinstance(answer, Rewrite):
            from glue.compaction import rewrite

            await rewrite(state, check_messages(f"{type(policy).__name__}: messages", answer.messages))
            messages = state.history.view(state.messages)
            request = replace(request, messages=messages)
            waiting, changed = [*changed, *waiting], []  # they have to see the new messages
        elif isinstance(answer, Say) and not state.in_chain:
            says += answer.messages
    for message in says:  # also before a stop: what was taken from a source must not be lost
        await state.store(message)
    if stop is not None or not says:
        return stop or request
    if request.messages is messages:
        return replace(request, messages=state.history.view(state.messages))
    return replace(request, messages=(*request.messages, *says))


_ANSWERS: dict[str, tuple[type, ...]] = {
    "before_request": (Say, Stop, Change, Rewrite),
    "on_reply": (Stop,),
    "after_tools": (Say, Stop),
    "on_settle": (Say, Stop, Deliver),
}


async def _ask(state: State, policy: Policy, hook: str, given: object) -> Answer:
    """Ask a policy, which may ask a model or a person; an answer that its hook does not take is refused."""
    answer = getattr(policy, hook)(state, given)
    if answer is None:
        return None
    if inspect.isawaitable(answer):
        with watched(state) as scope:
            answer = await answer
        if scope.cancelled_caught:
            return cut_short(state)
    if isinstance(answer, Say):
        # A policy's word is no prompt of the caller's: END takes it back where nobody answered it.
        ours = (replace(each, origin="nudge") if each.origin == "user" else each for each in answer.messages)
        answer = Say(tuple(ours)) if answer.messages else None
    if hook == "before_request" and isinstance(answer, Request):
        answer = Change(answer)
    if answer is not None and not isinstance(answer, _ANSWERS[hook]):
        allowed = ", ".join(kind.__name__ for kind in _ANSWERS[hook])
        raise TypeError(f"{type(policy).__name__}.{hook} must answer None or {allowed}, not {answer!r}")
    return cast(Answer, answer)


async def _first_answer(state: State, hook: str, given: object) -> Answer:
    """Ask the policies in their order; the first that answers wins, and the others are not asked."""
    for policy in state.hooked[hook]:
        answer = await _ask(state, policy, hook, given)
        if isinstance(answer, Say) and hook == "on_settle" and not state.may_say:
            continue
        if answer is not None:
            return answer
    return None


# JUDGE --------------------------------------------------------------------------------------------


async def _judge(state: State, reply: Answered) -> Verdict:
    """Decide what becomes of a reply; the first rule that matches wins."""
    message = reply.message
    if message is not None:
        message = priced(message, state.prices)
        state.charge_reply(message.usage, "" if message.usage else message_chars(message))
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
    state.discard()
    if isinstance(error, FailoverError):
        state.attempts += [attempt for attempt in error.attempts if attempt not in state.attempts]
    if error.kind == "context_overflow":
        from glue.compaction import compact

        if await compact(state):
            return Verdict(then="again")
        overflow = ContextOverflow(str(error))
        overflow.__cause__ = error
        return Verdict(then="end", stop=Stop(Outcome.CONTEXT_WINDOW, overflow))
    if error.kind == "content_filter":
        return Verdict(then="end", stop=Stop(Outcome.REFUSED, meta={"refusal": str(error)}))
    return Verdict(then="end", stop=Stop(Outcome.FAILED, error))


def _judge_message(state: State, message: AssistantMessage) -> Verdict:
    if (outcome := message.stop_reason.outcome) is not None:
        errors: dict[Outcome, GlueError] = {
            Outcome.CANCELLED: Cancelled("the provider cancelled the reply"),
            Outcome.CONTEXT_WINDOW: ContextOverflow(),
            Outcome.FAILED: ProviderError("the reply ended in an error", kind="transient", provider=message.provider),
        }
        return Verdict(then="end", store=_text_only(message), stop=Stop(outcome, errors.get(outcome)))
    if message.stop_reason in (StopReason.MAX_TOKENS, StopReason.MALFORMED_CALL) or any(
        not call.complete for call in message.calls
    ):
        return judge_cut(state, message)
    if state.repairing:
        end_repair(state, success=any(is_whole(call) for call in message.calls))
    if message.calls:
        return Verdict(then="tools", store=message)
    empty = not has_content(message.content)
    if message.stop_reason is StopReason.PAUSE_TURN:
        return Verdict(then="pause", store=None if empty else message)
    if empty:
        error = EmptyReply(provider=message.provider, model=message.model)
        return Verdict(then="end", stop=Stop(Outcome.FAILED, error))
    return Verdict(then="settle", store=message)


def _text_only(message: AssistantMessage) -> AssistantMessage | None:
    content = tuple(part for part in message.content if not isinstance(part, ToolCall))
    return replace(message, content=content) if has_content(content) else None


async def _apply(state: State, verdict: Verdict) -> Stop | None:
    """Store what the verdict keeps, say what it says, and ask the policies about the reply."""
    again = verdict.then in ("again", "pause")
    if (message := verdict.store) is not None:
        if not state.joins:
            state.answer = []
        state.answer.append(visible_text(message))
        state.joins = again
        await state.store(message)
    if state.chain is not None and not again and verdict.stop is None:
        end_chain(state, state.chain, "completed")
    state.in_chain, state.paused = again, verdict.then == "pause"
    if state.paused:
        state.turns += 1
        close_turn(state)
    outranks = verdict.stop is not None and verdict.stop.outcome is not Outcome.TRUNCATED  # whatever a policy could say
    if message is not None and not outranks:
        answer = await _first_answer(state, "on_reply", message)
        if isinstance(answer, Stop):
            return answer
    if verdict.stop is None and verdict.prompt is not None:
        await state.store(verdict.prompt)
    return verdict.stop


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
    answer = await _first_answer(state, "after_tools", batch.in_order())
    if isinstance(answer, Say):
        await _say(state, answer)
    return answer if isinstance(answer, Stop) else None


async def _say(state: State, answer: Say) -> None:
    state.turns += 1
    for message in answer.messages:
        await state.store(message)


# SETTLE -------------------------------------------------------------------------------------------


async def _settle(state: State, reply: AssistantMessage) -> Stop | None:
    """The model named no tool: a policy may end the run otherwise, or keep it going while `state.may_say`."""
    close_turn(state)
    state.refresh()
    done = Stop(Outcome.WRAPPED_UP if state.wrapped_up else Outcome.DONE)
    if state.cancel.cancelled:
        return done
    answer = await _first_answer(state, "on_settle", reply)
    if isinstance(answer, Stop):
        return answer
    if isinstance(answer, Say):
        await _say(state, answer)
        return None
    if isinstance(answer, Deliver):  # kept as if the tool had been called with it; no provider ever sees that
        state.delivered, state.answer = answer.text, [answer.text]
        content = (Text(text=answer.text),)
        await state.store(ToolMessage(call_id="delivered", name=answer.tool, content=content, excluded=True))
    return done

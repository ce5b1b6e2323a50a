"""The loop: send a request, judge the reply, run the tools it calls, repeat, end.

READY -> REQUEST -> JUDGE -> TOOLS or SETTLE -> READY ... END. Each step is a function below, in
the order of use. SETTLE follows a reply without tool calls. Policies answer hooks, wrappers wrap a
provider, listeners receive events. The loop has no branch for any of these.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import anyio

from glue import events
from glue.context import AnyTool, Cancel, Host, Spending
from glue.errors import (
    Cancelled,
    ContextOverflow,
    EmptyReply,
    FailoverError,
    GlueError,
    ProviderError,
    RunPaused,
    attach_result,
)
from glue.events import RunStart, StopReasonObserved
from glue.limits import Limits, LimitsSource, Outcome, StopReason
from glue.listeners import warn_unknown_stop
from glue.loop.ending import close_turn, drop_prompts, end, store_results
from glue.loop.hooks import ask_policies, prepare_request, store_say
from glue.loop.pause import record_pending, restore, stop_paused
from glue.loop.position import (
    ASK,
    DELIVERED,
    OVER,
    after_reply,
    at_position,
    resume_position,
)
from glue.loop.recorder import Journal, RunRecorder
from glue.loop.state import State
from glue.loop.transcript import (
    ASKED,
    NO_RESULT,
    History,
    chain_texts,
    check_messages,
    has_content,
    last_reply,
    last_results,
    message_chars,
    open_calls,
    unanswered,
    visible_text,
)
from glue.loop.truncation import Verdict, end_chain, end_repair, is_whole, judge_cut, prompt_at
from glue.loop.turn import Answered, Batch, exhausted, run_batch, send
from glue.messages import (
    AssistantMessage,
    Message,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    user,
)
from glue.pending import LATER, check_decisions, is_paused, pending_calls, waiting_records
from glue.policies import Policy, Say, Stop, start_policies
from glue.policies.budgets import check_price, known_prices, priced
from glue.provider import Provider
from glue.result import RunResult
from glue.settings import check_loop, check_provider, tool_table
from glue.signature import blocking, hinted, streaming, streaming_sync

if TYPE_CHECKING:
    from glue.events import Listener
    from glue.pending import Decisions
    from glue.telemetry import OpenTelemetry


@hinted
async def run(
    provider: Provider,
    messages: str | Sequence[Message],
    *,
    tools: Iterable[AnyTool] = (),
    limits: LimitsSource | None = None,
    request: Request | None = None,
    policies: Iterable[Policy] = (),
    host: Host | None = None,
    on_event: Listener | None = None,
    cancel: Cancel | None = None,
    journal: Journal | None = None,
) -> RunResult[None]:
    """Ask the model and run its tool calls until it calls none or a limit ends the run.

    This is the bare loop, without an agent:

        provider = glue.providers.new("openai:gpt-5.4-nano")
        result = await glue.run(provider, "Weather in Toronto?", tools=[weather])

    Args:
        provider: The provider that answers the requests.
        messages: The transcript, which ends with the prompt; or the prompt as a text.
        tools: Functions that the model may call, each made by `glue.tool`.
        limits: Turns, requests, tokens, dollars and seconds of the run.
        request: The template of every request: system, model, max_tokens and so on.
        policies: Objects that may change requests, add messages or stop the run.
        host: The values that tools read from their context: deps, permission, session and more.
        on_event: A function called with each event.
        cancel: A `glue.Cancel` whose `cancel()` ends the run.
        journal: Stores each new message before the next step, except the prompt.
    """
    transcript = check_messages(
        "messages", [user(messages)] if isinstance(messages, str) else messages
    )
    # The prompt consists of the user messages at the end, except those of an earlier failed run.
    start = len(transcript)
    while start and isinstance(last := transcript[start - 1], UserMessage) and not last.excluded:
        if last.memo.get(ASKED) != transcript[-1].memo.get(ASKED):
            break
        start -= 1
    check_loop(locals())
    prompt = transcript[start:]
    state = start_run(
        provider,
        transcript[:start],
        prompt,
        tools=tools,
        limits=limits,
        request=request,
        policies=policies,
        host=host,
        on_event=on_event,
        cancel=cancel,
        journal=journal,
    )
    return await drive(state, prompt, keep_prompt=False)


@hinted
async def resume(
    provider: Provider,
    messages: Sequence[Message],
    *,
    tools: Iterable[AnyTool] = (),
    limits: LimitsSource | None = None,
    request: Request | None = None,
    policies: Iterable[Policy] = (),
    host: Host | None = None,
    on_event: Listener | None = None,
    cancel: Cancel | None = None,
    journal: Journal | None = None,
    decisions: Decisions | None = None,
) -> RunResult[None]:
    """Continue the last run of a transcript, without a new prompt, and return its result.

    The parameters are those of `run`, and `decisions` on pending calls, by call id:

        result = await glue.resume(provider, result.messages, limits=glue.Limits(max_turns=20))
    """
    transcript = check_messages("messages", messages)
    check_loop(locals())
    state = start_run(
        provider,
        transcript,
        None,
        tools=tools,
        limits=limits,
        request=request,
        policies=policies,
        host=host,
        on_event=on_event,
        cancel=cancel,
        journal=journal,
        decisions=decisions,
    )
    return await drive(state, None)


run_sync = blocking(run)
resume_sync = blocking(resume)
stream = streaming(run)
stream_sync = streaming_sync(run)


async def drive(
    state: State,
    prompt: Sequence[Message] | None,
    *,
    telemetry: bool | OpenTelemetry | None = None,
    keep_prompt: bool = True,
) -> RunResult[None]:
    """Run the loop to its end, and return the result of the run.

    The transcript and the journal are valid after any failure. `state` comes from `start_run`. If
    `keep_prompt`, the prompt is written to the journal.
    """
    with _traced(state, telemetry):
        try:
            state.emit(RunStart(run_id=state.host.run_id, identity=state.host.identity))
            await _begin(state, prompt, keep_prompt)
            stop = await _turns(state)
            for policy in state.policies:
                stop = policy.finish(state, stop)
        except BaseException as error:  # the run is ended here, then the error is raised
            cancelled = isinstance(error, (anyio.get_cancelled_exc_class(), KeyboardInterrupt))
            mine = Cancelled() if cancelled else error if isinstance(error, GlueError) else None
            outcome = Outcome.CANCELLED if cancelled else Outcome.FAILED
            with contextlib.suppress(anyio.get_cancelled_exc_class()):  # the first error wins
                await state.recorder.finish(end(state, Stop(outcome, mine)))
            attach_result(error, state.result)
            raise
        try:
            result = await state.recorder.finish(end(state, stop))
            if state.recorder.late_error is None:
                return result
            raise state.recorder.late_error
        except BaseException as error:
            attach_result(error, state.result)
            raise


def _traced(
    state: State, wanted: bool | OpenTelemetry | None
) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that traces the run, or does nothing if telemetry is off.

    Telemetry is switched on by `wanted`, by the run that called this run, or by the variable
    GLUE_OTEL.
    """
    if wanted is None:
        above = state.host.parent
        wanted = above.host.telemetry if above is not None else None
        wanted = wanted or os.environ.get("GLUE_OTEL", "") not in ("", "0")
    if not wanted:
        return contextlib.nullcontext()
    from glue.telemetry import telemetry_of  # an optional dependency

    telemetry = telemetry_of(wanted)
    return telemetry.traced(state) if telemetry is not None else contextlib.nullcontext()


async def _turns(state: State) -> Stop:
    """Run one step after another, and return the Stop of the step that ends the run."""
    while True:
        if state.position.step in ("call", "await"):
            stop = await _tools(state)
        elif state.position.step == "over":
            stop = await _settle(state)
        else:
            stop = await _reply(state)
        if stop is not None:
            return stop


async def _reply(state: State) -> Stop | None:
    """Send a request and store the reply. Return a Stop if the run ends here, or else None."""
    ready = await _ready(state)
    if isinstance(ready, Stop):
        return ready
    verdict = await _judge(state, await send(state, ready))
    return await _apply(state, verdict)


# START --------------------------------------------------------------------------------------------


def start_run(
    provider: Provider,
    history: Sequence[Message],
    prompt: Sequence[Message] | None,
    *,
    tools: Iterable[AnyTool] = (),
    limits: LimitsSource | None = None,
    request: Request | None = None,
    policies: Iterable[Policy] = (),
    host: Host | None = None,
    on_event: Listener | None = None,
    cancel: Cancel | None = None,
    journal: Journal | None = None,
    prices: Mapping[str, tuple[float, float]] | None = None,
    sent: History | None = None,
    decisions: Mapping[str, Any] | None = None,
) -> State:
    """Check the arguments, and return the state of a new run.

    If `prompt` is None, the run continues from the end of `history`. `sent` is the history that
    earlier runs of the same transcript sent. `decisions` answers pending calls.
    """
    check_provider(provider)
    if not history and prompt is not None and not prompt:
        raise ValueError("messages must contain at least one message")
    if prompt and is_paused(history):
        raise RunPaused(pending_calls(history), host.session_id if host is not None else "")
    check_decisions(history, decisions)
    position = ASK if prompt else resume_position(history)
    if prompt and not any(has_content(message.content) for message in prompt):
        raise ValueError("the prompt is empty; give it a text, an image or a file")
    table = tool_table(tools)
    host, sent = host or Host(), sent or History()
    above = host.parent
    specs = tuple(tool.spec for tool in table.values())
    state = State(
        provider=provider,
        recorder=RunRecorder(
            messages=sent.begin(history, resumed=prompt is None), history=sent, journal=journal
        ),
        tools=table,
        limits=limits if isinstance(limits, Limits) else Limits(),
        limits_source=limits if callable(limits) else None,
        template=replace(request or Request(), tools=specs),
        policies=start_policies(policies),
        host=host,
        cancel=cancel or (above.cancel if above else Cancel()),
        spending=Spending(parent=above.spending if above else None),
        on_event=on_event,
        prices=known_prices(prices),
        position=position,
        resumed=not prompt,
        decisions=decisions or {},
    )
    state.refresh()
    choice = state.limits.tool_choice
    if choice not in ("auto", "required", "none", *table):
        there = ", ".join(repr(name) for name in table) or "none was given"
        raise ValueError(
            f"tool_choice must be 'auto', 'required', 'none' or a tool ({there}), not {choice!r}"
        )
    if state.limits.usd_budget is not None:
        check_price(provider, state.prices)
    return state


async def _begin(state: State, prompt: Sequence[Message] | None, keep: bool) -> None:
    """Begin a run: store its prompt, or prepare the transcript of a run that is continued.

    A run is continued if `prompt` is None. Calls without a result, which a killed process left, get
    an error result first. If not `keep`, there are no such results, and the prompt is not written
    to the journal.
    """
    if prompt is None and state.position.step in ("call", "await"):
        await _begin_calls(state)
    elif keep:
        for result in unanswered(state.messages, NO_RESULT):
            await state.store(result)
    if prompt is None:
        state.answer = chain_texts(state.messages)
        prompt = state.position.messages()
    else:
        if keep and await drop_prompts(state):
            state.recorder.history.align(state.messages)
        state.recorder.new = []  # this run begins with its prompt
    if state.position.step == "say":
        state.position = ASK
    for message in prompt:
        message.memo[ASKED] = state.host.run_id
        await state.store(message, write=keep)


async def _begin_calls(state: State) -> None:
    """Restore the counters of a paused run, and store error results for calls that may have run.

    These are calls of the last reply without a result: the process may have been interrupted while
    they ran. A call of an idempotent tool runs again instead, and a call that waits for a decision
    or a result still waits.
    """
    if state.position.step == "await":
        restore(state)
    state.offered = frozenset(state.tools)
    reply = cast(AssistantMessage, last_reply(state.messages))
    waits = {*waiting_records(reply), *(reply.meta or {}).get(LATER, ())}
    lost = unanswered(state.messages, NO_RESULT)
    again = {name for name, tool in state.tools.items() if getattr(tool, "idempotent", False)}
    state.results = [
        result for result in lost if result.call_id not in waits and result.name not in again
    ]
    await store_results(state)
    if not open_calls(state.messages):
        state.position = ASK


# READY --------------------------------------------------------------------------------------------


async def _ready(state: State) -> Request | Stop:
    """Return the next request, or a Stop if a limit or a policy ends the run.

    If the last reply was cut, the message that asks for its rest is stored first.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()  # the last write delayed a cancellation
    state.refresh()
    if state.position.step not in ("join", "repair") and not state.may_turn():
        return exhausted(state, "turns")
    if not state.may_ask():
        return exhausted(state, "requests")
    prompt, last = prompt_at(state.position), state.messages[-1]
    if prompt is not None and getattr(last, "origin", "") != prompt.origin:
        await state.store(prompt)
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    return await _request(state)


async def _request(state: State) -> Request | Stop:
    """Call the policies, and return the next request as they changed it, or the Stop of a policy.

    Messages that the policies add are stored.
    """
    # A forced choice applies until the first batch has run, so that the model can answer.
    choice = state.limits.tool_choice
    if state.batches and choice != "none":
        choice = "auto"
    messages = state.recorder.history.view(state.messages)
    request = replace(state.template, tool_choice=choice, messages=messages)
    return await prepare_request(state, request)


# JUDGE --------------------------------------------------------------------------------------------


async def _judge(state: State, reply: Answered) -> Verdict:
    """Count the usage of a reply. Return a Verdict: the message to store, a Stop if the run ends.

    The usage is added to the spending of the run. A transcript that the provider rejected as too
    long is compacted.
    """
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
        if message.stop_reason is StopReason.UNKNOWN:
            warn_unknown_stop(message)
    if reply.stop is not None:
        kept = _text_only(message) if message is not None else None
        if kept is not None:
            state.partial = []  # otherwise the end of the run stores the streamed text again
        return Verdict(store=kept, stop=reply.stop)
    if message is None:
        return await _judge_failure(state, cast(ProviderError, reply.error))
    state.partial = []
    return _judge_message(state, message)


async def _judge_failure(state: State, error: ProviderError) -> Verdict:
    state.discard()
    if isinstance(error, FailoverError):
        state.attempts += [attempt for attempt in error.attempts if attempt not in state.attempts]
    if error.kind == "context_overflow":
        from glue.compaction import compact  # start-up: few transcripts are too long

        if await compact(state):
            return Verdict()
        overflow = ContextOverflow(str(error))
        overflow.__cause__ = error
        return Verdict(stop=Stop(Outcome.CONTEXT_WINDOW, overflow))
    if error.kind == "content_filter":
        return Verdict(stop=Stop(Outcome.REFUSED, meta={"refusal": str(error)}))
    return Verdict(stop=Stop(Outcome.FAILED, error))


def _judge_message(state: State, message: AssistantMessage) -> Verdict:
    if (outcome := message.stop_reason.outcome) is not None:
        errors: dict[Outcome, GlueError] = {
            Outcome.CANCELLED: Cancelled("the provider cancelled the reply"),
            Outcome.CONTEXT_WINDOW: ContextOverflow(),
            Outcome.FAILED: ProviderError(
                "the reply ended in an error", kind="transient", provider=message.provider
            ),
        }
        return Verdict(store=_text_only(message), stop=Stop(outcome, errors.get(outcome)))
    calls = message.calls
    if message.stop_reason in (StopReason.MAX_TOKENS, StopReason.MALFORMED_CALL) or any(
        not call.complete for call in calls
    ):
        return judge_cut(state, message)
    if state.position.step == "repair":
        end_repair(state, success=any(is_whole(call) for call in calls))
    if calls:
        return Verdict(store=message)
    empty = not has_content(message.content)
    if message.stop_reason is StopReason.PAUSE_TURN:
        return Verdict(store=None if empty else message, counts_turn=True)
    if empty:
        error = EmptyReply(provider=message.provider, model=message.model)
        return Verdict(stop=Stop(Outcome.FAILED, error))
    return Verdict(store=message)


def _text_only(message: AssistantMessage) -> AssistantMessage | None:
    content = tuple(part for part in message.content if not isinstance(part, ToolCall))
    return replace(message, content=content) if has_content(content) else None


async def _apply(state: State, verdict: Verdict) -> Stop | None:
    """Store the reply, call `on_reply` of policies, and return a Stop if the run ends, or None.

    The reply also determines the next step, `state.position`.
    """
    if (message := verdict.store) is not None:
        if not state.position.continues:
            state.answer = []
        state.answer.append(visible_text(message))
        state.position = after_reply(message)
        await state.store(message)
        if state.chain is not None and not state.position.continues and verdict.stop is None:
            end_chain(state, state.chain, "completed")
    if verdict.counts_turn:
        state.discard()  # an empty reply that was paused is not stored
        state.turns += 1
        close_turn(state)
    # Every stop of the loop except a truncation outranks the answers of policies.
    outranks = verdict.stop is not None and verdict.stop.outcome is not Outcome.TRUNCATED
    if message is not None and not outranks:
        answer = await ask_policies(state, "on_reply", message)
        if isinstance(answer, Stop):
            return answer
    return verdict.stop


# TOOLS --------------------------------------------------------------------------------------------


async def _tools(state: State) -> Stop | None:
    """Run the calls of the last reply, store their results, and return a Stop if the run ends.

    If no call waits and the results do not end the run, `after_tools` of the policies is called,
    and the messages that they add are stored. Return None if the run continues.
    """
    if state.position.step == "call":  # calls that were pending have been counted before
        state.turns += 1
        state.batches += 1
    reply = cast(AssistantMessage, last_reply(state.messages))
    batch = await run_batch(state, open_calls(state.messages))
    if batch.waiting and not state.cancel.cancelled:
        return await _pause(state, batch)
    ends = not state.cancel.cancelled and batch.ends_run(state, reply)
    if ends:
        state.results[-1] = at_position(state.results[-1], OVER)
    state.position = OVER if ends else ASK
    await store_results(state)
    close_turn(state)
    state.refresh()
    if state.cancel.cancelled:
        return Stop(Outcome.CANCELLED, Cancelled())
    if ends:
        return Stop(Outcome.DONE)
    answer = await ask_policies(state, "after_tools", last_results(state.messages))
    if isinstance(answer, Say):
        await _say(state, answer)
    return answer if isinstance(answer, Stop) else None


async def _pause(state: State, batch: Batch) -> Stop:
    """Record the pending calls, store the results of other calls, and return the Stop `paused`.

    The event ToolPending is emitted for each pending call.
    """
    waiting = {batch.calls[index].id: record for index, record in sorted(batch.waiting.items())}
    await record_pending(
        state, waiting, [batch.calls[index].id for index in batch.later], batch.votes
    )
    await store_results(state)
    close_turn(state)
    stop = await stop_paused(state)
    for call in cast(RunPaused, stop.error).pending:
        state.emit(events.ToolPending(call=call))
    return stop


async def _say(state: State, answer: Say) -> None:
    state.turns += 1
    state.position = ASK
    await store_say(state, answer)


# SETTLE -------------------------------------------------------------------------------------------


async def _settle(state: State) -> Stop | None:
    """Call `on_settle` of the policies. Return a Stop, or None if a policy adds a message.

    This follows a reply without calls. After None the run continues.
    """
    close_turn(state)
    state.refresh()
    done = Stop(Outcome.WRAPPED_UP if state.wrapped_up else Outcome.DONE)
    if state.cancel.cancelled:
        return done
    answer = await ask_policies(state, "on_settle", last_reply(state.messages))
    if isinstance(answer, Stop):
        return answer
    if isinstance(answer, Say):
        await _say(state, answer)
        return None
    if answer is not None:
        # The text is stored as a result of the delivery tool, but excluded from requests.
        state.delivered, state.answer = answer.text, [answer.text]
        content = (Text(text=answer.text),)
        await state.store(
            ToolMessage(call_id=DELIVERED, name=answer.tool, content=content, excluded=True)
        )
    return done

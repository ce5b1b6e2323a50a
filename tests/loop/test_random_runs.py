"""Random scripts, tools, limits and cancellations: the result is always consistent."""

from __future__ import annotations

import asyncio  # noqa: TID251
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
from fakes.examples import examples
from fakes.loop import Quit, RecordingJournal, assert_valid, broken, noop, term
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue import (
    Cancel,
    Limits,
    Message,
    Outcome,
    Request,
    RunResult,
    StopReason,
    ToolResult,
    Usage,
    resume,
    run,
    tool,
)
from glue.events import Event, MessageEnd, MessageStart, TurnEnd, TurnStart
from glue.limits import StopReason as Reason
from glue.loop.transcript import OURS, repair_transcript
from glue.messages import AssistantMessage, Part, Text, Thinking, ToolMessage, UserMessage, user
from glue.policies import (
    Change,
    Delivery,
    FollowUp,
    Gate,
    Gates,
    Policy,
    Say,
    StallBudget,
    Steering,
)
from glue.testing import Reply, Script, ScriptStep, call, fail, repeat


@tool(alone=True)
async def alone() -> str:
    """Run alone."""
    await anyio.lowlevel.checkpoint()
    return ""


@tool(advisory=True)
async def hint() -> ToolResult:
    """Return a hint that votes to end."""
    return ToolResult(content=(Text(text="hm"),), terminate=True)


TOOLS = [noop, term, alone, hint, broken]
names = st.sampled_from(["noop", "term", "alone", "hint", "broken", "nope", "noop"])
tool_calls = st.builds(
    call,
    names,
    st.sampled_from(["{}", "", "{bad", "[1]", '{"x": 1}']),
    id=st.sampled_from(["", "a", "b"]),
    complete=st.booleans(),
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=st.sampled_from(["", " ", "word ", "I will now look.", "x" * 50])),
    st.builds(Thinking, text=st.sampled_from(["", "hm"])),
    tool_calls,
)
stops = st.sampled_from([r.value for r in Reason])
usages = st.none() | st.builds(
    Usage, input=st.integers(0, 50), output=st.integers(0, 50), cost=st.sampled_from([None, 0.1])
)
replies = st.builds(
    Reply,
    content=st.lists(parts, max_size=4).map(tuple),
    stop=stops,
    usage=usages,
    chunk=st.sampled_from([0, 3]),
    terminal=st.sampled_from([True, True, True, False]),
)
failures = st.sampled_from(
    ["auth", "transient", "empty", "context_overflow", "content_filter", "protocol"]
).map(
    lambda kind: fail(kind)  # type: ignore[arg-type]
)
steps: st.SearchStrategy[ScriptStep] = st.one_of(
    replies, replies, replies, st.just("text"), failures
)
maybe = st.none() | st.integers(0, 6)
limits = st.builds(
    Limits,
    max_turns=maybe,
    max_requests=st.integers(0, 12),
    grace=st.integers(0, 3),
    token_budget=st.none() | st.integers(0, 200),
    usd_budget=st.none() | st.sampled_from([0.0, 0.25]),
    continuation_max_attempts=st.integers(0, 3),
    continuation_max_output_chars=st.sampled_from([30, 120_000]),
    continuation_tool_repair_attempts=st.integers(0, 2),
    truncated_batch=st.sampled_from(["run", "void"]),
    parallel_tools=st.sampled_from([1, 2, 8]),
)


def one_by_one(*texts: str) -> Any:
    """Return a source that returns one message at each call."""
    waiting = list(texts)

    def source() -> list[str]:
        return [waiting.pop(0)] if waiting else []

    return source


class Halve(Policy):
    """A compactor that keeps the newest half, from a prompt on."""

    async def compact(self, state: Any) -> Sequence[Message] | None:
        half = state.messages[len(state.messages) // 2 :]
        return half if half and isinstance(half[0], UserMessage) else None


class Talk(Policy):
    """A policy that returns a message at every hook that accepts one, up to four times."""

    def __init__(self) -> None:
        self.count = 0

    def _say(self, *_: Any) -> Any:
        self.count += 1
        return Say((user(f"talk {self.count}", origin="nudge"),)) if self.count < 5 else None

    before_request = after_tools = on_settle = _say  # type: ignore[assignment]


class Shout(Policy):
    """A policy that changes the sent messages, but not the stored ones."""

    def before_request(self, state: Any, request: Request) -> Any:
        loud = [
            replace(each, content=(Text(text=each.text.upper()),))
            if isinstance(each, UserMessage)
            else each
            for each in request.messages
        ]
        return Change(replace(request, messages=tuple(loud)))


policies = st.lists(
    st.sampled_from(
        [
            lambda: Steering(one_by_one("steer")),
            lambda: FollowUp(one_by_one("more", "more")),
            lambda: Gates(Gate(name="g", allow=("noop",))),
            lambda: Gates(Gate(name="g", allow=())),
            lambda: Delivery("term", eager=True),
            lambda: StallBudget(1),
            Talk,
            Shout,
            Halve,
        ]
    ),
    max_size=3,
)
OLD: list[Message] = [
    user("before"),
    AssistantMessage(content=(Text(text="then"), call("noop", id="old"))),
]
TAGS = {
    Outcome.MAX_TURNS: StopReason.MAX_TURNS,
    Outcome.BUDGET: StopReason.TOKEN_BUDGET,
    Outcome.CONTEXT_WINDOW: StopReason.CONTEXT_WINDOW,
    Outcome.TRUNCATED: StopReason.MAX_TOKENS,
    Outcome.REFUSED: StopReason.REFUSAL,
    Outcome.CANCELLED: StopReason.CANCELLED,
    Outcome.FAILED: StopReason.ERROR,
}
ERRORS = (
    Outcome.MAX_TURNS,
    Outcome.BUDGET,
    Outcome.HALTED,
    Outcome.STALLED,
    Outcome.CANCELLED,
    Outcome.FAILED,
    Outcome.CONTEXT_WINDOW,
)


def check(
    result: RunResult[Any],
    before: Sequence[Message],
    events: list[Event],
    limits: Limits,
    compacted: bool,
) -> None:
    """Check the result of a run that ended with any outcome."""
    own = result.new_messages
    assert_valid(own)
    for message in own:
        if isinstance(message, AssistantMessage):
            assert any(
                p.text.strip() if isinstance(p, Text) else not isinstance(p, Thinking)
                for p in message.content
            )
            assert all(part.complete for part in message.calls)
    if own and isinstance(own[-1], UserMessage):
        assert own[-1].origin not in OURS
    if not compacted:
        old = len(before) - len([m for m in before if m.id in {n.id for n in own}])
        assert list(result.messages[:old]) == list(before[:old])
        assert result.messages[len(result.messages) - len(own) :] == own
    replies = [message for message in own if isinstance(message, AssistantMessage)]
    tag = TAGS.get(result.outcome)
    if tag is not None:
        assert result.stop_reason is tag
        if replies:
            assert replies[-1].stop_reason is tag
    assert (result.error is not None) == (
        result.outcome in ERRORS
    ) or result.outcome is Outcome.CONTEXT_WINDOW
    assert result.notice or result.outcome is not Outcome.TRUNCATED
    assert [type(event).__name__ for event in events].count("RunEnd") == 1
    starts = [type(event).__name__ for event in events]
    turns = [[e.turn for e in events if isinstance(e, kind)] for kind in (TurnStart, TurnEnd)]
    assert turns[0] == turns[1]
    assert limits.max_turns is None or result.turns <= limits.max_turns
    assert limits.max_requests is None or result.requests <= limits.max_requests
    assert starts.count("ToolStart") >= starts.count("ToolEnd")
    assert_valid(repair_transcript(result.messages))


@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(
    script=st.lists(steps, max_size=8),
    last=steps,
    limits=limits,
    chosen=policies,
    cancel_at=st.none() | st.integers(0, 25),
    history=st.booleans(),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_the_result_of_a_random_run_is_consistent_at_every_outcome(
    script: list[ScriptStep],
    last: ScriptStep,
    limits: Limits,
    chosen: list[Any],
    cancel_at: int | None,
    history: bool,
    backend: str,
) -> None:
    provider = Script(*script, repeat(last))
    events: list[Event] = []
    cancel = Cancel()
    before = [*OLD, user("go")] if history else [user("go")]

    def listen(event: Event) -> None:
        events.append(event)
        if len(events) - 1 == cancel_at:
            cancel.cancel()

    async def main() -> None:
        result = await run(
            provider,
            before,
            tools=TOOLS,
            limits=limits,
            policies=[make() for make in chosen],
            on_event=listen,
            cancel=cancel,
        )
        compacted = any(type(event).__name__ == "Compacted" for event in events)
        check(result, before, events, limits, compacted)
        assert provider.open_streams == 0
        for request in provider.requests:
            assert_valid(request.messages)
        ending = ("TurnEnd", "RunEnd", "ContinuationTerminated", "LimitReached")
        if (
            cancel_at is not None
            and cancel.cancelled
            and type(events[cancel_at]).__name__ not in ending
        ):
            assert result.outcome is Outcome.CANCELLED
        if result.outcome in (Outcome.MAX_TURNS, Outcome.BUDGET) and isinstance(
            result.messages[-1], ToolMessage
        ):
            resumed = await resume(Script("end"), result.messages, tools=TOOLS)
            assert resumed.outcome is Outcome.DONE

    anyio.run(main, backend=backend)


@settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(
    script=st.lists(steps | st.just(ZeroDivisionError("a bug")), max_size=6),
    last=steps,
    limits=limits,
    chosen=policies,
    leave=st.none() | st.sampled_from([SystemExit(1), KeyboardInterrupt(), Quit()]),
    cancel_at=st.integers(0, 30),
    failing=st.none() | st.none() | st.integers(0, 8),
    native=st.booleans(),
)
def test_result_and_journal_of_a_random_run_agree_after_any_end(
    script: list[Any],
    last: ScriptStep,
    limits: Limits,
    chosen: list[Any],
    leave: BaseException | None,
    cancel_at: int | None,
    failing: int | None,
    native: bool,
) -> None:
    """Tools raise BaseExceptions, asyncio cancels at any step, and the journal may fail."""

    @tool
    async def broken() -> str:
        """Raise the given exception, or fail."""
        await anyio.lowlevel.checkpoint()
        raise leave if leave is not None else RuntimeError("broken")

    provider = Script(*script, repeat(last))
    events: list[Event] = []
    journal = RecordingJournal(failing)
    cancel = Cancel()
    given = [noop, term, alone, hint, broken]
    policies = [make() for make in chosen]

    async def work() -> RunResult[Any]:
        return await run(
            provider,
            "go",
            tools=given,
            limits=limits,
            policies=policies,
            on_event=events.append,
            cancel=cancel,
            journal=journal,
        )

    async def main() -> RunResult[Any]:
        task = asyncio.ensure_future(work())
        count = 0
        while not task.done():
            await asyncio.sleep(0)
            count += 1
            if count == cancel_at and native:
                task.cancel()
            elif count == cancel_at:
                cancel.cancel()
        return await task

    raised: BaseException | None = None
    result: Any = None
    try:
        result = asyncio.run(main())
    except (
        asyncio.CancelledError,
        SystemExit,
        KeyboardInterrupt,
        Quit,
        OSError,
        ZeroDivisionError,
    ) as error:
        raised, result = error, getattr(error, "result", None)
    if result is None:  # cancelled before it started, or interrupted by asyncio itself
        assert not events or isinstance(raised, KeyboardInterrupt)
        return
    assert [type(event).__name__ for event in events].count("RunEnd") == 1
    assert_valid(result.new_messages)
    starts = [event.id for event in events if isinstance(event, MessageStart)]
    assert starts == [event.message.id for event in events if isinstance(event, MessageEnd)]
    assert provider.open_streams == 0
    if failing is None or journal.writes <= failing:
        compacted = any(type(event).__name__ == "Compacted" for event in events)
        if not compacted:  # the caller stores the prompt
            assert journal.messages == list(result.messages[1:])
    else:
        own = {message.id for message in result.messages}
        kept = [
            message
            for message in journal.messages
            if message.id in own or getattr(message, "origin", "") in OURS
        ]
        assert kept == journal.messages or any(
            type(event).__name__ == "Compacted" for event in events
        )

"""Random scripts, tools, limits and cancellations: the invariants of a run hold on every outcome."""

from __future__ import annotations

import asyncio  # noqa: TID251
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue import (
    Cancel,
    Limits,
    Message,
    Outcome,
    Policy,
    Request,
    RunResult,
    Say,
    StopReason,
    ToolResult,
    Usage,
    run,
    run_continue,
    tool,
)
from glue.events import Event, MessageEnd, MessageStart, TurnEnd, TurnStart
from glue.limits import StopReason as Reason
from glue.loop.transcript import OURS, harden
from glue.messages import AssistantMessage, Part, Text, Thinking, ToolMessage, UserMessage, user
from glue.policies import Change, Delivery, FollowUp, Gate, Gates, StallBudget, Steering
from glue.testing import Reply, Script, ScriptStep, call, fail, repeat

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


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@tool(terminates=True)
async def term() -> str:
    """End the run."""
    return "bye"


@tool(alone=True)
async def lonely() -> str:
    """Run alone."""
    await anyio.lowlevel.checkpoint()
    return ""


@tool(advisory=True)
async def hint() -> ToolResult:
    """Advise."""
    return ToolResult(content=(Text(text="hm"),), terminate=True)


@tool
async def broken() -> str:
    """Fail."""
    raise RuntimeError("broken")


TOOLS = [noop, term, lonely, hint, broken]
names = st.sampled_from(["noop", "term", "lonely", "hint", "broken", "nope", "noop"])
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
failures = st.sampled_from(["auth", "transient", "empty", "context_overflow", "content_filter", "protocol"]).map(
    lambda kind: fail(kind)  # type: ignore[arg-type]
)
steps: st.SearchStrategy[ScriptStep] = st.one_of(replies, replies, replies, st.just("text"), failures)
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


class Halve(Policy):
    """A compactor that keeps the newest half, from a prompt on."""

    async def compact(self, state: Any) -> Sequence[Message] | None:
        half = state.messages[len(state.messages) // 2 :]
        return half if half and isinstance(half[0], UserMessage) else None


class Talk(Policy):
    """Speaks at every hook that takes it, whether it may or not."""

    def __init__(self) -> None:
        self.said = 0

    def _say(self, *_: Any) -> Any:
        self.said += 1
        return Say((user(f"talk {self.said}", origin="nudge"),)) if self.said < 5 else None

    before_request = after_tools = on_settle = _say  # type: ignore[assignment]


class Shout(Policy):
    """Changes what is sent, and never what is stored."""

    def before_request(self, state: Any, request: Request) -> Any:
        loud = [
            replace(each, content=(Text(text=each.text.upper()),)) if isinstance(each, UserMessage) else each
            for each in request.messages
        ]
        return Change(replace(request, messages=tuple(loud)))


def queue(*texts: str) -> Any:
    waiting = list(texts)

    def source() -> list[str]:
        return [waiting.pop(0)] if waiting else []

    return source


policies = st.lists(
    st.sampled_from(
        [
            lambda: Steering(queue("steer")),
            lambda: FollowUp(queue("more", "more")),
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
OLD: list[Message] = [user("before"), AssistantMessage(content=(Text(text="then"), call("noop", id="old")))]


def check(
    result: RunResult[Any], before: Sequence[Message], events: list[Event], limits: Limits, compacted: bool
) -> None:
    """Assert what must hold whatever happened."""
    own = result.new_messages
    assert_paired(own)
    for message in own:
        if isinstance(message, AssistantMessage):
            assert any(p.text.strip() if isinstance(p, Text) else not isinstance(p, Thinking) for p in message.content)
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
    assert (result.error is not None) == (result.outcome in ERRORS) or result.outcome is Outcome.CONTEXT_WINDOW
    assert result.notice or result.outcome is not Outcome.TRUNCATED
    assert [type(event).__name__ for event in events].count("RunEnd") == 1
    starts = [type(event).__name__ for event in events]
    turns = [[e.turn for e in events if isinstance(e, kind)] for kind in (TurnStart, TurnEnd)]
    assert turns[0] == turns[1]
    assert limits.max_turns is None or result.turns <= limits.max_turns
    assert limits.max_requests is None or result.requests <= limits.max_requests
    assert starts.count("ToolStart") >= starts.count("ToolEnd")
    assert_paired(harden(result.messages))


def assert_paired(messages: Sequence[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage) and message.call_id == "delivered":
            continue
        if isinstance(message, ToolMessage):
            assert waiting
            assert waiting.pop(0) == message.call_id
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = [part.id for part in message.calls]
    assert not waiting


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors]
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
def test_the_invariants_hold_on_every_outcome(
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
            assert_paired(request.messages)
        ending = ("TurnEnd", "RunEnd", "ContinuationTerminated", "LimitReached")
        if cancel_at is not None and cancel.cancelled and type(events[cancel_at]).__name__ not in ending:
            assert result.outcome is Outcome.CANCELLED
        if result.outcome in (Outcome.MAX_TURNS, Outcome.BUDGET) and isinstance(result.messages[-1], ToolMessage):
            resumed = await run_continue(Script("end"), result.messages, tools=TOOLS)
            assert resumed.outcome is Outcome.DONE

    anyio.run(main, backend=backend)


class Quit(BaseException):
    """What is no Exception."""


class Journal:
    """A store that may fail at one of its writes."""

    def __init__(self, failing: int | None) -> None:
        self.messages: list[Message] = []
        self.failing, self.writes = failing, 0

    async def _write(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.writes += 1
        if self.failing is not None and self.writes > self.failing:
            raise OSError(28, "No space left on device")
        await anyio.lowlevel.checkpoint()

    async def append(self, message: Message) -> None:
        await self._write()
        self.messages.append(message)

    async def insert(self, message: Message, before: str) -> None:
        await self._write()
        self.messages.insert(next(i for i, m in enumerate(self.messages) if m.id == before), message)

    async def amend(self, id: str, fields: Any) -> None:
        await self._write()
        at = next(i for i, m in enumerate(self.messages) if m.id == id)
        reasons = {name: Reason(value) for name, value in fields.items() if name == "stop_reason"}
        self.messages[at] = replace(self.messages[at], **{**fields, **reasons})

    async def drop(self, ids: Sequence[str]) -> None:
        await self._write()
        self.messages = [m for m in self.messages if m.id not in ids]

    async def exclude(self, ids: Sequence[str]) -> None:
        await self._write()
        self.messages = [replace(m, excluded=True) if m.id in ids else m for m in self.messages]


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors]
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
def test_whatever_ends_a_run_list_and_store_agree(
    script: list[Any],
    last: ScriptStep,
    limits: Limits,
    chosen: list[Any],
    leave: BaseException | None,
    cancel_at: int | None,
    failing: int | None,
    native: bool,
) -> None:
    """BaseExceptions of tools, asyncio's cancel at any step, a failing store, policies that speak at once."""

    @tool
    async def broken() -> str:
        """Leave, or fail."""
        await anyio.lowlevel.checkpoint()
        raise leave if leave is not None else RuntimeError("broken")

    provider = Script(*script, repeat(last))
    events: list[Event] = []
    journal = Journal(failing)
    cancel = Cancel()
    given = [noop, term, lonely, hint, broken]
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
    except (asyncio.CancelledError, SystemExit, KeyboardInterrupt, Quit, OSError, ZeroDivisionError) as error:
        raised, result = error, getattr(error, "result", None)
    if result is None:  # cancelled before it was begun; asyncio makes an interrupt of its own
        assert not events or isinstance(raised, KeyboardInterrupt)
        return
    assert [type(event).__name__ for event in events].count("RunEnd") == 1
    assert_paired(result.new_messages)
    starts = [event.id for event in events if isinstance(event, MessageStart)]
    assert starts == [event.message.id for event in events if isinstance(event, MessageEnd)]
    assert provider.open_streams == 0
    if failing is None or journal.writes <= failing:
        compacted = any(type(event).__name__ == "Compacted" for event in events)
        if not compacted:  # the prompt is the caller's to store
            assert journal.messages == list(result.messages[1:])
    else:
        own = {message.id for message in result.messages}
        kept = [message for message in journal.messages if message.id in own or getattr(message, "origin", "") in OURS]
        assert kept == journal.messages or any(type(event).__name__ == "Compacted" for event in events)

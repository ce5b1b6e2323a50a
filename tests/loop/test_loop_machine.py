"""Random scripts, tools, limits and cancellations: the invariants of a run hold on every outcome."""

from __future__ import annotations

from collections.abc import Sequence
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
    RunResult,
    StopReason,
    ToolResult,
    Usage,
    run,
    run_continue,
    tool,
)
from glue.events import Event, TurnEnd, TurnStart
from glue.limits import StopReason as Reason
from glue.loop.transcript import OURS, harden
from glue.messages import AssistantMessage, Part, Text, Thinking, ToolMessage, UserMessage, user
from glue.policies import FollowUp, Gate, Gates, Steering
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
ERRORS = (Outcome.MAX_TURNS, Outcome.BUDGET, Outcome.HALTED, Outcome.CANCELLED, Outcome.FAILED, Outcome.CONTEXT_WINDOW)


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
            Halve,
        ]
    ),
    max_size=2,
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
        if isinstance(message, ToolMessage):
            assert waiting
            assert waiting.pop(0) == message.call_id
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = [part.id for part in message.calls]
    assert not waiting


@settings(
    max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors]
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

"""Streams yield the events of a run, wait for their reader, and cancel the run if left early."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest

from glue import (
    Agent,
    tool,
)
from glue.errors import (
    Cancelled,
    ProviderError,
)
from glue.events import Event, RunEnd, RunStart, ToolStart
from glue.provider import TextDelta
from glue.testing import Script, call, calls, fail, say


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees"


LOOK = calls(call("weather", {"city": "Toronto"}), text="Let me look.")


async def test_a_stream_yields_events_and_then_has_the_result() -> None:
    agent = Agent(Script(LOOK, say("abc", chunk=1)), tools=[weather])

    async with agent.stream("x") as events:
        seen = [event async for event in events]

    assert isinstance(seen[0], RunStart)
    assert isinstance(seen[-1], RunEnd)
    assert [event.text for event in seen if isinstance(event, TextDelta)] == [
        "Let me look.",
        "a",
        "b",
        "c",
    ]
    assert events.result.text == "abc"


async def test_a_stream_waits_for_its_reader() -> None:
    ahead = 0

    def counted(request: Any) -> Any:
        return say("x" * 50, chunk=1)

    class Counting(Script):
        async def stream(self, request: Any) -> Any:
            nonlocal ahead
            async with aclosing(super().stream(request)) as inner:  # type: ignore[type-var]
                async for event in inner:
                    ahead += 1
                    yield event

    read = 0
    async with Agent(Counting(counted)).stream("x") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                read += 1
                await anyio.wait_all_tasks_blocked()
                assert ahead <= read + 2


async def test_leaving_a_stream_early_cancels_the_run() -> None:
    script = Script(say("x" * 50, chunk=1))

    async with Agent(script).stream("x") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break

    assert script.open_streams == 0
    with pytest.raises(Cancelled):
        _ = events.result


async def test_an_error_in_the_block_of_a_stream_is_raised_unchanged() -> None:
    script = Script(say("x" * 50, chunk=1))

    with pytest.raises(KeyError, match="mine"):
        async with Agent(script).stream("x") as events:
            await anext(events)
            raise KeyError("mine")

    assert script.open_streams == 0


async def test_a_stream_of_a_failing_run_raises_at_its_end() -> None:
    last: Event | None = None

    with pytest.raises(ProviderError, match="scripted failure"):
        async with Agent(Script(fail("auth"))).stream("x") as events:
            async for event in events:
                last = event

    assert isinstance(last, RunEnd)


async def test_reading_the_result_before_the_end_of_a_stream_raises() -> None:
    async with Agent(Script("x")).stream("x") as events:
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = events.result
        async for _ in events:
            pass


async def test_s130_the_start_of_a_tool_is_read_while_the_tool_runs() -> None:
    read = anyio.Event()

    @tool
    async def slow() -> str:
        """Wait for the reader."""
        await read.wait()
        return "ok"

    with anyio.fail_after(5):
        async with Agent(Script(calls("slow"), "x"), tools=[slow]).stream("go") as events:
            async for event in events:
                if isinstance(event, ToolStart):
                    read.set()

    assert events.result.text == "x"


async def test_a_stream_may_be_closed_from_another_task() -> None:
    @tool
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    events = Agent(Script(calls("hang")), tools=[hang]).stream("go")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.__aenter__)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(events.__aexit__, None, None, None)

    with pytest.raises(Cancelled):
        assert events.result


@pytest.mark.parametrize("error", [SystemExit(3), ZeroDivisionError()])
async def test_an_error_that_ends_a_streamed_run_is_raised_in_the_reader(
    error: BaseException,
) -> None:
    @tool
    async def leave() -> str:
        """Leave."""
        raise error

    script = Script(error) if isinstance(error, Exception) else Script(calls("leave"))
    with pytest.raises(type(error)):
        async with Agent(script, tools=[leave]).stream("go") as events:
            async for _ in events:
                pass


def test_an_async_listener_of_a_stream_is_refused() -> None:
    async def listener(event: Event) -> None:
        pass

    with pytest.raises(TypeError, match="on_event must be a plain function"):
        Agent(Script("x")).stream("go", on_event=listener)


def test_an_unknown_argument_is_refused_before_the_events_are_read() -> None:
    untyped: Any = Agent(Script("x"))

    with pytest.raises(TypeError, match="colour"):
        untyped.stream("go", colour="red")


async def test_a_reader_sleeps_until_the_next_event() -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Wait for the test."""
        begun.set()
        await go_on.wait()
        return "ok"

    async def read() -> None:
        async for _ in events:
            pass

    agent = Agent(Script(calls("slow"), "x"), tools=[slow])
    with anyio.fail_after(5):
        async with agent.stream("go") as events, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await begun.wait()
            await anyio.wait_all_tasks_blocked()
            go_on.set()

    assert events.result.text == "x"


async def test_no_event_can_be_read_after_the_block_was_left_early() -> None:
    async with Agent(Script(say("x" * 50, chunk=1))).stream("x") as events:
        await anext(events)

    for _ in range(2):
        with pytest.raises(Cancelled):
            await anext(events)


async def test_a_stream_ends_its_iteration_after_the_last_event() -> None:
    async with Agent(Script("x")).stream("x") as events:
        assert len([event async for event in events]) > 2

        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_leaving_a_stream_in_a_cancelled_scope_waits_for_the_end_of_the_run() -> None:
    script = Script(say("x" * 50, chunk=1))

    with anyio.CancelScope() as scope:
        async with Agent(script).stream("x") as events:
            await anext(events)
            scope.cancel()
            await anyio.sleep_forever()

    assert script.open_streams == 0
    with pytest.raises(Cancelled):
        _ = events.result


async def test_an_error_before_the_first_event_reaches_the_reader() -> None:
    agent: Agent[Any, Any] = Agent(Script("x"), deps_type=int)

    with anyio.fail_after(5), pytest.raises(TypeError, match="needs deps of the type int"):
        async with agent.stream("x") as events:
            await anext(events)


def test_a_run_whose_event_loop_ends_was_cancelled() -> None:
    async def main() -> Any:
        events = Agent(Script(say("x" * 50, chunk=1))).stream("x")
        await events.__aenter__()
        await anext(events)
        return events  # the block is not left

    events = anyio.run(main)

    with pytest.raises(Cancelled):
        _ = events.result

"""Running a batch: at once but not too many, alone where asked, results in the order of the calls."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from glue import (
    AssistantMessage,
    Cancel,
    Context,
    Host,
    Limits,
    ToolCall,
    ToolError,
    ToolMessage,
    ToolResult,
    ToolSpec,
    run,
    text_result,
    tool,
)
from glue.events import Event, ToolEnd, ToolStart
from glue.messages import Text
from glue.testing import Script, call, calls, shape


class Crowd:
    """Counts how many tools run at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.seen: list[tuple[str, int]] = []

    async def work(self, name: str) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        await anyio.wait_all_tasks_blocked()
        self.seen.append((name, self.now))
        self.now -= 1
        return name


def results(messages: Any) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolMessage)]


@pytest.mark.parametrize(("limit", "most"), [(8, 8), (3, 3), (2, 2), (1, 1)])
async def test_so_many_run_at_once(limit: int, most: int) -> None:
    crowd = Crowd()

    @tool
    async def work(n: int) -> str:
        """Work."""
        return await crowd.work(str(n))

    named = [call("work", {"n": n}) for n in range(10)]
    result = await run(Script(calls(*named), "x"), "go", tools=[work], limits=Limits(parallel_tools=limit))

    assert crowd.most == most
    assert results(result.messages) == [str(n) for n in range(10)]


async def test_a_lonely_tool_runs_alone() -> None:
    crowd = Crowd()

    @tool
    async def work() -> str:
        """Work."""
        return await crowd.work("work")

    @tool(alone=True)
    async def alone() -> str:
        """Work alone."""
        return await crowd.work("alone")

    await run(Script(calls("work", "work", "alone", "work", "work", "alone"), "x"), "go", tools=[work, alone])

    assert [count for name, count in crowd.seen if name == "alone"] == [1, 1]
    assert [name for name, _ in crowd.seen] == ["work", "work", "alone", "work", "work", "alone"]
    assert crowd.most == 2


async def test_ends_are_told_as_they_come_and_stored_in_order() -> None:
    second_done = anyio.Event()
    events: list[Event] = []

    @tool
    async def first() -> str:
        """Wait for the second."""
        await second_done.wait()
        return "1"

    @tool
    async def second() -> str:
        """Be quick."""
        second_done.set()
        return "2"

    result = await run(Script(calls("first", "second"), "x"), "go", tools=[first, second], on_event=events.append)

    assert [event.message.text for event in events if isinstance(event, ToolEnd)] == ["2", "1"]
    assert results(result.messages) == ["1", "2"]
    assert {event.call.name for event in events if isinstance(event, ToolStart)} == {"first", "second"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("raed_file", "unknown tool 'raed_file'; did you mean read_file?; there are: list_dir, read_file"),
        ("zzz", "unknown tool 'zzz'; there are: list_dir, read_file"),
    ],
)
async def test_an_unknown_tool_gets_the_closest_names(name: str, says: str) -> None:
    @tool
    async def read_file() -> str:
        """Read."""
        return ""

    @tool
    async def list_dir() -> str:
        """List."""
        return ""

    result = await run(Script(calls(name), "x"), "go", tools=[read_file, list_dir])

    assert results(result.messages) == [says]


async def test_three_near_misses_are_enough() -> None:
    tools = [Plain(None, name=f"read_file_{letter}") for letter in "abcd"]

    result = await run(Script(calls("read_file_e"), "x"), "go", tools=tools)

    hint = results(result.messages)[0].split(";")[1]
    assert hint.count("read_file") == 3


async def test_nothing_stays_attached_to_a_token() -> None:
    class Counted(Cancel):
        attached = 0

        def attach(self, action: Any) -> None:
            Counted.attached += 1
            super().attach(action)

        def detach(self, action: Any) -> None:
            Counted.attached -= 1
            super().detach(action)

    await run(Script(calls("plain"), "x"), "go", tools=[Plain(lambda _: text_result("ok"))], cancel=Counted())

    assert Counted.attached == 0


class Plain:
    """The least that is a tool."""

    alone = False
    advisory = False

    def __init__(self, act: Any, name: str = "plain") -> None:
        self.spec = ToolSpec(name=name)
        self.act = act

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        return self.act(context)  # type: ignore[no-any-return]


async def test_whatever_a_tool_raises_becomes_an_error_result() -> None:
    def wrong(context: Context[Any]) -> ToolResult:
        raise ToolError("say it better")

    def bug(context: Context[Any]) -> ToolResult:
        raise KeyError("x")

    events: list[Event] = []
    told = await run(Script(calls("plain"), "x"), "go", tools=[Plain(wrong)])
    broke = await run(Script(calls("plain"), "x"), "go", tools=[Plain(bug)], on_event=events.append)

    assert results(told.messages) == ["say it better"]
    assert results(broke.messages) == ["KeyError: 'x'"]
    (end,) = [event for event in events if isinstance(event, ToolEnd)]
    assert "Traceback" in end.traceback
    assert end.message.is_error
    assert 0 <= end.seconds < 60


async def test_a_tool_that_returns_something_else_is_told_to_the_model() -> None:
    result = await run(Script(calls("plain", "plain"), "x"), "go", tools=[Plain(lambda _: "ok")])

    assert results(result.messages) == ["TypeError: tool 'plain' must return a glue.ToolResult, not 'ok'"] * 2


async def test_a_tool_knows_where_it_runs() -> None:
    seen: list[Context[Any]] = []

    def look(context: Context[Any]) -> ToolResult:
        seen.append(context)
        return ToolResult(content=(Text(text="ok"),))

    host = Host(session_id="s", deps={"a": 1}, run_id="r")
    limits = Limits(max_turns=5)
    await run(
        Script(calls(call("plain", id="c1")), calls("plain"), "x"), "go", tools=[Plain(look)], host=host, limits=limits
    )
    await run(Script(calls("plain"), "x"), "go", tools=[Plain(look)], limits=Limits(max_turns=None))

    await run(Script(calls("plain")), "go", tools=[Plain(look)], limits=Limits(max_turns=1))

    first, second, third, last = seen
    assert (first.session_id, first.run_id, first.deps, first.call.id) == ("s", "r", {"a": 1}, "c1")
    assert (first.turns_left, second.turns_left, third.turns_left, last.turns_left) == (4, 3, None, 0)
    assert first.limits is limits
    assert not first.cancelled
    assert first.spending.requests == 3


async def test_the_clock_ends_a_batch() -> None:
    @tool
    async def hang() -> str:
        """Never return."""
        await anyio.sleep_forever()
        return ""

    @tool
    async def quick() -> str:
        """Return at once."""
        return "ok"

    result = await run(Script(calls("quick", "hang"), "x"), "go", tools=[quick, hang], limits=Limits(seconds=0.05))

    assert (result.outcome, shape(result.messages)) == ("budget", "u a t t")
    assert results(result.messages) == ["ok", "cancelled"]
    assert isinstance(reply := result.messages[1], AssistantMessage)
    assert reply.stop_reason == "token_budget"


async def test_a_tool_that_was_cut_short_is_told_to_have_ended() -> None:
    events: list[Event] = []
    cancel = Cancel()

    @tool
    async def hang() -> str:
        """Never return."""
        cancel.cancel()
        await anyio.sleep_forever()
        return ""

    script = Script(calls(call("hang", id="a"), call("hang", id="b")))
    await run(script, "go", tools=[hang], on_event=events.append, cancel=cancel, limits=Limits(parallel_tools=1))

    assert [event.call.id for event in events if isinstance(event, ToolStart)] == ["a"]
    assert [(e.call.id, e.message.text) for e in events if isinstance(e, ToolEnd)] == [("a", "cancelled")]

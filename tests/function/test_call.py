"""Calls of tools: arguments, context, threads, timeouts, cancellation and results."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import pytest
from fakes.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import glue
from glue.context import Spending
from glue.function.call import supplied_result
from glue.messages import ToolSpec
from glue.testing import Script, call, calls

if TYPE_CHECKING:
    from decimal import Decimal


def context_of(
    asked: glue.ToolCall, reports: list[Any] | None = None, **host: Any
) -> glue.Context[Any]:
    return glue.Context(
        call=asked,
        host=glue.context.Host(**host),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: (
            None if reports is None else reports.append((*said, threading.get_ident()))
        ),
    )


async def invoke(
    tool: glue.Tool[..., Any], arguments: Any = "", reports: list[Any] | None = None, **host: Any
) -> glue.ToolResult:
    asked = call(tool.name, arguments, id="c1")
    return await tool.invoke(asked, context_of(asked, reports, **host))


class Mode(enum.Enum):
    FAST = "fast"


@dataclasses.dataclass
class Order:
    item: str
    due: datetime.date


@glue.tool
def weather(
    city: str, days: Annotated[int, glue.Field("days ahead", ge=1)] = 3, *, metric: bool = True
) -> str:
    """Return the weather of a city."""
    return f"{city} {days} {metric}"


async def test_a_call_that_was_cut_is_not_run() -> None:
    ran: list[int] = []

    @glue.tool
    def one() -> None:
        ran.append(1)

    asked = glue.ToolCall(id="c", name="one", arguments="", complete=False)
    result = await one.invoke(asked, context_of(asked))

    assert result.is_error
    assert ran == []


async def test_the_context_is_passed_to_the_function_and_hidden_from_the_model() -> None:
    @glue.tool
    async def one(context: glue.Context[int], number: int) -> str:
        context.progress("half", {"done": 1})
        return f"{context.deps + number} {context.session_id} {context.cancelled} {context.call.id}"

    reports: list[Any] = []
    result = await invoke(one, {"number": 2}, reports, deps=40, session_id="s")

    assert list(one.spec.parameters["properties"]) == ["number"]
    assert result.text == "42 s False c1"
    assert [said[:3] for said in reports] == [("half", {"done": 1}, None)]


async def test_the_type_of_deps_may_be_missing_or_known_only_to_type_checkers() -> None:
    @glue.tool
    def bare(context: glue.Context) -> str:  # type: ignore[type-arg]
        return context.session_id

    @glue.tool
    def typed(context: glue.Context[Decimal]) -> str:
        return context.session_id

    assert (await invoke(bare, session_id="s")).text == "s"
    assert (await invoke(typed, session_id="s")).text == "s"


async def test_progress_of_a_tool_in_a_thread_is_reported_in_the_event_loop() -> None:
    @glue.tool
    def one(context: glue.Context[None]) -> int:
        context.progress("here")
        return threading.get_ident()

    reports: list[Any] = []
    result = await invoke(one, "", reports)

    assert result.text != str(threading.get_ident())
    assert reports == [("here", None, None, threading.get_ident())]


async def test_a_plain_function_runs_in_a_thread() -> None:
    gate = threading.Event()

    @glue.tool
    def wait() -> str:
        return "opened" if gate.wait(30) else "never opened"

    async with anyio.create_task_group() as tasks:
        results: list[glue.ToolResult] = []

        async def run() -> None:
            results.append(await invoke(wait))

        tasks.start_soon(run)
        await anyio.lowlevel.checkpoint()
        gate.set()

    assert results[0].text == "opened"


async def test_an_exception_is_an_error_result_with_its_type_and_message_but_no_traceback() -> None:
    @glue.tool
    def sync() -> None:
        raise KeyError("sync")

    @glue.tool
    async def grouped() -> None:
        async with anyio.create_task_group():
            raise RuntimeError("alone in a group")

    @glue.tool
    async def several() -> None:
        raise ExceptionGroup("2 of them", [ValueError("the first"), OSError("the second")])

    @glue.tool
    async def told() -> None:
        raise glue.ToolError("use another name")

    @glue.tool
    def stops() -> None:
        raise StopIteration

    results = [await invoke(tool) for tool in (sync, grouped, several, told, stops)]

    assert all(result.is_error and not result.terminate for result in results)
    assert [result.text for result in results] == [
        "KeyError: 'sync'",
        "RuntimeError: alone in a group",
        "ValueError: the first",
        "use another name",
        "StopIteration",
    ]
    assert all("Traceback" in result.traceback for result in results)
    assert "the second" in results[2].traceback


async def test_a_timeout_is_an_error_result_with_the_limit() -> None:
    gate = threading.Event()

    @glue.tool(timeout=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    @glue.tool(timeout=0.01)
    def stuck() -> None:
        gate.wait(30)

    try:
        results = [await invoke(slow), await invoke(stuck)]
    finally:
        gate.set()

    assert all(result.is_error for result in results)
    assert [result.text for result in results] == [
        "slow timed out after 0.01 seconds",
        "stuck timed out after 0.01 seconds",
    ]


async def test_a_timeout_error_that_the_tool_raises_is_not_its_time_limit() -> None:
    @glue.tool(timeout=30)
    async def own() -> None:
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    assert (await invoke(own)).text == "TimeoutError"


async def test_cancellation_is_raised_and_is_not_a_result() -> None:
    gate = threading.Event()

    @glue.tool(timeout=30)
    async def slow() -> None:
        await anyio.sleep_forever()

    @glue.tool
    def stuck() -> None:
        gate.wait(30)

    try:
        for tool in (slow, stuck):
            results: list[glue.ToolResult] = []
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def run(
                        tool: glue.Tool[..., Any] = tool, results: list[glue.ToolResult] = results
                    ) -> None:
                        results.append(await invoke(tool))

                    tasks.start_soon(run)
                    await anyio.lowlevel.checkpoint()
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
            assert scope.cancelled_caught
            assert results == []
    finally:
        gate.set()


async def test_a_thread_that_was_abandoned_reports_no_progress() -> None:
    gate, done = threading.Event(), threading.Event()

    @glue.tool(timeout=0.01)
    def stuck(context: glue.Context[None]) -> None:
        gate.wait(30)
        context.progress("too late")
        done.set()

    reports: list[Any] = []
    result = await invoke(stuck, "", reports)
    gate.set()
    await anyio.to_thread.run_sync(done.wait, 30)

    assert "timed out" in result.text
    assert reports == []


async def test_a_failed_call_of_a_terminating_tool_does_not_end_the_run() -> None:
    @glue.tool(terminates=True)
    async def finish(well: bool) -> str:
        if not well:
            raise ValueError("not yet")
        return "done"

    assert (await invoke(finish, {"well": True})).terminate
    assert not (await invoke(finish, {"well": False})).terminate
    assert not (await invoke(finish, {"well": "x"})).terminate


PICTURE = glue.Image(data=b"png")


class Strange:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, "(no output)"),
        (3, "3"),
        (True, "true"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ({"ü": "ü"}, '{"ü": "ü"}'),
        (["a", "b"], '["a", "b"]'),
        ({"b", "a"}, '["a", "b"]'),
        (Order("tea", datetime.date(2026, 1, 2)), '{"item": "tea", "due": "2026-01-02"}'),
        (Mode.FAST, '"fast"'),
        (b"hi", '"aGk="'),
        (glue.Text(text="part"), "part"),
        ([glue.Text(text="a"), "b", PICTURE], "ab"),
        (glue.text_result("ready"), "ready"),
        ("lone \ud800 surrogate", "lone ? surrogate"),
    ],
)
async def test_values_that_tools_return_become_text(value: Any, text: str) -> None:
    @glue.tool
    async def give() -> Any:
        return value

    result = await invoke(give)

    assert not result.is_error
    assert result.text == text


async def test_parts_that_a_tool_returns_are_the_content_of_the_result() -> None:
    @glue.tool
    def look() -> Any:
        return ["a picture:", PICTURE]

    assert (await invoke(look)).content == (glue.Text(text="a picture:"), PICTURE)


async def test_a_value_that_cannot_be_written_as_json_is_an_error_with_its_type() -> None:
    @glue.tool
    def give() -> Any:
        return [Strange()]

    result = await invoke(give)

    assert result.is_error
    assert "Strange cannot be written as JSON" in result.text


async def test_an_awaitable_that_a_plain_function_returns_is_awaited() -> None:
    async def later() -> str:
        return "later"

    def start() -> Awaitable[str]:
        return later()

    assert (await invoke(glue.tool(start))).text == "later"


async def test_calls_run_concurrently_and_results_keep_the_order_of_the_calls() -> None:
    started = [anyio.Event(), anyio.Event()]

    @glue.tool
    async def meet(index: int) -> str:
        started[index].set()
        await started[1 - index].wait()
        return str(index)

    provider = Script(calls(call("meet", {"index": 0}), call("meet", {"index": 1})), "bye")
    with anyio.fail_after(10):
        result = await glue.run(provider, [glue.user("go")], tools=[meet])

    assert [
        message.text for message in result.messages if isinstance(message, glue.ToolMessage)
    ] == ["0", "1"]


async def test_a_misspelt_tool_name_is_answered_with_the_closest_name() -> None:
    result = await glue.run(
        Script(calls(call("wether")), "bye"), [glue.user("go")], tools=[weather]
    )

    assert "weather" in result.messages[2].text


async def test_parts_beside_a_long_text_are_returned_unchanged() -> None:
    picture = glue.Image(media_type="image/png", data=b"x" * 1_000)

    @glue.tool(max_output=200)
    def look(size: int) -> list[Any]:
        return [picture, "y" * size]

    for size, is_whole in ((200, True), (201, False)):
        first, text = (await invoke(look, {"size": size})).content
        assert first is picture
        assert isinstance(text, glue.Text)
        assert (text.text == "y" * size) == is_whole


async def test_a_tool_without_a_limit_returns_any_text_whole() -> None:
    @glue.tool(max_output=None)
    def big() -> str:
        return "x" * 100_000

    assert (await invoke(big)).text == "x" * 100_000


async def test_a_supplied_result_needs_only_the_name_of_the_tool() -> None:
    class Bare:
        spec = ToolSpec(name="bare")

    result = await supplied_result(Bare(), {"port": 8080})

    assert (result.text, result.terminate, result.is_error) == ('{"port": 8080}', False, False)


async def test_only_a_successful_call_of_a_final_tool_asks_to_end_the_run() -> None:
    @glue.tool(terminates=True)
    def final(number: int) -> int:
        return 10 // number

    assert (await invoke(final, '{"number": 3}')).terminate
    assert not (await invoke(final, '{"number": 0}')).terminate


KEYS = ["city", "days", "orders", "item", "due", "mode", "z"]
ANYTHING = st.one_of(
    st.text(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
        ),
        max_leaves=8,
    ).map(json.dumps),
    st.text(alphabet='{}[]":,0123456789eE.-+ntf \\u\ud800', max_size=30),
)


@glue.tool
async def everything(
    city: str,
    days: int | None = None,
    orders: tuple[Order, ...] = (),
    mode: Mode = Mode.FAST,
    z: dict[str, set[str]] | bytes | None = None,
) -> str:
    return "fine"


@settings(max_examples=examples(500), deadline=None)
@given(ANYTHING)
def test_any_text_as_arguments_gives_a_result(text: str) -> None:
    result = anyio.run(invoke, everything, text)

    assert result.text == "fine" or result.is_error
    result.text.encode()

"""The context and the result of a tool call, cancellation and spending."""

from __future__ import annotations

import copy
import threading
from typing import Any

import anyio
import pytest

from glue import Cancel, Context, Text, ToolResult, Usage, error_result, text_result, tool
from glue.context import Host, Spending, ToolWrapper
from glue.testing import call


def test_a_text_result_has_one_text() -> None:
    result = text_result("found")

    assert (result.text, result.content, result.is_error) == ("found", (Text(text="found"),), False)


@pytest.mark.parametrize(
    ("error", "text"),
    [("broken", "broken"), (KeyError("x"), "KeyError: 'x'"), (ValueError(), "ValueError")],
)
def test_an_error_result_has_the_type_and_the_message_of_an_exception(
    error: Exception | str, text: str
) -> None:
    result = error_result(error)

    assert (result.text, result.is_error) == (text, True)


@pytest.mark.parametrize("content", ["text", ("text",), None, [3]])
def test_the_content_of_a_result_must_be_parts(content: Any) -> None:
    with pytest.raises(TypeError, match="the content of a ToolResult must be parts"):
        ToolResult(content=content)


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ([1], r"must be a mapping of JSON values, not \[1\]"),
        ({"a": object()}, "must be writable as JSON: .*object"),
    ],
)
def test_the_meta_of_a_result_must_be_a_mapping_of_json_values(meta: Any, why: str) -> None:
    with pytest.raises(TypeError, match=f"the meta of a ToolResult {why}"):
        ToolResult(content=(), meta=meta)


async def test_cancelling_in_another_thread_calls_the_action_in_its_event_loop() -> None:
    cancel, cancelled = Cancel(), anyio.Event()
    threads: list[int] = []

    def action() -> None:
        threads.append(threading.get_ident())
        cancelled.set()

    cancel.attach(action)
    await anyio.to_thread.run_sync(cancel.cancel)
    with anyio.fail_after(10):
        await cancelled.wait()

    assert cancel.cancelled
    assert set(threads) == {threading.get_ident()}


async def test_an_action_that_is_attached_after_the_cancellation_is_called_at_once() -> None:
    cancel, calls = Cancel(), []
    cancel.cancel()

    cancel.attach(lambda: calls.append(1))

    assert calls == [1]


async def test_an_action_that_was_detached_is_not_called() -> None:
    cancel, calls = Cancel(), []

    def action() -> None:
        calls.append(1)

    cancel.attach(action)
    cancel.detach(action)
    cancel.cancel()

    assert calls == []


def test_a_sub_agent_spends_from_the_run_above_it() -> None:
    parent = Spending()
    child = Spending(parent)

    child.spend(requests=1, tokens_in=3, tokens_out=4, usage=Usage(output=4, cost=0.5))

    for spending in (parent, child):
        assert (spending.requests, spending.tokens_in, spending.tokens_out) == (1, 3, 4)
        assert (spending.usage.output, spending.usd) == (4, 0.5)


def test_the_scope_is_the_session_of_the_nearest_run_that_has_one() -> None:
    outer = Context[None](call=call("a"), host=Host(run_id="outer", session_id="s"))
    inner = Context[None](call=call("b"), host=Host(run_id="inner", parent=outer))

    assert (outer.scope, inner.scope) == ("s", "s")


def test_the_scope_without_a_session_is_the_outermost_run() -> None:
    outer = Context[None](call=call("a"), host=Host(run_id="outer"))
    inner = Context[None](call=call("b"), host=Host(run_id="inner", parent=outer))

    assert inner.scope == "outer"


def test_progress_of_a_context_without_listeners_is_dropped() -> None:
    Context[None](call=call("a")).progress("half", {"done": 1})


def test_a_wrapped_tool_has_the_attributes_of_its_tool_and_can_be_copied() -> None:
    @tool(alone=True)
    def look() -> None: ...

    wrapper = copy.copy(ToolWrapper(look))

    assert (wrapper.spec, wrapper.alone) == (look.spec, True)
    with pytest.raises(AttributeError):
        wrapper.nothing  # noqa: B018


async def test_cancelling_in_the_thread_of_the_event_loop_calls_the_action_at_once() -> None:
    cancel, calls = Cancel(), list[int]()

    def action() -> None:
        calls.append(1)

    cancel.attach(action)
    cancel.cancel()
    assert calls == [1]
    cancel.detach(action)
    before = len(calls)
    cancel.cancel()

    assert len(calls) == before

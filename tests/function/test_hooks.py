"""Hooks of tools: skip, replace, abort, and their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import glue
from glue.context import Spending
from glue.testing import Script, call, calls

if TYPE_CHECKING:
    pass


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


def hooks_log() -> tuple[list[str], Callable[..., glue.ToolHook]]:
    log: list[str] = []

    def named(name: str, answer: Any = None, final: Any = None) -> glue.ToolHook:
        def before(step: glue.Step) -> Any:
            log.append(f"{name} before {step.arguments}")
            return answer

        async def after(step: glue.Step, result: glue.ToolResult) -> Any:
            log.append(f"{name} after {result.text}")
            return final

        return glue.ToolHook(before=before, after=after)

    return log, named


@glue.tool
def double(number: int) -> int:
    return 2 * number


async def test_each_hook_sees_the_arguments_and_result_that_the_previous_hook_left() -> None:
    log, named = hooks_log()
    hooks = (
        named("a", glue.Replace({"number": 5})),
        named("b", None, glue.text_result("changed")),
        named("c"),
    )

    result = await invoke(double, {"number": 1}, hooks=hooks)

    assert result.text == "changed"
    assert log == [
        "a before {'number': 1}",
        "b before {'number': 5}",
        "c before {'number': 5}",
        "a after 10",
        "b after 10",
        "c after changed",
    ]


async def test_a_hook_may_have_only_before_or_only_after() -> None:
    seen: list[str] = []
    before = glue.ToolHook(before=lambda step: seen.append(f"before {step.name}"))
    after = glue.ToolHook(after=lambda step, result: seen.append(f"after {result.text}"))

    result = await invoke(double, {"number": 1}, hooks=(after, before))

    assert result.text == "2"
    assert seen == ["before double", "after 2"]


async def test_a_skipped_tool_does_not_run() -> None:
    log, named = hooks_log()

    result = await invoke(
        double, {"number": 1}, hooks=(named("a", glue.Skip("instead")), named("b"))
    )

    assert result.text == "instead"
    assert log == ["a before {'number': 1}", "a after instead", "b after instead"]


async def test_a_hook_that_raises_prevents_the_call() -> None:
    def broken(step: glue.Step) -> None:
        raise OSError("no log")

    result = await invoke(double, {"number": 1}, hooks=(glue.ToolHook(before=broken),))

    assert result.is_error
    assert result.text == "OSError: no log"


async def test_an_abort_of_a_hook_cancels_the_run() -> None:
    def stop(step: glue.Step) -> glue.Abort:
        return glue.Abort("enough")

    provider = Script(calls(call("double", {"number": 1})), "never asked")
    result = await glue.run(
        provider,
        [glue.user("go")],
        tools=[double],
        host=glue.context.Host(hooks=(glue.ToolHook(before=stop),)),
    )

    assert result.outcome is glue.Outcome.CANCELLED
    assert result.messages[-1].text == "enough"


async def test_permission_is_asked_for_the_arguments_that_the_hooks_replaced() -> None:
    seen: list[Any] = []

    class Policy:
        def decide(self, request: glue.permission.PermissionRequest) -> glue.permission.Decision:
            seen.append((request.target, request.arguments))
            return glue.allow()

    @glue.tool(needs_permission=True, target="path")
    def save(path: str) -> str:
        return path

    hook = glue.ToolHook(before=lambda step: glue.Replace({"path": "safe"}))
    result = await invoke(save, {"path": "unsafe"}, hooks=(hook,), permission=Policy())

    assert result.text == "safe"
    assert seen == [("safe", {"path": "safe"})]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (glue.Abort, "reason must be a"),
        (glue.Skip, "result must be a text or a glue.ToolResult, not 7"),
        (glue.Replace, "arguments must be a dict of names to values, not 7"),
        (lambda value: glue.ToolHook(before=value), "before must be a function, not 7"),
        (lambda value: glue.ToolHook(after=value), "after must be a function, not 7"),
    ],
)
def test_a_wrong_value_of_a_hook_is_named(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(7)

"""Calls that hooks and a permission policy check before they run."""

from __future__ import annotations

from typing import Any

import glue
from glue.context import Spending
from glue.testing import call


async def invoke(tool: glue.Tool[..., Any], arguments: str = "", **host: Any) -> glue.ToolResult:
    asked = call(tool.name, arguments, id="c1")
    context: glue.Context[Any] = glue.Context(
        call=asked,
        host=glue.context.Host(**host),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: None,
    )
    return await tool.invoke(asked, context)


async def test_a_target_of_none_needs_no_permission() -> None:
    def target(given: Any) -> str | None:
        return None if given["name"] == "public" else given["name"]

    @glue.tool(needs_permission=True, target=target)
    def look(name: str) -> str:
        """Look something up."""
        return f"found {name}"

    assert (await invoke(look, '{"name": "public"}')).text == "found public"
    assert (await invoke(look, '{"name": "secret"}')).text.startswith(
        "permission denied: look secret"
    )


async def test_hooks_come_before_permission_and_see_the_result_after_the_call() -> None:
    seen: list[str] = []

    class Policy:
        def decide(self, request: Any) -> Any:
            seen.append(f"permission for {request.arguments['name']}")
            return glue.allow()

    def before(step: glue.Step) -> glue.Replace:
        seen.append("before")
        return glue.Replace({"name": "b"})

    def after(step: glue.Step, result: glue.ToolResult) -> None:
        seen.append(f"after {result.text}")

    @glue.tool(needs_permission=True)
    def look(name: str) -> str:
        """Look something up."""
        return f"found {name}"

    hooks = (glue.ToolHook(before=before, after=after),)
    result = await invoke(look, '{"name": "a"}', permission=Policy(), hooks=hooks)

    assert result.text == "found b"
    assert seen == ["before", "permission for b", "after found b"]


async def test_a_call_that_a_hook_skips_needs_no_permission_and_does_not_run() -> None:
    @glue.tool(needs_permission=True)
    def look() -> str:
        """Look something up."""
        raise AssertionError("the tool ran")

    hooks = (glue.ToolHook(before=lambda step: glue.Skip("not today")),)
    result = await invoke(look, hooks=hooks)

    assert (result.text, result.is_error) == ("not today", False)

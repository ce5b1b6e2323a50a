"""Calls that hooks and a permission policy check before they run."""

from __future__ import annotations

import time
from typing import Any

import pytest

import glue
from glue.context import Host, Spending
from glue.function.guard import Decided
from glue.pending import CallDeferred, shown_request
from glue.permission import PermissionRequest, PermissionTarget
from glue.testing import call


async def invoke(tool: glue.Tool[..., Any], arguments: str = "", **host: Any) -> glue.ToolResult:
    asked = call(tool.name, arguments, id="c1")
    decided = host.pop("decided", None)
    context: glue.Context[Any] = glue.Context(
        call=asked,
        decided=decided,
        host=Host(**host),
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


def changing(marks: list[str]) -> Any:
    """Return a `target` function whose mark changes with each call."""

    def target(given: Any) -> PermissionTarget:
        marks.append(f"state {len(marks)}")
        return PermissionTarget(text="x", mark=marks[-1])

    return target


async def test_an_allowed_pending_call_runs_if_its_request_is_the_one_that_was_shown() -> None:
    marks: list[str] = []

    @glue.tool(needs_permission=True, target=changing(marks))
    def look() -> str:
        """Look something up."""
        return "found"

    shown = PermissionRequest(
        tool="look",
        action="look",
        target="x",
        arguments={},
        call_id="c1",
        touched=PermissionTarget(text="x", mark="state 0"),
    )
    decided = Decided(record={"request": shown_request(shown)})

    assert (await invoke(look, decided=decided)).text == "found"
    assert marks == ["state 0"]  # the target is read once
    with pytest.raises(CallDeferred) as later:
        await invoke(look, decided=decided)
    assert later.value.record["reason"] == (
        "the target of the call has changed since the decision was requested"
    )


async def test_a_target_that_fails_after_the_decision_is_an_error_and_the_tool_does_not_run() -> (
    None
):
    seen: list[int] = []

    def target(given: Any) -> PermissionTarget:
        seen.append(1)
        if len(seen) > 1:
            raise glue.ToolError("the file is gone")
        return PermissionTarget(text="x", mark="a")

    @glue.tool(needs_permission=True, target=target)
    def look() -> str:
        """Look something up."""
        raise AssertionError("the tool ran")

    result = await invoke(look, permission=glue.Ask(lambda request: True))

    assert (result.text, result.is_error) == ("the file is gone", True)


@pytest.mark.parametrize(("later", "asked"), [(None, 1), ("x", 2)])
async def test_a_person_is_asked_again_if_the_target_loses_its_state(
    later: str | None, asked: int
) -> None:
    targets = iter([PermissionTarget(text="x", mark="a"), *[later] * 5])
    questions: list[PermissionRequest] = []

    def ask(request: PermissionRequest) -> bool:
        questions.append(request)
        return True

    @glue.tool(needs_permission=True, target=lambda given: next(targets))
    def look() -> str:
        """Look something up."""
        return "found"

    assert (await invoke(look, permission=glue.Ask(ask))).text == "found"
    assert len(questions) == asked


async def test_a_call_without_a_policy_is_denied_at_once() -> None:
    marks: list[str] = []

    @glue.tool(needs_permission=True, target=changing(marks))
    def look() -> str:
        """Look something up."""
        raise AssertionError("the tool ran")

    result = await invoke(look)

    assert result.text == "permission denied: look x: no permission policy is set"
    assert len(marks) == 1


async def test_a_denial_without_a_reason_ends_with_the_target() -> None:
    class Never:
        def decide(self, request: PermissionRequest) -> glue.permission.Decision:
            return glue.deny()

    @glue.tool(needs_permission="open", target="path")
    def look(path: str = "a.txt") -> str:
        """Look something up."""
        raise AssertionError("the tool ran")

    assert (await invoke(look, permission=Never())).text == "permission denied: open a.txt"
    assert (
        await invoke(look, '{"path": ""}', permission=Never())
    ).text == "permission denied: open"


async def test_the_time_of_a_question_counts_for_the_call_and_for_the_calls_around_it() -> None:
    def context_of(parent: Any) -> glue.Context[Any]:
        host = Host(permission=glue.AllowAll(), parent=parent)
        return glue.Context(call=call("look"), host=host, report=lambda *said: None)

    @glue.tool(needs_permission=True)
    def look() -> str:
        """Look something up."""
        return "found"

    outer = context_of(None)
    inner = context_of(outer)

    await look.invoke(inner.call, inner)

    assert len(inner.waited) == len(outer.waited) == 1
    assert 0 <= inner.waited[0] <= outer.waited[0] < time.monotonic()


class Asks:
    """A policy that asks a person, and allows the call."""

    def needs_person(self, request: PermissionRequest) -> bool:
        return True

    def decide(self, request: PermissionRequest) -> glue.permission.Decision:
        return glue.allow()


@pytest.mark.parametrize(
    ("tried", "text"),
    [("confined", "confined"), (None, "free"), (OSError("lost"), "OSError: lost")],
)
async def test_a_call_is_tried_confined_before_a_person_is_asked(tried: Any, text: str) -> None:
    @glue.tool(needs_permission=True)
    def look() -> str:
        """Look something up."""
        return "free"

    async def trial(arguments: Any) -> Any:
        if isinstance(tried, Exception):
            raise tried
        return tried

    look.trial = trial

    assert (await invoke(look, permission=Asks())).text == text
    assert (await invoke(look, permission=glue.AllowAll())).text == "free"  # nobody is asked

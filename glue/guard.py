"""What stands around a call: hooks before and after it, and the permission to run it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glue.context import ToolResult, error_result
from glue.hooks import Abort, Replace, Skip
from glue.invoke import failed, run, settled
from glue.permission import PermissionRequest, as_decision
from glue.step import Step

if TYPE_CHECKING:
    from glue.tool import Tool


async def guarded(tool: Tool[..., Any], step: Step) -> ToolResult:
    """Ask the hooks, ask for permission for what they leave, run, and let the hooks see the result."""
    hooks = step.context.host.hooks
    result = await _before(hooks, step)
    if result is None and tool.needs_permission:
        result = await _ask(tool, step)
    if result is None:
        result = await run(tool, step.arguments, step.context)
    return await _after(hooks, step, result)


async def _before(hooks: tuple[Any, ...], step: Step) -> ToolResult | None:
    for hook in hooks:
        before = getattr(hook, "before", None)
        if before is None:
            continue
        try:
            answer = await settled(before(step))
        except Exception as error:
            return failed(error)  # a guard that fails must not let the call through
        if isinstance(answer, Skip):
            return answer.result
        if isinstance(answer, Abort):
            return _abort(step, answer)
        if isinstance(answer, Replace):
            step.arguments = dict(answer.arguments)
    return None


async def _after(hooks: tuple[Any, ...], step: Step, result: ToolResult) -> ToolResult:
    for hook in hooks:
        after = getattr(hook, "after", None)
        if after is None:
            continue
        try:
            answer = await settled(after(step, result))
        except Exception as error:
            return failed(error)
        if isinstance(answer, Abort):
            return _abort(step, answer)
        if isinstance(answer, ToolResult):
            result = answer
    return result


def _abort(step: Step, answer: Abort) -> ToolResult:
    step.context.cancel.cancel()
    return error_result(answer.reason)


async def _ask(tool: Tool[..., Any], step: Step) -> ToolResult | None:
    policy = step.context.host.permission
    try:
        request = _request(tool, step)
        if policy is None:
            return _denied(request, "no permission policy is set")
        decision = as_decision(await settled(policy.decide(request)))
    except Exception as error:
        return replace(failed(error), content=error_result(f"{tool.spec.name}: permission denied: {error}").content)
    return None if decision.allowed else _denied(request, decision.reason)


def _request(tool: Tool[..., Any], step: Step) -> PermissionRequest:
    target = tool.target
    if callable(target):
        target = target(step.arguments)
    elif target:
        default = tool.spec.parameters["properties"][target].get("default", "")
        target = step.arguments.get(target, default)
    return PermissionRequest(
        tool=step.call.name,
        action=tool.action,
        target=str(target),
        arguments=step.arguments,
        call_id=step.call.id,
        session_id=step.context.session_id,
    )


def _denied(request: PermissionRequest, reason: str) -> ToolResult:
    what = f"{request.action} {request.target}".strip()
    return error_result(f"permission denied: {what}" + (f": {reason}" if reason else ""))

"""Calls that are checked before they run: by hooks of the user, and by a permission policy."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from glue.context import Context, ToolResult, error_result
from glue.failures import failure_result
from glue.function.call import as_result, run_function
from glue.function.hooks import Step, run_after, run_before
from glue.messages import Json, ToolCall
from glue.pending import CHANGED, CallDeferred, shown_request
from glue.permission import (
    Decision,
    PermissionRequest,
    PermissionTarget,
    allow,
    as_decision,
    defer,
    deny,
    needs_person,
)

if TYPE_CHECKING:
    from glue.function.decorator import Tool

MAX_QUESTIONS = 5  # times that permission for one call is asked, if its target changes meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An allowed pending call: its record, and the decisions on the calls of its sub-agent."""

    record: Mapping[str, Json]
    decisions: Mapping[str, Any] = field(default_factory=dict)

    def covers(self, request: PermissionRequest) -> bool:
        """Return whether `request` equals the request that a person saw and allowed."""
        return bool(self.record.get("request") == shown_request(request))


async def run_guarded(
    tool: Tool[..., Any], call: ToolCall, arguments: dict[str, Any], context: Context[Any]
) -> ToolResult:
    """Run a tool with the hooks and the permission policy of the run, and return the result.

    The order is: hooks before the tool, permission, the tool, hooks after the tool.
    """
    step = Step(call, arguments, context)
    result = await run_before(step)
    if result is None and tool.needs_permission:
        result = await _ask_permission(tool, step)
    if result is None:
        result = await run_function(tool, call, step.arguments, context)
    return await run_after(step, result)


async def _ask_permission(tool: Tool[..., Any], step: Step) -> ToolResult | None:
    """Ask for permission to run a tool. Return None if it may run, else the result of the call.

    The result reports that the call was denied or failed, or is that of a call in a sandbox.

    If only a person can decide, and the tool has a `trial`, the call first runs in a
    sandbox, without permission; if this succeeds, return its result. If the target changes while a
    person decides, the person is asked again. Raise CallDeferred if the call has to wait for a
    decision.
    """
    decided, policy = step.context.decided, step.context.host.permission
    name, waited = tool.spec.name, False
    for _ in range(MAX_QUESTIONS):
        try:
            request = _permission_request(tool, step)
        except Exception as error:
            return failure_result(error, f"tool {name}")
        if request is None:  # this call needs no permission
            return None
        try:
            if decided is not None:
                decision = allow() if decided.covers(request) else defer(CHANGED)
            else:
                if tool.trial is not None and needs_person(policy, request):
                    tried = await _try_confined(tool, step)
                    if tried is not None:
                        return tried
                decision, waited = await _decide(step, request)
        except Exception as error:
            return replace(
                failure_result(error, f"the permission policy for tool {name}"),
                content=error_result(
                    f"{name}: permission denied, because the permission policy failed: {error}"
                ).content,
            )
        if decision.deferred:
            raise CallDeferred(step.arguments, request, decision.reason)
        if not decision.allowed:
            return denied(request, decision)
        if not waited or not _has_changed(tool, step, request):
            return None
    return error_result(
        f"{name}: the target of this call changes again and again while permission is asked; "
        "nothing was done"
    )


async def _try_confined(tool: Tool[..., Any], step: Step) -> ToolResult | None:
    """Run a call in a sandbox without asking. Return its result, or None if permission is needed.

    The method `trial` of the tool runs the call. If it raises an error, return an error result.
    """
    assert tool.trial is not None
    try:
        value = await tool.trial(step.arguments)
    except Exception as error:
        return failure_result(error, f"tool {tool.spec.name}")
    return None if value is None else as_result(tool.spec.name, value)


def _has_changed(tool: Tool[..., Any], step: Step, request: PermissionRequest) -> bool:
    """Return whether the target of a call has changed since `request` was shown to a person."""
    if request.touched is None or not request.touched.mark:
        return False
    try:
        now = _permission_request(tool, step)
    except Exception:
        return True  # the next question reports the error
    return now is None or now.touched is None or now.touched.mark != request.touched.mark


async def _decide(step: Step, request: PermissionRequest) -> tuple[Decision, bool]:
    """Ask the run's permission policy; return its decision, and whether the policy is async.

    Without a policy, the call is denied. The waiting time is recorded in the context.
    """
    policy, ask = step.context.host.permission, step.context.ask
    if policy is None:
        return deny("no permission policy is set"), False
    begin = time.monotonic()
    try:
        answer = policy.decide(request)
        waited = inspect.isawaitable(answer)
        if ask is not None and inspect.isawaitable(answer):
            return await ask(request, as_decision(answer)), waited
        return await as_decision(answer), waited
    finally:
        above: Context[Any] | None = step.context
        while above is not None:  # the call of a sub-agent waits as long as the calls inside it
            above.waited.append(time.monotonic() - begin)
            above = above.host.parent


def denied(request: PermissionRequest, decision: Decision) -> ToolResult:
    """Return the error result for a call that `decision` refuses."""
    what = f"{request.action} {request.target}".strip()
    return error_result(
        f"permission denied: {what}" + (f": {decision.reason}" if decision.reason else "")
    )


def _permission_request(tool: Tool[..., Any], step: Step) -> PermissionRequest | None:
    """Return the permission request for a call, or None if this call needs no permission.

    A call needs no permission if the tool's function `target` returns None for it.
    """
    target: Any = tool.target
    if callable(target):
        target = target(step.arguments)
        if target is None:
            return None
    elif target:
        default = tool.spec.parameters["properties"][target].get("default", "")
        target = step.arguments.get(target, default)
    touched = target if isinstance(target, PermissionTarget) else None
    return PermissionRequest(
        tool=step.call.name,
        action=tool.action,
        target=touched.text if touched is not None else str(target),
        arguments=step.arguments,
        call_id=step.call.id,
        session_id=step.context.scope,
        touched=touched,
    )

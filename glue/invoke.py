"""One call of one tool, from the model's text to a result. Only cancellation leaves by an exception."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread

from glue.context import Context, ToolResult, error_result
from glue.errors import ToolError
from glue.faults import Faults
from glue.hooks import Abort, Replace, Skip, Step
from glue.permission import PermissionRequest, as_decision
from glue.returned import as_result, capped, needs_cap
from glue.types import ToolCall

if TYPE_CHECKING:
    from glue.tool import Tool


async def invoke(tool: Tool[..., Any], call: ToolCall, context: Context[Any]) -> ToolResult:
    """Parse, validate, ask, run and report one call."""
    if not call.complete:
        return error_result("the call was cut off before its end and was not run; send it again, whole")
    try:
        arguments = tool.signature.parse(call.arguments)
    except Faults as faults:
        return error_result(str(faults))
    except Exception as error:  # a ready schema that is none
        return _failed(error)
    step = Step(call, arguments, context)
    hooks = context.host.hooks
    result = await _before(hooks, step) if hooks else None
    if result is None and tool.needs_permission:
        result = await _ask(tool, step)
    if result is None:
        result = await _run(tool, step)
    if hooks:
        result = await _after(hooks, step, result)
    if needs_cap(result, tool.max_output):
        result = await anyio.to_thread.run_sync(capped, result, tool.max_output, abandon_on_cancel=True)
    else:
        result = capped(result, None)
    if tool.terminates and not result.is_error and not result.terminate:
        result = replace(result, terminate=True)
    return result


async def _before(hooks: tuple[Any, ...], step: Step) -> ToolResult | None:
    for hook in hooks:
        before = getattr(hook, "before", None)
        if before is None:
            continue
        try:
            answer = await _settled(before(step))
        except Exception as error:
            return _failed(error)  # a guard that fails must not let the call through
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
            answer = await _settled(after(step, result))
        except Exception as error:
            return _failed(error)
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
        decision = as_decision(await _settled(policy.decide(request)))
    except Exception as error:
        return replace(_failed(error), content=error_result(f"{tool.spec.name}: permission denied: {error}").content)
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


async def _run(tool: Tool[..., Any], step: Step) -> ToolResult:
    try:
        if tool.timeout is None:
            value = await _called(tool, step)
        else:
            value = _LATE
            with anyio.move_on_after(tool.timeout):
                value = await _called(tool, step)
        if value is _LATE:
            return error_result(f"{tool.spec.name} timed out after {tool.timeout:g} seconds")
        return _failed(value.error) if isinstance(value, _Raised) else as_result(tool.spec.name, value)
    except Exception as error:
        return _failed(error)


async def _called(tool: Tool[..., Any], step: Step) -> Any:
    positional, named = tool.signature.split(step.arguments)
    if tool.is_async:
        if tool.signature.takes_context:
            positional = [step.context, *positional]
        return await tool.function(*positional, **named)
    context = step.context
    live = [True]
    if tool.signature.takes_context:
        positional = [_threaded(context, live), *positional]
    try:
        value = await anyio.to_thread.run_sync(_boxed, tool.function, positional, named, abandon_on_cancel=True)
    finally:
        live[0] = False
    return value if isinstance(value, _Raised) else await _settled(value[0])


_LATE: Any = object()


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _boxed(function: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> Any:
    # Carried by hand: an event loop hands on neither a StopIteration nor, on trio, a coroutine.
    try:
        return (function(*positional, **named),)
    except Exception as error:
        return _Raised(error)


def _threaded(context: Context[Any], live: list[bool]) -> Context[Any]:
    """The same context for use in a thread: progress is reported in the event loop, and not after the end."""

    def report(text: str, data: Any, event: Any) -> None:
        def emit() -> None:
            if live[0]:
                context.report(text, data, event)

        if live[0]:
            anyio.from_thread.run_sync(emit)

    return replace(context, report=report)


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _failed(error: Exception) -> ToolResult:
    text = "".join(traceback.format_exception(error))
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # a task group says nothing that its one error does not say better
    if isinstance(error, ToolError):
        result = error_result(str(error))
    else:
        result = error_result(error)
    return replace(result, traceback=text)

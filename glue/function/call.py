"""Running a tool call: parse its arguments, check permission, run the tool, return its result."""

from __future__ import annotations

import inspect
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from glue.codec import to_plain
from glue.context import Context, ToolResult, error_result, text_result
from glue.failures import failure_result
from glue.function.hooks import Step, run_after, run_before, wait_for
from glue.function.spool import cap
from glue.function.validation import ValidationError
from glue.messages import File, Image, Opaque, Text, ToolCall
from glue.pending import CHANGED, CallDeferred
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
from glue.tasks import caller, in_thread

if TYPE_CHECKING:
    from glue.function.decorator import Tool

_PARTS = (Text, Image, File, Opaque)
MAX_QUESTIONS = 5  # times that permission for one call is asked, if its target changes meanwhile
EXTERNAL = "the caller of resume supplies its result"


async def invoke(tool: Tool[..., Any], call: ToolCall, context: Context[Any]) -> ToolResult:
    """Run the tool call of a model and return its result.

    A failure is returned as an error result for the model. Only a cancellation, and CallDeferred
    for a call that has to wait, are raised.
    """
    if not call.complete:
        return error_result(
            "the call was cut off before its end and was not run; send it again, whole"
        )
    try:
        arguments = tool.signature.parse(call.arguments)
    except ValidationError as error:
        return error_result(str(error))
    except Exception as error:  # a given schema is not a valid JSON schema
        return failure_result(error, f"tool {tool.spec.name}")
    if context.host.hooks or tool.needs_permission:
        result = await _run_guarded(tool, Step(call, arguments, context))
    else:
        result = await _run(tool, arguments, context)
    return await _finished(tool, result)


async def _finished(tool: Any, result: ToolResult) -> ToolResult:
    """Return a result whose texts are shortened to the tool's `max_output`.

    The middle of a text is left out, and the whole text is saved in the spool. If
    the tool was made with `terminates=True`, `terminate` is set in a successful result.
    """
    limit = getattr(tool, "max_output", None)
    if limit is not None and any(
        isinstance(part, Text) and len(part.text) > limit for part in result.content
    ):
        result = await in_thread(_clean, result, limit)  # writes a file
    else:
        result = _clean(result, None)
    if getattr(tool, "terminates", False) and not result.is_error and not result.terminate:
        result = replace(result, terminate=True)
    return result


async def _run(
    tool: Tool[..., Any], arguments: dict[str, Any], context: Context[Any]
) -> ToolResult:
    """Call the function of a tool and return its result.

    An exception or a timeout becomes an error result. Raise CallDeferred for an external tool.
    """
    name = tool.spec.name
    if tool.external:
        raise CallDeferred(arguments, reason=EXTERNAL)
    try:
        if tool.timeout is None:
            return as_result(name, await _call_function(tool, arguments, context))
        with anyio.move_on_after(tool.timeout):
            return as_result(name, await _call_function(tool, arguments, context))
        return error_result(f"{name} timed out after {tool.timeout:g} seconds")
    except Exception as error:
        return failure_result(error, f"tool {name}")


async def _call_function(
    tool: Tool[..., Any], arguments: dict[str, Any], context: Context[Any]
) -> Any:
    """Call the function of a tool and return its value. A plain function runs in a thread."""
    positional, named = tool.signature.split(arguments)
    running = [True]
    if tool.signature.takes_context:
        own = context if tool.is_async else _context_for_thread(context, running)
        positional = [own, *positional]
    if tool.is_async:
        return await tool.function(*positional, **named)

    # The value and the error are wrapped, because an event loop cannot pass on a StopIteration,
    # and trio cannot pass on a coroutine.
    def call() -> tuple[Any] | Exception:
        try:
            return (tool.function(*positional, **named),)
        except Exception as error:
            return error

    try:
        value = await in_thread(call)
    finally:
        running.clear()
    if isinstance(value, Exception):
        return failure_result(value, f"tool {tool.spec.name}")
    return await wait_for(value[0])


def _context_for_thread(context: Context[Any], running: list[bool]) -> Context[Any]:
    """Return a copy of the context that a tool may use in another thread.

    The copy passes progress reports to the event loop, and only while `running` is not empty.
    """
    schedule = caller()

    def report(*progress: Any) -> None:
        schedule(lambda: context.report(*progress) if running else None)

    return replace(context, report=report)


def as_result(name: str, value: Any) -> ToolResult:
    """Convert a value that the tool `name` returned to a ToolResult.

    A text and parts such as images are used unchanged, None becomes "(no output)", and any other
    value is written as JSON. If that is impossible, return an error result.
    """
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return text_result(value)
    if value is None:
        return text_result("(no output)")
    if isinstance(value, _PARTS):
        return ToolResult(content=(value,))
    if isinstance(value, (list, tuple)) and any(isinstance(item, _PARTS) for item in value):
        parts = tuple(Text(text=item) if isinstance(item, str) else item for item in value)
        if all(isinstance(part, _PARTS) for part in parts):
            return ToolResult(content=parts)
    try:
        return text_result(json.dumps(to_plain(value, _refuse), ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        return error_result(
            f"the tool {name} returned {type(value).__name__}, "
            f"which is neither text nor JSON nor a part: {error}"
        )


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


async def _run_guarded(tool: Tool[..., Any], step: Step) -> ToolResult:
    """Run a tool with its hooks and its permission, and return the result.

    The order is: hooks before the tool, permission, the tool, hooks after the tool.
    """
    result = await run_before(step)
    if result is None and tool.needs_permission:
        result = await _ask_permission(tool, step)
    if result is None:
        result = await _run(tool, step.arguments, step.context)
    return await run_after(step, result)


async def _ask_permission(tool: Tool[..., Any], step: Step) -> ToolResult | None:
    """Return None if the call may run, or the result of a call that is denied or already done.

    If only a person can decide, and the tool has a `trial`, the call is first tried without
    permission. If the target changes while a person decides, the person is asked again. Raise
    CallDeferred if the call has to wait for a decision.
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
                content=error_result(f"{name}: permission denied: {error}").content,
            )
        if decision.deferred:
            raise CallDeferred(step.arguments, request, decision.reason)
        if not decision.allowed:
            return denied(request, decision)
        if not waited or not _has_changed(tool, step, request):
            return None
    return error_result(
        f"{name}: its target changes again and again while permission is asked; nothing was done"
    )


async def _try_confined(tool: Tool[..., Any], step: Step) -> ToolResult | None:
    """Run a call confined, without permission, and return its result.

    Return None if the call turns out to need permission.
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
    """Return the decision of the run's permission policy, and whether the policy is async."""
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


async def supplied_result(tool: Any, value: Any) -> ToolResult:
    """Convert a value that the caller of `resume` supplied for a call to the call's result."""
    return await _finished(tool, as_result(tool.spec.name, value))


def _permission_request(tool: Tool[..., Any], step: Step) -> PermissionRequest | None:
    """Return the permission request for a call.

    Return None if the tool's function `target` returns None: this call needs no permission.
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


def _clean(result: ToolResult, limit: int | None) -> ToolResult:
    """Return a result whose texts can be encoded as UTF-8 and have at most `limit` characters.

    If `limit` is None, the texts are not cut.
    """
    content = []
    for part in result.content:
        if isinstance(part, Text):
            text = part.text
            if not text.isascii():
                # No wire can send a surrogate that is not part of a pair.
                text = text.encode("utf-8", "replace").decode()
            if limit is not None:
                text = cap(text, limit)
            part = part if text == part.text else replace(part, text=text)
        content.append(part)
    return result if content == list(result.content) else replace(result, content=tuple(content))

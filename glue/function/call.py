"""One call of one tool, from the model's text to a result. Only cancellation leaves by an exception."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread

from glue.codec import to_plain
from glue.context import Context, ToolResult, error_result, text_result
from glue.errors import ToolError
from glue.function.validation import ValidationError
from glue.messages import File, Image, Opaque, Part, Text, ToolCall
from glue.permission import PermissionRequest, PermissionTarget, as_decision
from glue.tasks import caller, in_thread

if TYPE_CHECKING:
    from glue.function.decorator import Tool


_PARTS = (Text, Image, File, Opaque)


def as_result(name: str, value: Any) -> ToolResult:
    """Make a result of whatever a tool returned."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(content=(Text(text=value),))
    if value is None:
        return ToolResult(content=(Text(text="(no output)"),))
    if isinstance(value, _PARTS):
        return ToolResult(content=(value,))
    if isinstance(value, (list, tuple)) and any(isinstance(item, _PARTS) for item in value):
        parts = tuple(Text(text=item) if isinstance(item, str) else item for item in value)
        if all(isinstance(part, _PARTS) for part in parts):
            return ToolResult(content=parts)
    try:
        return ToolResult(content=(Text(text=json.dumps(to_plain(value, _refuse), ensure_ascii=False)),))
    except (TypeError, ValueError, RecursionError) as error:
        return error_result(f"the tool {name} returned {type(value).__name__}, which is no text, JSON or part: {error}")


def capped(result: ToolResult, limit: int | None) -> ToolResult:
    """Make each text encodable and cut it at the cap; results that need neither are passed on as they are."""
    content = tuple(_fit(part, limit) if isinstance(part, Text) else part for part in result.content)
    if all(new is old for new, old in zip(content, result.content, strict=True)):
        return result
    return dataclasses.replace(result, content=content)


def needs_cap(result: ToolResult, limit: int | None) -> bool:
    return limit is not None and any(isinstance(part, Text) and len(part.text) > limit for part in result.content)


def _fit(part: Text, limit: int | None) -> Part:
    text = part.text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # lone surrogates would break every wire
    if limit is not None:
        from glue.function.spool import cap

        text = cap(text, limit)
    return part if text == part.text else dataclasses.replace(part, text=text)


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} has no JSON form")


class Step:
    """One call on its way: the tool's name, the arguments as Python objects, and the context."""

    __slots__ = ("arguments", "call", "context")

    def __init__(self, call: ToolCall, arguments: dict[str, Any], context: Context[Any]) -> None:
        self.call = call
        self.arguments = arguments
        self.context = context

    @property
    def name(self) -> str:
        return self.call.name


async def invoke(tool: Tool[..., Any], call: ToolCall, context: Context[Any]) -> ToolResult:
    """Parse, validate, ask, run and report one call."""
    if not call.complete:
        return error_result("the call was cut off before its end and was not run; send it again, whole")
    try:
        arguments = tool.signature.parse(call.arguments)
    except ValidationError as error:
        return error_result(str(error))
    except Exception as error:  # a ready schema that is none
        return failed(error)
    if context.host.hooks or tool.needs_permission:
        result = await guarded(tool, Step(call, arguments, context))
    else:
        result = await run(tool, arguments, context)
    if needs_cap(result, tool.max_output):
        result = await anyio.to_thread.run_sync(capped, result, tool.max_output, abandon_on_cancel=True)
    else:
        result = capped(result, None)
    if tool.terminates and not result.is_error and not result.terminate:
        result = replace(result, terminate=True)
    return result


async def run(tool: Tool[..., Any], arguments: dict[str, Any], context: Context[Any]) -> ToolResult:
    """Run the function under its time limit; what it raises becomes an error result."""
    try:
        if tool.timeout is None:
            value = await _called(tool, arguments, context)
        else:
            value = _LATE
            with anyio.move_on_after(tool.timeout):
                value = await _called(tool, arguments, context)
        if value is _LATE:
            return error_result(f"{tool.spec.name} timed out after {tool.timeout:g} seconds")
        return failed(value.error, tool.spec.name) if isinstance(value, _Raised) else as_result(tool.spec.name, value)
    except Exception as error:
        return failed(error, tool.spec.name)


async def _called(tool: Tool[..., Any], arguments: dict[str, Any], context: Context[Any]) -> Any:
    positional, named = tool.signature.split(arguments)
    if tool.is_async:
        if tool.signature.takes_context:
            positional = [context, *positional]
        return await tool.function(*positional, **named)
    live = [True]
    if tool.signature.takes_context:
        positional = [_threaded(context, live), *positional]
    try:
        value = await in_thread(_boxed, tool.function, positional, named)
    finally:
        live[0] = False
    return value if isinstance(value, _Raised) else await settled(value[0])


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
    call = caller()

    def report(text: str, data: Any, event: Any) -> None:
        def emit() -> None:
            if live[0]:
                context.report(text, data, event)

        call(emit)

    return replace(context, report=report)


async def settled(value: Any) -> Any:
    """Wait for a value if it has to be waited for."""
    return await value if inspect.isawaitable(value) else value


_log = logging.getLogger("glue.tools")


def failed(error: Exception, name: str = "") -> ToolResult:
    """Make an error result of an exception, with its traceback; one that no tool raises on purpose is logged."""
    import traceback

    text = "".join(traceback.format_exception(error))
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # a task group says nothing that its one error does not say better
    if type(error).__module__ == "sqlite3" and "same thread" in str(error):
        logging.getLogger("glue.tool").warning(
            "a plain function runs in a thread of its own, and this connection belongs to another: open it with "
            "check_same_thread=False, open it inside the tool, or make the tool an async function"
        )
    if isinstance(error, ToolError):
        result = error_result(str(error))
    else:
        result = error_result(error)
        _log.warning("tool %s raised %s", name or "call", type(error).__name__, exc_info=error)
    return replace(result, traceback=text)


class Skip:
    """Do not run the tool; this is its result."""

    __slots__ = ("result",)

    def __init__(self, result: ToolResult | str) -> None:
        self.result = text_result(result) if isinstance(result, str) else result


class Replace:
    """Run the tool with other arguments: Python objects, as its function takes them."""

    __slots__ = ("arguments",)

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments


class Abort:
    """Do not run the tool (or drop what it gave), and end the run as cancelled."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


Before: TypeAlias = Callable[[Step], "Skip | Replace | Abort | Awaitable[Skip | Replace | Abort | None] | None"]
After: TypeAlias = Callable[[Step, ToolResult], "ToolResult | Abort | Awaitable[ToolResult | Abort | None] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHook:
    """Functions to call before and after each tool; both may be async, None means nothing to say.

    Hooks add up: each sees what those before it left. The first `Skip` or `Abort` decides.
    """

    before: Before | None = None
    after: After | None = None


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
    target: Any = tool.target
    if callable(target):
        target = target(step.arguments)
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


def _denied(request: PermissionRequest, reason: str) -> ToolResult:
    what = f"{request.action} {request.target}".strip()
    return error_result(f"permission denied: {what}" + (f": {reason}" if reason else ""))

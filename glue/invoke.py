"""One call of one tool, from the model's text to a result. Only cancellation leaves by an exception."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread

from glue.context import Context, ToolResult, error_result
from glue.errors import ToolError
from glue.faults import Faults
from glue.returned import as_result, capped, needs_cap
from glue.step import Step
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
        return failed(error)
    if context.host.hooks or tool.needs_permission:
        from glue.guard import guarded  # most calls need none of it

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
        return failed(value.error) if isinstance(value, _Raised) else as_result(tool.spec.name, value)
    except Exception as error:
        return failed(error)


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
        value = await anyio.to_thread.run_sync(_boxed, tool.function, positional, named, abandon_on_cancel=True)
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

    def report(text: str, data: Any, event: Any) -> None:
        def emit() -> None:
            if live[0]:
                context.report(text, data, event)

        if live[0]:
            anyio.from_thread.run_sync(emit)

    return replace(context, report=report)


async def settled(value: Any) -> Any:
    """Wait for a value if it has to be waited for."""
    return await value if inspect.isawaitable(value) else value


def failed(error: Exception) -> ToolResult:
    """Make an error result of an exception, with its traceback."""
    import traceback

    text = "".join(traceback.format_exception(error))
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # a task group says nothing that its one error does not say better
    if isinstance(error, ToolError):
        result = error_result(str(error))
    else:
        result = error_result(error)
    return replace(result, traceback=text)

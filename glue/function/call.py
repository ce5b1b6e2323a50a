"""Running a call: parse the arguments, call the function of the tool, return its result."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from glue.codec import to_plain
from glue.context import Context, ToolResult, error_result, text_result
from glue.failures import failure_result
from glue.function.spool import cap
from glue.function.validation import ValidationError
from glue.messages import File, Image, Opaque, Text, ToolCall
from glue.pending import CallDeferred
from glue.tasks import caller, in_thread

if TYPE_CHECKING:
    from glue.function.decorator import Tool

_PARTS = (Text, Image, File, Opaque)
EXTERNAL = "this tool is external: pass its result to resume()"

# Runs a call whose arguments are valid: `run_function`, or `run_guarded` in `glue.function.guard`.
Runner: TypeAlias = Callable[
    ["Tool[..., Any]", ToolCall, dict[str, Any], Context[Any]], Awaitable[ToolResult]
]


async def invoke(
    tool: Tool[..., Any], call: ToolCall, context: Context[Any], run: Runner
) -> ToolResult:
    """Parse the arguments of a call, run `tool`, and return its result or an error result.

    An error result is for the model. Only a cancellation, and CallDeferred for a call that has to
    wait, are raised.
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
    return await _finished(tool, await run(tool, call, arguments, context))


async def _finished(tool: Any, result: ToolResult) -> ToolResult:
    """Return a result with long texts saved and cut, and `terminate` set if the tool ends runs.

    The middle of a text above the tool's `max_output` is left out. The whole text is in the spool,
    where `read_file` can read it. If the tool was made with `terminates=True`, `terminate` is set
    in a successful result. Surrogates are replaced by "?".
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


async def run_function(
    tool: Tool[..., Any], call: ToolCall, arguments: dict[str, Any], context: Context[Any]
) -> ToolResult:
    """Call the function of a tool. Return its value, an exception or a timeout as a ToolResult.

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
    """Call the function of a tool. Return its value, or an error result if a plain function fails.

    A plain function runs in a thread. An exception of an async function is raised.
    """
    positional, named = tool.signature.split(arguments)
    running = {"the call"}
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
    returned = value[0]
    return await returned if inspect.isawaitable(returned) else returned


def _context_for_thread(context: Context[Any], running: set[str]) -> Context[Any]:
    """Return a copy of the context that a tool may use in another thread.

    The copy passes progress reports to the event loop, and only while `running` is not empty.
    """
    schedule = caller()

    def report(*progress: Any) -> None:
        schedule(lambda: context.report(*progress) if running else None)

    return replace(context, report=report)


def as_result(name: str, value: Any) -> ToolResult:
    """Convert the return value of the tool `name` to a ToolResult, or return an error result.

    A text and parts such as images are used unchanged, None becomes "(no output)", and any other
    value is written as JSON. If that is impossible, the result is an error result.
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
            f"which is not a text, an image, a file or JSON: {error}"
        )


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


async def supplied_result(tool: Any, value: Any) -> ToolResult:
    """Return the result of a call whose value was supplied by the caller of `resume`."""
    return await _finished(tool, as_result(tool.spec.name, value))


def _clean(result: ToolResult, limit: int | None) -> ToolResult:
    """Return a result with surrogates replaced by "?", and with long texts saved and cut.

    If a text is longer than `limit` characters, `cap` cuts it and saves the whole text in the
    spool. If `limit` is None, no text is cut.
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
            part = replace(part, text=text)
        content.append(part)
    return replace(result, content=tuple(content))

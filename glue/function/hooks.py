"""Hooks of tools: functions of the user that are called before and after each tool."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from glue.checks import check_text, show, with_form
from glue.context import Context, ToolResult, error_result, text_result
from glue.failures import failure_result
from glue.messages import ToolCall


class Step:
    """A tool call, as hooks see it: the call, its arguments as Python objects, its context."""

    __slots__ = ("arguments", "call", "context")

    def __init__(self, call: ToolCall, arguments: dict[str, Any], context: Context[Any]) -> None:
        self.call = call
        self.arguments = arguments
        self.context = context

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name


class Skip:
    """A value that a hook returns to skip the tool and use `result` instead."""

    def __init__(self, result: ToolResult | str) -> None:
        if not isinstance(result, (ToolResult, str)):
            raise TypeError(f"result must be a text or a glue.ToolResult, not {show(result)}")
        self.result = text_result(result) if isinstance(result, str) else result


class Replace:
    """A value that a hook returns to run the tool with other arguments, given as Python objects."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        if not isinstance(arguments, dict):
            raise TypeError(f"arguments must be a dict of names to values, not {show(arguments)}")
        self.arguments = arguments


class Abort:
    """A value that a hook returns to cancel the run.

    The tool is skipped, or if it has already run, its result is dropped.
    """

    def __init__(self, reason: str) -> None:
        check_text("reason", reason)
        self.reason = reason


Before: TypeAlias = Callable[
    [Step], "Skip | Replace | Abort | Awaitable[Skip | Replace | Abort | None] | None"
]
After: TypeAlias = Callable[
    [Step, ToolResult], "ToolResult | Abort | Awaitable[ToolResult | Abort | None] | None"
]


@with_form("glue.ToolHook(before=function)")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHook:
    """Functions that are called before and after each tool call. Both may be async.

        def no_secrets(step: Step) -> Skip | None:
            if "password" in str(step.arguments):
                return Skip("do not send passwords to tools")
            return None

        agent = Agent("openai:gpt-5.4-nano", tools=[search], hooks=[ToolHook(before=no_secrets)])

    `before` returns a Skip, a Replace, an Abort or None. `after` returns another result, an Abort
    or None. If there are several hooks, each sees the arguments and the result that the previous
    hook left, and the first Skip or Abort ends the sequence.
    """

    before: Before | None = None
    after: After | None = None

    def __post_init__(self) -> None:
        for name in ("before", "after"):
            if (function := getattr(self, name)) is not None and not callable(function):
                raise TypeError(f"{name} must be a function, not {show(function)}")


async def run_before(step: Step) -> ToolResult | None:
    """Call `before` of each hook, which may replace the arguments. Return a skip's result or None.

    The arguments are those of `step`. The first hook that skips the tool ends the sequence. None
    means that the tool shall run.
    """
    for hook in step.context.host.hooks:
        answer = await _call_hook(hook, "before", step)
        if isinstance(answer, Skip):
            return answer.result
        if isinstance(answer, Replace):
            step.arguments = dict(answer.arguments)
    return None


async def run_after(step: Step, result: ToolResult) -> ToolResult:
    """Call `after` of each hook, which may replace the result, and return the last result.

    If a hook raises or returns a Skip or an Abort, later hooks are not called.
    """
    for hook in step.context.host.hooks:
        answer = await _call_hook(hook, "after", step, result)
        if isinstance(answer, Skip):
            return answer.result
        if isinstance(answer, ToolResult):
            result = answer
    return result


async def _call_hook(hook: Any, side: str, step: Step, *result: ToolResult) -> Any:
    """Call `before` or `after` of a hook and return its value, or a Skip if it fails or aborts.

    `side` is "before" or "after". If the hook raises or returns an Abort, the Skip has an error
    result: the tool must not run if a hook fails. An Abort also cancels the run.
    """
    function = getattr(hook, side, None)
    if function is None:
        return None
    try:
        answer = await wait_for(function(step, *result))
    except Exception as error:
        return Skip(failure_result(error, f"hook {type(hook).__name__}.{side}"))
    if isinstance(answer, Abort):
        step.context.cancel.cancel()
        return Skip(error_result(answer.reason))
    return answer


async def wait_for(value: Any) -> Any:
    """Await `value` and return its result. Return a value that is not awaitable unchanged."""
    return await value if inspect.isawaitable(value) else value

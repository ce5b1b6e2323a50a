"""Hooks before and after a tool: leave the call alone, answer in its place, change it, or end the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from glue.context import ToolResult, text_result
from glue.step import Step


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

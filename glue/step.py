"""One call on its way to a tool."""

from __future__ import annotations

from typing import Any

from glue.context import Context
from glue.types import ToolCall


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

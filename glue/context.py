"""The context of a tool call: cancellation, budget, dependencies, and what the tool gives back."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from glue.messages import Json, Part, Text, ToolCall, ToolSpec, new_id

DepsT = TypeVar("DepsT", covariant=True)

# Gives the provider for a model's name in place of glue.providers, where tests and recordings set it.
provider_names: ContextVar[Callable[[str], Any] | None] = ContextVar("glue.provider_names", default=None)
# Set by the pytest plugin: called with the origin ("https://api.example.com") before each request; it may raise.
check_origin: ContextVar[Callable[[str], None] | None] = ContextVar("glue.check_origin", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool gives back: parts for the model, and whether it votes to end the run."""

    content: tuple[Part, ...]
    is_error: bool = False
    terminate: bool = False
    meta: Mapping[str, Json] | None = None
    traceback: str = ""  # for the event only; the model never sees it

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, Text))


def text_result(text: str) -> ToolResult:
    """Make a result of plain text."""
    return ToolResult(content=(Text(text=text),))


def error_result(error: BaseException | str) -> ToolResult:
    """Make an error result; of an exception it says the type and the message."""
    if isinstance(error, BaseException):
        detail = str(error)
        error = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
    return ToolResult(content=(Text(text=error),), is_error=True)


class Cancel:
    """A token that ends a run: what is under way is cancelled at once, nothing new is started."""

    __slots__ = ("_actions", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._actions: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Cancel from the event loop's own thread; elsewhere go through anyio.from_thread."""
        self.cancelled = True
        for action in tuple(self._actions):
            action()

    def attach(self, action: Callable[[], None]) -> None:
        """Call `action` when cancelled (at once if that has happened)."""
        self._actions.append(action)
        if self.cancelled:
            action()

    def detach(self, action: Callable[[], None]) -> None:
        self._actions.remove(action)


@dataclass(slots=True)
class Purse:
    """What has been spent, here and in every purse above: a sub-agent spends its parent's money."""

    parent: Purse | None = None
    requests: int = 0
    tokens_in: int = 0  # estimate of what this run added
    tokens_out: int = 0
    usd: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def spend(self, *, requests: int = 0, tokens_in: int = 0, tokens_out: int = 0, usd: float = 0.0) -> None:
        purse: Purse | None = self
        while purse is not None:
            purse.requests += requests
            purse.tokens_in += tokens_in
            purse.tokens_out += tokens_out
            purse.usd += usd
            purse = purse.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a run knows of whoever started it, and hands on to tools."""

    run_id: str = field(default_factory=new_id)
    session_id: str = ""
    deps: Any = None
    permission: Any = None  # glue.permission.Permission; None denies
    hooks: tuple[Any, ...] = ()  # before and after each tool, see glue.tool
    identity: Mapping[str, Json] | None = None
    telemetry: Any = None  # glue.telemetry.OpenTelemetry, where the run is traced
    parent: Context[Any] | None = None  # set for a run inside a tool of another run


@dataclass(slots=True, kw_only=True)
class Context(Generic[DepsT]):
    """Handed to a tool whose first parameter asks for it."""

    call: ToolCall
    host: Host = field(default_factory=Host)
    cancel: Cancel = field(default_factory=Cancel)
    purse: Purse = field(default_factory=Purse)
    report: Callable[[str, Any, Any], None] = lambda text, data, event: None  # text, data, nested event
    limits: Any = None  # the run's Limits at the moment of the call
    turns_left: int | None = None

    @property
    def deps(self) -> DepsT:
        deps: DepsT = self.host.deps
        return deps

    @property
    def run_id(self) -> str:
        return self.host.run_id

    @property
    def session_id(self) -> str:
        return self.host.session_id

    @property
    def cancelled(self) -> bool:
        return self.cancel.cancelled

    def progress(self, text: str = "", data: Any = None) -> None:
        """Tell listeners how far the tool is: a `tool_update` event."""
        self.report(text, data, None)


class AnyTool(Protocol):
    """All that the loop asks of a tool. `glue.tool` makes one from a function."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def alone(self) -> bool: ...  # never beside others

    @property
    def advisory(self) -> bool: ...  # its result has no say in ending the run

    def invoke(self, call: ToolCall, context: Context[Any]) -> Awaitable[ToolResult]: ...

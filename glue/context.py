"""Contexts and results of tool calls, and what they share with their run: cancellation, spending, host."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from glue.errors import ToolError, innermost
from glue.limits import Limits
from glue.messages import Json, Part, Text, ToolCall, ToolSpec, Usage, check_parts, join_text, new_id

if TYPE_CHECKING:
    from glue.function.call import ToolHook
    from glue.permission import Permission
    from glue.telemetry import OpenTelemetry

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", check_parts("the content of a ToolResult", self.content))
        try:
            fits = self.meta is None or (isinstance(self.meta, Mapping) and bool(json.dumps(dict(self.meta))))
            why = f"not {self.meta!r}"
        except (TypeError, ValueError) as error:
            fits, why = False, f"which this is not: {error}"
        if not fits:  # no store could write it
            raise TypeError(f"the meta of a ToolResult must be a mapping of JSON values, {why}")

    @property
    def text(self) -> str:
        return join_text(self.content)


def text_result(text: str) -> ToolResult:
    """Make a result of plain text."""
    return ToolResult(content=(Text(text=text),))


def error_result(error: BaseException | str) -> ToolResult:
    """Make an error result; of an exception it says the type and the message."""
    if isinstance(error, BaseException):
        detail = str(error)
        error = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
    return ToolResult(content=(Text(text=error),), is_error=True)


def failed(error: Exception, name: str = "") -> ToolResult:
    """Make an error result of an exception, with its traceback; one that no tool raises on purpose is logged."""
    import logging
    import traceback

    log = logging.getLogger("glue.tools")
    text = "".join(traceback.format_exception(error))
    cause = innermost(error)
    if type(cause).__module__ == "sqlite3" and "same thread" in str(cause):
        log.warning(
            "a plain function runs in a thread of its own, and this connection belongs to another: open it with "
            "check_same_thread=False, open it inside the tool, or make the tool an async function"
        )
    if isinstance(cause, ToolError):
        result = error_result(str(cause))
    else:
        result = error_result(cause)
        log.warning("tool %s raised %s", name or "call", type(cause).__name__, exc_info=error)
    return replace(result, traceback=text)


class Cancel:
    """A token that ends a run: what is under way is cancelled at once, nothing new is started."""

    __slots__ = ("_actions", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._actions: dict[Callable[[], object], tuple[int, Callable[[Callable[[], object]], None]]] = {}

    def cancel(self) -> None:
        """Cancel, from any thread or signal handler."""
        self.cancelled = True
        for action, (thread, call) in tuple(self._actions.items()):
            if thread == get_ident():
                action()
            call(action)  # also wakes a loop that waits, as under a signal handler

    def attach(self, action: Callable[[], object]) -> None:
        """Call `action` in this event loop when cancelled (at once if that has happened)."""
        from glue.tasks import caller

        self._actions[action] = get_ident(), caller()
        if self.cancelled:
            action()

    def detach(self, action: Callable[[], object]) -> None:
        del self._actions[action]


@dataclass(slots=True)
class Spending:
    """What has been spent, here and in every run above: a sub-agent spends its parent's money."""

    parent: Spending | None = None
    requests: int = 0
    tokens_in: int = 0  # estimate of what this run added
    tokens_out: int = 0
    usage: Usage = field(default_factory=lambda: Usage(cost=0.0))
    usd: float = 0.0  # the part of the usage that has a price
    started: float = field(default_factory=time.monotonic)

    def spend(self, *, requests: int = 0, tokens_in: int = 0, tokens_out: int = 0, usage: Usage | None = None) -> None:
        spending: Spending | None = self
        while spending is not None:
            spending.requests += requests
            spending.tokens_in += tokens_in
            spending.tokens_out += tokens_out
            if usage is not None:
                spending.usage += usage
                spending.usd += usage.cost or 0.0
            spending = spending.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a run knows of whoever started it, and hands on to tools."""

    run_id: str = field(default_factory=new_id)
    session_id: str = ""
    deps: Any = None
    permission: Permission | None = None  # None denies
    hooks: tuple[ToolHook, ...] = ()  # before and after each tool
    identity: Mapping[str, Json] | None = None
    telemetry: OpenTelemetry | None = None  # where the run is traced
    parent: Context[Any] | None = None  # set for a run inside a tool of another run


@dataclass(slots=True, kw_only=True)
class Context(Generic[DepsT]):
    """Handed to a tool whose first parameter asks for it."""

    call: ToolCall
    host: Host = field(default_factory=Host)
    cancel: Cancel = field(default_factory=Cancel)
    spending: Spending = field(default_factory=Spending)
    report: Callable[[str, Any, Any], None] = lambda text, data, event: None  # text, data, nested event
    limits: Limits = field(default_factory=Limits)  # the run's, at the moment of the call
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
    def scope(self) -> str:
        """What "for this session" means: the session, also in a sub-agent; without one, the outermost run."""
        host = self.host
        while not host.session_id and host.parent is not None:
            host = host.parent.host
        return host.session_id or host.run_id

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


class ToolWrapper:
    """A tool around another one: what it does not say itself it asks of that one."""

    spec: ToolSpec
    alone: bool
    advisory: bool

    def __init__(self, tool: AnyTool) -> None:
        self.tool = tool

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tool":  # while it is copied
            raise AttributeError(name)
        return getattr(self.tool, name)

"""The context of a tool call: cancellation, budget, dependencies, and what the tool gives back."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Generic, Protocol, TypeVar, get_args

from glue.messages import Json, Part, Text, ToolCall, ToolSpec, Usage, new_id

DepsT = TypeVar("DepsT", covariant=True)
_PARTS = get_args(Part)

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
        content = tuple(self.content) if isinstance(self.content, (list, tuple)) else (None,)
        if not all(isinstance(part, _PARTS) and isinstance(getattr(part, "text", ""), str) for part in content):
            raise TypeError(f"the content of a ToolResult must be parts such as glue.Text, not {self.content!r}")
        object.__setattr__(self, "content", content)
        if self.meta is not None:
            check_meta("a ToolResult", self.meta)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, Text))


def check_meta(owner: str, meta: object) -> None:
    """Refuse a meta that no store could write."""
    try:
        if isinstance(meta, Mapping):
            json.dumps(dict(meta))
            return
        why = f"not {meta!r}"
    except (TypeError, ValueError) as error:
        why = f"which this is not: {error}"
    raise TypeError(f"the meta of {owner} must be a mapping of JSON values, {why}")


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
class Purse:
    """What has been spent, here and in every purse above: a sub-agent spends its parent's money."""

    parent: Purse | None = None
    requests: int = 0
    tokens_in: int = 0  # estimate of what this run added
    tokens_out: int = 0
    usage: Usage = field(default_factory=lambda: Usage(cost=0.0))
    usd: float = 0.0  # the part of the usage that has a price
    started: float = field(default_factory=time.monotonic)

    def spend(self, *, requests: int = 0, tokens_in: int = 0, tokens_out: int = 0, usage: Usage | None = None) -> None:
        purse: Purse | None = self
        while purse is not None:
            purse.requests += requests
            purse.tokens_in += tokens_in
            purse.tokens_out += tokens_out
            if usage is not None:
                purse.usage += usage
                purse.usd += usage.cost or 0.0
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

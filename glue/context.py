"""The context and the result of a tool call, and the parts of a run that a tool may use."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from glue.limits import Limits
from glue.messages import (
    Json,
    Part,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
    check_parts,
    join_text,
    new_id,
)

if TYPE_CHECKING:
    from glue.function.guard import Decided
    from glue.function.hooks import ToolHook
    from glue.permission import Decision, Permission, PermissionRequest
    from glue.provider import Provider
    from glue.telemetry import OpenTelemetry

DepsT = TypeVar("DepsT", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call, for tools that return more than a text.

        @tool
        async def chart(path: str) -> ToolResult:
            "Draw a chart."
            image = Image(data=await draw(path))
            return ToolResult(content=(image,), meta={"path": path})

    The run ends if every result of a reply's calls has `terminate` set. `meta` is stored with the
    result, and the model does not see it.
    """

    content: tuple[Part, ...]
    is_error: bool = False
    terminate: bool = False
    meta: Mapping[str, Json] | None = None
    traceback: str = ""  # only for the ToolEnd event; the model never sees it

    def __post_init__(self) -> None:
        parts = check_parts("the content of a ToolResult", self.content)
        object.__setattr__(self, "content", parts)
        if self.meta is not None:
            self._check_meta(self.meta)

    def _check_meta(self, meta: Any) -> None:
        if not isinstance(meta, Mapping):
            raise TypeError(
                f"the meta of a ToolResult must be a mapping of JSON values, not {meta!r}"
            )
        try:
            json.dumps(dict(meta))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the meta of a ToolResult must be writable as JSON: {error}") from None

    @property
    def text(self) -> str:
        """The text parts of the content, joined to one string."""
        return join_text(self.content)


def text_result(text: str) -> ToolResult:
    """Return a successful tool result whose content is `text`."""
    return ToolResult(content=(Text(text=text),))


def error_result(error: BaseException | str) -> ToolResult:
    """Return a tool result that is marked as an error and has `error` as its text.

    If `error` is an exception, the text is the name of its class and its message.
    """
    if isinstance(error, BaseException):
        detail = str(error)
        error = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
    return ToolResult(content=(Text(text=error),), is_error=True)


_Action: TypeAlias = Callable[[], object]


class Cancel:
    """A token that cancels a run.

        cancel = Cancel()
        signal.signal(signal.SIGTERM, lambda *_: cancel.cancel())
        result = await agent.run("Clean up the logs.", cancel=cancel)

    The request or the calls in progress are cancelled at once, and the loop starts nothing new. One
    token may serve several runs.
    """

    __slots__ = ("_actions", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        # By action: the thread of the action's event loop, and a function that schedules a call
        # in that event loop.
        self._actions: dict[_Action, tuple[int, Callable[[_Action], None]]] = {}

    def cancel(self) -> None:
        """Cancel every run that uses this token. Any thread or signal handler may call this."""
        self.cancelled = True
        for action, (thread, schedule) in tuple(self._actions.items()):
            if thread == get_ident():
                action()
            # In a signal handler, the call above does not wake an event loop that waits; this does.
            schedule(action)

    def attach(self, action: _Action) -> None:
        """Register `action`, which is called in the current event loop if the token is cancelled.

        If the token is cancelled already, call `action` at once.
        """
        from glue.tasks import caller  # loads anyio, which `from glue import tool` must not do

        self._actions[action] = get_ident(), caller()
        if self.cancelled:
            action()

    def detach(self, action: _Action) -> None:
        """Remove an action that `attach` added, so that `cancel` no longer calls it."""
        del self._actions[action]


class Spending:
    """The requests, tokens and dollars that a run and its sub-agents have spent."""

    def __init__(self, parent: Spending | None = None) -> None:
        self.parent = parent  # the record of the run whose tool started this run
        self.requests = 0
        self.tokens_in = 0  # estimated, of the messages that this run added
        self.tokens_out = 0
        self.usage = Usage(cost=0.0)
        self.usd = 0.0  # the cost of the replies whose price is known
        self.started = time.monotonic()

    def spend(
        self,
        *,
        requests: int = 0,
        tokens_in: int = 0,
        tokens_out: int = 0,
        usage: Usage | None = None,
    ) -> None:
        """Add requests, tokens and usage to this record and to the records of all parents."""
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
    """Values that the caller passes to a run, such as deps, permission, hooks and session id."""

    run_id: str = field(default_factory=new_id)
    session_id: str = ""
    deps: Any = None  # the caller's own object, `context.deps` in a tool
    permission: Permission | None = None  # None denies every tool that needs permission
    hooks: tuple[ToolHook, ...] = ()  # called before and after each tool
    identity: Mapping[str, Json] | None = None  # appears in the RunStart event
    telemetry: OpenTelemetry | None = None  # traces the run
    parent: Context[Any] | None = None  # the context of the tool that started this run


def _ignore(text: str, data: Any, event: Any) -> None:
    """Ignore a progress report. This is the default of `Context.report`, outside of a run."""


@dataclass(slots=True, kw_only=True)
class Context(Generic[DepsT]):
    """A tool call and its run, as the tool sees them: the first parameter of a tool's function.

    @tool
    async def count_orders(context: Context[Database], customer: str) -> int:
        "Count the orders of a customer."
        context.progress("asking the database")
        return await context.deps.count(customer)
    """

    call: ToolCall
    host: Host = field(default_factory=Host)
    cancel: Cancel = field(default_factory=Cancel)
    spending: Spending = field(default_factory=Spending)
    # Called with text, data, sub-agent's event. A factory, so that the signature shows no address.
    report: Callable[[str, Any, Any], None] = field(default_factory=lambda: _ignore)
    limits: Limits = field(default_factory=Limits)  # of the run, when the call began
    turns_left: int | None = None  # None if the run has no max_turns
    # Awaits a person's decision, and writes the question to the journal for other processes.
    ask: Callable[[PermissionRequest, Awaitable[Decision]], Awaitable[Decision]] | None = None
    provider: Provider | None = None  # of the run, for tools that ask the model themselves
    decided: Decided | None = None  # set if the caller of `resume` has allowed this call
    # The seconds that the call, or a call inside it, waited for a permission.
    waited: list[float] = field(default_factory=list)

    @property
    def deps(self) -> DepsT:
        """The object that the caller passed as `deps=`."""
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
        """The id of the session or run for which decisions with `remember="session"` are valid.

        A sub-agent has the id of its caller. If there is no session, the id is that of the
        outermost run.
        """
        host = self.host
        while not host.session_id and host.parent is not None:
            host = host.parent.host
        return host.session_id or host.run_id

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled."""
        return self.cancel.cancelled

    def progress(self, text: str = "", data: Any = None) -> None:
        """Emit a `ToolUpdate` event with a text and data about the progress of the tool."""
        self.report(text, data, None)


class AnyTool(Protocol):
    """The protocol of tools that the loop runs. `glue.tool` makes a tool from a function."""

    @property
    def spec(self) -> ToolSpec: ...

    # Whether the tool must not run at the same time as other tools.
    @property
    def alone(self) -> bool: ...

    # Whether the run may end although a result of this tool does not have `terminate` set.
    @property
    def advisory(self) -> bool: ...

    def invoke(self, call: ToolCall, context: Context[Any]) -> Awaitable[ToolResult]: ...


class ToolWrapper:
    """A base class for wrappers of a tool.

    Attributes that the wrapper does not have are read from the wrapped tool.
    """

    spec: ToolSpec
    alone: bool
    advisory: bool

    def __init__(self, tool: AnyTool) -> None:
        self.tool = tool

    def __getattr__(self, name: str) -> Any:
        # `copy` looks these up before `tool` is set, which would recurse forever.
        if name.startswith("__") or name == "tool":
            raise AttributeError(name)
        return getattr(self.tool, name)

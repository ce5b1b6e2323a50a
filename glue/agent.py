"""The configured unit: a model, its tools, its instructions, its limits."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, Unpack, overload

if TYPE_CHECKING:
    from glue.compaction import Compactor
    from glue.context import AnyTool, Cancel
    from glue.durable.engine import Durable
    from glue.events import Listener
    from glue.function.call import ToolHook
    from glue.limits import Limits
    from glue.listeners import Events
    from glue.messages import Effort, Json
    from glue.options import AgentOptions, CallOptions, Instructions, Overrides, Prompt, RunOptions
    from glue.permission import Permission
    from glue.policies.policy import Policy
    from glue.project import Project, Role
    from glue.provider import Provider
    from glue.result import RunResult
    from glue.session import Session
    from glue.stores.store import Store
    from glue.subagent import AgentTool


DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")
T = TypeVar("T")
D = TypeVar("D")

# Set by the pytest plugin, so that a marked test plays back what a named provider once said.
opener: Callable[[str], Provider] | None = None


class Agent(Generic[DepsT, OutputT]):
    """A model with tools and instructions. Immutable: it may serve many tasks and threads at once."""

    __slots__ = ("_opened", "compaction", "deps_type", "name", "output", "project", "roles", "settings")

    name: str
    settings: Mapping[str, Any]  # what a session or a call may override
    output: type[OutputT] | Mapping[str, Json] | None
    deps_type: type[DepsT] | None
    roles: Mapping[str, Role] | str | os.PathLike[str] | None
    project: str | os.PathLike[str] | None
    compaction: Compactor | None
    _opened: dict[str, Provider]

    @overload
    def __init__(
        self: Agent[None, None],
        model: str | Provider,
        *,
        output: None = None,
        deps_type: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None, T],
        model: str | Provider,
        *,
        output: type[T],
        deps_type: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None, Any],
        model: str | Provider,
        *,
        output: Mapping[str, Json],
        deps_type: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, None],
        model: str | Provider,
        *,
        output: None = None,
        deps_type: type[D],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, T],
        model: str | Provider,
        *,
        output: type[T],
        deps_type: type[D],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, Any],
        model: str | Provider,
        *,
        output: Mapping[str, Json],
        deps_type: type[D],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        model: str | Provider | None,
        *,
        output: Any = None,
        deps_type: Any = None,
        tools: Iterable[AnyTool] | None = (),
        instructions: Instructions | None = "",
        role: str | None = None,
        limits: Limits | None = None,
        permission: Permission | None = None,
        hooks: Iterable[ToolHook] | None = (),
        policies: Iterable[Policy] | None = (),
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        name: str = "",
        roles: Mapping[str, Role] | str | os.PathLike[str] | None = None,
        project: str | os.PathLike[str] | None = None,
        compaction: Compactor | None = None,
    ) -> None:
        settings = {
            "model": _checked_model(model),
            "tools": _checked_tools(tools or ()),
            "instructions": instructions or None,
            "role": role,
            "limits": limits,
            "permission": permission,
            "hooks": tuple(hooks) if hooks else None,
            "policies": tuple(policies or ()),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "reasoning": reasoning,
            "cache": cache,
            "options": options,
        }
        put = object.__setattr__
        put(self, "settings", MappingProxyType(settings))
        put(self, "name", name)
        put(self, "output", output)
        put(self, "deps_type", deps_type)
        put(self, "roles", roles)
        put(self, "project", project)
        put(self, "compaction", compaction)
        put(self, "_opened", {})

    # Running --------------------------------------------------------------------------------------

    @overload
    async def run(self, prompt: Prompt, *, output: type[T], **options: Unpack[RunOptions[DepsT]]) -> RunResult[T]: ...
    @overload
    async def run(
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[Any]: ...
    @overload
    async def run(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    async def run(self, prompt: Prompt, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Run one prompt to its end. A run that went wrong raises; the error carries `result`."""
        from glue.options import prompt_messages
        from glue.running import Job, perform

        history, said = options.pop("message_history", ()), prompt_messages(prompt)
        job = Job(agent=self, prompt=said, history=history, layers=(_known(options),), output=output)
        return await perform(job)

    @overload
    def run_sync(self, prompt: Prompt, *, output: type[T], **options: Unpack[RunOptions[DepsT]]) -> RunResult[T]: ...
    @overload
    def run_sync(
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[Any]: ...
    @overload
    def run_sync(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    def run_sync(self, prompt: Prompt, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Do as `run`, from code that is not async: a script, a thread, a notebook."""

        async def work() -> RunResult[Any]:
            try:
                result: RunResult[Any] = await self.run(prompt, output=output, **options)
                return result
            finally:
                await self.aclose()  # the event loop ends here, and its connections with it

        return run_blocking(work)

    @overload
    def stream(self, prompt: Prompt, *, output: type[T], **options: Unpack[RunOptions[DepsT]]) -> Events[T]: ...
    @overload
    def stream(
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[RunOptions[DepsT]]
    ) -> Events[Any]: ...
    @overload
    def stream(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[DepsT]]
    ) -> Events[OutputT]: ...
    def stream(self, prompt: Prompt, *, output: Any = None, **options: Any) -> Events[Any]:
        """Run as an async iterator of events: `async with agent.stream(...) as events`."""
        from glue.listeners import Events, join

        async def start(listener: Listener, cancel: Cancel) -> RunResult[Any]:
            heard = join((options.get("on_event"), listener))
            wanted: dict[str, Any] = {**options, "on_event": heard, "cancel": cancel}
            result: RunResult[Any] = await self.run(prompt, output=output, **wanted)
            return result

        return Events(start, options.get("cancel"))

    async def resume(self, result: RunResult[Any], **options: Unpack[CallOptions[DepsT]]) -> RunResult[OutputT]:
        """Go on from where a run stood, with no new prompt: after max_turns or a budget, with other limits."""
        from glue.running import Job, perform

        return await perform(Job(agent=self, history=result.messages, layers=(_known(dict(options)),)))

    def session(
        self, id: str = "", *, store: Store | None = None, queue: bool = False, **overrides: Unpack[Overrides]
    ) -> Session[DepsT, OutputT]:
        """Open a conversation, kept in `store` under `id`; without a store it ends with the process.

        With `queue` a second prompt waits for the first, instead of being refused.
        """
        from glue.session import Session

        return Session(self, id, store=store, queue=queue, **overrides)

    def durable(self, **options: Any) -> Durable[DepsT, OutputT]:
        """Make runs survive the process, on DBOS: `async with agent.durable(engine=...) as durable`."""
        from glue.durable.engine import Durable

        return Durable(self, **options)

    def as_tool(self, name: str = "", description: str = "") -> AgentTool:
        """Make a tool of this agent, for another one: a fresh transcript for each call."""
        from glue.subagent import AgentTool

        name = name or self.name
        if not name:
            raise ValueError("an agent that serves as a tool needs a name")
        return AgentTool(self, name, description or f"Hand a task to the agent {name}.")

    def cli(self) -> None:
        """Run from the command line: the prompt from the arguments or from stdin."""
        from importlib import import_module

        import_module("glue.cli.options").main(self)

    # What it is made of ---------------------------------------------------------------------------

    def open(self, model: str | Provider) -> Provider:
        """Give a provider for a name, made at first use; closed by `aclose`."""
        if not isinstance(model, str):
            return model
        if opener is not None:
            return opener(model)
        from glue.providers import new

        if model not in self._opened:
            self._opened.setdefault(model, new(model))
        return self._opened[model]

    def role(self, name: str) -> Role:
        from glue.project import find_role

        return find_role(self.roles, name)

    def load_project(self) -> Project | None:
        """Read what the project says, where the agent was given one."""
        if self.project is None:
            return None
        from glue.project import load_project

        return load_project(self.project)

    async def aclose(self) -> None:
        """Close what was opened by name, in this event loop."""
        for provider in tuple(self._opened.values()):
            if (close := getattr(provider, "aclose", None)) is not None:
                await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Agent is immutable; give {name!r} to the call, to a session or to a new Agent")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an Agent is immutable")

    def __repr__(self) -> str:
        model = self.settings["model"]
        return f"Agent({self.name or (model if isinstance(model, str) else model.name)!r})"


def _checked_model(model: Any) -> Any:
    if isinstance(model, str) and model.strip():
        return model
    if isinstance(model, str) or not callable(getattr(model, "stream", None)):
        raise TypeError(f"model must be a name such as 'openai:gpt-5-nano', or a provider, not {model!r}")
    return model


def _checked_tools(tools: Iterable[AnyTool]) -> tuple[AnyTool, ...]:
    tools = tuple(tools)
    for tool in tools:
        if not hasattr(tool, "spec") or not callable(getattr(tool, "invoke", None)):
            raise TypeError(f"tools must be made by glue.tool, not {tool!r}")
    names = [tool.spec.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"tools must have different names; {name!r} is there twice")
    return tools


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse an option that does not exist, as a plain signature would."""
    from glue.options import CALL_OPTIONS

    for name in options:
        if name not in CALL_OPTIONS:
            raise TypeError(f"there is no option {name!r}; there are: {', '.join(sorted(CALL_OPTIONS))}")
    return options


def run_blocking(function: Callable[[], Awaitable[T]]) -> T:
    """Run an async function to its end, in an event loop of its own."""
    import anyio
    import sniffio

    async def main() -> T:
        return await function()

    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return anyio.run(main)
    # A running loop cannot run another: that one gets a thread, and an interrupt here cancels what it does.
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        return portal.call(main)

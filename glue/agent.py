"""Agents: a model with its tools, instructions and limits, and how one prompt becomes a run of the loop."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, overload

from glue.options import (
    AgentOptions,
    CallOptions,
    Model,
    Options,
    Overrides,
    Prompt,
    RunOptions,
    Schema,
    call_options,
    check_history,
    check_list,
    instructions_text,
    prompt_messages,
    refuse_unknown,
    tool_table,
    with_meta,
    with_role,
)
from glue.provider import Closeable, close

if TYPE_CHECKING:
    from glue.compaction import Compactor
    from glue.context import AnyTool, Host
    from glue.durable.engine import Durable
    from glue.events import RunResult
    from glue.messages import Message, Request
    from glue.output import Answer
    from glue.policies import Policy
    from glue.project import Role
    from glue.provider import Provider
    from glue.session import Session
    from glue.stores.store import Store
    from glue.stream import Events
    from glue.subagent import AgentTool


DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")
T = TypeVar("T")
D = TypeVar("D")


class Agent(Closeable, Generic[DepsT, OutputT]):
    """A model with tools and instructions. Immutable: it may serve many tasks and threads at once."""

    __slots__ = ("_opened", "compaction", "deps_type", "name", "project", "roles", "settings")

    name: str
    settings: Options  # what a session or a call may override
    deps_type: type[DepsT] | None
    roles: Mapping[str, Role] | str | os.PathLike[str] | None
    project: str | os.PathLike[str] | None
    compaction: Compactor | None
    _opened: dict[str, Provider]

    @overload
    def __init__(
        self: Agent[None, None],
        model: Model,
        *,
        output: None = None,
        deps_type: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None, T], model: Model, *, output: type[T], deps_type: None = None, **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None, Any], model: Model, *, output: Schema, deps_type: None = None, **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, None], model: Model, *, output: None = None, deps_type: type[D], **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, T], model: Model, *, output: type[T], deps_type: type[D], **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, Any], model: Model, *, output: Schema, deps_type: type[D], **options: Unpack[AgentOptions]
    ) -> None: ...
    def __init__(self, model: Model | None, *, output: Any = None, deps_type: Any = None, **options: Any) -> None:
        """Make an agent. Options: tools, instructions, role, limits, permission, hooks, policies, max_tokens,
        temperature, reasoning, cache, options, prices, telemetry; name, roles, project, compaction.
        """
        refuse_unknown(options, AgentOptions, "an agent has no")
        if not (isinstance(model, str) and model.strip()) and not callable(getattr(model, "stream", None)):
            raise TypeError(f"model must be a name such as 'openai:gpt-5.4-nano', or a provider, not {model!r}")
        own = {"name": options.pop("name", ""), "deps_type": deps_type}
        own |= {name: options.pop(name, None) for name in ("roles", "project", "compaction")}
        for name in ("hooks", "policies"):
            check_list(name, options.get(name))
            options[name] = tuple(options.get(name) or ())
        options["hooks"] = options["hooks"] or None
        options["instructions"] = options.get("instructions") or None
        options["tools"] = tuple(tool_table(options.get("tools") or ()).values())
        settings = Options(model=model, output=output, **options)
        for field, value in {**own, "settings": settings, "_opened": {}}.items():
            object.__setattr__(self, field, value)

    # Running --------------------------------------------------------------------------------------

    @overload
    async def run(self, prompt: Prompt, *, output: type[T], **options: Unpack[RunOptions[DepsT]]) -> RunResult[T]: ...
    @overload
    async def run(self, prompt: Prompt, *, output: Schema, **options: Unpack[RunOptions[DepsT]]) -> RunResult[Any]: ...
    @overload
    async def run(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    async def run(self, prompt: Prompt, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Run one prompt to its end. A run that went wrong raises; the error carries `result`."""
        history = check_history(options.pop("message_history", ()))
        return await perform(self, self.layer(call_options(options, output)), prompt_messages(prompt), history)

    @overload
    def run_sync(self, prompt: Prompt, *, output: type[T], **options: Unpack[RunOptions[DepsT]]) -> RunResult[T]: ...
    @overload
    def run_sync(self, prompt: Prompt, *, output: Schema, **options: Unpack[RunOptions[DepsT]]) -> RunResult[Any]: ...
    @overload
    def run_sync(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    def run_sync(self, prompt: Prompt, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Do as `run`, from code that is not async: a script, a thread, a notebook."""
        from glue.tasks import run_blocking

        # The event loop ends here, and its connections with it.
        return run_blocking(lambda: self.run(prompt, output=output, **options), self.aclose)

    @overload
    def stream(self, prompt: Prompt, *, output: type[T], **options: Unpack[RunOptions[DepsT]]) -> Events[T]: ...
    @overload
    def stream(self, prompt: Prompt, *, output: Schema, **options: Unpack[RunOptions[DepsT]]) -> Events[Any]: ...
    @overload
    def stream(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[DepsT]]
    ) -> Events[OutputT]: ...
    def stream(self, prompt: Prompt, *, output: Any = None, **options: Any) -> Events[Any]:
        """Run as an async iterator of events: `async with agent.stream(...) as events`."""
        from glue.stream import Events

        return Events(lambda options: self.run(prompt, output=output, **options), options)

    async def resume(self, result: RunResult[Any], **options: Unpack[CallOptions[DepsT]]) -> RunResult[OutputT]:
        """Go on from where a run stood, with no new prompt: after max_turns or a budget, with other limits."""
        return await perform(self, self.layer(call_options(options)), None, result.messages)

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

    def cli(self, prompt: str = "") -> None:
        """Run from the command line: the prompt from the arguments or from stdin, else the one given here."""
        from importlib import import_module

        import_module("glue.cli.options").main(self, prompt=prompt)

    # What it is made of ---------------------------------------------------------------------------

    def open(self, model: Model) -> Provider:
        """Give a provider for a name, made at first use; closed by `aclose`."""
        if not isinstance(model, str):
            return model
        from glue.context import provider_names
        from glue.providers import new

        if (chosen := provider_names.get()) is not None:
            provider: Provider = chosen(model)
            return provider

        if model not in self._opened:
            self._opened.setdefault(model, new(model))
        return self._opened[model]

    @property
    def output(self) -> type[OutputT] | Schema | None:
        """What the answer is read as, where a call does not say otherwise."""
        output: type[OutputT] | Schema | None = self.settings.output
        return output

    def role(self, name: str) -> Role:
        from glue.project import find_role

        return find_role(self.roles, name)

    def layer(self, *layers: Options) -> Options:
        """Join settings, the narrowest place first, the agent's own last."""
        joined: dict[str, Any] = {}
        for layer in (self.settings, *reversed(layers)):
            joined |= with_role(layer, self.role).given()
        return Options(**joined)

    async def aclose(self) -> None:
        """Close what was opened by name, in this event loop."""
        for provider in tuple(self._opened.values()):
            await close(provider)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Agent is immutable; give {name!r} to the call, to a session or to a new Agent")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an Agent is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        own = {name: getattr(self, name) for name in ("name", "deps_type", "roles", "project", "compaction")}
        return partial(type(self), **self.settings.given(), **own), ()

    def __repr__(self) -> str:
        model: Any = self.settings.model
        return f"Agent({self.name or (model if isinstance(model, str) else model.name)!r})"


# One run --------------------------------------------------------------------------------------------


async def perform(
    agent: Agent[Any, Any], options: Options, prompt: Sequence[Message] | None, history: Sequence[Message]
) -> RunResult[Any]:
    """Make the loop's settings of an agent's, run the loop, and put the output on the result.

    Without a prompt the run goes on from where the history stands.
    """
    from glue.events import join, writers
    from glue.loop.run import drive

    provider = agent.open(options.model or "")
    text, identity = instructions_text(options.instructions)
    tools, policies = list(options.tools or ()), list(options.policies or ())
    project = "" if agent.project is None else _load_project(agent.project, tools)
    system = "\n\n".join(part for part in (text.strip("\n"), project) if part)
    if (check_rules := getattr(options.permission, "check", None)) is not None:
        from glue.tools import READY_MADE

        check_rules(tools, READY_MADE)
    if agent.compaction is not None:
        from glue.compaction import compaction_for

        policies.append(compaction_for(provider, agent.compaction, agent.open))
    answer = None if options.output is None else _add_output(options.output, provider, tools, policies)
    ready = replace(
        options,
        tools=tools,
        request=_request(options, system, answer),
        policies=policies,
        host=_host(agent, options, identity),
        on_event=join((*writers(options.stream, options.tool_log), options.on_event)),
    )
    said = with_meta(prompt, identity) if prompt is not None else None
    result: RunResult[Any] = await drive(provider, history, said, ready)
    result = replace(result, meta={**(result.meta or {}), **identity})
    if answer is not None:
        result = answer.finish(result)
    return result if options.unwrap is False else result.unwrap()


def _load_project(path: str | os.PathLike[str], tools: list[AnyTool]) -> str:
    """Give what a project says to the model, and add the tool that reads its skills."""
    from glue.project import load_project, skill_tool

    project = load_project(path)
    if project.skills and not any(tool.spec.name == "skill" for tool in tools):
        tools.append(skill_tool(project.skills))
    return project.prompt


def _add_output(wanted: Any, provider: Provider, tools: list[AnyTool], policies: list[Policy]) -> Answer[Any]:
    """Have the answer read as what is wanted, by the provider itself or through a tool, and asked for again."""
    from glue.output import Answer, Output, Reask
    from glue.provider import capabilities

    output: Output[Any] = Output(wanted)
    native = capabilities(provider).takes_output(output.schema, tools=bool(tools))
    answer = Answer(output, native=native, taken=[tool.spec.name for tool in tools])
    policies.append(Reask(answer))
    if answer.tool is not None:
        tools.append(answer.tool)
    return answer


def _request(options: Options, system: str, answer: Answer[Any] | None) -> Request:
    from glue.messages import Request

    names = ("max_tokens", "temperature", "reasoning", "cache", "options")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(options, name)) is not None}
    schema = answer.output.schema if answer is not None and answer.native else None
    return Request(system=system, output_schema=schema, **given)


def _host(agent: Agent[Any, Any], options: Options, identity: Mapping[str, str]) -> Host:
    from glue.context import Host

    host = options.host or Host()
    deps, permission, hooks, wanted = options.deps, options.permission, options.hooks, agent.deps_type
    if (above := host.parent) is not None:  # a sub-agent may not do what its parent may not
        deps = above.deps if deps is None else deps
        permission = above.host.permission if permission is None else permission
        hooks = above.host.hooks if hooks is None else hooks
    if isinstance(wanted, type) and not isinstance(deps, wanted):
        got = "none was given" if deps is None else f"got {type(deps).__name__}"
        raise TypeError(f"{agent!r} needs deps of the type {wanted.__name__}; {got}")
    named = {"agent": agent.name, "session": host.session_id, **identity}
    told = {name: value for name, value in named.items() if value}
    hooks = tuple(hooks or ())
    for hook in hooks:
        if not hasattr(hook, "before") and not hasattr(hook, "after"):
            raise TypeError(f"hooks must be such as glue.ToolHook(before=function), not {hook!r}")
    return replace(host, deps=deps, permission=permission, hooks=hooks, identity=told)

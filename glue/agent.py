"""Agents: a model with its tools, instructions and limits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TextIO, overload

from glue.checks import check_text, show
from glue.closing import Closeable, close
from glue.overrides import provider_names
from glue.settings import (
    Instructions,
    Model,
    Prompt,
    Schema,
    Settings,
    check_agent,
    check_history,
    check_model,
    checked,
    prompt_messages,
    tool_table,
)
from glue.signature import blocking, hinted, streaming, streaming_sync

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from glue.compaction import Compactor
    from glue.context import AnyTool, Cancel
    from glue.durable.ledger import Rates
    from glue.durable.runs import Durable
    from glue.events import Listener
    from glue.function.hooks import ToolHook
    from glue.limits import LimitsSource
    from glue.messages import Effort, Json, Message
    from glue.pending import Decisions
    from glue.permission import Permission
    from glue.policies import Policy
    from glue.project import Role
    from glue.provider import Provider
    from glue.result import RunResult
    from glue.session import Session
    from glue.stores.store import Store
    from glue.subagent import AgentTool
    from glue.telemetry import OpenTelemetry

    DepsT = TypeVar("DepsT", default=None)
    OutputT = TypeVar("OutputT", default=None)
    D = TypeVar("D", default=None)
    T = TypeVar("T", default=Any)  # Any if the output is a JSON schema
else:
    from typing import TypeVar

    DepsT, OutputT = TypeVar("DepsT"), TypeVar("OutputT")


class Agent(Closeable, Generic[DepsT, OutputT]):
    """A model with tools and instructions.

    An agent is immutable, so that many tasks and threads may use it at once.

        @glue.tool
        def weather(city: str) -> str:
            \"\"\"Return the weather in a city.\"\"\"
            return f"{city}: 21 degrees, dry"

        agent = glue.Agent("anthropic:claude-haiku-4-5", tools=[weather])
        print(agent.run_sync("Weather in Toronto?").text)
    """

    __slots__ = ("_opened", "compaction", "deps_type", "name", "project", "roles", "settings")

    name: str
    settings: Settings  # a session or a call may override them
    deps_type: type[DepsT] | None
    roles: Mapping[str, Role] | str | os.PathLike[str] | None
    project: str | os.PathLike[str] | None
    compaction: Compactor | None
    _opened: dict[str, Provider]

    @overload
    def __init__(
        self: Agent[D, T],
        model: Model,
        *,
        output: type[T] | Schema,
        tools: Iterable[AnyTool] | None = None,
        instructions: Instructions | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        deps_type: type[D] | None = None,
        name: str = "",
        role: str | None = None,
        roles: Mapping[str, Role] | str | os.PathLike[str] | None = None,
        project: str | os.PathLike[str] | None = None,
        compaction: Compactor | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, None],
        model: Model,
        *,
        output: None = None,
        tools: Iterable[AnyTool] | None = None,
        instructions: Instructions | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        deps_type: type[D] | None = None,
        name: str = "",
        role: str | None = None,
        roles: Mapping[str, Role] | str | os.PathLike[str] | None = None,
        project: str | os.PathLike[str] | None = None,
        compaction: Compactor | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> None: ...
    @hinted
    def __init__(
        self,
        model: Model,
        *,
        output: type[Any] | Schema | None = None,
        tools: Iterable[AnyTool] | None = None,
        instructions: Instructions | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        deps_type: type[Any] | None = None,
        name: str = "",
        role: str | None = None,
        roles: Mapping[str, Role] | str | os.PathLike[str] | None = None,
        project: str | os.PathLike[str] | None = None,
        compaction: Compactor | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> None:
        """Create an agent. A session or a call may override the settings.

            agent = glue.Agent(
                "anthropic:claude-haiku-4-5",
                tools=[weather],
                instructions="Answer in one line.",
                limits=glue.Limits(max_turns=8, usd_budget=0.10),
            )

        Args:
            model: A name such as "openai:gpt-5.4-nano", several names with commas for failover, or
                a provider object.
            output: A type or a JSON schema; the answer is validated, and is `result.output`.
            deps_type: The class of the object that calls pass as `deps`.
            name: Used in events, logs and the command line, and as the name of `as_tool()`.
            roles: Named instructions, by name or as a folder of Markdown files.
            project: A folder whose AGENTS.md and skills the model gets.
            compaction: Shortens the history before it fills the context window.
            instructions: The system prompt: a text, or a prompt of a catalog.
            role: A name in the agent's `roles`; sets the instructions and perhaps the model.
            tools: Functions that the model may call, each made by `glue.tool`.
            limits: Turns, requests, tokens, dollars and seconds of one run.
            permission: Decides whether tools that need permission may run; None denies them.
            hooks: Functions called before and after each tool call.
            policies: Objects that may change requests, add messages or stop the run.
            max_tokens: The largest number of tokens in one reply.
            temperature: Sampling temperature; None leaves it to the model.
            reasoning: How much the model thinks: "none", "low", "medium", "high", ...
            cache: True requests prompt caching, if the provider does not cache by itself.
            options: Provider-specific fields, merged into the body of each request.
            prices: USD per million input and output tokens, by model: {"my-model": (0.5, 1.5)}.
            telemetry: True, or a `glue.telemetry.OpenTelemetry`, traces the run.
        """
        check_model(model)
        check_agent(locals())
        if isinstance(model, str) and provider_names.get() is None:
            # Loads the catalog, which `from glue import Agent` does without.
            from glue.providers import check_names

            check_names(model)
        settings = checked(locals())
        settings["tools"] = tuple(tool_table(tools or ()).values())
        settings["policies"] = tuple(policies or ())
        settings["hooks"] = tuple(hooks or ()) or None
        settings["instructions"] = instructions or None
        own = {
            "name": name,
            "deps_type": deps_type,
            "roles": roles,
            "project": project,
            "compaction": compaction,
            "settings": Settings(**settings),
            "_opened": {},
        }
        for field, value in own.items():
            object.__setattr__(self, field, value)

    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output: type[T] | Schema,
        message_history: Sequence[Message] = (),
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
        model: Model | None = None,
        instructions: Instructions | None = None,
        role: str | None = None,
        tools: Iterable[AnyTool] | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> RunResult[T]: ...
    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output: None = None,
        message_history: Sequence[Message] = (),
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
        model: Model | None = None,
        instructions: Instructions | None = None,
        role: str | None = None,
        tools: Iterable[AnyTool] | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> RunResult[OutputT]: ...
    @hinted
    async def run(
        self,
        prompt: Prompt,
        *,
        output: type[Any] | Schema | None = None,
        message_history: Sequence[Message] = (),
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
        model: Model | None = None,
        instructions: Instructions | None = None,
        role: str | None = None,
        tools: Iterable[AnyTool] | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> RunResult[Any]:
        """Run one prompt to its end and return the result. If the run failed, raise its error.

            result = await agent.run("Weather in Toronto?", limits=glue.Limits(max_turns=4))
            print(result.text, result.cost)

        Settings that are given here take precedence over those of the agent.

        Args:
            prompt: A text, parts such as `glue.Image`, or messages.
            output: A type or a JSON schema; the answer is validated, and is `result.output`.
            message_history: The messages before the prompt, such as `result.messages`.
            deps: The object that tools read as `context.deps`.
            stream: A text file that gets the answer as it arrives, such as `sys.stdout`.
            tool_log: A text file that gets a line for each tool call, such as `sys.stderr`.
            on_event: A function called with each event.
            cancel: A `glue.Cancel` whose `cancel()` ends the run.
            unwrap: False returns the result of a failed run, instead of raising its error.
            model: The name of a model, or a provider object.
            instructions: The system prompt: a text, or a prompt of a catalog.
            role: A name in the agent's `roles`; sets the instructions and perhaps the model.
            tools: Functions that the model may call, each made by `glue.tool`.
            limits: Turns, requests, tokens, dollars and seconds of one run.
            permission: Decides whether tools that need permission may run; None denies them.
            hooks: Functions called before and after each tool call.
            policies: Objects that may change requests, add messages or stop the run.
            max_tokens: The largest number of tokens in one reply.
            temperature: Sampling temperature; None leaves it to the model.
            reasoning: How much the model thinks: "none", "low", "medium", "high", ...
            cache: True requests prompt caching, if the provider does not cache by itself.
            options: Provider-specific fields, merged into the body of each request.
            prices: USD per million input and output tokens, by model: {"my-model": (0.5, 1.5)}.
            telemetry: True, or a `glue.telemetry.OpenTelemetry`, traces the run.
        """
        settings = self.merge(checked(locals()))
        history = check_history(message_history)
        return await _perform(self, settings, prompt_messages(prompt), history)

    run_sync = blocking(run)
    stream = streaming(run)
    stream_sync = streaming_sync(run)

    @hinted
    async def resume(
        self,
        result: RunResult[Any],
        *,
        decisions: Decisions | None = None,
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
        model: Model | None = None,
        instructions: Instructions | None = None,
        role: str | None = None,
        tools: Iterable[AnyTool] | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> RunResult[OutputT]:
        """Continue a run that stopped early, without a new prompt, and return the new result.

        If the resumed run fails, its error is raised. If `result` is complete or was refused,
        raise InvalidContinuation.

        A run that reached a limit continues from its last message:

            result = await agent.run("Tidy up", limits=glue.Limits(max_turns=5), unwrap=False)
            if result.outcome == "max_turns":
                result = await agent.resume(result, limits=glue.Limits(max_turns=20))

        A run that is `paused` continues when a person has decided on `result.pending`:

            decisions = {call.id: glue.allow() for call in result.pending}
            result = await agent.resume(result, decisions=decisions)

        Args:
            result: The result of the earlier run.
            decisions: Answers to `result.pending` by call id: `glue.allow()`,
                `glue.deny("why")`, or the result of the call.
            deps: The object that tools read as `context.deps`.
            stream: A text file that gets the answer as it arrives, such as `sys.stdout`.
            tool_log: A text file that gets a line for each tool call, such as `sys.stderr`.
            on_event: A function called with each event.
            cancel: A `glue.Cancel` whose `cancel()` ends the run.
            unwrap: False returns the result of a failed run, instead of raising its error.
            model: The name of a model, or a provider object.
            instructions: The system prompt: a text, or a prompt of a catalog.
            role: A name in the agent's `roles`; sets the instructions and perhaps the model.
            tools: Functions that the model may call, each made by `glue.tool`.
            limits: Turns, requests, tokens, dollars and seconds of one run.
            permission: Decides whether tools that need permission may run; None denies them.
            hooks: Functions called before and after each tool call.
            policies: Objects that may change requests, add messages or stop the run.
            max_tokens: The largest number of tokens in one reply.
            temperature: Sampling temperature; None leaves it to the model.
            reasoning: How much the model thinks: "none", "low", "medium", "high", ...
            cache: True requests prompt caching, if the provider does not cache by itself.
            options: Provider-specific fields, merged into the body of each request.
            prices: USD per million input and output tokens, by model: {"my-model": (0.5, 1.5)}.
            telemetry: True, or a `glue.telemetry.OpenTelemetry`, traces the run.
        """
        if not hasattr(result, "new_messages"):
            raise TypeError(f"result must be the result of an earlier run, not {show(result)}")
        settings = self.merge(checked(locals()))
        return await _perform(self, settings, None, result.messages, decisions=decisions)

    resume_sync = blocking(resume)

    @hinted
    def session(
        self,
        id: str = "",
        *,
        store: Store | None = None,
        queue: bool = False,
        model: Model | None = None,
        instructions: Instructions | None = None,
        role: str | None = None,
        tools: Iterable[AnyTool] | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> Session[DepsT, OutputT]:
        """Return a session: a new or continued conversation that `store` keeps under the name `id`.

            session = agent.session("demo", store=glue.FileStore(".glue"))
            session.run_sync("Weather in Toronto?")
            session.run_sync("And tomorrow?")

        Args:
            id: The name of the conversation; if empty, a random name.
            store: Where messages are kept; if None, in memory, until the process ends.
            queue: If True, a second prompt waits for the first; else it raises `SessionBusy`.
            model: The name of a model, or a provider object.
            instructions: The system prompt: a text, or a prompt of a catalog.
            role: A name in the agent's `roles`; sets the instructions and perhaps the model.
            tools: Functions that the model may call, each made by `glue.tool`.
            limits: Turns, requests, tokens, dollars and seconds of one run.
            permission: Decides whether tools that need permission may run; None denies them.
            hooks: Functions called before and after each tool call.
            policies: Objects that may change requests, add messages or stop the run.
            max_tokens: The largest number of tokens in one reply.
            temperature: Sampling temperature; None leaves it to the model.
            reasoning: How much the model thinks: "none", "low", "medium", "high", ...
            cache: True requests prompt caching, if the provider does not cache by itself.
            options: Provider-specific fields, merged into the body of each request.
            prices: USD per million input and output tokens, by model: {"my-model": (0.5, 1.5)}.
            telemetry: True, or a `glue.telemetry.OpenTelemetry`, traces the run.
        """
        # Loads anyio and the loop, which `from glue import Agent` does without.
        from glue.session import Session

        return Session(self, id, store=store, queue=queue, settings=checked(locals()))

    @hinted
    def durable(
        self,
        *,
        engine: str = "sqlite:///glue-durable.db",
        name: str = "",
        lease: float = 10.0,
        rate: Rates = None,
        model: Model | None = None,
        instructions: Instructions | None = None,
        role: str | None = None,
        tools: Iterable[AnyTool] | None = None,
        limits: LimitsSource | None = None,
        permission: Permission | None = None,
        hooks: Iterable[ToolHook] | None = None,
        policies: Iterable[Policy] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Effort | None = None,
        cache: bool | None = None,
        options: Mapping[str, Json] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        telemetry: bool | OpenTelemetry | None = None,
    ) -> Durable[DepsT, OutputT]:
        """Return this agent as a `Durable`, which stores its runs and resumes them after a crash.

            async with agent.durable(engine="sqlite:///runs.db") as durable:
                result = await durable.run("Weather in Toronto?", id="weather-1")

        Args:
            engine: The database that keeps the runs: sqlite:///FILE or postgresql://HOST/NAME.
            name: Processes with the same name and the same database share their runs.
            lease: Seconds without a heartbeat after which another process takes a run over.
            rate: Requests and tokens per minute, for all runs together.
            model: The name of a model, or a provider object.
            instructions: The system prompt: a text, or a prompt of a catalog.
            role: A name in the agent's `roles`; sets the instructions and perhaps the model.
            tools: Functions that the model may call, each made by `glue.tool`.
            limits: Turns, requests, tokens, dollars and seconds of one run.
            permission: Decides whether tools that need permission may run; None denies them.
            hooks: Functions called before and after each tool call.
            policies: Objects that may change requests, add messages or stop the run.
            max_tokens: The largest number of tokens in one reply.
            temperature: Sampling temperature; None leaves it to the model.
            reasoning: How much the model thinks: "none", "low", "medium", "high", ...
            cache: True requests prompt caching, if the provider does not cache by itself.
            options: Provider-specific fields, merged into the body of each request.
            prices: USD per million input and output tokens, by model: {"my-model": (0.5, 1.5)}.
            telemetry: True, or a `glue.telemetry.OpenTelemetry`, traces the run.
        """
        # Loads sqlite3 and the loop, which `from glue import Agent` does without.
        from glue.durable.runs import Durable

        settings = checked(locals())
        return Durable(self, engine=engine, name=name, lease=lease, rate=rate, settings=settings)

    @hinted
    def as_tool(self, name: str = "", description: str = "") -> AgentTool:
        """Return a tool that runs this agent with a prompt. Each call starts a new transcript."""
        # Loads the loop, which `from glue import Agent` does without.
        from glue.subagent import AgentTool

        check_text("name", name)
        check_text("description", description)
        name = name or self.name
        if not name:
            raise ValueError("an agent needs a name to be a tool: write agent.as_tool('helper')")
        return AgentTool(self, name, description or f"Hand a task to the agent {name}.")

    def cli(self, prompt: str = "") -> None:
        """Run this agent as a command: read the command line, print the answer and exit.

        The prompt is read from the arguments or from stdin. If neither contains a prompt, `prompt`
        is used. The exit code is that of the outcome.
        """
        check_text("prompt", prompt)
        import_module("glue.cli.run").run_agent(self, prompt=prompt)

    def open(self, model: Model) -> Provider:
        """Return the provider for `model`. If `model` is a provider object, return it unchanged.

        The provider for a name is created at the first use of the name, and reused afterwards.
        """
        if not isinstance(model, str):
            return model
        # Loads the catalog, which `from glue import Agent` does without.
        from glue.providers import new

        if (chosen := provider_names.get()) is not None:
            provider: Provider = chosen(model)
            return provider

        if model not in self._opened:
            self._opened.setdefault(model, new(model))
        return self._opened[model]

    @property
    def output(self) -> type[OutputT] | Schema | None:
        """The type or JSON schema of the answer, or None for a text. A call may override it."""
        output: type[OutputT] | Schema | None = self.settings.output
        return output

    def role(self, name: str) -> Role:
        """Return the agent's role called `name`. Raise ConfigError if the role does not exist."""
        # Loads the reader of role files, which most agents do without.
        from glue.project import find_role

        return find_role(self.roles, name)

    def merge(self, *layers: Mapping[str, Any]) -> Settings:
        """Return the settings of a run; `layers` override the settings of the agent.

        The first layer that contains a setting decides it. A setting that no layer contains has
        the value of the agent.

        If a layer names a role, the role adds its instructions and its model to that layer, unless
        the layer has these settings itself.
        """
        merged: dict[str, Any] = {}
        for layer in (self.settings.given(), *reversed(layers)):
            if (name := layer.get("role")) is not None:
                role = self.role(name)
                merged["instructions"] = role.instructions
                if role.model:
                    merged["model"] = role.model
            merged.update(layer)
        return Settings(**merged)

    async def disconnect(self) -> None:
        """Close the connections that this agent opened in the current event loop.

        The agent opens a provider for each model that is given by name. A provider that was passed
        as an object stays open.
        """
        for provider in tuple(self._opened.values()):
            await close(provider)

    async def aclose(self) -> None:
        """Close the connections that this agent opened, exactly like `disconnect`."""
        await self.disconnect()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Agent is immutable{_advice(name)}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an Agent is immutable; create a new Agent")

    def __reduce__(self) -> tuple[Any, ...]:
        own = {
            name: getattr(self, name)
            for name in ("name", "deps_type", "roles", "project", "compaction")
        }
        return partial(type(self), **self.settings.given(), **own), ()

    def __repr__(self) -> str:
        model: Any = self.settings.model
        return f"Agent({self.name or (model if isinstance(model, str) else model.name)!r})"


def _advice(name: str) -> str:
    """Return the end of the error for an assignment to `name`: where to pass the value instead.

    If no call takes a setting `name`, the text says that there is no such setting.
    """
    takers = {"the call": Agent.run, "a session": Agent.session, "a new Agent": Agent.__init__}
    places = [f"to {place}" for place, taker in takers.items() if name in taker.__annotations__]
    if not places:
        return f", and has no setting {name!r}"
    return f"; pass {name!r} " + " or ".join(filter(None, (", ".join(places[:-1]), places[-1])))


async def _perform(
    agent: Agent[Any, Any],
    settings: Settings,
    prompt: Sequence[Message] | None,
    history: Sequence[Message],
    decisions: Decisions | None = None,
) -> RunResult[Any]:
    # Loads anyio and the loop, which `from glue import Agent` does without.
    from glue.perform import perform

    return await perform(agent, settings, prompt, history, decisions=decisions)

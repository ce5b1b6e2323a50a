"""Options of a run: one record from the command line to the loop; a call's go before its session's and its agent's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TextIO,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
    runtime_checkable,
)

from glue.dataclass import dataclass
from glue.limits import Limits, LimitsSource
from glue.messages import EFFORTS, Effort, File, Image, Json, Message, Opaque, Part, Request, Text, UserMessage, user
from glue.provider import Provider
from glue.text import suggest

if TYPE_CHECKING:
    from glue.compaction import Compactor
    from glue.context import AnyTool, Cancel, Host
    from glue.events import Listener
    from glue.function.call import ToolHook
    from glue.loop.state import Journal
    from glue.loop.transcript import History
    from glue.permission import Permission
    from glue.policies import Policy
    from glue.project import Role
    from glue.telemetry import OpenTelemetry

DepsT = TypeVar("DepsT")
Drive = TypeVar("Drive", bound="Callable[..., Any]")


@runtime_checkable
class Versioned(Protocol):
    """A prompt of a catalog: its text, and what a run records of it."""

    @property
    def text(self) -> str: ...

    @property
    def identity(self) -> Mapping[str, str]: ...


class Versions(Protocol):
    """A catalog: its default is taken."""

    def get(self, version: str = ...) -> Versioned: ...


Instructions: TypeAlias = str | Versioned | Versions
Model: TypeAlias = str | Provider
Schema: TypeAlias = Mapping[str, Json]  # a JSON schema that an answer is held to
Prompt: TypeAlias = str | Part | Sequence[str | Part] | Message | Sequence[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an agent, a session, a call or a command line says of a run; None leaves it to the next wider place."""

    model: str | Provider | None = None
    instructions: Instructions | None = None
    role: str | None = None
    tools: Iterable[AnyTool] | None = None
    limits: LimitsSource | None = None  # a function is asked anew before each request
    permission: Permission | None = None
    hooks: Iterable[ToolHook] | None = None
    policies: Iterable[Policy] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning: Effort | None = None
    cache: bool | None = None
    options: Mapping[str, Json] | None = None
    prices: Mapping[str, tuple[float, float]] | None = None
    telemetry: bool | OpenTelemetry | None = None
    # One call's own.
    output: Any = None
    deps: Any = None
    stream: TextIO | None = None
    tool_log: TextIO | None = None
    on_event: Listener | None = None
    cancel: Cancel | None = None
    unwrap: bool | None = None
    # The loop's: an agent makes them of the above.
    request: Request | None = None
    host: Host | None = None
    journal: Journal | None = None
    hardened: History | None = None  # what was sent of this transcript before

    def __post_init__(self) -> None:
        from glue.context import Cancel, Host

        if self.limits is not None and not isinstance(self.limits, Limits) and not callable(self.limits):
            raise TypeError(f"limits must be a glue.Limits, or a function that returns one, not {self.limits!r}")
        _check_request(self)
        if isinstance(self.request, Request):
            _check_request(self.request)
        for name in ("tools", "hooks", "policies"):
            check_list(name, getattr(self, name))
        check_listener("on_event", self.on_event)
        if not _offers(self.instructions, "text", "get") and not isinstance(self.instructions, str):
            raise TypeError(f"instructions must be a text or a prompt of a catalog, not {self.instructions!r}")
        if not _offers(self.permission, "decide"):
            wanted = "permission must be an object such as glue.Rules(...) or glue.Ask(function)"
            raise TypeError(f"{wanted}, not {self.permission!r}")
        for name, kind in (("request", Request), ("host", Host), ("cancel", Cancel)):
            if not isinstance(given := getattr(self, name), kind | None):
                raise TypeError(f"{name} must be a glue.{kind.__name__}, not {given!r}")
        if self.journal is not None and not hasattr(self.journal, "amend"):
            raise TypeError(f"journal must have the methods of a store's log, not {self.journal!r}")

    def given(self) -> dict[str, Any]:
        """Give what is said here, by name."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}

    def over(self, wider: Options) -> Options:
        """Give these settings, and those of a wider place where nothing is said here."""
        return replace(wider, **self.given())


def _offers(given: object, *names: str) -> bool:
    """Tell whether an object, where there is one, has one of these attributes; a class is no object of its own kind."""
    return given is None or (not isinstance(given, type) and any(hasattr(given, name) for name in names))


def _check_request(given: Options | Request) -> None:
    cap, temperature = given.max_tokens, given.temperature
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
        raise ValueError(f"max_tokens must be a whole number of 1 or more, or None for no cap, not {cap!r}")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, (int, float))):
        raise TypeError(f"temperature must be a number, or None for the model's own, not {temperature!r}")
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a number of 0 or more, or None for the model's own, not {temperature!r}")
    if given.reasoning is not None and given.reasoning not in EFFORTS:
        raise ValueError(f"reasoning must be one of {', '.join(EFFORTS)}, not {given.reasoning!r}")
    if given.options is not None and not isinstance(given.options, Mapping):
        raise TypeError(f"options must be a mapping that goes into the request's body, not {given.options!r}")


def check_list(name: str, given: object) -> None:
    """Refuse what is no list of things."""
    if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
        raise TypeError(f"{name} must be a list, not {given!r}")


def check_listener(name: str, listener: object) -> None:
    """Refuse what could not be told of an event; an async function would never be awaited."""
    if listener is None:
        return
    import inspect

    if not callable(listener):
        raise TypeError(f"{name} must be a function of one event, not {listener!r}")
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__):
        raise TypeError(f"{name} must be a plain function: an async one would hold up the run; read `stream` instead")


# The keywords that the public functions take. Each is a field of `Options`, or an agent's own.


class Shared(TypedDict, total=False):
    """What an agent, a session and a call may set."""

    instructions: Instructions | None
    role: str | None
    tools: Iterable[AnyTool] | None
    limits: LimitsSource | None  # a function is asked anew before each request
    permission: Permission | None
    hooks: Iterable[ToolHook] | None
    policies: Iterable[Policy] | None
    max_tokens: int | None
    temperature: float | None
    reasoning: Effort | None
    cache: bool | None
    options: Mapping[str, Json] | None
    prices: Mapping[str, tuple[float, float]] | None  # USD per million tokens in and out, by model
    telemetry: bool | OpenTelemetry | None


class Overrides(Shared, total=False):
    """What a session and a call may set."""

    model: str | Provider | None


class AgentOptions(Shared, total=False):
    """What an agent may be given besides its model, its output and the type of its deps."""

    name: str
    roles: Mapping[str, Role] | str | os.PathLike[str] | None
    project: str | os.PathLike[str] | None
    compaction: Compactor | None


class CallOptions(Overrides, Generic[DepsT], total=False):
    """What one prompt may set."""

    deps: DepsT
    stream: TextIO | None  # the answer's text, as it comes
    tool_log: TextIO | None  # a line for each tool that starts
    on_event: Listener | None
    cancel: Cancel | None
    unwrap: bool  # False returns the result of a run that went wrong, too


class RunOptions(CallOptions[DepsT], Generic[DepsT], total=False):
    """What one run without a session may set."""

    message_history: Sequence[Message]


class LoopOptions(TypedDict, total=False):
    """What the bare loop takes."""

    tools: Iterable[AnyTool]
    limits: LimitsSource | None
    request: Request | None
    policies: Iterable[Policy]
    host: Host | None
    on_event: Listener | None
    cancel: Cancel | None
    journal: Journal | None


def session_options(given: Mapping[str, Any]) -> Options:
    """Make the settings of a session."""
    refuse_unknown(given, Overrides, "a session has no")
    return Options(**given)


def call_options(given: Mapping[str, Any], output: Any = None) -> Options:
    """Make the settings of one prompt."""
    refuse_unknown(given, CallOptions, "there is no")
    return Options(**given, output=output)


def loop_options(given: Mapping[str, Any]) -> Options:
    """Make the settings of the bare loop."""
    refuse_unknown(given, LoopOptions, "the loop has no")
    return Options(**given)


def refuse_unknown(given: Mapping[str, Any], known: Any, refusal: str) -> None:
    """Refuse an option that does not exist, as a plain signature would, and name the one that was meant."""
    for name in given:
        if name not in known.__annotations__:
            hint = suggest(name, known.__annotations__)
            if name in Limits.__dataclass_fields__:
                hint = f"give limits=glue.Limits({name}=...)"
            elif name == "store":
                hint = "a conversation has one: agent.session(id, store=...)"
            raise TypeError(f"{refusal} option {name!r}; {hint}")


def traceable(drive: Drive) -> Drive:
    """Have a run traced as its settings say, or the run above it, or the environment."""

    @wraps(drive)
    async def run(provider: Provider, *given: Any, **more: Any) -> Any:
        options = next(each for each in given if isinstance(each, Options))
        telemetry = _telemetry(options)
        return await (telemetry.traced(drive) if telemetry is not None else drive)(provider, *given, **more)

    return cast(Drive, run)


def _telemetry(options: Options) -> OpenTelemetry | None:
    wanted, above = options.telemetry, options.host.parent if options.host is not None else None
    if wanted is None:
        wanted = above.host.telemetry if above is not None else None
        wanted = wanted or os.environ.get("GLUE_OTEL", "") not in ("", "0")
    if not wanted:
        return None
    from glue.telemetry import telemetry_of

    return telemetry_of(wanted)


def tool_table(tools: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """Give tools by name, or say what is no tool or is there twice."""
    check_list("tools", tools)
    table: dict[str, AnyTool] = {}
    for tool in tools:
        spec = getattr(tool, "spec", None)
        if spec is None or not callable(getattr(tool, "invoke", None)):
            made = f"; make one: glue.tool({tool.__name__})" if hasattr(tool, "__name__") else ""
            raise TypeError(f"tools must be made by glue.tool, not {tool!r}{made}")
        if spec.name in table:
            raise ValueError(f"tools must have different names; {spec.name!r} is there twice")
        table[spec.name] = tool
    return table


def with_role(options: Options, role_of: Callable[[str], Role]) -> Options:
    """Take over what a role says; what is said outright in the same place goes before it."""
    if options.role is None:
        return options
    role = role_of(options.role)
    return options.over(Options(instructions=role.instructions, model=role.model or None))


def instructions_text(given: Instructions | None) -> tuple[str, Mapping[str, str]]:
    """Give the text of instructions, and what a run records of them."""
    if given is None or type(given) is str:
        return given or "", {}
    if not isinstance(given, (str, Versioned)):
        given = given.get()
    return (given.text, given.identity) if isinstance(given, Versioned) else (given, {})


def prompt_messages(prompt: Prompt) -> tuple[Message, ...]:
    """Make messages of whatever a prompt may be."""
    if isinstance(prompt, (str, Text, Image, File, Opaque)):
        return (user(prompt),)
    items = tuple(prompt) if isinstance(prompt, Sequence) else (prompt,)
    if items and all(hasattr(item, "content") for item in items):
        return items  # type: ignore[return-value]
    if not items or not all(isinstance(item, (str, Text, Image, File, Opaque)) for item in items):
        raise TypeError(f"a prompt is a text, parts, or messages, not {prompt!r}")
    return (user(*items),)  # type: ignore[arg-type]


def check_history(messages: Sequence[Message]) -> Sequence[Message]:
    """Give what was said before, or say that it is no list of messages."""
    if isinstance(messages, str) or not all(hasattr(message, "content") for message in messages[:1]):
        raise TypeError(f"message_history must be a list of messages, such as result.messages, not {messages!r}")
    return messages


def with_meta(messages: Sequence[Message], identity: Mapping[str, str]) -> tuple[Message, ...]:
    """Note on the prompt which versioned instructions it was sent with."""
    if not identity or not messages or not isinstance(messages[-1], UserMessage):
        return tuple(messages)
    last = messages[-1]
    return (*messages[:-1], replace(last, meta={**(last.meta or {}), **identity}))

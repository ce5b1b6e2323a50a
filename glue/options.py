"""The settings of a run from three places: the call, the session, the agent. The narrower wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TextIO, TypeAlias, TypedDict, TypeVar, runtime_checkable

from glue.messages import Effort, File, Image, Json, Message, Opaque, Part, Text, UserMessage, user
from glue.provider import Provider

if TYPE_CHECKING:
    import os

    from glue.compaction import Compactor
    from glue.context import AnyTool, Cancel
    from glue.events import Listener
    from glue.function.call import ToolHook
    from glue.limits import Limits
    from glue.permission import Permission
    from glue.policies.policy import Policy
    from glue.project import Role
    from glue.telemetry import OpenTelemetry

DepsT = TypeVar("DepsT")


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
Prompt: TypeAlias = str | Part | Sequence[str | Part] | Message | Sequence[Message]


class Shared(TypedDict, total=False):
    """What an agent, a session and a call may set; None leaves it to the next wider place."""

    instructions: Instructions | None
    role: str | None
    tools: Iterable[AnyTool] | None
    limits: Limits | None
    permission: Permission | None
    hooks: Iterable[ToolHook] | None
    policies: Iterable[Policy] | None
    max_tokens: int | None
    temperature: float | None
    reasoning: Effort | None
    cache: bool | None
    options: Mapping[str, Json] | None
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
    """What one prompt may set besides."""

    deps: DepsT
    stream: TextIO | None  # the answer's text, as it comes
    tool_log: TextIO | None  # a line for each tool that starts
    on_event: Listener | None
    cancel: Cancel | None
    unwrap: bool  # False returns the result of a run that went wrong, too


class RunOptions(CallOptions[DepsT], Generic[DepsT], total=False):
    """And one without a session."""

    message_history: Sequence[Message]


OVERRIDES = frozenset(Overrides.__annotations__)
CALL_OPTIONS = frozenset(CallOptions.__annotations__)


def merge(layers: Iterable[Mapping[str, Any]], role_of: Callable[[str], Role]) -> dict[str, Any]:
    """Join settings, the narrowest place first. In one place, what is said outright goes before a role."""
    merged: dict[str, Any] = {}
    for layer in layers:
        given = {name: value for name, value in layer.items() if name in OVERRIDES and value is not None}
        if "role" in given:
            role = role_of(given["role"])
            given = {"instructions": role.instructions, **({"model": role.model} if role.model else {}), **given}
        merged = {**given, **merged}
    return merged


def instructions_text(given: Instructions | None) -> tuple[str, Mapping[str, str]]:
    """Give the text of instructions, and what a run records of them."""
    if isinstance(given, Versioned):
        return given.text, given.identity
    if given is None or isinstance(given, str):
        return given or "", {}
    chosen = given.get()
    return chosen.text, chosen.identity


def prompt_messages(prompt: Prompt) -> tuple[Message, ...]:
    """Make messages of whatever a prompt may be."""
    if isinstance(prompt, str):
        return (user(prompt),)
    if isinstance(prompt, (Text, Image, File, Opaque)):
        return (user(prompt),)
    items = tuple(prompt) if isinstance(prompt, Sequence) else (prompt,)
    if items and all(hasattr(item, "content") for item in items):
        return items  # type: ignore[return-value]
    if not items or not all(isinstance(item, (str, Text, Image, File, Opaque)) for item in items):
        raise TypeError(f"a prompt is a text, parts, or messages, not {prompt!r}")
    return (user(*items),)  # type: ignore[arg-type]


def with_meta(messages: Sequence[Message], identity: Mapping[str, str]) -> tuple[Message, ...]:
    """Note on the prompt which versioned instructions it was sent with."""
    if not identity or not messages or not isinstance(messages[-1], UserMessage):
        return tuple(messages)
    from dataclasses import replace

    last = messages[-1]
    return (*messages[:-1], replace(last, meta={**(last.meta or {}), **identity}))

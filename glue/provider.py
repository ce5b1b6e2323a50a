"""The provider protocol: what a model server is asked, and the events that it answers with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias, runtime_checkable

from glue.dataclass import dataclass
from glue.messages import AssistantMessage, Request, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a call that is still being written; only `Done` carries calls that may run."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A wrapper's report that one try failed (or was thrown away) and what follows. Not content."""

    provider: str
    model: str = ""
    kind: str = ""
    detail: str = ""
    delay: float = 0.0  # seconds until the next try
    seconds: float = 0.0  # how long this one took
    usage: Usage | None = None
    # Set by with_escalation: the cap that was too small, the next one, and the reply thrown away.
    previous_cap: int | None = None
    next_cap: int | None = None
    discarded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The whole reply; exactly one, last."""

    message: AssistantMessage


ProviderEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | Attempt | Done


@runtime_checkable
class Provider(Protocol):
    """Anything with a name that answers a request. Failures are raised as ProviderError."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]: ...

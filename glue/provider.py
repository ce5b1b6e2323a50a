"""The provider protocol: what a model server is asked, and the events that it answers with."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from glue.dataclass import dataclass
from glue.messages import AssistantMessage, Json, Request, Usage


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


def window(provider: Provider) -> int | None:
    """Give the tokens of context of what a provider asks; the smallest of a chain, None if one is unknown."""
    sizes = [each.row.window if each.model == each.row.model else None for each in _asked(provider)]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def takes_output(provider: Provider, schema: Mapping[str, Json], *, tools: bool) -> bool:
    """Say whether all that a provider asks can be held to a JSON schema by their wire."""
    asked = _asked(provider)
    return bool(asked) and all(_takes_output(each, schema, tools) for each in asked)


def _takes_output(provider: Any, schema: Mapping[str, Json], tools: bool) -> bool:
    # A wire whose models differ in this has a function to say so, beside its class.
    judge = getattr(sys.modules.get(f"glue.providers.{provider.row.wire}"), "takes_output", None)
    if judge is not None:
        return bool(judge(schema, provider.model, tools=tools))
    return bool(provider.row.wire.startswith("openai") and provider.row.quirks.output == "json_schema")


def _asked(provider: Any) -> list[Any]:
    """Find the providers that are rows of data, through wrappers and chains; an object of one's own is none."""
    inner = getattr(provider, "providers", None) or filter(None, [getattr(provider, "provider", None)])
    found = [each for wrapped in inner for each in _asked(wrapped)]
    return [*found, provider] if getattr(provider, "row", None) is not None else found

"""The provider protocol: what a model server is asked, and the events that it answers with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol, Self, TypeAlias, cast, runtime_checkable

from glue.dataclass import dataclass
from glue.messages import AssistantMessage, Part, Request, Text, Thinking, ToolCall, Usage


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
    rest: float = 0.0  # seconds for which a chain leaves this provider out
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


def deltas(
    content: Iterable[Part], *, first: int = 0, pieces: Callable[[str], Iterable[str]] = lambda text: (text,)
) -> Iterator[TextDelta | ThinkingDelta | ToolCallDelta]:
    """Give the events of a reply that came whole: `first` is the index of its first part, `pieces` parts a text."""
    for index, part in enumerate(content, first):
        if isinstance(part, Text) and part.text:
            yield from (TextDelta(text=piece) for piece in pieces(part.text))
        elif isinstance(part, Thinking) and part.text:
            yield ThinkingDelta(text=part.text)
        elif isinstance(part, ToolCall):
            yield ToolCallDelta(index=index, id=part.id, name=part.name, arguments=part.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a provider's model can do and costs; the defaults are those of a provider that does not say."""

    provider: str = ""
    model: str = ""
    window: int | None = None  # tokens of context, None where nobody knows
    tools: bool = True
    images: tuple[str, ...] = ("image/*",)  # media types
    files: tuple[str, ...] = ("*/*",)
    efforts: tuple[str, ...] = ()  # levels of `reasoning` that it tells apart; a level between is lowered
    local: bool = False
    otel_names: tuple[tuple[str, str], ...] = ()  # providers with another name in OpenTelemetry's GenAI conventions
    input_price: float | None = None  # USD per million tokens, None where nobody knows
    output_price: float | None = None
    # Whether an answer can be held to a JSON schema, beside tools or without: takes_output(schema, tools=True).
    takes_output: Callable[..., bool] = lambda schema, *, tools=False: False


def capabilities(provider: object) -> Capabilities:
    """Ask a provider object what it can do; wrappers and chains answer for what they wrap."""
    found, inner = getattr(provider, "capabilities", None), getattr(provider, "provider", None)
    if isinstance(found, Capabilities):
        return found
    return Capabilities() if inner is None else capabilities(inner)


def common(each: Sequence[Capabilities]) -> Capabilities:
    """Return what all of several providers can do, for a chain of them."""
    first = each[0]
    return Capabilities(
        provider=",".join(one.provider for one in each),
        model=",".join(one.model for one in each) if all(one.model for one in each) else "",
        input_price=_known(max, [one.input_price for one in each]),
        output_price=_known(max, [one.output_price for one in each]),
        window=_known(min, [one.window for one in each]),
        tools=all(one.tools for one in each),
        images=tuple(kind for kind in first.images if all(kind in one.images for one in each)),
        files=tuple(kind for kind in first.files if all(kind in one.files for one in each)),
        efforts=tuple(level for level in first.efforts if all(level in one.efforts for one in each)),
        local=all(one.local for one in each),
        otel_names=tuple(pair for one in each for pair in one.otel_names),
        takes_output=lambda schema, *, tools=False: all(one.takes_output(schema, tools=tools) for one in each),
    )


def _known(pick: Callable[[Sequence[Any]], Any], values: Sequence[float | None]) -> Any:
    return None if None in values else pick(values)


@runtime_checkable
class Provider(Protocol):
    """Anything with a name that answers a request. Failures are raised as ProviderError."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]: ...


class Closeable:
    """An async context manager that is closed at the end of its block."""

    __slots__ = ()

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Wrapper(Closeable):
    """A provider around another one: what it does not say itself it asks of that one, which it closes."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.name = provider.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.provider!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "provider":  # while it is copied
            raise AttributeError(name)
        return getattr(self.provider, name)

    async def aclose(self) -> None:
        await close(self.provider)


async def close(closeable: object) -> None:
    """Close a provider or a stream, where it can be closed."""
    if (aclose := getattr(closeable, "aclose", None)) is not None:
        await aclose()


def opened(provider: Provider, request: Request) -> aclosing[AsyncGenerator[ProviderEvent, None]]:
    """Start a stream that `async with` closes."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return aclosing(cast("AsyncGenerator[ProviderEvent, None]", stream))

    async def events() -> AsyncGenerator[ProviderEvent, None]:
        async for event in stream:
            yield event

    return aclosing(events())


async def ask(provider: Provider, request: Request) -> AssistantMessage | None:
    """Send one request and give the whole reply; None where the stream ends without one."""
    async with opened(provider, request) as events:
        async for event in events:
            if isinstance(event, Done):
                return event.message
    return None

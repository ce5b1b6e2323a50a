"""The protocol of providers: the events that they send, and their capabilities."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from glue.closing import Closeable as Closeable
from glue.closing import close as close
from glue.lazy import lazy_names
from glue.messages import AssistantMessage, Opaque, Part, Request, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from glue.provider.reports import Attempt as Attempt
    from glue.provider.reports import Notice as Notice
    from glue.provider.reports import ProviderEvent as ProviderEvent

# The names that authors of providers need. Other names are only for the folders of this repository.
__all__ = [
    "Attempt",
    "Capabilities",
    "Done",
    "Notice",
    "Opaque",
    "Provider",
    "ProviderEvent",
    "TextDelta",
    "Thinking",
    "ThinkingDelta",
    "ToolCallDelta",
]
# These names are loaded at first use, because few streams have such events.
if not TYPE_CHECKING:  # so that a type checker reports unknown names
    __getattr__, __dir__ = lazy_names(__name__, {"reports": "Attempt Notice ProviderEvent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of a reply's text, as it arrives."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """A piece of the model's reasoning, as it arrives."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a tool call, as it arrives. The complete calls are in the message of `Done`."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The complete reply: the last event of a stream."""

    message: AssistantMessage


def deltas(
    content: Iterable[Part],
    *,
    first: int = 0,
    pieces: Callable[[str], Iterable[str]] = lambda text: (text,),
) -> Iterator[TextDelta | ThinkingDelta | ToolCallDelta]:
    """Yield the deltas of the parts in `content`, as if they were streamed.

    `first` is the index of the first part in its reply. `pieces` splits a text into the texts of
    several deltas.
    """
    for index, part in enumerate(content, first):
        if isinstance(part, Text) and part.text:
            yield from (TextDelta(text=piece) for piece in pieces(part.text))
        elif isinstance(part, Thinking) and part.text:
            yield ThinkingDelta(text=part.text)
        elif isinstance(part, ToolCall):
            yield ToolCallDelta(index=index, id=part.id, name=part.name, arguments=part.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities and prices of a model, such as its context window and media types.

    The default values are used for a provider that has no attribute `capabilities`.
    """

    provider: str = ""
    model: str = ""
    window: int | None = None  # tokens of the context window; None if unknown
    tools: bool = True
    images: tuple[str, ...] = ("image/*",)  # media types
    files: tuple[str, ...] = ("*/*",)
    # Levels of `reasoning` that the model knows. For another level, the next lower level is sent.
    efforts: tuple[str, ...] = ()
    local: bool = False
    # Pairs: the name of a provider in glue, and in the GenAI conventions of OpenTelemetry.
    otel_names: tuple[tuple[str, str], ...] = ()
    input_price: float | None = None  # dollars per million tokens; None if unknown
    output_price: float | None = None
    # takes_output(schema, tools=True): whether the wire can force a reply to match a JSON schema,
    # in a request with or without tools. A factory, so that the signature shows no address.
    takes_output: Callable[..., bool] = field(default_factory=lambda: _takes_no_output)


def _takes_no_output(schema: object, *, tools: bool = False) -> bool:
    return False


def capabilities(provider: object) -> Capabilities:
    """Return the capabilities of a provider, or of the provider it wraps, or else the defaults.

    They are read from the attribute `capabilities`. A wrapper without this attribute is skipped.
    """
    found, inner = getattr(provider, "capabilities", None), getattr(provider, "provider", None)
    if isinstance(found, Capabilities):
        return found
    return Capabilities() if inner is None else capabilities(inner)


def common(providers: Sequence[Capabilities]) -> Capabilities:
    """Return the capabilities of a failover list: those that all its providers have.

    The window is the smallest window, and the prices are the highest prices. Each of them is None
    if it is unknown for one of the providers.
    """
    models = [each.model for each in providers]
    return Capabilities(
        provider=",".join(each.provider for each in providers),
        model=",".join(models) if all(models) else "",
        input_price=_known(max, [each.input_price for each in providers]),
        output_price=_known(max, [each.output_price for each in providers]),
        window=_known(min, [each.window for each in providers]),
        tools=all(each.tools for each in providers),
        images=_shared([each.images for each in providers]),
        files=_shared([each.files for each in providers]),
        efforts=_shared([each.efforts for each in providers]),
        local=all(each.local for each in providers),
        otel_names=tuple(pair for each in providers for pair in each.otel_names),
        takes_output=lambda schema, *, tools=False: all(
            each.takes_output(schema, tools=tools) for each in providers
        ),
    )


def _shared(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the values that all lists contain, in the order of the first list."""
    return tuple(value for value in lists[0] if all(value in each for each in lists))


def _known(pick: Callable[[Sequence[Any]], Any], values: Sequence[float | None]) -> Any:
    """Return `pick(values)`, or None if one of the values is None, which means unknown."""
    return None if None in values else pick(values)


@runtime_checkable
class Provider(Protocol):
    """An object with a name and a method `stream` that yields the reply to a request.

    The last event is `Done`. A failure is raised as ProviderError.

        class Echo:
            name = "echo"

            async def stream(self, request):
                text = request.messages[-1].text
                yield TextDelta(text=text)
                yield Done(message=AssistantMessage(content=(Text(text=text),)))
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]: ...


class Wrapper(Closeable):
    """A base class for providers that wrap another provider.

    Attributes that the wrapper does not have are read from the wrapped provider. Closing the
    wrapper closes the wrapped provider.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.name = provider.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.provider!r})"

    def __getattr__(self, name: str) -> Any:
        # `copy` looks these up before `provider` is set, which would recurse forever.
        if name.startswith("__") or name == "provider":
            raise AttributeError(name)
        return getattr(self.provider, name)

    async def aclose(self) -> None:
        await close(self.provider)


def opened(provider: Provider, request: Request) -> aclosing[AsyncGenerator[ProviderEvent, None]]:
    """Return an async context manager that opens the stream of a reply and closes it at the end."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return aclosing(cast("AsyncGenerator[ProviderEvent, None]", stream))

    async def events() -> AsyncGenerator[ProviderEvent, None]:
        async for event in stream:
            yield event

    return aclosing(events())


async def ask(provider: Provider, request: Request) -> AssistantMessage | None:
    """Send a request and return the complete reply, or None if the stream ends without `Done`."""
    async with opened(provider, request) as events:
        async for event in events:
            if isinstance(event, Done):
                return event.message
    return None

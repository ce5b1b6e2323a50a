"""What the wrappers of a provider share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import TypeVar, cast

from glue.types import Provider, ProviderEvent, Request

Self = TypeVar("Self", bound="Wrapper")


class Wrapper:
    """A provider around another one; closing it closes the other."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.name = provider.name
        self.model: str = getattr(provider, "model", "")
        self.skipped: tuple[str, ...] = getattr(provider, "skipped", ())  # of a chain: those without a key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.provider!r})"

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        return self.provider.stream(request)

    def open(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        return opened(self.provider, request)

    async def aclose(self) -> None:
        await close(self.provider)

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def opened(provider: Provider, request: Request) -> AsyncGenerator[ProviderEvent, None]:
    """Start a stream, as something that can be closed."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return cast("AsyncGenerator[ProviderEvent, None]", stream)

    async def events() -> AsyncGenerator[ProviderEvent, None]:
        async for event in stream:
            yield event

    return events()


async def close(provider: Provider) -> None:
    """Close a provider that can be closed, or the connections of one that only holds them."""
    aclose = getattr(provider, "aclose", None) or getattr(getattr(provider, "http", None), "aclose", None)
    if aclose is not None:
        await aclose()


def model_of(provider: Provider, request: Request) -> str:
    return request.model or getattr(provider, "model", "")

"""Objects that own connections: a base class for `async with`, and a function that closes them."""

from __future__ import annotations

from typing import Self


class Closeable:
    """A base class for objects that `async with` closes at the end of its block."""

    __slots__ = ()

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def close(closeable: object) -> None:
    """Await `closeable.aclose()` if the object has this method; otherwise do nothing."""
    if (aclose := getattr(closeable, "aclose", None)) is not None:
        await aclose()

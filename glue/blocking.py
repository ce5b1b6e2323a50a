"""Async code from code that is not: in a script, in a thread, and in a notebook whose loop is running."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def run_blocking(function: Callable[[], Awaitable[T]]) -> T:
    """Run an async function to its end, in an event loop of its own."""
    import anyio
    import sniffio

    async def main() -> T:
        return await function()

    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return anyio.run(main)
    # A running loop cannot run another: that one gets a thread, and an interrupt here cancels what it does.
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        return portal.call(main)

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
    return _in_thread(lambda: anyio.run(main))


def _in_thread(work: Callable[[], T]) -> T:
    """Do work in a thread, with the caller's context, and wait for it; a running loop cannot run another."""
    import contextvars
    import threading

    import sniffio

    results: list[T] = []
    errors: list[BaseException] = []

    def target() -> None:
        sniffio.current_async_library_cvar.set(None)  # of the caller's loop, which is not this thread's
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(target,), name="glue-run", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]

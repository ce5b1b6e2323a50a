"""Streams: the events of a run as an async iterator, or as a plain iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from glue.context import Cancel
from glue.errors import Cancelled
from glue.events import Event
from glue.listeners import join
from glue.result import RunResult
from glue.tasks import spawn

OutputT = TypeVar("OutputT")


class Events(Generic[OutputT]):
    """The events of a run, as an async iterator. `async with` starts the run.

    While a reply is streamed, the run waits until the reader has read each event. Other events,
    such as those of tool calls, are queued. Leaving the block early, from any task, cancels the
    run. `result` is set when the iteration has ended. If the run failed, the iteration raises its
    error after the last event.

        async with agent.stream("Weather in Toronto?") as events:
            async for event in events:
                print(event)
        print(events.result.text)
    """

    def __init__(
        self,
        start: Callable[..., Awaitable[RunResult[OutputT]]],
        keywords: Mapping[str, Any],
    ) -> None:
        self._cancel: Cancel = keywords.get("cancel") or Cancel()
        listener = join((keywords.get("on_event"), self))
        self._start = partial(start, **{**keywords, "on_event": listener, "cancel": self._cancel})
        self._waiting: deque[Event] = deque()
        self._result: RunResult[OutputT] | None = None
        self._error: BaseException | None = None
        self._ended: anyio.Event | None = None
        self._closed = False

    @property
    def result(self) -> RunResult[OutputT]:
        """The result of the run. Raise RuntimeError before its end, or the error of the run."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("the run has not ended; read its events to the end first")
        return self._result

    async def __aenter__(self) -> Self:
        self._ended, self._news, self._taken = anyio.Event(), anyio.Event(), anyio.Event()
        # Not in a task group, because another task may leave the block than entered it.
        spawn(self._run)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ended is None:
            return
        self._closed = True
        self._waiting.clear()
        self._taken.set()
        if not self._ended.is_set():
            self._cancel.cancel()
        with anyio.CancelScope(shield=True):  # the token ends the run
            await self._ended.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ended is None:
            raise RuntimeError(
                "the run has not started: read its events inside the block "
                "`async with agent.stream(prompt) as events`"
            )
        while not self._waiting:
            if self._closed or self._ended.is_set():
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        event = self._waiting.popleft()
        if not self._waiting:
            self._taken.set()
        return event

    def __await__(self) -> NoReturn:
        raise TypeError(
            "a stream is not awaited: read it inside `async with agent.stream(prompt) as events`, "
            "or await agent.run(prompt)"
        )

    def __iter__(self) -> Iterator[Event]:
        raise TypeError(
            "read these events with `async for`, or use stream_sync(...) in code that is not async"
        )

    def __call__(self, event: Event) -> None:
        if not self._closed:
            self._waiting.append(event)
            self._news.set()

    async def drain(self) -> None:
        """Wait until the reader has read every event emitted so far, or has left `async with`."""
        while self._waiting and not self._closed:
            self._taken = anyio.Event()
            await self._taken.wait()

    async def _run(self) -> None:
        assert self._ended is not None
        try:
            self._result = await self._start()
        except anyio.get_cancelled_exc_class():  # the event loop itself ends
            self._error = Cancelled()
            raise
        except BaseException as error:  # raised when the events are read
            self._error = error
        finally:
            self._ended.set()
            self._news.set()


class SyncEvents(Generic[OutputT]):
    """The events of a run, as an iterator for code that is not async.

    The run takes place in another thread. Leaving the loop or the block early cancels the run.

        for event in agent.stream_sync("Weather in Toronto?"):
            print(event)

        with agent.stream_sync("And tomorrow?") as events:
            for event in events:
                print(event)
        print(events.result.text)
    """

    def __init__(self, events: Events[OutputT], disconnect: Callable[[], Awaitable[None]]) -> None:
        self._events = events
        self._disconnect = disconnect
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()

    @property
    def result(self) -> RunResult[OutputT]:
        """The result of the run. Raise RuntimeError before its end, or the error of the run."""
        return self._events.result

    def __enter__(self) -> Self:
        if self._events._ended is not None:
            raise RuntimeError("a stream can be read only once; call stream_sync again")
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._stack.callback(self._portal.call, self._disconnect)
        self._stack.enter_context(self._portal.wrap_async_context_manager(self._events))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
        self._portal = None

    def __iter__(self) -> Iterator[Event]:
        if self._portal is not None:  # inside `with`, which ends the run itself
            yield from self._read(self._portal)
            return
        with self:
            assert self._portal is not None
            yield from self._read(self._portal)

    def __aiter__(self) -> NoReturn:
        raise TypeError(
            "read these events with `for`, or use `async with agent.stream(prompt) as events` "
            "in async code"
        )

    def _read(self, portal: BlockingPortal) -> Iterator[Event]:
        while True:
            event = portal.call(anext, self._events, None)
            if event is None:
                return
            yield event

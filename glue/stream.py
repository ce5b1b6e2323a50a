"""Streams: a run as an async iterator of its events, which whoever reads them sets the pace of."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Generic, Self, TypeVar

import anyio

from glue.context import Cancel
from glue.errors import Cancelled
from glue.events import Event, RunResult, join
from glue.options import check_listener
from glue.tasks import spawn

OutputT = TypeVar("OutputT")


class Events(Generic[OutputT]):
    """A run as an async iterator of its events, each handed out when it happens. The run waits for whoever reads.

    Leaving the block early, from whatever task, cancels the run. `result` is there when the iteration has ended;
    a run that went wrong raises at that point.
    """

    def __init__(
        self, start: Callable[[dict[str, Any]], Awaitable[RunResult[OutputT]]], options: Mapping[str, Any]
    ) -> None:
        self._cancel: Cancel = options.get("cancel") or Cancel()
        check_listener("on_event", options.get("on_event"))
        listener = join((options.get("on_event"), self))
        self._start = partial(start, {**options, "on_event": listener, "cancel": self._cancel})
        self._waiting: deque[Event] = deque()
        self._result: RunResult[OutputT] | None = None
        self._error: BaseException | None = None
        self._ended: anyio.Event | None = None
        self._closed = False

    @property
    def result(self) -> RunResult[OutputT]:
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("the run has not ended; read its events to the end first")
        return self._result

    async def __aenter__(self) -> Self:
        self._ended, self._news, self._taken = anyio.Event(), anyio.Event(), anyio.Event()
        spawn(self._run)  # in no task group: the block may be left from another task than it was entered in
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ended is None:
            return
        self._closed = True
        self._waiting.clear()
        self._taken.set()
        if not self._ended.is_set():
            self._cancel.cancel()
        with anyio.CancelScope(shield=True):  # the run ends by its token
            await self._ended.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ended is None:
            raise RuntimeError("nothing runs yet: read it inside `async with ....stream(...) as events`")
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

    def __call__(self, event: Event) -> None:
        if not self._closed:
            self._waiting.append(event)
            self._news.set()

    async def drain(self) -> None:
        """Wait until the reader has taken what there is."""
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
        except BaseException as error:  # raised where the events are read
            self._error = error
        finally:
            self._ended.set()
            self._news.set()

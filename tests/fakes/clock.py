"""A virtual clock: it jumps to the end of the shortest sleep once every task sleeps."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from glue.stores.sql import SQLStore


class VirtualClock:
    """The time of tasks that enter `running`, and of databases. Work in threads takes no time."""

    def __init__(self, stores: Sequence[SQLStore] = ()) -> None:
        self.stores = stores
        self._set(0.0)
        self._awake = 0  # tasks that neither sleep nor have ended
        self._sleeping: list[tuple[float, int, anyio.Event]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.now

    def _set(self, now: float) -> None:
        self.now = now
        for store in self.stores:
            store.now = repr(now)  # an expression of SQL

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._awake += 1
        await anyio.wait_all_tasks_blocked()  # until all tasks have entered
        try:
            yield
        finally:
            self._rest()

    async def sleep(self, seconds: float) -> None:
        ended = anyio.Event()
        self._count += 1
        heapq.heappush(self._sleeping, (self.now + seconds, self._count, ended))
        self._rest()
        await ended.wait()

    def _rest(self) -> None:
        """Count a task as asleep; if no task is awake, advance the clock and wake the next one."""
        self._awake -= 1
        if not self._awake and self._sleeping:
            now, _, ended = heapq.heappop(self._sleeping)
            self._set(now)
            self._awake += 1
            ended.set()

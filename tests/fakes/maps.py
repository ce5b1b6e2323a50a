"""A map on each engine, with workers in the same event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

import glue
from glue import Agent
from glue.durable import MapRow
from glue.durable.batch import MapRun
from glue.durable.queue import QueueEngine
from glue.durable.tables import engine_store
from glue.durable.worker import Worker


@asynccontextmanager
async def serving() -> AsyncIterator[TaskGroup]:
    """Yield a task group for workers, and wait for them after the block.

    An error of the block is raised as it is, not inside an exception group.
    """
    raised: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:
            raised = error
    if raised is not None:
        raise raised


class Maps:
    """A function object that runs a map on one engine and returns its rows.

    A second call with `resume=True` continues with the same state.
    """

    def __init__(self, kind: str, engine: str, folder: Path) -> None:
        self.kind, self.engine, self.folder = kind, engine, folder
        self.job: MapRun | None = None

    @property
    def is_queue(self) -> bool:
        return self.kind != "embedded"

    async def __call__(
        self,
        agent: Agent[Any, Any],
        inputs: Any,
        *,
        workers: int = 1,
        concurrency: int = 4,
        retries: int = 0,
        rate: Any = None,
        patience: float = 600.0,
        **options: Any,
    ) -> list[MapRow]:
        options.setdefault("state", self.folder / "state.db")
        if not self.is_queue:
            job = self.job = glue.map(
                agent,
                inputs,
                concurrency=concurrency * workers,
                retries=retries,
                retry_delay=0,
                rate=rate,
                patience=patience,
                **options,
            )
            return [row async for row in job]
        queue = QueueEngine(self.engine, "rows", poll=0.02)
        job = self.job = glue.map(agent, inputs, engine=queue, retries=retries, **options)
        async with AsyncExitStack() as stack, serving() as tasks:
            started = [
                await stack.enter_async_context(
                    Worker(
                        agent,
                        store=engine_store(self.engine),
                        queue="rows",
                        concurrency=concurrency,
                        rates=rate,
                        patience=patience,
                        poll=0.05,
                    )
                )
                for _ in range(workers)
            ]
            for worker in started:
                tasks.start_soon(worker.work, 10.0)
            try:
                return [row async for row in job]
            finally:
                for worker in started:
                    worker.stop()

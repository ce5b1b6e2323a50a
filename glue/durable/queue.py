"""The map engine for many machines: it puts rows on a queue and collects their results."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import anyio

from glue.durable.batch import MapRun, Put
from glue.durable.rows import OPEN, InputLine, Row, invalid_row
from glue.durable.tables import Tables, check_queue, engine_store, when_available
from glue.errors import ConfigError
from glue.tasks import finish_in_thread
from glue.telemetry import inject

log = logging.getLogger("glue.map")

T = TypeVar("T")

_BATCH = 200  # rows that are put on the queue in one transaction
_WORKERS_SECONDS = 2.0  # between two checks of the workers
_AHEAD = 4  # rows on the queue for each row that the workers run at once
_LEAST = 100  # rows on the queue at least, so that new workers find some


class QueueEngine:
    """An engine that puts rows on a queue and waits for their results.

    The id of a row is made of the id of the map and the number of the line. So a map that was
    killed and resumed finds the results of rows that workers finished meanwhile. The number of rows
    on the queue follows the number of rows that the workers run at once.

    Args:
        engine: the address of the database, such as "postgresql://me@host/db".
        queue: the name of the queue.
        poll: seconds between two checks for results.
        notice: receives messages for the user.
    """

    def __init__(
        self,
        engine: str,
        queue: str,
        *,
        poll: float = 0.2,
        notice: Callable[[str], None] = log.warning,
    ) -> None:
        self.queue, self.poll, self.notice = check_queue(queue), poll, notice
        self.tables = Tables(engine_store(engine))
        self.window = _LEAST
        self._out: dict[int, InputLine] = {}  # rows on the queue, by number
        self._unattended = False  # the queue had no worker at the last check

    async def run(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> None:
        others = {"rate": job.rate or None, "deps": job.deps}
        names = [*job.settings, *(name for name, value in others.items() if value is not None)]
        if names:
            raise ConfigError(
                f"with a queue, glue.map does not take {', '.join(names)}: "
                "the agent and the arguments of the queue's workers determine the settings"
            )
        budget = job.budget.balance
        begin = (job.state.id, self.queue, budget.usd_budget, budget.token_budget)
        await finish_in_thread(self.tables.begin_map, *begin)
        try:
            await self._collect(job, lines, put)
        finally:
            with anyio.CancelScope(shield=True):
                await finish_in_thread(self.tables.close)

    async def _collect(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> None:
        more, checked = True, 0.0
        while (more or self._out) and not job.stopped:
            if time.monotonic() - checked > _WORKERS_SECONDS:
                checked = time.monotonic()
                await self._check_workers()
            if more and len(self._out) < self.window and not job.unfinished:
                more = await self._enqueue(job, lines, put)
            found = await self._call(self.tables.ended, job.state.id)
            for row in found:
                line = self._out.pop(row.number, None)
                if line is not None:
                    job.check(row)
                    await put(line, row)
            if found:
                numbers = [row.number for row in found]
                await self._call(self.tables.mark_returned, job.state.id, numbers)
            if job.budget.is_limited:
                await self._check_budget(job)
            if not found and not (more and len(self._out) < self.window):
                await anyio.sleep(self.poll)
        if job.stopped:
            await self._call(self.tables.withdraw, job.state.id)
        job.unfinished = job.unfinished or more or bool(self._out)

    async def _check_budget(self, job: MapRun) -> None:
        """Update `job.budget` from the tables. If the budget is spent, remove rows not begun."""
        job.budget.balance = await self._call(self.tables.balance, job.state.id)
        if job.budget.balance.over() is not None:
            job.over_budget = True
            left = await self._call(self.tables.withdraw, job.state.id)
            for number in self._out.keys() - left:
                del self._out[number]
                job.unfinished = True

    async def _enqueue(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> bool:
        """Put further rows on the queue. Return False if the input has no more rows."""
        batch: list[Row] = []
        line: InputLine | None = None
        room = min(_BATCH, self.window - len(self._out))
        while len(batch) < room and (line := await anext(lines, None)) is not None:
            try:
                key, prompt = job.reader.read(line)
            except ValueError as error:
                await put(line, invalid_row(line, error))
                continue
            self._out[line.number] = line
            row = Row(
                id=f"{job.state.id}-{line.number}",
                map=job.state.id,
                number=line.number,
                prompt=prompt,
                key=key,
                retries=job.retries,
                trace=inject({}),
            )
            batch.append(row)
        if batch:
            again = sorted(map(str, OPEN)) if job.resume else ()
            await self._call(self.tables.enqueue, self.queue, batch, again)
        return line is not None

    async def _check_workers(self) -> None:
        """Update the limit of rows on the queue; call `notice` if the queue has no worker.

        The limit grows with the number of rows that the workers can run at once. `notice` is called
        only if rows are waiting, and once until a worker appears.
        """
        slots = await self._call(self.tables.slots, self.queue)
        self.window = max(_LEAST, _AHEAD * slots)
        if not slots and not self._unattended and self._out:
            self.notice(
                f"the queue {self.queue!r} has no worker; its rows wait for a `glue worker`"
            )
        if self._out:
            self._unattended = not slots

    async def _call(self, work: Callable[..., T], *values: Any) -> T:
        return await when_available(self.tables, self.notice, work, *values)

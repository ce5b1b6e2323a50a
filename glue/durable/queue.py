"""The engine of a map over many machines: rows go on a DBOS queue, workers run them, results are collected here."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from glue.durable.batch import Map, Put
from glue.durable.engine import LEASE, WORKFLOW, EngineDatabase, application, decode_result, need_dbos, version
from glue.durable.rows import INVALID, NOTHING, InputLine, MapRow, finished_row
from glue.errors import StoreError
from glue.limits import Outcome
from glue.messages import Json, Message, messages_to_json
from glue.telemetry import inject

log = logging.getLogger("glue.map")

T = TypeVar("T")

_BATCH = 200  # rows that are enqueued with one transaction
_CHUNK = 500  # rows that are asked after with one query
_ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


class QueueEngine:
    """Puts rows on a queue and waits for what becomes of them.

    At most `window` rows are out at once: these alone are kept in memory. A row's run is named after the map and
    the line, so that a map that was killed collects the results of rows that went on without it.
    """

    def __init__(
        self,
        engine: str,
        queue: str,
        *,
        window: int = 2000,
        retries: int = 1,
        poll: float = 0.2,
        notice: Callable[[str], None] = log.warning,
    ) -> None:
        self.queue, self.window, self.retries, self.poll, self.notice = queue, window, retries, poll, notice
        self.application = application(queue)
        self.database = EngineDatabase(engine)
        self._client: Any = None
        self._enqueued: dict[str, tuple[InputLine, Json]] = {}  # rows that are out, by the name of their run
        self._unattended = False

    async def run(self, job: Map, lines: AsyncIterator[InputLine], put: Put) -> None:
        dbos = need_dbos()
        await anyio.to_thread.run_sync(self.database.migrate)
        self._client = await anyio.to_thread.run_sync(
            lambda: dbos.DBOSClient(
                system_database_url=self.database.url,
                application_name=self.application,
                serializer=dbos.DBOSPortableJSONSerializer(),
            )
        )
        try:
            await self._collect(job, lines, put)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._client.destroy)
                self.database.close()

    async def _collect(self, job: Map, lines: AsyncIterator[InputLine], put: Put) -> None:
        more, looked = True, 0.0
        while (more or self._enqueued) and not job.stopped:
            if job.budget.over() is not None and not job.unfinished:
                job.unfinished, more = True, False
                await self._with_retries(self._client.cancel_workflows, list(self._enqueued))
            if more and len(self._enqueued) < self.window:
                more = await self._enqueue(job, lines, put)
            found = await self._ended(job)
            for line, row in found:
                job.budget.settle("", row.usage)
                await put(line, row)
            if time.monotonic() - looked > 5 and self._enqueued:
                looked = time.monotonic()
                await self._check_workers()
            if not found and not (more and len(self._enqueued) < self.window):
                await anyio.sleep(self.poll)
        job.unfinished = job.unfinished or more or bool(self._enqueued)

    async def _enqueue(self, job: Map, lines: AsyncIterator[InputLine], put: Put) -> bool:
        """Put some more rows on the queue; False where there are none left."""
        batch: list[tuple[str, tuple[Message, ...]]] = []
        again: list[str] = []
        line: InputLine | None = None
        while len(batch) < _BATCH and (line := await anext(lines, None)) is not None:
            try:
                key, prompt = job.reader.read(line)
            except ValueError as error:
                await put(line, MapRow(number=line.number, outcome=INVALID, error=f"line {line.number}: {error}"))
                continue
            name = f"{job.state.id}-{line.number}"
            _, earlier = (job.state.get(line.number) if job.resume else None) or ("", None)
            if earlier is not None and earlier.outcome == Outcome.FAILED:  # that run has ended: it takes another one
                name += f"-{earlier.tries}"
            elif earlier is not None and earlier.outcome == Outcome.BUDGET:  # that one was cancelled, and goes on
                again.append(name)
            self._enqueued[name] = line, key
            batch.append((name, prompt))
        if batch:
            await self._with_retries(self._put_all, batch)
        if again:
            await self._with_retries(lambda: self._client.resume_workflows(again, queue_name=self.queue))
        return line is not None

    def _put_all(self, batch: Sequence[tuple[str, tuple[Message, ...]]]) -> None:
        with self.database.begin() as connection:
            for name, prompt in batch:
                options = {
                    "workflow_name": WORKFLOW,
                    "queue_name": self.queue,
                    "workflow_id": name,
                    "app_version": version(self.queue),
                }
                payload = {"prompt": messages_to_json(prompt), "retries": self.retries, "trace": inject({})}
                self._client.enqueue_in_transaction(connection, options, payload)

    async def _ended(self, job: Map) -> list[tuple[InputLine, MapRow]]:
        """Take in the rows that have ended."""
        names, found = list(self._enqueued), []
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            ended = await self._with_retries(
                lambda chunk=chunk: self._client.list_workflows(workflow_ids=chunk, status=_ENDED, load_input=False)
            )
            for run in ended:
                line, key = self._enqueued.pop(run.workflow_id)
                found.append((line, _row(line, key, run, spent=job.unfinished)))
        return found

    async def _check_workers(self) -> None:
        """Say so where nobody works on the queue; the rows stay on it."""
        workers = await self._with_retries(self.database.workers, self.queue)
        unattended = not any(worker["silent"] < LEASE * 3 for worker in workers)
        if unattended and not self._unattended:
            self.notice(f"nobody works on the queue {self.queue!r}; the rows wait for a `glue worker`")
        self._unattended = unattended

    async def _with_retries(self, work: Callable[..., T], *values: Any) -> T:
        """Do something with the database; while it is away, wait for it."""
        from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

        delay = 0.2
        while True:
            try:
                return await anyio.to_thread.run_sync(work, *values)
            except (OperationalError, InterfaceError) as error:
                if delay > 1:
                    self.notice(f"{self.database.shown} does not answer; waiting")
                log.debug("the database is away", exc_info=error)
                await anyio.sleep(delay)
                delay = min(delay * 2, 5)
            except DBAPIError as error:
                raise StoreError(f"{self.database.shown}: {' '.join(str(error.orig).split())}") from error


def _row(line: InputLine, key: Json, run: Any, *, spent: bool) -> MapRow:
    if run.status == "SUCCESS":
        result, tries = decode_result(run.output), run.output["tries"]
        return finished_row(line, key, result, earlier=NOTHING, tries=tries, session=run.workflow_id)
    if run.status == "CANCELLED" and spent:
        outcome, error = Outcome.BUDGET, "cancelled: the budget of all rows is spent"
    elif run.status == "CANCELLED":
        outcome, error = Outcome.FAILED, "cancelled, or given up after losing its worker again and again"
    else:
        outcome, error = Outcome.FAILED, f"{run.status.lower()}: {run.error}"
    return MapRow(number=line.number, id=key, outcome=outcome, session=run.workflow_id, error=error)

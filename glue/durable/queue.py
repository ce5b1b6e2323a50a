"""The map engine for many machines: it puts rows on a DBOS queue and collects the results."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import anyio

from glue.backoff import Backoff
from glue.durable.batch import MapRun, Put
from glue.durable.database import LEASE, EngineDatabase, application, need_dbos, need_sqlalchemy
from glue.durable.engine import MAX_LOSSES, WORKFLOW, decode_result, version
from glue.durable.rows import INVALID, NOTHING, InputLine, MapRow, finished_row
from glue.errors import StoreError
from glue.limits import Outcome
from glue.messages import Json, Message, messages_to_json
from glue.tasks import finish_in_thread
from glue.telemetry import inject

log = logging.getLogger("glue.map")

T = TypeVar("T")

_BATCH = 200  # rows that are put on the queue in one transaction
_CHUNK = 500  # rows whose status is read with one query
_WORKERS_SECONDS = 5.0  # between two checks whether the queue has workers
_BACKOFF = Backoff(first=0.2, cap=5.0, jitter=0)  # while the database does not respond
_NOTICE_AFTER = 4  # failures in a row after which the user is told that the database is away
_ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


class QueueEngine:
    """An engine that puts rows on a queue and waits for their results.

    The id of a run is made of the id of the map and the number of the line. So a map that was
    killed and resumed finds the results of rows that workers finished meanwhile.

    Args:
        engine: the address of the database, such as "dbos+postgresql://me@host/db".
        queue: the name of the queue.
        window: how many rows may be on the queue at the same time; only these are kept in memory.
        retries: how often a row is tried again after a transient failure of its provider.
        poll: seconds between two checks for results.
        notice: receives messages for the user.
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
        self.queue, self.window, self.retries = queue, window, retries
        self.poll, self.notice = poll, notice
        self.application = application(queue)
        self.database = EngineDatabase(engine)
        self._client: Any = None
        self._enqueued: dict[str, tuple[InputLine, Json]] = {}  # line and row id, by the run's id
        self._unattended = False  # the queue had no worker at the last check

    async def run(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> None:
        dbos = need_dbos()
        await finish_in_thread(self.database.migrate)

        def connect() -> Any:
            return dbos.DBOSClient(
                system_database_url=self.database.url,
                application_name=self.application,
                serializer=dbos.DBOSPortableJSONSerializer(),
            )

        self._client = await finish_in_thread(connect)
        try:
            await self._collect(job, lines, put)
        finally:
            with anyio.CancelScope(shield=True):
                await finish_in_thread(self._client.destroy)
                self.database.close()

    async def _collect(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> None:
        more, checked = True, 0.0
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
            if time.monotonic() - checked > _WORKERS_SECONDS and self._enqueued:
                checked = time.monotonic()
                await self._check_workers()
            if not found and not (more and len(self._enqueued) < self.window):
                await anyio.sleep(self.poll)
        job.unfinished = job.unfinished or more or bool(self._enqueued)

    async def _enqueue(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> bool:
        """Put some more rows on the queue. Return False if there are no more."""
        batch: list[tuple[str, tuple[Message, ...]]] = []  # the ids of runs and their prompts
        resumed: list[str] = []
        line: InputLine | None = None
        while len(batch) < _BATCH and (line := await anext(lines, None)) is not None:
            try:
                key, prompt = job.reader.read(line)
            except ValueError as error:
                reason = f"line {line.number}: {error}"
                await put(line, MapRow(number=line.number, outcome=INVALID, error=reason))
                continue
            run_id = f"{job.state.id}-{line.number}"
            _, earlier = (job.state.get(line.number) if job.resume else None) or ("", None)
            outcome = None if earlier is None else earlier.outcome
            if earlier is not None and outcome == Outcome.FAILED:
                run_id += f"-{earlier.tries}"  # the earlier run has ended, so a new one is started
            elif outcome == Outcome.BUDGET:
                resumed.append(run_id)  # the earlier run was cancelled
            self._enqueued[run_id] = line, key
            batch.append((run_id, prompt))
        if batch:
            await self._with_retries(self._put_all, batch)
        if resumed:
            await self._with_retries(
                lambda: self._client.resume_workflows(resumed, queue_name=self.queue)
            )
        return line is not None

    def _put_all(self, batch: Sequence[tuple[str, tuple[Message, ...]]]) -> None:
        with self.database.begin() as connection:
            for run_id, prompt in batch:
                options = {
                    "workflow_name": WORKFLOW,
                    "queue_name": self.queue,
                    "workflow_id": run_id,
                    "app_version": version(self.queue),
                }
                payload = {
                    "prompt": messages_to_json(prompt),
                    "retries": self.retries,
                    "trace": inject({}),
                }
                self._client.enqueue_in_transaction(connection, options, payload)

    async def _ended(self, job: MapRun) -> list[tuple[InputLine, MapRow]]:
        """Return the rows whose runs have ended, and remove them from `_enqueued`."""
        ids, found = list(self._enqueued), []
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            for run in await self._with_retries(self._list_ended, chunk):
                line, key = self._enqueued.pop(run.workflow_id)
                found.append((line, _row(line, key, run, spent=job.unfinished)))
        return found

    def _list_ended(self, ids: list[str]) -> list[Any]:
        found: list[Any] = self._client.list_workflows(
            workflow_ids=ids, status=_ENDED, load_input=False
        )
        return found

    async def _check_workers(self) -> None:
        """Notify the user if no worker takes rows from the queue. The rows stay on it."""
        workers = await self._with_retries(self.database.workers, self.queue)
        unattended = not any(worker["silent"] < LEASE * 3 for worker in workers)
        if unattended and not self._unattended:
            self.notice(
                f"the queue {self.queue!r} has no worker; its rows wait for a `glue worker`"
            )
        self._unattended = unattended

    async def _with_retries(self, work: Callable[..., T], *values: Any) -> T:
        """Call a function that uses the database, and retry until the database responds.

        Raise StoreError if the database rejects the work.
        """
        exc = need_sqlalchemy().exc
        failures = 0
        while True:
            try:
                return await finish_in_thread(work, *values)
            except (exc.OperationalError, exc.InterfaceError) as error:
                failures += 1
                if failures >= _NOTICE_AFTER:
                    self.notice(f"{self.database.shown} does not respond; waiting")
                log.debug("the database does not respond", exc_info=error)
                await anyio.sleep(_BACKOFF.delay(failures) or 0)
            except exc.DBAPIError as error:
                reason = " ".join(str(error.orig).split())
                raise StoreError(f"{self.database.shown}: {reason}") from error


def _row(line: InputLine, key: Json, run: Any, *, spent: bool) -> MapRow:
    """Return the row of a run that has ended. `spent` means that the budget of the map is spent."""
    if run.status == "SUCCESS":
        result, tries = decode_result(run.output), run.output["tries"]
        return finished_row(
            line, key, result, earlier=NOTHING, tries=tries, session=run.workflow_id
        )
    if run.status == "CANCELLED" and spent:
        outcome, error = Outcome.BUDGET, "cancelled: the budget of all rows is spent"
    elif run.status == "CANCELLED":
        losses = MAX_LOSSES + 1
        outcome, error = Outcome.FAILED, f"cancelled, or given up after losing {losses} workers"
    else:
        outcome, error = Outcome.FAILED, f"{run.status.lower()}: {run.error}"
    return MapRow(number=line.number, id=key, outcome=outcome, session=run.workflow_id, error=error)

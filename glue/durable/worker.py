"""`Worker`: the part of a process that runs the rows of a queue.

    event loop            takes rows and stores results, many with one transaction; runs the rows
    thread "heartbeat"    stores that this worker is alive, four times per lease
    thread "recovery"     puts the rows of dead workers back on the queue
    thread "notices"      receives notifications of Postgres: new rows, cooldowns

The threads have connections of their own, so that a heartbeat never waits for anything else.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import anyio

from glue.codec import from_json, to_json, to_plain
from glue.context import ToolResult
from glue.decision import Decision
from glue.durable.ledger import PATIENCE, Rates
from glue.durable.rows import MapRow
from glue.durable.runner import Row, Runner, failed_row
from glue.durable.shared import MapAccounts, SharedLedger, when_available
from glue.durable.tables import CHANNEL, LEASE, EndedRow, RowRecord, Tables, check_queue
from glue.errors import StoreError, innermost
from glue.events import Listener
from glue.messages import Json, messages_from_json, new_id
from glue.pending import Decisions
from glue.result import RunResult
from glue.stores.sql import SQLStore
from glue.tasks import caller, finish_in_thread
from glue.telemetry import continued

if TYPE_CHECKING:
    from glue.agent import Agent

log = logging.getLogger("glue.durable")

_NOTIFIED_POLL, _POLL = 5.0, 0.2  # seconds between two checks of the queue, with notifications
_BUSY_SECONDS = 1.0  # before a row whose session is in use is put back


@dataclass(eq=False, repr=False)
class Worker:
    """A worker of a queue. `async with worker` registers it; `work` runs rows until `stop`.

    Args:
        agent: the agent that runs the rows.
        store: the store of the queue, from `engine_store`.
        queue: the name of the queue.
        concurrency: rows that this worker runs at once.
        global_concurrency: rows that all workers of the queue together run at once.
        rates: requests and tokens per minute, of all workers together.
        patience: seconds that a request waits for a provider that refuses requests.
        poll: seconds between two checks of the queue; None for 5, or 0.2 without notifications.
        lease: seconds without a heartbeat after which others take over the rows of this worker.
        settings: settings of the session of each row.
    """

    agent: Agent[Any, Any]
    _: KW_ONLY
    store: SQLStore
    queue: str
    concurrency: int = 8
    global_concurrency: int | None = None
    rates: Rates = None
    patience: float = PATIENCE
    poll: float | None = None
    lease: float = LEASE
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_queue(self.queue)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{new_id()[:6]}"
        self.tables = Tables(self.store)
        self.ledger = SharedLedger(self.tables)
        self.running: dict[str, str] = {}  # the claims of the rows that run here, by row
        self.listeners: dict[str, Listener] = {}
        self.finished: dict[str, anyio.Event] = {}  # set when the result of a row is stored
        self._runner = Runner(
            agent=self.agent,
            ledger=self.ledger,
            rates=self.rates,
            patience=self.patience,
            settings=self.settings,
        )
        self._own = Tables(self.store.twin())  # for the threads
        self._begun: list[tuple[RowRecord, str]] = []  # rows that `begin` has started
        self._ended: list[EndedRow] = []  # results that are not stored yet
        self._back: list[str] = []  # rows to put back
        self._stopping = False
        self._changed = anyio.Event()
        self._ending, self._dead = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._steady = time.monotonic()  # since when heartbeats have not failed

    async def __aenter__(self) -> Self:
        await finish_in_thread(self._beat)
        self.ledger.learn(await finish_in_thread(self.tables.cooldowns))
        await self._runner.__aenter__()
        self._soon = caller()
        loops = {"heartbeat": self._send_heartbeats, "recovery": self._recover}
        if self.store.notifies:
            loops["notices"] = self._receive_notices
        for name, loop in loops.items():
            self._threads.append(threading.Thread(target=loop, name=f"glue {name}", daemon=True))
            self._threads[-1].start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Put unfinished rows back and remove this worker from the list."""
        self._ending.set()
        self._dead.set()
        with anyio.CancelScope(shield=True):
            try:
                await finish_in_thread(self._leave)
            finally:
                await self._runner.__aexit__()

    def _leave(self) -> None:
        try:
            self.tables.exchange(self.id, self.queue, ended=self._ended)
            self.tables.deregister(self.id)
        except StoreError as error:
            log.warning("the worker could not sign off; others wait for its lease: %s", error)
        for thread in self._threads:
            thread.join(2.0)
        for tables in (self.tables, self._own):
            tables.close()
            tables.store.disconnect()

    # Rows -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Claim no more rows: `work` returns when the running ones end. Any thread may call it."""
        self._stopping = True
        self._soon(self._wake)

    def begin(self, record: RowRecord, claim: str) -> None:
        """Run a row that this worker has stored as its own with `Tables.take`."""
        self._begun.append((record, claim))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def work(self, grace: float = 0.0) -> None:
        """Run rows until `stop` is called. The running rows then have `grace` seconds to end."""
        try:
            await self._work(grace)
        except BaseExceptionGroup as group:
            raise innermost(group) from None

    async def _work(self, grace: float) -> None:
        poll = self.poll or (_NOTIFIED_POLL if self.store.notifies else _POLL)
        async with anyio.create_task_group() as tasks:
            while not self._stopping:
                changed = self._changed
                found = await self._exchange()
                for record, claim in found:
                    self.running[record.id] = claim
                    tasks.start_soon(self._run, record, claim)
                if not found and not self._ended and not self._begun:
                    with anyio.move_on_after(poll):
                        await changed.wait()
            deadline = anyio.current_time() + grace
            while self.running and anyio.current_time() < deadline:
                changed = self._changed
                if self._ended:
                    await self._exchange()
                with anyio.move_on_after(deadline - anyio.current_time()):
                    await changed.wait()
            tasks.cancel_scope.cancel()

    async def _exchange(self) -> list[tuple[RowRecord, str]]:
        """Store results, claim rows and return them; wait while the database does not respond."""
        begun, self._begun = self._begun, []
        free = 0 if self._stopping else self.concurrency - len(self.running) - len(begun)
        ended, self._ended = self._ended, []
        back, self._back = self._back, []

        def exchange() -> list[tuple[RowRecord, str]]:
            most = self.global_concurrency
            return self.tables.exchange(
                self.id, self.queue, ended=ended, back=back, free=free, most=most
            )

        if ended or back or free > 0:
            begun += await when_available(self.tables, log.warning, exchange)
        for row in ended:
            if (event := self.finished.get(row.id)) is not None:
                event.set()
        return begun

    async def _run(self, record: RowRecord, claim: str) -> None:
        task = record.task
        last = MapRow.from_json(record.result) if record.result and record.map else None
        row = Row(
            id=record.id,
            prompt=messages_from_json(task["prompt"]),
            map=record.map,
            number=record.number,
            key=task.get("key"),
            is_new=record.claims == 1,
            is_lost=record.losses > 0,
            lost=record.lost,
            tries=last.tries if last is not None else 0,
            decisions=decode_decisions(task.get("decisions") or {}),
        )
        accounts = MapAccounts(
            self.tables, record.map, task.get("usd_budget"), task.get("token_budget")
        )

        result: RunResult[Any] | None = None
        try:
            with continued(task.get("trace")):
                ended, result = await self._runner.run(
                    row,
                    self.store,
                    accounts,
                    retries=task.get("retries", 0),
                    on_event=self.listeners.get(record.id),
                    on_lost=lambda _: finish_in_thread(self.tables.add_lost, record.id),
                )
        except StoreError as error:
            # The database is away, or another writer has the session: not a fault of the row.
            log.warning("row %s is put back: %s", record.id, error)
            await anyio.sleep(_BUSY_SECONDS)
            self._back.append(record.id)
        except Exception as error:
            self._end(record, claim, failed_row(row, error), None)
        else:
            self._end(record, claim, ended, result)
        finally:
            self.running.pop(record.id, None)
            self._wake()

    def _end(
        self, record: RowRecord, claim: str, row: MapRow, result: RunResult[Any] | None
    ) -> None:
        stored: dict[str, Json] = row.to_json()
        if not record.map and result is not None:
            stored["run"] = encode_run(result, row)
        self._ended.append(
            EndedRow(id=record.id, claim=claim, outcome=row.outcome, cost=row.cost, result=stored)
        )

    # Threads --------------------------------------------------------------------------------------

    def _beat(self) -> bool:
        return self._own.heartbeat(self.id, self.queue, self.concurrency, self.lease)

    def _send_heartbeats(self) -> None:
        last = time.monotonic()
        while not self._ending.wait(self.lease / 4):
            try:
                is_dead = self._beat()
            except Exception as error:
                log.warning("no heartbeat: %s", error)
                continue
            now = time.monotonic()
            # If the database was away, the other workers could not send heartbeats either. They
            # get half a lease to do so before their rows are recovered.
            if now - last > self.lease / 2:
                self._steady = now
            last = now
            if is_dead and now - self._steady > self.lease / 2:
                self._dead.set()

    def _recover(self) -> None:
        """Put back rows of dead workers, and rows that this worker claimed but does not run.

        A worker claims a row without running it if it loses the database before the commit is
        confirmed. Such a row is put back when two checks have found it.
        """
        tables, idle = Tables(self.store.twin()), set[str]()
        while not self._ending.is_set():
            self._dead.wait(self.lease)
            if self._ending.is_set():
                break
            try:
                if self._dead.is_set():
                    self._dead.clear()
                    if count := tables.recover(self.queue):
                        log.info("%d rows lost their worker and were put back", count)
                found = tables.held(self.id, self.queue) - set(self.running)
                if unnoticed := list(found & idle):
                    self._back += unnoticed
                    self._soon(self._wake)
                idle = found
                if not self.store.notifies:
                    self._learn(tables.cooldowns())
            except Exception as error:
                log.warning("no recovery: %s", error)
        tables.close()

    def _receive_notices(self) -> None:
        def receive(payload: str) -> None:
            kind, name, *more = json.loads(payload)
            if kind == "rows" and name == self.queue:
                self._soon(self._wake)
            elif kind == "cold":
                self._learn({name: more[0]})
            elif kind == "open":
                self._soon(lambda: self.ledger.reopen(name))

        listen: Callable[..., None] = self.store.listen  # type: ignore[attr-defined]
        listen(CHANNEL, receive, self._ending)

    def _learn(self, cooldowns: Mapping[str, float]) -> None:
        self._soon(lambda: self.ledger.learn(cooldowns))


# JSON of single runs ------------------------------------------------------------------------------


def encode_run(result: RunResult[Any], row: MapRow) -> Json:
    """Encode the result of a run without its messages, which are in the store."""
    bare = replace(
        result,
        messages=(),
        new_messages=(),
        usage=row.usage,
        requests=row.requests,
        meta=to_plain(result.meta),
    )
    return to_json(bare)


def encode_decisions(decisions: Decisions) -> dict[str, Json]:
    """Encode decisions on pending calls as JSON."""

    def encode(decision: Any) -> Json:
        if isinstance(decision, Decision):
            return {"decision": to_json(decision)}
        if isinstance(decision, ToolResult):
            return {"result": to_json(decision)}
        return {"value": to_plain(decision)}

    return {key: encode(decision) for key, decision in decisions.items()}


def decode_decisions(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Decode decisions that `encode_decisions` wrote."""

    def decode(value: Mapping[str, Json]) -> Any:
        if "decision" in value:
            return from_json(Decision, value["decision"])
        return from_json(ToolResult, value["result"]) if "result" in value else value["value"]

    return {key: decode(value) for key, value in plain.items()}

"""`Worker`: takes rows from a queue, runs them and stores their results.

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
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio

from glue.durable.ledger import PATIENCE, Rates, SharedLedger
from glue.durable.rows import MapRow, Row
from glue.durable.runner import Runner
from glue.durable.tables import CHANNEL, LEASE, Tables, check_queue, when_available
from glue.errors import StoreError, innermost
from glue.events import Listener
from glue.messages import new_id
from glue.stores.sql import SQLStore
from glue.tasks import caller, finish_in_thread
from glue.text import count

if TYPE_CHECKING:
    from glue.agent import Agent

log = logging.getLogger("glue.durable")

_NOTIFIED_POLL, _POLL = 5.0, 0.2  # seconds between two checks of the queue, with notifications
_BUSY_SECONDS = 1.0  # before a row whose session is in use is put back


@dataclass(eq=False, repr=False)
class Worker:
    """A worker of a queue. `async with worker` registers it, and `work` runs rows until `stop`."""

    agent: Agent[Any, Any]
    _: KW_ONLY
    store: SQLStore  # of the queue, from `engine_store`
    queue: str
    concurrency: int = 8  # rows that this worker runs at once
    global_concurrency: int | None = None  # rows that all workers of the queue run at once
    rates: Rates = None  # requests and tokens per minute, of all workers together
    patience: float = PATIENCE  # seconds that a request waits for a provider that refuses requests
    poll: float | None = None  # seconds between two checks of the queue
    lease: float = LEASE  # seconds without a heartbeat after which others take over the rows
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the session of each row

    def __post_init__(self) -> None:
        check_queue(self.queue)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{new_id()[:6]}"
        self.tables = Tables(self.store)
        self.ledger = SharedLedger(self.tables)
        self.listeners: dict[str, Listener] = {}  # of rows that run here, by row
        self._runner = Runner(
            agent=self.agent,
            ledger=self.ledger,
            rates=self.rates,
            patience=self.patience,
            settings=self.settings,
            raises=(StoreError,),
        )
        self._own = Tables(self.store.twin())  # for the threads
        self._running: set[str] = set()
        self._ended: list[Row] = []  # rows with results that are not stored yet
        self._back: list[str] = []  # rows to put back
        self._stopping = False
        self._changed = anyio.Event()
        self._ending, self._dead = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._steady = time.monotonic()  # since when heartbeats have not failed

    async def __aenter__(self) -> Self:
        _, cooldowns = await finish_in_thread(self._beat)
        self.ledger.learn(cooldowns)
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
        """Store the remaining results, put unfinished rows back on the queue, and deregister."""
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
            log.warning(
                "the worker could not deregister; its rows wait until its lease ends: %s", error
            )
        for thread in self._threads:
            thread.join(2.0)
        for tables in (self.tables, self._own):
            tables.close()
            tables.store.disconnect()

    # Rows -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Tell the worker to claim no more rows. Any thread may call this method.

        `work` then waits up to `grace` seconds for the running rows, cancels those that still run,
        and returns.
        """
        self._stopping = True
        self._soon(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def work(self, grace: float = 0.0) -> None:
        """Run rows until `stop` is called. Cancel the rows that still run `grace` seconds later."""
        try:
            await self._work(grace)
        except BaseExceptionGroup as group:
            raise innermost(group) from None

    async def _work(self, grace: float) -> None:
        poll = self.poll or (_NOTIFIED_POLL if self.store.notifies else _POLL)
        async with anyio.create_task_group() as tasks:
            while not self._stopping:
                changed = self._changed
                found = await self.exchange(self.concurrency - len(self._running))
                for row in found:
                    self._running.add(row.id)
                    tasks.start_soon(self.run, row)
                if not found and not self._ended:
                    with anyio.move_on_after(poll):
                        await changed.wait()
            deadline = anyio.current_time() + grace
            while self._running and anyio.current_time() < deadline:
                changed = self._changed
                await self.exchange()
                with anyio.move_on_after(deadline - anyio.current_time()):
                    await changed.wait()
            tasks.cancel_scope.cancel()

    async def exchange(self, free: int = 0) -> list[Row]:
        """Store results, put rows back on the queue, and claim and return up to `free` rows.

        While the database does not respond, wait.
        """
        ended, self._ended = self._ended, []
        back = [name for name in self._back if name not in self._running]
        self._back = []
        if not ended and not back and free <= 0:
            return []
        exchange = partial(
            self.tables.exchange,
            self.id,
            self.queue,
            ended=ended,
            back=back,
            free=free,
            most=self.global_concurrency,
            claim=f"{self.id}-{new_id()}",
        )
        try:
            return await when_available(self.tables, log.warning, exchange)
        except BaseException:
            self._ended += ended  # perhaps not stored
            self._back += back
            raise

    def put_back(self, id: str) -> None:
        """Put a claimed row back on the queue at the next `exchange`, unless it is running here."""
        self._back.append(id)
        self._wake()

    async def run(self, row: Row) -> MapRow | None:
        """Run a claimed row and return its result, or None if the row has to be put back.

        The next `exchange` stores the result or puts the row back. The row is put back if the store
        does not respond, or if another writer uses the session of the row.
        """
        self._running.add(row.id)
        try:
            row, ended = await self._runner.run_stored(row, self.tables, self.listeners.get(row.id))
            self._ended.append(row)
            return ended
        except StoreError as error:
            # The database is away, or another writer has the session: not a fault of the row.
            log.warning("row %s is put back on the queue: %s", row.id, error)
            await anyio.sleep(_BUSY_SECONDS)
            self._back.append(row.id)
            return None
        finally:
            self._running.discard(row.id)
            self._wake()

    # Threads --------------------------------------------------------------------------------------

    def _beat(self) -> tuple[bool, dict[str, float]]:
        return self._own.heartbeat(self.id, self.queue, self.concurrency, self.lease)

    def _send_heartbeats(self) -> None:
        last = time.monotonic()
        while not self._ending.wait(self.lease / 4):
            try:
                is_dead, cooldowns = self._beat()
            except Exception as error:
                log.warning("the heartbeat of the worker failed: %s", error)
                continue
            self._learn(cooldowns)
            now = time.monotonic()
            # If the database was away, the other workers could not send heartbeats either. They
            # get half a lease to do so before their rows are recovered.
            if now - last > self.lease / 2:
                self._steady = now
            last = now
            if is_dead and now - self._steady > self.lease / 2:
                self._dead.set()

    def _recover(self) -> None:
        """Put rows of dead workers back on the queue after each heartbeat that finds such a worker.

        Run until the worker ends. A row that has lost too many workers ends as failed instead.
        """
        tables = Tables(self.store.twin())
        while self._dead.wait() and not self._ending.is_set():
            self._dead.clear()
            try:
                if lost := tables.recover(self.queue):
                    log.info(
                        "recovered %s of dead workers;"
                        " each is put back on the queue or ends as failed",
                        count(lost, "row"),
                    )
            except Exception as error:
                log.warning(
                    "the rows of dead workers could not be put back on the queue: %s", error
                )
        tables.close()

    def _receive_notices(self) -> None:
        def receive(payload: str) -> None:
            kind, name, *more = json.loads(payload)
            if kind == "rows" and name == self.queue:
                self._soon(self._wake)
            elif kind == "cooldown" and more[0] is not None:
                self._learn({name: more[0]})
            elif kind == "cooldown":
                self._soon(lambda: self.ledger.reopen(name))

        self.store.listen(CHANNEL, receive, self._ending)  # type: ignore[attr-defined]

    def _learn(self, cooldowns: Mapping[str, float]) -> None:
        self._soon(lambda: self.ledger.learn(cooldowns))

"""`Durable`: single runs that survive the end of their process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio

from glue.codec import from_json
from glue.decision import PendingCall
from glue.durable.ledger import Rates
from glue.durable.rows import Row, row_result
from glue.durable.tables import LEASE, engine_store
from glue.durable.worker import Worker
from glue.errors import ConfigError, innermost
from glue.events import Listener
from glue.limits import Outcome
from glue.messages import new_id
from glue.output import Output
from glue.pending import Decisions, check_decisions, pending_calls
from glue.result import RunResult
from glue.settings import Prompt
from glue.tasks import finish_in_thread, spawn
from glue.telemetry import inject

if TYPE_CHECKING:
    from glue.agent import Agent

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")

_LOOK = 0.2  # seconds between two checks whether another process has ended a run


class Durable(Generic[DepsT, OutputT]):
    """An agent whose runs survive the end of the process; made by `Agent.durable`.

        async with agent.durable(engine="sqlite:///runs.db") as durable:
            result = await durable.run("Weather in Toronto?", id="weather-1")

    Processes with the same name and the same database share their runs: if one of them dies,
    another resumes its runs. A run is a session in the store of the engine.
    """

    def __init__(
        self,
        agent: Agent[DepsT, OutputT],
        *,
        engine: str = "sqlite:///glue-durable.db",
        name: str = "",
        lease: float = LEASE,
        rate: Rates = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.agent = agent
        self.name = name or agent.name or "agent"
        self.store = engine_store(engine, lease)
        self._worker = Worker(
            agent,
            store=self.store,
            queue=self.name,
            rates=rate,
            lease=lease,
            settings=settings or {},
        )
        self._is_entered = False
        self._error: BaseException | None = None  # of the worker

    async def __aenter__(self) -> Self:
        await self._worker.__aenter__()
        self._is_entered, self._over = True, anyio.Event()
        self._scope = anyio.CancelScope()

        async def work() -> None:
            try:
                with self._scope:
                    await self._worker.work()
            except Exception as error:
                self._error = innermost(error)
            finally:
                self._over.set()

        spawn(work)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the runs of this process, so that other processes can continue them."""
        self._is_entered = False
        with anyio.CancelScope(shield=True):
            self._scope.cancel()
            await self._over.wait()
            await self._worker.__aexit__()

    async def run(
        self, prompt: Prompt, *, id: str = "", on_event: Listener | None = None, unwrap: bool = True
    ) -> RunResult[OutputT]:
        """Start a durable run, wait until this or another process ends it, and return its result.

        If the caller is cancelled, the run continues until the end of the `async with` block.

        Args:
            prompt: the prompt, like that of `Agent.run`.
            id: the id of the run. If a run with this id exists, wait for it and return its result.
            on_event: receives the events of the run, as far as it is executed in this process.
            unwrap: raise an error if the run did not complete; otherwise return its result.
        """
        row = Row(id=self._row(id or new_id()), prompt=prompt, retries=0, trace=inject({}))
        return await self._run(row, on_event, unwrap)

    async def resume(
        self,
        id: str,
        *,
        decisions: Decisions | None = None,
        on_event: Listener | None = None,
        unwrap: bool = True,
    ) -> RunResult[OutputT]:
        """Continue a run that did not complete, such as a paused run, and return its result.

        Any process that opens the same engine under the same name may call `resume`. If this
        process dies, another process continues the run with the same decisions.

        Args:
            id: the id of the run.
            decisions: answers to pending calls by call id: `glue.allow()`, `glue.deny("why")`, or
                the result of the call.
            on_event: receives the events of the run, as far as it is executed in this process.
            unwrap: raise an error if the run did not complete; otherwise return its result.
        """
        row = await finish_in_thread(self._worker.tables.find, self._row(id))
        if row is None:
            raise ConfigError(f"there is no run {id!r} under the name {self.name!r} in this engine")
        is_over = row.result is None or Outcome(row.result.outcome).complete
        if row.state in ("waiting", "running") or is_over:
            if decisions:
                raise ValueError(f"run {id!r} does not wait for a decision")
            return await self._run(row, on_event, unwrap)
        check_decisions(await self.store.load(row.id), decisions)
        row = replace(row, decisions=decisions or {})
        return await self._run(row, on_event, unwrap, states=("ended",))

    async def pending(self, id: str) -> tuple[PendingCall, ...]:
        """Return the calls of a run that wait for a decision or a result."""
        return pending_calls(await self.store.load(self._row(id)))

    def _row(self, id: str) -> str:
        return f"{self.name}/{id}"

    async def _run(
        self,
        row: Row,
        on_event: Listener | None,
        unwrap: bool,
        states: tuple[str, ...] = (),
    ) -> RunResult[OutputT]:
        """Run a row here, or wait until another process has ended it; return its result."""
        if not self._is_entered:
            raise RuntimeError("enter the agent first: async with agent.durable(...) as durable")
        worker = self._worker
        if on_event is not None:
            worker.listeners[row.id] = on_event
        try:
            claimed = await finish_in_thread(worker.tables.take, worker.id, self.name, row, states)
            if claimed is not None and await worker.run(claimed) is not None:
                await worker.exchange()  # stores the result
            while (found := await self._ended(row.id)) is None:
                await anyio.sleep(_LOOK)
        except BaseException:
            worker.put_back(row.id)
            raise
        finally:
            worker.listeners.pop(row.id, None)
        result = await self._result(found)
        return result.unwrap() if unwrap else result

    async def _ended(self, id: str) -> Row | None:
        """Return the row of a run that has ended in any process, or None if it has not ended.

        If the worker of this process has failed, raise its error.
        """
        found = await finish_in_thread(self._worker.tables.find, id)
        if found is not None and found.state in ("ended", "returned"):
            return found
        if self._error is not None:
            raise self._error
        return None

    async def _result(self, row: Row) -> RunResult[Any]:
        """Load the messages of an ended run from the store, and return its result with them."""
        ended = row.result
        assert ended is not None
        messages = await self.store.load(ended.session)
        result: RunResult[Any] = (
            from_json(RunResult, row.run) if row.run is not None else row_result(ended, messages)
        )
        output, value = self.agent.output, result.output
        if output is not None and value is not None:
            value = Output(output).read(value)
        return replace(result, messages=messages, new_messages=messages, output=value)

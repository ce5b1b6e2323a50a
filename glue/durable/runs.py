"""`Durable`: single runs that survive the end of their process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio

from glue.codec import from_json
from glue.decision import PendingCall
from glue.durable.ledger import Rates
from glue.durable.rows import MapRow, row_result
from glue.durable.tables import LEASE, RowRecord, engine_store
from glue.durable.worker import Worker, encode_decisions
from glue.errors import ConfigError, innermost
from glue.events import Listener
from glue.limits import Outcome
from glue.messages import messages_to_json, new_id
from glue.output import Output
from glue.pending import Decisions, check_decisions, pending_calls
from glue.result import RunResult
from glue.settings import Prompt, prompt_messages
from glue.tasks import finish_in_thread, spawn
from glue.telemetry import inject

if TYPE_CHECKING:
    from glue.agent import Agent

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")

_LOOK = 0.5  # seconds between two checks whether another process has ended a run


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
        """Run a prompt and return its result, even if another process has to finish the run.

        Args:
            prompt: the prompt, like that of `Agent.run`.
            id: the id of the run. If a run with this id exists, wait for it and return its result.
            on_event: receives the events of the run, as far as it is executed in this process.
            unwrap: raise an error if the run did not complete; otherwise return its result.
        """
        said = messages_to_json(prompt_messages(prompt))
        return await self._run(
            id or new_id(), {"prompt": said, "trace": inject({})}, on_event, unwrap
        )

    async def resume(
        self,
        id: str,
        *,
        decisions: Decisions | None = None,
        on_event: Listener | None = None,
        unwrap: bool = True,
    ) -> RunResult[OutputT]:
        """Continue a run that did not complete, such as a paused run, and return its result.

        Any process that opens the same engine under the same name may call it. If this process
        dies, another one continues with the same decisions.

        Args:
            id: the id of the run.
            decisions: answers to pending calls by call id: `glue.allow()`, `glue.deny("why")`, or
                the result of the call.
            on_event: receives the events of the run, as far as it is executed in this process.
            unwrap: raise an error if the run did not complete; otherwise return its result.
        """
        found = await finish_in_thread(self._worker.tables.find, self._row(id))
        if found is None:
            raise ConfigError(f"there is no run {id!r} of {self.name!r} in this engine")
        state, record = found
        if state in ("waiting", "running") or not self._is_open(record):
            if decisions:
                raise ValueError(f"run {id!r} does not wait for a decision")
            return await self._run(id, record.task, on_event, unwrap)
        check_decisions(await self.store.load(self._row(id)), decisions)
        task = {**record.task, "decisions": encode_decisions(decisions or {})}
        return await self._run(id, task, on_event, unwrap, states=("ended",))

    async def pending(self, id: str) -> tuple[PendingCall, ...]:
        """Return the calls of a run that wait for a decision or a result."""
        return pending_calls(await self.store.load(self._row(id)))

    def _row(self, id: str) -> str:
        return f"{self.name}/{id}"

    def _is_open(self, record: RowRecord) -> bool:
        outcome = (record.result or {}).get("outcome")
        return outcome is None or not Outcome(outcome).complete

    async def _run(
        self,
        id: str,
        task: Mapping[str, Any],
        on_event: Listener | None,
        unwrap: bool,
        states: tuple[str, ...] = (),
    ) -> RunResult[OutputT]:
        if not self._is_entered:
            raise RuntimeError("enter the agent first: async with agent.durable(...) as durable")
        worker, row_id = self._worker, self._row(id)
        if on_event is not None:
            worker.listeners[row_id] = on_event
        worker.finished[row_id] = anyio.Event()
        try:
            record = RowRecord(id=row_id, map="", number=0, task=task)
            claim = await finish_in_thread(worker.tables.take, worker.id, self.name, record, states)
            if claim:
                worker.begin(replace(record, claims=2 if states else 1), claim)
            ended = await self._ended(row_id, is_here=bool(claim))
        finally:
            worker.listeners.pop(row_id, None)
            worker.finished.pop(row_id, None)
        result = await self._result(row_id, ended)
        return result.unwrap() if unwrap else result

    async def _ended(self, row_id: str, *, is_here: bool) -> RowRecord:
        """Wait until a run has ended, in this process or in another one, and return its record."""
        event = self._worker.finished[row_id]
        while True:
            if is_here:
                with anyio.move_on_after(_LOOK):
                    await event.wait()
            found = await finish_in_thread(self._worker.tables.find, row_id)
            if found is not None and found[0] in ("ended", "returned"):
                return found[1]
            if self._error is not None:
                raise self._error
            is_here = True

    async def _result(self, row_id: str, record: RowRecord) -> RunResult[Any]:
        """Return the result of a run, with its messages and its output."""
        stored = dict(record.result or {})
        plain = stored.pop("run", None)
        row = MapRow.from_json(stored)
        messages = await self.store.load(row.session or row_id) if row.session else ()
        result: RunResult[Any] = (
            from_json(RunResult, plain) if plain is not None else row_result(row, messages)
        )
        output, value = self.agent.output, result.output
        if output is not None and value is not None:
            value = Output(output).read(value)
        return replace(result, messages=messages, new_messages=messages, output=value)

"""Durable runs on DBOS: each run is a workflow that another process resumes if its process dies."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio
import sniffio

from glue.backoff import Backoff
from glue.codec import from_json, to_json, to_plain
from glue.durable.batch import run_row
from glue.durable.database import DBOS_LOG_LEVEL, LEASE, EngineDatabase, application, need_dbos
from glue.durable.rates import Rates, limited
from glue.durable.steps import Body, DurableProvider, DurableTool
from glue.errorcodec import decode_error, encode_error
from glue.errors import ConfigError, StoreError, innermost
from glue.events import Listener
from glue.limits import override_limits, read_limits
from glue.messages import Json, messages_from_json, messages_to_json, new_id
from glue.output import Output
from glue.result import RunResult
from glue.settings import Prompt, prompt_messages
from glue.tasks import finish_in_thread
from glue.telemetry import continued, inject

if TYPE_CHECKING:
    from glue.agent import Agent

log = logging.getLogger("glue.durable")

WORKFLOW = "glue.run"
MAX_LOSSES = 5  # how many machines a run may lose before it is cancelled

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")


def version(queue: str) -> str:
    """Return the version of the steps that this code runs.

    DBOS gives a run only to processes of the same version. The number changes if the names or the
    order of steps change.
    """
    return f"{application(queue)}-steps-1"


_current: Worker | None = None  # a process can run only one instance of DBOS


@dataclass(eq=False, repr=False)
class Worker:
    """The part of this process that executes durable runs.

    `start` and `stop` block, so they are called in a thread.
    """

    agent: Agent[Any, Any]
    _: KW_ONLY
    engine: str
    name: str  # of the queue
    concurrency: int = 8
    global_concurrency: int | None = None
    rates: Rates = None
    poll: float = 1.0
    lease: float = LEASE
    listen: bool = True  # take runs from the queue; if False, execute only runs started here
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.application = application(self.name)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{new_id()[:6]}"
        self.database = EngineDatabase(self.engine)
        self.running: set[str] = set()  # the ids of the runs that this process executes
        self.listeners: dict[str, Listener] = {}
        self.workflow: Any = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        global _current
        if _current is not None:
            raise ConfigError(
                f"this process already works on the queue {_current.name!r};"
                " DBOS allows one queue per process"
            )
        dbos = need_dbos()
        self.database.migrate()
        _current = self
        try:
            self._launch(dbos)
            self._heartbeat()
        except BaseException as error:
            self.stop()
            if isinstance(error, dbos.error.DBOSException):
                reason = " ".join(str(error).split())
                raise StoreError(f"{self.database.shown}: {reason}") from error
            raise
        self._thread = threading.Thread(
            target=self._send_heartbeats, name="glue-heartbeat", daemon=True
        )
        self._thread.start()

    def _launch(self, dbos: Any) -> None:
        DBOS = dbos.DBOS
        config = {
            "name": self.application,
            "system_database_url": self.database.url,
            "application_version": version(self.name),
            "executor_id": self.id,
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "log_level": DBOS_LOG_LEVEL,
            "enable_otlp": False,
            # A transaction takes about 2 ms, so a few connections serve many rows. A Postgres
            # server accepts 100 connections by default, from all workers together.
            "sys_db_pool_size": max(3, min(self.concurrency // 2, 16)),
        }
        if self.listen and self.database.sqlite:
            config["system_database_engine"] = self.database.create_worker_engine()
        DBOS(config=config)
        self.workflow = DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(_workflow)
        DBOS.listen_queues([self.name] if self.listen else [])
        DBOS.launch()
        if self.listen:
            existing = DBOS.retrieve_queue(self.name)
            stored_limit = existing.global_concurrency if existing else None
            DBOS.register_queue(
                self.name,
                worker_concurrency=self.concurrency,
                global_concurrency=self.global_concurrency or stored_limit,
                polling_interval_sec=self.poll,
                on_conflict="always_update",
            )

    def stop(self, grace: float = 0) -> None:
        """Stop taking runs, and wait `grace` seconds for those that run here.

        Other workers resume the runs that have not ended.
        """
        global _current
        self._ending.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if _current is self:
            need_dbos().DBOS.destroy(
                destroy_registry=True, workflow_completion_timeout_sec=int(grace)
            )
            _current = None
        try:
            self.database.deregister(self.id)
        except Exception:
            log.debug("could not remove this worker from the list of workers", exc_info=True)
        self.database.close()

    # The heartbeat --------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        self.database.heartbeat(self.id, self.name, self.concurrency)

    def _send_heartbeats(self) -> None:
        """Send heartbeats and recover the runs of dead workers, until this worker ends."""
        last, steady = time.monotonic(), time.monotonic()
        unclaimed: set[str] = set()
        while not self._ending.wait(self.lease / 4):
            try:
                self._heartbeat()
                now = time.monotonic()
                # If the database was away, the other workers could not send heartbeats either.
                # They get half a lease to do so before their runs are recovered.
                if now - last > self.lease / 2:
                    steady = now
                last = now
                if now - steady > self.lease / 2:
                    unclaimed = self._recover(unclaimed)
            except Exception as error:
                log.warning("no heartbeat: %s", " ".join(str(error).split())[:200])

    def _recover(self, unclaimed: set[str]) -> set[str]:
        """Put the runs of dead workers back on their queue.

        A run can also belong to this worker without being executed: the worker took the run from
        the queue, but lost the database before the commit was confirmed. Such a run is recovered
        when it is found in two checks.

        Args:
            unclaimed: the runs of this worker that the last check found not executed.

        Returns:
            The runs of this worker that this check found not executed.
        """
        DBOS = need_dbos().DBOS
        workers = self.database.workers(self.name)
        alive = {worker["id"] for worker in workers if worker["silent"] < self.lease}
        pending = DBOS.list_workflows(
            status="PENDING", application_name=self.application, load_input=False, load_output=False
        )
        lost = []
        if self.id == min(alive, default=""):  # one worker recovers the runs for all
            lost = [run for run in pending if run.executor_id not in alive]
        own = {run.workflow_id for run in pending if run.executor_id == self.id}
        idle = own - self.running
        lost += [run for run in pending if run.workflow_id in idle & unclaimed]
        for run in lost:
            losses = int((run.attributes or {}).get("losses", 0)) + 1
            log.info("run %s lost its process %s", run.workflow_id, run.executor_id)
            if losses > MAX_LOSSES:
                DBOS.cancel_workflow(run.workflow_id)
                continue
            DBOS.update_workflow_attributes(run.workflow_id, {"losses": losses})
            DBOS.resume_workflows([run.workflow_id], queue_name=run.queue_name)
        return idle - unclaimed


class _Steps:
    """Checkpoints in the database of DBOS."""

    async def step(self, name: str, body: Body) -> Json:
        return await need_dbos().DBOS.run_step_async({"name": name}, body)


async def _workflow(payload: dict[str, Any]) -> dict[str, Any]:
    """Run the agent of this process once. Each request and each tool call is a step."""
    worker = _current
    assert worker is not None
    run_id = str(need_dbos().DBOS.workflow_id)
    worker.running.add(run_id)
    try:
        with continued(payload.get("trace")):
            return await _run(worker, run_id, payload)
    except BaseExceptionGroup as group:
        # Parallel tool calls raise groups, but DBOS recognizes only its own exception classes.
        raise innermost(group) from None
    finally:
        worker.running.discard(run_id)


async def _run(worker: Worker, run_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    agent = worker.agent
    settings = agent.merge(worker.settings)
    provider = limited(agent.open(settings.model or ""), worker.rates, worker.database)
    steps, slots = _Steps(), anyio.Semaphore(read_limits(settings.limits).parallel_tools)
    options: dict[str, Any] = {
        **worker.settings,
        "model": DurableProvider(provider, steps),
        "tools": [DurableTool(tool, steps, slots) for tool in settings.tools or ()],
        # All calls of a reply begin at once, so that their steps have the same numbers in each
        # execution. `slots` limits how many of them run at the same time.
        "limits": override_limits(settings.limits, parallel_tools=10_000),
        "on_event": worker.listeners.get(run_id),
        "unwrap": False,
    }

    async def run(before: RunResult[Any] | None) -> RunResult[Any]:
        if before is not None:
            return await agent.resume(before, **options)
        return await agent.run(messages_from_json(payload["prompt"]), **options)

    attempts = int(payload.get("retries", 0)) + 1
    backoff = Backoff(first=1.0, cap=60.0, attempts=attempts, jitter=0)
    result, tries = await run_row(run, backoff=backoff, sleep=need_dbos().DBOS.sleep_async)
    return {**encode_result(result), "tries": tries}


def encode_result(result: RunResult[Any]) -> dict[str, Any]:
    """Encode a result as JSON."""
    rest = replace(
        result, messages=(), new_messages=(), output=None, error=None, meta=to_plain(result.meta)
    )
    return {
        **to_json(rest),
        "messages": messages_to_json(result.messages),
        "new": len(result.new_messages),
        "output": to_plain(result.output),
        "error": encode_error(result.error) if result.error is not None else None,
    }


def decode_result(data: Mapping[str, Any], output: Any = None) -> RunResult[Any]:
    """Decode a result that `encode_result` wrote, with its output as an object of type `output`."""
    messages, value = messages_from_json(data["messages"]), data["output"]
    if output is not None and value is not None:
        value = Output(output).read(value)
    apart = ("messages", "new", "output", "error", "tries")
    rest = {name: each for name, each in data.items() if name not in apart}
    return replace(
        from_json(RunResult, {"new_messages": (), **rest, "messages": ()}),
        messages=messages,
        new_messages=messages[len(messages) - data["new"] :],
        output=value,
        error=decode_error(data["error"]) if data["error"] else None,
    )


class Durable(Generic[DepsT, OutputT]):
    """An agent whose runs survive the end of the process; made by `Agent.durable`.

        async with agent.durable(engine="dbos+sqlite:///runs.db") as durable:
            result = await durable.run("Weather in Toronto?", id="weather-1")

    Processes with the same name and the same database share their runs: if one of them dies,
    another resumes its runs.
    """

    def __init__(
        self,
        agent: Agent[DepsT, OutputT],
        *,
        engine: str = "dbos+sqlite:///glue-durable.db",
        name: str = "",
        lease: float = LEASE,
        rate: Rates = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        queue = name or agent.name or "agent"
        self.agent = agent
        self._worker = Worker(
            agent,
            engine=engine,
            name=queue,
            rates=rate,
            lease=lease,
            listen=False,
            settings=settings or {},
        )

    async def __aenter__(self) -> Self:
        if sniffio.current_async_library() != "asyncio":
            raise ConfigError("durable runs need asyncio: DBOS does not run on other event loops")
        await finish_in_thread(self._worker.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await finish_in_thread(self._worker.stop)
            await self.agent.aclose()

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
        if self._worker.workflow is None:
            raise RuntimeError("enter the agent first: async with agent.durable(...) as durable")
        dbos = need_dbos()
        run_id = id or new_id()
        if on_event is not None:
            self._worker.listeners[run_id] = on_event
        try:
            payload = {"prompt": messages_to_json(prompt_messages(prompt)), "trace": inject({})}
            with dbos.SetWorkflowID(run_id):
                handle = await dbos.DBOS.start_workflow_async(self._worker.workflow, payload)
            result = decode_result(
                await handle.get_result(polling_interval_sec=0.25), self.agent.output
            )
        finally:
            self._worker.listeners.pop(run_id, None)
        return result.unwrap() if unwrap else result

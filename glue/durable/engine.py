"""Durable runs on DBOS: a workflow for each run, a heartbeat for each process, and recovery of what a dead one left."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio
import anyio.to_thread
import sniffio

from glue.agent import Agent
from glue.codec import from_json, to_json, to_plain
from glue.durable.batch import run_row
from glue.durable.rates import Rates, limited
from glue.durable.steps import Body, DurableProvider, DurableTool, decode_error, encode_error
from glue.errors import ConfigError, SessionBusy, StoreError, innermost
from glue.events import Listener, RunResult
from glue.limits import override_limits, read_limits
from glue.messages import Json, messages_from_json, messages_to_json, new_id
from glue.options import Prompt, prompt_messages, session_options
from glue.stores.sqlite import hold
from glue.telemetry import continued, inject

if TYPE_CHECKING:
    import sqlalchemy

log = logging.getLogger("glue.durable")

SCHEMA = 1
WORKFLOW = "glue.run"
_LEVEL = "INFO" if os.environ.get("GLUE_DEBUG") else "CRITICAL"  # of DBOS's own log, which goes to stderr
LOSSES = 5  # machines that a run may lose before it is given up
LEASE = 10.0  # seconds after which a process that says nothing counts as dead

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")


def database_url(engine: str) -> str:
    """Give the database of an engine's URL: dbos://host/db, dbos+postgresql://..., dbos+sqlite:///file."""
    url = engine.removeprefix("dbos+")
    if engine.startswith("dbos://"):
        url = "postgresql://" + engine.removeprefix("dbos://")
    if not re.match(r"(postgresql|postgres|sqlite)://", url):
        what = "dbos+postgresql://USER@HOST/DATABASE or dbos+sqlite:///FILE"
        raise ConfigError(f"an engine is {what}, not {engine!r}")
    return url.replace("postgres://", "postgresql://", 1)


def application(queue: str) -> str:
    """Name the DBOS application of a queue: its runs are seen by nobody else on the same database."""
    if not re.fullmatch(r"[a-z0-9_-]{1,200}", queue):
        raise ConfigError(f"a queue's name is of a-z, 0-9, - and _, not {queue!r}")
    return f"glue-{queue}"


def version(queue: str) -> str:
    """Name the form of our steps: DBOS hands a run only to code of the same version."""
    return f"{application(queue)}-steps-1"


def need_dbos() -> Any:
    try:
        import dbos
    except ImportError:
        raise ConfigError("durable runs need DBOS: pip install 'glue-agents[dbos]'") from None
    return dbos


class EngineDatabase:
    """What we keep beside DBOS's own tables: who works, and the rate limits that all workers share."""

    def __init__(self, engine: str) -> None:
        need_dbos()
        import sqlalchemy

        url = sqlalchemy.make_url(database_url(engine))
        self.sqlite = url.drivername.startswith("sqlite")
        self.url = url.render_as_string(hide_password=False)
        self.shown = url.render_as_string(hide_password=True)
        given: Any = {"connect_args": {"timeout": 10}}
        self._now, self._table, self._most = "(julianday('now') - 2440587.5) * 86400.0", "workflow_status", "max"
        if not self.sqlite:
            url = url.set(drivername="postgresql+psycopg")
            pool = {"pool_size": 2, "max_overflow": 2, "pool_pre_ping": True}
            given = {"connect_args": {"connect_timeout": 10}, **pool}
            self._now, self._table = "extract(epoch FROM clock_timestamp())", "dbos.workflow_status"
            self._most = "greatest"
        self._engine = sqlalchemy.create_engine(url, **given)
        self._claims: Any = None

    def claiming(self) -> Any:
        """Make the engine of a worker on SQLite: what is counted and claimed there must be one transaction.

        Python's driver begins none before the first write, so that two workers would count the same free places.
        """
        import sqlalchemy

        self._claims = sqlalchemy.create_engine(self.url, connect_args={"timeout": 30, "isolation_level": None})
        sqlalchemy.event.listen(self._claims, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        sqlalchemy.event.listen(self._claims, "connect", lambda made, _: made.execute("PRAGMA foreign_keys=ON"))
        return self._claims

    def close(self) -> None:
        self._engine.dispose()
        if self._claims is not None:
            self._claims.dispose()

    def migrate(self) -> None:
        """Make the tables, DBOS's and ours; refuse those of a newer version."""
        dbos = need_dbos()
        with self._store_errors():
            if not self.sqlite:
                self._create_database()
            with self._engine.connect():
                pass
            logging.getLogger("dbos").setLevel(_LEVEL)
            with self._migration_lock():
                dbos.DBOS.migrate(self.url)
            with self._engine.begin() as connection:
                if not self.sqlite:
                    self._execute(connection, "SELECT pg_advisory_xact_lock(7305)")  # two workers may start at once
                for statement in filter(str.strip, Path(__file__).with_name("engine.sql").read_text().split(";")):
                    self._execute(connection, statement)
                version = self._execute(connection, "SELECT max(version) FROM glue_engine").scalar()
                if version is None:
                    self._execute(connection, "INSERT INTO glue_engine VALUES (:version)", version=SCHEMA)
                elif version > SCHEMA:
                    raise StoreError(
                        f"{self.shown} has schema {version} of glue, this version knows {SCHEMA}: upgrade glue-agents"
                    )

    def _create_database(self) -> None:
        import sqlalchemy

        url = self._engine.url
        server = sqlalchemy.create_engine(url.set(database="postgres"), connect_args={"connect_timeout": 10})
        try:
            with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                found = self._execute(connection, "SELECT 1 FROM pg_database WHERE datname = :name", name=url.database)
                if not found.scalar():
                    with contextlib.suppress(sqlalchemy.exc.DatabaseError):  # another worker was quicker
                        connection.execute(sqlalchemy.text(f'CREATE DATABASE "{url.database}"'))
        finally:
            server.dispose()

    @contextlib.contextmanager
    def _migration_lock(self) -> Iterator[None]:
        """Let one process at a time make DBOS's tables; on Postgres DBOS sees to that itself."""
        if not self.sqlite:
            yield
            return
        path, lock = Path(str(self._engine.url.database)), None
        while lock is None:
            try:
                lock = hold(path, "migrate")
            except SessionBusy:
                time.sleep(0.05)
        try:
            yield
        finally:
            lock.close()

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        import sqlalchemy.exc

        try:
            yield
        except sqlalchemy.exc.SQLAlchemyError as error:
            why = " ".join(str(getattr(error, "orig", error)).split())
            raise StoreError(f"{self.shown}: {why[:300]}") from error

    def _execute(self, connection: sqlalchemy.Connection, sql: str, **values: Any) -> Any:
        import sqlalchemy

        return connection.execute(sqlalchemy.text(sql), values)

    def begin(self) -> Any:
        """Open a transaction, of DBOS's tables too."""
        return self._engine.begin()

    def heartbeat(self, worker: Worker) -> None:
        """Say that a worker is alive."""
        sql = f"""
            INSERT INTO glue_workers VALUES (:id, :queue, :host, :pid, :concurrency, {self._now})
            ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"""
        values = {"id": worker.id, "queue": worker.name, "concurrency": worker.concurrency}
        with self._engine.begin() as connection:
            self._execute(connection, sql, **values, host=socket.gethostname(), pid=os.getpid())

    def deregister(self, id: str) -> None:
        with self._engine.begin() as connection:
            self._execute(connection, "DELETE FROM glue_workers WHERE id = :id", id=id)

    def workers(self, queue: str = "") -> list[dict[str, Any]]:
        """List the workers with the seconds since each was heard of; those long gone are forgotten."""
        sql = f"SELECT id, queue, host, pid, concurrency, {self._now} - seen AS silent FROM glue_workers"
        with self._engine.begin() as connection:
            self._execute(connection, f"DELETE FROM glue_workers WHERE seen < {self._now} - 3600")
            found = self._execute(connection, sql + " WHERE :queue = '' OR queue = :queue ORDER BY id", queue=queue)
            return [dict(row._mapping) for row in found]

    def depth(self, queue: str) -> dict[str, Any]:
        """Count the runs of a queue by their state, those of the last minute and those that each worker has."""

        def counts(of: str, condition: str = "true") -> dict[str, int]:
            where = f"WHERE application_name = :application AND {condition}"
            sql = f"SELECT {of}, count(*) FROM {self._table} {where} GROUP BY {of}"
            return {row[0]: row[1] for row in self._execute(connection, sql, application=application(queue))}

        with self._store_errors(), self._engine.connect() as connection:
            recent = counts("application_name", f"completed_at > ({self._now} - 60) * 1000")
            held = counts("executor_id", "status = 'PENDING'")
            return {"states": counts("status"), "last_minute": sum(recent.values()), "held": held}

    def queues(self) -> list[str]:
        sql = f"SELECT DISTINCT application_name FROM {self._table} WHERE application_name LIKE 'glue-%'"
        with self._store_errors(), self._engine.connect() as connection:
            found = {name.removeprefix("glue-") for (name,) in self._execute(connection, sql)}
            return sorted(found | {queue for (queue,) in self._execute(connection, "SELECT queue FROM glue_workers")})

    # A meter for rate limits ----------------------------------------------------------------------

    async def take(self, name: str, seconds: float) -> float:
        """Book a turn among all workers; give the seconds until it begins."""
        return await anyio.to_thread.run_sync(self._take, name, seconds)

    def _take(self, name: str, seconds: float) -> float:
        sql = f"""
            INSERT INTO glue_rates VALUES (:name, {self._now} + :seconds)
            ON CONFLICT (name) DO UPDATE SET free = {self._most}(glue_rates.free, {self._now}) + :seconds
            RETURNING free - :seconds - {self._now}"""
        with self._engine.begin() as connection:
            return max(float(self._execute(connection, sql, name=name, seconds=seconds).scalar()), 0.0)


_current: Worker | None = None  # DBOS is one to a process, and so is this


@dataclass(eq=False, repr=False)
class Worker:
    """This process as one that runs durable runs. `start` and `stop` block; they are called in a thread."""

    agent: Agent[Any, Any]
    _: KW_ONLY
    engine: str
    name: str
    concurrency: int = 8
    global_concurrency: int | None = None
    rates: Rates = None
    poll: float = 1.0
    lease: float = LEASE
    listen: bool = True
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.application = application(self.name)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{new_id()[:6]}"
        self.database = EngineDatabase(self.engine)
        self.running: set[str] = set()  # the runs that this process executes
        self.listeners: dict[str, Listener] = {}
        self.workflow: Any = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        global _current
        if _current is not None:
            raise ConfigError(f"this process works on {_current.name!r} already; DBOS is one to a process")
        dbos = need_dbos()
        self.database.migrate()
        _current = self
        try:
            self._launch(dbos)
            self.database.heartbeat(self)
        except BaseException as error:
            self.stop()
            if isinstance(error, dbos.error.DBOSException):
                raise StoreError(f"{self.database.shown}: {' '.join(str(error).split())}") from error
            raise
        self._thread = threading.Thread(target=self._send_heartbeats, name="glue-heartbeat", daemon=True)
        self._thread.start()

    def _launch(self, dbos: Any) -> None:
        DBOS = dbos.DBOS
        config = {
            "name": self.application,
            "system_database_url": self.database.url,
            "application_version": version(self.name),
            "executor_id": self.id,
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "log_level": _LEVEL,
            "enable_otlp": False,
            # A transaction takes a millisecond or two: some connections serve many rows, and a server has a hundred.
            "sys_db_pool_size": max(3, min(self.concurrency // 2, 16)),
        }
        if self.listen and self.database.sqlite:
            config["system_database_engine"] = self.database.claiming()
        DBOS(config=config)
        self.workflow = DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(_workflow)
        DBOS.listen_queues([self.name] if self.listen else [])
        DBOS.launch()
        if self.listen:
            there = DBOS.retrieve_queue(self.name)
            DBOS.register_queue(
                self.name,
                worker_concurrency=self.concurrency,
                global_concurrency=self.global_concurrency or (there.global_concurrency if there else None),
                polling_interval_sec=self.poll,
                on_conflict="always_update",
            )

    def stop(self, grace: float = 0) -> None:
        """Take nothing more, wait for what runs, and leave the rest to others."""
        global _current
        self._ending.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if _current is self:
            need_dbos().DBOS.destroy(destroy_registry=True, workflow_completion_timeout_sec=int(grace))
            _current = None
        try:
            self.database.deregister(self.id)
        except Exception:
            log.debug("could not say goodbye", exc_info=True)
        self.database.close()

    # The heartbeat --------------------------------------------------------------------------------

    def _send_heartbeats(self) -> None:
        """Say that we live, and look for runs whose process does not. Ends with the worker."""
        last, steady = time.monotonic(), time.monotonic()
        unclaimed: set[str] = set()
        while not self._ending.wait(self.lease / 4):
            try:
                self.database.heartbeat(self)
                now = time.monotonic()
                if now - last > self.lease / 2:  # the database was away: let the others speak first
                    steady = now
                last = now
                if now - steady > self.lease / 2:
                    unclaimed = self._recover(unclaimed)
            except Exception as error:
                log.warning("no heartbeat: %s", " ".join(str(error).split())[:200])

    def _recover(self, unclaimed: set[str]) -> set[str]:
        """Put runs of dead processes back on their queue; give those of ours that nothing here executes."""
        DBOS = need_dbos().DBOS
        alive = {worker["id"] for worker in self.database.workers(self.name) if worker["silent"] < self.lease}
        pending = DBOS.list_workflows(
            status="PENDING", application_name=self.application, load_input=False, load_output=False
        )
        lost = []
        if self.id == min(alive, default=""):  # one does it for all
            lost = [run for run in pending if run.executor_id not in alive]
        # Taken from the queue by a commit whose answer never came: in nobody's hands, and seen so twice.
        ours = {run.workflow_id for run in pending if run.executor_id == self.id} - self.running
        lost += [run for run in pending if run.workflow_id in ours & unclaimed]
        for run in lost:
            losses = int((run.attributes or {}).get("losses", 0)) + 1
            log.info("run %s lost its process %s", run.workflow_id, run.executor_id)
            if losses > LOSSES:
                DBOS.cancel_workflow(run.workflow_id)
                continue
            DBOS.update_workflow_attributes(run.workflow_id, {"losses": losses})
            DBOS.resume_workflows([run.workflow_id], queue_name=run.queue_name)
        return ours - unclaimed


class _Steps:
    async def step(self, name: str, body: Body) -> Json:
        from dbos import DBOS

        return await DBOS.run_step_async({"name": name}, body)


async def _workflow(payload: dict[str, Any]) -> dict[str, Any]:
    """Run an agent once, every request and every call a step."""
    from dbos import DBOS

    worker = _current
    assert worker is not None
    name = str(DBOS.workflow_id)
    worker.running.add(name)
    try:
        with continued(payload.get("trace")):
            return await _run(worker, name, payload)
    except BaseExceptionGroup as group:  # of tool calls side by side; DBOS knows its own signals by their class
        raise innermost(group) from None
    finally:
        worker.running.discard(name)


async def _run(worker: Worker, id: str, payload: dict[str, Any]) -> dict[str, Any]:
    from dbos import DBOS

    agent = worker.agent
    settings = agent.layer(session_options(worker.overrides))
    provider = limited(agent.open(settings.model or ""), worker.rates, worker.database)
    steps, slots = _Steps(), anyio.Semaphore(read_limits(settings.limits).parallel_tools)
    options: dict[str, Any] = {
        **worker.overrides,
        "model": DurableProvider(provider, steps),
        "tools": [DurableTool(tool, steps, slots) for tool in settings.tools or ()],
        # All calls of a reply begin at once, so that their steps have the same numbers each time.
        "limits": override_limits(settings.limits, parallel_tools=10_000),
        "on_event": worker.listeners.get(id),
        "unwrap": False,
    }

    async def run(before: RunResult[Any] | None) -> RunResult[Any]:
        if before is not None:
            return await agent.resume(before, **options)
        return await agent.run(messages_from_json(payload["prompt"]), **options)

    result, tries = await run_row(run, retries=lambda: int(payload.get("retries", 0)), sleep=DBOS.sleep_async)
    return {**encode_result(result), "tries": tries}


def encode_result(result: RunResult[Any]) -> dict[str, Any]:
    rest = replace(result, messages=(), new_messages=(), output=None, error=None, meta=to_plain(result.meta))
    return {
        **to_json(rest),
        "messages": messages_to_json(result.messages),
        "new": len(result.new_messages),
        "output": to_plain(result.output),
        "error": encode_error(result.error) if result.error is not None else None,
    }


def decode_result(data: Mapping[str, Any], output: Any = None) -> RunResult[Any]:
    """Decode it, with the output as an object of its type."""
    messages, value = messages_from_json(data["messages"]), data["output"]
    if output is not None and value is not None:
        from glue.output import Output

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
    """An agent whose runs survive the process: `async with agent.durable(...) as durable`.

    Runs of the same name on the same database belong together: what one process leaves, another takes up.
    """

    def __init__(
        self,
        agent: Agent[DepsT, OutputT],
        *,
        engine: str = "dbos+sqlite:///glue-durable.db",
        name: str = "",
        lease: float = LEASE,
        rate: Rates = None,
        **overrides: Any,
    ) -> None:
        queue = name or agent.name or "agent"
        self.agent = agent
        self._worker = Worker(
            agent, engine=engine, name=queue, rates=rate, lease=lease, listen=False, overrides=overrides
        )

    async def __aenter__(self) -> Self:
        if sniffio.current_async_library() != "asyncio":
            raise ConfigError("durable runs need asyncio: DBOS runs on no other event loop")
        await anyio.to_thread.run_sync(self._worker.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._worker.stop)
            await self.agent.aclose()

    async def run(
        self, prompt: Prompt, *, id: str = "", on_event: Listener | None = None, unwrap: bool = True
    ) -> RunResult[OutputT]:
        """Run a prompt to its end, here or wherever it goes on. The same `id` is the same run, whoever asks."""
        from dbos import DBOS, SetWorkflowID

        if self._worker.workflow is None:
            raise RuntimeError("enter it first: async with agent.durable(...) as durable")
        name = id or new_id()
        if on_event is not None:
            self._worker.listeners[name] = on_event
        try:
            payload = {"prompt": messages_to_json(prompt_messages(prompt)), "trace": inject({})}
            with SetWorkflowID(name):
                handle = await DBOS.start_workflow_async(self._worker.workflow, payload)
            result = decode_result(await handle.get_result(polling_interval_sec=0.25), self.agent.output)
        finally:
            self._worker.listeners.pop(name, None)
        return result.unwrap() if unwrap else result

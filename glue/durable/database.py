"""The database of durable runs: the tables of DBOS, the list of workers, and shared rate limits."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue.backoff import Backoff
from glue.errors import ConfigError, SessionBusy, StoreError
from glue.installing import install_command
from glue.stores.locks import hold
from glue.tasks import finish_in_thread

if TYPE_CHECKING:
    import sqlalchemy

SCHEMA = 1
LEASE = 10.0  # seconds after its last heartbeat at which a worker counts as dead
DBOS_LOG_LEVEL = "INFO" if os.environ.get("GLUE_DEBUG") else "CRITICAL"  # DBOS logs to stderr
_LOCK_BACKOFF = Backoff(first=0.05, cap=0.2)
_MIGRATION_LOCK = 7305  # the number of the Postgres advisory lock for creating our tables


def need_dbos() -> Any:
    """Return the module dbos. Raise ConfigError if it is not installed."""
    try:
        import dbos  # heavy and optional
    except ImportError:
        raise ConfigError(f"durable runs need DBOS: {install_command('dbos')}") from None
    return dbos


def need_sqlalchemy() -> Any:
    """Return the module sqlalchemy, which DBOS needs. Raise ConfigError if it is not installed."""
    need_dbos()
    import sqlalchemy  # heavy and optional

    return sqlalchemy


def database_url(engine: str) -> str:
    """Return the database URL of an engine. Raise ConfigError if the engine is invalid.

    >>> database_url("dbos+sqlite:///runs.db")
    'sqlite:///runs.db'
    >>> database_url("dbos://me@host/db")
    'postgresql://me@host/db'
    """
    url = engine.removeprefix("dbos+")
    if engine.startswith("dbos://"):
        url = "postgresql://" + engine.removeprefix("dbos://")
    if not re.match(r"(postgresql|postgres|sqlite)://", url):
        forms = "dbos+postgresql://USER@HOST/DATABASE or dbos+sqlite:///FILE"
        raise ConfigError(f"an engine must be {forms}, not {engine!r}")
    return url.replace("postgres://", "postgresql://", 1)


def application(queue: str) -> str:
    """Return the name of the DBOS application of a queue. Raise ConfigError if the name is invalid.

    DBOS shows the runs of an application only to processes of the same application.
    """
    if not re.fullmatch(r"[a-z0-9_-]{1,200}", queue):
        raise ConfigError(f"the name of a queue may contain a-z, 0-9, - and _, not {queue!r}")
    return f"glue-{queue}"


class EngineDatabase:
    """A connection to the database of an engine, and the meter for rate limits of all workers."""

    def __init__(self, engine: str) -> None:
        sqlalchemy = need_sqlalchemy()
        url = sqlalchemy.make_url(database_url(engine))
        self.sqlite = url.drivername.startswith("sqlite")
        self.url = url.render_as_string(hide_password=False)
        self.shown = url.render_as_string(hide_password=True)
        options: Any
        if self.sqlite:
            options = {"connect_args": {"timeout": 10}}
            self._now = "(julianday('now') - 2440587.5) * 86400.0"
            self._table = "workflow_status"
            self._greatest = "max"
        else:
            url = url.set(drivername="postgresql+psycopg")
            options = {
                "connect_args": {"connect_timeout": 10},
                "pool_size": 2,
                "max_overflow": 2,
                "pool_pre_ping": True,
            }
            self._now = "extract(epoch FROM clock_timestamp())"
            self._table = "dbos.workflow_status"
            self._greatest = "greatest"
        self._engine = sqlalchemy.create_engine(url, **options)
        self._worker_engine: Any = None

    def create_worker_engine(self) -> Any:
        """Return the SQLAlchemy engine with which DBOS takes runs from a queue on SQLite.

        DBOS counts the free places of a queue and claims runs for them in one transaction. Python's
        driver begins a transaction only at the first write, so two workers would count the same
        free places. This engine begins each transaction with a lock.
        """
        sqlalchemy = need_sqlalchemy()
        engine = self._worker_engine = sqlalchemy.create_engine(
            self.url, connect_args={"timeout": 30, "isolation_level": None}
        )

        def on_begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        def on_connect(connection: Any, _: object) -> None:
            connection.execute("PRAGMA foreign_keys=ON")

        def on_execute(connection: Any, _: object, statement: str, values: Any, *__: Any) -> Any:
            # DBOS 3.4 begins the transaction of its migrations itself, which is one too many here.
            in_transaction = connection.connection.dbapi_connection.in_transaction
            is_second_begin = statement == "BEGIN IMMEDIATE" and in_transaction
            return "SELECT 1" if is_second_begin else statement, values

        sqlalchemy.event.listen(engine, "begin", on_begin)
        sqlalchemy.event.listen(engine, "connect", on_connect)
        sqlalchemy.event.listen(engine, "before_cursor_execute", on_execute, retval=True)
        return engine

    def close(self) -> None:
        self._engine.dispose()
        if self._worker_engine is not None:
            self._worker_engine.dispose()

    # Tables ---------------------------------------------------------------------------------------

    def migrate(self) -> None:
        """Create the tables of DBOS and glue. Raise StoreError if a newer glue created them."""
        dbos = need_dbos()
        with self._store_errors():
            if not self.sqlite:
                self._create_database()
            with self._engine.connect():
                pass
            logging.getLogger("dbos").setLevel(DBOS_LOG_LEVEL)
            with self._migration_lock():
                dbos.DBOS.migrate(self.url)
            with self._engine.begin() as connection:
                self._create_tables(connection)

    def _create_tables(self, connection: sqlalchemy.Connection) -> None:
        if not self.sqlite:  # two workers may start at the same time
            self._execute(connection, f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        script = Path(__file__).with_name("engine.sql").read_text()
        for statement in filter(str.strip, script.split(";")):
            self._execute(connection, statement)
        version = self._execute(connection, "SELECT max(version) FROM glue_engine").scalar()
        if version is None:
            self._execute(connection, "INSERT INTO glue_engine VALUES (:version)", version=SCHEMA)
        elif version > SCHEMA:
            raise StoreError(
                f"{self.shown} has version {version} of glue's schema, but this glue supports"
                f" only {SCHEMA}: upgrade glue-agents"
            )

    def _create_database(self) -> None:
        """Create the Postgres database if it does not exist."""
        sqlalchemy = need_sqlalchemy()
        url = self._engine.url
        server = sqlalchemy.create_engine(
            url.set(database="postgres"), connect_args={"connect_timeout": 10}
        )
        try:
            with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                found = self._execute(
                    connection, "SELECT 1 FROM pg_database WHERE datname = :name", name=url.database
                )
                if not found.scalar():
                    # DatabaseError: another worker has created the database meanwhile.
                    with contextlib.suppress(sqlalchemy.exc.DatabaseError):
                        connection.execute(sqlalchemy.text(f'CREATE DATABASE "{url.database}"'))
        finally:
            server.dispose()

    @contextlib.contextmanager
    def _migration_lock(self) -> Iterator[None]:
        """Lock a SQLite file while DBOS creates its tables. On Postgres, DBOS does that itself."""
        if not self.sqlite:
            yield
            return
        path, failures = Path(str(self._engine.url.database)), 0
        while True:
            try:
                lock = hold(path, "migrate")
                break
            except SessionBusy:
                failures += 1
                time.sleep(_LOCK_BACKOFF.delay(failures) or 0)
        try:
            yield
        finally:
            lock.close()

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Translate SQLAlchemy errors to StoreError."""
        try:
            yield
        except need_sqlalchemy().exc.SQLAlchemyError as error:
            reason = " ".join(str(getattr(error, "orig", error)).split())
            raise StoreError(f"{self.shown}: {reason[:300]}") from error

    def _execute(self, connection: sqlalchemy.Connection, sql: str, **values: Any) -> Any:
        return connection.execute(need_sqlalchemy().text(sql), values)

    def begin(self) -> Any:
        """Open a transaction, which may include the tables of DBOS."""
        return self._engine.begin()

    # Workers and queues ---------------------------------------------------------------------------

    def heartbeat(self, worker: str, queue: str, concurrency: int) -> None:
        """Store that a worker is alive, by its id. The first heartbeat registers the worker."""
        sql = f"""
            INSERT INTO glue_workers VALUES (:id, :queue, :host, :pid, :concurrency, {self._now})
            ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"""
        values = {"id": worker, "queue": queue, "concurrency": concurrency}
        with self._engine.begin() as connection:
            self._execute(connection, sql, **values, host=socket.gethostname(), pid=os.getpid())

    def deregister(self, id: str) -> None:
        with self._engine.begin() as connection:
            self._execute(connection, "DELETE FROM glue_workers WHERE id = :id", id=id)

    def workers(self, queue: str = "") -> list[dict[str, Any]]:
        """Return the workers of a queue, or of all queues.

        The field "silent" is the number of seconds since the last heartbeat. Workers that have been
        silent for an hour are deleted first.
        """
        fields = f"id, queue, host, pid, concurrency, {self._now} - seen AS silent"
        sql = f"SELECT {fields} FROM glue_workers WHERE :queue = '' OR queue = :queue ORDER BY id"
        with self._engine.begin() as connection:
            self._execute(connection, f"DELETE FROM glue_workers WHERE seen < {self._now} - 3600")
            return [dict(row._mapping) for row in self._execute(connection, sql, queue=queue)]

    def depth(self, queue: str) -> dict[str, Any]:
        """Count the runs of a queue.

        The fields are "states" (runs by status), "last_minute" (runs that ended in the last minute)
        and "held" (running runs by the id of their worker).
        """

        def counts(column: str, condition: str = "true") -> dict[str, int]:
            where = f"WHERE application_name = :application AND {condition}"
            sql = f"SELECT {column}, count(*) FROM {self._table} {where} GROUP BY {column}"
            found = self._execute(connection, sql, application=application(queue))
            return {row[0]: row[1] for row in found}

        with self._store_errors(), self._engine.connect() as connection:
            recent = counts("application_name", f"completed_at > ({self._now} - 60) * 1000")
            held = counts("executor_id", "status = 'PENDING'")
            return {"states": counts("status"), "last_minute": sum(recent.values()), "held": held}

    def queues(self) -> list[str]:
        """Return the names of all queues that have runs or workers."""
        runs = f"SELECT DISTINCT application_name FROM {self._table}"
        workers = "SELECT queue FROM glue_workers"
        with self._store_errors(), self._engine.connect() as connection:
            of_glue = self._execute(connection, f"{runs} WHERE application_name LIKE 'glue-%'")
            found = {name.removeprefix("glue-") for (name,) in of_glue}
            found.update(name for (name,) in self._execute(connection, workers))
        return sorted(found)

    # The meter for rate limits --------------------------------------------------------------------

    async def reserve(self, name: str, seconds: float) -> float:
        """Reserve time of a rate limit that all workers share; see `glue.durable.rates.Meter`."""
        return await finish_in_thread(self._reserve, name, seconds)

    def _reserve(self, name: str, seconds: float) -> float:
        sql = f"""
            INSERT INTO glue_rates VALUES (:name, {self._now} + :seconds)
            ON CONFLICT (name) DO UPDATE
            SET free = {self._greatest}(glue_rates.free, {self._now}) + :seconds
            RETURNING free - :seconds - {self._now}"""
        with self._engine.begin() as connection:
            wait = self._execute(connection, sql, name=name, seconds=seconds).scalar()
        return max(float(wait), 0.0)

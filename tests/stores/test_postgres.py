"""`PostgresStore`: leases, restarts of the server, and connections that break during a write."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest
from fakes.postgres import Postgres
from fakes.sessions import CHILD, fill, kill_many, talk
from fakes.zygote import Zygote

from glue import user
from glue.durable.tables import Tables
from glue.errors import ConfigError, SessionBusy, StoreError
from glue.stores import PostgresStore
from glue.stores import postgres as module
from glue.stores.search import Query

scale = pytest.mark.scale

T = TypeVar("T")


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


# Without a server ---------------------------------------------------------------------------------


def test_an_address_of_another_database_is_rejected() -> None:
    with pytest.raises(ConfigError, match="this address begins with 'mysql'"):
        PostgresStore("mysql://localhost/x")
    with pytest.raises(ValueError, match="lease must be at least 1 second"):
        PostgresStore("postgresql://localhost/x", lease=0)


async def test_an_unreachable_server_is_reported_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = PostgresStore(f"postgresql://me:hunter22@127.0.0.1:{port}/x")

    with pytest.raises(StoreError, match=rf"postgresql://127.0.0.1:{port}/x: .*refused") as caught:
        await store.list()

    assert "hunter22" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_index_of_a_text_has_positions_and_a_limited_size() -> None:
    assert (
        module._vector("Don't a/b x.y 3.14") == "'don':1 't':2 'a':3 'b':4 'x':5 'y':6 '3':7 '14':8"
    )
    assert len(module._vector("word " * 100_000)) < 20_000
    assert len(module._vector(" ".join(f"w{number}" for number in range(100_000)))) < 1_000_000
    query = Query('budget "context window" comp*')
    assert module._tsquery(query) == "('budget') & ('context' <-> 'window') & ('comp':*)"


def test_the_index_leaves_out_long_words_and_the_end_of_a_long_text() -> None:
    short, long = "x" * 1_999, "y" * 2_000
    assert module._vector(f"{short} {long} z") == f"'{short}':1 'z':3"
    assert module._tsquery(Query(f"{short} {long} z*")) == f"('{short}') & ('_') & ('z':*)"

    numbers = " ".join(f"w{number:09}" for number in range(60_000))
    assert module._vector(numbers).count(" ") + 1 == 50_001  # 18 bytes each, 900,000 bytes

    places = module._vector("word " * 300).partition(":")[2].split(",")
    assert (len(places), places[-1]) == (200, "200")
    assert module._vector("a b " * 8_191 + "c d e").endswith("'c':16383 'd':16383 'e':16383")


# Leases -------------------------------------------------------------------------------------------


@scale
async def test_a_writer_that_lost_its_lease_cannot_write(database: str) -> None:
    first, second = PostgresStore(database, lease=1), PostgresStore(database, lease=1)
    async with first.log("demo") as mine:
        await mine.append(user("one"))
        with pytest.raises(SessionBusy):
            async with second.log("demo"):
                pass
        first._leases.clear()  # like a process that hangs: its lease is not renewed
        await write_when_free(second, "demo", "two")

        with pytest.raises(StoreError, match="taken over by another writer"):
            await mine.append(user("late"))

    assert texts(await second.load("demo")) == ["one", "two"]


@scale
async def test_a_writer_whose_session_was_deleted_cannot_write(database: str) -> None:
    first, second = PostgresStore(database, lease=1), PostgresStore(database, lease=1)
    async with first.log("demo") as mine:
        await mine.append(user("one"))
        first._leases.clear()  # like a process that hangs: its lease is not renewed
        with anyio.fail_after(20):
            while await second.list():
                with contextlib.suppress(SessionBusy):
                    await second.delete("demo")
                await anyio.sleep(0.05)

        with pytest.raises(StoreError, match="session 'demo' was deleted; nothing was written"):
            await mine.append(user("late"))

    assert await second.list() == ()


async def write_when_free(store: PostgresStore, id: str, text: str) -> None:
    with anyio.fail_after(20):
        while True:
            try:
                async with store.log(id) as log:
                    await log.append(user(text))
                return
            except SessionBusy:
                await anyio.sleep(0.05)


@scale
async def test_a_lease_is_renewed_while_the_session_is_open(database: str) -> None:
    store, other = PostgresStore(database, lease=1), PostgresStore(database, lease=1)
    async with store.log("demo") as log:
        await log.append(user("one"))
        end = time.monotonic() + 2.5  # longer than the lease
        while time.monotonic() < end:
            with pytest.raises(SessionBusy):
                async with other.log("demo"):
                    pass
            await anyio.sleep(0.1)
        await log.append(user("two"))

    async with other.log("demo") as log:  # the lease ends when the log is closed
        assert len(log.messages) == 2


@scale
async def test_the_session_of_a_killed_process_can_be_taken_over(database: str) -> None:
    command = [sys.executable, "-c", CHILD, "postgres", database]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        acknowledged = int(child.stdout.readline())
        child.kill()

    await write_when_free(PostgresStore(database), "demo", "next")

    assert len(await PostgresStore(database).load("demo")) > acknowledged + 1


@scale
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_acknowledged_messages_survive_kill_9_of_the_writer(
    database: str, zygote: Zygote
) -> None:
    await kill_many("postgres", database, 6, zygote)


# Failures of the server ---------------------------------------------------------------------------


@scale
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_acknowledged_messages_survive_kills_of_the_server(
    postgres: Postgres, database: str
) -> None:
    store = PostgresStore(database)
    acknowledged: list[str] = []
    done = False

    def kill() -> None:
        for _ in range(3):
            before = len(acknowledged)
            while len(acknowledged) < before + 5:
                time.sleep(0.01)
            postgres.kill()
            postgres.start()
        nonlocal done
        done = True

    thread = threading.Thread(target=kill)
    thread.start()
    async with store.log("demo") as log:
        while not done:
            text = f"message {len(acknowledged)}"
            await log.append(user(text))
            acknowledged.append(text)
        assert texts(log.messages) == acknowledged
    thread.join()

    assert texts(await store.load("demo")) == acknowledged


class CuttingProxy:
    """A proxy of the server that cuts a connection after some bytes in one direction."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.left: int | None = None  # bytes until the cut
        self.to_server = True
        self.cuts = 0
        self.sockets = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            self.sockets += [client, server]
            for source, target, to_server in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._copy, args=(source, target, to_server), daemon=True
                ).start()

    def _copy(self, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        try:
            while data := source.recv(65_536):
                if self.left is not None and to_server == self.to_server:
                    self.left -= len(data)
                    if self.left < 0:
                        self.left = None
                        self.cuts += 1
                        break
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.fixture
def cutting(postgres: Postgres) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(postgres.port)
    yield proxy
    proxy.listener.shutdown(socket.SHUT_RDWR)
    for each in proxy.sockets:
        each.close()


@scale
@pytest.mark.parametrize("to_server", [True, False], ids=["request", "answer"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_write_whose_connection_breaks_is_stored_once(
    postgres: Postgres, database: str, cutting: CuttingProxy, to_server: bool
) -> None:
    store = PostgresStore(database.replace(f":{postgres.port}/", f":{cutting.port}/"))
    cutting.to_server = to_server
    expected = ["first"]
    async with store.log("demo") as log:
        await log.append(user("first"))
        cuts = -1
        # Each cut is some bytes later, until a write is not cut any more.
        while cutting.cuts > cuts:
            cuts = cutting.cuts
            cutting.left = max(0, cuts) * (12 if to_server else 2)  # an answer is short
            expected.append(f"after {cuts} cuts")
            await log.append(user(expected[-1]))
            cutting.left = None

    assert texts(log.messages) == expected
    assert texts(await store.load("demo")) == expected
    assert cutting.cuts > 10


# Tables and damage --------------------------------------------------------------------------------


@scale
async def test_tables_of_a_newer_version_can_be_read_but_not_changed(database: str) -> None:
    await fill(PostgresStore(database), "demo", talk())
    store = PostgresStore(database)
    store.run(lambda connection: connection.execute("UPDATE glue_schema SET version = 99") and None)

    newer = PostgresStore(database)
    async with newer.log("demo") as log:
        assert len(log.messages) == 4
        with pytest.raises(
            StoreError, match="tables of version 99, but this glue supports only 1: it can be read"
        ):
            await log.append(user("x"))
    with pytest.raises(StoreError, match="tables of version 99"):
        await fill(newer, "new", talk())
    with pytest.raises(StoreError, match="tables of version 99"):
        await newer.delete("demo")


@scale
async def test_a_queue_can_use_the_same_database(database: str) -> None:
    tables = Tables(PostgresStore(database))
    assert tables.queues() == []
    tables.close()

    await fill(PostgresStore(database), "demo", talk())

    assert len(await PostgresStore(database).load("demo")) == 4


@scale
async def test_several_processes_can_create_the_tables_at_once(database: str) -> None:
    code = (
        "import sys, anyio\n"
        "from glue.stores import PostgresStore\n"
        "anyio.run(PostgresStore(sys.argv[1]).list)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, database]) for _ in range(6)]

    assert [process.wait(60) for process in running] == [0] * 6


@scale
async def test_damaged_rows_are_skipped_and_kept(database: str) -> None:
    store = PostgresStore(database)
    await fill(store, "demo", talk())
    bodies = ['{"v": 99, "role": "user"}', '{"role": "oracle"}']
    sql = "UPDATE glue_messages SET body = %s WHERE role = %s"
    damaged = list(zip(bodies, ("user", "tool"), strict=True))
    store.run(lambda connection: connection.cursor().executemany(sql, damaged))

    async with store.log("demo") as log:
        assert len(log.messages) == 2
        await log.append(user("next"))

    assert len(await store.load("demo")) == 3
    assert len(await store.list()) == 1
    rows = store.run(
        lambda c: c.execute("SELECT body FROM glue_messages ORDER BY position").fetchall()
    )
    assert [row[0] for row in rows if row[0] in bodies] == bodies


@scale
async def test_a_user_without_write_permission_can_read(postgres: Postgres, database: str) -> None:
    import psycopg

    await fill(PostgresStore(database), "demo", talk())
    schema = database.rpartition("%3D")[2]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE reader_{schema} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO reader_{schema}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader_{schema}")
    store = PostgresStore(database.replace("postgres@", f"reader_{schema}@"))

    assert len(await store.load("demo")) == 4
    async with store.log("demo") as log:
        with pytest.raises(StoreError, match=r"is read-only: .*permission denied"):
            await log.append(user("x"))


@scale
def test_the_command_line_accepts_the_address_of_a_server(database: str, tmp_path: Path) -> None:
    glue = [sys.executable, "-c", "from glue.cli.app import main; main()"]

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*glue, *args], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
        )

    done = run("run", "-m", "offline", "-s", "demo", "--store", database, "hello")
    assert done.returncode == 0, done.stderr
    assert "demo" in run("sessions", "list", "--store", database).stdout
    assert "hello" in run("sessions", "show", "demo", "--store", database).stdout
    assert run("sessions", "search", "hello", "--store", database).returncode == 0
    assert list(tmp_path.iterdir()) == []


class Unconfirmed(PostgresStore):
    """A store whose server commits a write, but whose answer is lost until the store gives up."""

    lose = False

    def run(self, work: Callable[[Any], T], *, in_transaction: bool = True) -> T:
        result = super().run(work, in_transaction=in_transaction)
        if self.lose:
            raise StoreError("the connection was lost")
        return result


@scale
async def test_a_write_without_a_confirmation_is_refused_until_the_session_is_reopened(
    database: str,
) -> None:
    store = Unconfirmed(database)
    log = store.log("s")
    async with log:
        await log.append(user("first"))
        store.lose = True
        with pytest.raises(StoreError, match="the connection was lost"):
            await log.append(user("second"))
        store.lose = False

        with pytest.raises(StoreError, match="an earlier write failed: open the session again"):
            await log.append(user("third"))

    async with log:
        await log.append(user("fourth"))
    assert [message.text for message in await store.load("s")] == ["first", "second", "fourth"]
    await store.aclose()

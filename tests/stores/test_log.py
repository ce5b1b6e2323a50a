"""Logs: messages are stored and changed by one writer at a time, in every kind of store."""

from __future__ import annotations

import asyncio  # noqa: TID251 - to test its own cancellation
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from fakes.sessions import (
    CHILD,
    POSTGRES,
    fill,
    forbid_writing,
    kill_many,
    make_store,
    talk,
    write_texts,
)
from fakes.zygote import Zygote

from glue import user
from glue.errors import SessionBusy, StoreError
from glue.stores import Store
from glue.stores.log import Log
from glue.stores.records import Record, StoredSession


async def test_appended_messages_are_loaded(store: Store) -> None:
    messages = talk()

    await fill(store, "demo", messages)

    assert await store.load("demo") == messages
    async with store.log("demo") as log:
        assert log.messages == messages


async def test_a_change_of_an_unknown_message_is_rejected_and_not_stored(
    store: Store,
) -> None:
    await fill(store, "demo", talk())

    async with store.log("demo") as log:
        before = log.messages
        with pytest.raises(StoreError, match="no message 'unknown'"):
            await log.amend("unknown", {"meta": {}})
        with pytest.raises(StoreError, match="no message 'unknown'"):
            await log.insert(user("x"), "unknown")

    assert await store.load("demo") == before


@pytest.mark.parametrize("store", ["file", "sqlite", POSTGRES], indirect=True)
async def test_a_group_of_messages_is_stored_completely_or_not_at_all(store: Store) -> None:
    bad = replace(user("bad"), meta={"no": object()})

    async with store.log("demo") as log:
        with pytest.raises(TypeError):
            await log.extend((user("good"), bad))
        assert log.messages == ()
        await log.append(user("next"))

    assert [message.text for message in await store.load("demo")] == ["next"]


async def test_a_session_has_one_writer_at_a_time(store: Store) -> None:
    async with store.log("demo") as log:
        with pytest.raises(SessionBusy, match="session 'demo' is in use"):
            async with store.log("demo"):
                pass
        with pytest.raises(SessionBusy):
            await store.delete("demo")
        await log.append(user("still mine"))
        async with store.log("other"):
            pass

    async with store.log("demo") as log:
        assert len(log.messages) == 1


async def test_a_log_that_is_not_entered_cannot_be_written(store: Store) -> None:
    log = store.log("demo")
    with pytest.raises(StoreError, match="not open for writing"):
        await log.append(user("x"))

    async with log:
        pass
    with pytest.raises(StoreError, match="not open for writing"):
        await log.append(user("x"))


async def test_a_log_entered_again_has_the_messages_of_other_writers(store: Store) -> None:
    mine = store.log("demo")
    async with mine:
        await mine.append(user("one"))
    await fill(store, "demo", (user("two"),))
    async with mine:
        await mine.append(user("three"))

    assert [message.text for message in mine.messages] == ["one", "two", "three"]
    assert await store.load("demo") == mine.messages


async def test_a_session_deleted_by_another_writer_starts_empty(store: Store) -> None:
    mine = store.log("demo")
    async with mine:
        await mine.append(user("one"))
    await store.delete("demo")
    async with mine:
        await mine.append(user("two"))

    assert [message.text for message in await store.load("demo")] == ["two"]


async def test_a_session_that_was_deleted_and_created_again_is_read_again(store: Store) -> None:
    mine = store.log("demo")
    async with mine:
        await mine.append(user("one"))
    await store.delete("demo")
    async with store.log("demo", meta={"created": "again"}) as other:
        await other.extend([user("two"), user("three"), user("four")])
    async with mine:
        await mine.append(user("five"))

    assert [message.text for message in mine.messages] == ["two", "three", "four", "five"]
    assert await store.load("demo") == mine.messages


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_acknowledged_messages_survive_kill_9(
    kind: str, tmp_path: Path, zygote: Zygote
) -> None:
    await kill_many(kind, tmp_path / "store", 6, zygote)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_acknowledged_messages_survive_kill_9_a_thousand_times(
    kind: str, tmp_path: Path, zygote: Zygote
) -> None:
    await kill_many(kind, tmp_path / "store", 1000, zygote)


@pytest.mark.skipif(not Path("/usr/bin/strace").exists(), reason="needs strace")
@pytest.mark.parametrize(("kind", "file"), [("file", "/demo.jsonl>"), ("sqlite", "-wal>")])
def test_each_acknowledged_message_is_on_the_disk(kind: str, file: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = [
        "strace",
        "-f",
        "-y",
        "-e",
        "trace=write,pwrite64,fdatasync",
        "-o",
        str(trace),
        sys.executable,
        "-c",
    ]
    command += [CHILD, kind, str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        for _ in range(5):
            child.stdout.readline()
        child.kill()

    acknowledged, waits = 0, []
    for line in trace.read_text(errors="replace").splitlines():
        if file in line:
            waits.append("fdatasync" in line)
        elif "write(1<" in line and acknowledged < 5:
            acknowledged += 1
            assert len(waits) > 1  # the message was written,
            assert waits[-1]  # and then the process waited for the disk
            waits.clear()
    assert acknowledged == 5


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_write_is_stored_completely_or_not_at_all(durable_store: Store) -> None:
    for steps in range(40):
        log = durable_store.log(f"s{steps}")

        async def write(log: Any = log) -> None:
            async with log:
                await log.append(user("one"))
                await log.extend([user("two"), user("three")])

        task = asyncio.ensure_future(write())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async with log:  # the cancellation has unlocked the session
            assert [message.text for message in log.messages] in (
                [],
                ["one"],
                ["one", "two", "three"],
            )
            await log.append(user("next"))
        assert await durable_store.load(log.id) == log.messages


async def test_after_a_cancellation_the_log_equals_the_store(durable_store: Store) -> None:
    log = durable_store.log("demo")
    async with log:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.append(user("one"))
        assert await durable_store.load("demo") == log.messages
        await log.append(user("two"))

    assert await durable_store.load("demo") == log.messages


class ThreadRecorder:
    """A blocking writer that records the threads of its callers."""

    blocks = True

    def __init__(self) -> None:
        self.threads: list[int] = []

    def open(self, stored: StoredSession) -> None:
        self.threads.append(threading.get_ident())

    def write(self, records: Sequence[Record]) -> None:
        self.threads.append(threading.get_ident())

    def close(self) -> None:
        self.threads.append(threading.get_ident())


async def test_the_event_loop_never_waits_for_the_disk() -> None:
    writer = ThreadRecorder()

    async with Log("demo", writer) as log:
        await log.append(user("one"))

    assert len(writer.threads) == 3
    assert threading.get_ident() not in writer.threads


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_too_many_open_files_are_reported(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    store = make_store(kind, tmp_path, request)
    await write_texts(store, "demo", "apples")

    def refuse(*given: Any, **named: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for name in ("demo", "new"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            with pytest.raises(
                StoreError, match=f"session '{name}' cannot be opened: Too many open files"
            ):
                async with store.log(name):
                    pass

    async with store.log("new") as log:
        await log.append(user("pears"))
    assert [message.text for message in await store.load("new")] == ["pears"]


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_session_that_becomes_writable_again_can_be_continued(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(kind, tmp_path)
    await write_texts(store, "demo", "apples")
    log = store.log("demo")
    with monkeypatch.context() as patch:
        forbid_writing(patch)
        async with log:
            assert "is read-only" in log.read_only

    async with log:
        assert not log.read_only
        await log.append(user("pears"))

    assert [message.text for message in log.messages] == ["apples", "pears"]
    assert await store.load("demo") == log.messages


async def test_a_value_that_is_not_a_message_is_rejected(store: Store) -> None:
    async with store.log("demo") as log:
        with pytest.raises(TypeError, match="a message is made by"):
            await log.append("text")  # type: ignore[arg-type]

    assert await store.load("demo") == ()

"""Helpers for tests of stores: sessions, and a process that writes until it is killed."""

from __future__ import annotations

import errno
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.zygote import Zygote
from glue import AssistantMessage, Message, StopReason, Text, ToolCall, ToolMessage, user
from glue.stores import FileStore, MemoryStore, PostgresStore, SQLiteStore, Store

POSTGRES = pytest.param("postgres", marks=pytest.mark.scale)


def make_store(kind: str, folder: Path, request: pytest.FixtureRequest | None = None) -> Store:
    if kind == "memory":
        return MemoryStore()
    if kind == "postgres" and request is not None:
        store = PostgresStore(request.getfixturevalue("database"))
        request.addfinalizer(store.disconnect)
        return store
    return FileStore(folder / "files") if kind == "file" else SQLiteStore(folder / "x.db")


def talk() -> tuple[Message, ...]:
    call = ToolCall(id="c1", name="weather", arguments='{"city": "Toronto"}')
    return (
        user("Weather in Toronto?"),
        AssistantMessage(
            content=(Text(text="Let me look."), call), stop_reason=StopReason.TOOL_USE
        ),
        ToolMessage(call_id="c1", name="weather", content=(Text(text="21 degrees"),)),
        AssistantMessage(content=(Text(text="It is 21 degrees. 你好 \ud800"),)),
    )


async def fill(store: Store, id: str, messages: tuple[Message, ...]) -> None:
    async with store.log(id) as log:
        for message in messages:
            await log.append(message)


async def write_texts(store: Store, id: str, *texts: str) -> tuple[Message, ...]:
    """Append user messages to a session, and return all its messages."""
    async with store.log(id) as log:
        await log.extend(user(text) for text in texts)
        return log.messages


def open_files() -> int:
    """Return the number of open files of this process."""
    return len(os.listdir("/dev/fd"))


def forbid_writing(patch: pytest.MonkeyPatch) -> None:
    """Make `os.open` fail if it opens a file for writing, as if the user had no permission."""
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *rest, **named)

    patch.setattr(os, "open", refuse)


CHILD = """
import os, sys
import anyio
from glue import user
from glue.errors import SessionBusy
from glue.stores import FileStore, PostgresStore, SQLiteStore

async def main(kind, path):
    store = {"file": FileStore, "sqlite": SQLiteStore, "postgres": PostgresStore}[kind](path)
    store.lease = 1
    while True:
        try:
            log = await store.log("demo").__aenter__()
            break
        except SessionBusy:  # locked by a process that was just killed
            await anyio.sleep(0.05)
    for i in range(len(log.messages), 10_000):
        await log.append(user(f"{i} " + "x" * (i * 7919 % 60_000)))
        os.write(1, b"%d\\n" % i)

anyio.run(main, *sys.argv[1:])
"""


async def kill_many(kind: str, path: Path | str, runs: int, zygote: Zygote) -> None:
    """Kill a writing process repeatedly; check that acknowledged messages are stored in order."""
    chance = random.Random(runs)
    makers: dict[str, Callable[[str], Store]] = {
        "file": FileStore,
        "sqlite": SQLiteStore,
        "postgres": PostgresStore,
    }
    store = makers[kind](str(path))
    for _ in range(runs):
        child = zygote.start([sys.executable, "-c", CHILD, kind, str(path)], Path.cwd())
        with child.stdin, child.stdout, child.stderr:
            for _ in range(chance.randrange(1, 12)):
                acknowledged = int(child.stdout.readline())
            child.kill()
            rest = child.stdout.read().splitlines()
            child.wait()
        acknowledged = int(rest[-1]) if rest else acknowledged

        numbers = [int(message.text.split()[0]) for message in await store.load("demo")]

        assert numbers == list(range(len(numbers)))
        assert len(numbers) > acknowledged
        if len(numbers) > 300:
            await store.delete("demo")

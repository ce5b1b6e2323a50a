"""What stores cost: search over many messages, and opening a long session to add one message.

    python bench/stores.py [messages]

Prints milliseconds and bytes. SQLite's own time for the same query is measured beside ours.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from glue import FileStore, SQLiteStore, user
from glue.stores import Store

WORDS = [f"word{number}" for number in range(5_000)]
QUERIES = ("word77", "word1 word2", '"word3 word4"', "word12*", "everywhere")


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        await search(SQLiteStore(root / "sessions.db"), root / "sessions.db", count)
        print()
        await append("FileStore", FileStore(root / "files"), 10_000)
        await append("SQLiteStore", SQLiteStore(root / "long.db"), 10_000)


async def search(store: SQLiteStore, path: Path, count: int) -> None:
    chance = random.Random(1)
    for number in range(0, count, 1_000):
        async with store.log(f"session-{number}") as log:
            await log.extend(user("everywhere " + " ".join(chance.choices(WORDS, k=60))) for _ in range(1_000))
    print(f"search over {count:,} messages, {path.stat().st_size / 1e6:.0f} MB")
    print(f"{'query':16} {'hits':>5} {'glue ms':>9} {'SQLite ms':>10}")
    for query in QUERIES:
        hits = await store.search(query)
        ours = await median(store, query)
        theirs = statistics.median(bare(path, query) for _ in range(9))
        print(f"{query:16} {len(hits):5} {ours:9.2f} {theirs:10.2f}")


def bare(path: Path, query: str) -> float:
    """Time the same search without us, on an open connection."""
    words = (f'"{word.rstrip("*")}"' + "*" * word.endswith("*") for word in query.split())
    match = query if query.startswith('"') else " ".join(words)
    sql = "SELECT snippet(words, 0, '[', ']', '…', 16) FROM words WHERE words MATCH ? ORDER BY rank LIMIT 20"
    connection = sqlite3.connect(path)
    try:
        return timed(lambda: connection.execute(sql, (match,)).fetchall())
    finally:
        connection.close()


async def append(name: str, store: Store, count: int) -> None:
    async with store.log("long") as log:
        await log.extend(user(f"message {number} " + "x" * 500) for number in range(count))
    before, written = size(store), written_bytes()
    started = time.perf_counter()
    fresh = store.log("long")
    async with fresh:
        opened = time.perf_counter()
        await fresh.append(user("one more"))
    ended = time.perf_counter()
    print(
        f"{name}: open a session of {count:,} messages ({before / 1e6:.1f} MB) in {(opened - started) * 1e3:.0f} ms,"
        f" append one in {(ended - opened) * 1e3:.1f} ms; it grew by {size(store) - before:,} bytes,"
        f" {written_bytes() - written:,} bytes were written"
    )


def size(store: Store) -> int:
    if isinstance(store, FileStore):
        return store.path("long").stat().st_size
    assert isinstance(store, SQLiteStore)
    return store.path.stat().st_size


def written_bytes() -> int:
    """Bytes this process has handed to write(2), by Linux's count."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["wchar"])


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


async def median(store: Store, query: str) -> float:
    times = []
    for _ in range(9):
        started = time.perf_counter()
        await store.search(query)
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

"""The cost of stores: search, long sessions, excluding, forking, and many sessions at once.

    python bench/stores.py [messages] [sessions] [postgresql://...]

Prints milliseconds and counts. Compare lines of the same run: the figures depend on the machine.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from glue import Agent, FileStore, Session, SQLiteStore, user
from glue.stores import MemoryStore, Store, copy
from glue.testing import Script, repeat

WORDS = [f"word{number}" for number in range(5_000)]
QUERIES = ("word77", "word1 word2", '"word3 word4"', "word12*", "everywhere", "nowhere")


async def main(count: int, sessions: int, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        stores: dict[str, Callable[[str], Store]] = {
            "FileStore": lambda name: FileStore(root / name),
            "SQLiteStore": lambda name: SQLiteStore(root / f"{name}.db"),
        }
        if url:
            from glue.stores import PostgresStore

            stores["PostgresStore"] = lambda name: PostgresStore(url)
        for name, make in stores.items():
            print(name)
            await search(make("search"), count)
            await long(make("long"), count)
            await exclude(make("exclude"), 2_000)
            await exclude(make("exclude"), 8_000)
        print()
        for name, make in {"MemoryStore": lambda name: MemoryStore(), **stores}.items():
            await length(name, make("length"), count)
            await many(name, make("many"), sessions)
        processes("FileStore", str(root / "files"), 20, 20)
        processes("SQLiteStore", str(root / "processes.db"), 20, 20)
        if url:
            processes("PostgresStore", url, 20, 20)


async def search(store: Store, count: int) -> None:
    chance = random.Random(1)
    for number in range(0, count, 1_000):
        async with store.log(f"session-{number}") as log:
            await log.extend(
                user("everywhere " + " ".join(chance.choices(WORDS, k=60))) for _ in range(1_000)
            )
    print(f"  search over {count:,} messages in {count // 1000} sessions")
    for query in QUERIES:
        hits = await store.search(query)
        took = min([await timed(lambda query=query: store.search(query)) for _ in range(3)])  # type: ignore[misc]
        print(f"    {query:16} {len(hits):3} hits {took:9.1f} ms")


async def long(store: Store, count: int) -> None:
    """Time prompts and a fork of a session with many messages, most of them excluded."""
    async with store.log("long") as log:
        await log.extend(user(f"message {number} " + "x" * 100) for number in range(count))
        await log.exclude([message.id for message in log.messages[: count - 20]])
    session = Agent(Script(repeat("fine"))).session("long", store=store)
    first = await timed(lambda: session.run("one"))
    cpu, took = await later(session)
    forked = await timed(lambda: copy(store, "long", store, f"fork-{time.time()}"))
    print(f"  a session of {count:,} messages: first prompt {first:.0f} ms,", end=" ")
    print(f"later ones {took:.1f} ms ({cpu:.2f} ms of CPU), fork {forked:.0f} ms")


async def length(name: str, store: Store, count: int) -> None:
    """Time a later prompt in a short and in a long session, with all messages in the request."""
    for messages in (100, count):
        async with store.log(f"length-{messages}") as log:
            await log.extend(user(f"message {number} " + "x" * 100) for number in range(messages))
        session = Agent(Script(repeat("fine"))).session(f"length-{messages}", store=store)
        await session.run("one")
        cpu, _ = await later(session)
        calls = await calls_of(lambda session=session: session.run("once more"))  # type: ignore[misc]
        cost = f"{cpu * 1e3:.0f} us of CPU, {calls} function calls"
        print(f"{name}: a later prompt after {messages:,} messages: {cost}")


async def later(
    session: Session[None, None], prompts: int = 20, rounds: int = 5
) -> tuple[float, float]:
    """Run many prompts; return the CPU time and the time of a prompt in the best round, in ms."""
    cpus, times = [], []
    for _ in range(rounds):
        cpu = time.process_time()
        times += [await timed(lambda: session.run("again")) for _ in range(prompts)]
        cpus.append((time.process_time() - cpu) / prompts * 1e3)
    return min(cpus), min(times)


async def calls_of(work: Callable[[], Awaitable[object]]) -> int:
    """Return the number of Python function calls that `work` makes in this thread."""
    counted: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, given: counted.update((event,)))
    try:
        await work()
    finally:
        sys.setprofile(None)
    return counted["call"]


async def exclude(store: Store, count: int) -> None:
    async with store.log(f"exclude-{count}") as log:
        await log.extend(user(f"message {number} " + "x" * 100) for number in range(count))
        ids = [message.id for message in log.messages]
        took = await timed(lambda: log.exclude(ids))
    print(f"  exclude {count:,} messages: {took:.0f} ms")


async def many(name: str, store: Store, count: int) -> None:
    """Prompt many sessions at once in one process; print descriptors and event loop delay."""
    agent = Agent(Script(repeat("fine")))
    failures: Counter[str] = Counter()
    most = late = 0.0
    done = anyio.Event()

    async def prompt(number: int) -> None:
        try:
            await agent.session(f"many-{number}", store=store).run("hello")
        except Exception as error:
            failures[f"{type(error).__name__}: {error}"[:80]] += 1

    async def watch() -> None:
        nonlocal most, late
        while not done.is_set():
            before = time.perf_counter()
            await anyio.sleep(0.005)
            late = max(late, time.perf_counter() - before - 0.005)
            most = max(most, len(os.listdir("/dev/fd")))

    before = len(os.listdir("/dev/fd"))
    started = time.perf_counter()
    async with anyio.create_task_group() as watching:
        watching.start_soon(watch)
        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(prompt, number)
        took = time.perf_counter() - started
        done.set()
    print(
        f"{name}: {count:,} sessions at once, {count / took:.0f} prompts/s,"
        f" {dict(failures) or 'no'} failures,"
        f" {most - before:.0f} descriptors, event loop at most {late * 1e3:.0f} ms late"
    )


def processes(name: str, where: str, workers: int, prompts: int) -> None:
    """Run prompts on one store from several processes, each with its own sessions."""
    started = time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", name, where, str(number), str(prompts)]
        )
        for number in range(workers)
    ]
    failed = sum(process.wait() for process in running)
    took = time.perf_counter() - started
    print(
        f"{name}: {workers} processes, {workers * prompts / took:.0f} prompts/s, {failed} failures"
    )


async def worker(name: str, where: str, number: str, prompts: str) -> int:
    import glue.stores

    store: Store = getattr(glue.stores, name)(where)
    agent = Agent(Script(repeat("fine")))
    failed = 0
    for turn in range(int(prompts)):
        try:
            await agent.session(f"process-{number}-{turn % 4}", store=store).run("hello")
        except Exception as error:
            print(f"  {type(error).__name__}: {error}"[:120], file=sys.stderr)
            failed += 1
    return failed


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        sys.exit(anyio.run(worker, *sys.argv[2:]))
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        sys.exit()
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    named = next((word for word in sys.argv[1:] if word.startswith("postgres")), "")
    anyio.run(main, *[*numbers, *(100_000, 2_000)[len(numbers) :]], named)

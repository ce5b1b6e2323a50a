"""`MemoryStore`: sessions in memory."""

from __future__ import annotations

import threading

from fakes.sessions import talk, write_texts

from glue import user
from glue.stores import MemoryStore


async def test_sessions_of_two_stores_are_separate() -> None:
    first, second = MemoryStore(), MemoryStore()
    await write_texts(first, "demo", "apples")

    assert [info.id for info in await first.list()] == ["demo"]
    assert await second.list() == ()


async def test_a_log_entered_again_shares_the_stored_messages_and_header() -> None:
    store = MemoryStore()
    mine, other = store.log("demo", parent="parent", forked_at=0), store.log("demo")
    async with mine:
        await mine.extend(talk())
    (before,) = await store.list()
    async with other:
        await other.append(user("next"))
    (after,) = await store.list()

    async with mine:
        assert mine.messages == other.messages == await store.load("demo")
    assert (after.parent, after.created) == ("parent", before.created)


async def test_no_thread_is_started() -> None:
    before = threading.active_count()
    store = MemoryStore()

    await write_texts(store, "demo", "apples")
    await store.search("apples")

    assert threading.active_count() == before

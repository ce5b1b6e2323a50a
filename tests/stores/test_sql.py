"""Stores in SQL tables: positions, forks, and rows that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.sessions import (
    write_texts,
)

from glue import user
from glue.errors import StoreError
from glue.stores import SQLiteStore, Store, copy
from glue.stores.sql import beginning
from glue.stores.sqlite import using


async def test_many_inserts_at_one_place_keep_their_order(store: Store) -> None:
    first, last = user("first"), user("last")
    between = [user(str(i)) for i in range(80)]

    async with store.log("demo") as log:
        await log.extend((first, last))
        for message in between:
            await log.insert(message, last.id)

    assert await store.load("demo") == (first, *between, last)


async def test_an_inserted_message_gets_a_position_between_its_neighbours(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    one, two = user("one"), user("two")

    async with store.log("demo") as log:
        await log.extend((one, two))
        await log.insert(user("between"), two.id)
        await log.insert(user("first"), one.id)
        await log.append(user("last"))

    with store.connect() as connection:
        found = connection.execute("SELECT position, text FROM messages ORDER BY 1").fetchall()
    assert found == [
        (0.0, "first"),
        (1.0, "one"),
        (1.5, "between"),
        (2.0, "two"),
        (3.0, "last"),
    ]


async def test_excluding_messages_takes_linear_time(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")

    async def steps(count: int) -> int:
        ids = [
            message.id for message in await write_texts(store, f"s{count}", *map(str, range(count)))
        ]
        done = [0]
        with using(store.path, True) as database:
            connection = database.open()
            number = connection.execute(
                "SELECT number FROM sessions WHERE id = ?", (f"s{count}",)
            ).fetchone()[0]
            connection.set_progress_handler(lambda: done.__setitem__(0, done[0] + 1) or 0, 100)
            database.run(
                lambda connection: store.write(
                    connection, number, [{"type": "exclude", "ids": ids}]
                )
            )
            connection.set_progress_handler(None, 0)
        return done[0]

    few, many = await steps(200), await steps(1_600)

    assert many < few * 8 * 1.5
    assert all(message.excluded for message in await store.load("s1600"))


async def test_a_fork_copies_messages_inside_the_database(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    messages = await write_texts(store, "demo", "one", "two", "three")
    async with store.log("demo") as log:
        await log.exclude([messages[0].id])

    await copy(store, "demo", store, "all")
    await copy(store, "demo", store, "first", at=2)
    await copy(store, "demo", store, "live", at=2, live=True)

    assert await store.load("all") == await store.load("demo")
    assert [message.text for message in await store.load("first")] == ["one", "two"]
    assert [message.text for message in await store.load("live")] == ["two"]
    assert {info.id: (info.parent, info.forked_at) for info in await store.list()}["live"] == (
        "demo",
        2,
    )
    assert {hit.session for hit in await store.search("two")} == {"demo", "all", "first", "live"}
    with pytest.raises(StoreError, match="'all' already exists, with 3 messages"):
        await copy(store, "demo", store, "all")
    with pytest.raises(ValueError, match="has 3 messages; it cannot be forked at 9"):
        await copy(store, "demo", store, "more", at=9)
    assert "more" not in {info.id for info in await store.list()}


UNKNOWN_ROLE = {"v": 1, "role": "oracle", "content": []}
NEWER_VERSION = {"v": 99, "role": "user", "content": "new"}


@pytest.mark.parametrize("data", [UNKNOWN_ROLE, NEWER_VERSION], ids=["role", "version"])
async def test_a_row_of_a_newer_version_is_skipped_and_kept(
    tmp_path: Path, data: dict[str, Any]
) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    one, two = await write_texts(store, "demo", "one", "two")
    body = json.dumps({**data, "id": one.id})
    with using(store.path, True) as database:
        database.run(
            lambda c: (
                c.execute("UPDATE messages SET body = ? WHERE id = ?", (body, one.id)) and None
            )
        )

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["two"]
        await log.amend(two.id, {"meta": {"a": 1}})
        await log.append(user("three"))

    assert [message.text for message in await store.load("demo")] == ["two", "three"]
    assert len(await store.list()) == 1
    with store.connect() as connection:
        assert (
            connection.execute("SELECT body FROM messages WHERE id = ?", (one.id,)).fetchone()[0]
            == body
        )


@pytest.mark.parametrize("damage", ["", "not JSON", "5", b"\xff"])
async def test_a_damaged_row_is_skipped_and_kept(tmp_path: Path, damage: str | bytes) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    one, _ = await write_texts(store, "demo", "one", "two")
    await write_texts(store, "other", "two")
    with using(store.path, True) as database:
        database.run(
            lambda c: (
                c.execute("UPDATE messages SET body = ? WHERE id = ?", (damage, one.id)) and None
            )
        )
        database.run(
            lambda c: (
                c.execute("UPDATE sessions SET header = ? WHERE id = 'demo'", (damage,)) and None
            )
        )

    assert {info.id for info in await store.list()} == {"demo", "other"}
    assert len(await store.search("two")) == 2
    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["two"]
        await log.append(user("three"))

    with store.connect() as connection:
        assert (
            connection.execute("SELECT body FROM messages WHERE id = ?", (one.id,)).fetchone()[0]
            == damage
        )


def test_the_beginning_of_a_text_has_120_characters_on_one_line() -> None:
    assert beginning("a\n  b " * 20) == "a b " * 19 + "a b"
    assert beginning("x" * 120) == "x" * 120
    assert beginning("x" * 121) == "x" * 120 + "…"

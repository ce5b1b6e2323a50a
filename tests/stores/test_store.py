"""Stores of every kind: lists, copies and deletion of sessions."""

from __future__ import annotations

import contextlib
import errno
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.sessions import (
    fill,
    talk,
    write_texts,
)

from glue import AssistantMessage, File, Image, Message, Text, user
from glue.errors import StoreError
from glue.stores import FileStore, MemoryStore, SessionInfo, SQLiteStore, Store, copy, lineage
from glue.stores.sqlite import ExclusiveStore
from glue.stores.store import BlockingStore, title_of


async def test_sessions_are_listed_with_title_and_parent(store: Store) -> None:
    await fill(store, "demo", talk())
    await copy(store, "demo", store, "fork", at=2)

    fork, demo = sorted(await store.list(), key=lambda info: info.id, reverse=True)

    assert (demo.id, demo.title, demo.parent) == ("demo", "Weather in Toronto?", "")
    assert (fork.id, fork.parent, fork.forked_at) == ("fork", "demo", 2)
    assert len(await store.load("fork")) == 2
    assert demo.created <= demo.updated


async def test_an_unknown_session_is_reported_with_the_known_ones(store: Store) -> None:
    await fill(store, "demo", talk())

    with pytest.raises(StoreError, match="no session 'dmo'; there are: demo"):
        await store.load("dmo")
    with pytest.raises(StoreError, match="no session 'dmo'"):
        await store.delete("dmo")


@pytest.mark.parametrize(
    ("number", "listed"),
    [(8, "s1, s2, s3, s4, s5, s6, s7, s8"), (9, "s1, s2, s3, s4, s5, s6, s7, s8, ...")],
)
async def test_up_to_eight_known_sessions_are_named(number: int, listed: str) -> None:
    store = MemoryStore()
    for place in range(1, number + 1):
        await write_texts(store, f"s{place}", "x")

    with pytest.raises(StoreError) as caught:
        await store.load("x")

    assert str(caught.value) == f"there is no session 'x'; there are: {listed}"


async def test_a_database_also_names_up_to_eight_known_sessions(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    for place in range(1, 10):
        await write_texts(store, f"s{place}", "x")

    with pytest.raises(StoreError, match=r"s7, s8, \.\.\.$"):
        await store.load("x")
    await store.delete("s9")
    with pytest.raises(StoreError, match=r"s7, s8$"):
        await store.load("x")


async def test_a_session_can_be_forked_at_every_message(store: Store) -> None:
    await write_texts(store, "demo", "one", "two")

    for at in (0, 1, 2):
        await copy(store, "demo", store, f"fork-{at}", at=at)
        assert len(await store.load(f"fork-{at}")) == at
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=f"has 2 messages; it cannot be forked at {wrong}"):
            await copy(store, "demo", store, "new", at=wrong)


async def test_the_title_is_the_first_text_of_a_prompt_or_the_kinds_of_its_parts(
    store: Store,
) -> None:
    picture, file = Image(data=b"x", media_type="image/png"), File(data=b"x", media_type="a/b")
    titles: dict[str, tuple[Message, ...]] = {
        "text": (user("  \n", picture, "Fix it,\n please."),),
        "picture": (user(picture, file),),
        "long": (user("x" * 99),),
        "none": (AssistantMessage(content=(Text(text="Hello"),)),),
    }
    for name, messages in titles.items():
        await fill(store, name, messages)

    assert {info.id: info.title for info in await store.list()} == {
        "text": "Fix it, please.",
        "picture": "[image, file]",
        "long": "x" * 80,
        "none": "",
    }


async def test_the_session_that_was_changed_last_is_listed_first() -> None:
    store, now = MemoryStore(), time.time()
    for name, after in (("b", 20), ("c", 30), ("a", 10)):
        async with store.log(name) as log:
            message = user("x")
            await log.extend((message,), {message.id: now + after})

    assert [info.id for info in await store.list()] == ["c", "b", "a"]


async def test_a_deleted_session_cannot_be_loaded_or_found(store: Store) -> None:
    await fill(store, "demo", talk())

    await store.delete("demo")

    assert await store.list() == ()
    assert await store.search("Toronto") == ()
    with pytest.raises(StoreError):
        await store.load("demo")


async def test_sessions_can_be_copied_between_stores_without_loss(
    store: Store, tmp_path: Path
) -> None:
    other = FileStore(tmp_path / "exported")
    async with store.log("demo") as log:
        await log.extend(talk())
        await log.exclude([log.messages[0].id])

    await copy(store, "demo", other)
    await copy(other, "demo", store, "back")

    assert await store.load("back") == await store.load("demo")
    await copy(store, "demo", other, "live", live=True)
    assert await other.load("live") == (await store.load("demo"))[1:]
    with pytest.raises(StoreError, match="already exists"):
        await copy(store, "demo", other)
    with pytest.raises(ValueError, match="cannot be forked at 9"):
        await copy(store, "demo", other, "x", at=9)


async def test_lineage_orders_sessions_as_a_tree(store: Store) -> None:
    await fill(store, "root", talk())
    await copy(store, "root", store, "child", at=1)
    await copy(store, "child", store, "grandchild")
    await copy(store, "root", store, "sister")
    await fill(store, "alone", talk())

    tree = [(depth, info.id) for depth, info in lineage(await store.list())]

    assert tree == [(0, "root"), (1, "child"), (2, "grandchild"), (1, "sister"), (0, "alone")]


def test_lineage_counts_a_session_whose_parent_was_deleted_as_a_root() -> None:
    sessions = [
        SessionInfo(id=name, created=created, updated=0.0, parent=parent)
        for name, created, parent in (
            ("younger", 5.0, ""),
            ("fork", 4.0, "orphan"),
            ("orphan", 1.0, "gone"),
            ("second", 2.0, ""),
            ("first", 2.0, ""),
        )
    ]

    tree = [(depth, info.id) for depth, info in lineage(sessions)]

    assert tree == [(0, "orphan"), (1, "fork"), (0, "first"), (0, "second"), (0, "younger")]


async def test_lineage_contains_sessions_that_are_forks_of_each_other(store: Store) -> None:
    await fill(store, "a", talk())
    await copy(store, "a", store, "b")
    await store.delete("a")
    await copy(store, "b", store, "a")
    await copy(store, "a", store, "c")

    tree = [(depth, info.id) for depth, info in lineage(await store.list())]

    assert tree == [(0, "b"), (1, "a"), (2, "c")]


async def test_lineage_contains_a_session_that_names_itself_as_its_parent(store: Store) -> None:
    async with store.log("self", parent="self"):
        pass

    assert [(depth, info.id) for depth, info in lineage(await store.list())] == [(0, "self")]


async def test_a_copy_keeps_the_times_and_the_metadata(store: Store) -> None:
    async with store.log("demo", meta={"instructions": "Be brief."}) as log:
        await log.append(user("apples"))
    other = MemoryStore()

    await copy(store, "demo", store, "fork")
    await copy(store, "demo", other)

    infos = [*await store.list(), *await other.list()]
    assert [info.meta for info in infos] == [{"instructions": "Be brief."}] * 3
    assert await store.times("fork") == await store.times("demo") == await other.times("demo")  # type: ignore[attr-defined]


async def test_search_and_copy_of_an_unknown_session_are_rejected(store: Store) -> None:
    await write_texts(store, "demo", "apples")

    with pytest.raises(StoreError, match="no session 'dmo'; there are: demo"):
        await store.search("apples", session="dmo")
    with pytest.raises(StoreError, match="no session 'dmo'"):
        await copy(store, "dmo", store, "x")
    for wrong in (-1, 2, 1.0, "1"):
        with pytest.raises(ValueError, match="has 1 messages; it cannot be forked at"):
            await copy(store, "demo", store, "x", at=wrong)  # type: ignore[arg-type]
    assert [info.id for info in await store.list()] == ["demo"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wrong", ["a\0b", "\ud800", "x" * 201])
async def test_a_copy_needs_a_valid_session_id(store: Store, wrong: str) -> None:
    await write_texts(store, "demo", "apples")

    with pytest.raises(ValueError, match="a session id must be a string of 1 to 200 bytes"):
        await copy(store, "demo", store, wrong)
    assert [info.id for info in await store.list()] == ["demo"]


async def test_every_store_returns_the_time_of_each_message(store: Store) -> None:
    (message,) = await write_texts(store, "demo", "apples")

    (hit,) = await store.search("apples")

    assert await store.times("demo") == {message.id: hit.at}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left", "a.jsonl"),
            "the store failed: a.jsonl: No space left",
        ),
        (OSError(errno.ENOSPC, "No space left"), "the store failed: No space left"),
        (OSError("the disk is gone"), "the store failed: the disk is gone"),
    ],
)
async def test_an_error_of_the_file_system_is_reported_without_none(
    error: OSError, message: str
) -> None:
    def fail() -> tuple[SessionInfo, ...]:
        raise error

    store = BlockingStore()
    store._list = fail

    with pytest.raises(StoreError) as caught:
        await store.list()

    assert str(caught.value) == message


async def test_a_log_of_a_deleted_session_is_empty_when_it_is_entered_again(
    store: Store, tmp_path: Path
) -> None:
    own = ExclusiveStore(tmp_path / "own.db")
    with contextlib.closing(own.database):
        for each in (store, own):
            log = each.log("demo")
            async with log:
                await log.append(user("apples"))
            await each.delete("demo")

            async with log:
                assert log.messages == ()
                await log.append(user("pears"))

            assert [message.text for message in await each.load("demo")] == ["pears"]


async def test_a_search_returns_up_to_20_hits_by_default(store: Store) -> None:
    await write_texts(store, "demo", *["apples"] * 21)

    assert len(await store.search("apples")) == 20


PICTURE = Image(data=b"x", media_type="image/png")


@pytest.mark.parametrize(
    ("content", "title"),
    [
        (["", " ", "Fix it.", "Now."], "Fix it."),
        ([Text(text=""), Text(text="Fix it.")], "Fix it."),
        ([PICTURE, Text(text="Look")], "Look"),
        (
            [PICTURE, Text(text=" "), "", File(data=b"x", media_type="a/b")],
            "[image, file]",
        ),
        ([Text(text=" ")], ""),
        ([], ""),
    ],
)
def test_a_title_is_the_first_text_or_names_the_kinds_of_the_parts(
    content: list[Any], title: str
) -> None:
    assert title_of(content) == title

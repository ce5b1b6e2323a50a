"""Records: changes that add up to a session."""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import Any

import pytest
from fakes.sessions import (
    fill,
    talk,
)

from glue import AssistantMessage, StopReason, user
from glue.messages import SCHEMA_VERSION
from glue.stores import Store
from glue.stores.records import (
    check_id,
    collector_paused,
    message_record,
    new_header,
    newer_header,
)


async def test_a_session_is_the_result_of_its_records(store: Store) -> None:
    ask, asked, found, told = talk()
    summary = user("so far", origin="summary")

    async with store.log("demo") as log:
        await log.extend((ask, asked, found, told))
        await log.amend(told.id, {"stop_reason": StopReason.MAX_TURNS, "meta": {"a": 1}})
        await log.insert(summary, found.id)
        await log.exclude([ask.id, "unknown"])
        await log.drop([asked.id, "unknown"])
        live = log.messages

    assert [message.id for message in live] == [ask.id, summary.id, found.id, told.id]
    assert [message.excluded for message in live] == [True, False, False, False]
    last = live[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.meta, last.text) == (StopReason.MAX_TURNS, {"a": 1}, told.text)
    assert await store.load("demo") == live


@pytest.mark.parametrize(
    "id", ["a/b", "../up", ".hidden", "with space", "ü", "%41", "A", "a" * 60, "-x"]
)
async def test_ids_may_contain_any_characters(store: Store, id: str) -> None:
    await fill(store, id, talk())

    assert [info.id for info in await store.list()] == [id]
    assert await store.load(id)


@pytest.mark.parametrize("id", ["", "x" * 201, "nul\0"])
async def test_an_invalid_id_is_rejected(store: Store, id: str) -> None:
    with pytest.raises(ValueError, match="session id"):
        store.log(id)


@pytest.mark.parametrize("wrong", ["", "nul\0", "x" * 201, "\ud800", 5])
async def test_every_method_rejects_an_invalid_id(store: Store, wrong: Any) -> None:
    for refused in (store.load, store.delete, partial(store.search, "x", role=None, session=wrong)):
        with pytest.raises(ValueError, match="a session id must be a string"):
            await (refused() if isinstance(refused, partial) else refused(wrong))
    with pytest.raises(ValueError, match="a session id must be a string"):
        store.log(wrong)


def test_the_garbage_collector_is_paused_only_if_it_was_enabled() -> None:
    states: list[bool] = []
    try:
        for before in (True, False):
            (gc.enable if before else gc.disable)()
            with collector_paused():
                states.append(gc.isenabled())
            states.append(gc.isenabled())
    finally:
        gc.enable()

    assert states == [False, True, False, False]


def test_times_are_stored_in_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.1234567)

    header, record = new_header("demo"), message_record(user("x"))

    assert header["created"] == record["at"] == 1_700_000_000.123457


def test_a_header_has_the_parent_and_the_metadata_only_if_there_are_any() -> None:
    plain, fork = new_header("demo"), new_header("demo", "above", 3, {"a": 1})

    assert set(plain) == {"type", "schema", "session", "created"}
    assert (fork["parent"], fork["forked_at"], fork["meta"]) == ("above", 3, {"a": 1})
    assert newer_header(plain) == newer_header({}) == ""
    assert newer_header({**plain, "schema": SCHEMA_VERSION + 1}) == (
        f"session 'demo' was written with schema {SCHEMA_VERSION + 1}, but this glue supports only "
        f"{SCHEMA_VERSION}: it can be read but not changed; upgrade glue-agents to continue it"
    )


@pytest.mark.parametrize("id", ["x" * 200, "ü" * 100, "\ud7ff", "\ue000", "\x01"])
def test_a_session_id_has_up_to_200_bytes(id: str) -> None:
    assert check_id(id) == id


@pytest.mark.parametrize("id", ["", "x" * 201, "ü" * 101, "a\0", "\ud800", "a\udfff", 5, None])
def test_an_id_that_is_not_up_to_200_bytes_of_text_is_rejected(id: Any) -> None:
    with pytest.raises(ValueError, match="a session id must be a string of 1 to 200 bytes of UTF"):
        check_id(id)

"""Records: changes that add up to a session."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from fakes.sessions import (
    fill,
    talk,
)

from glue import AssistantMessage, StopReason, user
from glue.stores import Store


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

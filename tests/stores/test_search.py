"""Search: queries mean the same in every kind of store."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from fakes.sessions import (
    fill,
    talk,
    write_texts,
)

from glue import AssistantMessage, Text, ToolCall, ToolMessage, user
from glue.stores import Store
from glue.stores.search import Query


async def test_search_finds_all_words_with_snippet_and_filters(store: Store) -> None:
    await fill(store, "one", talk())
    await fill(store, "two", (user("Toronto has a tower, and the tower has a name"),))

    assert {hit.session for hit in await store.search("toronto")} == {"one", "two"}
    assert [hit.session for hit in await store.search("toronto tower")] == ["two"]
    assert [hit.session for hit in await store.search('"has a name"')] == ["two"]
    assert await store.search('"a has name"') == ()
    assert len(await store.search("tor*")) == 3  # two prompts and the arguments of a call
    assert await store.search("tor") == ()
    assert [hit.role for hit in await store.search("toronto", session="one", role="assistant")] == [
        "assistant"
    ]
    assert len(await store.search("toronto", limit=1)) == 1
    (hit,) = await store.search("name", session="two")
    assert "[name]" in hit.snippet
    assert await store.search("toronto", until=hit.at - 3600) == ()
    assert len(await store.search("toronto", since=hit.at - 3600)) == 3
    assert hit.message_id == (await store.load("two"))[0].id


async def test_a_search_can_be_limited_to_the_messages_of_one_role(store: Store) -> None:
    call = ToolCall(id="c1", name="look", arguments="{}")
    await fill(
        store,
        "demo",
        (
            user("apples"),
            AssistantMessage(content=(Text(text="apples"), call)),
            ToolMessage(call_id="c1", name="look", content=(Text(text="apples"),)),
        ),
    )

    for role in ("user", "assistant", "tool"):
        assert [hit.role for hit in await store.search("apples", role=role)] == [role]
    assert {hit.role for hit in await store.search("apples")} == {"user", "assistant", "tool"}


@pytest.mark.parametrize("query", ["a AND (", "col:x", "-x", "'", "NEAR(a b)", 'tower"', "*x"])
async def test_search_operators_are_ordinary_words(store: Store, query: str) -> None:
    await fill(store, "one", talk())

    assert await store.search(query + " zzz") == ()


async def test_a_query_without_words_is_rejected(store: Store) -> None:
    with pytest.raises(ValueError, match="at least one word"):
        await store.search(' "" * ')


async def test_search_finds_messages_as_they_are_after_changes(store: Store) -> None:
    one, two = user("apples"), user("pears")
    async with store.log("demo") as log:
        await log.extend((one, two))
        await log.drop([one.id])
        await log.amend(two.id, {"content": [{"type": "text", "text": "plums"}]})

    assert await store.search("apples") == ()
    assert await store.search("pears") == ()
    assert len(await store.search("plums")) == 1


@pytest.mark.parametrize(
    ("query", "count"),
    [
        *(
            ("apples)", 1),
            ("-apples", 1),
            ("snake", 1),
            ("case", 1),
            ('"red apples"', 1),
            ("e-mail", 1),
        ),
        *(
            ('"e mail"', 1),
            ("mail e", 1),
            ("app", 0),
            ("app*", 1),
            ('"apples red"', 0),
            ("x" * 5_000, 0),
        ),
        *(("über", 1), ("ber", 0)),
    ],
)
async def test_words_are_split_in_the_same_way_in_every_store(
    store: Store, query: str, count: int
) -> None:
    await write_texts(store, "demo", "some red\napples", "a snake_case e-mail", "über")

    assert len(await store.search(query)) == count


async def test_equal_matches_are_returned_newest_first(store: Store) -> None:
    for name in ("one", "two", "three"):
        await write_texts(store, name, "apples")

    assert [hit.session for hit in await store.search("apples", limit=2)] == ["three", "two"]


async def test_words_at_the_end_of_a_long_text_are_found(store: Store) -> None:
    await write_texts(store, "demo", "x" * 1_000_000 + " apples " + "word " * 20_000 + "pears")

    assert len(await store.search("apples")) == len(await store.search("pears")) == 1


@pytest.mark.parametrize(
    "query", ["東京", "京", "タワー", "서울", "tower", '"東京 tower"', "東京タ*"]
)
async def test_words_are_found_in_scripts_without_spaces(store: Store, query: str) -> None:
    await write_texts(
        store, "demo", "これは東京タワーです", "나는 서울에서 삽니다", "the 東京 tower", "nothing"
    )

    hits = await store.search(query)

    expected = {
        "東京": 2,
        "京": 2,
        "タワー": 1,
        "서울": 1,
        "tower": 1,
        '"東京 tower"': 1,
        "東京タ*": 1,
    }[query]
    assert len(hits) == expected
    assert all("[" in hit.snippet and "\u200b" not in hit.snippet for hit in hits)
    assert await store.search("京東") == ()


@pytest.mark.parametrize(
    ("query", "snippet"),
    [
        ("need*", "…" + "x " * 29 + "x [needles] or pins " + "y " * 21 + "y…"),
        ("pins needles", "…" + "x " * 29 + "x [needles] or [pins] " + "y " * 21 + "y…"),
        ("世界", "你好[世界]和平"),
    ],
)
async def test_snippets_are_the_same_in_every_store(store: Store, query: str, snippet: str) -> None:
    await write_texts(
        store, "demo", "x " * 99 + "needles or pins" + " y" * 99, "你好世界和平", "nothing"
    )

    (hit,) = await store.search(query)

    assert hit.snippet == snippet


async def test_a_limit_has_the_same_effect_in_every_store(store: Store) -> None:
    await write_texts(store, "demo", "apples", "apples", "apples")

    assert [len(await store.search("apples", limit=limit)) for limit in (0, 1, 99)] == [0, 1, 3]
    assert len(await store.search("apples", limit=2**70)) == 3
    for wrong in (-1, True, "3"):
        with pytest.raises(ValueError, match="limit must be a number of hits"):
            await store.search("apples", limit=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["yesterday", float("nan")])
async def test_an_invalid_time_is_rejected_by_every_store(store: Store, wrong: Any) -> None:
    await write_texts(store, "demo", "apples")

    for refused in (partial(store.search, since=wrong), partial(store.search, until=wrong)):
        with pytest.raises(ValueError, match="must be a time in seconds since 1970"):
            await refused("apples")


@pytest.mark.parametrize(
    ("query", "count"), [("caf\u00e9", 2), ("cafe\u0301", 2), ("cafe", 1), ("\ud55c\uad6d", 2)]
)
async def test_composed_and_decomposed_accents_are_equal(
    store: Store, query: str, count: int
) -> None:
    whole, in_parts = (
        "a caf\u00e9 \ud55c\uad6d\uc5b4",
        "a cafe\u0301 \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165",
    )
    await write_texts(store, "demo", whole, in_parts, "a cafe")

    assert len(await store.search(query)) == count


async def test_a_nul_character_separates_words(store: Store) -> None:
    result = ToolMessage(call_id="c", name="t", content=user("a\0b apples\0pears").content)
    async with store.log("demo") as log:
        await log.append(result)

    assert await store.load("demo") == (result,)
    assert len(await store.search("apples\0pears")) == len(await store.search("pears")) == 1
    assert len(await store.search("a\0b")) == 1


@pytest.mark.parametrize(
    "text", ['a "quoted" word', "back\\slash", "line\nbreak", "Größe ÄPFEL", "tab\tbed", "naïve"]
)
async def test_words_that_json_escapes_are_found(store: Store, text: str) -> None:
    await write_texts(store, "demo", text, "else")

    for word in text.replace('"', " ").replace("\\", " ").split():
        assert len(await store.search(word)) == 1, word
        assert len(await store.search(word.upper() if word != "Größe" else word.lower())) == 1, word


def test_the_search_of_a_session_stops_at_the_wanted_number_of_hits() -> None:
    messages = iter([(user("one"), 1.0), (user("none"), 2.0), (user("one"), 3.0)])

    hits = Query("one").find("demo", messages, most=1)

    assert [hit.at for hit in hits] == [1.0]
    assert len(list(messages)) == 1  # one more message was taken, and not searched

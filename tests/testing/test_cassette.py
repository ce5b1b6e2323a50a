"""Cassettes: recorded replies are replayed, and requests that differ are reported."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from glue import Message, Request, Usage, run, user
from glue.errors import ProviderError, ReplayError, StoreError
from glue.messages import ToolSpec
from glue.provider import Attempt, ProviderEvent
from glue.testing import Cassette, Recorder, Replay, Script, calls, fail, say
from glue.testing.cassette import difference

KEY = "sk-" + "a1B2" * 8


async def ask(provider: Script | Recorder | Replay, text: str) -> list[ProviderEvent]:
    return [
        event
        async for event in provider.stream(Request(messages=(user(text),), system="Be brief."))
    ]


async def test_a_replay_streams_the_recorded_events(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    usage = Usage(input=3, output=4, cost=0.5)
    script = Script(
        say("Hello", chunk=2, thinking="hm", usage=usage), calls("noop", "noop"), name="acme"
    )
    recorder = Recorder(script, path)
    recorded = [await ask(recorder, "one"), await ask(recorder, "two")]

    replay = Replay(path)
    replayed = [await ask(replay, "one"), await ask(replay, "two")]

    assert replayed == recorded
    assert replay.name == recorder.name == "acme"
    replay.assert_used_up()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text().splitlines()) == 3


async def test_a_run_with_tools_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    history: list[Message] = [user("go")]
    first = await run(Recorder(Script(calls("nope"), "done"), path), history)

    second = await run(Replay(path), [user("go")])

    assert second.text == first.text == "done"
    assert second.requests == 2


async def test_a_recorded_error_is_raised_with_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    error = fail("rate_limited", "slow down", status=429, retry_after=2.5, model="m")
    with pytest.raises(ProviderError):
        await ask(Recorder(Script(error), path), "one")

    with pytest.raises(ProviderError, match="script: slow down") as caught:
        await ask(Replay(path), "one")

    assert (caught.value.kind, caught.value.status, caught.value.retry_after) == (
        "rate_limited",
        429,
        2.5,
    )
    assert caught.value.retryable
    assert str(caught.value) == str(error)


class Retrying:
    name = "retrying"

    async def stream(self, request: Request):  # type: ignore[no-untyped-def]
        yield Attempt(provider="a", kind="overloaded", usage=Usage(input=1))


async def test_failed_attempts_are_replayed(tmp_path: Path) -> None:
    recorded = [
        event async for event in Recorder(Retrying(), tmp_path / "r").stream(Request(messages=()))
    ]

    assert [
        event async for event in Replay(tmp_path / "r").stream(Request(messages=()))
    ] == recorded


async def test_by_order_the_first_difference_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder = Recorder(Script("a", "b"), path)
    await ask(recorder, "one")
    await ask(recorder, "two")
    replay = Replay(path)
    await ask(replay, "one")

    with pytest.raises(ReplayError) as caught:
        await ask(replay, "three")

    text = str(caught.value)
    assert "run.jsonl: request 2 differs from request 2 of the cassette" in text
    assert 'messages[0].content[0].text: recorded "two", now "three"' in text
    with pytest.raises(ReplayError, match="1 of 2 recorded requests were not sent"):
        replay.assert_used_up()


async def test_one_request_too_many_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await ask(Recorder(Script("a"), path), "one")
    replay = Replay(path)
    await ask(replay, "one")

    with pytest.raises(ReplayError, match="request 2 comes after the last of the 1 recorded"):
        await ask(replay, "one")


async def test_by_hash_the_order_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder = Recorder(Script("a", "b"), path)
    one, two = await ask(recorder, "one"), await ask(recorder, "two")
    replay = Replay(path, by="hash")

    assert await ask(replay, "two") == two
    assert await ask(replay, "one") == one
    with pytest.raises(ReplayError, match="request 3"):
        await ask(replay, "one")


@pytest.mark.parametrize(
    ("recorded", "now", "text"),
    [
        ("abc", "abcd", ': recorded "abc", now "abcd"'),
        ("x" * 40, "x" * 41, f': recorded "...{"x" * 30}", now "...{"x" * 31}"'),
        ([1], "1", ': recorded [1], now "1"'),
        ({"a": 1}, [1], ': recorded {"a": 1}, now [1]'),
        ([1, 2], [1], ": recorded 2 items, now 1 item"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b: recorded 2, now 3"),
        ({"a": 1}, {"a": 1, "b": 2}, "b: recorded nothing, now 2"),
        ("x" * 90, 1, f': recorded "{"x" * 76}..., now 1'),
        ("x" * 78, 1, f': recorded "{"x" * 78}", now 1'),
    ],
)
def test_a_difference_names_its_place_and_both_values(recorded: Any, now: Any, text: str) -> None:
    assert difference(recorded, now) == text


def test_the_difference_of_long_texts_is_shown_where_it_begins() -> None:
    text = f"{'Answer in one line. ' * 20}Be "

    short = difference("21 degrees", "70 degrees")
    long = difference({"system": f"{text}brief."}, {"system": f"{text}rude."})

    assert short == ': recorded "21 degrees", now "70 degrees"'
    shared = text[-30:]
    assert long == f'system: recorded "...{shared}brief.", now "...{shared}rude."'


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        (Request(messages=(user("hi"),), system="b"), 'system: recorded "a", now "b"'),
        (
            Request(messages=(user("hi"), user("there")), system="a"),
            "messages: recorded 1 item, now 2 items",
        ),
        (
            Request(messages=(user("hi"),), system="a", temperature=1),
            "temperature: recorded nothing, now 1",
        ),
        (
            Request(messages=(user("hi"),), system="a", tools=(ToolSpec(name="x"),)),
            "tools: recorded 0 items, now 1 item",
        ),
    ],
)
async def test_a_difference_in_any_part_of_a_request_is_reported(
    tmp_path: Path, changed: Request, where: str
) -> None:
    path = tmp_path / "run.jsonl"
    async for _ in Recorder(Script("a"), path).stream(Request(messages=(user("hi"),), system="a")):
        pass

    with pytest.raises(ReplayError) as caught:
        async for _ in Replay(path).stream(changed):
            pass

    assert where in str(caught.value)


async def test_keys_are_masked_and_the_masked_request_still_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "messages-and-more")
    path = tmp_path / "run.jsonl"
    prompt = f"my keys: {KEY} and messages-and-more"
    await ask(Recorder(Script(f"I saw {KEY}"), path), prompt)

    assert KEY not in path.read_text()
    assert "and-more" not in path.read_text()
    assert path.read_text().count("***") == 4
    assert await ask(Replay(path), prompt)


async def test_a_reply_that_was_closed_early_is_recorded_in_part(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    stream = Recorder(Script(say("abc", chunk=1)), path).stream(Request(messages=(user("x"),)))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]

    exchange = json.loads(path.read_text().splitlines()[1])

    assert exchange["events"] == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    "text", ["", "{}\n", "nonsense", '{"type":"cassette","schema":9,"provider":"x"}']
)
def test_a_file_that_is_not_a_cassette_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)

    with pytest.raises(ReplayError):
        Replay(tmp_path / "x")


HEADER = '{"type":"cassette","schema":1,"provider":"x"}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            '{"type":"exchange","number":1e999,"events":[],"request":{"messages":[]}}',
            "the exchange is damaged",
        ),
        ('{"type":"exchange","number":1,"events":[],"request":{}}', "the exchange is damaged"),
        (
            '{"type":"exchange","number":1,"events":[],"request":{"messages":[1]}}',
            "a message in the recorded request is not a JSON object",
        ),
        (
            '{"type":"exchange","number":1,"events":{},"request":{"messages":[]}}',
            "the exchange is damaged",
        ),
        ("{}", "the line has no field 'type'"),
        ("[]", ""),
        ('{"type":', "Expecting value"),
        ("[" * 100_000, ""),
    ],
)
def test_a_damaged_line_is_reported_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "x").write_text(f"{HEADER}\n\n{line}\n")

    with pytest.raises(ReplayError, match=f"x is not a cassette: line 3: .*{reason}"):
        Replay(tmp_path / "x")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"events": [{"type": "text"}]}, "text"),
        ({"events": [{"type": "text", "text": 3}]}, "text must be a text"),
        ({"events": [{"type": "tune", "text": "a"}]}, "'tune' is missing or unknown"),
        ({"events": [{"text": "a"}]}, "'type' is missing or unknown"),
        ({"events": ["text"]}, "has no attribute"),
        ({"events": [{"type": "done"}]}, "'message' is missing or unknown"),
        (
            {"events": [{"type": "done", "message": {"role": "x"}}]},
            "a message has an unknown role",
        ),
        (
            {"events": [{"type": "done", "message": {"role": "user", "content": []}}]},
            "the message of the event 'done' is not a reply",
        ),
        ({"error": {"message": "x"}}, "'kind' is missing or unknown"),
        ({"error": {"message": "x", "kind": "odd"}}, "the kind of error 'odd' is unknown"),
        ({"error": "broken"}, ""),
    ],
)
@pytest.mark.parametrize("in_memory", [False, True])
async def test_a_damaged_reply_is_reported_before_the_first_event(
    tmp_path: Path, change: dict[str, Any], reason: str, in_memory: bool
) -> None:
    path = tmp_path / "run.jsonl"
    await ask(Recorder(Script("a"), path), "one")
    header, exchange = map(json.loads, path.read_text().splitlines())
    damaged = {**exchange, **change}
    path.write_text(f"{json.dumps(header)}\n\n{json.dumps(damaged)}\n")
    replay = Replay(Cassette(exchanges=[damaged], provider="acme") if in_memory else path)
    where = "acme" if in_memory else "run.jsonl, line 3"

    with pytest.raises(ReplayError, match=f"^{where}: the recorded reply is damaged: .*{reason}"):
        await anext(replay.stream(Request(messages=(user("one"),), system="Be brief.")))


async def test_an_error_recorded_by_an_older_version_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(ProviderError):
        await ask(Recorder(Script(fail("quota", "no money", code="spent")), path), "one")
    with pytest.raises(ProviderError) as new:
        await ask(Replay(path), "one")
    path.write_text(path.read_text().replace('"code": "spent", ', ""))

    with pytest.raises(ProviderError, match="no money") as old:
        await ask(Replay(path), "one")

    assert (new.value.code, old.value.code) == ("spent", None)


def test_a_missing_cassette_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="cannot be read"):
        Replay(tmp_path / "missing.jsonl")
    with pytest.raises(ValueError, match="'order' or 'hash'"):
        Replay(tmp_path / "missing.jsonl", by="chance")  # type: ignore[arg-type]


async def test_a_cassette_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        await ask(Recorder(Script("a"), tmp_path), "one")


async def test_two_recorders_can_share_a_cassette(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "both.jsonl")
    one = await ask(Recorder(Script("a", name="one"), cassette), "x")
    two = await ask(Recorder(Script("b", name="two"), cassette), "y")

    replay = Replay(tmp_path / "both.jsonl", by="hash")

    assert await ask(replay, "y") == two
    assert await ask(replay, "x") == one
    replay.assert_used_up()


async def test_a_cassette_without_a_file_stays_in_memory() -> None:
    cassette = Cassette()
    recorded = await ask(Recorder(Script("a"), cassette), "x")

    assert await ask(Replay(cassette), "x") == recorded


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"type": "cassette", "schema": 1}, "the line is not the header of a cassette"),
        ({"schema": 1, "provider": "x"}, "the line is not the header of a cassette"),
        ({"type": "cassette", "provider": "x"}, "the header has no schema number"),
        (
            {"type": "cassette", "provider": "x", "schema": 2},
            "the cassette has schema 2, but this glue supports only 1; upgrade glue-agents",
        ),
    ],
)
def test_a_file_with_another_header_is_refused(tmp_path: Path, header: Any, why: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps(header))

    with pytest.raises(ReplayError) as caught:
        Cassette.load(path)

    assert str(caught.value) == f"{path} is not a cassette: line 1: {why}"

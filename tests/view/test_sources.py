"""Transcripts from sessions, cassettes, events and lists of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.transcripts import parse, reply, result

import glue
from glue.cli.printer import EventWriter
from glue.errors import StoreError
from glue.messages import (
    Message,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    messages_to_json,
    user,
)
from glue.testing import Recorder, Script, call, calls, fail, repeat, say
from glue.view.page import articles, page
from glue.view.sources import EventReader, read_file, read_session, usage_of
from glue.view.transcript import Note, ShownMessage, ShownReply, arrange

CASSETTE_HEAD = b'{"type": "cassette", "schema": 1, "provider": "x"}\n'
DAMAGED_EXCHANGE = b'{"type": "exchange", "number": 1e999, "events": [], "request": {}}'


@glue.tool
def look(path: str) -> str:
    """Look at a file."""
    return f"inside {path}"


@pytest.mark.parametrize("kind", ["files", "sessions.db"])
async def test_a_session_is_read_with_its_times(tmp_path: Path, kind: str) -> None:
    store = (
        glue.FileStore(tmp_path / kind) if kind == "files" else glue.SQLiteStore(tmp_path / kind)
    )
    agent = glue.Agent(Script(calls(call("look", {"path": "a.py"})), "It is there."), tools=[look])
    await agent.session("demo", store=store).prompt("Is a.py there?")

    read = await read_session(store, "demo")

    items = [item for item in read.items if isinstance(item, ShownMessage)]
    assert [item.message.text for item in items] == [
        "Is a.py there?",
        "",
        "inside a.py",
        "It is there.",
    ]
    assert all(item.at is not None for item in items)
    assert read.created is not None
    assert "It is there." in page(read)


async def test_messages_copied_by_a_fork_have_no_times(tmp_path: Path) -> None:
    store = glue.FileStore(tmp_path)
    session = glue.Agent(Script("one", "two")).session("demo", store=store)
    await session.prompt("first")
    fork = await session.fork(id="other")
    await fork.prompt("second")

    read = await read_session(store, "other")

    assert [item.at is None for item in read.items if isinstance(item, ShownMessage)] == [
        True,
        True,
        False,
        False,
    ]
    assert read.parent == "demo"


async def test_a_session_is_read_with_its_failed_attempts(tmp_path: Path) -> None:
    store = glue.FileStore(tmp_path)
    provider = glue.with_failover(Script(fail("overloaded", "HTTP 529")), Script("Here."))
    await glue.Agent(provider).session("demo", store=store).prompt("Hello?")

    item = (await read_session(store, "demo")).items[-1]

    assert isinstance(item, ShownMessage)
    assert [attempt.kind for attempt in item.attempts] == ["overloaded"]
    assert "HTTP 529" in page(await read_session(store, "demo"))


async def test_a_session_is_read_with_its_instructions_and_tools(tmp_path: Path) -> None:
    @glue.tool
    def look(city: str) -> str:
        """Look at a city."""
        return city

    for store in (glue.FileStore(tmp_path / "files"), glue.SQLiteStore(tmp_path / "s.db")):
        agent = glue.Agent(Script("hi"), tools=[look], instructions="Be brief.")
        await agent.session("one", store=store).prompt("hello")

        transcript = await read_session(store, "one")

        assert transcript.system == "Be brief."
        assert [(tool.name, tool.description) for tool in transcript.tools] == [
            ("look", "Look at a city.")
        ]


async def test_a_cassette_is_read_as_one_conversation(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    script = Script(
        calls(call("look", {"path": "a.py"})), say("It is", stop="max_tokens"), " there."
    )
    agent = glue.Agent(Recorder(script, path), tools=[look], instructions="Be brief.")
    await agent.run("Is a.py there?")

    read = read_file(path)

    texts = [item.message.text for item in read.items if isinstance(item, ShownMessage)]
    assert texts[:4] == ["Is a.py there?", "", "inside a.py", "It is"]
    assert texts[-1] == " there."
    assert len(texts) == 6
    assert read.system == "Be brief."
    assert [tool.name for tool in read.tools] == ["look"]


async def test_a_cassette_is_read_with_its_failures_and_attempts(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    provider = glue.with_failover(
        Script(repeat(fail("overloaded", "HTTP 529")), name="one"),
        Script("Here.", fail("auth", "no key")),
    )
    agent = glue.Agent(Recorder(provider, path))
    await agent.run("Hello?")
    with pytest.raises(glue.GlueError):
        await agent.run("And now?")

    read = read_file(path)

    shown = "".join(parse(page(read)).text)
    assert "HTTP 529" in shown
    assert "script: auth" in shown
    assert "Conversation 2 of 2" in shown


def test_events_of_a_run_are_read(tmp_path: Path) -> None:
    asked = reply(
        ToolCall(id="c", name="look", arguments="{}"), stop_reason=glue.StopReason.TOOL_USE
    )
    answered = result("c", "found")
    events = [
        {"type": "run_start", "run_id": "1"},
        {
            "type": "attempt",
            "provider": "one",
            "kind": "timeout",
            "detail": "slow",
            "delay": 1.5,
            "seconds": "?",
        },
        {"type": "message_end", "message": messages_to_json([asked])[0]},
        {"type": "tool_end", "message": messages_to_json([answered])[0], "seconds": 0.25},
        {"type": "compacted", "before": 900, "after": 90, "removed": 7},
        {"type": "of_a_newer_version"},
        {"type": "run_end", "outcome": "failed"},
        {
            "type": "result",
            "outcome": "failed",
            "requests": 2,
            "seconds": 1.25,
            "error": {"message": "out of credit"},
        },
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))

    shown = "".join(parse(page(read_file(path))).text)

    for text in (
        "timeout",
        "next try after 1.5 s",
        "250 ms",
        "compacted: before 900",
        "failed, 2 requests, 1.2 s: out of credit",
    ):
        assert text in shown
    assert shown.count("The run ended") == 1


async def test_steps_of_a_sub_agent_are_nested_in_its_call(tmp_path: Path) -> None:
    @glue.tool
    def look(city: str) -> str:
        """Look at a city."""
        raise glue.ToolError(f"{city} is in the fog")

    child = glue.Agent(
        Script(calls(call("look", {"city": "Bergen"})), "It is foggy."), tools=[look]
    )
    parent = glue.Agent(
        Script(calls(call("guide", {"prompt": "Bergen?"})), "Fog."),
        tools=[child.as_tool("guide", "Knows cities.")],
        instructions="Be brief.",
    )
    lines: list[str] = []
    await parent.run("And Bergen?", on_event=EventWriter(lines.append))
    (tmp_path / "events.jsonl").write_text("".join(lines))

    transcript = read_file(tmp_path / "events.jsonl")
    html = page(transcript)

    assert transcript.system == "Be brief."
    assert [tool.name for tool in transcript.tools] == ["guide"]
    assert "And Bergen?" in html
    steps = html.partition('<div class="steps">')[2]
    assert "look" in steps
    assert "It is foggy." in steps
    assert '<span class="why" dir="auto">Bergen is in the fog</span>' in steps
    assert "2 steps" in html


def test_the_error_of_a_failed_run_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(
        '{"type": "run_start"}\n{"type": "error", "error": {"message": "no key"}, "exit_code": 2}\n'
    )

    assert "The run ended: failed: no key" in "".join(parse(page(read_file(path))).text)


def test_one_message_in_a_file_of_lines_is_a_transcript(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text(json.dumps(messages_to_json([user("hi")])[0]) + "\n")

    read = read_file(path)

    assert [item.message.text for item in read.items if isinstance(item, ShownMessage)] == ["hi"]


def test_the_log_of_a_killed_run_is_read_up_to_its_incomplete_last_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ended = {"type": "message_end", "message": messages_to_json([reply(Text(text="hello"))])[0]}
    path.write_text(json.dumps(ended) + '\n{"type": "tool_sta')

    read = read_file(path)

    assert [item.message.text for item in read.items if isinstance(item, ShownMessage)] == ["hello"]


@pytest.mark.parametrize(
    "form",
    [
        json.dumps,
        lambda messages: "\n".join(map(json.dumps, messages)),
        lambda messages: json.dumps({"messages": messages}),
    ],
)
def test_messages_are_read_from_a_list_from_lines_and_from_an_object(
    tmp_path: Path, form: Callable[[object], str]
) -> None:
    path = tmp_path / "messages.json"
    path.write_text(form(messages_to_json([user("hi"), reply(Text(text="hello"))])))

    read = read_file(path)

    assert [item.message.text for item in read.items if isinstance(item, ShownMessage)] == [
        "hi",
        "hello",
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"hello", "contains no transcript"),
        (b"", "contains no transcript"),
        (b'{"type": "run_start"}\n' + b"[" * 100_000, "line 2: not valid JSON"),
        (b'{"type": "run_start"}\n{"type": \n', "line 2: not valid JSON; delete the line"),
        (b"\xff\xfe", "is not a text file"),
        (b"{}", "contains no transcript"),
        (b'{"type": "nonsense"}', "contains no transcript"),
        (b'[{"role": "system"}]', "a message has an unknown role"),
        (
            b'[{"role": "user", "content": [{"type": "text", "text": 5}]}]',
            """the field 'text' of a message must be a text, not 5""",
        ),
        (
            b'[{"role": "user", "content": [{"type": "text", "text": "%s"}], "id": [%s]}]'
            % (b"x", b"1, " * 50 + b"1"),
            f"the field 'id' of a message must be a text, not [{'1, ' * 26}1",
        ),
        (
            CASSETTE_HEAD + b'{"type": "exchange", "number": 1}',
            "is not a cassette",
        ),
        (b"SQLite format 3\0", "is a store of many sessions"),
        (b'{"type": "run_start"}\n{"type": "message_end"}', "is damaged: KeyError('message')"),
        (
            b'{"type": "run_start"}\n{"type": "tool_end", "message": 1e999}',
            "a message must be an object",
        ),
        (
            CASSETTE_HEAD + DAMAGED_EXCHANGE,
            "line 2: the exchange is damaged",
        ),
    ],
)
def test_other_files_are_refused_with_one_line(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)

    with pytest.raises(StoreError, match=re.escape(why)) as caught:
        read_file(path)

    assert "\n" not in str(caught.value)


def test_usage_that_is_not_a_number_counts_as_unknown(tmp_path: Path) -> None:
    usage = {"input": "many", "output": None, "cost": "free", "cache_read": True}
    messages = [
        {
            "role": "assistant",
            "content": [],
            "usage": usage,
            "meta": {"attempts": [1, {"delay": "x", "usage": 3}]},
        }
    ]
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(messages))

    assert "0 → 0 tokens" in page(read_file(path))


@pytest.mark.parametrize(
    "odd", ["1e999", "NaN", "1" + "0" * 400, "-1e999", "true", '"x"', "[]", "{}", "null"]
)
def test_infinite_huge_and_non_numeric_figures_are_left_out(tmp_path: Path, odd: str) -> None:
    message = json.dumps(messages_to_json([reply(Text(text="hello"), meta={"usage": 0})])[0])
    result = json.dumps(
        messages_to_json([ToolMessage(call_id="c", name="n", content=(), meta={"usage": 0})])[0]
    )
    odd_reply = '{"role": "assistant", "content": [], "meta": ODD, "usage": {"cost": ODD}}'
    lines = (
        '{"type": "attempt", "provider": "one", "delay": ODD, "seconds": ODD}',
        '{"type": "attempt", "provider": "one", "next_cap": ODD, "usage": ODD}',
        '{"type": "message_end", "message": MESSAGE}'.replace("MESSAGE", message),
        '{"type": "message_end", "message": ODD_REPLY}'.replace("ODD_REPLY", odd_reply),
        '{"type": "tool_end", "seconds": ODD, "message": MESSAGE}'.replace(
            "MESSAGE", result.replace(": 0", ": ODD")
        ),
        '{"type": "result", "outcome": "done", "requests": ODD, "seconds": ODD, "error": ODD}',
    )
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(lines).replace("ODD", odd))

    shown = "".join(parse(page(read_file(path))).text)

    assert "The run ended: done" in shown


def test_calls_of_a_live_run_are_shown_as_running_until_they_end() -> None:
    asked = reply(
        ToolCall(id="c1", name="look", arguments="{}"),
        ToolCall(id="c2", name="look", arguments="{}"),
    )
    stored = [ShownMessage(message=user("go")), ShownMessage(message=asked)]
    reader = EventReader(stored, live=True)

    def running() -> int:
        return "".join(html for _, html in articles(arrange(reader.items))).count("in progress</b>")

    before = running()
    for call_id in ("c1", "c2"):  # a paused run continues with the calls of its stored reply
        reader.add({"type": "tool_start", "call": {"id": call_id}})
    during = running()
    message = messages_to_json([result("c1", "found")])[0]
    reader.add({"type": "tool_end", "message": message})
    after = running()
    reader.end()

    assert (before, during, after, running()) == (0, 2, 1, 0)


def test_no_call_is_running_after_the_end_of_a_run() -> None:
    asked = reply(ToolCall(id="c1", name="look", arguments="{}"))
    reader = EventReader(live=True)

    reader.add({"type": "message_end", "message": messages_to_json([asked])[0]})
    reader.add({"type": "run_end", "outcome": "cancelled"})

    [item, _] = reader.items
    assert isinstance(item, ShownMessage)
    assert item.running == frozenset()


def test_calls_of_a_new_live_reply_are_shown_as_running_before_they_start() -> None:
    whole = ToolCall(id="c1", name="look", arguments="{}")
    cut = ToolCall(id="c2", name="look", arguments="{", complete=False)
    event = {"type": "message_end", "message": messages_to_json([reply(whole, cut)])[0]}

    for live, running in ((True, {"c1"}), (False, set())):
        reader = EventReader(live=live)
        reader.add(event)
        [item] = reader.items
        assert isinstance(item, ShownMessage)
        assert item.running == running


def event(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, **fields}


def ended(message: Message) -> dict[str, Any]:
    return event("message_end", message=messages_to_json([message])[0])


def items_after(*events: dict[str, Any]) -> list[ShownMessage | Note]:
    reader = EventReader()
    for each in events:
        reader.add(each)
    return reader.items


def notes_after(*events: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item.kind, item.text) for item in items_after(*events) if isinstance(item, Note)]


@pytest.mark.parametrize(
    ("value", "kept"), [(10**15 - 1, 10**15 - 1), (10**15, 0), (-(10**15), 0), (True, 0), (3, 3)]
)
def test_figures_of_a_quadrillion_are_left_out(value: Any, kept: int) -> None:
    usage = usage_of({"input": value})

    assert usage is not None
    assert usage.input == kept


def test_a_usage_is_its_own_usage() -> None:
    usage = Usage(input=3, output=1, cost=0.5)

    assert usage_of(usage) == usage
    assert usage_of([usage]) is usage_of(None) is usage_of("x") is None


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [("done", "event"), ("wrapped_up", "event"), ("paused", "event"), ("halted", "failed")],
)
def test_the_end_of_a_run_is_a_note(outcome: str, kind: str) -> None:
    assert notes_after(event("run_end", outcome=outcome)) == [(kind, f"The run ended: {outcome}")]


def test_events_that_do_not_end_a_run_have_no_note_of_the_end() -> None:
    assert notes_after(event("run_end"), event("turn_end", outcome="done")) == []


def test_a_result_replaces_the_end_of_its_own_run_only() -> None:
    first = event("result", outcome="done", requests=1, seconds=0.5)
    second = (event("run_end", outcome="failed"), event("error", error={"message": "no key"}))

    notes = notes_after(first, ended(user("again")), *second)

    assert [text for _, text in notes] == [
        "The run ended: done, 1 request, 500 ms",
        "The run ended: failed: no key",
    ]


def test_failed_attempts_belong_to_the_next_reply_or_to_the_end_of_the_run() -> None:
    tried = event("attempt", kind="timeout")

    items = items_after(
        tried,
        ended(user("go")),
        tried,
        ended(reply(Text(text="a"))),
        ended(reply(Text(text="b"))),
        tried,
        event("run_end", outcome="failed"),
        event("result", outcome="failed"),
    )

    assert [len(item.attempts) for item in items] == [0, 2, 0, 0]


def test_a_discarded_reply_is_left_out() -> None:
    assert items_after(ended(reply(Text(text="a"), meta={"discarded": True}))) == []


def test_a_pending_call_of_a_sub_agent_waits_in_the_call_that_started_it() -> None:
    asked = reply(ToolCall(id="c1", name="look", arguments="{}"), meta={"pending": ["damaged"]})
    waiting = event("tool_pending", call={"id": "c1/inner"})

    items = items_after(waiting, ended(asked), waiting, event("tool_pending", call="?"))
    also = items_after(ended(asked), waiting, event("tool_pending", call={"id": "c2"}))

    for found, ids in ((items, {"c1"}), (also, {"c1", "c2"})):
        [block] = arrange(found)
        assert isinstance(block, ShownReply)
        assert block.waiting == ids
        assert block.shown.running == frozenset()


def test_a_call_starts_in_the_last_reply() -> None:
    start = event("tool_start", call={"id": "c1"})
    replies = [ended(reply(Text(text=text))) for text in "ab"]

    items = items_after(start, *replies, ended(user("x")), start)

    assert [item.running for item in items if isinstance(item, ShownMessage)] == [
        frozenset(),
        frozenset({"c1"}),
        frozenset(),
    ]


def test_explanations_are_notes_without_empty_values() -> None:
    given = event("limit_reached", kind="turns", used=0, max=None, why="")

    assert notes_after(given) == [("event", "limit reached: kind turns, used 0")]


def exchange(
    number: int, messages: list[Message], *events: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    request = {"messages": messages_to_json(messages)}
    return event("exchange", number=number, request=request, events=list(events), **fields)


def done(message: Message) -> dict[str, Any]:
    return event("done", message=messages_to_json([message])[0])


def cassette(path: Path, *exchanges: dict[str, Any]) -> list[str]:
    """Return the texts of the items of a cassette."""
    path.write_bytes(CASSETTE_HEAD + "\n".join(map(json.dumps, exchanges)).encode())
    items = read_file(path).items
    return [item.text if isinstance(item, Note) else item.message.text for item in items]


def test_a_cassette_without_requests_is_empty(tmp_path: Path) -> None:
    assert cassette(tmp_path / "c.jsonl") == []


def test_the_history_of_a_recorded_request_is_shown(tmp_path: Path) -> None:
    history: list[Message] = [user("old"), reply(Text(text="older answer")), user("new")]

    shown = cassette(tmp_path / "c.jsonl", exchange(1, history, done(reply(Text(text="newer")))))

    assert shown == ["old", "older answer", "new", "newer"]


def test_a_reply_that_got_another_id_is_shown_once(tmp_path: Path) -> None:
    first, second = user("a"), user("b")
    recorded, stored = reply(Text(text="x")), reply(Text(text="x"))
    last = done(reply(Text(text="y")))

    shown = cassette(
        tmp_path / "c.jsonl",
        exchange(1, [first], done(recorded)),
        exchange(2, [first, stored, second], last),
        exchange(3, [first, stored, second, reply(Text(text="y")), reply(Text(text="z"))]),
    )

    assert shown == ["a", "x", "b", "y", "z", "the reply was interrupted"]


def test_conversations_of_a_cassette_have_headings_if_there_are_several(tmp_path: Path) -> None:
    one, two = user("a"), user("b")
    failed = {"message": "slow down", "kind": "rate_limited"}

    shown = cassette(
        tmp_path / "c.jsonl",
        exchange(1, [one], done(reply(Text(text="x")))),
        exchange(2, [two], error=failed),
        exchange(3, [one, user("c")], error={**failed, "provider": "p", "model": "m"}),
    )

    assert shown == [
        "Conversation 1 of 2",
        "a",
        "x",
        "c",
        "p, m: rate_limited: slow down",
        "Conversation 2 of 2",
        "b",
        "the provider: rate_limited: slow down",
    ]


def test_tools_of_other_programs_are_read_as_far_as_they_are_tools(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tools = [{"name": "a", "description": 7}, {"name": "b"}, "c"]
    lines = [event("prompt", tools=tools, system=None), event("run_start")]
    path.write_text("\n".join(map(json.dumps, lines)))

    read = read_file(path)

    assert [(each.name, each.description, each.parameters) for each in read.tools] == [
        ("a", "7", {})
    ]
    assert read.system == ""

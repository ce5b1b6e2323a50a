"""The pieces of the ACP server that need no process."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from glue.acp.rpc import MAX_BACKLOG, Peer, RpcError, Work
from glue.acp.server import Server
from glue.acp.session import PAGE, OpenSession, list_page
from glue.acp.updates import STOP_REASONS, CallIds, ShownCall, diff_of, failure, plan_update, replay, tool_call
from glue.agent import Agent
from glue.errors import ConfigError, MissingKey
from glue.limits import Limits, Outcome, StopReason
from glue.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    user,
)
from glue.stores.jsonl import FileStore
from glue.stores.store import SessionInfo
from glue.testing import Script, call


class Rooted:
    """As much of a tool as is needed to say where its files are."""

    root = "/a"
    spec = ToolSpec(name="any")
    alone = advisory = False

    async def invoke(self, call: ToolCall, context: Any) -> Any:
        raise AssertionError


def info(number: int, cwd: str = "/a", title: str = "x", updated: float | None = None) -> SessionInfo:
    when = float(number if updated is None else updated)
    return SessionInfo(id=f"s{number:03}", created=0.0, updated=when, title=title, meta={"cwd": cwd})


# The list -----------------------------------------------------------------------------------------


def test_pages_hold_every_session_once_also_when_new_ones_come_in_between() -> None:
    sessions = [info(number, updated=number // 3) for number in range(2 * PAGE + 20)]

    first = list_page(sessions)
    sessions.append(info(999))
    second = list_page(sessions, None, first["nextCursor"])
    third = list_page(sessions, None, second["nextCursor"])

    seen = [each["sessionId"] for made in (first, second, third) for each in made["sessions"]]
    assert len(first["sessions"]) == PAGE
    assert "nextCursor" not in third
    assert len(seen) == len(set(seen)) == 2 * PAGE + 20
    assert first["sessions"][0]["updatedAt"] >= third["sessions"][-1]["updatedAt"]


def test_only_sessions_of_a_directory_that_were_spoken_in_are_listed() -> None:
    sessions = [info(1), info(2, "/b"), info(3, title=""), SessionInfo(id="x", created=0, updated=0, title="no cwd")]

    assert [each["sessionId"] for each in list_page(sessions)["sessions"]] == ["s002", "s001"]
    assert [each["sessionId"] for each in list_page(sessions, "/b")["sessions"]] == ["s002"]


@pytest.mark.parametrize("cursor", ["", "x", "-1", 7, ["1 a"], "one two"])
def test_a_cursor_that_is_none_is_refused(cursor: Any) -> None:
    with pytest.raises(RpcError, match="an earlier list"):
        list_page([], None, cursor)


# Replays ------------------------------------------------------------------------------------------


def assistant(*content: Any, stop: StopReason = StopReason.END_TURN, excluded: bool = False) -> AssistantMessage:
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return AssistantMessage(content=parts, stop_reason=stop, excluded=excluded)


def kinds(messages: list[Message]) -> list[str]:
    return [update["sessionUpdate"] for update in replay(messages, CallIds())]


def test_a_replay_tells_what_a_compaction_took_out_and_not_what_was_refused() -> None:
    old: list[Message] = [replace(user("old"), excluded=True), assistant("answer", excluded=True)]
    summary = UserMessage(content=(Text(text="summary"),), origin="summary")
    refused: list[Message] = [
        replace(user("bad"), excluded=True),
        assistant("no", stop=StopReason.REFUSAL, excluded=True),
    ]
    filtered = [replace(user("worse"), excluded=True)]

    updates = list(replay([*old, summary, *refused, *filtered, user("new"), assistant("fine")], CallIds()))

    assert [update["content"]["text"] for update in updates] == ["old", "answer", "new", "fine"]


def test_a_replay_shows_images_and_names_calls_anew() -> None:
    asked = call("noop", id="1")
    result = ToolMessage(call_id="1", name="noop", content=(Text(text="ok"), Image(data=b"x")))
    turn: list[Message] = [assistant(asked, stop=StopReason.TOOL_USE), result]

    updates = list(replay([user("go", Image(data=b"x")), *turn, *turn], CallIds()))

    assert [update["content"]["type"] for update in updates[:2]] == ["text", "image"]
    assert [update["toolCallId"] for update in updates[2:]] == ["1", "1", "1#2", "1#2"]
    assert [block["content"]["type"] for block in updates[3]["content"]] == ["text", "image"]


def test_a_delivered_text_is_no_call() -> None:
    delivered = ToolMessage(call_id="delivered", name="final", content=(Text(text="x"),), excluded=True)

    assert kinds([user("go"), assistant("x"), delivered]) == ["user_message_chunk", "agent_message_chunk"]


# Shapes -------------------------------------------------------------------------------------------


def test_every_outcome_has_a_stop_reason_but_failed() -> None:
    assert set(STOP_REASONS) == set(Outcome) - {Outcome.FAILED}


def test_a_missing_key_asks_for_authentication_and_a_wrong_name_does_not() -> None:
    assert failure(MissingKey("openai", ["OPENAI_API_KEY"])).code == -32000
    assert failure(ConfigError("no such thing")).code == -32602


@pytest.mark.parametrize("arguments", ["{bad", "[1]", '"x"', "", '{"n": NaN}', "[" * 100_000])
def test_arguments_of_any_kind_can_be_shown(arguments: str) -> None:
    asked = ToolCall(id="1", name="read_file", arguments=arguments)

    shown = tool_call(ShownCall("1", asked, Rooted()), "pending")

    assert isinstance(shown["rawInput"], dict)
    json.dumps(shown, allow_nan=False)


def test_lines_count_from_1_and_only_where_they_are_known() -> None:
    def line(name: str, before: str | None = None, **arguments: Any) -> Any:
        shown = ShownCall("1", call(name, {"path": "x.py", **arguments}), Rooted())
        shown.diff = diff_of(shown, before)
        return tool_call(shown, "pending")["locations"][0].get("line")

    assert line("read_file", offset=7) == 7
    assert line("read_file", offset=0) is None
    assert line("read_file", offset=True) is None
    assert line("list_dir", offset=3) is None
    assert line("edit_file", "a\nb\nc", old="c", new="d") == 3
    assert line("edit_file", "a", old="c", new="d") is None
    assert "locations" not in tool_call(ShownCall("1", call("mine", {"path": "x"}), Rooted()), "pending")
    assert "locations" not in tool_call(ShownCall("1", call("read_file", {"path": "x"})), "pending")  # below what?


def test_a_diff_needs_texts() -> None:
    def diff(name: str, **arguments: Any) -> Any:
        return diff_of(ShownCall("1", call(name, arguments), Rooted()), None)

    assert diff("edit_file", path="x", old=1, new="b") is None
    assert diff("edit_file", path="", old="a", new="b") is None
    assert diff("grep", path="x", old="a", new="b") is None


def test_a_plan_leaves_out_what_is_no_entry() -> None:
    made = plan_update([{"content": "a", "status": "done", "priority": ["x"]}, {"status": "pending"}, 7])

    assert made["entries"] == [{"content": "a", "priority": "medium", "status": "pending"}]


# The connection -----------------------------------------------------------------------------------


class Pipes:
    """Two pipes, with a peer between them."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Work]) -> None:
        reading, self.to = os.pipe()
        self.back, writing = os.pipe()
        self.source, self.sink = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
        self.peer = Peer(self.source, self.sink, call, lambda method, params: None)

    def close(self) -> None:
        for file in (self.source, self.sink):
            file.close()
        os.close(self.back)


async def test_a_slow_reader_holds_up_whoever_drains_and_nothing_is_lost() -> None:
    started, finished = anyio.Event(), anyio.Event()

    async def work() -> dict[str, Any]:
        for _ in range(40):
            pipes.peer.notify("x", {"text": "y" * 100_000})
            started.set()
            await pipes.peer.drain()
        finished.set()
        return {}

    pipes = Pipes(lambda method, params: work)

    got = bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipes.peer.serve)
        os.write(pipes.to, b'{"id": 1, "method": "go"}\n')
        await started.wait()
        await anyio.wait_all_tasks_blocked()
        assert not finished.is_set()
        assert pipes.peer._backlog <= MAX_BACKLOG + 200_000
        while got.count(b"\n") < 41:
            got += await anyio.to_thread.run_sync(os.read, pipes.back, 65536)
        os.close(pipes.to)
    pipes.close()

    lines = [json.loads(line) for line in got.splitlines()]
    assert [line.get("method") for line in lines] == ["x"] * 40 + [None]
    assert lines[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_bug_is_answered_and_the_connection_lives(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> Any:
        raise KeyError("a bug")

    async def fine() -> Any:
        return {}

    pipes = Pipes(lambda method, params: broken if method == "broken" else fine)
    got = bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipes.peer.serve)
        for method in (b"broken", b"fine"):
            os.write(pipes.to, b'{"id": "%s", "method": "%s"}\n' % (method, method))
            got += await anyio.to_thread.run_sync(os.read, pipes.back, 65536)
        os.close(pipes.to)
    pipes.close()

    first, second = map(json.loads, got.splitlines())
    assert first["error"] == {"code": -32603, "message": "KeyError: 'a bug'"}
    assert second["result"] == {}
    assert "broken failed" in caplog.text


# Prompts ------------------------------------------------------------------------------------------


async def test_usage_writes_a_sum_as_everywhere_else(tmp_path: Path) -> None:
    opened = OpenSession(Agent(Script()).session(), tmp_path / "settings.json", str(tmp_path))
    opened.add_usage(2, Usage(input=3, output=1, cost=1.5))

    assert await opened.command([Text(text="/usage")]) == "2 requests, 3 tokens in, 1 out, $1.50, 0 messages"


async def test_the_limits_of_an_editor_begin_with_what_a_function_says(tmp_path: Path) -> None:
    agent = Agent(Script(), limits=lambda: Limits(max_turns=7))
    server = Server(lambda cwd, server, more: agent, FileStore(tmp_path), io.BytesIO(), io.BytesIO())

    made = await server._new({"cwd": str(tmp_path), "mcpServers": []})

    shown = {each["id"]: each["currentValue"] for each in made.result["configOptions"]}
    assert shown["max_turns"] == "7"


async def test_a_cancel_counts_also_where_no_model_is_asked(tmp_path: Path) -> None:
    server = Server(lambda cwd, server, more: Agent(Script()), FileStore(tmp_path), io.BytesIO(), io.BytesIO())
    made = await server._new({"cwd": str(tmp_path), "mcpServers": []})
    session = made.result["sessionId"]

    work = server._call("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "/usage"}]})
    server._notice("session/cancel", {"sessionId": session})

    assert (await work())["stopReason"] == "cancelled"
    assert (await server._call("session/close", {"sessionId": session})()) == {}

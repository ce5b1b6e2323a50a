"""Sessions of an editor stay alive, and all that the stable protocol has is there or decided on."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.acp_schema import methods, updates
from fakes.editor import KNOWN, Editor, Open, choose, words

from glue.messages import user
from glue.stores.jsonl import FileStore


def options(shown: Any) -> dict[str, Any]:
    return {each["id"]: each["currentValue"] for each in shown["configOptions"]}


def refused(client: Editor, method: str, params: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = client.answer(client.send(method, params))["error"]
    return error


# Sessions stay alive ------------------------------------------------------------------------------


def test_a_prompt_over_the_budget_does_not_brick_the_session(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('answered'))")
    session = client.start(tmp_path)

    over = client.prompt(session, "x" * 500_000)
    after = client.prompt(session, "short")

    assert (over["stopReason"], over["_meta"]["outcome"]) == ("max_tokens", "budget")
    assert after["stopReason"] == "end_turn"
    assert client.text().endswith("answered")


def test_mode_limits_model_and_effort_survive_a_load(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path)
    client.prompt(session)
    for name, value in [("mode", "read"), ("max_turns", "7"), ("model", "offline"), ("effort", "low")]:
        client.ask("session/set_config_option", {"sessionId": session, "configId": name, "value": value})
    client.close()

    again = editor()
    loaded = again.ask("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})

    wanted = {"mode": "read", "max_turns": "7", "model": "offline", "effort": "low"}
    assert options(loaded).items() >= wanted.items()
    assert loaded["modes"]["currentModeId"] == "read"
    other = again.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    assert options(other)["mode"] == "ask"


def test_the_settings_of_the_command_line_hold_in_an_editor_too(
    editor: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"DENY": "danger", "MAX_TURNS": "7", "STORE": str(tmp_path / "x.db")}
    for name, value in settings.items():
        monkeypatch.setenv(f"GLUE_{name}", value)
    client = editor("agent = made(Script(calls(call('danger', {'what': 'x'})), 'b'))", args=("agent.py",), store="")
    client.answers["session/request_permission"] = choose("allow_once")
    session = client.start(tmp_path)

    client.prompt(session)
    client.ask("session/set_config_option", {"sessionId": session, "configId": "mode", "value": "allow"})

    [end] = [update for update in client.updates("tool_call_update") if update.get("status") == "failed"]
    assert "the rule 'danger' forbids it" in str(end)
    assert not [frame for frame in client.frames if frame.get("method") == "session/request_permission"]
    loaded = client.ask("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
    assert options(loaded).items() >= {"max_turns": "7", "mode": "allow"}.items()
    assert (tmp_path / "x.db").is_file()
    assert client.ask("session/delete", {"sessionId": session}) == {}


def test_without_a_key_all_begins_and_the_prompt_says_what_to_set(
    editor: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.endswith(("_KEY", "_TOKEN")) or name.startswith("GLUE")]:
        monkeypatch.delenv(name)
    client = editor(args=("-m", "anthropic"))

    begun = client.ask("initialize", {"protocolVersion": 1})
    session = client.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})["sessionId"]
    error = refused(client, "session/prompt", words(session))
    denied = refused(client, "authenticate", {"methodId": "ANTHROPIC_API_KEY"})

    assert [each["id"] for each in begun["authMethods"]] == ["ANTHROPIC_API_KEY"]
    assert "Set ANTHROPIC_API_KEY" in begun["authMethods"][0]["description"]
    assert (error["code"], "ANTHROPIC_API_KEY" in error["message"]) == (-32000, True)
    assert (denied["code"], "is not set" in denied["message"]) == (-32000, True)


def test_a_request_can_be_cancelled_by_its_id(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)

    behind, prompt = client.line("session/prompt", words(session))
    client.write(prompt + client.line("$/cancel_request", {"requestId": behind}, notice=True)[1])
    first = client.answer(behind)
    before = client.text()  # it may have begun
    number = client.send("session/prompt", words(session))
    client.until(lambda frame: client.text() == before + "first ")
    wrong: list[dict[str, Any]] = [{"requestId": 999}, {"requestId": None}, {}, {"requestId": number}]
    for params in wrong:
        client.notify("$/cancel_request", params)

    assert [each["error"]["code"] for each in (first, client.answer(number))] == [-32800, -32800]
    assert client.prompt(session, "/usage")["stopReason"] == "end_turn"


def test_a_question_that_is_no_longer_needed_is_taken_back(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(calls(call('danger', {'what': 'x'})), 'after'))")
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))
    question = client.until(lambda frame: frame.get("method") == "session/request_permission")

    client.notify("session/cancel", {"sessionId": session})

    assert client.answer(number)["result"]["stopReason"] == "cancelled"
    taken = [frame["params"] for frame in client.frames if frame.get("method") == "$/cancel_request"]
    assert taken == [{"requestId": question["id"]}]


@pytest.mark.parametrize("id_last", [False, True])
def test_an_answer_over_16_megabytes_is_refused_and_not_hung_on(editor: Open, tmp_path: Path, id_last: bool) -> None:
    client = editor(ready="calls(call('read_file', {'path': 'a.txt'})), 'done'")
    session = client.start(tmp_path, client={"fs": {"readTextFile": True}})
    number = client.send("session/prompt", words(session))
    question = client.until(lambda frame: frame.get("method") == "fs/read_text_file")

    result, own = b'"result": {"content": "' + b"x" * 17_000_000 + b'"}', b'"id": %d' % question["id"]
    parts = (result, own) if id_last else (own, result)
    client.write(b'{"jsonrpc": "2.0", ' + b", ".join(parts) + b"}\n")

    assert client.answer(number)["result"]["stopReason"] == "end_turn"
    assert "longer than 16777216 bytes" in json.dumps(client.updates("tool_call_update"))


def test_options_that_are_none_are_refused(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")
    session = {"sessionId": client.start(tmp_path)}

    wrong: list[dict[str, Any]] = [
        {"configId": "speed", "value": "1"},
        {"configId": "max_turns"},
        {"configId": "max_turns", "value": None},
        {"configId": "max_turns", "value": True},
        {"configId": "mode", "value": "root"},
        {"configId": "model", "value": "nobody:x"},
        {"configId": "effort", "value": "most"},
        {"configId": "cache", "value": True},  # only for editors that know this kind
        {"value": "1"},
    ]
    for params in wrong:
        assert refused(client, "session/set_config_option", {**session, **params})["code"] == -32602, params


def test_embedded_files_of_every_kind(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(lambda request: repr(request.messages[-1].content)))")
    session = client.start(tmp_path)
    blobs = [
        {"uri": "file:///a.txt", "blob": "aGVsbG8="},
        {"uri": "file:///a.png", "blob": "iVBO", "mimeType": "image/png"},
        {"uri": "file:///a.pdf", "blob": "JVBE", "mimeType": "application/pdf"},
    ]
    prompt = [{"type": "resource", "resource": each} for each in blobs]

    client.ask("session/prompt", {"sessionId": session, "prompt": prompt})

    for wanted in ('<resource uri="file:///a.txt">\\nhello', "image/png", "a.pdf"):
        assert wanted in client.text()
    zipped = [{"type": "resource", "resource": {"uri": "a.zip", "blob": "AAAA", "mimeType": "application/zip"}}]
    error = refused(client, "session/prompt", {"sessionId": session, "prompt": zipped})
    assert "a.zip holds application/zip" in error["message"]


async def many(store: FileStore, count: int) -> None:
    for number in range(count):
        async with store.log(f"s{number:05}", meta={"cwd": "/a"}) as log:
            await log.append(user(f"prompt {number}"))


def test_further_pages_of_a_list_read_no_session_again(editor: Open, tmp_path: Path) -> None:
    anyio.run(many, FileStore(tmp_path / "store", sync=False), 120)
    client = editor("agent = made(Script('a'))")
    first = client.ask("session/list", {})
    for path in (tmp_path / "store").glob("*.jsonl"):
        path.unlink()  # were they read again, none would be there

    second = client.ask("session/list", {"cursor": first["nextCursor"]})
    third = client.ask("session/list", {"cursor": second["nextCursor"]})

    assert [len(page["sessions"]) for page in (first, second, third)] == [50, 50, 20]
    assert client.ask("session/list", {})["sessions"] == []


# Stable v1 ----------------------------------------------------------------------------------------


def test_sessions_can_be_deleted_open_or_not(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a', 'b', 'c'))")
    first, second = client.start(tmp_path), client.start(tmp_path)
    for session in (first, second):
        client.prompt(session)
    client.ask("session/close", {"sessionId": first})

    for session in (first, second):
        assert client.ask("session/delete", {"sessionId": session}) == {}

    assert client.ask("session/list", {})["sessions"] == []
    assert not list((tmp_path / "store").iterdir())
    wrong: list[Any] = [first, second, "../../x", None, 7]
    for each in wrong:
        assert refused(client, "session/delete", {"sessionId": each})["code"] == -32002
    assert refused(client, "session/prompt", words(second))["code"] == -32002


def test_logging_out_stops_prompts_until_one_authenticates(
    editor: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path)

    assert client.ask("logout", {}) == {}
    error = refused(client, "session/prompt", words(session))

    assert (error["code"], "authenticate" in error["message"]) == (-32000, True)


def test_additional_directories_are_reached_by_absolute_paths(editor: Open, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (there / "a.txt").write_text("from there")
    steps = (
        f"calls(call('read_file', {{'path': {str(there / 'a.txt')!r}}})),"
        f"calls(call('write_file', {{'path': {str(there / 'b.txt')!r}, 'content': 'x'}})),"
        f"calls(call('read_file', {{'path': {str(tmp_path / 'c.txt')!r}}})), 'done'"
    )
    client = editor(ready=steps)
    client.answers["session/request_permission"] = choose("allow_once")

    client.prompt(client.start(here, additionalDirectories=[str(there)]))

    told = client.updates("tool_call_update")
    assert "from there" in json.dumps(told)
    assert (there / "b.txt").read_text() == "x"
    assert told[-1]["status"] == "failed"
    for wrong in (["relative"], [str(tmp_path / "none")], "x"):
        params = {"cwd": str(here), "mcpServers": [], "additionalDirectories": wrong}
        assert refused(client, "session/new", params)["code"] == -32602


def test_titles_notices_and_compactions_are_told_where_the_editor_shows_them(editor: Open, tmp_path: Path) -> None:
    source = KNOWN + (
        "Known.capabilities = Capabilities(window=2_000)\n"
        "agent = made(Known(*['long ' * 300] * 6, repeat(calls('noop'))), compaction=glue.keep_recent(2))"
    )
    client = editor(source)
    session = client.start(tmp_path, client={"session": {"notices": {}, "compaction": {}}})

    for number in range(6):
        client.prompt(session, f"question {number}")
    halted = client.prompt(session, "and round")

    (info,) = client.updates("session_info_update")
    assert info["title"] == "question 0"
    assert client.updates("compaction_update")[0]["status"] == "completed"
    assert halted["_meta"]["outcome"] == "halted"
    assert "circles" in client.updates("notice")[-1]["title"]


def test_yes_or_no_is_an_option_where_the_editor_knows_that_kind(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path, client={"session": {"configOptions": {"boolean": {}}}})
    params = {"sessionId": session, "configId": "cache", "type": "boolean", "value": True}

    assert options(client.ask("session/set_config_option", params))["cache"] is True
    assert refused(client, "session/set_config_option", {**params, "value": "yes"})["code"] == -32602


PROMPTS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    method, result = asked["method"], None
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {}},
                  "serverInfo": {"name": "demo", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": []}
    elif method == "prompts/list":
        result = {"prompts": [{"name": "greet", "description": "Greet.", "arguments": [{"name": "who"}]}]}
    elif method == "prompts/get":
        text = "Say hello to " + asked["params"]["arguments"]["who"]
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    body = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}), flush=True)
"""


def test_prompts_of_mcp_servers_are_commands(editor: Open, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    client = editor("agent = made(Script(lambda request: f'heard: {request.messages[-1].text}'))")
    given = {"name": "demo", "command": sys.executable, "args": ["-c", PROMPTS], "env": []}
    session = client.start(tmp_path, mcpServers=[given])

    client.prompt(session, "/demo:greet Ada Lovelace")

    commands = {each["name"]: each for each in client.updates("available_commands_update")[0]["availableCommands"]}
    assert commands["demo:greet"]["input"] == {"hint": "<who>"}
    assert client.text() == "heard: Say hello to Ada Lovelace"
    assert client.close() == 0


# The decision table -------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "editors.md"


def decided() -> set[str]:
    table = PAGE.read_text().partition("### The whole protocol")[2].partition("\n### ")[0]
    return set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE))


def test_every_method_and_update_of_the_protocol_is_decided_on() -> None:
    assert decided() == set().union(*methods().values()) | updates()


def test_every_method_that_an_agent_answers_is_answered(editor: Open) -> None:
    client = editor("agent = made(Script('a'))")
    notices = {"session/cancel"}

    for method in sorted(methods()["agent"] - notices):
        error = client.answer(client.send(method, {})).get("error", {})
        assert error.get("code") != -32601, method

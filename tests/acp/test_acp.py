"""`glue acp` as a subprocess, driven line by line; every frame that it sends is checked strictly."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes.editor import GLUE, KNOWN, Open, choose, words

# Beginning ----------------------------------------------------------------------------------------


def test_initialize_says_what_is_there_and_nothing_else_is_on_stdout(editor: Open, tmp_path: Path) -> None:
    client = editor("import os\nos.system('echo noise of a child')\nagent = made(Script('hello'))")

    result = client.ask("initialize", {"protocolVersion": 1})

    assert result["protocolVersion"] == 1
    assert result["authMethods"] == []
    capabilities = result["agentCapabilities"]
    assert capabilities["loadSession"] is True
    assert capabilities["promptCapabilities"] == {"image": True, "audio": False, "embeddedContext": True}
    assert set(capabilities["sessionCapabilities"]) == {"list", "resume", "close", "delete", "additionalDirectories"}
    assert capabilities["mcpCapabilities"] == {"http": True, "sse": True}
    assert capabilities["auth"] == {"logout": {}}
    assert client.close() == 0
    assert "noise on standard output" in client.stderr
    assert "noise of a child" in client.stderr


def test_another_version_is_answered_with_ours_and_no_version_with_an_error(editor: Open) -> None:
    client = editor("agent = made(Script('hello'))")

    for newer in (2, 7):
        assert client.ask("initialize", {"protocolVersion": newer})["protocolVersion"] == 1
    for wrong in ({}, {"protocolVersion": "1"}, {"protocolVersion": True}, {"protocolVersion": None}):
        assert client.answer(client.send("initialize", wrong))["error"]["code"] == -32602


def test_authenticate_is_refused_because_nothing_is_offered(editor: Open) -> None:
    client = editor("agent = made(Script('hello'))")

    error = client.answer(client.send("authenticate", {"methodId": "x"}))["error"]

    assert "environment" in error["message"]


def test_a_session_needs_an_absolute_directory(editor: Open) -> None:
    client = editor("agent = made(Script('hello'))")

    for cwd in ("relative", "", None, 7, "/there/is/no/such/folder"):
        error = client.answer(client.send("session/new", {"cwd": cwd, "mcpServers": []}))["error"]
        assert error["code"] == -32602
        assert "cwd" in error["message"]


def test_a_file_without_an_agent_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("x = 1\n")

    done = subprocess.run([*GLUE, "acp", str(tmp_path / "agent.py")], input=b"", capture_output=True, timeout=60)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().strip() == f"glue: {tmp_path}/agent.py defines no agent; name the one to run `agent`"


def test_the_transcript_in_the_docs_is_what_happens() -> None:
    script = Path(__file__).parents[2] / "bench" / "acp_transcript.py"

    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, b"")


# LOOP.md 105 to 107 -------------------------------------------------------------------------------

STOPS = {
    "end_turn": ("done", "agent = made(Script('hello'))"),
    "max_tokens": ("truncated", "agent = made(Script(repeat(say('x', stop='max_tokens'))))"),
    "max_turn_requests": (
        "max_turns",
        "agent = made(Script(repeat(calls('noop'))), limits=glue.Limits(max_turns=2, repeat_halt=None))",
    ),
    "refusal": ("refused", "agent = made(Script(say('no', stop='refusal')))"),
    "cancelled": ("cancelled", "agent = made(Stuck())"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_s105_five_stop_reasons(editor: Open, tmp_path: Path, stop: str) -> None:
    outcome, source = STOPS[stop]
    client = editor(source)
    session = client.start(tmp_path)

    number = client.send("session/prompt", words(session))
    if stop == "cancelled":
        client.until(lambda frame: client.text() == "first ")
        client.notify("session/cancel", {"sessionId": session})
    result = client.answer(number)["result"]

    assert result["stopReason"] == stop
    assert result["_meta"]["outcome"] == outcome
    assert {"turns", "requests", "usage"} <= set(result["_meta"])


OTHERS = {
    "budget": ("max_tokens", "agent = made(Script('hello'), limits=glue.Limits(token_budget=0))"),
    "context_window": ("max_tokens", "agent = made(Script(say('x', stop='context_window')))"),
    "halted": ("end_turn", "agent = made(Script(repeat(calls('noop'))))"),
    "wrapped_up": ("end_turn", "agent = made(Script(calls('noop'), 'bye'), limits=glue.Limits(max_turns=2, grace=1))"),
}


@pytest.mark.parametrize("outcome", OTHERS)
def test_s105_other_outcomes_are_told_in_the_meta(editor: Open, tmp_path: Path, outcome: str) -> None:
    stop, source = OTHERS[outcome]
    client = editor(source)

    result = client.prompt(client.start(tmp_path))

    assert (result["stopReason"], result["_meta"]["outcome"]) == (stop, outcome)


def test_s105_a_failure_is_an_error_with_data(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(fail('quota', 'no money left', status=402, model='m')))")
    session = client.start(tmp_path)

    error = client.answer(client.send("session/prompt", words(session)))["error"]

    assert error["code"] == -32603
    assert "no money left" in error["message"]
    wanted = {"outcome": "failed", "kind": "quota", "provider": "script", "model": "m", "status": 402}
    assert error["data"].items() >= wanted.items()


def test_a_refused_key_asks_for_authentication(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(fail('auth', 'bad key')))")
    session = client.start(tmp_path)

    assert client.answer(client.send("session/prompt", words(session)))["error"]["code"] == -32000


def test_s106_a_cancel_right_behind_a_prompt_is_not_lost(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)

    for _ in range(20):
        number, prompt = client.line("session/prompt", words(session))
        client.write(prompt + client.line("session/cancel", {"sessionId": session}, notice=True)[1])

        assert client.answer(number)["result"]["stopReason"] == "cancelled"


def test_s107_a_second_prompt_is_an_error_and_the_first_goes_on(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)
    first = client.send("session/prompt", words(session))
    client.until(lambda frame: client.text() == "first ")

    error = client.answer(client.send("session/prompt", words(session, "another")))["error"]
    client.notify("session/cancel", {"sessionId": session})

    assert error["code"] == -32600
    assert "busy" in error["message"]
    assert client.answer(first)["result"]["stopReason"] == "cancelled"


def test_s107_two_prompts_in_one_write(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('only once'))")
    session = client.start(tmp_path)

    first, one = client.line("session/prompt", words(session))
    second, two = client.line("session/prompt", words(session))
    client.write(one + two)
    answers = [client.until(lambda frame: "method" not in frame) for _ in range(2)]

    assert {frame["id"]: "result" in frame for frame in answers} == {first: True, second: False}


# Cancelling ---------------------------------------------------------------------------------------


def test_cancel_in_a_tool_tells_how_the_call_ended_and_then_answers(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(calls(call('forever', id='c1')), 'after'))")
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))
    client.until(lambda frame: client.updates("tool_call_update"))

    client.notify("session/cancel", {"sessionId": session})

    assert client.answer(number)["result"]["stopReason"] == "cancelled"
    assert client.updates("tool_call_update")[0]["content"][0]["content"]["text"] == "at work"
    last = client.frames[-2]["params"]["update"]
    assert (last["toolCallId"], last["status"]) == ("c1", "failed")
    assert client.prompt(session)["stopReason"] == "end_turn"


def test_cancel_before_the_first_word(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(say('late', delay=3600), 'next'))")
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))

    client.notify("session/cancel", {"sessionId": session})

    assert client.answer(number)["result"]["stopReason"] == "cancelled"
    assert client.text() == ""


def test_a_late_cancel_and_one_for_nobody_change_nothing(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('one', 'two'))")
    session = client.start(tmp_path)
    client.prompt(session)

    for params in ({"sessionId": session}, {"sessionId": "nobody"}, {"sessionId": 7}, {}):
        client.notify("session/cancel", params)

    assert client.prompt(session)["stopReason"] == "end_turn"
    assert client.text() == "onetwo"


def test_cancel_in_a_permission_wait(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(calls(call('danger', {'what': 'x'})), 'after'))")
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))
    asked = client.until(lambda frame: frame.get("method") == "session/request_permission")

    client.notify("session/cancel", {"sessionId": session})
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": {"outcome": "cancelled"}}}
    client.write(json.dumps(answer).encode() + b"\n")

    assert client.answer(number)["result"]["stopReason"] == "cancelled"
    assert "did x" not in json.dumps(client.frames)
    assert client.prompt(session)["stopReason"] == "end_turn"


def test_close_cancels_the_prompt_answers_it_and_forgets_the_session(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)
    first = client.send("session/prompt", words(session))
    client.until(lambda frame: client.text())

    closing = client.send("session/close", {"sessionId": session})

    assert client.answer(first)["result"]["stopReason"] == "cancelled"
    assert client.answer(closing)["result"] == {}
    assert client.answer(client.send("session/prompt", words(session)))["error"]["code"] == -32002


def test_close_right_behind_a_prompt(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)

    number, prompt = client.line("session/prompt", words(session))
    _, close = client.line("session/close", {"sessionId": session})
    client.write(prompt + close)

    assert client.answer(number)["result"]["stopReason"] == "cancelled"


def test_an_editor_that_hangs_up_in_the_middle_leaves_no_process(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    client.send("session/prompt", words(client.start(tmp_path)))
    client.until(lambda frame: client.text())

    assert client.close() == 0


def test_ctrl_c_ends_it_though_the_editor_is_still_there(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    client.start(tmp_path)

    client.process.send_signal(signal.SIGINT)

    assert client.process.wait(timeout=30) == 130


# Permission ---------------------------------------------------------------------------------------

TWICE = "agent = made(Script(calls(call('danger', {'what': 'a'})), calls(call('danger', {'what': 'a'})), 'end'))"


@pytest.mark.parametrize(
    ("option", "questions", "ran"),
    [("allow_once", 2, True), ("allow_always", 1, True), ("reject_once", 2, False), ("reject_always", 1, False)],
)
def test_permission(editor: Open, tmp_path: Path, option: str, questions: int, ran: bool) -> None:
    client = editor(TWICE)
    client.answers["session/request_permission"] = choose(option)

    result = client.prompt(client.start(tmp_path))

    asked = [frame["params"] for frame in client.frames if frame.get("method") == "session/request_permission"]
    assert len(asked) == questions
    assert {each["kind"] for each in asked[0]["options"]} == {
        "allow_once",
        "allow_always",
        "reject_once",
        "reject_always",
    }
    assert asked[0]["toolCall"]["rawInput"] == {"what": "a"}
    assert result["stopReason"] == "end_turn"
    ends = [each["status"] for each in client.updates("tool_call_update") if "content" in each]
    assert ends == (["completed"] * 2 if ran else ["failed"] * 2)
    assert ("did a" in json.dumps(client.frames)) == ran


def test_permission_that_is_not_given_is_refused(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(*[calls(call('danger', {'what': w})) for w in 'abcd'], 'end'))")
    unclear: list[Any] = [
        {"outcome": {"outcome": "cancelled"}},
        {"outcome": {"outcome": "selected", "optionId": "?"}},
        {},
        None,
    ]
    client.answers["session/request_permission"] = lambda params: unclear.pop()

    assert client.prompt(client.start(tmp_path))["stopReason"] == "end_turn"
    assert not unclear
    assert "did " not in json.dumps(client.frames)


def test_modes_answer_in_the_place_of_the_person(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(*[calls(call('danger', {'what': w})) for w in 'abc'], 'end'))")
    client.answers["session/request_permission"] = choose("allow_always")
    session = client.start(tmp_path)

    client.ask("session/set_mode", {"sessionId": session, "modeId": "read"})
    assert client.updates("config_option_update")[-1]["configOptions"][0]["currentValue"] == "read"
    client.prompt(session)

    assert not [frame for frame in client.frames if frame.get("method") == "session/request_permission"]
    assert "read-only" in json.dumps(client.updates("tool_call_update"))
    wrong = client.answer(client.send("session/set_mode", {"sessionId": session, "modeId": "root"}))["error"]
    assert "ask, allow, read" in wrong["message"]


def test_read_only_holds_also_after_an_allow_always(editor: Open, tmp_path: Path) -> None:
    client = editor(
        "agent = made(Script(calls(call('danger', {'what': 'a'})), 'x', calls(call('danger', {'what': 'b'})), 'y'))"
    )
    client.answers["session/request_permission"] = choose("allow_always")
    session = client.start(tmp_path)
    client.prompt(session)

    option = {"sessionId": session, "configId": "mode", "value": "read"}
    assert client.ask("session/set_config_option", option)["configOptions"][0]["currentValue"] == "read"
    client.prompt(session)

    assert client.updates("current_mode_update") == [{"sessionUpdate": "current_mode_update", "currentModeId": "read"}]
    assert "did a" in json.dumps(client.frames)
    assert "did b" not in json.dumps(client.frames)


def test_the_agents_own_policy_goes_before_the_person(editor: Open, tmp_path: Path) -> None:
    client = editor(TWICE.replace("'end')", "'end'), permission=glue.Rules(allow=['shell'])"))

    client.prompt(client.start(tmp_path))

    assert "no rule allows it" in json.dumps(client.frames)
    assert not [frame for frame in client.frames if frame.get("method") == "session/request_permission"]


# Updates ------------------------------------------------------------------------------------------


def test_one_message_id_per_chain(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(say('one ', stop='max_tokens', thinking='hm'), say('two', chunk=1), 'new'))")
    session = client.start(tmp_path)

    client.prompt(session)
    first = client.updates("agent_message_chunk")
    client.prompt(session)
    second = client.updates("agent_message_chunk")[len(first) :]

    chain = {each["messageId"] for each in [*first, *client.updates("agent_thought_chunk")]}
    assert [each["content"]["text"] for each in first] == ["one ", "t", "w", "o"]
    assert len(chain) == 1
    assert {each["messageId"] for each in second}.isdisjoint(chain)


def test_usage_after_each_request_with_the_cost_of_the_whole_session(editor: Open, tmp_path: Path) -> None:
    client = editor(
        KNOWN + "u = Usage(input=100, output=10, cost=0.5)\n"
        "agent = made(Known(calls('noop', usage=u), say('a', usage=u), say('b', usage=u), 'no usage'))"
    )
    session = client.start(tmp_path)

    for _ in range(3):
        client.prompt(session)

    told = client.updates("usage_update")
    assert [each["used"] for each in told[:3]] == [110, 110, 110]
    assert [each["cost"]["amount"] for each in told[:3]] == [0.5, 1.0, 1.5]
    assert told[3]["_meta"] == {"estimated": True}


def test_usage_has_the_window_of_the_model(editor: Open, tmp_path: Path) -> None:
    client = editor(KNOWN + "agent = made(Known('hi'))")

    client.prompt(client.start(tmp_path))

    assert client.updates("usage_update")[0]["size"] == 128_000


def test_usage_is_left_out_where_the_window_is_not_known(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(say('hi', usage=Usage(input=3, output=1))))")
    session = client.start(tmp_path)

    client.prompt(session)
    client.prompt(session, "/usage")

    assert client.updates("usage_update") == []
    assert "1 request, 3 tokens in, 1 out, cost unknown, 2 messages" in client.text()


def test_edits_are_diffs_with_places_and_survive_a_load(editor: Open, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\ntwo\nthree\n")
    source = f"""
from glue.tools import fs
agent = glue.Agent(Script(
    calls(
        call('read_file', {{'path': 'a.txt', 'offset': 2}}),
        call('edit_file', {{'path': 'a.txt', 'old': 'three', 'new': '3'}}),
    ),
    calls(
        call('write_file', {{'path': 'a.txt', 'content': 'all new'}}),
        call('write_file', {{'path': 'b.txt', 'content': 'b'}}),
    ),
    calls(call('edit_file', {{'path': 'a.txt', 'old': 'nothing like it', 'new': ''}})),
    'done'), tools=fs.tools({str(work)!r}, write=True))
"""
    client = editor(source)
    client.answers["session/request_permission"] = choose("allow_always")
    session = client.start(work)
    client.prompt(session)

    read, edit, write, new, wrong = client.updates("tool_call")
    path = str(work / "a.txt")
    assert (read["kind"], read["locations"]) == ("read", [{"path": path, "line": 2}])
    assert (edit["kind"], edit["locations"]) == ("edit", [{"path": path, "line": 3}])
    whole = {"type": "diff", "path": path, "oldText": "one\ntwo\nthree\n", "newText": "one\ntwo\n3\n"}
    assert edit["content"] == [whole]
    assert (edit["name"], edit["title"]) == ("edit_file", "edit_file a.txt")
    assert write["content"] == [{"type": "diff", "path": path, "oldText": "one\ntwo\n3\n", "newText": "all new"}]
    assert new["content"] == [{"type": "diff", "path": str(work / "b.txt"), "newText": "b"}]
    ends = {each["toolCallId"]: each for each in client.updates("tool_call_update") if "content" in each}
    assert ends[edit["toolCallId"]]["content"] == edit["content"]
    assert ends[wrong["toolCallId"]]["status"] == "failed"
    assert ends[wrong["toolCallId"]]["content"][0]["type"] == "content"

    again = editor()
    again.ask("session/load", {"sessionId": session, "cwd": str(work), "mcpServers": []})
    told = [each for each in again.updates("tool_call_update") if each["status"] == "completed"]
    assert told[1]["content"] == [{"type": "diff", "path": path, "oldText": "three", "newText": "3"}]


def test_a_plan_and_ids_that_come_twice(editor: Open, tmp_path: Path) -> None:
    client = editor("""
from glue.acp.editor import plan_tool
steps = [{'content': 'look', 'status': 'completed'}, {'content': 'act', 'status': 'in_progress'}]
model = Script(calls(call('plan', {'steps': steps}, id='1')), calls(call('plan', {'steps': steps[:1]}, id='1')), 'ok')
agent = glue.Agent(model, tools=[plan_tool()])
""")

    client.prompt(client.start(tmp_path))

    first = client.updates("plan")[0]["entries"]
    assert first[1] == {"content": "act", "priority": "medium", "status": "in_progress"}
    assert [each["toolCallId"] for each in client.updates("tool_call")] == ["1", "1#2"]
    assert [each["toolCallId"] for each in client.updates("tool_call_update")] == ["1", "1#2"]


def test_prompts_may_hold_images_links_and_embedded_files(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(lambda request: repr(request.messages[-1].content)))")
    session = client.start(tmp_path)
    pixel = base64.b64encode(b"pixel").decode()
    prompt = [
        {"type": "text", "text": "look"},
        {"type": "image", "mimeType": "image/png", "data": pixel},
        {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "b = 1"}},
    ]

    client.ask("session/prompt", {"sessionId": session, "prompt": prompt})

    for wanted in ("look", "b'pixel'", "[a.py](file:///a.py)", '<resource uri="file:///b.py">'):
        assert wanted in client.text()


WRONG: list[Any] = [
    None,
    [],
    "text",
    [7],
    [{"type": "text"}],
    [{"type": "text", "text": 7}],
    [{"type": "text", "text": "\ud800"}],
    [{"type": "image", "mimeType": "image/png", "data": "no base64!"}],
    [{"type": "audio", "mimeType": "audio/wav", "data": ""}],
    [{"type": "resource", "resource": {"uri": "x", "blob": "AAAA"}}],
    [{"type": "resource", "resource": {"uri": "x", "blob": "/w==", "mimeType": "application/zip"}}],
    [{"type": "resource", "resource": {"uri": "x", "blob": "no base64!"}}],
    [{"type": "resource", "resource": 7}],
]


def test_a_wrong_prompt_is_refused_and_the_session_stays_free(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('fine'))")
    session = client.start(tmp_path)

    for prompt in WRONG:
        error = client.answer(client.send("session/prompt", {"sessionId": session, "prompt": prompt}))["error"]
        assert error["code"] == -32602, prompt

    assert client.prompt(session)["stopReason"] == "end_turn"


# Settings -----------------------------------------------------------------------------------------


def test_limits_are_per_session_and_change_while_it_lives(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(repeat(lambda request: calls(call('echo', {'n': len(request.messages)})))))")
    session = client.start(tmp_path, _meta={"limits": {"max_turns": 1}})
    other = client.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})

    def options(shown: Any) -> dict[str, str]:
        return {each["id"]: each["currentValue"] for each in shown["configOptions"]}

    shown = options(other)
    assert (shown.pop("model"), shown.pop("effort")) == ("script", "default")
    assert shown == {"mode": "ask", "max_turns": "32", "max_requests": "50", "token_budget": "100000"}
    assert client.prompt(session)["_meta"]["turns"] == 1
    set_two = {"sessionId": session, "configId": "max_turns", "value": "2"}
    assert options(client.ask("session/set_config_option", set_two))["max_turns"] == "2"
    assert client.prompt(session)["_meta"]["turns"] == 2
    client.prompt(session, "/limits max_turns=3 token_budget=none")
    assert options(client.updates("config_option_update")[-1])["token_budget"] == "none"
    assert client.prompt(session)["_meta"]["turns"] == 3
    for wrong in ({"max_turns": -1}, {"max_turns": "x"}, {"speed": 1}, {"max_turns": [1]}):
        params = {"cwd": str(tmp_path), "mcpServers": [], "_meta": {"limits": wrong}}
        assert client.answer(client.send("session/new", params))["error"]["code"] == -32602


def test_a_limit_changed_in_the_middle_of_a_prompt_counts(editor: Open, tmp_path: Path) -> None:
    client = editor(
        "agent = made(Script(*[calls(call('danger', {'what': str(n)})) for n in range(9)]))",
    )
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))
    asked = client.until(lambda frame: frame.get("method") == "session/request_permission")

    client.ask("session/set_config_option", {"sessionId": session, "configId": "max_turns", "value": "1"})
    allowed = {"jsonrpc": "2.0", "id": asked["id"], "result": choose("allow_once")({})}
    client.write(json.dumps(allowed).encode() + b"\n")

    assert client.answer(number)["result"]["stopReason"] == "max_turn_requests"


def test_slash_commands_are_answered_without_the_model(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('from the model'))")
    session = client.start(tmp_path)

    for text in ("/usage", "/tools", "/model", "/model offline", "/limits"):
        assert client.prompt(session, text)["stopReason"] == "end_turn"

    client.prompt(session, "/model offline")
    assert {each["name"] for each in client.updates("available_commands_update")[0]["availableCommands"]} == {
        "usage",
        "limits",
        "tools",
        "model",
    }
    for wanted in (
        "0 requests",
        "- noop: Do nothing.",
        "The model is script.",
        "The model is offline.",
        "max_turns=32",
    ):
        assert wanted in client.text()
    for wrong, said in (("/model nobody:x", "unknown provider"), ("/limits depth=3", "there are: max_turns")):
        assert client.prompt(session, wrong)["stopReason"] == "end_turn"  # a mistake is a message, not an error
        assert said in client.text()


def test_an_unknown_slash_command_goes_to_the_model(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('from the model'))")

    client.prompt(client.start(tmp_path), "/dance")

    assert client.text() == "from the model"


def test_a_refused_prompt_leaves_the_context_and_the_replay(editor: Open, tmp_path: Path) -> None:
    source = "agent = made(Script('a', say('never', stop='refusal'), lambda r: ' '.join(m.text for m in r.messages)))"
    client = editor(source)
    session = client.start(tmp_path)

    stops = [client.prompt(session, text)["stopReason"] for text in ("one", "bad", "three")]
    client.frames.clear()
    client.ask("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})

    assert stops == ["end_turn", "refusal", "end_turn"]
    assert [each["content"]["text"] for each in client.updates("user_message_chunk")] == ["one", "three"]
    assert client.text() == "aone a three"


# Loading and listing ------------------------------------------------------------------------------


def test_load_and_list_after_kill_9(editor: Open, tmp_path: Path) -> None:
    source = (
        "agent = made(Script(calls(call('noop', id='n'), text='let me see'), say('well ', stop='max_tokens'),"
        " 'done', calls(call('forever', id='f'))))"
    )
    client = editor(source)
    session = client.start(tmp_path)
    client.prompt(session, "first question")
    client.send("session/prompt", words(session, "second question"))
    client.until(lambda frame: any(each["toolCallId"] == "f" for each in client.updates("tool_call_update")))
    os.kill(client.process.pid, signal.SIGKILL)

    again = editor()
    again.ask("initialize", {"protocolVersion": 1})
    listed = again.ask("session/list", {"cwd": str(tmp_path)})["sessions"]
    loaded = again.ask("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})

    assert [(each["sessionId"], each["title"]) for each in listed] == [(session, "first question")]
    assert again.ask("session/list", {"cwd": "/elsewhere"})["sessions"] == []
    assert loaded["modes"]["currentModeId"] == "ask"
    kinds = [each["sessionUpdate"] for each in again.updates()]
    assert kinds[:5] == [
        "user_message_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ]
    chunks = again.updates("agent_message_chunk")
    assert [each["content"]["text"] for each in chunks] == ["let me see", "well ", "done"]
    assert chunks[1]["messageId"] == chunks[2]["messageId"] != chunks[0]["messageId"]
    last = again.updates("tool_call_update")[-1]
    assert (last["toolCallId"], last["status"]) == ("f", "failed")
    assert again.prompt(session)["stopReason"] == "end_turn"


def test_resume_says_nothing_again(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a', lambda r: str(len(r.messages))))")
    session = client.start(tmp_path)
    client.prompt(session)
    client.ask("session/close", {"sessionId": session})
    client.frames.clear()

    client.ask("session/resume", {"sessionId": session, "cwd": str(tmp_path)})
    client.prompt(session)

    assert not client.updates("user_message_chunk")
    assert client.text() == "3"


def test_unknown_sessions_are_not_found(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")

    calls: list[tuple[str, dict[str, Any]]] = [
        ("session/load", {"cwd": str(tmp_path), "mcpServers": []}),
        ("session/resume", {"cwd": str(tmp_path)}),
        ("session/close", {}),
        ("session/prompt", {"prompt": [{"type": "text", "text": "x"}]}),
        ("session/set_mode", {"modeId": "ask"}),
        ("session/set_config_option", {"configId": "mode", "value": "ask"}),
    ]
    for method, more in calls:
        for name in ("../../etc", ["x"], None):
            error = client.answer(client.send(method, {"sessionId": name, **more}))["error"]
            assert error["code"] == -32002, method


def test_a_busy_session_cannot_be_loaded(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)
    client.send("session/prompt", words(session))
    client.until(lambda frame: client.text())

    params = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}

    assert client.answer(client.send("session/load", params))["error"]["code"] == -32600


# MCP servers --------------------------------------------------------------------------------------

# A server in a few lines, of the older protocol: it starts quickly.
MCP = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    method, result = asked["method"], None
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "demo", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "where", "inputSchema": {"type": "object", "properties": {}}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": os.getcwd() + " " + os.environ["COLOUR"]}]}
    body = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}), flush=True)
"""


def test_mcp_servers_of_the_editor_are_tools_of_the_session(editor: Open, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text(MCP)
    work = tmp_path / "work"
    work.mkdir()
    client = editor("agent = made(Script(calls('demo__where'), 'end'))")
    client.answers["session/request_permission"] = choose("allow_once")
    given = {
        "name": "demo",
        "command": sys.executable,
        "args": [str(tmp_path / "server.py")],
        "env": [{"name": "COLOUR", "value": "red"}],
    }
    session = client.start(work, mcpServers=[given])

    client.prompt(session)
    ends = [each["content"][0]["content"]["text"] for each in client.updates("tool_call_update") if "content" in each]
    client.ask("session/close", {"sessionId": session})

    assert ends == [f"{work} red"]
    assert client.close() == 0


BAD_SERVERS: list[Any] = [
    {"name": "x", "command": "/no/such/program", "args": [], "env": []},
    {"type": "http", "name": "y", "url": "http://127.0.0.1:9/mcp", "headers": []},
    {"name": "z", "command": "x", "env": [7]},
    7,
]


@pytest.mark.parametrize("notices", [True, False])
def test_mcp_servers_that_fail_cost_a_message_and_not_the_session(editor: Open, tmp_path: Path, notices: bool) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text(MCP)
    good = {
        "name": "demo",
        "command": sys.executable,
        "args": [str(tmp_path / "server.py")],
        "env": [{"name": "COLOUR", "value": "red"}],
    }
    client = editor("agent = made(Script('fine'))")
    capabilities: dict[str, Any] = {"session": {"notices": {}}} if notices else {}

    session = client.start(tmp_path, client=capabilities, mcpServers=[*BAD_SERVERS, good, good])
    client.prompt(session, "/tools")

    said = [each["title"] for each in client.updates("notice")] if notices else [client.text()]
    for wanted in ("there is no command '/no/such/program'", "'y' (http://127.0.0.1:9/mcp)", "'demo' is there twice"):
        assert any(wanted in each for each in said), (wanted, said)
    assert "demo__where" in client.text()
    assert client.close() == 0


HANG = "import sys\nfor line in sys.stdin: pass\n"


def test_an_mcp_server_that_hangs_holds_up_nothing(editor: Open, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "hang.py").write_text("import glue.acp.server\nglue.acp.server.CONNECT_SECONDS = 0.5\n")
    client = editor("import hang\nagent = made(Script('fine'))")
    hanging = {"name": "h", "command": sys.executable, "args": ["-c", HANG], "env": []}

    session = client.start(tmp_path, mcpServers=[hanging])

    assert client.prompt(session)["stopReason"] == "end_turn"
    assert "still starting" in client.text()
    assert client.close() == 0


def test_two_loads_side_by_side_leave_one_process(editor: Open, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text("import os\nopen(f'pid-{os.getpid()}', 'w').close()\n" + MCP)
    work = tmp_path / "work"
    work.mkdir()
    given = {"name": "demo", "command": sys.executable, "args": [str(tmp_path / "server.py")], "env": []}
    client = editor("agent = made(Script('fine'))")
    session = client.start(work)
    params = {"sessionId": session, "cwd": str(work), "mcpServers": [given]}

    lines = [client.line("session/load", params) for _ in range(3)]
    client.write(b"".join(line for _, line in lines))
    answers = [client.until(lambda frame: "method" not in frame) for _ in lines]
    running = [path for path in work.glob("pid-*") if Path(f"/proc/{path.name[4:]}").exists()]

    assert all("result" in answer for answer in answers)
    assert len(running) == 1
    assert client.close() == 0


# Bad clients --------------------------------------------------------------------------------------

GARBAGE = [
    (b"not json\n", -32700),
    (b"\xff\xfe\x00\n", -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": NaN}\n', -32700),
    (b"[" * 100_000 + b"\n", -32700),
    (b"[]\n", -32600),
    (b"7\n", -32600),
    (b"{}\n", -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 7}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": [1], "result": 1}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "initialize"}\n', -32600),
]


def test_garbage_is_answered_and_survived(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('still here'))")

    for line, code in GARBAGE:
        client.write(line)
        frame = client.answer(None)
        assert frame["error"]["code"] == code, line[:40]
    client.write(b"\n  \n")  # nothing at all
    client.write(b'{"jsonrpc": "2.0", "id": 99, "result": {}}\n')  # an answer nobody asked for
    client.write(b'{"jsonrpc": "2.0", "method": "session/update"}\n')  # a notification nobody knows
    client.write(b'{"jsonrpc": "2.0", "method": "session/prompt", "params": []}\n')
    client.write(b'{"jsonrpc": "2.0", "id": 77, "method": "session/prompt", "params": []}\n')

    assert client.answer(77)["error"]["code"] == -32602
    assert client.prompt(client.start(tmp_path))["stopReason"] == "end_turn"


def test_unknown_methods_are_named(editor: Open) -> None:
    client = editor("agent = made(Script('a'))")

    for method in ("session/fork", "_my/extension", "session/cancel", ""):
        error = client.answer(client.send(method, {}))["error"]
        assert (error["code"], repr(method) in error["message"]) == (-32601, True)


def test_a_line_of_20_megabytes_is_refused_and_the_next_one_read(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('still here'))")

    client.write(b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * 20_000_000 + b'"}\n')

    assert "longer than" in client.answer(None)["error"]["message"]
    assert client.prompt(client.start(tmp_path))["stopReason"] == "end_turn"


def test_half_a_line_and_the_end(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")
    client.start(tmp_path)

    client.write(b'{"jsonrpc": "2.0", "id": 5, "meth')

    assert client.close() == 0


def test_a_prompt_in_pieces_is_one_line(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path)

    number, line = client.line("session/prompt", words(session))
    for at in range(0, len(line), 7):
        client.write(line[at : at + 7])

    assert client.answer(number)["result"]["stopReason"] == "end_turn"


# The editor's own files and terminals -------------------------------------------------------------


def test_files_and_terminals_go_through_an_editor_that_has_them(editor: Open, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on disk")
    steps = (
        "calls(call('read_file', {'path': 'a.txt', 'offset': 2, 'limit': 3})),"
        "calls(call('write_file', {'path': 'b.txt', 'content': 'new'})),"
        "calls(call('shell', {'command': 'make'}, id='sh')),"
        "calls(call('read_file', {'path': '../outside'})), 'done'"
    )
    client = editor(ready=steps)
    client.answers = {
        "session/request_permission": choose("allow_once"),
        "fs/read_text_file": lambda params: {"content": f"unsaved {params.get('line')} {params['path']}"},
        "fs/write_text_file": lambda params: {},
        "terminal/create": lambda params: {"terminalId": "t1"},
        "terminal/wait_for_exit": lambda params: {"exitCode": 3},
        "terminal/output": lambda params: {"output": "built", "truncated": False},
        "terminal/release": lambda params: {},
    }
    session = client.start(tmp_path, client={"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True})

    client.prompt(session)

    told = json.dumps(client.updates("tool_call_update"))
    assert f"unsaved 2 {tmp_path}/a.txt" in told
    assert not (tmp_path / "b.txt").exists()
    written = [frame["params"] for frame in client.frames if frame.get("method") == "fs/write_text_file"]
    assert (written[0]["path"], written[0]["content"]) == (str(tmp_path / "b.txt"), "new")
    ends = [each for each in client.updates("tool_call_update") if each["toolCallId"] == "sh" and "content" in each]
    assert all(each["content"] == [{"type": "terminal", "terminalId": "t1"}] for each in ends)
    assert ends[-1]["rawOutput"] == {"text": "built\n[exit code 3]"}
    methods = [frame["method"] for frame in client.frames if frame.get("method", "").startswith("terminal/")]
    assert methods == ["terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release"]
    assert [each["status"] for each in client.updates("tool_call_update")][-1] == "failed"
    assert client.close() == 0


def test_a_terminal_is_killed_when_the_prompt_is_cancelled(editor: Open, tmp_path: Path) -> None:
    client = editor(ready="calls(call('shell', {'command': 'sleep 9'}))")
    client.answers = {
        "session/request_permission": choose("allow_once"),
        "terminal/create": lambda params: {"terminalId": "t1"},
    }
    session = client.start(tmp_path, client={"terminal": True})
    number = client.send("session/prompt", words(session))
    client.until(lambda frame: frame.get("method") == "terminal/wait_for_exit")

    client.notify("session/cancel", {"sessionId": session})

    assert client.answer(number)["result"]["stopReason"] == "cancelled"
    methods = [frame["method"] for frame in client.frames if frame.get("method", "").startswith("terminal/")]
    assert methods[-2:] == ["terminal/kill", "terminal/release"]
    assert client.close() == 0


def test_an_editor_without_files_and_terminals_is_not_asked_for_them(editor: Open, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on disk")
    steps = (
        "calls(call('read_file', {'path': 'a.txt'})), calls(call('shell', {'command': 'echo from the shell'})), 'done'"
    )
    client = editor(ready=steps)
    client.answers = {"session/request_permission": choose("allow_once")}
    session = client.start(tmp_path)

    client.prompt(session)

    told = json.dumps(client.updates("tool_call_update"))
    assert "on disk" in told
    assert "from the shell" in told
    assert {frame.get("method", "") for frame in client.frames} <= {"", "session/update", "session/request_permission"}
    assert client.close() == 0

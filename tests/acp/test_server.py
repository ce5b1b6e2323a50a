"""`glue acp` in a process: opening, prompting, cancelling, loading and listing sessions."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from fakes.acp_schema import capabilities, methods, sign_ins, updates
from fakes.editor import GLUE, KNOWN, Open, choose, words

from glue.acp.rpc import Response, RpcError
from glue.acp.server import Server
from glue.agent import Agent
from glue.function.decorator import tool
from glue.limits import Limits
from glue.messages import Usage, user
from glue.stores.jsonl import FileStore
from glue.testing import Script, call, calls, fail, say


def test_initialize_returns_the_capabilities_and_other_output_goes_to_stderr(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("import os\nos.system('echo noise of a child')\nagent = made(Script('hello'))")

    result = client.ask("initialize", {"protocolVersion": 1})

    assert result["protocolVersion"] == 1
    assert result["authMethods"] == []
    capabilities = result["agentCapabilities"]
    assert capabilities["loadSession"] is True
    assert capabilities["promptCapabilities"] == {
        "image": True,
        "audio": False,
        "embeddedContext": True,
    }
    assert set(capabilities["sessionCapabilities"]) == {
        "list",
        "resume",
        "fork",
        "close",
        "delete",
        "additionalDirectories",
    }
    assert capabilities["mcpCapabilities"] == {"http": True, "sse": True}
    assert capabilities["auth"] == {"logout": {}}
    assert client.close() == 0
    assert "noise on standard output" in client.stderr
    assert "noise of a child" in client.stderr


def test_other_protocol_versions_are_answered_with_version_1_and_invalid_ones_refused(
    editor: Open,
) -> None:
    client = editor("agent = made(Script('hello'))")

    for newer in (2, 7):
        assert client.ask("initialize", {"protocolVersion": newer})["protocolVersion"] == 1
    for wrong in (
        {},
        {"protocolVersion": "1"},
        {"protocolVersion": True},
        {"protocolVersion": None},
    ):
        assert client.error("initialize", wrong)["code"] == -32602


def test_unknown_authentication_methods_are_refused(editor: Open) -> None:
    client = editor("agent = made(Script('hello'))")

    error = client.error("authenticate", {"methodId": "x"})

    assert "environment" in error["message"]


def test_a_session_needs_an_absolute_path_of_a_directory(editor: Open) -> None:
    client = editor("agent = made(Script('hello'))")

    for cwd in ("relative", "", None, 7, "/there/is/no/such/folder"):
        error = client.error("session/new", {"cwd": cwd, "mcpServers": []})
        assert error["code"] == -32602
        assert "cwd" in error["message"]


def test_a_file_without_an_agent_exits_with_2_and_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("x = 1\n")

    done = subprocess.run(
        [*GLUE, "acp", str(tmp_path / "agent.py")], input=b"", capture_output=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (2, b"")
    assert (
        done.stderr.decode().strip()
        == f"glue: {tmp_path}/agent.py defines no agent; assign one to the variable `agent`"
    )


def test_the_transcript_in_the_docs_is_up_to_date() -> None:
    script = Path(__file__).parents[2] / "bench" / "acp_transcript.py"

    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, b"")


def test_unknown_methods_are_named_in_the_error(editor: Open) -> None:
    client = editor("agent = made(Script('a'))")

    for method in ("session/branch", "_my/extension", "session/cancel", ""):
        error = client.error(method, {})
        assert (error["code"], repr(method) in error["message"]) == (-32601, True)


PROTOCOL_PAGE = Path(__file__).parents[2] / "docs" / "acp-protocol.md"


def documented() -> set[str]:
    table = PROTOCOL_PAGE.read_text().partition("## Methods and updates")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE))


def test_the_docs_list_every_method_and_update_of_the_protocol() -> None:
    assert documented() == set().union(*methods().values()) | updates()


def test_the_docs_list_every_capability_and_sign_in_of_the_protocol() -> None:
    page = PROTOCOL_PAGE.read_text().partition("## Capabilities and sign-in")[2]
    rows = re.findall(r"^\| (client|agent|sign-in) `([^`]+)`", page, re.MULTILINE)
    listed = {side: {name for each, name in rows if each == side} for side, _ in rows}

    assert listed == {
        "client": capabilities("ClientCapabilities"),
        "agent": capabilities("AgentCapabilities"),
        "sign-in": sign_ins(),
    }


def test_an_editor_with_terminals_can_store_a_key_in_one(editor: Open) -> None:
    client = editor("agent = glue.Agent('openai')")

    for offered, kinds in (({}, [None]), ({"auth": {"terminal": True}}, ["terminal", None])):
        given = {"protocolVersion": 1, "clientCapabilities": offered}
        methods = client.ask("initialize", given)["authMethods"]
        assert [method.get("type") for method in methods] == kinds
    assert methods[0]["args"] == ["--setup"]


def test_every_request_of_the_protocol_has_a_handler(editor: Open) -> None:
    client = editor("agent = made(Script('a'))")
    notices = {"session/cancel"}

    for method in sorted(methods()["agent"] - notices):
        error = client.answer(client.send(method, {})).get("error", {})
        assert error.get("code") != -32601, method


STOP_REASONS = {
    "end_turn": ("done", "agent = made(Script('hello'))"),
    "max_tokens": ("truncated", "agent = made(Script(repeat(say('x', stop='max_tokens'))))"),
    "max_turn_requests": (
        "max_turns",
        (
            "limits = glue.Limits(max_turns=2, repeat_halt=None)\n"
            "agent = made(Script(repeat(calls('noop'))), limits=limits)"
        ),
    ),
    "refusal": ("refused", "agent = made(Script(say('no', stop='refusal')))"),
    "cancelled": ("cancelled", "agent = made(Stuck())"),
}


@pytest.mark.parametrize("stop", STOP_REASONS)
def test_a_prompt_ends_with_each_stop_reason_of_the_protocol(
    editor: Open, tmp_path: Path, stop: str
) -> None:
    outcome, source = STOP_REASONS[stop]
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


OTHER_OUTCOMES = {
    "budget": ("max_tokens", "agent = made(Script('hello'), limits=glue.Limits(token_budget=0))"),
    "context_window": ("max_tokens", "agent = made(Script(say('x', stop='context_window')))"),
    "halted": ("end_turn", "agent = made(Script(repeat(calls('noop'))))"),
    "wrapped_up": (
        "end_turn",
        "agent = made(Script(calls('noop'), 'bye'), limits=glue.Limits(max_turns=2, grace=1))",
    ),
}


@pytest.mark.parametrize("outcome", OTHER_OUTCOMES)
def test_outcomes_without_a_stop_reason_of_their_own_are_in_the_meta(
    editor: Open, tmp_path: Path, outcome: str
) -> None:
    stop, source = OTHER_OUTCOMES[outcome]
    client = editor(source)

    result = client.prompt(client.start(tmp_path))

    assert (result["stopReason"], result["_meta"]["outcome"]) == (stop, outcome)


def test_a_failed_run_is_an_error_with_details(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(fail('quota', 'no money left', status=402, model='m')))")
    session = client.start(tmp_path)

    error = client.error("session/prompt", words(session))

    assert error["code"] == -32603
    assert "no money left" in error["message"]
    wanted = {
        "outcome": "failed",
        "kind": "quota",
        "provider": "script",
        "model": "m",
        "status": 402,
    }
    assert error["data"].items() >= wanted.items()


def test_a_key_that_the_provider_refuses_asks_for_authentication(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script(fail('auth', 'bad key')))")
    session = client.start(tmp_path)

    assert client.error("session/prompt", words(session))["code"] == -32000


def test_without_a_key_sessions_open_and_the_prompt_names_the_variable_to_set(
    editor: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name for name in os.environ if name.endswith(("_KEY", "_TOKEN")) or name.startswith("GLUE")
    ]:
        monkeypatch.delenv(name)
    client = editor(args=("-m", "anthropic"))

    begun = client.ask("initialize", {"protocolVersion": 1})
    session = client.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})["sessionId"]
    error = client.error("session/prompt", words(session))
    denied = client.error("authenticate", {"methodId": "ANTHROPIC_API_KEY"})

    assert [each["id"] for each in begun["authMethods"]] == ["ANTHROPIC_API_KEY"]
    assert "Set ANTHROPIC_API_KEY" in begun["authMethods"][0]["description"]
    assert (error["code"], "ANTHROPIC_API_KEY" in error["message"]) == (-32000, True)
    assert (denied["code"], "is not set" in denied["message"]) == (-32000, True)


def test_prompts_are_refused_after_a_logout(
    editor: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path)

    assert client.ask("logout", {}) == {}
    error = client.error("session/prompt", words(session))

    assert (error["code"], "authenticate" in error["message"]) == (-32000, True)
    assert client.ask("authenticate", {"methodId": "any"}) == {}
    assert client.prompt(session)["stopReason"] == "end_turn"


def test_the_settings_of_the_command_line_apply_in_an_editor(
    editor: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"DENY": "danger", "MAX_TURNS": "7", "STORE": str(tmp_path / "x.db")}
    for name, value in settings.items():
        monkeypatch.setenv(f"GLUE_{name}", value)
    client = editor(
        "agent = made(Script(calls(call('danger', {'what': 'x'})), 'b'))",
        args=("agent.py",),
        store="",
    )
    client.answers["session/request_permission"] = choose("allow_once")
    session = client.start(tmp_path)

    client.prompt(session)
    client.ask(
        "session/set_config_option", {"sessionId": session, "configId": "mode", "value": "allow"}
    )

    [end] = [
        update for update in client.updates("tool_call_update") if update.get("status") == "failed"
    ]
    assert "the rule 'danger' forbids it" in str(end)
    assert not client.questions()
    loaded = client.ask(
        "session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
    )
    options = {each["id"]: each["currentValue"] for each in loaded["configOptions"]}
    assert (options["max_turns"], options["mode"]) == ("7", "allow")
    assert (tmp_path / "x.db").is_file()
    assert client.ask("session/delete", {"sessionId": session}) == {}


async def test_limits_may_be_a_function(tmp_path: Path) -> None:
    agent = Agent(Script(), limits=lambda: Limits(max_turns=7))
    server = Server(
        lambda cwd, server, more: agent, FileStore(tmp_path), io.BytesIO(), io.BytesIO()
    )

    made = await server._new({"cwd": str(tmp_path), "mcpServers": []})

    shown = {each["id"]: each["currentValue"] for each in made.result["configOptions"]}
    assert shown["max_turns"] == "7"


def test_a_session_works_after_a_prompt_over_the_budget(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('answered'))")
    session = client.start(tmp_path)

    over = client.prompt(session, "x" * 500_000)
    after = client.prompt(session, "short")

    assert (over["stopReason"], over["_meta"]["outcome"]) == ("max_tokens", "budget")
    assert after["stopReason"] == "end_turn"
    assert client.text().endswith("answered")


def test_titles_notices_and_compactions_are_sent_if_the_editor_shows_them(
    editor: Open, tmp_path: Path
) -> None:
    source = KNOWN + (
        "Known.capabilities = Capabilities(window=2_000)\n"
        "model = Known(*['long ' * 300] * 6, repeat(calls('noop')))\n"
        "agent = made(model, compaction=glue.keep_recent(2))"
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
    assert "repeated the same call" in client.updates("notice")[-1]["title"]


def test_a_cancel_ends_the_running_prompt_and_those_that_wait(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)
    first = client.send("session/prompt", words(session))
    client.until(lambda frame: client.text() == "first ")

    second = client.send("session/prompt", words(session, "another"))
    client.notify("session/cancel", {"sessionId": session})
    answers = {}
    for _ in range(2):
        frame = client.until(lambda frame: "method" not in frame)
        answers[frame["id"]] = frame["result"]["stopReason"]

    assert answers == {first: "cancelled", second: "cancelled"}


def test_a_second_prompt_waits_for_the_first(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('one', 'two'))")
    session = client.start(tmp_path)

    first, one = client.line("session/prompt", words(session))
    second, two = client.line("session/prompt", words(session))
    client.write(one + two)
    answers = [client.until(lambda frame: "method" not in frame)["id"] for _ in range(2)]

    assert answers == [first, second]
    assert client.text() == "onetwo"


def test_too_many_waiting_prompts_are_refused(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)

    lines = [client.line("session/prompt", words(session)) for _ in range(22)]
    client.write(b"".join(line for _, line in lines))
    error = client.answer(lines[-1][0])["error"]
    client.notify("session/cancel", {"sessionId": session})

    assert (error["code"], "busy" in error["message"]) == (-32600, True)


def test_a_fork_continues_on_its_own_and_the_original_stays(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('one', 'two', 'three'))")
    session = client.start(tmp_path)
    client.prompt(session, "first")

    given = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
    forked = client.ask("session/fork", given)
    client.prompt(forked["sessionId"], "second")
    client.ask("session/close", {"sessionId": forked["sessionId"]})
    client.frames.clear()
    client.ask("session/load", {**given, "sessionId": forked["sessionId"]})
    copied = client.text()
    client.frames.clear()
    client.ask("session/load", given)

    assert forked["sessionId"] != session
    assert forked["modes"]["currentModeId"] == "ask"
    assert copied == "onetwo"
    assert client.text() == "one"
    error = client.error("session/fork", {**given, "sessionId": "missing"})
    assert (error["code"], "cannot be forked" in error["message"]) == (-32002, True)


def test_a_session_that_begins_with_a_picture_is_listed(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a cat'))")
    session = client.start(tmp_path)
    picture = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}

    client.ask("session/prompt", {"sessionId": session, "prompt": [picture]})

    listed = client.ask("session/list", {"cwd": str(tmp_path)})["sessions"]
    assert [each["title"] for each in listed] == ["[image]"]
    assert client.updates("session_info_update")[0]["title"] == "[image]"


@pytest.mark.parametrize(
    ("given", "sent"),
    [("Be kind.", "Be kind."), ({"append": "Be kind."}, "Be brief.\n\nBe kind.")],
    ids=["replaced", "appended"],
)
def test_the_editor_may_set_the_system_prompt(
    editor: Open, tmp_path: Path, given: Any, sent: str
) -> None:
    client = editor(
        "agent = glue.Agent(Script(lambda request: request.system), instructions='Be brief.')"
    )
    client.ask("initialize", {"protocolVersion": 1})
    opening = {"cwd": str(tmp_path), "mcpServers": []}

    opened = client.ask("session/new", {**opening, "_meta": {"systemPrompt": given}})
    client.prompt(opened["sessionId"])

    assert client.text() == sent
    wrong = client.error("session/new", {**opening, "_meta": {"systemPrompt": 7}})
    assert "systemPrompt must be a text" in wrong["message"]


def test_a_cancel_sent_together_with_its_prompt_is_not_lost(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)

    for _ in range(20):
        number, prompt = client.line("session/prompt", words(session))
        client.write(prompt + client.line("session/cancel", {"sessionId": session}, notice=True)[1])

        assert client.answer(number)["result"]["stopReason"] == "cancelled"


def test_a_cancelled_tool_call_is_shown_as_failed_before_the_answer(
    editor: Open, tmp_path: Path
) -> None:
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


def test_a_prompt_can_be_cancelled_before_its_first_word(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(say('late', delay=3600), 'next'))")
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))

    client.notify("session/cancel", {"sessionId": session})

    assert client.answer(number)["result"]["stopReason"] == "cancelled"
    assert client.text() == ""


def test_a_cancel_after_the_answer_or_for_an_unknown_session_is_ignored(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('one', 'two'))")
    session = client.start(tmp_path)
    client.prompt(session)

    for params in ({"sessionId": session}, {"sessionId": "nobody"}, {"sessionId": 7}, {}):
        client.notify("session/cancel", params)

    assert client.prompt(session)["stopReason"] == "end_turn"
    assert client.text() == "onetwo"


def test_a_prompt_can_be_cancelled_while_it_asks_for_permission(
    editor: Open, tmp_path: Path
) -> None:
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


async def test_a_prompt_that_is_cancelled_while_it_ends_is_answered_as_cancelled(
    tmp_path: Path,
) -> None:
    class Hasty(FakePeer):
        def notify(self, method: str, params: Any) -> None:
            if params["update"]["sessionUpdate"] == "agent_message_chunk":
                local.server._on_notification("session/cancel", {"sessionId": session})

    local = Local(tmp_path)
    session = await local.new()
    local.server.peer = cast(Any, Hasty())

    assert (await local.prompt(session, "/usage"))["stopReason"] == "cancelled"


async def test_the_agent_of_all_sessions_is_closed_once_at_a_logout_and_at_the_end(
    tmp_path: Path,
) -> None:
    closed = []

    class Closable(Agent[Any, Any]):
        async def aclose(self) -> None:
            closed.append(self)

    agent = Closable(Script())
    server = Server(
        lambda cwd, server, more: agent, FileStore(tmp_path), io.BytesIO(), io.BytesIO()
    )
    for _ in range(2):
        await server._new({"cwd": str(tmp_path), "mcpServers": []})

    await server._on_request("logout", {})()
    assert closed == [agent]
    await server.serve()
    assert closed == [agent, agent]


async def test_a_cancelled_slash_command_is_answered_as_cancelled(tmp_path: Path) -> None:
    server = Server(
        lambda cwd, server, more: Agent(Script()), FileStore(tmp_path), io.BytesIO(), io.BytesIO()
    )
    made = await server._new({"cwd": str(tmp_path), "mcpServers": []})
    session = made.result["sessionId"]

    work = server._on_request(
        "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "/usage"}]}
    )
    server._on_notification("session/cancel", {"sessionId": session})

    assert (await work())["stopReason"] == "cancelled"
    assert (await server._on_request("session/close", {"sessionId": session})()) == {}


def test_closing_a_session_cancels_its_prompt(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)
    first = client.send("session/prompt", words(session))
    client.until(lambda frame: client.text())

    closing = client.send("session/close", {"sessionId": session})

    assert client.answer(first)["result"]["stopReason"] == "cancelled"
    assert client.answer(closing)["result"] == {}
    assert client.error("session/prompt", words(session))["code"] == -32002


def test_a_close_sent_together_with_a_prompt_cancels_the_prompt(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)

    number, prompt = client.line("session/prompt", words(session))
    _, close = client.line("session/close", {"sessionId": session})
    client.write(prompt + close)

    assert client.answer(number)["result"]["stopReason"] == "cancelled"


def test_the_process_ends_if_the_editor_disconnects_during_a_prompt(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Stuck())")
    client.send("session/prompt", words(client.start(tmp_path)))
    client.until(lambda frame: client.text())

    assert client.close() == 0


def test_ctrl_c_ends_the_process_while_the_editor_is_connected(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Stuck())")
    client.start(tmp_path)

    client.process.send_signal(signal.SIGINT)

    assert client.process.wait(timeout=30) == 130


def test_a_refused_prompt_is_in_neither_the_next_request_nor_the_replay(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("""
def quote_all(request):
    return ' '.join(message.text for message in request.messages)
agent = made(Script('a', say('never', stop='refusal'), quote_all))
""")
    session = client.start(tmp_path)

    stops = [client.prompt(session, text)["stopReason"] for text in ("one", "bad", "three")]
    client.frames.clear()
    client.ask("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})

    assert stops == ["end_turn", "refusal", "end_turn"]
    assert [each["content"]["text"] for each in client.updates("user_message_chunk")] == [
        "one",
        "three",
    ]
    assert client.text() == "aone a three"


def test_a_session_can_be_listed_and_loaded_after_kill_9(editor: Open, tmp_path: Path) -> None:
    client = editor("""
first = calls(call('noop', id='n'), text='let me see'), say('well ', stop='max_tokens'), 'done'
agent = made(Script(*first, calls(call('forever', id='f'))))
""")
    session = client.start(tmp_path)
    client.prompt(session, "first question")
    client.send("session/prompt", words(session, "second question"))
    client.until(
        lambda frame: any(each["toolCallId"] == "f" for each in client.updates("tool_call_update"))
    )
    os.kill(client.process.pid, signal.SIGKILL)

    again = editor()
    again.ask("initialize", {"protocolVersion": 1})
    listed = again.ask("session/list", {"cwd": str(tmp_path)})["sessions"]
    loaded = again.ask(
        "session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
    )

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


def test_resume_does_not_replay_the_conversation(editor: Open, tmp_path: Path) -> None:
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
            error = client.error(method, {"sessionId": name, **more})
            assert error["code"] == -32002, method


def test_the_error_of_a_session_that_cannot_be_opened_contains_the_reason_of_the_store(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('a'))")

    params = {"cwd": str(tmp_path), "mcpServers": []}
    unknown = client.error("session/load", {"sessionId": "lost", **params})
    invalid = client.error("session/load", {"sessionId": ["x"], **params})

    assert unknown["message"].startswith("session 'lost' cannot be opened: there is no session")
    assert invalid["message"].startswith("session ['x'] cannot be opened: ")
    assert "there is no session" not in invalid["message"]


def test_a_session_with_a_running_prompt_cannot_be_loaded(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)
    client.send("session/prompt", words(session))
    client.until(lambda frame: client.text())

    params = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}

    assert client.error("session/load", params)["code"] == -32600


async def store_sessions(store: FileStore, count: int) -> None:
    for number in range(count):
        async with store.log(f"s{number:05}", meta={"cwd": "/a"}) as log:
            await log.append(user(f"prompt {number}"))


def test_the_store_is_read_only_for_the_first_page_of_a_list(editor: Open, tmp_path: Path) -> None:
    anyio.run(store_sessions, FileStore(tmp_path / "store", sync=False), 120)
    client = editor("agent = made(Script('a'))")
    first = client.ask("session/list", {})
    for path in (tmp_path / "store").glob("*.jsonl"):
        path.unlink()  # a second read of the store would find no sessions

    second = client.ask("session/list", {"cursor": first["nextCursor"]})
    third = client.ask("session/list", {"cursor": second["nextCursor"]})

    assert [len(page["sessions"]) for page in (first, second, third)] == [50, 50, 20]
    assert client.ask("session/list", {})["sessions"] == []


def test_open_and_closed_sessions_can_be_deleted(editor: Open, tmp_path: Path) -> None:
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
        assert client.error("session/delete", {"sessionId": each})["code"] == -32002
    assert client.error("session/prompt", words(second))["code"] == -32002


# A server without a process ---------------------------------------------------------------------


class FakePeer:
    """A connection that keeps what is sent, and answers each request with one value."""

    tasks: Any = None

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []
        self.told: list[tuple[str, Any]] = []

    async def request(self, method: str, params: Any) -> Any:
        self.asked.append((method, params))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def notify(self, method: str, params: Any) -> None:
        self.told.append((method, params))

    async def drain(self) -> None:
        await anyio.lowlevel.checkpoint()

    def updates(self, kind: str) -> list[dict[str, Any]]:
        shown = [params["update"] for method, params in self.told if method == "session/update"]
        return [each for each in shown if each["sessionUpdate"] == kind]


class Local:
    """A server in this process, whose requests are made one after another."""

    def __init__(self, folder: Path, *steps: Any, answer: Any = None, **options: Any) -> None:
        agent = Agent(Script(*steps))
        self.store = FileStore(folder / "store")
        self.server = Server(
            lambda cwd, server, more: agent, self.store, io.BytesIO(), io.BytesIO(), **options
        )
        self.peer = FakePeer(answer)
        self.server.peer = cast(Any, self.peer)
        self.cwd = str(folder)

    async def ask(self, method: str, **params: Any) -> Any:
        answer = await self.server._on_request(method, params)()
        if not isinstance(answer, Response):
            return answer
        answer.then()
        return answer.result

    async def code(self, method: str, **params: Any) -> tuple[int, str]:
        with pytest.raises(RpcError) as caught:
            await self.ask(method, **params)
        return caught.value.code, str(caught.value)

    async def new(self, **params: Any) -> str:
        made = await self.ask("session/new", cwd=self.cwd, **params)
        return str(made["sessionId"])

    async def prompt(self, session: str, text: str = "hi") -> Any:
        block = {"type": "text", "text": text}
        return await self.ask("session/prompt", sessionId=session, prompt=[block])

    def offer(self, **capabilities: Any) -> None:
        self.server._client = capabilities


@pytest.mark.parametrize(("text", "has_figures"), [("/usage", False), ("hi", True)])
async def test_a_prompt_is_cancelled_at_its_first_words(
    tmp_path: Path, text: str, has_figures: bool
) -> None:
    local = Local(tmp_path, "one two")
    session = await local.new()

    def cancel(method: str, params: Any) -> None:
        if params["update"]["sessionUpdate"] == "agent_message_chunk":
            local.server._on_notification("session/cancel", {"sessionId": session})

    local.peer.notify = cancel  # type: ignore[method-assign]
    answer = await local.prompt(session, text)

    assert answer["stopReason"] == answer["_meta"]["outcome"] == "cancelled"
    assert ("turns" in answer["_meta"]) == has_figures


async def test_agents_are_closed_once_at_a_logout_and_when_the_editor_leaves(
    tmp_path: Path,
) -> None:
    closed = []

    class Connected(Agent):
        """An agent whose connections are counted when they are closed."""

        async def aclose(self) -> None:
            closed.append(self.name)

    agent = Connected(Script(), name="one")
    server = Server(
        lambda cwd, server, more: agent, FileStore(tmp_path), io.BytesIO(), io.BytesIO()
    )
    for _ in range(2):
        await server._new({"cwd": str(tmp_path), "mcpServers": []})

    await server._on_request("logout", {})()
    assert closed == ["one"]

    await server.serve()
    assert closed == ["one", "one"]


async def test_missing_keys_are_offered_as_ways_to_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    local = Local(tmp_path, keys=["SOME_KEY"])
    hint = "Set SOME_KEY in the environment of the editor, and restart the editor."

    plain = await local.ask("initialize", protocolVersion=1)
    terminal = await local.ask(
        "initialize", protocolVersion=1, clientCapabilities={"auth": {"terminal": True}}
    )

    variable = {"id": "SOME_KEY", "name": "SOME_KEY", "description": hint}
    assert plain["authMethods"] == [variable]
    assert [each["id"] for each in terminal["authMethods"]] == ["glue-keys", "SOME_KEY"]
    assert (terminal["authMethods"][0]["type"], terminal["authMethods"][0]["args"]) == (
        "terminal",
        ["--setup"],
    )
    for version in (True, "1", None):
        assert await local.code("initialize", protocolVersion=version) == (
            -32602,
            "protocolVersion must be a whole number",
        )


async def test_prompts_are_answered_again_after_a_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Local(tmp_path, "one", keys=["SOME_KEY"])
    session = await local.new()
    await local.ask("logout")

    assert (await local.code("authenticate", methodId="x")) == (
        -32602,
        "unknown authentication method 'x'; methods: SOME_KEY",
    )
    monkeypatch.setenv("SOME_KEY", "")
    assert (await local.code("authenticate", methodId="SOME_KEY"))[0] == -32000
    block = {"type": "text", "text": "hi"}
    assert await local.code("session/prompt", sessionId=session, prompt=[block]) == (
        -32000,
        "you have logged out; authenticate again",
    )
    monkeypatch.setenv("SOME_KEY", "k")
    assert await local.ask("authenticate", methodId="SOME_KEY") == {}
    assert (await local.prompt(session))["stopReason"] == "end_turn"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"cwd": None}, "cwd must be an absolute path, not None"),
        ({"cwd": "src"}, "cwd must be an absolute path, not 'src'"),
        ({"cwd": "/no/such/folder"}, "cwd '/no/such/folder' is not a directory"),
        ({"additionalDirectories": "/"}, "additionalDirectories must be a list of absolute paths"),
        (
            {"additionalDirectories": ["/", "src"]},
            "additionalDirectories must be an absolute path, not 'src'",
        ),
        ({"mcpServers": {}}, "mcpServers must be a list"),
    ],
)
async def test_a_session_is_not_opened_with_wrong_parameters(
    tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    local = Local(tmp_path)

    assert await local.code("session/new", **{"cwd": str(tmp_path), **params}) == (-32602, message)
    assert await local.store.list() == ()


async def test_a_new_session_shows_its_commands_after_the_answer(tmp_path: Path) -> None:
    local = Local(tmp_path)

    session = await local.new()

    [(_, told)] = local.peer.told
    assert told["sessionId"] == session
    assert {each["name"] for each in told["update"]["availableCommands"]} >= {"usage", "limits"}


async def test_a_loaded_session_has_the_usage_and_the_messages_of_the_store(
    tmp_path: Path,
) -> None:
    local = Local(tmp_path, say("one", usage=Usage(input=3, output=1, cost=0.5)), "two")
    session = await local.new()
    await local.prompt(session)
    again = Local(tmp_path, "three")

    await again.ask("session/load", sessionId=session, cwd=again.cwd)

    [shown] = again.peer.updates("agent_message_chunk")
    assert shown["content"]["text"] == "one"
    await again.prompt(session, "/usage")
    text = again.peer.updates("agent_message_chunk")[-1]["content"]["text"]
    assert text.startswith("1 request, 3 tokens in, 1 out, $0.5000, ")
    await again.prompt(session, "next")
    assert again.peer.updates("session_info_update") == []  # it has a title already


async def test_a_resumed_session_sends_no_messages(tmp_path: Path) -> None:
    local = Local(tmp_path, "one")
    session = await local.new()
    await local.prompt(session)
    again = Local(tmp_path)

    await again.ask("session/resume", sessionId=session, cwd=again.cwd)

    assert again.peer.updates("agent_message_chunk") == []


@pytest.mark.parametrize("method", ["session/load", "session/fork", "session/delete"])
@pytest.mark.parametrize("name", ["missing", "../x", None, 7])
async def test_a_session_that_is_not_stored_is_not_found(
    tmp_path: Path, method: str, name: Any
) -> None:
    local = Local(tmp_path)

    code, message = await local.code(method, sessionId=name, cwd=local.cwd)

    verb = {"session/load": "opened", "session/fork": "forked", "session/delete": "deleted"}
    assert code == -32002
    assert message.startswith(f"session {name!r} cannot be {verb[method]}: ")


@pytest.mark.parametrize("method", ["session/prompt", "session/close", "session/set_mode"])
async def test_a_session_that_is_not_open_is_not_found(tmp_path: Path, method: str) -> None:
    assert await Local(tmp_path).code(method, sessionId="s") == (
        -32002,
        "the session 's' is not open; use session/new or session/load",
    )


async def test_a_fork_has_the_settings_and_the_title_of_the_original(tmp_path: Path) -> None:
    local = Local(tmp_path, "one", "two")
    session = await local.new()
    await local.prompt(session)
    await local.ask("session/set_config_option", sessionId=session, configId="mode", value="read")

    made = await local.ask("session/fork", sessionId=session, cwd=local.cwd)

    assert made["modes"]["currentModeId"] == "read"
    local.peer.told.clear()
    await local.prompt(made["sessionId"])
    assert local.peer.updates("session_info_update") == []


async def test_a_list_is_read_again_after_a_fork_or_a_deletion(tmp_path: Path) -> None:
    local = Local(tmp_path, "one")
    session = await local.new()
    await local.prompt(session)
    listed = await local.ask("session/list")
    cursor = "9999999999.0 x"  # of a page before all sessions

    made = await local.ask("session/fork", sessionId=session, cwd=local.cwd)
    forked = await local.ask("session/list", cursor=cursor)
    kept = local.server._settings_file(session)
    assert await local.ask("session/delete", sessionId=session) == {}
    left = await local.ask("session/list", cursor=cursor)

    def names(page: Any) -> set[str]:
        return {each["sessionId"] for each in page["sessions"]}

    assert names(listed) == {session}
    assert names(forked) == {session, made["sessionId"]}
    assert names(left) == {made["sessionId"]}
    assert not kept.exists()


async def test_a_notice_is_a_text_for_editors_without_notices(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.server._show_notice("s", "Stopped", "why")
    local.server._show_notice("s", "Stopped")
    local.offer(session={"notices": {}})
    local.server._show_notice("s", "Stopped", "why")
    local.server._show_notice("s", "Stopped")

    texts = [each["content"]["text"] for each in local.peer.updates("agent_message_chunk")]
    assert texts == ["\n[Stopped: why]\n", "\n[Stopped]\n"]
    notice = {"sessionUpdate": "notice", "severity": "warning", "title": "Stopped"}
    assert local.peer.updates("notice") == [{**notice, "description": "why"}, notice]


async def test_the_title_of_a_session_is_its_first_prompt_on_one_line(tmp_path: Path) -> None:
    local = Local(tmp_path, "one", "two", "three")
    session = await local.new()

    await local.prompt(session, "Fix\nthe " + "x" * 100)
    await local.prompt(session, "another")

    [info] = local.peer.updates("session_info_update")
    assert info["title"] == "Fix the " + "x" * 71 + "…"


async def test_a_prompt_without_content_is_refused_and_waits_for_nothing(tmp_path: Path) -> None:
    local = Local(tmp_path, "one")
    session = await local.new()
    blank = [{"type": "text", "text": " "}, {"type": "text", "text": "\n"}]

    for _ in range(30):  # a refused prompt takes no place in the queue
        refused = await local.code("session/prompt", sessionId=session, prompt=blank)

    assert refused == (-32602, "the prompt is empty; send a text, an image or a file")
    assert (await local.prompt(session))["stopReason"] == "end_turn"


async def test_a_changed_mode_is_sent_only_if_it_changed(tmp_path: Path) -> None:
    local = Local(tmp_path)
    session = await local.new()
    option = {"sessionId": session, "configId": "mode"}

    await local.ask("session/set_config_option", **option, value="ask")
    assert local.peer.updates("current_mode_update") == []
    await local.ask("session/set_config_option", **option, value="allow")
    await local.ask("session/set_mode", sessionId=session, modeId="read")

    assert [each["currentModeId"] for each in local.peer.updates("current_mode_update")] == [
        "allow"
    ]
    assert len(local.peer.updates("config_option_update")) == 1


async def test_a_run_that_stops_early_is_explained_and_its_usage_counted(tmp_path: Path) -> None:
    cut = say("half", stop="max_tokens", usage=Usage(input=3, output=1, cost=0.5))
    local = Local(tmp_path, *[cut] * 9)
    session = await local.new()

    done = await local.prompt(session)

    assert done["stopReason"] == "max_tokens"
    last = local.peer.updates("agent_message_chunk")[-1]["content"]["text"]
    assert last.startswith("\n[The answer was cut off: The answer is incomplete")
    await local.prompt(session, "/usage")
    text = local.peer.updates("agent_message_chunk")[-1]["content"]["text"]
    assert text.startswith(f"{done['_meta']['requests']} requests, ")


async def test_an_error_of_a_run_is_an_error_of_the_prompt(tmp_path: Path) -> None:
    local = Local(tmp_path, fail("auth", "bad key"))
    session = await local.new()

    block = {"type": "text", "text": "hi"}
    code = await local.code("session/prompt", sessionId=session, prompt=[block])

    assert code == (-32000, "script: bad key")
    assert await local.ask("session/close", sessionId=session) == {}


FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"action": "accept", "content": {"name": "Ada"}}, {"name": "Ada"}),
        ({"action": "accept", "content": "Ada"}, None),
        ({"action": "accept"}, None),
        ({"action": "decline", "content": {"name": "Ada"}}, None),
        ("accept", None),
        (RpcError(-32603, "closed"), None),
    ],
)
async def test_a_form_is_answered_only_if_the_user_accepts_it(
    tmp_path: Path, answer: Any, expected: Any
) -> None:
    mcp = pytest.importorskip("glue.tools.mcp", reason="the extra [mcp] is not installed")
    local = Local(tmp_path, answer=answer)
    session = await local.new()
    local.offer(elicitation={"form": {}})
    opened = local.server._sessions[session]
    shown = opened.ids.begin(("c1",), call("x", id="c1"))

    question = mcp.Question(server="srv", message="Who?", schema=FORM, call_id="c1")
    assert await local.server._elicit(opened, question) == expected

    asked = {
        "sessionId": session,
        "toolCallId": shown.id,
        "mode": "form",
        "message": "srv: Who?",
        "requestedSchema": FORM,
    }
    assert local.peer.asked == [("elicitation/create", asked)]


async def test_a_form_becomes_a_problem_for_editors_without_forms(tmp_path: Path) -> None:
    mcp = pytest.importorskip("glue.tools.mcp", reason="the extra [mcp] is not installed")
    local = Local(tmp_path)
    session = await local.new()
    local.offer(elicitation={"url": {}})

    question = mcp.Question(server="srv", message="Who?", schema=FORM)
    assert await local.server._elicit(local.server._sessions[session], question) is None

    assert local.peer.asked == []
    await local.prompt(session, "/usage")
    first = local.peer.updates("agent_message_chunk")[0]["content"]["text"]
    assert first == "\n[srv asked a question that this editor cannot show: Who?]\n"


async def test_a_page_is_opened_by_the_editor_which_learns_when_the_user_is_done(
    tmp_path: Path,
) -> None:
    mcp = pytest.importorskip("glue.tools.mcp", reason="the extra [mcp] is not installed")
    local = Local(tmp_path, answer={"action": "accept"})
    session = await local.new()
    local.offer(elicitation={"url": {}})
    local.peer.told.clear()
    question = mcp.Question(server="srv", message="Sign in.", url="https://example.com/in", id="q1")

    async with anyio.create_task_group() as tasks:
        local.peer.tasks = tasks
        assert await local.server._elicit(local.server._sessions[session], question) == {}
        await anyio.wait_all_tasks_blocked()
        assert local.peer.told == []
        question.finished.set()

    asked = {
        "sessionId": session,
        "mode": "url",
        "message": "srv: Sign in. (opens https://example.com)",
        "elicitationId": "q1",
        "url": "https://example.com/in",
    }
    assert local.peer.asked == [("elicitation/create", asked)]
    assert local.peer.told == [("elicitation/complete", {"elicitationId": "q1"})]


async def test_the_budgets_of_the_settings_apply_to_a_new_session(tmp_path: Path) -> None:
    local = Local(tmp_path, budgets={"max_turns": 3})

    made = await local.ask("session/new", cwd=local.cwd)

    shown = {each["id"]: each["currentValue"] for each in made["configOptions"]}
    assert (shown["max_turns"], shown["max_requests"]) == ("3", "50")


async def test_an_open_session_is_closed_when_it_is_deleted(tmp_path: Path) -> None:
    local = Local(tmp_path, "one")
    session = await local.new()
    await local.prompt(session)

    await local.ask("session/delete", sessionId=session)

    assert (await local.code("session/close", sessionId=session))[0] == -32002
    assert await local.store.list() == ()


async def test_a_tool_asks_for_permission_in_the_editor(tmp_path: Path) -> None:
    @tool(needs_permission=True)
    def danger() -> str:
        """Do something dangerous."""
        return "done"

    selected = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
    local = Local(tmp_path, answer=selected)
    agent = Agent(Script(calls("danger"), "end"), tools=[danger])
    local.server._make = lambda cwd, server, more: agent
    session = await local.new()

    await local.prompt(session)

    assert [method for method, _ in local.peer.asked] == ["session/request_permission"]
    assert local.peer.updates("tool_call_update")[-1]["status"] == "completed"

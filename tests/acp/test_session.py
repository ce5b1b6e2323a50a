"""Sessions of an editor: the list, the options, slash commands and MCP servers."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from fakes.editor import Open, choose, words
from fakes.mcp_servers import SCRIPTED

from glue.acp.rpc import RpcError
from glue.acp.session import PAGE, OpenSession, list_page
from glue.agent import Agent
from glue.messages import Text, Usage
from glue.permission import Decision, PermissionRequest, allow, deny
from glue.stores.store import SessionInfo
from glue.testing import Script


def info(
    number: int, cwd: str = "/a", title: str = "x", updated: float | None = None
) -> SessionInfo:
    when = float(number if updated is None else updated)
    return SessionInfo(
        id=f"s{number:03}", created=0.0, updated=when, title=title, meta={"cwd": cwd}
    )


def test_pages_list_every_session_once_even_if_sessions_are_added_meanwhile() -> None:
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


def test_sessions_without_a_prompt_or_of_another_directory_are_not_listed() -> None:
    sessions = [
        info(1),
        info(2, "/b"),
        info(3, title=""),
        SessionInfo(id="x", created=0, updated=0, title="no cwd"),
    ]

    assert [each["sessionId"] for each in list_page(sessions)["sessions"]] == ["s002", "s001"]
    assert [each["sessionId"] for each in list_page(sessions, "/b")["sessions"]] == ["s002"]


@pytest.mark.parametrize("cursor", ["", "x", "-1", 7, ["1 a"], "one two"])
def test_an_invalid_cursor_is_refused(cursor: Any) -> None:
    with pytest.raises(RpcError, match="nextCursor of an earlier list"):
        list_page([], None, cursor)


async def test_the_usage_command_writes_the_cost_in_dollars(tmp_path: Path) -> None:
    opened = OpenSession(Agent(Script()).session(), tmp_path / "settings.json", str(tmp_path))
    opened.add_usage(2, Usage(input=3, output=1, cost=1.5))

    assert (
        await opened.command([Text(text="/usage")])
        == "2 requests, 3 tokens in, 1 out, $1.50, 0 messages"
    )


def options(shown: Any) -> dict[str, Any]:
    """Return the current values of all options, by id."""
    return {each["id"]: each["currentValue"] for each in shown["configOptions"]}


def test_limits_belong_to_a_session_and_can_be_changed(editor: Open, tmp_path: Path) -> None:
    client = editor("""
def echo_count(request):
    return calls(call('echo', {'n': len(request.messages)}))
agent = made(Script(repeat(echo_count)))
""")
    session = client.start(tmp_path, _meta={"limits": {"max_turns": 1}})
    other = client.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})

    shown = options(other)
    assert (shown.pop("model"), shown.pop("effort")) == ("script", "default")
    assert shown == {
        "mode": "ask",
        "max_turns": "32",
        "max_requests": "50",
        "token_budget": "100000",
    }
    assert client.prompt(session)["_meta"]["turns"] == 1
    set_two = {"sessionId": session, "configId": "max_turns", "value": "2"}
    assert options(client.ask("session/set_config_option", set_two))["max_turns"] == "2"
    assert client.prompt(session)["_meta"]["turns"] == 2
    client.prompt(session, "/limits max_turns=3 token_budget=none")
    assert options(client.updates("config_option_update")[-1])["token_budget"] == "none"
    assert client.prompt(session)["_meta"]["turns"] == 3
    for wrong in ({"max_turns": -1}, {"max_turns": "x"}, {"speed": 1}, {"max_turns": [1]}):
        params = {"cwd": str(tmp_path), "mcpServers": [], "_meta": {"limits": wrong}}
        assert client.error("session/new", params)["code"] == -32602


def test_a_limit_that_is_changed_during_a_prompt_applies_to_it(
    editor: Open, tmp_path: Path
) -> None:
    client = editor(
        "agent = made(Script(*[calls(call('danger', {'what': str(n)})) for n in range(9)]))",
    )
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))
    asked = client.until(lambda frame: frame.get("method") == "session/request_permission")

    client.ask(
        "session/set_config_option", {"sessionId": session, "configId": "max_turns", "value": "1"}
    )
    allowed = {"jsonrpc": "2.0", "id": asked["id"], "result": choose("allow_once")({})}
    client.write(json.dumps(allowed).encode() + b"\n")

    assert client.answer(number)["result"]["stopReason"] == "max_turn_requests"


def test_mode_limits_model_and_effort_are_restored_when_a_session_is_loaded(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path)
    client.prompt(session)
    for name, value in [
        ("mode", "read"),
        ("max_turns", "7"),
        ("model", "offline"),
        ("effort", "low"),
    ]:
        client.ask(
            "session/set_config_option", {"sessionId": session, "configId": name, "value": value}
        )
    client.close()

    again = editor()
    loaded = again.ask(
        "session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
    )

    wanted = {"mode": "read", "max_turns": "7", "model": "offline", "effort": "low"}
    assert options(loaded).items() >= wanted.items()
    assert loaded["modes"]["currentModeId"] == "read"
    other = again.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    assert options(other)["mode"] == "ask"


def test_unknown_options_and_invalid_values_are_refused(editor: Open, tmp_path: Path) -> None:
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
        {"configId": "cache", "value": True},  # only for editors that understand boolean options
        {"value": "1"},
    ]
    for params in wrong:
        assert client.error("session/set_config_option", {**session, **params})["code"] == -32602, (
            params
        )


def test_boolean_options_are_offered_to_editors_that_understand_them(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path, client={"session": {"configOptions": {"boolean": {}}}})
    params = {"sessionId": session, "configId": "cache", "type": "boolean", "value": True}

    assert options(client.ask("session/set_config_option", params))["cache"] is True
    assert client.error("session/set_config_option", {**params, "value": "yes"})["code"] == -32602


def test_slash_commands_are_answered_without_the_model(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('from the model'))")
    session = client.start(tmp_path)

    for text in ("/usage", "/tools", "/model", "/model offline", "/limits"):
        assert client.prompt(session, text)["stopReason"] == "end_turn"

    client.prompt(session, "/model offline")
    assert {
        each["name"] for each in client.updates("available_commands_update")[0]["availableCommands"]
    } == {
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
    for wrong, message in (
        ("/model nobody:x", "unknown provider"),
        ("/limits depth=3", "there are: max_turns"),
    ):
        assert client.prompt(session, wrong)["stopReason"] == "end_turn"
        assert message in client.text()


def test_an_unknown_slash_command_goes_to_the_model(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('from the model'))")

    client.prompt(client.start(tmp_path), "/dance")

    assert client.text() == "from the model"


# An MCP server without the SDK, because it starts faster.
TOOL_SERVER = """
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


def test_the_tools_of_the_editors_mcp_servers_are_tools_of_the_session(
    editor: Open, tmp_path: Path
) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text(TOOL_SERVER)
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
    ends = [
        each["content"][0]["content"]["text"]
        for each in client.updates("tool_call_update")
        if "content" in each
    ]
    client.ask("session/close", {"sessionId": session})

    assert ends == [f"{work} red"]
    assert client.close() == 0


INVALID_SERVERS: list[Any] = [
    {"name": "x", "command": "/no/such/program", "args": [], "env": []},
    {"type": "http", "name": "y", "url": "http://127.0.0.1:9/mcp", "headers": []},
    {"name": "z", "command": "x", "env": [7]},
    7,
]


@pytest.mark.parametrize("notices", [True, False])
def test_mcp_servers_that_fail_are_reported_and_the_session_opens(
    editor: Open, tmp_path: Path, notices: bool
) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text(TOOL_SERVER)
    good = {
        "name": "demo",
        "command": sys.executable,
        "args": [str(tmp_path / "server.py")],
        "env": [{"name": "COLOUR", "value": "red"}],
    }
    client = editor("agent = made(Script('fine'))")
    capabilities: dict[str, Any] = {"session": {"notices": {}}} if notices else {}

    session = client.start(tmp_path, client=capabilities, mcpServers=[*INVALID_SERVERS, good, good])
    client.prompt(session, "/tools")

    texts = [each["title"] for each in client.updates("notice")] if notices else [client.text()]
    for wanted in (
        "the command '/no/such/program' does not exist",
        "'y' (http://127.0.0.1:9/mcp)",
        "'demo' is listed twice",
    ):
        assert any(wanted in each for each in texts), (wanted, texts)
    assert "demo__where" in client.text()
    assert client.close() == 0


HANGING_SERVER = "import sys\nfor line in sys.stdin: pass\n"


def test_an_mcp_server_that_hangs_does_not_block_the_session(editor: Open, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "hang.py").write_text(
        "import glue.acp.server\nglue.acp.server.CONNECT_SECONDS = 0.5\n"
    )
    client = editor("import hang\nagent = made(Script('fine'))")
    hanging = {"name": "h", "command": sys.executable, "args": ["-c", HANGING_SERVER], "env": []}

    session = client.start(tmp_path, mcpServers=[hanging])

    assert client.prompt(session)["stopReason"] == "end_turn"
    assert "still starting" in client.text()
    assert client.close() == 0


def test_simultaneous_loads_of_a_session_leave_one_mcp_server(editor: Open, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text(
        "import os\nopen(f'pid-{os.getpid()}', 'w').close()\n" + TOOL_SERVER
    )
    work = tmp_path / "work"
    work.mkdir()
    given = {
        "name": "demo",
        "command": sys.executable,
        "args": [str(tmp_path / "server.py")],
        "env": [],
    }
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


PROMPT_SERVER = """
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
        greet = {"name": "greet", "description": "Greet.", "arguments": [{"name": "who"}]}
        result = {"prompts": [greet]}
    elif method == "prompts/get":
        text = "Say hello to " + asked["params"]["arguments"]["who"]
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    body = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}), flush=True)
"""


def test_prompts_of_mcp_servers_are_slash_commands(editor: Open, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    client = editor("agent = made(Script(lambda request: f'heard: {request.messages[-1].text}'))")
    given = {"name": "demo", "command": sys.executable, "args": ["-c", PROMPT_SERVER], "env": []}
    session = client.start(tmp_path, mcpServers=[given])

    client.prompt(session, "/demo:greet Ada Lovelace")

    commands = {
        each["name"]: each
        for each in client.updates("available_commands_update")[0]["availableCommands"]
    }
    assert commands["demo:greet"]["input"] == {"hint": "<who>"}
    assert client.text() == "heard: Say hello to Ada Lovelace"
    assert client.close() == 0


SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


def with_questions(editor: Open, folder: Path, tool: str, client: dict[str, Any]) -> Any:
    """Prompt an agent that calls a tool of an MCP server which asks the user a question."""
    (folder / "server.py").write_text(SCRIPTED)
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("form", "page")]
    given = json.dumps({"tools": tools, "message": "Delete it?", "form": SURE})
    server = {
        "name": "srv",
        "command": sys.executable,
        "args": [str(folder / "server.py"), given],
        "env": [],
    }
    opened = editor(
        f"agent = glue.Agent(Script(calls(call('srv__{tool}')),"
        " lambda request: request.messages[-1].text))"
    )
    opened.answers["session/request_permission"] = choose("allow_once")
    opened.answers["elicitation/create"] = lambda params: {
        "action": "accept",
        **({"content": {"sure": False}} if params["mode"] == "form" else {}),
    }
    session = opened.start(folder, client=client, mcpServers=[server])
    opened.prompt(session)
    return opened


def shown(client: Any) -> list[dict[str, Any]]:
    return [
        frame["params"] for frame in client.frames if frame.get("method") == "elicitation/create"
    ]


def test_a_page_of_an_mcp_server_is_opened_by_the_editor(editor: Open, tmp_path: Path) -> None:
    client = with_questions(editor, tmp_path, "page", {"elicitation": {"url": {}}})

    (question,) = shown(client)
    assert question["url"] == "https://example.com/sign-in"
    assert question["message"] == "srv: Sign in. (opens https://example.com)"
    assert json.loads(client.text()) == {"action": "accept"}
    finished = [f for f in client.frames if f.get("method") == "elicitation/complete"]
    if not finished:
        finished = [client.until(lambda frame: frame.get("method") == "elicitation/complete")]
    assert finished[0]["params"] == {"elicitationId": question["elicitationId"]}


def test_a_form_of_an_mcp_server_is_shown_by_the_editor(editor: Open, tmp_path: Path) -> None:
    client = with_questions(editor, tmp_path, "form", {"elicitation": {"form": {}}})

    (question,) = shown(client)
    assert (question["message"], question["requestedSchema"]) == ("srv: Delete it?", SURE)
    assert json.loads(client.text()) == {"action": "accept", "content": {"sure": False}}


@pytest.mark.parametrize(
    ("tool", "title"),
    [
        ("form", "srv: Delete it?"),
        ("page", "srv: Sign in. Open https://example.com/sign-in (at https://example.com)"),
    ],
)
def test_an_editor_without_forms_and_pages_asks_for_permission_once(
    editor: Open, tmp_path: Path, tool: str, title: str
) -> None:
    client = with_questions(editor, tmp_path, tool, {})

    about_tool, about_question = client.questions()
    assert about_tool["toolCall"]["name"] == f"srv__{tool}"
    assert about_question["toolCall"]["title"] == title
    assert [option["optionId"] for option in about_question["options"]] == [
        "allow_once",
        "reject_once",
    ]
    assert json.loads(client.text())["action"] == "accept"


# A session without a process --------------------------------------------------------------------


def opened_in(folder: Path, **settings: Any) -> OpenSession:
    agent = Agent(Script(), **settings)
    return OpenSession(agent.session("s"), folder / "state" / "settings.json", str(folder))


def current(opened: OpenSession) -> dict[str, Any]:
    return options({"configOptions": opened.options(booleans=True)})


def test_the_choices_of_a_limit_include_its_value(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)
    opened.set_limits({"max_turns": 7, "max_requests": 50, "token_budget": "none"})

    turns, requests, budget = opened.options(booleans=False)[3:]

    assert (turns["name"], turns["currentValue"], turns["type"]) == ("Turns", "7", "select")
    assert [each["value"] for each in turns["options"]] == [
        "7",
        "8",
        "16",
        "32",
        "64",
        "128",
        "none",
    ]
    assert [each["value"] for each in requests["options"]] == [
        "10",
        "25",
        "50",
        "100",
        "200",
        "none",
    ]
    assert [(each["value"], each["name"]) for each in budget["options"]] == [
        ("25000", "25,000"),
        ("100000", "100,000"),
        ("400000", "400,000"),
        ("1600000", "1,600,000"),
        ("none", "No limit"),
    ]
    assert budget["currentValue"] == "none"


def test_every_option_has_its_category_and_current_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    opened = opened_in(tmp_path)

    mode, model, effort, *_ = opened.options(booleans=False)
    cache = opened.options(booleans=True)[-1]

    assert (mode["category"], mode["id"], mode["name"]) == ("mode", "mode", "Mode")
    assert [each["value"] for each in mode["options"]] == ["ask", "allow", "read"]
    assert (model["category"], model["currentValue"]) == ("model", "script")
    names = [each["value"] for each in model["options"]]
    assert names[0] == "script"
    assert any(name.startswith("mistral:") for name in names)
    assert not any(name.startswith(("openai:", "anthropic:")) for name in names)
    assert (effort["category"], effort["currentValue"]) == ("thought_level", "default")
    assert effort["options"][0] == {"value": "default", "name": "Default"}
    assert cache == {
        "type": "boolean",
        "id": "cache",
        "name": "Prompt cache",
        "currentValue": False,
    }
    assert opened.modes()["currentModeId"] == "ask"
    assert [each["id"] for each in opened.modes()["availableModes"]] == ["ask", "allow", "read"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("speed", "1", "unknown option 'speed'; options: mode, model, effort, max_turns, "),
        ("cache", "yes", "the value of 'cache' must be true or false, not 'yes'"),
        ("mode", True, "the value of 'mode' must be a text, not True"),
        ("mode", "root", "unknown mode 'root'; modes: ask, allow, read"),
        ("effort", "most", "unknown effort 'most'; efforts: default, "),
        ("max_turns", "many", "max_turns must be a whole number or none, not 'many'"),
        ("model", "nobody:x", "unknown provider 'nobody'"),
    ],
)
def test_an_invalid_option_is_named_and_changes_nothing(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    opened = opened_in(tmp_path)
    before = current(opened)

    with pytest.raises(RpcError) as caught:
        opened.set_option(name, value, booleans=True)

    assert caught.value.code == -32602
    assert str(caught.value).startswith(message)
    assert current(opened) == before


def test_options_are_set_and_restored_from_a_private_file(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)
    given = {
        "mode": "read",
        "model": "offline",
        "effort": "low",
        "max_turns": "7",
        "max_requests": "none",
        "token_budget": "25000",
        "cache": True,
    }
    for name, value in given.items():
        opened.set_option(name, value, booleans=True)
    opened.save()

    again = opened_in(tmp_path)
    again.restore()

    assert current(opened) == current(again) == given
    assert stat.S_IMODE(opened.settings_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(opened.settings_file.parent.stat().st_mode) == 0o700
    again.set_option("effort", "default", booleans=True)
    assert current(again)["effort"] == "default"


@pytest.mark.parametrize("text", [None, "", "not json", "[]", "7", "{}"])
def test_settings_that_cannot_be_read_change_nothing(tmp_path: Path, text: str | None) -> None:
    opened = opened_in(tmp_path)
    before = current(opened)
    if text is not None:
        opened.settings_file.parent.mkdir()
        opened.settings_file.write_text(text)

    opened.restore()

    assert current(opened) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "root"},
        {"limits": {"depth": 1}},
        {"limits": [1]},
        {"model": "nobody:x"},
        {"model": None},
        {"reasoning": "most"},
        {"cache": "yes"},
    ],
)
def test_an_invalid_setting_is_skipped_and_the_others_apply(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    valid = {
        "mode": "read",
        "limits": {"max_turns": 7},
        "model": "offline",
        "reasoning": "low",
        "cache": True,
    }
    opened = opened_in(tmp_path)
    before = current(opened)
    opened.settings_file.parent.mkdir()
    opened.settings_file.write_text(json.dumps({**valid, **wrong}))

    opened.restore()

    names = {"limits": "max_turns", "reasoning": "effort"}
    [skipped] = (names.get(name, name) for name in wrong)
    shown = {"mode": "read", "max_turns": "7", "model": "offline", "effort": "low", "cache": True}
    assert current(opened) == {**before, **shown, skipped: before[skipped]}


def test_settings_that_cannot_be_written_still_apply(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, not a folder")
    opened = opened_in(tmp_path)
    opened.set_mode("read")

    opened.save()

    assert opened.mode == "read"


def test_only_settings_that_differ_from_the_agent_are_saved(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)

    opened.save()

    saved = json.loads(opened.settings_file.read_text())
    assert saved.keys() == {"mode", "limits"}


@pytest.mark.parametrize(
    ("own", "given", "text"),
    [
        ("Be brief.", None, "Be brief."),
        ("Be brief.", "", "Be brief."),
        ("Be brief.", "Be long.", "Be long."),
        ("Be brief.", {"append": "Be kind."}, "Be brief.\n\nBe kind."),
        ("", {"append": "Be kind."}, "Be kind."),
    ],
)
def test_instructions_are_replaced_or_extended(
    tmp_path: Path, own: str, given: Any, text: str
) -> None:
    opened = opened_in(tmp_path, instructions=own)

    opened.set_instructions(given)

    assert opened.session.settings.instructions == text


@pytest.mark.parametrize("given", [7, ["x"], {"append": 7}, {}])
def test_other_instructions_are_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(RpcError, match=r'systemPrompt must be a text, or \{"append"'):
        opened_in(tmp_path).set_instructions(given)


def test_mcp_servers_of_an_editor_have_a_command_or_an_address(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    opened = opened_in(tmp_path)
    header = {"name": "authorization", "value": "x"}

    configs = opened.server_configs(
        [
            {"name": "a", "command": "run", "args": [1], "env": [{"name": "N", "value": 2}]},
            {"command": "run"},
            {"name": "b", "url": "http://localhost/mcp", "headers": [header]},
            {"name": "c", "type": "sse", "url": "http://localhost/sse"},
            {"name": "a", "command": "other"},
            {"name": "d"},
            "e",
        ]
    )

    assert [each.name for each in configs] == ["a", "mcp", "b", "c"]
    first, bare, web, older = configs
    assert (first.command, first.args, first.env) == ("run", ("1",), {"N": "2"})
    assert (first.cwd, bare.args, bare.env) == (str(tmp_path), (), {})
    assert (web.url, web.headers, web.sse) == (
        "http://localhost/mcp",
        {"authorization": "x"},
        False,
    )
    assert (older.sse, older.headers) == (True, {})
    assert [problem.partition(" (")[0] for problem in opened.problems] == [
        "the MCP server 'a' is listed twice; the second was skipped",
        "an MCP server was skipped, because its configuration is invalid",
        "an MCP server was skipped, because its configuration is invalid",
    ]
    assert opened.server_configs(None) == opened.server_configs([]) == []
    with pytest.raises(RpcError, match="mcpServers must be a list"):
        opened.server_configs({})


class Answers:
    """A permission that gives one answer to every question, and keeps the questions."""

    def __init__(self, allowed: bool) -> None:
        self.allowed, self.asked = allowed, list[PermissionRequest]()

    async def ask_once(self, request: PermissionRequest) -> Decision:
        self.asked.append(request)
        return allow() if self.allowed else deny()


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"url": "https://example.com/in"}, {}),
        ({"schema": SURE}, {"sure": True}),
        ({"schema": {"properties": SURE["properties"]}}, {}),
        ({}, {}),
    ],
)
async def test_a_question_of_a_server_is_confirmed_by_a_permission(
    tmp_path: Path, fields: Any, answer: dict[str, Any]
) -> None:
    mcp = pytest.importorskip("glue.tools.mcp", reason="the extra [mcp] is not installed")
    question = mcp.Question(server="srv", message="Sure?", call_id="c1", **fields)
    opened = opened_in(tmp_path)
    for allowed in (True, False):
        opened.permission = answers = cast(Any, Answers(allowed))

        assert await opened.confirm(question) == (answer if allowed else None)

        [asked] = answers.asked
        page = " Open https://example.com/in (at https://example.com)" if question.url else ""
        assert (asked.tool, asked.action) == ("srv", "mcp-question:srv")
        assert asked.target == f"Sure?{page}"
        assert (asked.call_id, asked.session_id) == ("c1", "s")
    assert not opened.problems


@pytest.mark.parametrize("kind", ["string", "integer"])
async def test_a_question_that_a_permission_cannot_answer_is_a_problem(
    tmp_path: Path, kind: str
) -> None:
    mcp = pytest.importorskip("glue.tools.mcp", reason="the extra [mcp] is not installed")
    schema = {"properties": {"sure": {"type": "boolean"}, "x": {"type": kind}}}
    wanted = {**schema, "required": ["sure", "x"]}
    opened = opened_in(tmp_path)

    assert await opened.confirm(mcp.Question(server="srv", message="Sure?")) is None
    opened.permission = answers = cast(Any, Answers(True))
    assert await opened.confirm(mcp.Question(server="srv", message="Who?", schema=wanted)) is None

    assert opened.problems == [
        "srv asked a question that this editor cannot show: Sure?",
        "srv asked a question that this editor cannot show: Who?",
    ]
    assert not answers.asked


async def test_prompts_wait_for_those_before_them_and_are_cancelled_together(
    tmp_path: Path,
) -> None:
    opened = opened_in(tmp_path)
    first, second = opened.add_prompt(), opened.add_prompt()
    turns: list[str] = []

    async def wait() -> None:
        await opened.wait_for_turn(second)
        turns.append("second")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await opened.wait_for_turn(first)
        await anyio.wait_all_tasks_blocked()
        turns.append("first")
        opened.prompts.remove(first)
        first.done.set()

    assert turns == ["first", "second"]
    third = opened.add_prompt()
    opened.cancel()
    assert (first.cancel.cancelled, second.cancel.cancelled, third.cancel.cancelled) == (
        False,
        True,
        True,
    )


async def test_a_session_is_closed_after_its_prompts_and_its_servers(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)
    pending, steps = opened.add_prompt(), list[str]()

    async def close() -> None:
        await opened.close()
        steps.append("closed")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
        await anyio.wait_all_tasks_blocked()
        assert pending.cancel.cancelled
        assert not opened.closing.is_set()
        steps.append("prompt")
        pending.done.set()
        await opened.closing.wait()
        await anyio.wait_all_tasks_blocked()
        steps.append("servers")
        opened.closed.set()

    assert steps == ["prompt", "servers", "closed"]


async def test_servers_that_cannot_be_connected_are_a_problem_and_nobody_waits_for_them(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    opened = opened_in(tmp_path)

    await opened.run_servers(cast(Any, [None]))

    assert len(opened.problems) == 1
    assert opened.connected.is_set()
    assert opened.closed.is_set()
    assert opened.servers is None


def test_twenty_prompts_may_wait_besides_the_one_that_runs(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)
    for _ in range(21):
        opened.add_prompt()

    with pytest.raises(RpcError, match="the session is busy: 20 prompts wait") as caught:
        opened.add_prompt()

    assert (caught.value.code, len(opened.prompts)) == (-32600, 21)


def test_the_usage_of_a_session_counts_an_unknown_cost_as_zero(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)

    opened.add_usage(2, Usage(input=3, cost=1.5))
    opened.add_usage(1, None)
    opened.add_usage(1, Usage(input=1, cost=None))

    assert (opened.requests, opened.usage.input, opened.usage.cost) == (4, 4, 1.5)


async def test_a_failing_command_is_answered_with_its_error(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)

    assert await opened.command([Text(text="hello")]) is None
    assert await opened.command([Text(text="/usage"), Text(text="x")]) is None
    wrong = await opened.command([Text(text="/limits depth=3")])
    assert isinstance(wrong, str)
    assert wrong.startswith("/limits: there is no limit 'depth'")


@pytest.mark.parametrize(("surplus", "has_more"), [(0, False), (1, True)])
def test_a_page_of_a_list_has_50_sessions(surplus: int, has_more: bool) -> None:
    page = list_page([info(number) for number in range(50 + surplus)])

    assert len(page["sessions"]) == 50
    assert ("nextCursor" in page) == has_more
    assert page["sessions"][0] == {
        "sessionId": f"s{49 + surplus:03}",
        "cwd": "/a",
        "title": "x",
        "updatedAt": f"1970-01-01T00:00:{49 + surplus}+00:00",
    }


def test_sessions_that_changed_at_the_same_time_are_listed_by_their_ids() -> None:
    page = list_page([info(number, updated=1) for number in (3, 1, 2)])

    assert [each["sessionId"] for each in page["sessions"]] == ["s001", "s002", "s003"]

"""Session updates: messages, calls, diffs, plans, usage and replays as the editor sees them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.editor import KNOWN, Open, choose

from glue.acp.updates import (
    STOP_REASONS,
    CallIds,
    ShownCall,
    diff_of,
    failure,
    plan_update,
    replay,
    tool_call,
)
from glue.errors import ConfigError, MissingKey, ProviderError
from glue.function.decorator import tool
from glue.limits import Outcome, StopReason
from glue.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    user,
)
from glue.testing import call


class RootedTool:
    """A tool with a root, which is never called."""

    root = "/a"
    kind = "edit"
    spec = ToolSpec(name="any")
    alone = advisory = False

    async def invoke(self, call: ToolCall, context: Any) -> Any:
        raise AssertionError


def test_the_replies_of_a_chain_have_one_message_id(editor: Open, tmp_path: Path) -> None:
    client = editor(
        "chain = say('one ', stop='max_tokens', thinking='hm'), say('two', chunk=1)\n"
        "agent = made(Script(*chain, 'new'))"
    )
    session = client.start(tmp_path)

    client.prompt(session)
    first = client.updates("agent_message_chunk")
    client.prompt(session)
    second = client.updates("agent_message_chunk")[len(first) :]

    chain = {each["messageId"] for each in [*first, *client.updates("agent_thought_chunk")]}
    assert [each["content"]["text"] for each in first] == ["one ", "t", "w", "o"]
    assert len(chain) == 1
    assert {each["messageId"] for each in second}.isdisjoint(chain)


def test_usage_is_sent_after_each_request_with_the_cost_of_the_whole_session(
    editor: Open, tmp_path: Path
) -> None:
    client = editor(
        KNOWN + "u = Usage(input=100, output=10, cost=0.5)\n"
        "first = calls('noop', usage=u), say('a', usage=u)\n"
        "agent = made(Known(*first, say('b', usage=u), 'no usage'))"
    )
    session = client.start(tmp_path)

    for _ in range(3):
        client.prompt(session)

    shown = client.updates("usage_update")
    assert [each["used"] for each in shown[:3]] == [110, 110, 110]
    assert [each["cost"]["amount"] for each in shown[:3]] == [0.5, 1.0, 1.5]
    assert shown[3]["_meta"] == {"estimated": True}


def test_usage_has_the_context_window_of_the_model(editor: Open, tmp_path: Path) -> None:
    client = editor(KNOWN + "agent = made(Known('hi'))")

    client.prompt(client.start(tmp_path))

    assert client.updates("usage_update")[0]["size"] == 128_000


def test_usage_is_not_sent_if_the_context_window_is_unknown(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script(say('hi', usage=Usage(input=3, output=1))))")
    session = client.start(tmp_path)

    client.prompt(session)
    client.prompt(session, "/usage")

    assert client.updates("usage_update") == []
    assert "1 request, 3 tokens in, 1 out, cost unknown, 2 messages" in client.text()


def test_edits_are_shown_as_diffs_with_locations_and_again_after_a_load(
    editor: Open, tmp_path: Path
) -> None:
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
    whole = {
        "type": "diff",
        "path": path,
        "oldText": "one\ntwo\nthree\n",
        "newText": "one\ntwo\n3\n",
    }
    assert edit["content"] == [whole]
    assert (edit["name"], edit["title"]) == ("edit_file", "edit_file a.txt")
    assert write["content"] == [
        {"type": "diff", "path": path, "oldText": "one\ntwo\n3\n", "newText": "all new"}
    ]
    assert new["content"] == [{"type": "diff", "path": str(work / "b.txt"), "newText": "b"}]
    ends = {
        each["toolCallId"]: each for each in client.updates("tool_call_update") if "content" in each
    }
    assert ends[edit["toolCallId"]]["content"] == edit["content"]
    assert ends[wrong["toolCallId"]]["status"] == "failed"
    assert ends[wrong["toolCallId"]]["content"][0]["type"] == "content"

    again = editor()
    again.ask("session/load", {"sessionId": session, "cwd": str(work), "mcpServers": []})
    shown = [each for each in again.updates("tool_call_update") if each["status"] == "completed"]
    assert shown[1]["content"] == [
        {"type": "diff", "path": path, "oldText": "three", "newText": "3"}
    ]


def test_plans_are_shown_and_repeated_call_ids_are_made_unique(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("""
from glue.acp.editor import plan_tool
steps = [{'content': 'look', 'status': 'completed'}, {'content': 'act', 'status': 'in_progress'}]
plans = [calls(call('plan', {'steps': shown}, id='1')) for shown in (steps, steps[:1])]
agent = glue.Agent(Script(*plans, 'ok'), tools=[plan_tool()])
""")

    client.prompt(client.start(tmp_path))

    first = client.updates("plan")[0]["entries"]
    assert first[1] == {"content": "act", "priority": "medium", "status": "in_progress"}
    assert [each["toolCallId"] for each in client.updates("tool_call")] == ["1", "1#2"]
    assert [each["toolCallId"] for each in client.updates("tool_call_update")] == ["1", "1#2"]


def test_prompts_may_contain_images_links_and_embedded_files(editor: Open, tmp_path: Path) -> None:
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


def test_embedded_files_may_be_texts_images_and_pdfs(editor: Open, tmp_path: Path) -> None:
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
    zipped = [
        {
            "type": "resource",
            "resource": {"uri": "a.zip", "blob": "AAAA", "mimeType": "application/zip"},
        }
    ]
    error = client.error("session/prompt", {"sessionId": session, "prompt": zipped})
    assert "a.zip contains application/zip" in error["message"]


INVALID_PROMPTS: list[Any] = [
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


def test_an_invalid_prompt_is_refused_and_the_session_is_not_busy(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('fine'))")
    session = client.start(tmp_path)

    for prompt in INVALID_PROMPTS:
        error = client.error("session/prompt", {"sessionId": session, "prompt": prompt})
        assert error["code"] == -32602, prompt

    assert client.prompt(session)["stopReason"] == "end_turn"


def assistant(
    *content: Any, stop: StopReason = StopReason.END_TURN, excluded: bool = False
) -> AssistantMessage:
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return AssistantMessage(content=parts, stop_reason=stop, excluded=excluded)


def kinds(messages: list[Message]) -> list[str]:
    return [update["sessionUpdate"] for update in replay(messages, CallIds())]


def test_a_replay_has_compacted_messages_but_no_refused_prompts() -> None:
    old: list[Message] = [replace(user("old"), excluded=True), assistant("answer", excluded=True)]
    summary = UserMessage(content=(Text(text="summary"),), origin="summary")
    refused: list[Message] = [
        replace(user("bad"), excluded=True),
        assistant("no", stop=StopReason.REFUSAL, excluded=True),
    ]
    filtered = [replace(user("worse"), excluded=True)]

    updates = list(
        replay([*old, summary, *refused, *filtered, user("new"), assistant("fine")], CallIds())
    )

    assert [update["content"]["text"] for update in updates] == ["old", "answer", "new", "fine"]


def test_a_replay_shows_images_and_makes_call_ids_unique() -> None:
    asked = call("noop", id="1")
    result = ToolMessage(call_id="1", name="noop", content=(Text(text="ok"), Image(data=b"x")))
    turn: list[Message] = [assistant(asked, stop=StopReason.TOOL_USE), result]

    updates = list(replay([user("go", Image(data=b"x")), *turn, *turn], CallIds()))

    assert [update["content"]["type"] for update in updates[:2]] == ["text", "image"]
    assert [update["toolCallId"] for update in updates[2:]] == ["1", "1", "1#2", "1#2"]
    assert [block["content"]["type"] for block in updates[3]["content"]] == ["text", "image"]


def test_a_replay_leaves_out_results_that_were_delivered_without_a_call() -> None:
    delivered = ToolMessage(
        call_id="delivered", name="final", content=(Text(text="x"),), excluded=True
    )

    assert kinds([user("go"), assistant("x"), delivered]) == [
        "user_message_chunk",
        "agent_message_chunk",
    ]


def test_every_outcome_but_failed_has_a_stop_reason() -> None:
    assert set(STOP_REASONS) == set(Outcome) - {Outcome.FAILED}


def test_a_missing_key_asks_for_authentication_and_other_config_errors_do_not() -> None:
    assert failure(MissingKey("openai", ["OPENAI_API_KEY"])).code == -32000
    assert failure(ConfigError("no such thing")).code == -32602


def test_only_a_refused_key_asks_for_authentication() -> None:
    assert failure(ProviderError("bad key", kind="auth")).code == -32000
    assert failure(ProviderError("busy", kind="rate_limited")).code == -32603


@pytest.mark.parametrize("arguments", ["{bad", "[1]", '"x"', "", '{"n": NaN}', "[" * 100_000])
def test_invalid_arguments_can_be_shown(arguments: str) -> None:
    asked = ToolCall(id="1", name="read_file", arguments=arguments)

    shown = tool_call(ShownCall("1", asked, RootedTool()), "pending")

    assert isinstance(shown["rawInput"], dict)
    json.dumps(shown, allow_nan=False)


def test_locations_have_a_line_if_it_is_known() -> None:
    def line(name: str, before: str | None = None, **arguments: Any) -> Any:
        shown = ShownCall("1", call(name, {"path": "x.py", **arguments}), RootedTool())
        shown.diff = diff_of(shown, before)
        return tool_call(shown, "pending")["locations"][0].get("line")

    assert line("read_file", offset=7) == 7
    assert line("read_file", offset=0) is None
    assert line("read_file", offset=True) is None
    assert line("list_dir", offset=3) is None
    assert line("edit_file", "a\nb\nc", old="c", new="d") == 3
    assert line("edit_file", "a", old="c", new="d") is None
    without_root = ShownCall("1", call("read_file", {"path": "x"}))
    assert "locations" not in tool_call(without_root, "pending")


def test_calls_without_path_and_texts_have_no_diff() -> None:
    def diff(name: str, **arguments: Any) -> Any:
        return diff_of(ShownCall("1", call(name, arguments), RootedTool()), None)

    assert diff("edit_file", path="x", old=1, new="b") is None
    assert diff("edit_file", path="", old="a", new="b") is None
    assert diff("grep", path="x", old="a", new="b") is None


def test_invalid_entries_of_a_plan_are_left_out() -> None:
    made = plan_update(
        [{"content": "a", "status": "done", "priority": ["x"]}, {"status": "pending"}, 7]
    )

    assert made["entries"] == [{"content": "a", "priority": "medium", "status": "pending"}]


def test_titles_and_kinds_come_from_the_tool() -> None:
    @tool(title="Send mail", kind="execute")
    def send(path: str) -> str:
        """Send a file."""
        return path

    shown = tool_call(ShownCall("1", call("send", {"path": "a.txt"}), send), "pending")
    unknown = tool_call(ShownCall("1", call("read_file", {"path": "a.txt"})), "pending")

    assert (shown["title"], shown["name"], shown["kind"]) == ("Send mail a.txt", "send", "execute")
    assert (unknown["title"], unknown["kind"]) == ("read_file a.txt", "other")

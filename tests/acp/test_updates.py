"""Session updates: messages, calls, diffs, plans, usage and replays as the editor sees them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest
from fakes.editor import KNOWN, Open, choose

from glue import events
from glue.acp.rpc import RpcError
from glue.acp.updates import (
    STOP_REASONS,
    CallIds,
    Reporter,
    ShownCall,
    answer,
    diff_of,
    disk_text,
    failure,
    plan_update,
    prompt_parts,
    replay,
    tool_call,
    touched_path,
)
from glue.errors import ConfigError, MissingKey, ProviderError
from glue.function.decorator import tool
from glue.limits import Outcome, StopReason, estimate_tokens
from glue.loop.transcript import estimate
from glue.messages import (
    AssistantMessage,
    Image,
    Message,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    user,
)
from glue.provider import TextDelta, ThinkingDelta
from glue.result import RunResult
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


# The listener ---------------------------------------------------------------------------------


class Sent:
    """A reporter of events, and the updates that it sent."""

    def __init__(self, *tools: Any, window: int | None = None, compaction: bool = False) -> None:
        self.updates: list[dict[str, Any]] = []
        self.ids = CallIds()
        self.reporter = Reporter(
            send=self.updates.append,
            drain=anyio.lowlevel.checkpoint,
            ids=self.ids,
            tools=tools,
            compaction=compaction,
            window=window,
            cost=0.25,
        )

    def after(self, *given: Any) -> list[dict[str, Any]]:
        """Return the updates that the events cause."""
        begin = len(self.updates)
        for event in given:
            self.reporter(event)
        return self.updates[begin:]


def finished(asked: ToolCall, text: str = "ok") -> events.ToolEnd:
    message = ToolMessage(call_id=asked.id, name=asked.name, content=(Text(text=text),))
    return events.ToolEnd(call=asked, message=message, seconds=0.1)


def update(asked: ToolCall, **fields: Any) -> events.ToolUpdate:
    return events.ToolUpdate(call_id=asked.id, name=asked.name, **fields)


def start_of_reply(id: str) -> events.MessageStart:
    return events.MessageStart(id=id, role="assistant")


def message_ids(sent: list[dict[str, Any]]) -> list[str]:
    return [each["messageId"] for each in sent]


@pytest.mark.parametrize(
    ("first", "is_one"), [(StopReason.PAUSE_TURN, True), (StopReason.END_TURN, False)]
)
def test_a_reply_that_the_provider_paused_continues_under_its_message_id(
    first: StopReason, is_one: bool
) -> None:
    delta = TextDelta(text="x")
    paused = events.MessageEnd(message=assistant("x", stop=first))

    sent = Sent().after(
        *(start_of_reply("a"), delta, paused),
        *(start_of_reply("b"), delta, events.MessageEnd(message=assistant("x"))),
        *(start_of_reply("c"), delta),
    )

    assert message_ids(sent) == ["a", "a" if is_one else "b", "c"]


def test_a_cut_reply_that_is_continued_keeps_its_message_id() -> None:
    delta = TextDelta(text="x")
    again = events.ContinuationAttempt(attempt=1, chars=1, tokens=1, left=1)
    question = events.MessageStart(id="u", role="user")

    sent = Sent().after(
        *(start_of_reply("a"), delta, events.MessageEnd(message=assistant("x"))),
        *(again, question, events.MessageEnd(message=user("go on"))),
        *(start_of_reply("b"), ThinkingDelta(text="hm")),
    )

    assert message_ids(sent) == ["a", "a"]
    assert [each["sessionUpdate"] for each in sent] == [
        "agent_message_chunk",
        "agent_thought_chunk",
    ]


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_compaction_is_shown_by_editors_that_understand_it(is_shown: bool) -> None:
    sent = Sent(compaction=is_shown).after(events.Compacted(before=900, after=90, removed=4))

    assert [(each["sessionUpdate"], each["status"]) for each in sent] == (
        [("compaction_update", "completed")] if is_shown else []
    )


def test_the_cost_of_the_session_grows_with_each_reply() -> None:
    reporter = Sent(window=100)
    usage = Usage(input=3, output=1, cost=0.5)

    priced = reporter.after(events.MessageEnd(message=replace(assistant("x"), usage=usage)))
    unknown = replace(usage, cost=None)
    free = reporter.after(events.MessageEnd(message=replace(assistant("x"), usage=unknown)))

    shown = {"sessionUpdate": "usage_update", "size": 100, "used": 4}
    assert priced == [{**shown, "cost": {"amount": 0.75, "currency": "USD"}}]
    assert free == priced


def test_a_reply_without_usage_has_the_estimated_tokens_of_its_request() -> None:
    request = Request(messages=(user("a" * 400),))

    [sent] = Sent(window=100).after(
        events.RequestStart(number=1, request=request),
        events.MessageEnd(message=assistant("b" * 400)),
    )

    assert sent["_meta"] == {"estimated": True}
    assert sent["used"] == estimate((*request.messages, assistant("b" * 400)), estimate_tokens)


def test_a_call_that_needs_permission_is_pending_and_others_are_in_progress() -> None:
    @tool(needs_permission=True)
    def save() -> str:
        """Save."""
        return ""

    @tool
    def look() -> str:
        """Look."""
        return ""

    sent = Sent(save, look).after(
        *(events.ToolStart(call=call(name, id=name)) for name in ("save", "look", "gone"))
    )

    assert [(each["name"], each["status"]) for each in sent] == [
        ("save", "pending"),
        ("look", "in_progress"),
        ("gone", "in_progress"),
    ]


def test_a_running_call_shows_its_progress() -> None:
    reporter, asked = Sent(), call("build", id="1")
    reporter.after(events.ToolStart(call=asked))
    diff = {"type": "diff", "path": "/a", "newText": "x"}

    sent = reporter.after(
        update(asked, text="half"),
        update(asked, data={"diff": diff}),
        update(asked, data={"terminal_id": "t1"}),
        update(asked, data={"plan": [{"content": "look"}]}),
        update(asked, data={"diff": "none", "terminal_id": 7, "plan": {}}),
        update(asked, data=["no dict"]),
        update(call("other", id="2"), text="of an unknown call"),
    )

    assert [each.get("status") for each in sent] == ["in_progress"] * 3 + [None]
    assert [each["content"] for each in sent[:3]] == [
        [{"type": "content", "content": {"type": "text", "text": "half"}}],
        [diff],
        [{"type": "terminal", "terminalId": "t1"}],
    ]
    assert sent[3]["sessionUpdate"] == "plan"


def test_the_end_of_a_call_shows_its_terminal_or_diff_or_result() -> None:
    reporter, diff = Sent(), {"type": "diff", "path": "/a", "newText": "x"}
    ends: list[dict[str, Any]] = []
    for data in ({"terminal_id": "t1"}, {"diff": diff}, None):
        asked = call("build", id="1")
        reporter.after(events.ToolStart(call=asked), update(asked, data=data))
        ends += reporter.after(finished(asked))
    again = reporter.after(finished(call("build", id="1")))

    raw = {"rawOutput": {"text": "ok"}}
    text = {"type": "content", "content": {"type": "text", "text": "ok"}}
    shown = {"sessionUpdate": "tool_call_update", "status": "completed"}
    assert ends == [
        {
            **shown,
            "toolCallId": "1",
            "content": [{"type": "terminal", "terminalId": "t1"}],
            **raw,
        },
        {**shown, "toolCallId": "1#2", "content": [diff], **raw},
        {**shown, "toolCallId": "1#3", "content": [text]},
    ]
    assert again == []  # a call that has ended is forgotten


def test_the_newest_of_the_open_calls_with_an_id_is_current() -> None:
    ids = CallIds()
    first, second = (ids.begin((key,), call("x", id="1")) for key in "ab")

    assert ids.current("1") is second
    assert ids.current("2") is None
    ids.open.pop(("b",))
    assert ids.current("1") is first


# Calls and their files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        ({"path": "a.py", "command": "ls"}, "any a.py"),
        ({"path": "", "command": "ls  -l\n"}, "any ls -l"),
        ({"pattern": "x", "revision": "HEAD"}, "any x"),
        ({"command": ["git", "log", 3]}, "any git log 3"),
        ({"path": 7}, "any"),
        ({"other": "x"}, "any"),
        ({"path": "x" * 300}, "any " + "x" * 195 + "…"),
    ],
)
def test_the_title_of_a_call_names_its_object(arguments: dict[str, Any], title: str) -> None:
    shown = tool_call(ShownCall("1", call("any", arguments)), "pending")

    assert shown["title"] == title


def test_a_location_keeps_the_root_of_the_editor_and_resolves_linked_folders(
    tmp_path: Path,
) -> None:
    (tmp_path / "real" / "src").mkdir(parents=True)
    (tmp_path / "root").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("src")
    (tmp_path / "real" / "src" / "a.py").symlink_to("b.py")
    root = str(tmp_path / "root")

    assert touched_path(root, "link/a.py") == f"{root}/src/a.py"
    assert touched_path(root, "./link/../a.py") == f"{root}/a.py"


@pytest.mark.parametrize(("size", "is_read"), [(256 * 1024, True), (256 * 1024 + 1, False)])
def test_files_of_at_most_256_kibibytes_are_shown_in_a_diff(
    tmp_path: Path, size: int, is_read: bool
) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * size)

    assert disk_text(str(tmp_path), "a.txt") == ("x" * size if is_read else None)


def test_a_diff_reads_no_file_outside_the_root_and_replaces_invalid_bytes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to("../secret")
    (root / "binary").write_bytes(b"a\xff")

    assert disk_text(str(root), "../secret") is None
    assert disk_text(str(root), "link") is None
    assert disk_text(str(root), "missing") is None
    assert disk_text(str(root), "binary") == "a\ufffd"


def test_a_diff_shows_what_is_known_of_the_file() -> None:
    def diff(name: str, before: str | None, **arguments: Any) -> Any:
        asked = call(name, {"path": "x", **arguments})
        return diff_of(ShownCall("1", asked, RootedTool()), before)

    shown = {"type": "diff", "path": "/a/x"}
    assert diff("write_file", None, content="new") == {**shown, "newText": "new"}
    assert diff("write_file", "", content="new") == {**shown, "oldText": "", "newText": "new"}
    assert diff("write_file", "old", content=7) is None
    edited = {**shown, "oldText": "a b", "newText": "a c"}
    assert diff("edit_file", "a b", old="b", new="c") == edited
    assert diff("edit_file", None, old="b", new="c") == {**shown, "oldText": "b", "newText": "c"}
    assert diff("edit_file", None, old="", new="c") is None
    assert diff("edit_file", None, old="b", new=7) is None
    assert diff("other_tool", "b", old="b", new="c") is None


def test_only_calls_of_tools_that_edit_have_a_diff() -> None:
    class Reader(RootedTool):
        kind = "read"

    asked = call("write_file", {"path": "x", "content": "new"})

    assert diff_of(ShownCall("1", asked, Reader()), None) is None
    assert diff_of(ShownCall("1", asked), None) is None


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"type": "text"}, "a block of the type text needs the field 'text'"),
        ({"type": "image", "data": ""}, "a block of the type image needs the field 'mimeType'"),
        (
            {"type": "text", "text": 7},
            "a block of the type text is invalid: expected a text, not 7",
        ),
        (
            {"type": "audio"},
            "a prompt may contain text, image, resource_link and resource blocks, not 'audio'",
        ),
        (7, "a prompt may contain text, image, resource_link and resource blocks, not None"),
        (
            {"type": "resource", "resource": {"uri": "x", "blob": "AAAA"}},
            (
                "a block of the type resource is invalid: x contains binary data without a MIME "
                "type, which models cannot read"
            ),
        ),
    ],
)
def test_an_invalid_block_is_named_in_the_error(block: Any, message: str) -> None:
    with pytest.raises(RpcError) as caught:
        prompt_parts([block])

    assert (caught.value.code, str(caught.value)) == (-32602, message)


@pytest.mark.parametrize("blocks", [None, [], "text", 7, {"type": "text"}])
def test_a_prompt_is_a_list_of_blocks(blocks: Any) -> None:
    with pytest.raises(RpcError) as caught:
        prompt_parts(blocks)

    message = "prompt must be a list of at least one content block"
    assert (caught.value.code, str(caught.value)) == (-32602, message)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource", "resource": {"uri": "x", "blob": "aGVs*bG8="}},
        {"type": "image", "mimeType": "image/png", "data": "aGVs*bG8="},
    ],
)
def test_data_with_a_character_outside_base64_is_refused(block: Any) -> None:
    with pytest.raises(RpcError, match="is invalid: "):
        prompt_parts([block])


def test_only_images_with_data_are_sent_as_content() -> None:
    far = Image(media_type="image/png", url="https://example.com/a.png")
    result = ToolMessage(call_id="1", name="x", content=(Text(text=""), far, Image(data=b"x")))

    sent = list(replay([assistant(call("x", id="1")), result], CallIds()))

    assert sent[-1]["content"] == [
        {
            "type": "content",
            "content": {"type": "image", "mimeType": "image/png", "data": "eA=="},
        }
    ]


def test_a_plan_keeps_known_priorities_and_states() -> None:
    made = plan_update([{"content": 7, "status": "completed", "priority": "high"}])

    assert made == {
        "sessionUpdate": "plan",
        "entries": [{"content": "7", "priority": "high", "status": "completed"}],
    }


# Answers and replays --------------------------------------------------------------------------


def outcome(**fields: Any) -> RunResult[Any]:
    usage = Usage(input=3, output=1)
    given = {
        "outcome": Outcome.DONE,
        "stop_reason": None,
        "usage": usage,
        "turns": 1,
        "requests": 2,
    }
    return RunResult(messages=(), new_messages=(), text="", **{**given, **fields})


def test_the_answer_to_a_prompt_has_the_figures_of_the_run() -> None:
    plain = {
        "outcome": "done",
        "turns": 1,
        "requests": 2,
        "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4},
    }

    assert answer(outcome()) == {"stopReason": "end_turn", "_meta": plain}
    priced = outcome(
        usage=Usage(input=3, output=1, cost=0.0),
        notice="cut",
        error=ConfigError("why"),
        meta={"mine": 1, "turns": "theirs"},
        outcome=Outcome.TRUNCATED,
    )
    assert answer(priced) == {
        "stopReason": "max_tokens",
        "_meta": {
            **plain,
            "mine": 1,
            "outcome": "truncated",
            "cost": 0.0,
            "notice": "cut",
            "detail": "why",
        },
    }


def test_a_failed_run_is_an_error_with_its_figures() -> None:
    failed = outcome(
        outcome=Outcome.FAILED,
        error=ProviderError("busy", kind="overloaded", provider="p", model="m", status=529),
    )

    with pytest.raises(RpcError, match=r"^p: busy$") as caught:
        answer(failed)

    assert caught.value.data == {
        "outcome": "failed",
        "error": "ProviderError",
        "kind": "overloaded",
        "provider": "p",
        "model": "m",
        "status": 529,
        "turns": 1,
        "requests": 2,
    }
    assert str(failure(None)) == "the run failed"
    assert failure(None).data == {"outcome": "failed", "error": "NoneType"}


def test_a_replay_joins_the_replies_of_a_chain() -> None:
    again = UserMessage(content=(Text(text="go on"),), origin="continue")
    cut = assistant("a", stop=StopReason.MAX_TOKENS)
    paused = assistant("b", stop=StopReason.PAUSE_TURN)

    sent = list(replay([cut, again, paused, assistant("c"), assistant("d")], CallIds()))
    other = list(replay([cut, user("new"), assistant("b")], CallIds()))

    assert [each["content"]["text"] for each in sent] == ["a", "b", "c", "d"]
    assert len(set(message_ids(sent))) == 2
    assert message_ids(sent)[:3] == [cut.id] * 3
    assert len(set(message_ids(other))) == 3


def test_a_replay_marks_calls_without_a_result_as_interrupted() -> None:
    ids = CallIds()

    sent = list(replay([assistant(call("x", id="1"), call("y", id="2"))], ids))

    text = {"type": "content", "content": {"type": "text", "text": "interrupted"}}
    failed = {"sessionUpdate": "tool_call_update", "status": "failed", "content": [text]}
    assert sent[2:] == [{**failed, "toolCallId": "1"}, {**failed, "toolCallId": "2"}]
    assert [each["status"] for each in sent[:2]] == ["in_progress"] * 2
    assert not ids.open


def test_a_replay_shows_thinking_but_not_messages_of_the_loop() -> None:
    nudge = UserMessage(content=(Text(text="finish"),), origin="wrap_up")
    thought = assistant(Thinking(text="hm"), Thinking(text=""), "a", "")

    sent = list(replay([nudge, thought], CallIds()))

    assert [(each["sessionUpdate"], each["content"]["text"]) for each in sent] == [
        ("agent_thought_chunk", "hm"),
        ("agent_message_chunk", "a"),
    ]


def test_a_replay_of_a_refused_run_that_was_kept_shows_it() -> None:
    no = assistant("no", stop=StopReason.REFUSAL, excluded=True)

    sent = list(replay([user("kept"), no], CallIds()))

    assert [each["content"]["text"] for each in sent] == ["kept", "no"]

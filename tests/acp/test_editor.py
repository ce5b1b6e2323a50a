"""Tools and permissions that use the editor: its questions, buffers and terminals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.editor import Open, choose, words
from syrupy.assertion import SnapshotAssertion

import glue
from glue.acp.editor import EditorPermission, editor_tools, plan_tool
from glue.acp.rpc import Peer, RpcError
from glue.acp.updates import CallIds
from glue.codec import to_json
from glue.context import Host
from glue.errors import ConfigError
from glue.permission import AllowAll, PermissionRequest
from glue.testing import call
from glue.tools import coding
from glue.tools.sandbox import find_backend

SAME_CALL_TWICE = """
same = calls(call('danger', {'what': 'a'}))
agent = made(Script(same, same, 'end'))
"""


class FullEditor:
    """An editor that offers everything, and is never asked for anything."""

    peer: Peer

    def offers(self, *path: str) -> Any:
        return True


def test_what_the_model_sees_of_the_editors_tools(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    made = editor_tools(coding.tools(tmp_path, shell=True), str(tmp_path), FullEditor())

    replaced = [each for each in made if getattr(each, "in_editor", False)]
    specs = [each.spec for each in (*replaced, plan_tool())]
    assert [each.name for each in specs] == [
        "read_file",
        "write_file",
        "edit_file",
        "shell",
        "plan",
    ]
    own = [each for each in specs if each.name in ("read_file", "shell", "plan")]
    assert json.dumps([to_json(each) for each in own], indent=1) == snapshot


@pytest.mark.parametrize(
    ("option", "questions", "ran"),
    [
        ("allow_once", 2, True),
        ("allow_always", 1, True),
        ("reject_once", 2, False),
        ("reject_always", 1, False),
    ],
)
def test_always_is_asked_once_and_once_is_asked_each_time(
    editor: Open, tmp_path: Path, option: str, questions: int, ran: bool
) -> None:
    client = editor(SAME_CALL_TWICE)
    client.answers["session/request_permission"] = choose(option)

    result = client.prompt(client.start(tmp_path))

    asked = client.questions()
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


def test_unclear_answers_deny_the_call(editor: Open, tmp_path: Path) -> None:
    client = editor(
        "agent = made(Script(*[calls(call('danger', {'what': w})) for w in 'abcd'], 'end'))"
    )
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


def test_the_read_mode_denies_calls_without_asking(editor: Open, tmp_path: Path) -> None:
    client = editor(
        "agent = made(Script(*[calls(call('danger', {'what': w})) for w in 'abc'], 'end'))"
    )
    client.answers["session/request_permission"] = choose("allow_always")
    session = client.start(tmp_path)

    client.ask("session/set_mode", {"sessionId": session, "modeId": "read"})
    assert client.updates("config_option_update")[-1]["configOptions"][0]["currentValue"] == "read"
    client.prompt(session)

    assert not client.questions()
    assert "read-only" in json.dumps(client.updates("tool_call_update"))
    wrong = client.error("session/set_mode", {"sessionId": session, "modeId": "root"})
    assert "ask, allow, read" in wrong["message"]


def test_the_read_mode_denies_calls_after_an_allow_always(editor: Open, tmp_path: Path) -> None:
    client = editor("""
first, second = (calls(call('danger', {'what': name})) for name in 'ab')
agent = made(Script(first, 'x', second, 'y'))
""")
    client.answers["session/request_permission"] = choose("allow_always")
    session = client.start(tmp_path)
    client.prompt(session)

    option = {"sessionId": session, "configId": "mode", "value": "read"}
    assert (
        client.ask("session/set_config_option", option)["configOptions"][0]["currentValue"]
        == "read"
    )
    client.prompt(session)

    assert client.updates("current_mode_update") == [
        {"sessionUpdate": "current_mode_update", "currentModeId": "read"}
    ]
    assert "did a" in json.dumps(client.frames)
    assert "did b" not in json.dumps(client.frames)


def test_the_agents_own_policy_decides_before_the_user_is_asked(
    editor: Open, tmp_path: Path
) -> None:
    client = editor(
        SAME_CALL_TWICE.replace("'end')", "'end'), permission=glue.Rules(allow=['shell'])")
    )

    client.prompt(client.start(tmp_path))

    assert "no rule allows it" in json.dumps(client.frames)
    assert not client.questions()


def diff(path: Path, old: str, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": str(path), "oldText": old, "newText": new}


def test_the_path_in_a_question_is_below_the_root_of_the_tool(editor: Open, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "hello.py").write_text(f"print('{folder.name}')\n")
    client = editor(f"""
from glue.tools import fs
steps = calls(call('edit_file', {{'path': 'hello.py', 'old': 'there', 'new': 'moved'}}))
agent = glue.Agent(Script(steps, 'done'), tools=fs.tools({str(there)!r}, write=True))
""")
    client.answers["session/request_permission"] = choose("allow_once")

    client.prompt(client.start(here))

    changed = [diff(there / "hello.py", "print('there')\n", "print('moved')\n")]
    (question,) = client.questions()
    assert question["toolCall"]["content"] == changed
    assert question["toolCall"]["locations"] == [{"path": str(there / "hello.py"), "line": 1}]
    assert client.updates("tool_call")[0]["content"] == changed
    assert (there / "hello.py").read_text() == "print('moved')\n"
    assert (here / "hello.py").read_text() == "print('here')\n"


def test_the_path_in_a_question_has_linked_folders_resolved(editor: Open, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    steps = "calls(call('write_file', {'path': 'link/new.txt', 'content': 'x'})), 'done'"
    client = editor(ready=steps)
    client.answers["session/request_permission"] = choose("allow_once")

    client.prompt(client.start(tmp_path))

    (question,) = client.questions()
    assert question["toolCall"]["locations"] == [{"path": str(tmp_path / "real" / "new.txt")}]
    assert (tmp_path / "real" / "new.txt").read_text() == "x"


def test_always_applies_to_the_same_command_or_the_same_path(editor: Open, tmp_path: Path) -> None:
    run = "calls(call('shell', {{'command': {!r}}}))".format
    write = "calls(call('write_file', {{'path': {!r}, 'content': 'x'}}))".format
    steps = [
        run("ls"),
        run("ls"),
        run("ls -a"),
        write("a.txt"),
        write("./a.txt"),
        write("b.txt"),
        "'done'",
    ]
    client = editor(ready=", ".join(steps))
    client.answers["session/request_permission"] = choose("allow_always")

    client.prompt(client.start(tmp_path))

    # A command is followed by its sandbox in brackets, which depends on the machine.
    titles = [each["toolCall"]["title"].partition(" [")[0] for each in client.questions()]
    assert titles == ["shell: ls", "shell: ls -a", "write_file: a.txt", "write_file: b.txt"]
    named = [option["name"] for option in client.questions()[0]["options"]]
    assert named == ["Allow", "Always allow this command", "Reject", "Always reject this command"]


def test_a_question_shows_the_arguments_that_a_hook_has_changed(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("""
def redirect(step):
    return glue.Replace({'what': 'something else'})
hook = glue.ToolHook(before=redirect)
agent = made(Script(calls(call('danger', {'what': 'this'})), 'end'), hooks=[hook])
""")
    client.answers["session/request_permission"] = choose("allow_once")

    client.prompt(client.start(tmp_path))

    assert client.questions()[0]["toolCall"]["rawInput"] == {"what": "something else"}
    assert "did something else" in json.dumps(client.frames)


def test_calls_of_a_sub_agent_are_shown_and_need_permission(editor: Open, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    client = editor(f"""
from glue.tools import fs
step = calls(call('write_file', {{'path': 'a.txt', 'content': 'x'}}, id='1'))
child = glue.Agent(Script(step, 'written'), tools=fs.tools({str(work)!r}, write=True), name='child')
parent = Script(calls(call('child', {{'prompt': 'write'}}, id='1')), 'done')
agent = glue.Agent(parent, tools=[child.as_tool()])
""")
    client.answers["session/request_permission"] = choose("allow_once")

    client.prompt(client.start(tmp_path))

    tools = [
        each
        for each in client.updates()
        if each["sessionUpdate"] in ("tool_call", "tool_call_update")
    ]
    shown = [(each["sessionUpdate"], each["toolCallId"], each["status"]) for each in tools]
    assert shown == [
        ("tool_call", "1", "in_progress"),
        ("tool_call", "1#2", "pending"),
        ("tool_call_update", "1#2", "in_progress"),
        ("tool_call_update", "1#2", "completed"),
        ("tool_call_update", "1", "completed"),
    ]
    (question,) = client.questions()
    assert question["toolCall"]["toolCallId"] == "1#2"
    assert question["toolCall"]["content"] == [
        {"type": "diff", "path": str(work / "a.txt"), "newText": "x"}
    ]


def is_running(*argv: str) -> bool:
    """Return whether a process with these arguments exists; one that only waits for its parent has
    no arguments any more."""
    wanted = b"".join(word.encode() + b"\0" for word in argv)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == wanted:
                return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_running_commands(
    editor: Open, tmp_path: Path, number: signal.Signals
) -> None:
    # Inside of a sandbox the command has another process number, so it is found by its arguments.
    seconds = f"600.{os.getpid()}{number:02d}"
    client = editor(ready=f"calls(call('shell', {{'command': 'exec sleep {seconds}'}}))")
    client.answers["session/request_permission"] = choose("allow_once")
    client.send("session/prompt", words(client.start(tmp_path)))
    client.until(
        lambda frame: any(
            each["status"] == "in_progress" for each in client.updates("tool_call_update")
        )
    )
    while not is_running("sleep", seconds):
        os.sched_yield()

    client.process.send_signal(number)

    assert client.process.wait(timeout=30) == 128 + number
    assert not is_running("sleep", seconds)


def test_files_and_terminals_of_the_editor_are_used_if_it_offers_them(
    editor: Open, tmp_path: Path
) -> None:
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
        "fs/read_text_file": lambda params: {
            "content": f"unsaved {params.get('line')} {params['path']}"
        },
        "fs/write_text_file": lambda params: {},
        "terminal/create": lambda params: {"terminalId": "t1"},
        "terminal/wait_for_exit": lambda params: {"exitCode": 3},
        "terminal/output": lambda params: {"output": "built", "truncated": False},
        "terminal/release": lambda params: {},
    }
    session = client.start(
        tmp_path, client={"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
    )

    client.prompt(session)

    shown = json.dumps(client.updates("tool_call_update"))
    assert f"unsaved 2 {tmp_path}/a.txt" in shown
    assert not (tmp_path / "b.txt").exists()
    written = [
        frame["params"] for frame in client.frames if frame.get("method") == "fs/write_text_file"
    ]
    assert (written[0]["path"], written[0]["content"]) == (str(tmp_path / "b.txt"), "new")
    ends = [
        each
        for each in client.updates("tool_call_update")
        if each["toolCallId"] == "sh" and "content" in each
    ]
    assert all(each["content"] == [{"type": "terminal", "terminalId": "t1"}] for each in ends)
    assert ends[-1]["rawOutput"] == {"text": "built\n[exit code 3]"}
    methods = [
        frame["method"]
        for frame in client.frames
        if frame.get("method", "").startswith("terminal/")
    ]
    opened = next(
        each["params"] for each in client.frames if each.get("method") == "terminal/create"
    )
    # The command runs in the sandbox that the question names, with no variables of the editor.
    wanted = ["/usr/bin/env", "-i"] if find_backend() is not None else ["sh", "-c"]
    assert [opened["command"], *opened["args"]][:2] == wanted
    assert opened["args"][-1] == "make"
    assert methods == [
        "terminal/create",
        "terminal/wait_for_exit",
        "terminal/output",
        "terminal/release",
    ]
    assert [each["status"] for each in client.updates("tool_call_update")][-1] == "failed"
    assert client.close() == 0


def test_files_and_terminals_are_our_own_if_the_editor_offers_none(
    editor: Open, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("on disk")
    steps = (
        "calls(call('read_file', {'path': 'a.txt'})),"
        "calls(call('shell', {'command': 'echo from the shell'})), 'done'"
    )
    client = editor(ready=steps)
    client.answers = {"session/request_permission": choose("allow_once")}
    session = client.start(tmp_path)

    client.prompt(session)

    shown = json.dumps(client.updates("tool_call_update"))
    assert "on disk" in shown
    assert "from the shell" in shown
    assert {frame.get("method", "") for frame in client.frames} <= {
        "",
        "session/update",
        "session/request_permission",
    }
    assert client.close() == 0


def test_edits_are_made_in_the_editor_on_its_unsaved_text(editor: Open, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on disk\n")
    buffers = {str(tmp_path / "a.txt"): "one\nunsaved\nthree\n"}
    edit = "{'path': 'a.txt', 'old': 'unsaved', 'new': '2'}"
    client = editor(ready=f"calls(call('edit_file', {edit}, id='e')), 'done'")
    client.answers = {
        "session/request_permission": choose("allow_once"),
        "fs/read_text_file": lambda params: {"content": buffers[params["path"]]},
        "fs/write_text_file": lambda params: (
            buffers.update({params["path"]: params["content"]}) or {}
        ),
    }

    client.prompt(
        client.start(tmp_path, client={"fs": {"readTextFile": True, "writeTextFile": True}})
    )

    assert buffers == {str(tmp_path / "a.txt"): "one\n2\nthree\n"}
    assert (tmp_path / "a.txt").read_text() == "on disk\n"  # only the editor saves files
    changed = diff(tmp_path / "a.txt", "one\nunsaved\nthree\n", "one\n2\nthree\n")
    (question,) = client.questions()
    assert question["toolCall"]["content"] == [changed]
    assert question["toolCall"]["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 2}]
    last = [each for each in client.updates("tool_call_update") if each["toolCallId"] == "e"][-1]
    assert (last["status"], last["content"]) == ("completed", [changed])


def test_an_edit_that_does_not_fit_writes_nothing_to_the_editor(
    editor: Open, tmp_path: Path
) -> None:
    client = editor(
        ready="calls(call('edit_file', {'path': 'a.txt', 'old': 'nothing', 'new': '2'})), 'done'"
    )
    client.answers = {
        "session/request_permission": choose("allow_once"),
        "fs/read_text_file": lambda params: {"content": "one\n"},
    }

    client.prompt(
        client.start(tmp_path, client={"fs": {"readTextFile": True, "writeTextFile": True}})
    )

    assert client.updates("tool_call_update")[-1]["status"] == "failed"
    assert not [frame for frame in client.frames if frame.get("method") == "fs/write_text_file"]


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
    methods = [
        frame["method"]
        for frame in client.frames
        if frame.get("method", "").startswith("terminal/")
    ]
    assert methods[-2:] == ["terminal/kill", "terminal/release"]
    assert client.close() == 0


def test_files_in_additional_directories_are_reached_by_absolute_paths(
    editor: Open, tmp_path: Path
) -> None:
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

    shown = client.updates("tool_call_update")
    assert "from there" in json.dumps(shown)
    assert (there / "b.txt").read_text() == "x"
    assert shown[-1]["status"] == "failed"
    for wrong in (["relative"], [str(tmp_path / "none")], "x"):
        params = {"cwd": str(here), "mcpServers": [], "additionalDirectories": wrong}
        assert client.error("session/new", params)["code"] == -32602


# Tools and questions without a process ---------------------------------------------------------


class FakePeer:
    """The connection to an editor that answers each method with a value, or with an error."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.sent: list[tuple[str, Any]] = []  # without waiting for an answer

    async def request(self, method: str, params: Any) -> Any:
        self.asked.append((method, params))
        answer = self.answers.get(method)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send_request(self, method: str, params: Any) -> int:
        self.sent.append((method, params))
        return 0

    def notify(self, method: str, params: Any) -> None:
        self.sent.append((method, params))


class FakeEditor:
    """An editor with some capabilities, such as "fs/readTextFile"."""

    peer: Any

    def __init__(self, *offered: str, **answers: Any) -> None:
        self.offered = offered
        self.peer = FakePeer({name.replace("_", "/", 1): each for name, each in answers.items()})

    def offers(self, *path: str) -> Any:
        return "/".join(path) in self.offered or None


def made_tools(root: Path, connected: FakeEditor) -> dict[str, Any]:
    tools = coding.tools(root, trust=True, shell=True)
    return {each.name: each for each in editor_tools(tools, str(root), connected)}


async def run_tool(tool: Any, **arguments: Any) -> tuple[str, list[Any]]:
    """Return the result of a call that is allowed, and the progress that it reported."""
    asked, reported = call(tool.name, arguments, id="c1"), list[Any]()
    context: glue.Context[Any] = glue.Context(
        call=asked,
        host=Host(session_id="s", permission=AllowAll()),
        report=lambda text, data, *rest: reported.append(data),
    )
    return (await tool.invoke(asked, context)).text, reported


@pytest.mark.parametrize(
    ("offered", "replaced"),
    [
        ((), set()),
        (("fs/readTextFile",), {"read_file"}),
        (("fs/writeTextFile",), set()),
        (("fs/readTextFile", "fs/writeTextFile"), {"read_file", "write_file", "edit_file"}),
        (("terminal",), {"shell"}),
    ],
)
def test_a_tool_uses_the_editor_only_if_the_editor_offers_what_it_needs(
    tmp_path: Path, offered: tuple[str, ...], replaced: set[str]
) -> None:
    tools = made_tools(tmp_path, FakeEditor(*offered))

    assert {name for name, each in tools.items() if each.in_editor} == replaced
    assert all(tools[name].root == str(tmp_path) for name in replaced)
    assert ("shell_job" in tools) == ("terminal" not in offered)


def test_a_tool_of_the_editor_is_described_and_guarded_like_the_original(tmp_path: Path) -> None:
    own = {each.name: each for each in coding.tools(tmp_path, trust=True, shell=True)}
    connected = FakeEditor("fs/readTextFile", "fs/writeTextFile", "terminal")
    tools = {each.name: each for each in editor_tools(own.values(), str(tmp_path), connected)}

    for name in ("write_file", "edit_file"):
        assert tools[name].spec == own[name].spec
        assert tools[name].kind == "edit"
    for name in ("write_file", "edit_file", "shell"):
        assert (tools[name].needs_permission, tools[name].action) == (True, name)
        assert tools[name].target == own[name].target
        assert (tools[name].alone, tools[name].read_only) == (True, False)
    assert tools["shell"].confinement == own["shell"].confinement
    assert tools["shell"].timeout == 600
    assert (tools["read_file"].needs_permission, tools["read_file"].read_only) == (False, True)


READS = ("fs/readTextFile", "fs/writeTextFile")


async def test_lines_of_a_file_are_read_from_the_editor(tmp_path: Path) -> None:
    connected = FakeEditor(*READS, fs_read_text_file={"content": "unsaved"})
    read = made_tools(tmp_path, connected)["read_file"]

    assert (await run_tool(read, path="a.txt"))[0] == "unsaved"
    assert (await run_tool(read, path="a.txt", offset=1, limit=1))[0] == "unsaved"
    for wrong in ({"offset": 0}, {"limit": 0}):
        text, _ = await run_tool(read, path="a.txt", **wrong)
        assert text == "offset and limit must be at least 1"

    common = {"sessionId": "s", "path": str(tmp_path / "a.txt"), "line": 1}
    assert connected.peer.asked == [
        ("fs/read_text_file", {**common, "limit": 2000}),
        ("fs/read_text_file", {**common, "limit": 1}),
    ]


@pytest.mark.parametrize("answer", [None, [], {}, {"content": 7}])
async def test_a_file_that_the_editor_does_not_return_is_new_to_write_and_cannot_be_edited(
    tmp_path: Path, answer: Any
) -> None:
    connected = FakeEditor(*READS, fs_read_text_file=answer, fs_write_text_file=None)
    tools = made_tools(tmp_path, connected)

    written, progress = await run_tool(tools["write_file"], path="a.txt", content="ü")
    edited, _ = await run_tool(tools["edit_file"], path="a.txt", old="a", new="b")

    path = str(tmp_path / "a.txt")
    assert written == "wrote a.txt in the editor: 2 bytes"
    assert progress == [{"diff": {"type": "diff", "path": path, "newText": "ü"}}]
    assert edited == "a.txt: the editor cannot read this file; does it exist?"
    writes = [params for method, params in connected.peer.asked if method == "fs/write_text_file"]
    assert writes == [{"sessionId": "s", "path": path, "content": "ü"}]


async def test_a_file_is_edited_in_the_editor(tmp_path: Path) -> None:
    connected = FakeEditor(*READS, fs_read_text_file={"content": "one"}, fs_write_text_file={})
    edit = made_tools(tmp_path, connected)["edit_file"]

    edited, [progress] = await run_tool(edit, path="a.txt", old="one", new="three")

    assert edited == "edited a.txt in the editor: 5 bytes"
    assert (progress["diff"]["oldText"], progress["diff"]["newText"]) == ("one", "three")


@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "out/secret"])
async def test_the_editor_is_not_asked_for_files_outside_the_root(
    tmp_path: Path, name: str, path: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to("..")
    (tmp_path / "secret").write_text("secret")
    connected = FakeEditor(*READS, fs_read_text_file={"content": "secret"})
    given = {"write_file": {"content": "x"}, "edit_file": {"old": "secret", "new": "x"}}

    text, _ = await run_tool(made_tools(root, connected)[name], path=path, **given.get(name, {}))

    assert text.startswith("UnsafePath: ")
    assert not connected.peer.asked


async def test_an_error_of_the_editor_is_the_result_of_the_call(tmp_path: Path) -> None:
    connected = FakeEditor(*READS, fs_read_text_file=RpcError(-32603, "buffer lost"))

    text, _ = await run_tool(made_tools(tmp_path, connected)["read_file"], path="a.txt")

    assert text == "the editor answered with an error: buffer lost"


ENDS: list[tuple[Any, Any, str]] = [
    ({"exitCode": 0}, {"output": "built", "truncated": False}, "built\n[exit code 0]"),
    ({"signal": "KILL"}, {}, "\n[ended by signal KILL]"),
    (
        {"exitCode": None, "signal": None},
        {"output": "x", "truncated": True},
        "[the beginning was cut off]\nx\n[ended by signal None]",
    ),
]


@pytest.mark.parametrize(("status", "output", "text"), ENDS)
async def test_a_command_in_a_terminal_returns_its_output_and_its_end(
    tmp_path: Path, status: Any, output: Any, text: str
) -> None:
    connected = FakeEditor(
        "terminal",
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=status,
        terminal_output=output,
    )
    run = made_tools(tmp_path, connected)["shell"]

    result, progress = await run_tool(run, command="make all")

    terminal = {"sessionId": "s", "terminalId": "t1"}
    assert result == text
    assert progress == [{"terminal_id": "t1"}]
    created = connected.peer.asked[0][1]
    assert (created["cwd"], created["outputByteLimit"]) == (str(tmp_path), 65536)
    assert created["args"][-1] == "make all"
    assert connected.peer.asked[1:] == [
        ("terminal/wait_for_exit", terminal),
        ("terminal/output", terminal),
    ]
    assert connected.peer.sent == [("terminal/release", terminal)]


async def test_a_command_in_a_terminal_is_confined_like_the_original(tmp_path: Path) -> None:
    own = {each.name: each for each in coding.tools(tmp_path, trust=True, shell=True)}["shell"]
    own.confine = lambda command: ["box", "--", command]
    connected = FakeEditor(
        "terminal",
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit={"exitCode": 0},
    )
    [run] = editor_tools([own], str(tmp_path), connected)

    await run_tool(run, command="make all")

    created = connected.peer.asked[0][1]
    assert (created["command"], created["args"]) == ("box", ["--", "make all"])


async def test_a_plan_is_advisory_and_shown_as_a_whole() -> None:
    made = plan_tool()
    steps = [{"content": "look", "status": "pending"}]

    text, progress = await run_tool(made, steps=steps)

    assert (made.advisory, made.kind, made.needs_permission) == (True, "think", False)
    assert (text, progress) == ("shown", [{"plan": steps}])


async def test_a_terminal_is_killed_and_released_if_its_end_is_unknown(tmp_path: Path) -> None:
    connected = FakeEditor(
        "terminal",
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=RpcError(-32603, "lost"),
    )

    text, _ = await run_tool(made_tools(tmp_path, connected)["shell"], command="make")

    terminal = {"sessionId": "s", "terminalId": "t1"}
    assert text == "the editor answered with an error: lost"
    assert connected.peer.sent == [("terminal/kill", terminal), ("terminal/release", terminal)]


@pytest.mark.parametrize("made", [{}, {"terminalId": 7}, None])
async def test_a_terminal_that_was_not_opened_is_an_error(tmp_path: Path, made: Any) -> None:
    connected = FakeEditor("terminal", terminal_create=made)

    text, progress = await run_tool(made_tools(tmp_path, connected)["shell"], command="make")

    assert text == "the editor did not open a terminal"
    assert not progress
    assert not connected.peer.sent


def permission(
    connected: FakeEditor, mode: str = "ask", own: Any = None, **rules: Sequence[str]
) -> EditorPermission:
    ids = CallIds()
    ids.begin(("c1",), call("danger", {}, id="c1"))
    return EditorPermission(connected, "s", ids, lambda: mode, own, rules)


def about(call_id: str = "c1", **fields: Any) -> PermissionRequest:
    given = {"tool": "danger", "action": "danger", "target": "x", "arguments": {"what": "x"}}
    return PermissionRequest(**{**given, "call_id": call_id, **fields})


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.mark.parametrize(
    ("mode", "rules", "own", "allowed", "asks"),
    [
        ("ask", {}, None, True, True),
        ("allow", {}, None, True, False),
        ("read", {}, None, False, False),
        ("read", {"allow": ["danger"]}, AllowAll(), False, False),
        ("allow", {"deny": ["danger"]}, None, False, False),
        ("ask", {"allow": ["danger"]}, None, True, False),
        ("allow", {}, glue.Rules(), False, False),
    ],
)
async def test_the_mode_then_the_rules_then_the_policy_decide(
    mode: str, rules: Any, own: Any, allowed: bool, asks: bool
) -> None:
    connected = FakeEditor(session_request_permission=selected("allow_once"))
    policy = permission(connected, mode, own, **rules)

    assert policy.needs_person(about()) == asks
    assert (await policy.decide(about())).allowed == allowed
    assert bool(connected.peer.asked) == asks


async def test_an_allowed_call_is_shown_as_running_if_the_editor_shows_it() -> None:
    connected = FakeEditor()
    policy = permission(connected, "allow")

    await policy.decide(about("of another session"))
    assert not connected.peer.sent
    await policy.decide(about())

    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c1",
        "status": "in_progress",
    }
    assert connected.peer.sent == [("session/update", {"sessionId": "s", "update": update})]


async def test_a_denied_call_is_not_shown_as_running() -> None:
    connected = FakeEditor(session_request_permission=selected("reject_once"))

    decision = await permission(connected).decide(about())

    assert (decision.allowed, decision.reason) == (False, "the user rejected the call")
    assert not connected.peer.sent


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RpcError(-32603, "closed"), "the editor could not ask the user: closed"),
        (None, "the question was cancelled"),
        (
            {"outcome": {"outcome": "cancelled", "optionId": "allow_once"}},
            "the question was cancelled",
        ),
        (selected("allow_all"), "the editor answered with an unknown option"),
    ],
)
async def test_an_answer_that_is_not_an_option_denies_the_call(answer: Any, reason: str) -> None:
    connected = FakeEditor(session_request_permission=answer)

    decision = await permission(connected).decide(about())

    assert (decision.allowed, decision.reason) == (False, reason)


@pytest.mark.parametrize(
    ("fields", "title", "label"),
    [
        ({}, "danger: x", "Always allow this target"),
        ({"tool": "shell", "target": ""}, "shell", "Always allow this command"),
        ({"tool": "edit_file"}, "edit_file: x", "Always allow this file"),
    ],
)
async def test_a_question_names_the_target_and_what_always_means(
    fields: dict[str, Any], title: str, label: str
) -> None:
    connected = FakeEditor(session_request_permission=None)

    await permission(connected).decide(about(**fields))

    [(_, question)] = connected.peer.asked
    assert question["sessionId"] == "s"
    assert (question["toolCall"]["title"], question["toolCall"]["toolCallId"]) == (title, "c1")
    assert question["toolCall"]["status"] == "pending"
    assert [each["name"] for each in question["options"]] == [
        "Allow",
        label,
        "Reject",
        label.replace("allow", "reject"),
    ]


async def test_a_question_that_is_asked_once_is_not_remembered() -> None:
    connected = FakeEditor(session_request_permission=selected("allow_once"))
    policy = permission(connected)

    decisions = [await policy.ask_once(about(reason="it may write")) for _ in range(2)]

    assert [each.allowed for each in decisions] == [True, True]
    assert len(connected.peer.asked) == 2
    [(_, question), _] = connected.peer.asked
    assert question["toolCall"]["toolCallId"] == "c1-question"
    assert question["toolCall"]["title"] == "danger: x (it may write)"
    assert [each["optionId"] for each in question["options"]] == ["allow_once", "reject_once"]


async def test_a_question_about_an_edit_shows_its_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on disk")
    arguments = {"path": "a.txt", "content": "new"}
    for offered, before in (((), "on disk"), (READS, "unsaved")):
        connected = FakeEditor(*offered, fs_read_text_file={"content": "unsaved"})
        ids = CallIds()
        ids.begin(
            ("c1",), call("write_file", {}, id="c1"), made_tools(tmp_path, connected)["write_file"]
        )
        policy = EditorPermission(connected, "s", ids, lambda: "ask", None, {})

        await policy.decide(about(tool="write_file", target="a.txt", arguments=arguments))

        [question] = [params for method, params in connected.peer.asked if "permission" in method]
        assert question["toolCall"]["rawInput"] == arguments
        assert question["toolCall"]["content"] == [diff(tmp_path / "a.txt", before, "new")]


def test_a_rule_that_never_applies_is_reported(tmp_path: Path) -> None:
    tools = made_tools(tmp_path, FakeEditor()).values()

    permission(FakeEditor(), allow=["write_file"]).check(tools)
    with pytest.raises(ConfigError, match="names no known tool"):
        permission(FakeEditor(), allow=["write_fil"]).check(tools)

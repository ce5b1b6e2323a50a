"""Tools and permissions that use the editor: its questions, buffers and terminals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fakes.editor import Open, choose, words
from syrupy.assertion import SnapshotAssertion

from glue.acp.editor import editor_tools, plan_tool
from glue.acp.rpc import Peer
from glue.codec import to_json
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

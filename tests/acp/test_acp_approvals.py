"""Approvals in an editor tell the truth: the path shown is the path touched, a yes covers what was asked."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fakes.editor import Editor, Open, choose, words


def asked(client: Editor) -> list[dict[str, Any]]:
    return [frame["params"] for frame in client.frames if frame.get("method") == "session/request_permission"]


def diff(path: Path, old: str, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": str(path), "oldText": old, "newText": new}


def test_the_path_shown_is_that_of_the_tools_own_root(editor: Open, tmp_path: Path) -> None:
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
    (question,) = asked(client)
    assert question["toolCall"]["content"] == changed
    assert question["toolCall"]["locations"] == [{"path": str(there / "hello.py"), "line": 1}]
    assert client.updates("tool_call")[0]["content"] == changed
    assert (there / "hello.py").read_text() == "print('moved')\n"
    assert (here / "hello.py").read_text() == "print('here')\n"


def test_a_path_through_a_linked_folder_is_shown_as_what_it_leads_to(editor: Open, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    steps = "calls(call('write_file', {'path': 'link/new.txt', 'content': 'x'})), 'done'"
    client = editor(ready=steps)
    client.answers["session/request_permission"] = choose("allow_once")

    client.prompt(client.start(tmp_path))

    (question,) = asked(client)
    assert question["toolCall"]["locations"] == [{"path": str(tmp_path / "real" / "new.txt")}]
    assert (tmp_path / "real" / "new.txt").read_text() == "x"


def test_edits_go_through_the_editor_and_show_its_unsaved_text(editor: Open, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on disk\n")
    buffers = {str(tmp_path / "a.txt"): "one\nunsaved\nthree\n"}
    client = editor(ready="calls(call('edit_file', {'path': 'a.txt', 'old': 'unsaved', 'new': '2'}, id='e')), 'done'")
    client.answers = {
        "session/request_permission": choose("allow_once"),
        "fs/read_text_file": lambda params: {"content": buffers[params["path"]]},
        "fs/write_text_file": lambda params: buffers.update({params["path"]: params["content"]}) or {},
    }

    client.prompt(client.start(tmp_path, client={"fs": {"readTextFile": True, "writeTextFile": True}}))

    assert buffers == {str(tmp_path / "a.txt"): "one\n2\nthree\n"}
    assert (tmp_path / "a.txt").read_text() == "on disk\n"  # the editor saves it, or not
    changed = diff(tmp_path / "a.txt", "one\nunsaved\nthree\n", "one\n2\nthree\n")
    (question,) = asked(client)
    assert question["toolCall"]["content"] == [changed]
    assert question["toolCall"]["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 2}]
    last = [each for each in client.updates("tool_call_update") if each["toolCallId"] == "e"][-1]
    assert (last["status"], last["content"]) == ("completed", [changed])


def test_an_edit_that_fits_nowhere_changes_nothing_in_the_editor(editor: Open, tmp_path: Path) -> None:
    client = editor(ready="calls(call('edit_file', {'path': 'a.txt', 'old': 'nothing', 'new': '2'})), 'done'")
    client.answers = {
        "session/request_permission": choose("allow_once"),
        "fs/read_text_file": lambda params: {"content": "one\n"},
    }

    client.prompt(client.start(tmp_path, client={"fs": {"readTextFile": True, "writeTextFile": True}}))

    assert client.updates("tool_call_update")[-1]["status"] == "failed"
    assert not [frame for frame in client.frames if frame.get("method") == "fs/write_text_file"]


def test_always_is_for_that_command_and_for_that_path(editor: Open, tmp_path: Path) -> None:
    run = "calls(call('shell', {{'command': {!r}}}))".format
    write = "calls(call('write_file', {{'path': {!r}, 'content': 'x'}}))".format
    steps = [run("ls"), run("ls"), run("ls -a"), write("a.txt"), write("./a.txt"), write("b.txt"), "'done'"]
    client = editor(ready=", ".join(steps))
    client.answers["session/request_permission"] = choose("allow_always")

    client.prompt(client.start(tmp_path))

    titles = [each["toolCall"]["title"] for each in asked(client)]
    assert titles == ["shell: ls", "shell: ls -a", "write_file: a.txt", "write_file: b.txt"]
    named = [option["name"] for option in asked(client)[0]["options"]]
    assert named == ["Allow", "Always allow this command", "Reject", "Always reject this command"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_commands_that_run(editor: Open, tmp_path: Path, number: signal.Signals) -> None:
    client = editor(ready="calls(call('shell', {'command': 'echo $$ > pid; exec sleep 600'}))")
    client.answers["session/request_permission"] = choose("allow_once")
    client.send("session/prompt", words(client.start(tmp_path)))
    client.until(lambda frame: any(each["status"] == "in_progress" for each in client.updates("tool_call_update")))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        os.sched_yield()
    child = int((tmp_path / "pid").read_text())

    client.process.send_signal(number)

    assert client.process.wait(timeout=30) == 128 + number
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()


def test_a_sub_agents_gated_tool_appears_is_asked_about_and_ends(editor: Open, tmp_path: Path) -> None:
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

    tools = [each for each in client.updates() if each["sessionUpdate"] in ("tool_call", "tool_call_update")]
    told = [(each["sessionUpdate"], each["toolCallId"], each["status"]) for each in tools]
    assert told == [
        ("tool_call", "1", "in_progress"),
        ("tool_call", "1#2", "pending"),
        ("tool_call_update", "1#2", "in_progress"),
        ("tool_call_update", "1#2", "completed"),
        ("tool_call_update", "1", "completed"),
    ]
    (question,) = asked(client)
    assert question["toolCall"]["toolCallId"] == "1#2"
    assert question["toolCall"]["content"] == [{"type": "diff", "path": str(work / "a.txt"), "newText": "x"}]


def test_what_a_hook_changed_is_what_is_shown(editor: Open, tmp_path: Path) -> None:
    client = editor("""
def redirect(step):
    return glue.Replace({'what': 'something else'})
hook = glue.ToolHook(before=redirect)
agent = made(Script(calls(call('danger', {'what': 'this'})), 'end'), hooks=[hook])
""")
    client.answers["session/request_permission"] = choose("allow_once")

    client.prompt(client.start(tmp_path))

    assert asked(client)[0]["toolCall"]["rawInput"] == {"what": "something else"}
    assert "did something else" in json.dumps(client.frames)

"""`glue sessions pending` and `answer`: calls that wait are shown, answered and continued."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import glue
from glue.cli.agentfile import open_agent
from glue.cli.answer import _agent_of, _command
from glue.cli.waiting import COMMAND
from glue.permission import DeferAll
from glue.stores import open_store

Cli = Callable[..., Any]

AGENT = '''\
from pathlib import Path

from glue import Agent, tool
from glue.testing import Script, call, calls, repeat


@tool(needs_permission=True, target="version")
def deploy(version: str, notes: str = "") -> str:
    """Deploy a version."""
    with Path("deployed").open("a") as file:
        file.write(f"{version}\\n")
    return f"{version} is live"


@tool(external=True)
def look_up(query: str) -> str:
    """Look something up in another system."""
    raise AssertionError("an external tool never runs")


def answer(request):
    last = request.messages[-1]
    if type(last).__name__ != "UserMessage":
        return f"The answer is: {last.text}"
    if "look" in last.text:
        return calls(call("look_up", {"query": "port"}, id="c3"))
    if "two" in last.text:
        first = call("deploy", {"version": "1.4"}, id="c1")
        return calls(first, call("deploy", {"version": "1.5"}, id="c2"))
    return calls(call("deploy", {"version": "1.4", "notes": "safe"}, id="c1"))


agent = Agent(Script(repeat(answer)), tools=[deploy, look_up])
'''


@pytest.fixture
def paused(cli: Cli) -> Cli:
    """Start a run that waits in the session `release`, and return the function for commands."""
    Path("agent.py").write_text(AGENT)
    ran = cli("run", "agent.py", "-s", "release", "--on-question", "defer", "go")
    assert ran.code == 6, ran.err
    return cli


def deployed() -> str:
    return Path("deployed").read_text() if Path("deployed").exists() else ""


@pytest.fixture
def on_a_terminal(zygote: Any) -> Callable[..., tuple[int, str]]:
    """Return a function that runs a glue command in a terminal and types a text."""

    def run(typed: str, *args: str) -> tuple[int, str]:
        code = "from glue.cli.app import main; main()"
        command = [sys.executable, "-c", code, *args]
        shown: tuple[int, str] = zygote.run_in_terminal(command, Path.cwd(), typed=typed)
        return shown

    return run


@pytest.mark.parametrize(
    ("typed", "code", "done", "left"),
    [
        ("y\ny\n", 0, ["1.4", "1.5"], []),
        ("y\nn\n", 0, ["1.4"], []),
        ("l\ny\n", 6, ["1.5"], ["c1"]),
        ("perhaps\n\n", 2, [], ["c1", "c2"]),
    ],
)
def test_on_a_terminal_each_waiting_call_is_asked_about(
    cli: Cli, on_a_terminal: Cli, typed: str, code: int, done: list[str], left: list[str]
) -> None:
    Path("agent.py").write_text(AGENT)
    cli("run", "agent.py", "-s", "r", "--on-question", "defer", "two")

    ended, shown = on_a_terminal(typed, "sessions", "answer", "r")

    waiting = [row["id"] for row in json.loads(cli("sessions", "pending", "--json").out)]
    assert (ended, sorted(deployed().split()), waiting) == (code, done, left), shown
    assert "? deploy 1.4" in shown
    assert "? deploy 1.5" in shown
    assert ("nothing was decided, so nothing has changed" in shown) == (not done)


def test_on_a_terminal_the_result_of_an_external_call_is_typed(
    cli: Cli, on_a_terminal: Cli
) -> None:
    Path("agent.py").write_text(AGENT)
    cli("run", "agent.py", "-s", "r", "look it up")

    later, _ = on_a_terminal("\n", "sessions", "answer", "r")
    code, shown = on_a_terminal("8080\n", "sessions", "answer", "r")

    assert (later, code) == (2, 0)
    assert "The answer is: 8080\n" in shown


def test_a_paused_run_names_each_call_and_the_command_that_answers_it(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)

    ran = cli(
        "run", "agent.py", "-s", "a release", "--store", "st", "--on-question", "defer", "two"
    )

    assert ran.code == 6
    assert deployed() == ""
    lines = ran.err.splitlines()
    assert lines[0].startswith("glue: paused: 2 calls wait in session a release; ")
    assert lines[1:] == [
        "  c1: deploy 1.4",
        "    glue sessions answer 'a release' c1 --store st --allow",
        "  c2: deploy 1.5",
        "    glue sessions answer 'a release' c2 --store st --allow",
    ]


def test_a_paused_run_without_a_session_says_that_nobody_can_answer(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)

    ran = cli("run", "agent.py", "look it up")

    assert ran.code == 6
    assert "c3: look_up" in ran.err
    assert "add --session NAME" in ran.err


def test_waiting_calls_are_listed_and_shown(paused: Cli) -> None:
    listed, shown = paused("sessions", "pending"), paused("sessions", "pending", "release")
    [row] = json.loads(paused("sessions", "pending", "--json").out)

    assert "c1: deploy 1.4\n    glue sessions answer release c1 --allow\n" in listed.out
    assert shown.out.startswith("? deploy 1.4\n  notes:\n    safe\n")
    assert (row["session"], row["id"], row["arguments"]["notes"]) == ("release", "c1", "safe")


def test_an_allowed_call_runs_once_in_the_folder_of_its_run(
    paused: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path.cwd()
    monkeypatch.chdir(tmp_path)

    ran = paused("sessions", "answer", "release", "c1", "--allow")
    again = paused("sessions", "answer", "release", "c1", "--allow")

    assert (ran.code, ran.out) == (0, "The answer is: 1.4 is live\n")
    assert "? deploy 1.4\n  notes:\n    safe\n" in ran.err
    assert (folder / "deployed").read_text() == "1.4\n"
    assert (again.code, again.err) == (
        2,
        "glue: no tool call waits for an answer in session release\n",
    )
    assert paused("sessions", "pending").err == "no tool call waits for an answer\n"


def test_a_denied_call_does_not_run_and_the_model_reads_the_reason(paused: Cli) -> None:
    ran = paused("sessions", "answer", "release", "--deny", "not on Friday")

    assert ran.code == 0
    assert "permission denied: deploy 1.4: not on Friday" in ran.out
    assert deployed() == ""


def test_a_given_result_replaces_the_call(paused: Cli) -> None:
    ran = paused("sessions", "answer", "release", "--result", "done by hand")

    assert (ran.code, ran.out) == (0, "The answer is: done by hand\n")
    assert deployed() == ""


def test_the_run_stays_paused_until_every_call_is_answered(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)
    cli("run", "agent.py", "-s", "r", "--on-question", "defer", "two")

    unclear = cli("sessions", "answer", "r", "--allow")
    first = cli("sessions", "answer", "r", "c2", "--allow")
    last = cli("sessions", "answer", "r", "--deny", "no")

    assert (unclear.code, first.code, last.code) == (2, 6, 0)
    assert "name one of c1 (deploy 1.4), c2 (deploy 1.5)" in unclear.err
    assert "c1: deploy 1.4\n    glue sessions answer r c1 --allow" in first.err
    assert deployed() == "1.5\n"


def test_a_call_of_an_external_tool_needs_a_result(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)
    ran = cli("run", "agent.py", "-s", "r", "look it up")

    allowed = cli("sessions", "answer", "r", "--allow")
    answered = cli("sessions", "answer", "r", "--result", "8080")

    assert "glue sessions answer r c3 --result TEXT" in ran.err
    assert allowed.code == 2
    assert "give its result with --result TEXT" in allowed.err
    assert answered.out == "The answer is: 8080\n"


def test_a_file_that_changed_since_is_not_written(cli: Cli) -> None:
    Path("a.txt").write_text("one\n")
    flags = ("-m", "offline", "--tools", "edit", "-s", "w", "--on-question", "defer")
    ran = cli("run", *flags, 'write_file "new" to a.txt')
    shown = cli("sessions", "pending", "w").out
    Path("a.txt").write_text("somebody else wrote this\n")

    refused = cli("sessions", "answer", "w", "--allow")
    kept = Path("a.txt").read_text()
    allowed = cli("sessions", "answer", "w", "--allow")

    assert ran.code == 6
    assert "    -one\n" in shown
    assert "    +new\n" in shown
    assert refused.code == 6
    assert "changed since the decision was requested" in refused.err
    assert kept == "somebody else wrote this\n"
    assert "-somebody else wrote this" in allowed.err
    assert Path("a.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("release",), "is not a terminal; add --allow, --deny REASON or --result TEXT"),
        (
            ("release", "c9", "--allow"),
            "no tool call 'c9' waits for an answer in session release; waiting calls: c1",
        ),
        (("release", "--allow", "--deny", "x"), "exclude each other"),
        (("other", "--allow"), "other"),
    ],
)
def test_a_wrong_answer_changes_nothing(paused: Cli, args: tuple[str, ...], error: str) -> None:
    ran = paused("sessions", "answer", *args)

    assert ran.code == 2
    assert error in ran.err
    assert "c1: deploy 1.4" in paused("sessions", "pending").out


def test_a_session_of_a_program_needs_the_agent_by_name(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)
    session = open_agent("agent.py").session("s", store=open_store(), permission=DeferAll())
    session.run_sync("go", unwrap=False)

    listed = cli("sessions", "pending")
    missing = cli("sessions", "answer", "s", "--allow")
    named = cli("sessions", "answer", "s", "--allow", "--agent", "agent.py")

    assert "\n    glue sessions answer s c1 --agent FILE.py --allow\n" in listed.out
    assert missing.code == 2
    assert "add --agent FILE.py, or --model NAME" in missing.err
    assert (named.code, deployed()) == (0, "1.4\n")


def test_the_agent_that_a_project_store_names_is_not_trusted(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)
    Path("pyproject.toml").write_text('[tool.glue]\nstore = "st"\n')
    cli("run", "agent.py", "-s", "r", "--on-question", "defer", "go")

    refused = cli("sessions", "answer", "r", "--allow")
    named = cli("sessions", "answer", "r", "--allow", "--agent", "agent.py")

    assert refused.code == 2
    assert f"to use this agent, add --agent {os.getcwd()}/agent.py" in refused.err
    assert (named.code, deployed()) == (0, "1.4\n")


def test_a_new_prompt_on_a_paused_session_is_refused_with_the_commands(paused: Cli) -> None:
    ran = paused("run", "agent.py", "-s", "release", "and now?")
    last = json.loads(paused("run", "agent.py", "-s", "release", "--json", "and now?").out)

    assert ran.code == 6
    assert "    glue sessions answer release c1 --allow\n" in ran.err
    assert (last["type"], last["exit_code"], last["pending"][0]["id"]) == ("error", 6, "c1")


def test_the_result_as_json_lists_the_waiting_calls(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)

    ran = cli("run", "agent.py", "-s", "r", "--on-question", "defer", "--json", "go")

    last = json.loads(ran.out.splitlines()[-1])
    assert (last["outcome"], last["exit_code"], last["pending"][0]["id"]) == ("paused", 6, "c1")


def test_a_run_with_a_schema_is_continued_with_it(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT.replace('f"The answer is: {last.text}"', "'{\"a\": 1}'"))
    cli("run", "agent.py", "-s", "r", "--schema", "a: int", "--on-question", "defer", "go")

    ran = cli("sessions", "answer", "r", "--allow")

    assert (ran.code, json.loads(ran.out)) == (0, {"a": 1})


def test_a_chat_of_piped_lines_names_the_commands(paused: Cli) -> None:
    ran = paused("chat", "agent.py", "-s", "release", input="and now?\n")

    assert "    glue sessions answer release c1 --allow\n" in ran.err
    assert "the prompt was not sent" in ran.err
    assert deployed() == ""


def test_s154_a_paused_session_is_shown_searched_exported_and_viewed_as_waiting(
    paused: Cli,
) -> None:
    shown = paused("sessions", "show", "release").out
    found = paused("sessions", "search", "go").out
    exported = paused("sessions", "export", "release", "-f", "md").out
    raw = json.loads(paused("sessions", "export", "release").out)
    paused("view", "release", "-o", "page.html")
    page = Path("page.html").read_text()

    assert '-> deploy {"version": "1.4", "notes": "safe"} (this call waits for an answer)' in shown
    assert "release" in found
    assert "### Call of deploy (this call waits for an answer)" in exported
    assert list(raw["messages"][-1]["meta"]["pending"]) == ["c1"]
    assert "waits for an answer" in page
    assert "1 waiting" in page
    assert 'class="turn problem"' not in page


def test_s154_the_events_of_a_paused_run_are_viewed_as_waiting(cli: Cli) -> None:
    Path("agent.py").write_text(AGENT)
    flags = ("-s", "r", "--on-question", "defer", "--json")
    Path("events.jsonl").write_text(cli("run", "agent.py", *flags, "go").out)

    cli("view", "events.jsonl", "-o", "page.html")

    page = Path("page.html").read_text()
    assert "waits for an answer" in page
    assert "The run ended: paused" in page
    assert 'class="turn problem"' not in page


def test_s154_a_chat_does_not_compact_a_paused_session(paused: Cli) -> None:
    ran = paused("chat", "agent.py", "-s", "release", input="/compact\n")

    assert "a tool call waits for an answer, so the session cannot be compacted" in ran.err
    assert "c1: deploy 1.4" in paused("sessions", "pending").out


def test_a_run_whose_folder_was_removed_is_shown_but_not_continued(cli: Cli) -> None:
    store = str(Path("kept").absolute())
    Path("gone").mkdir()
    Path("gone/agent.py").write_text(AGENT)
    os.chdir("gone")
    folder = os.getcwd()
    cli("run", "agent.py", "-s", "release", "--store", store, "--on-question", "defer", "go")
    os.chdir("..")
    Path("gone/agent.py").rename("agent.py")
    Path("gone").rmdir()

    shown = cli("sessions", "pending", "release", "--store", store)
    refused = cli("sessions", "answer", "release", "--store", store, "--allow")

    assert "? deploy 1.4\n  notes:\n    safe\n" in shown.out
    assert refused.code == 2
    assert refused.err == (
        f"glue: the run was started in the folder {folder}, which does not exist any more\n"
    )


def test_quiet_does_not_repeat_the_question(paused: Cli) -> None:
    ran = paused("sessions", "answer", "release", "--allow", "-q")

    assert (ran.code, ran.out, ran.err) == (0, "The answer is: 1.4 is live\n", "")


def test_verbose_prints_the_results_of_tools(paused: Cli) -> None:
    ran = paused("sessions", "answer", "release", "--allow", "-v")

    assert (ran.code, ran.out) == (0, "The answer is: 1.4 is live\n")
    assert "    1.4 is live\n" in ran.err


def test_the_question_is_shown_before_the_run_continues(paused: Cli) -> None:
    ran = paused("sessions", "answer", "release", "--allow")

    assert ran.err.startswith("? deploy 1.4\n  notes:\n    safe\n")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ({"file": "/a/b.py", "options": {"model": "m"}}, "--agent /a/b.py"),
        ({"options": {"model": "m", "tools": "fs,git"}}, "--model m --tools fs,git"),
        ({"options": {"model": "m"}}, "--model m"),
        ({}, "--model NAME"),
    ],
)
def test_the_options_that_select_the_agent_of_a_run_are_named(
    command: dict[str, Any], options: str
) -> None:
    assert _agent_of(command) == options


def test_a_continued_run_is_logged_without_a_prompt(
    paused: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_LOG", "1")

    assert paused("sessions", "answer", "release", "--allow").code == 0

    (run,) = json.loads(paused("runs", "--json").out)
    assert (run["outcome"], run["agent"]) == ("done", "agent")


@pytest.mark.parametrize(("file", "model"), [("other.py", ""), (None, "offline")])
def test_another_agent_or_model_keeps_the_denials_of_the_run(file: str | None, model: str) -> None:
    command: Any = {"folder": "/a", "file": "b.py", "options": {"deny": ["shell"], "model": "m"}}
    message = replace(glue.user("go"), meta={COMMAND: command})

    found = _command([message], "s", None, file, {"model": model})

    assert found == {"folder": "/a", "options": {"deny": ["shell"]}}

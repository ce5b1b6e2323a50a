"""Pending calls on the command line: their lines, the commands that answer them, and the prompt's
command."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import glue
from glue.cli.screen import Screen
from glue.cli.waiting import COMMAND, answer_command, command_of, shown, waiting_lines, with_command
from glue.decision import PendingCall
from glue.permission import PermissionRequest


def pending(**changes: Any) -> PendingCall:
    request = PermissionRequest(tool="deploy", action="deploy", target="1.4", arguments={})
    given: dict[str, Any] = {"id": "c1", "tool": "deploy", "arguments": {}, "request": request}
    return PendingCall(**{**given, **changes})


def sources(**given: Any) -> Any:
    return SimpleNamespace(given=given, path="agent.py")


def test_a_prompt_keeps_the_options_that_shape_its_agent() -> None:
    [message] = with_command("go", sources(model="offline", deny=("shell",), yes=True, tools=()))

    command = command_of([message])

    assert command is not None
    assert command["options"] == {"model": "offline", "deny": ("shell",)}
    assert command["file"].endswith("/agent.py")
    assert message.text == "go"


def test_the_command_of_the_last_prompt_that_has_one_is_found() -> None:
    first, last, junk = (
        replace(glue.user("go"), meta={COMMAND: command})
        for command in ({"folder": "one"}, {"folder": "two"}, "junk")
    )

    assert command_of([first, last, glue.user("more")]) == {"folder": "two"}
    assert command_of([junk]) is None


def test_a_call_of_another_system_is_answered_with_a_result() -> None:
    outside = pending(request=None, tool="look_up")

    assert answer_command(pending(), "a b") == "glue sessions answer 'a b' c1 --allow"
    assert answer_command(outside, "s", ["--store", "x.db"]) == (
        "glue sessions answer s c1 --store x.db --result TEXT"
    )


def test_lines_name_the_call_its_reason_and_its_sub_agents() -> None:
    call = pending(reason="needs a person", path=("helper",))

    lines = waiting_lines([call], "demo")

    assert lines[0].startswith("paused: 1 call waits in session demo; ")
    assert lines[1] == "  c1: helper: deploy 1.4 (needs a person)"
    assert waiting_lines([call, call], "")[-1].endswith("add --session NAME to the command")


def test_a_person_sees_the_question_the_sub_agent_and_the_reason() -> None:
    text = shown(pending(reason="needs a person", path=("helper",)), Screen(io.StringIO(), {}))

    assert text.startswith("helper: ? deploy 1.4")
    assert text.endswith("\n  (needs a person)")


def test_a_long_reason_and_a_long_summary_are_cut() -> None:
    request = PermissionRequest(tool="deploy", action="deploy", target="t" * 300, arguments={})

    line = waiting_lines([pending(reason="r" * 300, request=request)], "demo")[1]

    summary, _, reason = line.partition(" (")
    assert summary == f"  c1: deploy {'t' * 192}…"
    assert reason == f"{'r' * 119}…)"

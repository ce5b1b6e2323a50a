"""What a person sees of a run: lines that stay whole, and nothing of a model that a terminal obeys."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from glue import Agent, StopReason, Usage, tool
from glue.cli.output import Printer, Screen, answer_of, question, tool_line, usage_line
from glue.codec import to_plain
from glue.events import MessageEnd, RequestStart, ToolEnd, ToolStart, event_to_json
from glue.messages import AssistantMessage, Request, Text, ToolMessage
from glue.permission import PermissionRequest
from glue.provider import Attempt, TextDelta
from glue.testing import Script, call, calls, say


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@tool
def look(path: str) -> str:
    """Look at a file."""
    return f"it is {path}\x1b[2J"


ENVIRON = {"TERM": "xterm", "NO_COLOR": "1"}


def show(shared: Terminal, **options: Any) -> Printer:
    """Printer on one terminal, as people have it."""
    screen = Screen(shared, ENVIRON)
    return Printer(screen, screen, **options)


def test_the_spinner_never_wipes_what_the_model_said() -> None:
    shared = Terminal()
    view = show(shared)
    request = RequestStart(number=1, request=Request())
    start = ToolStart(call=call("look", {"path": "a"}, id="1"))

    view(request)
    view(TextDelta(text="Let me look."))
    view(start)
    view.spinner.tick()

    before, _, drawn = shared.getvalue().partition("\r")
    assert before == "Let me look.\n"
    assert "look 0 s" in drawn


def test_an_answer_that_is_continued_stays_on_its_line() -> None:
    shared = Terminal()
    view = show(shared)
    cut = AssistantMessage(content=(Text(text="one "),), stop_reason=StopReason.MAX_TOKENS)

    for part in ("one ", "two"):
        view(RequestStart(number=1, request=Request()))
        view(TextDelta(text=part))
        view(MessageEnd(message=cut))

    assert shared.getvalue().endswith("one two")


def test_the_spinner_turns_while_any_tool_runs() -> None:
    shared = Terminal()
    view = show(shared)
    first, second = call("look", id="1"), call("see", id="2")

    def end(each: Any) -> ToolEnd:
        return ToolEnd(call=each, message=ToolMessage(call_id=each.id, name=each.name, content=()), seconds=1)

    for each in (first, second):
        view(ToolStart(call=each))
    view(end(second))
    view.spinner.tick()
    assert "look 0 s" in shared.getvalue().rpartition("\n")[2]
    view(end(first))
    after = shared.getvalue()
    view.spinner.tick()

    assert shared.getvalue() == after


async def test_a_run_is_shown_line_by_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    view = Printer(Screen(out, ENVIRON), Screen(err, ENVIRON), verbose=1)
    script = Script(calls(call("look", {"path": "a\nb"})), say("Fine.\x07", thinking="Hm. "))

    result = await Agent(script, tools=[look]).run("go", on_event=view)
    view.settle()

    assert out.getvalue() == "Fine.␇\n"
    assert re.match(r"· look\(path=a b\)  ok \d+ ms\n", err.getvalue())
    assert "    it is a\n    b␛[2J\n" in err.getvalue()
    assert "Hm. " in err.getvalue()
    assert usage_line(result).startswith("0 tokens in, ")


def test_a_failed_attempt_is_told() -> None:
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON))

    view(Attempt(provider="groq", kind="rate_limited", detail="groq: slow\ndown", delay=2))
    view(Attempt(provider="groq", kind="auth"))

    assert err.getvalue() == "! groq: slow down; next try in 2.0 s\n! auth; going on\n"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"path": "a", "n": [1, 2]}', "look(path=a, n=[1, 2])"), ("no json", "look(no json)"), ("[1]", "look([1])")],
)
def test_a_call_is_one_line_whatever_its_arguments(arguments: str, shown: str) -> None:
    message = ToolMessage(call_id="1", name="look", content=(Text(text="one\ntwo"),), is_error=True)
    event = ToolEnd(call=call("look", arguments), message=message, seconds=0.5)

    assert tool_line(event) == f"✗ {shown}  failed 500 ms: one two"


def test_a_question_shows_what_will_happen() -> None:
    request = PermissionRequest(
        tool="write", action="write", target="a.txt", arguments={"path": "a.txt", "text": "x\x1b[0m\n" * 20, "n": 3}
    )

    text = question(request, Screen(io.StringIO(), {}))

    assert text.startswith("? write a.txt\n  text:\n    x␛[0m\n")
    assert "    … 8 more lines\n  n:\n    3" in text
    assert "path:" not in text


def test_a_question_hides_nothing_of_its_target() -> None:
    command = "echo  a\tb\n" + "x" * 3000 + "; rm -rf ~"
    request = PermissionRequest(tool="shell", action="shell", target=command, arguments={"note": "y" * 400})

    first, _, rest = question(request, Screen(io.StringIO(), {})).partition("\n")

    assert first == "? shell echo  a␉b␊" + "x" * 3000 + "; rm -rf ~"
    assert "y… 100 more characters" in rest


def test_a_question_shows_marks_that_could_turn_its_target_round() -> None:
    request = PermissionRequest(tool="shell", action="shell", target="rm \u200f1 2\u200e \u061c3\u202e", arguments={})

    assert question(request, Screen(io.StringIO(), {})) == "? shell rm ⟨U+200F⟩1 2⟨U+200E⟩ ⟨U+061C⟩3⟨U+202E⟩"


@pytest.mark.parametrize(
    ("text", "allowed", "remember"),
    [("y", True, "call"), ("YES ", True, "call"), ("a", True, "target"), ("s", True, "session")]
    + [(text, False, "call") for text in ("", "n", "no", "yy", "ok", "\x03")],
)
def test_only_a_clear_yes_is_one(text: str, allowed: bool, remember: str) -> None:
    decision = answer_of(text)

    assert (decision.allowed, decision.remember) == (allowed, remember)


def test_events_and_objects_become_plain_json() -> None:
    usage = Usage(input=1, output=2)
    message = ToolMessage(call_id="1", name="look", content=(Text(text="x"),))
    event = event_to_json(ToolEnd(call=call("look", id="1"), message=message, seconds=0.5))

    assert event["type"] == "tool_end"
    assert event["message"]["role"] == "tool"
    assert event["call"]["name"] == "look"
    assert to_plain(usage)["output"] == 2
    assert to_plain({1: {2}, "path": object}) == {"1": [2], "path": "<class 'object'>"}
    json.dumps(event)

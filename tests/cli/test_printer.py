"""The output of a run for people: whole lines, and no control characters of a model."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest

from glue import Agent, Outcome, StopReason, Usage, tool
from glue.cli.printer import Printer, tool_line, usage_line
from glue.cli.screen import Screen
from glue.events import MessageEnd, RequestStart, RunEnd, ToolEnd, ToolStart, ToolUpdate
from glue.limits import estimate_tokens
from glue.messages import AssistantMessage, Request, Text, ToolMessage
from glue.provider import Attempt, TextDelta, ThinkingDelta, ToolCallDelta
from glue.testing import Script, call, calls, say


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


ENVIRON = {"TERM": "xterm", "NO_COLOR": "1"}


def show(shared: Terminal, **options: Any) -> Printer:
    """Return a printer whose stdout and stderr are the same terminal."""
    screen = Screen(shared, ENVIRON)
    return Printer(screen, screen, **options)


@tool
def look(path: str) -> str:
    """Return the content of a file."""
    return f"it is {path}\x1b[2J"


def test_the_spinner_is_drawn_below_the_text_of_the_model() -> None:
    shared = Terminal()
    view = show(shared)
    request = RequestStart(number=1, request=Request())
    start = ToolStart(call=call("look", {"path": "a"}, id="1"))

    view(request)
    view(TextDelta(text="Let me look."))
    view(start)
    view.progress.tick()

    before, _, drawn = shared.getvalue().partition("\r")
    assert before == "Let me look.\n"
    assert "look 0 s" in drawn


def test_a_continued_answer_stays_on_its_line() -> None:
    shared = Terminal()
    view = show(shared)
    cut = AssistantMessage(content=(Text(text="one "),), stop_reason=StopReason.MAX_TOKENS)

    for part in ("one ", "two"):
        view(RequestStart(number=1, request=Request()))
        view(TextDelta(text=part))
        view(MessageEnd(message=cut))

    assert shared.getvalue().endswith("one two")


def test_the_spinner_is_drawn_until_the_last_tool_ends() -> None:
    shared = Terminal()
    view = show(shared)
    first, second = call("look", id="1"), call("see", id="2")

    def end(each: Any) -> ToolEnd:
        return ToolEnd(
            call=each, message=ToolMessage(call_id=each.id, name=each.name, content=()), seconds=1
        )

    for each in (first, second):
        view(ToolStart(call=each))
    view(end(second))
    view.progress.tick()
    assert "look 0 s" in shared.getvalue().rpartition("\n")[2]
    view(end(first))
    after = shared.getvalue()
    view.progress.tick()

    assert shared.getvalue() == after


async def test_a_run_is_printed_line_by_line() -> None:
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


def test_a_failed_attempt_is_printed() -> None:
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON))

    view(Attempt(provider="groq", kind="rate_limited", detail="groq: slow\ndown", delay=2))
    view(Attempt(provider="groq", kind="auth"))

    assert err.getvalue().splitlines() == [
        "! groq: slow down; the next attempt starts in 2.0 s",
        "! auth; the next attempt starts now",
    ]


def test_a_failure_that_is_repeated_in_a_run_is_printed_in_full_once() -> None:
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON))
    failed = Attempt(provider="groq", kind="transient", detail="groq: cannot connect", delay=2)

    view(failed)
    view(replace(failed, delay=4))
    view(
        RunEnd(run_id="1", outcome=Outcome.FAILED, usage=Usage(), turns=1, requests=1, seconds=6.0)
    )
    view(failed)

    assert err.getvalue().splitlines() == [
        "! groq: cannot connect; the next attempt starts in 2.0 s",
        "! groq: failed again; the next attempt starts in 4.0 s",
        "! groq: cannot connect; the next attempt starts in 2.0 s",
    ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"path": "a", "n": [1, 2]}', "look(path=a, n=[1, 2])"),
        ("no json", "look(no json)"),
        ("[1]", "look([1])"),
    ],
)
def test_a_call_is_one_line_with_any_arguments(arguments: str, shown: str) -> None:
    message = ToolMessage(call_id="1", name="look", content=(Text(text="one\ntwo"),), is_error=True)
    event = ToolEnd(call=call("look", arguments), message=message, seconds=0.5)

    assert tool_line(event) == f"✗ {shown}  failed 500 ms: one two"


@pytest.mark.parametrize(
    ("verbose", "pieces", "shown"),
    [
        (0, ["Hm."], ""),
        (1, ["Hm."], "Hm.\n"),
        (1, ["Hm.\n"], "Hm.\n"),
        (1, ["H", "", "m."], "Hm.\n"),
    ],
)
def test_thinking_is_printed_on_its_own_line_only_if_verbose(
    verbose: int, pieces: list[str], shown: str
) -> None:
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON), verbose=verbose)

    for piece in pieces:
        view(ThinkingDelta(text=piece))
    view.note("after")

    assert err.getvalue() == f"{shown}after\n"


def test_thinking_ends_an_unfinished_line_of_the_answer() -> None:
    shared = Terminal()
    view = show(shared, verbose=1)

    view(TextDelta(text="One."))
    view(ThinkingDelta(text="Hm."))
    view(TextDelta(text="Two."))
    view.settle()

    assert re.sub(r"\r|\x1b\[K", "", shared.getvalue()) == "One.\nHm.\nTwo.\n"


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(text="word " * 40),
        ThinkingDelta(text="word " * 40),
        ToolCallDelta(index=0, arguments="word " * 40),
    ],
)
def test_the_spinner_counts_the_tokens_of_every_kind_of_piece(event: Any) -> None:
    shared = Terminal()
    view = show(shared, stream=False)

    view(RequestStart(number=1, request=Request()))
    view(event)
    view.progress.tick()
    counted = re.search(r"thinking 0 s, (\d+) tokens", shared.getvalue())
    view(
        RunEnd(run_id="1", outcome=Outcome.FAILED, usage=Usage(), turns=1, requests=1, seconds=6.0)
    )
    view(RequestStart(number=1, request=Request()))
    view.progress.tick()

    assert counted is not None
    assert int(counted[1]) == estimate_tokens("word " * 40)
    assert shared.getvalue().rpartition("thinking")[2].startswith(" 0 s\x1b")


def test_thinking_erases_the_spinner() -> None:
    shared = Terminal()
    view = show(shared, verbose=1)

    view(RequestStart(number=1, request=Request()))
    view.progress.tick()
    view(ThinkingDelta(text="Hm."))

    assert shared.getvalue().endswith("\r\x1b[KHm.")


def test_a_run_that_failed_while_it_continued_a_reply_is_followed_by_a_spinner() -> None:
    shared = Terminal()
    view = show(shared)
    cut = AssistantMessage(content=(Text(text="one"),), stop_reason=StopReason.MAX_TOKENS)

    view(TextDelta(text="one"))
    view(MessageEnd(message=cut))
    view(RequestStart(number=2, request=Request()))
    view(
        RunEnd(run_id="1", outcome=Outcome.FAILED, usage=Usage(), turns=1, requests=2, seconds=6.0)
    )
    view.settle()
    view(RequestStart(number=1, request=Request()))
    view.progress.tick()

    assert "thinking 0 s" in shared.getvalue()


def tool_end(*lines: str, is_error: bool = False) -> ToolEnd:
    """Return the end of a call of `look` with these lines as its result."""
    content = (Text(text="\n".join(lines)),)
    message = ToolMessage(call_id="1", name="look", content=content, is_error=is_error)
    return ToolEnd(call=call("look", "{}", id="1"), message=message, seconds=0.5)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["x" * 30], ["    " + "x" * 30]),
        (["x" * 40], ["    " + "x" * 33 + "…"]),
        (["x" * 40, "y"], ["    " + "x" * 21 + "…  (+1 lines)"]),
        (["", "a", "b", "c", ""], ["    a  (+2 lines)"]),
        (["", " "], []),
    ],
)
def test_the_first_line_of_a_result_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], shown: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON), results=True)

    view(tool_end(*lines))

    assert err.getvalue().splitlines()[1:] == shown


def test_the_result_of_a_failed_call_is_only_in_its_line() -> None:
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON), results=True)

    view(tool_end("why", "and where", is_error=True))

    assert err.getvalue() == "✗ look()  failed 500 ms: why and where\n"


@pytest.mark.parametrize(
    ("number", "more"), [(20, []), (21, ["    … 1 more lines"]), (30, ["    … 10 more lines"])]
)
def test_verbose_prints_20_lines_of_a_result(
    monkeypatch: pytest.MonkeyPatch, number: int, more: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON), verbose=1, results=True)

    view(tool_end(*["x" * 50] * number))

    assert err.getvalue().splitlines()[1:] == ["    " + "x" * 35] * 20 + more


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "look(path=" + "x" * 57 + "…)"),
        (40, "look(path=" + "x" * 17 + "…)"),
        (1, "look(path=xxxxxxxxxx…)"),
    ],
)
def test_the_arguments_of_a_call_leave_room_for_its_outcome(width: int, shown: str) -> None:
    message = ToolMessage(call_id="1", name="look", content=())
    event = ToolEnd(call=call("look", {"path": "x" * 100}), message=message, seconds=0.5)

    line = tool_line(event, width)

    assert line == f"· {shown}  ok 500 ms"


def test_a_new_message_begins_one_new_line() -> None:
    out = io.StringIO()
    view = Printer(Screen(out, ENVIRON), Screen(io.StringIO(), ENVIRON))

    view(TextDelta(text="One."))
    view(RequestStart(number=2, request=Request()))
    for piece in ("Two", " and", " three."):
        view(TextDelta(text=piece))

    assert out.getvalue() == "One.\nTwo and three."


@pytest.mark.parametrize(("is_error", "code"), [(True, 31), (False, 2)])
def test_the_line_of_a_failed_call_is_red(is_error: bool, code: int) -> None:
    err = io.StringIO()
    view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, {"FORCE_COLOR": "1"}))

    view(tool_end("x", is_error=is_error))

    assert err.getvalue().startswith(f"\x1b[{code}m")


def test_the_spinner_shows_40_columns_of_the_name_of_a_tool() -> None:
    shared = Terminal()
    view = show(shared)

    view(ToolStart(call=call("x" * 50, "{}", id="1")))
    view.progress.tick()

    assert f" {'x' * 39}… 0 s" in shared.getvalue()


def test_the_progress_of_a_tool_is_one_line_that_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = []
    for verbose in (0, 1):
        err = io.StringIO()
        view = Printer(Screen(io.StringIO(), ENVIRON), Screen(err, ENVIRON), verbose=verbose)
        view(ToolUpdate(call_id="1", name="look", text="half\n" + "x" * 60))
        shown.append(err.getvalue())

    assert shown == ["", "  look: half " + "x" * 34 + "…\n"]

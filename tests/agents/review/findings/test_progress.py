"""The progress line of a review."""

from __future__ import annotations

import io

from glue import AssistantMessage, ToolCall, ToolMessage, Usage
from glue.agents.review.change.collect import from_texts
from glue.agents.review.findings.progress import ReviewProgress
from glue.agents.review.records import ReviewedChange
from glue.cli.screen import Screen
from glue.events import MessageEnd, RequestStart, ToolEnd
from glue.messages import Request

BUNDLE = from_texts({"a.py": "x = 1\n"}, {"a.py": "x = 2\n"}, ReviewedChange(title="change"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps(progress: ReviewProgress) -> None:
    progress(RequestStart(number=1, request=Request(messages=())))
    for name, arguments in (
        ("read_file", '{"path": "a.py"}'),
        ("read_file", "no json"),
        ("report_finding", "{}"),
    ):
        call = ToolCall(id="1", name=name, arguments=arguments)
        progress(
            ToolEnd(call=call, message=ToolMessage(call_id="1", name=name, content=()), seconds=0.1)
        )
    progress(
        MessageEnd(
            message=AssistantMessage(content=(), usage=Usage(input=1000, output=20, cost=0.01))
        )
    )
    progress.end()


def test_terminal_shows_one_progress_line() -> None:
    file = Terminal()
    progress = ReviewProgress(BUNDLE, Screen(file, {"TERM": "xterm"}))

    steps(progress)

    shown = file.getvalue()
    assert "reviewing 1 hunks: request 1, 1 files read, 1 findings, 1,020 tokens, $0.0100" in shown
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown


def test_other_outputs_show_no_progress() -> None:
    file = io.StringIO()

    steps(ReviewProgress(BUNDLE, Screen(file, {"TERM": "xterm"})))

    assert file.getvalue() == ""


def test_cost_is_shown_only_if_it_is_known() -> None:
    assert str(ReviewProgress(BUNDLE)).endswith("0 findings, 0 tokens")

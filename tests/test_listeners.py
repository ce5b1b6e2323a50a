"""Listeners: several at once, texts as they are streamed, and log messages."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

from glue import AssistantMessage, StopReason, Text
from glue.events import Event, MessageEnd, TextDelta, ToolStart, TurnStart
from glue.listeners import (
    Listeners,
    PacedListeners,
    TextWriter,
    join,
    listener_name,
    warn_unknown_stop,
    writers,
)
from glue.testing import call


def end(stop: StopReason = StopReason.END_TURN) -> MessageEnd:
    return MessageEnd(message=AssistantMessage(content=(Text(text="x"),), stop_reason=stop))


def written(*events: Event) -> str:
    file = io.StringIO()
    writer = TextWriter(file)
    for event in events:
        writer(event)
    return file.getvalue()


def test_a_newline_separates_two_replies() -> None:
    assert written(TextDelta(text="a"), end(), TextDelta(text="b"), end()) == "a\nb"


def test_the_continuation_of_a_cut_reply_is_on_the_same_line() -> None:
    assert written(TextDelta(text="a"), end(StopReason.MAX_TOKENS), TextDelta(text="b")) == "ab"


def test_a_reply_that_ends_with_a_newline_gets_no_other() -> None:
    assert written(TextDelta(text="a\n"), end(), TextDelta(text="b")) == "a\nb"


def test_replies_without_text_write_nothing() -> None:
    assert written(end(), TextDelta(text=""), end(), TextDelta(text="a")) == "a"


def test_writers_are_made_only_for_the_files_that_are_given() -> None:
    stream, tools = io.StringIO(), io.StringIO()

    for listener in writers(stream, tools):
        listener(TextDelta(text="a"))
        listener(ToolStart(call=call("look")))

    assert (stream.getvalue(), tools.getvalue()) == ("a", "[tool] look\n")
    assert writers(None, None) == []


def test_join_returns_none_or_the_only_listener_or_one_that_calls_all() -> None:
    seen: list[str] = []

    def first(event: Event) -> None:
        seen.append("first")

    def second(event: Event) -> None:
        seen.append("second")

    both = join([first, None, second])
    assert both is not None
    both(TurnStart(turn=1))

    assert join([None]) is None
    assert join([None, first]) is first
    assert seen == ["first", "second"]


async def test_joined_listeners_wait_for_those_with_drain() -> None:
    class Slow:
        drained = 0

        def __call__(self, event: Event) -> None: ...

        async def drain(self) -> None:
            self.drained += 1

    slow = Slow()
    both = join([slow, lambda event: None])

    assert isinstance(both, PacedListeners)
    await both.drain()
    assert slow.drained == 1


def test_a_listener_that_raises_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise KeyError("lost")

    Listeners([broken, seen.append])(TurnStart(turn=1))

    assert len(seen) == 1


def test_the_name_of_a_listener_is_that_of_its_function_or_class() -> None:
    def report(event: Any) -> None: ...

    assert (listener_name(report), listener_name(TextWriter(io.StringIO()))) == (
        "report",
        "TextWriter",
    )


def test_an_unknown_stop_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reply = unknown_stop("m", "dreamt-of-listeners")

    with caplog.at_level(logging.WARNING, "glue.loop"):
        warn_unknown_stop(reply)
        warn_unknown_stop(reply)

    assert caplog.messages == [
        "unknown stop reason 'dreamt-of-listeners' from acme m; treated as the end of the reply"
    ]


def test_s005_an_unknown_stop_reason_is_logged_once_per_provider_model_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "glue.loop")
    one, other = unknown_stop("once", "zzz"), unknown_stop("twice", "zzz")

    for reply in (one, one, other, one):
        warn_unknown_stop(reply)

    assert len(caplog.records) == 2
    assert "'zzz'" in caplog.records[0].getMessage()


def unknown_stop(model: str, raw: str) -> AssistantMessage:
    return AssistantMessage(
        content=(Text(text="x"),),
        stop_reason=StopReason.UNKNOWN,
        raw_stop_reason=raw,
        provider="acme",
        model=model,
    )


class Slow(io.StringIO):
    """A file that shows nothing before it is flushed."""

    shown = ""

    def flush(self) -> None:
        self.shown = self.getvalue()


def test_each_piece_of_text_and_each_tool_is_shown_at_once() -> None:
    stream, tools = Slow(), Slow()
    write, log = writers(stream, tools)

    write(TextDelta(text="a"))
    log(ToolStart(call=call("look")))

    assert (stream.shown, tools.shown) == ("a", "[tool] look\n")


def test_listeners_without_drain_are_not_awaited() -> None:
    both = join([print, repr])

    assert type(both) is Listeners
    assert not hasattr(both, "drain")


def test_a_program_that_configures_no_logging_prints_no_warnings_of_glue() -> None:
    handlers = logging.getLogger("glue").handlers

    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


def test_a_listener_that_raises_is_reported_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise KeyError("lost")

    with caplog.at_level(logging.WARNING, "glue.tools"):
        Listeners([broken])(TurnStart(turn=1))

    assert caplog.messages == ["listener broken raised KeyError"]

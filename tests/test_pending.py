"""`glue.pending`: calls that wait, read from the transcript that keeps them."""

from __future__ import annotations

from typing import Any

import pytest

import glue
from glue import AssistantMessage, Message, ToolCall, ToolMessage, user
from glue.decision import PermissionRequest, PermissionTarget
from glue.function.guard import Decided
from glue.pending import (
    CallDeferred,
    check_decisions,
    inner_decisions,
    is_paused,
    pending_calls,
    record_of,
    rejections,
    waiting_records,
)

REQUEST = PermissionRequest(
    tool="deploy", action="deploy", target="1.4", arguments={"version": "1.4"}, call_id="a"
)


def reply(**meta: Any) -> AssistantMessage:
    calls = tuple(ToolCall(id=name, name="deploy", arguments="{}") for name in "abc")
    return AssistantMessage(content=calls, meta=meta)


def result(call: str) -> ToolMessage:
    return ToolMessage(call_id=call, name="deploy", content=(glue.Text(text="ok"),))


RECORD = {**record_of({"version": "1.4"}, REQUEST, "ask Ada"), "deferred": True}


def test_a_call_without_a_result_and_with_a_record_is_pending() -> None:
    messages: list[Message] = [user("go"), reply(pending={"a": RECORD, "b": RECORD}), result("b")]

    [pending] = pending_calls(messages)

    assert (pending.id, pending.tool, pending.reason) == ("a", "deploy", "ask Ada")
    assert pending.request == REQUEST
    assert pending.summary == "deploy 1.4"
    assert is_paused(messages)


def test_a_call_that_may_have_started_is_not_pending() -> None:
    asked = reply(pending={"a": RECORD, "b": RECORD}, started=["a"])

    assert list(waiting_records(asked)) == ["b"]
    assert [each.id for each in pending_calls([asked])] == ["b"]


def test_a_question_that_was_cut_off_is_pending_but_the_run_is_not_paused() -> None:
    messages = [reply(pending={"a": record_of({}, REQUEST)})]

    assert [each.id for each in pending_calls(messages)] == ["a"]
    assert not is_paused(messages)


def test_calls_before_a_new_prompt_are_not_pending() -> None:
    assert pending_calls([reply(pending={"a": RECORD}), user("next")]) == ()


def test_rejections_are_inserted_before_results_of_later_calls() -> None:
    messages: list[Message] = [reply(pending={"a": RECORD, "c": RECORD}), later := result("b")]

    found = rejections(messages, "too late")

    assert [(message.call_id, before) for message, before in found] == [
        ("a", later.id),
        ("c", None),
    ]
    assert found[0][0].text == "permission denied: deploy 1.4: too late"


def test_a_call_that_waits_for_a_rejected_one_is_not_run() -> None:
    [_, (message, _)] = rejections([reply(pending={"a": RECORD}, later=["b"])])

    assert message.text == "not run: a call before it was denied"


def test_a_call_that_neither_waits_nor_follows_a_waiting_call_is_not_rejected() -> None:
    [(message, _)] = rejections([reply(pending={"a": RECORD})])

    assert message.call_id == "a"


def test_a_yes_covers_only_the_request_that_was_shown() -> None:
    target = PermissionTarget(text="a.txt", paths=("a.txt",), mark="m1")
    shown = glue.permission.PermissionRequest(
        tool="write", action="write", arguments={}, session_id="s", touched=target
    )
    decided = Decided(record=record_of({}, shown))
    changed = PermissionTarget(text="a.txt", paths=("a.txt",), mark="m2")

    assert decided.covers(shown)
    assert decided.covers(
        PermissionRequest(
            tool="write", action="write", arguments={}, session_id="t", touched=target
        )
    )
    assert not decided.covers(
        PermissionRequest(
            tool="write", action="write", arguments={}, session_id="s", touched=changed
        )
    )


def test_decisions_for_calls_of_a_sub_agent_are_found_by_their_prefix() -> None:
    decisions = {"a/x": 1, "a/x/y": 2, "ab/x": 3, "a": 4}

    assert inner_decisions("a", decisions) == {"x": 1, "x/y": 2}


def test_no_decisions_are_always_right() -> None:
    check_decisions([], None)
    check_decisions([], {})


def test_decisions_must_be_a_dict() -> None:
    with pytest.raises(TypeError, match="decisions must be a dict of call ids"):
        check_decisions([], ["a"])  # type: ignore[arg-type]


def test_a_tool_that_catches_every_error_does_not_catch_a_deferred_call() -> None:
    assert not issubclass(CallDeferred, Exception)


def test_a_deferred_call_shows_its_reason() -> None:
    assert str(CallDeferred({}, reason="ask Ada")) == "ask Ada"


def test_a_transcript_without_a_reply_has_nothing_to_reject() -> None:
    assert rejections([user("hello")], "no") == []
    assert rejections([], "no") == []

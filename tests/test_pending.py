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


def test_a_record_has_only_the_fields_that_are_known() -> None:
    assert record_of({"version": "1.4"}) == {"arguments": {"version": "1.4"}}
    assert record_of({}, None, "ask Ada") == {"arguments": {}, "reason": "ask Ada"}
    assert list(record_of({}, REQUEST)) == ["arguments", "request"]


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

    assert message.text == "not run, because an earlier call was denied"


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


def test_a_rejection_without_a_reason_is_an_error_that_names_the_call() -> None:
    [(message, _)] = rejections([reply(pending={"a": RECORD})])

    assert (message.text, message.is_error) == ("permission denied: deploy 1.4", True)


@pytest.mark.parametrize("decision", [None, True, False, print])
def test_a_flag_or_a_function_is_not_a_decision(decision: Any) -> None:
    with pytest.raises(TypeError, match=r"the decision for 'a' must be glue\.allow\(\)"):
        check_decisions([reply(pending={"a": RECORD})], {"a": decision})


def test_an_external_tool_cannot_be_allowed_but_refused_or_answered() -> None:
    messages = [reply(pending={"a": RECORD, "b": record_of({})})]

    check_decisions(messages, {"a": glue.allow(), "b": "the result"})
    check_decisions(messages, {"a": "the result", "b": glue.deny()})
    with pytest.raises(ValueError, match=r"give its result, as in decisions=\{'b': 'the result'\}"):
        check_decisions(messages, {"b": glue.allow()})


def test_a_decision_about_another_call_is_rejected_with_the_calls_that_wait() -> None:
    with pytest.raises(
        ValueError, match=r"contains 'x', which .* pending calls: a \(deploy 1\.4\)"
    ):
        check_decisions([reply(pending={"a": RECORD})], {"x": glue.allow()})
    with pytest.raises(ValueError, match="pending calls: none"):
        check_decisions([], {"x": glue.allow()})


def test_a_call_of_a_paused_sub_agent_keeps_the_messages_of_the_sub_agent() -> None:
    inner = reply(pending={"a": RECORD})
    record = CallDeferred({"prompt": "go"}, agent="helper", messages=[inner]).record

    [pending] = pending_calls([reply(pending={"b": record})])

    assert (pending.id, pending.path) == ("b/a", ("helper",))
    assert pending.summary == "helper: deploy 1.4"

"""Messages arranged into replies, with their durations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.transcripts import reply, result

from glue.messages import Message, Text, ToolCall, user
from glue.provider import Attempt
from glue.view.transcript import Note, ShownMessage, ShownReply, arrange, has_problem


def test_copied_messages_have_no_duration() -> None:
    items = [
        ShownMessage(message=message, at=5.0) for message in (user("a"), reply(Text(text="b")))
    ]

    (_, shown) = arrange(items)

    assert isinstance(shown, ShownReply)
    assert shown.model_seconds is None


def test_a_summary_that_was_added_later_causes_no_negative_duration() -> None:
    items = [
        ShownMessage(message=user("a", origin="summary"), at=9.0),
        ShownMessage(message=reply(Text(text="b")), at=5.0),
    ]

    (_, shown) = arrange(items)

    assert isinstance(shown, ShownReply)
    assert shown.model_seconds is None


def test_results_belong_to_the_reply_before_them_even_if_ids_repeat() -> None:
    asked = reply(ToolCall(id="c", name="look", arguments="{}"))

    blocks = arrange(
        [
            ShownMessage(message=message)
            for message in (asked, result("c", "1"), asked, result("c", "2"))
        ]
    )

    found = [
        pair[1].message.text
        for block in blocks
        if isinstance(block, ShownReply)
        for pair in block.calls
        if pair[1]
    ]
    assert found == ["1", "2"]


def test_calls_with_the_same_id_in_one_reply_have_a_result_each() -> None:
    asked = reply(*(ToolCall(id="c", name="look", arguments="{}") for _ in range(2)))

    (shown,) = arrange(
        [ShownMessage(message=message) for message in (asked, result("c", "1"), result("c", "2"))]
    )

    assert isinstance(shown, ShownReply)
    assert [found.message.text for _, found in shown.calls if found is not None] == ["1", "2"]


def test_the_duration_of_calls_is_that_of_the_slowest() -> None:
    asked = reply(
        ToolCall(id="a", name="x", arguments="{}"), ToolCall(id="b", name="x", arguments="{}")
    )
    items = [
        ShownMessage(message=asked),
        *(
            ShownMessage(message=result(key, ""), seconds=took)
            for key, took in (("a", 3.0), ("b", 2.0))
        ),
    ]

    (shown,) = arrange(items)

    assert isinstance(shown, ShownReply)
    assert shown.tool_seconds == 3.0


def at(message: Message, when: float | None, **fields: Any) -> ShownMessage:
    return ShownMessage(message=message, at=when, **fields)


@pytest.mark.parametrize(("seconds", "duration"), [(0.001, None), (0.002, 0.002), (3.0, 3.0)])
def test_a_reply_takes_the_time_since_the_message_before_unless_it_was_copied(
    seconds: float, duration: float | None
) -> None:
    (_, shown) = arrange([at(user("a"), 0.0), at(reply(Text(text="b")), seconds)])

    assert isinstance(shown, ShownReply)
    assert shown.model_seconds == duration
    assert shown.seconds == (duration or 0.0)


def test_a_measured_time_is_preferred_and_zero_is_a_time() -> None:
    (_, shown) = arrange([at(user("a"), 0.0), at(reply(Text(text="b")), 5.0, seconds=0.0)])

    assert isinstance(shown, ShownReply)
    assert shown.model_seconds == 0.0


@pytest.mark.parametrize(("first", "second"), [(None, 5.0), (5.0, None)])
def test_a_time_is_unknown_if_one_of_two_messages_has_none(
    first: float | None, second: float | None
) -> None:
    (_, shown, waited) = arrange(
        [at(user("a"), first), at(reply(Text(text="b")), second), at(user("c"), None)]
    )

    assert isinstance(shown, ShownReply)
    assert isinstance(waited, ShownMessage)
    assert (shown.model_seconds, shown.tool_seconds, shown.seconds) == (None, None, 0.0)
    assert waited.waited is None


def test_calls_that_were_not_measured_take_the_time_until_the_last_result() -> None:
    asked = reply(ToolCall(id="a", name="x", arguments="{}"), Text(text="hm"))
    items = [at(user("go"), 0.0), at(asked, 2.0), at(result("a", "1"), 3.0)]
    items.append(at(result("a", "2"), 7.0))

    (_, shown) = arrange(items)

    assert isinstance(shown, ShownReply)
    assert (shown.model_seconds, shown.tool_seconds, shown.seconds) == (2.0, 5.0, 7.0)


def test_a_prompt_has_the_time_since_the_message_before() -> None:
    blocks = arrange([at(user("a"), 1.0), at(user("b"), 4.0)])

    assert [block.waited for block in blocks if isinstance(block, ShownMessage)] == [None, 3.0]


@pytest.mark.parametrize(("kind", "duration"), [("event", 4.0), ("failed", 4.0), ("heading", None)])
def test_only_a_heading_separates_a_reply_from_the_message_before(
    kind: Any, duration: float | None
) -> None:
    note = Note(kind=kind, text="x")

    blocks = arrange([at(user("a"), 1.0), note, at(reply(Text(text="b")), 5.0)])

    assert blocks[1] is note
    assert isinstance(blocks[2], ShownReply)
    assert blocks[2].model_seconds == duration


def test_a_reply_continues_the_reply_before_a_continuation() -> None:
    again, steering = user("more", origin="continue"), user("wait", origin="steering")
    said = reply(Text(text="x"))

    blocks = arrange([at(each, None) for each in (again, said, again, said, said, steering, said)])

    replies = [block for block in blocks if isinstance(block, ShownReply)]
    assert [each.number for each in replies] == [1, 2, 3, 4]
    assert [each.continues for each in replies] == [None, 1, None, None]


def test_a_later_message_ends_the_request_for_a_continuation() -> None:
    again, said = user("more", origin="continue"), reply(Text(text="x"))

    blocks = arrange([at(each, None) for each in (said, again, user("new"), said)])

    assert [block.continues for block in blocks if isinstance(block, ShownReply)] == [None, None]


def test_a_result_of_another_call_is_a_message_of_its_own() -> None:
    asked = reply(ToolCall(id="a", name="x", arguments="{}"))

    blocks = arrange([at(asked, None), at(result("b", "lost"), None), at(result("a", "1"), None)])

    assert [type(block) for block in blocks] == [ShownReply, ShownMessage, ShownMessage]


def pending(call_id: str, **meta: Any) -> ShownReply:
    asked = reply(ToolCall(id="a", name="x", arguments="{}"), meta=meta, stop_reason="tool_use")
    (shown,) = arrange([at(asked, None, running=frozenset({call_id}))])
    assert isinstance(shown, ShownReply)
    return shown


def test_calls_wait_until_they_are_started() -> None:
    assert pending("", pending={"a": {}, "b": {}}, started=["b"]).waiting == {"a"}
    assert pending("", pending={"a": {}}, started="a").waiting == {"a"}
    assert pending("", pending=["a"]).waiting == frozenset()
    assert pending("").waiting == frozenset()


def test_a_call_without_a_result_is_a_problem_unless_it_waits_or_runs() -> None:
    assert has_problem(pending(""))
    assert not has_problem(pending("a"))
    assert not has_problem(pending("", pending={"a": {}}))


def test_failures_and_cut_replies_are_problems() -> None:
    def shown(**fields: Any) -> ShownReply:
        (made,) = arrange([at(reply(Text(text="x"), **fields), None)])
        assert isinstance(made, ShownReply)
        return made

    failed = replace(result("a", "x"), is_error=True)
    asked = reply(ToolCall(id="a", name="x", arguments="{}"), stop_reason="tool_use")
    attempt = Attempt(provider="p", kind="timeout")

    assert not has_problem(shown(stop_reason="end_turn"))
    assert has_problem(shown(stop_reason="max_tokens"))
    assert not has_problem(arrange([at(asked, None), at(result("a", "x"), None)])[0])
    assert has_problem(arrange([at(asked, None), at(failed, None)])[0])
    assert has_problem(arrange([at(asked, None, attempts=(attempt,)), at(result("a", "x"), 0)])[0])
    assert has_problem(at(failed, None))
    assert not has_problem(at(result("a", "x"), None))
    assert not has_problem(Note(kind="event", text="x"))
    assert has_problem(Note(kind="failed", text="x"))
    assert has_problem(Note(kind="event", text="x", attempts=(attempt,)))

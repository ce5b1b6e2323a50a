"""Messages arranged into replies, with their durations."""

from __future__ import annotations

from fakes.transcripts import reply, result

from glue.messages import (
    Text,
    ToolCall,
    user,
)
from glue.view.transcript import ShownMessage, ShownReply, arrange


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

"""`glue.loop.position`: the next step of a run, read from its transcript."""

from __future__ import annotations

from typing import Any

import pytest

from glue import (
    AssistantMessage,
    Message,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    user,
)
from glue.errors import InvalidContinuation
from glue.loop.position import (
    ASK,
    JOIN,
    OVER,
    PAUSE_TURN,
    Position,
    is_resumable,
    position_of,
    resume_position,
    say,
)


def reply(text: str = "", *calls: str, stop: str = "end_turn", **meta: Any) -> AssistantMessage:
    parts = [Text(text=text)] if text else []
    made = [ToolCall(id=each, name="look", arguments="{}") for each in calls]
    return AssistantMessage(
        content=(*parts, *made), stop_reason=StopReason(stop), meta=meta or None
    )


def result(call: str) -> ToolMessage:
    return ToolMessage(call_id=call, name="look", content=(Text(text="ok"),))


def calling(*ids: str) -> Position:
    return Position(step="call", calls=ids)


@pytest.mark.parametrize(
    ("messages", "position"),
    [
        ([], OVER),
        ([user("q")], ASK),
        ([user("q"), reply("a")], OVER),
        ([user("q"), reply("a", stop="unknown")], OVER),
        ([user("q"), reply("", "1", "2")], calling("1", "2")),
        ([user("q"), reply("", "1", "2"), result("1")], calling("2")),
        ([user("q"), reply("", "1", "2"), result("2")], calling("1")),
        ([user("q"), reply("", "1"), result("1")], ASK),
        ([user("q"), reply("half", stop="max_tokens")], JOIN),
        ([user("q"), reply("half", stop="cancelled")], JOIN),
        ([user("q"), reply("half", stop="max_turns")], JOIN),
        ([user("q"), reply("half", stop="max_tokens"), user("more", origin="continue")], JOIN),
        ([user("q"), reply("a", stop="pause_turn")], PAUSE_TURN),
        (
            [user("q"), reply("a", stop="max_tokens", dropped_calls=["look"])],
            Position(step="repair", tool="look"),
        ),
        (
            [user("q"), reply("a", stop="end_turn", dropped_calls=["look", "other"])],
            Position(step="repair", tool="look"),
        ),
        ([user("q"), reply("a", stop="malformed_call")], Position(step="repair")),
        (
            [
                user("q"),
                reply("a", stop="max_tokens", dropped_calls=["look"]),
                user("again", origin="repair"),
            ],
            Position(step="repair", tool="look"),
        ),
        ([user("q"), reply("a"), user("do it", origin="nudge")], ASK),
        (
            [user("q"), reply("a", position={"step": "over", "cut": True})],
            Position(step="over", cut=True),
        ),
    ],
)
def test_the_last_messages_determine_the_next_step(
    messages: list[Message], position: Position
) -> None:
    assert position_of(messages) == position


def test_a_position_in_an_earlier_message_is_ignored() -> None:
    messages: list[Message] = [
        user("q"),
        reply("a", position={"step": "pause_turn"}),
        user("next"),
    ]

    assert position_of(messages) == ASK


@pytest.mark.parametrize(
    "position",
    [
        ASK,
        calling("1", "2"),
        Position(step="repair", tool="look"),
        say([user("do it", origin="nudge"), user("now", origin="nudge")]),
        Position(step="over", cut=True),
    ],
)
def test_a_position_survives_json(position: Position) -> None:
    assert Position.from_json(position.to_json()) == position
    assert position_of([user("q"), reply("a", position=position.to_json())]) == position


def test_the_prompts_of_a_position_keep_origin_and_order() -> None:
    prompts = say([user("one", origin="nudge"), user("two", origin="nudge")]).messages()

    assert [(each.origin, each.text) for each in prompts] == [("nudge", "one"), ("nudge", "two")]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "the transcript is empty"),
        ([user("q"), reply("a")], "the model has answered"),
        (
            [UserMessage(content=(Text(text="q"),), excluded=True)],
            "the model or its provider refused the last run, or its prompt was too long",
        ),
    ],
)
def test_a_run_that_is_over_cannot_be_resumed(messages: list[Message], reason: str) -> None:
    assert not is_resumable(messages)

    with pytest.raises(InvalidContinuation, match=reason):
        resume_position(messages)


def test_a_run_that_was_cut_after_its_answer_is_resumed_without_a_request() -> None:
    messages: list[Message] = [user("q"), reply("a", position={"step": "over", "cut": True})]

    assert resume_position(messages).step == "over"


def test_a_repair_without_a_reply_names_no_tool() -> None:
    assert position_of([user("Send it again.", origin="repair")]) == Position(step="repair")

"""Hardening: whatever a transcript holds, what is sent is valid, and each message is looked at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.errors import InvalidContinuation
from glue.loop.transcript import (
    NO_RESULT,
    History,
    answer_calls,
    chain_texts,
    estimate,
    harden,
    message_chars,
    needs_answer,
    prompt_start,
    resume_prompts,
    unanswered,
)
from glue.messages import AssistantMessage, Message, Opaque, Text, Thinking, ToolMessage, UserMessage, user
from glue.testing import call, partial, shape


def said(text: str = "x", *named: object) -> AssistantMessage:
    content = (*((Text(text=text),) if text else ()), *named)
    return AssistantMessage(content=content)


def result(call_id: str, text: str = "ok", excluded: bool = False) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="t", content=(Text(text=text),), excluded=excluded)


def test_a_missing_result_is_made_up() -> None:
    sent = harden([user("u"), said("", call("t", id="a"), call("t", id="b")), result("b"), user("v")])

    assert shape(sent) == "u a t t u"
    assert [m.text for m in sent if isinstance(m, ToolMessage)] == [NO_RESULT, "ok"]
    assert [m.is_error for m in sent if isinstance(m, ToolMessage)] == [True, False]


def test_orphans_and_doubles_are_dropped() -> None:
    sent = harden(
        [result("zzz"), user("u"), said("", call("t", id="a")), result("a", "1"), result("a", "2"), said("y")]
    )

    assert shape(sent) == "u a t a"
    assert sent[2].text == "1"


def test_a_result_behind_a_user_message_is_moved_up() -> None:
    sent = harden([user("u"), said("", call("t", id="a")), user("steer"), result("a")])

    assert shape(sent) == "u a t u"


def test_half_calls_and_empty_turns_are_dropped() -> None:
    messages: list[Message] = [
        user("u"),
        said("", partial("t")),
        user("  "),
        said("kept", partial("t")),
        said(""),
        said("  "),
    ]

    sent = harden(messages)

    assert shape(sent) == "u a"
    assert isinstance(sent[1], AssistantMessage)
    assert sent[1].content == (Text(text="kept"),)


def test_a_reply_of_thinking_alone_is_empty_and_an_opaque_block_is_not() -> None:
    thinking = AssistantMessage(content=(Thinking(text="hm"),))
    opaque = AssistantMessage(content=(Opaque(wire="w", data={}),))

    assert shape(harden([user("u"), thinking, opaque])) == "u a"


def test_what_is_excluded_is_not_sent() -> None:
    hidden = UserMessage(content=(Text(text="secret"),), excluded=True)
    reply = AssistantMessage(content=(call("t", id="a"),), excluded=True)

    assert harden([hidden, reply, result("a", excluded=True), user("v")])[0].text == "v"


def test_equal_ids_are_answered_in_order() -> None:
    answers = answer_calls([call("t", id="a"), call("t", id="a")], [result("a", "1"), result("a", "2")])

    assert [answer.text for answer in answers] == ["1", "2"]


def test_untouched_messages_are_sent_as_they_are() -> None:
    messages: list[Message] = [user("u"), said("x", call("t", id="a")), result("a"), said("y")]

    assert all(one is other for one, other in zip(harden(messages), messages, strict=True))


def test_a_view_does_not_change_when_the_transcript_grows() -> None:
    messages: list[Message] = [user("u")]
    history = History()

    first = history.view(messages)
    messages.append(said("x"))
    second = history.view(messages)

    assert (len(first), len(second)) == (1, 2)
    assert list(first) == messages[:1]
    assert first[-1] is messages[0]
    assert first[0:5] == (messages[0],)
    assert first == (messages[0],)
    assert first != second


def test_each_message_is_hardened_once() -> None:
    class Counted(list[Message]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            Counted.reads += 1
            return super().__getitem__(index)

    messages = Counted()
    history = History()
    for _ in range(100):
        messages.append(user("u"))
        messages.append(said("x"))
        history.view(messages)

    assert Counted.reads == 200


blocks: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["u", ""])),
        st.builds(
            lambda ids, text: said(text, *(call("t", id=i) for i in ids)),
            st.lists(st.sampled_from("abc"), max_size=3),
            st.sampled_from(["", "x"]),
        ),
        st.builds(result, st.sampled_from("abc")),
    ),
    max_size=12,
)


@given(blocks)
def test_whatever_goes_in_every_call_has_one_result_directly_after_it(messages: list[Message]) -> None:
    waiting: list[str] = []
    for message in harden(messages):
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.call_id
        else:
            assert not waiting
            assert message.content
        if isinstance(message, AssistantMessage):
            waiting = [part.id for part in message.calls]
    assert not waiting


@given(blocks)
def test_hardening_twice_changes_nothing(messages: list[Message]) -> None:
    once = harden(messages)

    assert harden(once) == once


def test_unanswered_calls_of_the_last_reply_are_found() -> None:
    messages: list[Message] = [user("u"), said("", call("t", id="a"), call("t", id="b")), result("a")]

    assert [(m.call_id, m.text, m.is_error) for m in unanswered(messages, "cancelled")] == [("b", "cancelled", True)]
    assert unanswered([user("u")], "cancelled") == []
    assert unanswered([said("x")], "cancelled") == []


def test_the_prompt_is_the_user_messages_at_the_end() -> None:
    assert prompt_start([user("a"), said("x"), user("b"), user("c")]) == 2
    assert prompt_start([user("a")]) == 0
    assert prompt_start([said("x")]) == 1


def test_what_needs_an_answer() -> None:
    hidden = UserMessage(content=(Text(text="x"),), excluded=True)

    assert needs_answer([user("a")])
    assert needs_answer([said("", call("t"))])
    assert needs_answer([said(""), result("a")])
    assert not needs_answer([user("a"), said("x")])
    assert not needs_answer([user("a"), said("x"), hidden])
    assert not needs_answer([])


def test_tokens_are_what_was_said_thought_called_and_returned() -> None:
    reply = AssistantMessage(content=(Thinking(text="hm"), Text(text="ok"), call("read", '{"a":1}'), opaque()))

    assert message_chars(reply) == 'hmokread{"a":1}'
    assert estimate([user("abcd"), reply, result("a", "xy")], len) == 4 + len('hmokread{"a":1}') + 2


def opaque() -> Opaque:
    return Opaque(wire="w", data={"long": "x" * 99})


def test_a_chain_reaches_back_over_our_own_prompts_alone() -> None:
    chain: list[Message] = [said("old"), user("q"), said("one"), user("go on", origin="continue"), said("two")]

    assert chain_texts(chain) == ["one", "two"]
    assert chain_texts(chain[:3]) == ["one"]


def test_there_is_nothing_to_go_on_from_and_why() -> None:
    with pytest.raises(InvalidContinuation, match="the transcript is empty"):
        resume_prompts([])
    with pytest.raises(InvalidContinuation, match="the model has answered"):
        resume_prompts([user("q"), said("a")])

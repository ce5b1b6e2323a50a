"""Hardening: whatever a transcript holds, what is sent is valid, and each message is looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue import run
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
    resume_prompts,
    unanswered,
)
from glue.messages import AssistantMessage, Message, Opaque, Part, Text, Thinking, ToolMessage, UserMessage, user
from glue.testing import Script, call, partial, shape


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


class Parts(tuple[Part, ...]):
    """The content of a message, which counts how often it is walked through."""

    walks = 0

    def __iter__(self) -> Iterator[Part]:
        Parts.walks += 1
        return super().__iter__()


def counted(text: str) -> Message:
    return UserMessage(content=Parts((Text(text=text),)))


def test_each_message_is_hardened_once() -> None:
    messages: list[Message] = []
    history = History()
    Parts.walks = 0

    for number in range(100):
        messages.append(counted(f"u{number}"))
        messages.append(said("x"))
        history.align(messages)
        history.view(messages)

    assert Parts.walks == 100


@pytest.mark.parametrize("at", [50, 60, 74])
def test_a_history_of_a_changed_transcript_hardens_what_changed_and_nothing_before(at: int) -> None:
    messages = [counted(f"u{number}") for number in range(100)]
    history = History()
    for length in (25, 50, 75, 100):
        before = history.view(messages[:length])
    Parts.walks = 0

    changed = [*messages[:at], replace(messages[at], excluded=True), *messages[at + 1 :]]
    history.align(changed)
    after = history.view(changed)

    assert list(after) == [*messages[:at], *messages[at + 1 :]]
    assert list(before) == messages  # a request that was sent stays as it was
    assert Parts.walks == 49  # from the last view that held none of it: the first 50 stay, and one is left out


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_history_of_a_shorter_transcript_forgets_the_rest(length: int) -> None:
    messages: list[Message] = [user("u"), said("x"), user("v")]
    history = History()
    history.view(messages)

    history.align(messages[:length])

    assert list(history.view(messages[:length])) == messages[:length]


@given(st.lists(st.tuples(st.integers(0, 19), st.sampled_from(["drop", "exclude", "insert", "amend"])), max_size=4))
def test_a_kept_history_sends_what_a_new_one_would(changes: list[tuple[int, str]]) -> None:
    messages: list[Message] = [user(f"u{number}") if number % 2 == 0 else said(f"x{number}") for number in range(20)]
    history = History()
    for length in range(0, 21, 2):
        history.view(messages[:length])

    for at, kind in changes:
        if kind == "insert":
            messages.insert(at, user("between"))
        elif kind == "drop":
            del messages[at : at + 1]
        elif at < len(messages):
            changed = {"excluded": True} if kind == "exclude" else {"content": (Text(text="other"),)}
            messages[at] = replace(messages[at], **changed)
        history.align(messages)

        assert list(history.view(messages)) == harden(messages)


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


async def test_the_prompt_is_the_user_messages_at_the_end() -> None:
    cases: list[tuple[list[Message], list[Message]]] = [
        ([user("a"), said()], [user("b"), user("c")]),
        ([], [user("a")]),
    ]
    for before, prompt in cases:
        answered = await run(Script("y"), [*before, *prompt])
        assert list(answered.new_messages[:-1]) == prompt
    with pytest.raises(InvalidContinuation):
        await run(Script(), [said("x")])


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

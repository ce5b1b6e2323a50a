"""`glue.loop.transcript`: transcripts are repaired, and each message is repaired once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fakes.loop import cut
from hypothesis import given
from hypothesis import strategies as st

from glue import run
from glue.loop.transcript import (
    NO_RESULT,
    History,
    answer_calls,
    chain_texts,
    estimate,
    merge,
    message_chars,
    open_calls,
    repair_transcript,
    run_start,
    unanswered,
)
from glue.messages import (
    AssistantMessage,
    Message,
    Messages,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolMessage,
    UserMessage,
    user,
)
from glue.testing import Script, call, partial, shape


def assistant(text: str = "x", *named: object) -> AssistantMessage:
    content = (*((Text(text=text),) if text else ()), *named)
    return AssistantMessage(content=content)


def result(call_id: str, text: str = "ok", excluded: bool = False) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="t", content=(Text(text=text),), excluded=excluded)


def test_a_missing_result_is_added() -> None:
    sent = repair_transcript(
        [user("u"), assistant("", call("t", id="a"), call("t", id="b")), result("b"), user("v")]
    )

    assert shape(sent) == "u a t t u"
    assert [m.text for m in sent if isinstance(m, ToolMessage)] == [NO_RESULT, "ok"]
    assert [m.is_error for m in sent if isinstance(m, ToolMessage)] == [True, False]


def test_results_without_a_call_and_second_results_are_dropped() -> None:
    sent = repair_transcript(
        [
            result("zzz"),
            user("u"),
            assistant("", call("t", id="a")),
            result("a", "1"),
            result("a", "2"),
            assistant("y"),
        ]
    )

    assert shape(sent) == "u a t a"
    assert sent[2].text == "1"


def test_a_result_after_a_user_message_is_moved_behind_its_call() -> None:
    sent = repair_transcript(
        [user("u"), assistant("", call("t", id="a")), user("steer"), result("a")]
    )

    assert shape(sent) == "u a t u"


def test_incomplete_calls_and_empty_messages_are_dropped() -> None:
    messages: list[Message] = [
        user("u"),
        assistant("", partial("t")),
        user("  "),
        assistant("kept", partial("t")),
        assistant(""),
        assistant("  "),
    ]

    sent = repair_transcript(messages)

    assert shape(sent) == "u a"
    assert isinstance(sent[1], AssistantMessage)
    assert sent[1].content == (Text(text="kept"),)


def opaque() -> Opaque:
    return Opaque(wire="w", data={"long": "x" * 99})


def test_a_reply_with_only_thinking_is_empty_and_with_an_opaque_block_is_not() -> None:
    thinking = AssistantMessage(content=(Thinking(text="hm"),))
    opaque = AssistantMessage(content=(Opaque(wire="w", data={}),))

    assert shape(repair_transcript([user("u"), thinking, opaque])) == "u a"


def test_excluded_messages_are_not_sent() -> None:
    hidden = UserMessage(content=(Text(text="secret"),), excluded=True)
    reply = AssistantMessage(content=(call("t", id="a"),), excluded=True)

    assert repair_transcript([hidden, reply, result("a", excluded=True), user("v")])[0].text == "v"


def test_calls_with_equal_ids_get_the_results_in_order() -> None:
    answers = answer_calls(
        [call("t", id="a"), call("t", id="a")], [result("a", "1"), result("a", "2")]
    )

    assert [answer.text for answer in answers] == ["1", "2"]


def test_messages_that_need_no_repair_are_sent_unchanged() -> None:
    messages: list[Message] = [
        user("u"),
        assistant("x", call("t", id="a")),
        result("a"),
        assistant("y"),
    ]

    assert all(
        one is other for one, other in zip(repair_transcript(messages), messages, strict=True)
    )


def test_a_view_does_not_change_when_the_transcript_grows() -> None:
    messages: list[Message] = [user("u")]
    history = History()

    first = history.view(messages)
    messages.append(assistant("x"))
    second = history.view(messages)

    assert (len(first), len(second)) == (1, 2)
    assert list(first) == messages[:1]
    assert first[-1] is messages[0]
    assert first[0:5] == (messages[0],)
    assert first == (messages[0],)
    assert first != second


class Parts(tuple[Part, ...]):
    """The content of a message; it counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[Part]:
        Parts.reads += 1
        return super().__iter__()


def counted(text: str) -> Message:
    return UserMessage(content=Parts((Text(text=text),)))


def test_each_message_is_repaired_once() -> None:
    messages: list[Message] = []
    history = History()
    Parts.reads = 0

    for number in range(100):
        messages.append(counted(f"u{number}"))
        messages.append(assistant("x"))
        history.align(messages)
        history.view(messages)

    assert Parts.reads == 100


@pytest.mark.parametrize("at", [50, 60, 74])
def test_a_history_repairs_only_the_messages_that_changed(at: int) -> None:
    messages = [counted(f"u{number}") for number in range(100)]
    history = History()
    for length in (25, 50, 75, 100):
        before = history.view(messages[:length])
    Parts.reads = 0

    changed = [*messages[:at], replace(messages[at], excluded=True), *messages[at + 1 :]]
    history.align(changed)
    after = history.view(changed)

    assert list(after) == [*messages[:at], *messages[at + 1 :]]
    assert list(before) == messages  # a request that was sent does not change
    # The first 50 messages are kept from an earlier view, and the excluded one is not read.
    assert Parts.reads == 49


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_history_aligned_with_a_shorter_transcript_forgets_the_rest(length: int) -> None:
    messages: list[Message] = [user("u"), assistant("x"), user("v")]
    history = History()
    history.view(messages)

    history.align(messages[:length])

    assert list(history.view(messages[:length])) == messages[:length]


@given(
    st.lists(
        st.tuples(st.integers(0, 19), st.sampled_from(["drop", "exclude", "insert", "amend"])),
        max_size=4,
    )
)
def test_a_history_after_changes_equals_a_new_history(changes: list[tuple[int, str]]) -> None:
    messages: list[Message] = [
        user(f"u{number}") if number % 2 == 0 else assistant(f"x{number}") for number in range(20)
    ]
    history = History()
    for length in range(0, 21, 2):
        history.view(messages[:length])

    for at, kind in changes:
        if kind == "insert":
            messages.insert(at, user("between"))
        elif kind == "drop":
            del messages[at : at + 1]
        elif at < len(messages):
            changed = (
                {"excluded": True} if kind == "exclude" else {"content": (Text(text="other"),)}
            )
            messages[at] = replace(messages[at], **changed)
        history.align(messages)

        assert list(history.view(messages)) == repair_transcript(messages)


blocks: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["u", ""])),
        st.builds(
            lambda ids, text: assistant(text, *(call("t", id=i) for i in ids)),
            st.lists(st.sampled_from("abc"), max_size=3),
            st.sampled_from(["", "x"]),
        ),
        st.builds(result, st.sampled_from("abc")),
    ),
    max_size=12,
)


@given(blocks)
def test_in_every_repaired_transcript_each_call_has_one_result_after_it(
    messages: list[Message],
) -> None:
    waiting: list[str] = []
    for message in repair_transcript(messages):
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.call_id
        else:
            assert not waiting
            assert message.content
        if isinstance(message, AssistantMessage):
            waiting = [part.id for part in message.calls]
    assert not waiting


@given(blocks)
def test_repairing_a_transcript_twice_changes_nothing(messages: list[Message]) -> None:
    once = repair_transcript(messages)

    assert repair_transcript(once) == once


def test_unanswered_returns_a_result_for_each_open_call_of_the_last_reply() -> None:
    messages: list[Message] = [
        user("u"),
        assistant("", call("t", id="a"), call("t", id="b")),
        result("a"),
    ]

    assert [(m.call_id, m.text, m.is_error) for m in unanswered(messages, "cancelled")] == [
        ("b", "cancelled", True)
    ]
    assert unanswered([user("u")], "cancelled") == []
    assert unanswered([assistant("x")], "cancelled") == []


def test_excluded_messages_do_not_hide_open_calls() -> None:
    asked = assistant("", call("t", id="a"))
    excluded = [replace(each, excluded=True) for each in (user("u"), assistant("x"))]

    for message in excluded:
        assert open_calls([user("u"), asked, message]) == list(asked.calls)
    assert open_calls([user("u"), asked, user("u")]) == []
    assert open_calls([user("u"), asked, assistant("x")]) == []


def test_the_estimate_counts_text_thinking_calls_and_results() -> None:
    reply = AssistantMessage(
        content=(Thinking(text="hm"), Text(text="ok"), call("read", '{"a":1}'), opaque())
    )

    assert message_chars(reply) == 'hmokread{"a":1}'
    assert estimate([user("abcd"), reply, result("a", "xy")], len) == 4 + len('hmokread{"a":1}') + 2


def test_a_chain_begins_after_the_last_prompt_that_the_loop_did_not_write() -> None:
    chain: list[Message] = [
        assistant("old"),
        user("q"),
        assistant("one"),
        user("go on", origin="continue"),
        assistant("two"),
    ]

    assert chain_texts(chain) == ["one", "two"]
    assert chain_texts(chain[:3]) == ["one"]


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        (("hel", "lo"), "hello"),
        (("0.1", "100 km"), "0.1100 km"),
        (
            ("起承転結を考えて文章を書くのです", "起承転結を考えて文章を書くのですから"),
            "起承転結を考えて文章を書くのですから",
        ),
        (("x" + "a" * 12, "a" * 12 + "y"), "x" + "a" * 12 + "y"),
        (("x" + "b" * 11, "b" * 11 + "y"), "x" + "b" * 22 + "y"),
        (("c" * 401, "c" * 401 + "d"), "c" * 402 + "d"),
        (("", "one"), "one"),
        ((), ""),
    ],
)
def test_s025_parts_are_joined_without_losing_a_character(
    parts: tuple[str, ...], merged: str
) -> None:
    assert merge(parts) == merged


async def test_s024_text_that_two_parts_of_a_chain_repeat_appears_once() -> None:
    first, second = "The list is: alpha, beta, gamma", "alpha, beta, gamma, delta"

    result = await run(Script(cut(first), second), "go")

    assert result.text == "The list is: alpha, beta, gamma, delta"
    assert [m.text for m in result.messages if isinstance(m, AssistantMessage)] == [first, second]


def test_a_run_starts_at_the_last_prompt_of_the_caller_or_at_the_first_message() -> None:
    nudge = user("more", origin="nudge")

    assert run_start([user("a"), assistant("b"), user("c"), assistant("d"), nudge]) == 2
    assert run_start([assistant("b"), nudge]) == 0


def test_a_run_on_a_grown_transcript_gets_the_list_of_the_run_before_it() -> None:
    history = History()
    stored: list[Message] = [user("a")]
    first = history.begin(Messages(stored), resumed=False)
    first.append(assistant("b"))
    stored.append(first[-1])

    again = history.begin(Messages(stored), resumed=False)
    resumed = history.begin(Messages(stored), resumed=True)

    assert again is first
    assert resumed == stored
    assert resumed is not first

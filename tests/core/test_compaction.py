"""A shorter transcript stays valid, keeps what matters and is never longer than before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue import (
    Agent,
    AssistantMessage,
    Event,
    Limits,
    Message,
    Outcome,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    keep_recent,
    run,
    summarize,
    tool,
    user,
)
from glue.compaction import INTRODUCTION, Compaction, render, size
from glue.errors import ContextOverflow
from glue.events import Compacted
from glue.limits import estimate_tokens
from glue.loop.transcript import CONTINUE, estimate, harden
from glue.provider import Capabilities
from glue.stores import FileStore
from glue.testing import Script, calls, fail, repeat, say, shape


@tool
def noop() -> str:
    """Do nothing."""
    return "x" * 400


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Valid transcripts: prompts, replies, and replies with calls and their results."""
    messages: list[Message] = [user(draw(st.text(max_size=50)) + "prompt")]
    for kind in draw(st.lists(st.sampled_from("uact"), max_size=20)):
        size = draw(st.integers(1, 400))
        if kind == "u":
            messages.append(user("u" * size))
        elif kind == "a":
            messages.append(AssistantMessage(content=(Text(text="a" * size),)))
        else:
            count = draw(st.integers(1, 3))
            named = tuple(ToolCall(id=f"{len(messages)}-{i}", name="t", arguments="{}") for i in range(count))
            messages.append(AssistantMessage(content=named))
            messages += [ToolMessage(call_id=c.id, name="t", content=(Text(text="r" * size),)) for c in named]
    return messages


def check(before: list[Message], after: Any) -> None:
    assert len(after) < len(before)
    assert isinstance(after[0], UserMessage)
    assert harden(after) == list(after)  # every call has its result, nothing is an orphan
    assert after[-1] is before[-1]
    assert estimate(after, estimate_tokens) <= estimate(before, estimate_tokens)


@given(transcripts(), st.integers(1, 30))
def test_keep_recent_by_messages_leaves_a_valid_tail(messages: list[Message], most: int) -> None:
    kept = keep_recent(most).tail(messages)

    if kept is not None:
        check(messages, kept)
        assert len(kept) <= max(most, 4) + 1  # the last exchange, and the prompt it answers, stay


@given(transcripts(), st.integers(1, 600))
def test_keep_recent_by_tokens_leaves_a_valid_tail(messages: list[Message], most: int) -> None:
    kept = keep_recent(n_tokens=most).tail(messages)

    if kept is not None:
        check(messages, kept)


def test_the_largest_tail_that_fits_is_kept() -> None:
    messages: list[Message] = [user("x" * 40) for _ in range(10)]

    assert keep_recent(3).tail(messages) == tuple(messages[-3:])
    assert keep_recent(n_tokens=30).tail(messages) == tuple(messages[-3:])
    assert keep_recent(n_tokens=39).tail(messages) == tuple(messages[-3:])
    assert keep_recent(9).tail(messages) == tuple(messages[1:])
    assert keep_recent(10).tail(messages) is None
    assert keep_recent(n_tokens=1).tail(messages) == tuple(messages[-1:])


def test_a_tail_of_replies_keeps_the_prompt_they_answer() -> None:
    call = ToolCall(id="1", name="t", arguments="{}")
    pair: list[Message] = [
        AssistantMessage(content=(call,)),
        ToolMessage(call_id="1", name="t", content=(Text(text="r"),)),
    ]
    messages = [user("old"), user("goal"), *pair, *pair, *pair]

    kept = keep_recent(3).tail(messages)

    assert kept is not None
    assert shape(kept) == "u a t"
    assert kept[0].text == "goal"


def test_a_tail_of_replies_keeps_what_was_said_to_the_run_they_belong_to() -> None:
    texts = ("old", "x", "go", "a", "left", "b", "try again", "c")
    origins = {"left": "steering", "try again": "nudge"}
    messages: list[Message] = [
        AssistantMessage(content=(Text(text=text),)) if len(text) == 1 else user(text, origin=origins.get(text, "user"))
        for text in texts
    ]

    for most, kept in ((1, "go left c"), (2, "go left try again c"), (3, "go left b try again c")):
        tail = keep_recent(most).tail(messages)
        assert " ".join(message.text for message in tail or ()) == kept


def test_a_long_transcript_is_measured_once() -> None:
    messages = [user(f"{number}") for number in range(1_000)]
    measured: list[str] = []

    def count(text: str) -> int:
        measured.append(text)
        return 1

    assert keep_recent(n_tokens=600).tail(messages, count) == tuple(messages[-600:])
    assert measured == [message.text for message in reversed(messages)][:601]


@pytest.mark.parametrize("arguments", [{}, {"n_messages": 1, "n_tokens": 1}])
def test_keep_recent_takes_one_measure(arguments: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="either n_messages or n_tokens"):
        keep_recent(**arguments)


@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_keep_recent_takes_a_whole_number(value: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        keep_recent(value)


# In a run ---------------------------------------------------------------------------------------------


def turns(count: int, *rest: Any) -> list[Any]:
    return [*(calls("noop") for _ in range(count)), *rest]


LOOSE = Limits(repeat_nudge=None, repeat_halt=None)


async def test_an_overflow_is_answered_by_compaction_once(tmp_path: Path) -> None:
    script = Script(*turns(4, fail("context_overflow"), "done"))
    events: list[Event] = []
    store = FileStore(tmp_path)
    agent = Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE)
    session = agent.session("demo", store=store)

    result = await session.prompt("goal", on_event=events.append)

    assert result.text == "done"
    assert shape(script.requests[-1].messages) == "u a t"
    assert shape(result.messages) == "u a t a"
    assert sum(isinstance(event, Compacted) for event in events) == 1
    stored = await store.load("demo")
    assert len(stored) == 10  # nothing is lost from the log, it is only not sent again
    assert [message.id for message in stored if not message.excluded] == [message.id for message in result.messages]


async def test_what_was_compacted_stays_so_in_later_prompts() -> None:
    script = Script(*turns(4, fail("context_overflow"), "done", "later"))
    session = Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE).session()
    await session.prompt("goal")

    await session.prompt("more")

    assert shape(script.requests[-1].messages) == "u a t a u"


async def test_a_second_overflow_ends_the_run() -> None:
    script = Script(*turns(4, repeat(fail("context_overflow"))))

    with pytest.raises(ContextOverflow):
        await Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE).run("goal")

    assert len(script.requests) == 6


async def test_a_run_is_compacted_once_however_well_it_shrinks() -> None:
    script = Script(*turns(4, fail("context_overflow"), *turns(4, fail("context_overflow"), "done")))

    result = await Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE).run("goal", unwrap=False)

    assert (result.outcome, len(script.requests)) == (Outcome.CONTEXT_WINDOW, 10)


async def test_a_compactor_that_cannot_shrink_ends_the_run() -> None:
    result = await Agent(Script(fail("context_overflow")), compaction=keep_recent(2)).run("goal", unwrap=False)

    assert result.outcome is Outcome.CONTEXT_WINDOW
    assert shape(result.messages) == "u"


class Windowed(Script):
    """A provider that says how large its window is."""

    capabilities = Capabilities(window=1000)


async def test_a_transcript_near_the_window_is_compacted_before_the_request() -> None:
    script = Windowed(*turns(20, "done"))  # long enough to near the window a second time
    events: list[Event] = []

    result = await Agent(script, tools=[noop], compaction=keep_recent(4), limits=LOOSE).run(
        "goal", on_event=events.append
    )

    assert result.text == "done"
    compacted = [event for event in events if isinstance(event, Compacted)]
    assert len(compacted) == 1
    assert compacted[0].after < compacted[0].before
    sizes = [len(request.messages) for request in script.requests]
    assert sizes[7] == 15
    assert sizes[8] == 5


async def test_a_providers_own_count_goes_before_the_guess() -> None:
    big = Usage(input=900, output=50)
    script = Windowed(calls("noop", usage=Usage(input=1)), calls("noop"), calls("noop", usage=big), "done")

    await Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE).run("goal")

    assert [len(request.messages) for request in script.requests] == [1, 3, 5, 3]


def test_a_reply_that_stands_last_is_counted_by_its_provider() -> None:
    reply = AssistantMessage(content=(Text(text="on it"),), usage=Usage(input=7, output=2))
    state: Any = SimpleNamespace(new=[user("go"), reply], limits=LOOSE)

    assert size(state, Request()) == 9


async def test_a_window_that_nobody_knows_is_not_guessed() -> None:
    script = Script(*turns(12, "done"))

    await Agent(script, tools=[noop], compaction=keep_recent(4), limits=LOOSE).run("goal")

    assert len(script.requests[-1].messages) == 25


# Summaries --------------------------------------------------------------------------------------------


async def test_a_summary_takes_the_place_of_what_is_not_recent(tmp_path: Path) -> None:
    summary = "## Goal\nship it"
    script = Script(*turns(4, fail("context_overflow"), say(summary, usage=Usage(input=7, output=3)), "done"))
    store = FileStore(tmp_path)
    agent = Agent(script, tools=[noop], compaction=summarize(keep=keep_recent(2)), limits=LOOSE)

    result = await agent.session("demo", store=store).prompt("ship it, please")

    asked, sent = script.requests[-2:]
    assert "## Open steps" in asked.system
    assert "[user] ship it, please" in asked.messages[0].text
    assert "[calls noop]" in asked.messages[0].text
    assert shape(sent.messages) == "u+ a t"
    assert sent.messages[0].text == INTRODUCTION + summary
    assert result.requests == 7
    assert (result.usage.input, result.usage.output) == (7, 4 * 2 + 3 + 1)  # without usage a call is estimated
    stored = [message for message in await store.load("demo") if not message.excluded]
    assert [message.id for message in stored] == [message.id for message in result.messages]


async def test_a_summary_may_come_from_another_model() -> None:
    other = Script("in short")
    script = Script(*turns(4, fail("context_overflow"), "done"))
    agent = Agent(script, tools=[noop], compaction=summarize(other, keep=keep_recent(2)), limits=LOOSE)

    await agent.run("goal")

    assert len(other.requests) == 1
    assert script.requests[-1].messages[0].text == INTRODUCTION + "in short"


async def test_a_summary_has_its_price() -> None:
    other = Script(say("in short", usage=Usage(input=9_000, output=1_000)))
    script = Script(fail("context_overflow"), say("done", usage=Usage(input=1_000)))
    agent = Agent(script, compaction=summarize(other, keep=keep_recent(1)), prices={"script-1": (1.0, 1.0)})

    result = await agent.run("go on", message_history=[user("x" * 999), AssistantMessage(content=(Text(text="ok"),))])

    assert result.cost == pytest.approx(0.011)


@pytest.mark.parametrize("step", [fail("overloaded"), say("  "), say("long " * 2000), say(terminal=False)])
async def test_without_a_usable_summary_the_run_still_goes_on_or_ends_clearly(step: Any) -> None:
    script = Script(*turns(4, fail("context_overflow"), "done"))
    agent = Agent(script, tools=[noop], compaction=summarize(Script(step), keep=keep_recent(2)), limits=LOOSE)

    result = await agent.run("goal", unwrap=False)

    if isinstance(step, Exception) or not step.content or not step.content[0].text.strip():
        assert result.text == "done"
        assert shape(script.requests[-1].messages) == "u a t"
    else:  # longer than what it was to replace
        assert result.outcome is Outcome.CONTEXT_WINDOW


async def test_a_summary_longer_than_what_it_replaces_is_not_used() -> None:
    script = Windowed(*turns(10, "done"))
    events: list[Event] = []
    compaction = summarize(Script(say("long " * 4000)), keep=keep_recent(2))

    await Agent(script, tools=[noop], compaction=compaction, limits=LOOSE).run("goal", on_event=events.append)

    assert len(script.requests[-1].messages) == 21
    assert not any(isinstance(event, Compacted) for event in events)


@pytest.mark.parametrize(("requests", "summaries"), [(6, 0), (7, 1)])
async def test_a_summary_counts_as_a_request_and_is_left_out_when_none_is_left(requests: int, summaries: int) -> None:
    limits = Limits(repeat_nudge=None, repeat_halt=None, max_requests=requests)
    other = Script("in short")
    script = Script(*turns(4, fail("context_overflow"), "done"))
    agent = Agent(script, tools=[noop], compaction=summarize(other, keep=keep_recent(2)), limits=limits)

    result = await agent.run("goal")

    assert result.text == "done"
    assert len(other.requests) == summaries


def test_long_messages_are_shortened_for_a_summary() -> None:
    assert render([user("a" * 4000)]) == "[user] " + "a" * 4000
    text = render([user("a" * 5000 + "b" * 5000), AssistantMessage(content=(Text(text="hi"),))])

    assert "6000 characters left out" in text
    assert text.endswith("[assistant] hi")
    assert len(text) < 4200


async def test_a_model_by_name_needs_an_agent_to_open_it() -> None:
    policy = Compaction(summarize("acme", keep=keep_recent(1)))
    script = Script(fail("context_overflow"))

    with pytest.raises(TypeError, match="has to be opened first"):
        await run(script, [user("x" * 100), user("y")], policies=[policy])


def test_keep_recent_never_cuts_inside_a_chain() -> None:
    def part(text: str, stop: StopReason = StopReason.END_TURN) -> AssistantMessage:
        return AssistantMessage(content=(Text(text=text),), stop_reason=stop)

    chain: list[Message] = [
        user("go"),
        part("one", StopReason.MAX_TOKENS),
        user(CONTINUE, origin="continue"),
        part("two"),
    ]
    after: list[Message] = [user("next"), part("x")]

    assert keep_recent(2).tail([*chain, *after]) == tuple(after)
    for most in (3, 4, 5):  # with a part of the chain it would be fewer messages than that
        assert keep_recent(most).tail([*chain, *after]) in (tuple(after), (chain[0], *chain[1:], *after), None)
    assert keep_recent(1).tail(chain) is None  # the reply is kept with its parts and its prompt
    paused: list[Message] = [user("go"), part("a", StopReason.PAUSE_TURN), part("b")]
    assert keep_recent(1).tail(paused) is None

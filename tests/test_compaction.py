"""Compaction: shorter transcripts that stay valid, and summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.examples import examples
from fakes.loop import cut, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from glue import (
    Agent,
    AssistantMessage,
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
from glue.compaction import INTRODUCTION, Compaction, collapse_continuations, render, size
from glue.errors import ContextOverflow, InvalidContinuation
from glue.events import Compacted, Event
from glue.limits import estimate_tokens
from glue.loop.transcript import CONTINUE, estimate, repair_transcript
from glue.policies import Policy
from glue.provider import Capabilities
from glue.stores import FileStore
from glue.testing import Script, calls, fail, repeat, say, shape


@tool
def noop() -> str:
    """Return a long text."""
    return "x" * 400


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Return a valid transcript of prompts, replies, and calls with their results."""
    messages: list[Message] = [user(draw(st.text(max_size=50)) + "prompt")]
    for kind in draw(st.lists(st.sampled_from("uact"), max_size=20)):
        size = draw(st.integers(1, 400))
        if kind == "u":
            messages.append(user("u" * size))
        elif kind == "a":
            messages.append(AssistantMessage(content=(Text(text="a" * size),)))
        else:
            count = draw(st.integers(1, 3))
            named = tuple(
                ToolCall(id=f"{len(messages)}-{i}", name="t", arguments="{}") for i in range(count)
            )
            messages.append(AssistantMessage(content=named))
            messages += [
                ToolMessage(call_id=c.id, name="t", content=(Text(text="r" * size),)) for c in named
            ]
    return messages


def check(before: list[Message], after: Any) -> None:
    assert len(after) < len(before)
    assert isinstance(after[0], UserMessage)
    assert repair_transcript(after) == list(after)  # every call has its result
    assert after[-1] is before[-1]
    assert estimate(after, estimate_tokens) <= estimate(before, estimate_tokens)


@settings(max_examples=examples(100))
@given(transcripts(), st.integers(1, 30))
def test_keep_recent_by_messages_leaves_a_valid_tail(messages: list[Message], most: int) -> None:
    kept = keep_recent(most).tail(messages)

    if kept is not None:
        check(messages, kept)
        assert len(kept) <= max(most, 4) + 1  # the last exchange and its prompt are kept


@settings(max_examples=examples(100))
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


def test_a_tail_inside_a_run_keeps_the_users_messages_to_that_run() -> None:
    texts = ("old", "x", "go", "a", "left", "b", "try again", "c")
    origins = {"left": "steering", "try again": "nudge"}
    messages: list[Message] = [
        AssistantMessage(content=(Text(text=text),))
        if len(text) == 1
        else user(text, origin=origins.get(text, "user"))
        for text in texts
    ]

    for most, kept in ((1, "go left c"), (2, "go left try again c"), (3, "go left b try again c")):
        tail = keep_recent(most).tail(messages)
        assert " ".join(message.text for message in tail or ()) == kept


def test_each_message_of_a_long_transcript_is_measured_once() -> None:
    messages = [user(f"{number}") for number in range(1_000)]
    measured: list[str] = []

    def count(text: str) -> int:
        measured.append(text)
        return 1

    assert keep_recent(n_tokens=600).tail(messages, count) == tuple(messages[-600:])
    assert measured == [message.text for message in reversed(messages)][:601]


@pytest.mark.parametrize("arguments", [{}, {"n_messages": 1, "n_tokens": 1}])
def test_keep_recent_needs_either_messages_or_tokens(arguments: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="either n_messages or n_tokens"):
        keep_recent(**arguments)


@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_keep_recent_rejects_numbers_that_are_not_positive_integers(value: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        keep_recent(value)


# In a run -----------------------------------------------------------------------------------------


def turns(count: int, *rest: Any) -> list[Any]:
    return [*(calls("noop") for _ in range(count)), *rest]


LOOSE = Limits(repeat_nudge=None, repeat_halt=None)


async def test_a_transcript_rejected_as_too_long_is_compacted_once(tmp_path: Path) -> None:
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
    assert len(stored) == 10  # the store keeps messages that are no longer sent
    assert [message.id for message in stored if not message.excluded] == [
        message.id for message in result.messages
    ]


async def test_later_prompts_do_not_send_removed_messages() -> None:
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


async def test_a_run_is_not_compacted_a_second_time() -> None:
    script = Script(
        *turns(4, fail("context_overflow"), *turns(4, fail("context_overflow"), "done"))
    )

    result = await Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE).run(
        "goal", unwrap=False
    )

    assert (result.outcome, len(script.requests)) == (Outcome.CONTEXT_WINDOW, 10)


async def test_a_run_ends_if_the_transcript_cannot_be_shortened() -> None:
    result = await Agent(Script(fail("context_overflow")), compaction=keep_recent(2)).run(
        "goal", unwrap=False
    )

    assert result.outcome is Outcome.CONTEXT_WINDOW
    assert shape(result.messages) == "u"


class Windowed(Script):
    """A provider with a small context window."""

    capabilities = Capabilities(window=1000)


async def test_a_transcript_near_the_window_is_compacted_before_the_request() -> None:
    script = Windowed(*turns(20, "done"))  # long enough to come near the window a second time
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


async def test_the_usage_of_a_reply_replaces_the_estimate() -> None:
    big = Usage(input=900, output=50)
    script = Windowed(
        calls("noop", usage=Usage(input=1)), calls("noop"), calls("noop", usage=big), "done"
    )

    await Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE).run("goal")

    assert [len(request.messages) for request in script.requests] == [1, 3, 5, 3]


def test_the_size_after_a_reply_is_its_usage() -> None:
    reply = AssistantMessage(content=(Text(text="on it"),), usage=Usage(input=7, output=2))
    state: Any = SimpleNamespace(new=[user("go"), reply], limits=LOOSE)

    assert size(state, Request()) == 9


async def test_a_transcript_is_not_compacted_early_if_the_window_is_unknown() -> None:
    script = Script(*turns(12, "done"))

    await Agent(script, tools=[noop], compaction=keep_recent(4), limits=LOOSE).run("goal")

    assert len(script.requests[-1].messages) == 25


# Summaries ----------------------------------------------------------------------------------------


async def test_a_summary_replaces_the_older_messages(tmp_path: Path) -> None:
    summary = "## Goal\nship it"
    script = Script(
        *turns(4, fail("context_overflow"), say(summary, usage=Usage(input=7, output=3)), "done")
    )
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
    # The usage of a call without usage is estimated.
    assert (result.usage.input, result.usage.output) == (7, 4 * 2 + 3 + 1)
    stored = [message for message in await store.load("demo") if not message.excluded]
    assert [message.id for message in stored] == [message.id for message in result.messages]


async def test_a_summary_may_come_from_another_model() -> None:
    other = Script("in short")
    script = Script(*turns(4, fail("context_overflow"), "done"))
    agent = Agent(
        script, tools=[noop], compaction=summarize(other, keep=keep_recent(2)), limits=LOOSE
    )

    await agent.run("goal")

    assert len(other.requests) == 1
    assert script.requests[-1].messages[0].text == INTRODUCTION + "in short"


async def test_a_summary_counts_in_the_cost_of_the_run() -> None:
    other = Script(say("in short", usage=Usage(input=9_000, output=1_000)))
    script = Script(fail("context_overflow"), say("done", usage=Usage(input=1_000)))
    agent = Agent(
        script, compaction=summarize(other, keep=keep_recent(1)), prices={"script-1": (1.0, 1.0)}
    )

    result = await agent.run(
        "continue", message_history=[user("x" * 999), AssistantMessage(content=(Text(text="ok"),))]
    )

    assert result.cost == pytest.approx(0.011)


@pytest.mark.parametrize(
    "step", [fail("overloaded"), say("  "), say("long " * 2000), say(terminal=False)]
)
async def test_a_run_without_a_usable_summary_continues_or_ends_with_an_outcome(step: Any) -> None:
    script = Script(*turns(4, fail("context_overflow"), "done"))
    agent = Agent(
        script, tools=[noop], compaction=summarize(Script(step), keep=keep_recent(2)), limits=LOOSE
    )

    result = await agent.run("goal", unwrap=False)

    if isinstance(step, Exception) or not step.content or not step.content[0].text.strip():
        assert result.text == "done"
        assert shape(script.requests[-1].messages) == "u a t"
    else:  # the summary is longer than the messages that it replaces
        assert result.outcome is Outcome.CONTEXT_WINDOW


async def test_a_summary_longer_than_what_it_replaces_is_not_used() -> None:
    script = Windowed(*turns(10, "done"))
    events: list[Event] = []
    compaction = summarize(Script(say("long " * 4000)), keep=keep_recent(2))

    await Agent(script, tools=[noop], compaction=compaction, limits=LOOSE).run(
        "goal", on_event=events.append
    )

    assert len(script.requests[-1].messages) == 21
    assert not any(isinstance(event, Compacted) for event in events)


@pytest.mark.parametrize(("requests", "summaries"), [(6, 0), (7, 1)])
async def test_a_summary_counts_as_a_request_and_is_skipped_if_too_few_are_left(
    requests: int, summaries: int
) -> None:
    limits = Limits(repeat_nudge=None, repeat_halt=None, max_requests=requests)
    other = Script("in short")
    script = Script(*turns(4, fail("context_overflow"), "done"))
    agent = Agent(
        script, tools=[noop], compaction=summarize(other, keep=keep_recent(2)), limits=limits
    )

    result = await agent.run("goal")

    assert result.text == "done"
    assert len(other.requests) == summaries


def test_long_messages_are_shortened_for_a_summary() -> None:
    assert render([user("a" * 4000)]) == "[user] " + "a" * 4000
    text = render([user("a" * 5000 + "b" * 5000), AssistantMessage(content=(Text(text="hi"),))])

    assert "6000 characters left out" in text
    assert text.endswith("[assistant] hi")
    assert len(text) < 4200


async def test_a_summary_model_given_by_name_needs_an_agent() -> None:
    policy = Compaction(summarize("acme", keep=keep_recent(1)))
    script = Script(fail("context_overflow"))

    with pytest.raises(TypeError, match="cannot open the model 'acme' without an Agent"):
        await run(script, [user("x" * 100), user("y")], policies=[policy])


def test_keep_recent_never_divides_a_chain() -> None:
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
    for most in (3, 4, 5):  # no tail begins inside the chain
        assert keep_recent(most).tail([*chain, *after]) in (
            tuple(after),
            (chain[0], *chain[1:], *after),
            None,
        )
    assert keep_recent(1).tail(chain) is None  # a chain is kept as a whole, with its prompt
    paused: list[Message] = [user("go"), part("a", StopReason.PAUSE_TURN), part("b")]
    assert keep_recent(1).tail(paused) is None


async def test_s029_a_chain_can_be_collapsed_to_one_reply() -> None:
    result = await run(Script(cut("part one "), "part two"), "go")

    collapsed = collapse_continuations(result)

    assert shape(collapsed.messages) == shape(collapsed.new_messages) == "u a"
    assert collapsed.messages[-1].text == "part one part two"
    assert isinstance(last := collapsed.messages[-1], AssistantMessage)
    assert last.stop_reason is StopReason.END_TURN
    assert shape(result.messages) == "u a u+ a"


async def test_s029_a_transcript_that_begins_inside_a_chain_is_not_changed() -> None:
    prompt = user(CONTINUE, origin="continue")

    result = await run(Script("rest"), [prompt])

    assert collapse_continuations(result).messages == result.messages


@pytest.mark.parametrize("counted", [0, 1])
async def test_a_collapsed_chain_keeps_the_usage_of_the_part_that_has_one(counted: int) -> None:
    usage = Usage(input=3, output=4)
    parts = [
        cut("part one ", usage=usage if counted == 0 else None),
        say("part two", usage=usage if counted == 1 else None),
    ]

    result = collapse_continuations(await run(Script(*parts), "go"))

    assert result.messages[-1].usage == usage  # type: ignore[union-attr]


async def test_s063_a_compactor_whose_model_fails_leaves_the_overflow_error() -> None:
    class Fails:
        async def compact(
            self, messages: Sequence[Message], state: Any
        ) -> Sequence[Message] | None:
            raise fail("overloaded")

    result = await Agent(Script(fail("context_overflow")), compaction=Fails()).run(
        "go", unwrap=False
    )

    assert result.outcome is Outcome.CONTEXT_WINDOW
    assert isinstance(result.error, ContextOverflow)
    with pytest.raises(InvalidContinuation):
        await Agent(Script()).resume(result)


@pytest.mark.parametrize("returned", ["text", [5], 5])
async def test_a_compactor_that_does_not_return_messages_is_a_type_error(returned: Any) -> None:
    class Invalid:
        async def compact(self, messages: Sequence[Message], state: Any) -> Any:
            return returned

    with pytest.raises(
        TypeError, match=r"the result of Invalid\.compact must be a list of glue messages, not"
    ) as caught:
        await Agent(Script(fail("context_overflow")), compaction=Invalid()).run("go")

    assert texts(caught.value.result.messages) == ["go"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"model": 5}, TypeError),
        ({"model": ""}, TypeError),
        ({"prompt": None}, TypeError),
        ({"max_tokens": 1.5}, TypeError),
        ({"max_tokens": 0}, ValueError),
    ],
)
def test_wrong_arguments_of_summarize_are_rejected(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"^{next(iter(arguments))} must be"):
        summarize(**arguments)


def test_a_summary_keeps_eight_messages_by_default() -> None:
    assert summarize().keep == keep_recent(8)
    assert summarize(max_tokens=1).max_tokens == 1


def test_results_and_errors_are_distinguished_for_a_summary() -> None:
    def result(is_error: bool) -> ToolMessage:
        return ToolMessage(call_id="1", name="noop", content=(Text(text="x"),), is_error=is_error)

    assert render([result(False), result(True)]) == "[result of noop] x\n\n[error of noop] x"


def test_the_middle_of_a_long_message_is_left_out_of_a_summary() -> None:
    text = render([user("a" * 3000 + "b" * 3000)])

    note = "... 2000 characters left out ..."
    assert text == "[user] " + "a" * 2000 + f"\n{note}\n" + "b" * 2000


@pytest.mark.parametrize("other", [False, True])
async def test_only_the_provider_of_the_run_gets_the_model_of_the_run(other: bool) -> None:
    writer = Script("in short")
    script = Script(fail("context_overflow"), *([] if other else ["in short"]), "done")
    compactor = summarize(writer if other else None, keep=keep_recent(1))

    await run(
        script,
        [user("x" * 999), AssistantMessage(content=(Text(text="ok"),)), user("y")],
        request=Request(model="big"),
        policies=[Compaction(compactor)],
    )

    assert {request.model for request in script.requests} == {"big"}
    assert [request.model for request in writer.requests] == [""] * other


def test_the_size_of_a_request_includes_instructions_tools_and_messages() -> None:
    state: Any = SimpleNamespace(new=[user("x" * 40)], limits=LOOSE)
    spec = noop.spec
    tools = estimate_tokens(spec.description + str(spec.parameters))
    messages = (user("x" * 40),)

    found = size(state, Request(system="s" * 80, messages=messages, tools=(spec,)))

    assert found == estimate(messages, estimate_tokens) + 20 + tools


def test_messages_after_a_reply_are_added_to_its_usage() -> None:
    call = ToolCall(id="1", name="noop", arguments="{}")
    reply = AssistantMessage(content=(call,), usage=Usage(input=7, output=2))
    result = ToolMessage(call_id="1", name="noop", content=(Text(text="x" * 400),))
    state: Any = SimpleNamespace(new=[user("go"), reply, result, user("on")], limits=LOOSE)

    assert size(state, Request()) == 9 + estimate([result, user("on")], estimate_tokens)


@pytest.mark.parametrize(("window", "is_shorter"), [(1200, True), (1201, False)])
async def test_a_transcript_is_compacted_at_its_share_of_the_window(
    window: int, is_shorter: bool
) -> None:
    policy = Compaction(keep_recent(1), window=window, at=0.5)
    reply = AssistantMessage(content=(Text(text="ok"),), usage=Usage(input=550, output=50))
    messages: list[Message] = [user("x" * 99), user("y"), reply]
    state: Any = SimpleNamespace(new=messages, messages=messages, limits=LOOSE)

    action = await policy.before_request(state, Request())

    assert (action is not None) is is_shorter


async def test_a_transcript_that_was_rejected_is_not_compacted_again_near_the_window() -> None:
    script = Windowed(*turns(4, fail("context_overflow"), *turns(12, "done")))
    events: list[Event] = []

    await Agent(script, tools=[noop], compaction=keep_recent(2), limits=LOOSE).run(
        "goal", on_event=events.append
    )

    assert sum(isinstance(event, Compacted) for event in events) == 1


async def test_messages_that_are_not_shorter_do_not_replace_a_rejected_transcript() -> None:
    class Same:
        async def compact(self, messages: Sequence[Message], state: Any) -> Sequence[Message]:
            return [user("y" * 40)]

    class Policies(Policy):
        async def compact(self, state: Any) -> Sequence[Message]:
            return [user("y" * 40)]

    for keywords in ({"compaction": Same()}, {"policies": [Policies()]}):
        script = Script(fail("context_overflow"), "done")
        with pytest.raises(ContextOverflow):
            await Agent(script, **keywords).run("x" * 40)


async def test_new_messages_are_stored_at_the_places_where_they_are_sent(tmp_path: Path) -> None:
    class Rewrites:
        async def compact(self, messages: Sequence[Message], state: Any) -> Sequence[Message]:
            return [user("first"), messages[-1], user("last")]

    store = FileStore(tmp_path)
    script = Script("x" * 999, fail("context_overflow"), "done")
    session = Agent(script, compaction=Rewrites()).session("demo", store=store)

    await session.run("old " * 99)
    await session.run("new")

    assert texts(script.requests[-1].messages) == ["first", "new", "last"]
    stored = [message for message in await store.load("demo") if not message.excluded]
    assert texts(stored) == ["first", "new", "last", "done"]


async def test_only_a_continued_reply_is_joined_with_the_next_one() -> None:
    def part(text: str) -> AssistantMessage:
        return AssistantMessage(content=(Text(text=text),))

    prompt = user(CONTINUE, origin="continue")

    async def collapsed(*messages: Message) -> list[str]:
        result = await run(Script("end"), [user("go")])
        return texts(collapse_continuations(replace(result, messages=messages)).messages)

    assert await collapsed(part("one "), prompt, part("two")) == ["one two"]
    assert await collapsed(part("one"), user("on"), part("two")) == ["one", "on", "two"]
    assert await collapsed(user("go"), prompt, part("two")) == ["go", CONTINUE, "two"]
    assert await collapsed(part("one "), prompt) == ["one ", CONTINUE]


def test_an_empty_transcript_has_nothing_to_remove() -> None:
    assert keep_recent(1).cut([]) == 0
    assert keep_recent(1).tail([]) is None


async def test_messages_that_are_not_shorter_do_not_replace_a_long_transcript() -> None:
    class Same:
        async def compact(self, messages: Sequence[Message], state: Any) -> Sequence[Message]:
            return [user("y" * 40)]

    state: Any = SimpleNamespace(new=[], messages=[user("x" * 40)], limits=LOOSE)
    policy = Compaction(Same(), window=1)

    assert await policy.before_request(state, Request(messages=state.messages)) is None


async def test_a_new_message_before_the_last_one_is_stored_before_it(tmp_path: Path) -> None:
    class Rewrites:
        async def compact(self, messages: Sequence[Message], state: Any) -> Sequence[Message]:
            return [user("first"), messages[-1]]

    store = FileStore(tmp_path)
    script = Script("x" * 999, fail("context_overflow"), "done")
    session = Agent(script, compaction=Rewrites()).session("demo", store=store)

    await session.run("old " * 99)
    await session.run("new")

    stored = [message for message in await store.load("demo") if not message.excluded]
    assert texts(stored) == ["first", "new", "done"]


def test_a_tail_that_ends_with_another_run_keeps_the_prompt_of_its_first_reply() -> None:
    call = ToolCall(id="1", name="t", arguments="{}")
    messages: list[Message] = [
        user("goal"),
        AssistantMessage(content=(call,)),
        ToolMessage(call_id="1", name="t", content=(Text(text="r"),)),
        AssistantMessage(content=(Text(text="b"),)),
        user("next"),
        AssistantMessage(content=(Text(text="c"),)),
    ]

    kept = keep_recent(3).tail(messages)

    assert kept is not None
    assert texts(kept) == ["goal", "b", "next", "c"]

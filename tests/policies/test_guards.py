"""Guards against repeated calls and failing turns, and the detector of refusals."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.loop import assert_valid, broken, noop

from glue import Limits, Outcome, StopReason, Usage, run, tool
from glue.errors import GuardHalted
from glue.events import Event, Guardrail
from glue.messages import AssistantMessage, ToolMessage, UserMessage
from glue.policies import RefusalDetector, looks_like_refusal
from glue.policies.guards import ERRORS, REPEAT
from glue.testing import Repeat, Script, call, calls, repeat, say, shape


@tool
async def look(place: str = "") -> str:
    """Look."""
    return "nothing"


@tool
async def fail(number: int = 0) -> str:
    """Fail."""
    raise ValueError("broken")


async def guarded(*replies: Any, **limits: Any) -> tuple[Any, list[tuple[str, int, str]]]:
    """Return the result of a run and its guard events as (kind, count, action)."""
    events: list[Event] = []
    result = await run(
        Script(*replies), "go", tools=[look, fail], limits=Limits(**limits), on_event=events.append
    )
    found = [(e.kind, e.count, e.action) for e in events if isinstance(e, Guardrail)]
    return result, found


async def test_a_repeated_call_is_nudged_and_then_halts_the_run() -> None:
    result, events = await guarded(Repeat(calls("look")))

    assert result.outcome is Outcome.HALTED
    assert isinstance(result.error, GuardHalted)
    assert events == [("repeat", 3, "nudge"), ("repeat", 5, "halt")]
    assert REPEAT.format(count=3) in [message.text for message in result.messages]


async def test_arguments_that_differ_only_in_spelling_count_as_equal() -> None:
    first = calls(call("look", '{"place": "a"}'))
    second = calls(call("look", '{ "place":"a" }'))

    _, events = await guarded(first, second, first, "Done.")

    assert events == [("repeat", 3, "nudge")]


async def test_another_call_or_several_calls_restart_the_count() -> None:
    other = calls(call("look", {"place": "b"}))
    both = calls(call("look"), call("look"))

    _, events = await guarded(
        *[calls("look")] * 2, other, *[calls("look")] * 2, both, *[calls("look")] * 2, "Done."
    )

    assert events == []


async def test_turns_in_which_every_call_fails_are_nudged_and_then_halt_the_run() -> None:
    replies = [calls(call("fail", {"number": number})) for number in range(6)]

    result, events = await guarded(*replies)

    assert result.outcome is Outcome.HALTED
    assert events == [("errors", 3, "nudge"), ("errors", 6, "halt")]
    assert ERRORS.format(count=3) in [message.text for message in result.messages]


async def test_a_guard_that_is_none_does_not_act() -> None:
    _, events = await guarded(*[calls("look")] * 6, "Done.", repeat_nudge=None, repeat_halt=None)

    assert events == []


async def test_no_nudge_is_sent_if_the_model_has_no_turn_left_to_act_on_it() -> None:
    _, events = await guarded(Repeat(calls("look")), max_turns=4)

    assert events == []


def test_the_texts_of_the_nudges() -> None:
    assert REPEAT.format(count=3) == (
        "You have made the same call with the same arguments 3 times. "
        "Its result will not change: try something else."
    )
    assert ERRORS.format(count=3) == (
        "Every tool call of the last 3 turns failed. Read the errors, and change your approach."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I\u2019m not able to assist with this request.", True),
        ("Here is the list.", False),
        ("", False),
        ("I can't help with that. " + "But here is how it works. " * 20, False),
    ],
)
def test_a_short_text_with_a_phrase_of_refusal_is_a_refusal(text: str, expected: bool) -> None:
    assert looks_like_refusal(text) is expected


def test_a_text_of_more_than_400_characters_is_not_a_refusal() -> None:
    text = "I can't help with that. ".ljust(400, "x")

    assert looks_like_refusal(f" {text}\n")
    assert not looks_like_refusal(f"{text}x")


async def test_the_detector_ends_a_run_as_refused() -> None:
    result = await run(Script("I can't help with that."), "go", policies=[RefusalDetector()])

    assert (result.outcome, result.meta) == (Outcome.REFUSED, {"refusal": "detector"})


async def test_the_detector_ignores_replies_with_calls_and_takes_a_function() -> None:
    detector = RefusalDetector(lambda text: "no" in text)

    result = await run(
        Script(calls("look", text="no"), "no way"), "go", tools=[look], policies=[detector]
    )

    assert (result.outcome, result.requests) == (Outcome.REFUSED, 2)


PHRASES = """I can't help with that.
I cannot assist with this request.
I'm sorry, but I can't do that.
I am sorry, but I cannot provide instructions for that.
I won't help you write malware.
I will not assist with that.
I'm unable to help with this.
I am unable to comply with that request.
I'm not able to provide that information.
I must decline this request.
I must refuse.
I have to decline.
I decline to answer that.
I refuse to do that.
This request violates our content policy.
That request goes against my guidelines.
That is against my programming.
It violates the usage policies.
I'm not comfortable helping with that.
I am not comfortable providing this.
As an AI, I can't do that.
As an AI language model, I cannot engage in that.
I don't feel comfortable with this.
I do not feel comfortable writing that.
That is not something I can help with.
I'd rather not discuss that.
My guidelines prevent me from doing so.
Unable to assist with that request.
Sorry, can't help with that.
I could not fulfil that request.
I am not allowed to share that.
I\u2019m sorry, but I won\u2019t do this.""".splitlines()


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("case", [str, str.upper, str.lower])
def test_s101_short_refusals_are_recognized(phrase: str, case: Any) -> None:
    assert looks_like_refusal(case(phrase))


def test_s101_helpful_texts_are_not_refusals() -> None:
    assert len(PHRASES) >= 30
    assert not looks_like_refusal(
        "I can't help with that. " + "But here is what you can do instead. " * 20
    )
    assert not looks_like_refusal(
        "Here is the function you asked for: it opens the file and reads it."
    )
    assert not looks_like_refusal("I can't reproduce the bug; tests pass.")
    assert not looks_like_refusal("")


@pytest.mark.parametrize(
    "text", ["I can't reproduce the bug; tests pass", "I can't help with that."]
)
async def test_s102_the_refusal_detector_is_off_by_default(text: str) -> None:
    result = await run(Script(text), "go")

    assert (result.outcome, result.text, result.stop_reason) == ("done", text, "end_turn")


async def test_s103_the_refusal_detector_ends_a_run() -> None:
    result = await run(Script("I can't help with that."), "go", policies=[RefusalDetector()])

    assert (result.outcome, result.stop_reason, result.meta) == (
        "refused",
        "refusal",
        {"refusal": "detector"},
    )
    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert last.stop_reason is StopReason.REFUSAL


async def test_s103_a_reply_with_calls_is_not_a_refusal() -> None:
    provider = Script(calls("noop", text="I can't help with that. Let me look."), "x")

    result = await run(provider, "go", tools=[noop], policies=[RefusalDetector()])

    assert (result.outcome, shape(result.messages)) == ("done", "u a t a")


async def test_a_refusal_wins_over_the_budget_that_it_exceeded() -> None:
    script = Script(say("I can't help with that.", usage=Usage(output=9, cost=2.0)))

    result = await run(script, "go", policies=[RefusalDetector()], limits=Limits(usd_budget=1.0))

    assert (result.outcome, result.error) == (Outcome.REFUSED, None)


async def test_s108_three_equal_calls_are_nudged_once() -> None:
    events: list[Event] = []
    same = calls(call("noop"))
    provider = Script(same, same, same, calls("broken"), same, same, "done")

    result = await run(provider, "go", tools=[noop, broken], on_event=events.append)

    assert result.outcome is Outcome.DONE
    assert [(e.kind, e.count, e.action) for e in events if isinstance(e, Guardrail)] == [
        ("repeat", 3, "nudge")
    ]
    assert shape(result.messages) == "u a t a t a t u+ a t a t a t a"


async def test_s109_five_equal_calls_halt_the_run() -> None:
    result = await run(provider := Script(repeat(calls(call("noop", id="c")))), "go", tools=[noop])

    assert (result.outcome, len(provider.requests)) == ("halted", 5)
    assert isinstance(result.error, GuardHalted)
    assert (result.error.kind, result.error.count) == ("repeat", 5)
    assert_valid(result.messages)
    assert isinstance(result.messages[-1], ToolMessage)
    assert result.stop_reason is StopReason.TOOL_USE
    assert result.outcome.exit_code == 3


async def test_s109_calls_with_different_arguments_are_not_equal() -> None:
    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return "text"

    steps = [calls(call("read", {"page": n})) for n in range(8)]

    result = await run(Script(*steps, "end"), "go", tools=[read])

    assert shape(result.messages).count("u+") == 0


async def test_s109_arguments_that_differ_only_in_json_layout_are_equal() -> None:
    @tool
    async def look(at: int = 0, deep: bool = False) -> str:
        """Look."""
        return "ok"

    spelled = ['{"at": 1, "deep": true}', '{"deep":true,"at":1}', '{ "at":1,"deep" : true}']
    script = [calls(call("look", spelled[number % 3])) for number in range(5)]
    # Incomplete JSON is compared as text; empty arguments are equal to an empty object.
    invalid = [calls(call("look", each)) for each in ["{", '{"', "", "{}", "{ }"]]

    halted = await run(Script(*script), "go", tools=[look])
    done = await run(Script(*invalid, "x"), "go", tools=[look])

    assert isinstance(halted.error, GuardHalted)
    assert (halted.error.kind, halted.error.count) == ("repeat", 5)
    assert done.outcome is Outcome.DONE


async def test_s110_turns_with_only_errors_are_nudged_and_then_halted() -> None:
    steps = [calls(call("broken", {"n": n}), call("broken", {"n": -n})) for n in range(9)]

    result = await run(provider := Script(*steps), "go", tools=[broken])

    assert (result.outcome, len(provider.requests)) == ("halted", 6)
    assert isinstance(result.error, GuardHalted)
    assert (result.error.kind, result.error.count) == ("errors", 6)
    assert [m.origin for m in result.messages if isinstance(m, UserMessage)] == ["user", "nudge"]


async def test_s110_one_successful_call_resets_the_error_count() -> None:
    bad, good = calls("broken", "broken"), calls("broken", "noop")

    result = await run(
        Script(bad, bad, good, bad, bad, good, bad, bad, "end"), "go", tools=[noop, broken]
    )

    assert (result.outcome, shape(result.messages).count("u+")) == ("done", 0)


async def test_limits_of_none_switch_the_guards_off() -> None:
    limits = Limits(
        repeat_nudge=None, repeat_halt=None, error_nudge=None, error_halt=None, max_turns=9
    )

    result = await run(Script(repeat(calls(call("broken")))), "go", tools=[broken], limits=limits)

    assert (result.outcome, shape(result.messages).count("u+")) == ("max_turns", 0)

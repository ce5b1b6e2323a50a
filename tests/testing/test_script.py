"""`Script`: replies in order, and the helpers that write them."""

from __future__ import annotations

import gc
from typing import Any

import anyio
import pytest

from glue import AssistantMessage, Message, Request, Text, ToolMessage, Usage, user
from glue.errors import ProviderError
from glue.messages import Thinking
from glue.provider import Done, ProviderEvent, TextDelta
from glue.testing import Repeat, Script, call, calls, fail, partial, repeat, say, shape


async def ask(script: Script, text: str = "go") -> list[ProviderEvent]:
    return [event async for event in script.stream(Request(messages=(user(text),)))]


async def reply_to(script: Script, text: str = "go") -> AssistantMessage:
    done = (await ask(script, text))[-1]
    assert isinstance(done, Done)
    return done.message


async def test_steps_answer_requests_in_order() -> None:
    script = Script("one", say("two", usage=Usage(input=3)))

    first, second = await reply_to(script), await reply_to(script)

    assert (first.text, second.text) == ("one", "two")
    assert second.usage == Usage(input=3)
    assert (first.provider, first.model, first.stop_reason) == ("script", "script-1", "end_turn")
    script.assert_used_up()


async def test_requests_are_kept_as_they_were_sent() -> None:
    script = Script("one")
    messages = [user("first")]

    async for _ in script.stream(Request(messages=messages)):
        pass
    messages.append(user("later"))

    assert [message.text for message in script.requests[0].messages] == ["first"]


async def test_a_request_after_the_last_step_fails() -> None:
    script = Script("one")
    await ask(script)

    with pytest.raises(
        AssertionError, match="script: request 2 comes after the last scripted step"
    ):
        await ask(script)


async def test_steps_that_were_not_played_are_reported() -> None:
    script = Script("one", "two", repeat("three"))
    await ask(script)

    assert script.left == 1
    with pytest.raises(AssertionError, match=r"1 scripted step not used: \['two'\]$"):
        script.assert_used_up()


async def test_a_repeated_step_answers_every_further_request() -> None:
    script = Script("one", repeat("again"))

    texts = [(await reply_to(script)).text for _ in range(4)]

    assert texts == ["one", "again", "again", "again"]
    assert repeat("again") == Repeat("again")


async def test_a_function_step_gets_the_request() -> None:
    script = Script(lambda request: say(f"<{request.messages[-1].text}>"))

    assert (await reply_to(script, "hi")).text == "<hi>"


async def test_an_exception_is_raised_and_the_stream_is_closed() -> None:
    script = Script(fail("overloaded", "busy", status=529))

    with pytest.raises(ProviderError, match="script: busy") as caught:
        await ask(script)

    assert (caught.value.kind, caught.value.status) == ("overloaded", 529)
    assert script.open_streams == 0


async def test_an_error_can_follow_the_streamed_content() -> None:
    script = Script(say("part", error=fail("timeout")))
    seen: list[ProviderEvent] = []

    with pytest.raises(ProviderError):
        async for event in script.stream(Request(messages=(user("go"),))):
            seen.append(event)  # noqa: PERF401

    assert seen == [TextDelta(text="part")]


async def test_a_text_can_be_streamed_in_chunks_and_without_an_end() -> None:
    events = await ask(Script(say("abcde", chunk=2, terminal=False)))

    assert events == [TextDelta(text="ab"), TextDelta(text="cd"), TextDelta(text="e")]


async def test_an_invalid_step_is_reported() -> None:
    wrong: Any = 3

    with pytest.raises(TypeError, match="a step must be a text, a Reply"):
        await ask(Script(wrong))


@pytest.mark.filterwarnings("error")
async def test_an_async_function_is_refused_as_a_step() -> None:
    async def answer(request: Request) -> str:
        return "late"

    wrong: Any = answer
    made: Any = answer(Request())

    for step in (wrong, repeat(wrong), made):
        with pytest.raises(TypeError, match="a function of the request must not be async"):
            await ask(Script(step))
    gc.collect()  # a coroutine that was never awaited warns when it is deleted


def test_a_failure_of_an_unknown_kind_is_refused_with_the_known_kinds() -> None:
    wrong: Any = "auht"

    with pytest.raises(ValueError, match=r"kind must be one of auth, quota, .*, not 'auht'"):
        fail(wrong)


def test_arguments_of_a_call_are_json_except_for_a_string() -> None:
    assert call("look").arguments == "{}"
    assert call("look", {"x": 1}, id="c1").arguments == '{"x": 1}'
    assert call("look", "not json").arguments == "not json"
    assert call("look", id="c1").id == "c1"
    assert call("look").id != call("look").id
    assert not partial("look").complete


def test_a_reply_can_have_text_thinking_and_calls() -> None:
    assert say("hi", thinking="hm").content == (Thinking(text="hm"), Text(text="hi"))
    reply = calls("look", call("act", id="c2"), text="wait")

    assert [type(part).__name__ for part in reply.content] == ["Text", "ToolCall", "ToolCall"]
    assert reply.stop == "tool_use"


def test_shape_shows_who_wrote_each_message() -> None:
    messages: list[Message] = [
        user("go"),
        AssistantMessage(content=()),
        ToolMessage(call_id="1", name="look", content=()),
        user("continue", origin="continue"),
        AssistantMessage(content=()),
    ]

    assert shape(messages) == "u a t u+ a"


@pytest.mark.parametrize("deltas", [0, 2])
async def test_a_reply_can_be_cancelled_before_its_first_delta_and_before_its_end(
    deltas: int,
) -> None:
    request = Request(messages=(user("hi"),))
    script, seen = Script(say("ab", chunk=1)), list[str]()

    with anyio.CancelScope() as scope:
        if not deltas:
            scope.cancel()
        async for event in script.stream(request):
            seen.append(type(event).__name__)
            if len(seen) == deltas:
                scope.cancel()

    assert seen == ["TextDelta"] * deltas

"""Tools that are described in the prompt, and calls that are parsed from the text."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from glue import Agent, Image, providers, tool
from glue.limits import StopReason
from glue.messages import AssistantMessage, Request, Text, ToolCall, ToolMessage, ToolSpec, user
from glue.provider import (
    Capabilities,
    Done,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from glue.providers.prompt_tools import PromptTools, with_prompt_tools
from glue.testing import Script, say

WEATHER = ToolSpec(
    name="weather",
    description="Return the weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees"


async def collect(provider: PromptTools, **fields: Any) -> list[ProviderEvent]:
    request = Request(**{"messages": (user("go"),), "tools": (WEATHER,), **fields})
    async with aclosing(provider.stream(request)) as events:  # type: ignore[type-var]
        return [event async for event in events]


async def reply_to(text: str, **fields: Any) -> AssistantMessage:
    done = (await collect(with_prompt_tools(Script(say(text))), **fields))[-1]
    assert isinstance(done, Done)
    return done.message


async def test_a_run_calls_a_tool_through_the_prompt() -> None:
    script = Script(say(f"Let me look.\n{CALL}", chunk=3), "It is warm in Oslo.")
    agent = Agent(with_prompt_tools(script), tools=[weather])

    result = await agent.run("Weather in Oslo?")

    assert result.text == "It is warm in Oslo."
    assert [message.text for message in result.messages] == [
        "Weather in Oslo?",
        "Let me look.",
        "Oslo: 21 degrees",
        "It is warm in Oslo.",
    ]
    assert [request.tools for request in script.requests] == [(), ()]
    second = script.requests[1].messages
    assert second[1].text == f"Let me look.\n{CALL}"
    assert second[2].text == '<tool_result name="weather">\nOslo: 21 degrees\n</tool_result>'


async def test_the_texts_for_the_model(snapshot: SnapshotAssertion) -> None:
    script = Script("ok")
    call = ToolCall(id="a", name="weather", arguments="not json")
    messages = (
        user("go"),
        AssistantMessage(content=(Text(text="I look."), call, replace(call, id="b"))),
        ToolMessage(call_id="a", name="weather", content=(Text(text="bad"),), is_error=True),
        ToolMessage(call_id="b", name="weather", content=(Text(text="21"),)),
    )

    await collect(
        with_prompt_tools(script), messages=messages, system="Be brief.", tool_choice="weather"
    )

    (request,) = script.requests
    assert [request.system, *(message.text for message in request.messages)] == snapshot


@pytest.mark.parametrize("chunk", [1, 2, 5, 1000])
async def test_the_text_before_a_call_is_streamed_and_the_call_is_not(chunk: int) -> None:
    provider = with_prompt_tools(Script(say(f"One < two. {CALL}", chunk=chunk)))

    events = await collect(provider)

    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    (call,) = [event for event in events if isinstance(event, ToolCallDelta)]
    assert shown == "One < two. "
    assert (call.name, call.arguments) == ("weather", '{"city": "Oslo"}')
    assert isinstance(done := events[-1], Done)
    assert (done.message.text, done.message.stop_reason) == ("One < two.", StopReason.TOOL_USE)


async def test_a_text_that_only_looks_like_a_tag_is_shown() -> None:
    events = await collect(with_prompt_tools(Script(say("a <tool", chunk=1))))

    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "a <tool"


async def test_several_calls_are_parsed() -> None:
    reply = await reply_to(f"{CALL}\n{CALL}")

    assert [call.name for call in reply.calls] == ["weather", "weather"]
    assert len({call.id for call in reply.calls}) == 2


@pytest.mark.parametrize(
    "body",
    [
        "weather(Oslo)",
        "[]",
        '{"name": "weather"}',
        '{"name": "weather", "arguments": "Oslo"}',
        '{"name": 1, "arguments": {}}',
        '{"name": "weather", "arguments": {}, "more": 1}',
        '{"name": "weather", "arguments": {}} and more',
    ],
)
async def test_a_malformed_call_is_not_run(body: str) -> None:
    reply = await reply_to(f"{CALL}<tool_call>{body}</tool_call>")

    assert (reply.calls, reply.stop_reason) == ((), StopReason.MALFORMED_CALL)
    assert body in reply.text


async def test_a_call_that_was_cut_is_not_run() -> None:
    script = Script(say('<tool_call>{"name": "wea', stop="max_tokens"))

    done = (await collect(with_prompt_tools(script)))[-1]

    assert isinstance(done, Done)
    assert (done.message.calls, done.message.stop_reason) == ((), StopReason.MAX_TOKENS)


async def test_a_forced_call_uses_the_schema_of_the_server_if_it_has_one() -> None:
    class Forcing(Script):
        capabilities = Capabilities(takes_output=lambda schema, *, tools=False: True)

    script = Forcing(say('{"name": "weather", "arguments": {"city": "Oslo"}}', chunk=4))

    events = await collect(with_prompt_tools(script), tool_choice="weather")

    assert [type(event).__name__ for event in events] == ["ToolCallDelta", "Done"]
    (request,) = script.requests
    assert request.output_schema == {
        "type": "object",
        "properties": {"name": {"const": "weather"}, "arguments": WEATHER.parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


async def test_no_tools_are_described_if_none_may_be_called() -> None:
    script = Script("a", "b")

    await collect(with_prompt_tools(script), tool_choice="none")
    await collect(with_prompt_tools(script), tools=())

    assert [request.system for request in script.requests] == ["", ""]


async def test_images_of_a_result_are_sent_with_it() -> None:
    picture = Image(data=b"x", media_type="image/png")
    script = Script("ok")
    call = ToolCall(id="a", name="weather", arguments="{}")

    await collect(
        with_prompt_tools(script),
        messages=(
            user("go"),
            AssistantMessage(content=(call,)),
            ToolMessage(call_id="a", name="weather", content=(picture,)),
        ),
    )

    assert script.requests[0].messages[-1].content[-1] == picture


def test_new_wraps_a_provider_if_tools_are_to_be_in_the_prompt() -> None:
    provider = providers.new("perplexity:sonar", key="none", tools="prompt", retries=False)

    assert isinstance(provider, PromptTools)
    assert provider.capabilities.tools
    with pytest.raises(ValueError, match="tools must be 'native' or 'prompt'"):
        providers.new("perplexity:sonar", key="none", tools="text")


async def test_a_request_without_tools_is_passed_on_with_all_its_events() -> None:
    script = Script(say(f"see {CALL}", thinking="hm"))

    events = await collect(with_prompt_tools(script), tools=(), system="Be brief.")

    assert isinstance(done := events[-1], Done)
    assert done.message.text == f"see {CALL}"
    assert [type(event) for event in events] == [ThinkingDelta, TextDelta, Done]
    assert script.requests[0].system == "Be brief."


async def test_thinking_before_a_call_is_passed_on() -> None:
    script = Script(say(CALL, thinking="hm"))

    events = await collect(with_prompt_tools(script))

    assert [type(event) for event in events] == [ThinkingDelta, ToolCallDelta, Done]


async def test_a_call_in_the_history_is_sent_as_the_text_that_the_model_wrote() -> None:
    script = Script("ok")
    call = ToolCall(id="a", name="weather", arguments='{"city": "Zürich"}')

    await collect(
        with_prompt_tools(script),
        messages=(
            user("go"),
            AssistantMessage(content=(call,)),
            ToolMessage(call_id="a", name="weather", content=(Text(text="21 degrees"),)),
        ),
    )

    _, sent, answer = script.requests[0].messages
    assert sent.text == CALL.replace("Oslo", "Zürich").join(("\n", ""))
    assert answer.text == '<tool_result name="weather">\n21 degrees\n</tool_result>'

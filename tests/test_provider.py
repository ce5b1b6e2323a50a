"""The protocol of providers: deltas, capabilities, wrappers and single requests."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from glue.messages import AssistantMessage, Request, Text, Thinking, ToolCall, user
from glue.provider import (
    Capabilities,
    Done,
    Provider,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Wrapper,
    ask,
    capabilities,
    close,
    common,
    deltas,
    opened,
)
from glue.testing import Script


class Echo:
    """The example in the docstring of Provider."""

    name = "echo"
    closed = 0

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        text = request.messages[-1].text
        yield TextDelta(text=text)
        yield Done(message=AssistantMessage(content=(Text(text=text),)))

    async def aclose(self) -> None:
        self.closed += 1


class Plain:
    """A stream without a method `aclose`."""

    def __init__(self, *events: ProviderEvent) -> None:
        self.events = list(events)

    def __aiter__(self) -> Plain:
        return self

    async def __anext__(self) -> ProviderEvent:
        if not self.events:
            raise StopAsyncIteration
        return self.events.pop(0)


async def test_an_object_with_a_name_and_a_stream_is_a_provider() -> None:
    provider = Echo()

    message = await ask(provider, Request(messages=(user("hi"),)))

    assert isinstance(provider, Provider)
    assert message is not None
    assert message.text == "hi"


async def test_ask_returns_none_if_the_stream_ends_without_a_reply() -> None:
    class Silent:
        name = "silent"

        def stream(self, request: Request) -> Any:
            return Plain(TextDelta(text="half"))

    assert await ask(Silent(), Request()) is None


async def test_a_stream_without_aclose_can_be_opened() -> None:
    class Listed:
        name = "listed"

        def stream(self, request: Request) -> Any:
            return Plain(TextDelta(text="a"), TextDelta(text="b"))

    async with opened(Listed(), Request()) as events:
        texts = [event.text async for event in events if isinstance(event, TextDelta)]

    assert texts == ["a", "b"]


def test_the_deltas_of_a_reply_follow_its_parts() -> None:
    content = (
        Thinking(text="hm"),
        Text(text="ab"),
        Text(text=""),
        ToolCall(id="1", name="look", arguments="{}"),
    )

    assert list(deltas(content, first=2, pieces=list)) == [
        ThinkingDelta(text="hm"),
        TextDelta(text="a"),
        TextDelta(text="b"),
        ToolCallDelta(index=5, id="1", name="look", arguments="{}"),
    ]


def test_capabilities_of_a_wrapper_are_those_of_its_provider() -> None:
    inner = Script("x")
    inner.capabilities = Capabilities(model="m")  # type: ignore[attr-defined]

    assert capabilities(Wrapper(Wrapper(inner))).model == "m"
    assert capabilities(Echo()) == Capabilities()


def test_common_capabilities_are_those_that_all_providers_have() -> None:
    first = Capabilities(
        provider="a",
        model="m",
        window=1000,
        images=("image/png", "image/gif"),
        efforts=("low", "high"),
        input_price=1.0,
        output_price=2.0,
        takes_output=lambda schema, *, tools=False: True,
    )
    second = Capabilities(
        provider="b",
        model="n",
        window=500,
        tools=False,
        images=("image/png",),
        efforts=("high",),
        input_price=3.0,
    )

    both = common([first, second])

    assert (both.provider, both.model, both.window, both.tools) == ("a,b", "m,n", 500, False)
    assert (both.images, both.efforts) == (("image/png",), ("high",))
    assert (both.input_price, both.output_price) == (3.0, None)
    assert not both.takes_output({})


def test_the_common_model_is_empty_if_one_provider_does_not_name_its_model() -> None:
    assert common([Capabilities(model="m"), Capabilities()]).model == ""


async def test_a_wrapper_passes_on_attributes_and_closes_its_provider() -> None:
    echo = Echo()

    async with Wrapper(echo) as wrapper:
        assert (wrapper.name, wrapper.closed) == ("echo", 0)
        assert copy.copy(wrapper).provider is echo
        with pytest.raises(AttributeError):
            wrapper.nothing  # noqa: B018

    assert echo.closed == 1


async def test_closing_an_object_without_aclose_does_nothing() -> None:
    await close(object())


def test_the_capabilities_of_an_object_around_a_provider_are_those_of_the_provider() -> None:
    inner = SimpleNamespace(capabilities=Capabilities(model="m"))

    assert capabilities(SimpleNamespace(provider=inner)).model == "m"
    assert capabilities(SimpleNamespace(provider=SimpleNamespace(provider=inner))).model == "m"
    assert capabilities(SimpleNamespace(capabilities="many", provider=inner)).model == "m"


def test_common_values_have_the_order_of_the_first_provider() -> None:
    first = Capabilities(efforts=("low", "high", "max"), local=True)
    second = Capabilities(efforts=("max", "high", "low"))

    assert common([first, second]).efforts == ("low", "high", "max")
    assert common([first]).efforts == first.efforts
    assert (common([first]).local, common([first, second]).local) == (True, False)


def test_a_model_of_a_provider_without_capabilities_has_these() -> None:
    default = Capabilities()

    assert (default.tools, default.local, default.window, default.files) == (
        True,
        False,
        None,
        ("*/*",),
    )
    assert not default.takes_output({})
    assert not default.takes_output({}, tools=True)


def test_a_text_is_one_delta_if_it_is_not_split_and_the_first_part_has_the_index_0() -> None:
    assert list(deltas((Text(text="ab"),))) == [TextDelta(text="ab")]
    assert list(deltas((ToolCall(id="1", name="look", arguments="{}"),))) == [
        ToolCallDelta(index=0, id="1", name="look", arguments="{}")
    ]


def test_the_repr_of_a_wrapper_contains_that_of_its_provider() -> None:
    assert repr(Wrapper(Wrapper(Script("x")))).startswith("Wrapper(Wrapper(")


def test_a_common_answer_has_a_form_only_if_every_provider_can_force_it() -> None:
    without_tools = Capabilities(takes_output=lambda schema, *, tools=False: not tools)
    always = Capabilities(takes_output=lambda schema, *, tools=False: True)

    assert common([without_tools, always]).takes_output({})
    assert not common([always, without_tools]).takes_output({}, tools=True)
    assert common([always]).takes_output({}, tools=True)

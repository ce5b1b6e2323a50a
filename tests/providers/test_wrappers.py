"""Behaviour that all wrappers of a provider share."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from glue.durable.ledger import Ledger, Metered, Rate
from glue.messages import AssistantMessage, Request, Text, user
from glue.provider import Capabilities, Done, ProviderEvent, TextDelta, capabilities, close, opened
from glue.providers.escalation import with_escalation
from glue.providers.failover import with_failover
from glue.providers.retry import with_retries
from glue.testing import Recorder, Script


class Server:
    """A provider that has capabilities and can be closed."""

    name, model = "acme", "acme-1"
    capabilities = Capabilities(provider="acme", model="acme-1", window=7)
    closed = 0

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        yield TextDelta(text="hi")
        yield Done(message=AssistantMessage(content=(Text(text="hi"),)))

    async def aclose(self) -> None:
        self.closed += 1


WRAPPERS: dict[str, Callable[[Any, Path], Any]] = {
    "retries": lambda server, path: with_retries(server),
    "escalation": lambda server, path: with_escalation(server),
    "failover": lambda server, path: with_retries(with_failover(server)),
    "recorder": lambda server, path: Recorder(server, path / "x.jsonl"),
    "metered": lambda server, path: Metered(server, Rate(requests=1000), Ledger(), 1.0),
    "all": lambda server, path: with_retries(Recorder(with_escalation(server), path / "x.jsonl")),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=list(WRAPPERS))
async def test_a_wrapper_reports_the_capabilities_of_its_provider_and_closes_it(
    wrap: Callable[..., Any], tmp_path: Path
) -> None:
    server = Server()
    wrapper = wrap(server, tmp_path)

    async with wrapper as entered:
        assert entered is wrapper
        assert (wrapper.name, capabilities(wrapper).window) == ("acme", 7)
        assert copy.copy(wrapper).name == "acme"

    assert server.closed == 1


@pytest.mark.parametrize("name", ["retries", "escalation", "recorder", "metered", "all"])
def test_a_wrapper_has_the_attributes_of_its_provider_and_no_others(
    name: str, tmp_path: Path
) -> None:
    wrapper = WRAPPERS[name](Server(), tmp_path)

    assert wrapper.model == "acme-1"
    assert not hasattr(wrapper, "skipped")


async def test_a_provider_without_aclose_can_be_wrapped_and_closed() -> None:
    await close(Script())
    async with (
        with_retries(Script("hi")) as provider,
        opened(provider, Request(messages=(user("x"),))) as events,
    ):
        said = [event async for event in events]

    assert isinstance(said[-1], Done)
    assert said[-1].message.text == "hi"

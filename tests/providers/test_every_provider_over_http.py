"""Behaviour that every provider has in common, tested with a small server for each wire."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest
from fakes.wires import NAMES, played, wire_of

from glue import providers
from glue.errors import ProviderError
from glue.limits import StopReason
from glue.messages import Request, ToolSpec, user
from glue.provider import Done, Notice, Provider, ProviderEvent, TextDelta

SECRET = "sk-" + "not" + "-a-real-one-0123456789"
ASK = Request(messages=(user("hello"),), max_tokens=100, tools=(ToolSpec(name="noop"),))


def opened(name: str, url: str, **options: Any) -> Provider:
    return providers.new(f"{name}:some-model", base_url=url + "/v1", key=SECRET, **options)


async def ask(provider: Provider) -> list[ProviderEvent]:
    async with aclosing(provider.stream(ASK)) as events:  # type: ignore[type-var]
        return [event async for event in events]


@pytest.mark.parametrize("name", NAMES)
async def test_a_reply_is_streamed_and_then_complete(loopback: Any, name: str) -> None:
    server = loopback(played(name))
    provider = opened(name, server.url)

    for _ in range(2):
        events = await ask(provider)

        assert [event.text for event in events if isinstance(event, TextDelta)] == ["hel", "lo"]
        pieces = [event for event in events if not isinstance(event, Notice)]
        assert [isinstance(event, Done) for event in pieces] == [False, False, True]
        message = events[-1].message  # type: ignore[union-attr]
        assert (message.text, message.stop_reason) == ("hello", StopReason.END_TURN)
        assert (
            (message.provider, message.model)
            == (name, "some-model")
            == (provider.name, provider.model)  # type: ignore[attr-defined]
        )
        assert message.usage is not None
        assert (message.usage.input, message.usage.output) == (3, 2)
    await provider.aclose()  # type: ignore[attr-defined]

    assert server.connections == 1
    assert all(seen.line.startswith("POST /v1/") for seen in server.seen)
    assert sum(SECRET in value for value in server.seen[0].headers.values()) == 1
    assert SECRET not in server.seen[0].line


@pytest.mark.parametrize("name", NAMES)
async def test_a_bad_key_is_an_auth_error_and_costs_one_request(loopback: Any, name: str) -> None:
    body = json.dumps({"error": {"message": f"key {SECRET} is not valid", "code": SECRET}}).encode()
    head = b"HTTP/1.1 401 Unauthorized\r\nx-request-id: %s\r\ncontent-length: %d\r\n\r\n" % (
        SECRET.encode(),
        len(body),
    )
    server = loopback(head + body)

    with pytest.raises(ProviderError) as caught:
        await ask(opened(name, server.url))

    error = caught.value
    assert (error.kind, error.status, error.provider, error.emitted) == ("auth", 401, name, False)
    assert len(server.seen) == 1
    assert error.code == "***"
    assert SECRET not in f"{error} {error.body} {error.request_id}"


@pytest.mark.parametrize("name", NAMES)
async def test_a_stream_without_its_last_event_is_an_error(loopback: Any, name: str) -> None:
    end = {"openai_chat": -3, "openai_responses": -1, "anthropic": -1, "bedrock": -2}.get(
        wire_of(name), -1
    )
    server = loopback(played(name, end))

    with pytest.raises(ProviderError) as caught:
        await ask(opened(name, server.url))

    assert (caught.value.kind, caught.value.emitted, caught.value.provider) == (
        "protocol",
        True,
        name,
    )
    assert len(server.seen) == 1


@pytest.mark.parametrize("name", NAMES)
async def test_the_advised_wait_is_read_from_the_headers(loopback: Any, name: str) -> None:
    server = loopback(
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 99\r\ncontent-length: 2\r\n\r\n{}"
    )

    with pytest.raises(ProviderError) as caught:
        await ask(opened(name, server.url))

    assert (caught.value.kind, caught.value.retry_after, len(server.seen)) == (
        "rate_limited",
        99.0,
        1,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_new_provider_opens_no_connection(name: str) -> None:
    provider = opened(name, "http://127.0.0.1:9")

    assert isinstance(provider, Provider)
    assert SECRET not in repr(provider)

"""Behaviour that every provider has in common, tested with a small server for each wire."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import aclosing
from typing import Any

import pytest

from glue import providers
from glue.errors import ProviderError
from glue.limits import StopReason
from glue.messages import Request, ToolSpec, user
from glue.provider import Done, Notice, Provider, ProviderEvent, TextDelta

SECRET = "sk-" + "not" + "-a-real-one-0123456789"
NAMES = [name for name in providers.known() if providers.lookup(name).wire not in ("", "local")]
ASK = Request(messages=(user("hello"),), max_tokens=100, tools=(ToolSpec(name="noop"),))


def _frame(kind: str, body: Any) -> bytes:
    pairs = (
        (":event-type", kind),
        (":content-type", "application/json"),
        (":message-type", "event"),
    )
    headers = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in pairs
    )
    payload = json.dumps(body).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def _sse(*events: Any, named: bool = False) -> list[bytes]:
    return [
        (f"event: {event['type']}\n" if named else "").encode()
        + b"data: "
        + json.dumps(event).encode()
        + b"\n\n"
        for event in events
    ]


def _chat() -> list[bytes]:
    def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {
            "id": "1",
            "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }

    usage = {
        "id": "1",
        "model": "m",
        "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    return [
        *_sse(choice({"content": "hel"}), choice({"content": "lo"}), choice({}, "stop"), usage),
        b"data: [DONE]\n\n",
    ]


def _responses() -> list[bytes]:
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": "hello", "annotations": []}]  # type: ignore[assignment]
    usage = {"input_tokens": 3, "output_tokens": 2}
    whole = {"id": "r1", "status": "completed", "model": "m", "output": [item], "usage": usage}
    deltas = [
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": piece,
        }
        for piece in ("hel", "lo")
    ]
    return _sse(
        {
            "type": "response.created",
            "response": {"id": "r1", "status": "in_progress", "output": []},
        },
        *deltas,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
        named=True,
    )


def _anthropic() -> list[bytes]:
    start = {
        "id": "m1",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in ("hel", "lo")
    ]
    return _sse(
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
        named=True,
    )


def _gemini() -> list[bytes]:
    def piece(text: str, **more: Any) -> dict[str, Any]:
        return {
            "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **more}],
            "modelVersion": "m",
        }

    last = piece("lo", finishReason="STOP")
    last["usageMetadata"] = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    return _sse(piece("hel"), last)


def _bedrock() -> list[bytes]:
    return [
        _frame("messageStart", {"role": "assistant"}),
        _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "hel"}}),
        _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "lo"}}),
        _frame("contentBlockStop", {"contentBlockIndex": 0}),
        _frame("messageStop", {"stopReason": "end_turn"}),
        _frame("metadata", {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}}),
    ]


STREAMS = {
    "openai_chat": ("text/event-stream", _chat()),
    "openai_responses": ("text/event-stream", _responses()),
    "anthropic": ("text/event-stream", _anthropic()),
    "gemini": ("text/event-stream", _gemini()),
    "vertex": ("text/event-stream", _gemini()),
    "bedrock": ("application/vnd.amazon.eventstream", _bedrock()),
}


def wire_of(name: str) -> str:
    entry = providers.lookup(name)
    return entry.compatible_wire or entry.wire  # the servers here are compatible_wire


def played(name: str, cut: int | None = None) -> bytes:
    kind, pieces = STREAMS[wire_of(name)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces[:cut])
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + body + b"0\r\n\r\n"


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

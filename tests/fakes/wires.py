"""The response of each provider's server, as bytes for a loopback server."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

from glue import providers

# Every provider that a server on the loopback can play.
NAMES = [name for name in providers.known() if providers.lookup(name).wire not in ("", "local")]


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


def _chat(first: str, rest: str) -> list[bytes]:
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
        *_sse(choice({"content": first}), choice({"content": rest}), choice({}, "stop"), usage),
        b"data: [DONE]\n\n",
    ]


def _responses(first: str, rest: str) -> list[bytes]:
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": first + rest, "annotations": []}]  # type: ignore[assignment]
    usage = {"input_tokens": 3, "output_tokens": 2}
    whole = {"id": "r1", "status": "completed", "model": "m", "output": [item], "usage": usage}
    deltas = [
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": piece,
        }
        for piece in (first, rest)
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


def _anthropic(first: str, rest: str) -> list[bytes]:
    start = {
        "id": "m1",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in (first, rest)
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


def _gemini(first: str, rest: str) -> list[bytes]:
    def piece(text: str, **more: Any) -> dict[str, Any]:
        return {
            "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **more}],
            "modelVersion": "m",
        }

    last = piece(rest, finishReason="STOP")
    last["usageMetadata"] = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    return _sse(piece(first), last)


def _bedrock(first: str, rest: str) -> list[bytes]:
    return [
        _frame("messageStart", {"role": "assistant"}),
        _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": first}}),
        _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": rest}}),
        _frame("contentBlockStop", {"contentBlockIndex": 0}),
        _frame("messageStop", {"stopReason": "end_turn"}),
        _frame("metadata", {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}}),
    ]


STREAMS = {
    "openai_chat": ("text/event-stream", _chat),
    "openai_responses": ("text/event-stream", _responses),
    "anthropic": ("text/event-stream", _anthropic),
    "gemini": ("text/event-stream", _gemini),
    "vertex": ("text/event-stream", _gemini),
    "bedrock": ("application/vnd.amazon.eventstream", _bedrock),
}


def wire_of(name: str) -> str:
    entry = providers.lookup(name)
    return entry.compatible_wire or entry.wire  # the servers here are compatible_wire


def played(name: str, cut: int | None = None, text: str = "hello") -> bytes:
    """Return the response of a provider's server: a streamed reply, or its first `cut` pieces."""
    kind, stream = STREAMS[wire_of(name)]
    pieces = stream(text[:3], text[3:])[:cut]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + body + b"0\r\n\r\n"

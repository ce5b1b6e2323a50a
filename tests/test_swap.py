"""The example runs one agent on three wires, with servers on the loopback."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from fakes.pages import FILE
from fakes.zygote import Zygote

PYTHON = [sys.executable, "-c", FILE]
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "swap.py"


def stream(*events: Any, named: bool = False) -> bytes:
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    body = "".join(lines).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


def chat() -> list[bytes]:
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Toronto"}'},
    }
    return [
        stream(
            {
                "choices": [
                    {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
                ]
            }
        ),
        stream(
            {"choices": [{"index": 0, "delta": {"content": "dry (chat)"}, "finish_reason": "stop"}]}
        ),
    ]


def anthropic() -> list[bytes]:
    def reply(block: dict[str, Any], delta: dict[str, Any], stop: str) -> bytes:
        return stream(
            {
                "type": "message_start",
                "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}},
            },
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": stop},
                "usage": {"output_tokens": 1},
            },
            {"type": "message_stop"},
            named=True,
        )

    call = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
    return [
        reply(call, {"type": "input_json_delta", "partial_json": '{"city":"Toronto"}'}, "tool_use"),
        reply(
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "dry (anthropic)"},
            "end_turn",
        ),
    ]


def gemini() -> list[bytes]:
    def reply(part: dict[str, Any]) -> bytes:
        return stream(
            {
                "candidates": [
                    {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
                ]
            }
        )

    return [
        reply({"functionCall": {"name": "weather", "args": {"city": "Toronto"}}}),
        reply({"text": "dry (gemini)"}),
    ]


def test_the_same_agent_runs_on_three_wires(loopback: Any, tmp_path: Path, zygote: Zygote) -> None:
    servers = {
        name: loopback(*play())
        for name, play in (("GROQ", chat), ("ANTHROPIC", anthropic), ("GEMINI", gemini))
    }
    environ = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    for name, server in servers.items():
        environ |= {f"{name}_API_KEY": "none", f"{name}_BASE_URL": server.url + "/v1"}

    names = ["groq:llama-x", "anthropic", "gemini/gemini-2.5-flash"]
    _, out, errors = zygote.run([*PYTHON, str(EXAMPLE), *names], tmp_path, environ)

    assert errors == "[tool] weather\n" * 3
    assert out.splitlines() == [
        "groq:llama-x: dry (chat)",
        "anthropic: dry (anthropic)",
        "gemini/gemini-2.5-flash: dry (gemini)",
    ]
    for server in servers.values():
        assert len(server.seen) == 2
        assert b"21 degrees, dry" in server.seen[1].body


def test_the_example_runs_without_a_model_name_and_without_a_key(
    tmp_path: Path, zygote: Zygote
) -> None:
    environ = {"PATH": os.environ["PATH"], "GLUE_MODEL": "offline"}

    code, out, _ = zygote.run([*PYTHON, str(EXAMPLE)], tmp_path, environ)

    assert code == 0
    assert "stand-in" in out


def test_a_wrong_model_name_prints_one_line(tmp_path: Path, zygote: Zygote) -> None:
    code, _, errors = zygote.run([*PYTHON, str(EXAMPLE), "nope"], tmp_path)

    assert code == 1
    assert errors.startswith("unknown provider 'nope'")
    assert len(errors.splitlines()) == 1

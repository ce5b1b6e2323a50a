"""`--record` and `--replay` of models that are named, not given as objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


BODY = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}'
    b"\n\ndata: [DONE]\n\n"
)


REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


SECRET = "sec" + "ret-0123456789"


def test_a_replay_needs_no_key(cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    assert cli("run", "-m", "groq", "--record", "cassette.jsonl", "hello").out == "Hi.\n"
    monkeypatch.delenv("GROQ_API_KEY")

    assert cli("run", "-m", "groq", "--replay", "cassette.jsonl", "hello").out == "Hi.\n"
    assert len(server.seen) == 1
    assert SECRET not in Path("cassette.jsonl").read_text()


def test_a_replay_of_structured_output_encodes_requests_as_recorded(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = BODY.replace(b"Hi.", b'{\\"x\\": 3}')
    server = loopback(REPLY.replace(BODY, body).replace(b"%d" % len(BODY), b"%d" % len(body)))
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    Path("shape.py").write_text(
        "from dataclasses import dataclass\nfrom glue import Agent\n"
        "@dataclass\nclass Point:\n    x: int\n"
        "agent = Agent('groq', output=Point)\n"
    )
    assert json.loads(cli("run", "shape.py", "--record", "cassette.jsonl", "go").out) == {"x": 3}
    assert b"json_schema" in server.seen[0].body
    monkeypatch.delenv("GROQ_API_KEY")

    assert json.loads(cli("run", "shape.py", "--replay", "cassette.jsonl", "go").out) == {"x": 3}

"""`glue providers`: the list, and checks that send one request."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Cli = Callable[..., Any]


BODY = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}'
    b"\n\ndata: [DONE]\n\n"
)


REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


REFUSAL = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def test_providers_are_listed_with_their_wire_and_key(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")

    lines = cli("providers").out.splitlines()
    rows = {row["name"]: row for row in json.loads(cli("providers", "--json").out)}
    (groq,) = (line.split() for line in lines if line.startswith("groq "))

    assert lines[0].split() == ["name", "wire", "key", "default", "model", "window"]
    assert groq[:4] == ["groq", "openai_chat", "GROQ_API_KEY", "set"]
    assert rows["groq"]["key_set"] is True
    assert rows["anthropic"]["key_set"] is False
    assert rows["offline"]["key_set"] is None


def test_the_list_of_providers_shows_which_keys_are_set_but_no_key(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-a-secret")

    text = cli("providers").out

    lines = {line.split()[0]: " ".join(line.split()) for line in text.splitlines()}
    assert lines["gemini"] == "gemini gemini GOOGLE_API_KEY set gemini-3.1-flash-lite 1,000,000"
    assert (
        lines["anthropic"]
        == "anthropic anthropic ANTHROPIC_API_KEY not set claude-haiku-5-5 1,000,000"
    )
    assert lines["ollama"].startswith("ollama openai_chat OLLAMA_API_KEY not needed")
    assert "a-secret" not in text


def test_a_check_sends_one_request_and_prints_the_reply(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    monkeypatch.setenv("GROQ_BASE_URL", server.url)

    ran = cli("providers", "--check", "groq")

    assert ran.code == 0
    assert ran.out.startswith("groq: openai/gpt-oss-20b answered 'ok' in ")
    assert ran.out.count("\n") == 1
    assert len(server.seen) == 1


def test_a_check_exits_with_2_for_a_mistake_and_1_for_a_silent_server(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = loopback(REFUSAL)
    cases = [
        ("nope", "", "", 2, "unknown provider 'nope'"),
        ("groq", "", "", 2, "no key; set GROQ_API_KEY"),
        ("groq", "k" * 20, "nonsense", 2, "is not a base URL"),
        ("groq", "k" * 20, refusing.url, 2, "401"),
        ("groq", "k" * 20, "http://127.0.0.1:9", 1, "cannot connect to 127.0.0.1:9"),
    ]
    for name, key, url, code, error in cases:
        monkeypatch.setenv("GROQ_API_KEY", key)
        monkeypatch.setenv("GROQ_BASE_URL", url)

        ran = cli("providers", "--check", name)

        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
        assert error in ran.err
        assert ran.err.startswith("glue: ")

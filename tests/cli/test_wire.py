"""`--show-wire`: requests as text and as curl commands, with keys masked."""

from __future__ import annotations

import shlex
from collections.abc import Callable
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


def test_requests_are_printed_with_keys_masked(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    monkeypatch.setenv("OTHER_TOKEN", SECRET[::-1])

    ran = cli("run", "-m", "groq", "--show-wire", f"my key is {SECRET}")
    other = cli("run", "-m", "groq", "--show-wire", f"the other is {SECRET[::-1]}")

    assert SECRET[::-1] not in other.err
    assert ran.out == "Hi.\n"
    assert f"POST {server.url}/v1/chat/completions\n" in ran.err
    assert "authorization: Bearer ***\n" in ran.err
    assert '"content": "my key is ***"' in ran.err
    assert SECRET not in ran.err


def test_the_curl_command_sends_the_same_request(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    ran = cli("run", "-m", "groq", "-q", "--show-wire", "--as-curl", 'it\'s "quoted" $HOME')

    words = shlex.split(ran.err.replace("\\\n", ""))
    assert SECRET not in ran.err
    assert words[:3] == ["curl", "-N", f"{server.url}/v1/chat/completions"]
    assert words[words.index("--data-raw") + 1].encode() == server.seen[0].body
    assert "authorization: Bearer $GROQ_API_KEY" in words
    assert words[words.index("content-type: application/json") - 1] == "-H"
    assert """  -H 'authorization: Bearer '"$GROQ_API_KEY" \\\n""" in ran.err


def test_a_provider_without_http_prints_that_no_request_was_sent(cli: Cli) -> None:
    assert "no request was sent" in cli("run", "-m", "offline", "--show-wire", "hi").err

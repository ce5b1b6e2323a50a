"""Requests that check a provider and list the models of its server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from glue.errors import ConfigError, ProviderError
from glue.providers import listing

pytestmark = pytest.mark.usefixtures("bare_environment")


SECRET = "sk-" + "not" + "-a-real-one-0123456789"


CHAT = (
    b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"ok"},'
    b'"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


async def test_a_check_reports_the_reply_in_one_line(loopback: Any) -> None:
    server = loopback(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        % len(CHAT)
        + CHAT
    )

    code, text = await listing.check("ollama:m", base_url=server.url)

    assert (code, text.startswith("ollama: m answered 'ok' in ")) == (0, True)


async def test_a_check_shows_the_first_sixty_characters_of_the_reply(loopback: Any) -> None:
    text = "a long\\n reply " + "x" * 99
    body = CHAT.replace(b'"ok"', b'"%s"' % text.encode())
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    _, line = await listing.check("ollama:m", base_url=server.url)

    assert line.partition(" in ")[0] == f"ollama: m answered 'a long reply {'x' * 47}'"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        ("401 Unauthorized", b'{"error":{"message":"bad key"}}', 2),
        ("404 Not Found", b'{"error":{"message":"no such model"}}', 2),
        ("503 Busy", b"", 1),
    ],
)
async def test_a_check_that_fails_reports_the_error(
    loopback: Any, status: str, body: bytes, code: int
) -> None:
    server = loopback(
        b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)
    )

    found, text = await listing.check("ollama:m", base_url=server.url)

    assert found == code
    assert text.startswith("ollama: ")
    assert "\n" not in text


@pytest.mark.parametrize(("spec", "code"), [("nope", 2), ("gemini", 2), ("llamacpp", 1)])
async def test_a_check_of_an_unknown_provider_or_missing_key(
    monkeypatch: pytest.MonkeyPatch, spec: str, code: int
) -> None:
    monkeypatch.setenv("LLAMACPP_BASE_URL", "http://127.0.0.1:9")

    found, text = await listing.check(spec)

    assert (found, "\n" in text) == (code, False)


@pytest.mark.parametrize(
    ("spec", "body", "found", "line"),
    [
        ("groq", {"data": [{"id": "b"}, {"id": "a"}]}, ["a", "b"], "GET /models HTTP/1.1"),
        ("anthropic", {"data": [{"id": "c"}]}, ["c"], "GET /models?limit=1000 HTTP/1.1"),
        ("gemini", {"models": [{"name": "models/g"}]}, ["g"], "GET /models?pageSize=1000 HTTP/1.1"),
        ("vllm", {"data": []}, [], "GET /models HTTP/1.1"),
    ],
)
async def test_the_models_of_a_server_are_listed(
    loopback: Any, spec: str, body: Any, found: Any, line: str
) -> None:
    answer = json.dumps(body).encode()
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))

    assert await listing.server_models(spec, base_url=server.url, key=SECRET) == found
    assert server.seen[0].line == line
    assert SECRET in str(server.seen[0].headers)


async def test_a_server_that_does_not_list_its_models_is_an_error(loopback: Any) -> None:
    body = b'{"error":{"message":"bad key ' + SECRET.encode() + b'"}}'
    refused = b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    server = loopback(refused, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")

    with pytest.raises(ProviderError, match=r"groq: HTTP 401: bad key \*\*\*") as caught:
        await listing.server_models("groq", base_url=server.url, key=SECRET)
    assert caught.value.kind == "auth"
    with pytest.raises(ProviderError, match="cannot be read"):
        await listing.server_models("groq", base_url=server.url, key=SECRET)
    with pytest.raises(ConfigError, match="cannot list"):
        await listing.server_models("offline")

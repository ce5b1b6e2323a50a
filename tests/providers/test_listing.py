"""Requests that check a provider and list the models of its server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from glue import providers
from glue.errors import ConfigError, ProviderError
from glue.providers import listing
from glue.testing import Reply, Script

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

    start = "ollama: m answered 'ok' in "
    assert (code, text.startswith(start)) == (0, True)
    assert 0 <= float(text.removeprefix(start).removesuffix(" s")) < 600


async def test_a_check_without_a_reply_fails() -> None:
    providers.register("acme", lambda model, **_: Script(Reply(terminal=False), name="acme"))

    assert await listing.check("acme:m") == (1, "acme: no reply")


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


# Tables


def row(name: str, **environ: str) -> Any:
    return next(each for each in listing.list_providers(environ) if each["name"] == name)


def test_a_row_of_a_provider_names_the_variable_that_is_set_or_else_the_first() -> None:
    unset, second = row("gemini"), row("gemini", GOOGLE_API_KEY="x")

    assert unset == {
        "name": "gemini",
        "wire": "gemini",
        "key": "GEMINI_API_KEY",
        "key_set": False,
        "model": "gemini-3.1-flash-lite",
        "window": providers.capabilities("gemini").window,
    }
    assert (second["key"], second["key_set"]) == ("GOOGLE_API_KEY", True)


def test_a_provider_without_a_key_or_a_default_model_has_none_in_its_row() -> None:
    vllm, offline = row("vllm"), row("offline")

    assert (vllm["key_set"], vllm["model"], vllm["window"]) == (None, None, None)
    assert (offline["wire"], offline["key"], offline["key_set"]) == ("-", None, None)


def test_the_window_of_an_unknown_default_model_is_that_of_its_entry() -> None:
    providers.register("acme", lambda model, **_: Script(), key=["K"], model="a-1", window=7)

    acme = row("acme")

    assert (acme["window"], acme["key"], acme["key_set"]) == (7, "K", False)


def test_a_row_of_a_model_has_its_prices_window_and_levels() -> None:
    rows = {each["model"]: each for each in listing.list_models("anthropic", level="minimal")}

    haiku = rows["anthropic:claude-haiku-4-5"]
    assert (haiku["input"], haiku["output"], haiku["cached"]) == (1.0, 5.0, 0.1)
    assert (haiku["window"], haiku["tiers"]) == (200_000, [])
    assert [name for name, each in rows.items() if each["default"]] == [
        "anthropic:claude-haiku-5-5"
    ]
    assert haiku["becomes"] == "minimal"
    assert "minimal" in haiku["reasoning"]
    assert all(each["becomes"] in (None, *each["reasoning"]) for each in rows.values())
    ends = {each["ends"] for each in listing.list_models()}
    assert "" not in ends
    assert len(ends) > 1


def test_models_are_listed_if_their_name_contains_all_words() -> None:
    found = [each["model"] for each in listing.list_models("openai", ["GPT", "nano"])]

    assert found
    assert all("gpt" in name and "nano" in name for name in found)
    assert listing.list_models("openai", ["gpt", "no such"]) == []
    assert {each["model"].partition(":")[0] for each in listing.list_models(words=["haiku"])} > {
        "anthropic"
    }


class Closing(Script):
    closed = 0

    async def models(self) -> list[str]:
        return ["a"]

    async def aclose(self) -> None:
        self.closed += 1


async def test_the_provider_of_a_check_or_a_list_is_closed() -> None:
    made: list[Closing] = []

    def factory(model: str, **_: Any) -> Closing:
        made.append(Closing("ok", name="acme", model=model))
        return made[-1]

    providers.register("acme", factory)

    assert await listing.server_models("acme") == ["a"]
    assert await listing.server_models("acme:m") == ["a"]
    assert (await listing.check("acme:m"))[0] == 0

    assert [(each.closed, each.model) for each in made] == [(1, "any"), (1, "m"), (1, "m")]
    assert [request.max_tokens for request in made[-1].requests] == [64]

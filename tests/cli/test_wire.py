"""`--show-wire`: requests as text and as curl commands, with keys masked."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from glue.cli.wire import as_curl, as_text, key_variable, print_requests
from glue.providers.http import Sent, on_request
from glue.secrets import MASK

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
    assert "no request was sent" not in ran.err


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
    assert "the run sent no HTTP request" in cli("run", "-m", "offline", "--show-wire", "hi").err


def test_requests_are_collected_with_secrets_masked_until_the_block_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTHER_TOKEN", SECRET)
    texts: list[str] = []
    sent = Sent("POST", "https://a.example/v1", (("x-key", f"Key {SECRET}"),), f"see {SECRET}")

    with print_requests(texts.append) as seen:
        observe = on_request.get()
        assert observe is not None
        observe(sent)

    assert on_request.get() is None
    assert seen == [Sent("POST", "https://a.example/v1", (("x-key", "Key ***"),), "see ***")]
    assert texts == ["POST https://a.example/v1\nx-key: Key ***\n\nsee ***"]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{"a":"é"}', '{\n  "a": "é"\n}'),
        ("no JSON", "no JSON"),
        ("", ""),
        ("[" * 10**5, "[" * 10**5),
    ],
)
def test_a_json_body_is_indented_and_any_other_body_is_shown_unchanged(
    body: str, shown: str
) -> None:
    sent = Sent("GET", "https://a.example", (), body)

    assert as_text(sent) == f"GET https://a.example\n\n{shown}"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://groq.example/v1/chat", '"$GROQ_API_KEY"'),
        ("https://unknown.example/v1/chat", None),
    ],
)
def test_a_curl_command_names_the_variable_of_a_known_address(
    monkeypatch: pytest.MonkeyPatch, url: str, key: str | None
) -> None:
    monkeypatch.setenv("GROQ_BASE_URL", "https://groq.example/v1/")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    headers = (("host", "x"), ("authorization", f"Bearer {MASK}"), ("accept", "*/*"))

    lines = as_curl(Sent("POST", url, headers, "it's")).splitlines()

    assert lines == [
        f"curl -N {url} \\",
        f"  -H 'authorization: Bearer '{key} \\" if key else "  -H 'authorization: Bearer ***' \\",
        "  -H 'accept: */*' \\",
        """  --data-raw 'it'"'"'s'""",
    ]


@pytest.mark.parametrize("name", ["GROQ", "OPENAI", "MISTRAL"])
def test_of_providers_with_the_same_address_the_one_with_a_key_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for each in ("GROQ", "OPENAI", "MISTRAL"):
        monkeypatch.setenv(f"{each}_BASE_URL", "http://127.0.0.1:9/v1")
    assert key_variable("http://127.0.0.1:9/v1/chat") == ""

    monkeypatch.setenv(f"{name}_API_KEY", SECRET)

    assert key_variable("http://127.0.0.1:9/v1/chat") == f"{name}_API_KEY"


def test_requests_are_written_to_a_file_unchanged(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    ran = cli("run", "-m", "groq", "--show-wire", "a control \x9b of a terminal")

    assert '"content": "a control \x9b of a terminal"' in ran.err

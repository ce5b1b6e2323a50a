"""The HTTP client for forges."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from glue.agents.review.delivery.forges import client as module
from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.errors import ConfigError

Start = Callable[..., Any]


def answer(
    body: bytes = b"{}", status: str = "200 OK", *headers: str, length: int | None = None
) -> bytes:
    rows = [
        f"HTTP/1.1 {status}",
        f"content-length: {len(body) if length is None else length}",
        "connection: close",
        *headers,
    ]
    return "\r\n".join(rows).encode() + b"\r\n\r\n" + body


def talk(server: Any, **options: Any) -> Client:
    waits: list[float] = []
    return Client(
        base=server.url,
        headers={"authorization": "Bearer abc"},
        sleep=waits.append,
        environ={},
        **options,
    )


def test_redirects_are_not_followed(loopback: Start) -> None:
    other = loopback(answer())
    server = loopback(answer(b"", "302 Found", f"location: {other.url}/x"))

    with pytest.raises(ForgeError, match="redirects are not followed") as caught:
        talk(server).get("/user")

    assert (caught.value.status, caught.value.ambiguous, other.seen) == (302, False, [])


def test_get_has_three_attempts_and_post_has_one(loopback: Start) -> None:
    server = loopback(answer(b"oops", "502 Bad Gateway"))

    with pytest.raises(ForgeError) as caught:
        talk(server).get("/user")
    assert len(server.seen) == 3

    with pytest.raises(ForgeError) as caught:
        talk(server).change("POST", "/comments", {"body": "x"})
    assert len(server.seen) == 4
    assert caught.value.ambiguous


def test_truncated_or_invalid_response_is_ambiguous(loopback: Start) -> None:
    def half(connection: socket.socket) -> bool:
        connection.sendall(answer(b'{"id": 1}', length=500))
        return False

    for reply in (half, answer(b"<html>")):
        with pytest.raises(ForgeError) as caught:
            talk(loopback(reply)).change("POST", "/comments", {"body": "x"})
        assert caught.value.ambiguous


def test_refused_connection_is_not_ambiguous(loopback: Start) -> None:
    server = loopback(answer())
    client = talk(server)
    server.close()

    with pytest.raises(ForgeError, match="cannot connect") as caught:
        client.change("POST", "/comments", {"body": "x"})

    assert not caught.value.ambiguous


def test_huge_response_is_refused(loopback: Start) -> None:
    server = loopback(answer(b"x" * (module.MAX_BYTES + 1)))

    with pytest.raises(ForgeError, match="longer than allowed"):
        talk(server).change("POST", "/comments", {"body": "x"})


def test_slow_response_times_out(loopback: Start) -> None:
    def drip(connection: socket.socket) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        try:
            while connection.send(b" "):
                connection.settimeout(0.05)
                try:
                    connection.recv(1)
                except TimeoutError:
                    continue
                break
        except OSError:
            pass
        return False

    with pytest.raises(ForgeError) as caught:
        talk(loopback(drip), timeout=0.2).change("POST", "/comments", {"body": "x"})

    assert caught.value.ambiguous


@pytest.mark.parametrize(
    "headers", [("retry-after: nan",), ("retry-after: -5",), ("retry-after: soon",)]
)
def test_invalid_retry_after_waits_a_minute(loopback: Start, headers: tuple[str, ...]) -> None:
    server = loopback(answer(b"{}", "429 Too Many Requests", *headers), answer(b'{"id": 1}'))
    client = talk(server)

    assert client.get("/user") == {"id": 1}
    assert client.wait_budget == 60.0  # 60 of 120 seconds were used


def test_forbidden_response_is_not_a_rate_limit(loopback: Start) -> None:
    with pytest.raises(ForgeError, match="403") as caught:
        talk(loopback(answer(b'{"message": "no"}', "403 Forbidden"))).change(
            "POST", "/comments", {}
        )

    assert not caught.value.ambiguous


@pytest.mark.parametrize(
    ("status", "body"),
    [("422 Unprocessable Content", b'{"message": "no rate limit"}'), ("500 Error", b"{}")],
)
def test_only_statuses_403_and_429_are_rate_limits(
    loopback: Start, status: str, body: bytes
) -> None:
    server = loopback(answer(body, status, "retry-after: 30"))

    with pytest.raises(ForgeError, match=f"HTTP {status[:3]}") as caught:
        talk(server).change("POST", "/comments", {})

    assert (caught.value.wait, caught.value.ambiguous) == (None, status.startswith("500"))


def test_every_text_of_a_request_is_redacted(loopback: Start) -> None:
    server = loopback(answer())
    client = talk(server, redact=lambda text: text.replace("secret", "***"))

    client.change(
        "POST", "/comments", {"body": "a secret", "comments": [{"body": "secret", "line": 3}]}
    )

    assert b"secret" not in server.seen[0].body
    assert b'"line": 3' in server.seen[0].body


def test_invalid_addresses_and_paths_are_refused() -> None:
    with pytest.raises(ConfigError, match="must start with https"):
        Client(base="file:///etc", environ={}).get("/user")
    with pytest.raises(ConfigError, match="not a path"):
        Client(base="http://127.0.0.1:1", environ={}).get("/x\r\nhost: evil")


@pytest.mark.glue_live
def test_proxy_of_the_environment_is_used(loopback: Start) -> None:
    proxy = loopback(answer(b'{"id": 2}'))
    client = Client(base="http://forge.invalid/api", environ={"http_proxy": proxy.url})

    assert client.get("/user") == {"id": 2}
    assert proxy.seen[0].line.startswith("GET http://forge.invalid/api/user ")
    bypass = Client(
        base=proxy.url, environ={"http_proxy": "http://nowhere.invalid:1", "no_proxy": "127.0.0.1"}
    )
    assert bypass.get("/user") == {"id": 2}

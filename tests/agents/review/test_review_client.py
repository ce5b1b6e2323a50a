"""The forges' HTTP client: one origin, bounded in time and size, honest about what it does not know."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from glue.agents.review.delivery.forges import client as module
from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.errors import ConfigError

Start = Callable[..., Any]


def answer(body: bytes = b"{}", status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    rows = [
        f"HTTP/1.1 {status}",
        f"content-length: {len(body) if length is None else length}",
        "connection: close",
        *headers,
    ]
    return "\r\n".join(rows).encode() + b"\r\n\r\n" + body


def talk(server: Any, **options: Any) -> Client:
    waits: list[float] = []
    return Client(base=server.url, headers={"authorization": "Bearer abc"}, sleep=waits.append, environ={}, **options)


def test_a_redirect_is_not_followed(loopback: Start) -> None:
    other = loopback(answer())
    server = loopback(answer(b"", "302 Found", f"location: {other.url}/x"))

    with pytest.raises(ForgeError, match="redirects are not followed") as caught:
        talk(server).get("/user")

    assert (caught.value.status, caught.value.ambiguous, other.seen) == (302, False, [])


def test_a_get_is_tried_three_times_and_a_post_once(loopback: Start) -> None:
    server = loopback(answer(b"oops", "502 Bad Gateway"))

    with pytest.raises(ForgeError) as caught:
        talk(server).get("/user")
    assert len(server.seen) == 3

    with pytest.raises(ForgeError) as caught:
        talk(server).change("POST", "/comments", {"body": "x"})
    assert len(server.seen) == 4
    assert caught.value.ambiguous


def test_half_an_answer_and_no_json_are_unclear(loopback: Start) -> None:
    def half(connection: socket.socket) -> bool:
        connection.sendall(answer(b'{"id": 1}', length=500))
        return False

    for reply in (half, answer(b"<html>")):
        with pytest.raises(ForgeError) as caught:
            talk(loopback(reply)).change("POST", "/comments", {"body": "x"})
        assert caught.value.ambiguous


def test_a_refused_connection_is_certain(loopback: Start) -> None:
    server = loopback(answer())
    client = talk(server)
    server.close()

    with pytest.raises(ForgeError, match="cannot connect") as caught:
        client.change("POST", "/comments", {"body": "x"})

    assert not caught.value.ambiguous


def test_a_huge_answer_is_cut_off(loopback: Start) -> None:
    server = loopback(answer(b"x" * (module.MOST + 1)))

    with pytest.raises(ForgeError, match="longer than allowed"):
        talk(server).change("POST", "/comments", {"body": "x"})


def test_a_dripping_server_is_left_in_time(loopback: Start) -> None:
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


@pytest.mark.parametrize("headers", [("retry-after: nan",), ("retry-after: -5",), ("retry-after: soon",)])
def test_odd_advice_to_wait_is_not_taken(loopback: Start, headers: tuple[str, ...]) -> None:
    server = loopback(answer(b"{}", "429 Too Many Requests", *headers), answer(b'{"id": 1}'))
    client = talk(server)

    assert client.get("/user") == {"id": 1}
    assert client.wait_budget == 60.0  # a minute was waited instead


def test_a_plain_403_is_no_rate_limit(loopback: Start) -> None:
    with pytest.raises(ForgeError, match="403") as caught:
        talk(loopback(answer(b'{"message": "no"}', "403 Forbidden"))).change("POST", "/comments", {})

    assert not caught.value.ambiguous


def test_the_last_look_sees_every_text(loopback: Start) -> None:
    server = loopback(answer())
    client = talk(server, check=lambda text: text.replace("secret", "***"))

    client.change("POST", "/comments", {"body": "a secret", "comments": [{"body": "secret", "line": 3}]})

    assert b"secret" not in server.seen[0].body
    assert b'"line": 3' in server.seen[0].body


def test_odd_addresses_and_paths_are_refused() -> None:
    with pytest.raises(ConfigError, match="must start with https"):
        Client(base="file:///etc", environ={}).get("/user")
    with pytest.raises(ConfigError, match="not a path"):
        Client(base="http://127.0.0.1:1", environ={}).get("/x\r\nhost: evil")


@pytest.mark.glue_live
def test_a_proxy_is_used_where_the_environment_names_one(loopback: Start) -> None:
    proxy = loopback(answer(b'{"id": 2}'))
    client = Client(base="http://forge.invalid/api", environ={"http_proxy": proxy.url})

    assert client.get("/user") == {"id": 2}
    assert proxy.seen[0].line.startswith("GET http://forge.invalid/api/user ")
    bypass = Client(base=proxy.url, environ={"http_proxy": "http://nowhere.invalid:1", "no_proxy": "127.0.0.1"})
    assert bypass.get("/user") == {"id": 2}

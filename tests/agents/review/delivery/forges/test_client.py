"""The HTTP client for forges."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from glue.agents.review.delivery.forges import client as module
from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.errors import ConfigError, ProviderError
from glue.providers import HTTPResponse

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


class Answers:
    """A transport that records requests, and answers with given responses; the last one repeats."""

    def __init__(self, *answers: tuple[int, object] | tuple[int, object, dict[str, str]]) -> None:
        self.answers = list(answers)
        self.seen: list[dict[str, Any]] = []

    def __call__(self, method: str, path: str, **more: Any) -> HTTPResponse:
        self.seen.append({"method": method, "path": path, **more})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        status, body, *headers = answer
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return HTTPResponse(status=status, headers=headers[0] if headers else {}, body=raw)


def asking(*answers: Any, **options: Any) -> tuple[Client, Answers, list[float]]:
    """Return a client of a transport with these answers, the transport, and the waits so far."""
    transport, waits = Answers(*answers), list[float]()
    base = options.pop("base", "https://forge.test")
    client = Client(base=base, transport=transport, sleep=waits.append, environ={}, **options)
    return client, transport, waits


NEXT = {"link": '<https://forge.test/x?page=2>; rel="next"'}


@pytest.mark.parametrize("headers", [NEXT, {"x-next-page": "2"}])
def test_list_is_read_until_its_last_page(headers: dict[str, str]) -> None:
    client, transport, _ = asking((200, [1, 2], headers), (200, [3], {"x-next-page": ""}))

    assert list(client.pages("/rows", "limit", 50)) == [1, 2, 3]
    assert [request["query"] for request in transport.seen] == [
        {"limit": 50, "page": 1},
        {"limit": 50, "page": 2},
    ]


def test_list_has_at_most_100_pages() -> None:
    client, transport, _ = asking((200, [1], NEXT))

    with pytest.raises(ForgeError, match="more than 100 pages, which is the limit"):
        list(client.pages("/rows"))

    assert len(transport.seen) == 100
    assert transport.seen[-1]["query"] == {"per_page": 100, "page": 100}


def test_page_that_is_not_a_list_is_refused() -> None:
    client, _, _ = asking((200, {"rows": []}))

    with pytest.raises(ForgeError, match="GET /rows: the response is not a list") as caught:
        list(client.pages("/rows"))

    assert caught.value.status == 200


def test_blind_client_sends_no_request_and_records_changes() -> None:
    client, transport, _ = asking((200, {}), blind=True)

    assert client.get("/x") is None
    assert list(client.pages("/x")) == []
    assert client.query("/graphql", {}) is None
    assert client.change("POST", "/x", {"body": "a"}) == {}
    assert transport.seen == []
    assert [(sent.method, sent.path, sent.body) for sent in client.log] == [
        ("POST", "/x", {"body": "a"})
    ]


def test_dry_client_reads_and_only_records_changes() -> None:
    client, transport, _ = asking((200, {"id": 1}), dry=True)

    assert client.get("/x") == {"id": 1}
    assert client.query("/graphql", {}) == {"id": 1}
    assert client.change("DELETE", "/x") == {}
    assert [request["method"] for request in transport.seen] == ["GET", "POST"]
    assert [sent.method for sent in client.log] == ["DELETE"]


@pytest.mark.parametrize(
    ("send", "attempts"),
    [
        (lambda client: client.get("/x"), 3),
        (lambda client: list(client.pages("/x")), 3),
        (lambda client: client.query("/x", {}), 2),
        (lambda client: client.change("POST", "/x"), 1),
        (lambda client: client.change("PATCH", "/x"), 3),
        (lambda client: client.change("DELETE", "/x"), 3),
    ],
    ids=["get", "pages", "query", "post", "patch", "delete"],
)
def test_only_requests_that_are_safe_to_repeat_have_several_attempts(
    send: Callable[[Client], Any], attempts: int
) -> None:
    client, transport, waits = asking((500, {"message": "down"}))

    with pytest.raises(ForgeError, match="HTTP 500: down") as caught:
        send(client)

    assert caught.value.ambiguous
    assert len(transport.seen) == attempts
    assert len(waits) == attempts - 1
    assert all(0.75 * 2**at <= wait <= 2**at for at, wait in enumerate(waits))


def test_resource_that_is_already_deleted_counts_as_deleted() -> None:
    client, transport, _ = asking((404, {"message": "gone"}))

    assert client.change("DELETE", "/x") is None
    assert len(transport.seen) == 1
    with pytest.raises(ForgeError, match="HTTP 404"):
        client.get("/x")


@pytest.mark.parametrize(
    ("status", "body", "headers", "wait"),
    [
        (429, {}, {"retry-after": "7"}, 7.0),
        (403, {}, {"retry-after": "7"}, 7.0),
        (429, {}, {}, 60.0),
        (403, {}, {"x-ratelimit-remaining": "0"}, 60.0),
        (403, {"message": "You hit a secondary rate limit"}, {}, 60.0),
        (403, b"x" * 1_990 + b"rate limit", {}, 60.0),
    ],
)
def test_rate_limit_is_waited_for_even_before_a_post(
    status: int, body: Any, headers: dict[str, str], wait: float
) -> None:
    client, _, waits = asking((status, body, headers), (201, {"id": 1}))

    assert client.change("POST", "/x") == {"id": 1}
    assert waits == [wait]
    assert client.wait_budget == 120.0 - wait


def test_waits_for_rate_limits_have_a_common_budget() -> None:
    client, transport, waits = asking((429, {}, {"retry-after": "50"}))

    with pytest.raises(ForgeError, match="the rate limit is reached; try again in 50") as caught:
        client.get("/x")

    assert waits == [50.0, 50.0]
    assert (caught.value.status, caught.value.wait) == (429, 50.0)
    assert len(transport.seen) == 3


def test_wait_that_spends_the_whole_budget_is_allowed() -> None:
    client, _, waits = asking((429, {}, {"retry-after": "120"}), (200, {}))

    assert client.get("/x") == {}
    assert waits == [120.0]


@pytest.mark.parametrize(
    ("status", "body", "text", "ambiguous"),
    [
        (199, b"{}", "POST /x: HTTP 199: ", False),
        (300, b"", "POST /x: HTTP 300: redirects are not followed", False),
        (399, b"", "POST /x: HTTP 399: redirects are not followed", False),
        (400, b'{"message": "no", "errors": ["line"]}', "POST /x: HTTP 400: no ['line']", False),
        (499, b"[1]", "POST /x: HTTP 499: [1]", False),
        (409, b'{"message": "%s"}' % (b"x" * 300), f"POST /x: HTTP 409: {'x' * 199}…", False),
        (409, b'{"message": "no"}'.ljust(2_000), "POST /x: HTTP 409: no", False),
        (
            409,
            b'{"message": "no",'.ljust(2_000) + b"}",
            'POST /x: HTTP 409: {"message": "no",',
            False,
        ),
        (500, b"<html>down</html>", "POST /x: HTTP 500: <html>down</html>", True),
        (422, b"x" * 3_000, f"POST /x: HTTP 422: {'x' * 119}…", False),
        (403, b"x" * 1_991 + b"rate limit", f"POST /x: HTTP 403: {'x' * 119}…", False),
        (200, b"<html>", "POST /x: the response is not JSON", True),
    ],
)
def test_refusal_is_reported_with_its_reason(
    status: int, body: bytes, text: str, ambiguous: bool
) -> None:
    client, _, _ = asking((status, body))

    with pytest.raises(ForgeError) as caught:
        client.change("POST", "/x")

    assert str(caught.value) == text
    assert caught.value.ambiguous is ambiguous
    assert caught.value.wait is None


def test_success_is_any_status_from_200_to_299() -> None:
    for status in (200, 204, 299):
        client, _, _ = asking((status, b""))
        assert client.change("POST", "/x") is None


@pytest.mark.parametrize(
    ("ambiguous", "text"), [(True, "GET /x: no response: "), (False, "GET /x: cannot connect: ")]
)
def test_failed_connection_is_reported_in_one_line(ambiguous: bool, text: str) -> None:
    def fail(*given: Any, **more: Any) -> HTTPResponse:
        error = ProviderError("lost\n" + "x" * 200, kind="transient")
        error.ambiguous = ambiguous
        raise error

    client = Client(base="http://forge.test", transport=fail, sleep=lambda _: None, environ={})

    with pytest.raises(ForgeError) as caught:
        client.get("/x")

    assert str(caught.value).startswith(f"{text}lost xxx")
    assert len(str(caught.value)) == len(text) + 120
    assert caught.value.ambiguous is ambiguous


def test_headers_of_a_request_depend_on_its_body() -> None:
    client, transport, _ = asking((200, {}), headers={"accept": "application/vnd.x+json"})

    client.get("/x")
    client.change("POST", "/x", {"a": 1})

    get, post = transport.seen
    usual = {"accept": "application/vnd.x+json", "user-agent": "glue-review"}
    assert (get["headers"], get["body"], get["most"]) == (usual, None, module.MAX_BYTES)
    assert post["headers"] == {**usual, "content-type": "application/json"}
    assert post["body"] == b'{"a": 1}'


@pytest.mark.parametrize("path", ["x", "", "/a b", "/a\n"])
def test_path_with_white_space_or_without_a_slash_is_refused(path: str) -> None:
    client, transport, _ = asking((200, {}))

    with pytest.raises(ConfigError, match="is not a path of the API"):
        client.get(path)

    assert transport.seen == []


def test_text_is_escaped_as_one_segment_of_a_path() -> None:
    assert module.escaped("group/a b?c") == "group%2Fa%20b%3Fc"

"""The HTTP client against loopback servers, with the engines of httpx and httpx2."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from glue import providers
from glue.errors import ConfigError, ProviderError
from glue.messages import AssistantMessage, Request, user
from glue.provider import Done
from glue.provider import ask as reply_to
from glue.providers.connection import Address, idle_connections, proxy_for
from glue.providers.http import (
    ERROR_BODY,
    HTTP,
    Deadlines,
    HTTPResponse,
    Sent,
    load_engine,
    on_request,
    ssl_context,
)

SECRET = "sk-" + "not" + "-a-real-one-0123456789"
ENGINES = ["httpx", *(["httpx2"] if importlib.util.find_spec("httpcore2") else [])]


def answer(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


def chunks(*pieces: bytes, end: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )
    return head + body + (b"0\r\n\r\n" if end else b"")


OK = chunks(b"data: 1\n\n", b"data: 2\n\n")
BODY = b"data: 1\n\ndata: 2\n\n"


def play(*steps: bytes | float, close: bool = False) -> Callable[[socket.socket], object]:
    """Return a handler that sends pieces with pauses, then keeps or closes the connection."""

    def send(connection: socket.socket) -> object:
        for step in steps:
            if isinstance(step, bytes):
                connection.sendall(step)
            else:
                time.sleep(step)
        return not close

    return send


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)


async def read(http: HTTP, path: str = "/x", body: bytes = b"{}", **options: Any) -> bytes:
    async with http.post(path, body, **options) as blocks:
        return b"".join([block async for block in blocks])


async def failure(http: HTTP, body: bytes = b"{}") -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await read(http, body=body)
    return caught.value


# The request


async def test_a_body_is_sent_to_a_path_below_the_base_url_with_the_headers(
    loopback: Any, engine: str
) -> None:
    server = loopback(OK)
    http = HTTP(
        server.url + "/v1/?api-version=7",
        headers={"X-Key": SECRET},
        query=[("a", "b c")],
        engine=engine,
    )

    async with http.post("/models/m%3A0/go?alt=sse", b'{"a":1}', {"X-More": "yes"}) as blocks:
        assert (blocks.status, blocks.headers["content-type"]) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        assert b"".join([block async for block in blocks]) == BODY

    (seen,) = server.seen
    assert seen.line == "POST /v1/models/m%3A0/go?alt=sse&api-version=7&a=b+c HTTP/1.1"
    assert (seen.body, seen.headers["x-key"], seen.headers["x-more"]) == (b'{"a":1}', SECRET, "yes")
    assert (seen.headers["content-type"], seen.headers["host"]) == (
        "application/json",
        f"127.0.0.1:{server.port}",
    )


async def test_a_header_of_the_request_replaces_the_same_header_of_the_client(
    loopback: Any, engine: str
) -> None:
    server = loopback(OK)

    await read(
        HTTP(server.url, headers={"authorization": "one"}, engine=engine),
        headers={"Authorization": "two"},
    )

    assert server.seen[0].headers["authorization"] == "two"


async def test_a_header_is_sent_only_once(loopback: Any) -> None:
    sent: list[Sent] = []
    http = HTTP(loopback(OK).url, headers={"authorization": "one", "x-key": "k"})

    token = on_request.set(sent.append)
    try:
        await read(http, headers={"Authorization": "two", "Accept": "text/plain"})
    finally:
        on_request.reset(token)

    assert sorted(sent[0].headers) == [
        ("accept", "text/plain"),
        ("accept-encoding", "identity"),
        ("authorization", "two"),
        ("content-length", "2"),
        ("content-type", "application/json"),
        ("host", http.address.authority),
        ("user-agent", "glue"),
        ("x-key", "k"),
    ]


async def test_the_content_type_and_length_of_a_request_fit_its_body(loopback: Any) -> None:
    server = loopback(answer(b"{}"), answer(b"{}"), answer(b"{}"))
    http = HTTP(server.url)

    await http.request("POST", "/form", body=b"a=1", headers={"Content-Type": "text/x-form"})
    await http.request("POST", "/json", body=b"{}")
    await http.request("GET", "/")

    form, plain, get = (seen.headers for seen in server.seen)
    assert (form["content-type"], form["content-length"]) == ("text/x-form", "3")
    assert (plain["content-type"], plain["content-length"]) == ("application/json", "2")
    assert "content-type" not in get
    assert (get["accept"], get["accept-encoding"], get["user-agent"]) == ("*/*", "identity", "glue")


def test_the_default_deadlines_are_the_documented_ones() -> None:
    assert Deadlines() == Deadlines(connect=10, read=300, write=120, progress=600, total=1800)


def test_the_default_limits_of_bodies_are_32_mib_and_64_kib() -> None:
    assert ERROR_BODY == 65_536
    assert HTTP("http://127.0.0.1:1").get("/").most == 33_554_432


@pytest.mark.parametrize("transport", [None, "user's own"])
async def test_a_test_cannot_reach_another_machine(transport: str | None) -> None:
    own = Played(b"{}") if transport else None
    http = HTTP("https://models.example", transport=own)

    with pytest.raises(ConfigError, match=r"a test tried to reach https://models\.example"):
        await http.request("GET", "/")

    assert own is None or own.seen == []


# Connections


async def test_a_connection_is_reused(loopback: Any, engine: str) -> None:
    server = loopback(OK)
    http = HTTP(server.url, engine=engine)

    for _ in range(5):
        await read(http)

    assert (len(server.seen), server.connections) == (5, 1)


async def test_concurrent_requests_use_separate_connections_and_the_last_used_is_reused_first(
    loopback: Any, engine: str
) -> None:
    server = loopback(OK)
    http = HTTP(server.url, engine=engine)

    async with http.post("/a", b"") as one:
        async with http.post("/b", b"") as two:
            assert [block async for block in two]
        assert [block async for block in one]
    await read(http)

    assert [seen.connection for seen in server.seen] == [1, 2, 1]


async def test_a_connection_is_reused_if_the_unread_response_has_arrived_completely(
    loopback: Any, engine: str
) -> None:
    server = loopback(OK)
    http = HTTP(server.url, engine=engine)

    async with http.post("/a", b"") as blocks:
        async for _ in blocks:
            break
    await read(http)

    assert server.connections == 1


async def test_a_connection_is_closed_if_its_response_is_not_read_to_the_end(
    loopback: Any, engine: str
) -> None:
    server = loopback(play(chunks(b"data: 1\n\n", end=False)), OK)
    http = HTTP(server.url, engine=engine)

    async with http.post("/a", b"") as blocks:
        async for _ in blocks:
            break
    await read(http)

    assert server.connections == 2


async def test_an_error_of_the_caller_ends_the_response_without_waiting_for_its_rest(
    loopback: Any, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "glue.http")
    server = loopback(play(chunks(b"data: 1\n\n", end=False)))
    http = HTTP(server.url, provider="acme", engine=engine)

    with pytest.raises(LookupError):
        async with http.post("/", b"") as blocks:
            async for _ in blocks:
                raise LookupError

    # A wait for the rest would end with a timeout of the client.
    assert "acme: the rest of the response was not read (Broken)" in caplog.text


async def test_a_connection_that_the_server_closed_is_not_used(loopback: Any, engine: str) -> None:
    server = loopback(play(OK, close=True))
    http = HTTP(server.url, engine=engine)

    await read(http)
    [connection] = await idle_connections(http._key)
    with anyio.fail_after(5):
        while server._open:
            await anyio.sleep(0.001)
    await read(http)

    assert server.connections == 2
    assert connection.inner.is_closed()


async def test_a_request_is_sent_again_if_its_idle_connection_was_just_closed(
    loopback: Any, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "glue.http")
    server = loopback(OK, lambda connection: False, OK)
    http = HTTP(server.url, provider="acme", engine=engine)

    assert await read(http) == BODY
    assert await read(http) == BODY

    assert [seen.connection for seen in server.seen] == [1, 1, 2]
    assert "acme: the idle connection was closed, opening another" in caplog.text


async def test_a_request_is_not_sent_again_if_the_idle_connection_sent_bytes_of_a_response(
    loopback: Any, engine: str
) -> None:
    server = loopback(OK, play(b"HTTP/1.1 2", close=True), OK)
    http = HTTP(server.url, engine=engine)

    await read(http)
    error = await failure(http)

    assert (error.kind, error.answered, len(server.seen)) == ("transient", False, 2)


async def test_a_new_connection_that_is_closed_is_not_replaced(loopback: Any, engine: str) -> None:
    server = loopback(lambda connection: False, OK)

    error = await failure(HTTP(server.url, engine=engine))

    assert (error.kind, len(server.seen)) == ("transient", 1)


async def test_closing_ends_the_idle_connections(loopback: Any, engine: str) -> None:
    server = loopback(OK)
    http = HTTP(server.url, engine=engine)

    await read(http)
    await http.aclose()
    await read(http)

    assert server.connections == 2


async def test_cancelling_ends_the_request(loopback: Any, engine: str) -> None:
    server = loopback(play(chunks(b"data: 1\n\n", end=False)))
    http = HTTP(server.url, engine=engine)

    with anyio.move_on_after(5) as scope:
        async with http.post("/a", b"") as blocks:
            connection = blocks._connection
            async for _ in blocks:
                scope.cancel()

    assert scope.cancelled_caught
    assert connection is not None
    assert connection.inner.is_closed()
    with anyio.fail_after(5):
        while server._open:  # until the server has seen the end
            await anyio.sleep(0.001)


async def test_a_cancelled_request_returns_or_closes_its_connection(
    loopback: Any, engine: str
) -> None:
    server = loopback(OK)  # the whole response has arrived when the task is cancelled
    http = HTTP(server.url, engine=engine)

    with anyio.CancelScope() as scope:
        async with http.post("/a", b"") as blocks:
            connection = blocks._connection
            async for _ in blocks:
                scope.cancel()
                await anyio.sleep_forever()

    assert scope.cancelled_caught
    assert connection is not None
    assert connection.inner.is_closed() or connection in await idle_connections(http._key)


def test_one_client_serves_many_event_loops(loopback: Any, engine: str) -> None:
    server = loopback(OK)
    http = HTTP(server.url, engine=engine)
    failures: list[BaseException] = []

    def loop(backend: str) -> None:
        try:
            for _ in range(2):
                assert anyio.run(read, http, backend=backend)
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=loop, args=(backend,)) for backend in ("asyncio", "trio") * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert not failures
    assert server.connections == 8


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_nothing_warns_at_exit_without_a_call_of_aclose(
    loopback: Any, engine: str, backend: str
) -> None:
    server = loopback(OK)
    program = (
        "import anyio\nfrom glue.providers.http import HTTP\n"
        "async def main():\n"
        f"    http = HTTP({server.url!r}, engine={engine!r})\n"
        "    async with http.post('/', b'') as blocks:\n"
        "        print(sum([len(block) async for block in blocks]))\n"
        "    async with http.post('/', b'') as blocks:\n"
        "        async for block in blocks: break\n"
        f"anyio.run(main, backend={backend!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "18\n", "")


def test_nothing_warns_at_exit_although_a_stream_was_not_read_to_the_end(
    loopback: Any, engine: str
) -> None:
    # Only on trio: asyncio closes all generators at once, even while another one closes them.
    server = loopback(play(chunks(b"data: 1\n\n", end=False)))
    program = (
        "import anyio\nfrom glue.providers.http import HTTP\n"
        "kept = []\n"
        "async def stream():\n"
        f"    http = HTTP({server.url!r}, engine={engine!r})\n"
        "    async with http.post('/', b'') as blocks:\n"
        "        async for block in blocks: yield block\n"
        "async def main():\n"
        "    kept.append(stream())\n"
        "    print(await anext(kept[0]))\n"
        "anyio.run(main, backend='trio')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "b'data: 1\\n\\n'\n", "")


# Deadlines


async def test_a_server_that_sends_nothing_before_its_response_is_a_timeout(
    loopback: Any, engine: str
) -> None:
    server = loopback(play())

    error = await failure(
        HTTP(server.url, provider="acme", deadlines=Deadlines(read=0.05), engine=engine)
    )

    assert (error.kind, error.status) == ("timeout", None)
    assert str(error) == f"acme: 127.0.0.1:{server.port} sent nothing for 0.05 s"


async def test_a_server_that_stops_sending_within_its_response_is_a_timeout(
    loopback: Any, engine: str
) -> None:
    server = loopback(play(chunks(b"data: 1\n\n", end=False)))

    error = await failure(HTTP(server.url, deadlines=Deadlines(read=0.05), engine=engine))

    assert error.kind == "timeout"


@pytest.mark.parametrize("drip", [b"9", b"HTTP/1.1 200 OK\r\nx: "])
async def test_single_bytes_that_complete_no_event_end_at_the_total_deadline(
    loopback: Any, engine: str, drip: bytes
) -> None:
    def forever(connection: socket.socket) -> object:
        head = chunks(b"data: 1\n\n", end=False) if drip == b"9" else b""
        with contextlib.suppress(OSError):
            connection.sendall(head + drip)
            while True:
                connection.sendall(b"0" if drip == b"9" else b"y")
                time.sleep(0.01)
        return False

    server = loopback(forever)
    deadlines = Deadlines(read=5, progress=5, total=0.2)

    error = await failure(HTTP(server.url, provider="acme", deadlines=deadlines, engine=engine))

    assert error.kind == "timeout"
    assert "longer than 0.2 s in all" in str(error)


@pytest.mark.parametrize(
    "keep_alive",
    [b": OPENROUTER PROCESSING\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', b"\n"],
)
async def test_keep_alive_comments_do_not_count_as_progress(
    loopback: Any, engine: str, keep_alive: bytes
) -> None:
    def forever(connection: socket.socket) -> object:
        with contextlib.suppress(OSError):
            connection.sendall(chunks(b"data: 1\n\n", end=False))
            while True:
                connection.sendall(b"%x\r\n%s\r\n" % (len(keep_alive), keep_alive))
                time.sleep(0.01)
        return False

    server = loopback(forever)
    deadlines = Deadlines(read=5, progress=0.2, total=20)

    error = await failure(HTTP(server.url, provider="acme", deadlines=deadlines, engine=engine))

    assert error.kind == "timeout"
    assert "no content for 0.2 s" in str(error)


async def test_content_resets_the_progress_deadline(loopback: Any, engine: str) -> None:
    pieces = [b"8\r\ndata: 1\n\r\n", 0.1] * 4
    server = loopback(play(chunks(end=False), *pieces, b"0\r\n\r\n"))  # type: ignore[arg-type]

    body = await read(HTTP(server.url, deadlines=Deadlines(progress=0.3), engine=engine))

    assert body == b"data: 1\n" * 4


async def test_a_server_that_does_not_read_the_request_is_a_timeout(
    loopback: Any, engine: str
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with listener:
        http = HTTP(url, deadlines=Deadlines(write=0.1, read=0.1), engine=engine)

        error = await failure(http, body=b"x" * 20_000_000)

    assert error.kind == "timeout"
    assert str(error) == f"{url.removeprefix('http://')} accepted nothing for 0.1 s"


async def test_a_connection_that_takes_too_long_is_a_timeout_and_not_ambiguous(
    loopback: Any, engine: str
) -> None:
    server = loopback(OK)
    http = HTTP(server.url, deadlines=Deadlines(connect=1e-9), engine=engine)

    error = await failure(http)

    assert str(error) == f"no connection to 127.0.0.1:{server.port} within 1e-09 s"
    assert (error.kind, error.ambiguous, error.answered, server.seen) == (
        "timeout",
        False,
        False,
        [],
    )


# Error responses


async def test_an_error_carries_status_kind_and_advice(loopback: Any, engine: str) -> None:
    server = loopback(
        answer(b'{"error":{"message":"slow down"}}', "429 Too Many Requests", retry_after="7")
    )

    error = await failure(HTTP(server.url, provider="acme", engine=engine))

    assert (error.kind, error.status, error.retry_after, error.provider) == (
        "rate_limited",
        429,
        7.0,
        "acme",
    )


async def test_the_body_of_an_error_is_bounded_and_need_not_end(loopback: Any, engine: str) -> None:
    head = b"HTTP/1.1 500 Oops\r\ncontent-length: 100000000\r\n\r\n"
    server = loopback(play(head + b"x" * (ERROR_BODY + 1000)))

    error = await failure(HTTP(server.url, engine=engine))

    assert (error.status, error.kind) == (500, "transient")
    assert len(error.body) <= ERROR_BODY


async def test_the_body_of_an_error_is_read_up_to_exactly_its_limit(
    loopback: Any, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "glue.http")
    head = b"HTTP/1.1 500 Oops\r\ncontent-length: 100000000\r\n\r\n"
    server = loopback(play(head + b"x" * ERROR_BODY))

    error = await failure(HTTP(server.url, deadlines=Deadlines(read=0.3), engine=engine))

    assert error.status == 500
    assert "was cut off" not in caplog.text


async def test_an_error_whose_body_is_cut_off_keeps_its_kind(
    loopback: Any, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "glue.http")
    server = loopback(play(b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\nhalf", close=True))

    error = await failure(HTTP(server.url, provider="acme", engine=engine))

    assert (error.status, error.body) == (503, "half")
    assert "acme: the body of the error response was cut off (RemoteProtocolError)" in caplog.text


@pytest.mark.parametrize(
    ("status", "kind"),
    [(300, "invalid_request"), (399, "invalid_request"), (400, "invalid_request")],
)
async def test_every_status_but_2xx_is_an_error(
    loopback: Any, engine: str, status: int, kind: str
) -> None:
    server = loopback(answer(b"x", f"{status} X"))

    error = await failure(HTTP(server.url, engine=engine))

    redirect = (
        f"HTTP {status}: the server sent a redirect, which glue does not follow here; "
        "set the base URL to the target of the redirect"
    )
    assert (error.status, error.kind) == (status, kind)
    assert (str(error) == redirect) == (status < 400)


@pytest.mark.parametrize("status", [200, 201, 299])
async def test_every_status_2xx_is_a_success(loopback: Any, engine: str, status: int) -> None:
    server = loopback(answer(b"x", f"{status} X"))

    assert await read(HTTP(server.url, engine=engine)) == b"x"


async def test_a_redirect_is_not_followed(loopback: Any, engine: str) -> None:
    other = loopback(OK)
    server = loopback(answer(b"", "307 Temporary Redirect", location=other.url + "/steal"))

    error = await failure(HTTP(server.url, headers={"authorization": SECRET}, engine=engine))

    assert (error.kind, error.status, other.seen) == ("invalid_request", 307, [])


async def test_a_port_without_a_server_is_a_transient_error(engine: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    error = await failure(HTTP(f"http://127.0.0.1:{port}", provider="acme", engine=engine))

    assert (error.kind, error.status) == ("transient", None)
    assert str(error).startswith(f"acme: cannot connect to 127.0.0.1:{port}: ")
    assert "is the server running?" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (play(close=True), "transient", "closed the connection before it responded"),
        (
            play(chunks(b"data: 1\n\n", end=False), close=True),
            "transient",
            "in the middle of the response",
        ),
        (play(answer(b"12345")[:-2], close=True), "transient", "in the middle of the response"),
        (
            play(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", close=True),
            "protocol",
            "sent an invalid HTTP response",
        ),
        (
            play(chunks(end=False) + b"zz\r\n", close=True),
            "protocol",
            "sent an invalid HTTP response",
        ),
    ],
)
async def test_responses_that_are_cut_off_or_are_not_http(
    loopback: Any, engine: str, script: Any, kind: str, words: str
) -> None:
    server = loopback(script)

    error = await failure(HTTP(server.url, engine=engine))

    assert error.kind == kind
    assert words in str(error)


async def test_an_endless_response_is_cut(loopback: Any, engine: str) -> None:
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    def forever(connection: socket.socket) -> object:
        with contextlib.suppress(OSError):
            connection.sendall(chunks(end=False))
            while True:
                connection.sendall(piece)
        return False

    server = loopback(forever)
    http = HTTP(server.url, engine=engine)
    size = 0

    with pytest.raises(ProviderError) as caught:
        async with http.post("/", b"") as blocks:
            async for block in blocks:
                size += len(block)

    assert str(caught.value) == f"127.0.0.1:{server.port}: the response is longer than allowed"
    assert caught.value.kind == "protocol"
    assert size <= 33 * 1024 * 1024


# Compression


def _raw_deflate(body: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(body) + squeeze.flush()


@pytest.mark.parametrize(
    ("encoding", "squeeze"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", lambda body: gzip.compress(body[:10]) + gzip.compress(body[10:])),
        ("deflate", zlib.compress),
        ("deflate", _raw_deflate),
        ("identity", bytes),
        ("Identity", bytes),
        ("GZIP", gzip.compress),
    ],
)
async def test_a_compressed_response_is_decompressed(
    loopback: Any, engine: str, encoding: str, squeeze: Any
) -> None:
    body = bytes(range(256)) * 2000
    server = loopback(answer(squeeze(body), content_encoding=encoding))

    assert await read(HTTP(server.url, engine=engine)) == body


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        ("br", b"x", "the request does not accept"),
        ("gzip", gzip.compress(b"x" * 999)[:-9], "cut off"),
        ("gzip", gzip.compress(os.urandom(999))[:500] + b"garbage" * 99, "broken"),
        ("gzip", gzip.compress(b"\0" * 40_000_000), "longer than allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_response_that_is_not_compressed_as_declared_is_an_error(
    loopback: Any, engine: str, encoding: str, body: bytes, words: str
) -> None:
    server = loopback(answer(body, content_encoding=encoding))

    error = await failure(HTTP(server.url, engine=engine))

    assert error.kind == "protocol"
    assert words in str(error)


# Secrets


async def test_a_key_is_not_in_errors_logs_or_reprs(
    loopback: Any, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = f'{{"error":{{"message":"Incorrect API key provided: {SECRET}"}}}}'.encode()
    server = loopback(answer(body, "401 Unauthorized"))
    http = HTTP(
        server.url, headers={"authorization": f"Bearer {SECRET}"}, secrets=[SECRET], engine=engine
    )

    error = await failure(http, body=SECRET.encode())

    assert server.seen[0].headers["authorization"] == f"Bearer {SECRET}"
    assert error.kind == "auth"
    for text in (str(error), repr(error), error.body, repr(http), caplog.text):
        assert SECRET not in text
    assert "authorization: Bearer ***" in caplog.text


async def test_a_key_with_escaped_slashes_is_masked(loopback: Any) -> None:
    body = rb'{"error": {"message": "no such key: abcd\/efgh\/1234"}}'
    server = loopback(answer(body, "401 Unauthorized"))

    error = await failure(HTTP(server.url, secrets=["abcd/efgh/1234"]))

    assert error.body == body.decode().replace(r"abcd\/efgh\/1234", "***")
    assert str(error).endswith("no such key: ***")


async def test_a_secret_of_four_characters_is_masked_and_a_shorter_one_is_not(
    loopback: Any,
) -> None:
    http = HTTP("http://127.0.0.1", secrets=["abc", "wxyz"])
    http.hide("later")

    assert http.mask("abc wxyz later") == "abc *** ***"


async def test_the_log_contains_each_request_as_it_is_sent(
    loopback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "glue.http")
    server = loopback(answer(b"{}"))

    await HTTP(server.url).request("PUT", "/x", body=b"hello")

    assert caplog.messages[0].splitlines() == [
        f"PUT {server.url}/x",
        f"host: 127.0.0.1:{server.port}",
        "accept: */*",
        "accept-encoding: identity",
        "user-agent: glue",
        "content-length: 5",
        "content-type: application/json",
        "",
        "hello",
    ]


async def test_requests_are_not_logged_at_the_level_info(
    loopback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "glue.http")
    server = loopback(answer(b"{}"))

    await HTTP(server.url).request("PUT", "/x", body=b"hello")

    assert caplog.messages == []


def test_a_header_name_outside_ascii_is_an_error() -> None:
    with pytest.raises(ConfigError, match="http: the header x-é contains"):
        HTTP("http://127.0.0.1", headers={"x-é": "1"})


@pytest.mark.parametrize(
    "bad", [SECRET + "\n", "\u201c" + SECRET, SECRET + "\r\nx: y", " " + SECRET]
)
def test_a_key_with_illegal_characters_is_an_error_that_does_not_show_it(bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HTTP("http://127.0.0.1", provider="acme", headers={"authorization": bad})

    assert SECRET not in str(caught.value)
    assert str(caught.value) == (
        "acme: the header authorization contains a line end, a character outside ASCII, "
        "or a space at its start or end; correct its value"
    )


# Addresses and proxies


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://host/v1",
        "http://",
        "https://host:port/v1",
        "http://host:99999",
        "http:///v1",
        "http://a b/",
        "http://host:0/v1",
        "https://[::1/v1",
        "http://\u2100.example",
    ],
)
def test_a_malformed_base_url_is_an_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"acme: .*must look like https://host/v1"):
        HTTP(url, provider="acme")


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2@host/v1",
        "https://hunter2@host",
        "me:hunter2@host/v1",
        "//me:hunter2@host/v1",
        "https://me:hunter2@host?x",
        "https://me:hunter2@host#x",
        "https://me:hunter2@host:port",
    ],
)
def test_a_password_in_a_base_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="must not contain a user or password") as caught:
        HTTP(url)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["host.example/@hunter2", "me:hunt/er2@host", "ftp://h/?x=@y"])
def test_an_at_sign_in_the_path_is_not_reported_as_a_password_but_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HTTP(url)

    assert str(caught.value) == (
        "the base URL is malformed (it is not shown, because it may contain a password);"
        " it must look like https://host/v1"
    )


def test_an_at_sign_in_the_path_of_a_valid_base_url_is_kept() -> None:
    assert HTTP("https://host/@me").base_url == "https://host/@me"


def test_base_urls_become_origin_host_and_path() -> None:
    address = Address("http://[::1]:8080/v1/")

    assert (address.origin, address.target("/x"), address.is_local) == (
        "http://[::1]:8080",
        "/v1/x",
        True,
    )
    assert Address("https://bücher.example").origin == "https://xn--bcher-kva.example"
    assert Address(" https://host:443/ ").origin == "https://host"
    assert Address("http://host:80").authority == "host"
    assert (Address("http://host:443").authority, Address("http://host").port) == ("host:443", 80)
    assert Address("https://host/v1?a=1", query=[("b", "2")]).target("") == "/v1?a=1&b=2"
    assert Address("https://host").target("") == "/"
    assert Address("https://host/v1").target("x?q=1") == "/v1/x?q=1"
    assert Address("https://host").target("a b\r\nx: y") == "/a%20b%0D%0Ax:%20y"


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("[::1]", True),
        ("128.0.0.1", False),
        ("host", False),
        ("[::2]", False),
    ],
)
def test_loopback_addresses_are_local(host: str, is_local: bool) -> None:
    assert Address(f"http://{host}:1").is_local == is_local


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        ({}, "http://host", ""),
        ({"HTTP_PROXY": "http://p:1"}, "http://host", "http://p:1"),
        (
            {"http_proxy": "http://low:1", "HTTP_PROXY": "http://up:1"},
            "http://host",
            "http://low:1",
        ),
        ({"HTTP_PROXY": "http://p:1"}, "https://host", ""),
        ({"HTTPS_PROXY": "p:3128"}, "https://host", "http://p:3128"),
        ({"ALL_PROXY": "http://all:1"}, "https://host", "http://all:1"),
        ({"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, "http://host", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "other,host"}, "http://host", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, "http://api.example.com", ""),
        (
            {"HTTP_PROXY": "http://p:1", "NO_PROXY": "example.com"},
            "http://notexample.com",
            "http://p:1",
        ),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "host:81"}, "http://host", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "host:80"}, "http://host", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8, ::1"}, "http://10.1.2.3", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://host", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://host", ""),
        ({"HTTP_PROXY": " http://p:1 ", "NO_PROXY": "x/8,y"}, "http://host", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*.example.com"}, "http://a.example.com", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "HOST"}, "http://host", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "[::1]"}, "http://[::1]:7", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "::1"}, "http://[::1]", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "1.2.3.4/31"}, "http://1.2.3.5", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "1.2.3.4/31"}, "http://1.2.3.6", "http://p:1"),
        ({"http_proxy": "http://p:1", "REQUEST_METHOD": "GET"}, "http://host", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, "https://host", "http://p:1"),
        ({"https_proxy": "http://p:1", "ALL_PROXY": "http://q:1"}, "https://host", "http://p:1"),
    ],
)
def test_the_standard_variables_name_the_proxy(
    environ: dict[str, str], url: str, proxy: str
) -> None:
    assert proxy_for(Address(url), environ) == proxy


@pytest.mark.glue_live  # in name only: the proxy is on the loopback
async def test_the_proxy_receives_the_request(
    loopback: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = loopback(OK)
    monkeypatch.setenv("HTTP_PROXY", f"http://user:pass%20word@127.0.0.1:{proxy.port}")

    for _ in range(2):
        await read(HTTP("http://models.example/v1", engine=engine))

    assert proxy.seen[0].line == "POST http://models.example/v1/x HTTP/1.1"
    assert proxy.seen[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="
    assert proxy.connections == 1


@pytest.mark.glue_live
@pytest.mark.parametrize("value", ["http://", "gopher://host:1"])
async def test_a_malformed_proxy_is_an_error(
    engine: str, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", value)

    with pytest.raises(ConfigError, match="proxy"):
        await read(HTTP("http://models.example/v1", engine=engine))


@pytest.mark.glue_live
async def test_a_socks_proxy_names_the_package_that_it_needs(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("socksio"):
        pytest.skip("socksio is installed")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")

    with pytest.raises(
        ConfigError, match=r"needs the package socksio: pip install 'httpx\[socks\]'"
    ):
        await read(HTTP("http://models.example", engine=engine))


@pytest.mark.glue_live
async def test_a_user_without_a_password_is_sent_to_the_proxy(
    loopback: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = loopback(OK)
    monkeypatch.setenv("HTTP_PROXY", f"http://me@127.0.0.1:{proxy.port}")

    await read(HTTP("http://models.example/v1", engine=engine))

    assert proxy.seen[0].headers["proxy-authorization"] == "Basic bWU6"


# TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    options = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=loopback "
        "-addext subjectAltName=IP:127.0.0.1"
    )
    command = ["openssl", *options.split(), "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


def tls(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_a_certificate_in_ssl_cert_file_is_trusted(
    loopback: Any, engine: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(OK, context=tls(certificate))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    http = HTTP(server.url, engine=engine)

    for _ in range(2):
        assert await read(http) == BODY

    assert server.connections == 1


async def test_an_unknown_certificate_is_refused_without_retries(
    loopback: Any, engine: str, certificate: Path
) -> None:
    server = loopback(OK, context=tls(certificate))

    error = await failure(HTTP(server.url, headers={"authorization": SECRET}, engine=engine))

    assert "certificate of 127.0.0.1" in str(error)
    assert (error.retryable, server.seen) == (False, [])


async def test_a_missing_certificate_file_is_an_error(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")

    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE names '/nowhere/ca.pem'"):
        await read(HTTP("https://127.0.0.1:1", engine=engine))


async def test_https_goes_through_a_tunnel(
    loopback: Any, engine: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(OK, context=tls(certificate))

    def tunnel(connection: socket.socket) -> object:
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with socket.create_connection(("127.0.0.1", server.port)) as onward:
            back = threading.Thread(target=_pump, args=(onward, connection), daemon=True)
            back.start()
            _pump(connection, onward)
            back.join(10)
        return False

    proxy = loopback(tunnel)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    http = HTTP(server.url, headers={"authorization": SECRET}, engine=engine)
    assert await read(http) == BODY
    await http.aclose()

    assert proxy.seen[0].line == f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"
    assert "authorization" not in proxy.seen[0].headers
    assert server.seen[0].headers["authorization"] == SECRET


@pytest.mark.glue_live
async def test_a_proxy_that_refuses_is_named_in_the_error(
    loopback: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = loopback(answer(b"", "407 Proxy Authentication Required"))
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")

    error = await failure(HTTP("https://models.example/v1", engine=engine))

    assert "the proxy did not connect to models.example: 407" in str(error)


@pytest.mark.glue_live
async def test_a_dead_proxy_is_named_without_its_password(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{port}")

    error = await failure(HTTP("https://models.example/v1", engine=engine))

    assert f"cannot connect to models.example through the proxy 127.0.0.1:{port}" in str(error)
    assert "secret" not in str(error)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_httpx2_is_used_if_it_is_installed() -> None:
    expected = "httpcore2" if "httpx2" in ENGINES else "httpcore"

    assert load_engine().__name__ == expected


def test_nothing_of_httpx_is_loaded_before_the_first_request() -> None:
    program = (
        "import sys, glue.providers.http; "
        "print([name for name in sys.modules if name.startswith('http')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[]\n"


# Whole answers

CHAT = (
    b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
)
MESSAGE = (
    b'data: {"type":"message_start","message":{"id":"m","content":[]}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}\n\n'
    b'data: {"type":"content_block_stop","index":0}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)
OUTPUT = (
    b'[{"type":"message","id":"m","role":"assistant",'
    b'"content":[{"type":"output_text","text":"hi"}]}]'
)
RESPONSE = (
    b'data: {"type":"response.output_text.delta","output_index":0,"delta":"hi"}\n\n'
    b'data: {"type":"response.completed","response":{"status":"completed","output":'
    + OUTPUT
    + b"}}\n\n"
)
WHOLE = {
    "chat": ("deepseek:m", "", CHAT + b"data: [DONE]\n\n"),
    "chat that forgets [DONE]": ("deepseek:m", "", CHAT),
    "messages": ("anthropic:m", "", MESSAGE),
    "responses": ("openai:m", "openai_responses", RESPONSE),
}


async def ask(server: Any, spec: str, wire: str, read: float = 30) -> AssistantMessage:
    deadlines = Deadlines(read=read)
    provider = providers.new(
        spec, key=SECRET, base_url=server.url, wire=wire, deadlines=deadlines, retries=False
    )
    said = [event async for event in provider.stream(Request(messages=[user("hi")]))]
    assert isinstance(said[-1], Done)
    return said[-1].message


@pytest.mark.parametrize("name", WHOLE)
async def test_a_reply_is_complete_even_if_the_connection_stays_open(
    loopback: Any, name: str
) -> None:
    spec, wire, body = WHOLE[name]
    server = loopback(play(chunks(body, end=False)))

    with anyio.fail_after(20):  # only a reply without its last event is waited for
        reply = await ask(server, spec, wire, read=0.2 if "forgets" in name else 30)

    assert reply.text == "hi"


@pytest.mark.parametrize("name", WHOLE)
async def test_a_reply_is_complete_even_if_the_connection_breaks_after_it(
    loopback: Any, name: str
) -> None:
    spec, wire, body = WHOLE[name]
    server = loopback(play(chunks(body, end=False), close=True))

    assert (await ask(server, spec, wire)).text == "hi"


async def test_closing_a_provider_closes_its_idle_connections(loopback: Any) -> None:
    spec, _, body = WHOLE["chat"]
    server = loopback(chunks(body))
    provider: Any = providers.new(spec, key=SECRET, base_url=server.url)

    for _ in range(2):
        await reply_to(provider, Request(messages=[user("hi")]))
        await provider.aclose()

    assert server.connections == 2


async def test_a_connection_is_reused_if_its_body_ends_shortly_after_the_last_event(
    loopback: Any,
) -> None:
    spec, wire, body = WHOLE["chat"]
    server = loopback(play(chunks(body, end=False), 0.05, b"0\r\n\r\n"))

    for _ in range(3):
        await ask(server, spec, wire)

    assert server.connections == 1


@pytest.mark.parametrize("spec", ["deepseek:m", "anthropic:m"])
async def test_a_key_inside_a_stream_is_masked_in_the_error(loopback: Any, spec: str) -> None:
    error = {"type": "overloaded_error", "code": f"for {SECRET}", "message": f"no {SECRET}"}
    server = loopback(
        chunks(b"data: %s\n\n" % json.dumps({"type": "error", "error": error}).encode())
    )

    with pytest.raises(ProviderError, match=r"no \*\*\*") as caught:
        await ask(server, spec, "")

    assert caught.value.code == "for ***"
    assert SECRET not in f"{caught.value!r} {caught.value.body}"


async def test_an_error_of_raw_bytes_sends_no_control_codes_to_the_terminal(loopback: Any) -> None:
    body = b"\x1b]0;owned\x07\x1b[31m\x00\x9b bad"
    server = loopback(b"HTTP/1.1 500 X\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    with pytest.raises(ProviderError) as caught:
        await ask(server, "deepseek:m", "")

    assert str(caught.value).isprintable()


# Whole answers


async def test_request_returns_the_complete_response_of_any_method_and_status(
    loopback: Any,
) -> None:
    server = loopback(answer(b'{"a": 1}'), answer(b"{}", "404 Not Found", x_next="2"), answer(b""))
    http = HTTP(
        f"{server.url}/api", headers={"authorization": f"Bearer {SECRET}"}, secrets=[SECRET]
    )

    changed = await http.request("PATCH", "/x", body='{"name":"é"}'.encode(), query={"page": 2})
    missing = await http.request("GET", "/y?a=b", query={"per": 1})
    gone = await http.request("DELETE", "/z")

    assert (changed.status, changed.json(), gone.json()) == (200, {"a": 1}, None)
    assert (missing.status, missing.headers["x-next"], missing.text) == (404, "2", "{}")
    lines = [seen.line.rsplit(" ", 1)[0] for seen in server.seen]
    assert lines == ["PATCH /api/x?page=2", "GET /api/y?a=b&per=1", "DELETE /api/z"]
    assert server.seen[0].body.decode() == '{"name":"é"}'
    assert "content-length" not in server.seen[1].headers


async def test_a_lost_response_is_ambiguous_and_nothing_is_sent_twice(
    loopback: Any,
) -> None:
    lost = loopback(lambda connection: False, answer(b'"ok"'))

    with pytest.raises(ProviderError) as caught:
        await HTTP(lost.url).request("POST", "/x", body=b"{}")

    assert caught.value.ambiguous
    assert len(lost.seen) == 1


async def test_a_request_without_a_connection_is_not_ambiguous() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(ProviderError, match="cannot connect") as caught:
        await HTTP(f"http://127.0.0.1:{port}").request("POST", "/x", body=b"{}")

    assert not caught.value.ambiguous


@pytest.mark.glue_live  # in name only: the address is on the loopback
async def test_only_a_local_server_may_not_be_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    local = await failure(HTTP(f"http://127.0.0.1:{port}"))
    other = await failure(HTTP(f"http://models.example:{port}", resolve=resolve))

    assert str(local).endswith("; is the server running?")
    assert "is the server running?" not in str(other)


@pytest.mark.parametrize(
    ("headers", "body", "wait"),
    [
        ({"x_ratelimit_reset_requests": "3s"}, b"", 3.0),
        ({}, b"Please TRY AGAIN in 5s", 5.0),
        ({}, b"x" * 2000 + b"try again in 5s", None),
        ({}, b"", None),
    ],
)
async def test_the_advice_of_a_server_may_be_in_other_headers_or_the_body(
    loopback: Any, headers: dict[str, str], body: bytes, wait: float | None
) -> None:
    server = loopback(answer(body, "429 Slow", **headers))

    assert (await HTTP(server.url).request("GET", "/")).retry_after == wait


@pytest.mark.parametrize(("size", "wait"), [(2000, 7.0), (2001, None)])
def test_the_first_2000_characters_of_a_body_may_advise_a_wait(
    size: int, wait: float | None
) -> None:
    body = b" try again in 7s".rjust(size, b"x")

    assert HTTPResponse(429, {}, body).retry_after == wait


async def test_a_body_that_is_not_json_is_a_value_error(loopback: Any) -> None:
    server = loopback(answer(b"no"), answer(b"[" * 200_000), answer(b"  "))
    http = HTTP(server.url)

    for words in ("Expecting value", "the JSON is nested too deeply"):
        response = await http.request("GET", "/")
        with pytest.raises(ValueError, match=words):
            response.json()
    assert (await http.request("GET", "/")).json() is None


async def test_a_response_has_the_wait_that_its_server_advises(loopback: Any) -> None:
    server = loopback(answer(b"", "429 Slow", retry_after="7"))

    assert (await HTTP(server.url).request("POST", "/x", body=b"{}")).retry_after == 7.0


def test_synchronous_code_sends_requests_with_a_size_limit(loopback: Any) -> None:
    server = loopback(answer(b'{"a": 1}'), answer(b"x" * 1000))
    http = HTTP(server.url)

    assert http.request_sync("GET", "/x").json() == {"a": 1}
    with pytest.raises(ProviderError, match="longer than allowed"):
        http.request_sync("GET", "/x", most=500)


async def test_an_observer_sees_each_request_with_its_secrets_masked(loopback: Any) -> None:
    server = loopback(answer(b"{}"))
    seen: list[Sent] = []
    token = on_request.set(seen.append)

    try:
        http = HTTP(server.url, headers={"authorization": f"Bearer {SECRET}"}, secrets=[SECRET])
        await http.request("PUT", f"/x?key={SECRET}", body=f'{{"key":"{SECRET}"}}'.encode())
    finally:
        on_request.reset(token)

    assert (seen[0].method, seen[0].url, seen[0].body) == (
        "PUT",
        f"{server.url}/x?key=***",
        '{"key":"***"}',
    )
    assert ("authorization", "Bearer ***") in seen[0].headers


# Stale connections and transports


async def test_a_request_of_a_tool_is_never_sent_twice(loopback: Any, engine: str) -> None:
    server = loopback(answer(b"{}"), lambda connection: False, answer(b"{}"))
    http = HTTP(server.url, engine=engine)

    await http.request("POST", "/x", body=b"{}")
    with pytest.raises(ProviderError, match="closed the connection before it responded") as caught:
        await http.request("POST", "/x", body=b"{}")
    await http.aclose()

    assert (len(server.seen), caught.value.ambiguous) == (2, True)


async def test_a_connection_that_failed_before_the_response_says_so(
    loopback: Any, engine: str
) -> None:
    closed = loopback(lambda connection: False)
    cut = loopback(play(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", close=True))

    assert not (await failure(HTTP(closed.url, engine=engine))).answered
    assert (await failure(HTTP(cut.url, engine=engine))).answered


def test_the_tls_context_is_built_without_the_client() -> None:
    program = (
        "import sys; from glue.providers.http import load_engine, ssl_context;"
        f"context = [ssl_context(load_engine(name)) for name in {ENGINES!r}];"
        "print(context[0].verify_mode.name, context[0].check_hostname,"
        " [name for name in ('httpx', 'httpx2') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "CERT_REQUIRED True []\n"


def test_the_certificates_are_those_of_the_engine_or_of_certifi() -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    older, newer = ModuleType("httpcore"), ModuleType("httpcore2")
    newer.default_ssl_context = lambda: own  # type: ignore[attr-defined]
    certifi = importlib.import_module("certifi").where()

    assert ssl_context(newer) is own
    assert ssl_context(older).get_ca_certs() == (
        ssl.create_default_context(cafile=certifi).get_ca_certs()
    )


class Played:
    """A transport that answers from memory."""

    def __init__(self, *blocks: bytes | Exception, status: int = 200) -> None:
        self.blocks, self.status = blocks, status
        self.headers = {"Content-Type": "text/event-stream"}
        self.seen: list[tuple[str, str, dict[str, str], bytes | None]] = []
        self.closed = 0

    @contextlib.asynccontextmanager
    async def send(self, method: str, url: str, headers: Any, body: bytes | None) -> Any:
        self.seen.append((method, url, dict(headers), body))
        if isinstance(self.blocks[0], Exception):
            raise self.blocks[0]
        try:
            yield self
        finally:
            self.closed += 1

    async def __aiter__(self) -> Any:
        for block in self.blocks:
            if isinstance(block, Exception):
                raise block
            yield block


CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n'


async def test_a_transport_sends_the_requests_of_a_provider() -> None:
    transport = Played(CHUNK[:20], CHUNK[20:], b"data: [DONE]\n\n")
    provider = providers.new(
        "groq:m", key=SECRET, base_url="http://127.0.0.1:9/v1", transport=transport
    )

    reply = await reply_to(provider, Request(messages=(user("hi"),)))

    assert reply is not None
    assert (reply.text, transport.closed) == ("ok", 1)
    ((method, url, headers, body),) = transport.seen
    assert (method, url) == ("POST", "http://127.0.0.1:9/v1/chat/completions")
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert json.loads(body or b"")["model"] == "m"


@pytest.mark.parametrize(
    ("blocks", "kind", "answered"),
    [
        ((OSError("no route"),), "transient", False),
        ((TimeoutError("slow"),), "timeout", False),
        ((b"data: ", ValueError("odd " + SECRET)), "transient", True),
    ],
)
async def test_a_transport_that_fails_is_a_failed_connection(
    blocks: Any, kind: str, answered: bool
) -> None:
    transport = Played(*blocks)
    http = HTTP("http://127.0.0.1:9", secrets=[SECRET], transport=transport)

    error = await failure(http)

    assert (error.kind, error.answered, error.retryable) == (kind, answered, True)
    assert error.ambiguous
    assert SECRET not in str(error)


async def test_the_error_of_a_transport_is_described_in_one_line() -> None:
    silent = await failure(HTTP("http://127.0.0.1:9", transport=Played(TimeoutError())))
    loud = await failure(HTTP("http://127.0.0.1:9", provider="x", transport=Played(OSError("no"))))

    assert str(silent) == "the transport for 127.0.0.1:9 failed: TimeoutError"
    assert str(loud) == "x: the transport for 127.0.0.1:9 failed: OSError: no"


async def test_an_error_of_glue_in_a_transport_is_raised_unchanged() -> None:
    refused = ConfigError("no route is set")

    for blocks in ((refused,), (b"data: ", refused)):
        with pytest.raises(ConfigError) as caught:
            await read(HTTP("http://127.0.0.1:9", transport=Played(*blocks)))
        assert caught.value is refused


async def test_the_headers_of_a_transport_are_read_in_any_case() -> None:
    transport = Played(b"{}", status=429)
    transport.headers["Retry-After"] = "7"
    http = HTTP("http://127.0.0.1:9", transport=transport)

    response = await http.request("GET", "/")
    error = await failure(http)

    assert response.headers["retry-after"] == "7"
    assert (response.retry_after, error.retry_after) == (7.0, 7.0)


@pytest.mark.parametrize(
    ("status", "fails"), [(199, True), (200, False), (299, False), (300, True)]
)
async def test_a_status_of_a_transport_but_2xx_is_an_error(status: int, fails: bool) -> None:
    http = HTTP("http://127.0.0.1:9", transport=Played(b"x", status=status))

    if fails:
        assert (await failure(http)).status == status
    else:
        assert await read(http) == b"x"


class Ending(Played):
    """A transport whose responses are generators that note their end."""

    ended = False

    async def __aiter__(self) -> Any:
        try:
            for block in self.blocks:
                yield block
        finally:
            self.ended = True


class Bare(Played):
    """A transport whose responses are iterators that cannot be closed."""

    def __aiter__(self) -> Any:
        self.left = list(self.blocks)
        return self

    async def __anext__(self) -> Any:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


@pytest.mark.parametrize("kind", [Ending, Bare])
async def test_the_body_of_a_transport_is_closed_if_it_can_be_closed(kind: type[Played]) -> None:
    own = kind(b"a", b"b")
    http = HTTP("http://127.0.0.1:1", transport=own)

    async with http.get("/") as blocks:
        async for block in blocks:
            assert block == b"a"
            break
    assert getattr(own, "ended", True)
    whole = await http.request("GET", "/")

    assert (whole.body, own.closed) == (b"ab", 2)


async def test_a_transport_is_closed_if_its_response_is_not_read_to_the_end() -> None:
    transport = Played(b"one", b"two")

    async with HTTP("http://127.0.0.1:9", transport=transport).post("/", b"") as blocks:
        async for _ in blocks:
            break

    assert transport.closed == 1


async def test_the_body_of_an_error_of_a_transport_is_bounded() -> None:
    half = b"x" * (ERROR_BODY // 2)
    transport = Played(half, half, AssertionError("read too far"), status=500)

    error = await failure(HTTP("http://127.0.0.1:9", transport=transport))

    assert (error.status, transport.closed) == (500, 1)


class Slow(Played):
    """A transport whose end awaits something."""

    @contextlib.asynccontextmanager
    async def send(self, method: str, url: str, headers: Any, body: bytes | None) -> Any:
        async with super().send(method, url, headers, body) as response:
            try:
                yield response
            finally:
                await anyio.lowlevel.checkpoint()
                self.closed += 10


async def test_a_transport_may_await_at_its_end_after_a_cancellation() -> None:
    transport = Slow(b"one", b"two")

    with anyio.CancelScope() as scope:
        async with HTTP("http://127.0.0.1:9", transport=transport).post("/", b"") as blocks:
            async for _ in blocks:
                scope.cancel()
                await anyio.lowlevel.checkpoint()

    assert scope.cancelled_caught
    assert transport.closed == 11


async def test_an_error_response_through_a_transport_is_classified() -> None:
    transport = Played(b'{"error": {"message": "slow down"}}', status=429)

    error = await failure(HTTP("http://127.0.0.1:9", transport=transport))

    assert (error.kind, error.status, transport.closed) == ("rate_limited", 429, 1)


async def test_a_body_through_a_transport_is_limited() -> None:
    http = HTTP("http://127.0.0.1:9", transport=Played(b"x" * 100))

    assert len((await http.request("GET", "/x", most=100)).body) == 100
    with pytest.raises(ProviderError, match="longer than allowed") as caught:
        await http.request("GET", "/x", most=99)
    assert caught.value.kind == "protocol"


# Addresses that the caller chooses


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_client_connects_to_the_addresses_that_the_caller_returns(
    loopback: Callable[..., Any], engine: str
) -> None:
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    asked: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.2", "127.0.0.1"]  # nothing listens on the first

    http = HTTP(f"http://localhost:{server.port}", engine=engine, resolve=resolve)
    async with contextlib.aclosing(http):
        response = await http.request("GET", "/")

    assert response.body == b"ok"
    assert asked == [("localhost", server.port)]


async def test_an_error_of_the_function_for_addresses_is_raised_unchanged(
    loopback: Callable[..., Any],
) -> None:
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async def resolve(host: str, port: int) -> list[str]:
        raise LookupError("refused")

    http = HTTP(server.url, resolve=resolve)
    with pytest.raises(LookupError, match="refused"):
        await http.request("GET", "/")

    assert server.connections == 0


async def test_a_checked_client_does_not_reuse_an_unchecked_connection(
    loopback: Callable[..., Any],
) -> None:
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async def resolve(host: str, port: int) -> list[str]:
        raise LookupError("refused")

    plain, checked = HTTP(server.url), HTTP(server.url, resolve=resolve)
    async with contextlib.aclosing(plain):
        await plain.request("GET", "/")
        with pytest.raises(LookupError):
            await checked.request("GET", "/")

    assert len(server.seen) == 1


async def test_a_host_without_an_address_is_an_error() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(ProviderError, match="localhost has no address") as caught:
        await HTTP("http://localhost:1", resolve=resolve).request("GET", "/")

    # Nothing was sent, so the request may be repeated safely.
    assert (caught.value.kind, caught.value.ambiguous) == ("transient", False)

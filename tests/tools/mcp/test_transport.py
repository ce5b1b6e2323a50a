"""Tests of the transports to MCP servers."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from fakes.mcp_servers import OLD, SERVER, HttpServer, sdk_server, use

from glue.errors import ConfigError
from glue.tools import mcp
from glue.tools.mcp.sdk import httpx2
from glue.tools.mcp.stdio import ServerOutput
from glue.tools.mcp.transport import ServerTransport, _LimitedStream


async def test_other_output_of_a_server_costs_one_warning(
    server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with server("print('starting up\\n' * 50, flush=True)\n" + OLD) as connection:
        said = await use(connection, "echo")

    assert said.text == "fine"
    noise = [record for record in caplog.records if "not messages" in record.message]
    assert [record.levelname for record in noise] == ["WARNING"]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "anyio_backend", ["asyncio"]
)  # only one backend, since the server starts slowly
async def test_a_server_inherits_no_secrets(
    server: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", "hidden")

    async with server(
        SERVER + "\nserver.run()\n", env={"COLOUR": "red"}, cwd=tmp_path
    ) as connection:
        where = await use(connection, "place")

    assert where.text == f"{tmp_path} red None"


@pytest.mark.parametrize("transport", ["streamable_http", "sse"])
async def test_a_server_is_connected_over_http(transport: str) -> None:
    with sdk_server(transport) as url:
        config = mcp.ServerConfig(
            name="demo", url=url, headers={"x-test": "1"}, sse=transport == "sse"
        )
        async with mcp.connect([config]) as servers:
            result = await use(servers.connections[0], "add", a=1, b=2)

    assert result.text == "3"


async def test_the_error_for_http_401_says_what_to_set(web: str) -> None:
    HttpServer.status = 401

    with pytest.raises(ConfigError, match=r"HTTP 401: .*Authorization.*oauth"):
        async with mcp.connect_http("demo", web):
            pass


MIB = 1024 * 1024


class Body:
    """The body of a response, in blocks."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks, self.closed = iter(blocks), False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for block in self.blocks:
            return block
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed = True


async def read(*blocks: bytes) -> int:
    """Return the number of blocks of a body that can be read."""
    return len([block async for block in _LimitedStream(Body(*blocks), ServerOutput())])


async def test_a_response_without_events_may_have_32_mib() -> None:
    block, output = b"x" * MIB, ServerOutput()

    assert await read(*[block] * 32) == 32
    with pytest.raises(httpx2.RemoteProtocolError, match="sent a message of more than 32 MiB"):
        [block async for block in _LimitedStream(Body(*[block] * 32, b"x"), output)]
    assert output.fault == "the server sent a message of more than 32 MiB"


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n"])
async def test_each_event_of_a_response_may_have_32_mib(blank: bytes) -> None:
    block = b"x" * MIB
    rest = block[: MIB - len(blank)]

    # An event ends at the start, in the middle and at the end of a block.
    assert await read(*[block] * 31, blank + rest, *[block] * 31) == 63
    assert await read(*[block] * 31, block + blank, *[block] * 31) == 63
    with pytest.raises(httpx2.RemoteProtocolError):
        await read(blank + rest, *[block] * 31, b"x")
    with pytest.raises(httpx2.RemoteProtocolError):
        await read(block + blank + rest, *[block] * 31, b"x")


async def test_closing_a_limited_body_closes_the_body() -> None:
    body = Body()

    await _LimitedStream(body, ServerOutput()).aclose()

    assert body.closed


async def check(
    status: int = 200, session: bool = False, oauth: bool = False, **headers: str
) -> ServerTransport:
    """Check a response as the HTTP client does, and return the state of the connection."""
    config = mcp.ServerConfig(name="demo", url="http://127.0.0.1/mcp", oauth=oauth)
    transport = ServerTransport(config)
    sent = {"mcp-session-id": "1"} if session else {}
    response = SimpleNamespace(
        status_code=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        stream=Body(),
        request=SimpleNamespace(headers=sent),
    )
    await transport._check_response(response)
    assert isinstance(response.stream, _LimitedStream)
    return transport


async def test_a_session_has_expired_if_the_server_does_not_find_it() -> None:
    assert (await check(404, session=True)).expired
    assert not (await check(404)).expired
    assert not (await check(405, session=True)).expired
    assert not (await check(200, session=True)).expired


@pytest.mark.parametrize("status", [401, 403])
async def test_advice_about_credentials_is_given_only_without_oauth(status: int) -> None:
    assert (await check(status)).hint.startswith(f"HTTP {status}: ")
    assert (await check(status, oauth=True)).hint == ""
    assert (await check(404)).hint == ""
    assert (await check(200)).hint == ""


async def test_a_response_that_is_compressed_unasked_is_refused() -> None:
    await check(content_encoding="identity")
    with pytest.raises(httpx2.RemoteProtocolError, match="accepts only uncompressed ones"):
        await check(content_encoding="gzip")


async def test_the_end_of_a_server_is_reported() -> None:
    config = mcp.ServerConfig(name="demo", command=sys.executable, args=("-c", "pass"))
    transport, ends = ServerTransport(config), list[bool]()

    async with transport.open(lambda: ends.append(transport.ended)) as (incoming, _):
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()

    assert ends == [True]

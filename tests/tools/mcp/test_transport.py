"""Tests of the transports to MCP servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.mcp_servers import OLD, SERVER, HttpServer, sdk_server, use

from glue.errors import ConfigError
from glue.tools import mcp


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

"""Tests of connecting to several MCP servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.mcp_servers import OLD, invoke

from glue.errors import ConfigError
from glue.tools import mcp
from glue.tools.mcp.client import BACKOFF


async def test_an_error_in_the_block_is_raised_unchanged(server: Callable[..., Any]) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with server(OLD):
            raise KeyError("mine")


async def test_the_error_names_a_server_that_cannot_be_started(
    tmp_path: Path, server: Callable[..., Any]
) -> None:
    with pytest.raises(
        ConfigError, match="'x' cannot be started: the command '/no/such/program' does not exist"
    ):
        async with mcp.connect_stdio("x", "/no/such/program"):
            pass
    with pytest.raises(ConfigError, match=r"'demo' .* could not be connected"):
        async with server("print('hello')"):
            pass
    with pytest.raises(ConfigError, match=r"'web' .* could not be connected"):
        async with mcp.connect_http("web", "http://127.0.0.1:9/mcp"):
            pass


async def test_a_single_server_takes_no_function_for_errors() -> None:
    options: Any = {"on_error": print}

    for place in (
        mcp.connect_stdio("x", "/no/such/program", **options),
        mcp.connect_http("x", "y", **options),
    ):
        with pytest.raises(TypeError, match="on_error is for `connect`"):
            async with place:
                pass


async def test_the_error_names_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for folder in (tmp_path / "none", tmp_path / "file"):
        said = f"'x' cannot be started: the folder '{folder}' \\(cwd\\) does not exist"
        with pytest.raises(ConfigError, match=said):
            async with mcp.connect_stdio("x", sys.executable, cwd=folder):
                pass


async def test_the_error_names_a_script_whose_interpreter_does_not_exist(tmp_path: Path) -> None:
    script = tmp_path / "server"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)

    for command in (str(script), "./server"):
        said = f"the interpreter in the first line of '{command}' does not exist"
        with pytest.raises(ConfigError, match=said):
            async with mcp.connect_stdio("x", command, cwd=tmp_path):
                pass


async def test_several_servers_are_connected_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD)
    servers = {
        name: {"command": sys.executable, "args": [str(tmp_path / "old.py")]}
        for name in ("one", "two")
    }
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {**servers, "off": {"disabled": True}}})
    )

    async with mcp.connect(tmp_path / "mcp.json") as connected:
        names = [tool.name for tool in connected.tools]
        said = await invoke(connected.tools[4], {"x": "hi"})

    assert (names[0], names[4]) == ("one__first", "two__first")
    assert said.text == "hi"


async def test_servers_must_have_different_names() -> None:
    with pytest.raises(ConfigError, match="'a' occurs twice"):
        async with mcp.connect([mcp.ServerConfig(name="a", command="x")] * 2):
            pass


def test_glue_run_uses_the_tools_of_servers(cli: Callable[..., Any]) -> None:
    Path("old.py").write_text(OLD)
    config = {
        "mcpServers": {"demo": {"command": sys.executable, "args": [str(Path("old.py").resolve())]}}
    }
    Path("mcp.json").write_text(json.dumps(config))
    Path("agent.py").write_text(
        "import glue\nfrom glue.testing import Script, call, calls\n"
        "first = calls(call('demo__first', {'x': 'from the server'}))\n"
        "script = Script(first, lambda request: request.messages[-1].text)\n"
        "agent = glue.Agent(script)\n"
    )

    done = cli("run", "agent.py", "go", "--mcp", "mcp.json", "--yes")
    missing = cli("run", "agent.py", "go", "--mcp", "no.json")

    assert (done.code, done.out) == (0, "from the server\n"), done.err
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.strip() == "glue: no.json could not be read: No such file or directory"


def test_a_server_that_ends_again_is_restarted_after_1_4_16_and_60_seconds() -> None:
    backoff = BACKOFF._replace(jitter=0)

    assert [backoff.delay(restarts) for restarts in range(1, 6)] == [1, 4, 16, 60, None]

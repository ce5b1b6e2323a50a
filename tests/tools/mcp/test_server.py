"""Tests of `glue mcp`, called by the client of the SDK."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from fakes.mcp_servers import AGENT, MAIN, SHAPED, use
from mcp import Client
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    SetLevelRequest,
    SetLevelRequestParams,
)

import glue
from glue.cli.agentfile import open_agent
from glue.errors import ConfigError
from glue.messages import File, Image, Text, Thinking
from glue.testing import Script
from glue.tools import mcp
from glue.tools.mcp.server import (
    _content,
    _Logs,
    make_server,
    nearest,
    offered,
    output_schema,
)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # tests the client of the SDK only
async def test_tools_and_agent_are_called_over_stdio(tmp_path: Path) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    told: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    (tmp_path / "adder.py").write_text(AGENT)
    command = StdioServerParameters(
        command=MAIN[0], args=[*MAIN[1:], "mcp", str(tmp_path / "adder.py")]
    )
    with (tmp_path / "stderr").open("w") as errors:
        async with Client(stdio_client(command, errlog=errors)) as client:
            schema = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            results: list[Any] = [
                await client.call_tool("add", {"a": 1, "b": 2}),
                await client.call_tool("add", {"a": "one", "b": 2}),
                await client.call_tool("look", {}, progress_callback=progress),
                await client.call_tool("danger", {"what": "x"}),
                await client.call_tool("unknown", {}),
                await client.call_tool("adder", {"prompt": "add 1 and 2"}),
            ]

    assert list(schema) == ["add", "look", "danger", "adder"]
    assert schema["add"]["required"] == ["a", "b"]
    assert [result.is_error for result in results] == [False, True, False, True, True, False]
    added, _, drawn, denied, unknown, answered = [result.content[0] for result in results]
    assert added.text == "3"
    assert (drawn.mime_type, base64.b64decode(drawn.data)) == ("image/png", b"png")
    assert "--allow NAME" in denied.text
    assert unknown.text == "unknown tool 'unknown'; known tools: add, adder, danger, look"
    assert answered.text == "the sum is 3"
    assert told == [(1.0, "drawing")]
    assert "noise on standard output" in (tmp_path / "stderr").read_text()


async def test_tools_have_output_schemas_and_annotations_and_instructions_are_a_resource(
    tmp_path: Path,
) -> None:
    from mcp import Client, MCPError

    from glue.tools.mcp.server import make_server, offered, policy

    (tmp_path / "agent.py").write_text(SHAPED)
    agent = open_agent(str(tmp_path / "agent.py"))
    async with Client(make_server(agent, offered(agent, "agent"), policy(agent, ()))) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("weather", {"city": "Oslo"})
        (resource,) = (await client.list_resources()).resources
        read = (await client.read_resource(resource.uri)).contents[0]
        with pytest.raises(MCPError, match="there is no such resource"):
            await client.read_resource("glue://nothing")

    assert tools["weather"].output_schema is not None
    assert set(tools["weather"].output_schema["properties"]) == {"city", "degrees"}
    assert result.structured_content == {"city": "Oslo", "degrees": 21}
    assert tools["danger"].output_schema is None
    assert [tool.annotations for tool in tools.values()] == [None, None, None]
    assert getattr(read, "text", None) == "Be brief."


TOKEN = "a-token-of-some-length"
ERASE = '''
@glue.tool(needs_permission=True)
def erase() -> str:
    """Erase everything."""
    return "erased"

agent = glue.Agent(script, tools=[add, look, danger, erase])
'''


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the tools of an agent over HTTP, and return the URL.

    The command line allows `danger` and `erase`; the environment denies `erase`.
    """
    folder = tmp_path_factory.mktemp("served")
    (folder / "adder.py").write_text(AGENT + ERASE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*MAIN, "mcp", "adder.py", "--http", str(port), "--only-tools"]
    command += ["--allow", "danger", "--allow", "erase"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GLUE_MCP_TOKEN": TOKEN, "GLUE_DENY": "erase"},
    )
    try:
        while process.poll() is None and not is_listening(port):
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        said = process.communicate(timeout=30)[1]
    assert process.returncode in (0, 143)
    assert "Traceback" not in said


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


HEADERS = {"Authorization": f"Bearer {TOKEN}"}


async def test_serving_over_http_requires_the_token(served: str) -> None:
    async with mcp.connect_http("demo", served, HEADERS) as connection:
        result = await use(connection, "add", a=1, b=2)
    with pytest.raises(ConfigError, match="HTTP 401"):
        async with mcp.connect_http("demo", served, {"Authorization": "Bearer wrong"}):
            pass

    assert result.text == "3"


async def test_a_tool_allowed_on_the_command_line_runs(served: str) -> None:
    async with mcp.connect_http("demo", served, HEADERS) as connection:
        result = await use(connection, "danger", what="x")

    names = ["demo__add", "demo__look", "demo__danger", "demo__erase"]
    assert [tool.name for tool in connection.tools] == names
    assert result.text == "did x"


async def test_a_denied_tool_stays_denied_if_the_command_allows_it(served: str) -> None:
    async with mcp.connect_http("demo", served, HEADERS) as connection:
        denied = await use(connection, "erase")

    assert denied.is_error
    assert "the rule 'erase' forbids it" in denied.text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio warns about streams of the SDK
async def test_results_and_progress_arrive_over_http(served: str) -> None:
    async with mcp.connect_http("demo", served, HEADERS) as connection:
        seen: list[Any] = []
        drawn = await use(connection, "look", seen)

    assert drawn.content == (Image(media_type="image/png", data=b"png"),)
    assert seen == [("drawing", {"progress": 1.0, "total": None})]


def test_a_port_that_is_in_use_is_an_error_of_one_line(tmp_path: Path, zygote: Any) -> None:
    (tmp_path / "adder.py").write_text(AGENT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*MAIN, "mcp", "adder.py", "--http", str(taken.getsockname()[1])]
        environ = {**os.environ, "GLUE_MCP_TOKEN": TOKEN}
        code, _, err = zygote.run(command, tmp_path, environ)

    assert code == 2
    # The first line is printed by the agent's own file.
    assert err.startswith("noise on standard output\nglue: --http ")
    assert (err.count("\n"), "Address already in use" in err) == (2, True)


async def test_hints_are_published_only_if_the_tool_declares_them() -> None:
    @glue.tool
    def send_mail(to: str) -> str:
        """Send a mail."""
        return to

    @glue.tool(read_only=True, title="The weather", idempotent=True)
    def weather() -> str:
        """Return the weather."""
        return "dry"

    @glue.tool(read_only=False, needs_permission=True)
    def write() -> str:
        """Write."""
        return "done"

    agent = glue.Agent(Script("x"), tools=[send_mail, weather, write])
    tools: dict[str, Any] = {each.spec.name: each for each in agent.settings.tools or ()}
    async with Client(make_server(agent, tools, glue.AllowAll())) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert listed["send_mail"].annotations is None
    known = {
        name: tool.annotations.model_dump(exclude_none=True)
        for name, tool in listed.items()
        if tool.annotations is not None
    }
    assert known == {
        "weather": {"read_only_hint": True, "idempotent_hint": True},
        "write": {"read_only_hint": False},
    }
    assert listed["weather"].title == "The weather"


def named_tools(count: int) -> dict[str, Any]:
    tools = [glue.tool(name=f"tool_{number}")(lambda: "x") for number in range(count)]
    return {tool.name: tool for tool in tools}


async def test_an_unknown_name_of_many_is_answered_with_the_nearest_few() -> None:
    agent = glue.Agent(Script("x"))
    async with Client(make_server(agent, named_tools(300), glue.AllowAll())) as client:
        near: Any = await client.call_tool("tool_77x", {})
        far: Any = await client.call_tool("q" * 5000, {})

    assert near.content[0].text.startswith("unknown tool 'tool_77x'; did you mean tool_77")
    assert max(len(each.content[0].text) for each in (near, far)) < 300
    assert far.content[0].text.endswith("there are 300 tools")


def test_up_to_ten_names_are_all_named() -> None:
    assert nearest("x", named_tools(10)) == f"known tools: {', '.join(sorted(named_tools(10)))}"
    assert nearest("x", named_tools(11)) == "there are 11 tools"


def test_three_similar_names_are_named() -> None:
    names = [f"look_{letter}" for letter in "abcd"] + [f"x{number}" for number in range(9)]

    assert nearest("look_", names).count(" or ") == 2


def test_an_agent_with_the_name_of_a_tool_gets_another_one() -> None:
    @glue.tool
    def ask() -> str:
        """Ask."""
        return "x"

    @glue.tool(name="ask_agent")
    def other() -> str:
        """Ask."""
        return "x"

    agent = glue.Agent(Script("x"), name="ask", tools=[ask, other])

    assert list(offered(agent, "agent")) == ["ask", "ask_agent", "ask_agent_agent"]


def test_only_a_result_that_is_an_object_has_a_schema() -> None:
    wanted = {"type": "object", "properties": {"city": {"type": "string"}}}
    listed = {"type": "array", "items": {"type": "string"}}

    def schema(output: Any) -> Any:
        agent = glue.Agent(Script("x"), name="x", output=output)
        return output_schema(offered(agent, "x")["x"])

    assert schema(wanted) == wanted
    assert schema(listed) is None
    assert schema(None) is None


class Point(TypedDict):
    x: int


async def test_only_an_object_is_structured_content() -> None:
    @glue.tool
    def point(text: str) -> Point:
        """Return a point."""
        return json.loads(text)  # type: ignore[no-any-return]

    agent = glue.Agent(Script("x"), tools=[point])
    async with Client(make_server(agent, {"point": point}, glue.AllowAll())) as client:
        found: Any = await client.session.send_request(
            CallToolRequest(
                params=CallToolRequestParams(name="point", arguments={"text": '{"x": 1}'})
            ),
            CallToolResult,
        )
        wrong: Any = await client.session.send_request(
            CallToolRequest(params=CallToolRequestParams(name="point", arguments={"text": "[1]"})),
            CallToolResult,
        )

    assert found.structured_content == {"x": 1}
    assert wrong.structured_content is None


def test_parts_of_a_result_are_converted_and_others_are_named() -> None:
    picture = Image(media_type="image/png", data=b"png")
    pdf = File(media_type="application/pdf", data=b"pdf", name="a b.pdf")
    unnamed = File(media_type="text/csv", data=b"1,2")
    linked, thought = Image(url="https://example.com/x.png"), Thinking(text="hm")
    parts: Any = (Text(text="x"), picture, pdf, unnamed, linked, thought)

    blocks = [
        block.model_dump(exclude_none=True) for block in _content(glue.ToolResult(content=parts))
    ]

    assert blocks == [
        {"type": "text", "text": "x"},
        {"type": "image", "data": "cG5n", "mime_type": "image/png"},
        {
            "type": "resource",
            "resource": {
                "uri": "glue://result/a%20b.pdf",
                "blob": "cGRm",
                "mime_type": "application/pdf",
            },
        },
        {
            "type": "resource",
            "resource": {"uri": "glue://result/file", "blob": "MSwy", "mime_type": "text/csv"},
        },
        {"type": "text", "text": "[Image cannot be shown]"},
        {"type": "text", "text": "[Thinking cannot be shown]"},
    ]


async def test_the_log_levels_of_the_last_thousand_clients_are_kept() -> None:
    logs = _Logs()
    for number in range(1002):
        headers = {"mcp-session-id": str(number)}
        context: Any = SimpleNamespace(request=SimpleNamespace(headers=headers))
        await logs.set_level(context, SetLevelRequestParams(level="debug"))

    assert list(logs._levels) == [str(number) for number in range(2, 1002)]


async def test_progress_is_sent_if_it_has_a_text_or_a_number() -> None:
    received: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))

    @glue.tool
    def work(context: glue.Context[Any]) -> str:
        """Work."""
        context.progress("begun")
        context.progress("", {"progress": 5, "total": 9})
        context.progress("", {"other": 1})
        context.progress("", [1])
        context.progress("ended")
        return "done"

    agent = glue.Agent(Script("x"), tools=[work])
    async with Client(make_server(agent, {"work": work}, glue.AllowAll())) as client:
        await client.call_tool("work", {}, progress_callback=progress)

    assert received == [(1.0, None, "begun"), (5.0, 9.0, None), (6.0, None, "ended")]


async def test_log_records_of_a_tool_are_sent_to_its_caller() -> None:
    received: list[Any] = []

    async def on_log(params: Any) -> None:
        received.append((params.level, params.logger, params.data))

    @glue.tool
    def work() -> str:
        """Work."""
        logger = logging.getLogger("my.tool")
        logger.setLevel("DEBUG")
        logger.debug("detail")
        logger.warning("careful")
        return "done"

    agent = glue.Agent(Script("x"), tools=[work])
    server = make_server(agent, {"work": work}, glue.AllowAll())
    async with Client(server, mode="legacy", logging_callback=on_log) as client:
        await client.call_tool("work", {})
        quiet = list(received)
        await client.session.send_request(
            SetLevelRequest(params=SetLevelRequestParams(level="debug")), EmptyResult
        )
        await client.call_tool("work", {})

    assert quiet == [("warning", "my.tool", "careful")]
    assert ("debug", "my.tool", "detail") in received

"""MCP both ways, with the official SDK at the other end."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import anyio
import pytest

import glue
from glue.cli.agentfile import open_agent
from glue.context import Cancel, Context, Host, Spending, ToolResult
from glue.errors import ConfigError
from glue.function.decorator import Tool
from glue.messages import File, Image, Text, ToolCall
from glue.permission import AllowAll
from glue.testing import Script, call, calls
from glue.tools import mcp
from glue.tools.mcp.connection import prefixed, tool_result

pytest.importorskip("mcp", reason="the extra [mcp] is not installed")

SERVER = """
import os
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("demo")

@server.tool()
def add(a: int, b: int) -> int:
    '''Add two numbers.'''
    return a + b

@server.tool()
def boom() -> str:
    '''Fail.'''
    raise ToolError("it broke")

@server.tool()
def picture() -> Image:
    '''Draw.'''
    return Image(data=b"png", format="png")

@server.tool()
async def slow(context: Context) -> str:
    '''Report progress.'''
    await context.report_progress(1, 2, "half")
    return "done"

@server.tool()
def place() -> str:
    '''Say where it runs.'''
    return f"{os.getcwd()} {os.environ.get('COLOUR')} {os.environ.get('SOME_SECRET')}"

@server.tool()
async def more(context: Context) -> str:
    '''Add a tool.'''
    server.add_tool(lambda: "late", name="late", description="Came later.")
    await context.notify_tools_changed()
    return "added"
"""
# A server of the older protocol, in a few lines: the handshake, a list that changes, and an error.
OLD = """
import json, sys
names = ["first", "echo", "hang", "die"]
def send(**frame):
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked["method"], asked.get("id")
    if method == "initialize":
        info = {"name": "old", "version": "1"}
        send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
                                "serverInfo": info})
    elif method == "tools/list":
        page = asked.get("params", {}).get("cursor")
        shown = names[4:] if page else names[:4]
        tools = [{"name": name, "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}}
                 for name in shown]
        more = {} if page or len(names) == 4 else {"nextCursor": "2"}
        send(id=number, result={"tools": tools, **more})
    elif method == "tools/call" and asked["params"]["name"] == "die":
        sys.exit(3)
    elif method == "tools/call" and asked["params"]["name"] == "hang":
        pass
    elif method == "tools/call" and asked["params"]["name"] == "echo":
        send(id=number, result={"content": [{"type": "text", "text": "fine"}]})
    elif method == "tools/call" and asked["params"]["name"] == "first":
        names.append("second")
        send(method="notifications/tools/list_changed")
        send(id=number, result={"content": [{"type": "text", "text": asked["params"]["arguments"].get("x", "")}]})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"no {method} here"})
"""


@pytest.fixture
def server(tmp_path: Path) -> Callable[..., Any]:
    """Connect to a server in a process of its own, given as source."""

    def start(source: str, **options: Any) -> Any:
        (tmp_path / "server.py").write_text(source)
        return mcp.connect_stdio("demo", sys.executable, [str(tmp_path / "server.py")], **options)

    return start


@contextmanager
def sdk_server(transport: str = "streamable_http") -> Iterator[str]:
    """Run the SDK's own server over HTTP in a thread: a process would spend a second on imports."""
    import uvicorn

    def make() -> Any:
        names: dict[str, Any] = {}
        exec(SERVER, names)
        return getattr(names["server"], f"{transport}_app")()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(make, factory=True, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/{'sse' if transport == 'sse' else 'mcp'}"
        server.should_exit = server.force_exit = True
        thread.join(10)


async def use(
    connection: mcp.ServerConnection, name: str, seen: list[Any] | None = None, **arguments: Any
) -> ToolResult:
    tool = next(each for each in connection.tools if each.name == f"demo__{name}")
    return await invoke(tool, arguments, seen)


async def invoke(tool: Tool[..., Any], arguments: Mapping[str, Any], seen: list[Any] | None = None) -> ToolResult:
    asked = ToolCall(id="1", name=tool.name, arguments=json.dumps(arguments))
    report = (seen if seen is not None else []).append
    context: Context[Any] = Context(
        call=asked,
        host=Host(permission=AllowAll()),
        cancel=Cancel(),
        spending=Spending(),
        report=lambda text, data, event: report((text, data)),
    )
    return await tool.invoke(asked, context)


# A client of servers ------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio minds that the SDK leaves its streams unread
async def test_tools_of_a_server_keep_their_schemas_and_map_their_results() -> None:
    seen: list[Any] = []

    with sdk_server() as url:
        async with mcp.connect_http("demo", url) as connection:
            add = connection.tools[0]
            assert (add.name, add.spec.description) == ("demo__add", "Add two numbers.")
            assert add.spec.parameters["properties"]["a"]["type"] == "integer"
            assert all(tool.needs_permission for tool in connection.tools)
            three = await use(connection, "add", a=1, b=2)
            wrong = await use(connection, "add", a="x", b=2)
            broken = await use(connection, "boom")
            drawn = await use(connection, "picture")
            slow = await use(connection, "slow", seen)

    assert (three.text, three.meta) == ("3", {"structured": {"result": 3}})
    assert wrong.is_error
    assert broken.is_error
    assert "it broke" in broken.text
    assert drawn.content == (Image(media_type="image/png", data=b"png"),)
    assert slow.text == "done"
    assert seen == [("half", {"progress": 1.0, "total": 2.0})]


async def test_a_tool_of_a_server_is_asked_for_like_any_other(server: Callable[..., Any]) -> None:
    async with server(OLD) as connection:
        script = Script(calls(call("demo__echo", {"x": "y"})), "end")
        result = await glue.Agent(script, tools=connection.tools).run("go")

    assert 'permission denied: demo__echo {"x": "y"}' in result.messages[2].text


async def test_a_crash_is_an_error_result_and_restarts_back_off(
    server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with server(OLD, backoff=(0.0, 0.01)) as connection:
        crashed = await use(connection, "die")
        again = await use(connection, "echo")
        await use(connection, "die")
        last = await use(connection, "die")
        gone = await use(connection, "echo")

    assert crashed.is_error
    assert "started again" in crashed.text
    assert again.text == "fine"
    assert "restarted 2 times before" in last.text
    assert gone.text == "the MCP server demo has ended, and was restarted 2 times before"
    assert "started again in 0.01 seconds (2)" in caplog.text
    assert "given up" in caplog.text


@pytest.mark.parametrize("code", [-32000, -32001])
async def test_an_error_answer_is_no_lost_connection_whatever_its_code(server: Callable[..., Any], code: int) -> None:
    source = OLD.replace(
        'result={"content": [{"type": "text", "text": "fine"}]}', f'error={{"code": {code}, "message": "busy"}}'
    )
    async with server(source) as connection:
        before = connection._client
        said = await use(connection, "echo")
        same = connection._client is before

    assert said.text == "demo said: busy"
    assert same


async def test_a_list_that_fails_later_leaves_the_tools(server: Callable[..., Any]) -> None:
    source = OLD.replace(
        'elif method == "tools/list":',
        'elif method == "tools/list" and len(names) == 4 or method == "tools/list" and 0:',
    )
    async with server(source) as connection:
        await use(connection, "first", x="hello")  # says that the list has changed, and then cannot list
        still = await use(connection, "echo")
        names = len(connection.tools)

    assert (still.text, names) == ("fine", 4)


async def test_a_list_that_is_none_restarts_the_server_and_a_call_waits_for_it(server: Callable[..., Any]) -> None:
    source = OLD.replace('"tools": tools, **more', '"tools": tools if len(names) == 4 else 7, **more')
    async with server(source) as connection:
        before = connection._client
        await use(connection, "first", x="hello")  # says that the list has changed, and then lists nonsense
        with anyio.fail_after(30):
            while connection._client is before:
                await anyio.lowlevel.checkpoint()
        again = await use(connection, "echo")

    assert again.text == "fine"


async def test_a_tool_with_a_broken_schema_is_left_out_and_long_descriptions_are_cut(
    server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    source = OLD.replace(
        "for name in shown]",
        'for name in shown] + [{"name": "bad", "inputSchema": {"type": "object", "properties": {"x": {"type": 7}}}},'
        ' {"name": "long", "description": "y" * 9000, "inputSchema": {"type": "object"}}]',
    )
    async with server(source) as connection:
        tools = {tool.name: tool for tool in connection.tools}

    assert "demo__bad" not in tools
    assert len(tools["demo__long"].spec.description) == 2_000
    assert "the tool bad of MCP server demo is left out" in caplog.text


async def test_noise_on_a_servers_stdout_is_one_debug_line(
    server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "glue.mcp")
    async with server("print('starting up ...', flush=True)\n" + OLD) as connection:
        said = await use(connection, "echo")

    assert said.text == "fine"
    noise = [record for record in caplog.records if "no message" in record.message]
    assert [record.levelname for record in noise] == ["DEBUG"]
    assert "Traceback" not in caplog.text


RICH = """
import json, sys
def send(**frame):
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)
waiting = None
for line in sys.stdin:
    asked = json.loads(line)
    method, number, params = asked.get("method"), asked.get("id"), asked.get("params", {})
    if method == "initialize":
        send(id=number, result={"protocolVersion": "2025-06-18", "serverInfo": {"name": "rich", "version": "1"},
                                "capabilities": {"tools": {}, "resources": {}, "prompts": {}}})
    elif method == "tools/list":
        send(id=number, result={"tools": [{"name": "ask", "inputSchema": {"type": "object"}},
                                          {"name": "roots", "inputSchema": {"type": "object"}}]})
    elif method == "resources/list":
        send(id=number, result={"resources": [{"uri": "note://1", "name": "one"}]})
    elif method == "resources/read":
        send(id=number, result={"contents": [{"uri": params["uri"], "text": "the note"}]})
    elif method == "prompts/list":
        send(id=number, result={"prompts": [{"name": "greet", "description": "Greet someone.",
                                             "arguments": [{"name": "who"}, {"name": "how"}]}]})
    elif method == "prompts/get":
        text = "Greet " + json.dumps(params["arguments"])
        send(id=number, result={"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
    elif method == "tools/call":
        waiting = number
        schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
        if params["name"] == "ask":
            send(id="q", method="elicitation/create", params={"message": "Really?", "requestedSchema": schema})
        else:
            send(id="q", method="roots/list")
    elif number == "q":
        send(id=waiting, result={"content": [{"type": "text", "text": json.dumps(asked["result"])}]})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"no {method} here"})
"""


async def test_resources_are_tools_and_prompts_are_commands(server: Callable[..., Any]) -> None:
    async with server(RICH) as connection:
        names = [tool.name for tool in connection.tools]
        listed = await use(connection, "list_resources")
        read = await use(connection, "read_resource", uri="note://1")
        prompts = mcp.Servers([connection]).prompts
        said = await mcp.Servers([connection]).prompt("/demo:greet Ada very warmly")
        same = await mcp.Servers([connection]).prompt("/demo:nothing at all")

    assert names == ["demo__ask", "demo__roots", "demo__list_resources", "demo__read_resource"]
    assert listed.text == "note://1  one"
    assert "the note" in read.text
    assert prompts["demo:greet"].hint == "<who> <how>"
    assert said[0].text == 'Greet {"who": "Ada", "how": "very warmly"}'
    assert same == "/demo:nothing at all"


async def test_a_question_of_a_server_is_one_of_permission(server: Callable[..., Any]) -> None:
    asked: list[tuple[str, str]] = []

    class Policy:
        def decide(self, request: glue.PermissionRequest) -> glue.Decision:
            asked.append((request.action, request.target))
            return glue.allow() if len(asked) < 3 else glue.deny("no")

    async with server(RICH) as connection:
        tool = connection.tools[0]
        script = Script(calls(call("demo__ask")), calls(call("demo__ask")), lambda request: request.messages[-1].text)
        result = await glue.Agent(script, tools=[tool], permission=Policy()).run("go")

    assert asked[1] == ("demo__elicitation", "Really?")
    assert '"accept"' in result.messages[2].text
    assert '"sure": true' in result.messages[2].text
    assert "permission denied" in result.messages[4].text


async def test_a_yes_to_a_servers_question_covers_no_other_run(server: Callable[..., Any]) -> None:
    asked: list[str] = []

    async def answer(request: glue.PermissionRequest) -> glue.Decision:
        asked.append(request.action)
        return glue.allow("session")

    policy = glue.Ask(answer)
    async with server(RICH) as connection:
        for _ in range(2):
            script = Script(calls(call("demo__ask")), calls(call("demo__ask")), "done")
            await glue.Agent(script, tools=[connection.tools[0]], permission=policy).run("go")

    assert asked == ["demo__ask", "demo__elicitation"] * 2


async def test_a_question_of_a_server_is_put_to_a_person_and_roots_are_told(
    server: Callable[..., Any], tmp_path: Path
) -> None:
    async def elicit(name: str, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        return {"sure": False} if name == "demo" else None

    async with server(RICH, elicit=elicit, roots=[tmp_path]) as connection:
        answered = await use(connection, "ask")
        roots = await use(connection, "roots")

    assert json.loads(answered.text) == {"action": "accept", "content": {"sure": False}}
    assert json.loads(roots.text)["roots"][0]["uri"] == tmp_path.resolve().as_uri()


async def test_a_call_that_hangs_times_out_and_the_server_stays(server: Callable[..., Any]) -> None:
    async with server(OLD) as connection:
        connection.timeout = 0.2
        late = await use(connection, "hang")
        connection.timeout = 60
        still = await use(connection, "echo")

    assert late.text == "hang of demo did not answer within 0.2 seconds"
    assert still.text == "fine"


async def test_a_call_can_be_cancelled(server: Callable[..., Any]) -> None:
    async with server(OLD) as connection:
        with anyio.move_on_after(0.2) as scope:
            await use(connection, "hang")
        still = await use(connection, "echo")

    assert scope.cancelled_caught
    assert still.text == "fine"


@pytest.mark.parametrize("newer", [True, False], ids=["newer", "older"])
async def test_changes_of_the_list_are_followed(server: Callable[..., Any], newer: bool) -> None:
    changed = anyio.Event()
    told: dict[str, Any] = {"on_change": lambda connection: changed.set()}

    with sdk_server() if newer else nullcontext("") as url:
        async with mcp.connect_http("demo", url, **told) if newer else server(OLD, **told) as connection:
            before = len(connection.tools)
            await use(connection, "more" if newer else "first")
            with anyio.fail_after(30):
                await changed.wait()
            names = [tool.name for tool in connection.tools]

    assert len(names) == before + 1
    assert names[-1] == ("demo__late" if newer else "demo__second")


async def test_an_older_server_and_its_errors(server: Callable[..., Any]) -> None:
    async with server(OLD) as connection:
        said = await use(connection, "first", x="hello")
        connection.tools = (connection._tool("demo__ghost", {"name": "ghost"}),)
        ghost = await use(connection, "ghost")

    assert said.text == "hello"
    assert (ghost.is_error, ghost.text) == (True, "demo said: no tools/call here")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # once is enough: it starts slowly
async def test_only_what_is_given_is_in_the_environment(
    server: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", "hidden")

    async with server(SERVER + "\nserver.run()\n", env={"COLOUR": "red"}, cwd=tmp_path) as connection:
        where = await use(connection, "place")

    assert where.text == f"{tmp_path} red None"


async def test_an_error_in_the_block_is_raised_as_it_is(server: Callable[..., Any]) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with server(OLD):
            raise KeyError("mine")


async def test_servers_that_cannot_be_started_are_named(tmp_path: Path, server: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="'x': there is no command '/no/such/program'"):
        async with mcp.connect_stdio("x", "/no/such/program"):
            pass
    with pytest.raises(ConfigError, match=r"'demo' .* could not be connected"):
        async with server("print('hello')"):
            pass
    with pytest.raises(ConfigError, match=r"'web' .* could not be connected"):
        async with mcp.connect_http("web", "http://127.0.0.1:9/mcp"):
            pass


async def test_several_servers_from_the_usual_file(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD)
    servers = {name: {"command": sys.executable, "args": [str(tmp_path / "old.py")]} for name in ("one", "two")}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {**servers, "off": {"disabled": True}}}))

    async with mcp.connect(tmp_path / "mcp.json") as connected:
        names = [tool.name for tool in connected.tools]
        said = await invoke(connected.tools[4], {"x": "hi"})

    assert (names[0], names[4]) == ("one__first", "two__first")
    assert said.text == "hi"


@pytest.mark.parametrize("transport", ["streamable_http", "sse"])
async def test_a_server_over_http(transport: str) -> None:
    with sdk_server(transport) as url:
        config = mcp.ServerConfig(name="demo", url=url, headers={"x-test": "1"}, sse=transport == "sse")
        async with mcp.connect([config]) as servers:
            result = await use(servers.connections[0], "add", a=1, b=2)

    assert result.text == "3"


class HttpServer(BaseHTTPRequestHandler):
    """A streamable HTTP server of the older protocol, whose sessions can be forgotten."""

    sessions: ClassVar[set[str]] = set()
    made: ClassVar[list[str]] = []
    status: ClassVar[int] = 0

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = self.headers.get("mcp-session-id", "")
        method, headers = asked.get("method"), {}
        result: dict[str, Any] = {"content": [{"type": "text", "text": f"in {session}"}]}
        if self.status:
            return self.answer(self.status, b"", {})
        if method == "initialize":
            self.made.append(f"s{len(self.made)}")
            self.sessions.add(self.made[-1])
            headers = {"mcp-session-id": self.made[-1]}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            result["serverInfo"] = {"name": "web", "version": "1"}
        elif method not in ("tools/list", "tools/call", "notifications/initialized"):
            return self.answer(400, b"", {})
        elif session not in self.sessions:
            return self.answer(404, b"", {})
        elif method == "tools/list":
            result = {"tools": [{"name": "where", "inputSchema": {"type": "object"}}]}
        if "id" not in asked:
            return self.answer(202, b"", {})
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        return self.answer(200, body, headers)

    def do_GET(self) -> None:
        self.answer(405, b"", {})

    do_DELETE = do_GET

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    HttpServer.sessions, HttpServer.made, HttpServer.status = set(), [], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), HttpServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


async def test_a_session_that_the_server_forgot_is_made_anew_and_the_call_done(web: str) -> None:
    async with mcp.connect_http("demo", web, backoff=(0.0,)) as connection:
        first = await use(connection, "where")
        HttpServer.sessions.clear()
        second = await use(connection, "where")

    assert (first.text, second.text) == (f"in {HttpServer.made[-2]}", f"in {HttpServer.made[-1]}")


async def test_a_401_says_so_and_what_to_set(web: str) -> None:
    HttpServer.status = 401

    with pytest.raises(ConfigError, match=r"HTTP 401, .*Authorization.*oauth"):
        async with mcp.connect_http("demo", web):
            pass


def test_an_older_sdk_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    from glue.tools.mcp.transport import load_sdk

    monkeypatch.setitem(sys.modules, "mcp", types.ModuleType("mcp"))

    with pytest.raises(ConfigError, match="need mcp>=2"):
        load_sdk()


async def test_tokens_are_kept_for_the_user_alone(tmp_path: Path) -> None:
    from mcp.shared.auth import OAuthToken

    from glue.tools.mcp.transport import TokenFile

    path = tmp_path / "state" / "tokens.json"
    await TokenFile(path).set_tokens(OAuthToken(access_token="secret"))

    again = await TokenFile(path).get_tokens()
    assert again is not None
    assert again.access_token == "secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert await TokenFile(path).get_client_info() is None


class SignIn(HttpServer):
    """The same behind a sign-in: metadata, registration, authorization and token of one server."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        base = f"http://{self.headers['host']}"
        path, _, query = self.path.partition("?")
        self.seen.append(path)
        if path.startswith("/.well-known/oauth-protected-resource"):
            return self.reply({"resource": f"{base}/mcp", "authorization_servers": [base]})
        if path.startswith("/.well-known/oauth-authorization-server"):
            ends = {
                "authorization_endpoint": "authorize",
                "token_endpoint": "token",
                "registration_endpoint": "register",
            }
            more = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
            return self.reply({"issuer": base, **more, **{name: f"{base}/{end}" for name, end in ends.items()}})
        if path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(query).items()}
            self.send_response(302)
            self.send_header("location", f"{asked['redirect_uri']}?code=c0de&state={asked['state']}")
            self.end_headers()
            return None
        return self.answer(404 if "well-known" in path else 405, b"", {})

    def do_POST(self) -> None:
        self.seen.append(self.path)
        if self.path == "/register":
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            return self.reply({**asked, "client_id": "glue-1"}, 201)
        if self.path == "/token":
            assert b"code=c0de" in self.rfile.read(int(self.headers["content-length"]))
            return self.reply({"access_token": "t0ken", "token_type": "Bearer", "expires_in": 3600})
        if self.headers.get("authorization") != "Bearer t0ken":
            self.rfile.read(int(self.headers["content-length"]))
            return self.answer(401, b"", {"www-authenticate": "Bearer"})
        return super().do_POST()

    def reply(self, body: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(body).encode(), {})


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_signing_in_through_the_browser_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import urllib.request
    import webbrowser

    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        threading.Thread(target=lambda: urllib.request.urlopen(url, timeout=30).close(), daemon=True).start()
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    HttpServer.sessions, HttpServer.made, HttpServer.status = set(), [], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        texts = []
        for _ in range(2):
            async with mcp.connect_http("demo", url, oauth=True) as connection:
                texts.append((await use(connection, "where")).text)
        server.shutdown()

    assert len(opened) == 1  # the second time the token was there
    assert all(text.startswith("in s") for text in texts)
    (kept,) = (tmp_path / "glue" / "mcp").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["tokens"]["access_token"] == "t0ken"


# Pure parts ---------------------------------------------------------------------------------------


def test_results_of_every_kind() -> None:
    data = base64.b64encode(b"bytes").decode()
    content = [
        {"type": "text", "text": "plain"},
        {"type": "image", "data": data, "mimeType": "image/jpeg"},
        {"type": "image", "data": "no base64!", "mimeType": "image/jpeg"},
        {"type": "audio", "data": data, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": data, "mimeType": "application/pdf"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": data}},
        {"type": "resource_link", "uri": "file:///d", "name": "d"},
    ]

    result = tool_result({"content": content, "structuredContent": {"a": 1}})

    assert result.content[1] == Image(media_type="image/jpeg", data=b"bytes")
    assert result.content[5] == File(media_type="application/pdf", data=b"bytes", name="file:///b")
    assert [part.text for part in result.content if isinstance(part, Text)] == [
        "plain",
        "[an image that is no base64]",
        "[audio audio/wav that cannot be shown]",
        '<resource uri="file:///a">\ninside\n</resource>',
        "[file:///c: 5 bytes of an unknown type]",
        "[d](file:///d)",
        '{"a": 1}',
    ]
    assert tool_result({}).text == "(nothing)"
    assert (
        tool_result({"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}).text
        == '{"a": 1}'
    )
    assert tool_result({"content": [], "isError": True}).is_error


def test_names_suit_every_provider() -> None:
    long = "x" * 80

    made = prefixed("my server", ["a.b", "a b", "ok", long, long + "y"])

    assert list(made.values()) == ["a.b", "a b", "ok", long, long + "y"]
    assert len(made) == 5
    assert "my_server__ok" in made
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in made)
    assert list(prefixed("7", ["x"])) == ["_7__x"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, 'has no "mcpServers"'),
        ({"mcpServers": []}, 'has no "mcpServers"'),
        ({"mcpServers": {"a": 7}}, "must be an object"),
        ({"mcpServers": {"a": {}}}, "needs either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "url": "y"}}}, "needs either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "args": "-v"}}}, "args must be a list"),
        ({"mcpServers": {"a": {"command": 7}}}, "a text was expected"),
        ({"mcpServers": {"a": {"url": "x", "headers": {"k": "${NO_SUCH}"}}}}, "needs the variable NO_SUCH"),
    ],
)
def test_a_wrong_configuration_is_said_in_one_line(content: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        mcp.read_config(content, {})


def test_variables_stand_in_a_configuration_and_tokens_in_no_repr() -> None:
    given = {"url": "${BASE:-https://mcp.example}/x", "headers": {"Authorization": "Bearer ${TOKEN}"}}

    (config,) = mcp.read_config({"mcpServers": {"a": given}}, {"TOKEN": "hush"})

    assert (config.url, config.headers) == ("https://mcp.example/x", {"Authorization": "Bearer hush"})
    assert "hush" not in repr(config)


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")

    with pytest.raises(ConfigError, match=r"a\.json is no JSON"):
        mcp.read_config(tmp_path / "a.json")
    with pytest.raises(ConfigError, match=r"b\.json could not be read: No such file"):
        mcp.read_config(tmp_path / "b.json")


async def test_names_must_differ() -> None:
    with pytest.raises(ConfigError, match="'a' is there twice"):
        async with mcp.connect([mcp.ServerConfig(name="a", command="x")] * 2):
            pass


# `glue mcp`, driven by the SDK's client -----------------------------------------------------------

AGENT = """
import glue
from glue.testing import Script, call, calls
from glue import Image

print("noise on standard output")

@glue.tool
def add(a: int, b: int) -> int:
    '''Add two numbers.'''
    return a + b

@glue.tool
def look(context: glue.Context) -> Image:
    '''Draw.'''
    context.progress("drawing")
    return Image(media_type="image/png", data=b"png")

@glue.tool(needs_permission=True)
def danger(what: str) -> str:
    '''Do something dangerous.'''
    return f"did {what}"

agent = glue.Agent(Script(calls(call("add", {"a": 1, "b": 2})), "the sum is 3"), tools=[add, look, danger])
"""


MAIN = [sys.executable, "-c", "from glue.cli.app import main; main()"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # of the SDK's client alone
async def test_an_agent_is_served_to_the_sdk(tmp_path: Path) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    told: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    (tmp_path / "adder.py").write_text(AGENT)
    command = StdioServerParameters(command=MAIN[0], args=[*MAIN[1:], "mcp", str(tmp_path / "adder.py")])
    with (tmp_path / "stderr").open("w") as errors:
        async with Client(stdio_client(command, errlog=errors)) as client:
            schema = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            results: list[Any] = [
                await client.call_tool("add", {"a": 1, "b": 2}),
                await client.call_tool("add", {"a": "one", "b": 2}),
                await client.call_tool("look", {}, progress_callback=progress),
                await client.call_tool("danger", {"what": "x"}),
                await client.call_tool("nobody", {}),
                await client.call_tool("adder", {"prompt": "add 1 and 2"}),
            ]

    assert list(schema) == ["add", "look", "danger", "adder"]
    assert schema["add"]["required"] == ["a", "b"]
    assert [result.is_error for result in results] == [False, True, False, True, True, False]
    added, _, drawn, denied, unknown, answered = [result.content[0] for result in results]
    assert added.text == "3"
    assert (drawn.mime_type, base64.b64decode(drawn.data)) == ("image/png", b"png")
    assert "--allow NAME" in denied.text
    assert unknown.text == "unknown tool 'nobody'; there are: add, adder, danger, look"
    assert answered.text == "the sum is 3"
    assert told == [(1.0, "drawing")]
    assert "noise on standard output" in (tmp_path / "stderr").read_text()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # of the SDK's client alone
async def test_a_deny_of_the_settings_goes_before_an_allow_of_the_command(tmp_path: Path) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    (tmp_path / "adder.py").write_text(AGENT)
    args = [*MAIN[1:], "mcp", str(tmp_path / "adder.py"), "--allow", "danger"]
    command = StdioServerParameters(command=MAIN[0], args=args, env={**os.environ, "GLUE_DENY": "danger"})

    with (tmp_path / "stderr").open("w") as errors:
        async with Client(stdio_client(command, errlog=errors)) as client:
            denied: Any = await client.call_tool("danger", {"what": "x"})

    assert denied.is_error
    assert "the rule 'danger' forbids it" in denied.content[0].text


SHAPED = """
import glue
from dataclasses import dataclass
from glue.testing import Script

@dataclass
class Weather:
    city: str
    degrees: int

@glue.tool
def weather(city: str) -> Weather:
    '''Say what the weather is.'''
    return Weather(city, 21)

@glue.tool(needs_permission=True)
def danger() -> str:
    '''Do something dangerous.'''
    return "done"

agent = glue.Agent(Script('{"city": "Oslo", "degrees": 3}'), tools=[weather, danger], output=Weather,
                   instructions="Be brief.", name="forecast")
"""


async def test_served_tools_have_output_schemas_annotations_and_a_resource(tmp_path: Path) -> None:
    from mcp import Client, MCPError

    from glue.tools.mcp.server import make_server, offered, policy

    (tmp_path / "agent.py").write_text(SHAPED)
    agent = open_agent(str(tmp_path / "agent.py"))
    async with Client(make_server(agent, offered(agent, "agent"), policy(agent, ()))) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("weather", {"city": "Oslo"})
        (resource,) = (await client.list_resources()).resources
        read = (await client.read_resource(resource.uri)).contents[0]
        with pytest.raises(MCPError, match="there is no resource"):
            await client.read_resource("glue://nothing")

    assert tools["weather"].output_schema is not None
    assert set(tools["weather"].output_schema["properties"]) == {"city", "degrees"}
    assert result.structured_content == {"city": "Oslo", "degrees": 21}
    assert tools["danger"].output_schema is None
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert getattr(hints["weather"], "read_only_hint", None) is True
    assert getattr(hints["danger"], "destructive_hint", None) is True
    assert getattr(read, "text", None) == "Be brief."


TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the agent over HTTP: with a tool that is allowed, and without the agent itself."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "adder.py").write_text(AGENT)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*MAIN, "mcp", "adder.py", "--http", str(port), "--allow", "danger", "--only-tools"]
    process = subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "GLUE_MCP_TOKEN": TOKEN}
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


async def test_an_agent_is_served_over_http_to_who_has_the_token(served: str) -> None:
    async with mcp.connect_http("demo", served, HEADERS) as connection:
        result = await use(connection, "add", a=1, b=2)
    with pytest.raises(ConfigError, match="HTTP 401"):
        async with mcp.connect_http("demo", served, {"Authorization": "Bearer wrong"}):
            pass

    assert result.text == "3"


async def test_what_is_allowed_on_the_command_line_runs(served: str) -> None:
    async with mcp.connect_http("demo", served, HEADERS) as connection:
        result = await use(connection, "danger", what="x")

    assert [tool.name for tool in connection.tools] == ["demo__add", "demo__look", "demo__danger"]
    assert result.text == "did x"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as above
async def test_our_own_client_on_our_own_server(served: str) -> None:
    async with mcp.connect_http("demo", served, HEADERS) as connection:
        seen: list[Any] = []
        drawn = await use(connection, "look", seen)

    assert drawn.content == (Image(media_type="image/png", data=b"png"),)
    assert seen == [("drawing", {"progress": 1.0, "total": None})]


def test_serving_over_http_without_a_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adder.py").write_text(AGENT)
    environ = {name: value for name, value in os.environ.items() if name != "GLUE_MCP_TOKEN"}
    wanted = {"8000": "needs a token", "x": "takes a port", "99999": "takes a port"}

    started = {
        port: subprocess.Popen(
            [*MAIN, "mcp", "adder.py", "--http", port], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environ
        )
        for port in wanted
    }

    for port, process in started.items():
        said = process.communicate(timeout=60)[1]
        assert (process.returncode, wanted[port] in said) == (2, True), said


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "adder.py").write_text(AGENT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*MAIN, "mcp", "adder.py", "--http", str(taken.getsockname()[1])]
        environ = {**os.environ, "GLUE_MCP_TOKEN": TOKEN}
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environ, timeout=60)

    assert ran.returncode == 2
    assert ran.stderr.startswith("noise on standard output\nglue: --http ")  # the file's own noise, and one line
    assert (ran.stderr.count("\n"), "Address already in use" in ran.stderr) == (2, True)


# `glue run --mcp` ---------------------------------------------------------------------------------


def test_a_run_from_the_command_line_has_the_tools_of_the_servers(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD)
    config = {"mcpServers": {"demo": {"command": sys.executable, "args": [str(tmp_path / "old.py")]}}}
    (tmp_path / "mcp.json").write_text(json.dumps(config))
    (tmp_path / "agent.py").write_text(
        "import glue\nfrom glue.testing import Script, call, calls\n"
        "script = Script(calls(call('demo__first', {'x': 'from the server'})), lambda r: r.messages[-1].text)\n"
        "agent = glue.Agent(script)\n"
    )
    command = [*MAIN, "run", "agent.py", "go"]

    done = subprocess.run(
        [*command, "--mcp", "mcp.json", "--yes"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    missing = subprocess.run([*command, "--mcp", "no.json"], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (0, "from the server\n"), done.stderr
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.strip() == "glue: no.json could not be read: No such file or directory"


# The reference servers, from npm ------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node or npm is missing")
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text('{"private": true}')
    names = ("server-everything", "server-filesystem", "server-memory", "server-sequential-thinking", "inspector")
    packages = [f"@modelcontextprotocol/{name}" for name in names]
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", *packages], cwd=folder, capture_output=True, timeout=300
    )
    if done.returncode:
        pytest.skip(f"npm could not fetch the servers: {done.stderr.decode()[-200:]}")
    return folder / "node_modules" / ".bin"


@pytest.mark.soak
async def test_the_reference_server_everything(reference: Path) -> None:
    seen: list[Any] = []

    async with mcp.connect_stdio("demo", str(reference / "mcp-server-everything")) as connection:
        names = {tool.name for tool in connection.tools}
        said = await use(connection, "echo", message="hello")
        wrong = await use(connection, "echo")
        drawn = await use(connection, "get-tiny-image")
        long = await use(connection, "trigger-long-running-operation", seen, duration=1, steps=2)
        weather = await use(connection, "get-structured-content", location="Chicago")

    assert "demo__get-tiny-image" in names
    assert "hello" in said.text
    assert wrong.is_error
    assert any(isinstance(part, Image) for part in drawn.content)
    assert not long.is_error
    assert [data["progress"] for _, data in seen] == [1, 2]
    assert "temperature" in (weather.meta or {})["structured"]


@pytest.mark.soak
async def test_the_reference_server_filesystem(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("inside")

    async with mcp.connect_stdio("demo", str(reference / "mcp-server-filesystem"), [str(tmp_path)]) as connection:
        read = await use(connection, "read_text_file", path=str(tmp_path / "a.txt"))
        outside = await use(connection, "read_text_file", path="/etc/hostname")

    assert read.text == "inside"
    assert outside.is_error


@pytest.mark.soak
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_reference_servers_memory_and_sequential_thinking(reference: Path, tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    thought: dict[str, Any] = {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}

    async with mcp.connect_stdio("demo", str(reference / "mcp-server-memory"), env=memory) as connection:
        await use(connection, "create_entities", entities=[entity])
        found = await use(connection, "search_nodes", query="Ada")
    async with mcp.connect_stdio("demo", str(reference / "mcp-server-sequential-thinking")) as connection:
        thinking = await use(connection, "sequentialthinking", **thought)

    assert "first program" in found.text
    assert not thinking.is_error


@pytest.fixture(scope="module")
def python_servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference servers in Python need an older SDK: an environment of their own."""
    folder = tmp_path_factory.mktemp("servers")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    packages = ["mcp-server-git", "mcp-server-time", "mcp-server-fetch"]
    done = subprocess.run([folder / "bin/pip", "install", "-q", *packages], capture_output=True, timeout=600)
    if done.returncode:
        pytest.skip(f"pip could not fetch the servers: {done.stderr.decode()[-200:]}")
    return folder / "bin"


@pytest.mark.soak
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_reference_servers_git_time_and_fetch(python_servers: Path, tmp_path: Path, web: str) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path)], check=True)

    async with mcp.connect_stdio("demo", str(python_servers / "mcp-server-git")) as connection:
        status = await use(connection, "git_status", repo_path=str(tmp_path))
    async with mcp.connect_stdio("demo", str(python_servers / "mcp-server-time")) as connection:
        now = await use(connection, "get_current_time", timezone="Europe/Oslo")
    fetch = str(python_servers / "mcp-server-fetch")
    async with mcp.connect_stdio("demo", fetch, ["--ignore-robots-txt", "--allow-private-ips"]) as connection:
        fetched = await use(connection, "fetch", url=web)
        prompts = mcp.Servers([connection]).prompts

    assert "main" in status.text
    assert "Europe/Oslo" in now.text
    assert "405" in fetched.text
    assert list(prompts) == ["demo:fetch"]


@pytest.mark.soak
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_inspector_finds_its_way_in_our_server(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(SHAPED)
    server = [*MAIN, "mcp", str(tmp_path / "agent.py")]
    inspector = [str(reference / "mcp-inspector"), "--cli", *server]

    def ask(*words: str) -> Any:
        done = subprocess.run([*inspector, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    tools = ask("--method", "tools/list")["tools"]
    called = ask("--method", "tools/call", "--tool-name", "weather", "--tool-arg", "city=Oslo")
    resources = ask("--method", "resources/list")["resources"]

    assert [tool["name"] for tool in tools] == ["weather", "danger", "forecast"]
    assert called["structuredContent"] == {"city": "Oslo", "degrees": 21}
    assert resources[0]["uri"] == "glue://agent/instructions"

"""MCP servers for tests, as source of programs or as classes, and functions that call tools."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

from glue.context import Cancel, Context, Host, Spending, ToolResult
from glue.function.decorator import Tool
from glue.messages import ToolCall
from glue.permission import AllowAll
from glue.tools import mcp

MAIN = [sys.executable, "-c", "from glue.cli.app import main; main()"]

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
    '''Return the folder and two variables.'''
    return f"{os.getcwd()} {os.environ.get('COLOUR')} {os.environ.get('SOME_SECRET')}"

@server.tool()
async def more(context: Context) -> str:
    '''Add a tool.'''
    server.add_tool(lambda: "late", name="late", description="Came later.")
    await context.notify_tools_changed()
    return "added"
"""
# A small server of the older protocol. Its tool `first` adds a tool to the list, `die` ends the
# server, and `hang` never answers.
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
        able = {"tools": {"listChanged": True}}
        send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": able,
                                "serverInfo": info})
    elif method == "tools/list":
        page = asked.get("params", {}).get("cursor")
        shown = names[4:] if page else names[:4]
        schema = {"type": "object", "properties": {"x": {"type": "string"}}}
        tools = [{"name": name, "inputSchema": schema} for name in shown]
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
        text = asked["params"]["arguments"].get("x", "")
        send(id=number, result={"content": [{"type": "text", "text": text}]})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"no {method} here"})
"""
# A server with tools that ask the client for an answer or its roots, a resource and a prompt.
RICH = """
import json, sys
def send(**frame):
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)
waiting = None
for line in sys.stdin:
    asked = json.loads(line)
    method, number, params = asked.get("method"), asked.get("id"), asked.get("params", {})
    if method == "initialize":
        send(id=number, result={"protocolVersion": "2025-06-18",
                                "serverInfo": {"name": "rich", "version": "1"},
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
        content = {"type": "text", "text": text}
        send(id=number, result={"messages": [{"role": "user", "content": content}]})
    elif method == "tools/call":
        waiting = number
        fields = {"sure": {"type": "boolean"}}
        schema = {"type": "object", "properties": fields, "required": ["sure"]}
        if params["name"] == "ask":
            question = {"message": "Really?", "requestedSchema": schema}
            send(id="q", method="elicitation/create", params=question)
        else:
            send(id="q", method="roots/list")
    elif number == "q":
        text = json.dumps(asked["result"])
        send(id=waiting, result={"content": [{"type": "text", "text": text}]})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"no {method} here"})
"""
# A server whose tools, questions and faults are given as JSON in its first argument. The tool
# `page` asks to open a page, `need` fails until a page was opened, `think` asks for the model.
SCRIPTED = """
import json, sys
given = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
print(given.get("stderr", ""), file=sys.stderr, flush=True)
def send(**frame):
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)
def say(number, text):
    send(id=number, result={"content": [{"type": "text", "text": text}]})
waiting, done = None, False
page = {"mode": "url", "message": "Sign in.", "elicitationId": "p1",
        "url": given.get("url", "https://example.com/sign-in")}
for line in sys.stdin:
    asked = json.loads(line)
    method, number, params = asked.get("method"), asked.get("id"), asked.get("params", {})
    if method == "initialize":
        send(id=number, result={"protocolVersion": "2025-11-25",
                                "serverInfo": {"name": "scripted", "version": "1"},
                                "capabilities": given.get("capabilities", {"tools": {}})})
    elif method == "tools/list":
        send(id=number, result={"tools": given.get("tools", [])})
    elif method == "tools/call" and params["name"] == "page":
        waiting = number
        send(id="q", method="elicitation/create", params=page)
    elif method == "tools/call" and params["name"] == "form":
        waiting = number
        question = {"message": given["message"], "requestedSchema": given["form"]}
        send(id="q", method="elicitation/create", params=question)
    elif method == "tools/call" and params["name"] == "think":
        waiting = number
        content = {"type": "text", "text": "How many?"}
        messages = given.get("messages", [{"role": "user", "content": content}])
        send(id="q", method="sampling/createMessage", params={"maxTokens": 50,
             "messages": messages, "systemPrompt": "Count."})
    elif method == "tools/call" and params["name"] == "need" and not done:
        done = True
        send(id=number, error={"code": -32042, "message": "sign in first",
                               "data": {"elicitations": [page]}})
        send(method="notifications/elicitation/complete", params={"elicitationId": "p1"})
    elif method == "tools/call" and params["name"] == "die":
        print("first line\\n\\x1b[31mno such table: users\\x1b[0m\\n", file=sys.stderr, flush=True)
        sys.exit(1)
    elif method == "tools/call":
        for step in given.get("steps", []):
            token = params["_meta"]["progressToken"]
            send(method="notifications/progress", params={"progressToken": token, **step})
        say(number, given.get("say", "fine"))
    elif number == "q":
        say(waiting, json.dumps(asked.get("result") or asked.get("error")))
        send(method="notifications/elicitation/complete", params={"elicitationId": "p1"})
    elif method == "resources/list":
        send(id=number, result={"resources": given.get("resources", [])})
    elif method == "resources/templates/list":
        send(id=number, result={"resourceTemplates": given.get("templates", [])})
    elif method == "resources/subscribe":
        send(id=number, result={})
        send(method="notifications/resources/updated", params={"uri": params["uri"]})
    elif method == "completion/complete":
        values = [each for each in ("Ada", "Alan", "Grace")
                  if each.startswith(params["argument"]["value"])]
        send(id=number, result={"completion": {"values": values}})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"no {method} here"})
"""
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

script = Script(calls(call("add", {"a": 1, "b": 2})), "the sum is 3")
agent = glue.Agent(script, tools=[add, look, danger])
"""
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
    '''Return the weather.'''
    return Weather(city, 21)

@glue.tool(needs_permission=True)
def danger() -> str:
    '''Do something dangerous.'''
    return "done"

script = Script('{"city": "Oslo", "degrees": 3}')
agent = glue.Agent(script, tools=[weather, danger], output=Weather, instructions="Be brief.",
                   name="forecast")
"""


@contextmanager
def sdk_server(transport: str = "streamable_http") -> Iterator[str]:
    """Run SERVER over HTTP in a thread, which starts faster than a process, and yield its URL."""
    import uvicorn

    def make() -> Any:
        names: dict[str, Any] = {}
        exec(SERVER, names)
        return getattr(names["server"], f"{transport}_app")()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(make, factory=True, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        path = "sse" if transport == "sse" else "mcp"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/{path}"
        server.should_exit = server.force_exit = True
        thread.join(10)


async def use(
    connection: mcp.ServerConnection, name: str, seen: list[Any] | None = None, **arguments: Any
) -> ToolResult:
    """Call a tool of the server `demo` by its short name."""
    tool = next(each for each in connection.tools if each.name == f"demo__{name}")
    return await invoke(tool, arguments, seen)


async def invoke(
    tool: Tool[..., Any], arguments: Mapping[str, Any], seen: list[Any] | None = None
) -> ToolResult:
    """Call a tool and return its result; append its progress reports to `seen`."""
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


class HttpServer(BaseHTTPRequestHandler):
    """A streamable HTTP server of the older protocol, whose sessions a test can delete."""

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
        for name, value in {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass

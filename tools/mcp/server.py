"""An MCP server that offers an agent's tools, and the agent itself as one tool."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, get_type_hints, is_typeddict

import anyio

from glue import (
    AnyTool,
    Context,
    DenyAll,
    File,
    Host,
    Image,
    Limits,
    Permission,
    Rules,
    Text,
    ToolCall,
    ToolResult,
    error_result,
)
from glue.context import failed
from glue.messages import new_id
from glue.options import instructions_text
from glue.tools import READY_MADE
from glue.tools.mcp.transport import load_sdk

if TYPE_CHECKING:
    from socket import socket

    import mcp_types as types
    from mcp.server import Server, ServerRequestContext

    from glue import Agent

    RequestContext: TypeAlias = ServerRequestContext[Any]

INSTRUCTIONS = "glue://agent/instructions"


def offered(agent: Agent[Any, Any], name: str) -> dict[str, AnyTool]:
    """List what is offered: the agent's tools, and the agent under its own name, or `name` where it has none."""
    tools: dict[str, AnyTool] = {tool.spec.name: tool for tool in agent.settings.tools or ()}
    own = re.sub(r"[^A-Za-z0-9_-]", "_", agent.name or name)
    while own in tools:
        own += "_agent"
    return {**tools, own: agent.as_tool(own)}


def policy(agent: Agent[Any, Any], allow: Iterable[str], deny: Iterable[str] = ()) -> Permission:
    """Decide by the rules of the command line and of the settings, and otherwise by the agent's own policy."""
    own = agent.settings.permission or DenyAll("start `glue mcp` with --allow NAME to allow it")
    rules = Rules(allow=allow, deny=deny, otherwise=own)
    rules.check(agent.settings.tools or (), READY_MADE)
    return rules


def make_server(agent: Agent[Any, Any], tools: dict[str, AnyTool], permission: Permission) -> Server[Any]:
    """Make the SDK's server, which a transport then runs."""
    load_sdk()
    import mcp_types as types
    from mcp import MCPError
    from mcp.server import Server

    from glue import __version__

    async def list_tools(context: RequestContext, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in tools.values()])

    async def call_tool(context: RequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        result = await _run(tools, permission, context, params.name, params.arguments or {})
        structured = None
        if not result.is_error and params.name in schemas:
            with suppress(ValueError, RecursionError):
                found = json.loads(result.text)
                structured = found if isinstance(found, dict) else None
        return types.CallToolResult(content=_content(result), is_error=result.is_error, structured_content=structured)

    schemas = {name for name, tool in tools.items() if output_schema(tool) is not None}
    text, _ = instructions_text(agent.settings.instructions)
    handlers: dict[str, Any] = {"on_list_tools": list_tools, "on_call_tool": call_tool}
    if text:
        resource = types.Resource(
            uri=INSTRUCTIONS, name="instructions", description="What the agent is told to do.", mime_type="text/plain"
        )

        async def list_resources(context: RequestContext, params: Any) -> types.ListResourcesResult:
            return types.ListResourcesResult(resources=[resource])

        async def read_resource(
            context: RequestContext, params: types.ReadResourceRequestParams
        ) -> types.ReadResourceResult:
            if str(params.uri) != INSTRUCTIONS:
                raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri}; there is: {INSTRUCTIONS}")
            found = types.TextResourceContents(uri=INSTRUCTIONS, text=text, mime_type="text/plain")
            return types.ReadResourceResult(contents=[found])

        handlers |= {"on_list_resources": list_resources, "on_read_resource": read_resource}
    return Server(agent.name or "glue", version=__version__, **handlers)


def _described(tool: AnyTool) -> types.Tool:
    import mcp_types as types

    asks = bool(getattr(tool, "needs_permission", True))
    return types.Tool(
        name=tool.spec.name,
        description=tool.spec.description,
        input_schema=dict(tool.spec.parameters),
        output_schema=output_schema(tool),
        annotations=types.ToolAnnotations(read_only_hint=not asks, destructive_hint=asks),
    )


def output_schema(tool: AnyTool) -> dict[str, Any] | None:
    """Give the schema of what a tool returns, where its function or its agent says that it is an object."""
    from glue.function.schema import shape_of

    agent, function = getattr(tool, "agent", None), getattr(tool, "function", None)
    hint: Any = agent.settings.output if agent is not None else None
    if agent is None and function is not None:
        with suppress(Exception):
            hint = get_type_hints(function).get("return")
    described = is_dataclass(hint) or is_typeddict(hint) or hasattr(hint, "model_fields") or isinstance(hint, Mapping)
    if not described or hint in (ToolResult, Text, Image, File):
        return None
    try:
        schema = dict(hint) if isinstance(hint, Mapping) else dict(shape_of(hint).schema)
    except Exception:  # what cannot be described is given as text alone
        return None
    return schema if schema.get("type") == "object" else None


async def serve_http(server: Server[Any], host: str, listener: socket, token: str) -> None:
    """Serve over streamable HTTP at /mcp until cancelled; every request must carry the token."""
    import secrets

    import uvicorn

    app = server.streamable_http_app(host=host)
    wanted = f"Bearer {token}".encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] == "http" and not secrets.compare_digest(given, wanted):
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"send the header Authorization: Bearer TOKEN\n"})
            return
        await app(scope, receive, send)

    config = uvicorn.Config(guarded, log_level="warning", lifespan="on", timeout_graceful_shutdown=1)
    http = uvicorn.Server(config)

    async def stop() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            http.should_exit = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        with anyio.CancelScope(shield=True):  # it ends by itself, and without complaints, once it is told to
            await http.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def serve(server: Server[Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Serve on two streams until the other end hangs up."""
    from mcp.server.stdio import stdio_server

    reading = anyio.wrap_file(io.TextIOWrapper(source, encoding="utf-8", errors="replace"))
    writing = anyio.wrap_file(io.TextIOWrapper(sink, encoding="utf-8"))
    async with stdio_server(reading, writing) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _run(
    tools: dict[str, AnyTool], permission: Permission, request: RequestContext, name: str, arguments: Any
) -> ToolResult:
    tool = tools.get(name)
    if tool is None:
        return error_result(f"unknown tool {name!r}; there are: {', '.join(sorted(tools))}")
    sending, receiving = anyio.create_memory_object_stream[str](100)

    def report(text: str, data: Any, event: Any) -> None:
        if text:
            with suppress(anyio.WouldBlock):  # a client that is behind misses some progress, and nothing else
                sending.send_nowait(text)

    async def forward() -> None:
        count = 0
        async with receiving:
            async for text in receiving:
                count += 1
                await request.session.report_progress(count, None, text)

    call = ToolCall(id=new_id(), name=name, arguments=json.dumps(arguments))
    host = Host(permission=permission)
    limits = Limits(max_turns=None, max_requests=None)  # the agent has its own
    context: Context[Any] = Context(call=call, host=host, report=report, limits=limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forward)
        with sending:
            try:
                result = await tool.invoke(call, context)
            except Exception as error:
                result = failed(error, name)
    return result


def _content(result: ToolResult) -> list[types.ContentBlock]:
    import mcp_types as types

    blocks: list[types.ContentBlock] = []
    for part in result.content:
        if isinstance(part, Text):
            blocks.append(types.TextContent(text=part.text))
        elif isinstance(part, Image) and part.data is not None:
            data = base64.b64encode(part.data).decode()
            blocks.append(types.ImageContent(data=data, mime_type=part.media_type))
        else:
            blocks.append(types.TextContent(text=f"[{type(part).__name__} that cannot be shown]"))
    return blocks

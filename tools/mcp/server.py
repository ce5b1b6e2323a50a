"""An MCP server that offers an agent's tools, and the agent itself as one tool."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio

from glue.context import AnyTool, Cancel, Context, Host, Purse, ToolResult, error_result
from glue.errors import ConfigError, ToolError
from glue.limits import Limits
from glue.messages import Image, Text, ToolCall, new_id
from glue.permission import DenyAll, Permission, Rules

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext

    from glue.agent import Agent


def offered(agent: Agent[Any, Any], name: str) -> dict[str, AnyTool]:
    """List what is offered: the agent's tools, and the agent under its own name, or `name` where it has none."""
    tools: dict[str, AnyTool] = {tool.spec.name: tool for tool in agent.settings.tools or ()}
    own = re.sub(r"[^A-Za-z0-9_-]", "_", agent.name or name)
    while own in tools:
        own += "_agent"
    return {**tools, own: agent.as_tool(own)}


def policy(agent: Agent[Any, Any], allowed: Iterable[str]) -> Permission:
    """Allow what was named on the command line, and otherwise what the agent's own policy allows."""
    own = agent.settings.permission or DenyAll("start `glue mcp` with --allow NAME to allow it")
    return Rules(allow=allowed, otherwise=own)


def make_server(agent: Agent[Any, Any], tools: dict[str, AnyTool], permission: Permission) -> Server[Any]:
    """Make the SDK's server, which a transport then runs."""
    try:
        import mcp_types as types
        from mcp.server import Server
    except ImportError as error:
        raise ConfigError("serving MCP needs the extra: pip install 'glue-agents[mcp]'") from error
    from glue import __version__

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        specs = [tool.spec for tool in tools.values()]
        return types.ListToolsResult(
            tools=[
                types.Tool(name=spec.name, description=spec.description, input_schema=dict(spec.parameters))
                for spec in specs
            ]
        )

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        result = await _run(tools, permission, context, params.name, params.arguments or {})
        return types.CallToolResult(content=_content(result), is_error=result.is_error)

    return Server(agent.name or "glue", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve(server: Server[Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Serve on two streams until the other end hangs up."""
    from mcp.server.stdio import stdio_server

    reading = anyio.wrap_file(io.TextIOWrapper(source, encoding="utf-8", errors="replace"))
    writing = anyio.wrap_file(io.TextIOWrapper(sink, encoding="utf-8"))
    async with stdio_server(reading, writing) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _run(
    tools: dict[str, AnyTool], permission: Permission, request: ServerRequestContext[Any], name: str, arguments: Any
) -> ToolResult:
    tool = tools.get(name)
    if tool is None:
        return error_result(f"unknown tool {name!r}; there are: {', '.join(sorted(tools))}")
    sending, receiving = anyio.create_memory_object_stream[str](100)

    def report(text: str, data: Any, event: Any) -> None:
        if text:
            try:
                sending.send_nowait(text)
            except anyio.WouldBlock:
                pass  # a client that is behind misses some progress, and nothing else

    async def forward() -> None:
        count = 0
        async with receiving:
            async for text in receiving:
                count += 1
                await request.session.report_progress(count, None, text)

    call = ToolCall(id=new_id(), name=name, arguments=json.dumps(arguments))
    host = Host(permission=permission)
    limits = Limits(max_turns=None, max_requests=None)  # the agent has its own
    context: Context[Any] = Context(call=call, host=host, cancel=Cancel(), purse=Purse(), report=report, limits=limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forward)
        with sending:
            result = await _invoke(tool, call, context)
    return result


async def _invoke(tool: AnyTool, call: ToolCall, context: Context[Any]) -> ToolResult:
    try:
        return await tool.invoke(call, context)
    except ToolError as error:
        return error_result(str(error))
    except Exception as error:
        return error_result(error)


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

"""An MCP server that offers the tools of an agent, and the agent itself as a tool."""

from __future__ import annotations

import base64
import io
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, get_type_hints, is_typeddict

import anyio

from glue import (
    Context,
    File,
    Image,
    Limits,
    Rules,
    Text,
    ToolCall,
    ToolResult,
    __version__,
    error_result,
)
from glue.context import AnyTool, Host
from glue.failures import failure_result
from glue.function.schema import shape_of
from glue.messages import new_id
from glue.permission import DenyAll, Permission
from glue.settings import instructions_text
from glue.tools.mcp.sdk import MCPError, Server, ServerRequestContext, stdio_server, types

if TYPE_CHECKING:
    from socket import socket

    from glue import Agent

RequestContext: TypeAlias = "ServerRequestContext[Any]"

INSTRUCTIONS = "glue://agent/instructions"


def offered(agent: Agent[Any, Any], name: str) -> dict[str, AnyTool]:
    """Return the tools to offer by name: the agent's tools, and last the agent itself.

    The agent is called by its own name, or `name` if it has none.
    """
    own_tools = agent.settings.tools or ()
    # The search of a provider is not a function that a client could call.
    tools: dict[str, AnyTool] = {
        tool.spec.name: tool for tool in own_tools if tool.spec.kind == "function"
    }
    own = re.sub(r"[^A-Za-z0-9_-]", "_", agent.name or name)
    while own in tools:
        own += "_agent"
    return {**tools, own: agent.as_tool(own)}


def policy(agent: Agent[Any, Any], allow: Iterable[str], deny: Iterable[str] = ()) -> Permission:
    """Return rules of allowed and denied tools; the agent's own policy decides on other tools."""
    own = agent.settings.permission or DenyAll("start `glue mcp` with --allow NAME to allow it")
    rules = Rules(allow=allow, deny=deny, otherwise=own)
    rules.check(agent.settings.tools or ())
    return rules


def make_server(
    agent: Agent[Any, Any], tools: dict[str, AnyTool], permission: Permission
) -> Server[Any]:
    """Return a server of the SDK that offers tools; `serve` or `serve_http` runs it."""

    async def list_tools(
        context: RequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_sdk_tool(tool) for tool in tools.values()])

    async def call_tool(
        context: RequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        result = await _call(tools, permission, context, params.name, params.arguments or {})
        structured = None
        if not result.is_error and params.name in with_schema:
            with suppress(ValueError, RecursionError):
                found = json.loads(result.text)
                structured = found if isinstance(found, dict) else None
        return types.CallToolResult(
            content=_content(result), is_error=result.is_error, structured_content=structured
        )

    with_schema = {name for name, tool in tools.items() if output_schema(tool) is not None}
    handlers: dict[str, Any] = {"on_list_tools": list_tools, "on_call_tool": call_tool}
    text, _ = instructions_text(agent.settings.instructions)
    if text:
        handlers |= _instruction_handlers(text)
    return Server(agent.name or "glue", version=__version__, **handlers)


def _instruction_handlers(text: str) -> dict[str, Any]:
    """Return the handlers that offer the agent's instructions as a resource."""
    resource = types.Resource(
        uri=INSTRUCTIONS,
        name="instructions",
        description="The instructions of the agent.",
        mime_type="text/plain",
    )

    async def list_resources(context: RequestContext, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[resource])

    async def read_resource(
        context: RequestContext, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        if str(params.uri) != INSTRUCTIONS:
            raise MCPError(
                types.INVALID_PARAMS,
                f"the resource {params.uri} does not exist; the only one is {INSTRUCTIONS}",
            )
        found = types.TextResourceContents(uri=INSTRUCTIONS, text=text, mime_type="text/plain")
        return types.ReadResourceResult(contents=[found])

    return {"on_list_resources": list_resources, "on_read_resource": read_resource}


def _sdk_tool(tool: AnyTool) -> types.Tool:
    return types.Tool(
        name=tool.spec.name,
        title=getattr(tool, "title", "") or None,
        description=tool.spec.description,
        input_schema=dict(tool.spec.parameters),
        output_schema=output_schema(tool),
        annotations=_annotations(tool),
    )


def _annotations(tool: AnyTool) -> types.ToolAnnotations | None:
    """Return the hints that a tool declares; what it does not declare is unknown and left out.

    A tool that needs permission need not be destructive, and one that needs none may send a mail.
    """
    read_only = getattr(tool, "read_only", None)
    idempotent = True if getattr(tool, "idempotent", False) else None
    if read_only is None and idempotent is None:
        return None
    return types.ToolAnnotations(read_only_hint=read_only, idempotent_hint=idempotent)


def output_schema(tool: AnyTool) -> dict[str, Any] | None:
    """Return the JSON schema for the result of a tool, or None if the result is not an object.

    The schema comes from the return annotation of the function, or from the output of the agent.
    """
    agent, function = getattr(tool, "agent", None), getattr(tool, "function", None)
    hint: Any = agent.settings.output if agent is not None else None
    if agent is None and function is not None:
        with suppress(Exception):
            hint = get_type_hints(function).get("return")
    is_object = (
        is_dataclass(hint)
        or is_typeddict(hint)
        or hasattr(hint, "model_fields")
        or isinstance(hint, Mapping)
    )
    if not is_object or hint in (ToolResult, Text, Image, File):
        return None
    try:
        schema = dict(hint) if isinstance(hint, Mapping) else dict(shape_of(hint).schema)
    except Exception:  # the result is sent as text only
        return None
    return schema if schema.get("type") == "object" else None


async def serve_http(server: Server[Any], host: str, listener: socket, token: str) -> None:
    """Serve over streamable HTTP at /mcp until cancelled; every request must have the token."""
    import uvicorn  # optional, and only needed for HTTP

    app = server.streamable_http_app(host=host)
    wanted = f"Bearer {token}".encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] != "http" or secrets.compare_digest(given, wanted):
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
        body = b"send the header Authorization: Bearer TOKEN\n"
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(
        guarded, log_level="warning", lifespan="on", timeout_graceful_shutdown=1
    )
    http = uvicorn.Server(config)

    async def stop() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            http.should_exit = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        # Shielded: uvicorn ends by itself after `should_exit`, and logs an error if cancelled.
        with anyio.CancelScope(shield=True):
            await http.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def serve(server: Server[Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Serve on two streams until the client closes them."""
    reading = anyio.wrap_file(io.TextIOWrapper(source, encoding="utf-8", errors="replace"))
    writing = anyio.wrap_file(io.TextIOWrapper(sink, encoding="utf-8"))
    async with stdio_server(reading, writing) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _call(
    tools: dict[str, AnyTool],
    permission: Permission,
    request: RequestContext,
    name: str,
    arguments: Any,
) -> ToolResult:
    """Call a tool, and send its progress to the client."""
    tool = tools.get(name)
    if tool is None:
        return error_result(f"unknown tool {name[:100]!r}; {nearest(name, tools)}")
    sending, receiving = anyio.create_memory_object_stream[str](100)

    def report(text: str, data: Any, event: Any) -> None:
        if text:
            with suppress(anyio.WouldBlock):  # a slow client misses some progress
                sending.send_nowait(text)

    async def forward() -> None:
        count = 0
        async with receiving:
            async for text in receiving:
                count += 1
                await request.session.report_progress(count, None, text)

    call = ToolCall(id=new_id(), name=name, arguments=json.dumps(arguments))
    host = Host(permission=permission)
    limits = Limits(max_turns=None, max_requests=None)  # the agent has limits of its own
    context: Context[Any] = Context(call=call, host=host, report=report, limits=limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forward)
        with sending:
            try:
                result = await tool.invoke(call, context)
            except Exception as error:
                result = failure_result(error, f"tool {name}")
    return result


def _content(result: ToolResult) -> list[types.ContentBlock]:
    blocks: list[types.ContentBlock] = []
    for part in result.content:
        if isinstance(part, Text):
            blocks.append(types.TextContent(text=part.text))
        elif isinstance(part, Image) and part.data is not None:
            data = base64.b64encode(part.data).decode()
            blocks.append(types.ImageContent(data=data, mime_type=part.media_type))
        else:
            blocks.append(types.TextContent(text=f"[{type(part).__name__} cannot be shown]"))
    return blocks


def nearest(name: str, known: Iterable[str], most: int = 10) -> str:
    """Return a hint for an unknown name: the names most like it, and of a few names all."""
    from difflib import get_close_matches  # slow to load, and only needed for an error message

    names = sorted(known)
    if len(names) <= most:
        return f"known tools: {', '.join(names)}"
    close = get_close_matches(name[:100], names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {len(names)} tools"

"""An MCP server that offers the tools of an agent, and the agent itself as a tool."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, get_type_hints, is_typeddict
from urllib.parse import quote

import anyio
import anyio.lowlevel

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
from glue.tasks import caller
from glue.tools.mcp.library import Library
from glue.tools.mcp.sdk import (
    MCPDeprecationWarning,
    Server,
    ServerRequestContext,
    stdio_server,
    types,
)

if TYPE_CHECKING:
    from socket import socket

    from glue import Agent

RequestContext: TypeAlias = "ServerRequestContext[Any]"
MAX_CLIENTS = 1_000  # clients whose log level is stored


def offered(agent: Agent[Any, Any], name: str) -> dict[str, AnyTool]:
    """Return the offered tools by name: the function tools of the agent, then the agent itself.

    The agent is offered under its own name, or under `name` if it has none. Tools that a
    provider runs, such as web_search, are left out.
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
    """Return a policy that applies the rules in `allow` and `deny`, then the agent's own policy.

    If the agent has no policy, calls that no rule allows are denied. Raise ConfigError if a rule
    can never apply to a tool of the agent.
    """
    own = agent.settings.permission or DenyAll(
        "start `glue mcp` with --allow NAME to allow the tool"
    )
    rules = Rules(allow=allow, deny=deny, otherwise=own)
    rules.check(agent.settings.tools or ())
    return rules


def make_server(
    agent: Agent[Any, Any],
    tools: dict[str, AnyTool],
    permission: Permission,
    library: Library | None = None,
) -> Server[Any]:
    """Return an MCP server of the SDK that offers tools; `serve` or `serve_http` runs it.

    The instructions of the agent are added to the library of prompts and resources.
    """

    async def list_tools(
        context: RequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_sdk_tool(tool) for tool in tools.values()])

    async def call_tool(
        context: RequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        result = await _call(tools, permission, context, params, logs)
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
    handlers |= _library_handlers(replace(library or Library(), instructions=text))
    server: Server[Any] = Server(agent.name or "glue", version=__version__, **handlers)
    logs = _Logs()
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, logs.set_level)
    return server


def _library_handlers(library: Library) -> dict[str, Any]:
    """Return request handlers for the prompts, resources and completions that a library offers."""

    async def list_resources(context: RequestContext, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await library.resources())

    async def list_templates(
        context: RequestContext, params: Any
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=library.templates())

    async def read_resource(
        context: RequestContext, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await library.read(str(params.uri))

    async def list_prompts(context: RequestContext, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=library.prompts())

    async def get_prompt(
        context: RequestContext, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        return library.prompt(params.name, params.arguments or {})

    async def complete(
        context: RequestContext, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        return await library.complete(params.ref, params.argument.name, params.argument.value)

    handlers: dict[str, Any] = {}
    if library.has_resources:
        handlers |= {"on_list_resources": list_resources, "on_read_resource": read_resource}
        handlers |= {"on_list_resource_templates": list_templates}
    if library.catalogs:
        handlers |= {"on_list_prompts": list_prompts, "on_get_prompt": get_prompt}
    if library.catalogs or library.templates():
        handlers["on_completion"] = complete
    return handlers


class _Logs:
    """Collects the log records of tool calls, to send them to the client that called the tool."""

    def __init__(self) -> None:
        self._levels: dict[str, str] = {}  # by the id of the HTTP session; "" is the only client

    async def set_level(
        self, context: RequestContext, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Store the lowest level of the log records that a client wants to receive."""
        if len(self._levels) >= MAX_CLIENTS:
            del self._levels[next(iter(self._levels))]
        self._levels[_client_id(context)] = params.level
        return types.EmptyResult()

    @contextmanager
    def collect(self, context: RequestContext, send: Callable[[Any], None]) -> Iterator[None]:
        """Call `send` with the log records of a tool call, except records below the client's level.

        The tool call runs in the `with` block. If the client chose no level, the level is "info".
        """
        least = _LEVELS.get(self._levels.get(_client_id(context), "info"), logging.INFO)
        call = object()

        class LogHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if _logging_call.get() is call:
                    send((_level_name(record.levelno), record.name, record.getMessage()))

        handler, root = LogHandler(least), logging.getLogger()
        token = _logging_call.set(call)
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)
            _logging_call.reset(token)


def _client_id(context: RequestContext) -> str:
    """Return the id of the HTTP session of a request, or "" if the client uses stdio."""
    headers = getattr(context.request, "headers", None) or {}
    return str(headers.get("mcp-session-id", ""))


# The call whose task or thread writes a record.
_logging_call: ContextVar[object] = ContextVar("glue-mcp-logging", default=None)
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}


def _level_name(level: int) -> Any:
    names = ("debug", "info", "warning", "error", "critical")
    return next((name for name in reversed(names) if level >= _LEVELS[name]), "debug")


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
    """Return the read-only and idempotent hints of a tool, or None if it declares neither.

    No hint follows from the need for permission: a tool that needs permission need not be
    destructive, and a tool that needs none may send a mail.
    """
    read_only = getattr(tool, "read_only", None)
    idempotent = True if getattr(tool, "idempotent", False) else None
    if read_only is None and idempotent is None:
        return None
    return types.ToolAnnotations(read_only_hint=read_only, idempotent_hint=idempotent)


def output_schema(tool: AnyTool) -> dict[str, Any] | None:
    """Return the JSON schema of the result of a tool, or None if the result is not an object.

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
    """Serve MCP over streamable HTTP at /mcp until cancelled; requests must have the token."""
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
    """Serve MCP on two byte streams until the client closes them."""
    reading = anyio.wrap_file(io.TextIOWrapper(source, encoding="utf-8", errors="replace"))
    writing = anyio.wrap_file(io.TextIOWrapper(sink, encoding="utf-8"))
    async with stdio_server(reading, writing) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _call(
    tools: dict[str, AnyTool],
    permission: Permission,
    request: RequestContext,
    params: types.CallToolRequestParams,
    logs: _Logs,
) -> ToolResult:
    """Call a tool and return its result; send its progress and log records to the client."""
    name, arguments = params.name, params.arguments or {}
    tool = tools.get(name)
    if tool is None:
        return error_result(f"unknown tool {name[:100]!r}; {nearest(name, tools)}")
    sending, receiving = anyio.create_memory_object_stream[Any](100)
    schedule = caller()

    def queue(item: Any) -> None:
        # A slow client misses some progress. The queue is closed after the call.
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            sending.send_nowait(item)

    def report(text: str, data: Any, event: Any) -> None:
        if text or (isinstance(data, dict) and "progress" in data):
            queue((text, data))

    async def forward() -> None:
        count = 0.0
        async with receiving:
            async for item in receiving:
                if len(item) == 3:
                    await _send_log(request, *item)
                    continue
                text, data = item
                known = data if isinstance(data, dict) else {}
                count = float(known.get("progress") or count + 1)
                await request.session.report_progress(count, known.get("total"), text or None)

    call = ToolCall(id=new_id(), name=name, arguments=json.dumps(arguments))
    host = Host(permission=permission)
    limits = Limits(max_turns=None, max_requests=None)  # the agent has limits of its own
    context: Context[Any] = Context(call=call, host=host, report=report, limits=limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forward)
        with sending, logs.collect(request, lambda item: schedule(lambda: queue(item))):
            try:
                result = await tool.invoke(call, context)
            except Exception as error:
                result = failure_result(error, f"tool {name}")
            await anyio.lowlevel.checkpoint()  # records of threads are queued now
    return result


async def _send_log(request: RequestContext, level: Any, name: str, text: str) -> None:
    with warnings.catch_warnings():
        # Newer versions of the protocol have no log messages; the SDK drops them there.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        await request.session.send_log_message(level, text, name, request.request_id)


def _content(result: ToolResult) -> list[types.ContentBlock]:
    blocks: list[types.ContentBlock] = []
    for part in result.content:
        if isinstance(part, Text):
            blocks.append(types.TextContent(text=part.text))
        elif isinstance(part, Image) and part.data is not None:
            data = base64.b64encode(part.data).decode()
            blocks.append(types.ImageContent(data=data, mime_type=part.media_type))
        elif isinstance(part, File):
            blob = base64.b64encode(part.data).decode()
            content = types.BlobResourceContents(
                uri=f"glue://result/{quote(part.name or 'file')}",
                blob=blob,
                mime_type=part.media_type,
            )
            blocks.append(types.EmbeddedResource(resource=content))
        else:
            blocks.append(types.TextContent(text=f"[{type(part).__name__} cannot be shown]"))
    return blocks


def nearest(name: str, known: Iterable[str], most: int = 10) -> str:
    """Return a hint for an unknown tool: all tools, similar names, or the number of tools.

    All tools are listed if there are at most `most`. The number is returned if no name is similar.
    """
    from difflib import get_close_matches  # slow to load, and only needed for an error message

    names = sorted(known)
    if len(names) <= most:
        return f"known tools: {', '.join(names)}"
    close = get_close_matches(name[:100], names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {len(names)} tools"

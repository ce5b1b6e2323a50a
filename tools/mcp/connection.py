"""Connections to MCP servers: their tools, resources, prompts and results, kept up to date; restarts that back off."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus

from glue import Context, File, Image, Part, PermissionRequest, Text, Tool, ToolResult
from glue.errors import ConfigError, ToolError, innermost
from glue.function.validation import check_schema
from glue.permission import decide
from glue.tasks import background
from glue.tools.mcp.transport import ServerConfig, Transport, load_sdk, logger, read_config

if TYPE_CHECKING:
    from mcp import Client

CALL_SECONDS = 60.0
START_SECONDS = 60.0  # some servers are fetched first
MAX_PAGES = 100  # of a list; a server that never ends one must not hang us
MAX_DESCRIPTION = 2_000  # characters of what a server says of a tool: it is sent with every request
MAX_NAME = 64  # characters of a tool's name, which is all that some providers take
BACKOFF = (0.0, 1.0, 4.0, 15.0, 60.0)  # seconds before each restart; then it is given up

NOTHING = {"type": "object", "properties": {}}  # the schema of no arguments

# Puts a server's question to a person: its name, the message, the schema of the answer. None is no.
Elicit: TypeAlias = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any] | None]]


class ServerPrompt:
    """A prompt that a server offers, as `/server:prompt`."""

    def __init__(self, connection: ServerConnection, given: Mapping[str, Any]) -> None:
        self.connection, self.name = connection, str(given["name"])
        self.arguments = [str(each["name"]) for each in given.get("arguments") or ()]
        self.description = _described(given, f"A prompt of {connection.name}.")
        self.hint = " ".join(f"<{name}>" for name in self.arguments)

    async def get(self, rest: str = "") -> list[Any]:
        """Give what the prompt says; words after it are its arguments in order, the last takes what is left."""
        words = rest.split(None, max(len(self.arguments) - 1, 0)) if self.arguments else []
        given = dict(zip(self.arguments, words, strict=False))
        result = await self.connection.request(lambda client: client.get_prompt(self.name, given), self.name)
        return [content_part(message["content"]) for message in _dumped(result)["messages"]]


class ServerConnection:
    """A server that is connected. `tools` changes when the server says so; read it anew for each run."""

    def __init__(
        self,
        config: ServerConfig,
        timeout: float,
        on_change: Callable[[ServerConnection], object] | None,
        roots: Sequence[str | os.PathLike[str]],
        elicit: Elicit | None,
        backoff: Sequence[float],
    ) -> None:
        self.config, self.name, self.timeout, self.on_change = config, config.name, timeout, on_change
        self.roots, self.elicit, self.backoff = roots, elicit, backoff
        self.tools: tuple[Tool[..., Any], ...] = ()
        self.prompts: tuple[ServerPrompt, ...] = ()
        self._client: Client | None = None
        self._transport = Transport(config)
        self._ready = anyio.Event()  # set while there is a client, or none any more
        self._wake = anyio.Event()
        self._changed = False
        self._restarts = 0
        self._contexts: list[Context[Any]] = []  # of the calls under way

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Hold the connection, in one task from its beginning to its end: the SDK's scopes ask for that."""
        started = False
        while True:
            began = anyio.current_time()
            try:
                async with self._new_client() as client:
                    await self._list(client)
                    self._client = client
                    self._ready.set()
                    if not started:
                        started = True
                        task_status.started()
                    await self._watch(client)
            except Exception as error:
                if not started:
                    raise
                logger.warning("MCP server %s: %s", self.name, reason(error))
            self._lost()
            if anyio.current_time() - began > 60:
                self._restarts = 0  # it had worked for a while
            if self._restarts >= len(self.backoff):
                logger.warning("MCP server %s has ended %d times and is given up", self.name, self._restarts + 1)
                self._ready.set()
                return
            delay = self.backoff[self._restarts]
            self._restarts += 1
            logger.warning("MCP server %s is started again in %g seconds (%d)", self.name, delay, self._restarts)
            await anyio.sleep(delay)

    def _new_client(self) -> Client:
        from mcp import Client
        from mcp_types import Implementation

        from glue import __version__

        self._transport = Transport(self.config)
        return Client(
            self._transport.open(self._lost),
            message_handler=self._on_message,
            client_info=Implementation(name="glue", version=__version__),
            elicitation_callback=self._elicit,
            list_roots_callback=self._list_roots if self.roots else None,
        )

    async def _watch(self, client: Client) -> None:
        """Follow changes of the lists until the connection is lost."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        async with anyio.create_task_group() as tasks:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(self._subscribe, client)
            while self._client is client:
                await self._wake.wait()
                self._wake = anyio.Event()
                if self._changed:
                    self._changed = False
                    await self._follow(client)
            tasks.cancel_scope.cancel()

    async def _follow(self, client: Client) -> None:
        from mcp import MCPError

        before = [tool.spec for tool in self.tools]
        try:
            await self._list(client)
        except MCPError as error:  # what it offered before is still the best that is known
            logger.warning("MCP server %s did not list its tools again: %s", self.name, error.message)
        if self.on_change is not None and before != [tool.spec for tool in self.tools]:
            self.on_change(self)

    async def _subscribe(self, client: Client) -> None:
        """Ask a server of the newer protocol for changes, which it sends only when asked."""
        from mcp import MCPError
        from mcp.client.subscriptions import SubscriptionLost

        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._mark_changed()  # what changed before it listened to us
                async for _ in changes:
                    self._mark_changed()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.debug("MCP server %s tells of no changes: %s", self.name, error)

    async def _on_message(self, message: Any) -> None:
        if str(getattr(message, "method", "")).endswith("/list_changed"):
            self._mark_changed()

    def _mark_changed(self) -> None:
        self._changed = True
        self._wake.set()

    # What it offers -------------------------------------------------------------------------------

    async def _list(self, client: Client) -> None:
        offered = client.server_capabilities
        known = {tool["name"]: tool for tool in await _pages(client.list_tools, "tools")}
        made = [self._tool(full, known[name]) for full, name in prefixed(self.name, known).items()]
        tools = {tool.name: tool for tool in made if tool is not None}
        if offered and offered.resources is not None and await _pages(client.list_resources, "resources"):
            for tool in self._resource_tools():
                tools.setdefault(tool.name, tool)
        prompts = await _pages(client.list_prompts, "prompts") if offered and offered.prompts is not None else []
        self.tools = tuple(tools.values())
        self.prompts = tuple(ServerPrompt(self, given) for given in prompts)

    def _tool(self, full: str, given: Mapping[str, Any]) -> Tool[..., Any] | None:
        name = given["name"]

        async def call(context: Context[Any], arguments: dict[str, Any]) -> ToolResult:
            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                text = message or (f"{progress:g} of {total:g}" if total else f"{progress:g}")
                context.progress(text, {"progress": progress, "total": total})

            self._contexts.append(context)
            try:
                result = await self.request(lambda client: client.call_tool(name, arguments, None, on_progress), name)
            finally:
                self._contexts.remove(context)
            return tool_result(_dumped(result))

        try:
            described = _described(given, f"The tool {name} of {self.name}.")
            return self._make(full, described, given.get("inputSchema") or NOTHING, call)
        except Exception as error:  # whatever a schema may do to a validator
            logger.warning("the tool %s of MCP server %s is left out: %s", name, self.name, reason(error))
            return None

    def _make(self, name: str, description: str, schema: Mapping[str, Any], function: Any) -> Tool[..., Any]:
        check_schema(schema, references=False)  # a call that needs none of them may go well
        return Tool.from_schema(
            name,
            description,
            schema,
            function,
            needs_permission=True,  # whatever the server says of itself
            target=lambda arguments: json.dumps(arguments, default=str, ensure_ascii=False),
        )

    def _resource_tools(self) -> list[Tool[..., Any]]:
        async def list_resources(context: Context[Any], arguments: dict[str, Any]) -> str:
            listed = await self.request(lambda client: _pages(client.list_resources, "resources"), "resources")
            lines = [f"{each['uri']}  {each.get('title') or each.get('name', '')}" for each in listed]
            return "\n".join(lines) or "there are no resources"

        async def read_resource(context: Context[Any], arguments: dict[str, Any]) -> ToolResult:
            read = await self.request(lambda client: client.read_resource(arguments["uri"]), "the resource")
            contents = _dumped(read)["contents"]
            return tool_result({"content": [{"type": "resource", "resource": each} for each in contents]})

        uri = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
        text = f"resources of the MCP server {self.name}"
        names = list(prefixed(self.name, ("list_resources", "read_resource")))
        return [
            self._make(names[0], f"List the {text}: the address and name of each.", NOTHING, list_resources),
            self._make(names[1], f"Read one of the {text}, by its address.", uri, read_resource),
        ]

    # Calls ----------------------------------------------------------------------------------------

    async def request(self, send: Callable[[Client], Awaitable[Any]], what: str) -> Any:
        """Ask the server; once more where its HTTP session had expired and was made anew."""
        from mcp import MCPError

        for last in (False, True):
            with anyio.move_on_after(self.timeout):
                await self._ready.wait()  # a restart may be under way
            if self._client is None and not self._ready.is_set():
                raise ToolError(f"{what}: the MCP server {self.name} is being started again; try later")
            restarted = f"was restarted {self._restarts} times before"
            if self._client is None:
                raise ToolError(f"the MCP server {self.name} has ended, and {restarted}")
            try:
                with anyio.fail_after(self.timeout):
                    return await send(self._client)
            except TimeoutError as error:
                raise ToolError(f"{what} of {self.name} did not answer within {self.timeout:g} seconds") from error
            except (MCPError, OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
                if self._transport.expired and not last:
                    self._lost()
                    continue
                # A server may answer with any code; whether the connection is lost its transport knows.
                if isinstance(error, MCPError) and not self._transport.ended:
                    raise ToolError(f"{self.name} said: {self._transport.hint or error.message}") from error
                self._lost()
                advice = "is started again, so try once more" if len(self.backoff) > self._restarts else restarted
                raise ToolError(f"the MCP server {self.name} ended during the call; it {advice}") from error
        raise AssertionError("unreachable")

    def _lost(self) -> None:
        if self._client is not None:  # the first to notice
            self._client = None
            self._ready = anyio.Event()
            self._wake.set()

    # What it asks ---------------------------------------------------------------------------------

    async def _list_roots(self, context: Any) -> Any:
        from mcp_types import ListRootsResult, Root

        paths = [Path(root).resolve() for root in self.roots]
        return ListRootsResult(roots=[Root(uri=path.as_uri(), name=path.name) for path in paths])  # type: ignore[arg-type]

    async def _elicit(self, context: Any, params: Any) -> Any:
        """Answer a server's question: by a person's form, else as a question of permission."""
        from mcp_types import ElicitResult

        schema = dict(getattr(params, "requested_schema", None) or {})
        try:
            if self.elicit is not None:
                content = await self.elicit(self.name, params.message, schema)
            else:
                content = await self._permitted(params.message, schema)
        except Exception:
            logger.debug("the question of MCP server %s could not be put", self.name, exc_info=True)
            content = None
        return ElicitResult(action="decline" if content is None else "accept", content=content)

    async def _permitted(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the policy of the call under way; a yes can fill in yes, and nothing else."""
        wanted = {name: (schema.get("properties") or {}).get(name, {}) for name in schema.get("required") or ()}
        permission = self._contexts[-1].host.permission if self._contexts else None
        if permission is None or any(each.get("type") != "boolean" for each in wanted.values()):
            return None
        asking = self._contexts[-1]
        request = PermissionRequest(
            tool=asking.call.name,
            action=f"{self.name}__elicitation",
            target=message,
            arguments={"message": message, "schema": schema},
            call_id=asking.call.id,
            session_id=asking.scope,
        )
        decision = await decide(permission, request)
        return dict.fromkeys(wanted, True) if decision.allowed else None


async def _pages(list_page: Callable[..., Awaitable[Any]], what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await list_page(cursor=cursor, cache_mode="bypass")
        found += map(_dumped, getattr(page, what))
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _dumped(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _described(given: Mapping[str, Any], otherwise: str) -> str:
    text = str(given.get("description") or given.get("title") or otherwise)
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"


def reason(error: BaseException) -> str:
    """Say what went wrong in one line, out of whatever groups it comes in."""
    error = innermost(error)
    text: str = " ".join(str(error).split())
    return text[:500] or type(error).__name__


class Servers:
    """All that is connected; `tools` are those of every server, as they are now."""

    def __init__(self, connections: Sequence[ServerConnection]) -> None:
        self.connections = tuple(connections)

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        return tuple(tool for connection in self.connections for tool in connection.tools)

    @property
    def prompts(self) -> dict[str, ServerPrompt]:
        """The prompts of every server, as `server:prompt`."""
        return {f"{each.name}:{prompt.name}": prompt for each in self.connections for prompt in each.prompts}

    async def prompt(self, text: str) -> Any:
        """Give what `/server:prompt words` stands for, and any other text as it is."""
        name, _, rest = text.strip()[1:].partition(" ")
        found = self.prompts.get(name) if text.strip().startswith("/") else None
        return text if found is None else await found.get(rest.strip())


@asynccontextmanager
async def connect(
    servers: str | os.PathLike[str] | Mapping[str, Any] | Iterable[ServerConfig],
    *,
    timeout: float = CALL_SECONDS,
    on_change: Callable[[ServerConnection], object] | None = None,
    on_error: Callable[[ServerConfig, ConfigError], object] | None = None,
    roots: Sequence[str | os.PathLike[str]] = (),
    elicit: Elicit | None = None,
    backoff: Sequence[float] = BACKOFF,
) -> AsyncIterator[Servers]:
    """Connect servers from a list, or from the usual JSON file (or what it would hold), until the block ends.

    `timeout` is for each call. `on_change` is told when a server has changed its list of tools, `on_error` of a server
    that cannot be started, which is an error without it. `roots` are folders that servers may ask for, `elicit` puts
    their questions to a person, `backoff` are the seconds before each restart.
    """
    given: Any = servers
    configs = read_config(given) if isinstance(given, (str, os.PathLike, Mapping)) else tuple(given)
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"MCP servers must have different names; {name!r} is there twice")
    connections = [ServerConnection(config, timeout, on_change, roots, elicit, backoff) for config in configs]
    async with background() as tasks:
        yield Servers(await _start(tasks, connections, on_error))


@asynccontextmanager
async def connect_stdio(
    name: str,
    command: str,
    args: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    **options: Any,
) -> AsyncIterator[ServerConnection]:
    """Start one server as a process and connect to it; it ends with the block. Options as for `connect`."""
    where = None if cwd is None else os.fspath(cwd)
    config = ServerConfig(name=name, command=command, args=tuple(args), env=dict(env or {}), cwd=where)
    async with connect([config], **options) as servers:
        yield servers.connections[0]


@asynccontextmanager
async def connect_http(
    name: str, url: str, headers: Mapping[str, str] | None = None, *, oauth: bool = False, **options: Any
) -> AsyncIterator[ServerConnection]:
    """Connect to one server over streamable HTTP. Options as for `connect`."""
    config = ServerConfig(name=name, url=url, headers=dict(headers or {}), oauth=oauth)
    async with connect([config], **options) as servers:
        yield servers.connections[0]


async def _start(
    tasks: TaskGroup,
    connections: Sequence[ServerConnection],
    on_error: Callable[[ServerConfig, ConfigError], object] | None,
) -> list[ServerConnection]:
    """Start all at once, and give those that run; the first that does not is the error, or each is told."""
    await anyio.to_thread.run_sync(load_sdk)
    failed: dict[str, ConfigError] = {}

    async def one(connection: ServerConnection, group: TaskGroup) -> None:
        try:
            with anyio.fail_after(START_SECONDS):
                await tasks.start(connection.run)
        except Exception as error:
            failed[connection.name] = said = _start_error(connection, error)
            said.__cause__ = error
            if on_error is None:
                group.cancel_scope.cancel()
            else:
                on_error(connection.config, said)

    async with anyio.create_task_group() as group:
        for connection in connections:
            group.start_soon(one, connection, group)
    if failed and on_error is None:
        raise next(iter(failed.values()))
    return [connection for connection in connections if connection.name not in failed]


def _start_error(connection: ServerConnection, error: Exception) -> ConfigError:
    config = connection.config
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, TimeoutError):
        return ConfigError(f"MCP server {config.name!r} did not start within {START_SECONDS:g} seconds")
    what = config.url or " ".join((config.command, *config.args))
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"MCP server {config.name!r}: there is no command {config.command!r}")
    why = connection._transport.hint or reason(error)
    return ConfigError(f"MCP server {config.name!r} ({what}) could not be connected: {why}")


# Names and results -------------------------------------------------------------------------------


def prefixed(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Give each tool a name that every provider takes, with its server's in front."""
    made: dict[str, str] = {}
    for tool in tools:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
        if not re.match(r"[A-Za-z_]", name):
            name = f"_{name}"
        if len(name) > MAX_NAME or name in made:
            mark = hashlib.sha256(tool.encode()).hexdigest()[:8]
            name = f"{name[: MAX_NAME - 9]}_{mark}"
        made[name] = tool
    return made


def tool_result(result: Mapping[str, Any]) -> ToolResult:
    """Map text, images, embedded files and structured content; what no model reads is named in a line."""
    parts = [content_part(block) for block in result.get("content") or () if isinstance(block, Mapping)]
    binary = {str(block.get("data")) for block in result.get("content") or () if isinstance(block, Mapping)}
    structured = _without(result.get("structuredContent"), binary)
    meta = None
    if structured is not None:
        meta = {"structured": structured}
        if not any(isinstance(part, Text) and _same(part.text, structured) for part in parts):
            parts.append(Text(text=json.dumps(structured, ensure_ascii=False)))
    if not parts:
        parts.append(Text(text="(nothing)"))
    return ToolResult(content=tuple(parts), is_error=bool(result.get("isError")), meta=meta)


def content_part(block: Mapping[str, Any]) -> Part:
    kind = block.get("type")
    if kind == "text":
        return Text(text=str(block.get("text", "")))
    if kind == "image":
        return _binary(str(block.get("mimeType", "image/png")), str(block.get("data", "")), "an image")
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        resource = block["resource"]
        if "text" in resource:
            return Text(text=f"<resource uri={json.dumps(resource.get('uri', ''))}>\n{resource['text']}\n</resource>")
        return _binary(
            str(resource.get("mimeType", "")), str(resource.get("blob", "")), str(resource.get("uri", "a resource"))
        )
    if kind == "resource_link":
        return Text(text=f"[{block.get('title') or block.get('name', '')}]({block.get('uri', '')})")
    return Text(text=f"[{kind} {block.get('mimeType', '')} that cannot be shown]")


def _binary(media_type: str, data: str, name: str) -> Part:
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return Text(text=f"[{name} that is no base64]")
    if media_type.startswith("image/"):
        return Image(media_type=media_type, data=content)
    if media_type == "application/pdf":
        return File(media_type=media_type, data=content, name=name)
    return Text(text=f"[{name}: {len(content)} bytes of {media_type or 'an unknown type'}]")


def _without(value: Any, binary: set[str]) -> Any:
    """Leave out of structured content what stands beside it as an image."""
    if isinstance(value, str):
        return "[shown beside this]" if len(value) > 40 and value in binary else value
    if isinstance(value, dict):
        return {key: _without(item, binary) for key, item in value.items()}
    return [_without(item, binary) for item in value] if isinstance(value, list) else value


def _same(text: str, structured: Any) -> bool:
    """Say whether a text says all that the structured content says; a plain value is often wrapped under one key."""
    wrapped = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    try:
        return text == wrapped or json.loads(text) in (structured, wrapped)
    except (ValueError, RecursionError):
        return False

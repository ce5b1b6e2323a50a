"""A connection to one MCP server: its tools, resources and prompts, and its restarts."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from glue import Context, Part, Tool, ToolResult, __version__
from glue.backoff import Backoff
from glue.errors import ConfigError, ToolError, innermost
from glue.function.validation import check_schema
from glue.permission import PermissionRequest, decide
from glue.tools.mcp.config import ServerConfig
from glue.tools.mcp.content import content_part, tool_result
from glue.tools.mcp.sdk import (
    MODERN_PROTOCOL_VERSIONS,
    Client,
    MCPError,
    SubscriptionLost,
    types,
)
from glue.tools.mcp.transport import Transport, logger

MAX_PAGES = 100  # pages of a list; a server may send pages without end
MAX_DESCRIPTION = 2_000  # characters of a description, which is part of every request
MAX_NAME = 64  # characters of a tool name; some providers do not accept longer names
START_SECONDS = 60.0  # the command of a server may download the server first
STABLE_SECONDS = 60.0  # a connection that lasted this long resets the count of restarts

NO_ARGUMENTS = {"type": "object", "properties": {}}

# Asks the user a question of a server. Receives the server's name, the message and the schema of
# the answer; returns the answer, or None if the user declines.
Elicit: TypeAlias = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any] | None]]


class ServerPrompt:
    """A prompt that a server offers; users call it as `/server:prompt`."""

    def __init__(self, connection: ServerConnection, given: Mapping[str, Any]) -> None:
        self.connection, self.name = connection, str(given["name"])
        self.arguments = [str(each["name"]) for each in given.get("arguments") or ()]
        self.description = _description(given, f"A prompt of {connection.name}.")
        self.hint = " ".join(f"<{name}>" for name in self.arguments)

    async def get(self, rest: str = "") -> list[Part]:
        """Return the content of the prompt.

        The words of `rest` are its arguments in order; the last argument gets all words left.
        """
        words = rest.split(None, max(len(self.arguments) - 1, 0)) if self.arguments else []
        given = dict(zip(self.arguments, words, strict=False))
        result = await self.connection.request(
            lambda client: client.get_prompt(self.name, given), self.name
        )
        return [content_part(message["content"]) for message in _dump(result)["messages"]]


class ServerConnection:
    """A connected server. `tools` changes when the server changes its list of tools."""

    def __init__(
        self,
        config: ServerConfig,
        timeout: float,
        on_change: Callable[[ServerConnection], object] | None,
        roots: Sequence[str | os.PathLike[str]],
        elicit: Elicit | None,
        backoff: Backoff,
    ) -> None:
        self.config, self.name = config, config.name
        self.timeout, self.on_change = timeout, on_change
        self.roots, self.elicit, self.backoff = roots, elicit, backoff
        self.tools: tuple[Tool[..., Any], ...] = ()
        self.prompts: tuple[ServerPrompt, ...] = ()
        self._client: Client | None = None
        self._transport = Transport(config)
        self._ready = anyio.Event()  # set if there is a client, or will never be one again
        self._wake = anyio.Event()
        self._changed = False
        self._restarts = 0
        self._contexts: list[Context[Any]] = []  # of the calls that are running

    async def start(self, tasks: TaskGroup) -> None:
        """Connect in a task of its own; raise ConfigError if the server cannot be started."""
        try:
            with anyio.fail_after(START_SECONDS):
                await tasks.start(self.run)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"MCP server {self.name!r} {self._start_problem(error)}") from error

    def _start_problem(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"did not start within {START_SECONDS:g} seconds"
        if isinstance(error, FileNotFoundError):
            return f"cannot be started: the command {self.config.command!r} does not exist"
        server = self.config.url or " ".join((self.config.command, *self.config.args))
        why = self._transport.hint or error_line(error)
        return f"({server}) could not be connected: {why}"

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Connect to the server, and restart it when it ends, until cancelled.

        One task does everything, since the SDK opens and closes cancel scopes in it.
        """
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
                logger.warning("MCP server %s: %s", self.name, error_line(error))
            self._lose()
            if anyio.current_time() - began > STABLE_SECONDS:
                self._restarts = 0
            delay = self._restart_delay()
            if delay is None:
                logger.warning(
                    "MCP server %s has ended %d times and is not restarted again",
                    self.name,
                    self._restarts + 1,
                )
                self._ready.set()
                return
            self._restarts += 1
            logger.warning(
                "MCP server %s is restarted in %.3g seconds (restart %d)",
                self.name,
                delay,
                self._restarts,
            )
            await anyio.sleep(delay)

    def _restart_delay(self) -> float | None:
        """Return the seconds before the next restart: 0 for the first, None if it stays ended."""
        return self.backoff.delay(self._restarts) if self._restarts else 0.0

    def _new_client(self) -> Client:
        self._transport = Transport(self.config)
        return Client(
            self._transport.open(self._lose),
            message_handler=self._on_message,
            client_info=types.Implementation(name="glue", version=__version__),
            elicitation_callback=self._elicit,
            list_roots_callback=self._list_roots if self.roots else None,
        )

    async def _watch(self, client: Client) -> None:
        """Read the list of tools again whenever it changes, until the connection is lost."""
        async with anyio.create_task_group() as tasks:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(self._subscribe, client)
            while self._client is client:
                await self._wake.wait()
                self._wake = anyio.Event()
                if self._changed:
                    self._changed = False
                    await self._list_again(client)
            tasks.cancel_scope.cancel()

    async def _list_again(self, client: Client) -> None:
        before = [tool.spec for tool in self.tools]
        try:
            await self._list(client)
        except MCPError as error:  # keep the tools of the last list
            logger.warning(
                "MCP server %s did not list its tools again: %s", self.name, error.message
            )
        if self.on_change is not None and before != [tool.spec for tool in self.tools]:
            self.on_change(self)

    async def _subscribe(self, client: Client) -> None:
        """Ask for notifications of changes, which servers of the newer protocol send on request."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._mark_changed()  # the list may have changed before the subscription
                async for _ in changes:
                    self._mark_changed()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.debug("MCP server %s does not report changes: %s", self.name, error)

    async def _on_message(self, message: Any) -> None:
        if str(getattr(message, "method", "")).endswith("/list_changed"):
            self._mark_changed()

    def _mark_changed(self) -> None:
        self._changed = True
        self._wake.set()

    async def _list(self, client: Client) -> None:
        """Read the lists of tools, resources and prompts."""
        capabilities = client.server_capabilities
        known = {tool["name"]: tool for tool in await _pages(client.list_tools, "tools")}
        names = prefix_names(self.name, known)
        made = [self._tool(full, known[name]) for full, name in names.items()]
        tools = {tool.name: tool for tool in made if tool is not None}
        has_resources = capabilities and capabilities.resources is not None
        if has_resources and await _pages(client.list_resources, "resources"):
            for tool in self._resource_tools():
                tools.setdefault(tool.name, tool)
        prompts: list[dict[str, Any]] = []
        if capabilities and capabilities.prompts is not None:
            prompts = await _pages(client.list_prompts, "prompts")
        self.tools = tuple(tools.values())
        self.prompts = tuple(ServerPrompt(self, given) for given in prompts)

    def _tool(self, full: str, given: Mapping[str, Any]) -> Tool[..., Any] | None:
        """Return a tool that calls a tool of the server; None if its schema is not valid."""
        name = given["name"]

        async def call(context: Context[Any], arguments: dict[str, Any]) -> ToolResult:
            async def on_progress(
                progress: float, total: float | None, message: str | None
            ) -> None:
                text = message or (f"{progress:g} of {total:g}" if total else f"{progress:g}")
                context.progress(text, {"progress": progress, "total": total})

            self._contexts.append(context)
            try:
                result = await self.request(
                    lambda client: client.call_tool(name, arguments, None, on_progress), name
                )
            finally:
                self._contexts.remove(context)
            return tool_result(_dump(result))

        try:
            description = _description(given, f"The tool {name} of {self.name}.")
            return self._make(full, description, given.get("inputSchema") or NO_ARGUMENTS, call)
        except Exception as error:  # a hostile schema may raise any error in the validator
            logger.warning(
                "the tool %s of MCP server %s is left out: %s", name, self.name, error_line(error)
            )
            return None

    def _make(
        self, name: str, description: str, schema: Mapping[str, Any], function: Any
    ) -> Tool[..., Any]:
        # Unresolved references are allowed: many calls do not need them.
        check_schema(schema, references=False)
        return Tool.from_schema(
            name,
            description,
            schema,
            function,
            needs_permission=True,  # even if the server calls the tool read-only
            target=lambda arguments: json.dumps(arguments, default=str, ensure_ascii=False),
        )

    def _resource_tools(self) -> list[Tool[..., Any]]:
        """Return the tools that list and read the resources of the server."""

        async def list_resources(context: Context[Any], arguments: dict[str, Any]) -> str:
            listed = await self.request(
                lambda client: _pages(client.list_resources, "resources"), "resources"
            )
            lines = [
                f"{each['uri']}  {each.get('title') or each.get('name', '')}" for each in listed
            ]
            return "\n".join(lines) or "the server does not offer resources at present"

        async def read_resource(context: Context[Any], arguments: dict[str, Any]) -> ToolResult:
            read = await self.request(
                lambda client: client.read_resource(arguments["uri"]), "the resource"
            )
            contents = _dump(read)["contents"]
            blocks = [{"type": "resource", "resource": each} for each in contents]
            return tool_result({"content": blocks})

        uri = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
        listing, reading = prefix_names(self.name, ("list_resources", "read_resource"))
        text = f"the MCP server {self.name}"
        return [
            self._make(
                listing,
                f"List the resources of {text}: the URI and name of each.",
                NO_ARGUMENTS,
                list_resources,
            ),
            self._make(reading, f"Read a resource of {text} by its URI.", uri, read_resource),
        ]

    async def request(self, send: Callable[[Client], Awaitable[Any]], what: str) -> Any:
        """Send a request and return the response; raise a ToolError if the server fails.

        If the HTTP session has expired, send the request again in a new session.

        Args:
            send: a function that sends the request through the client of the SDK.
            what: the name of the tool or resource, for messages.
        """
        for is_last in (False, True):
            with anyio.move_on_after(self.timeout):
                await self._ready.wait()  # a restart may be running
            if self._client is None and not self._ready.is_set():
                raise ToolError(
                    f"{what}: the MCP server {self.name} is being restarted; try again later"
                )
            restarted = f"was restarted {self._restarts} times before"
            if self._client is None:
                raise ToolError(f"the MCP server {self.name} has ended, and {restarted}")
            try:
                with anyio.fail_after(self.timeout):
                    return await send(self._client)
            except TimeoutError as error:
                raise ToolError(
                    f"{what} of {self.name} did not answer within {self.timeout:g} seconds"
                ) from error
            except (
                MCPError,
                OSError,
                anyio.ClosedResourceError,
                anyio.BrokenResourceError,
            ) as error:
                if self._transport.expired and not is_last:
                    self._lose()
                    continue
                # The code of an error does not show whether the connection is lost; the transport
                # knows.
                if isinstance(error, MCPError) and not self._transport.ended:
                    raise ToolError(
                        f"error of {self.name}: {self._transport.hint or error.message}"
                    ) from error
                self._lose()
                is_restarted = self._restart_delay() is not None
                advice = "is restarted, so try again" if is_restarted else restarted
                raise ToolError(
                    f"the MCP server {self.name} ended during the call; it {advice}"
                ) from error
        raise AssertionError("unreachable")

    def _lose(self) -> None:
        """Mark the connection as lost, so that `run` opens another."""
        if self._client is not None:
            self._client = None
            self._ready = anyio.Event()
            self._wake.set()

    async def _list_roots(self, context: Any) -> Any:
        """Return the folders that the server may use."""
        paths = [Path(root).resolve() for root in self.roots]
        roots: list[Any] = [{"uri": path.as_uri(), "name": path.name} for path in paths]
        return types.ListRootsResult(roots=roots)

    async def _elicit(self, context: Any, params: Any) -> Any:
        """Answer a question of the server with `elicit`, or with the permission policy."""
        schema = dict(getattr(params, "requested_schema", None) or {})
        try:
            if self.elicit is not None:
                content = await self.elicit(self.name, params.message, schema)
            else:
                content = await self._ask_policy(params.message, schema)
        except Exception:
            logger.debug(
                "the question of MCP server %s could not be asked", self.name, exc_info=True
            )
            content = None
        if content is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=content)

    async def _ask_policy(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the permission policy of the running call.

        If the policy allows the request, set every required field to true. Return None if it denies
        the request, or if a required field is not a boolean.
        """
        properties = schema.get("properties") or {}
        wanted = {name: properties.get(name, {}) for name in schema.get("required") or ()}
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


async def _pages(list_page: Callable[..., Awaitable[Any]], field: str) -> list[dict[str, Any]]:
    """Return the items of all pages of a list; `field` is the attribute of a page that has them."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await list_page(cursor=cursor, cache_mode="bypass")
        found += map(_dump, getattr(page, field))
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _dump(model: Any) -> dict[str, Any]:
    """Return a model of the SDK as a dict with the names of the protocol."""
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _description(given: Mapping[str, Any], otherwise: str) -> str:
    text = str(given.get("description") or given.get("title") or otherwise)
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"


def error_line(error: BaseException) -> str:
    """Return the message of an error on one line; of an exception group, its innermost error."""
    error = innermost(error)
    text: str = " ".join(str(error).split())
    return text[:500] or type(error).__name__


def prefix_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return a dict from tool names that every provider accepts to the server's own names.

    >>> prefix_names("git hub", ["list.issues"])
    {'git_hub__list_issues': 'list.issues'}
    """
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

"""A connection to one MCP server: its tools, resources and prompts, and its restarts."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from glue import Context, Part, Tool, ToolResult, __version__
from glue.backoff import Backoff
from glue.errors import ConfigError, ToolError, innermost
from glue.globs import matches_text
from glue.text import count
from glue.tools.mcp.config import ServerConfig
from glue.tools.mcp.content import content_part, tool_result
from glue.tools.mcp.gate import (
    Pins,
    checked_schema,
    clean,
    clean_all,
    definition_hash,
    description,
    shown_names,
)
from glue.tools.mcp.questions import Elicit, Question, ask_policy, completed, read_question
from glue.tools.mcp.sampling import sample
from glue.tools.mcp.sdk import (
    MODERN_PROTOCOL_VERSIONS,
    Client,
    MCPError,
    SubscriptionLost,
    types,
)
from glue.tools.mcp.transport import ServerTransport, logger

MAX_PAGES = 100  # pages of a list; a server may send pages without end
MAX_ITEMS = 20_000  # items of a list
MAX_NAME = 64  # characters of a tool name; some providers do not accept longer names
MAX_ERROR = 4_000  # characters of an error message
MAX_PROGRESS = 1_000  # reports of one call
START_SECONDS = 60.0  # the command of a server may download the server first
STABLE_SECONDS = 60.0  # a connection that lasted this long resets the count of restarts
LIST_SECONDS = 0.2  # between two readings of the lists, if a server reports changes without end
PAGE_SECONDS = 600.0  # for a user to finish a page that a server asked to open

NO_ARGUMENTS = {"type": "object", "properties": {}}


@dataclass(eq=False, slots=True)
class RunningCall:
    """A tool call that waits for the response of the server."""

    context: Context[Any]
    scope: anyio.CancelScope | None = None  # with the time limit of the call


# The call that a message of the server belongs to, if the transport knows it.
_current: ContextVar[RunningCall | None] = ContextVar("glue-mcp-call", default=None)


class ServerPrompt:
    """A prompt that a server offers; users call it as `/server:prompt`."""

    def __init__(self, connection: ServerConnection, given: Mapping[str, Any]) -> None:
        self.connection, self.name = connection, str(given["name"])
        self.arguments = [clean(str(each["name"])) for each in given.get("arguments") or ()]
        self.description = description(given, f"A prompt of the MCP server {connection.name}.")
        self.hint = " ".join(f"<{name}>" for name in self.arguments)

    async def get(self, rest: str = "") -> list[Part]:
        """Return the prompt as the server fills it in, with the words of `rest` as its arguments.

        Each argument of the prompt gets one word, in order; the last argument gets all words left.
        """
        words = rest.split(None, max(len(self.arguments) - 1, 0)) if self.arguments else []
        given = dict(zip(self.arguments, words, strict=False))
        result = await self.connection.request(
            lambda client: client.get_prompt(self.name, given), self.name
        )
        return [content_part(message["content"]) for message in _dump(result)["messages"]]

    async def complete(self, argument: str, value: str = "") -> list[str]:
        """Ask the server to complete the text `value` of an argument; return its suggestions."""
        reference = types.PromptReference(name=self.name)
        return await self.connection.complete(reference, argument, value)


class ServerConnection:
    """A connection to an MCP server, which glue opens again after a loss, as `backoff` allows.

    `tools` changes when the server changes its list of tools.
    """

    def __init__(
        self,
        config: ServerConfig,
        timeout: float,
        on_change: Callable[[ServerConnection], object] | None,
        roots: Sequence[str | os.PathLike[str]],
        elicit: Elicit | None,
        backoff: Backoff,
        on_update: Callable[[ServerConnection, str], object] | None = None,
    ) -> None:
        self.config, self.name = config, config.name
        self.timeout, self.on_change, self.on_update = timeout, on_change, on_update
        self.roots, self.elicit, self.backoff = roots, elicit, backoff
        self.tools: tuple[Tool[..., Any], ...] = ()
        self.prompts: tuple[ServerPrompt, ...] = ()
        self._client: Client | None = None
        self._transport = ServerTransport(config)
        self._ready = anyio.Event()  # set if a client is connected, or none will be connected again
        self._wake = anyio.Event()
        self._changed = False
        self._restarts = 0
        self._calls: list[RunningCall] = []
        self._pins = Pins(config)
        self._warned: set[str] = set()  # messages that were logged once
        self._pages: dict[str, Question] = {}  # pages that the user may have open, by id
        self._subscriptions: list[str] = []  # URIs of resources
        self._resubscribe = anyio.Event()

    async def start(self, tasks: TaskGroup) -> None:
        """Connect to the server in a new task; raise ConfigError if that fails."""
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
        if self.config.command and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return f"cannot be started: {self._missing_file()}"
        server = self.config.url or " ".join((self.config.command, *self.config.args))
        why = self._transport.hint or error_line(error)
        return f"({server}) could not be connected: {why}{self._last_words()}"

    def _missing_file(self) -> str:
        """Return the end of an error message: which folder, command or interpreter is missing."""
        command, folder = self.config.command, self.config.cwd or "."
        if not os.path.isdir(folder):
            return f"the folder {folder!r} (cwd) does not exist"
        path = self.config.env.get("PATH")
        found = (
            os.path.join(folder, command) if "/" in command else shutil.which(command, path=path)
        )
        if found is not None and os.path.exists(found):
            return f"the interpreter in the first line of {command!r} does not exist"
        return f"the command {command!r} does not exist; install it, or correct the name"

    def _last_words(self) -> str:
        """Return the end of an error message: why glue disconnected, and the last line on stderr.

        Return "" if neither is known.
        """
        output = self._transport.output
        fault = f"; {output.fault}" if output.fault else ""
        return fault + (f"; its last output: {output.last_line}" if output.last_line else "")

    @property
    def stderr(self) -> str:
        """The last output of the server on standard error, as text without escape sequences."""
        return clean(self._transport.output.tail.decode("utf-8", "replace"))

    def report_hidden(self, tool: str) -> None:
        """Log once that a tool is left out because another server has a tool of this name."""
        self._warn_once(
            f"the tool {tool} of MCP server {self.name} is left out: another server has a tool of "
            "that name; rename one of the servers"
        )

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s", message)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Connect to the server; restart it if it ends, up to `backoff.attempts` times in a row.

        A connection that lasted longer than STABLE_SECONDS resets the count of restarts.

        One task does all of this, because the SDK opens and closes cancel scopes in the task.
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
            if self._transport.output.fault:
                logger.warning(
                    "MCP server %s is disconnected: %s", self.name, self._transport.output.fault
                )
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
        """Return the seconds before the next restart of the server, or None to stop restarting."""
        return self.backoff.delay(self._restarts) if self._restarts else 0.0

    def _new_client(self) -> Client:
        self._transport = ServerTransport(self.config)
        return Client(
            self._transport.open(self._lose),
            message_handler=self._on_message,
            client_info=types.Implementation(name="glue", version=__version__),
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
            logging_callback=self._log,
            list_roots_callback=self._list_roots if self.roots else None,
        )

    async def _watch(self, client: Client) -> None:
        """Read the server's lists again after each reported change, until the connection is lost.

        A server of the newer protocol reports changes only after glue has subscribed to them.
        """
        async with anyio.create_task_group() as tasks:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(self._subscribe, client)
            while self._client is client:
                await self._wake.wait()
                self._wake = anyio.Event()
                if self._changed:
                    self._changed = False
                    await self._list_again(client)
                    await anyio.sleep(LIST_SECONDS)
            tasks.cancel_scope.cancel()

    async def _list_again(self, client: Client) -> None:
        before = [tool.spec for tool in self.tools]
        try:
            await self._list(client)
        except MCPError as error:  # keep the tools of the last list
            logger.warning(
                "the tools and prompts of MCP server %s could not be read again, so the earlier "
                "lists are kept: %s",
                self.name,
                error.message,
            )
        if self.on_change is not None and before != [tool.spec for tool in self.tools]:
            self.on_change(self)

    async def _subscribe(self, client: Client) -> None:
        """Subscribe to changes of tools and of the resources in `_subscriptions` until cancelled.

        If `_subscriptions` changes, subscribe again. Servers of the newer protocol send such
        notifications only on request.
        """
        while True:
            self._resubscribe = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, client, tuple(self._subscriptions))
                await self._resubscribe.wait()
                tasks.cancel_scope.cancel()

    async def _listen(self, client: Client, uris: Sequence[str]) -> None:
        try:
            async with client.listen(
                tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=uris
            ) as changes:
                self._mark_changed()  # the list may have changed before the subscription
                async for change in changes:
                    uri = getattr(change, "uri", None)
                    if uri is None:
                        self._mark_changed()
                    else:
                        self._report_update(str(uri))
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.debug(
                "MCP server %s does not report changes of tools and resources: %s", self.name, error
            )

    async def subscribe(self, uri: str) -> None:
        """Ask the server to report changes of a resource; each report calls `on_update`."""
        client = self._client
        if uri in self._subscriptions:
            return
        if client is not None and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            asked = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            await self.request(
                lambda client: client.session.send_request(asked, types.EmptyResult), uri
            )
        self._subscriptions.append(uri)
        self._resubscribe.set()

    async def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource, if there is one."""
        client = self._client
        if uri not in self._subscriptions:
            return
        self._subscriptions.remove(uri)
        self._resubscribe.set()
        if client is not None and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            asked = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            await self.request(
                lambda client: client.session.send_request(asked, types.EmptyResult), uri
            )

    def _report_update(self, uri: str) -> None:
        if self.on_update is not None and uri in self._subscriptions:
            self.on_update(self, uri)

    async def _on_message(self, message: Any) -> None:
        method = str(getattr(message, "method", ""))
        if method.endswith("/list_changed"):
            self._mark_changed()
        elif method == "notifications/resources/updated":
            self._report_update(str(message.params.uri))
        elif method == "notifications/elicitation/complete":
            page = self._pages.pop(str(message.params.elicitation_id), None)
            if page is not None:
                page.finished.set()

    async def _log(self, params: Any) -> None:
        """Log a message of the server at level INFO, cleaned and cut to 500 characters."""
        text = params.data if isinstance(params.data, str) else json.dumps(params.data, default=str)
        logger.info("MCP server %s: %s: %s", self.name, params.level, clean(text)[:500])

    def _mark_changed(self) -> None:
        self._changed = True
        self._wake.set()

    async def _list(self, client: Client) -> None:
        """Read the server's lists, and set `tools` and `prompts`; `tools` includes resource tools.

        The lists are those of tools, resources and prompts. If the server has resources or resource
        templates, two tools that list and read resources are added to the tools of the server.
        """
        capabilities = client.server_capabilities
        known = self._chosen(await self._pages_of(client.list_tools, "tools"))
        names = prefix_names(self.name, known)
        made = [self._tool(full, known[name]) for full, name in names.items()]
        tools = {tool.name: tool for tool in made if tool is not None}
        if capabilities and capabilities.resources is not None:
            found = await self._pages_of(client.list_resources, "resources")
            if found or await self._templates(client):
                for tool in self._resource_tools():
                    tools.setdefault(tool.name, tool)
        prompts: list[dict[str, Any]] = []
        if capabilities and capabilities.prompts is not None:
            prompts = await self._pages_of(client.list_prompts, "prompts")
        self.tools = tuple(tools.values())
        self.prompts = tuple(ServerPrompt(self, given) for given in prompts)

    def _chosen(self, listed: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return the listed tools that the configuration includes, by name; log repeated names.

        Of tools with the same name, the first is used. Log names that the server lists twice, and
        patterns of the configuration that match no tool.
        """
        known: dict[str, Mapping[str, Any]] = {}
        twice: list[str] = []
        for given in listed:
            if given["name"] in known:
                twice.append(given["name"])
            known.setdefault(given["name"], given)
        if twice:
            self._warn_once(
                f"MCP server {self.name} lists tools twice, and the first of each is used: "
                f"{shown_names(twice)}"
            )
        include, exclude = self.config.include, self.config.exclude
        there = shown_names(list(known)) or "none"
        for key, patterns in (("includeTools", include), ("excludeTools", exclude)):
            for pattern in patterns:
                if not any(matches_text(name, pattern) for name in known):
                    self._warn_once(
                        f"the pattern {pattern!r} in {key} matches no tool of MCP server "
                        f"{self.name}; correct or remove the pattern; the server has: {there}"
                    )
        if not include and not exclude:
            return known
        return {
            name: given
            for name, given in known.items()
            if (not include or any(matches_text(name, pattern) for pattern in include))
            and not any(matches_text(name, pattern) for pattern in exclude)
        }

    async def _templates(self, client: Client) -> list[dict[str, Any]]:
        """Return the server's resource templates, or [] if the server answers with an error."""
        try:
            return await self._pages_of(client.list_resource_templates, "resource_templates")
        except MCPError:
            return []

    def _tool(self, full: str, given: Mapping[str, Any]) -> Tool[..., Any] | None:
        """Return a glue tool for a server's tool; if its definition is invalid, log, return None.

        Log too if the definition contains hidden characters, or has changed since it was used.
        """
        name, mark = given["name"], definition_hash(given)
        is_hidden = clean_all(given.get("description") or "") != (given.get("description") or "")
        if is_hidden:
            self._warn_once(
                f"hidden characters were removed from the description of the tool "
                f"{shown_names([name])} of MCP server {self.name}"
            )

        async def call(context: Context[Any], arguments: dict[str, Any]) -> ToolResult:
            self._pins.pin(name, mark)
            if tool is not None:
                tool.action = full  # the changed definition was allowed
            return await self._call(context, name, arguments)

        tool: Tool[..., Any] | None = None
        try:
            text = description(given, f"The tool {name} of the MCP server {self.name}.")
            tool = self._make(full, text, given.get("inputSchema") or NO_ARGUMENTS, call)
        except Exception as error:  # a hostile schema may raise any error in the validator
            logger.warning(
                "the tool %s of MCP server %s is left out: %s",
                shown_names([name]),
                self.name,
                error_line(error),
            )
            return None
        annotations = given.get("annotations") or {}
        tool.title = clean(str(given.get("title") or annotations.get("title") or ""))[:80]
        tool.kind = "delete" if annotations.get("destructiveHint") is True else ""
        if self._pins.has_changed(name, mark):
            tool.action = f"mcp-changed:{full}@{mark[:8]}"
            self._warn_once(
                f"the tool {name} of MCP server {self.name} has changed since it was used, "
                "so rules and remembered answers no longer cover it; if you trust the new "
                f"definition, allow {tool.action!r}"
            )
        return tool

    async def _call(
        self, context: Context[Any], name: str, arguments: dict[str, Any]
    ) -> ToolResult:
        reports = 0

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reports
            reports += 1
            if reports <= MAX_PROGRESS:
                text = message or (f"{progress:g} of {total:g}" if total else f"{progress:g}")
                context.progress(clean(text), {"progress": progress, "total": total})

        async def send(client: Client) -> Any:
            return await client.call_tool(name, arguments, None, on_progress)

        running = RunningCall(context)
        self._calls.append(running)
        token = _current.set(running)
        try:
            result = await self._with_pages(send, name)
        finally:
            self._calls.remove(running)
            _current.reset(token)
        return tool_result(_dump(result))

    async def _with_pages(self, send: Callable[[Client], Awaitable[Any]], name: str) -> Any:
        """Send a request and return the response; ask the user to open pages that the server needs.

        The server may refuse the first request until the user has opened pages in the browser.
        The request is then sent again. Raise ToolError if the user does not open one of the pages.
        """
        try:
            return await self.request(send, name)
        except ToolError as error:
            cause = error.__cause__
            if not isinstance(cause, MCPError) or cause.code != types.URL_ELICITATION_REQUIRED:
                raise
            listed = (cause.data or {}).get("elicitations") if isinstance(cause.data, dict) else ()
            pages = [types.ElicitRequestURLParams.model_validate(each) for each in listed or ()]
            for page in pages:
                answered = await self._elicit(None, page)
                if answered.action != "accept":
                    raise ToolError(f"{name}: the user did not open {clean(page.url)}") from error
                shown = self._pages.get(str(page.elicitation_id or ""))
                if shown is not None:
                    with anyio.move_on_after(PAGE_SECONDS):
                        await shown.finished.wait()
        return await self.request(send, name)

    def _make(
        self, name: str, text: str, schema: Mapping[str, Any], function: Any
    ) -> Tool[..., Any]:
        checked = checked_schema(schema)
        return Tool.from_schema(
            name,
            text,
            checked,
            function,
            takes_context=True,
            needs_permission=True,  # even if the server calls the tool read-only
            target=lambda arguments: json.dumps(arguments, default=str, ensure_ascii=False),
        )

    def _resource_tools(self) -> list[Tool[..., Any]]:
        """Return the tools that list and read the resources of the server."""

        async def list_resources(context: Context[Any], arguments: dict[str, Any]) -> str:
            listed = await self.request(
                lambda client: self._pages_of(client.list_resources, "resources"), "resources"
            )
            lines = [
                f"{each['uri']}  {each.get('title') or each.get('name', '')}" for each in listed
            ]
            templates = await self.request(self._templates, "resource templates")
            lines += [
                f"{each['uriTemplate']}  {each.get('title') or each.get('name', '')} (a template:"
                " replace the parts in braces)"
                for each in templates
            ]
            return clean("\n".join(lines)) or "the server does not offer resources at present"

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
        """Wait for a connection, send a request, return the response; raise ToolError on failure.

        If the HTTP session has expired, send the request again in a new session.

        Args:
            send: a function that sends the request through the client of the SDK.
            what: the name of the tool or resource, for messages.
        """
        running = _current.get()
        for is_last in (False, True):
            with anyio.move_on_after(self.timeout):
                await self._ready.wait()  # a restart may be running
            if self._client is None and not self._ready.is_set():
                raise ToolError(
                    f"{what}: the MCP server {self.name} is being restarted; try again later"
                )
            restarted = f"is not restarted again after {count(self._restarts, 'restart')}"
            if self._client is None:
                raise ToolError(f"the MCP server {self.name} has ended and {restarted}")
            try:
                with anyio.fail_after(self.timeout) as scope:
                    if running is not None:
                        running.scope = scope
                    return await send(self._client)
            except TimeoutError as error:
                raise ToolError(
                    f"{what}: the MCP server {self.name} did not answer within "
                    f"{self.timeout:g} seconds"
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
                    why = self._transport.hint or clean(error.message)[:MAX_ERROR]
                    raise ToolError(f"error of the MCP server {self.name}: {why}") from error
                self._lose()
                is_restarted = self._restart_delay() is not None
                advice = "is restarted, so try again" if is_restarted else restarted
                raise ToolError(
                    f"the MCP server {self.name} ended during the call; it {advice}"
                    f"{self._last_words()}"
                ) from error
        raise AssertionError("unreachable")

    def _lose(self) -> None:
        """Mark the connection as lost, so that requests wait until `run` has connected again."""
        if self._client is not None:
            self._client = None
            self._ready = anyio.Event()
            self._wake.set()

    async def _list_roots(self, context: Any) -> Any:
        """Return the folders in `roots`, which the server may use, as file URIs with names."""
        paths = [Path(root).resolve() for root in self.roots]
        roots: list[Any] = [{"uri": path.as_uri(), "name": path.name} for path in paths]
        return types.ListRootsResult(roots=roots)

    def _caller(self) -> RunningCall | None:
        """Return the call that caused a message of the server, or None if the call is not certain.

        Over HTTP the transport knows the call. A message of a process does not name its call; if
        all running calls belong to one session, the newest call is returned.
        """
        known = _current.get()
        if known in self._calls:
            return known
        scopes = {call.context.scope for call in self._calls}
        return self._calls[-1] if len(scopes) == 1 else None

    @asynccontextmanager
    async def _waiting_for_user(self, running: RunningCall | None) -> AsyncIterator[None]:
        """Suspend the time limit of a call while the user answers a question, then restart it.

        The call then has the full time again. If `running` is None, no time limit changes.
        """
        scope = running.scope if running is not None else None
        if scope is not None:
            scope.deadline = math.inf
        try:
            yield
        finally:
            if scope is not None:
                scope.deadline = anyio.current_time() + self.timeout

    async def _elicit(self, context: Any, params: Any) -> Any:
        """Return the answer of `elicit`, or else of the permission policy, to a server's question.

        Return a refusal if there is no answer. Log a refusal for another reason, such as an error.
        """
        running = self._caller()
        if running is None and len(self._calls) > 1:
            self._warn_once(
                f"glue declined a question of MCP server {self.name}: calls of several sessions "
                "are running, and the server did not name the call of the question"
            )
            return types.ElicitResult(action="decline")
        asking = running.context if running is not None else None
        question = read_question(self.name, params, asking)
        if question is None:
            self._warn_once(
                f"MCP server {self.name} asked to open an address that is not an http or https "
                f"URL; glue declined the request: {ascii(str(params.url))[:200]}"
            )
            return types.ElicitResult(action="decline")
        if question.url and self.elicit is None:
            self._warn_once(
                f"MCP server {self.name} asked to open a page at {question.origin}, and glue "
                "declined: pass elicit= to show such questions to the user"
            )
        try:
            async with self._waiting_for_user(running):
                if self.elicit is not None:
                    answer = await self.elicit(question)
                else:
                    answer = await ask_policy(question, asking)
            if answer is None:
                return types.ElicitResult(action="decline")
            if question.url:
                if question.id:
                    self._pages[question.id] = question
                return types.ElicitResult(action="accept")
            return types.ElicitResult(action="accept", content=completed(question, answer))
        except Exception as error:
            logger.warning(
                "glue declined a question of MCP server %s because of an error: %s",
                self.name,
                error_line(error),
            )
            return types.ElicitResult(action="decline")

    async def _sample(self, context: Any, params: Any) -> Any:
        """Return the reply of the run's model to the server's request; log and return an error."""
        running = self._caller()
        try:
            async with self._waiting_for_user(running):
                return await sample(self.name, params, running.context if running else None)
        except Exception as error:
            message = f"glue has no reply from the model: {error_line(error)}"
            logger.warning("MCP server %s: %s", self.name, message)
            return types.ErrorData(code=types.INVALID_REQUEST, message=message)

    async def complete(self, reference: Any, argument: str, value: str = "") -> list[str]:
        """Ask the server to complete the text `value` of an argument; return its suggestions.

        Args:
            reference: a prompt, or the URI template of a resource as a text.
            argument: the name of the argument, or of the part in braces.
            value: the text that the user has typed so far.
        """
        if isinstance(reference, str):
            reference = types.ResourceTemplateReference(uri=reference)
        given = {"name": argument, "value": value}
        result = await self.request(lambda client: client.complete(reference, given), argument)
        return [clean(str(each)) for each in _dump(result)["completion"]["values"]]

    async def _pages_of(
        self, list_page: Callable[..., Awaitable[Any]], field: str
    ) -> list[dict[str, Any]]:
        """Return the items of all pages of a list. If the list is too long, cut it and warn.

        The attribute `field` of a page contains its items. At most MAX_PAGES pages are read, and at
        most MAX_ITEMS items are returned. The warning is logged once.
        """
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await list_page(cursor=cursor, cache_mode="bypass")
            found += map(_dump, getattr(page, field))
            cursor = page.next_cursor
            if not cursor or len(found) > MAX_ITEMS:
                break
        if cursor or len(found) > MAX_ITEMS:
            self._warn_once(
                f"MCP server {self.name} lists more {field} than glue reads; only the first "
                f"{min(len(found), MAX_ITEMS):,} are used"
            )
        return found[:MAX_ITEMS]


def _dump(model: Any) -> dict[str, Any]:
    """Return an object of the MCP SDK as a dict, with the field names of the protocol."""
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def error_line(error: BaseException) -> str:
    """Return the message of an error, or of the innermost error of a group, on one line."""
    error = innermost(error)
    text: str = clean(" ".join(str(error).split()))
    return text[:500] or type(error).__name__


def prefix_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return a dict: the name for providers, with the server as prefix -> the name on the server.

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

"""A server of the Agent Client Protocol: it answers the requests of one editor."""

from __future__ import annotations

import contextlib
import logging
import os
import os.path
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import anyio

from glue import __version__
from glue.acp.editor import EditorPermission
from glue.acp.rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_METHOD,
    NOT_FOUND,
    Peer,
    Response,
    RpcError,
    Work,
)
from glue.acp.session import DEFAULTS, OpenSession, PendingPrompt, list_page
from glue.acp.updates import (
    STOP_REASONS,
    Reporter,
    answer,
    chunk,
    failure,
    plain,
    prompt_parts,
    replay,
)
from glue.agent import Agent
from glue.errors import GlueError, StoreError
from glue.limits import Outcome, read_limits
from glue.messages import AssistantMessage, new_id
from glue.paths import state_dir
from glue.provider import capabilities
from glue.stores.jsonl import FileStore
from glue.stores.store import SessionInfo, Store, copy, title_of
from glue.telemetry import continued
from glue.text import one_line

if TYPE_CHECKING:
    from glue.tools.mcp import Question

VERSION = 1
PAGE_SECONDS = 600.0  # time for a user to complete a page that an MCP server asked to open
CONNECT_SECONDS = 10.0  # the time that a new session waits for its MCP servers to start

Params: TypeAlias = dict[str, Any]
MakeAgent: TypeAlias = Callable[[str, "Server", Sequence[str]], Agent[Any, Any]]


class Server:
    """A server of the Agent Client Protocol that answers the requests of one editor.

    Args:
        make: returns the agent for a working directory, this server and additional directories.
        store: the store of the sessions.
        source: the stream to read requests from.
        sink: the stream to write answers to.
        keys: names of environment variables for the provider's key, if the key is missing.
        rules: the permission rules of the settings, with the keys "allow" and "deny".
        budgets: the limits of the settings, by name.
    """

    def __init__(
        self,
        make: MakeAgent,
        store: Store,
        source: BinaryIO,
        sink: BinaryIO,
        keys: Sequence[str] = (),
        rules: Mapping[str, Sequence[str]] | None = None,
        budgets: Mapping[str, Any] | None = None,
    ) -> None:
        self._make, self._store, self._keys = make, store, tuple(keys)
        self._rules, self._budgets = rules or {}, budgets or {}
        self._sessions: dict[str, OpenSession] = {}
        self._agents: list[Agent[Any, Any]] = []
        # The sessions of the last list, for its further pages.
        self._listed: tuple[SessionInfo, ...] | None = None
        self._logged_out = False
        self._client: Any = {}  # the editor's capabilities
        self.peer = Peer(source, sink, self._on_request, self._on_notification)
        self._methods: dict[str, Callable[[Params], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": partial(self._load, replays=False),
            "session/fork": self._fork,
            "session/list": self._list,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self) -> None:
        """Answer requests until the editor closes the connection; then close the agents."""
        try:
            await self.peer.serve()
        finally:
            with anyio.CancelScope(shield=True):
                for agent in self._agents:
                    await agent.aclose()

    def offers(self, *path: str) -> Any:
        """Return the capability that the editor announced under nested names, or None.

        `offers("fs", "readTextFile")` is the value of `readTextFile` in the object `fs`.
        """
        found: Any = self._client
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def _on_request(self, method: str, params: Params) -> Work:
        """Return the function that answers a request; queue a prompt or remove a closed session.

        `session/prompt` queues its prompt. `session/close` removes its session from the open
        sessions and cancels the prompts of the session. A request with another method changes
        nothing before the function runs. Raise RpcError for an unknown method, an unknown session,
        an invalid prompt or a full queue.
        """
        if method == "session/prompt":
            opened = self._session(params)
            parts = prompt_parts(params.get("prompt"))
            meta = params.get("_meta")
            return partial(_guarded, self._prompt, opened, opened.add_prompt(), parts, meta)
        if method == "session/close":
            return partial(_guarded, self._close, self._forget(params))
        if (handler := self._methods.get(method)) is None:
            raise RpcError(NO_METHOD, f"unknown method {method!r}")
        return partial(_guarded, handler, params)

    def _on_notification(self, method: str, params: Params) -> None:
        """Cancel the prompts of a session for `session/cancel`; ignore other notifications.

        A prompt is cancelled even if its task has not begun.
        """
        if method == "session/cancel":
            opened = self._sessions.get(str(params.get("sessionId")))
            if opened is not None:
                opened.cancel()

    async def _initialize(self, params: Params) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if isinstance(version, bool) or not isinstance(version, int):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be a whole number")
        self._client = params.get("clientCapabilities")
        hint = "Set {} in the environment of the editor, and restart the editor."
        methods = [
            {"id": name, "name": name, "description": hint.format(name)} for name in self._keys
        ]
        return {
            "protocolVersion": VERSION,  # an editor that needs another version disconnects
            "agentInfo": {"name": "glue", "title": "glue", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    name: {}
                    for name in (
                        "list",
                        "resume",
                        "fork",
                        "close",
                        "delete",
                        "additionalDirectories",
                    )
                },
                "auth": {"logout": {}},
            },
            "authMethods": [*self._terminal_methods(), *methods],
        }

    def _terminal_methods(self) -> list[dict[str, Any]]:
        """Return a list with the terminal method to store a key; [] if unneeded or unsupported.

        The method is unneeded if no key is missing, and unsupported if the editor offers no
        terminal for authentication. The editor starts this program again with the argument
        `--setup`, and the program asks for the key.
        """
        if not self._keys or self.offers("auth", "terminal") is not True:
            return []
        return [
            {
                "type": "terminal",
                "id": "glue-keys",
                "name": "Store a key",
                "description": "Asks for the key of a provider in a terminal, and stores it.",
                "args": ["--setup"],
            }
        ]

    async def _authenticate(self, params: Params) -> dict[str, Any]:
        method = params.get("methodId")
        if self._logged_out and not self._keys:  # no key is missing, so any method will do
            self._logged_out = False
            return {}
        if method not in self._keys:
            hint = "the agent offers no methods, because keys come from the environment"
            if self._keys:
                hint = f"methods: {', '.join(self._keys)}"
            raise RpcError(INVALID_PARAMS, f"unknown authentication method {method!r}; {hint}")
        if not os.environ.get(str(method)):
            raise RpcError(
                AUTH_REQUIRED,
                f"{method} is not set; set it in the environment of the editor, "
                "and restart the editor",
            )
        self._logged_out = False
        return {}

    async def _logout(self, params: Params) -> dict[str, Any]:
        """Refuse prompts until the editor authenticates again; close connections to providers."""
        self._logged_out = True
        for agent in self._agents:
            await agent.aclose()
        return {}

    async def _new(self, params: Params) -> Response:
        cwd, session_id = _directory(params.get("cwd"), "cwd"), new_id()
        opened = await self._open(session_id, cwd, params)
        async with self._store.log(session_id, meta={"cwd": cwd}):
            pass  # stores the session, so that it can be loaded before its first prompt
        return self._opened({"sessionId": session_id}, opened)

    async def _fork(self, params: Params) -> Response:
        """Copy a stored session under a new id, open the copy, and return the protocol's answer."""
        cwd, session_id = _directory(params.get("cwd"), "cwd"), new_id()
        name = cast(str, params.get("sessionId"))  # the store checks it
        self._refuse_busy(self._sessions.get(name) if isinstance(name, str) else None)
        try:
            await copy(self._store, name, self._store, session_id)
        except (StoreError, ValueError) as error:
            raise RpcError(NOT_FOUND, f"session {name!r} cannot be forked: {error}") from error
        with contextlib.suppress(OSError):  # the settings of the original apply to the copy
            self._settings_file(session_id).write_bytes(self._settings_file(name).read_bytes())
        opened = await self._open(session_id, cwd, params)
        opened.has_title = True
        self._listed = None
        return self._opened({"sessionId": session_id}, opened)

    async def _load(self, params: Params, *, replays: bool = True) -> Response:
        """Open a stored session, send its messages if `replays`, and return the response.

        The editor receives the messages before the response. The usage of the messages is added to
        the usage of the session.
        """
        cwd = _directory(params.get("cwd"), "cwd")
        name = cast(str, params.get("sessionId"))  # the store checks it
        try:
            messages = await self._store.load(name)
        except (StoreError, ValueError) as error:
            raise RpcError(NOT_FOUND, f"session {name!r} cannot be opened: {error}") from error
        opened = await self._open(name, cwd, params)
        for message in messages:
            if isinstance(message, AssistantMessage):
                opened.add_usage(1, message.usage)
        opened.has_title = bool(messages)
        if replays:
            for update in replay(messages, opened.ids, opened.session.settings.tools or ()):
                self._update(opened.session.id, update)
                await self.peer.drain()
        return self._opened({}, opened)

    def _opened(self, result: dict[str, Any], opened: OpenSession) -> Response:
        """Return the answer to a request that opened a session, with its modes and options.

        The list of commands is sent after the answer, because the editor does not know the session
        before.
        """
        result |= {"modes": opened.modes(), "configOptions": opened.options(self._booleans)}

        def then() -> None:
            update = {
                "sessionUpdate": "available_commands_update",
                "availableCommands": opened.commands(),
            }
            self._update(opened.session.id, update)
            self._show_problems(opened)

        return Response(result, then)

    async def _open(self, id: str, cwd: str, params: Params) -> OpenSession:
        """Open or reopen a session with its agent, settings and MCP servers, and return it.

        If the session is open already, close the earlier OpenSession, or raise RpcError if that one
        is busy with a prompt.
        """
        self._refuse_busy(self._sessions.get(id))
        more = params.get("additionalDirectories") or ()
        if not isinstance(more, (list, tuple)):
            raise RpcError(INVALID_PARAMS, "additionalDirectories must be a list of absolute paths")
        directories = tuple(_directory(each, "additionalDirectories") for each in more)
        agent = self._make(cwd, self, directories)
        if agent not in self._agents:
            self._agents.append(agent)
        session = agent.session(id, store=self._store)
        opened = OpenSession(session, self._settings_file(id), cwd, directories)
        limits = read_limits(agent.settings.limits or DEFAULTS)
        session.limits = replace(limits, **self._budgets)
        opened.restore()
        given = params.get("_meta")
        meta: dict[str, Any] = given if isinstance(given, dict) else {}
        opened.set_limits(meta.get("limits"))
        opened.set_instructions(meta.get("systemPrompt"))
        own = agent.settings.permission
        permission = EditorPermission(self, id, opened.ids, lambda: opened.mode, own, self._rules)
        opened.permission = permission
        session.configure(permission=permission)
        await self._connect(opened, params.get("mcpServers"))
        before = self._sessions.get(id)  # another load of the session may have run meanwhile
        self._sessions[id] = opened
        if before is not None:
            await before.close()
        return opened

    async def _connect(self, opened: OpenSession, given: Any) -> None:
        """Start the MCP servers of a session; wait until connected, at most CONNECT_SECONDS.

        If the servers need longer, add a note to `opened.problems`; the servers continue to start,
        and their tools are added later.
        """
        configs = opened.server_configs(given)
        if not configs:
            opened.closed.set()
            return
        elicit = partial(self._elicit, opened)
        self.peer.tasks.start_soon(opened.run_servers, configs, elicit)
        try:
            with anyio.move_on_after(CONNECT_SECONDS) as waiting:
                await opened.connected.wait()
        except BaseException:
            opened.closing.set()
            raise
        if waiting.cancelled_caught:
            opened.problems.append(
                "MCP servers are still starting; their tools are added when they are ready"
            )

    async def _elicit(self, opened: OpenSession, question: Question) -> dict[str, Any] | None:
        """Show a question from an MCP server in the editor; return the answer, or None if declined.

        If the editor cannot show a form or a page, the question becomes a permission request, which
        can confirm a page or a form of yes-or-no fields. Return None also if the request fails.
        """
        mode = "url" if question.url else "form"
        if self.offers("elicitation", mode) is None:
            return await opened.confirm(question)
        shown = opened.ids.current(question.call_id)
        params: dict[str, Any] = {
            "sessionId": opened.session.id,
            **({"toolCallId": shown.id} if shown is not None else {}),
            "mode": mode,
            "message": f"{question.server}: {question.message}",
        }
        if question.url:
            params["elicitationId"] = question.id or new_id()
            params["url"] = question.url
            params["message"] += f" (opens {question.origin})"
        else:
            params["requestedSchema"] = dict(question.schema)
        try:
            answer = await self.peer.request("elicitation/create", params)
        except RpcError:
            return None
        if not isinstance(answer, dict) or answer.get("action") != "accept":
            return None
        if question.url:
            self.peer.tasks.start_soon(self._report_finished, question, params["elicitationId"])
            return {}
        content = answer.get("content")
        return content if isinstance(content, dict) else None

    async def _report_finished(self, question: Question, id: str) -> None:
        """Notify the editor when the user has finished the web page of a question.

        Send nothing if the user needs more than PAGE_SECONDS.
        """
        with anyio.move_on_after(PAGE_SECONDS):
            await question.finished.wait()
            self.peer.notify("elicitation/complete", {"elicitationId": id})

    async def _prompt(
        self, opened: OpenSession, pending: PendingPrompt, parts: Sequence[Any], meta: Any
    ) -> dict[str, Any]:
        """Wait until earlier prompts of a session are answered, then answer a prompt.

        A cancelled prompt is an answer with the stop reason "cancelled", not an error.
        """
        try:
            await opened.wait_for_turn(pending)
            if pending.cancel.cancelled:
                return plain(Outcome.CANCELLED)
            with continued(meta):
                done = await self._answer(opened, pending, parts)
        except Exception:
            if pending.cancel.cancelled:
                return plain(Outcome.CANCELLED)
            raise
        finally:
            opened.prompts.remove(pending)
            pending.done.set()
        if pending.cancel.cancelled and done["stopReason"] != "cancelled":
            return plain(Outcome.CANCELLED)  # the run had ended before it noticed the cancellation
        return done

    async def _answer(
        self, opened: OpenSession, pending: PendingPrompt, parts: Sequence[Any]
    ) -> dict[str, Any]:
        """Answer a slash command, or run the agent on a prompt; return the ACP answer."""
        self._show_problems(opened)
        session, answered = opened.session, await opened.command(parts)
        if isinstance(answered, str):
            self._show_options(opened)  # a command may have changed them
            self._update(session.id, chunk("agent_message_chunk", answered, new_id()))
            return plain(Outcome.DONE)
        prompt: Sequence[Any] = parts if answered is None else answered
        if self._logged_out:
            raise RpcError(AUTH_REQUIRED, "you have logged out; authenticate again")
        settings = session.settings
        reporter = Reporter(
            send=partial(self._update, session.id),
            drain=self.peer.drain,
            ids=opened.ids,
            tools=tuple(settings.tools or ()),
            compaction=self.offers("session", "compaction") is not None,
            window=capabilities(session.agent.open(settings.model or "")).window,
            cost=opened.usage.cost or 0.0,
        )
        if not opened.has_title:
            self._set_title(opened, prompt)
        result = await session.prompt(
            prompt, on_event=reporter, cancel=pending.cancel, unwrap=False
        )
        opened.add_usage(result.requests, result.usage)
        done = answer(result)
        if title := STOP_REASONS[result.outcome][1]:
            self._show_notice(session.id, title, result.notice or str(result.error or ""))
        return done

    def _set_title(self, opened: OpenSession, prompt: Sequence[Any]) -> None:
        """Send the editor a title for a session, made from `prompt`; send no empty title."""
        title = one_line(title_of(prompt), 80)
        if title:
            opened.has_title = True
            info = {"title": title, "updatedAt": datetime.now(UTC).isoformat()}
            self._update(opened.session.id, {"sessionUpdate": "session_info_update", **info})

    def _show_problems(self, opened: OpenSession) -> None:
        """Show the user the problems of a session's MCP servers that were not shown yet."""
        problems, opened.problems[:] = tuple(opened.problems), []
        for problem in problems:
            self._show_notice(opened.session.id, problem)

    def _show_notice(self, id: str, title: str, detail: str = "") -> None:
        """Show a warning to the user: as a notice if the editor has notices, else as a message."""
        if self.offers("session", "notices") is not None:
            notice = {"severity": "warning", "title": title}
            if detail:
                notice["description"] = detail
            self._update(id, {"sessionUpdate": "notice", **notice})
        else:
            text = f"\n[{title}{': ' if detail else ''}{detail}]\n"
            self._update(id, chunk("agent_message_chunk", text, new_id()))

    async def _set_mode(self, params: Params) -> dict[str, Any]:
        opened = self._session(params)
        opened.set_mode(params.get("modeId"))
        self._show_options(opened)
        return {}

    async def _set_option(self, params: Params) -> dict[str, Any]:
        opened = self._session(params)
        before = opened.mode
        opened.set_option(params.get("configId"), params.get("value"), self._booleans)
        opened.save()
        if opened.mode != before:
            update = {"sessionUpdate": "current_mode_update", "currentModeId": opened.mode}
            self._update(opened.session.id, update)
        return {"configOptions": opened.options(self._booleans)}

    @property
    def _booleans(self) -> bool:
        """True if the editor understands options with the values true and false."""
        return self.offers("session", "configOptions", "boolean") is not None

    def _show_options(self, opened: OpenSession) -> None:
        """Save the settings of a session, and send them to the editor as options."""
        opened.save()
        options = opened.options(self._booleans)
        update = {"sessionUpdate": "config_option_update", "configOptions": options}
        self._update(opened.session.id, update)

    async def _list(self, params: Params) -> dict[str, Any]:
        cursor = params.get("cursor")
        if cursor is None or self._listed is None:
            self._listed = await self._store.list()
        return list_page(self._listed, params.get("cwd"), cursor)

    async def _delete(self, params: Params) -> dict[str, Any]:
        name = cast(str, params.get("sessionId"))  # the store checks it
        if isinstance(name, str) and name in self._sessions:
            await self._close(self._forget(params))
        try:
            await self._store.delete(name)
        except (StoreError, ValueError) as error:
            raise RpcError(NOT_FOUND, f"session {name!r} cannot be deleted: {error}") from error
        self._settings_file(name).unlink(missing_ok=True)
        self._listed = None
        return {}

    def _settings_file(self, id: str) -> Path:
        return state_dir() / "acp" / f"{id}.settings.json"

    def _forget(self, params: Params) -> OpenSession:
        """Remove a session from `_sessions`, cancel its prompts and return the session.

        Raise RpcError if the session is not open.
        """
        opened = self._session(params)
        del self._sessions[opened.session.id]
        opened.cancel()
        return opened

    async def _close(self, opened: OpenSession) -> dict[str, Any]:
        await opened.close()
        return {}

    def _session(self, params: Params) -> OpenSession:
        """Return the open session that a request names; raise RpcError if it is not open."""
        name = params.get("sessionId")
        opened = self._sessions.get(name) if isinstance(name, str) else None
        if opened is None:
            message = f"the session {name!r} is not open; use session/new or session/load"
            raise RpcError(NOT_FOUND, message)
        return opened

    def _refuse_busy(self, opened: OpenSession | None) -> None:
        """Raise RpcError if a session has a prompt that is not answered yet."""
        if opened is not None and opened.prompts:
            message = "the session is busy with a prompt; cancel the prompt or wait for its end"
            raise RpcError(INVALID_REQUEST, message)

    def _update(self, id: str, update: dict[str, Any]) -> None:
        self.peer.notify("session/update", {"sessionId": id, "update": update})


async def _guarded(handler: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Call a handler and return its result; translate a GlueError to RpcError."""
    try:
        return await handler(*args)
    except GlueError as error:
        raise failure(error) from error


def _directory(path: Any, name: str) -> str:
    """Return `path` if it is the absolute path of a directory; otherwise raise RpcError.

    `name` is the parameter that the error names.
    """
    if not isinstance(path, str) or not os.path.isabs(path):
        raise RpcError(INVALID_PARAMS, f"{name} must be an absolute path, not {path!r}")
    if not os.path.isdir(path):
        raise RpcError(INVALID_PARAMS, f"{name} {path!r} is not a directory")
    return path


async def serve(
    make: MakeAgent,
    source: BinaryIO,
    sink: BinaryIO,
    store: Store | None = None,
    keys: Sequence[str] = (),
    rules: Mapping[str, Sequence[str]] | None = None,
    budgets: Mapping[str, Any] | None = None,
) -> None:
    """Serve one editor until it closes the connection, and log warnings to standard error.

    The arguments are those of `Server`. Without a store, the sessions are files in the state
    directory.
    """
    # Editors show the standard error output of the server, so warnings go there.
    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")
    opened = store or FileStore(state_dir() / "acp")
    await Server(make, opened, source, sink, keys, rules, budgets).serve()

"""The agent's side of the Agent Client Protocol: it answers one editor's requests."""

from __future__ import annotations

import logging
import os
import os.path
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

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
from glue.acp.updates import STOP_REASONS, Reporter, answer, chunk, failure, plain, prompt_parts, replay
from glue.agent import Agent
from glue.errors import GlueError, StoreError
from glue.limits import Outcome, read_limits
from glue.messages import AssistantMessage, new_id
from glue.paths import state_dir
from glue.provider import capabilities
from glue.stores.jsonl import FileStore
from glue.stores.store import SessionInfo, Store
from glue.telemetry import continued
from glue.text import one_line

VERSION = 1
CONNECT_SECONDS = 10.0  # that a session waits for its MCP servers; those that take longer come later

Params: TypeAlias = dict[str, Any]
MakeAgent: TypeAlias = Callable[[str, "Server", Sequence[str]], Agent[Any, Any]]


class Server:
    """Serves one editor. `make` gives the agent for the directories; `keys` are variables that want a key.

    `rules` of permission and `budgets` are those of the command line's settings.
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
        self._listed: tuple[SessionInfo, ...] | None = None  # as of the last list, for its further pages
        self._logged_out = False
        self._client: Any = {}  # the editor's capabilities
        self.peer = Peer(source, sink, self._call, self._notice)
        self._methods: dict[str, Callable[[Params], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": partial(self._load, tell=False),
            "session/list": self._list,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self) -> None:
        """Serve until the editor closes the connection."""
        try:
            await self.peer.serve()
        finally:
            with anyio.CancelScope(shield=True):
                for agent in self._agents:
                    await agent.aclose()

    def offers(self, *path: str) -> Any:
        """Look up a capability of the editor; None where it does not say."""
        found: Any = self._client
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def _call(self, method: str, params: Params) -> Work:
        """Take a request in the order of reading; a prompt holds its session from here on."""
        if method == "session/prompt":
            opened = self._session(params)
            self._refuse_busy(opened)
            parts = prompt_parts(params.get("prompt"))
            opened.prompt = PendingPrompt()
            return partial(_guarded, self._prompt, opened, opened.prompt, parts, params.get("_meta"))
        if method == "session/close":
            return partial(_guarded, self._close, self._forget(params))
        if (handler := self._methods.get(method)) is None:
            raise RpcError(NO_METHOD, f"there is no method {method!r}")
        return partial(_guarded, handler, params)

    def _notice(self, method: str, params: Params) -> None:
        """Cancel at once: a cancel right behind a prompt finds it here, though its task has not begun."""
        if method == "session/cancel":
            opened = self._sessions.get(str(params.get("sessionId")))
            if opened is not None and opened.prompt is not None:
                opened.prompt.cancel.cancel()

    # Beginning ------------------------------------------------------------------------------------

    async def _initialize(self, params: Params) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if isinstance(version, bool) or not isinstance(version, int):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be a whole number")
        self._client = params.get("clientCapabilities")
        hint = "Set {} where the editor starts glue, and start it again."
        return {
            "protocolVersion": VERSION,  # an editor that speaks only another one hangs up
            "agentInfo": {"name": "glue", "title": "glue", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    name: {} for name in ("list", "resume", "close", "delete", "additionalDirectories")
                },
                "auth": {"logout": {}},
            },
            "authMethods": [{"id": name, "name": name, "description": hint.format(name)} for name in self._keys],
        }

    async def _authenticate(self, params: Params) -> dict[str, Any]:
        method = params.get("methodId")
        if method not in self._keys:
            there = f"there are: {', '.join(self._keys)}" if self._keys else "keys come from the environment"
            raise RpcError(INVALID_PARAMS, f"there is no method of authentication {method!r}; {there}")
        if not os.environ.get(str(method)):
            raise RpcError(
                AUTH_REQUIRED, f"{method} is not set; set it where the editor starts glue, and start it again"
            )
        self._logged_out = False
        return {}

    async def _logout(self, params: Params) -> dict[str, Any]:
        """Ask nothing of a model until the editor authenticates again; connections that carry keys are closed."""
        self._logged_out = True
        for agent in self._agents:
            await agent.aclose()
        return {}

    async def _new(self, params: Params) -> Response:
        cwd, session_id = _directory(params.get("cwd"), "cwd"), new_id()
        opened = await self._open(session_id, cwd, params)
        async with self._store.log(session_id, meta={"cwd": cwd}):
            pass  # it is there from now on, also if nothing is ever said
        return self._opened({"sessionId": session_id}, opened)

    async def _load(self, params: Params, *, tell: bool = True) -> Response:
        cwd, wanted = _directory(params.get("cwd"), "cwd"), cast(str, params.get("sessionId"))  # the store checks it
        try:
            messages = await self._store.load(wanted)
        except (StoreError, ValueError) as error:
            raise RpcError(NOT_FOUND, f"there is no session {wanted!r}") from error
        opened = await self._open(wanted, cwd, params)
        for message in messages:
            if isinstance(message, AssistantMessage):
                opened.add_usage(1, message.usage)
        opened.has_title = bool(messages)
        for update in replay(messages, opened.ids, opened.session.settings.tools or ()) if tell else ():
            self._update(opened.session.id, update)
            await self.peer.drain()
        return self._opened({}, opened)

    def _opened(self, result: dict[str, Any], opened: OpenSession) -> Response:
        """Tell of the commands behind the answer: before it, an editor does not know the session."""
        result |= {"modes": opened.modes(), "configOptions": opened.options(self._booleans)}

        def then() -> None:
            update = {"sessionUpdate": "available_commands_update", "availableCommands": opened.commands()}
            self._update(opened.session.id, update)
            self._tell_troubles(opened)

        return Response(result, then)

    async def _open(self, id: str, cwd: str, params: Params) -> OpenSession:
        self._refuse_busy(self._sessions.get(id))
        more = params.get("additionalDirectories") or ()
        if not isinstance(more, (list, tuple)):
            raise RpcError(INVALID_PARAMS, "additionalDirectories must be a list of absolute paths")
        directories = tuple(_directory(each, "additionalDirectories") for each in more)
        agent = self._make(cwd, self, directories)
        if agent not in self._agents:
            self._agents.append(agent)
        opened = OpenSession(agent.session(id, store=self._store), self._saved(id), cwd, directories)
        opened.session.limits = replace(read_limits(agent.settings.limits or DEFAULTS), **self._budgets)
        opened.restore()
        meta = params.get("_meta")
        opened.set_limits(meta.get("limits") if isinstance(meta, dict) else None)
        own = agent.settings.permission
        permission = EditorPermission(self, id, opened.ids, lambda: opened.mode, own, **self._rules)
        opened.session.configure(permission=permission)
        await self._connect(opened, params.get("mcpServers"))
        before = self._sessions.get(id)  # two loads of one session may have gone side by side
        self._sessions[id] = opened
        if before is not None:
            await before.close()
        return opened

    async def _connect(self, opened: OpenSession, given: Any) -> None:
        """Start the MCP servers of a session; it is there without those that fail or take long."""
        configs = opened.server_configs(given)
        if not configs:
            opened.closed.set()
            return
        self.peer.tasks.start_soon(opened.run_servers, configs, partial(self._elicit, opened.session.id))
        try:
            with anyio.move_on_after(CONNECT_SECONDS) as waiting:
                await opened.connected.wait()
        except BaseException:
            opened.closing.set()
            raise
        if waiting.cancelled_caught:
            opened.troubles.append("MCP servers are still starting; their tools come when they are ready")

    async def _elicit(self, id: str, server: str, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Put a question of an MCP server to the user, where the editor has forms; None is no."""
        if self.offers("elicitation", "form") is None:
            return None
        params = {"sessionId": id, "mode": "form", "message": f"{server}: {message}", "requestedSchema": schema}
        try:
            said = await self.peer.request("elicitation/create", params)
        except RpcError:
            return None
        content = said.get("content") if isinstance(said, dict) and said.get("action") == "accept" else None
        return content if isinstance(content, dict) else None

    # Prompts --------------------------------------------------------------------------------------

    async def _prompt(
        self, opened: OpenSession, pending: PendingPrompt, parts: Sequence[Any], meta: Any
    ) -> dict[str, Any]:
        try:
            with continued(meta):
                done = await self._answer(opened, pending, parts)
        except Exception:
            if pending.cancel.cancelled:
                return plain(Outcome.CANCELLED)  # never an error, whatever the cancelling brought about
            raise
        finally:
            opened.prompt = None
            pending.done.set()
        if pending.cancel.cancelled and done["stopReason"] != "cancelled":
            return plain(Outcome.CANCELLED)  # too late for the run, not for its answer
        return done

    async def _answer(self, opened: OpenSession, pending: PendingPrompt, parts: Sequence[Any]) -> dict[str, Any]:
        self._tell_troubles(opened)
        session, said = opened.session, await opened.command(parts)
        if isinstance(said, str):
            self._show_options(opened)  # a command may have changed them
            self._update(session.id, chunk("agent_message_chunk", said, new_id()))
            return plain(Outcome.DONE)
        asked: Sequence[Any] = parts if said is None else said
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
        title = next((one_line(part.text, 80) for part in asked if getattr(part, "text", "").strip()), "")
        if title and not opened.has_title:  # a session is named by its first prompt, as the list does
            opened.has_title = True
            now = datetime.now(UTC).isoformat()
            self._update(session.id, {"sessionUpdate": "session_info_update", "title": title, "updatedAt": now})
        result = await session.prompt(asked, on_event=reporter, cancel=pending.cancel, unwrap=False)
        opened.add_usage(result.requests, result.usage)
        done = answer(result)
        if words := STOP_REASONS[result.outcome][1]:
            self._say(session.id, words, result.notice or str(result.error or ""))
        return done

    def _tell_troubles(self, opened: OpenSession) -> None:
        troubles, opened.troubles[:] = tuple(opened.troubles), []
        for trouble in troubles:
            self._say(opened.session.id, trouble)

    def _say(self, id: str, title: str, detail: str = "") -> None:
        """Tell the user something: as a notice where the editor shows those, else as a message."""
        if self.offers("session", "notices") is not None:
            more = {"description": detail} if detail else {}
            self._update(id, {"sessionUpdate": "notice", "severity": "warning", "title": title, **more})
        else:
            text = f"\n[{title}{': ' if detail else ''}{detail}]\n"
            self._update(id, chunk("agent_message_chunk", text, new_id()))

    # Settings -------------------------------------------------------------------------------------

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
            self._update(opened.session.id, {"sessionUpdate": "current_mode_update", "currentModeId": opened.mode})
        return {"configOptions": opened.options(self._booleans)}

    @property
    def _booleans(self) -> bool:
        return self.offers("session", "configOptions", "boolean") is not None

    def _show_options(self, opened: OpenSession) -> None:
        opened.save()
        options = opened.options(self._booleans)
        self._update(opened.session.id, {"sessionUpdate": "config_option_update", "configOptions": options})

    # Lists and ends -------------------------------------------------------------------------------

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
            raise RpcError(NOT_FOUND, f"there is no session {name!r}") from error
        self._saved(name).unlink(missing_ok=True)
        self._listed = None
        return {}

    def _saved(self, id: str) -> Path:
        return state_dir() / "acp" / f"{id}.settings.json"

    def _forget(self, params: Params) -> OpenSession:
        opened = self._session(params)
        del self._sessions[opened.session.id]
        if opened.prompt is not None:
            opened.prompt.cancel.cancel()
        return opened

    async def _close(self, opened: OpenSession) -> dict[str, Any]:
        await opened.close()
        return {}

    def _session(self, params: Params) -> OpenSession:
        name = params.get("sessionId")
        opened = self._sessions.get(name) if isinstance(name, str) else None
        if opened is None:
            raise RpcError(NOT_FOUND, f"no session {name!r} is open; use session/new or session/load")
        return opened

    def _refuse_busy(self, opened: OpenSession | None) -> None:
        if opened is not None and opened.prompt is not None:
            raise RpcError(INVALID_REQUEST, "the session is busy with a prompt; cancel it or wait for it")

    def _update(self, id: str, update: dict[str, Any]) -> None:
        self.peer.notify("session/update", {"sessionId": id, "update": update})


async def _guarded(handler: Callable[..., Awaitable[Any]], *given: Any) -> Any:
    try:
        return await handler(*given)
    except GlueError as error:
        raise failure(error) from error


def _directory(path: Any, name: str) -> str:
    if not isinstance(path, str) or not os.path.isabs(path):
        raise RpcError(INVALID_PARAMS, f"{name} must be an absolute path, not {path!r}")
    if not os.path.isdir(path):
        raise RpcError(INVALID_PARAMS, f"{name} {path!r} is no directory")
    return path


async def serve(make: MakeAgent, source: BinaryIO, sink: BinaryIO, store: Store | None = None, *settings: Any) -> None:
    """Serve one editor on two streams until it hangs up. The settings are those of `Server`."""
    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")  # warnings; what it logs shows in the editor
    await Server(make, store or FileStore(state_dir() / "acp"), source, sink, *settings).serve()

"""The agent's side of the Agent Client Protocol: it answers one editor's requests."""

from __future__ import annotations

import os
import os.path
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, BinaryIO, TypeAlias, cast

import anyio

from glue import __version__
from glue.acp.editor import EditorPermission
from glue.acp.options import (
    DEFAULTS,
    available_commands,
    changed,
    command,
    config_options,
    given_limits,
    is_limit,
    known_mode,
    mode_state,
    option_names,
)
from glue.acp.rpc import INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, NOT_FOUND, Peer, Response, RpcError, Work
from glue.acp.session import OpenSession, PendingPrompt, list_page, run_servers, server_configs
from glue.acp.updates import Reporter, answer, chunk, failure, plain, prompt_parts, replay
from glue.agent import Agent
from glue.errors import GlueError
from glue.limits import Limits, Outcome
from glue.messages import new_id
from glue.paths import state_dir
from glue.provider import capabilities
from glue.stores.store import Store
from glue.telemetry import continued

VERSION = 1

Params: TypeAlias = dict[str, Any]


class Server:
    """Serves one editor. `make` gives the agent for a working directory."""

    def __init__(
        self, make: Callable[[str, Server], Agent[Any, Any]], store: Store, source: BinaryIO, sink: BinaryIO
    ) -> None:
        self._make, self._store = make, store
        self._sessions: dict[str, OpenSession] = {}
        self._agents: list[Agent[Any, Any]] = []
        self.client: dict[str, Any] = {}  # the editor's capabilities
        self.peer = Peer(source, sink, self._call, self._notice)
        self._methods: dict[str, Callable[[Params], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
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

    def _call(self, method: str, params: Params) -> Work:
        """Take a request in the order of reading; a prompt holds its session from here on."""
        if method == "session/prompt":
            return self._begin(params)
        if method == "session/close":
            return partial(self._close, self._forget(params))
        handler = self._methods.get(method)
        if handler is None:
            raise RpcError(NO_METHOD, f"there is no method {method!r}")
        return partial(_guarded, handler, params)

    def _notice(self, method: str, params: Params) -> None:
        """Cancel at once: a cancel right behind a prompt finds it here, though its task has not started."""
        if method == "session/cancel":
            opened = self._sessions.get(str(params.get("sessionId")))
            if opened is not None and opened.prompt is not None:
                opened.prompt.cancel.cancel()

    # Beginning ------------------------------------------------------------------------------------

    async def _initialize(self, params: Params) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if isinstance(version, bool) or not isinstance(version, int):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be a whole number")
        offered = params.get("clientCapabilities")
        self.client = offered if isinstance(offered, dict) else {}
        return {
            "protocolVersion": VERSION,  # an editor that speaks only another one hangs up
            "agentInfo": {"name": "glue", "title": "glue", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "authMethods": [],
        }

    async def _authenticate(self, params: Params) -> dict[str, Any]:
        raise RpcError(INVALID_PARAMS, "no method of authentication is offered: keys come from the environment")

    async def _new(self, params: Params) -> Response:
        cwd, session_id = _cwd(params), new_id()
        opened = await self._open(session_id, cwd, params)
        async with self._store.log(session_id, meta={"cwd": cwd}):
            pass  # it is there from now on, also if nothing is ever said
        return self._opened({"sessionId": session_id, **_settings(opened)}, session_id)

    async def _load(self, params: Params) -> Response:
        cwd, session_id = _cwd(params), await self._stored(params)
        opened = await self._open(session_id, cwd, params)
        messages = await self._store.load(session_id)
        opened.usage.recall(messages)
        for update in replay(messages, cwd, opened.ids):
            self._update(session_id, update)
            await self.peer.drain()
        return self._opened(_settings(opened), session_id)

    async def _resume(self, params: Params) -> Response:
        cwd, session_id = _cwd(params), await self._stored(params)
        opened = await self._open(session_id, cwd, params)
        opened.usage.recall(await self._store.load(session_id))
        return self._opened(_settings(opened), session_id)

    def _opened(self, result: dict[str, Any], id: str) -> Response:
        """Tell of the commands behind the answer: before it, an editor does not know the session."""
        update = {"sessionUpdate": "available_commands_update", "availableCommands": available_commands()}
        return Response(result, lambda: self._update(id, update))

    async def _stored(self, params: Params) -> str:
        wanted = params.get("sessionId")
        if wanted not in [info.id for info in await self._store.list()]:
            raise RpcError(NOT_FOUND, f"there is no session {wanted!r}")
        return str(wanted)

    async def _open(self, id: str, cwd: str, params: Params) -> OpenSession:
        before = self._sessions.get(id)
        if before is not None and before.prompt is not None:
            raise RpcError(INVALID_REQUEST, "the session is busy with a prompt; cancel it or wait for it")
        servers = server_configs(params.get("mcpServers"), cwd)
        agent = self._make(cwd, self)
        if agent not in self._agents:
            self._agents.append(agent)
        limits = given_limits(params.get("_meta"), cast(Limits, agent.settings.limits or DEFAULTS))
        opened = OpenSession(agent.session(id, store=self._store, limits=limits), cwd)
        own = agent.settings.permission
        permission = EditorPermission(self.peer, id, cwd, ids=opened.ids, mode=lambda: opened.mode, own=own)
        opened.session.configure(permission=permission)
        if servers:
            await self.peer.tasks.start(run_servers, opened, servers)
        else:
            opened.closed.set()
        if before is not None:
            await before.close()
        self._sessions[id] = opened
        return opened

    # Prompts --------------------------------------------------------------------------------------

    def _begin(self, params: Params) -> Work:
        opened = self._session(params)
        if opened.prompt is not None:
            raise RpcError(INVALID_REQUEST, "the session is busy with a prompt; cancel it or wait for it")
        parts = prompt_parts(params.get("prompt"))
        opened.prompt = PendingPrompt()
        return partial(self._prompt, opened, opened.prompt, parts, params.get("_meta"))

    async def _prompt(
        self, opened: OpenSession, pending: PendingPrompt, parts: Sequence[Any], meta: Any
    ) -> dict[str, Any]:
        try:
            with continued(meta):
                done = await self._answer(opened, pending, parts)
        except Exception as error:
            if pending.cancel.cancelled:
                return plain(Outcome.CANCELLED)  # never an error, whatever the cancelling brought about
            if isinstance(error, GlueError):
                raise failure(error) from error
            raise
        finally:
            opened.prompt = None
            pending.done.set()
        if pending.cancel.cancelled and done["stopReason"] != "cancelled":
            return plain(Outcome.CANCELLED)  # too late for the run, not for its answer
        return done

    async def _answer(self, opened: OpenSession, pending: PendingPrompt, parts: Sequence[Any]) -> dict[str, Any]:
        said = command(opened, parts)
        if said is None:
            return await self._ask(opened, pending, parts)
        self._show_options(opened)  # a command may have changed them
        self._update(opened.session.id, chunk("agent_message_chunk", said, new_id()))
        return plain(Outcome.DONE)

    async def _ask(self, opened: OpenSession, pending: PendingPrompt, parts: Sequence[Any]) -> dict[str, Any]:
        session = opened.session
        settings = session.settings
        reporter = Reporter(
            partial(self._update, session.id),
            self.peer.drain,
            cwd=opened.cwd,
            ids=opened.ids,
            gated={tool.spec.name for tool in settings.tools or () if getattr(tool, "needs_permission", False)},
            window=capabilities(session.agent.open(settings.model or "")).window or 0,
            cost=opened.usage.cost,
        )
        result = await session.prompt(parts, on_event=reporter, cancel=pending.cancel, unwrap=False)
        opened.usage.add(result)
        return answer(result)

    # Settings -------------------------------------------------------------------------------------

    async def _set_mode(self, params: Params) -> dict[str, Any]:
        opened = self._session(params)
        opened.mode = known_mode(params.get("modeId"))
        self._show_options(opened)
        return {}

    async def _set_option(self, params: Params) -> dict[str, Any]:
        opened, name, value = self._session(params), params.get("configId"), params.get("value")
        if name == "mode":
            opened.mode = known_mode(value)
            self._update(opened.session.id, {"sessionUpdate": "current_mode_update", "currentModeId": opened.mode})
        elif is_limit(name):
            opened.session.limits = changed(opened.session.limits, {str(name): str(value)})
        else:
            raise RpcError(INVALID_PARAMS, f"there is no option {name!r}; there are: {option_names()}")
        return {"configOptions": config_options(opened.mode, opened.session.limits)}

    def _show_options(self, opened: OpenSession) -> None:
        options = config_options(opened.mode, opened.session.limits)
        self._update(opened.session.id, {"sessionUpdate": "config_option_update", "configOptions": options})

    # Lists and ends -------------------------------------------------------------------------------

    async def _list(self, params: Params) -> dict[str, Any]:
        return list_page(await self._store.list(), params.get("cwd"), params.get("cursor"))

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

    def _update(self, id: str, update: dict[str, Any]) -> None:
        self.peer.notify("session/update", {"sessionId": id, "update": update})


async def _guarded(handler: Callable[[Params], Awaitable[Any]], params: Params) -> Any:
    try:
        return await handler(params)
    except GlueError as error:
        raise failure(error) from error


def _settings(opened: OpenSession) -> dict[str, Any]:
    return {"modes": mode_state(opened.mode), "configOptions": config_options(opened.mode, opened.session.limits)}


def _cwd(params: Params) -> str:
    cwd = params.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {cwd!r}")
    if not os.path.isdir(cwd):
        raise RpcError(INVALID_PARAMS, f"cwd {cwd!r} is no directory")
    return cwd


async def serve(
    make: Callable[[str, Server], Agent[Any, Any]], source: BinaryIO, sink: BinaryIO, folder: str | None = None
) -> None:
    """Serve one editor on two streams until it hangs up."""
    import logging

    from glue.stores.jsonl import FileStore

    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")  # warnings; what it logs shows in the editor
    await Server(make, FileStore(folder or str(state_dir() / "acp")), source, sink).serve()

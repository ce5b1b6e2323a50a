"""The agent's side of the protocol: sessions, prompts, modes and commands."""

from __future__ import annotations

import os
import os.path
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, TypeAlias

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
from glue.acp.rpc import INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, NOT_FOUND, Answer, Peer, RpcError, Work
from glue.acp.session import Held, Turn, hold, stdio_servers
from glue.acp.updates import Reporter, answer, chunk, failure, plain, prompt_parts, replay
from glue.agent import Agent
from glue.errors import GlueError
from glue.limits import Outcome
from glue.messages import new_id
from glue.paths import state_dir
from glue.running import window
from glue.stores.store import SessionInfo, Store


def serve(
    make: Callable[[str, Server], Agent[Any, Any]], streams: tuple[BinaryIO, BinaryIO], folder: str | None = None
) -> None:
    """Serve one editor on the streams that `take_stdout` gave."""
    import logging

    from glue.stores.jsonl import FileStore

    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")  # warnings; what it logs shows in the editor
    server = Server(make, FileStore(folder or str(state_dir() / "acp")), *streams)
    run(server.serve)


def run(function: Callable[..., Awaitable[None]], *args: object) -> None:
    """Run a server until the other end hangs up, or until Ctrl-C."""
    import anyio

    try:
        anyio.run(function, *args)
    except KeyboardInterrupt:
        os._exit(130)  # a thread still waits for a line, and nothing but the other end can wake it


def take_stdout() -> tuple[BinaryIO, BinaryIO]:
    """Keep the real standard output for the protocol; whatever else prints goes to standard error."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdout = sys.stderr
    return source, sink


def ready_agent(model: str, bundle: str) -> Callable[[str, Server], Agent[Any, Any]]:
    """Make an agent with ready-made tools for whatever directory the editor works in."""

    def make(cwd: str, server: Server) -> Agent[Any, Any]:
        from glue.acp.editor import editor_tools, plan_tool
        from glue.acp.options import DEFAULTS
        from glue.agent import Agent
        from glue.tools import coding, fs, git

        if bundle == "coding":
            tools = coding.tools(cwd, trust=True, shell=True)
        else:
            tools = fs.tools(cwd)
            tools += git.tools(cwd, trust=True) if bundle == "git" else []
        tools = [*editor_tools(tools, cwd, server), plan_tool()]
        return Agent(model, tools=tools, instructions=coding.prompt(tools), limits=DEFAULTS, name="glue")

    return make


def fixed_agent(agent: Agent[Any, Any]) -> Callable[[str, Server], Agent[Any, Any]]:
    """Serve one agent, whatever the directory."""
    return lambda cwd, server: agent


PAGE = 50


def page(sessions: Sequence[SessionInfo], cwd: Any = None, cursor: Any = None) -> dict[str, Any]:
    """List sessions, the last changed first; a cursor names the last one seen, so that new ones shift nothing."""
    # Editors open sessions that nothing is ever said in; they can be loaded, but nobody looks for them.
    listed = [info for info in sessions if info.title and _home(info)]
    if cwd is not None:
        listed = [info for info in listed if _home(info) == cwd]
    listed.sort(key=_rank)
    if cursor is not None:
        after = _after(cursor)
        listed = [info for info in listed if _rank(info) > after]
    more = {"nextCursor": f"{listed[PAGE - 1].updated!r} {listed[PAGE - 1].id}"} if len(listed) > PAGE else {}
    return {"sessions": [_shown(info) for info in listed[:PAGE]], **more}


def _home(info: SessionInfo) -> str:
    return str((info.meta or {}).get("cwd", ""))


def _rank(info: SessionInfo) -> tuple[float, str]:
    return -info.updated, info.id


def _after(cursor: Any) -> tuple[float, str]:
    try:
        updated, name = cursor.split(" ", 1)
        return -float(updated), name
    except (AttributeError, ValueError):
        raise RpcError(INVALID_PARAMS, "cursor must be one that an earlier list gave") from None


def _shown(info: SessionInfo) -> dict[str, Any]:
    updated = datetime.fromtimestamp(info.updated, UTC).isoformat()
    return {"sessionId": info.id, "cwd": _home(info), "title": info.title, "updatedAt": updated}


VERSION = 1

Params: TypeAlias = dict[str, Any]


class Server:
    """Serves one editor. `make` gives the agent for a working directory."""

    def __init__(
        self, make: Callable[[str, Server], Agent[Any, Any]], store: Store, source: BinaryIO, sink: BinaryIO
    ) -> None:
        self._make, self._store = make, store
        self._open: dict[str, Held] = {}
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
        """Cancel at once: a cancel right behind a prompt finds it here, though its task has not begun."""
        if method == "session/cancel":
            held = self._open.get(str(params.get("sessionId")))
            if held is not None and held.turn is not None:
                held.turn.cancel.cancel()

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

    async def _new(self, params: Params) -> Answer:
        cwd, session_id = _cwd(params), new_id()
        held = await self._enter(session_id, cwd, params)
        async with self._store.log(session_id, meta={"cwd": cwd}):
            pass  # it is there from now on, also if nothing is ever said
        return self._entered({"sessionId": session_id, **_settings(held)}, session_id)

    async def _load(self, params: Params) -> Answer:
        cwd, session_id = _cwd(params), await self._stored(params)
        held = await self._enter(session_id, cwd, params)
        messages = await self._store.load(session_id)
        held.spent.recall(messages)
        for update in replay(messages, cwd, held.ids):
            self._update(session_id, update)
            await self.peer.drain()
        return self._entered(_settings(held), session_id)

    async def _resume(self, params: Params) -> Answer:
        cwd, session_id = _cwd(params), await self._stored(params)
        held = await self._enter(session_id, cwd, params)
        held.spent.recall(await self._store.load(session_id))
        return self._entered(_settings(held), session_id)

    def _entered(self, result: dict[str, Any], id: str) -> Answer:
        """Tell of the commands behind the answer: before it, an editor does not know the session."""
        update = {"sessionUpdate": "available_commands_update", "availableCommands": available_commands()}
        return Answer(result, lambda: self._update(id, update))

    async def _stored(self, params: Params) -> str:
        wanted = params.get("sessionId")
        if wanted not in [info.id for info in await self._store.list()]:
            raise RpcError(NOT_FOUND, f"there is no session {wanted!r}")
        return str(wanted)

    async def _enter(self, id: str, cwd: str, params: Params) -> Held:
        before = self._open.get(id)
        if before is not None and before.turn is not None:
            raise RpcError(INVALID_REQUEST, "the session is busy with a prompt; cancel it or wait for it")
        servers = stdio_servers(params.get("mcpServers"))
        agent = self._make(cwd, self)
        if agent not in self._agents:
            self._agents.append(agent)
        limits = given_limits(params.get("_meta"), agent.settings["limits"] or DEFAULTS)
        held = Held(agent.session(id, store=self._store, limits=limits), cwd)
        own = agent.settings["permission"]
        asking = EditorPermission(self.peer, id, cwd, ids=held.ids, mode=lambda: held.mode, own=own)
        held.session.configure(permission=asking)
        if servers:
            await self.peer.tasks.start(hold, held, servers)
        else:
            held.closed.set()
        if before is not None:
            await before.close()
        self._open[id] = held
        return held

    # Prompts --------------------------------------------------------------------------------------

    def _begin(self, params: Params) -> Work:
        held = self._known(params)
        if held.turn is not None:
            raise RpcError(INVALID_REQUEST, "the session is busy with a prompt; cancel it or wait for it")
        parts = prompt_parts(params.get("prompt"))
        held.turn = Turn()
        return partial(self._prompt, held, held.turn, parts)

    async def _prompt(self, held: Held, turn: Turn, parts: Sequence[Any]) -> dict[str, Any]:
        try:
            done = await self._answer(held, turn, parts)
        except Exception as error:
            if turn.cancel.cancelled:
                return plain(Outcome.CANCELLED)  # never an error, whatever the cancelling brought about
            if isinstance(error, GlueError):
                raise failure(error) from error
            raise
        finally:
            held.turn = None
            turn.done.set()
        if turn.cancel.cancelled and done["stopReason"] != "cancelled":
            return plain(Outcome.CANCELLED)  # too late for the run, not for its answer
        return done

    async def _answer(self, held: Held, turn: Turn, parts: Sequence[Any]) -> dict[str, Any]:
        said = command(held, parts)
        if said is None:
            return await self._ask(held, turn, parts)
        self._show_options(held)  # a command may have changed them
        self._update(held.session.id, chunk("agent_message_chunk", said, new_id()))
        return plain(Outcome.DONE)

    async def _ask(self, held: Held, turn: Turn, parts: Sequence[Any]) -> dict[str, Any]:
        session = held.session
        settings = session.settings
        reporter = Reporter(
            partial(self._update, session.id),
            self.peer.drain,
            cwd=held.cwd,
            ids=held.ids,
            gated={tool.spec.name for tool in settings["tools"] if getattr(tool, "needs_permission", False)},
            window=window(session.agent.open(settings["model"])) or 0,
            cost=held.spent.cost,
        )
        result = await session.prompt(parts, on_event=reporter, cancel=turn.cancel, unwrap=False)
        held.spent.add(result)
        return answer(result)

    # Settings -------------------------------------------------------------------------------------

    async def _set_mode(self, params: Params) -> dict[str, Any]:
        held = self._known(params)
        held.mode = known_mode(params.get("modeId"))
        self._show_options(held)
        return {}

    async def _set_option(self, params: Params) -> dict[str, Any]:
        held, name, value = self._known(params), params.get("configId"), params.get("value")
        if name == "mode":
            held.mode = known_mode(value)
            self._update(held.session.id, {"sessionUpdate": "current_mode_update", "currentModeId": held.mode})
        elif is_limit(name):
            held.session.limits = changed(held.session.limits, {str(name): str(value)})
        else:
            raise RpcError(INVALID_PARAMS, f"there is no option {name!r}; there are: {option_names()}")
        return {"configOptions": config_options(held.mode, held.session.limits)}

    def _show_options(self, held: Held) -> None:
        options = config_options(held.mode, held.session.limits)
        self._update(held.session.id, {"sessionUpdate": "config_option_update", "configOptions": options})

    # Lists and ends -------------------------------------------------------------------------------

    async def _list(self, params: Params) -> dict[str, Any]:
        return page(await self._store.list(), params.get("cwd"), params.get("cursor"))

    def _forget(self, params: Params) -> Held:
        held = self._known(params)
        del self._open[held.session.id]
        if held.turn is not None:
            held.turn.cancel.cancel()
        return held

    async def _close(self, held: Held) -> dict[str, Any]:
        await held.close()
        return {}

    def _known(self, params: Params) -> Held:
        name = params.get("sessionId")
        held = self._open.get(name) if isinstance(name, str) else None
        if held is None:
            raise RpcError(NOT_FOUND, f"no session {name!r} is open; use session/new or session/load")
        return held

    def _update(self, id: str, update: dict[str, Any]) -> None:
        self.peer.notify("session/update", {"sessionId": id, "update": update})


async def _guarded(handler: Callable[[Params], Awaitable[Any]], params: Params) -> Any:
    try:
        return await handler(params)
    except GlueError as error:
        raise failure(error) from error


def _settings(held: Held) -> dict[str, Any]:
    return {"modes": mode_state(held.mode), "configOptions": config_options(held.mode, held.session.limits)}


def _cwd(params: Params) -> str:
    cwd = params.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {cwd!r}")
    if not os.path.isdir(cwd):
        raise RpcError(INVALID_PARAMS, f"cwd {cwd!r} is no directory")
    return cwd

"""The agent's side of the protocol: sessions, prompts, modes and commands."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, BinaryIO

from glue import __version__
from glue.acp.rpc import INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, NOT_FOUND, Peer, RpcError
from glue.acp.shapes import chunk, content_blocks, prompt_parts, tool_call, tool_result
from glue.acp.turns import EditorPermission, Reporter, answer, failure
from glue.agent import Agent
from glue.context import Cancel
from glue.errors import GlueError
from glue.limits import Limits
from glue.permission import Ask
from glue.session import Session
from glue.stores.protocol import Store
from glue.types import AssistantMessage, Message, Text, Thinking, ToolMessage, UserMessage, new_id

VERSION = 1
PAGE = 50  # sessions a list
DEFAULTS = Limits(max_requests=50, token_budget=100_000)
MODES = (
    ("ask", "Ask", "Ask before anything is changed or run."),
    ("allow", "Allow", "Run every tool without asking."),
    ("read", "Read only", "Refuse every tool that needs permission."),
)
COMMANDS = (
    ("usage", "Say what this session has used.", None),
    ("limits", "Show or set limits, such as max_turns=64 token_budget=none.", "name=value ..."),
    ("tools", "List the tools.", None),
    ("model", "Show or change the model.", "provider:model"),
)
SETTABLE = ("max_turns", "max_requests", "token_budget", "usd_budget", "seconds")


@dataclass(slots=True)
class Held:
    """A session that the editor has open."""

    session: Session[Any, Any]
    cwd: str
    mode: str = "ask"
    cancel: Cancel | None = None  # of the prompt under way; set when the prompt arrives
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    used: dict[str, float] = field(default_factory=lambda: {"requests": 0, "input": 0, "output": 0, "cost": 0.0})


class Server:
    """Serves one editor. `make` gives the agent for a working directory."""

    def __init__(
        self, make: Callable[[str, Server], Agent[Any, Any]], store: Store, source: BinaryIO, sink: BinaryIO
    ) -> None:
        self._make, self._store = make, store
        self._open: dict[str, Held] = {}
        self.client: dict[str, Any] = {}  # the editor's capabilities
        self.peer = Peer(source, sink, self._handle, self._accept)
        self._methods = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self) -> None:
        """Serve until the editor closes the connection."""
        try:
            await self.peer.serve()
        finally:
            for held in self._open.values():
                await held.stack.aclose()

    def _accept(self, method: str, params: Any) -> None:
        """Do at once what must not wait for a task: take hold of a session, or cancel its prompt."""
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "params must be an object")
        if method == "session/prompt":
            held = self._known(params)
            if held.cancel is not None:
                raise RpcError(INVALID_REQUEST, "the session is busy with a prompt; cancel it or wait for it")
            prompt_parts(params.get("prompt"))
            held.cancel = Cancel()
        elif method == "session/cancel":
            busy = self._open.get(str(params.get("sessionId")))
            if busy is not None and busy.cancel is not None:
                busy.cancel.cancel()

    async def _handle(self, method: str, params: dict[str, Any]) -> Any:
        handler = self._methods.get(method)
        if handler is None:
            raise RpcError(NO_METHOD, f"there is no method {method!r}")
        try:
            return await handler(params)
        except GlueError as error:
            raise failure(error) from error

    # Beginning ------------------------------------------------------------------------------------

    async def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if isinstance(version, bool) or not isinstance(version, int):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be a whole number")
        self.client = params.get("clientCapabilities") or {}
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "glue", "title": "glue", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "authMethods": [],
        }

    async def _authenticate(self, params: dict[str, Any]) -> dict[str, Any]:
        raise RpcError(INVALID_PARAMS, "no method of authentication is offered: keys come from the environment")

    async def _new(self, params: dict[str, Any]) -> dict[str, Any]:
        cwd = _cwd(params)
        session_id = new_id()
        async with self._store.log(session_id, meta={"cwd": cwd}):
            pass  # it is there from now on, also if nothing is ever said
        await self._enter(session_id, cwd, params)
        return {"sessionId": session_id, **self._settings(session_id)}

    async def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        cwd, session_id = _cwd(params), await self._stored(params)
        held = await self._enter(session_id, cwd, params)
        for message in await self._store.load(session_id):
            self._replay(session_id, held.cwd, message)
        return self._settings(session_id)

    async def _resume(self, params: dict[str, Any]) -> dict[str, Any]:
        cwd, session_id = _cwd(params), await self._stored(params)
        await self._enter(session_id, cwd, params)
        return self._settings(session_id)

    async def _stored(self, params: dict[str, Any]) -> str:
        wanted = params.get("sessionId")
        if wanted not in {info.id for info in await self._store.list()}:
            raise RpcError(NOT_FOUND, f"there is no session {wanted!r}")
        return str(wanted)

    async def _enter(self, id: str, cwd: str, params: dict[str, Any]) -> Held:
        before = self._open.get(id)
        if before is not None and before.cancel is not None:
            raise RpcError(INVALID_REQUEST, "the session is busy with a prompt")
        servers = params.get("mcpServers") or []
        if not isinstance(servers, list):
            raise RpcError(INVALID_PARAMS, "mcpServers must be a list")
        agent = self._make(cwd, self)
        limits = _limits(params.get("_meta"), agent.settings["limits"] or DEFAULTS)
        session = agent.session(id, store=self._store, limits=limits)
        held = Held(session, cwd)
        session.configure(permission=Ask(EditorPermission(self.peer, id, cwd, lambda: held.mode)))
        if servers:
            await self._connect(held, servers)
        if before is not None:
            await before.stack.aclose()
        self._open[id] = held
        commands = [
            {"name": name, "description": text, **({"input": {"hint": hint}} if hint else {})}
            for name, text, hint in COMMANDS
        ]
        self._update(id, {"sessionUpdate": "available_commands_update", "availableCommands": commands})
        return held

    async def _connect(self, held: Held, servers: Sequence[Any]) -> None:
        from glue.tools.mcp import connect_stdio

        tools = list(held.session.agent.settings["tools"])
        for server in servers:
            if not isinstance(server, dict) or not isinstance(server.get("command"), str):
                raise RpcError(INVALID_PARAMS, "only MCP servers over stdio (name, command, args, env) are supported")
            env = {item["name"]: item["value"] for item in server.get("env") or ()}
            made = await held.stack.enter_async_context(
                connect_stdio(str(server.get("name") or "mcp"), server["command"], server.get("args") or [], env)
            )
            tools += made.tools
        held.session.configure(tools=tools)

    # Prompts --------------------------------------------------------------------------------------

    async def _prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        held = self._known(params)
        session_id, cancel = params["sessionId"], held.cancel
        try:
            parts = prompt_parts(params["prompt"])
            if (said := self._command(held, parts)) is not None:
                self._update(session_id, chunk("agent_message_chunk", said, new_id()))
                return {"stopReason": "end_turn", "_meta": {"outcome": "done"}}
            reporter = Reporter(lambda update: self._update(session_id, update), held.cwd, _window(held.session))
            result = await held.session.prompt(parts, on_event=reporter, cancel=cancel, unwrap=False)
            held.used["requests"] += result.requests
            held.used["input"] += result.usage.input
            held.used["output"] += result.usage.output
            held.used["cost"] += result.cost or 0.0
            return answer(result)
        finally:
            held.cancel = None

    def _command(self, held: Held, parts: Sequence[Any]) -> str | None:
        """Answer a slash command here; anything else goes to the model."""
        first = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
        name, _, rest = first.strip().partition(" ")
        session = held.session
        if name == "/usage":
            used = held.used
            return f"{used['requests']:.0f} requests, {used['input']:.0f} tokens in, {used['output']:.0f} out."
        if name == "/limits":
            if rest.strip():
                session.limits = _changed(session.limits, dict(item.partition("=")[::2] for item in rest.split()))
            return ", ".join(f"{each}={getattr(session.limits, each)}" for each in SETTABLE)
        if name == "/tools":
            tools = session.agent.settings["tools"]
            return "\n".join(f"- {tool.spec.name}: {tool.spec.description}" for tool in tools) or "There are no tools."
        if name == "/model":
            if rest.strip():
                session.agent.open(rest.strip())  # a wrong name is said now
                session.configure(model=rest.strip())
            return f"The model is {_model(session)}."
        return None

    # Settings -------------------------------------------------------------------------------------

    async def _set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        held = self._known(params)
        self._switch(params["sessionId"], held, params.get("modeId"))
        return {}

    async def _set_option(self, params: dict[str, Any]) -> dict[str, Any]:
        held = self._known(params)
        if params.get("configId") == "max_turns":
            held.session.limits = _changed(held.session.limits, {"max_turns": str(params.get("value"))})
        elif params.get("configId") == "mode":
            self._switch(params["sessionId"], held, params.get("value"))
        else:
            raise RpcError(INVALID_PARAMS, f"there is no option {params.get('configId')!r}; there are: mode, max_turns")
        return {"configOptions": _options(held)}

    def _switch(self, id: str, held: Held, mode: Any) -> None:
        names = [name for name, _, _ in MODES]
        if mode not in names:
            raise RpcError(INVALID_PARAMS, f"there is no mode {mode!r}; there are: {', '.join(names)}")
        held.mode = mode
        self._update(id, {"sessionUpdate": "current_mode_update", "currentModeId": mode})
        self._update(id, {"sessionUpdate": "config_option_update", "configOptions": _options(held)})

    def _settings(self, id: str) -> dict[str, Any]:
        held = self._open[id]
        modes = [{"id": name, "name": title, "description": text} for name, title, text in MODES]
        return {"modes": {"currentModeId": held.mode, "availableModes": modes}, "configOptions": _options(held)}

    # The list -------------------------------------------------------------------------------------

    async def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        cwd, cursor = params.get("cwd"), params.get("cursor")
        sessions = [info for info in await self._store.list() if (info.meta or {}).get("cwd")]
        if cwd is not None:
            sessions = [info for info in sessions if (info.meta or {})["cwd"] == cwd]
        try:
            start = int(cursor) if cursor is not None else 0
        except (TypeError, ValueError):
            raise RpcError(INVALID_PARAMS, "cursor must be one that an earlier list gave") from None
        shown = [
            {
                "sessionId": info.id,
                "cwd": (info.meta or {})["cwd"],
                "updatedAt": datetime.fromtimestamp(info.updated, UTC).isoformat(),
                **({"title": info.title} if info.title else {}),
            }
            for info in sessions[start : start + PAGE]
        ]
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(sessions) else {}
        return {"sessions": shown, **more}

    async def _close(self, params: dict[str, Any]) -> dict[str, Any]:
        held = self._known(params)
        if held.cancel is not None:
            held.cancel.cancel()
        del self._open[params["sessionId"]]
        await held.stack.aclose()
        return {}

    def _known(self, params: dict[str, Any]) -> Held:
        held = self._open.get(str(params.get("sessionId")))
        if held is None:
            name = params.get("sessionId")
            raise RpcError(NOT_FOUND, f"no session {name!r} is open; use session/new or session/load")
        return held

    def _update(self, id: str, update: dict[str, Any]) -> None:
        self.peer.notify("session/update", {"sessionId": id, "update": update})

    def _replay(self, id: str, cwd: str, message: Message) -> None:
        if isinstance(message, UserMessage):
            if message.origin in ("user", "steering", "follow_up"):
                for block in content_blocks(message.content):
                    update = {"sessionUpdate": "user_message_chunk", "content": block, "messageId": message.id}
                    self._update(id, update)
        elif isinstance(message, AssistantMessage):
            for part in message.content:
                if isinstance(part, Text) and part.text:
                    self._update(id, chunk("agent_message_chunk", part.text, message.id))
                elif isinstance(part, Thinking) and part.text:
                    self._update(id, chunk("agent_thought_chunk", part.text, message.id))
            for call in message.calls:
                self._update(id, tool_call(call, cwd, "in_progress"))
        elif isinstance(message, ToolMessage) and not message.excluded:
            from glue.types import ToolCall

            call = ToolCall(id=message.call_id, name=message.name, arguments="{}")
            self._update(id, tool_result(call, message, cwd))


def _cwd(params: dict[str, Any]) -> str:
    cwd = params.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {cwd!r}")
    if not os.path.isdir(cwd):
        raise RpcError(INVALID_PARAMS, f"cwd {cwd!r} is no directory")
    return cwd


def _limits(meta: Any, limits: Limits) -> Limits:
    """Take limits that the editor sent along with a new session."""
    given = meta.get("limits") if isinstance(meta, dict) else None
    return _changed(limits, {str(k): str(v) for k, v in given.items()}) if isinstance(given, dict) else limits


def _changed(limits: Limits, given: dict[str, str]) -> Limits:
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in SETTABLE:
            raise RpcError(INVALID_PARAMS, f"there is no limit {name!r}; there are: {', '.join(SETTABLE)}")
        try:
            number = float(text) if name in ("usd_budget", "seconds") else int(text)
        except ValueError:
            if text.lower() != "none":
                raise RpcError(INVALID_PARAMS, f"{name} must be a number or none, not {text!r}") from None
            values[name] = None
        else:
            values[name] = number
    try:
        return replace(limits, **values)
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None


def _options(held: Held) -> list[dict[str, Any]]:
    turns = held.session.limits.max_turns
    choices = sorted({8, 16, 32, 64, 128} | ({turns} if turns is not None else set()))
    names = [*map(str, choices), "none"]
    return [
        {
            "type": "select",
            "id": "mode",
            "name": "Mode",
            "category": "mode",
            "currentValue": held.mode,
            "options": [{"value": name, "name": title, "description": text} for name, title, text in MODES],
        },
        {
            "type": "select",
            "id": "max_turns",
            "name": "Turns",
            "category": "_limits",
            "currentValue": "none" if turns is None else str(turns),
            "options": [{"value": name, "name": name} for name in names],
        },
    ]


def _model(session: Session[Any, Any]) -> str:
    model = session._overrides.get("model") or session.agent.settings["model"]
    return model if isinstance(model, str) else str(model.name)


def _window(session: Session[Any, Any]) -> int:
    """Give the context window of the model, or 0 where it is not known."""
    model = _model(session)
    try:
        from glue.providers import capabilities

        return int(getattr(capabilities(model), "window", 0) or 0)
    except Exception:
        return 0

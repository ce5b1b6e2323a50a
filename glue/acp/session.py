"""Sessions of an editor: an open one with its settings, slash commands and MCP servers, and the list of the stored."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.acp.updates import CallIds
from glue.context import AnyTool, Cancel
from glue.errors import ConfigError, GlueError
from glue.limits import BUDGETS, Limits
from glue.messages import EFFORTS, Effort, Part, Text, Usage
from glue.paths import write_private
from glue.session import Session
from glue.slash import COMMANDS, answer, change_limits, model_name, parse
from glue.stores.store import SessionInfo

if TYPE_CHECKING:
    from glue.tools.mcp import ServerConfig, Servers

logger = logging.getLogger("glue.acp")

DEFAULTS = Limits(max_requests=50, token_budget=100_000)
MODES = {
    "ask": ("Ask", "Ask before anything is changed or run."),
    "allow": ("Allow", "Run every tool without asking."),
    "read": ("Read only", "Refuse every tool that needs permission."),
}
# Offered as lists, because the protocol knows no numbers; other values may be set too.
_CHOICES = {
    "max_turns": ("Turns", (8, 16, 32, 64, 128)),
    "max_requests": ("Requests", (10, 25, 50, 100, 200)),
    "token_budget": ("Token budget", (25_000, 100_000, 400_000, 1_600_000)),
}
PAGE = 50  # sessions of one list


class PendingPrompt:
    """A prompt under way, from the moment it was read."""

    def __init__(self) -> None:
        self.cancel = Cancel()
        self.done = anyio.Event()


@dataclass(slots=True)
class OpenSession:
    """One open session: what is set in it, what it has used, and its MCP servers."""

    session: Session[Any, Any]
    saved: Path  # what was set in it, in a small file
    cwd: str
    directories: tuple[str, ...] = ()  # besides the working directory
    mode: str = "ask"
    has_title: bool = False
    servers: Servers | None = None
    prompt: PendingPrompt | None = None
    ids: CallIds = field(default_factory=CallIds)
    requests: int = 0
    usage: Usage = field(default_factory=lambda: Usage(cost=0.0))
    troubles: list[str] = field(default_factory=list)  # of MCP servers, not yet told
    connected: anyio.Event = field(default_factory=anyio.Event)
    closing: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)

    async def close(self) -> None:
        """Cancel its prompt, wait for the prompt's end, and let the MCP servers go."""
        if self.prompt is not None:
            self.prompt.cancel.cancel()
            await self.prompt.done.wait()
        self.closing.set()
        await self.closed.wait()

    def add_usage(self, requests: int, usage: Usage | None) -> None:
        """Count what was used; what nobody knows the price of adds nothing to the cost."""
        self.requests += requests
        if usage is not None:
            self.usage += replace(usage, cost=usage.cost or 0.0)

    # Settings -------------------------------------------------------------------------------------

    def modes(self) -> dict[str, Any]:
        modes = [{"id": name, "name": title, "description": text} for name, (title, text) in MODES.items()]
        return {"currentModeId": self.mode, "availableModes": modes}

    def options(self, booleans: bool) -> list[dict[str, Any]]:
        """Show what can be set as options to choose from; yes or no only where the editor knows that kind."""
        from glue.providers import key_available, known, lookup

        rows = [lookup(name) for name in known()]
        keyed = [f"{row.name}:{row.model}" for row in rows if row.key and row.model and key_available(row.name)]
        modes = [{"value": name, "name": title, "description": text} for name, (title, text) in MODES.items()]
        model = model_name(self.session)
        models = [{"value": name, "name": name} for name in dict.fromkeys((model, *keyed))]
        efforts = [{"value": name, "name": name.capitalize()} for name in ("default", *EFFORTS)]
        effort = self.session.settings.reasoning or "default"
        shown = [
            {"category": "mode", **_select("mode", "Mode", self.mode, modes)},
            {"category": "model", **_select("model", "Model", model, models)},
            {"category": "thought_level", **_select("effort", "Effort", effort, efforts)},
        ]
        for name, (title, usual) in _CHOICES.items():
            now = getattr(self.session.limits, name)
            values = sorted({*usual} | ({now} if now is not None else set()))
            choices = [{"value": str(value), "name": f"{value:,}"} for value in values]
            current = "none" if now is None else str(now)
            shown.append(_select(name, title, current, [*choices, {"value": "none", "name": "No limit"}]))
        if booleans:
            cache = bool(self.session.settings.cache)
            shown.append({"type": "boolean", "id": "cache", "name": "Prompt cache", "currentValue": cache})
        return shown

    def set_option(self, name: Any, value: Any, booleans: bool) -> None:
        """Set one option; what it does not take is an error that says what it takes."""
        known = ("mode", "model", "effort", *_CHOICES, *(("cache",) if booleans else ()))
        if name not in known:
            raise RpcError(INVALID_PARAMS, f"there is no option {name!r}; there are: {', '.join(known)}")
        if not isinstance(value, bool if name == "cache" else str):
            wanted = "true or false" if name == "cache" else "a text"
            raise RpcError(INVALID_PARAMS, f"the value of {name!r} must be {wanted}, not {value!r}")
        if name == "mode":
            self.set_mode(value)
        elif name == "model":
            self.set_model(str(value))
        elif name == "effort":
            if value not in ("default", *EFFORTS):
                there = f"there are: default, {', '.join(EFFORTS)}"
                raise RpcError(INVALID_PARAMS, f"there is no effort {value!r}; {there}")
            self.session.configure(reasoning=None if value == "default" else cast(Effort, value))
        elif name == "cache":
            self.session.configure(cache=bool(value))
        else:
            self.set_limits({name: value})

    def set_mode(self, mode: Any) -> None:
        if not isinstance(mode, str) or mode not in MODES:
            raise RpcError(INVALID_PARAMS, f"there is no mode {mode!r}; there are: {', '.join(MODES)}")
        self.mode = mode

    def set_model(self, name: str) -> None:
        if name == model_name(self.session):
            return
        try:
            self.session.agent.open(name)  # a wrong name, or a key that is not there, is said now
        except GlueError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from error
        self.session.configure(model=name)

    def set_limits(self, given: Any) -> None:
        """Set limits by name, as an editor asks for it."""
        try:
            self.session.limits = change_limits(self.session.limits, given if isinstance(given, dict) else {})
        except (TypeError, ValueError) as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None

    def save(self) -> None:
        """Write down what is set, for when the session is opened again."""
        session, settings = self.session, self.session.settings
        kept: dict[str, Any] = {"mode": self.mode}
        kept["limits"] = {name: getattr(session.limits, name) for name in BUDGETS}
        if isinstance(settings.model, str) and settings.model != session.agent.settings.model:
            kept["model"] = settings.model
        kept |= {name: value for name in ("reasoning", "cache") if (value := getattr(settings, name)) is not None}
        with contextlib.suppress(ConfigError, OSError):  # what was set holds for now, whatever the disk says
            self.saved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self.saved, json.dumps(kept))

    def restore(self) -> None:
        """Set again what was set before; what no longer holds, such as a model without a key, is left as it is."""
        kept: Any = None
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self.saved.read_text())
        if not isinstance(kept, dict):
            return
        with contextlib.suppress(RpcError):
            self.set_mode(kept.get("mode", self.mode))
        with contextlib.suppress(RpcError):
            self.set_limits(kept.get("limits"))
        with contextlib.suppress(RpcError):
            self.set_model(kept.get("model") or model_name(self.session))
        if kept.get("reasoning") in EFFORTS:
            self.session.configure(reasoning=kept["reasoning"])
        if isinstance(kept.get("cache"), bool):
            self.session.configure(cache=kept["cache"])

    # Slash commands -------------------------------------------------------------------------------

    def commands(self) -> list[dict[str, Any]]:
        prompts = self.servers.prompts if self.servers is not None else {}
        listed = [(each.name, each.help, each.argument) for each in COMMANDS if each.in_editor]
        listed += [(name, prompt.description, prompt.hint) for name, prompt in prompts.items()]
        return [
            {"name": name, "description": text, **({"input": {"hint": hint}} if hint else {})}
            for name, text, hint in listed
        ]

    async def command(self, parts: Sequence[str | Part]) -> str | Sequence[Any] | None:
        """Answer a slash command, its mistakes too; give an MCP prompt's messages; None where it is neither."""
        text = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
        name, argument = parse(text)
        try:
            said = await self.servers.prompt(text) if self.servers is not None and text.startswith("/") else text
            if said is not text:
                return list(said)
            used = replace(self.usage, cost=self.usage.cost or None)  # nothing, or nobody knows
            return await answer(self.session, name, argument, self.requests, used)
        except (GlueError, TypeError, ValueError) as error:
            return f"{text.split()[0]}: {error}"

    # MCP servers ----------------------------------------------------------------------------------

    async def run_servers(self, configs: Sequence[ServerConfig], elicit: Any = None) -> None:
        """Keep the MCP servers in a task of their own, from the session's beginning to its end."""
        from glue.tools.mcp import connect

        options = {"on_error": lambda _, error: self.troubles.append(str(error)), "elicit": elicit}
        try:
            async with connect(configs, roots=(self.cwd, *self.directories), **options) as servers:
                self.servers = servers
                self.session.configure(tools=LiveTools(self.session.settings.tools or (), servers))
                self.connected.set()
                await self.closing.wait()
        except Exception as error:
            self.troubles.append(str(error) or type(error).__name__)
            logger.warning("the MCP servers of session %s failed", self.session.id, exc_info=True)
        finally:
            self.connected.set()
            self.closed.set()

    def server_configs(self, given: Any) -> list[ServerConfig]:
        """Read the editor's list of MCP servers; one that is wrong costs a message, not the session."""
        if given is not None and not isinstance(given, list):
            raise RpcError(INVALID_PARAMS, "mcpServers must be a list")
        configs: dict[str, ServerConfig] = {}
        for each in given or ():
            try:
                config = _server_config(each, self.cwd)
            except (AttributeError, KeyError, TypeError, GlueError) as error:
                self.troubles.append(f"an MCP server was left out, it needs a name and a command or a url: {error!r}")
                continue
            if config.name in configs:
                self.troubles.append(f"the MCP server {config.name!r} is there twice; the second was left out")
            configs.setdefault(config.name, config)
        return list(configs.values())


def _select(id: str, name: str, current: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "select", "id": id, "name": name, "currentValue": current, "options": options}


class LiveTools:
    """An agent's tools and those of MCP servers, read anew for each prompt: a server may change its list."""

    def __init__(self, own: Iterable[AnyTool], servers: Servers) -> None:
        self._own, self._servers = tuple(own), servers

    def __iter__(self) -> Iterator[AnyTool]:
        yield from self._own
        yield from self._servers.tools


def _server_config(each: Any, cwd: str) -> ServerConfig:
    from glue.tools.mcp import ServerConfig

    name = str(each.get("name") or "mcp")
    if "url" in each:
        headers = {str(item["name"]): str(item["value"]) for item in each.get("headers") or ()}
        return ServerConfig(name=name, url=str(each["url"]), headers=headers, sse=each.get("type") == "sse")
    return ServerConfig(
        name=name,
        command=str(each["command"]),
        args=tuple(str(arg) for arg in each.get("args") or ()),
        env={str(item["name"]): str(item["value"]) for item in each.get("env") or ()},
        cwd=cwd,
    )


# Stored sessions ----------------------------------------------------------------------------------


def list_page(sessions: Sequence[SessionInfo], cwd: Any = None, cursor: Any = None) -> dict[str, Any]:
    """List sessions, the last changed first; a cursor names the last one seen, so that new ones shift nothing."""
    # Editors open sessions that nothing is ever said in; they can be loaded, but nobody looks for them.
    listed = [info for info in sessions if info.title and _home(info) and cwd in (None, _home(info))]
    listed.sort(key=_rank)
    if cursor is not None:
        try:
            updated, name = cursor.split(" ", 1)
            after = -float(updated), name
        except (AttributeError, ValueError):
            raise RpcError(INVALID_PARAMS, "cursor must be one that an earlier list gave") from None
        listed = [info for info in listed if _rank(info) > after]
    more = {"nextCursor": f"{listed[PAGE - 1].updated!r} {listed[PAGE - 1].id}"} if len(listed) > PAGE else {}
    shown = [
        {
            "sessionId": info.id,
            "cwd": _home(info),
            "title": info.title,
            "updatedAt": datetime.fromtimestamp(info.updated, UTC).isoformat(),
        }
        for info in listed[:PAGE]
    ]
    return {"sessions": shown, **more}


def _home(info: SessionInfo) -> str:
    return str((info.meta or {}).get("cwd", ""))


def _rank(info: SessionInfo) -> tuple[float, str]:
    return -info.updated, info.id

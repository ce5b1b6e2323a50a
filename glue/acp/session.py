"""The sessions that an editor has open, and pages of the list of all stored sessions."""

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

from glue.acp.rpc import INVALID_PARAMS, INVALID_REQUEST, RpcError
from glue.acp.updates import CallIds
from glue.context import AnyTool, Cancel
from glue.errors import ConfigError, GlueError
from glue.limits import BUDGETS, Limits
from glue.messages import EFFORTS, Effort, Part, Text, Usage
from glue.paths import write_private
from glue.permission import PermissionRequest
from glue.providers import key_available, known, lookup
from glue.session import Session
from glue.settings import instructions_text
from glue.slash import COMMANDS, answer, change_limits, model_name, parse
from glue.stores.store import SessionInfo

if TYPE_CHECKING:
    from glue.acp.editor import EditorPermission
    from glue.tools.mcp import Question, ServerConfig, Servers

logger = logging.getLogger("glue.acp")

DEFAULTS = Limits(max_requests=50, token_budget=100_000)
MODES = {
    "ask": ("Ask", "Ask before a tool that needs permission runs."),
    "allow": ("Allow", "Run every tool without asking, unless a rule denies the call."),
    "read": ("Read only", "Refuse every tool that needs permission."),
}
# The limits that an editor can set, with their titles and values to choose from. The protocol has
# no number fields, so the values are offered as lists; an editor may set other values too.
_CHOICES = {
    "max_turns": ("Turns", (8, 16, 32, 64, 128)),
    "max_requests": ("Requests", (10, 25, 50, 100, 200)),
    "token_budget": ("Token budget", (25_000, 100_000, 400_000, 1_600_000)),
}
MAX_QUEUED = 20  # prompts that wait while another one runs
PAGE = 50  # sessions on one page of the list


class PendingPrompt:
    """A prompt that was received and is not answered yet."""

    def __init__(self) -> None:
        self.cancel = Cancel()
        self.done = anyio.Event()


@dataclass(slots=True)
class OpenSession:
    """A session that the editor has open: its settings, queued prompts, usage and MCP servers."""

    session: Session[Any, Any]
    settings_file: Path
    cwd: str
    directories: tuple[str, ...] = ()  # in addition to the working directory
    mode: str = "ask"
    has_title: bool = False
    servers: Servers | None = None
    permission: EditorPermission | None = None
    prompts: list[PendingPrompt] = field(default_factory=list)  # the first of them runs
    ids: CallIds = field(default_factory=CallIds)
    requests: int = 0
    usage: Usage = field(default_factory=lambda: Usage(cost=0.0))
    problems: list[str] = field(default_factory=list)  # of MCP servers, not yet shown
    connected: anyio.Event = field(default_factory=anyio.Event)
    closing: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)

    async def close(self) -> None:
        """Cancel all prompts, wait for their end, and stop the MCP servers."""
        self.cancel()
        for pending in tuple(self.prompts):
            await pending.done.wait()
        self.closing.set()
        await self.closed.wait()

    def add_prompt(self) -> PendingPrompt:
        """Add a prompt to the queue and return it; raise RpcError if the queue is full."""
        if len(self.prompts) > MAX_QUEUED:
            message = f"the session is busy: {MAX_QUEUED} prompts wait; cancel them or wait"
            raise RpcError(INVALID_REQUEST, message)
        pending = PendingPrompt()
        self.prompts.append(pending)
        return pending

    async def wait_for_turn(self, pending: PendingPrompt) -> None:
        """Wait until the prompts that were queued before `pending` are answered."""
        while self.prompts[0] is not pending:
            await self.prompts[0].done.wait()

    def cancel(self) -> None:
        """Cancel the running prompt and every prompt in the queue."""
        for pending in tuple(self.prompts):
            pending.cancel.cancel()

    def add_usage(self, requests: int, usage: Usage | None) -> None:
        """Add requests, tokens and cost to the session's usage; an unknown cost counts as zero."""
        self.requests += requests
        if usage is not None:
            self.usage += replace(usage, cost=usage.cost or 0.0)

    def modes(self) -> dict[str, Any]:
        """Return the current mode and all modes, in the form of the protocol."""
        modes = [
            {"id": name, "name": title, "description": text}
            for name, (title, text) in MODES.items()
        ]
        return {"currentModeId": self.mode, "availableModes": modes}

    def options(self, booleans: bool) -> list[dict[str, Any]]:
        """Return the options of the session, with choices and current values, as protocol objects.

        Args:
            booleans: whether the editor understands options that are true or false.
        """
        entries = [lookup(name) for name in known()]
        keyed = [
            f"{entry.name}:{entry.model}"
            for entry in entries
            if entry.key and entry.model and key_available(entry.name)
        ]
        modes = [
            {"value": name, "name": title, "description": text}
            for name, (title, text) in MODES.items()
        ]
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
            values = sorted({*usual} if now is None else {*usual, now})
            choices = [{"value": str(value), "name": f"{value:,}"} for value in values]
            current = "none" if now is None else str(now)
            choices.append({"value": "none", "name": "No limit"})
            shown.append(_select(name, title, current, choices))
        if booleans:
            cache = bool(self.session.settings.cache)
            option = {"type": "boolean", "id": "cache", "name": "Prompt cache"}
            shown.append({**option, "currentValue": cache})
        return shown

    def set_option(self, name: Any, value: Any, booleans: bool) -> None:
        """Set one option; raise RpcError if `name` or `value` is invalid.

        The error names the valid options or values.
        """
        names = ("mode", "model", "effort", *_CHOICES, *(("cache",) if booleans else ()))
        if name not in names:
            known_names = ", ".join(names)
            raise RpcError(INVALID_PARAMS, f"unknown option {name!r}; options: {known_names}")
        if not isinstance(value, bool if name == "cache" else str):
            wanted = "true or false" if name == "cache" else "a text"
            raise RpcError(INVALID_PARAMS, f"the value of {name!r} must be {wanted}, not {value!r}")
        if name == "mode":
            self.set_mode(value)
        elif name == "model":
            self.set_model(str(value))
        elif name == "effort":
            if value not in ("default", *EFFORTS):
                efforts = f"default, {', '.join(EFFORTS)}"
                raise RpcError(INVALID_PARAMS, f"unknown effort {value!r}; efforts: {efforts}")
            self.session.configure(reasoning=None if value == "default" else cast(Effort, value))
        elif name == "cache":
            self.session.configure(cache=bool(value))
        else:
            self.set_limits({name: value})

    def set_mode(self, mode: Any) -> None:
        """Set the permission mode: "ask", "allow" or "read". Raise RpcError for another mode."""
        if not isinstance(mode, str) or mode not in MODES:
            raise RpcError(INVALID_PARAMS, f"unknown mode {mode!r}; modes: {', '.join(MODES)}")
        self.mode = mode

    def set_model(self, name: str) -> None:
        """Set the model; raise RpcError if its name is wrong or its key is missing."""
        if name == model_name(self.session):
            return
        try:
            self.session.agent.open(name)
        except GlueError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from error
        self.session.configure(model=name)

    def set_limits(self, given: Any) -> None:
        """Set limits from a mapping of names to values; raise RpcError if a limit is invalid.

        A value that is not a mapping changes nothing.
        """
        changes = given if isinstance(given, dict) else {}
        try:
            self.session.limits = change_limits(self.session.limits, changes)
        except (TypeError, ValueError) as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None

    def set_instructions(self, given: Any) -> None:
        """Replace the system prompt by `given`, or append `text` if `given` is `{"append": text}`.

        None and "" change nothing. Raise RpcError for another value.
        """
        append = given.get("append") if isinstance(given, dict) else None
        if given is not None and not isinstance(append or given, str):
            raise RpcError(
                INVALID_PARAMS,
                f'systemPrompt must be a text, or {{"append": "a text"}}, not {given!r}',
            )
        if isinstance(append, str):
            own, _ = instructions_text(self.session.agent.settings.instructions)
            given = f"{own}\n\n{append}" if own else append
        if given:
            self.session.configure(instructions=given)

    async def confirm(self, question: Question) -> dict[str, Any] | None:
        """Show an MCP server's question as a permission request; return answers, None if refused.

        This is for an editor without forms. If the user allows the request, return {} for a page,
        and true for every required field of a form. Return None if the user declines. Also return
        None, and add a line to `problems`, if a required field is not a yes-or-no field.
        """
        properties = question.schema.get("properties") or {}
        wanted = {name: properties.get(name, {}) for name in question.schema.get("required") or ()}
        if self.permission is None or any(
            each.get("type") != "boolean" for each in wanted.values()
        ):
            self.problems.append(
                f"{question.server} asked a question that this editor cannot show: "
                f"{question.message}"
            )
            return None
        page = f" Open {question.url} (at {question.origin})" if question.url else ""
        request = PermissionRequest(
            tool=question.server,
            action=f"mcp-question:{question.server}",
            target=f"{question.message}{page}",
            arguments={"message": question.message, "url": question.url},
            call_id=question.call_id,
            session_id=self.session.id,
        )
        decision = await self.permission.ask_once(request)
        return dict.fromkeys(wanted, True) if decision.allowed else None

    def save(self) -> None:
        """Write the session's settings to a file that `restore` reads; ignore a write error."""
        session, settings = self.session, self.session.settings
        saved: dict[str, Any] = {"mode": self.mode}
        saved["limits"] = {name: getattr(session.limits, name) for name in BUDGETS}
        if isinstance(settings.model, str) and settings.model != session.agent.settings.model:
            saved["model"] = settings.model
        if settings.reasoning is not None:
            saved["reasoning"] = settings.reasoning
        if settings.cache is not None:
            saved["cache"] = settings.cache
        # If the file cannot be written, the settings still apply until the session is closed.
        with contextlib.suppress(ConfigError, OSError):
            self.settings_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self.settings_file, json.dumps(saved))

    def restore(self) -> None:
        """Apply the settings that `save` wrote; skip invalid settings, such as an unknown model."""
        saved: Any = None
        with contextlib.suppress(OSError, ValueError):
            saved = json.loads(self.settings_file.read_text())
        if not isinstance(saved, dict):
            return
        with contextlib.suppress(RpcError):
            self.set_mode(saved.get("mode", self.mode))
        with contextlib.suppress(RpcError):
            self.set_limits(saved.get("limits"))
        with contextlib.suppress(RpcError):
            self.set_model(saved.get("model") or model_name(self.session))
        if saved.get("reasoning") in EFFORTS:
            self.session.configure(reasoning=saved["reasoning"])
        if isinstance(saved.get("cache"), bool):
            self.session.configure(cache=saved["cache"])

    def commands(self) -> list[dict[str, Any]]:
        """Return the commands that the editor offers: slash commands and prompts of MCP servers."""
        prompts = self.servers.prompts if self.servers is not None else {}
        listed = [(each.name, each.help, each.argument) for each in COMMANDS if each.in_editor]
        listed += [(name, prompt.description, prompt.hint) for name, prompt in prompts.items()]
        return [
            {"name": name, "description": text, **({"input": {"hint": hint}} if hint else {})}
            for name, text, hint in listed
        ]

    async def command(self, parts: Sequence[str | Part]) -> str | Sequence[Any] | None:
        """Run a slash command; return a text or MCP prompt messages, or None for a plain prompt.

        If the command fails, return the text of the error. After None, the caller sends `parts` to
        the model.
        """
        text = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
        name, argument = parse(text)
        try:
            if self.servers is not None and text.startswith("/"):
                messages = await self.servers.prompt(text)
                if messages is not text:  # a text that names no prompt is returned unchanged
                    return list(messages)
            used = replace(self.usage, cost=self.usage.cost or None)  # None: nothing, or unknown
            return await answer(self.session, name, argument, self.requests, used)
        except (GlueError, TypeError, ValueError) as error:
            return f"{text.split()[0]}: {error}"

    async def run_servers(self, configs: Sequence[ServerConfig], elicit: Any = None) -> None:
        """Connect to the MCP servers, and stay connected until the session is closed.

        An error is added to `problems`, not raised.
        """
        from glue.tools.mcp import connect  # slow to load, and most sessions have no servers

        options = {"on_error": lambda _, error: self.problems.append(str(error)), "elicit": elicit}
        try:
            async with connect(configs, roots=(self.cwd, *self.directories), **options) as servers:
                self.servers = servers
                self.session.configure(tools=LiveTools(self.session.settings.tools or (), servers))
                self.connected.set()
                await self.closing.wait()
        except Exception as error:
            self.problems.append(str(error) or type(error).__name__)
            logger.warning("the MCP servers of session %s failed", self.session.id, exc_info=True)
        finally:
            self.connected.set()
            self.closed.set()

    def server_configs(self, given: Any) -> list[ServerConfig]:
        """Return the configurations of the MCP servers in the editor's list; skip invalid servers.

        A second server with the same name is skipped too. A line about each skipped server is added
        to `problems`. Raise RpcError if `given` is not a list; None is an empty list.
        """
        if given is not None and not isinstance(given, list):
            raise RpcError(INVALID_PARAMS, "mcpServers must be a list")
        configs: dict[str, ServerConfig] = {}
        for each in given or ():
            try:
                config = _server_config(each, self.cwd)
            except (AttributeError, KeyError, TypeError, GlueError) as error:
                self.problems.append(
                    f"an MCP server was skipped, because its configuration is invalid ({error!r}); "
                    "it needs a command or a url"
                )
                continue
            if config.name in configs:
                self.problems.append(
                    f"the MCP server {config.name!r} is listed twice; the second was skipped"
                )
            configs.setdefault(config.name, config)
        return list(configs.values())


def _select(id: str, name: str, current: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an option with a list of choices, as a `select` object of the protocol."""
    return {"type": "select", "id": id, "name": name, "currentValue": current, "options": options}


class LiveTools:
    """An iterable of the agent's own tools and the current tools of MCP servers.

    A session iterates it for each prompt, because a server may change its list of tools.
    """

    def __init__(self, own: Iterable[AnyTool], servers: Servers) -> None:
        self._own, self._servers = tuple(own), servers

    def __iter__(self) -> Iterator[AnyTool]:
        yield from self._own
        yield from self._servers.tools


def _server_config(each: Any, cwd: str) -> ServerConfig:
    """Return the configuration of one MCP server from the editor's list of servers.

    Raise KeyError if the server has neither a command nor a url.
    """
    from glue.tools.mcp import ServerConfig  # slow to load, and most sessions have no servers

    name = str(each.get("name") or "mcp")
    if "url" in each:
        headers = {str(item["name"]): str(item["value"]) for item in each.get("headers") or ()}
        return ServerConfig(
            name=name, url=str(each["url"]), headers=headers, sse=each.get("type") == "sse"
        )
    return ServerConfig(
        name=name,
        command=str(each["command"]),
        args=tuple(str(arg) for arg in each.get("args") or ()),
        env={str(item["name"]): str(item["value"]) for item in each.get("env") or ()},
        cwd=cwd,
    )


def list_page(
    sessions: Sequence[SessionInfo], cwd: Any = None, cursor: Any = None
) -> dict[str, Any]:
    """Return a page of the sessions with a prompt, the last changed first, and the next cursor.

    The result has no cursor if there is no next page. Sessions without a prompt are left out,
    because editors open sessions that the user never uses. Sessions whose directory is unknown are
    left out too. Raise RpcError if `cursor` is invalid.

    Args:
        sessions: all stored sessions.
        cwd: the directory whose sessions are listed; None for all.
        cursor: the `nextCursor` of the page before. It names the last session of that page, so
            that sessions created since then do not shift the next page.
    """
    listed = [
        info
        for info in sessions
        if info.title and _directory(info) and cwd in (None, _directory(info))
    ]
    listed.sort(key=_rank)
    if cursor is not None:
        try:
            updated, name = cursor.split(" ", 1)
            after = -float(updated), name
        except (AttributeError, ValueError):
            raise RpcError(
                INVALID_PARAMS, "cursor must be the nextCursor of an earlier list"
            ) from None
        listed = [info for info in listed if _rank(info) > after]
    more = {}
    if len(listed) > PAGE:
        last = listed[PAGE - 1]
        more["nextCursor"] = f"{last.updated!r} {last.id}"
    shown = [
        {
            "sessionId": info.id,
            "cwd": _directory(info),
            "title": info.title,
            "updatedAt": datetime.fromtimestamp(info.updated, UTC).isoformat(),
        }
        for info in listed[:PAGE]
    ]
    return {"sessions": shown, **more}


def _directory(info: SessionInfo) -> str:
    """Return the working directory of a session, or an empty text if it is unknown."""
    return str((info.meta or {}).get("cwd", ""))


def _rank(info: SessionInfo) -> tuple[float, str]:
    """Return the sort key of a session: the last changed first, then by id."""
    return -info.updated, info.id

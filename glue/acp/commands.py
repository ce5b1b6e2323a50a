"""Slash commands in an editor: ours, and the prompts of MCP servers as `/server:prompt`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glue.acp.options import SETTABLE, changed, model_name, set_model
from glue.acp.rpc import RpcError
from glue.errors import GlueError
from glue.messages import Part, Text

if TYPE_CHECKING:
    from glue.acp.session import OpenSession

COMMANDS = (
    ("usage", "Say what this session has used.", ""),
    ("limits", "Show or set limits, such as max_turns=64 token_budget=none.", "name=value ..."),
    ("tools", "List the tools.", ""),
    ("model", "Show or change the model.", "provider:model"),
)


def available_commands(opened: OpenSession) -> list[dict[str, Any]]:
    prompts = opened.servers.prompts if opened.servers is not None else {}
    listed = [*COMMANDS, *((name, prompt.description, prompt.hint) for name, prompt in prompts.items())]
    return [
        {"name": name, "description": text, **({"input": {"hint": hint}} if hint else {})}
        for name, text, hint in listed
    ]


async def command(opened: OpenSession, parts: Sequence[str | Part]) -> str | Sequence[Any] | None:
    """Answer a slash command, its mistakes too; give what an MCP prompt says to the model; None where it is neither."""
    first = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
    name, _, rest = first.strip().partition(" ")
    if not name.startswith("/"):
        return None
    try:
        if opened.servers is not None and name[1:] in opened.servers.prompts:
            return await opened.servers.prompts[name[1:]].get(rest.strip())
        return _command(opened, name, rest.strip())
    except (RpcError, GlueError) as error:
        return f"{name}: {error}"


def _command(opened: OpenSession, name: str, rest: str) -> str | None:
    session = opened.session
    if name == "/usage":
        return str(opened.usage)
    if name == "/limits":
        if rest:
            session.limits = changed(session.limits, dict(item.partition("=")[::2] for item in rest.split()))
        return ", ".join(f"{each}={getattr(session.limits, each)}" for each in SETTABLE)
    if name == "/tools":
        specs = [tool.spec for tool in session.settings.tools or ()]
        return "\n".join(f"- {spec.name}: {spec.description}" for spec in specs) or "There are no tools."
    if name == "/model":
        if rest:
            set_model(opened, rest)
        return f"The model is {model_name(opened)}."
    return None

"""Slash commands in an editor: those of every conversation, and the prompts of MCP servers as `/server:prompt`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glue.errors import GlueError
from glue.messages import Part, Text
from glue.slash import COMMANDS, answer, parse

if TYPE_CHECKING:
    from glue.acp.session import OpenSession


def available_commands(opened: OpenSession) -> list[dict[str, Any]]:
    prompts = opened.servers.prompts if opened.servers is not None else {}
    listed = [(each.name, each.help, each.argument) for each in COMMANDS if each.in_editor]
    listed += [(name, prompt.description, prompt.hint) for name, prompt in prompts.items()]
    return [
        {"name": name, "description": text, **({"input": {"hint": hint}} if hint else {})}
        for name, text, hint in listed
    ]


async def command(opened: OpenSession, parts: Sequence[str | Part]) -> str | Sequence[Any] | None:
    """Answer a slash command, its mistakes too; give what an MCP prompt says to the model; None where it is neither."""
    text = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
    name, argument = parse(text)
    try:
        said = await opened.servers.prompt(text) if opened.servers is not None and text.startswith("/") else text
        if said is not text:
            return list(said)
        return str(opened.usage) if name == "usage" else answer(opened.session, name, argument)
    except (GlueError, TypeError, ValueError) as error:
        return f"{text.split()[0]}: {error}"

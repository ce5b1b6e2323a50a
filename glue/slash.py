"""Slash commands of a conversation: one table and one parser, for the chat and for editors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from glue.limits import BUDGETS, Limits
from glue.messages import Usage
from glue.text import cost_text, count, one_line, usage_text

if TYPE_CHECKING:
    from glue.session import Session


class SlashCommand(NamedTuple):
    name: str
    help: str
    argument: str = ""
    in_editor: bool = False  # whether editors offer it too: they have buttons of their own for the rest


NOTHING = Usage(cost=0.0)

COMMANDS = (
    SlashCommand("model", "Show or change the model.", "provider:model", True),
    SlashCommand("tools", "List the tools, and which of them ask.", "", True),
    SlashCommand("usage", "Say what this session has used.", "", True),
    SlashCommand("limits", "Show or set limits, such as max_turns=64 token_budget=none.", "name=value ...", True),
    SlashCommand("fork", "Go on in a copy; with N, of the first N prompts; -1 drops the last one.", "N"),
    SlashCommand("save", "Keep this conversation, from here on.", "NAME"),
    SlashCommand("new", "Begin another conversation.", "NAME"),
    SlashCommand("resume", "Go on with a kept conversation.", "NAME"),
    SlashCommand("tree", "List the kept conversations, forks below their parents."),
    SlashCommand("compact", "Put a summary in the place of what was said so far."),
    SlashCommand("help", "List the commands."),
    SlashCommand("quit", "Leave, as Ctrl-D does."),
)


def parse(text: str) -> tuple[str, str]:
    """Part a slash command into its name and its argument; the name is empty where it is none."""
    name, _, argument = text.strip().partition(" ")
    return (name[1:], argument.strip()) if name.startswith("/") and name[1:].isalpha() else ("", "")


async def answer(
    session: Session[Any, Any], name: str, argument: str, requests: int = 0, usage: Usage = NOTHING
) -> str | None:
    """Do what a command says that every conversation has; None where it is none of these.

    `requests` and `usage` are what the session has used since it was opened.
    """
    if name == "model":
        if argument:
            session.agent.open(argument)  # a wrong name or a missing key is said now
            session.configure(model=argument)
        return f"The model is {one_line(model_name(session))}."
    if name == "limits":
        if argument:
            given = dict(item.partition("=")[::2] for item in argument.split())
            session.limits = change_limits(session.limits, given)
        return ", ".join(f"{each}={getattr(session.limits, each)}" for each in BUDGETS)
    if name == "usage":
        messages = count(len(await session.load()), "message")
        return f"{count(requests, 'request')}, {usage_text(usage)}, {cost_text(usage.cost)}, {messages}"
    if name == "tools":
        return "\n".join(map(_tool_line, session.settings.tools or ())) or "There are no tools."
    return None


def model_name(session: Session[Any, Any]) -> str:
    """Give the model of a session as it was named, or the name of its provider."""
    model: Any = session.settings.model
    return model if isinstance(model, str) else str(model.name)


def _tool_line(tool: Any) -> str:
    asks = " (asks)" if getattr(tool, "needs_permission", False) else ""
    return f"- {one_line(tool.spec.name)}{asks}: {one_line(tool.spec.description)}"


def change_limits(limits: Limits, given: Mapping[str, Any]) -> Limits:
    """Set limits by name; a value is a number, or none for no limit. ValueError or TypeError says what is wrong."""
    for name in given:
        if name not in BUDGETS:
            raise ValueError(f"there is no limit {name!r}; there are: {', '.join(BUDGETS)}")
    return replace(limits, **{name: _number(name, value) for name, value in given.items()})


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value  # Limits says what is wrong with it
    text = value.strip().lower()
    if text == "none":
        return None
    try:
        return float(text) if name in ("usd_budget", "seconds") else int(text)
    except ValueError:
        raise ValueError(f"{name} must be a number or none, not {value!r}") from None

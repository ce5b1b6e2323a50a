"""Slash commands of the chat and of editors, such as /model: their table and their parser."""

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
    """A command that a user can type into a conversation."""

    name: str
    help: str
    argument: str = ""
    in_editor: bool = False  # whether editors offer the command; they have buttons for the others


NOTHING = Usage(cost=0.0)

COMMANDS = (
    SlashCommand("model", "Show or change the model of this conversation.", "provider:model", True),
    SlashCommand("tools", "List the tools, and which of them need permission.", "", True),
    SlashCommand(
        "usage", "Show the requests, tokens and cost since this session was opened.", "", True
    ),
    SlashCommand(
        "limits",
        "Show or set limits, such as max_turns=64 token_budget=none.",
        "name=value ...",
        True,
    ),
    SlashCommand("continue", "Continue an answer that a limit or Ctrl-C stopped."),
    SlashCommand("undo", "Remove the last prompt and its answer, and edit the prompt."),
    SlashCommand("copy", "Copy the last answer to the clipboard."),
    SlashCommand(
        "fork",
        "Continue in a copy of this conversation, or of its first N prompts; -1 omits the last.",
        "N",
    ),
    SlashCommand(
        "save", "Save this conversation under a name, and continue it under that name.", "NAME"
    ),
    SlashCommand("new", "Start a new conversation.", "NAME"),
    SlashCommand(
        "resume", "Continue a saved conversation, or list the newest if no NAME is given.", "NAME"
    ),
    SlashCommand("tree", "List the newest saved conversations, forks below their parents."),
    SlashCommand("compact", "Replace the messages so far with a summary in later requests."),
    SlashCommand("help", "List the commands."),
    SlashCommand("quit", "Quit, like Ctrl-D."),
)


def parse(text: str) -> tuple[str, str]:
    """Return the name and the argument of a slash command, or ("", "") for any other text."""
    name, _, argument = text.strip().partition(" ")
    return (name[1:], argument.strip()) if name.startswith("/") and name[1:].isalpha() else ("", "")


async def answer(
    session: Session[Any, Any], name: str, argument: str, requests: int = 0, usage: Usage = NOTHING
) -> str | None:
    """Run /model, /limits, /usage or /tools. Return the text to show, or None for other commands.

    The chat implements all other commands itself. An invalid argument raises GlueError, ValueError
    or TypeError.

    Args:
        session: the conversation.
        name: the name of the command.
        argument: the text after the name.
        requests: the number of requests since the session was opened.
        usage: the usage since the session was opened.
    """
    if name == "model":
        if argument:
            session.agent.open(argument)  # raises now if the name is wrong or a key is missing
            session.configure(model=argument)
        return f"The model is {one_line(model_name(session))}."
    if name == "limits":
        if argument:
            given = dict(item.partition("=")[::2] for item in argument.split())
            session.limits = change_limits(session.limits, given)
        return ", ".join(f"{each}={getattr(session.limits, each)}" for each in BUDGETS)
    if name == "usage":
        messages = count(len(await session.load()), "message")
        spent = f"{usage_text(usage)}, {cost_text(usage.cost)}"
        return f"{count(requests, 'request')}, {spent}, {messages}"
    if name == "tools":
        return "\n".join(map(_tool_line, session.settings.tools or ())) or "There are no tools."
    return None


def model_name(session: Session[Any, Any]) -> str:
    """Return the name of a session's model, or of its provider if a provider object is set."""
    model: Any = session.settings.model
    return model if isinstance(model, str) else str(model.name)


def _tool_line(tool: Any) -> str:
    asks = " (asks)" if getattr(tool, "needs_permission", False) else ""
    return f"- {one_line(tool.spec.name)}{asks}: {one_line(tool.spec.description)}"


def change_limits(limits: Limits, given: Mapping[str, Any]) -> Limits:
    """Return a copy of the limits in which the limits named in `given` are replaced.

    A value is a number, or "none" for no limit. Raise ValueError for an unknown name, and
    ValueError or TypeError for an invalid value.
    """
    for name in given:
        if name not in BUDGETS:
            raise ValueError(f"there is no limit {name!r}; there are: {', '.join(BUDGETS)}")
    return replace(limits, **{name: _number(name, value) for name, value in given.items()})


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value  # checked by Limits
    text = value.strip().lower()
    if text == "none":
        return None
    is_real = name in ("usd_budget", "seconds")
    try:
        return float(text) if is_real else int(text)
    except ValueError:
        kind = "a number" if is_real else "a whole number"
        raise ValueError(f"{name} must be {kind} or none, not {value!r}") from None

"""What can be typed in a chat besides prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glue.commands.execute import open_session
from glue.commands.showing import usage_text
from glue.errors import ConfigError
from glue.stores.protocol import copy
from glue.terminal import one_line
from glue.types import UserMessage

if TYPE_CHECKING:
    from glue.commands.talk import Chat

COMMANDS = {
    "/model": "[NAME]: say which model answers, or take another from here on",
    "/tools": "list the tools, and which of them ask",
    "/usage": "say what this chat has used",
    "/fork": "[N]: go on in a copy of this conversation; with N, of its first N prompts; -1 drops the last",
    "/save": "[NAME]: keep this conversation, from here on",
    "/help": "this list",
    "/quit": "leave (as Ctrl-D does)",
}


def command(chat: Chat, text: str) -> bool:
    """Do what was typed; say whether to leave."""
    name, _, rest = text.partition(" ")
    if name == "/quit":
        return True
    _ACTIONS[name](chat, rest.strip())
    return False


def _help(chat: Chat, rest: str) -> None:
    for name, text in COMMANDS.items():
        chat.show.note(f"{name:<8} {text}", "cyan")
    chat.show.note('A line that ends in \\ goes on in the next; """ begins and ends a longer text.', "cyan")
    chat.show.note("Ctrl-C cancels an answer; a second one leaves.", "cyan")


def _model(chat: Chat, name: str) -> None:
    if name:
        chat.agent.open(name)  # a wrong name or a missing key is said now
        chat.session.configure(model=name)
    chat.show.note(f"model: {one_line(chat.model)}", "cyan")


def _tools(chat: Chat, rest: str) -> None:
    tools = chat.session.settings["tools"]
    if not tools:
        chat.show.note("no tools; start with --tools fs,git to have some", "cyan")
    for tool in tools:
        asks = " (asks)" if getattr(tool, "needs_permission", False) else ""
        first = tool.spec.description.split("\n")[0]
        told = one_line(first + asks, chat.show.err.width - 18)
        chat.show.note(f"{one_line(tool.spec.name):<16} {told}", "cyan")


def _usage(chat: Chat, rest: str) -> None:
    cost = "cost unknown" if chat.total.cost is None else f"${chat.total.cost:.4f}"
    count = len(chat.portal.call(chat.session.load))
    chat.show.note(f"{usage_text(chat.total)}, {cost}, {count} messages", "cyan")


def _fork(chat: Chat, rest: str) -> None:
    before = chat.session
    messages = chat.portal.call(before.load)
    at = _place(messages, rest)
    chat.session = chat.portal.call(_forked, before, at)
    count = len(messages) if at is None else at
    if chat.kept:
        chat.kept = chat.session.id
    chat.show.note(f"forked {before.id} after {count} messages; you are in {chat.session.id}", "cyan")


async def _forked(session: Any, at: int | None) -> Any:
    return await session.fork(at)


def _place(messages: tuple[Any, ...], rest: str) -> int | None:
    """Turn a number of prompts into a number of messages."""
    if not rest:
        return None
    prompts = [i for i, message in enumerate(messages) if isinstance(message, UserMessage) and message.origin == "user"]
    try:
        number = int(rest)
    except ValueError:
        raise ConfigError(f"/fork takes a number of prompts, not {rest!r}") from None
    number = number if number >= 0 else len(prompts) + number
    if not 0 <= number <= len(prompts):
        raise ConfigError(f"there are {len(prompts)} prompts; /fork takes a number up to that")
    return len(messages) if number == len(prompts) else prompts[number]


def _save(chat: Chat, name: str) -> None:
    if chat.kept and not name:
        chat.show.note(f"kept as {one_line(chat.kept)}", "cyan")
        return
    named = name or chat.session.id
    before = chat.session

    async def save() -> None:
        if await before.load():
            await copy(before.store, before.id, chat.store, named)
        chat.session = open_session(chat.agent, named, chat.store, before._overrides)

    chat.portal.call(save)
    chat.kept = named
    chat.show.note(f"kept as {one_line(named)}; `glue chat -s {one_line(named)}` goes on with it", "cyan")


_ACTIONS = {
    "/model": _model,
    "/tools": _tools,
    "/usage": _usage,
    "/fork": _fork,
    "/save": _save,
    "/help": _help,
}

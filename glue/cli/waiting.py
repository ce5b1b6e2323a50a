"""Pending tool calls: the text that describes a call, and the command that answers it.

The prompt of a run in a session keeps the command of the run in its `meta`. `glue sessions answer`
reads it, and continues the run with the same agent, options and folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glue.cli.approval import question
from glue.cli.options import Sources
from glue.cli.screen import Screen
from glue.decision import PendingCall
from glue.limits import BUDGETS
from glue.messages import Json, Message, UserMessage
from glue.permission import PermissionRequest
from glue.settings import prompt_messages
from glue.text import count, one_line

COMMAND = "command"  # the key in the meta of a prompt
# Options that shape the agent. Of the permissions, only denials are kept: the person who answers
# decides which calls may run without a question.
_KEPT = (
    "model",
    "system",
    "template",
    "temperature",
    "max_tokens",
    "reasoning",
    "tools",
    "no_tools",
    "project",
    "mcp",
    "deny",
    "schema",
    *BUDGETS,
)


def with_command(prompt: Any, sources: Sources) -> tuple[Message, ...]:
    """Return a prompt as messages, with the command of the run in the `meta` of the first message.

    The command consists of the current folder, the agent file and some options. `command_of` reads
    the command.
    """
    first, *others = prompt_messages(prompt)
    given = sources.given
    kept: dict[str, Json] = {name: given[name] for name in _KEPT if given.get(name)}
    command: dict[str, Json] = {"folder": os.getcwd(), "options": kept}
    if sources.path is not None:
        command["file"] = os.path.abspath(sources.path)
    return (replace(first, meta={**(first.meta or {}), COMMAND: command}), *others)


def command_of(messages: Iterable[Message]) -> Mapping[str, Any] | None:
    """Return the command in the `meta` of the last prompt that has a command, or None."""
    found: Mapping[str, Any] | None = None
    for message in messages:
        if isinstance(message, UserMessage) and isinstance(message.meta, Mapping):
            command = message.meta.get(COMMAND)
            found = command if isinstance(command, Mapping) else found
    return found


def shown(call: PendingCall, screen: Screen) -> str:
    """Return the question about a pending call: names of sub-agents, the call, and the reason."""
    request = call.request or PermissionRequest(
        tool=call.tool, action=call.tool, arguments=call.arguments
    )
    text = question(request, screen)
    within = "".join(f"{one_line(name)}: " for name in call.path)
    why = f"\n  ({one_line(call.reason)})" if call.reason else ""
    return f"{within}{text}{why}"


def waiting_lines(
    calls: Sequence[PendingCall], session: str, options: Sequence[str] = ()
) -> list[str]:
    """Return lines of text: a heading, each pending call, and the command that answers the call.

    If `session` is "", there are no commands, and the last line states that the run is not stored.
    `options` are added to each command, such as the store of the session.
    """
    lines = [f"paused: {count(len(calls), 'call')} {'waits' if len(calls) == 1 else 'wait'}"]
    if session:
        lines[0] += (
            f" in session {one_line(session)}; answer with --allow, --deny REASON or --result TEXT:"
        )
    for call in calls:
        why = f" ({one_line(call.reason, 120)})" if call.reason else ""
        lines.append(f"  {one_line(call.id)}: {one_line(call.summary, 200)}{why}")
        if session:
            lines.append(f"    {answer_command(call, session, options)}")
    if not session:
        lines.append(
            "  the run is not stored, so its calls cannot be answered later; "
            "add --session NAME to the command"
        )
    return lines


def answer_command(call: PendingCall, session: str, options: Sequence[str] = ()) -> str:
    """Return the shell command that allows a call, or passes the result of an external tool."""
    decision = ["--allow"] if call.request is not None else ["--result", "TEXT"]
    return one_line(
        shlex.join(["glue", "sessions", "answer", session, call.id, *options, *decision])
    )

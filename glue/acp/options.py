"""Settings of an open session: its mode, its limits, and its slash commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.acp.session import OpenSession
from glue.limits import Limits
from glue.messages import Part, Text
from glue.slash import COMMANDS, answer, change_limits, parse

DEFAULTS = Limits(max_requests=50, token_budget=100_000)
MODES = (
    ("ask", "Ask", "Ask before anything is changed or run."),
    ("allow", "Allow", "Run every tool without permission."),
    ("read", "Read only", "Refuse every tool that needs permission."),
)
# Offered as lists, because the protocol knows no numbers; other values may be set too.
_CHOICES = {
    "max_turns": ("Turns", (8, 16, 32, 64, 128)),
    "max_requests": ("Requests", (10, 25, 50, 100, 200)),
    "token_budget": ("Token budget", (25_000, 100_000, 400_000, 1_600_000)),
}


def mode_state(mode: str) -> dict[str, Any]:
    modes = [{"id": name, "name": title, "description": text} for name, title, text in MODES]
    return {"currentModeId": mode, "availableModes": modes}


def known_mode(mode: Any) -> str:
    names = [name for name, _, _ in MODES]
    if mode not in names:
        raise RpcError(INVALID_PARAMS, f"there is no mode {mode!r}; there are: {', '.join(names)}")
    return str(mode)


def config_options(mode: str, limits: Limits) -> list[dict[str, Any]]:
    """Show the mode and the limits as options to choose from."""
    modes = [{"value": name, "name": title, "description": text} for name, title, text in MODES]
    shown = [{"category": "mode", **_select("mode", "Mode", mode, modes)}]
    for name, (title, usual) in _CHOICES.items():
        now = getattr(limits, name)
        values = sorted({*usual} | ({now} if now is not None else set()))
        choices = [{"value": str(value), "name": f"{value:,}"} for value in values]
        current = "none" if now is None else str(now)
        shown.append(_select(name, title, current, [*choices, {"value": "none", "name": "No limit"}]))
    return shown


def _select(id: str, name: str, current: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "select", "id": id, "name": name, "currentValue": current, "options": options}


def is_limit(name: Any) -> bool:
    return name in _CHOICES


def option_names() -> str:
    return ", ".join(("mode", *_CHOICES))


def available_commands() -> list[dict[str, Any]]:
    return [
        {"name": each.name, "description": each.help, **({"input": {"hint": each.argument}} if each.argument else {})}
        for each in COMMANDS
        if each.in_editor
    ]


def given_limits(meta: Any, limits: Limits) -> Limits:
    """Take limits that the editor sent along: `_meta.limits`."""
    given = meta.get("limits") if isinstance(meta, dict) else None
    return changed(limits, given) if isinstance(given, dict) else limits


def changed(limits: Limits, given: dict[str, Any]) -> Limits:
    """Set limits by name, as an editor asks for it."""
    try:
        return change_limits(limits, given)
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None


def command(opened: OpenSession, parts: Sequence[str | Part]) -> str | None:
    """Answer a slash command; None where it is none of ours, and goes to the model."""
    name, argument = parse(parts[0].text) if len(parts) == 1 and isinstance(parts[0], Text) else ("", "")
    if name == "usage":
        return str(opened.usage)
    try:
        return answer(opened.session, name, argument)
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None

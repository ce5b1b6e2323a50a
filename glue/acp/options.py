"""Settings of an open session: its mode, its limits, and its slash commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.acp.session import OpenSession
from glue.limits import Limits
from glue.messages import Part, Text

DEFAULTS = Limits(max_requests=50, token_budget=100_000)
MODES = (
    ("ask", "Ask", "Ask before anything is changed or run."),
    ("allow", "Allow", "Run every tool without permission."),
    ("read", "Read only", "Refuse every tool that needs permission."),
)
COMMANDS = (
    ("usage", "Say what this session has used.", ""),
    ("limits", "Show or set limits, such as max_turns=64 token_budget=none.", "name=value ..."),
    ("tools", "List the tools.", ""),
    ("model", "Show or change the model.", "provider:model"),
)
SETTABLE = ("max_turns", "max_requests", "token_budget", "usd_budget", "seconds")
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
        {"name": name, "description": text, **({"input": {"hint": hint}} if hint else {})}
        for name, text, hint in COMMANDS
    ]


def given_limits(meta: Any, limits: Limits) -> Limits:
    """Take limits that the editor sent along: `_meta.limits`."""
    given = meta.get("limits") if isinstance(meta, dict) else None
    return changed(limits, given) if isinstance(given, dict) else limits


def changed(limits: Limits, given: dict[str, Any]) -> Limits:
    """Set limits by name; a value is a number, or none for no limit."""
    for name in given:
        if name not in SETTABLE:
            raise RpcError(INVALID_PARAMS, f"there is no limit {name!r}; there are: {', '.join(SETTABLE)}")
    try:
        return replace(limits, **{name: _number(name, value) for name, value in given.items()})
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None


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


def command(opened: OpenSession, parts: Sequence[str | Part]) -> str | None:
    """Response a slash command; None where it is none of ours, and goes to the model."""
    first = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
    name, _, rest = first.strip().partition(" ")
    session, rest = opened.session, rest.strip()
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
            session.agent.open(rest)  # a wrong name is said now
            session.configure(model=rest)
        model: Any = session.settings.model
        return f"The model is {model if isinstance(model, str) else model.name}."
    return None

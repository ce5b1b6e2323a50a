"""Slash commands: what a session answers itself, without asking a model."""

from __future__ import annotations

from collections.abc import Sequence

from glue.acp.held import Held
from glue.acp.options import SETTABLE, changed
from glue.types import Part, Text


def command(held: Held, parts: Sequence[str | Part]) -> str | None:
    """Answer a slash command; None where it is none of ours, and goes to the model."""
    first = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
    name, _, rest = first.strip().partition(" ")
    session, rest = held.session, rest.strip()
    if name == "/usage":
        return str(held.spent)
    if name == "/limits":
        if rest:
            session.limits = changed(session.limits, dict(item.partition("=")[::2] for item in rest.split()))
        return ", ".join(f"{each}={getattr(session.limits, each)}" for each in SETTABLE)
    if name == "/tools":
        specs = [tool.spec for tool in session.settings["tools"]]
        return "\n".join(f"- {spec.name}: {spec.description}" for spec in specs) or "There are no tools."
    if name == "/model":
        if rest:
            session.agent.open(rest)  # a wrong name is said now
            session.configure(model=rest)
        model = session.settings["model"]
        return f"The model is {model if isinstance(model, str) else model.name}."
    return None

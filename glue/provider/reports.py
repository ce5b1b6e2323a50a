"""`Attempt` and `Notice`, the events of a provider about a request, and `ProviderEvent`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from glue.messages import Usage
from glue.provider import Done, TextDelta, ThinkingDelta, ToolCallDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A failed attempt at a request, or an attempt whose reply was discarded.

    Wrappers such as `with_retries` and `with_failover` send this event before the next attempt.
    `with_failover` also sends it for a provider that was left out because no key is set.
    """

    provider: str
    model: str = ""
    kind: str = ""
    detail: str = ""
    delay: float = 0.0  # seconds until the next attempt
    cooldown: float = 0.0  # seconds for which a failover list skips this provider
    seconds: float = 0.0  # duration of this attempt
    usage: Usage | None = None
    # Set by with_escalation: the output limit that was too small, the next limit, and the id of the
    # discarded reply.
    previous_cap: int | None = None
    next_cap: int | None = None
    discarded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A warning: a part of a request was changed or left out, as the model does not accept it.

    A provider sends each notice once. A notice is not a part of the reply.
    """

    provider: str
    text: str
    model: str = ""


ProviderEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | Attempt | Notice | Done

"""Refusals that come as plain text. Off unless asked for: phrases also occur in honest answers."""

from __future__ import annotations

import re
from collections.abc import Callable

from glue.limits import Outcome
from glue.policies.base import Hook, Policy, Stop
from glue.state import State
from glue.types import AssistantMessage

LONGEST = 400  # a refusal is short; a long text that opens with regret goes on to help

_ABLE = (
    r"(?:can(?:no|')t|can not|am unable to|am not able to|won't|will not|could not|couldn't|am not allowed to|"
    r"must decline to)"
)
_VERBS = (
    r"(?:help|assist|comply|do that|do this|provide|create|write|generate|support|discuss|share|fulfil|fulfill|answer|"
    r"engage|continue|participate|produce|give|offer|complete|process|carry out)"
)
_PHRASES = (
    rf"\bi {_ABLE} {_VERBS}",
    rf"\bi'm (?:unable|not able|not allowed|not permitted) to {_VERBS}",
    r"\bi(?:'m| am) sorry,? but i (?:can|won|will|am|'m|must|do)",
    r"\bi must (?:decline|refuse)\b",
    r"\bi (?:have to|need to) (?:decline|refuse)\b",
    r"\bi (?:decline|refuse) to\b",
    r"\b(?:this|that|your) request (?:violates|goes against|is against|conflicts with|breaches)\b",
    r"\bagainst my (?:guidelines|policy|policies|programming|principles)\b",
    r"\bviolates? (?:our|the|my) (?:content |usage )?polic(?:y|ies)\b",
    r"\bi(?:'m| am) not comfortable (?:with|helping|providing|writing|doing)\b",
    r"\bas an ai(?: language model)?,? i (?:can|won|will|am|must|do)(?:no|')?t?\b",
    r"\bi do(?:n't| not) feel comfortable\b",
    r"\bnot something (?:that )?i can (?:help|assist|do|provide)\b",
    r"\bi(?:'d| would) (?:rather|prefer) not (?:to )?(?:help|assist|do|provide|answer|discuss)\b",
    r"\bmy guidelines (?:do not|don't|prevent)\b",
    r"\bunable to (?:assist|help|comply|fulfil|fulfill) with\b",
    r"\bcan't (?:help|assist) (?:you )?with (?:that|this)\b",
    r"\bno can do\b",
)
_REFUSAL = re.compile("|".join(_PHRASES), re.IGNORECASE)


def looks_like_refusal(text: str) -> bool:
    """Tell whether a short text declines the request."""
    plain = text.replace("\u2019", "'").strip()
    return 0 < len(plain) <= LONGEST and bool(_REFUSAL.search(plain))


class RefusalDetector(Policy):
    """End a run as refused when a reply without calls reads like one."""

    def __init__(self, detect: Callable[[str], bool] = looks_like_refusal) -> None:
        self.detect = detect

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        if reply.calls or not self.detect(reply.text):
            return None
        return Stop(Outcome.REFUSED, meta={"refusal": "detector"})

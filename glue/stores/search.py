"""Search without an index, and what every store's search has in common."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from glue.stores.protocol import Hit
from glue.types import AssistantMessage, Message, ToolMessage

Patterns: TypeAlias = tuple[re.Pattern[str], ...]

_QUERY = re.compile(r'"([^"]*)"|(\S+)')
_AROUND = 60  # characters on each side of the first match


def searchable(message: Message) -> str:
    """Give the text that a search looks through: what was said, and the calls with their arguments."""
    if not isinstance(message, AssistantMessage) or not message.calls:
        return message.text
    return "\n".join(filter(None, [message.text, *(f"{call.name} {call.arguments}" for call in message.calls)]))


def role_of(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return "assistant"
    return "tool" if isinstance(message, ToolMessage) else "user"


def terms(query: str) -> tuple[tuple[str, bool], ...]:
    """Split a query into words and quoted phrases; the flag says that the term is only a beginning."""
    out: list[tuple[str, bool]] = []
    for phrase, word in _QUERY.findall(query):
        term = phrase or word.rstrip("*").strip('"')
        if re.search(r"\w", term):
            out.append((term, word.endswith("*")))
    if not out:
        raise ValueError(f"nothing to search for in {query!r}; give at least one word")
    return tuple(out)


def patterns(query: str) -> Patterns:
    """Make one pattern for each term; a text fits when all of them are found."""
    return tuple(
        re.compile(rf"(?<!\w){re.escape(term)}" + ("" if prefix else r"(?!\w)"), re.IGNORECASE)
        for term, prefix in terms(query)
    )


def find(
    session: str,
    messages: Iterable[tuple[Message, float]],
    wanted: Patterns,
    *,
    role: str | None = None,
    since: float | None = None,
    until: float | None = None,
) -> list[Hit]:
    """Search messages, each with the time it was stored, one by one."""
    hits = []
    for message, at in messages:
        if role not in (None, role_of(message)) or at < (since or 0) or (until is not None and at > until):
            continue
        found = _snippet(wanted, searchable(message))
        if found is not None:
            hits.append(Hit(session=session, message_id=message.id, role=role_of(message), snippet=found, at=at))
    return hits


def newest(hits: Iterable[Hit], limit: int) -> tuple[Hit, ...]:
    return tuple(sorted(hits, key=lambda hit: hit.at, reverse=True)[:limit])


def _snippet(wanted: Patterns, text: str) -> str | None:
    found = [match for match in (each.search(text) for each in wanted) if match is not None]
    if len(found) < len(wanted):
        return None
    start = min(match.start() for match in found)
    left, right = max(0, start - _AROUND), start + _AROUND
    piece = text[left:right]
    for each in wanted:
        piece = each.sub(lambda match: f"[{match.group()}]", piece)
    return ("…" if left else "") + " ".join(piece.split()) + ("…" if right < len(text) else "")

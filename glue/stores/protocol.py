"""What every store can do, and what can be done with any store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from glue.errors import StoreError
from glue.stores.log import Log, Record
from glue.types import SCHEMA_VERSION, Json, Message, UserMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One conversation in a list."""

    id: str
    created: float  # seconds since 1970
    updated: float
    title: str = ""  # the beginning of the first prompt
    parent: str = ""  # the session this one was forked from
    forked_at: int | None = None  # how many of its messages were taken over
    schema: int = SCHEMA_VERSION
    meta: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One message that a search found; the matches stand in [brackets] in the snippet."""

    session: str
    message_id: str
    role: str
    snippet: str
    at: float  # when it was stored


class Store(Protocol):
    """Somewhere to keep conversations, each under an id."""

    def log(
        self, id: str, *, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
    ) -> Log:
        """Give the conversation's log; nothing is read or made before it is entered."""
        ...

    async def list(self) -> tuple[SessionInfo, ...]:
        """List all sessions, the last changed first."""
        ...

    async def load(self, id: str) -> tuple[Message, ...]:
        """Read a conversation without taking hold of it."""
        ...

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        session: str | None = None,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[Hit, ...]:
        """Find messages that hold every word of the query; "a phrase" in quotes, a prefix as word*."""
        ...

    async def delete(self, id: str) -> None: ...


async def copy(
    source: Store, id: str, target: Store, new_id: str = "", *, at: int | None = None, live: bool = False
) -> str:
    """Copy a session, within a store or to another; `at` takes only that many of its messages.

    `live` leaves out what compaction or a refusal has excluded. Give the id of the copy; under a new
    id it names its parent.
    """
    new_id = new_id or id
    messages = await source.load(id)
    if at is not None and not 0 <= at <= len(messages):
        raise ValueError(f"session {id!r} has {len(messages)} messages; it cannot be forked at {at}")
    taken = messages if at is None else messages[:at]
    parent = {"parent": id, "forked_at": len(taken)} if new_id != id else {}
    taken = tuple(message for message in taken if not (live and message.excluded))
    async with target.log(new_id, **parent) as log:  # type: ignore[arg-type]
        if log.messages:
            raise StoreError(f"session {new_id!r} is there already, with {len(log.messages)} messages")
        await log.extend(taken)
    return new_id


def lineage(sessions: Sequence[SessionInfo]) -> tuple[tuple[int, SessionInfo], ...]:
    """Order sessions as a tree: each with its depth, below the one it was forked from."""
    known = {info.id for info in sessions}
    below: dict[str, list[SessionInfo]] = {}
    for info in sorted(sessions, key=lambda info: (info.created, info.id)):
        below.setdefault(info.parent if info.parent in known and info.parent != info.id else "", []).append(info)
    out: list[tuple[int, SessionInfo]] = []
    todo = [(0, info) for info in reversed(below.get("", []))]
    while todo:
        depth, info = todo.pop()
        out.append((depth, info))
        todo += [(depth + 1, child) for child in reversed(below.pop(info.id, []))]
    return tuple(out)


def describe(header: Record, messages: Sequence[Message], updated: float) -> SessionInfo:
    """Sum up a session from its header and its first messages."""
    prompts = (message.text for message in messages if isinstance(message, UserMessage) and message.text.strip())
    return SessionInfo(
        id=header["session"],
        created=header.get("created", 0.0),
        updated=updated,
        title=" ".join(next(prompts, "").split())[:80],
        parent=header.get("parent", ""),
        forked_at=header.get("forked_at"),
        schema=header.get("schema", SCHEMA_VERSION),
        meta=header.get("meta"),
    )


def check_id(id: str) -> str:
    if not isinstance(id, str) or not id or len(id.encode(errors="replace")) > 200 or "\0" in id:
        raise ValueError(f"a session id is a text of 1 to 200 bytes, not {id!r}")
    return id


def missing(id: str, there: Sequence[str]) -> StoreError:
    some = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "")
    return StoreError(f"there is no session {id!r}; there are: {some or 'none'}")

"""The `Store` protocol, the base class of glue's stores, and functions for every store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from glue.codec import Json
from glue.errors import SessionBusy, StoreError
from glue.messages import SCHEMA_VERSION, Message, Text
from glue.stores.log import Log, Writer
from glue.stores.records import Record, new_header
from glue.stores.search import Query, SearchHit, role_of
from glue.tasks import finish_in_thread

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A description of one session, as `Store.list` returns it."""

    id: str
    created: float  # seconds since 1970
    updated: float
    title: str = ""  # the beginning of the first prompt
    parent: str = ""  # the id of the session that this session was forked from
    forked_at: int | None = None  # the number of messages that were copied from the parent
    schema: int = SCHEMA_VERSION
    meta: Mapping[str, Json] | None = None


class Store(Protocol):
    """The protocol of stores. A store contains sessions, each with its own id."""

    def log(
        self,
        id: str,
        *,
        parent: str = "",
        forked_at: int | None = None,
        meta: Mapping[str, Json] | None = None,
    ) -> Log:
        """Return the log of a session. `async with log` locks it, and reads or creates it.

        Args:
            id: the id of the session.
            parent: if the session is new, the id of the session that it is a fork of.
            forked_at: if the session is new, the number of messages taken from the parent.
            meta: if the session is new, data of the caller to store with it.
        """

    async def list(self) -> tuple[SessionInfo, ...]:
        """Return the descriptions of all sessions, the most recently changed session first."""

    async def load(self, id: str) -> tuple[Message, ...]:
        """Return the messages of a session without locking the session.

        Raise StoreError if the session does not exist.
        """

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        session: str | None = None,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[SearchHit, ...]:
        """Return up to `limit` hits: messages that contain every term of the query.

        SQLite and PostgreSQL return the best hits first, all other stores the newest.

        Args:
            query: words, "phrases in quotes" and prefixes such as `word*`.
            limit: the largest number of hits to return.
            session: search only the session with this id.
            role: search only messages of "user", "assistant" or "tool".
            since: search only messages stored at or after this time, in seconds since 1970.
            until: search only messages stored at or before this time.
        """

    async def delete(self, id: str) -> None:
        """Delete a session. Raise SessionBusy if a writer has locked it.

        Raise StoreError if the session does not exist.
        """


class BlockingStore:
    """A base class of stores whose async methods call blocking methods in a worker thread."""

    # Returns a writer for a session id. The record is the header that a new session gets.
    _writer: Callable[[str, Record], Writer]
    _list: Callable[[], tuple[SessionInfo, ...]]
    # Returns the messages of a session, the times at which they were stored, and the header.
    _read: Callable[[str], tuple[tuple[Message, ...], Mapping[str, float], Record]]
    _search: Callable[[Query], tuple[SearchHit, ...]]
    _delete: Callable[[str], None]

    def log(
        self,
        id: str,
        *,
        parent: str = "",
        forked_at: int | None = None,
        meta: Mapping[str, Json] | None = None,
    ) -> Log:
        return Log(id, self._writer(id, new_header(id, parent, forked_at, meta)))

    async def list(self) -> tuple[SessionInfo, ...]:
        return await self._in_thread(self._list)

    async def load(self, id: str) -> tuple[Message, ...]:
        return (await self._in_thread(self._read, id))[0]

    async def times(self, id: str) -> Mapping[str, float]:
        """Return the storage time of each message of a session, by message id."""
        return (await self._in_thread(self._read, id))[1]

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        session: str | None = None,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[SearchHit, ...]:
        return await self._in_thread(self._search, Query(query, limit, session, role, since, until))

    async def delete(self, id: str) -> None:
        await self._in_thread(self._delete, id)

    async def _in_thread(self, work: Callable[..., T], *values: Any) -> T:
        try:
            return await finish_in_thread(work, *values)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise StoreError(f"the store failed: {where}{error.strerror or error}") from error


def title_of(content: Sequence[Any]) -> str:
    """Return the first text of a prompt, or the kinds of its parts if it has no text.

    The kinds are in brackets, such as "[image]". An empty prompt has the title "".

    >>> title_of(["", "Fix it."])
    'Fix it.'
    """
    texts = (part if isinstance(part, str) else getattr(part, "text", "") for part in content)
    title = next((text for text in texts if text.strip()), "")
    kinds = [type(part).__name__.lower() for part in content if not isinstance(part, (str, Text))]
    return title or (f"[{', '.join(kinds)}]" if kinds else "")


def session_info(header: Record, messages: Sequence[Message], updated: float) -> SessionInfo:
    """Return the SessionInfo of a session from its header, messages and time of last change.

    `messages` are the messages of the session, at least up to the first prompt: its text is the
    title.
    """
    created = header.get("created")
    created = float(created) if isinstance(created, (int, float)) else 0.0
    titles = (title_of(message.content) for message in messages if role_of(message) == "user")
    prompt = next(filter(None, titles), "")
    return SessionInfo(
        id=header["session"],
        created=created,
        updated=max(created, updated),  # file times may be some milliseconds behind the clock
        title=" ".join(prompt.split())[:80],
        parent=header.get("parent", ""),
        forked_at=header.get("forked_at"),
        schema=header.get("schema", SCHEMA_VERSION),
        meta=header.get("meta"),
    )


async def copy(
    source: Store,
    id: str,
    target: Store,
    new_id: str = "",
    *,
    at: int | None = None,
    live: bool = False,
) -> str:
    """Copy a session to the same store or to another store, and return the id of the copy.

    Args:
        source: the store that has the session.
        id: the session to copy.
        target: the store to write to.
        new_id: the id of the copy; the same id by default. If the id differs, the copy has the
            original session as its parent.
        at: copy only this many messages from the beginning.
        live: leave out messages that were excluded, by compaction for example.
    """
    new_id = new_id or id
    fork = getattr(source, "fork", None)
    if source is target and new_id != id and fork is not None:
        await fork(id, new_id, at=at, live=live)
        return new_id
    times: Mapping[str, float] = {}
    head: Record = {}
    if isinstance(source, BlockingStore):
        messages, times, head = await source._in_thread(source._read, id)
    else:
        messages = await source.load(id)
    check_fork(id, at, len(messages))
    taken = messages if at is None else messages[:at]
    if new_id != id:
        head = {**head, "parent": id, "forked_at": len(taken)}
    kept = {name: head[name] for name in ("parent", "forked_at", "meta") if name in head}
    async with target.log(new_id, **kept) as log:
        if log.messages:
            raise session_exists(new_id, len(log.messages))
        await log.extend((message for message in taken if not (live and message.excluded)), times)
    return new_id


def lineage(sessions: Sequence[SessionInfo]) -> tuple[tuple[int, SessionInfo], ...]:
    """Return sessions with their depth in the tree of forks; forks follow their parents.

    The depth of a session without a parent is 0. If sessions are forks of each other, because a
    deleted parent was made again as a fork, the oldest of them has the depth 0.
    """
    oldest_first = sorted(sessions, key=lambda info: (info.created, info.id))
    known = {info.id for info in sessions}
    children: dict[str, list[SessionInfo]] = {}
    for info in oldest_first:
        children.setdefault(info.parent, []).append(info)
    roots = [info for info in oldest_first if info.parent not in known]
    seen: dict[str, tuple[int, SessionInfo]] = {}
    for root in (*roots, *oldest_first):
        todo = [(0, root)]
        while todo:
            depth, info = todo.pop()
            if info.id not in seen:
                seen[info.id] = (depth, info)
                todo += [(depth + 1, child) for child in reversed(children.get(info.id, ()))]
    return tuple(seen.values())


# Errors that all stores raise ---------------------------------------------------------------------


def check_fork(id: str, at: int | None, count: int) -> None:
    """Raise ValueError if `at` is not None and not a number of messages from 0 to `count`."""
    if at is not None and not (isinstance(at, int) and 0 <= at <= count):
        raise ValueError(f"session {id!r} has {count} messages; it cannot be forked at {at!r}")


def session_exists(id: str, count: int) -> StoreError:
    """Return the error for a copy to a session that has messages already."""
    return StoreError(
        f"session {id!r} already exists, with {count} messages; give the copy another id"
    )


def session_busy(id: str) -> SessionBusy:
    """Return the error for a session that another writer has locked."""
    return SessionBusy(
        f"session {id!r} is in use by this or another process; a session has one writer at a time"
    )


def no_session(id: str, known: Sequence[str]) -> StoreError:
    """Return the error for a session that does not exist, with up to eight ids that do."""
    some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    return StoreError(f"there is no session {id!r}; there are: {some or 'none'}")

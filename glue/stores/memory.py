"""`MemoryStore`: a store in memory, whose sessions are lost when the process ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from glue.messages import Message
from glue.stores.records import Record, StoredSession, check_id
from glue.stores.search import Query, SearchHit
from glue.stores.store import BlockingStore, SessionInfo, no_session, session_busy, session_info

T = TypeVar("T")


class MemoryStore(BlockingStore):
    """A store that keeps sessions in memory, for tests and short conversations.

    >>> store = MemoryStore()
    >>> session = agent.session("demo", store=store)  # doctest: +SKIP
    >>> session.run_sync("Hello")                     # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._holders: dict[str, object] = {}  # the writer that has locked each session, by its id
        self._sessions: dict[str, StoredSession] = {}
        self._times: dict[
            str, dict[str, float]
        ] = {}  # storage times, by the ids of session and message

    async def _in_thread(self, work: Callable[..., T], *values: Any) -> T:
        return work(*values)  # faster than a thread

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self, id, first)

    def _list(self) -> tuple[SessionInfo, ...]:
        infos = [
            session_info(
                stored.header, stored.messages, max(self._times[key].values(), default=0.0)
            )
            for key, stored in tuple(self._sessions.items())
        ]
        return tuple(sorted(infos, key=lambda info: info.updated, reverse=True))

    def _read(self, id: str) -> tuple[tuple[Message, ...], Mapping[str, float], Record]:
        stored = self._find(id)
        return tuple(stored.messages), dict(self._times[id]), stored.header

    def _search(self, query: Query) -> tuple[SearchHit, ...]:
        if query.session is not None:
            self._find(query.session)
        hits: list[SearchHit] = []
        for key, stored in tuple(self._sessions.items()):
            if query.session in (None, key):
                times = self._times[key]
                timed = ((message, times.get(message.id, 0.0)) for message in stored.messages)
                hits += query.find(key, timed)
        return query.newest(hits)

    def _delete(self, id: str) -> None:
        self._find(id)
        if id in self._holders:
            raise session_busy(id)
        del self._sessions[id], self._times[id]

    def _find(self, id: str) -> StoredSession:
        if check_id(id) not in self._sessions:
            raise no_session(id, sorted(self._sessions))
        return self._sessions[id]


class _Writer:
    blocks = False

    def __init__(self, store: MemoryStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first

    def open(self, stored: StoredSession) -> None:
        if self.store._holders.setdefault(self.id, self) is not self:
            raise session_busy(self.id)
        kept = self.store._sessions.get(self.id)
        if kept is None:
            stored.clear()
            stored.apply(self.first)
        elif kept is not stored:
            stored.header, stored.messages = kept.header, kept.messages
        self.store._sessions[self.id] = stored
        self.store._times.setdefault(self.id, {})

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            if record["type"] == "message":
                self.store._times[self.id][record["message"]["id"]] = record["at"]

    def close(self) -> None:
        if self.store._holders.get(self.id) is self:
            del self.store._holders[self.id]

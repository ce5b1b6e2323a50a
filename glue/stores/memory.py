"""`MemoryStore`: conversations that end with the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from glue.messages import Message
from glue.stores import store
from glue.stores.store import BlockingStore, Fold, Query, Record, SearchHit, SessionInfo

T = TypeVar("T")


class MemoryStore(BlockingStore):
    """Keep conversations in memory: for tests, and for what nobody wants to keep."""

    def __init__(self) -> None:
        self._holders: dict[str, object] = {}
        self._folds: dict[str, Fold] = {}
        self._stored: dict[str, dict[str, float]] = {}  # when each message of a session was stored

    async def _in_thread(self, work: Callable[..., T], *values: Any) -> T:
        return work(*values)  # quicker than a thread

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self, id, first)

    def _list(self) -> tuple[SessionInfo, ...]:
        infos = [
            store.describe(fold.header, fold.messages, max(self._stored[key].values(), default=0.0))
            for key, fold in tuple(self._folds.items())
        ]
        return tuple(sorted(infos, key=lambda info: info.updated, reverse=True))

    def _read(self, id: str) -> tuple[tuple[Message, ...], Mapping[str, float], Record]:
        fold = self._there(id)
        return tuple(fold.messages), dict(self._stored[id]), fold.header

    def _search(self, query: Query) -> tuple[SearchHit, ...]:
        if query.session is not None:
            self._there(query.session)
        hits: list[SearchHit] = []
        for key, fold in tuple(self._folds.items()):
            if query.session in (None, key):
                times = self._stored[key]
                hits += query.find(key, ((message, times.get(message.id, 0.0)) for message in fold.messages))
        return query.newest(hits)

    def _delete(self, id: str) -> None:
        self._there(id)
        if id in self._holders:
            raise store.busy(id)
        del self._folds[id], self._stored[id]

    def _there(self, id: str) -> Fold:
        if store.check_id(id) not in self._folds:
            raise store.missing(id, sorted(self._folds))
        return self._folds[id]


class _Writer:
    blocks = False

    def __init__(self, store: MemoryStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first

    def open(self, fold: Fold) -> None:
        if self.store._holders.setdefault(self.id, self) is not self:
            raise store.busy(self.id)
        kept = self.store._folds.get(self.id)
        if kept is None:
            fold.clear()
            fold.apply(self.first)
        elif kept is not fold:
            fold.header, fold.messages, fold.read_only = kept.header, kept.messages, kept.read_only
        self.store._folds[self.id] = fold
        self.store._stored.setdefault(self.id, {})

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            if record["type"] == "message":
                self.store._stored[self.id][record["message"]["id"]] = record["at"]

    def close(self) -> None:
        if self.store._holders.get(self.id) is self:
            del self.store._holders[self.id]

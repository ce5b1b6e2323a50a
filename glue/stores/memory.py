"""`MemoryStore`: conversations that end with the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glue.messages import Json, Message
from glue.stores.store import (
    Fold,
    Log,
    Query,
    Record,
    SearchHit,
    SessionInfo,
    busy,
    check_id,
    describe,
    header,
    missing,
)


class MemoryStore:
    """Keep conversations in memory: for tests, and for what nobody wants to keep."""

    def __init__(self) -> None:
        self._holders: dict[str, object] = {}
        self._folds: dict[str, Fold] = {}
        self._times: dict[str, dict[str, float]] = {}  # when each message of a session was stored

    def log(
        self, id: str, *, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
    ) -> Log:
        return Log(check_id(id), _Writer(self, id, header(id, parent, forked_at, meta)))

    async def list(self) -> tuple[SessionInfo, ...]:
        infos = [self._info(key, fold) for key, fold in self._folds.items()]
        return tuple(sorted(infos, key=lambda info: info.updated, reverse=True))

    async def load(self, id: str) -> tuple[Message, ...]:
        return tuple(self._fold(id).messages)

    async def times(self, id: str) -> Mapping[str, float]:
        """Say when each message was stored."""
        self._fold(id)
        return dict(self._times[id])

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
        asked = Query(query, limit, session, role, since, until)
        if session is not None:
            self._fold(session)
        found = (asked.find(key, self._dated(key)) for key in self._folds if session in (None, key))
        return asked.newest(hit for hits in found for hit in hits)

    async def delete(self, id: str) -> None:
        self._fold(id)
        if id in self._holders:
            raise busy(id)
        del self._folds[id], self._times[id]

    def _fold(self, id: str) -> Fold:
        if id not in self._folds:
            raise missing(id, sorted(self._folds))
        return self._folds[id]

    def _info(self, id: str, fold: Fold) -> SessionInfo:
        return describe(fold.header, fold.messages, max(self._times[id].values(), default=fold.header["created"]))

    def _dated(self, id: str) -> Sequence[tuple[Message, float]]:
        return [(message, self._times[id].get(message.id, 0.0)) for message in self._folds[id].messages]


class _Writer:
    blocks = False

    def __init__(self, store: MemoryStore, id: str, first: Record) -> None:
        self.store, self.id, self.first = store, id, first

    def open(self, fold: Fold) -> None:
        if self.store._holders.setdefault(self.id, self) is not self:
            raise busy(self.id)
        kept = self.store._folds.get(self.id)
        if kept is None:
            fold.clear()
            fold.apply(self.first)
        elif kept is not fold:
            fold.header, fold.messages, fold.read_only = kept.header, kept.messages, kept.read_only
        self.store._folds[self.id] = fold
        self.store._times.setdefault(self.id, {})

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            if record["type"] == "message":
                self.store._times[self.id][record["message"]["id"]] = record["at"]

    def close(self) -> None:
        if self.store._holders.get(self.id) is self:
            del self.store._holders[self.id]

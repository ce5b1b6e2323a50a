"""The transcript of a run while it is written: the lists in memory, and the journal beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import anyio

from glue.codec import to_plain
from glue.loop.transcript import History
from glue.messages import Json, Message
from glue.tasks import complete

T = TypeVar("T")


class Journal(Protocol):
    """A place that stores a transcript. Each method returns when the change is durable."""

    async def append(self, message: Message) -> None: ...
    async def insert(self, message: Message, before: str) -> None: ...
    async def amend(self, id: str, fields: Mapping[str, Json]) -> None: ...
    async def drop(self, ids: Sequence[str]) -> None: ...
    async def exclude(self, ids: Sequence[str]) -> None: ...


@dataclass(slots=True, kw_only=True)
class RunRecorder:
    """The messages of a run, and the journal that stores each change before the next step."""

    messages: list[Message]  # the whole transcript
    new: list[Message] = field(default_factory=list)  # the messages of this run, with its prompt
    history: History = field(default_factory=History)  # the messages as they are sent
    journal: Journal | None = None
    # An error of the journal, or of a listener while the run ends. It is raised after the end.
    late_error: BaseException | None = None
    ending: bool = False  # True while the run ends: a failed write does not raise then
    _lock: anyio.Lock = field(default_factory=anyio.Lock)  # parallel calls write in order

    async def add(self, message: Message, *, before: Message | None, write: bool) -> None:
        """Add a message at the end, or in front of `before`; `write` adds it to the journal too."""
        if before is None:
            self.messages.append(message)
            self.new.append(message)
        else:
            for messages in (self.messages, self.new):
                ids = [each.id for each in messages]
                at = ids.index(before.id) if before.id in ids else len(ids)
                messages.insert(at, message)
            self.history.align(self.messages)
        if write and before is None:
            await self.write(lambda journal: journal.append(message))
        elif write and before is not None:
            await self.write(lambda journal: journal.insert(message, before.id))

    async def amend(self, id: str, **fields: Any) -> None:
        """Change fields of a stored message, in both lists and in the journal."""
        self.replace(id, **fields)
        await self.write(lambda journal: journal.amend(id, to_plain(fields)))

    def replace(self, id: str, **fields: Any) -> None:
        """Change fields of a message in both lists, whose copies may differ after a compaction."""
        for messages in (self.messages, self.new):
            for index in range(len(messages) - 1, -1, -1):
                if messages[index].id == id:
                    messages[index] = replace(messages[index], **fields)
                    break

    async def write(self, change: Callable[[Journal], Awaitable[None]]) -> None:
        """Call `change` with the journal; it is completed even if the run is cancelled meanwhile.

        After a failed write the journal is not used again, so that it has no gap.
        """
        journal = self.journal
        if journal is None:
            return

        async def work() -> None:
            try:
                async with self._lock if self._blocks else nullcontext():
                    await change(journal)
            except Exception as error:
                self.journal, self.late_error = None, error
                if not self.ending:  # the end continues without the journal, and raises at the end
                    raise

        await self.finish(work())

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; if the journal does I/O, delay a cancellation until `work` is done."""
        return await (complete(work) if self._blocks else work)

    @property
    def _blocks(self) -> bool:
        return self.journal is not None and getattr(self.journal, "blocks", True)

"""The transcript of a run in progress: lists in memory, and a journal that stores each change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import anyio

from glue.codec import to_plain
from glue.loop.transcript import History
from glue.messages import Json, Message
from glue.tasks import complete

T = TypeVar("T")


class Journal(Protocol):
    """The storage of a transcript. Each method stores a change, and returns when it is durable."""

    async def append(self, message: Message) -> None: ...
    async def insert(self, message: Message, before: str) -> None: ...
    async def amend(self, id: str, fields: Mapping[str, Json]) -> None: ...
    async def drop(self, ids: Sequence[str]) -> None: ...
    async def exclude(self, ids: Sequence[str]) -> None: ...


class RunRecorder:
    """The messages of a run, and the journal that stores each change before the next step."""

    def __init__(
        self,
        messages: list[Message],
        *,
        history: History | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.messages = messages  # the whole transcript
        self.new: list[Message] = []  # messages of this run, including its prompt
        self.history = history or History()  # the repaired messages that are sent
        self.journal = journal
        # An error of the journal, or of a listener while the run ends. It is raised after the end.
        self.late_error: BaseException | None = None
        self.ending = False  # True while the run ends: a failed write does not raise then
        self._unwritten: set[str] = set()  # ids of messages that only the caller stores
        self._lock = anyio.Lock()  # parallel calls write in order

    async def add(self, message: Message, *, before: Message | None, write: bool) -> None:
        """Add a message to `messages` and `new`, and to the journal if `write`.

        The message is added at the end, or in front of the message `before`.
        """
        if before is None:
            self.messages.append(message)
            self.new.append(message)
        else:
            for messages in (self.messages, self.new):
                ids = [each.id for each in messages]
                at = ids.index(before.id) if before.id in ids else len(ids)
                messages.insert(at, message)
            self.history.align(self.messages)
        if not write:
            self._unwritten.add(message.id)
        elif before is None:
            await self.write(lambda journal: journal.append(message))
        else:
            await self.write(lambda journal: journal.insert(message, before.id))

    async def amend(self, id: str, **fields: Any) -> None:
        """Change fields of the message `id`, in `messages`, in `new` and in the journal.

        The journal is not changed if it does not contain the message.
        """
        self.replace(id, **fields)
        if id not in self._unwritten:
            await self.write(lambda journal: journal.amend(id, to_plain(fields)))

    def replace(self, id: str, **fields: Any) -> None:
        """Change fields of the message `id` in `messages` and in `new`, but not in the journal.

        After a compaction the two lists may contain different copies of a message.
        """
        for messages in (self.messages, self.new):
            for index in range(len(messages) - 1, -1, -1):
                if messages[index].id == id:
                    messages[index] = replace(messages[index], **fields)
                    break

    async def write(self, change: Callable[[Journal], Awaitable[None]]) -> None:
        """If there is a journal, await `change(journal)` to its end, even if the run is cancelled.

        After a failed write the journal is not used again, because a later write would leave a gap
        in it. The error is raised, or while the run ends, it is kept in `late_error`.
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
                if not self.ending:  # the end of a run raises `late_error` as its last step
                    raise

        await self.finish(work())

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` and return its result; with I/O, a cancellation waits for `work`.

        A cancellation then takes effect when `work` is done.
        """
        return await (complete(work) if self._blocks else work)

    @property
    def _blocks(self) -> bool:
        return self.journal is not None and getattr(self.journal, "blocks", True)

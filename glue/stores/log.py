"""`Log`: one session in a store, which one writer at a time can lock and change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import anyio

from glue.errors import NewerSchema, StoreError
from glue.messages import Message, Messages
from glue.stores.records import Record, StoredSession, message_record, newer_header
from glue.tasks import finish_in_thread


class Writer(Protocol):
    """The interface of a store's writer, with which a log locks and changes a session."""

    @property
    def blocks(self) -> bool:
        """True if the methods wait for a disk or a server, and must be called in a thread."""

    def open(self, stored: StoredSession) -> None:
        """Lock the session for this writer, and update `stored` with the session in the store.

        A session that does not exist is created. Raise SessionBusy if another writer has locked the
        session.
        """

    def write(self, records: Sequence[Record]) -> None:
        """Store all records, and return when they are durable.

        If that fails, store none of the records and raise StoreError.
        """

    def close(self) -> None:
        """Unlock the session."""


class Log:
    """A session in a store. To add or change messages, lock the session with `async with log`.

        async with store.log("demo") as log:
            await log.append(user("Hello"))
            print(len(log.messages))

    A log can be entered several times, one after the other. Entering it again reads only the
    changes of other writers. Every method returns after its record is stored. A method that is
    cancelled either has stored its record, in the store and in `messages`, or has stored nothing.
    """

    def __init__(self, id: str, writer: Writer) -> None:
        self.id = id
        self._writer = writer
        self._stored = StoredSession()
        self._is_entered = False

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._stored.messages)

    @property
    def view(self) -> Messages:
        """The current messages as a read-only sequence, without copying them."""
        return Messages(self._stored.messages)

    @property
    def blocks(self) -> bool:
        """True if the writer waits for a disk or a server, and must be called in a thread."""
        return self._writer.blocks

    @property
    def read_only(self) -> str:
        """The reason why the session must not be changed, or "" if it may be changed."""
        return self._stored.read_only

    def check_writable(self) -> None:
        """Raise StoreError if the session is read-only.

        The error is a NewerSchema if a newer version of glue wrote the session.
        """
        if self.read_only:
            error = NewerSchema if newer_header(self._stored.header) else StoreError
            raise error(self.read_only)

    async def __aenter__(self) -> Log:
        def enter() -> None:
            try:
                self._writer.open(self._stored)
            except BaseException:
                self._writer.close()
                raise
            self._is_entered = True

        if not self._writer.blocks:
            enter()
            return self
        try:
            await finish_in_thread(enter)
        except BaseException:
            if self._is_entered:  # cancelled, but the thread has locked the session
                await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_entered = False
        if not self._writer.blocks:
            self._writer.close()
            return
        with anyio.CancelScope(shield=True):
            await finish_in_thread(self._writer.close, always=True)

    async def append(self, message: Message) -> None:
        """Store a message at the end of the session."""
        await self.extend((message,))

    async def extend(
        self, messages: Iterable[Message], times: Mapping[str, float] | None = None
    ) -> None:
        """Store messages at the end of the session, and wait only once for the disk.

        Args:
            messages: the messages to append.
            times: storage times to keep for copied messages, by message id.
        """
        messages = tuple(messages)
        if messages:
            await self._write([message_record(message, times) for message in messages], messages)

    async def insert(self, message: Message, before: str) -> None:
        """Store a message in front of the message `before`. Raise StoreError for an unknown id."""
        self._stored.index(before)
        await self._write([message_record(message) | {"before": before}], (message,))

    async def amend(self, id: str, fields: Mapping[str, Any]) -> None:
        """Replace fields in the JSON of the message `id`. The new values must be JSON-serializable.

        Raise StoreError if the session does not contain the message.
        """
        self._stored.index(id)
        await self._write([{"type": "amend", "id": id, "fields": dict(fields)}])

    async def drop(self, ids: Iterable[str]) -> None:
        """Remove the messages with these ids from the session; ignore unknown ids."""
        await self._write([{"type": "drop", "ids": list(ids)}])

    async def exclude(self, ids: Iterable[str]) -> None:
        """Exclude the messages with these ids from later requests; ignore unknown ids.

        Excluded messages stay in the session, and their field `excluded` is True.
        """
        await self._write([{"type": "exclude", "ids": list(ids)}])

    async def _write(
        self, records: Sequence[Record], messages: Sequence[Message | None] = (None,)
    ) -> None:
        if not self._is_entered:
            raise StoreError(f"session {self.id!r} is not open for writing; use `async with log`")
        self.check_writable()

        def write() -> None:
            self._writer.write(records)
            for record, message in zip(records, messages, strict=True):
                self._stored.apply(record, message)

        if self._writer.blocks:
            await finish_in_thread(write)
        else:
            write()

"""`glue.loop.recorder`: the lists of a run and its journal change together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import pytest

from glue import AssistantMessage, Message, Text, user
from glue.loop.recorder import RunRecorder

pytestmark = pytest.mark.anyio


class Journal:
    """A journal that notes each call, waits once, and may fail."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.calls: list[tuple[Any, ...]] = []

    async def _note(self, *call: Any) -> None:
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise OSError("disk full")
        self.calls.append(call)

    async def append(self, message: Message) -> None:
        await self._note("append", message.text)

    async def insert(self, message: Message, before: str) -> None:
        await self._note("insert", message.text, before)

    async def amend(self, id: str, fields: Mapping[str, Any]) -> None:
        await self._note("amend", id, dict(fields))

    async def drop(self, ids: Sequence[str]) -> None:
        await self._note("drop", tuple(ids))

    async def exclude(self, ids: Sequence[str]) -> None:
        await self._note("exclude", tuple(ids))


async def test_a_message_is_added_to_both_lists_and_to_the_journal() -> None:
    recorder = RunRecorder(messages=[first := user("first")], journal=(journal := Journal()))

    await recorder.add(user("last"), before=None, write=True)
    await recorder.add(user("middle"), before=recorder.messages[-1], write=True)

    assert [message.text for message in recorder.messages] == ["first", "middle", "last"]
    assert [message.text for message in recorder.new] == ["middle", "last"]
    assert journal.calls == [
        ("append", "last"),
        ("insert", "middle", recorder.messages[-1].id),
    ]
    assert recorder.messages[0] is first


async def test_a_message_in_front_of_another_is_sent_in_front_of_it() -> None:
    recorder = RunRecorder(messages=[user("first"), AssistantMessage(content=(Text(text="last"),))])
    recorder.history.view(recorder.messages)  # as for a request before

    await recorder.add(user("middle"), before=recorder.messages[-1], write=False)

    sent = recorder.history.view(recorder.messages)
    assert [message.text for message in sent] == ["first", "middle", "last"]


async def test_a_message_that_is_not_written_is_in_the_lists_only() -> None:
    recorder = RunRecorder(messages=[], journal=(journal := Journal()))

    await recorder.add(user("prompt"), before=None, write=False)

    assert (len(recorder.messages), journal.calls) == (1, [])


async def test_an_amended_message_changes_in_both_lists_and_in_the_journal() -> None:
    recorder = RunRecorder(messages=[], journal=(journal := Journal()))
    await recorder.add(message := user("x"), before=None, write=True)

    await recorder.amend(message.id, meta={"a": 1})

    assert recorder.messages[0].meta == recorder.new[0].meta == {"a": 1}
    assert journal.calls[-1] == ("amend", message.id, {"meta": {"a": 1}})


async def test_a_cancellation_waits_until_the_journal_has_written() -> None:
    recorder = RunRecorder(messages=[], journal=(journal := Journal()))

    with anyio.CancelScope() as scope:
        scope.cancel()
        await recorder.add(user("x"), before=None, write=True)

    assert journal.calls == [("append", "x")]


async def test_a_failed_write_raises_and_the_journal_is_not_used_again() -> None:
    recorder = RunRecorder(messages=[], journal=(journal := Journal(fails=True)))

    with pytest.raises(OSError, match="disk full"):
        await recorder.add(user("x"), before=None, write=True)
    journal.fails = False
    await recorder.add(user("y"), before=None, write=True)

    assert journal.calls == []
    assert isinstance(recorder.late_error, OSError)


async def test_a_failed_write_at_the_end_of_a_run_is_raised_later() -> None:
    recorder = RunRecorder(messages=[], journal=Journal(fails=True))
    recorder.ending = True

    await recorder.add(user("x"), before=None, write=True)

    assert isinstance(recorder.late_error, OSError)


async def test_parallel_changes_reach_the_journal_in_order() -> None:
    recorder = RunRecorder(messages=[], journal=(journal := Journal()))
    await recorder.add(message := user("x"), before=None, write=True)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(partial(recorder.amend, message.id, meta={"n": number}))

    written = [call[2]["meta"]["n"] for call in journal.calls[1:]]
    assert len(written) == 5
    assert recorder.messages[0].meta == {"n": written[-1]}


async def test_a_message_that_the_journal_does_not_have_is_amended_in_the_lists_only() -> None:
    recorder = RunRecorder(messages=[], journal=(journal := Journal()))
    await recorder.add(prompt := user("go"), before=None, write=False)

    await recorder.amend(prompt.id, excluded=True)

    assert recorder.messages[0].excluded
    assert recorder.new[0].excluded
    assert journal.calls == []


@pytest.mark.parametrize(("blocks", "done"), [(None, []), (False, []), (True, ["work"])])
async def test_a_cancellation_waits_for_work_only_if_the_journal_does_io(
    blocks: bool | None, done: list[str]
) -> None:
    journal = Journal()
    journal.blocks = blocks  # type: ignore[attr-defined]
    recorder = RunRecorder([], journal=None if blocks is None else journal)
    found: list[str] = []

    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        found.append("work")

    with anyio.CancelScope() as scope:
        scope.cancel()
        await recorder.finish(work())

    assert scope.cancelled_caught == (found == [])
    assert found == done

"""Names and ages of chats that are kept."""

from __future__ import annotations

from glue.cli.kept import CHAT_NAME, new_chat_name, old_chats
from glue.stores.store import SessionInfo

DAY = 24 * 60 * 60.0


def test_every_chat_gets_a_new_name_with_the_date() -> None:
    first, second = new_chat_name(1.8e9), new_chat_name(1.8e9)

    assert first != second
    assert CHAT_NAME.fullmatch(first)
    assert first.startswith("chat-202701")


def test_only_chats_without_a_name_become_too_old() -> None:
    name = new_chat_name()
    found = [
        SessionInfo(id=named, created=0.0, updated=updated, title="")
        for named, updated in ((name, 10 * DAY), ("notes", 0.0), ("chat-with-ada", 0.0))
    ]

    assert old_chats(found, 5, now=14 * DAY) == []
    assert [info.id for info in old_chats(found, 5, now=15 * DAY)] == [name]
    assert [info.id for info in old_chats(found, 5, now=16 * DAY)] == [name]

"""Chats that the user did not name: their automatic names, and which are too old to keep."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable

from glue.stores.store import SessionInfo

CHAT_DAYS = 90  # days after its last change for which a chat without a name is kept
CHAT_NAME = re.compile(r"chat-\d{8}-[0-9a-f]{6}")
_DAY = 24 * 60 * 60.0


def new_chat_name(now: float | None = None) -> str:
    """Return an automatic name for a chat: `chat-`, the date and six random hexadecimal digits."""
    return f"chat-{time.strftime('%Y%m%d', time.localtime(now))}-{os.urandom(3).hex()}"


def old_chats(
    found: Iterable[SessionInfo], days: float, now: float | None = None
) -> list[SessionInfo]:
    """Return the sessions that have an automatic name and have not changed for `days` days."""
    before = (time.time() if now is None else now) - days * _DAY
    return [info for info in found if CHAT_NAME.fullmatch(info.id) and info.updated <= before]

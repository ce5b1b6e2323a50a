"""Where the marks go on wires that cache a prompt only up to a mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glue.types import AssistantMessage, Message

MOST = 2  # of the four marks that are allowed; tools and system have one each


def stable(messages: Sequence[Message], pieces: Sequence[tuple[str, bytes]]) -> Iterator[int]:
    """Name the last message, to be found by the next request, and the last of the request before, which is cached."""
    wanted, found = True, 0
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AssistantMessage):
            wanted = True
        elif wanted and pieces[index][1]:
            wanted = False
            found += 1
            yield index
        if found == MOST:
            return

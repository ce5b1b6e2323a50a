"""Messages as turns that alternate, on wires that want it so and cache up to a mark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from glue.types import AssistantMessage, Message

MOST_MARKS = 2  # of the four that are allowed; tools and system have one each


def join_turns(pieces: Iterable[tuple[str, bytes]], heads: Mapping[str, bytes], filler: bytes) -> bytes:
    """Join the blocks of messages to an array of turns; neighbours of one role share a turn.

    A head is `{"role":"user","content":[`. The first turn must be the user's: the filler stands in.
    """
    parts: list[bytes] = []
    last = ""
    for role, blocks in pieces:
        if not blocks:
            continue
        if role == last:
            parts += (b",", blocks)
            continue
        if not parts and role != "user":
            parts += (b"]},", heads["user"], filler)
        parts += (b"]},", heads[role], blocks)
        last = role
    if not parts:
        parts = [b"]},", heads["user"], filler]
    parts[0] = b"["
    parts.append(b"]}]")
    return b"".join(parts)


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
        if found == MOST_MARKS:
            return

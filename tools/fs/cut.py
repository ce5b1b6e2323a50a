"""Shorten text to a number of bytes."""

from __future__ import annotations

MARKER = "\n[truncated]"


def truncate(text: str, cap: int, marker: str = MARKER) -> str:
    """Cut text to at most `cap` bytes of UTF-8, marker included; never inside a character.

    The marker is left out where it does not fit.
    """
    if cap <= 0:
        return ""
    if len(text) * 4 <= cap:  # no character takes more than four bytes
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= cap:
        return text
    tail = marker.encode("utf-8", "replace")
    if len(tail) > cap:
        tail = b""
    return (encoded[: cap - len(tail)].decode("utf-8", "ignore")) + tail.decode("utf-8")

"""Joins the small chunks of a chunked answer before the HTTP engine sees them.

A model's server sends each delta as a chunk of its own, and the engine spends more on the frame of
a chunk than we spend on the delta inside. What has arrived together is handed on as one chunk.
Only framing is touched; anything unusual is passed on as it came, for the engine to judge.
"""

from __future__ import annotations

import re

_SIZE = re.compile(rb"[0-9a-fA-F]{1,7}\r\n")
_BLANK = re.compile(rb"\n\r?\n")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_HEAD = 65536
_LINE_END = -1  # what is still to come of a chunk: the end of its line


def _is_one(data: bytes) -> bool:
    match = _SIZE.match(data)
    if match is None:
        return False
    end = match.end()
    length = int(data[: end - 2], 16)
    return length > 0 and len(data) == end + length + 2 and data.endswith(b"\r\n")


class Chunks:
    """Rewrites the bytes of one answer."""

    __slots__ = ("_left", "_plain", "_rest", "_started")

    def __init__(self) -> None:
        self._plain = False  # pass everything on
        self._started = False  # the head is over
        self._rest = b""  # the head so far; then a frame that has not wholly come
        self._left = 0  # bytes of the current chunk that are still to come

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to hand on; nothing where only a part of a frame came."""
        if self._plain:
            return data
        if self._started:
            if not self._left and not self._rest and _is_one(data):
                return data  # as it came: the common case of a slow stream
            return self._joined(data)
        head = self._rest + data
        blank = _BLANK.search(head)
        if blank is None:
            self._rest = head
            self._plain = len(head) > _HEAD
            return data
        self._rest = b""
        self._started = True
        end = blank.end()
        if blank[0] != b"\n\r\n" or not _CHUNKED.search(head, 0, end) or not head.startswith(b"HTTP/1.1 200"):
            self._plain = True
            return data
        body = head[end:]
        return data[: len(data) - len(body)] + self._joined(body)

    def _joined(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        pieces: list[bytes] = []
        at = 0
        size = len(data)
        while at < size:
            if self._left == 0:
                match = _SIZE.match(data, at)
                length = int(data[at : match.end() - 2], 16) if match else 0
                if match is None or not length:
                    break
                at, self._left = match.end(), length
            if self._left > 0:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left = self._left - len(piece) or _LINE_END
            if self._left == _LINE_END:
                if data[at : at + 2] != b"\r\n":
                    break
                at, self._left = at + 2, 0
        return self._framed(pieces) + self._tail(data[at:])

    def _framed(self, pieces: list[bytes]) -> bytes:
        body = b"".join(pieces)
        return b"%x\r\n%b\r\n" % (len(body), body) if body else b""  # an empty chunk would end the answer

    def _tail(self, data: bytes) -> bytes:
        """Keep the beginning of a frame for later; pass on the end of the body and what is no frame."""
        if self._left == _LINE_END:
            if data in (b"", b"\r"):
                self._rest = data
                return b""
        elif len(data) < 9 and b"\r\n" not in data:
            self._rest = data
            return b""
        self._plain = True
        return data

"""Parser of AWS event streams: binary frames with checksums, as Bedrock sends them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from glue.errors import ProviderError

PRELUDE = 12  # total length, length of the headers, CRC of both
OVERHEAD = PRELUDE + 4  # and the CRC of the whole frame
LIMIT = 16 * 1024 * 1024 + 128 * 1024 + OVERHEAD  # the largest payload and headers that AWS allows

# Types of header values that have a fixed size; 6 and 7 (bytes, string) carry a two-byte length.
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _STRING = 6, 7


class Frame(NamedTuple):
    """One message of an event stream."""

    headers: dict[str, str]  # only headers of type string; the others do not matter
    payload: bytes


class EventStream:
    """A parser that splits blocks of bytes into frames and verifies their checksums.

    If the server sends a JSON body in place of frames, `body` returns it at the end.
    """

    stray = b""  # every parser has this attribute; see sse.Parser

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._buffer = bytearray()
        self._fresh = True
        self.is_body = False

    def feed(self, block: bytes) -> Iterator[Frame]:
        """Yield the frames that a new block of bytes completes.

        Raise ProviderError if a frame is damaged.
        """
        self._buffer += block
        if self._fresh and block:
            self._fresh = False
            # A frame cannot begin with a brace: it would be two gigabytes long.
            self.is_body = block.lstrip()[:1] == b"{"
        if self.is_body:
            return
        start = 0
        try:
            while len(self._buffer) - start >= PRELUDE:
                total, headers, checksum = struct.unpack_from(">III", self._buffer, start)
                if crc32(memoryview(self._buffer)[start : start + 8]) != checksum:
                    raise self._error("the checksum of a frame's first bytes is wrong")
                if not OVERHEAD <= total <= LIMIT or headers > total - OVERHEAD:
                    raise self._error(
                        f"a frame declares a wrong size: {total} bytes, {headers} of them headers"
                    )
                if len(self._buffer) - start < total:
                    break
                frame = bytes(memoryview(self._buffer)[start : start + total])
                start += total
                yield self._frame(frame, PRELUDE + headers)
        finally:
            del self._buffer[:start]

    def _frame(self, frame: bytes, end: int) -> Frame:
        if crc32(memoryview(frame)[:-4]) != struct.unpack(">I", frame[-4:])[0]:
            raise self._error("the checksum of a frame is wrong")
        try:
            return Frame(_headers(frame[PRELUDE:end]), frame[end:-4])
        except (IndexError, UnicodeDecodeError, struct.error):
            raise self._error("the headers of a frame cannot be read") from None

    @property
    def body(self) -> bytes | None:
        """The bytes so far of a response that is JSON, or None if the response has frames."""
        return bytes(self._buffer) if self.is_body else None

    def end(self) -> tuple[Frame, ...]:
        """Raise ProviderError if the stream ended inside a frame; otherwise return ()."""
        if self._buffer:
            raise self._error(
                f"the stream ended inside a frame (after {len(self._buffer)} bytes of it)"
            )
        return ()

    def _error(self, text: str) -> ProviderError:
        return ProviderError(
            f"damaged event stream: {text}", kind="protocol", provider=self._provider
        )


def _headers(block: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        name_end = at + 1 + block[at]
        name = block[at + 1 : name_end].decode()
        kind = block[name_end]
        at = name_end + 1
        if kind in (_BYTES, _STRING):
            (size,) = struct.unpack_from(">H", block, at)
            at += 2
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise IndexError(kind)
        if at + size > len(block):
            raise IndexError(at)
        if kind == _STRING:
            found[name] = block[at : at + size].decode()
        at += size
    return found

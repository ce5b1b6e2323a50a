"""Frames of AWS event streams (application/vnd.amazon.eventstream), fed in blocks of any size."""

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
    headers: dict[str, str]  # those of type string; nobody sends others that matter
    payload: bytes


class EventStream:
    """Cut a stream of bytes into checked frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, block: bytes) -> Iterator[Frame]:
        """Give the frames that are whole by now; a damaged one raises after those before it."""
        self._buffer += block
        start = 0
        try:
            while len(self._buffer) - start >= PRELUDE:
                total, headers = _prelude(self._buffer, start)
                if len(self._buffer) - start < total:
                    break
                frame = bytes(memoryview(self._buffer)[start : start + total])
                start += total
                yield _frame(frame, headers)
        finally:
            del self._buffer[:start]

    def finish(self) -> None:
        """Raise where the stream ended inside a frame."""
        if self._buffer:
            raise _error(f"the stream ended inside a frame ({len(self._buffer)} bytes of it came)")


def encode_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Make one frame; the counterpart of EventStream, for tests and fake servers."""
    block = b"".join(_encode_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", len(block) + len(payload) + OVERHEAD, len(block))
    frame = prelude + struct.pack(">I", crc32(prelude)) + block + payload
    return frame + struct.pack(">I", crc32(frame))


def _encode_header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return bytes([len(key)]) + key + bytes([_STRING]) + struct.pack(">H", len(text)) + text


def _prelude(buffer: bytearray, start: int) -> tuple[int, int]:
    total, headers, checksum = struct.unpack_from(">III", buffer, start)
    if crc32(memoryview(buffer)[start : start + 8]) != checksum:
        raise _error("the checksum of a frame's first bytes is wrong")
    if not OVERHEAD <= total <= LIMIT or headers > total - OVERHEAD:
        raise _error(f"a frame says it has {total} bytes with {headers} of headers")
    return total, headers


def _frame(frame: bytes, headers: int) -> Frame:
    if crc32(memoryview(frame)[:-4]) != struct.unpack(">I", frame[-4:])[0]:
        raise _error("the checksum of a frame is wrong")
    end = PRELUDE + headers
    try:
        return Frame(_headers(frame[PRELUDE:end]), frame[end:-4])
    except (IndexError, UnicodeDecodeError, struct.error):
        raise _error("the headers of a frame cannot be read") from None


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


def _error(text: str) -> ProviderError:
    return ProviderError(f"damaged event stream: {text}", kind="protocol")

"""Frames of AWS event streams, as a server sends them."""

from __future__ import annotations

import struct
from zlib import crc32

from glue.providers.eventstream import OVERHEAD

_STRING = 7


def encode_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Encode one frame of an AWS event stream, which EventStream decodes."""
    block = b""
    for name, value in headers.items():
        key, text = name.encode(), value.encode()
        block += bytes([len(key)]) + key + bytes([_STRING]) + struct.pack(">H", len(text)) + text
    prelude = struct.pack(">II", len(block) + len(payload) + OVERHEAD, len(block))
    frame = prelude + struct.pack(">I", crc32(prelude)) + block + payload
    return frame + struct.pack(">I", crc32(frame))

"""Frames of AWS event streams: whole, split anywhere, damaged."""

from __future__ import annotations

import contextlib
import itertools
import struct
from zlib import crc32

import pytest
from fakes.eventstream import encode_frame
from hypothesis import given
from hypothesis import strategies as st

from glue.errors import ProviderError
from glue.providers.eventstream import EventStream, Frame

FRAMES = [
    Frame({":message-type": "event", ":event-type": "messageStart"}, b'{"role":"assistant"}'),
    Frame({}, b""),
    Frame({":event-type": "é" * 200}, b"x" * 70_000),
]
STREAM = b"".join(encode_frame(*frame) for frame in FRAMES)


def frames(*blocks: bytes) -> list[Frame]:
    stream = EventStream()
    found = [frame for block in blocks for frame in stream.feed(block)]
    stream.end()
    return found


def test_encoded_frames_are_decoded_unchanged() -> None:
    assert frames(STREAM) == FRAMES


def test_a_frame_written_by_hand_is_decoded() -> None:
    # Written out by hand, so that encoder and decoder cannot be wrong together.
    headers = (
        b"\x0b:event-type\x07\x00\x04ping\x01a\x00\x01n\x04\x00\x00\x00\x07\x01b\x06\x00\x02hi"
    )
    prelude = (12 + len(headers) + 2 + 4).to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    frame = prelude + crc32(prelude).to_bytes(4, "big") + headers + b"{}"

    assert frames(frame + crc32(frame).to_bytes(4, "big")) == [
        Frame({":event-type": "ping"}, b"{}")
    ]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_frames_may_be_split_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]

    assert frames(*(STREAM[a:b] for a, b in itertools.pairwise(edges))) == FRAMES


def test_frames_may_come_byte_by_byte() -> None:
    small = b"".join(encode_frame(*frame) for frame in FRAMES[:2])

    assert frames(*(bytes([byte]) for byte in small)) == FRAMES[:2]


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_changed_byte_is_always_noticed(at: int, change: int) -> None:
    damaged = bytearray(STREAM)
    damaged[at] ^= change

    with pytest.raises(ProviderError) as caught:
        frames(bytes(damaged))

    assert caught.value.kind == "protocol"


def test_frames_before_a_damaged_one_are_yielded() -> None:
    stream = EventStream()
    found = []

    with pytest.raises(ProviderError, match="checksum"):
        for frame in stream.feed(encode_frame(*FRAMES[0]) + b"garbage that is no frame"):
            found.append(frame)  # noqa: PERF402

    assert found == FRAMES[:1]


def test_headers_of_every_type_are_skipped_and_strings_are_read() -> None:
    sizes = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
    headers = b"".join(b"\x01x" + bytes([kind]) + b"\7" * size for kind, size in sizes.items())
    headers += b"\x01b\x06\x00\x03abc" + b"\x01s\x07\x00\x02hi"
    prelude = struct.pack(">II", 12 + len(headers) + 4, len(headers))
    frame = prelude + struct.pack(">I", crc32(prelude)) + headers

    assert frames(frame + struct.pack(">I", crc32(frame))) == [Frame({"s": "hi"}, b"")]


def test_a_frame_may_have_a_payload_of_16_mib_and_headers_of_128_kib() -> None:
    most = 16 * 1024 * 1024 + 128 * 1024 + 16

    def begin(total: int) -> list[Frame]:
        prelude = struct.pack(">II", total, 0)
        return list(EventStream().feed(prelude + struct.pack(">I", crc32(prelude))))

    assert begin(most) == []  # the rest has not arrived
    with pytest.raises(ProviderError, match=f"a wrong size: {most + 1} bytes"):
        begin(most + 1)


def test_a_header_that_is_longer_than_its_block_is_an_error() -> None:
    headers = b"\x01s\x07\x00\x09hi"
    prelude = struct.pack(">II", 12 + len(headers) + 4, len(headers))
    frame = prelude + struct.pack(">I", crc32(prelude)) + headers

    with pytest.raises(ProviderError, match="the headers of a frame cannot be read"):
        frames(frame + struct.pack(">I", crc32(frame)))


def test_a_later_block_may_begin_with_a_brace() -> None:
    frame = encode_frame({}, b'{"a":1}')
    cut = frame.index(b"{")

    assert frames(frame[:cut], frame[cut:]) == [Frame({}, b'{"a":1}')]


def test_an_end_inside_a_frame_is_an_error() -> None:
    with pytest.raises(ProviderError, match="ended inside a frame"):
        frames(STREAM[:-1])


@pytest.mark.parametrize(("total", "headers"), [(15, 0), (16, 1), (2**32 - 1, 0), (40, 2**31)])
def test_impossible_lengths_are_refused_before_waiting_for_more(total: int, headers: int) -> None:
    prelude = struct.pack(">II", total, headers)

    with pytest.raises(ProviderError, match="a frame declares"):
        frames(prelude + struct.pack(">I", crc32(prelude)))


@given(st.binary(max_size=60))
def test_malformed_frame_headers_are_a_protocol_error(headers: bytes) -> None:
    prelude = struct.pack(">II", len(headers) + 16, len(headers))
    frame = prelude + struct.pack(">I", crc32(prelude)) + headers

    with contextlib.suppress(ProviderError):
        assert frames(frame + struct.pack(">I", crc32(frame)))[0].payload == b""

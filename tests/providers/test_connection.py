"""HTTP chunks that are joined decode to the same body; httpcore is the reference."""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.providers.connection import Chunks

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places) if a < b]


def parse(blocks: list[bytes]) -> tuple[bytes, bool, bool, int]:
    """Return the body, whether it ended, whether it was refused, and how many pieces it came in."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(
        h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")])
    )
    connection.send(h11.EndOfMessage())
    body, pieces = b"", 0
    try:
        for block in [*blocks, None]:
            if block == b"":
                continue
            connection.receive_data(block or b"")
            while (event := connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Data):
                    body, pieces = body + bytes(event.data), pieces + 1
                elif isinstance(event, h11.EndOfMessage):
                    return body, True, False, pieces
                elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    return body, False, False, pieces
    except h11.RemoteProtocolError:
        return body, False, True, pieces
    return body, False, False, pieces


def both(
    raw: bytes, cuts: list[int]
) -> tuple[tuple[bytes, bool, bool, int], tuple[bytes, bool, bool, int]]:
    blocks = split(raw, cuts)
    chunks = Chunks()
    return parse(blocks), parse([chunks.feed(block) for block in blocks])


def framed(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=12),
    st.lists(st.integers(0, 5000), max_size=30),
    st.booleans(),
)
def test_any_body_split_anywhere_decodes_the_same(
    pieces: list[bytes], cuts: list[int], end: bool
) -> None:
    plain, joined = both(HEAD + framed(pieces) + (b"0\r\n\r\n" if end else b""), cuts)

    assert joined[:3] == plain[:3]
    assert joined[3] <= plain[3]


@given(st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=20))
def test_garbage_reaches_httpcore_unchanged(garbage: bytes, cuts: list[int]) -> None:
    plain, joined = both(HEAD + framed([b"data: 1\n\n"]) + garbage, cuts)

    assert joined[1] == plain[1]
    assert joined[0].startswith(b"data: 1\n\n") == plain[0].startswith(b"data: 1\n\n")
    assert joined[0] == plain[0] or joined[2] == plain[2]


@pytest.mark.parametrize("cut", range(0, len(HEAD) + 30, 3))
@pytest.mark.parametrize(
    "raw",
    [
        HEAD + framed([b"one", b"two"]) + b"0\r\n\r\n",
        HEAD + framed([b"one"]) + b"3;ext=1\r\ntwo\r\n0\r\n\r\n",
        HEAD + framed([b"one"]) + b"0\r\nX-Trailer: yes\r\n\r\n",
        HEAD + framed([b"one"]) + b"zz\r\n",
        HEAD + framed([b"one"]) + b"3\r\ntwoXX",
        HEAD + framed([b"one"]) + b"0x3\r\ntwo\r\n0\r\n\r\n",
        HEAD.replace(b"\r\n", b"\n") + b"3\r\none\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n3\r\none",
        b"HTTP/1.1 200 OK\r\n\r\n3\r\none\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + framed([b"one", b"two"]) + b"0\r\n\r\n",
        b"HTTP/1.1 429 No\r\nTransfer-Encoding: chunked\r\n\r\n" + framed([b"one"]) + b"0\r\n\r\n",
    ],
)
def test_chunk_forms_that_servers_send(raw: bytes, cut: int) -> None:
    plain, joined = both(raw, [cut, cut + 1, cut + 7])

    assert joined[:3] == plain[:3]


@pytest.mark.parametrize(("size", "joined"), [(65_536, True), (65_537, False)])
def test_a_head_of_more_than_64_kib_is_passed_on_with_its_body(size: int, joined: bool) -> None:
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx: "
    start += b"y" * (size - len(start))
    rest = b"\r\n\r\n2\r\nab\r\n2\r\ncd\r\n"
    chunks = Chunks()

    assert chunks.feed(start) == start
    assert (chunks.feed(rest) == b"\r\n\r\n4\r\nabcd\r\n") == joined


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"200 OK", b"404 Not Found"),
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
        HEAD.replace(b"chunked", b"gzip, chunked"),
        HEAD.replace(b"\r\n\r\n", b"\n\n"),
    ],
)
def test_the_body_after_any_other_head_is_passed_on_unchanged(head: bytes) -> None:
    body = framed([b"ab", b"cd"])

    assert Chunks().feed(head + body) == head + body


def test_chunks_that_arrived_together_are_passed_on_together() -> None:
    pieces = [b"data: %d\n\n" % number for number in range(1000)]

    plain, joined = both(HEAD + framed(pieces) + b"0\r\n\r\n", [])

    assert (plain[3], joined[3]) == (1000, 1)
    assert joined[0] == b"".join(pieces)

"""HTTP chunks that are joined decode to the same body; limits, streams and addresses."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.providers.connection import Broken, Chunks, Stream, Watch, inflate

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


def test_chunks_are_joined_although_a_block_ended_within_the_size_of_a_chunk() -> None:
    chunks = Chunks()

    first = chunks.feed(HEAD + b"3\r\none\r\n3")
    second = chunks.feed(b"\r\ntwo\r\n3\r\nsix\r\n")

    assert (first, second) == (HEAD + b"3\r\none\r\n", b"6\r\ntwosix\r\n")


def test_bytes_that_cannot_follow_a_chunk_are_passed_on_at_once() -> None:
    chunks = Chunks()

    assert chunks.feed(HEAD + b"3\r\ntwoX") == HEAD + b"3\r\ntwo\r\nX"
    assert chunks.feed(b"Y") == b"Y"


def test_the_longest_size_of_a_chunk_may_be_cut_and_a_longer_one_is_passed_on() -> None:
    cut, junk = Chunks(), Chunks()

    assert cut.feed(HEAD + b"0000003\r") == HEAD
    assert cut.feed(b"\none\r\n") == b"3\r\none\r\n"
    assert junk.feed(HEAD + b"00000003\r") == HEAD + b"00000003\r"


# Limits


def started(total: float = 1000, patience: float = 1000, size: int = 1000) -> Watch:
    watch = Watch()
    watch.start(total, patience, size)
    return watch


def test_a_read_may_take_at_most_its_timeout_and_the_time_to_the_next_deadline() -> None:
    assert started().wait(5) == 5
    assert 900 < started(patience=2000).wait(None) <= 1000
    assert 900 < started(total=2000).wait(None) <= 1000
    assert 900 < started().wait(5000) <= 1000


def test_a_deadline_can_be_moved_forward_and_not_back() -> None:
    watch = started()

    watch.shorten(100)
    watch.shorten(500)

    assert watch.wait(None) <= 100


@pytest.mark.parametrize(
    ("total", "patience", "words"),
    [(0, 1000, "longer than its total deadline"), (1000, 0, "no content for 0 s")],
)
def test_a_read_after_a_deadline_is_a_timeout(total: float, patience: float, words: str) -> None:
    watch = started(total, patience)

    with pytest.raises(Broken, match=words) as caught:
        watch.wait(5)

    assert caught.value.kind == "timeout"


def test_a_deadline_has_passed_at_its_moment_and_not_before() -> None:
    watch = started(total=10, patience=20)

    watch.check(watch.end - 0.001)
    with pytest.raises(Broken, match="total deadline"):
        watch.check(watch.end)
    watch.end = watch.progress + 10
    watch.check(watch.progress - 0.001)
    with pytest.raises(Broken, match="no content"):
        watch.check(watch.progress)


def test_a_response_may_have_exactly_the_bytes_of_its_limit() -> None:
    watch = started(size=10)

    watch.note(b"x" * 6)
    watch.note(b"y" * 4)
    with pytest.raises(Broken, match="longer than allowed") as caught:
        watch.note(b"z")

    assert caught.value.kind == "protocol"


@pytest.mark.parametrize(
    ("data", "is_content"),
    [
        (b"x" * 127, False),
        (b"x" * 128, True),
        (b"data: 1\n\n", True),
        (b'data: {"type": "ping"}\n\n', False),
        (b": keep-alive\n\n", False),
    ],
)
def test_only_content_extends_the_progress_deadline(data: bytes, is_content: bool) -> None:
    watch = started()
    watch.progress = before = time.monotonic() + 1

    watch.note(data)

    assert (watch.progress > before) == is_content


def test_each_block_of_a_compressed_body_counts_as_content() -> None:
    watch = started()
    watch.progress = before = time.monotonic() + 1
    watch.blind = True

    watch.note(b"x")

    assert watch.progress > before


# Streams


class Wire:
    """A network stream that records what is written, and sends given blocks."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = list(blocks)
        self.log: list[bytes | str] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.log.append("read")
        return self.blocks.pop(0) if self.blocks else b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.log.append(buffer)


REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_a_stream_can_be_read_before_a_request_is_written() -> None:
    stream = Stream(Wire(b"\x05\x00"), started())  # the greeting of a SOCKS proxy

    assert await stream.read(100) == b"\x05\x00"


async def test_the_head_of_a_request_without_a_body_is_sent_before_the_response_is_read() -> None:
    wire = Wire(b"HTTP/1.1 200 OK\r\n\r\n")
    stream = Stream(wire, started())

    await stream.write(REQUEST)
    await stream.read(100)

    assert wire.log == [REQUEST, "read"]


async def test_nothing_is_written_before_a_read_if_no_head_is_held() -> None:
    wire = Wire(b"HTTP/1.1 200 OK\r\n\r\n")
    stream = Stream(wire, started())

    await stream.write(b"body")
    await stream.read(100)

    assert wire.log == [b"body", "read"]


@pytest.mark.parametrize(
    ("size", "writes"),
    [(2, [REQUEST + b"xx"]), (65_536, [REQUEST + b"x" * 65_536])],
)
async def test_head_and_body_are_sent_in_one_write(size: int, writes: list[bytes]) -> None:
    wire = Wire()
    stream = Stream(wire, started())

    await stream.write(REQUEST)
    await stream.write(b"x" * size)

    assert wire.log == writes


async def test_a_large_body_is_not_copied_to_its_head() -> None:
    wire, body = Wire(), b"x" * 65_537
    stream = Stream(wire, started())

    await stream.write(REQUEST)
    await stream.write(body)

    assert wire.log == [REQUEST, body]


async def test_a_head_of_64_kib_is_not_held() -> None:
    wire = Wire()
    stream = Stream(wire, started())
    head = REQUEST[:-4].ljust(65_532, b"x") + b"\r\n\r\n"

    await stream.write(head)
    await stream.write(REQUEST)

    assert wire.log == [head]


async def test_the_chunks_of_the_next_response_of_a_connection_are_joined() -> None:
    pieces = framed([b"ab", b"cd"])
    wire = Wire(HEAD + pieces + b"0\r\n\r\n", HEAD + pieces)
    stream = Stream(wire, started())

    for _ in range(2):
        await stream.write(REQUEST)
        assert (await stream.read(1000)).startswith(HEAD + b"4\r\nabcd\r\n")


async def test_the_end_of_a_connection_is_noted() -> None:
    watch = started()
    stream = Stream(Wire(b"x"), watch)

    assert await stream.read(100) == b"x"
    assert not watch.hung_up
    assert await stream.read(100) == b""
    assert watch.hung_up


# Compressed bodies


async def inflated(*blocks: bytes, encoding: str = "gzip", limit: int = 1_000_000) -> list[bytes]:
    async def arriving() -> AsyncGenerator[bytes, None]:
        for block in blocks:
            yield block

    async with (
        aclosing(arriving()) as source,
        aclosing(inflate(source, encoding, limit)) as pieces,
    ):
        return [piece async for piece in pieces]


async def test_a_compressed_body_may_arrive_in_any_blocks() -> None:
    body = bytes(range(256)) * 10
    for squeezed in (gzip.compress(body), gzip.compress(body[:9]) + gzip.compress(body[9:])):
        for size in (1, 7, 1000):
            blocks = [squeezed[at : at + size] for at in range(0, len(squeezed), size)]

            assert b"".join(await inflated(*blocks)) == body
            assert b"".join(await inflated(*blocks, b"")) == body


async def test_a_body_without_any_bytes_is_empty_although_an_encoding_is_declared() -> None:
    assert await inflated() == []
    assert await inflated(gzip.compress(b"")) == []


async def test_a_large_body_is_decompressed_in_blocks_of_64_kib() -> None:
    body = b"\0" * (3 * 65_536)

    assert [len(piece) for piece in await inflated(gzip.compress(body))] == [65_536] * 3
    assert b"".join(await inflated(zlib.compress(body + b"x"), encoding="deflate")) == body + b"x"


async def test_a_body_may_decompress_to_exactly_its_limit() -> None:
    squeezed = gzip.compress(b"\0" * 70_000)

    assert sum(map(len, await inflated(squeezed, limit=70_000))) == 70_000
    with pytest.raises(Broken, match="longer than allowed"):
        await inflated(squeezed, limit=69_999)


@pytest.mark.parametrize("size", [1, 10, 60])
async def test_a_compressed_body_without_its_end_is_cut_off(size: int) -> None:
    squeezed = gzip.compress(bytes(range(256)))

    with pytest.raises(Broken, match="cut off"):
        await inflated(squeezed[:size])
    with pytest.raises(Broken, match="cut off"):
        await inflated(squeezed, squeezed[:size])

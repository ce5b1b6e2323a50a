"""The event-stream parser."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.errors import ProviderError
from glue.providers.sse import EVENT_LIMIT, TOTAL_LIMIT, Parser


def parse(*blocks: bytes) -> list[bytes]:
    parser = Parser()
    events = [event for block in blocks for event in parser.feed(block)]
    return events + parser.end()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_ends_a_line(line_end: bytes) -> None:
    stream = line_end.join([b"data: one", b"", b"data: two", b"data: three", b"", b""])

    assert parse(stream) == [b"one", b"two\nthree"]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_may_be_cut_at_any_byte(line_end: bytes) -> None:
    lines = [
        "data: häppy",
        "",
        ": comment",
        "",
        "event: x",
        "data:two",
        "data",
        "id: 1",
        "",
        "data: last",
        "",
        "",
    ]
    stream = line_end.join(line.encode() for line in lines)
    whole = ["häppy".encode(), b"two\n", b"last"]

    assert parse(stream) == whole
    for place in range(len(stream)):
        assert parse(stream[:place], stream[place:]) == whole
    assert parse(*(bytes([byte]) for byte in stream)) == whole


def test_mixed_line_ends_and_many_blank_lines() -> None:
    assert parse(b"\n\r\ndata: a\r\n\n\n\r\rdata: b\r\r\n\ndata: c\n\r\n") == [b"a", b"b", b"c"]


def test_a_byte_order_mark_is_skipped_even_in_pieces() -> None:
    assert parse(b"\xef", b"\xbb", b"\xbfda", b"ta: x\n\n") == [b"x"]


def test_comments_and_unknown_fields_are_ignored() -> None:
    assert parse(b": keep-alive\n\n: again\n\nretry: 3\nfoo: bar\ndata: x\n\n") == [b"x"]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert parse(b"data:  x \n\n") == [b" x "]


def test_an_event_without_data_is_ignored() -> None:
    assert parse(b"event: ping\n\ndata:\n\ndata: \n\ndata: x\n\n") == [b"x"]


def test_the_end_of_the_stream_ends_the_last_event() -> None:
    assert parse(b"data: x\n\ndata: [DONE]") == [b"x", b"[DONE]"]


def test_a_json_body_is_kept_complete() -> None:
    parser = Parser()

    events = parser.feed(b" \n") + parser.feed(b' {"a":\n\n') + parser.feed(b"1}")

    assert events == []
    assert parser.body == b'{"a":\n\n1}'


def test_the_end_of_a_json_body_is_no_event_and_keeps_the_body() -> None:
    parser = Parser()
    parser.feed(b'{"a":1}')

    assert parser.end() == []
    assert parser.body == b'{"a":1}'


def test_the_first_200_bytes_of_a_strange_line_are_kept() -> None:
    parser = Parser()

    parser.feed(b"x" * 300 + b"\nsecond\n\n")

    assert parser.stray == b"x" * 200


def test_a_line_that_is_not_an_event_stream_is_kept() -> None:
    parser = Parser()

    assert parser.feed(b"<html>\n<body>oops\n\n") == []
    assert parser.stray == b"<html>"
    assert parser.body is None


def test_an_event_that_is_too_long_is_refused() -> None:
    parser = Parser("acme", event_limit=100)
    parser.feed(b"data: " + b"x" * 90)

    with pytest.raises(ProviderError, match="acme: one event has more than 100 bytes") as caught:
        parser.feed(b"x" * 10)

    assert caught.value.kind == "protocol"


def test_a_long_event_in_one_block_is_refused_too() -> None:
    with pytest.raises(ProviderError, match="one event"):
        Parser(event_limit=100).feed(b"data: " + b"x" * 200 + b"\n\n")


@pytest.mark.parametrize("cut", [0, 1, 50, 99, 100])
def test_an_event_may_have_exactly_the_largest_size(cut: int) -> None:
    event = b"data: " + b"x" * 94
    parser, strict = Parser(event_limit=100), Parser(event_limit=99)

    blocks = (event[:cut], event[cut:], b"\n\n")

    assert [found for block in blocks for found in parser.feed(block)] == [b"x" * 94]
    with pytest.raises(ProviderError, match="one event has more than 99 bytes"):
        for block in blocks:
            strict.feed(block)


def test_the_limit_of_an_event_is_not_shared_by_several_events() -> None:
    parser = Parser(event_limit=20)

    for _ in range(3):
        parser.feed(b"data: 123456")
        assert parser.feed(b"78\n\n") == [b"12345678"]


def test_an_event_has_at_most_16_mib_and_a_stream_32_mib() -> None:
    assert (EVENT_LIMIT, TOTAL_LIMIT) == (16_777_216, 33_554_432)


def test_a_stream_may_have_exactly_the_largest_size() -> None:
    parser = Parser(total_limit=10)

    parser.feed(b"data: 1\n")
    assert parser.feed(b"\n\n") == [b"1"]
    with pytest.raises(ProviderError, match="a stream has more than 10 bytes"):
        parser.feed(b"\n")


def test_a_stream_that_is_too_long_is_refused() -> None:
    parser = Parser(total_limit=100)

    with pytest.raises(ProviderError, match="a stream has more than 100 bytes"):
        for _ in range(20):
            parser.feed(b": comment\n\n")


def test_the_pieces_of_an_event_are_joined_in_linear_time() -> None:
    text = b"x" * 300_000

    assert parse(
        b"data: ", *(text[start : start + 3] for start in range(0, len(text), 3)), b"\n\n"
    ) == [text]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_any_bytes_yield_the_same_events_however_they_are_cut(
    stream: bytes, places: list[int]
) -> None:
    cuts = [0, *sorted(place for place in places if place < len(stream)), len(stream)]

    pieces = [stream[start:end] for start, end in itertools.pairwise(cuts)]

    assert parse(*pieces) == parse(stream)


TOKENS = st.sampled_from(
    [b"data: x", b"data:", b"\n", b"\r", b"\r\n", b":c", b"event: e", b"\n\n", b"y", b" "]
)


@given(st.lists(TOKENS, max_size=30))
def test_lines_of_any_kind_yield_the_same_events_byte_by_byte(tokens: list[bytes]) -> None:
    stream = b"".join(tokens)

    assert parse(*(bytes([byte]) for byte in stream)) == parse(stream)


def test_the_last_event_is_returned_once() -> None:
    parser = Parser()
    parser.feed(b"data: one\n\ndata: two")

    assert parser.end() == [b"two"]
    assert parser.end() == []

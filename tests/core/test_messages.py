"""Messages go to JSON and back without loss, also those of a newer version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue import (
    AssistantMessage,
    File,
    Image,
    Message,
    Opaque,
    Part,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    message_from_json,
    message_to_json,
)
from glue.errors import StoreError
from glue.messages import Unknown

text = st.text()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(text, values, max_size=3)
# Names that no version of a record uses today.
extras = st.none() | st.dictionaries(text.map(lambda name: "x-" + name), values, min_size=1, max_size=2)
opaques = st.builds(Opaque, wire=text, data=values, extra=extras)
images = st.builds(Image, media_type=text, data=st.none() | st.binary(), url=st.none() | text, extra=extras)
unknowns = st.builds(Unknown, data=mappings.map(lambda data: {**data, "type": "from-the-future"}))
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=text, opaque=st.none() | opaques, extra=extras),
    st.builds(Thinking, text=text, opaque=st.none() | opaques, extra=extras),
    images,
    st.builds(File, media_type=text, data=st.binary(), name=text, extra=extras),
    st.builds(ToolCall, id=text, name=text, arguments=text, complete=st.booleans(), extra=extras),
    opaques,
    unknowns,
)
contents = st.lists(parts, max_size=4).map(tuple)
counts = st.none() | st.integers(0, 10**9)
usages = st.builds(
    Usage,
    input=st.integers(0, 10**9),
    output=st.integers(0, 10**9),
    cache_read=counts,
    cache_write=counts,
    reasoning=counts,
    cost=st.none() | st.floats(0, 1e6),
    extra=extras,
)
common: dict[str, Any] = {"content": contents, "excluded": st.booleans(), "meta": st.none() | mappings, "extra": extras}
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, origin=text, **common),
    st.builds(
        AssistantMessage,
        stop_reason=st.sampled_from(StopReason),
        raw_stop_reason=st.none() | text,
        usage=st.none() | usages,
        provider=text,
        model=text,
        **common,
    ),
    st.builds(ToolMessage, call_id=text, name=text, is_error=st.booleans(), **common),
)


@given(messages)
def test_a_message_survives_the_round_trip(message: Message) -> None:
    wire = json.dumps(message_to_json(message))

    assert message_from_json(json.loads(wire)) == message


def test_fields_and_parts_of_a_newer_version_survive() -> None:
    data = {
        "v": 9,
        "role": "user",
        "id": "a",
        "mood": "good",
        "content": [{"type": "hologram", "x": [1]}, {"type": "text", "text": "t", "tone": 2}],
    }

    message = message_from_json(data)

    assert message_to_json(message) == {**data, "v": 1}


def test_a_stop_reason_of_a_newer_version_is_unknown_with_its_raw_value() -> None:
    message = message_from_json({"role": "assistant", "content": [], "stop_reason": "dreamt"})

    assert isinstance(message, AssistantMessage)
    assert message.stop_reason is StopReason.UNKNOWN
    assert message.raw_stop_reason == "dreamt"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"role": "king", "content": []},
        {"role": "user"},
        {"role": "user", "content": 3},
        {"role": "user", "content": ["x"]},
        {"role": "tool", "content": []},
        {"role": "user", "content": [{"type": "image", "data": "%%"}]},
        [],
    ],
)
def test_what_is_no_message_is_a_typed_error(data: Any) -> None:
    with pytest.raises(StoreError):
        message_from_json(data)

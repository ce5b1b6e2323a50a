"""Messages, their parts, and the JSON of messages."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest
from fakes.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from glue import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from glue.errors import StoreError
from glue.messages import (
    Messages,
    ToolSpec,
    Unknown,
    message_from_json,
    message_to_json,
    messages_from_json,
    messages_to_json,
    user,
)
from glue.provider import Opaque, Thinking

text = st.text()
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(text, values, max_size=3)
# Names that no version of a record uses today.
extras = st.none() | st.dictionaries(
    text.map(lambda name: "x-" + name), values, min_size=1, max_size=2
)
opaques = st.builds(Opaque, wire=text, data=values, extra=extras)
addresses = text.map("https://example.com/{}".format)
images = st.builds(Image, media_type=text, data=st.binary(), extra=extras) | st.builds(
    Image, media_type=text, url=addresses, extra=extras
)
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
common: dict[str, Any] = {
    "content": contents,
    "excluded": st.booleans(),
    "meta": st.none() | mappings,
    "extra": extras,
}
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


@settings(max_examples=examples(100))
@given(messages)
def test_encoding_and_decoding_returns_an_equal_message(message: Message) -> None:
    wire = json.dumps(message_to_json(message))

    assert message_from_json(json.loads(wire)) == message


def test_unknown_fields_and_parts_are_kept_and_written_again() -> None:
    data = {
        "v": 9,
        "role": "user",
        "id": "a",
        "mood": "good",
        "content": [{"type": "hologram", "x": [1]}, {"type": "text", "text": "t", "tone": 2}],
    }

    message = message_from_json(data)

    assert message_to_json(message) == {**data, "v": 1}


def test_an_unknown_stop_reason_is_kept_as_the_raw_stop_reason() -> None:
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
def test_json_that_is_not_a_message_is_a_store_error(data: Any) -> None:
    with pytest.raises(StoreError):
        message_from_json(data)


def test_usage_cannot_be_changed() -> None:
    usage = Usage(input=1)

    with pytest.raises(dataclasses.FrozenInstanceError):
        usage.input = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del usage.input


def test_usage_takes_keywords_only() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        Usage(1)  # type: ignore[call-arg]


def test_equal_usages_have_the_same_hash() -> None:
    usage = Usage(input=1)

    assert hash(usage) == hash(Usage(input=1))
    assert {usage: "x"}[Usage(input=1)] == "x"


def test_usages_and_messages_can_be_copied_and_pickled() -> None:
    usage = Usage(input=1)
    message = UserMessage(content=(Text(text="x"),))

    assert copy.copy(usage) == copy.deepcopy(usage) == pickle.loads(pickle.dumps(usage)) == usage
    assert copy.deepcopy(message) == message


def test_the_memo_of_a_message_is_not_compared_and_not_in_the_repr() -> None:
    message = UserMessage(content=(Text(text="x"),), id="1")
    same = UserMessage(content=(Text(text="x"),), id="1")

    same.memo["wire"] = b"bytes"

    assert message == same
    assert "memo" not in repr(same)


def test_costs_are_added_and_an_unknown_cost_makes_the_sum_unknown() -> None:
    known = Usage(input=1, cost=0.25) + Usage(output=2, cost=0.5, reasoning=1)

    assert known == Usage(input=1, output=2, cost=0.75, reasoning=1)
    assert (known + Usage(input=1)).cost is None


def test_a_view_of_messages_does_not_grow_with_its_list() -> None:
    items: list[Message] = [user("a")]
    view = Messages(items)

    items.append(user("b"))

    assert [message.text for message in view] == ["a"]
    assert Messages(items).grew_from(view)
    assert not view.grew_from(Messages(items))
    assert len(pickle.loads(pickle.dumps(view))) == 1


@pytest.mark.parametrize("fields", [{"arguments": {}}, {"id": 1}, {"name": None}])
def test_a_call_with_fields_that_are_not_texts_is_rejected(fields: Any) -> None:
    with pytest.raises(TypeError, match="of a ToolCall must be"):
        ToolCall(**{"id": "1", "name": "f", "arguments": "{}", **fields})


def test_user_rejects_objects_that_are_not_parts() -> None:
    with pytest.raises(TypeError, match="a message must consist of strings and parts"):
        user(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"id": None, "name": "a"}, {"id": "1", "name": None}])
def test_s132_the_id_and_the_name_of_a_call_must_be_texts(given: Any) -> None:
    with pytest.raises(
        TypeError, match="the id and the name of a ToolCall must be strings; the id is"
    ):
        ToolCall(**given, arguments="{}")


def test_counts_of_tokens_are_added_and_an_unknown_count_counts_as_none() -> None:
    some = Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5)
    more = Usage(input=10, output=20, cache_read=30)

    assert (
        some + more
        == more + some
        == Usage(input=11, output=22, cache_read=33, cache_write=4, reasoning=5)
    )
    assert (Usage() + Usage()).cache_read is None
    assert (some + more).total == 33


@pytest.mark.parametrize("value", ["text", None, 5])
def test_only_a_list_of_messages_is_encoded_and_decoded(value: Any) -> None:
    with pytest.raises(TypeError, match="messages must be a list, such as messages=result"):
        messages_to_json(value)
    with pytest.raises(TypeError, match="data must be a list"):
        messages_from_json(value)


def test_the_default_fields_of_messages_and_requests() -> None:
    call = ToolCall(id="1", name="look", arguments="{}")
    reply, result = AssistantMessage(content=()), ToolMessage(call_id="1", name="look", content=())

    assert (call.complete, reply.excluded, result.excluded) == (True, False, False)
    assert (result.is_error, user("hi").excluded, user("hi").origin) == (False, False, "user")
    assert (Request().cache, Request().stream, Request().tool_choice) == (False, True, "auto")
    assert (Usage().input, Usage().output, Usage().total) == (0, 0, 0)
    for message in (user("hi"), reply, result, ToolSpec(name="look")):
        message.memo["seen"] = True
        assert "memo" not in repr(message)
        assert message == dataclasses.replace(message)  # whose memo is empty


@pytest.mark.parametrize(
    ("index", "text"), [(0, "a"), (1, "b"), (-1, "b"), (-2, "a"), (2, None), (-3, None)]
)
def test_a_view_has_the_indexes_of_its_messages(index: int, text: str | None) -> None:
    items: list[Message] = [user("a"), user("b")]
    view = Messages(items)
    items.append(user("c"))

    if text is None:
        with pytest.raises(IndexError, match="message index out of range"):
            _ = view[index]
    else:
        assert view[index].text == text
    assert view[1:] == (items[1],)
    assert view[::-1] == (items[1], items[0])


def test_a_view_grew_from_a_shorter_view_of_the_same_list() -> None:
    items: list[Message] = [user("a")]
    short = Messages(items)
    items.append(user("b"))
    long = Messages(items)

    assert long.grew_from(short)
    assert long.grew_from(long)
    assert not short.grew_from(long)
    assert not Messages(list(items)).grew_from(short)


@pytest.mark.parametrize(
    ("address", "is_right"),
    [
        ("https://example.com/a.png", True),
        ("DATA:image/png;base64,aGk=", True),
        ("s3://bucket/a.png", True),
        ("a.png", False),
        ("C:/a.png", False),
        ("file:///a.png", False),
        (5, False),
    ],
)
def test_the_url_of_an_image_is_an_address(address: Any, is_right: bool) -> None:
    if is_right:
        assert Image(url=address).url == address
    else:
        with pytest.raises(ValueError, match="url must be an address"):
            Image(url=address)


def test_an_image_has_either_data_or_a_url() -> None:
    with pytest.raises(ValueError, match="either data or url, not both"):
        Image(data=b"x", url="https://example.com/a.png")
    with pytest.raises(TypeError, match="media_type must be a text"):
        Image(data=b"x", media_type=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a text"):
        File(data=b"x", media_type="text/plain", name=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write glue\.File\(media_type="):
        File(data="x", media_type="text/plain")  # type: ignore[arg-type]

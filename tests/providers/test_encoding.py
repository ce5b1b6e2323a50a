"""The functions that all wires share: JSON, ids, schemas, media types."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue import (
    AssistantMessage,
    File,
    Image,
    Message,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    user,
)
from glue.messages import ToolSpec
from glue.providers import encoding
from glue.providers.catalog import ENTRIES
from glue.providers.models import Facts
from glue.providers.wire import wire_class

NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_json_is_decoded_to_the_encoded_value(value: Any) -> None:
    assert encoding.loads(encoding.dumps(value)) == json.loads(json.dumps(value)) == value


def test_nan_becomes_null_and_a_lone_surrogate_a_question_mark() -> None:
    assert encoding.dumps({"a": float("nan"), "b": "x\ud800"}) == b'{"a":null,"b":"x?"}'


@pytest.mark.parametrize("text", ["", "{", "1 2", "[1,]", "nonsense"])
def test_invalid_json_raises_one_of_bad_shape(text: str) -> None:
    with pytest.raises(encoding.BAD_SHAPE):
        encoding.loads(text.encode())


def test_options_replace_fields_merge_objects_and_append_tools() -> None:
    fields = {"model": "m", "n": None, "config": {"a": 1, "b": 2}, "tools": [b'{"t":1}']}
    options = {"model": "other", "config": {"b": 3}, "tools": [{"t": 2}]}

    body = json.loads(encoding.assemble(fields, options))

    assert body == {"model": "other", "config": {"a": 1, "b": 3}, "tools": [{"t": 1}, {"t": 2}]}


@given(st.text())
def test_an_id_is_valid_for_every_server_and_depends_only_on_the_text(text: str) -> None:
    safe = encoding.safe_id(text)

    assert safe == encoding.safe_id(text) == encoding.safe_id(safe)
    assert 0 < len(safe) <= 64
    assert safe.isascii()


def test_calls_that_reuse_an_id_are_renamed_together_with_their_results() -> None:
    messages: list[Message] = []
    for _ in range(2):
        call = ToolCall(id="call_0", name="look", arguments="{}")
        messages.append(AssistantMessage(content=(call,)))
        messages.append(ToolMessage(call_id="call_0", name="look", content=()))

    first, first_result, second, second_result = encoding.unique_calls(messages)

    assert isinstance(first, AssistantMessage)
    assert isinstance(second, AssistantMessage)
    assert isinstance(first_result, ToolMessage)
    assert isinstance(second_result, ToolMessage)
    assert first.calls[0].id == first_result.call_id == "call_0"
    assert second.calls[0].id == second_result.call_id != "call_0"


def test_messages_with_unique_ids_are_returned_unchanged() -> None:
    messages = (user("hi"), AssistantMessage(content=(ToolCall(id="a", name="x", arguments="{}"),)))

    assert encoding.unique_calls(messages) is messages


@pytest.mark.parametrize(
    ("effort", "levels", "level"),
    [
        ("high", ("low", "medium", "high"), "high"),
        ("max", ("low", "medium", "high"), "high"),
        ("minimal", ("low", "high"), "low"),
        ("medium", ("low", "high"), "low"),
        ("high", (), None),
        (None, ("low",), None),
    ],
)
def test_an_effort_becomes_the_next_lower_level(
    effort: Any, levels: tuple[str, ...], level: str | None
) -> None:
    assert encoding.lower(effort, levels) == level


@pytest.mark.parametrize(
    ("kinds", "kind", "accepted"),
    [
        (("image/*",), "image/png", True),
        (("image/png",), "image/jpeg", False),
        (("*/*",), "application/pdf", True),
        (("image/*",), "application/pdf", False),
        (("image/pngx",), "image/png", False),
        ((), "image/png", False),
    ],
)
def test_media_types_match_patterns(kinds: tuple[str, ...], kind: str, accepted: bool) -> None:
    assert encoding.accepts(kinds, kind) is accepted


STRICT = {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "A name."}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("change", "is_strict"),
    [
        ({}, True),
        ({"properties": {}, "required": []}, True),
        ({"required": []}, False),  # an optional parameter
        ({"additionalProperties": True}, False),
        ({"properties": {"name": {}}}, False),  # any value
        ({"properties": {"name": {"type": "string", "default": "x"}}}, False),
        ({"properties": {"name": {"type": "string", "format": "binary"}}}, False),
        ({"properties": {"name": {"type": "string", "format": "date"}}}, True),
        ({"properties": {"name": {"type": "array"}}}, False),
        ({"properties": {"name": {"type": "array", "items": {"type": "integer"}}}}, True),
        ({"properties": {"name": {"oneOf": [{"type": "string"}]}}}, False),
        ({"properties": {"name": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, True),
        ({"properties": {"name": {"$ref": "#/$defs/a", "description": "A."}}}, False),
        ({"properties": {"name": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"enum": [1]}}}, True),
        ({"properties": {"name": {"type": "object"}}}, False),
        ({"type": "array"}, False),
    ],
)
def test_a_tool_is_strict_if_openai_accepts_its_schema(
    change: dict[str, Any], is_strict: bool
) -> None:
    assert encoding.is_strict_tool({**STRICT, **change}) == is_strict


@pytest.mark.parametrize(
    ("name", "wire", "is_strict"),
    [
        ("openai", "openai_responses", True),
        ("azure", "openai_chat", True),
        ("groq", "openai_chat", False),
        ("bedrock-mantle", "openai_responses", False),
    ],
)
def test_only_openai_is_asked_to_be_strict(name: str, wire: str, is_strict: bool) -> None:
    entry = next(entry for entry in ENTRIES if entry.name == name)
    tool = ToolSpec(name="look", parameters=STRICT)

    sent = json.loads(wire_class(wire).encode(Request(tools=(tool,)), entry, "m"))["tools"][0]

    assert bool(sent.get("function", sent).get("strict")) == is_strict


def test_only_an_object_can_be_strict_and_only_ten_levels_deep() -> None:
    def nested(levels: int) -> dict[str, Any]:
        inner = {"type": "string"} if levels == 1 else nested(levels - 1)
        return {
            "type": "object",
            "properties": {"a": inner},
            "required": ["a"],
            "additionalProperties": False,
        }

    assert encoding.is_strict_tool(nested(9))
    assert not encoding.is_strict_tool(nested(10))
    assert not encoding.is_strict_tool({"type": "string"})
    assert not encoding.is_strict_tool({"anyOf": [nested(1)]})
    assert not encoding.is_strict_tool(True)


# Schemas that are rewritten


def test_a_schema_is_rewritten_at_every_level() -> None:
    seen = []

    def finish(original: Any, copy: Any) -> Any:
        seen.append(original)
        return {**copy, "seen": len(original)}

    schema = {
        "type": "object",
        "minimum": 1,
        "properties": {"minimum": {"type": "integer", "minimum": 1}, "b": True},
        "$defs": {"d": {"minimum": 1}},
        "items": {"minimum": 1, "anyOf": [{"minimum": 1}, {"type": "null"}]},
        "enum": [{"minimum": 1}],
        "default": {"minimum": 1},
    }

    assert encoding.rewritten(schema, {"minimum"}, finish) == {
        "type": "object",
        "properties": {"minimum": {"type": "integer", "seen": 2}, "b": True},
        "$defs": {"d": {"seen": 1}},
        "items": {"anyOf": [{"seen": 1}, {"type": "null", "seen": 1}], "seen": 2},
        "enum": [{"minimum": 1}],
        "default": {"minimum": 1},
        "seen": 7,
    }
    assert len(seen) == 6
    assert encoding.rewritten({"properties": ["a"]}, (), lambda _, copy: copy) == {
        "properties": ["a"]
    }


# Parts

PNG = Image(media_type="image/png", data=b"\x00\xff")


@pytest.mark.parametrize(
    ("part", "kind", "data"),
    [
        (PNG, "image/png", "AP8="),
        (Image(url="data:image/gif;base64,AP8="), "image/gif", "AP8="),
        (Image(url="data:image/gif,%00%ff"), "image/gif", "AP8="),
        (Image(url="data:;base64,AP8=", media_type="image/webp"), "image/webp", "AP8="),
        (File(media_type="text/plain", data=b"a"), "text/plain", "YQ=="),
    ],
)
def test_the_bytes_of_a_part_or_its_data_url_are_sent(
    part: Image | File, kind: str, data: str
) -> None:
    assert encoding.inline(part) == (kind, data)
    assert not encoding.is_remote(part)
    if isinstance(part, Image):
        assert encoding.image_type(part) == kind


def test_an_image_at_another_url_is_fetched_by_the_server() -> None:
    image = Image(url="https://acme.example/a.png", media_type="image/webp")

    assert encoding.is_remote(image)
    assert encoding.image_type(image) == "image/webp"


@pytest.mark.parametrize(
    ("kind", "is_text"),
    [
        ("text/csv", True),
        ("text/plain; charset=utf-8", True),
        ("application/json; x=1", True),
        ("application/xml", True),
        ("application/pdf", False),
        ("image/svg+xml", False),
    ],
)
def test_text_json_and_xml_are_texts(kind: str, is_text: bool) -> None:
    assert encoding.is_text(File(media_type=kind, data=b"")) == is_text


def test_parts_that_the_model_does_not_accept_become_texts() -> None:
    pdf, csv = (
        File(media_type=kind, data=b"a,\xff", name=name)
        for kind, name in (("application/pdf", "a.pdf"), ("text/csv", ""))
    )
    parts = (
        Text(text=""),
        Text(text="hi"),
        PNG,
        pdf,
        csv,
        ToolCall(id="c", name="x", arguments=""),
    )

    nothing = tuple(encoding.taken(parts, Facts()))
    everything = tuple(encoding.taken(parts, Facts(images=("image/*",), files=("*/*",))))

    assert [part.text for part in nothing if isinstance(part, Text)] == [
        "hi",
        "(an image)",
        "(a file: a.pdf)",
        "file:\na,\ufffd",
    ]
    assert len(nothing) == 4
    assert everything == (Text(text="hi"), PNG, pdf, csv)


# Values of JSON


def test_a_value_of_another_type_is_replaced_by_an_empty_one() -> None:
    values: list[Any] = ["a", {"a": 1}, [1], 1, None]

    assert [encoding.text_of(value) for value in values] == ["a", "", "", "", ""]
    assert [encoding.object_of(value) for value in values] == [{}, {"a": 1}, {}, {}, {}]
    assert [encoding.list_of(value) for value in values] == [[], [], [1], [], []]
    assert [encoding.json_text(value) for value in ("a", "", None, {"a": "é"}, 0)] == [
        "a",
        "",
        "",
        '{"a":"é"}',
        "0",
    ]


@pytest.mark.parametrize(
    ("text", "is_object"), [("{}", True), ("[]", False), ("{", False), ("[" * 9999, False)]
)
def test_only_a_complete_object_is_an_object(text: str, is_object: bool) -> None:
    assert encoding.is_object(text) == is_object


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("look", "look"),
        ("functions.look", "functions_look"),
        ("", "unknown"),
        ("a" * 64, "a" * 64),
        ("a" * 65, "a" * 64),
    ],
)
def test_the_name_of_a_called_tool_is_valid_for_every_server(name: str, sent: str) -> None:
    assert encoding.call_name(name) == sent


@pytest.mark.parametrize(
    ("title", "name"),
    [("Place", "Place"), ("a b", "output"), (None, "output"), (3, "output"), ("x" * 65, "output")],
)
def test_the_title_of_a_schema_is_its_name_if_it_is_valid(title: Any, name: str) -> None:
    assert encoding.schema_name({"title": title}) == name
    assert encoding.schema_name({}) == "output"


@pytest.mark.parametrize("size", [31, 32, 33])
def test_only_a_full_block_of_messages_keeps_a_value(size: int) -> None:
    block = tuple(user(str(number)) for number in range(size))

    encoding.keep_block(block, "key", "kept")

    assert encoding.block_memo(block, "key") == ("kept" if size == 32 else None)
    assert encoding.block_memo(block, "other") is None
    assert encoding.block_memo((user("new"), *block[1:]), "key") is None
    assert [len(part) for part in encoding.blocks(block)] == [min(size, 32), size - 32][
        : 1 + size // 33
    ]


def test_neighbouring_user_messages_are_joined_and_excluded_ones_left_out() -> None:
    one, two, three = user("a"), user("b"), user("c", PNG)
    reply = AssistantMessage(content=(Text(text="d"),))
    excluded = replace(user("x"), excluded=True)

    merged = encoding.merge_users([one, excluded, two, reply, three, user("e")])

    assert [message.text for message in merged] == ["a\n\nb", "d", "ce"]
    assert [len(message.content) for message in merged] == [1, 1, 3]
    again = encoding.merge_users([one, two])
    assert again[0] is merged[0]

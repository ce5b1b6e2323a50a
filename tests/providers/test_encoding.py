"""The functions that all wires share: JSON, ids, schemas, media types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue import AssistantMessage, Message, Request, ToolCall, ToolMessage, user
from glue.messages import ToolSpec
from glue.providers import encoding
from glue.providers.catalog import ENTRIES
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

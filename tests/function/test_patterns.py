"""Patterns of given schemas: those that may be slow are not checked."""

from __future__ import annotations

from typing import Any

import pytest

import glue
from glue.function.patterns import is_quick, without_slow_patterns
from glue.testing import call

SLOW = [
    "(a+)+$",
    "(a|a)*b",
    "^(a?){30}a{30}$",
    "(.*)*x",
    "a+$",
    "^(a|ab)+$",
    "^(.|a)*b$",
    "^(a|a)*b$",
    r"^(a|\x61)*b$",
    "^([^b]|a)*b$",
    "^.*.*.*=$",
    r"^(\w+\s?)*$",
    "^a+a+$",
    "^(a+){2}$",
    "^(?=(a+)+$)a",
    "^([a]|a)*b$",
    "a{1,65}",
    "a{2,}",
    f"^{'a?' * 30}{'a' * 30}$",
    f"^{'a{,3}' * 5}$",
    f"^{'(a|ab)' * 10}$",
    "^a{1,64}a{1,64}$",
    "^a{1,25}b{1,41}$",
]
# Errors, and constructs whose time is not estimated.
UNKNOWN = [
    "(",
    "a)",
    "[a",
    "[z-a]",
    "*",
    "^*",
    "$a+",
    "(a)\\1+",
    "^(a)\\1$",
    "^a++$",
    "^a{2}+$",
    "^(?i:a)$",
    "^(?#a)b$",
]
QUICK = [
    "^a+$",
    "^[a-z]{1,8}$",
    "^(ab)+c$",
    r"^(\w|-)+$",
    "^([a-z]|-)+$",
    "abc",
    "^x?y",
    "^(red|green)$",
    r"^\d{3}-\d{4}$",
    "^-?[0-9]{1,64}$",
    "x?y",
    "a{1,64}",
    "^a{2,}$",
    "^(a+)$",
    "^(a+?)$",
    "^(a+)?$",
    "^a{}+$",
    "^(?:ab)c$",
    "^(?P<x>ab)c$",
    "^(?=a?b)a+$",
    "^(ab|c?d)$",
    f"^{'a?' * 9}$",
    f"^{'(a|ab)' * 9}$",
    "^a{1,25}b{1,40}c*$",
    r"^(\x61)$",
    r"^(\u0061)$",
    r"^(\U00000061)$",
    r"^(\.|-)+$",
    "^([ab]|-)+$",
    "^[^?]+$",
    "^([^])?])+$",
    "(?i)^a+$",
    "a" * 1000,
    r"^([\])])+$",
    r"^[\.]+$",
]


@pytest.mark.parametrize("pattern", [*SLOW, *UNKNOWN])
async def test_slow_patterns_in_a_given_schema_are_not_checked(pattern: str) -> None:
    text = "a" * 5000 + "!"
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": pattern}},
        "patternProperties": {pattern: {"type": "string"}},
        "additionalProperties": False,
    }
    tool = glue.Tool.from_schema("one", "", schema, lambda arguments: "ran")

    for arguments in ({"x": text}, {text[:200]: text}, {"x": 3}):
        result = await tool.invoke(
            call("one", arguments), glue.Context(call=call("one", arguments))
        )
        assert result.is_error is (arguments == {"x": 3})
    assert tool.spec.parameters == schema  # the model sees the patterns nevertheless


SLOW_TEXT = {"type": "string", "pattern": "(a+)+$"}


@pytest.mark.parametrize(
    "schema",
    [
        *(
            {"properties": {name: SLOW_TEXT}}
            for name in ("default", "enum", "const", "examples", "pattern")
        ),
        {"properties": {"default": {"$ref": "#/$defs/const"}}, "$defs": {"const": SLOW_TEXT}},
        {"properties": {"default": {"$ref": "#/examples/0"}}, "examples": [SLOW_TEXT]},
        {"properties": {"default": {"$ref": "#/default/x"}}, "default": {"x": SLOW_TEXT}},
    ],
)
async def test_slow_patterns_are_removed_below_any_name_and_behind_references(
    schema: dict[str, Any],
) -> None:
    schema = {"type": "object", **schema, "additionalProperties": False}
    tool = glue.Tool.from_schema("one", "", schema, lambda arguments: "ran")
    (name,) = schema["properties"]

    for value in ("a" * 5000 + "!", 3):
        result = await tool.invoke(call("one", {name: value}), glue.Context(call=call("one", {})))
        assert result.is_error is (value == 3)


def test_enums_and_defaults_are_not_changed() -> None:
    schema = {"properties": {"x": {"enum": [{"a": "pattern"}], "default": {"pattern": "^a$"}}}}

    assert without_slow_patterns(schema) == schema


def test_an_enum_with_a_slow_pattern_is_dropped_and_a_property_of_this_name_is_kept() -> None:
    values = {"enum": [{"pattern": "(a+)+$"}, "x"]}

    assert without_slow_patterns({"items": values}) == {"items": {}}
    assert without_slow_patterns({"properties": {"properties": values}}) == {
        "properties": {"properties": {}}
    }
    assert without_slow_patterns({"properties": {"enum": SLOW_TEXT}}) == {
        "properties": {"enum": {"type": "string"}}
    }


@pytest.mark.parametrize(("levels", "is_kept"), [(32, True), (33, False)])
def test_parts_of_a_schema_that_are_nested_too_deeply_accept_every_value(
    levels: int, is_kept: bool
) -> None:
    in_lists: Any = {"type": "string"}
    in_objects: Any = {"type": "string"}
    for _ in range(levels):
        in_lists = {"anyOf": [in_lists]}
        in_objects = {"items": {"items": in_objects}}

    kept = [without_slow_patterns(schema) for schema in (in_lists, in_objects)]

    assert [
        schema == given for schema, given in zip(kept, (in_lists, in_objects), strict=True)
    ] == [
        is_kept,
        is_kept,
    ]
    assert ["'type': 'string'" in str(schema) for schema in kept] == [is_kept, is_kept]
    assert ["True" not in str(schema) for schema in kept] == [is_kept, is_kept]


@pytest.mark.parametrize("pattern", QUICK)
async def test_quick_patterns_in_a_given_schema_are_checked(pattern: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}
    tool = glue.Tool.from_schema("one", "", schema, lambda arguments: "ran")

    arguments = {"x": "?" * 100_000}
    assert (
        await tool.invoke(call("one", arguments), glue.Context(call=call("one", arguments)))
    ).is_error


@pytest.mark.parametrize("pattern", QUICK)
def test_patterns_that_match_in_linear_time_are_quick(pattern: str) -> None:
    assert is_quick(pattern)


@pytest.mark.parametrize("pattern", [*SLOW, *UNKNOWN, "a" * 1001])
def test_patterns_that_may_backtrack_are_not_quick(pattern: str) -> None:
    assert not is_quick(pattern)

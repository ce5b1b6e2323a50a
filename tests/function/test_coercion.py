"""Coercion: values that are almost right are converted, others are faults."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Any, Literal

import pytest

from glue.function.coercion import coerce
from glue.function.schema import shape_of
from glue.function.validation import ValidationError, Validator

INTEGER = {"type": "integer"}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node] = dataclasses.field(default_factory=list)
    born: datetime.date | None = None


def read(annotation: Any, value: Any) -> Any:
    return shape_of(annotation).read(value)


def faults(annotation: Any, value: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        shape_of(annotation).read(value)
    return caught.value.lines


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, "3", 3),
        (int, " -4 ", -4),
        (int, "5.0", 5),
        (int, 6.0, 6),
        (float, "2.5", 2.5),
        (float, "1e3", 1000.0),
        (bool, "True", True),
        (bool, "false", False),
        (None, "null", None),
        (int | None, "null", None),
        (int | None, "7", 7),
        (list[int], "[1, 2]", [1, 2]),
        (list[str], "one", ["one"]),
        (list[int], "3", [3]),
        (list[Point], {"x": 1}, [Point(1.0)]),
        (Point, '{"x": "1"}', Point(1.0)),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (set[str], ["a", "a", "b"], {"a", "b"}),
        (Level, "2", Level.HIGH),
        (Literal[1, 2], "2", 2),
        (Node, {"name": "a", "children": None}, Node("a")),
    ],
)
def test_values_whose_meaning_is_clear_are_converted(
    annotation: Any, value: Any, expected: Any
) -> None:
    made = read(annotation, value)

    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, 3),
        (str, None),
        (int, "three"),
        (int, True),
        (int, 3.5),
        (int, "3.5"),
        (int, ""),
        (bool, "yes"),
        (bool, 1),
        (list[int], None),
        (list[int], "x"),
        (Point, "{broken"),
        (dict[str, int], []),
        (None, "nothing"),
    ],
)
def test_values_whose_meaning_is_not_clear_are_faults(annotation: Any, value: Any) -> None:
    assert faults(annotation, value)


def test_a_null_for_an_optional_property_does_not_drop_those_after_it() -> None:
    value = {"children": None, "name": "a", "born": "2024-05-06"}

    assert read(Node, value) == Node("a", born=datetime.date(2024, 5, 6))


def test_a_value_that_fits_is_not_changed() -> None:
    assert read(int | str, "3") == "3"
    assert read(str | int, "3") == "3"
    assert read(list[str] | str, "x") == "x"
    assert read(Any, "3") == "3"


@pytest.mark.parametrize(
    ("schema", "value", "result"),
    [
        ({"type": "array", "items": {"type": "string"}}, "3", ["3"]),
        ({"type": "array", "items": {"type": "string"}}, "true", ["true"]),
        ({"type": "array", "items": {"type": "integer"}}, "3", [3]),
        ({"type": "array", "items": {"type": "integer"}}, " [3] ", [3]),
        ({"type": "array", "items": {"type": "integer"}}, "[3", "[3"),
        ({"type": "object"}, "[1]", "[1]"),
        ({"type": "object"}, ' {"a": 1}', {"a": 1}),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
            ["1", "2"],
            [1, "2"],
        ),
        ({"type": "array", "items": [7]}, ["1"], ["1"]),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": "number"}, "0", 0.0),
        ({"type": "number"}, "12", 12),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "integer"}, "3.00", 3),
        ({"type": "boolean"}, " TRUE ", True),
        ({"enum": [2, "2x"]}, " 2 ", 2),
        ({"enum": ["2", 2]}, "2", "2"),
        ({"enum": [[2]]}, "[2]", "[2]"),
        ({"type": "string", "format": "duration"}, -1.5, "-PT1.5S"),
        ({"type": "string", "format": "duration"}, 0, "PT0S"),
        ({"type": "object", "additionalProperties": INTEGER}, {"x": None}, {"x": None}),
        ({"type": "object", "properties": {"x": INTEGER}}, {"x": None}, {}),
        (
            {"type": "object", "properties": {"x": INTEGER}},
            {"x": "1", "y": "2"},
            {"x": 1, "y": "2"},
        ),
        (
            {"type": "object", "properties": {"x": INTEGER}, "required": ["x"]},
            {"x": None},
            {"x": None},
        ),
        ({"type": "string", "pattern": "^[0-9]$"}, 7, "7"),
        ({"type": "string", "pattern": "^[0-9]$"}, 77, 77),
        ({"type": "string"}, 7, 7),
        ({"type": "array", "uniqueItems": True}, [1, 2, 1], [1, 2]),
        (True, "3", "3"),
    ],
)
def test_a_value_is_converted_to_fit_its_schema(schema: Any, value: Any, result: Any) -> None:
    converted = coerce(Validator(schema if isinstance(schema, dict) else {}), schema, value)

    assert (type(converted), converted) == (type(result), result)

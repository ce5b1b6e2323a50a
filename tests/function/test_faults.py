"""Descriptions of faults: path, value and expected value."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal

import pytest

import glue
from glue.function.faults import describe, show_json
from glue.function.schema import shape_of
from glue.function.validation import ValidationError, Validator


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


def faults(annotation: Any, value: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        shape_of(annotation).read(value)
    return caught.value.lines


@pytest.mark.parametrize(
    ("annotation", "value", "lines"),
    [
        (int, "many", ['got "many", expected an integer']),
        (list[int], "x", ['got "x", expected a list of integers']),
        (list[int], [1, "x", 2, "y"], [
            '[1]: got "x", expected an integer',
            '[3]: got "y", expected an integer',
        ]),
        (Point, {"y": "up"}, ["x: missing, expected a number", 'y: got "up", expected a number']),
        (Point, {"x": 1, "z": 2}, ["z: unknown name; there are: x, y"]),
        (Color, "green", ['got "green", expected one of "red", "blue"']),
        (int | None, "x", ['got "x", expected an integer or null']),
        (Point | None, {"x": "q"}, ['x: got "q", expected a number']),
        (tuple[int, str], [1], ["got [1], expected a list of [an integer, a string]"]),
        (list[datetime.date], ["soon", "2020-01-01", 7], [
            "[2]: got 7, expected a date such as 2026-01-31"
        ]),
        (list[datetime.date], ["soon", "later"], [
            '[0]: got "soon", expected a date such as 2026-01-31',
            '[1]: got "later", expected a date such as 2026-01-31',
        ]),
        (dict[str, Node], {"a": {"name": "b", "born": "never"}}, [
            'a.born: got "never", expected a date such as 2026-01-31'
        ]),
        (dict[int, str], {"x": "y"}, None),
        (bytes, "!", ['got "!", expected base64 text']),
        (Annotated[int, glue.Field(ge=1, le=5)], 9, [
            "got 9, expected an integer of at least 1 and of at most 5"
        ]),
        (float, 10**400, None),
    ],
)  # fmt: skip
def test_a_fault_has_the_path_the_value_and_the_expected_value(
    annotation: Any, value: Any, lines: list[str] | None
) -> None:
    found = faults(annotation, value)

    assert len(found) >= 1
    if lines is not None:
        assert sorted(found) == sorted(lines)


def test_the_message_of_a_fault_without_an_expected_value_has_at_most_300_characters() -> None:
    failed = Validator({"not": {"type": "string"}}).errors("x" * 400)

    assert failed is not None
    assert [len(line) for line in failed.lines] == [300]


def test_an_exception_of_a_class_is_a_fault() -> None:
    @dataclasses.dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("must be even")

    assert faults(list[Even], [{"number": 2}, {"number": 3}]) == [
        '[1]: got {"number": 3}: ValueError: must be even'
    ]


def test_only_twenty_faults_are_listed_and_the_others_counted() -> None:
    found = faults(list[int], ["x"] * 50)

    assert len(found) == 21
    assert found[-1] == "and 30 more faults"


@dataclasses.dataclass
class Circle:
    kind: Literal["circle"]
    radius: float


@dataclasses.dataclass
class Square:
    kind: Literal["square", "box"]
    side: float


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ({"kind": "hexagon", "side": 1}, [
            'kind: got "hexagon", expected one of "circle", "square", "box"'
        ]),
        ({"side": 1}, ['kind: missing, expected one of "circle", "square", "box"']),
        ({"kind": "box"}, ["side: missing, expected a number"]),
        ({"kind": "circle", "radius": "x", "side": 1}, [
            'radius: got "x", expected a number',
            "side: unknown name; there are: kind, radius",
        ]),
        ({"kind": ["circle"], "radius": 1}, [
            'kind: got ["circle"], expected one of "circle", "square", "box"'
        ]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("annotation", [Circle | Square, Circle | Square | None])
def test_a_fault_in_a_tagged_union_names_the_allowed_kinds(
    annotation: Any, value: Any, lines: list[str]
) -> None:
    assert sorted(faults(annotation, value)) == sorted(lines)


def test_a_union_without_a_tag_describes_its_options() -> None:
    @dataclasses.dataclass
    class Named:
        name: str

    @dataclasses.dataclass
    class Numbered:
        number: int

    assert faults(Named | Numbered, {}) == [
        "got {}, expected an object with name or an object with number"
    ]


def tuples(levels: int) -> Any:
    return {"type": "array", "prefixItems": [tuples(levels - 1)]} if levels else {"type": "integer"}


def unions(levels: int) -> Any:
    return (
        {"anyOf": [unions(levels - 1)]} if levels else {"type": "object", "properties": {"x": {}}}
    )


def test_a_description_of_nested_values_has_three_levels() -> None:
    def described(schema: Any) -> str:
        return describe(schema, lambda each: each)

    assert described(tuples(3)) == "a list of [a list of [a list of [an integer]]]"
    assert described(tuples(4)) == "a list of [a list of [a list of [a list]]]"
    assert described(unions(2)) == "an object with x"
    assert described(unions(3)) == "an object"
    assert described({"type": "array", "prefixItems": []}) == "a list"
    assert described(True) == "a value"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 78, f'"{"x" * 78}"'),
        ("x" * 79, f'"{"x" * 79}... (81 characters)'),
        ("Zürich", '"Zürich"'),
        ({1}, "{1}"),
        ("a\u202eb", '"a⟨U+202E⟩b"'),
    ],
)
def test_a_value_is_shown_as_json_of_80_characters(value: Any, shown: str) -> None:
    assert show_json(value) == shown

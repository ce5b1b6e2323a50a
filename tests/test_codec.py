"""JSON of dataclasses: strict classes reject unknown fields, open ones keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

import glue
from glue.codec import Json, TaggedUnion, from_json, to_json, to_plain


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0
    label: str | None = None


@dataclass(frozen=True)
class Drawing:
    points: tuple[Point, ...] = ()
    names: Mapping[str, Point] = field(default_factory=dict)
    mode: Literal["fill", "line"] = "fill"
    colour: Colour = Colour.RED
    data: bytes = b""
    version: int = field(default=1, metadata={"always": True})
    area: int = field(default=0, metadata={"derived": True})


@dataclass(frozen=True)
class Open:
    name: str = ""
    extra: Mapping[str, Json] | None = None


def test_dataclasses_are_encoded_without_defaults_and_decoded_again() -> None:
    drawing = Drawing(
        points=(Point(1, 2.5), Point(3)),
        names={"a": Point(4, label="here")},
        data=b"\0\xff",
        area=7,
    )

    data = to_json(drawing)

    assert data == {
        "points": [{"x": 1, "y": 2.5}, {"x": 3}],
        "names": {"a": {"x": 4, "label": "here"}},
        "data": "AP8=",
        "version": 1,
    }
    assert from_json(Drawing, data) == Drawing(
        points=drawing.points, names=drawing.names, data=drawing.data
    )
    assert from_json(list[Point], data["points"]) == list(drawing.points)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"points": [{"x": 1}, {"x": "1"}]}, ".points[1].x must be a whole number, not a text"),
        ({"points": [{"x": True}]}, ".points[0].x must be a whole number, not true or false"),
        ({"points": [{}]}, "missing 1 required positional argument: 'x'"),
        ({"points": "x"}, ".points must be a list, not a text"),
        ({"names": {"a": None}}, ".names['a'] must be an object, not null"),
        ({"mode": "dots"}, ".mode must be one of 'fill', 'line', not 'dots'"),
        ({"colour": "blue"}, ".colour must be one of 'red', not 'blue'"),
        ({"data": "?"}, ".data must be base64 text"),
        (
            {"area": 3},
            "has an unknown field 'area'; there are: colour, data, mode, names, points, version",
        ),
        ({"points": [{"x": 1, "y": float("nan")}]}, ".points[0].y must be a number, not NaN"),
        ([], " must be an object, not a list"),
    ],
)
def test_json_that_does_not_fit_a_strict_class_is_an_error_with_its_path(
    data: Any, expected: str
) -> None:
    with pytest.raises(ValueError) as caught:
        from_json(Drawing, data)

    assert expected in str(caught.value)


def test_an_open_class_keeps_unknown_fields_and_writes_them_again() -> None:
    data = {"name": "a", "newer": [1]}

    record = from_json(Open, data)

    assert record == Open(name="a", extra={"newer": [1]})
    assert to_json(record) == data


def test_a_union_of_messages_is_decoded_by_the_role() -> None:
    message = glue.user("hello")

    assert from_json(glue.Message, to_json(message)) == message


def test_to_json_rejects_objects_that_are_not_dataclasses() -> None:
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        to_json({"a": object()})


def test_to_plain_writes_unknown_objects_as_text() -> None:
    assert to_plain({"a": 1j, "b": {3, 1}, "c": Point(1)}) == {
        "a": "1j",
        "b": [1, 3],
        "c": {"x": 1, "y": 0.0, "label": None},
    }


def test_to_plain_writes_every_field_except_caches() -> None:
    @dataclass
    class Payment:
        memo: str
        extra: int
        total: int = field(init=False, default=7)
        cache: dict[str, int] = field(init=False, compare=False, default_factory=dict)

    assert to_plain(Payment("rent", 1)) == {"memo": "rent", "extra": 1, "total": 7}
    assert to_plain(glue.messages.ToolSpec(name="a", parameters={})) == {
        "name": "a",
        "description": "",
        "parameters": {},
        "kind": "function",
        "settings": {},
    }


def test_a_field_of_a_type_without_json_is_an_error_only_if_it_is_given() -> None:
    @dataclass
    class Failed:
        name: str
        error: Exception | None = None

    assert from_json(Failed, {"name": "a"}) == Failed("a")
    with pytest.raises(TypeError, match="Exception'> cannot be read from JSON"):
        from_json(Failed, {"name": "a", "error": "no"})


def test_a_tagged_union_decodes_by_its_key_and_rejects_unknown_names() -> None:
    @dataclass(frozen=True)
    class Circle:
        radius: int

    shapes = TaggedUnion("type", {"circle": Circle})

    assert to_json(Circle(2)) == {"type": "circle", "radius": 2}
    assert shapes.read({"type": "circle", "radius": 2}) == Circle(2)
    with pytest.raises(ValueError, match="has an unknown type 'cube'; there are: circle"):
        shapes.read({"type": "cube"})

"""JSON of dataclasses: strict classes reject unknown fields, open ones keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
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


def test_any_mapping_is_read_as_an_object() -> None:
    @dataclass(frozen=True)
    class Circle:
        radius: int

    shapes = TaggedUnion("type", {"circle": Circle})

    assert from_json(Point, MappingProxyType({"x": 1})) == Point(1)
    assert shapes.read(MappingProxyType({"type": "circle", "radius": 2})) == Circle(2)
    for wrong in (None, "circle", ["circle"]):
        with pytest.raises(ValueError, match="must be an object, not"):
            shapes.read(wrong)


def test_a_tag_that_is_not_a_text_is_unknown() -> None:
    shapes = TaggedUnion("type", {"point": Point})

    with pytest.raises(ValueError, match=r"has an unknown type \[\]; there are: point"):
        shapes.read({"type": []})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(hours=1), "PT3600S"),
        (timedelta(days=1, milliseconds=5), "PT86400.005S"),
        (timedelta(seconds=-1), "-PT1S"),
    ],
)
def test_a_duration_is_written_in_seconds(value: timedelta, text: str) -> None:
    assert to_plain(value) == text


def test_a_plain_field_may_contain_any_object() -> None:
    @dataclass
    class Row:
        value: Any = field(default=None, metadata={"plain": True})

    assert to_json(Row(1j)) == {"value": "1j"}
    assert to_json(Row({"a": Point(1)})) == {"value": {"a": {"x": 1, "y": 0.0, "label": None}}}


def test_a_value_is_left_out_only_if_it_has_the_type_of_the_default_too() -> None:
    @dataclass
    class Row:
        share: float = 0.0
        names: tuple[str, ...] = ("a",)

    assert to_json(Row(share=float("0"), names=tuple("a"))) == {}
    assert to_json(Row(share=0)) == {"share": 0}
    assert to_json(Row(share=False)) == {"share": False}


def test_a_field_that_is_not_a_parameter_or_is_derived_cannot_be_given() -> None:
    @dataclass
    class Row:
        name: str = ""
        total: int = field(default=7, init=False)
        length: int = field(default=0, metadata={"derived": True})

    assert from_json(Row, {"name": "a"}) == Row("a")
    for name in ("total", "length"):
        with pytest.raises(ValueError, match=f"has an unknown field '{name}'; there are: name"):
            from_json(Row, {name: 1})


def test_values_of_unchecked_types_are_read_unchanged() -> None:
    unchanged: Any = from_json(Any, {"a": [1]})

    assert unchanged == {"a": [1]}
    assert from_json(list, [1, "a"]) == [1, "a"]
    assert from_json(tuple, [1, "a"]) == (1, "a")
    assert from_json(dict, {"a": 1}) == {"a": 1}
    assert from_json(Any | int, "a") == "a"
    assert from_json(int | Any, "a") == "a"


def test_a_sequence_is_read_as_a_tuple_and_a_set_as_a_set() -> None:
    assert from_json(Sequence[Point], [{"x": 1}]) == (Point(1),)
    assert from_json(set[int], [1, 1]) == {1}
    assert from_json(frozenset[int], (1, 2)) == frozenset((1, 2))
    with pytest.raises(ValueError, match="must be a list, not an object"):
        from_json(Sequence[Point], {"x": 1})


def test_a_member_of_an_enum_may_be_given_as_itself() -> None:
    assert from_json(Colour, Colour.RED) is Colour.RED
    assert from_json(Colour, "red") is Colour.RED


def test_a_value_of_several_types_is_read_as_the_first_type_that_fits() -> None:
    several = int | str | Point

    assert [from_json(several, value) for value in (1, "a", {"x": 1})] == [1, "a", Point(1)]
    assert from_json(several | None, None) is None
    with pytest.raises(ValueError, match="must be an object, not null"):
        from_json(several, None)


def test_classes_of_one_union_with_equal_fields_are_distinguished_by_their_tag() -> None:
    @dataclass(frozen=True)
    class Circle:
        size: int

    @dataclass(frozen=True)
    class Square:
        size: int

    TaggedUnion("type", {"circle": Circle, "square": Square})

    for shape in (Circle(1), Square(1)):
        assert from_json(Circle | Square, to_json(shape)) == shape
    assert from_json(Circle | None, None) is None
    assert from_json(Circle | None, {"size": 1}) == Circle(1)


def test_a_whole_number_is_read_as_a_float_only_if_no_digit_is_lost() -> None:
    for number in (0, 10**15 - 1, 1 - 10**15):
        assert isinstance(from_json(float, number), float)
    for number in (10**15, -(10**15)):
        with pytest.raises(ValueError, match="must be a number, not a whole number"):
            from_json(float, number)


def test_the_types_of_texts_and_numbers_are_checked_except_in_open_classes() -> None:
    @dataclass
    class Loose:
        number: int = 0
        names: tuple[str, ...] = ()
        extra: Mapping[str, Json] | None = None

    assert from_json(Loose, {"number": "1", "names": [2]}) == Loose("1", (2,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a whole number, not a text"):
        from_json(int, "1")

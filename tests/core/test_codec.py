"""Dataclasses go to JSON and back; closed ones are read strictly, open ones keep what they do not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

import glue
from glue.codec import Json, to_plain


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


def test_records_go_to_json_and_back() -> None:
    drawing = Drawing(points=(Point(1, 2.5), Point(3)), names={"a": Point(4, label="here")}, data=b"\0\xff", area=7)

    data = glue.to_json(drawing)

    assert data == {
        "points": [{"x": 1, "y": 2.5}, {"x": 3}],
        "names": {"a": {"x": 4, "label": "here"}},
        "data": "AP8=",
        "version": 1,
    }
    assert glue.from_json(Drawing, data) == Drawing(points=drawing.points, names=drawing.names, data=drawing.data)
    assert glue.from_json(list[Point], data["points"]) == list(drawing.points)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"points": [{"x": 1}, {"x": "1"}]}, ".points[1].x must be a whole number, not a text"),
        ({"points": [{"x": True}]}, ".points[0].x must be a whole number, not true or false"),
        ({"points": [{}]}, "missing 1 required positional argument: 'x'"),
        ({"points": "x"}, ".points must be a list, not a text"),
        ({"names": {"a": None}}, ".names['a'] must be an object, not null"),
        ({"mode": "dots"}, ".mode must be one of 'fill', 'line', not 'dots'"),
        ({"colour": "blue"}, ".colour must be one of 'red', not 'blue'"),
        ({"data": "?"}, ".data must be base64 text"),
        ({"area": 3}, "has an unknown field 'area'; there are: colour, data, mode, names, points, version"),
        ({"points": [{"x": 1, "y": float("nan")}]}, ".points[0].y must be a number, not NaN"),
        ([], " must be an object, not a list"),
    ],
)
def test_a_closed_record_is_read_strictly(data: Any, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        glue.from_json(Drawing, data)

    assert says in str(caught.value)


def test_an_open_record_keeps_what_a_newer_version_wrote() -> None:
    data = {"name": "a", "newer": [1]}

    record = glue.from_json(Open, data)

    assert record == Open(name="a", extra={"newer": [1]})
    assert glue.to_json(record) == data


def test_a_message_is_read_by_its_union() -> None:
    message = glue.user("hello")

    assert glue.from_json(glue.Message, glue.to_json(message)) == message


def test_what_has_no_form_in_json_is_refused_or_shown_as_text() -> None:
    with pytest.raises(TypeError, match="object has no form in JSON"):
        glue.to_json({"a": object()})

    assert to_plain({"a": 1j, "b": {3, 1}, "c": Point(1)}) == {
        "a": "1j",
        "b": [1, 3],
        "c": {"x": 1, "y": 0.0, "label": None},
    }


def test_a_plain_record_shows_every_field_but_its_cache_whatever_they_are_called() -> None:
    @dataclass
    class Payment:
        memo: str
        extra: int
        total: int = field(init=False, default=7)
        cache: dict[str, int] = field(init=False, compare=False, default_factory=dict)

    assert to_plain(Payment("rent", 1)) == {"memo": "rent", "extra": 1, "total": 7}
    assert to_plain(glue.ToolSpec(name="a", parameters={})) == {"name": "a", "description": "", "parameters": {}}


def test_a_field_that_json_has_no_form_of_is_refused_where_it_is_given() -> None:
    @dataclass
    class Failed:
        name: str
        error: Exception | None = None

    assert glue.from_json(Failed, {"name": "a"}) == Failed("a")
    with pytest.raises(TypeError, match="Exception'> cannot be read from JSON"):
        glue.from_json(Failed, {"name": "a", "error": "no"})

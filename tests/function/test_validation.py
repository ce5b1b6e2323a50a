"""What holds for any type and any value: round trips, and agreement with jsonschema."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import json
import pathlib
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glue
from glue.function.schema import Shape, shape_of
from glue.function.validation import ValidationError, Validator, coerce, without_slow_patterns
from glue.testing import call


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


T = TypeVar("T")


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Movie(TypedDict, total=False):
    name: str
    color: Color


class Pair(NamedTuple):
    left: int
    right: datetime.date = datetime.date(2020, 1, 1)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, st.text(max_size=8)),
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (None, st.none()),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    (datetime.date, st.dates()),
    (datetime.datetime, st.datetimes(timezones=st.none() | st.just(datetime.UTC))),
    (datetime.time, st.times()),
    (bytes, st.binary(max_size=8)),
    (uuid.UUID, st.uuids()),
    (pathlib.PurePosixPath, NAMES.map(pathlib.PurePosixPath)),
    (Point, st.builds(Point, st.floats(allow_nan=False, allow_infinity=False), st.just(1.5))),
    (Pair, st.builds(Pair, st.integers(), st.dates())),
]  # fmt: skip

Case = tuple[Any, st.SearchStrategy[Any]]


def of(generic: Any, *args: Any) -> Any:
    return generic[args if len(args) > 1 else args[0]]


def wider(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return st.one_of(
        inner.map(lambda case: (of(list, case[0]), st.lists(case[1], max_size=3))),
        inner.map(lambda case: (of(tuple, case[0], ...), st.lists(case[1], max_size=3).map(tuple))),
        inner.map(lambda case: (of(dict, str, case[0]), st.dictionaries(st.text(max_size=4), case[1], max_size=3))),
        inner.map(lambda case: (of(Optional, case[0]), st.none() | case[1])),
        st.tuples(inner, inner).map(lambda two: (of(tuple, two[0][0], two[1][0]), st.tuples(two[0][1], two[1][1]))),
        inner.map(lambda case: (of(Box, case[0]), st.builds(Box, case[1]))),
    )


CASES = st.recursive(st.sampled_from(SCALARS), wider, max_leaves=4)


def to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_json(item) for name, item in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value) if isinstance(value, (pathlib.PurePath, uuid.UUID)) else value


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_value_survives_the_way_through_json(data: st.DataObject) -> None:
    annotation, values = data.draw(CASES)
    value = data.draw(values)
    shape = shape_of(annotation)
    sent = json.loads(json.dumps(to_json(value)))

    assert shape.read(sent) == value
    assert jsonschema.Draft202012Validator(shape.schema).is_valid(sent)


TEXTS = ["", "a", "red", "3", "true", "null", "[1]", '{"x": 1}', "2020-01-01"]
KEYS = ["x", "y", "name", "children", "content", "left"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.0]) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)
TYPES: list[Any] = [
    *(annotation for annotation, _ in SCALARS),
    *(Node, Movie, Box[int], list[Node], set[str], frozenset[int], tuple[int, str], dict[int, str], dict[Color, int]),
    *(dict, list, int | None, int | str, Point | Node | None, list[int] | str),
    Annotated[int, glue.Field(ge=0, lt=3, multiple_of=2)],
    Annotated[str, glue.Field(min_length=1, max_length=3, pattern="^[a-z0-9]")],
    Annotated[list[int], glue.Field(min_length=1, max_length=2)],
    Annotated[dict[str, int], glue.Field(max_length=1)],
]


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(TYPES), JSON)
def test_quick_check_says_yes_only_where_jsonschema_does(annotation: Any, value: Any) -> None:
    shape = shape_of(annotation)
    judge = jsonschema.Draft202012Validator(shape.schema)

    assert shape.fits is not None
    if shape.fits(value):
        assert judge.is_valid(value)
    assert shape.validator.accepts(shape.schema, value) == judge.is_valid(value)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(TYPES), JSON)
def test_coercion_leaves_valid_values_alone_and_reading_raises_only_faults(annotation: Any, value: Any) -> None:
    shape = shape_of(annotation)
    before = json.dumps(value)

    if jsonschema.Draft202012Validator(shape.schema).is_valid(value):
        assert coerce(shape.validator, shape.schema, value) == value
    lines = faults_of(shape, value)
    assert lines is None or lines
    assert all("\n" not in line for line in lines or ())
    assert json.dumps(value) == before


def faults_of(shape: Shape, value: Any) -> list[str] | None:
    try:
        shape.read(value)
    except ValidationError as found:
        return found.lines
    return None


KINDS = ["string", "integer", "number", "boolean", "null", "array", "object"]
WORDS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from([*KINDS, ["string", "null"], ["integer", "array"]]),
    "enum": st.lists(st.sampled_from([None, True, False, 0, 1, 2, "a", "3", 1.0]), min_size=1, max_size=3),
    "const": st.sampled_from([1, 1.0, True, "a", None, [1]]),
    "minimum": st.integers(-1, 2),
    "exclusiveMaximum": st.sampled_from([1, 1.5]),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "minLength": st.integers(0, 2),
    "pattern": st.sampled_from(["^a", "3"]),
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(0, 2),
    "uniqueItems": st.booleans(),
    "required": st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True),
    "minProperties": st.integers(0, 2),
    "propertyNames": st.sampled_from([True, {"pattern": "^x"}, {"enum": ["x", "y"]}]),
    "format": st.just("date"),
}  # fmt: skip
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.fixed_dictionaries({}, optional=WORDS),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            **WORDS,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "properties": st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
            "additionalProperties": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    ),
    max_leaves=4,
)


def test_a_reference_to_an_anchor_is_left_to_jsonschema() -> None:
    schema = {"$defs": {"number": {"$anchor": "number", "type": "integer"}}, "$ref": "#number"}
    validator = Validator(schema)

    assert validator.accepts(schema, 3)
    assert not validator.accepts(schema, "three")


def test_every_part_of_a_schema_is_compiled_once() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["integer", "array"]}, "b": {"anyOf": [{"type": "null"}]}}}
    shape = Shape(schema)
    faults_of(shape, {"a": "x", "b": 1})
    made = len(shape.validator._made)

    for number in range(5):
        faults_of(shape, {"a": f"x{number}", "b": number})

    assert len(shape.validator._made) == made


@settings(max_examples=800, deadline=None)
@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), JSON)
def test_ready_schemas_are_judged_as_jsonschema_does(schema: dict[str, Any], value: Any) -> None:
    validator = Validator(schema)
    judge = jsonschema.Draft202012Validator(schema)

    assert validator.accepts(schema, value) == judge.is_valid(value)
    assert (validator.errors(value) is None) == judge.is_valid(value)
    if judge.is_valid(value):
        assert coerce(validator, schema, value) == value


SLOW = [
    "(a+)+$",
    "(a|a)*b",
    "^(a?){30}a{30}$",
    "(.*)*x",
    "a+$",
    "^(a|ab)+$",
    "^.*.*.*=$",
    r"^(\w+\s?)*$",
    "(",
    "(a)\\1+",
]
QUICK = ["^a+$", "^[a-z]{1,8}$", "^(ab)+c$", "abc", "^x?y", "^(red|green)$", r"^\d{3}-\d{4}$", "^-?[0-9]{1,64}$"]


@pytest.mark.parametrize("pattern", SLOW)
async def test_slow_patterns_from_elsewhere_do_not_hold_the_loop(pattern: str) -> None:
    text = "a" * 5000 + "!"
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": pattern}},
        "patternProperties": {pattern: {"type": "string"}},
        "additionalProperties": False,
    }
    tool = glue.Tool.from_schema("one", "", schema, lambda arguments: "ran")

    for arguments in ({"x": text}, {text[:200]: text}, {"x": 3}):
        result = await tool.invoke(call("one", arguments), glue.Context(call=call("one", arguments)))
        assert result.is_error is (arguments == {"x": 3})
    assert tool.spec.parameters == schema  # the model is told all the same


SLOW_TEXT = {"type": "string", "pattern": "(a+)+$"}


@pytest.mark.parametrize(
    "schema",
    [
        *({"properties": {name: SLOW_TEXT}} for name in ("default", "enum", "const", "examples", "pattern")),
        {"properties": {"default": {"$ref": "#/$defs/const"}}, "$defs": {"const": SLOW_TEXT}},
        {"properties": {"default": {"$ref": "#/examples/0"}}, "examples": [SLOW_TEXT]},
        {"properties": {"default": {"$ref": "#/default/x"}}, "default": {"x": SLOW_TEXT}},
    ],
)
async def test_slow_patterns_hide_behind_no_name_and_no_reference(schema: dict[str, Any]) -> None:
    schema = {"type": "object", **schema, "additionalProperties": False}
    tool = glue.Tool.from_schema("one", "", schema, lambda arguments: "ran")
    (name,) = schema["properties"]

    for value in ("a" * 5000 + "!", 3):
        result = await tool.invoke(call("one", {name: value}), glue.Context(call=call("one", {})))
        assert result.is_error is (value == 3)


def test_values_are_kept_as_they_are() -> None:
    schema = {"properties": {"x": {"enum": [{"a": "pattern"}], "default": {"pattern": "^a$"}}}}

    assert without_slow_patterns(schema) == schema


@pytest.mark.parametrize("pattern", QUICK)
async def test_quick_patterns_from_elsewhere_are_checked(pattern: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}
    tool = glue.Tool.from_schema("one", "", schema, lambda arguments: "ran")

    arguments = {"x": "?" * 100_000}
    assert (await tool.invoke(call("one", arguments), glue.Context(call=call("one", arguments)))).is_error

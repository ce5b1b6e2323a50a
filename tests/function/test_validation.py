"""Properties of validation for any type and value: round trips, and agreement with jsonschema."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import json
import pathlib
import time
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar

import jsonschema
import pytest
from fakes.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import glue
from glue.function import validation
from glue.function.coercion import coerce
from glue.function.schema import Shape, shape_of
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
        inner.map(
            lambda case: (
                of(dict, str, case[0]),
                st.dictionaries(st.text(max_size=4), case[1], max_size=3),
            )
        ),
        inner.map(lambda case: (of(Optional, case[0]), st.none() | case[1])),
        st.tuples(inner, inner).map(
            lambda two: (of(tuple, two[0][0], two[1][0]), st.tuples(two[0][1], two[1][1]))
        ),
        inner.map(lambda case: (of(Box, case[0]), st.builds(Box, case[1]))),
    )


CASES = st.recursive(st.sampled_from(SCALARS), wider, max_leaves=4)


def to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {
            field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
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


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_reading_the_json_of_a_value_returns_the_value(data: st.DataObject) -> None:
    annotation, values = data.draw(CASES)
    value = data.draw(values)
    shape = shape_of(annotation)
    sent = json.loads(json.dumps(to_json(value)))

    assert shape.read(sent) == value
    assert jsonschema.Draft202012Validator(shape.schema).is_valid(sent)


TEXTS = ["", "a", "red", "3", "true", "null", "[1]", '{"x": 1}', "2020-01-01"]
KEYS = ["x", "y", "name", "children", "content", "left"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, 2.0])
    | st.sampled_from(TEXTS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)
TYPES: list[Any] = [
    *(annotation for annotation, _ in SCALARS),
    *(
        Node,
        Movie,
        Box[int],
        list[Node],
        set[str],
        frozenset[int],
        tuple[int, str],
        dict[int, str],
        dict[Color, int],
    ),
    *(dict, list, int | None, int | str, Point | Node | None, list[int] | str),
    Annotated[int, glue.Field(ge=0, lt=3, multiple_of=2)],
    Annotated[str, glue.Field(min_length=1, max_length=3, pattern="^[a-z0-9]")],
    Annotated[list[int], glue.Field(min_length=1, max_length=2)],
    Annotated[dict[str, int], glue.Field(max_length=1)],
]


@settings(max_examples=examples(600), deadline=None)
@given(st.sampled_from(TYPES), JSON)
def test_the_quick_check_accepts_only_values_that_jsonschema_accepts(
    annotation: Any, value: Any
) -> None:
    shape = shape_of(annotation)
    judge = jsonschema.Draft202012Validator(shape.schema)

    assert shape.fits is not None
    shape.validator.start(value)
    if shape.fits(value):
        assert judge.is_valid(value)
    assert shape.validator.accepts(shape.schema, value) == judge.is_valid(value)


@settings(max_examples=examples(600), deadline=None)
@given(st.sampled_from(TYPES), JSON)
def test_coercion_does_not_change_valid_values_and_reading_raises_only_validation_errors(
    annotation: Any, value: Any
) -> None:
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
    "enum": st.lists(
        st.sampled_from([None, True, False, 0, 1, 2, "a", "3", 1.0]), min_size=1, max_size=3
    ),
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


def test_references_to_anchors_are_resolved_by_jsonschema() -> None:
    schema = {"$defs": {"number": {"$anchor": "number", "type": "integer"}}, "$ref": "#number"}
    validator = Validator(schema)

    assert validator.accepts(schema, 3)
    assert not validator.accepts(schema, "three")


def test_each_part_of_a_schema_is_compiled_once() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["integer", "array"]}, "b": {"anyOf": [{"type": "null"}]}},
    }
    shape = Shape(schema)
    faults_of(shape, {"a": "x", "b": 1})
    made = len(shape.validator._checks)

    for number in range(5):
        faults_of(shape, {"a": f"x{number}", "b": number})

    assert len(shape.validator._checks) == made


def test_a_required_name_that_is_not_a_property_is_missing_in_an_empty_object() -> None:
    schema = {"required": ["x"], "additionalProperties": False}

    assert not Validator(schema).accepts(schema, {})


@settings(max_examples=examples(800), deadline=None)
@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), JSON)
def test_any_schema_accepts_the_same_values_as_jsonschema(
    schema: dict[str, Any], value: Any
) -> None:
    validator = Validator(schema)
    judge = jsonschema.Draft202012Validator(schema)

    assert validator.accepts(schema, value) == judge.is_valid(value)
    assert (validator.errors(value) is None) == judge.is_valid(value)
    if judge.is_valid(value):
        assert coerce(validator, schema, value) == value


def test_the_worked_example_in_the_docstring_is_true() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }
    validator = Validator(schema)
    check = validator.check(schema)

    faults = validator.errors({"town": "Bern"})

    assert check({"city": "Bern", "days": 2})
    assert not check({"city": "Bern", "days": "2"})
    assert check(coerce(validator, schema, {"city": "Bern", "days": "2"}))
    assert faults is not None
    assert faults.lines == [
        "city: missing, expected a string",
        "town: unknown name; there are: city, days",
    ]
    assert all(line in (validation.__doc__ or "") for line in faults.lines)


def bomb(word: str, depth: int, width: int, *, items: bool = False) -> dict[str, Any]:
    """Return a schema whose definitions name the one before them `width` times each."""
    definitions: dict[str, Any] = {"a0": {"type": "boolean"}}
    for number in range(1, depth + 1):
        part: dict[str, Any] = {"$ref": f"#/$defs/a{number - 1}"}
        if items:
            part = {"type": "array", "items": part}
        definitions[f"a{number}"] = {word: [dict(part) for _ in range(width)]}
    properties = {"x": {"$ref": f"#/$defs/a{depth}"}}
    return {"type": "object", "properties": properties, "$defs": definitions}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("items", [False, True], ids=["in place", "in lists"])
@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize(
    "value",
    [1, "abc", "y" * 50_000, {"y": 1}, nested(20), [1] * 2_000],
    ids=["number", "text", "long text", "object", "nested", "long list"],
)
def test_a_schema_that_explodes_through_references_is_refused_in_time(
    word: str, items: bool, value: Any
) -> None:
    shape = Shape(bomb(word, 20, 4, items=items))

    began = time.process_time()
    with pytest.raises(ValidationError):
        shape.read({"x": value})

    assert time.process_time() - began < 2  # without a budget: hours


def test_large_values_may_use_many_references() -> None:
    schema = {
        "type": "object",
        "properties": {"points": {"type": "array", "items": {"$ref": "#/$defs/point"}}},
        "$defs": {
            "point": {"oneOf": [{"$ref": "#/$defs/number"}, {"type": "string"}]},
            "number": {"type": "integer"},
        },
    }
    points = [*range(1_000), *map(str, range(1_000))]

    assert Shape(schema).read({"points": points}) == {"points": points}


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [(["a", "b"], True), (["a", "a"], False), ([1, 2], True), ([1, 1.0], False), ([], True)],
)
def test_items_that_must_be_unique(value: Any, is_valid: bool) -> None:
    validator = Validator({"type": "array", "uniqueItems": True})

    assert (validator.errors(value) is None) == is_valid
    assert Validator({"type": "array"}).errors(value) is None


def test_a_fault_of_the_whole_value_has_no_path() -> None:
    error = Validator({"type": "array", "items": {"type": "integer"}}).errors("x")
    inside = Validator({"type": "array", "items": {"type": "integer"}}).errors(["x"])

    assert error is not None
    assert error.lines == ['got "x", expected a list of integers']
    assert inside is not None
    assert inside.lines == ['[0]: got "x", expected an integer']


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "required": ["a"]}, {"a": 1}),
        ({"type": "object", "required": ["a"]}, {"a": 1, "b": 2}),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}, {"a": 1}),
        ({"type": "array", "minItems": 1, "maxItems": 2}, [1]),
        ({"type": "array", "minItems": 1, "maxItems": 2}, [1, 2]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}, "x"),
    ],
)
def test_a_valid_value_needs_only_the_quick_check(schema: Any, value: Any) -> None:
    assert Validator(schema).check(schema)(value)


def test_a_reference_is_followed_as_far_as_it_leads() -> None:
    text = {"type": "string"}
    validator = Validator({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": text, "c": {"$ref": "#"}}})

    assert validator.resolve({"$ref": "#/$defs/a"}) is text
    assert validator.resolve({"$ref": "#/$defs/c"}) is validator.schema
    for unchanged in ({"$ref": 7}, {"$ref": "other.json"}, {"$ref": "#/$defs/x"}, text, True):
        assert validator.resolve(unchanged) is unchanged


@pytest.mark.parametrize(
    ("keyword", "bound", "valid", "invalid"),
    [
        ("minimum", 3, 3, 2),
        ("maximum", 3, 3, 4),
        ("exclusiveMinimum", 3, 4, 3),
        ("exclusiveMaximum", 3, 2, 3),
        ("multipleOf", 3, 6, 7),
        ("minLength", 2, "ab", "a"),
        ("maxLength", 2, "ab", "abc"),
        ("minItems", 2, [1, 2], [1]),
        ("maxItems", 2, [1, 2], [1, 2, 3]),
        ("minProperties", 1, {"a": 1}, {}),
        ("maxProperties", 1, {"a": 1}, {"a": 1, "b": 2}),
        ("pattern", "^a", "ab", "ba"),
        ("const", "a", "a", "b"),
        ("enum", ["a", 1], 1, True),
        ("propertyNames", {"maxLength": 1}, {"a": 1}, {"ab": 1}),
        ("additionalProperties", {"type": "string"}, {"a": "x"}, {"a": 1}),
        ("anyOf", [{"type": "string"}, {"type": "null"}], None, 1),
        ("allOf", [{"type": "string"}, {"minLength": 1}], "a", ""),
    ],
)
def test_the_quick_check_of_a_keyword(keyword: str, bound: Any, valid: Any, invalid: Any) -> None:
    schema = {keyword: bound}
    validator = Validator(schema)

    assert validator.check(schema)(valid)
    assert not validator.check(schema)(invalid)
    assert validator.errors(valid) is None
    assert validator.errors(invalid) is not None


@pytest.mark.parametrize("other", [True, {"type": "integer"}])
def test_an_open_object_needs_its_required_names(other: Any) -> None:
    properties = {"a": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    validator = Validator({**schema, "additionalProperties": other})

    assert validator.errors({"b": 1}) is not None
    assert validator.errors({"a": 1, "b": 1}) is None


@pytest.mark.parametrize(
    ("schema", "value", "accepted"),
    [
        ({"type": "integer"}, 1.0, True),
        ({"type": "integer"}, 1.5, False),
        ({"type": "integer"}, "1", False),
        ({"type": "integer"}, True, False),
        ({"type": "number"}, 1, True),
        ({}, "x", True),
    ],
)
def test_a_whole_number_of_any_type_is_an_integer(schema: Any, value: Any, accepted: bool) -> None:
    assert Validator(schema).accepts(schema, value) is accepted

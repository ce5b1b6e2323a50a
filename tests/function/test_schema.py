"""Schemas of annotations, and the conversion of JSON to the annotated types."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import json
import pathlib
import re
import subprocess
import sys
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
)

import jsonschema
import pytest
from syrupy.assertion import SnapshotAssertion

import glue
from glue.function.schema import CannotDescribe, shape_of

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "tools.md"

# Every supported type; the classes named here are defined on the page itself.
ROWS = """
str
int
float
bool
None
Any
list[str]
Sequence[int]
tuple[int, int]
tuple[int, str]
tuple[float, ...]
set[str]
frozenset[int]
dict[str, float]
dict[int, str]
dict[Size, int]
list
dict
Literal["fast", "slow"]
Literal[1, 2, None]
Size
int | None
Optional[str]
Union[int, str]
datetime.datetime
datetime.date
datetime.time
Path
bytes
uuid.UUID
UserId
Point
Pixel
Movie
list[Point]
Tree
Annotated[str, "the city's name"]
Annotated[int, glue.Field("pages", ge=1, le=50)]
Annotated[float, glue.Field(gt=0, lt=1, multiple_of=0.25)]
Annotated[str, glue.Field(pattern="^[a-z]+$", min_length=2, examples=["ab"])]
Annotated[list[str], glue.Field(min_length=1, max_length=3)]
Annotated[int | None, glue.Field(ge=0)]
""".strip().splitlines()


def between(text: str, name: str) -> str:
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0].strip()


def classes_of_the_page() -> dict[str, Any]:
    source = between(PAGE.read_text(), "classes").removeprefix("```python").removesuffix("```")
    page = types.ModuleType("page_of_tools")
    sys.modules[page.__name__] = page  # dataclasses look for the module of their annotations
    exec(compile(source, str(PAGE), "exec"), vars(page))
    return vars(page)


def table() -> str:
    names = classes_of_the_page()
    lines = ["| annotation | schema |", "| --- | --- |"]
    for row in ROWS:
        schema = json.dumps(shape_of(eval(row, names), names).schema)
        lines.append(f"| `{row.replace('|', chr(92) + '|')}` | `{schema}` |")
    return "\n".join(lines)


def test_the_table_of_annotations_in_the_documentation_is_current(
    snapshot: SnapshotAssertion, request: pytest.FixtureRequest
) -> None:
    made = table()
    if request.config.option.update_snapshots:
        page = PAGE.read_text()
        before, after = (
            page.partition("<!-- table -->\n")[0],
            page.partition("<!-- end of table -->")[2],
        )
        PAGE.write_text(f"{before}<!-- table -->\n{made}\n<!-- end of table -->{after}")

    assert made == snapshot
    assert between(PAGE.read_text(), "table") == made, (
        "docs/tools.md is out of date; "
        "run: pytest tests/function/test_schema.py -k table --snapshot-update"
    )


@pytest.mark.parametrize("row", ROWS)
def test_every_schema_in_the_table_is_valid(row: str) -> None:
    names = classes_of_the_page()

    jsonschema.Draft202012Validator.check_schema(dict(shape_of(eval(row, names), names).schema))


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    DOT = (0, 0)
    BOX = (1, 1)


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node] = dataclasses.field(default_factory=list)
    born: datetime.date | None = None


@dataclasses.dataclass
class Ping:
    pong: Pong | None = None


@dataclasses.dataclass
class Pong:
    ping: Ping | None = None


T = TypeVar("T")


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@dataclasses.dataclass
class Shelf(Generic[T]):
    boxes: list[Box[T]]


class Base(TypedDict):
    id: int


class Movie(Base, total=False):
    title: Required[str]
    year: NotRequired[int]
    color: Color


class Pair(NamedTuple):
    left: int
    right: datetime.date = datetime.date(2020, 1, 1)


def read(annotation: Any, value: Any) -> Any:
    return shape_of(annotation).read(value)


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        (float, 3, 3.0),
        (list[Color], ["red"], [Color.RED]),
        (Level, 2, Level.HIGH),
        (Shape, "BOX", Shape.BOX),
        (Literal[Color.RED], "red", Color.RED),
        (set[str], ["a", "b"], {"a", "b"}),
        (frozenset[int], [1, 2], frozenset({1, 2})),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (tuple[()], [], ()),
        (collections.deque[int], [1], collections.deque([1])),
        (dict[int, Point], {"7": {"x": 1}}, {7: Point(1.0)}),
        (dict[Color, int], {"red": 1}, {Color.RED: 1}),
        (Mapping[str, datetime.date], {"a": "2026-01-02"}, {"a": datetime.date(2026, 1, 2)}),
        (
            datetime.datetime,
            "2026-01-02T03:04:05Z",
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        ),
        (datetime.time, "03:04", datetime.time(3, 4)),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (bytes, "aGk=", b"hi"),
        (bytes, "_-8=", b"\xff\xef"),
        (
            uuid.UUID,
            "12345678123456781234567812345678",
            uuid.UUID("12345678123456781234567812345678"),
        ),
        (Node, {"name": "a", "children": [{"name": "b", "born": "2020-01-02"}]}, None),
        (Ping, {"pong": {"ping": {}}}, Ping(Pong(Ping()))),
        (Box[int], {"content": 3}, Box(3)),
        (Box[Color], {"content": "red"}, Box(Color.RED)),
        (Shelf[Color], {"boxes": [{"content": "red"}]}, Shelf([Box(Color.RED)])),
        (
            Movie,
            {"id": 1, "title": "x", "color": "blue"},
            {"id": 1, "title": "x", "color": Color.BLUE},
        ),
        (Pair, {"left": 1}, Pair(1)),
        (Pair, {"left": 1, "right": "2021-05-06"}, Pair(1, datetime.date(2021, 5, 6))),
        (int | datetime.date | str, "2020-01-01", datetime.date(2020, 1, 1)),
        (int | datetime.date | str, "soon", "soon"),
        (Point | Node, {"name": "a"}, Node("a")),
        (Point | None, None, None),
        (NewType("UserId", int), 4, 4),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_json_is_converted_to_the_annotated_type(
    annotation: Any, given: Any, expected: Any
) -> None:
    if expected is None and given is not None:
        expected = Node("a", [Node("b", born=datetime.date(2020, 1, 2))])

    made = read(annotation, given)

    assert made == expected
    assert type(made) is type(expected)


def test_required_keys_of_a_typed_dict_are_known_if_annotations_are_postponed() -> None:
    schema = shape_of(Movie).schema

    assert set(schema["required"]) == {"id", "title"}
    assert schema["additionalProperties"] is False


def test_only_types_that_contain_themselves_are_definitions() -> None:
    assert shape_of(Node).schema["$ref"] == "#/$defs/Node"
    assert list(shape_of(Ping).schema["$defs"]) == ["Ping"]
    assert "$defs" not in shape_of(list[Point]).schema


def test_two_recursive_types_with_the_same_name_get_two_definitions() -> None:
    def other() -> Any:
        @dataclasses.dataclass
        class Node:
            next: Node | None = None

        return Node

    local = other()
    made = shape_of(tuple.__class_getitem__((Node, local)), {"Node": local})

    assert sorted(made.schema["$defs"]) == ["Node", "Node_2"]
    assert made.read([{"name": "a"}, {"next": {}}]) == (Node("a"), local(local()))


def test_a_recursive_type_alias_has_a_schema() -> None:
    if sys.version_info < (3, 12):
        pytest.skip("type statements are new in Python 3.12")
    names: dict[str, Any] = {}
    exec("type Json = dict[str, Json] | list[Json] | str | int | None", names)

    made = shape_of(names["Json"])

    assert made.read({"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    "annotation",
    [
        Callable[[], int],
        type,
        complex,
        Iterator[int],
        re.Pattern[str],
        Literal[b"x"],
        dict[tuple[int, int], str],
        set[list[int]],
        list[complex],
        Annotated[str, glue.Field(ge=3)],
        "Missing",
    ],
)
def test_a_type_without_a_schema_is_an_error(annotation: Any) -> None:
    with pytest.raises(CannotDescribe):
        shape_of(annotation)


def test_the_error_names_the_field_of_the_class() -> None:
    @dataclasses.dataclass
    class Bad:
        socket: complex

    with pytest.raises(CannotDescribe, match=r"Bad\.socket: cannot describe complex"):
        shape_of(Bad)


def test_a_reference_to_a_url_is_not_requested() -> None:
    from glue.function.schema import Shape as Made

    made = Made({"$ref": "http://127.0.0.1:9/schema.json"})

    with pytest.raises(Exception, match="Unresolvable"):
        made.read({})


def test_jsonschema_is_not_imported_for_values_that_fit() -> None:
    code = """
import sys, glue
@glue.tool
def weather(city: str, days: int = 3, tags: list[str] | None = None) -> str: return city
arguments = weather.signature.parse('{"city": "x", "days": "4", "tags": "a"}')
assert arguments == {"city": "x", "days": 4, "tags": ["a"]}
assert not {"jsonschema", "pydantic", "msgspec"} & sys.modules.keys()
try: weather.signature.parse('{"city": 1}')
except ValueError: pass
assert "jsonschema" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (Annotated[str, glue.Field(ge=1)], "ge"),
        (Annotated[int, glue.Field(min_length=1)], "min_length"),
        (Annotated[int, glue.Field(pattern="a")], "pattern"),
    ],
)
def test_a_bound_that_does_not_apply_to_the_type_is_an_error(annotation: Any, name: str) -> None:
    with pytest.raises(CannotDescribe, match=f"^{name} does not apply to "):
        shape_of(annotation)


@dataclasses.dataclass
class Measured:
    length: int
    unit: dataclasses.InitVar[str] = "m"

    def __post_init__(self, unit: str) -> None:
        self.text = f"{self.length} {unit}"


def test_a_parameter_of_a_dataclass_that_is_not_stored_is_passed_on() -> None:
    shape = shape_of(Measured)

    assert shape.schema["properties"]["unit"] == {"type": "string", "default": "m"}
    assert shape.read({"length": 3, "unit": "km"}).text == "3 km"


def test_a_class_of_a_module_that_is_gone_can_be_described() -> None:
    made = dataclasses.make_dataclass("Point", [("x", int), ("y", "int")])
    made.__module__ = "gone"

    assert shape_of(made).read({"x": 1, "y": 2}) == made(1, 2)


@pytest.mark.parametrize(
    ("text", "data"),
    [("+/+/", b"\xfb\xff\xbf"), ("-_-_", b"\xfb\xff\xbf"), ("aG\nk=", b"hi"), ("", b"")],
)
def test_bytes_are_read_from_both_alphabets_of_base64(text: str, data: bytes) -> None:
    assert shape_of(bytes).read(text) == data


Bounded = TypeVar("Bounded", bound=int)
Unbounded = TypeVar("Unbounded")


def test_a_type_variable_is_described_by_its_bound() -> None:
    assert shape_of(Bounded).schema == {"type": "integer"}
    assert shape_of(Unbounded).schema == {}


class Speed(enum.Enum):
    FAST = "fast"
    SLOW = ("slow", 1)


def test_a_default_is_shown_if_it_is_valid_in_json() -> None:
    @glue.tool
    def go(
        speed: Speed = Speed.FAST,
        size: tuple[int, int] = (1, 2),
        limit: float = float("inf"),
        note: str | None = None,
        names: list[str] = ["a"],  # noqa: B006
        labels: dict[str, str] = {"a": "b"},  # noqa: B006
        ranks: dict[int, str] = {1: "a"},  # noqa: B006
        sizes: dict[str, tuple[int, int]] = {"a": (1, 2)},  # noqa: B006
    ) -> str:
        """Go."""
        return ""

    properties = go.spec.parameters["properties"]
    assert {name: each.get("default", "none") for name, each in properties.items()} == {
        "speed": "fast",
        "size": "none",
        "limit": "none",
        "note": "none",
        "names": ["a"],
        "labels": {"a": "b"},
        "ranks": "none",
        "sizes": "none",
    }


def test_class_variables_and_fields_that_the_class_sets_are_no_arguments() -> None:
    @dataclasses.dataclass
    class Order:
        kind: ClassVar[str] = "order"
        price: int
        total: int = dataclasses.field(init=False, default=0)

        def __post_init__(self) -> None:
            self.total = 2 * self.price

    made = shape_of(Order)

    assert list(made.schema["properties"]) == ["price"]
    assert made.read({"price": 3}).total == 6
